"""What the scheduler knows of nodes, partitions and running jobs: records without behaviour.

Memory in MB, times in epoch seconds.
"""
from __future__ import annotations

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
    select_type: str = ""                     # its own SelectTypeParameters: CR_CORE, CR_SOCKET_MEMORY, …

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


def takes_request(partition: Partition, *, oversubscribe: bool) -> bool:
    """Whether a job of the partition shares cores with others of it."""
    return partition.over_subscribe == "FORCE" or (
        partition.over_subscribe == "YES" and partition.max_share > 1 and oversubscribe)


def without_cores(job: RunningJob) -> RunningJob:
    """What a suspended job still holds."""
    return replace(job, shares=tuple(replace(share, cores=()) for share in job.shares), whole_node=None, suspended=True)
