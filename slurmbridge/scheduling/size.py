"""The size of a job as Slurm derives it from a request: node, CPU and task counts, and TRES asked for and allocated.

Pure functions from JobRequest to Shape, and from Shape (or shares) to what scontrol and sacct show. The rules are those
of the client (which guesses tasks from nodes) followed by those of slurmctld (which raises CPUs to fit the tasks).
"""
from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from slurmbridge.scheduling import licensing
from slurmbridge.scheduling.columns import ClusterColumns
from slurmbridge.scheduling.facts import NodeShare, Partition
from slurmbridge.scheduling.shape import GresRequest, Shape
from slurmbridge.slurm.hostlist import expand
from slurmbridge.slurm.jobspec import JobRequest

ANY_TASKS_PER_CORE = 0xFFFF
"""--hint=multithread: as many tasks on a core as it has threads."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a partition and slurm.conf add to a request. ``nodes_by_default``: MinNodes of the partition;
    ``nodes_active``: how many nodes the cluster has (0: not known)."""

    mem_per_cpu_mb: int | None = None
    mem_per_node_mb: int | None = None
    max_mem_per_cpu_mb: int | None = None
    nodes_by_default: int = 1
    nodes_active: int = 0
    cpus_per_gpu: int = 0                     # DefCpuPerGPU, DefMemPerGPU; 0: none
    mem_per_gpu_mb: int = 0
    one_task_per_core: bool = False           # CR_ONE_TASK_PER_CORE


class SizeError(ValueError):
    """The request cannot be sized; ``args[0]`` is the errno name (ESLURM_INVALID_GRES, ESLURM_INVALID_NODE_COUNT)."""


def defaults_of(partition: Partition, def_mem_per_cpu_mb: int | None = None, def_mem_per_node_mb: int | None = None,
                max_mem_per_cpu_mb: int | None = None, nodes_active: int = 0, cpus_per_gpu: int | None = None,
                mem_per_gpu_mb: int | None = None, one_task_per_core: bool = False) -> Defaults:
    """The partition's own values win over slurm.conf's."""
    cpu, node = partition.def_mem_per_cpu_mb, partition.def_mem_per_node_mb
    if cpu is None and node is None:
        cpu, node = def_mem_per_cpu_mb, def_mem_per_node_mb
    return Defaults(cpu, node, partition.max_mem_per_cpu_mb or max_mem_per_cpu_mb, max(1, partition.min_nodes),
                    nodes_active, partition.def_cpu_per_gpu or cpus_per_gpu or 0,
                    partition.def_mem_per_gpu_mb or mem_per_gpu_mb or 0, one_task_per_core)


