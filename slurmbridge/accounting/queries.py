"""Read-only questions to the ledger, over connections of their own: what ``Views.ledger_query`` answers.

Kinds and filters (absent or None: not restricted; times in epoch seconds; lists are alternatives):

``jobs``        accounting rows, one per run, in ``db_index`` order. Filters: ``job_ids`` (ids of jobs, of arrays or of
                heterogeneous jobs), ``users``, ``uids``, ``gids``, ``accounts``, ``partitions``, ``qos``, ``wckeys``,
                ``names``, ``start_s``/``end_s`` (was eligible before ``end_s`` and had not ended before ``start_s``),
                ``steps`` (bool: with "steps", a list of mappings of StepRecord's fields, in start order),
                ``suspensions`` (bool: with "suspensions", a list of (start_s, end_s or None)), ``lazy`` (bool: rows are
                LazyRow, which read their JSON text once something in it is asked for).
                A row has the table's columns (db_index, job_id, array_job_id, array_task_id, het_job_id, het_offset,
                user_name, uid, gid, account, assoc_id, partition, qos, wckey, name, state, submit_s, eligible_s,
                start_s, end_s) and what ``rows.job_row`` puts into ``data``, absent where empty.
``events``      sacctmgr's events by start. Filters: ``nodes`` ("" = the cluster), ``start_s``/``end_s`` (overlap),
                ``open`` (bool). Rows: node, start_s, end_s, state, reason, reason_uid, tres, nodes.
``changes``     sacctmgr's transactions in order. Filters: ``start_s``, ``end_s``, ``actors``, ``actions``, ``ids``.
                Rows: id, time_s, action, actor, where_text, info.

``usage``, ``cluster_usage`` and ``reservations`` are documented in usage_queries.py.
"""
from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, Select, or_, select

from slurmbridge.accounting import database, schema, usage_queries
from slurmbridge.accounting.errors import LedgerError, one_line
from slurmbridge.accounting.rows import clean

Found = list[dict[str, Any]]
_ABSENT = object()
_OWN_STEPS = {"interactive": -4, "batch": -3, "extern": -2}
_CHUNK = 500                                   # values in one IN list
_JOB_COLUMNS = tuple(column.name for column in schema.job.columns if column.name != "data")


class LazyRow(dict[str, Any]):
    """A job's columns; ``text`` is the JSON of the rest ("" once it has been read). Complete to ``[]``, ``get`` and
    ``in``, not to iteration. Of a pending job the usual reader asks for nothing that the text has."""

    __slots__ = ("text",)

    def __init__(self, values: Iterable[tuple[str, Any]], text: str) -> None:
        super().__init__(values)
        self.text = text

    def __missing__(self, key: str) -> Any:
        if self._read(key):
            return self[key]
        raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or (self._read(str(key)) and super().__contains__(key))

    def get(self, key: str, default: Any = None) -> Any:
        value = super().get(key, _ABSENT)
        if value is _ABSENT:
            return super().get(key, default) if self._read(key) else default
        return value

    def _read(self, key: str) -> bool:
        """Whether the text was read just now, because it may have the key (codec.dumps writes no blanks)."""
        if f'"{key}":' not in self.text:
            return False
        text, self.text = self.text, ""
        for name, value in json.loads(text).items():
            self.setdefault(name, value)
        return True


class Queries:
    """A small pool of reading threads. ``ask`` from the event loop, ``answer`` from any thread."""

    def __init__(self, url: str, threads: int = 2) -> None:
        self._url = database.normal_url(url)
        self._engine = database.make_engine(self._url, read_only=True)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="ledger-reader")

    async def ask(self, kind: str, **filters: Any) -> Found:
        """Rows of a kind. Raises LedgerError where the ledger cannot be read, KeyError for an unknown kind."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: self.answer(kind, **filters))

    def answer(self, kind: str, **filters: Any) -> Found:
        handler = _KINDS[kind]
        try:
            with self._engine.connect() as connection:
                return handler(connection, filters)
        except Exception as error:
            raise LedgerError(f"ledger {database.shown(self._url)} cannot be read: {one_line(error)}") from error

    def close(self) -> None:
        self._pool.shutdown()
        self._engine.dispose()


def _jobs(connection: Connection, filters: Mapping[str, Any]) -> Found:
    table = schema.job.c
    query = select(schema.job)
    for name, column in (("users", table.user_name), ("accounts", table.account), ("qos", table.qos),
                         ("wckeys", table.wckey), ("names", table.name)):
        if filters.get(name) is not None:
            query = query.where(column.in_([clean(value) for value in filters[name]]))
    for name, number in (("uids", table.uid), ("gids", table.gid)):
        if filters.get(name) is not None:
            query = query.where(number.in_(list(filters[name])))
    if filters.get("start_s") is not None:
        query = query.where(or_(table.end_s.is_(None), table.end_s >= filters["start_s"]))
    if filters.get("end_s") is not None:
        query = query.where(or_(table.eligible_s < filters["end_s"]))
    parts = list(_by_ids(query, filters.get("job_ids")))
    rows = [row for part in parts for row in _raw(connection, part)]
    if len(parts) > 1:
        rows = list({row[0]: row for row in rows}.values())
    rows.sort(key=itemgetter(0))
    make = _lazy_job if filters.get("lazy") else _job
    found: Found = [make(row) for row in rows]
    wanted = filters.get("partitions")
    if wanted is not None:
        found = [job for job in found if set(job["partition"].split(",")) & set(wanted)]
    if filters.get("steps"):
        _add_steps(connection, found, parts)
    if filters.get("suspensions"):
        _add_suspensions(connection, found, parts)
    return found


def _raw(connection: Connection, query: Select[Any]) -> list[tuple[Any, ...]]:
    """The driver's own tuples: no column here needs more, and thousands of rows are read at once."""
    cursor: Any = connection.execute(query).cursor
    return list(cursor.fetchall())


