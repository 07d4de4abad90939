"""Where a step of a job runs: its nodes, CPUs, memory and GPUs within the allocation, next to the steps that run.

Pure. What Slurm's step manager decides is decided here in the same order, so that the same requests wait, are refused
with the same error, or get the same nodes (srun(1): --exact, --overlap, --relative, --mem, ...).
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from slurmbridge.runtime.layout import Distribution, LayoutError, lay_out, lay_out_arbitrary, task_capacity
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
    gres_per_node: tuple[tuple[str, int], ...] | None = None   # None: the job's; () = none
    gres_per_step: tuple[tuple[str, int], ...] = ()
    gres_per_task: tuple[tuple[str, int], ...] = ()
    job_mem_per_node: bool = False            # the job asked by node, so a step may not ask for more
    max_tasks_per_node: int = 512
    whole_memory: bool = False                # all the job's memory was asked for (--mem=0)


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


@dataclass(frozen=True, slots=True)
class StepPlan:
    shares: tuple[StepShare, ...]
    next_node: int                            # where the search of the next step starts

    @property
    def num_tasks(self) -> int:
        return sum(len(share.tasks) for share in self.shares)


class StepRefused(Exception):
    """``code`` is Slurm's error; ``retry``: it may be possible once other steps have ended.

    ``takes_number``: refused so late that a step number was used up.
    """

    def __init__(self, code: int, *, takes_number: bool = False) -> None:
        super().__init__(errors.strerror(code))
        self.code = code
        self.takes_number = takes_number
        self.retry = code in (errors.ESLURM_NODES_BUSY, errors.ESLURM_PORTS_BUSY, errors.ESLURM_DISABLED)


def plan(request: StepRequest, nodes: Sequence[NodeUse], next_node: int = 0) -> StepPlan:
    """Raises StepRefused."""
    search = _Search(request, nodes, next_node)
    picked = search.pick()
    return _allocate(search.request, nodes, picked, next_node)


class _Search:
    """One search for nodes; ``usable`` is how many CPUs the step can have on each."""

    def __init__(self, request: StepRequest, nodes: Sequence[NodeUse], next_node: int) -> None:
        if request.num_tasks is not None and request.num_tasks < 1:
            raise StepRefused(errors.ESLURM_BAD_TASK_COUNT)
        self.request = request
        self.nodes = nodes
        self.next_node = next_node
        self.usable = [0] * len(nodes)
        self.available: set[int] = set()
        self.blocked_nodes = self.blocked_cpus = 0
        self.mem_blocked_nodes = self.mem_blocked_cpus = 0

    def pick(self) -> list[int]:
        request = self.request
        if request.max_nodes < request.min_nodes:
            raise StepRefused(errors.ESLURM_INVALID_NODE_COUNT)
        self._find_available()
        picked = self._wanted()
        if self.request.relative is not None:
            if self.request.relative > len(self.nodes):
                raise StepRefused(errors.ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE)
            self.available -= set(range(self.request.relative))
            idle: set[int] = set()
        else:
            idle = {index for index in self.available if not self.nodes[index].steps}
        self._settle_tasks(idle)
        self._settle_nodes()
        self._add_nodes(picked, idle)
        return sorted(picked)

    def _find_available(self) -> None:
        request = self.request
        per_task = _cpus_per_task(request, self.nodes)
        if request.job_mem_per_node and request.mem_per_node_mb and not request.overlap and \
                request.mem_per_node_mb > max(node.mem_mb for node in self.nodes):
            raise StepRefused(errors.ESLURM_INVALID_TASK_MEMORY)
        never_by_gres = 0
        for index, node in enumerate(self.nodes):
            if node.name in request.exclude or (request.feature and request.feature not in node.features):
                continue
            usable = node.cpus
            if not request.overlap:
                if request.whole and node.cpus_used:
                    usable = 0
                    self.blocked_nodes += 1
                else:
                    usable = max(0, usable - node.cpus_used)
                    self.blocked_nodes += not usable
                self.blocked_cpus += node.cpus_used
            self.usable[index] = usable
            if not usable:
                continue
            possible, now, reason = self._limited(node, usable)
            self.usable[index] = now
            never_by_gres += possible == 0 and reason == errors.ESLURM_INVALID_GRES
            if now // (per_task or 1) == 0:
                if request.min_nodes == len(self.nodes):
                    if possible // (per_task or 1) == 0 and reason != errors.ESLURM_INVALID_TASK_MEMORY:
                        raise StepRefused(reason)
                    raise StepRefused(errors.ESLURM_NODES_BUSY)
                self.mem_blocked_nodes += 1
            else:
                self.available.add(index)
            self.mem_blocked_cpus += possible - now
        if never_by_gres > len(self.nodes) - request.min_nodes:
            raise StepRefused(errors.ESLURM_INVALID_GRES)
        if request.feature and not any(request.feature in node.features for node in self.nodes):
            raise StepRefused(errors.ESLURM_INVALID_FEATURE)

    def _limited(self, node: NodeUse, usable: int) -> tuple[int, int, int]:
        """(CPUs ever possible, CPUs possible now, the error when they do not do) by memory and gres."""
        request = self.request
        possible = now = usable
        reason = errors.ESLURM_NODES_BUSY
        free_mb = node.mem_mb if request.overlap else node.mem_mb - node.mem_used_mb
        if request.mem_per_cpu_mb:
            possible = min(possible, node.mem_mb // request.mem_per_cpu_mb)
            now = min(now, max(0, free_mb) // request.mem_per_cpu_mb)
        elif request.mem_per_node_mb:
            if node.mem_mb < request.mem_per_node_mb:
                possible = 0
            if free_mb < request.mem_per_node_mb:
                now = 0
        if now < usable:
            reason = errors.ESLURM_INVALID_TASK_MEMORY
        if request.gres_per_node or request.gres_per_task:
            wanted = dict(request.gres_per_node or ()) or dict(request.gres_per_task)
            for name, count in wanted.items():
                if len(matching(node.gres, name)) < count:
                    possible, now, reason = 0, 0, errors.ESLURM_INVALID_GRES
                elif not request.overlap and len(_free(node, name)) < count:
                    now = 0
        return possible, now, reason

    def _wanted(self) -> set[int]:
        """Nodes of -w. When more are named than needed, the search is limited to them."""
        request = self.request
        if not request.node_list:
            return set()
        by_name = {node.name: index for index, node in enumerate(self.nodes)}
        if any(name not in by_name for name in request.node_list):
            raise StepRefused(errors.ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE)
        named = {by_name[name] for name in request.node_list}
        if any(self.nodes[index].name in request.exclude for index in named):
            raise StepRefused(errors.ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE)
        if not named <= self.available:
            raise StepRefused(errors.ESLURM_NODES_BUSY if self.blocked_nodes or self.mem_blocked_nodes
                              else errors.ESLURM_INVALID_TASK_MEMORY)
        if request.distribution.base == "arbitrary":
            self.request = replace(request, min_nodes=len(named), max_nodes=max(request.max_nodes, len(named)))
        elif len(named) > request.max_nodes:
            raise StepRefused(errors.ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE)
        elif len(named) > request.min_nodes:
            self.available = named
            return set()
        self.available -= named
        return named

    def _settle_tasks(self, idle: set[int]) -> None:
        """The number of tasks when it is to be as many as fit."""
        request = self.request
        if request.num_tasks is not None:
            return
        candidates = self.available if request.overlap else idle
        if len(candidates) < request.min_nodes:
            raise StepRefused(errors.ESLURM_NODES_BUSY)
        per_task = request.cpus_per_task or 1
        counts = sorted((self.nodes[index].cpus for index in candidates), reverse=True)
        tasks = sum(count // per_task for count in counts[:request.max_nodes])
        if not tasks:
            raise StepRefused(errors.ESLURM_TOO_MANY_REQUESTED_CPUS)
        self.request = replace(request, num_tasks=tasks, cpu_count=tasks * per_task)

    def _settle_nodes(self) -> None:
        """On equal nodes a number of CPUs is a number of nodes."""
        request = self.request
        if request.cpu_count and len({node.cpus for node in self.nodes}) == 1:
            needed = max(request.min_nodes, -(-request.cpu_count // self.nodes[0].cpus))
            most = needed if request.distribution.pack else request.max_nodes
            if most < needed:
                raise StepRefused(errors.ESLURM_TOO_MANY_REQUESTED_CPUS)
            self.request = replace(request, min_nodes=needed, max_nodes=most)

    def _add_nodes(self, picked: set[int], idle: set[int]) -> None:
        request = self.request
        if len(self.available) + len(picked) < request.min_nodes:
            raise StepRefused(errors.ESLURM_NODES_BUSY)
        for pool in (idle, self.available):
            lacking = request.min_nodes - len(picked)
            if lacking <= 0:
                break
            if len(pool) < lacking:
                if pool is self.available:
                    raise self._too_small(len(picked))
                continue
            cpus = max(0, request.cpu_count - sum(self.usable[index] for index in picked))
            chosen = self._choose(pool - picked, lacking, cpus)
            if chosen is None:
                if pool is self.available:
                    raise self._too_small(len(pool) + len(picked))
                continue
            picked |= chosen
            self.available -= chosen
        if not request.cpu_count:
            return
        for index in sorted(self.available):
            if sum(self.usable[chosen] for chosen in picked) >= request.cpu_count or len(picked) >= request.max_nodes:
                break
            if self.usable[index]:
                picked.add(index)
        have = sum(self.usable[index] for index in picked)
        if request.cpu_count > have:
            if request.cpu_count <= have + self.mem_blocked_cpus + self.blocked_cpus:
                raise StepRefused(errors.ESLURM_NODES_BUSY)
            raise StepRefused(errors.ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE)

    def _too_small(self, candidates: int) -> StepRefused:
        request = self.request
        if request.max_nodes <= candidates and not self.mem_blocked_cpus and not self.blocked_cpus:
            return StepRefused(errors.ESLURM_TOO_MANY_REQUESTED_CPUS)
        if self.mem_blocked_cpus or request.min_nodes <= candidates + self.mem_blocked_nodes + self.blocked_nodes:
            return StepRefused(errors.ESLURM_NODES_BUSY)
        return StepRefused(errors.ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE)

    def _choose(self, pool: set[int], count: int, cpus: int) -> set[int] | None:
        """``count`` nodes with ``cpus`` in all, round robin from where the last step ended."""
        ordered = sorted(pool)
        start = self.next_node if self.next_node <= (ordered[-1] if ordered else 0) else 0
        ordered = [index for index in ordered if index >= start] + [index for index in ordered if index < start]
        if cpus <= count:
            return set(ordered[:count])
        target = -(-cpus // count)
        large = [index for index in ordered if self.usable[index] >= target]
        small = sorted((index for index in ordered if self.usable[index] < target),
                       key=lambda index: -self.usable[index])
        chosen: list[int] = []
        for index in large:
            chosen.append(index)
            if len(chosen) == count:
                return set(chosen) if sum(self.usable[one] for one in chosen) >= cpus else None
        chosen += small[:count - len(chosen)]
        enough = len(chosen) == count and sum(self.usable[index] for index in chosen) >= cpus
        return set(chosen) if enough else None


def _cpus_per_task(request: StepRequest, nodes: Sequence[NodeUse]) -> int:
    """Given, or implied by an even division that fits the nodes; 0 when neither."""
    if request.cpus_per_task:
        return request.cpus_per_task
    if request.num_tasks is None or not request.cpu_count or request.cpu_count % request.num_tasks:
        return 0
    per_task = request.cpu_count // request.num_tasks
    if any(per_task > node.cpus for node in nodes):
        return 0
    return per_task if request.num_tasks <= sum(node.cpus // per_task for node in nodes) else 0


def _allocate(request: StepRequest, nodes: Sequence[NodeUse], picked: list[int], next_node: int) -> StepPlan:
    assert request.num_tasks is not None
    if request.num_tasks > len(picked) * request.max_tasks_per_node:
        raise StepRefused(errors.ESLURM_BAD_TASK_COUNT)
    per_task = _cpus_per_task(request, nodes)
    room = []
    for index in picked:
        node = nodes[index]
        cpus = node.cpus if request.overlap else node.cpus - node.cpus_used
        if request.mem_per_cpu_mb:
            cpus = min(cpus, (node.mem_mb - node.mem_used_mb) // request.mem_per_cpu_mb)
        if cpus <= 0:
            raise StepRefused(errors.ESLURM_INVALID_TASK_MEMORY if request.mem_per_cpu_mb or request.mem_per_node_mb
                              else errors.SLURM_ERROR, takes_number=True)
        room.append(cpus)
    try:
        if request.distribution.base == "arbitrary" and request.node_list:
            tasks = lay_out_arbitrary([nodes[index].name for index in picked], request.node_list, request.num_tasks)
        else:
            limit = 0 if request.distribution.base == "plane" else request.ntasks_per_node
            tasks = lay_out(request.num_tasks, task_capacity(room, per_task, limit), request.distribution)
    except LayoutError:
        raise StepRefused(errors.ESLURM_BAD_TASK_COUNT, takes_number=True) from None
    shares = []
    for index, ids in zip(picked, tasks):
        if not ids:
            raise StepRefused(errors.ESLURM_BAD_TASK_COUNT, takes_number=True)
        shares.append(_share(request, nodes[index], index, tuple(ids), per_task or 1))
    return StepPlan(_spread_gres(request, nodes, shares), picked[-1] + 1)


def _share(request: StepRequest, node: NodeUse, index: int, tasks: tuple[int, ...], per_task: int) -> StepShare:
    cpus = node.cpus if request.whole else len(tasks) * per_task
    if request.mem_per_cpu_mb:
        mem_mb = counted_mb = request.mem_per_cpu_mb * cpus
    elif request.mem_per_node_mb:
        mem_mb = counted_mb = request.mem_per_node_mb
    else:
        mem_mb, counted_mb = node.mem_mb, 0
    return StepShare(index, node.name, tasks, cpus, mem_mb, 0 if request.overlap else cpus,
                     0 if request.overlap else counted_mb, {})


def _spread_gres(request: StepRequest, nodes: Sequence[NodeUse], shares: list[StepShare]) -> tuple[StepShare, ...]:
    """Devices of each node: the job's, or as many of the free ones as were asked for."""
    result = []
    left = dict(request.gres_per_step)
    for position, share in enumerate(shares):
        node = nodes[share.node_index]
        if request.gres_per_node == () and not request.gres_per_step and not request.gres_per_task:
            wanted: dict[str, int] | None = {}
        elif request.gres_per_step and not request.gres_per_node:
            wanted = {}
            for name, count in left.items():
                later = len(shares) - position - 1
                fair = -(-count // (later + 1))
                wanted[name] = min(count, max(fair, 1 if count else 0), len(matching(node.gres, name)))
                left[name] = count - wanted[name]
        elif request.gres_per_task and not request.gres_per_node:
            wanted = {name: count * len(share.tasks) for name, count in request.gres_per_task}
        else:
            wanted = None if request.gres_per_node is None else dict(request.gres_per_node)
        result.append(replace(share, gres=_take(request, node, wanted)))
    return tuple(result)


def _take(request: StepRequest, node: NodeUse, wanted: dict[str, int] | None) -> dict[str, tuple[int, ...]]:
    if wanted is None:
        return dict(node.gres)
    taken: dict[str, tuple[int, ...]] = {}
    for name, count in wanted.items():
        free = matching(node.gres, name) if request.overlap else _free(node, name)
        if len(free) < count:
            raise StepRefused(errors.ESLURM_NODES_BUSY)
        for kind, device in free[:count]:
            taken[kind] = (*taken.get(kind, ()), device)
    return taken


def matching(gres: dict[str, tuple[int, ...]], name: str) -> list[tuple[str, int]]:
    """Devices of ``gpu`` (any type) or ``gpu:a100``."""
    return [(kind, device) for kind, devices in gres.items() if kind == name or kind.startswith(name + ":")
            for device in devices]


def _free(node: NodeUse, name: str) -> list[tuple[str, int]]:
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
            node.gres_used = node.gres_used | devices if sign > 0 else node.gres_used - devices
