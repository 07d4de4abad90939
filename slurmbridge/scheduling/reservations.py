"""What advance reservations take from a job: nodes closed to it, or the nodes it is confined to.

The semantics of slurmctld's test of a job against all reservations: a job that names one gets its nodes while it lasts,
every other job loses those that are reserved at any time of its run.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from slurmbridge.scheduling.columns import ClusterColumns
from slurmbridge.scheduling.demand import Demand
from slurmbridge.scheduling.facts import FOREVER_S, BoolArray
from slurmbridge.scheduling.shape import Shape
from slurmbridge.scheduling.snapshot import Devices, Reservation
from slurmbridge.scheduling.use import Use

MOST_MOVES = 10
"""So many reservations that close everything are waited for, one after another."""


@dataclass(frozen=True, slots=True)
class ReservationView:
    """For one job at one time: ``only``: nodes it must stay in (its own reservation); ``closed``: nodes of others'
    reservations; ``usable`` False: its reservation is not active or gone; ``overlap``: someone's reservation touches
    the job's time; ``maint``: what is closed is closed whatever the job asks for; ``busy``, ``devices``: cores and
    devices of some nodes that are not for the job; ``open_s``: until then every node is closed (0: not every node);
    ``own``: its reservation; ``licenses``: so many of each are not for the job."""

    only: BoolArray | None = None
    closed: BoolArray | None = None
    usable: bool = True
    overlap: bool = False
    maint: bool = False
    busy: tuple[tuple[str, tuple[int, ...]], ...] = ()
    devices: tuple[Devices, ...] = ()
    open_s: int = 0
    own: Reservation | None = None
    licenses: tuple[tuple[str, int], ...] = ()            # kept for other reservations


OPEN = ReservationView()


def nodes_of(columns: ClusterColumns, reservation: Reservation) -> BoolArray:
    mask = np.zeros(len(columns), dtype=np.bool_)
    mask[[columns.index[n] for n in reservation.nodes if n in columns.index]] = True
    return mask


def named(reservations: tuple[Reservation, ...], text: str | None) -> list[Reservation]:
    """Those of ``--reservation=a,b`` in the order in which they are tried."""
    names = (text or "").split(",")
    return sorted((one for one in reservations if one.name in names), key=lambda one: one.id)


def views(columns: ClusterColumns, reservations: tuple[Reservation, ...], demand: Demand, partition: str,
          start_s: int, limit_s: int) -> Iterator[ReservationView]:
    """One view for each reservation that the job may use; one for a job that names none."""
    own = demand.shape.reservation
    if not own:
        yield view(columns, reservations, demand, partition, start_s, limit_s)
        return
    found = named(reservations, own)
    for mine in found:
        yield _inside(columns, reservations, mine, start_s, limit_s)
    if not found:
        yield ReservationView(usable=False)


def view(columns: ClusterColumns, reservations: tuple[Reservation, ...], demand: Demand, partition: str, start_s: int,
         limit_s: int) -> ReservationView:
    """A job that would run from ``start_s`` for ``limit_s``; the first of its reservations where it names several."""
    own = demand.shape.reservation
    if own:
        mine = next(iter(named(reservations, own)), None)
        return ReservationView(usable=False) if mine is None else _inside(columns, reservations, mine, start_s, limit_s)
    if not reservations:
        return OPEN
    return _outside(columns, reservations, demand, partition, start_s, limit_s)


def first_view(columns: ClusterColumns, reservations: tuple[Reservation, ...], demand: Demand, partition: str,
               start_s: int, limit_s: int) -> tuple[ReservationView | None, int]:
    """The view at the first moment from ``start_s`` on at which reservations leave the job anything, and that moment.
    None: they never do, or its own one is not active (no pass plans for it before)."""
    for _ in range(MOST_MOVES + 1):
        found = view(columns, reservations, demand, partition, start_s, limit_s)
        if not found.usable:
            return None, start_s
        if not found.open_s:
            return found, start_s
        start_s = found.open_s
    return None, start_s


def one_each(shape: Shape, reservations: tuple[Reservation, ...]) -> list[Shape]:
    """The shape once for each of the reservations that it names."""
    if not shape.reservation or "," not in shape.reservation:
        return [shape]
    return [replace(shape, reservation=one.name) for one in named(reservations, shape.reservation)] or [shape]


def _inside(columns: ClusterColumns, reservations: tuple[Reservation, ...], mine: Reservation, start_s: int,
            limit_s: int) -> ReservationView:
    end_s = min(start_s + limit_s, FOREVER_S)
    if mine.flex:
        only: BoolArray | None = None
    else:
        if not mine.start_s <= start_s <= mine.end_s or not (mine.nodes or mine.any_nodes):
            return ReservationView(usable=False, own=mine)
        only = None if mine.any_nodes else nodes_of(columns, mine)
    closed: BoolArray | None = None
    busy: list[tuple[str, tuple[int, ...]]] = []
    devices: list[Devices] = []
    for other in reservations:
        if other is mine or other.end_s <= start_s or other.start_s >= end_s or not other.nodes:
            continue
        if mine.maint or (mine.overlap and not other.maint):
            continue
        if other.cores:
            if mine.flex:
                busy += other.cores
                devices += other.devices
            continue
        nodes = nodes_of(columns, other)
        if only is not None and not (only & nodes).any():
            continue
        closed = nodes if closed is None else closed | nodes
    if mine.cores and not mine.flex:
        kept = dict(mine.cores)
        busy = [(name, tuple(core for core in range(int(columns.cores[columns.index[name]]))
                             if core not in kept.get(name, ()))) for name in sorted(mine.nodes)]
        devices += _other_devices(columns, mine)
    return ReservationView(only, closed, True, closed is not None, False, tuple(busy), tuple(devices), own=mine,
                           licenses=_kept_licenses(columns, reservations, mine, start_s, end_s))


def _outside(columns: ClusterColumns, reservations: tuple[Reservation, ...], demand: Demand, partition: str,
             start_s: int, limit_s: int) -> ReservationView:
    end_s = min(start_s + limit_s, FOREVER_S)
    members = columns.partition_nodes[partition]
    closed: BoolArray | None = None
    busy: list[tuple[str, tuple[int, ...]]] = []
    devices: list[Devices] = []
    overlap = False
    everything = np.ones(len(columns), dtype=np.bool_)
    for one in reservations:
        if one.start_s >= end_s or one.end_s <= start_s or not one.nodes:
            continue
        warned_s = demand.shape.reservation_signal_s
        if one.max_start_delay_s and 0 < warned_s <= one.max_start_delay_s:
            continue                          # the job leaves when the reservation needs its nodes (--signal=R)
        nodes = nodes_of(columns, one)
        if one.all_nodes or one.part_nodes == partition or (one.maint and not (members & ~nodes).any()):
            return ReservationView(closed=everything, overlap=overlap, maint=True, open_s=one.end_s)
        if demand.required is not None and (demand.required & nodes).any() and (not one.cores or demand.whole):
            return ReservationView(closed=everything, overlap=overlap, open_s=one.end_s)
        if not one.cores or demand.whole:
            closed = nodes if closed is None else closed | nodes
        else:
            busy += one.cores
            devices += one.devices
        overlap = overlap or bool((members & nodes).any())
    return ReservationView(None, closed, True, overlap, False, tuple(busy), tuple(devices),
                           licenses=_kept_licenses(columns, reservations, None, start_s, end_s))


def _other_devices(columns: ClusterColumns, mine: Reservation) -> list[Devices]:
    """On the reservation's nodes, devices of the names that it reserves which are not its own."""
    found: list[Devices] = []
    for reserved in {name for _, name, _, _ in mine.devices}:
        own = {(node, device) for node, name, _, devices in mine.devices if name == reserved for device in devices}
        for number, kind in enumerate(columns.gres_kinds):
            if kind.name != reserved:
                continue
            for node in sorted(mine.nodes):
                i = columns.index[node]
                base = int(columns.gres_base[number][i])
                others = range(base, base + int(columns.gres_total[number][i]))
                found.append((node, reserved, kind.type, tuple(x for x in others if (node, x) not in own)))
    return found


