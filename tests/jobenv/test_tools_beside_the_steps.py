"""sattach, sbcast, srun --bcast, MPMD steps and steps from outside, on two virtual nodes."""
from __future__ import annotations

import re
import subprocess
import time

from sites import Site


def script(site: Site, text: str) -> None:
    path = site.work / "script"
    path.write_text("#!/bin/bash\n" + text)


def output(site: Site, text: str) -> list[str]:
    """What a batch script on two nodes writes."""
    script(site, text)
    job = site.submit("-N2", "-n2", "-o", "out", "script")
    site.wait_for(job, "COMPLETED", "FAILED")
    return (site.work / "out").read_text().splitlines()


def test_a_file_is_copied_once_and_not_over_another(local_site: Site) -> None:
    (local_site.work / "source").write_text("content\n")
    (local_site.work / "source").chmod(0o640)
    said = output(local_site, "sbcast source $PWD/copy; echo $?; sbcast source copy; echo $?; sbcast -f source copy\n"
                              "echo $?; sbcast missing copy; echo $?; stat -c %a copy; cat copy\n")
    said[1] = re.sub(r"\(n[12]\)", "(n1)", said[1])                   # the first that says so
    assert said == ["0", "sbcast: error: REQUEST_FILE_BCAST(n1): File exists", "17", "0",
                    f"sbcast: error: Can't open `{local_site.work}/missing`: No such file or directory", "2", "640",
                    "content"]


def test_the_program_of_a_step_is_copied_to_its_nodes(local_site: Site) -> None:
    (local_site.work / "program").write_text("#!/bin/bash\necho ${0##*/}\n")
    (local_site.work / "program").chmod(0o755)
    said = output(local_site, "srun --bcast ./program; srun --bcast=$PWD/named ./program; echo $SLURM_JOB_ID\n")
    job = said.pop()
    assert sorted(said[:2]) == [f"slurm_bcast_{job}.0_n1", f"slurm_bcast_{job}.0_n2"]
    assert said[2:] == ["named", "named"]


def test_components_of_one_step_have_nodes_of_their_own(local_site: Site) -> None:
    tell = "bash -c 'echo $SLURM_PROCID of $SLURM_NTASKS on $SLURMD_NODENAME'"
    said = output(local_site, f"srun -l -n1 {tell} : -n1 {tell}\nsrun -N2 true : -n1 true; echo $?\n"
                              "srun --het-group=1 true\n")
    assert sorted(said[:2]) == ["0: 0 of 2 on n1", "1: 1 of 2 on n2"]
    assert said[2:] == [
        "srun: error: Allocation failure of 1 nodes: job size of 2, already allocated 2 nodes to previous components.",
        "1", "srun: error: Requested het-group offset exceeds highest hetjob index (1 > 0)"]


def test_somebody_watches_a_running_step(local_site: Site) -> None:
    script(local_site, "srun -n2 bash -c 'for i in {1..30}; do echo tick; sleep 0.1; done; exit $SLURM_PROCID'\n")
    job = local_site.submit("-N2", "-n2", "-o", "out", "script")
    while not (local_site.work / "out").exists() or "tick" not in (local_site.work / "out").read_text():
        time.sleep(0.05)
    assert local_site.ok("sattach", "--layout", f"{job}.0") == (
        "Job step layout:\n\t2 tasks, 2 nodes (n[1-2])\n\n\tNode 0 (n1), 1 task(s): 0 \n\tNode 1 (n2), 1 task(s): 1 \n")
    done: subprocess.CompletedProcess[str] = local_site.run("sattach", "-l", "--output-filter=1", f"{job}.0")
    assert set(done.stdout.splitlines()) == {"1: tick"}
    assert (done.returncode, done.stderr) == (1, "sattach: error: task 1 exited with exit code 1\n")
    gone = local_site.run("sattach", f"{job}.0")
    assert gone.returncode == 1 and gone.stderr.startswith("sattach: error: Could not get job step info: ")


def test_tasks_read_what_somebody_attached_writes(local_site: Site) -> None:
    script(local_site, "sleep 60 | srun -n2 -l cat\n")
    job = local_site.submit("-N2", "-n2", "-o", "out", "script")
    while not local_site.ok("squeue", "-h", "-s", "-j", str(job), "-o", "%i").count(f"{job}.0"):
        time.sleep(0.05)
    said = local_site.ok("sattach", "-l", f"{job}.0", stdin="for all\n")
    assert sorted(said.splitlines()) == ["0: for all", "1: for all"]      # and its end was the end of their input
    rows = local_site.ok("sacct", "-n", "-P", "-j", str(job), "-o", "JobID,State").splitlines()
    assert f"{job}.0|COMPLETED" in rows
    local_site.ok("scancel", str(job))


def test_steps_come_and_go_from_outside(local_site: Site) -> None:
    job = local_site.submit("-N2", "-n2", "-o", "out", "--wrap", "srun sleep 60")
    local_site.wait_for(job, "RUNNING")
    while not local_site.ok("squeue", "-h", "-s", "-j", str(job), "-o", "%i").count(f"{job}.0"):
        time.sleep(0.05)
    assert local_site.ok("srun", f"--jobid={job}", "--overlap", "-n2", "printenv", "SLURM_STEP_ID") == "1\n1\n"
    local_site.ok("scontrol", "suspend", str(job))
    refused = local_site.run("srun", f"--jobid={job}", "--overlap", "-I1", "true")
    assert refused.returncode == 1 and "Requested operation is presently disabled" in refused.stderr
    local_site.ok("scontrol", "resume", str(job))
    local_site.ok("scancel", f"{job}.0")
    local_site.wait_for(job, "FAILED")
    rows = local_site.ok("sacct", "-n", "-P", "-j", str(job), "-o", "JobID,State,ExitCode").splitlines()
    assert f"{job}.0|CANCELLED by 0|0:9" in rows and f"{job}.1|COMPLETED|0:0" in rows
