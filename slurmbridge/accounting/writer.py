"""What makes rows durable: a thread, in which everything queued while one commit ran goes into the next, and, for rows
that come alone, the caller's own thread (``commit_now``), since being woken costs more than a quick commit.

Rows are collected per key, the last one wins, so a batch can be written again: after a lost connection, and for as
long as the disk is full or somebody else holds the database (``on_trouble`` hears of it). Statements are
built once and carry many rows each: with SQLite, every statement gives up the interpreter's lock once, and taking it
back from a busy event loop is what costs.
"""
from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import Any

from sqlalchemy import Engine, Table

from slurmbridge.accounting import database, schema
from slurmbridge.accounting.database import ADVISORY_LOCK, is_locked, is_passing
from slurmbridge.accounting.errors import LedgerError, LedgerInUse, LedgerTaken, one_line

Key = tuple[Any, ...]
Row = tuple[Any, ...]
Batch = dict[str, dict[Key, Row | None]]       # table -> key -> row, or None: delete
CHUNKS = (64, 16, 4, 1)                        # rows a statement, so that few statement texts serve every count
PATIENCE_S = 5.0
"""How long a database that is away or locked is not yet called trouble."""
QUICK_S = 0.01
"""Callers commit by themselves as long as commits do not take longer: their event loop stands still meanwhile."""
RETRY_S = 0.3
CLOSE_PATIENCE_S = 2.0
EPOCH_KEY = "epoch"
"""In ``meta``: which leader may write. It grows by one with each."""


class Statements:
    """The upsert and delete statements of one table, in the database's parameter style."""

    def __init__(self, table: Table, mark: str) -> None:
        names = [f'"{column.name}"' for column in table.columns]
        keys = [f'"{column.name}"' for column in table.primary_key.columns]
        rest = [f"{name}=excluded.{name}" for name in names if name not in keys]
        group = "(" + ",".join([mark] * len(names)) + ")"
        action = f"DO UPDATE SET {','.join(rest)}" if rest else "DO NOTHING"
        head = f'INSERT INTO "{table.name}" ({",".join(names)}) VALUES '
        tail = f" ON CONFLICT ({','.join(keys)}) {action}"
        self.upsert = {count: head + ",".join([group] * count) + tail for count in CHUNKS}
        self.delete = f'DELETE FROM "{table.name}" WHERE ' + " AND ".join(f"{key}={mark}" for key in keys)


