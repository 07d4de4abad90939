"""Which nodes, or cores of nodes, a new reservation gets when it names none: chosen as a job's would be."""
from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from slurmbridge.scheduling.columns import ClusterColumns
from slurmbridge.scheduling.demand import Question, ask, resolve
from slurmbridge.scheduling.facts import BoolArray, NodeShare, Partition
from slurmbridge.scheduling.reservations import with_busy
from slurmbridge.scheduling.select import can_now, could_ever
from slurmbridge.scheduling.shape import GresRequest, Shape
from slurmbridge.scheduling.snapshot import Devices, SchedulerSettings
from slurmbridge.scheduling.use import Use, release


@dataclass(frozen=True, slots=True)
class Wanted:
    """``node_count`` 0: as many as may be; neither ``core_count`` nor ``gres``: whole nodes; ``features``: as
    --constraint; ``per_node``: the counts are each node's (TRESPerNode)."""

    node_count: int
    core_count: int
    start_s: int
    features: str = ""
    ignore_jobs: bool = False
    gres: tuple[GresRequest, ...] = ()
    per_node: bool = False

    @property
    def parts(self) -> bool:
        return bool(self.core_count or self.gres)

    def cores_with_devices(self, sockets: int) -> int:
        """Cores of each node that come with its devices (0: all of them), as observed in 25.11: a count of cores for
        the whole reservation is each node's, and TRESPerNode brings at least one of each socket."""
        if not self.per_node:
            return self.core_count
        return max(self.core_count // max(self.node_count, 1), sockets)


def choose_nodes(columns: ClusterColumns, settings: SchedulerSettings, partition: Partition, nodes: BoolArray,
                 wanted: Wanted, reserved: tuple[tuple[str, tuple[int, ...]], ...] = (),
                 devices: tuple[Devices, ...] = ()) -> tuple[NodeShare, ...] | None:
    """Shares of the chosen nodes (``cores`` empty: the whole node); None: not enough of ``nodes``.

    ``reserved``, ``devices``: what other reservations have at that time.
    """
    shape = _shape(wanted)
    if wanted.gres and wanted.per_node and not wanted.node_count:
        for count in range(int(nodes.sum()), 0, -1):     # of as many nodes as have them
            shares = choose_nodes(columns, settings, partition, nodes, replace(wanted, node_count=count), reserved,
                                  devices)
            if shares is not None:
                return shares
        return None
    demand = resolve(columns, shape)
    nodes = nodes & demand.allowed & demand.feature_nodes(columns, demand.features)[0]
    most = wanted.node_count or int(nodes.sum())
    question = ask(columns, demand, partition, settings, (wanted.node_count or 1, most, most))
    if not wanted.parts:
        return _whole(columns, question, nodes, wanted)
    use = columns.use.copy()
    for job in columns.running.values():
        if job.end_s < wanted.start_s or wanted.ignore_jobs:
            release(columns, use, job)
    if wanted.gres and not wanted.core_count:
        reserved = ()                         # the cores that come with devices may be others' too
    if reserved or devices:
        use = with_busy(columns, use, reserved, devices)
    found = can_now(question, nodes, use, with_shares=True)
    if found is None or not wanted.gres:
        return None if found is None else found.shares
    whole = [_with_cores(columns, use, share, wanted) for share in found.shares]
    return None if None in whole else tuple(share for share in whole if share is not None)


def _with_cores(columns: ClusterColumns, use: Use, share: NodeShare, wanted: Wanted) -> NodeShare | None:
    """The share with the cores that go with its devices, evenly of all sockets; None: there are too few."""
    i = columns.index[share.node]
    sockets, per_socket = int(columns.sockets[i]), int(columns.cores_per_socket[i])
    free = [[core for core in range(socket * per_socket, (socket + 1) * per_socket) if not use.core_busy[i, core]]
            for socket in range(sockets)]
    count = wanted.cores_with_devices(sockets)
    chosen: list[int] = []
    for at, cores in enumerate(free):
        left = sockets - at
        most = len(cores) if not count else max((count - len(chosen)) // left, count - len(chosen) - sum(
            len(one) for one in free[at + 1:]))
        chosen += cores[:most]
    if not chosen or len(chosen) < count:
        return None
    return replace(share, cores=tuple(chosen), cpus=len(chosen) * int(columns.threads[i]))


def _whole(columns: ClusterColumns, question: Question, nodes: BoolArray,
           wanted: Wanted) -> tuple[NodeShare, ...] | None:
    free = nodes.copy()
    if wanted.ignore_jobs:
        at = np.flatnonzero(free)[:wanted.node_count]
        return tuple(NodeShare(columns.names[i], int(columns.cpus[i]), 0, ()) for i in at) if (
            len(at) == wanted.node_count) else None
    for job in columns.running.values():
        if job.end_s >= wanted.start_s:
            free[[columns.index[share.node] for share in job.shares]] = False
    found = could_ever(question, free, columns.use)
    if found is None:
        return None
    return tuple(NodeShare(columns.names[i], int(columns.cpus[i]), 0, ()) for i in np.flatnonzero(found.nodes))


def _shape(wanted: Wanted) -> Shape:
    count = wanted.node_count
    if not wanted.parts:
        return Shape(min_nodes=count, max_nodes=count, num_tasks=count, min_cpus=count, whole_node="exclusive",
                     constraint=wanted.features or None)
    if wanted.gres:
        return Shape(min_nodes=count or 1, max_nodes=count, num_tasks=count or 1, min_cpus=count or 1,
                     ntasks_per_core=1, threads_per_core=1, gres=wanted.gres, constraint=wanted.features or None)
    return Shape(min_nodes=count or 1, max_nodes=count, num_tasks=wanted.core_count, min_cpus=wanted.core_count,
                 tasks_given=True, ntasks_per_core=1, threads_per_core=1, constraint=wanted.features or None)