def _kept_licenses(columns: ClusterColumns, reservations: tuple[Reservation, ...], mine: Reservation | None,
                   start_s: int, end_s: int) -> tuple[tuple[str, int], ...]:
    """Licenses of other reservations in that time, less those that jobs in them have already."""
    kept: Counter[str] = Counter()
    for one in reservations:
        if one is mine or not one.licenses or one.start_s >= end_s or one.end_s <= start_s:
            continue
        left = Counter(dict(one.licenses))
        for job in columns.running.values():
            if job.reservation == one.name:
                left.subtract(dict(job.licenses))
        kept.update({name: count for name, count in left.items() if count > 0})
    return tuple(sorted(kept.items()))


def with_busy(columns: ClusterColumns, use: Use, busy: Sequence[tuple[str, tuple[int, ...]]],
              devices: Sequence[Devices] = ()) -> Use:
    """A copy of ``use`` in which these cores and devices are taken as well."""
    use = use.copy()
    for name, cores in busy:
        i = columns.index.get(name)
        for core in cores if i is not None else ():
            if not use.core_busy[i, core]:
                use.core_busy[i, core] = True
                use.socket_free[i, core // columns.cores_per_socket[i]] -= 1
    for name, gres, gres_type, numbers in devices:
        i = columns.index.get(name)
        if i is None:
            continue
        k = columns.kind(gres, gres_type)
        for number in numbers:
            at = number - int(columns.gres_base[k][i])
            if not use.gres_busy[k][i, at]:
                use.gres_busy[k][i, at] = True
                use.gres_free[k][i] -= 1
    return use


def next_change_s(reservations: tuple[Reservation, ...], after_s: int, resolution_s: int = 1) -> int:
    """Earliest end of a reservation from ``after_s`` on, rounded up (0: none)."""
    end_s = min((r.end_s for r in reservations if r.end_s >= after_s), default=0)
    return -(-end_s // resolution_s) * resolution_s
