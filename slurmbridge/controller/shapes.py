"""What a job asks for, as the scheduler sees it, and the sizes that its record shows."""
from __future__ import annotations

import math
from dataclasses import replace

from slurmbridge.controller import nodes as node_states
from slurmbridge.controller.sharing import MOST
from slurmbridge.controller.world import World
from slurmbridge.scheduling import licensing, size
from slurmbridge.scheduling.facts import Partition
from slurmbridge.scheduling.shape import Shape
from slurmbridge.slurm import errors
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.slurm.hostlist import HostlistError
from slurmbridge.views.records import JobRecord


def defaults(world: World, partition: str) -> size.Defaults:
    conf = world.conf
    return size.defaults_of(world.columns.partitions[partition], conf.def_mem_per_cpu_mb, conf.def_mem_per_node_mb,
                            conf.max_mem_per_cpu_mb, len(world.nodes), conf.def_cpu_per_gpu, conf.def_mem_per_gpu_mb,
                            world.settings.one_task_per_core)


def shape_of(world: World, job: JobRecord, partition: str) -> Shape:
    """Kept by request: many jobs share theirs. Raises SlurmError for a request that has no size."""
    if job.avoid_nodes:
        return _avoiding(world, job, _shape_of(world, job, partition), partition)
    return _shape_of(world, job, partition)


def _avoiding(world: World, job: JobRecord, shape: Shape, partition: str) -> Shape:
    """Without the nodes that failed the job, where there are enough others."""
    members = world.columns.partitions[partition].nodes
    avoid = set(job.avoid_nodes) & members - set(shape.node_list)
    others = sum(name not in avoid and name not in shape.exclude and node_states.is_available(world.nodes[name])
                 for name in members if name in world.nodes)
    if not avoid or others < shape.min_nodes:
        return shape
    return world.shared.same(replace(shape, exclude=(*shape.exclude, *sorted(avoid - set(shape.exclude)))))


def _shape_of(world: World, job: JobRecord, partition: str) -> Shape:
    key = id(job.request), partition
    known = world.shapes.get(key)
    if known is not None:
        return known[1]
    try:
        shape = size.shape_of(job.request, defaults(world, partition),
                              tuple(licensing.counts(job.request.licenses or "").items()))
    except size.SizeError as error:
        raise SlurmError(getattr(errors, str(error.args[0]), errors.ESLURM_INVALID_NODE_COUNT)) from None
    except HostlistError:
        raise SlurmError(errors.ESLURM_INVALID_NODE_NAME) from None
    shape = world.shared.same(shape)
    if len(world.shapes) >= MOST:
        world.shapes.clear()
    world.shapes[key] = (job.request, shape)   # with the request, whose id is then nobody else's
    return shape


def size_requested(world: World, job: JobRecord, likely_nodes: int = 0) -> None:
    """Fills in what scontrol shows of a pending job's size; ``likely_nodes``: once a pass has looked.

    Raises SlurmError.
    """
    request = job.request
    first = job.partition.partition(",")[0]
    shape = shape_of(world, job, first)
    shown = size.pending_size(shape, world.columns, first, likely_nodes)
    job.num_nodes, job.num_cpus, job.num_tasks = shown.nodes_text, shown.cpus, shown.tasks
    job.min_nodes, job.max_nodes = shown.min_nodes, shown.max_nodes or None
    job.min_cpus_node = shown.min_cpus_per_node
    job.cpus_per_task = shape.cpus_per_task
    job.mem_per_node_mb, job.mem_per_cpu_mb = shape.mem_per_node_mb, shape.mem_per_cpu_mb
    job.tres_req = _with_billing(world, size.requested_tres(shape, world.columns, first), first)
    if request.min_nodes == 0:
        job.tres_req.pop("node", None)        # -N0: left to the number of tasks
    job.oversubscribe = _oversubscribe(shape.whole_node, request.oversubscribe, world.columns.partitions[first])


def size_allocated(world: World, job: JobRecord) -> None:
    """Fills in the size of a job that has its allocation."""
    shares = node_states.shares_of(job.allocation)
    partition = world.columns.partitions.get(job.partition)
    if partition is not None and (partition.forced or partition.over_subscribe == "EXCLUSIVE"):
        job.oversubscribe = "YES" if partition.forced else "NO"
    job.num_nodes = str(len(shares))
    job.num_cpus = sum(share.cpus for share in shares)
    tres = size.allocated_tres(shares, tuple(licensing.counts(job.licenses_alloc).items()))
    job.billable = world.priorities.billing(tres, job.partition)
    job.tres_alloc = _with_billing(world, tres, job.partition)


def _with_billing(world: World, tres: dict[str, int], partition: str) -> dict[str, int]:
    """The resources that accounting counts, with billing in its place, after node."""
    billing = math.floor(world.priorities.billing(tres, partition))
    result: dict[str, int] = {}
    counted = world.conf.accounting_storage_tres
    for name, count in tres.items():
        if name in counted:
            result[name] = count
        if name == "node":
            result["billing"] = billing
    return result


def _oversubscribe(exclusive: str | None, oversubscribe: bool, partition: Partition) -> str:
    """As scontrol shows it of a job that waits: what it asked for, else what its partition says."""
    if oversubscribe:
        return "YES"
    if exclusive is not None:
        return {"exclusive": "NO", "user": "USER", "mcs": "MCS", "topo": "TOPO"}.get(exclusive, "NO")
    if partition.exclusive_user:
        return "USER"
    return "YES" if partition.forced else "NO" if partition.over_subscribe == "EXCLUSIVE" else "OK"
