"""The recipes of examples/ that start programs over several nodes, run as they are."""
from __future__ import annotations

import importlib.util
import os
import re
import shutil
import socket
import sys
import tempfile
import time
from pathlib import Path

import pytest
from running import USER
from sites import ROOT

EXAMPLES = ROOT / "examples"


@pytest.fixture
def port() -> str:
    with socket.socket() as free:
        free.bind(("", 0))
        return str(free.getsockname()[1])


def run_example(programs, name, *files, options=(), env=None, **more):
    """An example's output, from a folder that holds it and what it names."""
    folder = programs.new_folder()
    for file in (name, *files):
        shutil.copy(EXAMPLES / file, folder)
    return programs.run(folder / name, "-o", "out", *options, folder=folder, env=env, **more)


@pytest.fixture(scope="module")
def torch(programs) -> dict[str, str]:
    """The environment in which PyTorch, Lightning and Ray are found."""
    home = Path(sys.prefix) / "torch"
    if not (home / ".installed").exists():
        pytest.skip("PyTorch, Lightning and Ray are not installed (tests/setup_torch.sh)")
    return {"PATH": f"{home}/bin:{programs.site.env['PATH']}", "OMP_NUM_THREADS": "1"}


def test_torchrun_over_two_nodes(programs, port, torch):
    lines = run_example(programs, "torchrun.sh", "allreduce.py", env={"PORT": port, **torch})
    # ranks of one node write their lines and the ends of lines as they come
    said = re.findall(r"rank (\d) of 4 \(local ([01]) on (n[12])\): sum 6", "\n".join(lines))
    assert sorted(rank for rank, _, _ in said) == ["0", "1", "2", "3"], "\n".join(lines)
    assert sorted((node, local) for _, local, node in said) == [("n1", "0"), ("n1", "1"), ("n2", "0"), ("n2", "1")]


def test_lightning_requeues_its_job_and_goes_on(programs, torch):
    """The first run ends by USR1, as --signal would send it, once it has come some steps further."""
    folder = programs.new_folder()
    for file in ("lightning.sh", "lightning_train.py"):
        shutil.copy(EXAMPLES / file, folder)
    site, out = programs.site, folder / "out"
    job = site.submit("-o", "out", folder / "lightning.sh", cwd=folder, user=USER, env={"STEPS": "60", **torch})
    site.wait_for(job, "RUNNING")
    await_text(out, "step 3")
    site.ok("scancel", "--signal=USR1", job, user=USER)
    await_text(out, "run 1: rank 0 of 2")
    site.wait_for(job, "COMPLETED", timeout_s=240)
    text = out.read_text()
    steps = [int(number) for number in re.findall(r"^step (\d+)$", text, re.MULTILINE)]
    assert list(dict.fromkeys(steps)) == list(range(60)), text         # the second run went on where the first stopped
    assert steps.count(0) == 1, text          # only what followed the checkpoint was made again
    assert {f"rank {rank}: done after 60 steps" for rank in (0, 1)} <= set(text.splitlines())
    assert site.ok("sacct", "-n", "-X", "-D", "-P", "-j", job, "-o", "State,Restarts").split() == [
        "REQUEUED|0", "COMPLETED|1"]


def await_text(file, text):
    deadline = time.monotonic() + 240                 # two ranks import PyTorch beside all else that the machine does
    while not file.exists() or text not in file.read_text():
        assert time.monotonic() < deadline, file.read_text() if file.exists() else "no output"
        time.sleep(0.1)


def test_ray_over_two_nodes(programs, port, torch):
    temporary = tempfile.mkdtemp(prefix="ray-", dir="/tmp")            # socket paths have 107 bytes
    os.chmod(temporary, 0o777)
    try:
        lines = run_example(programs, "ray.sh", "ray_driver.py", env={
            **torch, "PORT": port, "RAY_TMPDIR": temporary, "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_OPTIONS": "--include-dashboard=false"})
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    assert [line for line in lines if re.fullmatch(r"\d n\d", line)] == ["4 n1", "9 n2"], lines


def test_a_cluster_inside_the_job(programs, port):
    lines = run_example(programs, "workers.sh", "workers.py", env={"PORT": port})
    words = [line for line in lines if line.startswith(("workers", "sum"))]
    assert words == ["workers: n2 n3", "sum of squares: 2470 by n2 n3"], lines
    assert not [line for line in lines if "Traceback" in line], "\n".join(lines)


def test_a_job_that_requeues_itself_before_its_limit(programs):
    lines = run_example(programs, "requeue.sh", "train.py", options=("--time=1", "--signal=USR1@54"),
                        env={"STEPS": "80"})
    job = programs.job
    runs = [line for line in lines if line.startswith("run ")]
    assert len(runs) > 1 and runs == [f"run {n + 1} of job {job}" for n in range(len(runs))]
    begins = re.findall(r"rank (\d) of 4, node ([01]), local ([01]), head n1:(\d+): from step (\d+)", "\n".join(lines))
    assert sorted(begin[0] for begin in begins) == sorted("0123" * len(runs))
    assert {int(begin[4]) == 0 for begin in begins[:4]} == {True} and all(int(begin[4]) > 3 for begin in begins[4:])
    ended = {line for line in lines if "done" in line}    # some of the first run's do so within KillWait
    assert ended == {f"rank {n}: done at step 80" for n in range(4)}
    assert programs.site.ok("sacct", "-n", "-X", "-D", "-P", "-j", job, "-o", "State,Restarts").split() == [
        *(f"REQUEUED|{n}" for n in range(len(runs) - 1)), f"COMPLETED|{len(runs) - 1}"]


def test_submitit_checkpoints_and_requeues(programs):
    if importlib.util.find_spec("submitit") is None:
        pytest.skip("submitit is not installed")
    folder = programs.new_folder()
    done = programs.site.run(sys.executable, EXAMPLES / "checkpoint_submitit.py", folder / "log", "48", "150",
                             cwd=folder, timeout_s=90)
    assert done.returncode == 0, done
    said = re.search(r"150 steps in (\d+) runs", done.stdout)
    assert said and int(said[1]) > 1, done.stdout
