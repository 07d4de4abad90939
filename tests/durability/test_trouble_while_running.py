"""The disk fills up or the database is held while jobs run: submissions get Slurm's error, what runs goes on, nothing
is lost, and all is well once the cause is gone."""
from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from end_to_end.killing import Controller, eventually, processes_of, rows_of, wait_until_idle
from sites import MakeSite, Site

REFUSAL = "sbatch: error: Batch job submission failed: I/O error writing script/environment to file\n"


@pytest.fixture
def small_site(make_site: MakeSite) -> Iterator[Site]:
    """A site with processes whose state lies on a file system of 4 MB."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    site = make_site(engine="local", started=False)
    site.state.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,mode=755", "none", site.state], check=False).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        yield site
    finally:
        site.down()
        subprocess.run(["umount", site.state], check=True)


def fill(folder: Path) -> Path:
    path = folder / "filler"
    with open(path, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    return path


def refuse_one(site: Site) -> None:
    """Submits until it is refused: what a file has room for inside its last page is taken."""
    for _ in range(20):
        done = site.run("sbatch", "-o", "/dev/null", "--comment", "y" * 900, "--wrap", "true # " + "x" * 20000)
        if done.returncode:
            break
    assert (done.returncode, done.stdout, done.stderr) == (1, "", REFUSAL)


def test_the_disk_fills_up_while_jobs_run(small_site: Site) -> None:
    site = small_site
    marks = site.work
    with Controller(site) as controller:
        ends = site.submit("-o", "/dev/null", "--wrap", f"touch {marks}/started; sleep 1.2; exit 7")
        runs = site.submit("-o", "/dev/null", "--wrap", "sleep 300")
        site.wait_for(ends, "RUNNING")
        site.wait_for(runs, "RUNNING")
        eventually((marks / "started").exists, "the job does not start")
        filler = fill(site.state)
        refuse_one(site)
        refuse_one(site)                                        # at once: it knows by now
        assert f"{runs}" in site.ok("squeue", "-h", "-o", "%i")  # questions are answered
        assert "running" in site.ok("slurmbridge", "status", "--state", site.state)
        site.run("scancel", str(runs))                          # makes room: what fills the disk can be ended
        eventually(lambda: not processes_of(site), "the jobs do not end on a full disk")
        assert controller.process is not None
        with pytest.raises(TimeoutError):                       # it must not end
            controller.process.wait(0.05)
        filler.unlink()
        eventually(lambda: site.run("sbatch", "-H", "--wrap", "true").returncode == 0, "no submission after all")
        eventually(lambda: not site.ok("squeue", "-h", "-t", "R,CG,CF,S", "-o", "%i"), "jobs do not end")
        rows = rows_of(site)
        assert rows[str(ends)] == [("FAILED", "7:0")]
        assert [state for state, _ in rows[str(runs)]] == ["CANCELLED"]
        failed = [name for name, row in rows.items() if row == [("FAILED", "1:0")]]
        assert failed, "slurmctld keeps a record of a job whose script it could not save"
        before = rows
        controller.kill()
        controller.start()
        controller.wait()
        assert {name: rows_of(site)[name] for name in before} == before


def test_a_controller_killed_while_the_disk_is_full(small_site: Site) -> None:
    site = small_site
    with Controller(site) as controller:
        job = site.submit("-o", "/dev/null", "--wrap", "sleep 0.7; exit 5")
        site.wait_for(job, "RUNNING")
        filler = fill(site.state)
        eventually(lambda: not [line for line in processes_of(site) if "sleep" in line], "the script does not end")
        controller.kill()
        filler.unlink()
        controller.start()
        controller.wait()
        wait_until_idle(site, 30)
        assert rows_of(site)[str(job)] == [("FAILED", "5:0")]


def test_somebody_holds_the_database(make_site: MakeSite) -> None:
    site = make_site()
    first = site.submit("-H", "--wrap", "true")
    with contextlib.closing(sqlite3.connect(site.state / "ledger.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        refuse_one(site)
        assert site.ok("squeue", "-h", "-o", "%i", "-j", str(first)) == f"{first}\n"
    eventually(lambda: site.run("sbatch", "-H", "--wrap", "true").returncode == 0, "no submission after all")
    site.down()
    site.up()
    assert site.job_field(first, "%T %r") == "PENDING JobHeldUser"
