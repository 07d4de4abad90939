"""How the ledger's database is reached: engines, SQLite's settings, and the locks that keep a second controller out."""
from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, event, inspect, make_url, text
from sqlalchemy.pool import NullPool

from slurmbridge.accounting.errors import LedgerError, LedgerInUse, one_line

PASSING = frozenset({
    sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_PROTOCOL})
"""Primary result codes of SQLite that say nothing against the file: full disk, lock, limit, read-only mount."""
ADVISORY_LOCK = 0x736C7572                     # PostgreSQL's advisory lock that a controller holds
BUSY_TIMEOUT_MS = 5000
CACHE_KB = 4096
"""SQLite's own page cache, a connection; what does not fit is in the system's."""


def normal_url(url: str) -> str:
    """A path, ``sqlite:///path`` or ``postgresql://…`` as SQLAlchemy wants it (psycopg is the PostgreSQL driver)."""
    if "://" not in url:
        return f"sqlite:///{url}"
    if url.startswith(("postgresql://", "postgres://")):
        return "postgresql+psycopg://" + url.partition("://")[2]
    return url


def sqlite_path(url: str) -> str | None:
    """The file of an SQLite ledger, None for another database."""
    parsed = make_url(url)
    return parsed.database if parsed.get_backend_name() == "sqlite" else None


def make_private(path: str) -> None:
    """Scripts and environments are in the ledger: its file, and what SQLite puts beside it, is the owner's alone.

    Raises OSError.
    """
    if path in ("", ":memory:"):
        return
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(fd).st_uid == os.getuid():
            os.fchmod(fd, 0o600)
    finally:
        os.close(fd)


def shown(url: str) -> str:
    """The address without its password, for messages."""
    return sqlite_path(url) or make_url(url).render_as_string(hide_password=True)


def is_passing(error: BaseException) -> bool:
    """Whether the same transaction may succeed later: the disk is full, the file locked, the server away."""
    cause = getattr(error, "orig", None) or error
    if isinstance(cause, sqlite3.Error):
        return (getattr(cause, "sqlite_errorcode", 0) or 0) & 0xFF in PASSING
    names = {kind.__name__ for kind in type(cause).__mro__ if kind.__module__.startswith("psycopg")}
    return "OperationalError" in names or isinstance(cause, OSError)


def is_locked(error: BaseException) -> bool:
    """Whether another program holds the SQLite file at this moment."""
    cause = getattr(error, "orig", None) or error
    code = (getattr(cause, "sqlite_errorcode", 0) or 0) & 0xFF
    return code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def make_engine(url: str, *, read_only: bool = False) -> Engine:
    """An engine whose connections are set up for the ledger. Connections are not pooled: few, long-lived users."""
    try:
        engine = create_engine(url, poolclass=NullPool)
    except Exception as error:                 # an unknown dialect, a driver that is not installed
        raise LedgerError(f"ledger address {url!r}: {one_line(error)}") from error
    if engine.dialect.name == "sqlite":
        @event.listens_for(engine, "connect")
        def set_up(connection: Any, _record: Any) -> None:
            cursor = connection.cursor()
            cursor.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
            if read_only:
                cursor.execute("PRAGMA query_only=ON")
            else:
                cursor.execute("PRAGMA journal_mode=WAL")
            cursor.execute("PRAGMA synchronous=FULL")
            cursor.execute(f"PRAGMA cache_size=-{CACHE_KB}")
            cursor.close()
    return engine


def begin_epoch(engine: Engine) -> int:
    """A new leader's number; whoever has an earlier one writes nothing more. 0: the ledger has no tables yet.

    A PostgreSQL session that still holds the controllers' lock is ended: its controller may be frozen, and would keep
    it as long as its connection lives.
    """
    with engine.begin() as connection:
        if not inspect(connection).has_table("meta"):
            return 0
        row = connection.execute(text(
            "INSERT INTO meta (key, value) VALUES ('epoch', '1') ON CONFLICT (key) DO UPDATE SET "
            "value = CAST(CAST(meta.value AS INTEGER) + 1 AS VARCHAR) RETURNING value")).scalar_one()
    if engine.dialect.name == "postgresql":
        with engine.connect() as connection:
            connection.execute(text(
                "SELECT pg_terminate_backend(pid, 2000) FROM pg_locks WHERE locktype = 'advisory' AND classid = 0 "
                "AND objid = :key AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
                "AND pid <> pg_backend_pid()"), {"key": ADVISORY_LOCK})
    return int(row)


class StateLock:
    """The one controller's hold on a state, by flock: it ends with the process, whatever ends that."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise LedgerError(f"ledger lock {path}: {error.strerror}") from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._fd, 32, 0).decode(errors="replace").strip()
            os.close(self._fd)
            text = f"another controller uses this state ({path} is locked by pid {holder or 'unknown'})"
            raise LedgerInUse(text) from error
        with contextlib.suppress(OSError):     # a full disk: the lock holds, it only does not say whose it is
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
