"""A controller that cannot start says why in one line, damages nothing, and starts once the cause is gone."""
from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from end_to_end.killing import Controller, daemons_of, eventually, processes_of
from sites import MakeSite, Site

from slurmbridge.api.daemon import prepare_state
from slurmbridge.api.options import Options, StartError


def refused(site: Site, *options: str) -> str:
    """The one line of a start that fails."""
    done = site.run("slurmbridge", "up", "--state", site.state, "--slurm-conf", site.slurm_conf,
                    "--engine", site.engine, *options)
    assert done.returncode == 1, done
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("slurmbridge: ")
    return lines[0]


def digest(folder: Path) -> dict[str, str]:
    """Every regular file of the state but logs and locks -> its content's hash."""
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(folder.rglob("*"))
            if path.is_file() and path.suffix not in (".log", ".lock") and not path.name.endswith(("-shm", "-wal"))}


@pytest.fixture
def stopped(make_site: MakeSite) -> Site:
    """A site with one job in its books, stopped."""
    site = make_site()
    site.submit("--wrap", "true", "-H")
    site.down()
    return site


def goes_on(site: Site) -> None:
    """It starts, knows its old job and gives the next id."""
    site.up()
    assert site.job_field(1, "%i") == "1"
    assert site.submit("--wrap", "true", "-H") == 2
    site.down()
    assert daemons_of(site) == []


def test_a_second_controller_on_the_same_state(make_site: MakeSite) -> None:
    site = make_site()
    before = digest(site.state)
    assert "another controller" in refused(site)
    (site.state / "slurmbridge.sock").rename(site.state / "hidden.sock")       # the lock holds even so
    line = refused(site)
    assert "another controller uses this state" in line and "pid" in line
    (site.state / "hidden.sock").rename(site.state / "slurmbridge.sock")
    assert digest(site.state) == before
    assert site.submit("--wrap", "true") == 1


@pytest.mark.parametrize("kind", ["somebody listens", "a plain file"])
def test_a_socket_that_is_in_use(stopped: Site, kind: str) -> None:
    path = stopped.state / "slurmbridge.sock"
    with socket.socket(socket.AF_UNIX) as other:
        if kind == "a plain file":
            path.write_text("mine")
        else:
            other.bind(str(path))
            other.listen()
        assert str(path) in refused(stopped)
        assert path.exists()
    path.unlink()
    goes_on(stopped)


@pytest.mark.parametrize("damage", ["no database", "a torn page", "a record that is no record"])
def test_a_corrupt_database(stopped: Site, damage: str) -> None:
    path = stopped.state / "ledger.db"
    good = path.read_bytes()
    content = bytearray(good)
    if damage == "no database":
        content[:100] = b"x" * 100
    elif damage == "a torn page":
        for page in range(1, len(content) // 4096):
            content[page * 4096:page * 4096 + 32] = b"\xff" * 32
    path.write_bytes(content)
    if damage == "a record that is no record":
        with contextlib.closing(sqlite3.connect(path)) as database:
            database.execute("UPDATE live SET data = 'junk'")
            database.commit()
        content = bytearray(path.read_bytes())
    assert str(path) in refused(stopped)
    assert path.read_bytes() == content, "a start must not change what it cannot read"
    path.write_bytes(good)
    goes_on(stopped)


def test_a_database_that_somebody_else_holds(stopped: Site) -> None:
    with contextlib.closing(sqlite3.connect(stopped.state / "ledger.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert "locked" in refused(stopped)
    goes_on(stopped)


@pytest.fixture
def small_disk(stopped: Site) -> Iterator[Path]:
    """The state lies on a file system of its own, of 2 MB."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    kept = stopped.folder / "kept"
    stopped.state.rename(kept)
    stopped.state.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m,mode=755", "none", stopped.state]
    if subprocess.run(mount, check=False).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        subprocess.run(["cp", "-a", f"{kept}/.", stopped.state], check=True)
        yield stopped.state
    finally:
        if stopped.is_up:
            stopped.down()
        subprocess.run(["umount", stopped.state], check=True)


def fill(folder: Path) -> Path:
    """Takes all the room there is."""
    path = folder / "filler"
    with open(path, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    return path


def test_a_disk_that_is_full_at_the_start(stopped: Site, small_disk: Path) -> None:
    filler = fill(small_disk)
    before = digest(small_disk)
    refused(stopped)
    assert {name: value for name, value in digest(small_disk).items() if not name.endswith(".new")} == before
    filler.unlink()
    goes_on(stopped)


def test_a_state_directory_that_is_read_only(stopped: Site, small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    assert "Read-only file system" in refused(stopped)
    subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
    goes_on(stopped)


def test_a_state_directory_of_somebody_else(stopped: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    with pytest.raises(StartError, match=f"{stopped.state}: belongs to .*, not to uid 54321"):
        prepare_state(Options(stopped.state))
    monkeypatch.undo()
    if os.geteuid() == 0:
        os.chown(stopped.state, 54321, -1)
        assert "belongs to uid 54321, not to root" in refused(stopped)
        os.chown(stopped.state, 0, -1)
    goes_on(stopped)


def test_a_place_where_no_directory_can_be(stopped: Site) -> None:
    place = stopped.folder / "file"
    place.write_text("")
    line = refused(stopped, "--state", f"{place}/state")
    assert str(place) in line and "Not a directory" in line
    goes_on(stopped)


def test_down_after_a_kill_with_a_broken_ledger(make_site: MakeSite) -> None:
    site = make_site(engine="local", started=False)
    with Controller(site) as controller:
        job = site.submit("--wrap", "sleep 1000")
        eventually(lambda: site.job_field(job, "%T") == "RUNNING" and bool(processes_of(site)), "it runs")
        controller.kill()
    ledger = site.state / "ledger.db"
    for path in (ledger.with_name("ledger.db-wal"), ledger.with_name("ledger.db-shm")):
        path.unlink(missing_ok=True)
    ledger.write_bytes(b"no database at all" * 1000)
    done = site.run("slurmbridge", "down", "--state", site.state)
    assert done.returncode == 1
    assert "file is not a database" in done.stderr and "does not say so yet" in done.stderr, done.stderr
    assert not processes_of(site)
    assert daemons_of(site) == []
    site.is_up = False