def _by_ids(query: Select[Any], ids: Sequence[int] | None) -> Iterator[Select[Any]]:
    if ids is None:
        yield query
        return
    table = schema.job.c
    for part in _chunks(ids):
        yield query.where(or_(table.job_id.in_(part), table.array_job_id.in_(part), table.het_job_id.in_(part)))


def _chunks(values: Iterable[int]) -> Iterator[list[int]]:
    listed = list(values)
    for start in range(0, len(listed), _CHUNK):
        yield listed[start:start + _CHUNK]


def _job(row: tuple[Any, ...]) -> dict[str, Any]:
    values = dict(zip(_JOB_COLUMNS, row))
    values.update(json.loads(row[-1]))
    return values


def _lazy_job(row: tuple[Any, ...]) -> dict[str, Any]:
    return LazyRow(zip(_JOB_COLUMNS, row), row[-1])


def _add_steps(connection: Connection, jobs: Found, parts: Sequence[Select[Any]]) -> None:
    """``parts``: the queries that found the jobs."""
    steps: dict[int, dict[str, Any]] = {job["db_index"]: {} for job in jobs}
    table = schema.step.c
    for part in parts:
        chosen = part.with_only_columns(schema.job.c.db_index)
        query = select(table.db_index, table.step_id, table.data).where(table.db_index.in_(chosen))
        for number, step_id, data in _raw(connection, query):
            if number in steps:
                steps[number][step_id] = json.loads(data)
    for job in jobs:
        job["steps"] = sorted(steps[job["db_index"]].values(), key=_step_order)


def _step_order(step: Mapping[str, Any]) -> tuple[int, int]:
    """As slurmdbd has them: those that Slurm makes itself, then by number and component (``0+1``)."""
    number, _, component = str(step["step_id"]).partition("+")
    return _OWN_STEPS.get(number, int(number) if number.isdigit() else -1), int(component or 0)


def _add_suspensions(connection: Connection, jobs: Found, parts: Sequence[Select[Any]]) -> None:
    spans: dict[int, dict[int, int | None]] = {}
    table = schema.suspension.c
    for part in parts:
        chosen = part.with_only_columns(schema.job.c.db_index)
        query = select(table.db_index, table.start_s, table.end_s).where(table.db_index.in_(chosen))
        for number, start_s, end_s in _raw(connection, query.order_by(table.start_s)):
            spans.setdefault(number, {})[start_s] = end_s
    for job in jobs:
        job["suspensions"] = list(spans[job["db_index"]].items()) if job["db_index"] in spans else []


def _events(connection: Connection, filters: Mapping[str, Any]) -> Found:
    table = schema.event.c
    query = select(schema.event).order_by(table.start_s, table.node)
    if filters.get("nodes") is not None:
        query = query.where(table.node.in_([clean(name) for name in filters["nodes"]]))
    if filters.get("open"):
        query = query.where(table.end_s.is_(None))
        if filters.get("start_s") is not None:
            query = query.where(table.start_s >= filters["start_s"])
    else:
        if filters.get("start_s") is not None:
            query = query.where(or_(table.end_s.is_(None), table.end_s >= filters["start_s"]))
        if filters.get("end_s") is not None:
            query = query.where(table.start_s < filters["end_s"])
    return [{"node": row.node, "start_s": row.start_s, "end_s": row.end_s, **json.loads(row.data)}
            for row in connection.execute(query)]


def _changes(connection: Connection, filters: Mapping[str, Any]) -> Found:
    table = schema.change.c
    query = select(schema.change).order_by(table.id)
    if filters.get("start_s") is not None:
        query = query.where(table.time_s >= filters["start_s"])
    if filters.get("end_s") is not None:
        query = query.where(table.time_s < filters["end_s"])
    for name, column in (("actors", table.actor), ("actions", table.action)):
        if filters.get(name) is not None:
            query = query.where(column.in_(list(filters[name])))
    if filters.get("ids") is not None:
        query = query.where(table.id.in_(list(filters["ids"])))
    return [dict(row) for row in connection.execute(query).mappings()]


_KINDS: dict[str, Callable[[Connection, Mapping[str, Any]], Found]] = {
    "jobs": _jobs, "events": _events, "changes": _changes, "usage": usage_queries.usage,
    "cluster_usage": usage_queries.cluster_usage, "reservations": usage_queries.reservations}
