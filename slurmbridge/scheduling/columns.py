"""The cluster as columns: what exists, what is in use, who runs where. The controller updates it, passes read it.

The controller owns one ``ClusterColumns`` and one ``QueueColumns`` for its lifetime and changes them as jobs start, end
and nodes come and go; a snapshot only refers to them. A pass works on ``copy_use()`` and leaves them untouched.
Memory in MB, times in epoch seconds. Node order is configuration order (it decides ties, as in Slurm).
"""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]

NO_USER = -1
FOREVER_S = 1 << 40
"""End of a run without a time limit."""


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """A node as configured or found. ``gres``: ("gpu", "a100", count) in configuration order, type "" when untyped."""

    name: str
    sockets: int = 1
    cores_per_socket: int = 1
    threads_per_core: int = 1
    cpus: int = 1
    real_memory_mb: int = 1
    mem_spec_limit_mb: int = 0
    tmp_disk_mb: int = 0
    weight: int = 1
    features: tuple[str, ...] = ()
    gres: tuple[tuple[str, str, int], ...] = ()
    core_spec_count: int = 0


@dataclass(frozen=True, slots=True)
class NodeShare:
    """What one job gets on one node. ``cores``: core numbers of the node (socket-major); ``gres``: device indices per
    ("gpu", "a100"), numbered within the node over all kinds of that name, as SLURM_JOB_GPUS counts them."""

    node: str
    cpus: int
    mem_mb: int
    cores: tuple[int, ...]
    gres: tuple[tuple[str, str, tuple[int, ...]], ...] = ()
    tasks: int = 1


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job that holds resources. ``end_s``: start + time limit (FOREVER_S without limit)."""

    job_id: int
    partition: str
    shares: tuple[NodeShare, ...]
    end_s: int
    start_s: int = 0
    uid: int = 0
    whole_node: str | None = None             # None | "exclusive" | "user" | "mcs"
    oversubscribe: bool = False
    priority: int = 0
    qos: str = ""
    account: str = ""
    subject: int = -1                         # index into the snapshot's limit subjects
    reservation: str | None = None
    licenses: tuple[tuple[str, int], ...] = ()
    preempt_exempt_until_s: int = 0
    suspended: bool = False
    requeue: bool = True                      # may be preempted by requeueing (batch jobs with Requeue=1)


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition's scheduling facts (slurm.conf(5)). ``max_nodes`` 0: no limit; times None: no limit."""

    name: str
    nodes: frozenset[str]
    tier: int = 1
    state: str = "UP"                         # UP | DOWN | DRAIN | INACTIVE
    min_nodes: int = 1
    max_nodes: int = 0
    max_time_s: int | None = None
    default_time_s: int | None = None
    max_cpus_per_node: int = 0
    max_cpus_per_socket: int = 0
    over_subscribe: str = "NO"                # NO | YES | FORCE | EXCLUSIVE
    max_share: int = 1
    exclusive_user: bool = False
    lln: bool = False                         # least-loaded node selection
    preempt_mode: str = ""
    def_mem_per_cpu_mb: int | None = None
    def_mem_per_node_mb: int | None = None
    max_mem_per_cpu_mb: int | None = None
    max_mem_per_node_mb: int | None = None


@dataclass(frozen=True, slots=True)
class GresKind:
    name: str
    type: str


@dataclass(slots=True)
class Use:
    """What is taken, over nodes. ``core_busy``: (nodes, widest node's cores), padding is busy; ``gres_busy``: per kind
    (nodes, most devices on a node), padding is busy; ``jobs``: running jobs per node; ``whole``: nodes given to one
    job; ``owner``: uid of the --exclusive=user owner or NO_USER."""

    core_busy: BoolArray
    free_cores: IntArray
    mem_alloc_mb: IntArray
    gres_busy: list[BoolArray]
    jobs: IntArray
    whole: BoolArray
    owner: IntArray

    def copy(self) -> Use:
        return Use(self.core_busy.copy(), self.free_cores.copy(), self.mem_alloc_mb.copy(),
                   [g.copy() for g in self.gres_busy], self.jobs.copy(), self.whole.copy(), self.owner.copy())


