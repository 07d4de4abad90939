"""``slurmbridge report usage``: who used how much, for loading elsewhere. The query; table_writers.py writes it.

Amounts are TRES seconds from the roll-ups, as sreport has them: of memory megabyte seconds, of energy joules. Each is
counted in one row, so that a column adds up to the whole.
"""
from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from slurmbridge.commands.sreport_usage import own_usage
from slurmbridge.commands.sreport_words import full_hours
from slurmbridge.slurm import durations
from slurmbridge.slurm.zones import Zone
from slurmbridge.views.session import Session

BY = ("account", "user", "qos", "partition", "month")


class ReportError(ValueError):
    """What was asked cannot be reported. ``str()`` is one line."""


@dataclass(frozen=True, slots=True)
class Question:
    """``tres``: names; start and end in epoch seconds, full hours."""

    by: str
    start_s: int
    end_s: int
    tres: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """Columns of equal length: texts, or whole numbers."""

    names: tuple[str, ...]
    rows: list[tuple[str | int, ...]]


def question(by: str, start: str, end: str, tres: str, session: Session, zone: Zone) -> Question:
    """Raises ReportError. Without a time: as sreport, yesterday. ``tres``: comma separated, or ``all``."""
    if by not in BY:
        raise ReportError(f"--by {by}: one of {', '.join(BY)}")
    now = int(session.now())
    try:
        times = [durations.parse_time(text, now, zone, past=True) for text in (start, end)]
    except durations.TimeSpecError as error:
        raise ReportError(str(error)) from None
    window = full_hours(zone, now, times[0], min(times[1], now))
    known = session.views.accounting.tres
    names = tuple(sorted(known, key=lambda name: known[name])) if tres.lower() == "all" else tuple(
        dict.fromkeys(name for name in tres.split(",") if name))
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise ReportError(f"no TRES known by type {', '.join(unknown)}" if unknown else "no TRES given")
    return Question(by, *window, names)


async def answer(session: Session, asked: Question) -> Table:
    """One row for each of what ``by`` says and each TRES that was used, sorted."""
    data = session.views.accounting
    found = await session.views.ledger_query(
        "usage", start_s=asked.start_s, end_s=asked.end_s, by_time=asked.by == "month")
    mine = own_usage(session)
    names = {data.tres[name]: name for name in asked.tres}
    sums: dict[tuple[str, int], int] = {}
    zone = Zone.of(os.environ)                 # of the roll-ups
    for row in found:
        if row["tres_id"] not in names or (mine is not None and not mine(row["assoc_id"])):
            continue
        record = data.associations.get(row["assoc_id"])
        if asked.by == "month":
            whose = zone.strftime("%Y-%m", row["time_s"])
        elif asked.by in ("account", "user"):
            whose = str(getattr(record, asked.by, ""))
        else:
            whose = row[asked.by] or ""
        place = (whose, row["tres_id"])
        sums[place] = sums.get(place, 0) + row["seconds"]
    cluster = session.views.conf.cluster_name
    return Table(("cluster", asked.by, "tres", "tres_seconds"), [
        (cluster, whose, names[tres], seconds) for (whose, tres), seconds in sorted(sums.items())])


def window_text(asked: Question, zone: Zone) -> str:
    """``2026-08-01T00:00:00 - 2026-08-31T23:59:59``."""
    def text(time_s: int) -> str:
        return zone.strftime("%Y-%m-%dT%H:%M:%S", time_s)
    return f"{text(asked.start_s)} - {text(asked.end_s - 1)}"


def total(table: Table, tres: str) -> int:
    """TRES seconds of all rows."""
    at: Sequence[str] = table.names
    return sum(int(row[at.index("tres_seconds")]) for row in table.rows if row[at.index("tres")] == tres)
