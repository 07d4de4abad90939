"""Which nodes, or cores of nodes, a new reservation gets when it names none: chosen as a job's would be."""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurmbridge.scheduling.columns import ClusterColumns
from slurmbridge.scheduling.demand import Question, ask, resolve
from slurmbridge.scheduling.facts import BoolArray, NodeShare, Partition
from slurmbridge.scheduling.reservations import with_busy
from slurmbridge.scheduling.select import can_now, could_ever
from slurmbridge.scheduling.shape import GresRequest, Shape
from slurmbridge.scheduling.snapshot import Devices, SchedulerSettings
from slurmbridge.scheduling.use import release


@dataclass(frozen=True, slots=True)
class Wanted:
    """``node_count`` 0: as many as may be; neither ``core_count`` nor ``gres``: whole nodes; ``features``: as
    --constraint; ``cores_per_node``: cores of each node at least (TRESPerNode)."""

    node_count: int
    core_count: int
    start_s: int
    features: str = ""
    ignore_jobs: bool = False
    gres: tuple[GresRequest, ...] = ()
    cores_per_node: int = 0

    @property
    def parts(self) -> bool:
        return bool(self.core_count or self.gres)


def choose_nodes(columns: ClusterColumns, settings: SchedulerSettings, partition: Partition, nodes: BoolArray,
                 wanted: Wanted, reserved: tuple[tuple[str, tuple[int, ...]], ...] = (),
                 devices: tuple[Devices, ...] = ()) -> tuple[NodeShare, ...] | None:
    """Shares of the chosen nodes (``cores`` empty: the whole node); None: not enough of ``nodes``.

    ``reserved``, ``devices``: what other reservations have at that time.
    """
    shape = _shape(wanted)
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
    if reserved or devices:
        use = with_busy(columns, use, reserved, devices)
    found = can_now(question, nodes, use, with_shares=True)
    return None if found is None else found.shares


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
    cores = wanted.core_count or count or 1
    return Shape(min_nodes=count or 1, max_nodes=count, num_tasks=cores, min_cpus=cores,
                 tasks_given=bool(wanted.core_count), ntasks_per_core=1, threads_per_core=1, gres=wanted.gres,
                 ntasks_per_node=wanted.cores_per_node, min_cpus_per_node=wanted.cores_per_node or 1,
                 constraint=wanted.features or None)
