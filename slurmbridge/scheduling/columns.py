"""The cluster as columns: what exists, what is in use, who runs where. The controller updates it, passes read it.

The controller owns one ``ClusterColumns`` and one ``QueueColumns`` for its lifetime and changes them as jobs start, end
and nodes come and go; a snapshot only refers to them. A pass works on ``copy_use()`` and leaves them untouched.
Memory in MB, times in epoch seconds. Nodes are sorted by name as in Slurm's node table: the order decides ties.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cmp_to_key, lru_cache

import numpy as np
from numpy.typing import NDArray

from slurmbridge.scheduling.rows import Placed, Rows, Shared
from slurmbridge.slurm.hostlist import natural_compare

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]

NO_USER = -1
_by_name = cmp_to_key(natural_compare)
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
    spec_cores: tuple[int, ...] = ()          # kept for the system


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
    returns: bool = False                     # suspended for others: goes on by itself once nobody has its cores
    stays: bool = False                       # a victim that would be suspended: it keeps memory and devices
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
    def_cpu_per_gpu: int | None = None
    def_mem_per_gpu_mb: int | None = None

    @property
    def forced(self) -> bool:
        """Its jobs share cores whether they want or not, and none has a node alone."""
        return self.over_subscribe == "FORCE" and self.max_share > 1

    @property
    def shares_cores(self) -> bool:
        return self.over_subscribe == "FORCE" or (self.over_subscribe == "YES" and self.max_share > 1)


@dataclass(frozen=True, slots=True)
class GresKind:
    name: str
    type: str


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


@dataclass(frozen=True, slots=True)
class _Foreign:
    """Taken on one node by others: core numbers, memory, (kind's number, devices)."""

    cores: tuple[int, ...]
    mem_mb: int
    devices: tuple[tuple[int, tuple[int, ...]], ...]


class ClusterColumns:
    """Nodes, partitions and running jobs as arrays; see the module docstring."""

    def __init__(self, nodes: Sequence[NodeSpec], partitions: Sequence[Partition] = ()) -> None:
        nodes = sorted(nodes, key=lambda node: _by_name(node.name))
        count = len(nodes)
        self.specs: list[NodeSpec] = nodes
        self.names: list[str] = [n.name for n in nodes]
        self.index: dict[str, int] = {n.name: i for i, n in enumerate(nodes)}

        def column(field: str) -> IntArray:
            return np.array([getattr(n, field) for n in nodes], dtype=np.int64)

        self.sockets: IntArray = column("sockets")
        self.cores_per_socket: IntArray = column("cores_per_socket")
        self.threads: IntArray = column("threads_per_core")
        self.cpus: IntArray = column("cpus")
        self.mem_spec_mb: IntArray = column("mem_spec_limit_mb")
        self.mem_mb: IntArray = column("real_memory_mb") - self.mem_spec_mb            # what jobs can get
        self.tmp_disk_mb: IntArray = column("tmp_disk_mb")
        self.weight: IntArray = column("weight")
        self.cores: IntArray = self.sockets * self.cores_per_socket
        self.available: BoolArray = np.ones(count, dtype=np.bool_)     # takes new jobs: not down, drained, failing, …
        self.up: BoolArray = np.ones(count, dtype=np.bool_)            # not down (drained nodes are up)
        self.completing: BoolArray = np.zeros(count, dtype=np.bool_)
        self.features: dict[str, BoolArray] = {}
        self.gres_kinds: list[GresKind] = []
        self._kind_index: dict[tuple[str, str], int] = {}
        self.gres_total: list[IntArray] = []
        self.gres_base: list[IntArray] = []                            # first device index of this kind on each node
        self.partitions: dict[str, Partition] = {}
        self.partition_nodes: dict[str, BoolArray] = {}
        self.largest: dict[str, tuple[int, int]] = {}     # partition -> most CPUs and cores of one of its nodes
        self.running: dict[int, RunningJob] = {}
        self._whole: dict[int, RunningJob] = {}           # suspended jobs as they were with their cores
        self._crowded: dict[int, RunningJob] = {}         # resumed while others had their cores; with all their cores
        self._foreign: dict[str, _Foreign] = {}
        for i, node in enumerate(nodes):
            self._index_features(i, node)
            self._index_gres(i, node)
        width = int(self.cores.max(initial=1))
        self._socket: IntArray = np.arange(width)[None, :] // self.cores_per_socket[:, None]    # of each core
        core_busy = np.arange(width)[None, :] >= self.cores[:, None]
        gres_busy = [np.arange(int(total.max(initial=1)))[None, :] >= total[:, None] for total in self.gres_total]
        sockets = np.arange(int(self.sockets.max(initial=1)))[None, :] < self.sockets[:, None]
        self.use = Use(sockets * self.cores_per_socket[:, None], np.zeros(count, dtype=np.int64),
                       [total.copy() for total in self.gres_total], np.zeros(count, dtype=np.int64),
                       np.zeros(count, dtype=np.bool_), np.full(count, NO_USER, dtype=np.int64),
                       np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.bool_), {}, core_busy, gres_busy)
        for i, node in enumerate(nodes):
            self._take_specialized_cores(i, node.spec_cores)
        self.socket_cores: IntArray = self.use.socket_free.copy()      # without specialized ones
        kept = np.array([len(node.spec_cores) for node in nodes], dtype=np.int64)
        self.job_cpus: IntArray = self.cpus - kept * self.threads      # all that jobs can have
        for partition in partitions:
            self.set_partition(partition)

    def __len__(self) -> int:
        return len(self.names)

    def per_socket(self, cores: BoolArray, nodes: Sequence[int] | slice = slice(None)) -> IntArray:
        """How many of the marked cores (a row a node) are on each socket; ``nodes``: of these nodes only."""
        found: IntArray = np.stack([(cores & (self._socket[nodes] == socket)).sum(axis=1)
                                    for socket in range(self.use.socket_free.shape[1])], axis=1)
        return found

    def _index_features(self, i: int, node: NodeSpec) -> None:
        for feature in node.features:
            self.features.setdefault(feature, np.zeros(len(self.names), dtype=np.bool_))[i] = True

    def _index_gres(self, i: int, node: NodeSpec) -> None:
        base: dict[str, int] = {}
        for name, kind_type, count in node.gres:
            if (name, kind_type) not in self._kind_index:
                self._kind_index[name, kind_type] = len(self.gres_kinds)
                self.gres_kinds.append(GresKind(name, kind_type))
                self.gres_total.append(np.zeros(len(self.names), dtype=np.int64))
                self.gres_base.append(np.zeros(len(self.names), dtype=np.int64))
            k = self._kind_index[name, kind_type]
            self.gres_total[k][i] += count
            self.gres_base[k][i] = base.get(name, 0)
            base[name] = base.get(name, 0) + count

    def kind(self, name: str, kind_type: str) -> int:
        """Number of a device kind. Raises KeyError when no node has it."""
        return self._kind_index[name, kind_type]

    def _take_specialized_cores(self, i: int, cores: tuple[int, ...]) -> None:
        for core in cores:
            self.use.core_busy[i, core] = True
            self.use.socket_free[i, core // self.cores_per_socket[i]] -= 1

    def set_partition(self, partition: Partition) -> None:
        """Adds or replaces a partition."""
        members = np.zeros(len(self.names), dtype=np.bool_)
        members[[self.index[n] for n in partition.nodes if n in self.index]] = True
        self.partitions[partition.name] = partition
        self.partition_nodes[partition.name] = members
        self.largest[partition.name] = (int(self.cpus[members].max(initial=1)), int(self.cores[members].max(initial=1)))
        self.use.limited.pop(partition.name, None)
        if partition.max_cpus_per_node or partition.max_cpus_per_socket:
            used = self.use.limited[partition.name] = np.zeros_like(self.use.socket_free)
            for job in self.running.values():
                if job.partition == partition.name and not job.suspended:
                    _count_cores(self, used, job, 1)
        if self.use.shared is not None or partition.shares_cores:
            self._lay_rows()

    def _lay_rows(self) -> None:
        """Where a partition shares cores, all jobs are put into rows anew: partitions are new or have changed."""
        sharing = any(partition.shares_cores for partition in self.partitions.values())
        count, cells = len(self.names), self.use.core_busy.size
        self.use.shared = Shared(
            np.zeros(cells, dtype=np.int64), np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64),
            {name: Rows(max(1, one.max_share), cells) for name, one in self.partitions.items()}) if sharing else None
        for job in self.running.values():
            if sharing and not job.suspended:
                _share_cores(self, self.use, job, 1)

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

    def set_foreign(self, name: str, cores: int, mem_mb: int, gres: Mapping[tuple[str, str], int]) -> None:
        """What others than our jobs use of a node now. Of cores and devices as many are taken as are free."""
        i = self.index[name]
        before = self._foreign.pop(name, None)
        if before is not None:
            self._take_foreign(i, before, False)
        busy = self.use.core_busy[i, :int(self.cores[i])]
        chosen = tuple(int(core) for core in np.flatnonzero(~busy)[::-1][:cores])
        devices = []
        for kind, count in gres.items():
            k = self._kind_index.get(kind)
            if k is not None:
                free = np.flatnonzero(~self.use.gres_busy[k][i, :int(self.gres_total[k][i])])[::-1][:count]
                devices.append((k, tuple(int(device) for device in free)))
        now = _Foreign(chosen, mem_mb, tuple(devices))
        self._take_foreign(i, now, True)
        self._foreign[name] = now

    def _take_foreign(self, i: int, use: _Foreign, taken: bool) -> None:
        sign = 1 if taken else -1
        for core in use.cores:
            self.use.core_busy[i, core] = taken
            self.use.socket_free[i, core // self.cores_per_socket[i]] -= sign
        self.mem_mb[i] -= sign * use.mem_mb
        for k, devices in use.devices:
            self.use.gres_busy[k][i, list(devices)] = taken
            self.use.gres_free[k][i] -= sign * len(devices)

    def apply_start(self, job: RunningJob) -> None:
        """The job holds its shares from now on. Raises ValueError when it is known already."""
        if job.job_id in self.running:
            raise ValueError(f"job {job.job_id} runs already")
        self.running[job.job_id] = job
        charge(self, self.use, job)

    def apply_end(self, job_id: int) -> RunningJob:
        """Everything of the job is free again. Raises KeyError when it does not run."""
        job = self.running.pop(job_id)
        self._whole.pop(job_id, None)
        self._crowded.pop(job_id, None)
        release(self, self.use, job)
        for other in list(self._crowded):
            self._take_cores(other)
        return job

    def suspend(self, job_id: int, *, returns: bool) -> None:
        """The job stops: its cores are for others, its memory and devices stay its own. ``returns``: it was preempted
        and goes on by itself."""
        job = self.running[job_id]
        if not job.suspended:
            release(self, self.use, job)
            self.start_suspended(self._crowded.pop(job_id, job), returns=returns)

    def start_suspended(self, job: RunningJob, *, returns: bool) -> None:
        """A job that ``suspend`` stopped before the controller's restart. ``job``: with its cores."""
        self._whole[job.job_id] = job
        self.running[job.job_id] = replace(without_cores(job), returns=returns)
        charge(self, self.use, self.running[job.job_id])

    def may_resume(self, job_id: int) -> bool:
        """Whether nobody has the cores that the job had when it was suspended."""
        job = self._whole.get(job_id)
        return job is not None and not any(
            self.use.core_busy[self.index[share.node], list(share.cores)].any() for share in job.shares)

    def resume(self, job_id: int) -> None:
        """A suspended job has its cores again, beside those who have them meanwhile."""
        job = self._whole.pop(job_id, None)
        if job is not None:
            self._crowded[job_id] = job
            self._take_cores(job_id)

    def _take_cores(self, job_id: int) -> None:
        """Charges a resumed job for its cores that nobody else is charged for: a core counts once."""
        job = self._crowded[job_id]
        release(self, self.use, self.running[job_id])
        if self.use.shared is None:
            job = replace(job, shares=tuple(replace(share, cores=tuple(
                core for core in share.cores if not self.use.core_busy[self.index[share.node], core]))
                for share in job.shares))
        self.running[job_id] = job
        charge(self, self.use, job)
        if job == self._crowded[job_id]:
            del self._crowded[job_id]

    @property
    def suspended(self) -> list[int]:
        """Jobs that were suspended for others, in the order in which they were."""
        return [job_id for job_id in self._whole if self.running[job_id].returns]


def without_cores(job: RunningJob) -> RunningJob:
    """What a suspended job still holds."""
    return replace(job, shares=tuple(replace(share, cores=()) for share in job.shares), whole_node=None, suspended=True)


def charge(columns: ClusterColumns, use: Use, job: RunningJob) -> None:
    """Takes the job's shares out of ``use``."""
    count_job(columns, use, job, 1)
    _mark(columns, use, job, True)
    if use.shared is not None:
        _share_cores(columns, use, job, 1)


def release(columns: ClusterColumns, use: Use, job: RunningJob) -> None:
    """Gives the job's shares back to ``use``."""
    count_job(columns, use, job, -1)
    _mark(columns, use, job, False)
    if use.shared is not None:
        _share_cores(columns, use, job, -1)


def takes_request(partition: Partition, *, oversubscribe: bool) -> bool:
    """Whether a job of the partition shares cores with others of it."""
    return partition.over_subscribe == "FORCE" or (
        partition.over_subscribe == "YES" and partition.max_share > 1 and oversubscribe)


def _share_cores(columns: ClusterColumns, use: Use, job: RunningJob, sign: int) -> None:
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
    _count_cores(columns, counts.socket_free, job, -sign)
    limited = counts.limited.get(job.partition)
    if limited is not None:
        _count_cores(columns, limited, job, sign)


def cores_per_socket(columns: ClusterColumns, share: NodeShare) -> dict[int, int]:
    """Socket -> cores of the share."""
    return _per_socket(share.cores, int(columns.cores_per_socket[columns.index[share.node]]))


@lru_cache(maxsize=65536)
def _per_socket(cores: tuple[int, ...], width: int) -> dict[int, int]:
    """Kept, because most jobs have the cores of some other job on another node."""
    return Counter(core // width for core in cores)


def _count_cores(columns: ClusterColumns, per_socket: IntArray, job: RunningJob, sign: int) -> None:
    """Adds the job's cores to (or takes them from) counts per node and socket."""
    for share in job.shares:
        i = columns.index[share.node]
        for socket, count in cores_per_socket(columns, share).items():
            per_socket[i, socket] += sign * count
