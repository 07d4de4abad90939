"""The nodes of a reservation: those named, or those chosen where only a count is given; what they may not overlap."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from slurmbridge.controller.reservations import devices_of
from slurmbridge.controller.world import World
from slurmbridge.scheduling.facts import BoolArray, NodeShare
from slurmbridge.scheduling.features import FeatureError
from slurmbridge.scheduling.reserve import Wanted, choose_nodes
from slurmbridge.scheduling.shape import GresRequest
from slurmbridge.slurm import errors
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.slurm.hostlist import HostlistError, expand
from slurmbridge.views.records import PartitionRecord, ReservationRecord


class ReservationNodes:
    """``records``: all reservations by name."""

    def __init__(self, world: World, records: Mapping[str, ReservationRecord]) -> None:
        self._world = world
        self._records = records

    def named(self, text: str, flags: set[str], partition: PartitionRecord) -> BoolArray:
        columns = self._world.columns
        if text.lower() == "all":
            if "PART_NODES" in flags:
                return columns.partition_nodes[partition.name].copy()
            flags.add("ALL_NODES")
            return np.ones(len(columns), dtype=np.bool_)
        flags.discard("PART_NODES")
        try:
            names = expand(text)
        except HostlistError:
            raise SlurmError(errors.ESLURM_INVALID_NODE_NAME) from None
        if not names or any(name not in columns.index for name in names):
            raise SlurmError(errors.ESLURM_INVALID_NODE_NAME)
        mask = np.zeros(len(columns), dtype=np.bool_)
        mask[[columns.index[name] for name in names]] = True
        return mask

    def choose(self, record: ReservationRecord, flags: set[str], nodes: int, cores: int, partition: str,
                mask: BoolArray, gres: tuple[GresRequest, ...] = (), *, per_node: bool = False) -> None:
        """Nodes that no other reservation has, else of those that let others overlap, else (MAINT, OVERLAP) any.

        Raises SlurmError.
        """
        columns = self._world.columns
        if cores and nodes > cores:
            raise SlurmError(errors.ESLURM_INVALID_CORE_CNT)
        free, apart, reserved, devices = mask.copy(), mask.copy(), [], []
        for other in self._others(record):
            if not _meet(record, flags, other, self._world.now()):
                continue
            if other.cores:
                reserved += list(other.cores.items())
                devices += devices_of(other)
                continue
            at = [columns.index[name] for name in other.nodes if name in columns.index]
            free[at] = False
            if "OVERLAP" not in other.flags:
                apart[at] = False
        tries = [free, apart, mask] if flags & {"MAINT", "OVERLAP"} else [free, apart]
        wanted = Wanted(nodes, cores, record.start_s, record.features, "IGNORE_JOBS" in flags, gres, per_node)
        for usable in tries:
            try:
                shares = choose_nodes(columns, self._world.settings, columns.partitions[partition], usable, wanted,
                                      tuple(reserved), tuple(devices))
            except FeatureError:
                raise SlurmError(errors.ESLURM_INVALID_FEATURE) from None
            if shares is not None:
                self.take(record, shares)
                record.gres_types = tuple(f"{one.name}:{one.type}" for one in gres if one.type)
                return
        raise SlurmError(errors.ESLURM_NODES_BUSY)

    def take(self, record: ReservationRecord, shares: tuple[NodeShare, ...]) -> None:
        columns = self._world.columns
        record.nodes = tuple(share.node for share in shares)
        record.cores = {share.node: tuple(share.cores) for share in shares if share.cores}
        record.gres = {share.node: {f"{name}:{kind}" if kind else name: tuple(devices)
                                    for name, kind, devices in share.gres} for share in shares if share.gres}
        record.cpu_count = sum(share.cpus for share in shares)
        record.core_count = sum(len(share.cores) or int(columns.cores[columns.index[share.node]]) for share in shares)

    def _others(self, record: ReservationRecord) -> list[ReservationRecord]:
        return [one for one in self._records.values() if one.name != record.name and one.nodes]

    def overlaps(self, record: ReservationRecord, flags: set[str], mask: BoolArray) -> bool:
        if flags & {"MAINT", "OVERLAP"}:
            return False
        columns = self._world.columns
        names = {columns.names[i] for i in np.flatnonzero(mask)}
        return any(not set(other.flags) & {"MAINT", "OVERLAP"} and not other.cores and names.intersection(other.nodes)
                   and _meet(record, flags, other, self._world.now()) for other in self._others(record))

    def jobs_on(self, record: ReservationRecord, mask: BoolArray, name: str = "") -> bool:
        columns = self._world.columns
        return any(job.end_s > record.start_s and (not name or job.reservation != name)
                   and any(mask[columns.index[share.node]] for share in job.shares)
                   for job in columns.running.values())

    def renew(self, record: ReservationRecord) -> bool:
        """Nodes of a reservation of so many nodes that are down or drained, with REPLACE also those with jobs, give way
        to others as far as there are any. True: it has others now."""
        flags, columns = set(record.flags), self._world.columns
        if record.cores or not record.nodes or flags & {"SPEC_NODES", "STATIC", "MAINT", "ANY_NODES"}:
            return False
        kept = [name for name in record.nodes if name in columns.index and columns.available[columns.index[name]]
                and not ("REPLACE" in flags and columns.use.jobs[columns.index[name]])]
        wanted = len(record.nodes) - len(kept)
        mask = columns.partition_nodes[record.partition] & columns.available
        mask[[columns.index[name] for name in record.nodes if name in columns.index]] = False
        while wanted:
            more = replace(record, start_s=max(record.start_s, int(self._world.now())))
            try:
                self.choose(more, flags, wanted, 0, record.partition, mask)
            except SlurmError:
                wanted //= 2
                continue
            rest = [name for name in record.nodes if name not in kept][:len(record.nodes) - len(kept) - wanted]
            self.take(record, tuple(NodeShare(name, int(columns.cpus[columns.index[name]]), 0, ())
                                    for name in sorted([*kept, *rest, *more.nodes], key=columns.index.__getitem__)))
            return True
        return False

    def resize(self, record: ReservationRecord, flags: set[str], count: int, partition: PartitionRecord) -> None:
        """Idle nodes go first; new ones are chosen beside those kept."""
        columns = self._world.columns
        if count < len(record.nodes):
            busy = {share.node for job in columns.running.values() for share in job.shares
                    if job.reservation == record.name}
            kept = sorted(record.nodes, key=lambda name: (name not in busy, columns.index[name]))[:count]
        else:
            mask = columns.partition_nodes[partition.name] & columns.available
            mask[[columns.index[name] for name in record.nodes if name in columns.index]] = False
            more = replace(record)
            self.choose(more, flags, count - len(record.nodes), 0, partition.name, mask)
            kept = [*record.nodes, *more.nodes]
        self.take(record, tuple(NodeShare(name, int(columns.cpus[columns.index[name]]), 0, ())
                                 for name in sorted(kept, key=columns.index.__getitem__)))


def _meet(record: ReservationRecord, flags: set[str], other: ReservationRecord, now_s: float) -> bool:
    """Whether the two are at the same time, now or at a later time of one that repeats."""
    mine, theirs = _span(record, flags, now_s), _span(other, set(other.flags), now_s)
    if mine[0] < theirs[1] and theirs[0] < mine[1]:
        return True
    for (start, end, period), (other_start, other_end, other_period) in ((mine, theirs), (theirs, mine)):
        if not period or start > other_start:
            continue
        shift = (other_start - start) // period * period
        if start + shift < other_end and other_start < end + shift:
            return True
        if start + shift + period < other_end:
            return True
        if other_period and (other_start + other_period < end + shift + period):
            return True
    return False


def _span(record: ReservationRecord, flags: set[str], now_s: float) -> tuple[int, int, int]:
    """(start, end, seconds until it comes again or 0)"""
    start, end = record.start_s, record.end_s
    if "TIME_FLOAT" in flags and start < 1 << 28:          # kept as seconds from now
        start += int(now_s)
        end = start + record.duration_s if record.duration_s else end
    periods = {"HOURLY": 3600, "DAILY": 86400, "WEEKDAY": 86400, "WEEKEND": 86400, "WEEKLY": 7 * 86400}
    return start, end, next((periods[flag] for flag in flags if flag in periods), 0)
