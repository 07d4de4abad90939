"""Unmodified batch scripts on a real cluster: gangs, steps, ends, as users see them."""
from __future__ import annotations

import os

import pytest
from sites import Site


def output(site: Site, job: int) -> str:
    return (site.work / f"slurm-{job}.out").read_text()


@pytest.fixture(scope="module")
def limited(kube) -> int:  # type: ignore[no-untyped-def]
    """A job whose minute runs while the other tests do."""
    return int(kube.submit("--mem=64", "-t1", kube.script("sleep 300")))


@pytest.mark.usefixtures("limited")
def test_a_gang_of_two_nodes_with_srun_inside(kube) -> None:  # type: ignore[no-untyped-def]
    job = kube.submit("-N2", "--ntasks-per-node=2", "--mem-per-cpu=50", kube.script(
        "echo head $(hostname) of $SLURM_JOB_NODELIST\n"
        "srun -l sh -c 'echo $SLURM_PROCID/$SLURM_NTASKS $SLURMD_NODENAME $(hostname)'\n"
        "srun -N1 -n1 -w slurm-$SLURM_JOB_ID-1 hostname"))
    kube.wait_for(job, "COMPLETED")
    head, *lines, last = output(kube, job).splitlines()
    assert head == f"head slurm-{job}-0 of slurm-{job}-[0-1]"
    assert sorted(lines) == [f"{rank}: {rank}/4 slurm-{job}-{rank // 2} slurm-{job}-{rank // 2}" for rank in range(4)]
    assert last == f"slurm-{job}-1"
    rows = kube.ok("sacct", "-n", "-P", "-j", str(job), "-o", "jobid,state,exitcode,ntasks,nodelist").splitlines()
    nodes = kube.job_field(job, "%N")
    assert not nodes.startswith("slurm-")
    assert [row.rpartition("|")[0] for row in rows] == [
        f"{job}|COMPLETED|0:0|", f"{job}.batch|COMPLETED|0:0|1", f"{job}.0|COMPLETED|0:0|4",
        f"{job}.1|COMPLETED|0:0|1"]
    assert rows[0].endswith(f"|{nodes}") and rows[2].endswith(f"|{nodes}")


def test_the_gangs_hosts_have_names_when_the_script_starts(kube) -> None:  # type: ignore[no-untyped-def]
    job = kube.submit("-N3", "--mem=64", kube.script(
        "for n in 0 1 2; do nslookup slurm-$SLURM_JOB_ID-$n | grep -A1 ^Name | tail -1; done; srun -l hostname -i"))
    kube.wait_for(job, "COMPLETED")
    lines = output(kube, job).splitlines()
    by_name = [line.split()[-1] for line in lines if line.startswith("Address")]
    assert by_name == [line.split()[1] for line in sorted(line for line in lines if line[1:2] == ":")]
    assert len(set(by_name)) == 3


def test_exit_codes_and_signals_are_the_scripts(kube) -> None:  # type: ignore[no-untyped-def]
    ends = {"exit 7": ("FAILED", "7:0"), "kill -9 $$": ("FAILED", "0:9"), "exit 0": ("COMPLETED", "0:0"),
            "srun sh -c 'exit 3'": ("FAILED", "3:0")}
    jobs = {kube.submit("--mem=64", kube.script(text)): end for text, end in ends.items()}
    for job, (state, code) in jobs.items():
        kube.wait_for(job, state)
        assert kube.accounting(job) == [f"{state}|{code}"]


def test_a_cancelled_job_ends_everywhere(kube) -> None:  # type: ignore[no-untyped-def]
    job = kube.submit("-N2", "--mem=64", kube.script("srun sleep 300"))
    kube.wait_for(job, "RUNNING")
    kube.ok("scancel", str(job))
    kube.wait_for(job, "CANCELLED")
    assert kube.accounting(job) == [f"CANCELLED by {os.getuid()}|0:0"]
    assert f"JOB {job} ON slurm-{job}-0 CANCELLED AT" in output(kube, job)


def test_output_for_a_folder_that_no_volume_has_is_in_the_pods_log(kube) -> None:  # type: ignore[no-untyped-def]
    job = kube.submit("--mem=64", "-D", "/nowhere", kube.script("echo hello from $PWD; sleep 5"), cwd="/")
    kube.wait_for(job, "RUNNING")
    for _ in range(50):
        logs = kube.access.kubectl("-n", kube.namespace, "logs", "-l", f"slurmbridge.io/job-id={job}")
        if "hello" in logs:
            break
    assert "hello from /tmp" in logs
    kube.wait_for(job, "COMPLETED")


def test_nothing_is_left_of_ended_jobs(kube) -> None:  # type: ignore[no-untyped-def]
    job = kube.submit("--mem=64", kube.script("true"))
    kube.wait_for(job, "COMPLETED")
    kube.access.kubectl("-n", kube.namespace, "wait", "--for=delete", f"job/slurm-{job}", "--timeout=30s")


def test_the_step_daemon_ends_a_job_at_its_limit(kube, limited: int) -> None:  # type: ignore[no-untyped-def]
    kube.wait_for(limited, "TIMEOUT", timeout_s=100)
    assert "DUE TO TIME LIMIT" in output(kube, limited)


def test_logs_of_a_job_without_a_volume_also_after_its_pod_is_gone(kube) -> None:  # type: ignore[no-untyped-def]
    job = kube.submit("--mem=64", "-D", "/tmp", "-o", "/nowhere/out", kube.script("echo first; sleep 4; echo last"))
    kube.wait_for(job, "RUNNING")
    assert "first\nlast\n" in kube.ok("slurmbridge", "logs", "-f", str(job))
    kube.wait_for(job, "COMPLETED")
    kube.access.kubectl("-n", kube.namespace, "wait", "--for=delete", f"job/slurm-{job}", "--timeout=60s")
    assert "first\nlast\n" in kube.ok("slurmbridge", "logs", str(job))
    with_file = kube.submit("--mem=64", kube.script("true"))
    kube.wait_for(with_file, "COMPLETED")
    kube.access.kubectl("-n", kube.namespace, "wait", "--for=delete", f"job/slurm-{with_file}", "--timeout=60s")
    done = kube.run("slurmbridge", "logs", str(with_file))
    assert (done.returncode, done.stderr) == (1, f"slurmbridge: job {with_file}: there is no output of it here\n")
