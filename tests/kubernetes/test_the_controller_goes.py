"""A controller that is killed leaves jobs running; its successor finds them, and what ended meanwhile, as it was."""
from __future__ import annotations

import os
import signal
import time

import pytest


def kill_controller(site) -> None:  # type: ignore[no-untyped-def]
    pid = int((site.state / "slurmbridge.pid").read_text())
    os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + 10
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < until:
        time.sleep(0.02)


def test_jobs_outlive_it_with_their_true_ends(make_kube) -> None:  # type: ignore[no-untyped-def]
    site = make_kube()
    go = site.work / "go"
    waits = f"while [ ! -e {go} ]; do sleep 0.2; done"
    ends = site.submit("-N2", "--mem=64", site.script(f"{waits}\nsrun -l hostname\nexit 5"))
    stays = site.submit("--mem=64", site.script("sleep 300"))
    for job in (ends, stays):
        site.wait_for(job, "RUNNING")
    pending = site.submit("-N3", "--exclusive", "--mem=64", site.script("true"))
    kill_controller(site)
    go.touch()
    output = site.work / f"slurm-{ends}.out"
    until = time.monotonic() + 30
    while output.read_text().count("slurm-") < 2:
        assert time.monotonic() < until
        time.sleep(0.1)
    site.up()
    site.wait_for(ends, "FAILED")
    assert site.accounting(ends) == ["FAILED|5:0"]
    steps = site.ok("sacct", "-n", "-P", "-j", str(ends), "-o", "jobid,state,exitcode,ntasks").splitlines()
    assert steps[1:] == [f"{ends}.batch|FAILED|5:0|1", f"{ends}.0|COMPLETED|0:0|2"]
    assert site.job_field(stays, "%T") == "RUNNING"
    site.ok("scancel", str(stays))
    site.wait_for(stays, "CANCELLED")
    site.wait_for(pending, "COMPLETED", timeout_s=60)
    assert len(site.accounting(pending)) == 1


@pytest.mark.parametrize("moment_s", [0.0, 0.1, 0.3, 0.7])
def test_killed_while_a_gang_starts(make_kube, moment_s: float) -> None:  # type: ignore[no-untyped-def]
    """Whatever had been done of it, the job runs once and to its end."""
    site = make_kube()
    script = site.script("echo once >> $SLURM_JOB_ID.count; srun hostname")
    jobs = [site.submit("-N2", "--mem=64", script) for _ in "ab"]
    time.sleep(moment_s)
    kill_controller(site)
    site.up()
    for job in jobs:
        site.wait_for(job, "COMPLETED", timeout_s=60)
        assert (site.work / f"{job}.count").read_text() == "once\n"
        assert site.accounting(job)[-1] == "COMPLETED|0:0"
