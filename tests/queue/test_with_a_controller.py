"""The installed commands against a running controller: submit, look, cancel, as a user does."""
from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest

from slurmbridge.client.launcher import SLURM_VERSION as CLIENT_VERSION
from slurmbridge.slurm.version import SLURM_VERSION

SLEEP = ("--output=/dev/null", "--wrap", "sleep 1000")


def test_one_version_everywhere():
    assert CLIENT_VERSION == SLURM_VERSION


def test_array_from_submission_to_the_end(site):
    job = site.submit("--array=1-20%2", "--nodes=1", *SLEEP)
    site.wait_for(f"{job}_1", "RUNNING")
    site.wait_for(f"{job}_2", "RUNNING")
    rows = site.ok("squeue", "-h", "-S", "i", "-o", "%i %t %r").splitlines()
    assert rows == [f"{job}_1 R None", f"{job}_2 R None", f"{job}_[3-20%2] PD JobArrayTaskLimit"]
    site.ok("scancel", f"{job}_[5-9]", f"{job}_2")
    site.wait_for(f"{job}_3", "RUNNING")
    assert f"{job}_[4,10-20%2]" in site.ok("squeue", "-h", "-t", "PD", "-o", "%i")
    site.ok("scancel", str(job))
    assert not site.ok("squeue", "-h", "-t", "PD,R")
    site.wait_for(f"{job}_3", "CANCELLED")
    done = site.run("scancel", "-v", str(job))
    assert done.returncode == 0 and f"scancel: Terminating job {job}" in done.stderr
    assert site.run("scancel", "-s", "USR1", str(job)).returncode == 1
    assert site.run("squeue", "-j", str(job + 1000)).stderr == "slurm_load_jobs error: Invalid job id specified\n"


def test_filters_and_other_users_jobs(site, unix_users):
    held = site.submit("-H", "-J", "mine", *SLEEP, user="alice")
    other = site.submit("-H", "-J", "theirs", *SLEEP, user="bob")
    denied = site.run("scancel", str(other), user="alice")
    assert denied.stderr == f"scancel: error: Kill job error on job id {other}: Access/permission denied\n"
    assert denied.returncode == 2002 & 255
    assert site.ok("squeue", "-h", "--me", "-o", "%j", user="alice") == "mine\n"
    site.ok("scancel", "--me", user="alice")
    assert site.ok("squeue", "-h", "-o", "%A").split() == [str(other)]
    assert site.job_field(held, "%T") == "CANCELLED"


@pytest.mark.parametrize("command", ["sbatch", "squeue", "scancel", "scontrol", "sinfo", "sacctmgr", "sprio", "sshare"])
def test_version_and_help_of_every_command(shared_site, command):
    assert shared_site.ok(command, "--version") == f"slurm {SLURM_VERSION}\n"
    done = shared_site.run(command, "--help")
    assert done.returncode == 0 and len(done.stdout) > 200


def test_repeated_table_stops_with_its_caller(shared_site):
    process = subprocess.Popen(["squeue", "-i", "1"], env={**os.environ, **shared_site.env}, text=True,
                               stdout=subprocess.PIPE)
    lines = [process.stdout.readline() for _ in range(6)]
    assert lines[1] == lines[4] and "JOBID" in lines[1]
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == -signal.SIGINT


SCRIPT = """#!/bin/bash
#SBATCH --time=1 --signal=B:USR2@{before} --output=out.txt
trap 'echo shell USR1' USR1
trap 'echo shell USR2' USR2
bash -c 'trap "echo child USR1" USR1; trap "echo child USR2" USR2; echo ready
         while [ ! -e stop ]; do sleep 0.1; done' &
while kill -0 $! 2>/dev/null; do wait $!; done
"""


def test_signals_for_the_batch_shell_alone_and_for_all_of_it(local_site):
    site, out = local_site, local_site.work / "out.txt"
    (site.work / "job.sh").write_text(SCRIPT.format(before=54))
    job = site.submit("job.sh")

    def until(line: str, times: int = 1) -> list[str]:
        for _ in range(120):
            lines = out.read_text().splitlines() if out.exists() else []
            if lines.count(line) >= times:
                break
            time.sleep(0.1)
        return lines

    until("ready")
    site.ok("scancel", "-b", "-s", "USR1", str(job))
    assert until("shell USR1") == ["ready", "shell USR1"]
    site.ok("scancel", "-f", "-s", "USR1", str(job))
    assert "child USR1" in until("child USR1") and "shell USR1" in until("shell USR1", 2)
    lines = until("shell USR2")
    assert "shell USR2" in lines and "child USR2" not in lines
    (site.work / "stop").touch()
    site.wait_for(job, "COMPLETED")
