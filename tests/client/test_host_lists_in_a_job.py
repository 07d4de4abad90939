"""What a job's step daemon says to ``scontrol show hostnames`` when the controller is away."""
from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from slurmbridge.runtime.hostlists import answer

AWAY = "scontrol: error: Unable to contact slurm controller (connect failure)\n"
CASES = [
    (["show", "hostnames", "n[1-3]"], ("n1\nn2\nn3\n", "", 0)), (["show", "hostnames"], ("a1\na2\n", "", 0)),
    (["show", "hostn", "b"], ("b\n", "", 0)), (["-o", "sh", "hostlist", "n2,n1"], ("n[2,1]\n", "", 0)),
    (["show", "hostlistsorted", "n2,n1"], ("n[1-2]\n", "", 0)), (["show", "job", "5"], ("", AWAY, 1)),
    (["hold", "5"], ("", AWAY, 1)), ([], ("", AWAY, 1)), (["show", "hostlist", "/etc/hosts"], ("", AWAY, 1)),
    (["show", "hostlist"], ("", "invalid encode argument\n", 1))]


@pytest.mark.parametrize("argv, said", CASES, ids=[" ".join(argv) for argv, _ in CASES])
def test_answers(argv, said):
    assert answer(argv, {"SLURM_NODELIST": "a[1-2]"}) == said


def test_job_that_outlives_its_controller(local_site):
    """A running job expands its node list and starts a step while nobody answers for the controller."""
    site = local_site
    script = site.work / "job.sh"
    script.write_text("#!/bin/bash\nwhile [ ! -e go ]; do sleep 0.1; done\n"
                      'scontrol show hostnames "$SLURM_JOB_NODELIST"\nsqueue\nsrun -l echo stepped\n')
    job = site.submit("-N2", "-o", "out.txt", script)
    site.wait_for(job, "RUNNING")
    pid = int(site.ok("slurmbridge", "status", "--state", str(site.state)).split("pid ")[1].split()[0])
    os.kill(pid, signal.SIGKILL)
    while Path(f"/proc/{pid}").exists():      # nobody is told that the connection broke
        time.sleep(0.02)
    (site.work / "go").touch()
    for _ in range(200):
        text = (site.work / "out.txt").read_text()
        if text.count("stepped") == 2:
            break
        time.sleep(0.1)
    lines = text.splitlines()
    assert lines[:2] == ["n1", "n2"], text
    assert "slurm_load_jobs error: Unable to contact slurm controller (connect failure)" in lines
    assert sorted(lines[-2:]) == ["0: stepped", "1: stepped"]
    site.up()
    site.wait_for(job, "COMPLETED")