def shape_of(request: JobRequest, defaults: Defaults, licenses: tuple[tuple[str, int], ...] = ()) -> Shape:
    """Raises SizeError."""
    node_list = tuple(dict.fromkeys(expand(request.node_list))) if request.node_list else ()
    min_nodes, max_nodes = _nodes(request, node_list, defaults)
    num_tasks = _tasks(request, min_nodes)
    cpt = max(1, request.cpus_per_task or 1)
    min_cpus = _cpus(request, num_tasks, cpt)
    gres = _gpu_defaults(request, parse_gres(request), defaults)
    if gres:
        gres = _for_tasks(request, gres, num_tasks or (
            min_nodes if min_nodes == max_nodes and _follows_nodes(request, gres) else 0))
        num_tasks, min_cpus, max_nodes, cpt = _with_gres(request, gres, num_tasks, min_cpus, min_nodes, max_nodes, cpt)
    if request.min_cpus_exact and request.min_cpus:
        min_cpus = request.min_cpus
    per_node = request.ntasks_per_node or 0
    least = max(request.min_cpus_per_node or 1, cpt)
    if per_node and not request.overcommit and num_tasks > 1:
        least = max(least, cpt * per_node)
    if request.spread_job and not max_nodes and num_tasks:
        max_nodes = min(num_tasks, defaults.nodes_active or num_tasks)
    mem_node, mem_cpu = _memory(request, gres, defaults)
    shape = Shape(
        min_nodes=min_nodes, max_nodes=max_nodes, nodes_given=request.nodes_given, node_counts=request.node_counts,
        min_cpus=min_cpus, num_tasks=num_tasks, tasks_given=num_tasks > 0, cpus_per_task=cpt,
        cpus_per_task_given=request.cpus_per_task is not None, ntasks_per_node=per_node,
        ntasks_per_socket=request.ntasks_per_socket or 0, ntasks_per_core=_tasks_per_core(request, defaults),
        ntasks_per_board=request.ntasks_per_board or 0, min_cpus_per_node=least,
        sockets_per_node=request.sockets_per_node or 0, cores_per_socket=request.cores_per_socket or 0,
        threads_per_core=request.threads_per_core or 0, core_spec=request.core_spec or 0,
        thread_spec=request.thread_spec or 0, mem_per_node_mb=mem_node, mem_per_cpu_mb=mem_cpu,
        memory_given=request.mem_per_node_mb is not None or request.mem_per_cpu_mb is not None,
        tmp_disk_mb=request.tmp_disk_mb or 0, gres=gres,
        gres_flags=frozenset((request.gres_flags or "").replace(" ", "").split(",")) - {""},
        constraint=request.constraint, prefer=request.prefer, node_list=node_list,
        exclude=tuple(dict.fromkeys(expand(request.exclude))) if request.exclude else (), contiguous=request.contiguous,
        whole_node="exclusive" if (request.core_spec, request.thread_spec) != (None, None) else request.exclusive,
        oversubscribe=request.oversubscribe, overcommit=request.overcommit,
        spread_job=request.spread_job, use_min_nodes=request.use_min_nodes, switches=request.switches or 0,
        switches_wait_s=request.switches_wait_s or 0,
        segment_size=request.segment_size or 0, distribution=request.distribution,
        plane_size=request.plane_size or 0, licenses=licenses,
        license_choice=licensing.is_choice(request.licenses or ""), reservation=request.reservation,
        reservation_signal_s=(request.signal_before_s or 0) if request.signal_reservation else 0)
    return _under_memory_limit(shape, defaults)


def _tasks_per_core(request: JobRequest, defaults: Defaults) -> int:
    """0: not limited."""
    per_core = int(defaults.one_task_per_core) if request.ntasks_per_core is None else request.ntasks_per_core
    return 0 if per_core == ANY_TASKS_PER_CORE else per_core


def _follows_nodes(request: JobRequest, gres: tuple[GresRequest, ...]) -> bool:
    """Whether devices per task mean one task a node, where no number of tasks was given."""
    return not request.cpus_per_task or any(r.cpus_per_gres for r in gres)


