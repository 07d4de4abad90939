"""Where a step of a job runs: its nodes, CPUs, memory and GPUs within the allocation, next to the steps that run.

Pure. What Slurm's step manager decides is decided here in the same order, so that the same requests wait, are refused
with the same error, or get the same nodes (srun(1): --exact, --overlap, --relative, --mem, ...).
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from slurmbridge.runtime.stepshares import allocate
from slurmbridge.runtime.steptypes import NodeUse, StepPlan, StepRefused, StepRequest, cpus_per_task, free, matching
from slurmbridge.slurm import errors


def plan(request: StepRequest, nodes: Sequence[NodeUse], next_node: int = 0) -> StepPlan:
    """Raises StepRefused."""
    search = _Search(request, nodes, next_node)
    picked = search.pick()
    return allocate(search.request, nodes, picked, next_node)


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
        if request.feature and not any(request.feature in node.features for node in self.nodes):
            raise StepRefused(errors.ESLURM_INVALID_FEATURE)
        self._check_cpus_per_gpu()
        if request.gres_per_node != () and any(sum(len(matching(node.gres, name)) for node in self.nodes) < count
                                               for name, count in request.gres_per_step):
            raise StepRefused(errors.ESLURM_INVALID_GRES)
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

    def _check_cpus_per_gpu(self) -> None:
        request = self.request
        if not request.cpus_per_gpu:
            return
        if not any(matching(node.gres, "gpu") for node in self.nodes):
            raise StepRefused(errors.ESLURM_INVALID_GRES)
        if request.gres_per_node == ():
            raise StepRefused(errors.ESLURM_INVALID_GRES, note="cpus_per_gres also requires specifying the same gres")

    def _find_available(self) -> None:
        request = self.request
        per_task = cpus_per_task(request, self.nodes)
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
                elif not request.overlap and len(free(node, name)) < count:
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