class ClusterColumns:
    """Nodes, partitions and running jobs as arrays; see the module docstring."""

    def __init__(self, nodes: Sequence[NodeSpec], partitions: Sequence[Partition] = ()) -> None:
        count = len(nodes)
        self.specs: list[NodeSpec] = list(nodes)
        self.names: list[str] = [n.name for n in nodes]
        self.index: dict[str, int] = {n.name: i for i, n in enumerate(nodes)}
        column = lambda field: np.array([getattr(n, field) for n in nodes], dtype=np.int64)  # noqa: E731
        self.sockets: IntArray = column("sockets")
        self.cores_per_socket: IntArray = column("cores_per_socket")
        self.threads: IntArray = column("threads_per_core")
        self.cpus: IntArray = column("cpus")
        self.mem_mb: IntArray = column("real_memory_mb") - column("mem_spec_limit_mb")
        self.tmp_disk_mb: IntArray = column("tmp_disk_mb")
        self.weight: IntArray = column("weight")
        self.cores: IntArray = self.sockets * self.cores_per_socket
        self.available: BoolArray = np.ones(count, dtype=np.bool_)     # takes new jobs: not down, drained, failing, …
        self.up: BoolArray = np.ones(count, dtype=np.bool_)            # not down (drained nodes are up)
        self.completing: BoolArray = np.zeros(count, dtype=np.bool_)
        self.features: dict[str, BoolArray] = {}
        self.gres_kinds: list[GresKind] = []
        self.gres_total: list[IntArray] = []
        self.gres_base: list[IntArray] = []                            # first device index of this kind on each node
        self.partitions: dict[str, Partition] = {}
        self.partition_nodes: dict[str, BoolArray] = {}
        self.running: dict[int, RunningJob] = {}
        for i, node in enumerate(nodes):
            self._index_features(i, node)
            self._index_gres(i, node)
        width = int(self.cores.max(initial=1))
        core_busy = np.arange(width)[None, :] >= self.cores[:, None]
        gres_busy = [np.arange(int(total.max(initial=1)))[None, :] >= total[:, None] for total in self.gres_total]
        self.use = Use(core_busy, self.cores.copy(), np.zeros(count, dtype=np.int64), gres_busy,
                       np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.bool_),
                       np.full(count, NO_USER, dtype=np.int64))
        for i, node in enumerate(nodes):
            self._take_specialized_cores(i, node.core_spec_count)
        for partition in partitions:
            self.set_partition(partition)

    def __len__(self) -> int:
        return len(self.names)

    def _index_features(self, i: int, node: NodeSpec) -> None:
        for feature in node.features:
            self.features.setdefault(feature, np.zeros(len(self.names), dtype=np.bool_))[i] = True

    def _index_gres(self, i: int, node: NodeSpec) -> None:
        base: dict[str, int] = {}
        for name, kind_type, count in node.gres:
            kind = GresKind(name, kind_type)
            if kind not in self.gres_kinds:
                self.gres_kinds.append(kind)
                self.gres_total.append(np.zeros(len(self.names), dtype=np.int64))
                self.gres_base.append(np.zeros(len(self.names), dtype=np.int64))
            k = self.gres_kinds.index(kind)
            self.gres_total[k][i] += count
            self.gres_base[k][i] = base.get(name, 0)
            base[name] = base.get(name, 0) + count

    def _take_specialized_cores(self, i: int, count: int) -> None:
        for core in range(int(self.cores[i]) - 1, int(self.cores[i]) - 1 - count, -1):
            self.use.core_busy[i, core] = True
            self.use.free_cores[i] -= 1

    def set_partition(self, partition: Partition) -> None:
        """Adds or replaces a partition."""
        members = np.zeros(len(self.names), dtype=np.bool_)
        members[[self.index[n] for n in partition.nodes if n in self.index]] = True
        self.partitions[partition.name] = partition
        self.partition_nodes[partition.name] = members

    def set_node_state(self, name: str, *, available: bool, up: bool | None = None,
                       completing: bool | None = None) -> None:
        """``available``: may take jobs; ``up``: not down (default: as available)."""
        i = self.index[name]
        self.available[i] = available
        self.up[i] = available if up is None else up
        if completing is not None:
            self.completing[i] = completing

    def set_node_features(self, name: str, features: Iterable[str], weight: int | None = None) -> None:
        i = self.index[name]
        for column in self.features.values():
            column[i] = False
        for feature in features:
            self.features.setdefault(feature, np.zeros(len(self.names), dtype=np.bool_))[i] = True
        if weight is not None:
            self.weight[i] = weight

    def apply_start(self, job: RunningJob) -> None:
        """The job holds its shares from now on. Raises ValueError when it is known already."""
        if job.job_id in self.running:
            raise ValueError(f"job {job.job_id} runs already")
        self.running[job.job_id] = job
        if not job.suspended:
            charge(self, self.use, job)

    def apply_end(self, job_id: int) -> RunningJob:
        """Everything of the job is free again. Raises KeyError when it does not run."""
        job = self.running.pop(job_id)
        if not job.suspended:
            release(self, self.use, job, self.running.values())
        return job

    def release_node(self, job_id: int, name: str) -> None:
        """One node of a running job is free again (node failure with --no-kill, or its epilog ended early)."""
        job = self.apply_end(job_id)
        rest = tuple(s for s in job.shares if s.node != name)
        self.apply_start(replace(job, shares=rest))


def charge(columns: ClusterColumns, use: Use, job: RunningJob) -> None:
    """Takes the job's shares out of ``use``."""
    for share in job.shares:
        i = columns.index[share.node]
        use.core_busy[i, list(share.cores)] = True
        use.free_cores[i] -= len(share.cores)
        use.mem_alloc_mb[i] += share.mem_mb
        use.jobs[i] += 1
        if job.whole_node == "exclusive":
            use.whole[i] = True
        elif job.whole_node == "user":
            use.owner[i] = job.uid
        for name, kind_type, indices in share.gres:
            k = columns.gres_kinds.index(GresKind(name, kind_type))
            use.gres_busy[k][i, [x - int(columns.gres_base[k][i]) for x in indices]] = True


def release(columns: ClusterColumns, use: Use, job: RunningJob, others: Iterable[RunningJob] = ()) -> None:
    """Gives the job's shares back to ``use``."""
    for share in job.shares:
        i = columns.index[share.node]
        use.core_busy[i, list(share.cores)] = False
        use.free_cores[i] += len(share.cores)
        use.mem_alloc_mb[i] -= share.mem_mb
        use.jobs[i] -= 1
        if job.whole_node == "exclusive":
            use.whole[i] = False
        if use.jobs[i] == 0:
            use.owner[i] = NO_USER
        for name, kind_type, indices in share.gres:
            k = columns.gres_kinds.index(GresKind(name, kind_type))
            use.gres_busy[k][i, [x - int(columns.gres_base[k][i]) for x in indices]] = False
