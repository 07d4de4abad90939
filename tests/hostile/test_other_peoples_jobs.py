"""One user against another: jobs, files, sockets and credentials that are not one's own."""
from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from sites import Site

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="acts as several users: needs root")
DENIED = "Access/permission denied"


@dataclass
class Stage:
    """Alice's job runs; bob tries."""

    site: Site
    job: int
    credential: str
    address: str


@pytest.fixture(scope="module")
def stage(commands: Path, unix_users: tuple[str, ...]) -> Iterator[Stage]:
    site = Site("local", "", None, (), {})
    try:
        site.up()
        told = site.work / "told"
        job = site.submit("-N2", "--mem=10", "--wrap",
                          f"echo $SLURMBRIDGE_CREDENTIAL $SLURMBRIDGE_STEPD > {told}.new; mv {told}.new {told}; "
                          "srun sleep 300", user="alice")
        site.wait_for(job, "RUNNING")
        site.ok("bash", "-c", f"for i in $(seq 200); do [ -e {told} ] && exit; sleep 0.05; done; exit 1")
        credential, address = told.read_text().split()
        yield Stage(site, job, credential, address)
    finally:
        site.remove()


@pytest.mark.parametrize(("words", "code", "text"), [
    ("scancel JOB", 210, f"scancel: error: Kill job error on job id JOB: {DENIED}\n"),
    ("scancel --signal=USR1 JOB", 210, f"scancel: error: Kill job error on job id JOB: {DENIED}\n"),
    ("scancel JOB.0", 210, None),
    ("scontrol update jobid=JOB timelimit=1", 1, "Invalid user id for job JOB\n"),
    ("scontrol update jobid=JOB name=mine", 1, "Invalid user id for job JOB\n"),
    ("scontrol requeue JOB", 1, f"{DENIED} for job JOB\n"),
    ("scontrol hold JOB", 1, None),
    ("scontrol suspend JOB", 1, None),
    ("scontrol write batch_script JOB -", 0, f"job script retrieval failed: {DENIED}\n"),
    ("srun --jobid=JOB --overlap id", 1, None),
    ("sbatch --uid=0 --wrap id", 255, "sbatch: error: --uid only permitted by root user\n"),
    ("sbatch --gid=0 --wrap id", 255, "sbatch: error: --gid only permitted by root user\n"),
    ("sbatch --nice=-100 --wrap id", 1, "sbatch: error: Batch job submission failed: Invalid --nice value\n"),
    ("scontrol update nodename=node1 state=drain reason=x", 1, "slurm_update error: Invalid user id\n"),
    ("scontrol update partition=main state=down", 1, None),
    ("scontrol reconfigure", 1, "slurm_reconfigure error:Invalid user id\n"),
    ("scontrol shutdown", 1, "slurm_shutdown error:Invalid user id\n"),
    ("sacctmgr -i add account evil", 1, " error: Only admins/operators/coordinators can add accounts\n"),
    ("sacctmgr -i modify user bob set adminlevel=admin", 1, None)])
def test_another_users_acts_are_refused_as_slurm_does(stage: Stage, words: str, code: int, text: str | None) -> None:
    done = stage.site.run(*words.replace("JOB", str(stage.job)).split(), user="bob")
    assert done.returncode == code, done
    if text is not None:
        assert done.stderr + (done.stdout if not done.stderr else "") == text.replace("JOB", str(stage.job))
    assert stage.site.job_field(stage.job, "%T %j") == "RUNNING wrap"


def test_a_filter_over_others_jobs_finds_none(stage: Stage) -> None:
    done = stage.site.run("scancel", "-u", "alice", user="bob")
    assert done.returncode in (0, 210)
    assert stage.site.job_field(stage.job, "%T") == "RUNNING"


