"""Scripts, names, environments and directories as nobody should send them: Slurm's answer, or one clear line."""
from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from sites import Site

REFUSED = "sbatch: error: Batch job submission failed: "
TOO_LONG = REFUSED + "Pathname of a file, directory or other parameter too long\n"
NO_SHEBANG = ("sbatch: error: This does not look like a batch script.  The first\n"
              "sbatch: error: line must start with #! followed by the path to an interpreter.\n"
              "sbatch: error: For instance: #!/bin/sh\n")
NUL = ("sbatch: error: The Slurm controller does not allow scripts that\n"
       "sbatch: error: contain a NULL character '\\0'.\n")
DOS = ("sbatch: error: Batch script contains DOS line breaks (\\r\\n)\n"
       "sbatch: error: instead of expected UNIX line breaks (\\n).\n")


@pytest.fixture(scope="module")
def place(commands: Path) -> Iterator[Site]:
    site = Site("local", "", None, (), {})
    try:
        site.up()
        yield site
    finally:
        site.remove()


@pytest.mark.parametrize(("content", "text"), [
    (b"#!/bin/sh\n" + b"a" * 10_000_000, TOO_LONG), (bytes(range(255, -1, -1)) * 20, NO_SHEBANG),
    (b"#!/bin/sh\n\0id\n", NUL),
    (b"", "sbatch: error: Batch script is empty!\n"), (b"id\n", NO_SHEBANG), (b"#!/bin/sh\r\nid\r\n", DOS),
    (None, "sbatch: error: Unable to open file job.script\n")],
    ids=["10 MB", "junk", "NUL", "empty", "no interpreter", "DOS", "absent"])
@pytest.mark.parametrize("by_stdin", [False, True])
def test_scripts_that_are_none(place: Site, content: bytes | None, text: str, by_stdin: bool) -> None:
    script = place.work / "job.script"
    script.unlink(missing_ok=True)
    if by_stdin:
        done = subprocess.run(["sbatch"], env=place.env, cwd=place.work, input=content or b"", capture_output=True)
        text = text if content is not None else "sbatch: error: Batch script is empty!\n"
    else:
        if content is not None:
            script.write_bytes(content)
        done = subprocess.run(["sbatch", "job.script"], env=place.env, cwd=place.work, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr.decode()) == (1, b"", text)


NAMES = ["a\nb", "\x1b[31mred\a", "$(touch pwned) `touch pwned`", "'\"\\", "é\udcff\u202e", "%j%s%n", "-rf", " ",
         "x" * 200]


def test_hostile_job_names_are_names(place: Site) -> None:
    """They come back as they were, run nothing and forge no record."""
    ids = [place.submit("--mem=1", "-o", "name-%j.out", "-J", name, "--wrap",
                        'printf %s "$SLURM_JOB_NAME"') for name in NAMES]
    for job, name in zip(ids, NAMES):
        place.wait_for(job, "COMPLETED")
        kept = (place.work / f"name-{job}.out").read_bytes().decode("utf-8", "surrogateescape")
        assert kept == name
        kept = place.ok("sacct", "-n", "-X", "-P", "-j", job, "-o", "JobName").removesuffix("\n")
        assert kept == name.encode("utf-8", "backslashreplace").decode()      # the database takes text only
        assert len(place.ok("scontrol", "show", "job", job).split("JobId=")) == 2
    assert not (place.work / "pwned").exists()
    long_name = place.run("sbatch", "-J", "n" * 100_000, "--wrap", "id")
    assert (long_name.returncode, long_name.stderr) == (1, TOO_LONG)


def test_a_thousand_directives_and_the_last_one_holds(place: Site) -> None:
    lines = "".join(f"#SBATCH --comment=c{number}\n" for number in range(1000))
    job = place.submit("--mem=1", "-H", stdin=f"#!/bin/sh\n{lines}id\n")
    assert " Comment=c999" in place.ok("scontrol", "show", "job", job)
    place.ok("scancel", job)


def test_an_environment_of_two_megabytes(place: Site) -> None:
    env = {f"BIG{number}": "e" * 120_000 for number in range(16)}
    job = place.submit("--mem=1", "-o", "env.out", "--wrap", "env | wc -c", env=env)
    place.wait_for(job, "COMPLETED")
    assert int((place.work / "env.out").read_text()) > 16 * 120_000


def test_two_megabytes_of_arguments(place: Site) -> None:
    (place.work / "args.sh").write_text("#!/bin/sh\n")
    done = place.run("sbatch", "args.sh", *["a" * 120_000] * 15)
    assert (done.returncode, done.stderr) == (1, TOO_LONG)


