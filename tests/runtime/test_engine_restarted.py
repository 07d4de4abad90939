"""The controller, the spawner and step daemons die; runs go on or end with their true outcome."""
from __future__ import annotations

import json
import os
import signal
import subprocess
import textwrap

import pytest
from local_runs import PYTHON, Job, processes_matching, until

from slurmbridge.cluster.port import RunId
from slurmbridge.slurm.jobspec import JobRequest
from slurmbridge.views.records import JobRecord

ENGINE = textwrap.dedent("""
    import asyncio, sys, time
    from pathlib import Path
    from slurmbridge.cluster.local import LocalEngine
    from slurmbridge.cluster.port import LaunchOrder, RunId
    from slurmbridge.slurm.jobspec import JobRequest
    from slurmbridge.views.records import JobRecord, NodeAllocation
    sys.path.insert(0, {here!r})
    from local_runs import NODES, USER

    async def main():
        engine = LocalEngine(NODES, Path({state!r}))
        await engine.recover([])
        for number in range(1, 9):
            script = "#!/bin/bash\\nsleep 0.%d; echo done; exit %d\\n" % (number, number)
            job = JobRecord(job_id=number, uid=USER.pw_uid, gid=USER.pw_gid, user_name=USER.pw_name, nodes=("n1",),
                            request=JobRequest(script=script, work_dir={work!r}, environment=("PATH=/usr/bin:/bin",)),
                            allocation=[NodeAllocation("n1", 1, 1)], batch_host="n1", start_s=time.time())
            await engine.launch(LaunchOrder(RunId(number, 0), job, "secret%d" % number, "lab", "", 1.0, None))
        print("launched", flush=True)
        await asyncio.sleep(60)
    asyncio.run(main())
""")


def test_controller_killed_while_jobs_run(own_rig):
    rig = own_rig
    rig.call(rig.engine.close())
    rig.stop_reading()
    work = rig.state / "work"
    work.mkdir()
    work.chmod(0o777)
    script = ENGINE.format(here=os.path.dirname(__file__), state=str(rig.state), work=str(work))
    controller = subprocess.Popen([PYTHON, "-c", script], stdout=subprocess.PIPE, text=True)
    assert controller.stdout is not None
    assert controller.stdout.readline() == "launched\n"
    controller.kill()
    controller.wait()
    controller.stdout.close()
    records = [JobRecord(job_id=number, request=JobRequest()) for number in range(1, 8)]
    lost = JobRecord(job_id=50, request=JobRequest())
    jobs = {RunId(r.job_id, 0): Job(None, work) for r in [*records, lost]}  # type: ignore[arg-type]
    rig.jobs.update(jobs)
    rig.start([*records, lost])
    for run, job in jobs.items():
        with rig.changed:
            assert rig.changed.wait_for(
                lambda job=job: job.events and job.last.kind in ("finished", "launch_failed"), 20), run
        if run.job_id == 50:
            assert (job.last.kind, job.last.data["reason"]) == ("launch_failed", "NotStarted")
            continue
        assert (job.status, job.reason) == (run.job_id << 8, "")
        assert (work / f"slurm-{run.job_id}.out").read_text() == "done\n"
        rig.call(rig.engine.acknowledge(run, job.last.sequence))
    until(lambda: not [name for name in os.listdir(rig.state / "run") if name[0].isdigit()])   # 8 was not wanted


def test_orders_reach_a_run_after_a_restart(own_rig):
    rig = own_rig
    job = rig.started(rig.launch("sleep 60"))
    rig.call(rig.engine.close())
    rig.stop_reading()
    job.events.clear()
    rig.start([job.order.job])
    rig.call(rig.engine.terminate(job.run, cause="CANCELLED", grace_s=2))
    assert rig.wait(job).reason == "Cancelled"


def test_a_run_that_nobody_wants_is_ended(own_rig):
    rig = own_rig
    mark = f"95{os.getpid()}"
    rig.started(rig.launch(f"sleep {mark}"))
    rig.call(rig.engine.close())
    rig.stop_reading()
    rig.start([])
    until(lambda: not processes_matching(f"sleep {mark}") and not list((rig.state / "run").glob("*/journal")))


def test_spawner_killed(own_rig):
    rig = own_rig
    job = rig.started(rig.launch("sleep 1.5; exit 9"))
    spawner = int((rig.state / "run" / "spawner.lock").read_text())
    os.kill(spawner, signal.SIGKILL)
    until(lambda: int((rig.state / "run" / "spawner.lock").read_text() or spawner) != spawner)
    assert rig.do("exit 4").status == 4 << 8                  # a new one launches
    assert rig.wait(job).status == 9 << 8                     # and what ran goes on


@pytest.mark.parametrize("nodes", [1, 2])
def test_step_daemon_killed(own_rig, nodes):
    rig = own_rig
    mark = f"94{os.getpid()}"
    job = rig.started(rig.launch(f"setsid sleep {mark} & sleep {mark}", nodes=nodes))
    until(lambda: len(processes_matching(f"sleep {mark}")) == 2)
    journal = (rig.state / "run" / f"{job.run.job_id}.0" / "journal").read_text()
    pids = [entry["pid"] for entry in map(json.loads, journal.splitlines()) if entry["kind"] == "daemon"]
    assert len(pids) == nodes
    os.kill(pids[0], signal.SIGKILL)
    assert rig.wait(job).reason == "StepDaemonLost"
    until(lambda: not processes_matching(f"sleep {mark}"))


def test_shutdown_ends_everything(own_rig):
    rig = own_rig
    mark = f"93{os.getpid()}"
    job = rig.started(rig.launch(f"trap '' TERM; srun -n1 sleep {mark} & setsid sleep {mark}"))
    until(lambda: len(processes_matching(f"sleep {mark}")) >= 2)
    spawner = int((rig.state / "run" / "spawner.lock").read_text())
    rig.call(rig.engine.shutdown())
    assert processes_matching(f"sleep {mark}") == []
    assert not os.path.exists(f"/proc/{spawner}")
    assert job.reason == "Shutdown"


def test_launching_again_changes_nothing(rig):
    job = rig.launch("echo once >> count; sleep 0.3")
    rig.call(rig.engine.launch(job.order))
    rig.wait(job)
    assert job.lines("count") == ["once"]
    assert job.kinds() == ["started", "script_ended", "finished"]


def test_a_run_that_was_never_launched_is_over(rig):
    job = Job(None, rig.state)  # type: ignore[arg-type]
    rig.jobs[RunId(9999, 3)] = job
    rig.call(rig.engine.terminate(RunId(9999, 3), cause="CANCELLED", grace_s=1))
    rig.wait(job)
    assert job.reason == "NotStarted"
