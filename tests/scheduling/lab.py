"""The lab's cluster and the sbatch arguments of the recorded queues, as the scheduler sees them."""
from __future__ import annotations

import re
from dataclasses import dataclass, field

from slurmbridge.scheduling.columns import ClusterColumns
from slurmbridge.scheduling.facts import NodeSpec, Partition
from slurmbridge.scheduling.shape import Shape
from slurmbridge.scheduling.size import Defaults, defaults_of, shape_of
from slurmbridge.scheduling.snapshot import SchedulerSettings
from slurmbridge.slurm.hostlist import expand
from slurmbridge.slurm.jobspec import JobRequest

CPU_NODES = [NodeSpec(f"n{i}", 2, 16, 1, 32, 128000, features=("intel", "skylake", "ib"), weight=10)
             for i in range(1, 5)]
BIG_NODES = [NodeSpec(f"n{i}", 2, 32, 1, 64, 256000, features=("amd", "rome", "ib"), weight=20) for i in (5, 6)]
GPU_NODES = [
    NodeSpec("g1", 2, 32, 1, 64, 256000, features=("amd", "milan", "a100"), weight=100, gres=(("gpu", "a100", 4),)),
    NodeSpec("g2", 2, 16, 1, 32, 128000, features=("intel", "v100"), weight=90, gres=(("gpu", "v100", 2),)),
]
NODES = [*CPU_NODES, *BIG_NODES, *GPU_NODES]


def _partition(name: str, nodes: str, max_time_min: int | None, default_time_min: int | None) -> Partition:
    return Partition(name, frozenset(expand(nodes)), max_time_s=None if max_time_min is None else max_time_min * 60,
                     default_time_s=None if default_time_min is None else default_time_min * 60,
                     def_mem_per_cpu_mb=1000)


PARTITIONS = [
    _partition("batch", "n[1-6]", 7 * 1440, 60), _partition("debug", "n[1-2]", 30, 5),
    _partition("gpu", "g[1-2]", 2 * 1440, 60), _partition("long", "n[3-6]", 30 * 1440, None),
    _partition("physonly", "n[1-6]", 1440, None), _partition("all", "n[1-6],g[1-2]", None, None),
]
SETTINGS = SchedulerSettings(bf_window_s=1440 * 60, bf_continue=True, bf_resolution_s=60, preempt_type="preempt/qos",
                             preempt_mode="REQUEUE")


def cluster() -> ClusterColumns:
    return ClusterColumns(NODES, PARTITIONS)


@dataclass
class Submission:
    request: JobRequest
    partition: str = "batch"
    time_limit_s: int = 3600
    warnings: list[str] = field(default_factory=list)

    def shape(self) -> Shape:
        partition = next(p for p in PARTITIONS if p.name == self.partition)
        return shape_of(self.request, _defaults(partition))


def _defaults(partition: Partition) -> Defaults:
    return defaults_of(partition)


def _megabytes(text: str) -> int:
    number, unit = re.fullmatch(r"(\d+)([KMGT]?)", text).groups()
    return int(number) * {"": 1, "M": 1, "G": 1024, "T": 1024 * 1024, "K": 1}[unit]


def submission(args: list[str]) -> Submission:
    """Understands the options that the recorded queues use, as sbatch does."""
    request = JobRequest()
    out = Submission(request)
    words = iter(args)
    for word in words:
        name, _, value = word.partition("=")
        if not value and name != "--exclusive":
            value = next(words)
        if name == "-p":
            out.partition = value
        elif name == "-N":
            low, _, high = value.partition("-")
            request.min_nodes, request.max_nodes, request.nodes_given = int(low), int(high or low), True
        elif name == "-n":
            request.num_tasks, request.num_tasks_given = int(value), True
        elif name == "-c":
            request.cpus_per_task = int(value)
        elif name == "-t":
            out.time_limit_s = int(value) * 60
        elif name == "-C":
            request.constraint = value
        elif name == "-w":
            request.node_list = value
        elif name == "-x":
            request.exclude = value
        elif name == "--ntasks-per-node":
            request.ntasks_per_node = int(value)
        elif name == "--mem":
            request.mem_per_node_mb = _megabytes(value)
        elif name == "--mem-per-cpu":
            request.mem_per_cpu_mb = _megabytes(value)
        elif name == "--gres":
            request.tres_per_node = "gres/" + value
        elif name == "--exclusive":
            request.exclusive = "exclusive"
        else:
            raise ValueError(word)
    _massage(request)
    return out


def _massage(request: JobRequest) -> None:
    if request.node_list and not request.nodes_given:
        request.min_nodes, request.nodes_given = len(expand(request.node_list)), True
    if request.nodes_given and request.num_tasks is not None:
        if request.max_nodes and request.num_tasks < request.max_nodes:
            request.max_nodes = request.num_tasks
        if request.num_tasks < request.min_nodes:
            request.min_nodes = request.max_nodes = request.num_tasks