def test_files_of_the_controller_and_of_jobs_are_their_owners(stage: Stage) -> None:
    """Nothing below the state that holds scripts, environments or credentials can be read or entered by others."""
    private = ("ledger.db", "slurm_script", "journal", "spawner.sock")
    seen = set()
    for folder, _, names in os.walk(stage.site.state):
        for name in names:
            mode = os.stat(os.path.join(folder, name)).st_mode
            if name.startswith(private) or (folder.endswith(f"{stage.job}.0") and name.startswith("n")):
                seen.add(name)
                assert stat.S_IMODE(mode) & 0o077 == 0, f"{folder}/{name}: {mode:o}"
            assert not mode & stat.S_IWOTH or stat.S_ISSOCK(mode), name
    assert {"ledger.db", "slurm_script", "journal", "n0", "n1"} <= seen
    script = stage.site.state / "run" / f"{stage.job}.0" / "slurm_script"
    for words in (("cat", script), ("ls", script.parent), ("cat", stage.site.state / "ledger.db")):
        assert stage.site.run(*words, user="bob").returncode != 0, words


def test_a_step_daemon_takes_nobody_elses_srun_not_even_with_the_credential(stage: Stage) -> None:
    env = {"SLURMBRIDGE_STEPD": stage.address, "SLURMBRIDGE_CREDENTIAL": stage.credential,
           "SLURM_JOB_ID": str(stage.job), "SLURM_JOBID": str(stage.job)}
    done = stage.site.run("srun", "--overlap", "id", "-u", user="bob", env=env)
    assert done.returncode != 0
    assert "uid=" not in done.stdout and done.stdout.strip() != str(stage.job)
    assert done.stdout == ""


def test_one_jobs_credential_is_nothing_to_another_job(stage: Stage) -> None:
    site = stage.site
    other = site.submit("--mem=10", "-o", "/dev/null", "--wrap", "sleep 100", user="alice")
    site.wait_for(other, "RUNNING")
    address = stage.address.replace(f"/{stage.job}.0/", f"/{other}.0/")
    assert address != stage.address
    done = site.run("srun", "--overlap", "id", user="alice", env={
        "SLURMBRIDGE_STEPD": address, "SLURMBRIDGE_CREDENTIAL": stage.credential, "SLURM_JOB_ID": str(other)})
    assert (done.returncode != 0, done.stdout) == (True, "")
    assert done.stderr.count("\n") <= 2, done.stderr
    site.ok("scancel", str(other), user="alice")


@pytest.mark.parametrize("words", [
    ("-o", "/etc/slurmbridge-alice.out"), ("-o", "OUTDIR"), ("-o", "LINK"), ("-D", "/nonexistent"),
    ("-e", "/root/x.err")])
def test_output_is_opened_as_the_user(stage: Stage, words: tuple[str, ...]) -> None:
    """What the user may not write fails the job with Slurm's 0:53; root never opens it for them."""
    site = stage.site
    secret = site.folder / "secret"
    secret.write_text("untouched")
    secret.chmod(0o600)
    link = site.work / f"link-{os.getpid()}"
    if not link.is_symlink():
        link.symlink_to(secret)
    words = tuple({"OUTDIR": str(site.work), "LINK": str(link)}.get(word, word) for word in words)
    job = site.submit("--mem=10", *words, "--wrap", "id", user="alice")
    site.wait_for(job, "FAILED")
    assert site.ok("sacct", "-n", "-X", "-P", "-j", job, "-o", "State,ExitCode") == "FAILED|0:53\n"
    assert secret.read_text() == "untouched"
    assert not Path("/etc/slurmbridge-alice.out").exists()


def test_a_job_runs_with_its_users_rights_and_nothing_more(stage: Stage) -> None:
    job = stage.site.submit("--mem=10", "-o", "rights.out", "--wrap",
                            "srun id -u; id -G; grep -E 'Cap(Eff|Prm|Inh)' /proc/self/status; ls /proc/self/fd | wc -w",
                            user="bob")
    stage.site.wait_for(job, "COMPLETED")
    uid, groups, *caps, fds = (stage.site.work / "rights.out").read_text().splitlines()
    assert (uid, groups) == stage.site.ok("bash", "-c", "echo $(id -u bob):$(id -G bob)").strip().partition(":")[::2]
    assert all(int(line.split()[1], 16) == 0 for line in caps)
    assert int(fds) <= 4
