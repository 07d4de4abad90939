"""The controller's ledger: what it says is written is on disk, and a restart reads it all back.

Used by the controller alone (one writer a state). Commands read through ``queries.py``, over connections of their own.
"""
from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterable

from sqlalchemy import Engine, func, select

from slurmbridge.accounting import database, schema
from slurmbridge.accounting import operations as ops
from slurmbridge.accounting.errors import LedgerError, one_line
from slurmbridge.accounting.loading import LoadedState, load_state
from slurmbridge.accounting.migrate import ensure_current, ensure_known
from slurmbridge.accounting.putting import Put, Putter
from slurmbridge.accounting.sluid import SluidSource
from slurmbridge.accounting.writer import Batch, Writer

__all__ = ["Ledger", "LedgerError", "LoadedState"]


MOST_NAMED = 20
"""Jobs that are named where all cannot be."""


class Ledger:
    """One open ledger. ``write`` belongs to the event loop's thread."""

    def __init__(self, url: str, engine: Engine, lock: database.StateLock | None) -> None:
        self.url = url
        self.is_new = False
        self.unwritten = ""
        """After ``close``: in words, what could not be written."""
        self._engine = engine
        self._lock = lock
        self._putter = Putter()
        self._writer: Writer | None = None
        self._sluids: SluidSource | None = None

    def endure(self, on_trouble: Callable[[str], None]) -> None:
        """From now on a full disk, a lock or a server that is away is no failure: writes wait until it is over.

        ``on_trouble`` is called in the event loop's thread, from where this is called, with one line when such a time
        begins and with "" when it is over.
        """
        loop = asyncio.get_running_loop()

        def tell(text: str) -> None:
            with contextlib.suppress(RuntimeError):    # the loop has been closed meanwhile
                loop.call_soon_threadsafe(on_trouble, text)
        if self._writer is not None:
            self._writer.on_trouble = tell

    @classmethod
    def open(cls, url: str, lock_path: str | None = None, *, take_over: bool = False) -> Ledger:
        """Opens (and creates or upgrades) the ledger at ``url``: a path, ``sqlite:///PATH`` or ``postgresql://…``.

        ``lock_path``: the file whose flock keeps a second controller out (default: beside an SQLite file; a PostgreSQL
        ledger has an advisory lock in any case). ``take_over``: the caller leads by a lease; who wrote before is shut
        out by a new epoch, a PostgreSQL session that still holds the lock is ended. Raises LedgerError, one line,
        where the ledger is in use, corrupt, locked, of a newer release, or cannot be created.
        """
        url = database.normal_url(url)
        path = database.sqlite_path(url)
        if lock_path is None and path is not None:
            lock_path = path + ".lock"
        lock = database.StateLock(lock_path) if lock_path else None
        engine = database.make_engine(url)
        ledger = cls(url, engine, lock)
        try:
            if path is not None:
                database.make_private(path)
            if take_over:
                ensure_known(engine)
                epoch = database.begin_epoch(engine)
            ledger._writer = Writer(engine)
            ledger.is_new = ensure_current(engine)
            if take_over:
                ledger._writer.epoch = epoch or database.begin_epoch(engine)
        except Exception as error:
            ledger._abandon()
            raise ledger._explained(error) from error
        return ledger

    def load(self) -> LoadedState:
        """Everything that a controller needs to go on. Call once, before the first ``write``. Raises LedgerError."""
        try:
            with self._engine.connect() as connection:
                last_change = connection.execute(select(func.max(schema.change.c.id))).scalar() or 0
                self._putter = Putter(last_change + 1)
                state = load_state(connection, self._putter)
        except Exception as error:
            raise self._explained(error) from error
        self.write_and_wait([ops.SaveMeta("cluster_id", state.meta["cluster_id"])])
        self._sluids = state.sluids
        return state

    def next_db_index(self, now_s: float) -> int:
        """A new run's key, larger than every earlier one; ``sluid_text`` shows it. After ``load``."""
        if self._sluids is None:
            raise LedgerError("the ledger has not been loaded")
        return self._sluids.next(now_s)

    def write(self, operations: Iterable[ops.Operation], *, alone: bool = False) -> asyncio.Future[None]:
        """Queues the operations, all or none of them in one transaction; the future is done once they are on disk.
        ``alone``: nothing else is about to be written, so that they are written during the call if that is quick.

        The records are read during the call. The future, or the call after an earlier failure, raises LedgerError;
        after a failure nothing more is written, since the memory is then ahead of the ledger.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        writer, puts = self._open_writer(), self._puts(operations)
        if alone and writer.commit_now(puts):
            future.set_result(None)
            return future

        def done(error: LedgerError | None) -> None:
            with contextlib.suppress(RuntimeError):    # the loop has been closed meanwhile: nobody waits
                loop.call_soon_threadsafe(_settle, future, error)
        writer.put(puts, done)
        return future

    def write_and_wait(self, operations: Iterable[ops.Operation]) -> None:
        """The same for callers without an event loop: returns once on disk. Raises LedgerError."""
        event = threading.Event()
        failed: list[LedgerError] = []

        def done(error: LedgerError | None) -> None:
            if error:
                failed.append(error)
            event.set()
        self._open_writer().put(self._puts(operations), done)
        event.wait()
        if failed:
            raise failed[0]

    def close(self) -> None:
        """Writes what is queued, then lets the ledger go."""
        self._abandon()

    @property
    def commits(self) -> int:
        """Transactions so far, for figures of group commit."""
        return self._writer.commits if self._writer else 0

    def _open_writer(self) -> Writer:
        if self._writer is None:
            raise LedgerError("the ledger is closed")
        return self._writer

    def _puts(self, operations: Iterable[ops.Operation]) -> list[Put]:
        puts: list[Put] = []
        for operation in operations:
            puts.extend(self._putter.puts(operation))
        return puts

    def _abandon(self) -> None:
        if self._writer:
            self._writer.close()
            self.unwritten = _told(self._writer.lost)
            self._writer = None
        self._engine.dispose()
        if self._lock:
            self._lock.release()

    def _explained(self, error: Exception) -> LedgerError:
        if isinstance(error, LedgerError):
            return error
        return LedgerError(f"ledger {database.shown(self.url)}: {one_line(error)}")


def _told(lost: Batch) -> str:
    jobs = sorted({row[1] for row in lost.get("job", {}).values() if row is not None})
    others = sum(len(rows) for table, rows in lost.items() if table != "job")
    named = f"job{'s' if len(jobs) > 1 else ''} {', '.join(map(str, jobs[:MOST_NAMED]))}" if jobs else ""
    if len(jobs) > MOST_NAMED:
        named += f" and {len(jobs) - MOST_NAMED} more"
    return " and ".join(part for part in (named, f"{others} other records" if others else "") if part)


def _settle(future: asyncio.Future[None], error: LedgerError | None) -> None:
    if future.done():
        return
    if error:
        future.set_exception(error)
    else:
        future.set_result(None)
