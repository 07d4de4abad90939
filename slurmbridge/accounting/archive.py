"""Old records out of the ledger, into files and back. What was rolled up of them stays as it is.

An archive is a text file: one JSON list a line, the table's name and the row. It is complete under its name or not
there at all, and rows are deleted only after that.
"""
from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Engine, Table, and_, func, select

from slurmbridge.accounting import database, schema
from slurmbridge.accounting import operations as ops
from slurmbridge.accounting.rolling import PURGED, ROLLED
from slurmbridge.accounting.rollup import HOUR_S
from slurmbridge.slurm.zones import Zone

KINDS = ("event", "job", "resv", "step", "suspend", "txn")
_BATCH = 2000
_TABLES = {table.name: table for table in (
    schema.event, schema.job, schema.reservation, schema.step, schema.suspension, schema.change)}


class ArchiveError(Exception):
    """``str()`` is one line; ``number`` is the system's errno."""

    def __init__(self, text: str, number: int | None = None) -> None:
        self.number = number or errno.EINVAL
        super().__init__(text)


@dataclass(frozen=True, slots=True)
class Part:
    """Records of a kind that began (jobs: were submitted) before a time and are over. ``keeps``: in a file."""

    kind: str
    before_s: int
    keeps: bool


def dump(url: str, write: Callable[[list[ops.Operation]], None], parts: Sequence[Part], directory: Path, cluster: str,
         zone: Zone) -> int:
    """Archives and deletes; how many rows. Jobs take their steps and suspensions along. Blocks.

    Only what is rolled up goes, and its usage is never worked out again. Raises ArchiveError, LedgerError.
    """
    engine = database.make_engine(database.normal_url(url), read_only=True)
    gone = 0
    try:
        with engine.connect() as connection:
            marks = select(schema.meta.c.value).where(schema.meta.c.key == ROLLED)
            rolled = int(connection.execute(marks).scalar() or 0)
        for part in parts:
            wanted = _conditions(part, rolled)
            path = _save(engine, wanted, directory, f"{cluster}_{part.kind}_archive", part.before_s, zone) \
                if part.keeps else None
            _close_books(engine, write, part, wanted[-1])
            gone += _delete(write, _saved(path) if path else _keys(engine, wanted))
    finally:
        engine.dispose()
    return gone


def load(path: Path) -> Iterator[list[ops.Operation]]:
    """Operations, some rows at a time. Raises ArchiveError with the line that is none of an archive."""
    rows: dict[str, dict[tuple[Any, ...], tuple[Any, ...] | None]] = {}
    count = 0
    try:
        with path.open(encoding="ascii") as file:
            for number, line in enumerate(file, 1):
                try:
                    name, row = json.loads(line)
                    table = _TABLES[name]
                    if len(row) != len(table.columns):
                        raise ValueError("columns")
                except (ValueError, KeyError, TypeError):
                    raise ArchiveError(f"{path}: line {number} is not of an archive") from None
                rows.setdefault(name, {})[tuple(row[at] for at in _key(table))] = tuple(row)
                count += 1
                if count % _BATCH == 0:
                    yield [ops.SaveRows(table, found) for table, found in rows.items()]
                    rows = {}
    except OSError as error:
        raise ArchiveError(f"{path}: {error.strerror}", error.errno) from None
    except UnicodeDecodeError:
        raise ArchiveError(f"{path}: not an archive") from None
    if rows:
        yield [ops.SaveRows(table, found) for table, found in rows.items()]


def _key(table: Table) -> list[int]:
    names = [column.name for column in table.columns]
    return [names.index(column.name) for column in table.primary_key.columns]


def _conditions(part: Part, rolled: int) -> list[tuple[Table, ColumnElement[bool]]]:
    """Tables and what of them goes, jobs after what hangs on them."""
    job, step, pause = schema.job, schema.step, schema.suspension
    jobs = and_(job.c.submit_s < part.before_s, job.c.end_s < rolled)
    runs = select(job.c.db_index).where(jobs)
    if part.kind == "job":
        return [(step, step.c.db_index.in_(runs)), (pause, pause.c.db_index.in_(runs)), (job, jobs)]
    if part.kind == "step":
        return [(step, step.c.db_index.in_(runs))]
    if part.kind == "suspend":
        return [(pause, and_(pause.c.start_s < part.before_s, pause.c.end_s < rolled))]
    if part.kind == "txn":
        return [(schema.change, schema.change.c.time_s < part.before_s)]
    table = schema.event if part.kind == "event" else schema.reservation
    return [(table, and_(table.c.start_s < part.before_s, table.c.end_s < rolled))]


def _save(engine: Engine, wanted: Iterable[tuple[Table, ColumnElement[bool]]], directory: Path, name: str,
          before_s: int, zone: Zone) -> Path | None:
    """One file, named for its time; None where there is nothing to save."""
    end = zone.strftime("%Y-%m-%dT%H:%M:%S", before_s - 1)
    path, new = directory / f"{name}_{end}", directory / f".{name}_{end}.new"
    number = 1
    while path.exists():                       # an archive is never written over
        number += 1
        path = directory / f"{name}_{end}.{number}"
    try:
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
            count = 0
            with engine.connect() as connection:
                for table, condition in wanted:
                    for row in connection.execution_options(yield_per=_BATCH).execute(select(table).where(condition)):
                        file.write(json.dumps([table.name, list(row)], separators=(",", ":")) + "\n")
                        count += 1
            file.flush()
            os.fsync(file.fileno())
        if not count:
            new.unlink()
            return None
        new.rename(path)
        return path
    except OSError as error:
        new.unlink(missing_ok=True)
        raise ArchiveError(f"{error.filename or path}: {error.strerror}", error.errno) from None


def _close_books(engine: Engine, write: Callable[[list[ops.Operation]], None], part: Part,
                 wanted: tuple[Table, ColumnElement[bool]]) -> None:
    """What was used up to the end of these records is not worked out again without them."""
    if part.kind not in ("event", "job", "resv", "suspend"):
        return
    table, condition = wanted
    with engine.connect() as connection:
        last = connection.execute(select(func.max(table.c.end_s)).where(condition)).scalar()
        purged = connection.execute(select(schema.meta.c.value).where(schema.meta.c.key == PURGED)).scalar()
    if last is not None and last >= int(purged or 0):
        write([ops.SaveMeta(PURGED, str(last - last % HOUR_S + HOUR_S))])


def _saved(path: Path) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Table and key of every row in an archive."""
    for operations in load(path):
        for operation in operations:
            if isinstance(operation, ops.SaveRows):
                yield from ((operation.table, key) for key in operation.rows)


def _keys(engine: Engine, wanted: Iterable[tuple[Table, ColumnElement[bool]]]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    with engine.connect() as connection:
        found = [(table.name, connection.execute(select(*table.primary_key.columns).where(condition)).all())
                 for table, condition in wanted]
    for name, keys in found:
        yield from ((name, tuple(key)) for key in keys)


def _delete(write: Callable[[list[ops.Operation]], None], found: Iterable[tuple[str, tuple[Any, ...]]]) -> int:
    gone = 0
    rows: dict[str, dict[tuple[Any, ...], tuple[Any, ...] | None]] = {}
    for name, key in found:
        rows.setdefault(name, {})[key] = None
        gone += 1
        if gone % _BATCH == 0:
            write([ops.SaveRows(table, keys) for table, keys in rows.items()])
            rows = {}
    if rows:
        write([ops.SaveRows(table, keys) for table, keys in rows.items()])
    return gone
