"""A step's fan-out: each keeper starts those below it, whatever the tree's width."""
from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_runs import Rig, processes_matching, until

from slurmbridge.runtime import processes
from slurmbridge.runtime.launch import KEEPERS_VARIABLE, tree_width
from slurmbridge.runtime.tree import branches


@pytest.mark.parametrize(("count", "width", "sizes"), [
    (0, 16, []), (1, 16, [1]), (5, 1, [5]), (5, 2, [2, 3]), (64, 16, [4] * 16), (3, 16, [1, 1, 1]), (17, 16, None)])
def test_branches_are_runs_of_neighbours(count, width, sizes):
    found = branches(range(count), width)
    assert [item for branch in found for item in branch] == list(range(count))
    assert all(found) and len(found) <= width
    if sizes is not None:
        assert [len(branch) for branch in found] == sizes


def test_width_is_that_of_the_command_line_then_of_the_cluster():
    assert [tree_width(None, {}), tree_width(None, {"TreeWidth": "3"}), tree_width(2, {"TreeWidth": "3"})] == [16, 3, 2]


@pytest.fixture(scope="module")
def deep(commands: Path) -> Iterator[Rig]:
    """An engine where every node has a keeper of its own."""
    before = os.environ.get(KEEPERS_VARIABLE)
    os.environ[KEEPERS_VARIABLE] = "1000"
    made = Rig(commands)
    try:
        yield made
    finally:
        made.close()
        os.environ.pop(KEEPERS_VARIABLE)
        if before is not None:
            os.environ[KEEPERS_VARIABLE] = before


@pytest.fixture(params=[1, 2, 16])
def gang(request, deep: Rig):
    """Runs or launches a script on four nodes under a tree of this width."""
    def act(script: str, *, wait: bool = True):
        job = deep.launch(script, nodes=4, order={"settings": {"TreeWidth": str(request.param)}})
        return deep.wait(job) if wait else job
    return act


def test_output_and_input_pass_through(gang):
    job = gang("""srun -l -n8 bash -c 'echo $SLURMD_NODENAME $SLURM_PROCID; echo err $SLURM_PROCID >&2'
printf 'one\\ntwo\\n' | srun -l -n4 cat; printf x | srun -n4 -l -i 2 cat; head -c 300000 /dev/zero | srun -n4 wc -c""")
    expected = [f"{rank}: n{rank // 2 + 1} {rank}" for rank in range(8)] + [f"{rank}: err {rank}" for rank in range(8)]
    expected += [f"{rank}: {word}" for rank in range(4) for word in ("one", "two")] + ["2: x"] + ["300000"] * 4
    assert sorted(job.lines()) == sorted(expected)
    assert [event.exit_status for event in job.of("step_ended")] == [0, 0, 0, 0]


def test_how_tasks_end_is_told_by_node(gang):
    job = gang("srun -n4 bash -c 'exit $SLURM_PROCID'; echo rc $?; srun -n4 nosuch; echo rc $?")
    lines = job.lines()
    for rank in (1, 2, 3):
        assert f"srun: error: n{rank + 1}: task {rank}: Exited with exit code {rank}" in lines
    assert [line for line in lines if line.startswith("rc")] == ["rc 3", "rc 2"]
    assert len([line for line in lines if "execve(): nosuch" in line]) == 4


def test_usage_of_every_task_is_known(gang):
    usage = gang("srun -n4 bash -c 'for i in {1..20000}; do :; done'").of("step_ended")[0].data["usage"]
    assert usage["num_tasks"] == 4
    assert usage["user_cpu_s"] > 0


def sleeping(mark: str) -> list[int]:
    return [pid for pid in processes_matching(f"sleep {mark}")
            if Path(f"/proc/{pid}/comm").exists() and Path(f"/proc/{pid}/comm").read_text() == "sleep\n"]


def test_end_reaches_everybody(gang, deep):
    mark = f"81{os.getpid()}"
    job = gang(f"exec srun -n4 bash -c 'touch r$SLURM_PROCID; setsid sleep {mark} & sleep {mark}'", wait=False)
    until(lambda: len(list(job.folder.glob("r*"))) == 4 and len(sleeping(mark)) == 8)
    deep.call(deep.engine.terminate(job.run, cause="CANCELLED", grace_s=1))
    deep.wait(job)
    assert processes_matching(f"sleep {mark}") == []
    assert job.text().count(f"*** STEP {job.run.job_id}.0 ON n1 CANCELLED AT ") == 1


def test_look_asks_all(gang, deep):
    job = gang("srun -n4 bash -c 'touch r$SLURM_PROCID; exec sleep 30'", wait=False)
    until(lambda: len(list(job.folder.glob("r*"))) == 4)
    looked = deep.call(deep.engine.look(job.run))["0"]
    assert sorted(looked["pids"]) == ["n1", "n2", "n3", "n4"]
    assert all(len(pids) == 1 for pids in looked["pids"].values())
    deep.call(deep.engine.terminate(job.run, cause="CANCELLED", grace_s=1))
    deep.wait(job)


def test_keeper_that_is_killed_takes_its_branch_along(gang, deep):
    mark = f"82{os.getpid()}"
    job = gang(f"srun -n4 bash -c 'touch r$SLURM_PROCID; exec sleep {mark}'; echo rc $?", wait=False)
    until(lambda: len(list(job.folder.glob("r*"))) == 4 and len(sleeping(mark)) == 4)
    victim = next(pid for pid in sleeping(mark)
                  if b"SLURM_PROCID=1\0" in Path(f"/proc/{pid}/environ").read_bytes())
    os.kill(processes._stat(victim)[1], signal.SIGKILL)
    until(lambda: "srun: error: Node failure on n2" in job.lines())
    deep.call(deep.engine.signal(job.run, signal.SIGKILL, step_id="0"))
    deep.wait(job)
    assert job.lines()[-1] == "rc 137"
    assert processes_matching(f"sleep {mark}") == []


def test_mpi_worlds_meet(gang):
    job = gang("srun --mpi=pmi2 -n4 bash -c 'echo $PMI_RANK/$PMI_SIZE'")
    assert sorted(job.lines()) == [f"{rank}/4" for rank in range(4)]