def _nodes(request: JobRequest, node_list: tuple[str, ...], defaults: Defaults) -> tuple[int, int]:
    least, most = request.min_nodes, request.max_nodes or 0
    if least is None and request.num_tasks is not None and request.ntasks_per_node:
        least = -(-request.num_tasks // request.ntasks_per_node)
    if least is None and node_list:
        least = len(node_list)
    if least is None:
        least = 1
    if least < defaults.nodes_by_default and (not most or most >= defaults.nodes_by_default):
        least = defaults.nodes_by_default
    if most and most < least:
        raise SizeError("ESLURM_INVALID_NODE_COUNT")
    return least, most


def _tasks(request: JobRequest, min_nodes: int) -> int:
    """Tasks of the job; 0: left open."""
    if request.num_tasks is not None and (request.num_tasks_given or not request.nodes_given):
        return request.num_tasks
    if request.ntasks_per_tres:
        return min_nodes * request.ntasks_per_tres
    if request.ntasks_per_node:
        return min_nodes * request.ntasks_per_node
    return 0


def _cpus(request: JobRequest, num_tasks: int, cpt: int) -> int:
    """Least CPUs of the whole job: the client's guess, raised to one per task (times -c)."""
    least = request.min_nodes or 1
    if request.overcommit:
        return max(least, 1)
    guess = request.num_tasks if request.num_tasks is not None else 1
    if request.num_tasks is None and request.nodes_given and request.max_nodes in (None, 0, request.min_nodes):
        guess = max(least, 1)
    if request.ntasks_per_node and request.num_tasks is None and request.max_nodes in (None, 0, request.min_nodes):
        guess = least * request.ntasks_per_node
    cpus = max(guess * cpt, request.min_cpus or 0)
    return num_tasks * cpt if num_tasks > cpus else cpus


_GRES = re.compile(r"(?:gres[/:])?(?P<name>[A-Za-z_][\w.-]*?)(?::(?P<type>[A-Za-z_][\w.-]*))?"
                   r"(?:[:=](?P<count>-?\d+)(?P<unit>[kKmMgGtT]?))?$")
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def _gres_items(text: str | None) -> list[tuple[str, str | None, int]]:
    """("gpu", "a100", 2) for every item of a TRES list that is a generic resource."""
    out = []
    for item in (text or "").split(","):
        item = item.strip()
        if not item or re.match(r"(cpu|mem|node|license|billing|bb)\b", item):
            continue
        found = _GRES.match(item)
        if not found:
            raise SizeError("ESLURM_INVALID_GRES")
        count = int(found["count"]) if found["count"] else 1
        count = 1 if count < 0 else count * _UNITS[found["unit"].lower() if found["unit"] else ""]
        out.append((found["name"], found["type"], count))
    return out


def parse_gres(request: JobRequest) -> tuple[GresRequest, ...]:
    """All generic resources of the request, one record per name and type, in the order Slurm finds them."""
    records: dict[tuple[str, str | None], GresRequest] = {}
    per_gres = request.ntasks_per_tres or 0
    sources = (("cpus_per_gres", request.cpus_per_tres), ("per_job", request.tres_per_job),
               ("per_node", request.tres_per_node), ("per_socket", request.tres_per_socket),
               ("per_task", request.tres_per_task), ("mem_per_gres_mb", request.mem_per_tres))
    for field, text in sources:
        for name, kind, count in _gres_items(text):
            record = records.get((name, kind), GresRequest(name, kind, ntasks_per_gres=per_gres))
            records[name, kind] = _set(record, field, count)
    if per_gres and not any(record.name == "gpu" and _asks(record) for record in records.values()):
        tasks = request.num_tasks if request.num_tasks is not None else (request.min_nodes or 1) * per_gres
        record = records.get(("gpu", None), GresRequest("gpu", None, ntasks_per_gres=per_gres))
        records["gpu", None] = replace(record, per_job=tasks // per_gres)
    return tuple(r for r in _merged(list(records.values())) if _asks(r))


def _set(record: GresRequest, field: str, count: int) -> GresRequest:
    changes: dict[str, Any] = {field: max(count, getattr(record, field))}
    return replace(record, **changes)


def _asks(record: GresRequest) -> bool:
    return bool(record.per_job or record.per_node or record.per_socket or record.per_task)


def _merged(records: list[GresRequest]) -> list[GresRequest]:
    """--cpus-per-gpu and --mem-per-gpu (without a type) belong to all typed records of the name."""
    out = []
    for record in records:
        typed = any(r.name == record.name and r.type for r in records)
        if record.type is None and typed and not _asks(record):
            continue
        general = next((r for r in records if r.name == record.name and r.type is None), None)
        if record.type and general is not None and not _asks(general):
            record = replace(record, cpus_per_gres=record.cpus_per_gres or general.cpus_per_gres,
                             mem_per_gres_mb=record.mem_per_gres_mb or general.mem_per_gres_mb)
        out.append(record)
    return out


def _for_tasks(request: JobRequest, gres: tuple[GresRequest, ...], num_tasks: int) -> tuple[GresRequest, ...]:
    """Devices per task are devices of the job once the tasks are known."""
    if request.ntasks_per_tres or not num_tasks:
        return gres
    return tuple(replace(r, per_job=r.per_job or r.per_task * num_tasks) for r in gres)


def _with_gres(request: JobRequest, gres: tuple[GresRequest, ...], num_tasks: int, min_cpus: int, min_nodes: int,
               max_nodes: int, cpt: int) -> tuple[int, int, int, int]:
    """Tasks, CPUs and node bounds that --gpus-per-task, --ntasks-per-gpu and --cpus-per-gpu imply."""
    if any(r.per_task for r in gres) and not num_tasks and min_nodes == max_nodes and _follows_nodes(request, gres):
        num_tasks = min_nodes
    if request.ntasks_per_tres:
        devices = sum(total_gres(r, min_nodes, num_tasks, request.sockets_per_node or 1)
                      for r in gres if r.name == "gpu")
        num_tasks = devices * request.ntasks_per_tres or num_tasks
    for r in gres:
        if r.per_job and max_nodes and r.per_job < max_nodes:
            max_nodes = r.per_job
        if r.cpus_per_gres and r.per_task and not request.cpus_per_task:
            cpt = r.cpus_per_gres * r.per_task
    wanted = sum(r.cpus_per_gres * total_gres(r, min_nodes, num_tasks, request.sockets_per_node or 1)
                 for r in gres if r.name == "gpu")
    min_cpus = max(min_cpus, wanted)
    if (request.cpus_per_task or cpt > 1) and num_tasks:
        min_cpus = max(min_cpus, cpt * num_tasks)
    return num_tasks, min_cpus, max_nodes, cpt


def total_gres(record: GresRequest, nodes: int, num_tasks: int, sockets: int) -> int:
    """Devices that the whole job asks for."""
    return max(record.per_job, record.per_node * nodes, record.per_socket * nodes * sockets,
               record.per_task * num_tasks)


def _gpu_defaults(request: JobRequest, gres: tuple[GresRequest, ...], defaults: Defaults) -> tuple[GresRequest, ...]:
    """DefCpuPerGPU where CPUs are asked neither by task nor by GPU; DefMemPerGPU where no memory is asked."""
    cpus = 0 if request.cpus_per_task else defaults.cpus_per_gpu
    memory = 0 if (request.mem_per_node_mb, request.mem_per_cpu_mb) != (None, None) else defaults.mem_per_gpu_mb
    if not (cpus or memory):
        return gres
    return tuple(record if record.name != "gpu" else replace(
        record, cpus_per_gres=record.cpus_per_gres or cpus, mem_per_gres_mb=record.mem_per_gres_mb or memory)
        for record in gres)


def _memory(request: JobRequest, gres: tuple[GresRequest, ...], defaults: Defaults) -> tuple[int | None, int | None]:
    """(per node, per CPU) in MB; exactly one is set unless memory follows devices."""
    if request.mem_per_node_mb is not None:
        return request.mem_per_node_mb, None
    if request.mem_per_cpu_mb is not None:
        return (None, request.mem_per_cpu_mb) if request.mem_per_cpu_mb else (0, None)
    if any(r.mem_per_gres_mb for r in gres):
        return None, None
    if defaults.mem_per_cpu_mb is not None:
        return None, defaults.mem_per_cpu_mb
    return defaults.mem_per_node_mb or 0, None


def _under_memory_limit(shape: Shape, defaults: Defaults) -> Shape:
    """MaxMemPerCPU: more memory per CPU than allowed is taken as more CPUs with less memory each."""
    limit = defaults.max_mem_per_cpu_mb
    if not limit or not shape.mem_per_cpu_mb or shape.mem_per_cpu_mb <= limit:
        return shape
    ratio = -(-shape.mem_per_cpu_mb // limit)
    cpt = shape.cpus_per_task * ratio
    shape = replace(shape, cpus_per_task=cpt, mem_per_cpu_mb=-(-shape.mem_per_cpu_mb // ratio))
    if shape.num_tasks:
        return replace(shape, min_cpus=shape.num_tasks * cpt)
    return replace(shape, min_cpus_per_node=max(shape.min_cpus_per_node, cpt), auto_min_cpus=True)


@dataclass(frozen=True, slots=True)
class PendingSize:
    """NumNodes (a range when ``max_nodes``), NumCPUs, NumTasks, MinCPUsNode of a pending job."""

    min_nodes: int
    max_nodes: int
    cpus: int
    tasks: int
    min_cpus_per_node: int

    @property
    def nodes_text(self) -> str:
        """As scontrol shows it: "2", "1-1", "1-3"."""
        if not self.max_nodes:
            return str(self.min_nodes)
        return f"{min(self.min_nodes, self.max_nodes)}-{self.max_nodes}"


def pending_size(shape: Shape, columns: ClusterColumns, partition: str, likely_nodes: int = 0) -> PendingSize:
    """``likely_nodes``: Plan.node_counts of the job, once a pass has looked at it."""
    cpus, cores = columns.largest.get(partition, (1, 1))
    tasks = shape.num_tasks
    most = shape.max_nodes
    if likely_nodes:
        least = likely_nodes
    elif shape.ntasks_per_node:
        least = max(tasks // shape.ntasks_per_node, shape.min_nodes)
    elif shape.cpus_per_task > 1:
        least = max(tasks // max(1, cpus // shape.cpus_per_task), shape.min_nodes)
    elif shape.ntasks_per_core:
        least = max(math.ceil(math.ceil(tasks / shape.ntasks_per_core) / cores), shape.min_nodes)
    else:
        least = max(-(-tasks // cpus), shape.min_nodes)
        most = max(least, most)
    return PendingSize(least, most, shape.min_cpus, tasks or shape.min_nodes, shape.min_cpus_per_node)


def requested_tres(shape: Shape, columns: ClusterColumns, partition: str) -> dict[str, int]:
    """ReqTRES without billing: "cpu", "mem" (MB), "node", "gres/gpu", "gres/gpu:a100", "license/x"."""
    out = {"cpu": shape.min_cpus, "mem": requested_memory_mb(shape, columns, partition), "node": shape.min_nodes}
    gres: dict[str, int] = {}
    for r in shape.gres:
        count = total_gres(r, shape.min_nodes, shape.num_tasks, shape.sockets_per_node or 1)
        gres[f"gres/{r.name}"] = gres.get(f"gres/{r.name}", 0) + count
        if r.type:
            gres[f"gres/{r.name}:{r.type}"] = gres.get(f"gres/{r.name}:{r.type}", 0) + count
    out.update(sorted(gres.items()))
    out.update({f"license/{name}": count for name, count in shape.licenses})
    return out


def requested_memory_mb(shape: Shape, columns: ClusterColumns, partition: str) -> int:
    """Memory of the whole job; --mem=0 counts as the memory of the partition's first node."""
    by_gres = [r for r in shape.gres if r.mem_per_gres_mb]
    if not shape.memory_given and by_gres:
        sockets = shape.sockets_per_node or 1
        count = (sum(r.per_job for r in by_gres) or sum(r.per_node for r in by_gres) * shape.min_nodes
                 or sum(r.per_socket for r in by_gres) * shape.min_nodes * sockets
                 or sum(r.per_task for r in by_gres) * max(1, shape.num_tasks))
        return max(r.mem_per_gres_mb for r in by_gres) * count
    if shape.mem_per_cpu_mb:
        return shape.mem_per_cpu_mb * shape.min_cpus
    per_node = shape.mem_per_node_mb or 0
    if not per_node:
        members = columns.partition_nodes.get(partition)
        if members is not None and members.any():
            first = int(members.argmax())
            per_node = int(columns.mem_mb[first] + columns.mem_spec_mb[first])
    return per_node * shape.min_nodes


def allocated_tres(shares: Sequence[NodeShare], licenses: tuple[tuple[str, int], ...] = ()) -> dict[str, int]:
    """AllocTRES without billing, in the order of requested_tres."""
    out = {"cpu": sum(s.cpus for s in shares), "mem": sum(s.mem_mb for s in shares), "node": len(shares)}
    gres: dict[str, int] = {}
    for share in shares:
        for name, kind, devices in share.gres:
            gres[f"gres/{name}"] = gres.get(f"gres/{name}", 0) + len(devices)
            if kind:
                gres[f"gres/{name}:{kind}"] = gres.get(f"gres/{name}:{kind}", 0) + len(devices)
    out.update(sorted(gres.items()))
    out.update({f"license/{name}": count for name, count in licenses})
    return out
