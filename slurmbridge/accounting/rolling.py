"""Keeps the roll-up tables up to date: hours from job and event rows, days from hours, months from days.

Everything here can be done again at any time: rows of a period are worked out anew and only differences are written.
Periods are swept from the newest hour back, so that each job row is read once however long it ran, through the index
of ends that sacct needs as well. ``meta`` remembers the hour up to which all is done (``usage_rolled_s``); whatever
changes the past (an import, an end that became known late) moves it back. Job rows older than ``usage_purged_s`` were
given away, so usage before is never worked out again.
"""
from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Engine, Table, and_, func, or_, select

from slurmbridge.accounting import database, schema
from slurmbridge.accounting import operations as ops
from slurmbridge.accounting.rollup import HOUR_S, HourUsage, Key, Outage, Reservation, Run, Size, roll_hour
from slurmbridge.slurm import hostlist
from slurmbridge.slurm.zones import Zone
from slurmbridge.views.associations import Tree
from slurmbridge.views.records import AssociationData

ROLLED, PURGED = "usage_rolled_s", "usage_purged_s"
CHUNK_HOURS = 24
_FETCHED = 5000                                # rows at a time
_POWERED_DOWN, _MAINT = 1 << 12, 1 << 15       # of a node's state in slurm.h
TIMES = ("allocated", "down", "planned_down", "idle", "planned", "over")
Rows = dict[tuple[Any, ...], tuple[Any, ...] | None]


@dataclass(frozen=True, slots=True)
class Settings:
    """What of the site decides how usage is counted. ``zone``: of days and months."""

    zone: Zone
    tres_ids: Mapping[str, int]
    default_qos: Callable[[int], str]
    tracks_wckeys: bool = False
    ranks: Mapping[int, int] = field(default_factory=dict)    # places of associations that were imported


def default_qos_of(data: AssociationData) -> Callable[[int], str]:
    """The QOS that an association's jobs have when they ask for none."""
    tree = Tree(data)
    fallback = tree.root.default_qos if tree.root else ""

    def find(number: int) -> str:
        record = data.associations.get(number)
        if record is not None and not record.deleted:
            own, allowed = tree.default_qos(record), tree.qos(record)
            if own or len(allowed) == 1:
                return own or allowed[0]
        return fallback or ("normal" if "normal" in data.qos else "")
    return find


def day_of(zone: Zone, time_s: int, later: int = 0) -> int:
    when = zone.local(time_s)
    return zone.epoch(when.year, when.month, when.day + later, 0, 0, 0)