@pytest.mark.parametrize("words", [("sbatch", "--wrap", "id"), ("sbatch", "-D", "/", "--wrap", "id"), ("srun", "id")])
def test_a_working_directory_that_was_removed(place: Site, words: tuple[str, ...]) -> None:
    done = place.run("bash", "-c", 'mkdir gone && cd gone && rmdir ../gone && exec "$@"', "bash", *words)
    assert (done.returncode, done.stdout) == (255, "")
    assert done.stderr.endswith(f"{words[0]}: error: getcwd failed: No such file or directory\n")


@pytest.mark.parametrize("closing", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_standard_streams_that_are_closed(place: Site, closing: str) -> None:
    before = place.ok("squeue", "-h", "-t", "all", "-o", "%A").split()
    done = place.run("bash", "-c", f"sbatch -H --wrap id {closing}")
    assert done.returncode == 0
    new, = set(place.ok("squeue", "-h", "-t", "all", "-o", "%A").split()) - set(before)
    place.ok("scancel", new)


def test_a_script_that_vanishes_or_may_not_be_read(place: Site, unix_users: tuple[str, ...]) -> None:
    script = place.work / "hidden.sh"
    script.write_text("#!/bin/sh\nid\n")
    script.chmod(0)
    done = place.run("sbatch", "hidden.sh", user="alice")
    assert (done.returncode, done.stderr) == (1, f"sbatch: error: Unable to open file {script}\n")
    done = place.run("bash", "-c", "sbatch <(exit) ")
    assert done.returncode == 1 and "Traceback" not in done.stderr


def test_what_a_job_leaves_behind_is_ended_with_it(place: Site) -> None:
    """setsid, double forks and disowned children do not outlive their job."""
    mark = f"30{place.folder.name.encode().hex()[:6]}"
    number = str(int(mark, 16) % 100000 + 5000)
    script = f"""#!/bin/bash
for i in $(seq 20); do (setsid sleep {number} &); setsid bash -c 'setsid sleep {number} & disown; sleep {number}' & done
sleep 0.3
"""
    job = place.submit("--mem=1", "-o", "/dev/null", stdin=script)
    place.wait_for(job, "COMPLETED")
    left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if _reads(path) == f"sleep\0{number}\0"]
    assert left == []


def _reads(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def test_output_in_great_amounts_is_bounded_by_the_jobs_own_limit(place: Site) -> None:
    job = place.submit("--mem=1", "-o", "flood.out", "--wrap", "ulimit -f 10240; exec cat /dev/zero")
    place.wait_for(job, "COMPLETED", "FAILED")
    assert (place.work / "flood.out").stat().st_size == 10240 * 512              # sh counts in 512 bytes
    (place.work / "flood.out").unlink()
    done = subprocess.run(["srun", "--mem=1", "head", "-c", "20000000", "/dev/zero"], env=place.env, cwd=place.work,
                          capture_output=True, timeout=60)
    assert (done.returncode, len(done.stdout)) == (0, 20_000_000)


@pytest.mark.parametrize("words", [
    ("squeue", "-j", "99999999999999999999"), ("scancel", "1\n2"), ("scontrol", "show", "job", "\x1b[2J"),
    ("sinfo", "-o", "%" * 5000), ("squeue", "-o", "%.999999999i"), ("squeue", "-u", "nosuchuser"),
    ("sacct", "-o", "," * 3000), ("sacct", "-S", "9" * 4000), ("sprio", "-j", "x"), ("sshare", "-u", "nosuchuser"),
    ("sacctmgr", "list", "user", "where", "name=" + "a," * 5000), ("scontrol", "update", "jobid=1", "x" * 5000),
    ("sbatch", "--array", "0-99999999999", "--wrap", "id"), ("sbatch", "-N", "1-" + "9" * 500, "--wrap", "id"),
    ("sbatch", "-d", "afterok:" + ":".join(["1"] * 20000), "--wrap", "id"),
    ("sbatch", "-w", "n[0-99999999]", "--wrap", "id"), ("sbatch", "--uid=nosuch", "--wrap", "id"),
    ("scontrol", "show", "hostnames", "n[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]"),
    ("sinfo", "-n", "n[1-999999999]"), ("squeue", "-w", "n[1-99999999]"), ("scontrol", "show", "node", "n[0-9999999]"),
    ("sbatch", "-C", "(" * 3000, "--wrap", "id"), ("sbatch", "--gres=" + "gpu:1," * 3000, "--wrap", "id"),
    ("sbatch", "-t", "9" * 300, "--wrap", "id"), ("sbatch", "--begin", "now+" + "9" * 300, "--wrap", "id")])
def test_absurd_arguments_never_hold_the_controller_up(place: Site, words: tuple[str, ...]) -> None:
    """Whatever the answer is, it comes soon, and the next caller is served."""
    done = place.run(*words, timeout_s=8)
    assert "internal error" not in done.stderr and "Traceback" not in done.stderr, done.stderr[-300:]
    assert place.run("squeue", "-h", timeout_s=4).returncode == 0
    for job in place.ok("squeue", "-h", "-o", "%A").split():
        place.run("scancel", job)
