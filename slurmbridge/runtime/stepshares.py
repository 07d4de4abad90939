"""What a step gets on the nodes that were picked for it: tasks, CPUs, memory and devices. Pure; see stepplan."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from slurmbridge.runtime.layout import LayoutError, lay_out, lay_out_arbitrary, task_capacity
from slurmbridge.runtime.steptypes import (
    NodeUse,
    StepPlan,
    StepRefused,
    StepRequest,
    StepShare,
    cpus_per_task,
    free,
    matching,
)
from slurmbridge.slurm import errors


def allocate(request: StepRequest, nodes: Sequence[NodeUse], picked: list[int], next_node: int) -> StepPlan:
    assert request.num_tasks is not None
    if request.num_tasks > len(picked) * request.max_tasks_per_node:
        raise StepRefused(errors.ESLURM_BAD_TASK_COUNT)
    per_task = cpus_per_task(request, nodes)
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
    cpus = node.cpus if request.whole else min(len(tasks) * per_task, node.cpus)
    if request.mem_per_cpu_mb:
        mem_mb = counted_mb = request.mem_per_cpu_mb * cpus
    elif request.mem_per_node_mb:
        mem_mb = counted_mb = request.mem_per_node_mb
    else:
        mem_mb, counted_mb = node.mem_mb, 0
    return StepShare(index, node.name, tasks, cpus, mem_mb, 0 if request.overlap else cpus,
                     0 if request.overlap else counted_mb, {}, _cpu_ids(node, cpus))


def _cpu_ids(node: NodeUse, count: int) -> tuple[int, ...]:
    """Free ones first."""
    by_use = sorted(node.cpu_ids, key=lambda cpu: cpu in node.cpu_ids_used)
    return tuple(sorted(by_use[:count]))


def _spread_gres(request: StepRequest, nodes: Sequence[NodeUse], shares: list[StepShare]) -> tuple[StepShare, ...]:
    """Devices of each node: the job's, or as many of the free ones as were asked for."""
    _check_total(request, nodes, shares)
    result = []
    left = dict(request.gres_per_step)
    for position, share in enumerate(shares):
        node = nodes[share.node_index]
        if request.gres_per_node == ():
            wanted: dict[str, int] | None = {}
        elif request.gres_per_step and not request.gres_per_node:
            wanted = {}
            for name, count in left.items():
                later = shares[position + 1:]
                fair = -(-count // (len(later) + 1))
                least = count - _room(nodes, later, name)
                wanted[name] = min(count, max(fair, least), len(matching(node.gres, name)))
                left[name] = count - wanted[name]
        elif request.gres_per_task and not request.gres_per_node:
            wanted = {name: count * len(share.tasks) for name, count in request.gres_per_task}
        else:
            wanted = None if request.gres_per_node is None else dict(request.gres_per_node)
        result.append(_with_devices(request, node, share, _take(request, node, wanted)))
    return tuple(result)


def _room(nodes: Sequence[NodeUse], shares: Sequence[StepShare], name: str) -> int:
    return sum(len(matching(nodes[share.node_index].gres, name)) for share in shares)


def _check_total(request: StepRequest, nodes: Sequence[NodeUse], shares: Sequence[StepShare]) -> None:
    """srun inherits SLURM_GPUS of its job, so that a step on fewer nodes may ask for more than they have."""
    if request.gres_per_node == ():
        return
    if any(_room(nodes, shares, name) < count for name, count in request.gres_per_step):
        raise StepRefused(errors.ESLURM_INVALID_GRES)
    tasks = sum(len(share.tasks) for share in shares)
    if any(_room(nodes, shares, name) < count * tasks for name, count in request.gres_per_task):
        raise StepRefused(errors.ESLURM_TOO_MANY_REQUESTED_CPUS)


def _take(request: StepRequest, node: NodeUse, wanted: dict[str, int] | None) -> dict[str, tuple[int, ...]]:
    if wanted is None:
        return dict(node.gres)
    taken: dict[str, tuple[int, ...]] = {}
    for name, count in wanted.items():
        devices = matching(node.gres, name) if request.overlap else free(node, name)
        if len(devices) < count:
            raise StepRefused(errors.ESLURM_NODES_BUSY)
        for kind, device in devices[:count]:
            taken[kind] = (*taken.get(kind, ()), device)
    return taken


def _with_devices(request: StepRequest, node: NodeUse, share: StepShare, gres: dict[str, tuple[int, ...]]) -> StepShare:
    """The share with its devices, and with the CPUs that they bring (--cpus-per-gpu)."""
    gpus = sum(len(devices) for kind, devices in gres.items() if kind.partition(":")[0] == "gpu")
    if not (request.cpus_per_gpu and gpus) or request.whole:
        return replace(share, gres=gres)
    cpus = min(node.cpus, max(len(share.tasks), request.cpus_per_gpu * gpus))
    mem_mb = request.mem_per_cpu_mb * cpus if request.mem_per_cpu_mb else share.mem_mb
    share = replace(share, cpu_ids=_cpu_ids(node, cpus))
    counted_mb = mem_mb if request.mem_per_cpu_mb and not request.overlap else share.counted_mem_mb
    return replace(share, gres=gres, cpus=cpus, mem_mb=mem_mb, counted_cpus=0 if request.overlap else cpus,
                   counted_mem_mb=counted_mb)
