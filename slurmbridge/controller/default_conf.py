"""The slurm.conf of ``slurmbridge up`` without options: four virtual nodes shaped after this machine.

Every node has the machine's CPUs (four nodes are more than there is, so that gangs can be tried anywhere) and a quarter
of its memory; one partition, ``main``; no association needed to submit; job ids from 1.
"""
from __future__ import annotations

import os
import socket
from dataclasses import dataclass

NODES = 4
_PRIORITIES = """\
PriorityType=priority/multifactor
PriorityWeightAge=1000
PriorityWeightFairshare=10000
PriorityWeightJobSize=500
PriorityWeightPartition=1000
PriorityWeightQOS=2000
FirstJobId=1
"""
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass(frozen=True, slots=True)
class Machine:
    """What of this machine the nodes get."""

    cpus: int
    memory_mb: int
    host: str


def this_machine() -> Machine:
    """CPUs that this process may use, memory (the smaller of the machine's and the container's), short host name."""
    cpus = len(os.sched_getaffinity(0)) or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    for path in _CGROUP_LIMITS:
        try:
            with open(path, encoding="ascii") as file:
                memory = min(memory, int(file.read()) >> 20)
        except (OSError, ValueError):
            continue
    return Machine(cpus, max(memory, NODES), socket.gethostname().split(".")[0] or "localhost")


def default_conf_text(machine: Machine | None = None) -> str:
    """The text of the file."""
    found = machine or this_machine()
    memory_mb = max(found.memory_mb // NODES, 1)
    return f"""\
# Written by slurmbridge up: {NODES} virtual nodes shaped after this machine. Edit it, or use --slurm-conf.
ClusterName=local
SlurmctldHost={found.host}
SlurmUser=root
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
MpiDefault=pmi2
TaskPlugin=task/cgroup
{_PRIORITIES}NodeName=node[1-{NODES}] NodeHostname={found.host} NodeAddr=127.0.0.1 CPUs={found.cpus} Boards=1 \
Sockets=1 CoresPerSocket={found.cpus} ThreadsPerCore=1 RealMemory={memory_mb} State=UNKNOWN
PartitionName=main Nodes=node[1-{NODES}] Default=YES MaxTime=UNLIMITED State=UP \
DefMemPerCPU={max(memory_mb // found.cpus, 1)}
"""


def cluster_conf_text() -> str:
    """The text of the file where an engine knows the nodes: all of them in one partition."""
    return f"""\
# Written by slurmbridge up: all nodes of the cluster in one partition. Edit it, or use --slurm-conf.
ClusterName=kubernetes
SlurmctldHost={this_machine().host}
SlurmUser=root
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
MpiDefault=pmi2
GresTypes=gpu
{_PRIORITIES}PartitionName=main Nodes=ALL Default=YES MaxTime=UNLIMITED State=UP DefMemPerCPU=1024
"""
