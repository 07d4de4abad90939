"""sstat: what running steps have used up to now, asked outside and inside of their job."""
from __future__ import annotations

import re

import pytest
from sites import DATA, Site

HOLD = "exec python3 -c 'x = bytearray(60 << 20); x[::4096] = b\"x\" * len(x[::4096]); import time; time.sleep(60)'"


@pytest.fixture(scope="module")
def running(programs):
    """A job with a step on two nodes, after a moment."""
    folder = programs.new_folder()
    script = folder / "job.sh"
    text = f"#!/bin/bash\ncat >hold.sh <<'END'\ntouch r$SLURM_PROCID\n{HOLD}\nEND\nsrun -n2 bash hold.sh &\nwait\n"
    script.write_text(text)
    site: Site = programs.site
    job = site.submit("-N2", "-t5", "-o", "out", script, cwd=folder, user="nobody")
    site.wait_for(job, "RUNNING")
    for _ in range(100):
        if all((folder / f"r{rank}").exists() for rank in (0, 1)):
            break
        site.run("sleep", "0.1")
    site.run("sleep", "0.5")
    yield job
    site.run("scancel", str(job))


def rows(text):
    header, *lines = text.splitlines()
    return [dict(zip(header.split("|"), line.split("|"))) for line in lines]


def test_the_first_step_is_shown(programs, running):
    found, = rows(programs.site.ok("sstat", "-P", "-j", str(running)))
    assert found["JobID"] == f"{running}.0" and found["NTasks"] == "2"
    assert re.fullmatch(r"[67]\d{4}K", found["MaxRSS"]) and found["MaxRSSNode"] in ("n1", "n2")
    assert re.fullmatch(r"cpu=00:00:0\d,energy=0,fs/disk=\d+K?,mem=[67]\d{4}K,pages=\d+,vmem=\d+K?M?",
                        found["TRESUsageInAve"])
    assert found["TRESUsageInMaxNode"].startswith("cpu=n") and found["ReqCPUFreqMin"] == "Unknown"


def test_all_steps(programs, running):
    found = rows(programs.site.ok("sstat", "-a", "-P", "-j", str(running), "-o", "jobid,ntasks,averss,nodelist,avecpu"))
    assert [row["JobID"] for row in found] == [f"{running}.{step}" for step in ("extern", "batch", "0")]
    assert [row["Nodelist"] for row in found] == ["n1", "n1", "n[1-2]"] or found[0]["Nodelist"]
    assert found[0]["AveRSS"] == "" and found[0]["AveCPU"] == "213503982334-14:25:51"
    assert re.fullmatch(r"\d+K", found[1]["AveRSS"])


def test_one_step_and_its_processes(programs, running):
    found = rows(programs.site.ok("sstat", "-i", "-P", "-j", f"{running}.0"))
    assert [(row["JobID"], row["Nodelist"]) for row in found] == [(f"{running}.0", "n1"), (f"{running}.0", "n2")]
    assert all(re.fullmatch(r"\d+(,\d+)*", row["Pids"]) for row in found)


def test_widths_and_names(programs, running):
    assert programs.site.ok("sstat", "-n", "-o", "JobID%20,ntasks%3", f"{running}.0") == (
        f"{running}.0".rjust(20) + "   2 \n")
    recorded = (DATA / "sacct" / "sstat_helpformat.txt").read_text()
    assert programs.site.ok("sstat", "--helpformat") == recorded


@pytest.mark.parametrize(("words", "code", "error"), [
    (("-j", "JOB.7"), 0, "sstat: error: StepId=JOB.7 not found running.\n"),
    (("-j", "99999999"), 0, "sstat: error: couldn't get steps for JobId=99999999\n"),
    ((), 1, "sstat: error: You didn't give me any jobs to stat.\n"),
    (("-o", "nofield", "-j", "JOB"), 1, 'sstat: error: Invalid field requested: "nofield"\n')])
def test_what_it_says(programs, running, words, code, error):
    done = programs.site.run("sstat", *(word.replace("JOB", str(running)) for word in words))
    assert (done.returncode, done.stderr) == (code, error.replace("JOB", str(running)))


def test_another_user_may_not_look(programs, running):
    done = programs.site.run("sstat", "-j", str(running), user="daemon")
    assert "Access/permission denied" in done.stderr


def test_inside_the_job(programs):
    lines = programs.run("srun -N1 -n1 sleep 3 & sleep 1; sstat -n -P -j $SLURM_JOB_ID -o jobid,ntasks; wait")
    assert lines == [f"{programs.job}.0|1"]
