"""The cluster as columns: what exists, what is in use, who runs where. The controller updates it, passes read it.

The controller owns one ``ClusterColumns`` and one ``QueueColumns`` for its lifetime and changes them as jobs start, end
and nodes come and go; a snapshot only refers to them. A pass works on ``copy_use()`` and leaves them untouched.
Memory in MB, times in epoch seconds. Nodes are sorted by name as in Slurm's node table: the order decides ties.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cmp_to_key

import numpy as np

from slurmbridge.scheduling.facts import (
    NO_USER,
    BoolArray,
    GresKind,
    IntArray,
    NodeSpec,
    Partition,
    RunningJob,
    without_cores,
)
from slurmbridge.scheduling.rows import Rows, Shared
from slurmbridge.scheduling.switches import SwitchTree
from slurmbridge.scheduling.use import Use, charge, count_cores, release, share_cores
from slurmbridge.slurm.hostlist import natural_compare

_by_name = cmp_to_key(natural_compare)


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
        self.switches: SwitchTree | None = None                        # topology/tree
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
                    count_cores(self, used, job, 1)
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
                share_cores(self, self.use, job, 1)

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
