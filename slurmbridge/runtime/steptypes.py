"""What a step asks for and gets, and what the nodes of its job have left."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from slurmbridge.runtime.layout import Distribution
from slurmbridge.slurm import errors

BLOCK = Distribution("block")


@dataclass(slots=True)
class NodeUse:
    """One node of the allocation and what its steps use. Memory is MB, gpus are device indices by gres name."""

    name: str
    cpus: int
    mem_mb: int
    gres: dict[str, tuple[int, ...]] = field(default_factory=dict)
    cpus_used: int = 0
    mem_used_mb: int = 0
    gres_used: set[tuple[str, int]] = field(default_factory=set)
    steps: int = 0                            # steps that run here, overlapping ones too
    features: frozenset[str] = frozenset()
    cpu_ids: tuple[int, ...] = ()             # numbers of its CPUs, where these matter
    cpu_ids_used: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class StepRequest:
    """What one srun asks for, after its own defaults. ``num_tasks`` None: as many as fit."""

    num_tasks: int | None = 1
    min_nodes: int = 1
    max_nodes: int = 1
    cpu_count: int = 0                        # CPUs the step needs in all; 0 = not checked (overcommit)
    cpus_per_task: int = 0                    # 0: not given
    whole: bool = True                        # not --exact: all the job's CPUs on its nodes
    overlap: bool = False
    overcommit: bool = False
    mem_per_cpu_mb: int | None = None
    mem_per_node_mb: int | None = None        # 0 or None: all the job's memory, not counted
    node_list: tuple[str, ...] = ()           # -w; one entry a task for arbitrary
    exclude: tuple[str, ...] = ()
    relative: int | None = None
    feature: str = ""
    distribution: Distribution = BLOCK
    ntasks_per_node: int = 0
    cpus_per_gpu: int = 0
    gres_per_node: tuple[tuple[str, int], ...] | None = None   # None: the job's; () = none
    gres_per_step: tuple[tuple[str, int], ...] = ()
    gres_per_task: tuple[tuple[str, int], ...] = ()
    job_mem_per_node: bool = False            # the job asked by node, so a step may not ask for more
    max_tasks_per_node: int = 512
    whole_memory: bool = False                # all the job's memory was asked for (--mem=0)
    resv_ports: int | None = None             # --resv-ports
    is_launcher: bool = False                 # --external-launcher: one task a node, with all that the job has


@dataclass(frozen=True, slots=True)
class StepShare:
    """What the step has on one node."""

    node_index: int                           # in the allocation
    name: str
    tasks: tuple[int, ...]
    cpus: int
    mem_mb: int
    counted_cpus: int
    counted_mem_mb: int
    gres: dict[str, tuple[int, ...]]
    cpu_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class StepPlan:
    shares: tuple[StepShare, ...]
    next_node: int                            # where the search of the next step starts
    ports: tuple[int, ...] = ()               # reserved for its MPI library

    @property
    def num_tasks(self) -> int:
        return sum(len(share.tasks) for share in self.shares)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a step stands among the components of one srun; alone, it is all of it. ``nodes`` and ``counts``: all
    nodes with their tasks, sorted by name. ``job``: variables of the heterogeneous job that replace the component's."""

    nodes: tuple[str, ...]
    counts: tuple[int, ...]
    first_task: int = 0
    first_node: int = 0
    job: dict[str, str] = field(default_factory=dict)

    @property
    def total_tasks(self) -> int:
        return sum(self.counts)


def alone(plan: StepPlan) -> Place:
    return Place(tuple(share.name for share in plan.shares), tuple(len(share.tasks) for share in plan.shares))


class StepRefused(Exception):
    """``code`` is Slurm's error; ``retry``: it may be possible once other steps have ended.

    ``takes_number``: refused so late that a step number was used up. ``note``: what else srun says.
    """

    def __init__(self, code: int, *, takes_number: bool = False, note: str = "") -> None:
        super().__init__(errors.strerror(code))
        self.code = code
        self.note = note
        self.takes_number = takes_number
        self.retry = code in (errors.ESLURM_NODES_BUSY, errors.ESLURM_PORTS_BUSY, errors.ESLURM_DISABLED)


def cpus_per_task(request: StepRequest, nodes: Sequence[NodeUse]) -> int:
    """Given, or implied by an even division that fits the nodes; 0 when neither."""
    if request.cpus_per_task:
        return request.cpus_per_task
    if request.num_tasks is None or not request.cpu_count or request.cpu_count % request.num_tasks:
        return 0
    per_task = request.cpu_count // request.num_tasks
    if any(per_task > node.cpus for node in nodes):
        return 0
    return per_task if request.num_tasks <= sum(node.cpus // per_task for node in nodes) else 0


def matching(gres: dict[str, tuple[int, ...]], name: str) -> list[tuple[str, int]]:
    """Devices of ``gpu`` (any type) or ``gpu:a100``."""
    return [(kind, device) for kind, devices in gres.items() if kind == name or kind.startswith(name + ":")
            for device in devices]


def free(node: NodeUse, name: str) -> list[tuple[str, int]]:
    return [item for item in matching(node.gres, name) if item not in node.gres_used]


def occupy(nodes: Sequence[NodeUse], step: StepPlan, sign: int = 1) -> None:
    """Counts the step on its nodes (``sign`` 1) or gives back what it had (-1)."""
    for share in step.shares:
        node = nodes[share.node_index]
        node.steps += sign
        node.cpus_used += sign * share.counted_cpus
        node.mem_used_mb += sign * share.counted_mem_mb
        devices = {(kind, device) for kind, indices in share.gres.items() for device in indices}
        if share.counted_cpus:
            ids = set(share.cpu_ids)
            node.cpu_ids_used = node.cpu_ids_used | ids if sign > 0 else node.cpu_ids_used - ids
            node.gres_used = node.gres_used | devices if sign > 0 else node.gres_used - devices