class Writer:
    """Owns the one writing connection. ``put`` from any thread; ``done(error)`` is called in the writer's thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._place = database.shown(engine.url.render_as_string(hide_password=False))
        self._is_sqlite = engine.dialect.name == "sqlite"
        mark = "?" if self._is_sqlite else "%s"
        self._statements = {table.name: Statements(table, mark) for table in schema.metadata.sorted_tables}
        self._condition = threading.Condition()
        self._batch: Batch = {}
        self._waiting: list[Callable[[LedgerError | None], None]] = []
        self._busy = False                     # somebody uses the connection
        self._closing = False
        self._last_commit_s = 0.0
        self._failure: LedgerError | None = None
        self._trouble = ""
        self.epoch: int | None = None          # None: nobody can take over
        self._check_epoch = f"UPDATE meta SET value=value WHERE key='{EPOCH_KEY}' AND value={mark}"
        self.on_trouble: Callable[[str], None] | None = None
        """Called in the writer's thread with what is wrong, and with "" when it is over. While this is None, trouble
        is a failure."""
        self.commits = 0
        self.lost: Batch = {}
        """What a failure kept from being written; complete once the thread has ended."""
        self._connection = self._connect()
        self._thread = threading.Thread(target=self._run, name="ledger-writer", daemon=True)
        self._thread.start()

    def put(self, rows: list[tuple[str, Key, Row | None]], done: Callable[[LedgerError | None], None] | None) -> None:
        """Queues rows; ``done`` hears of their commit. Raises LedgerError after a failure or after ``close``."""
        with self._condition:
            if self._failure or self._closing:
                raise self._failure or LedgerError("the ledger is closed")
            batch = self._batch
            for table, key, row in rows:
                batch.setdefault(table, {})[key] = row
            if done:
                self._waiting.append(done)
            self._condition.notify()

    def commit_now(self, rows: list[tuple[str, Key, Row | None]]) -> bool:
        """Commits these rows in the caller's thread where that is quick and nothing else is under way. False: nothing
        was written, ``put`` them."""
        with self._condition:
            if (self._busy or self._batch or self._waiting or self._failure or self._closing or self._trouble
                    or not self._is_sqlite or self._last_commit_s > QUICK_S or self._connection is None):
                return False
            self._busy = True
        batch: Batch = {}
        for table, key, row in rows:
            batch.setdefault(table, {})[key] = row
        try:
            self._write(self._connection.driver_connection, batch)
            return True
        except Exception:
            return False                       # the thread meets it again and knows what to do
        finally:
            with self._condition:
                self._busy = False
                if self._batch or self._waiting or self._closing:
                    self._condition.notify()

    def close(self) -> None:
        """Commits what is queued and ends the thread."""
        with self._condition:
            self._closing = True
            self._condition.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._condition:
                while self._busy or not (self._batch or self._waiting or self._closing):
                    self._condition.wait()
                self._busy = True
                batch, waiting = self._batch, self._waiting
                self._batch, self._waiting = {}, []
                if not batch and not waiting:
                    break
            failure = self._failure
            if batch and failure is None:
                failure = self._commit(batch)
            if failure:
                for table, rows in batch.items():
                    self.lost.setdefault(table, {}).update(rows)
                with self._condition:
                    self._failure = failure
            for done in waiting:
                done(failure)
            with self._condition:
                self._busy = False             # only who has set it: a caller may be committing meanwhile
        self._disconnect()

    def _commit(self, batch: Batch) -> LedgerError | None:
        """Writes a batch in one transaction, again and again where the cause of a failure may pass."""
        began = time.monotonic()
        while True:
            try:
                if self._connection is None:
                    self._connection = self._connect()
                self._write(self._connection.driver_connection, batch)
                self._tell_trouble("")
                return None
            except Exception as error:
                known = error if isinstance(error, LedgerError) else None
                passing = is_passing(error.__cause__ or error if known else error)
                lost = self._connection is None or bool(getattr(self._connection.driver_connection, "closed", False))
                if lost or not passing:
                    self._disconnect()
                failure = known or LedgerError(f"ledger {self._place} cannot be written: {one_line(error)}")
                waited_s = time.monotonic() - began
                if not passing or (self._closing and waited_s > CLOSE_PATIENCE_S):
                    return failure
                if waited_s >= PATIENCE_S or not (lost or is_locked(error)):
                    if self.on_trouble is None:
                        return failure
                    self._tell_trouble(str(failure))
                with self._condition:
                    if not self._closing:
                        self._condition.wait_for(lambda: self._closing, RETRY_S)
                if self._closing:
                    time.sleep(RETRY_S)

    def _tell_trouble(self, text: str) -> None:
        if self.on_trouble is not None and text != self._trouble:
            self._trouble = text
            self.on_trouble(text)

    def _write(self, connection: Any, batch: Batch) -> None:
        began = time.monotonic()
        cursor = connection.cursor()
        cursor.execute("BEGIN IMMEDIATE" if self._is_sqlite else "BEGIN")
        try:
            if self.epoch is not None:
                cursor.execute(self._check_epoch, (str(self.epoch),))
                if cursor.rowcount != 1:
                    raise LedgerTaken(f"another controller leads: epoch {self.epoch} of the ledger is over")
            for table, rows in batch.items():
                statements = self._statements[table]
                present = [row for row in rows.values() if row is not None]
                at = 0
                for count in CHUNKS:
                    while len(present) - at >= count:
                        values: list[Any] = []
                        for row in present[at:at + count]:
                            values.extend(row)
                        cursor.execute(statements.upsert[count], values)
                        at += count
                for key, kept in rows.items():
                    if kept is None:
                        cursor.execute(statements.delete, key)
            cursor.execute("COMMIT")
            self.commits += 1
            self._last_commit_s = time.monotonic() - began
        except BaseException:
            with contextlib.suppress(Exception):       # the connection is gone, and the transaction with it
                cursor.execute("ROLLBACK")
            raise

    def _connect(self) -> Any:
        try:
            connection = self._engine.raw_connection()
        except Exception as error:
            raise LedgerError(f"ledger {self._place} cannot be opened: {one_line(error)}") from error
        driver: Any = connection.driver_connection
        if isinstance(driver, sqlite3.Connection):
            driver.isolation_level = None
            driver.execute("PRAGMA busy_timeout=0")    # waiting is the thread's
            return connection
        driver.autocommit = True
        if not driver.execute("SELECT pg_try_advisory_lock(%s)", (ADVISORY_LOCK,)).fetchone()[0]:
            connection.close()
            raise LedgerInUse("another controller uses this ledger (its advisory lock is held)")
        return connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(Exception):       # it is being dropped because it does not work
                self._connection.invalidate()
            self._connection = None
