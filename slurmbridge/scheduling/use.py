"""What of the cluster is in use: counts that decide whether a job fits, and which cores and devices are taken.

``charge`` and ``release`` are the only ways in which a job's shares come into it and leave it.
"""
from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from slurmbridge.scheduling.facts import NO_USER, BoolArray, IntArray, NodeShare, RunningJob, takes_request
from slurmbridge.scheduling.rows import Placed, Shared

if TYPE_CHECKING:
    from slurmbridge.scheduling.columns import ClusterColumns


@dataclass(slots=True)
class Counts:
    """How much is free or held, over nodes: enough to decide whether a job fits.

    ``socket_free``: (nodes, most sockets) free cores; ``gres_free``: per kind; ``jobs``: running jobs; ``whole``: given
    to one job; ``owner``: uid whose --exclusive=user jobs (``owner_jobs`` many) hold the node, or NO_USER; ``alone``: a
    job of an OverSubscribe=EXCLUSIVE partition runs there; ``limited``: cores taken per socket by jobs of partitions
    that have MaxCPUsPerNode or MaxCPUsPerSocket."""

    socket_free: IntArray
    mem_alloc_mb: IntArray
    gres_free: list[IntArray]
    jobs: IntArray
    whole: BoolArray
    owner: IntArray
    owner_jobs: IntArray
    alone: BoolArray
    limited: dict[str, IntArray]

    def counts(self) -> Counts:
        """An independent copy of the counts alone."""
        return Counts(self.socket_free.copy(), self.mem_alloc_mb.copy(), [g.copy() for g in self.gres_free],
                      self.jobs.copy(), self.whole.copy(), self.owner.copy(), self.owner_jobs.copy(), self.alone.copy(),
                      {name: used.copy() for name, used in self.limited.items()})


@dataclass(slots=True)
class Use(Counts):
    """Counts, and which cores and devices. ``core_busy``: (nodes, widest node's cores), padding is busy;
    ``gres_busy``: per kind (nodes, most devices on a node), padding is busy; ``shared``: None where no partition
    shares cores."""

    core_busy: BoolArray
    gres_busy: list[BoolArray]
    shared: Shared | None = None

    def copy(self) -> Use:
        c = self.counts()
        return Use(c.socket_free, c.mem_alloc_mb, c.gres_free, c.jobs, c.whole, c.owner, c.owner_jobs, c.alone,
                   c.limited, self.core_busy.copy(), [g.copy() for g in self.gres_busy],
                   None if self.shared is None else self.shared.copy())


def charge(columns: ClusterColumns, use: Use, job: RunningJob) -> None:
    """Takes the job's shares out of ``use``."""
    count_job(columns, use, job, 1)
    _mark(columns, use, job, True)
    if use.shared is not None:
        share_cores(columns, use, job, 1)


def release(columns: ClusterColumns, use: Use, job: RunningJob) -> None:
    """Gives the job's shares back to ``use``."""
    count_job(columns, use, job, -1)
    _mark(columns, use, job, False)
    if use.shared is not None:
        share_cores(columns, use, job, -1)


def share_cores(columns: ClusterColumns, use: Use, job: RunningJob, sign: int) -> None:
    """Puts the job into a row, or takes it out, and sets right what is counted by core: others may hold the same."""
    shared, partition = use.shared, columns.partitions.get(job.partition)
    assert shared is not None
    width = use.core_busy.shape[1]
    nodes = [columns.index[share.node] for share in job.shares]
    cells = np.sort(np.array([i * width + core for i, share in zip(nodes, job.shares) for core in share.cores],
                             dtype=np.int64))
    shared.users[cells] += sign
    use.core_busy.reshape(-1)[cells] = shared.users[cells] > 0
    if partition is not None and partition.over_subscribe != "EXCLUSIVE":
        shared.apart[nodes] += sign * (not takes_request(partition, oversubscribe=job.oversubscribe))
        shared.sharing[nodes] += sign * (job.oversubscribe or partition.over_subscribe == "FORCE")
    rows = shared.rows.get(job.partition)
    if rows is not None and len(cells):
        placed = Placed(job.job_id, sum(share.cpus for share in job.shares), cells)
        rows.add(placed) if sign > 0 else rows.remove(placed)
    use.socket_free[nodes] = columns.per_socket(~use.core_busy[nodes], nodes)
    if rows is not None and job.partition in use.limited:
        use.limited[job.partition][nodes] = columns.per_socket(rows.busy().reshape(use.core_busy.shape)[nodes], nodes)


def _mark(columns: ClusterColumns, use: Use, job: RunningJob, taken: bool) -> None:
    for share in job.shares:
        i = columns.index[share.node]
        use.core_busy[i, list(share.cores)] = taken
        for name, kind_type, devices in share.gres:
            k = columns.kind(name, kind_type)
            base = int(columns.gres_base[k][i])
            use.gres_busy[k][i, [x - base for x in devices]] = taken


def count_job(columns: ClusterColumns, counts: Counts, job: RunningJob, sign: int) -> None:
    """Adds the job to the counts (1) or takes it out (-1)."""
    taken = sign > 0
    partition = columns.partitions.get(job.partition)
    alone = partition is not None and partition.over_subscribe == "EXCLUSIVE"
    for share in job.shares:
        i = columns.index[share.node]
        counts.mem_alloc_mb[i] += sign * share.mem_mb
        counts.jobs[i] += sign
        if alone:
            counts.alone[i] = taken
        if alone or (job.whole_node == "exclusive" and not (partition is not None and partition.forced)):
            counts.whole[i] = taken
        elif job.whole_node == "user" or (partition is not None and partition.exclusive_user):
            counts.owner_jobs[i] += sign
            counts.owner[i] = job.uid if counts.owner_jobs[i] else NO_USER
        for name, kind_type, devices in share.gres:
            counts.gres_free[columns.kind(name, kind_type)][i] -= sign * len(devices)
    count_cores(columns, counts.socket_free, job, -sign)
    limited = counts.limited.get(job.partition)
    if limited is not None:
        count_cores(columns, limited, job, sign)


def cores_per_socket(columns: ClusterColumns, share: NodeShare) -> dict[int, int]:
    """Socket -> cores of the share."""
    return _per_socket(share.cores, int(columns.cores_per_socket[columns.index[share.node]]))


@lru_cache(maxsize=65536)
def _per_socket(cores: tuple[int, ...], width: int) -> dict[int, int]:
    """Kept, because most jobs have the cores of some other job on another node."""
    return Counter(core // width for core in cores)


def count_cores(columns: ClusterColumns, per_socket: IntArray, job: RunningJob, sign: int) -> None:
    """Adds the job's cores to (or takes them from) counts per node and socket."""
    for share in job.shares:
        i = columns.index[share.node]
        for socket, count in cores_per_socket(columns, share).items():
            per_socket[i, socket] += sign * count