def month_of(zone: Zone, time_s: int, later: int = 0) -> int:
    when = zone.local(time_s)
    month = when.month - 1 + later
    return zone.epoch(when.year + month // 12, month % 12 + 1, 1, 0, 0, 0)


class Roller:
    """``write`` returns once the operations are on disk. Methods block: call them from a thread of their own."""

    def __init__(self, url: str, write: Callable[[list[ops.Operation]], None]) -> None:
        self._engine: Engine = database.make_engine(database.normal_url(url), read_only=True)
        self._write = write
        self._keys: dict[Key, int] = {}
        self.stopped = False

    def close(self) -> None:
        self.stopped = True
        self._engine.dispose()

    def catch_up(self, settings: Settings, now_s: float) -> int:
        """Rolls up all full hours that are not yet; how many these were."""
        zone = settings.zone
        with self._engine.connect() as connection:
            meta = dict(connection.execute(select(schema.meta.c.key, schema.meta.c.value)).tuples().all())
            first = connection.execute(
                select(func.min(schema.event.c.start_s)).where(schema.event.c.node == "")).scalar()
        if first is None:
            return 0
        end = zone.hour_of(int(now_s))
        start = max(int(meta.get(ROLLED, "0")), int(meta.get(PURGED, "0")), zone.hour_of(first))
        if start >= end:
            return 0
        stop = start + -(-(end - start) // HOUR_S) * HOUR_S       # beyond ``end`` where clocks change by half an hour
        self._roll_hours(settings, start, stop)
        self._sum_up("d", "h", _borders(start, end, lambda time, later: day_of(zone, time, later)))
        self._sum_up("m", "d", _borders(start, end, lambda time, later: month_of(zone, time, later)))
        if self.stopped:
            return 0
        self._write([ops.SaveMeta(ROLLED, str(stop if stop <= end else stop - HOUR_S))])
        return (stop - start) // HOUR_S

    # --- hours
    def _roll_hours(self, settings: Settings, start: int, end: int) -> None:
        ended_before: int | None = None
        carried: list[Run] = []
        chunk = CHUNK_HOURS * HOUR_S
        for first in range(end - chunk, start - chunk, -chunk):
            if self.stopped:
                return
            begin, stop = max(first, start), first + chunk
            with self._engine.connect() as connection:
                runs = carried + list(_runs(connection, settings, begin, stop, ended_before))
                sizes, outages = _events(connection, settings, begin, stop)
                reservations = _reservations(connection, settings, begin, stop)
                hours = _by_hour(runs, begin, stop)
                usage = {hour: roll_hour(hour, hours.get(hour, ()), _within(outages, hour), _within(sizes, hour),
                                         _within(reservations, hour), settings.default_qos)
                         for hour in range(begin, stop, HOUR_S)}
                self._save_hours(connection, usage, begin, stop)
            carried = [run for run in runs if run.eligible_s < begin]
            ended_before = begin

    def _save_hours(self, connection: Connection, usage: Mapping[int, HourUsage], begin: int, stop: int) -> None:
        if not self._keys:
            self._keys = {tuple(row[1:]): row[0] for row in connection.execute(select(schema.usage_key))}  # type: ignore[misc]
        new_keys: Rows = {}
        rows: Rows = {}
        totals: Rows = {}
        for hour, found in usage.items():
            for key, counts in found.usage.items():
                number = self._keys.get(key)
                if number is None:
                    number = self._keys[key] = len(self._keys) + 1
                    new_keys[number,] = (number, *key)
                for tres, seconds in counts.items():
                    place = ("h", hour, number, tres)
                    rows[place] = (*place, seconds)
            for tres, time in found.cluster.items():
                where = ("h", hour, tres)
                totals[where] = (*where, time.count, *(getattr(time, name) for name in TIMES))
        self._write_difference(connection, schema.job_usage, "h", begin, stop, rows, new_keys)
        self._write_difference(connection, schema.cluster_usage, "h", begin, stop, totals)

    def _write_difference(self, connection: Connection, table: Table, span: str, begin: int, stop: int, rows: Rows,
                          new_keys: Rows | None = None) -> None:
        width = len(table.primary_key.columns)
        query = select(table).where(table.c.span == span, table.c.time_s >= begin, table.c.time_s < stop)
        for row in connection.execute(query):
            place = tuple(row[:width])
            if place not in rows:
                rows[place] = None
            elif rows[place] == tuple(row):
                del rows[place]
        if rows:
            self._write([*([ops.SaveRows("usage_key", new_keys)] if new_keys else []), ops.SaveRows(table.name, rows)])

    # --- days and months
    def _sum_up(self, span: str, parts: str, periods: Iterable[tuple[int, int]]) -> None:
        for begin, stop in periods:
            if self.stopped:
                return
            with self._engine.connect() as connection:
                for table, functions in ((schema.job_usage, {"seconds": func.sum}),
                                         (schema.cluster_usage, {"count": func.max, **dict.fromkeys(TIMES, func.sum)})):
                    group = [column for column in table.primary_key.columns if column.name not in ("span", "time_s")]
                    query = select(*group, *(function(table.c[name]) for name, function in functions.items())).where(
                        table.c.span == parts, table.c.time_s >= begin, table.c.time_s < stop).group_by(*group)
                    rows: Rows = {}
                    for row in connection.execute(query):
                        place = (span, begin, *row[:len(group)])
                        rows[place] = (*place, *(int(value) for value in row[len(group):]))
                    self._write_difference(connection, table, span, begin, begin + 1, rows)


def _borders(start: int, end: int, period: Callable[[int, int], int]) -> Iterator[tuple[int, int]]:
    """The periods that [start, end) touches and that are over by its end."""
    begin, last = period(start, 0), period(end, 0)
    while begin < last:
        stop = period(begin, 1)
        yield begin, stop
        begin = stop


# ------------------------------------------------------------------------------------------------- rows of the ledger


def _runs(connection: Connection, settings: Settings, begin: int, stop: int, ended_before: int | None) -> Iterator[Run]:
    table = schema.job.c
    ended = or_(table.end_s >= begin, table.end_s.is_(None)) if ended_before is None else and_(
        table.end_s >= begin, table.end_s < ended_before)
    wanted = and_(table.eligible_s > 0, table.eligible_s < stop, ended)
    pauses: dict[int, list[tuple[int, int]]] = {}
    span = schema.suspension.c
    for number, from_s, to_s in connection.execute(
            select(span.db_index, span.start_s, span.end_s).join(schema.job, table.db_index == span.db_index)
            .where(wanted).order_by(span.start_s)):
        pauses.setdefault(number, []).append((from_s, to_s or 0))
    tracked = settings.tracks_wckeys
    columns = (table.db_index, table.assoc_id, table.qos, table.partition, table.wckey, table.eligible_s,
               table.start_s, table.end_s, table.data)
    cursor: Any = connection.execute(select(*columns).where(wanted)).cursor      # the driver's own tuples: many rows
    known: dict[str, dict[int, int]] = {}                                        # of equal texts, one mapping
    while rows := cursor.fetchmany(_FETCHED):
        for number, association, qos, partition, wckey, eligible, start, end, data in rows:
            text = _between(data, '"tres_alloc":', "}")
            tres = known.get(text)
            if tres is None:
                tres = known[text] = _by_id(settings, json.loads(text + "}")) if text else {}
            pending = _between(data, '"array_pending":"', '"')
            yield Run(number, (association, qos, partition, wckey if tracked else None), eligible, start or 0, end or 0,
                      _whole(data, '"req_cpus":'), int(pending, 16).bit_count() if pending else 0,
                      _whole(data, '"reservation_id":'), tres, pauses.get(number, ()),
                      settings.ranks.get(association, association))


def _between(data: str, begin: str, end: str) -> str:
    """What follows a key in a row's JSON text, "" without it. As codec.dumps writes no blanks, and a quote within a
    text has a backslash before it, ``"key":`` is nowhere but at the key."""
    start = data.find(begin)
    return data[start + len(begin):data.index(end, start + len(begin))] if start >= 0 else ""


def _whole(data: str, begin: str) -> int:
    """The whole number of a key, 0 without it."""
    start = data.find(begin)
    if start < 0:
        return 0
    start += len(begin)
    end = data.find(",", start)
    return int(data[start:end] if end >= 0 else data[start:-1])


def _by_hour(runs: Iterable[Run], begin: int, stop: int) -> dict[int, list[Run]]:
    """Hour -> runs that were eligible in it and had not ended before it."""
    hours: dict[int, list[Run]] = {hour: [] for hour in range(begin, stop, HOUR_S)}
    for run in runs:
        first = begin + max((run.eligible_s - begin) // HOUR_S, 0) * HOUR_S
        for hour in range(first, min(stop, run.end_s + 1) if run.end_s else stop, HOUR_S):
            hours[hour].append(run)
    return hours


def _events(connection: Connection, settings: Settings, begin: int, stop: int) -> tuple[list[Size], list[Outage]]:
    """Nodes in maintenance count neither as down nor as there: their reservation says it."""
    table = schema.event.c
    query = select(schema.event).where(table.start_s < stop, or_(table.end_s.is_(None), table.end_s >= begin))
    sizes: list[Size] = []
    outages: list[Outage] = []
    for node, start, end, data in connection.execute(query):
        values = json.loads(data)
        tres = _by_id(settings, values["tres"])
        state = values["state"] or ""
        if not node:
            away = bool(values.get("state_raw")) or values["reason"] == "slurmctld disconnect"
            sizes.append(Size(start, end or 0, tres, away))
        elif not _has(values, state, _MAINT, "$", "MAINT"):
            planned = state.startswith("FUT") or _has(values, state, _POWERED_DOWN, "~", "POWERED_DOWN")
            outages.append(Outage(node, start, end or 0, tres, planned))
    return sizes, outages


def _has(event: Mapping[str, Any], state: str, bit: int, *texts: str) -> bool:
    """Whether a node's state has a flag: as another Slurm's number, else as this one's text."""
    raw = int(event.get("state_raw", 0))
    return bool(raw & bit) if raw else any(text in state for text in texts)


def _reservations(connection: Connection, settings: Settings, begin: int, stop: int) -> list[Reservation]:
    table = schema.reservation.c
    query = select(schema.reservation).where(table.start_s < stop, table.end_s >= begin)
    found = []
    for number, start, end, _name, data in connection.execute(query.order_by(table.start_s, table.id)):
        values = json.loads(data)
        found.append(Reservation(
            number, start, end, _by_id(settings, values["tres"]), frozenset(hostlist.expand(values["nodes"])),
            tuple(dict.fromkeys(values["associations"])), "MAINT" in values["flags"], "IGNORE_JOBS" in values["flags"]))
    return found


def _by_id(settings: Settings, counts: Mapping[str, int]) -> dict[int, int]:
    return {settings.tres_ids[name]: count for name, count in counts.items() if name in settings.tres_ids}


def _within(spans: Sequence[Any], hour: int) -> list[Any]:
    return [span for span in spans if span.start_s < hour + HOUR_S and (not span.end_s or span.end_s >= hour)]
