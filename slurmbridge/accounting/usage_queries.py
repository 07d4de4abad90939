"""Questions about usage to the roll-up tables, for ``queries.py``.

``usage``         seconds of jobs and unused reservations. Filters: ``start_s``, ``end_s`` (full hours),
                  ``by_time`` (bool: one row for each time). Rows: assoc_id, qos, partition (None: reserved, not used),
                  wckey (None: not tracked), tres_id, seconds, and time_s with ``by_time``.
``cluster_usage`` seconds of the cluster. Filters: ``start_s``, ``end_s``, ``now_s``. Rows: tres_id, count (average,
                  rounded down), count_sum (of all roll-ups), allocated, down, planned_down, idle, planned, over.
``reservations``  by start and name. Filters: ``start_s``, ``end_s`` (overlap), ``names`` in any case, ``ids``.
                  Rows: id, start_s, end_s, name, flags, nodes, tres, associations, comment.
"""
from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, func, select

from slurmbridge.accounting import schema
from slurmbridge.accounting.rolling import ROLLED, TIMES, day_of, month_of
from slurmbridge.accounting.rows import clean
from slurmbridge.slurm.zones import Zone

Found = list[dict[str, Any]]
DAY_S = 86400


def _span(filters: Mapping[str, Any]) -> str:
    """Roll-ups of months or days (of this machine's zone) where the window consists of such, else of hours: what the
    cluster's count is averaged over."""
    zone = Zone.of(os.environ)
    start, end = filters["start_s"], filters["end_s"]
    first, last = zone.local(start), zone.local(end)
    if first.hour or last.hour or end - start < DAY_S or end > filters["now_s"]:
        return "h"
    return "m" if first.day == last.day == 1 and end - start > DAY_S else "d"


def _pieces(connection: Connection, start: int, end: int) -> list[tuple[str, int, int]]:
    """The window as hours, days, months, days, hours: as few rows as possible for the same sums."""
    zone = Zone.of(os.environ)
    rolled = int(connection.execute(select(schema.meta.c.value).where(schema.meta.c.key == ROLLED)).scalar() or 0)
    day = day_of(zone, start, 0 if day_of(zone, start) == start else 1)
    last_day = day_of(zone, min(end, rolled))
    if day >= last_day:
        return [("h", start, end)]
    month = month_of(zone, day, 0 if month_of(zone, day) == day else 1)
    last_month = month_of(zone, last_day)
    days = [("d", day, month), ("m", month, last_month), ("d", last_month, last_day)] if month < last_month else [
        ("d", day, last_day)]
    return [piece for piece in (("h", start, day), *days, ("h", last_day, end)) if piece[1] < piece[2]]


def usage(connection: Connection, filters: Mapping[str, Any]) -> Found:
    facts, keys = schema.job_usage.c, schema.usage_key
    group = [facts.key_id, facts.tres_id, *([facts.time_s] if filters.get("by_time") else [])]
    sums: dict[tuple[int, ...], int] = {}
    for span, start, end in _pieces(connection, filters["start_s"], filters["end_s"]):
        query = select(func.sum(facts.seconds), *group).where(
            facts.span == span, facts.time_s >= start, facts.time_s < end)
        for seconds, *place in connection.execute(query.group_by(*group)):
            sums[tuple(place)] = sums.get(tuple(place), 0) + int(seconds)
    wanted = {place[0] for place in sums}
    whose = {row.id: dict(zip(("assoc_id", "qos", "partition", "wckey"), row[1:]))
             for row in connection.execute(select(keys)) if row.id in wanted}
    return [{**whose[place[0]], "tres_id": place[1], "seconds": seconds,
             **({"time_s": place[2]} if filters.get("by_time") else {})} for place, seconds in sums.items()]


def cluster_usage(connection: Connection, filters: Mapping[str, Any]) -> Found:
    table = schema.cluster_usage.c
    sums = [func.sum(table[name]) for name in TIMES]
    query = select(table.tres_id, func.sum(table["count"]), func.count(), *sums).where(
        table.span == _span(filters), table.time_s >= filters["start_s"], table.time_s < filters["end_s"])
    return [{"tres_id": row[0], "count": int(row[1]) // row[2], "count_sum": int(row[1]),
             **{name: int(value) for name, value in zip(TIMES, row[3:])}}
            for row in connection.execute(query.group_by(table.tres_id).order_by(table.tres_id))]


def reservations(connection: Connection, filters: Mapping[str, Any]) -> Found:
    table = schema.reservation.c
    query = select(schema.reservation).order_by(table.start_s, table.name)
    if filters.get("start_s") is not None:
        query = query.where(table.end_s >= filters["start_s"])
    if filters.get("end_s") is not None:
        query = query.where(table.start_s < filters["end_s"])
    if filters.get("names") is not None:
        query = query.where(func.lower(table.name).in_([clean(name).lower() for name in filters["names"]]))
    if filters.get("ids") is not None:
        query = query.where(table.id.in_(list(filters["ids"])))
    return [{"id": row.id, "start_s": row.start_s, "end_s": row.end_s, "name": row.name, **json.loads(row.data)}
            for row in connection.execute(query)]
