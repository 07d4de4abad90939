"""Directories of the local engine: where runs are written down, and where their users reach sockets and scripts."""
from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import stat
from pathlib import Path

from slurmbridge.cluster.port import RunId
from slurmbridge.runtime.journal import JournalReader
from slurmbridge.runtime.spawner import JOURNAL_NAME, LOCK_NAME

REACH_LIMIT = 70
"""Bytes of the directory below which ``<job>.<restart>/n<node>`` must still make a socket path."""


def run_directory(state: Path) -> Path:
    """``<state>/run``, made when missing. Raises OSError."""
    path = state / "run"
    path.mkdir(mode=0o711, parents=True, exist_ok=True)
    return path


def reach_directory(run: Path) -> Path:
    """``run`` itself where a socket path fits and every user can go through, else a private short directory.

    Raises OSError, also when somebody else owns the private directory.
    """
    resolved = run.resolve()
    if len(os.fsencode(resolved)) <= REACH_LIMIT and (os.getuid() != 0 or _all_may_pass(resolved)):
        return resolved
    digest = hashlib.sha256(os.fsencode(resolved)).hexdigest()[:12]
    base = Path("/run") if os.access("/run", os.W_OK) else Path("/tmp")
    path = base / f"slurmbridge-{os.getuid()}-{digest}"
    path.mkdir(mode=0o711, exist_ok=True)
    facts = path.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid():
        raise PermissionError(f"{path} belongs to somebody else")
    path.chmod(0o711)
    return path


def spawner_lives(state: Path) -> bool:
    """Whether a spawner still works for this state."""
    try:
        with open(state / "run" / LOCK_NAME, "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _all_may_pass(path: Path) -> bool:
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in (path, *path.parents))


def run_name(run: RunId) -> str:
    return f"{run.job_id}.{run.restart}"


def parse_run_name(name: str) -> RunId | None:
    job, _, restart = name.partition(".")
    return RunId(int(job), int(restart)) if job.isdigit() and restart.isdigit() else None


def recorded_runs(run: Path, reach: Path) -> dict[RunId, JournalReader]:
    """Every run that has a journal, with a reader at its start. What is left of runs without one is removed: they were
    being forgotten, or had not begun, when somebody was killed. Nobody may be launching."""
    found = {}
    for name in {*os.listdir(run), *os.listdir(reach)}:
        identity = parse_run_name(name)
        if identity is None:
            continue
        journal = run / name / JOURNAL_NAME
        if journal.exists():
            found[identity] = JournalReader(str(journal))
        else:
            forget(run, reach, identity)
    return found


def forget(run: Path, reach: Path, identity: RunId) -> None:
    """Removes all of a run's files; the journal last, so that a half-removed run is still known as over."""
    name = run_name(identity)
    if reach != run:
        shutil.rmtree(reach / name, ignore_errors=True)
    directory = run / name
    try:
        entries = sorted(os.listdir(directory), key=lambda entry: entry == JOURNAL_NAME)
    except OSError:
        return
    for entry in entries:
        (directory / entry).unlink(missing_ok=True)
    directory.rmdir()
