"""One hour's usage, worked out from what ran, what was down and what was reserved in it. Pure.

Slurm's own rules, with their odd corners, since every report is held against Slurm's (slurmdbd(8), sreport(1)):
associations are charged what their jobs had, suspension takes away CPU seconds only, energy counts whole in each hour;
a reservation is allocated (MAINT: planned down) for its whole length and its unused time is divided among those who
might have used it; of the cluster's time planned gives way first, then down, then planned down.
Times are epoch seconds, 0 = not yet. TRES are known by their ids.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

CPU, ENERGY, NODE = 1, 3, 4
HOUR_S = 3600
Counts = dict[int, int]
Key = tuple[int, str, str | None, str | None]
"""Association, QOS, partition, wckey. Partition None: unused time of a reservation; wckey None: not tracked."""


@dataclass(frozen=True, slots=True)
class Run:
    """One accounting row of a job."""

    db_index: int
    key: Key
    eligible_s: int
    start_s: int
    end_s: int
    req_cpus: int
    tasks_pending: int                        # tasks of an array that have no row of their own yet
    reservation_id: int
    tres: Counts
    suspended: Sequence[tuple[int, int]] = ()
    rank: int = 0                             # place of its association among all


@dataclass(frozen=True, slots=True)
class Outage:
    """A node that cannot be used; ``planned``: powered down, or of the future."""

    node: str
    start_s: int
    end_s: int
    tres: Counts
    planned: bool = False


@dataclass(frozen=True, slots=True)
class Size:
    """What the cluster consisted of; ``away``: the controller was not there."""

    start_s: int
    end_s: int
    tres: Counts
    away: bool = False


@dataclass(frozen=True, slots=True)
class Reservation:
    """One record of a reservation (a changed one has several). Negative associations are excluded ones."""

    id: int
    start_s: int
    end_s: int
    tres: Counts
    nodes: frozenset[str] = frozenset()
    associations: tuple[int, ...] = ()
    is_maintenance: bool = False
    ignores_jobs: bool = False


@dataclass(slots=True)
class ClusterTime:
    """TRES seconds of the cluster in one hour, for one TRES; ``count`` as it last was."""

    count: int = 0
    total: int = 0
    allocated: int = 0
    down: int = 0
    planned_down: int = 0
    planned: int = 0
    idle: int = 0
    over: int = 0


@dataclass(slots=True)
class HourUsage:
    usage: dict[Key, Counts] = field(default_factory=dict)
    cluster: dict[int, ClusterTime] = field(default_factory=dict)


@dataclass(slots=True)
class _Cluster:
    start_s: int
    end_s: int
    tres: dict[int, ClusterTime] = field(default_factory=dict)

    def add(self, tres: int, kind: str, seconds: int, count: int = 0) -> None:
        """``count``: of the TRES, where the cluster itself is not known to have any."""
        if seconds:
            time = self.tres.get(tres)
            if time is None:
                time = self.tres[tres] = ClusterTime()
            time.count = time.count or count
            setattr(time, kind, getattr(time, kind) + seconds)


@dataclass(slots=True)
class _Held:
    """A reservation within the hour: seconds of each TRES, and what of them jobs used."""

    record: Reservation
    start_s: int
    end_s: int
    total: Counts
    used: Counts = field(default_factory=dict)


class _Hour:
    def __init__(self, start_s: int, sizes: Iterable[Size], reservations: Iterable[Reservation]) -> None:
        self.start_s, self.end_s = start_s, start_s + HOUR_S
        self.cluster: _Cluster | None = None
        self.away: list[_Cluster] = []
        self.held: list[_Held] = []
        self.usage: dict[Key, Counts] = {}
        for size in sizes:
            self._add_size(size)
        for record in reservations:
            start, end = self._cut(record.start_s, record.end_s)
            if end > start:
                total = {tres: count * (end - start) for tres, count in record.tres.items() if tres != NODE}
                self.held.append(_Held(record, start, end, total))

    def _cut(self, start_s: int, end_s: int) -> tuple[int, int]:
        return max(start_s, self.start_s), min(end_s or self.end_s, self.end_s)

    def _add_size(self, size: Size) -> None:
        start, end = self._cut(size.start_s, size.end_s)
        if end <= start:
            return
        if size.away:
            here = _Cluster(start, end)
            self.away.append(here)
        elif self.cluster is None:
            here = self.cluster = _Cluster(start, end)
        else:
            here = self.cluster
        here.end_s = end
        for tres, count in size.tres.items():
            if tres != NODE:
                time = here.tres.setdefault(tres, ClusterTime())
                time.count = count
                time.total += count * (end - start)

    # --- nodes that were down
    def add_outage(self, outage: Outage) -> None:
        cluster = self.cluster
        start, end = self._cut(outage.start_s, outage.end_s)
        if cluster is None or end <= start:
            return
        elsewhere = 0                          # of the last reservation with the node, even where it was over before
        for held in self.held:
            if outage.node not in held.record.nodes:
                continue
            elsewhere = min(end, held.end_s) - max(start, held.start_s)
            if elsewhere < 1:
                continue
            kind = "planned_down" if held.record.is_maintenance else "down"
            for tres, count in outage.tres.items():
                cluster.add(tres, kind, _seconds(tres, count, elsewhere), count)
                if tres in held.total and count:
                    held.total[tres] = max(held.total[tres] - elsewhere * count, 0)
        seconds = min(end, cluster.end_s) - max(start, cluster.start_s)
        if seconds < 1:
            return
        seconds -= elsewhere
        if seconds > 0:
            for tres, count in outage.tres.items():
                kind = "planned_down" if outage.planned else "down"
                cluster.add(tres, kind, _seconds(tres, count, seconds), count)
        self._present(start, end, {tres: time.count for tres, time in cluster.tres.items()})

    def _present(self, start_s: int, end_s: int, counts: Counts) -> None:
        """This time is accounted for, though the controller was away."""
        for away in self.away:
            seconds = min(end_s, away.end_s) - max(start_s, away.start_s)
            if seconds >= 1:
                for tres, count in counts.items():
                    if tres in away.tres:
                        time = away.tres[tres]
                        time.total = max(time.total - seconds * count, 0)

    def add_reservations(self) -> None:
        if self.cluster is not None:
            for held in self.held:
                if not held.record.ignores_jobs:
                    kind = "planned_down" if held.record.is_maintenance else "allocated"
                    for tres, seconds in held.total.items():
                        self.cluster.add(tres, kind, seconds)

    # --- jobs
    def add_run(self, run: Run, last: Key | None) -> Key | None:
        """``last``: whose usage the run before this one was. A run without a second in this hour has no usage of its
        own; the energy it brings goes there, as in Slurm."""
        start, end = run.start_s, run.end_s
        if start and start < self.start_s:
            start = self.start_s
        if not start:
            start = end
        if not end or end > self.end_s:
            end = self.end_s
        seconds = end - start if start and end > start else 0
        suspended = 0
        if seconds:
            last = run.key
            for from_s, to_s in run.suspended:
                if from_s < self.end_s and (not to_s or to_s >= self.start_s):
                    suspended += max(min(to_s or end, end) - max(from_s, start), 0)
        added: Counts = {}
        for tres, count in run.tres.items():
            time = count if tres == ENERGY else count * (
                max(seconds - suspended, 0) if tres == CPU and suspended else seconds)
            if time:
                added[tres] = time
        if added and last is not None:
            usage = self.usage.get(last)
            if usage is None:
                self.usage[last] = added.copy()
            else:
                for tres, time in added.items():
                    usage[tres] = usage.get(tres, 0) + time
        if self.away and added:
            self._present(start, end, {tres: run.tres[tres] for tres in added})
        if run.reservation_id:
            self._add_reserved_run(run, start, end, added)
        elif self.cluster is not None:
            if start and seconds:
                times = self.cluster.tres
                for tres, time in added.items():
                    if tres in times:
                        times[tres].allocated += time
            self._plan(run, start, run.eligible_s)
        return last

    def _add_reserved_run(self, run: Run, start: int, end: int, added: Counts) -> None:
        for held in self.held:
            if held.record.id != run.reservation_id:
                continue
            open_to_all = self.cluster is not None and held.record.ignores_jobs
            if open_to_all:
                self._plan(run, min(start, held.end_s), max(run.eligible_s, held.start_s))
            seconds = min(end, held.end_s) - max(start, held.start_s)
            if seconds <= 0:
                continue
            if open_to_all and self.cluster is not None:
                for tres, count in run.tres.items():
                    self.cluster.add(tres, "allocated", _seconds(tres, count, seconds), count)
            for tres in added:
                if held.record.tres.get(tres):
                    held.used[tres] = held.used.get(tres, 0) + seconds * held.record.tres[tres]

    def _plan(self, run: Run, start: int, eligible: int) -> None:
        cluster = self.cluster
        if cluster is None or (start and start < cluster.start_s):
            return
        seconds = (min(start, cluster.end_s) if start else cluster.end_s) - max(eligible, cluster.start_s)
        if seconds > 0:
            cluster.add(CPU, "planned", seconds * (run.tasks_pending or 1) * run.req_cpus)

    # --- the end of the hour
    def share_unused(self, default_qos: Callable[[int], str]) -> None:
        for held in self.held:
            sharing = held.record.associations
            for tres, total in held.total.items():
                unused = total - held.used.get(tres, 0)
                if unused <= 0:
                    break
                share = unused // len(sharing) if sharing else unused
                for number in sharing:
                    if share and number > 0:
                        usage = self.usage.setdefault((number, default_qos(number), None, None), {})
                        usage[tres] = usage.get(tres, 0) + share

    def settled(self) -> dict[int, ClusterTime]:
        if self.cluster is None:
            return {}
        for away in self.away:
            for tres, time in away.tres.items():
                self.cluster.add(tres, "down", time.total)
        for time in self.cluster.tres.values():
            _settle(time)
        return self.cluster.tres


def roll_hour(start_s: int, runs: Iterable[Run], outages: Iterable[Outage], sizes: Iterable[Size],
              reservations: Iterable[Reservation], default_qos: Callable[[int], str]) -> HourUsage:
    """The usage of [start_s, start_s + 3600). What lies outside of the hour is left out.

    ``default_qos`` of an association, for what its members did not use of a reservation ("": none).
    """
    hour = _Hour(start_s, sorted(sizes, key=lambda size: size.start_s),
                 sorted(reservations, key=lambda record: record.start_s))
    for outage in sorted(outages, key=lambda outage: (outage.node, outage.start_s)):
        hour.add_outage(outage)
    hour.add_reservations()
    last: Key | None = None
    for run in sorted(runs, key=lambda run: (run.rank, run.key[0], run.eligible_s, run.db_index)):
        last = hour.add_run(run, last)
    hour.share_unused(default_qos)
    return HourUsage(hour.usage, hour.settled())


def _seconds(tres: int, count: int, seconds: int) -> int:
    return count if tres == ENERGY else count * seconds


def _settle(time: ClusterTime) -> None:
    """Cuts what exceeds the hour, and gives the rest to idle."""
    if time.total and time.total < time.allocated:
        time.allocated = time.total
    if time.total and time.total < time.allocated + time.down + time.planned_down:
        time.down = max(time.down + min(time.total - time.allocated - time.down, 0), 0)
        left = time.total - time.allocated - time.down - time.planned_down
        time.planned_down = max(time.planned_down + min(left, 0), 0)
    time.idle = time.total - time.allocated - time.down - time.planned_down - time.planned
    if time.idle < 0:
        time.planned = max(time.planned + time.idle, 0)
        time.over -= time.idle
        time.idle = 0
