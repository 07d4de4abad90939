"""What advance reservations take from a job: nodes closed to it, or the nodes it is confined to."""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurmbridge.scheduling.columns import FOREVER_S, BoolArray, ClusterColumns
from slurmbridge.scheduling.snapshot import Reservation


@dataclass(frozen=True, slots=True)
class ReservationView:
    """For one job at one time: ``only``: nodes it must stay in (its own reservation); ``closed``: nodes of others'
    reservations; ``usable`` False: its reservation is not active or gone; ``overlap``: someone's reservation touches
    the job's time; ``maint``: maintenance closes nodes."""

    only: BoolArray | None = None
    closed: BoolArray | None = None
    usable: bool = True
    overlap: bool = False
    maint: bool = False


OPEN = ReservationView()


def nodes_of(columns: ClusterColumns, reservation: Reservation) -> BoolArray:
    mask = np.zeros(len(columns), dtype=np.bool_)
    mask[[columns.index[n] for n in reservation.nodes if n in columns.index]] = True
    return mask


def view(columns: ClusterColumns, reservations: tuple[Reservation, ...], own: str | None, start_s: int,
         limit_s: int) -> ReservationView:
    """A job of reservation ``own`` (None: none) that would run from ``start_s`` for ``limit_s``."""
    if not reservations and own is None:
        return OPEN
    end_s = min(start_s + limit_s, FOREVER_S)
    only: BoolArray | None = None
    mine = None
    if own is not None:
        mine = next((r for r in reservations if r.name in own.split(",")), None)
        if mine is None or not mine.start_s <= start_s < mine.end_s:
            return ReservationView(usable=False)
        only = None if mine.flex else nodes_of(columns, mine)
    closed: BoolArray | None = None
    maint = False
    for reservation in reservations:
        if reservation is mine or reservation.end_s <= start_s or reservation.start_s >= end_s:
            continue
        if mine is not None and not reservation.maint and (mine.overlap or mine.maint):
            continue
        nodes = nodes_of(columns, reservation)
        closed = nodes if closed is None else closed | nodes
        maint |= reservation.maint
    return ReservationView(only, closed, True, closed is not None, maint)


def next_change_s(reservations: tuple[Reservation, ...], after_s: int) -> int:
    """Earliest end of a reservation after ``after_s`` (0: none)."""
    return min((r.end_s for r in reservations if r.end_s > after_s), default=0)
