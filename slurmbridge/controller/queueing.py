"""Between the job's record and the scheduler: sizes, shapes, queue rows, eligibility, file names, priorities.

Whatever changes a pending job calls ``refresh``; whatever starts or ends its wait calls ``enter`` or ``leave``.
"""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from slurmbridge.controller import magnets, pass_input
from slurmbridge.controller import nodes as node_states
from slurmbridge.controller.directory_checks import refused_by_partition
from slurmbridge.controller.jobs import note_wait, tasks_of
from slurmbridge.controller.sharing import MOST
from slurmbridge.controller.world import World
from slurmbridge.scheduling import config, size
from slurmbridge.scheduling import passes as scheduler
from slurmbridge.scheduling.columns import ClusterColumns
from slurmbridge.scheduling.facts import FOREVER_S, NodeSpec, Partition
from slurmbridge.scheduling.queue import QueueColumns, QueueRow
from slurmbridge.scheduling.shape import Shape
from slurmbridge.scheduling.snapshot import REASON_INDEX, REASONS, SchedulerSettings
from slurmbridge.scheduling.switches import switch_tree
from slurmbridge.slurm import errors, patterns
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.slurm.hostlist import HostlistError, compress
from slurmbridge.slurm.jobspec import UNLIMITED_MIN
from slurmbridge.slurm.settings import SlurmConf
from slurmbridge.slurm.spec_cores import specialized
from slurmbridge.views.records import JobRecord, NodeRecord, PartitionRecord
from slurmbridge.views.session import WillRun

NOT_ELIGIBLE = frozenset({"DependencyNeverSatisfied"})
MOST_ADMITTED = 10_000
LIMIT_WORDS = ("Assoc", "QOS", "Max")


# --- the cluster for the scheduler
def make_columns(conf: SlurmConf, nodes: Mapping[str, NodeRecord],
                 partitions: Mapping[str, PartitionRecord]) -> tuple[ClusterColumns, SchedulerSettings]:
    """Columns in the order of the node records, and the scheduler's settings."""
    columns = ClusterColumns([node_spec(record) for record in nodes.values()])
    columns.switches = switch_tree(conf.switches, columns.index)
    for record in partitions.values():
        columns.set_partition(scheduler_partition(record))
    return columns, config.settings_of(conf)


def node_spec(node: NodeRecord) -> NodeSpec:
    """What the scheduler needs of a node."""
    gres = tuple((*(name.split(":", 1) if ":" in name else (name, "")), count) for name, count in node.gres.items())
    return NodeSpec(
        node.name, node.sockets, node.cores_per_socket, node.threads_per_core, node.cpus, node.real_memory_mb,
        node.mem_spec_limit_mb, node.tmp_disk_mb, node.weight, node.usable_features, gres,  # type: ignore[arg-type]
        specialized(node.core_spec_count, node.cpu_spec_list, node.sockets, node.cores_per_socket,
                    node.threads_per_core))


def scheduler_partition(record: PartitionRecord) -> Partition:
    """What the scheduler needs of a partition."""
    word, _, share = record.over_subscribe.partition(":")
    shares = int(share) if share else 4 if word in ("YES", "FORCE") else 1
    return Partition(
        record.name, frozenset(record.nodes), record.priority_tier, record.state, record.min_nodes,
        record.max_nodes or 0,
        None if record.max_time_min is None else record.max_time_min * 60,
        None if record.default_time_min in (None, UNLIMITED_MIN) else record.default_time_min * 60,
        record.max_cpus_per_node or 0, record.max_cpus_per_socket or 0, word or "NO", shares,
        record.exclusive_user, record.lln, record.preempt_mode, record.def_mem_per_cpu_mb, record.def_mem_per_node_mb,
        record.max_mem_per_cpu_mb, record.max_mem_per_node_mb, record.def_cpu_per_gpu, record.def_mem_per_gpu_mb,
        "" if record.select_type_parameters == "NONE" else record.select_type_parameters)


def partition_changed(world: World, record: PartitionRecord) -> None:
    """A partition is new or changed: columns, priorities and limits follow."""
    closed = {name for name in record.nodes if (node := world.nodes.get(name)) is not None
              and record.name in node.closed_partitions}
    found = scheduler_partition(record)
    world.columns.set_partition(replace(found, nodes=found.nodes - closed) if closed else found)
    world.shapes.clear()
    world.admitted.clear()
    if world.priorities is not None:
        world.priorities.reload(world.conf, world.partitions, world.nodes)
        world.limits.changed()
        for job in world.jobs.pending.values():
            if record.name in job.partition.split(","):
                refresh(world, job)
    world.wake()


# --- sizes
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
                              tuple(config.licenses(job.request.licenses or "").items()))
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
    tres = size.allocated_tres(shares, tuple(config.licenses(job.request.licenses or "").items()))
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


# --- rows
def eligible(world: World, job: JobRecord) -> bool:
    """Not held, nothing it still waits for but resources."""
    return (job.priority != 0 and not job.dependency and job.reason not in NOT_ELIGIBLE
            and (job.eligible_s is None or job.eligible_s <= world.now())
            and (not job.request.reservation or world.reservation_book.may_start(job))
            and not (job.array_pending and job.array_max_running and free_tasks(world, job) <= 0))


def free_tasks(world: World, job: JobRecord) -> int:
    """How many tasks of the array may still start (%N)."""
    if not job.array_max_running:
        return tasks_of(job)
    return min(tasks_of(job), job.array_max_running - world.jobs.running_tasks(job.array_job_id))


def rows(world: World, job: JobRecord) -> list[QueueRow]:
    """The job's rows: one per partition that its account and QOS may use. Sets the reason where none may be."""
    now = world.now()
    can_start = eligible(world, job)
    names = qos_names(world, job)
    result = []
    refused: tuple[int, str, str] | None = None
    for name in job.partition.split(","):
        partition = world.partitions.get(name)
        if partition is None:
            continue
        limit = job.time_limit_min
        if limit is None:
            limit = partition.max_time_min
        limit_s = FOREVER_S if limit is None or limit == UNLIMITED_MIN else limit * 60
        for qos in names:
            kept_out = refused_by_partition(partition, job.account, qos, world.accounting, world.conf)
            if kept_out is not None:
                refused = kept_out
                continue
            result.append(QueueRow(
                job_id=job.job_id, partition=name, priority=row_priority(world, job, name, qos),
                submit_s=int(job.submit_s), shape=shape_of(world, job, name), time_limit_s=limit_s,
                time_min_s=(job.time_min_min or 0) * 60, uid=job.uid, subject=world.limits.subject(job, name, qos),
                tasks=max(1, free_tasks(world, job)), tier=partition.priority_tier, deadline_s=job.deadline_s or 0,
                qos=qos, array_job_id=job.array_job_id if job.array_task_id is not None else 0,
                array_task_id=-1 if job.array_task_id is None else job.array_task_id, time_waived=job.time_waived,
                reason=reason_code(job.reason), eligible=can_start,
                switch_wait_until_s=int(job.eligible_s or job.submit_s) + (job.request.switches_wait_s or 0),
                het_ids=job.het_job_ids if job.het_job_id else ()))
    if not result and refused is not None and can_start:
        job.reason, job.reason_desc = refused[1], refused[2]
    elif job.reason_desc and job.reason in ("InvalidQOS", "InvalidAccount"):
        job.reason, job.reason_desc = "None", ""
    if can_start:
        _gains_age(world, job, now)
    return [*result, *magnets.rows(world, job, result)]


def qos_names(world: World, job: JobRecord) -> list[str]:
    """The QOS that the job may run under: its own, then the others of its list (``-q low,high``) by priority."""
    text = job.request.qos or ""
    if "," not in text:
        return [job.qos]
    known = world.accounting.qos
    names = [name for name in dict.fromkeys(text.lower().split(",")) if name in known]
    return sorted(names, key=lambda name: (name != job.qos, -known[name].priority)) or [job.qos]


def row_priority(world: World, job: JobRecord, partition: str, qos: str) -> int:
    """The job's priority in the partition under the QOS."""
    priority = job.partition_priorities.get(partition, job.priority)
    if qos == job.qos or job.priority_fixed or not priority:
        return priority
    return max(1, priority + world.priorities.qos_difference(job.qos, qos))


def reason_code(word: str) -> int:
    """Index into REASONS of what a job shows; the words of limits are one."""
    code = REASON_INDEX.get(word)
    if code is None:
        code = REASON_INDEX["AccountingPolicy"] if word.startswith(LIMIT_WORDS) else 0
    return code


def enter(world: World, job: JobRecord) -> None:
    """A job begins to wait."""
    if job.avoid_nodes:
        world.avoiding.add(job.job_id)
    if job.priority == 0:
        world.priorities.track(job)
    else:
        _set_eligible(world, job)
        world.priorities.initial(job, world.now())
    for row in rows(world, job):
        world.queue.add(row)


def nodes_changed(world: World) -> None:
    """Jobs that avoid nodes may have to take them after all, or need not any more."""
    for job_id in list(world.avoiding):
        job = world.jobs.pending.get(job_id)
        if job is None:
            world.avoiding.discard(job_id)
        else:
            refresh(world, job)


def leave(world: World, job: JobRecord) -> None:
    """A job waits no more."""
    world.queue.remove(job.job_id)
    world.queue.listed_after.pop(job.job_id, None)
    world.priorities.forget(job.job_id)


def refresh(world: World, job: JobRecord) -> None:
    """Something of a pending job changed."""
    if job.job_id not in world.jobs.pending:
        return
    world.priorities.track(job)
    if job.array_pending and job.array_max_running:
        if free_tasks(world, job) <= 0:
            if job.priority and not job.dependency:
                job.reason, job.reason_desc = "JobArrayTaskLimit", ""
                if job.eligible_s is not None and job.eligible_s <= world.now():
                    job.eligible_s = None     # what is left becomes eligible when there is room again
            note_wait(job)
        elif job.reason == "JobArrayTaskLimit":
            job.reason = "None"
            if job.eligible_s is None:
                job.eligible_s = world.now()
    new = rows(world, job)
    if new:
        world.queue.replace(new)
    else:
        world.queue.remove(job.job_id)


def becomes_eligible(world: World, job: JobRecord) -> None:
    """A held job was released, a begin time moved: what it waits for now, and its priority."""
    now = world.now()
    begin = job.request.begin_s or 0
    if begin > now:
        job.eligible_s = float(begin)
    elif job.eligible_s is not None and job.eligible_s > now and job.reason != "BeginTime":
        job.eligible_s = None
    if job.dependency:
        job.reason = "Dependency"
    elif job.eligible_s is not None and job.eligible_s > now:
        job.reason, job.start_s = "BeginTime", job.eligible_s
    _set_eligible(world, job)
    if job.priority and not job.priority_fixed:
        world.priorities.initial(job, now)
    refresh(world, job)


def _set_eligible(world: World, job: JobRecord) -> None:
    now = world.now()
    if job.priority and not job.dependency and (job.eligible_s is None or job.eligible_s <= now):
        _gains_age(world, job, now)


def _gains_age(world: World, job: JobRecord, now_s: float) -> None:
    """The job is eligible; where the number of jobs that gain age is limited, passes choose them."""
    if job.eligible_s is None:
        job.eligible_s = now_s
    if job.accrue_s is None and not world.accrual.limited:
        job.accrue_s = now_s


def reprioritize(world: World, job: JobRecord) -> None:
    """The job's priority changed and nothing else."""
    queue = world.queue
    for at in queue.rows(job.job_id):
        queue.priority[at] = row_priority(world, job, queue.partitions[queue.partition[at]], queue.qoses[queue.qos[at]])


def split(world: World, job: JobRecord, task: int) -> JobRecord:
    """One task leaves a pending array and waits on its own."""
    record = world.jobs.split(job, task)
    if record is not job:
        world.queue.listed_after[job.job_id] = record.job_id
        record.db_index = world.new_db_index()
        world.limits.job_entered_queue(record)
        world.limits.job_entered_queue(job)
        enter(world, record)
        world.journal.job(job)
    name_files(world, record)
    refresh(world, job)
    world.journal.job(record)
    return record


def drop_tasks(world: World, job: JobRecord, tasks: int) -> None:
    """Tasks (a bitmap) that are cancelled out of a waiting array leave no record, as in Slurm."""
    world.jobs.drop(job, tasks)
    world.limits.job_entered_queue(job)
    refresh(world, job)
    world.journal.job(job)


# --- answers for submissions
def refusal(world: World, job: JobRecord) -> SlurmError | None:
    """Slurm's error for a job that none of its partitions can ever run. Else the job gets the reason it waits for."""
    if job.priority == 0:
        return None
    error: SlurmError | None = None
    too_small = False                         # a partition that is too small for the job: another may take it
    for name in job.partition.split(","):
        is_down = world.partitions[name].state == "DOWN"
        if is_down and job.reason == "None":
            job.reason = "PartitionDown"
        answer = _admission(world, job, name)
        if isinstance(answer, scheduler.Admission):
            word = REASONS[answer.reason]
            if word == "PartitionConfig" and "," in job.partition:
                too_small = True
                continue
            if answer.node_count and not world.limits.holds_back(job, name):
                size_requested(world, job, answer.node_count)
            if job.reason == "None":
                job.reason, job.reason_desc = word, answer.description
            return None
        if is_down:
            return None
        details = (answer.message,) if answer.message else ()
        error = SlurmError(getattr(errors, answer.error), details=details)
    if too_small and error is None and job.reason == "None":
        job.reason, job.reason_desc = "PartitionConfig", ""
    return error


def _admission(world: World, job: JobRecord, partition: str) -> scheduler.Admission | scheduler.Refusal:
    """The scheduler's verdict on this shape, asked once until nodes or partitions change."""
    shape = shape_of(world, job, partition)
    limit = job.time_limit_min
    known = world.admitted.get((shape, partition, job.qos))
    most = world.partitions[partition].max_time_min
    if known is not None and not (limit and most and limit > most) and not world.reservations:
        return known
    answer = scheduler.admit(pass_input.snapshot(world, limits=False), shape, partition, uid=job.uid,
                             time_limit_s=FOREVER_S if limit is None or limit == UNLIMITED_MIN else limit * 60,
                             qos=job.qos)
    if not (limit and most and limit > most):
        if len(world.admitted) > MOST_ADMITTED:
            world.admitted.clear()
        world.admitted[shape, partition, job.qos] = answer
    return answer


def will_run(world: World, job: JobRecord) -> WillRun:
    """When and where the job would start. Raises SlurmError where it never would."""
    error = refusal(world, replace(job, priority=job.priority or 1))
    if error is not None:
        raise SlurmError(error.code)
    queue = QueueColumns()
    probe = replace(job, priority=job.priority or 0x7FFFFFFF, array_pending=None, dependency="", reason="None")
    for row in rows(world, probe):
        if not row.shape.magnet:
            queue.add(replace(_asked_only(world, row), eligible=True))
    snapshot = pass_input.snapshot(world, queue, limits=False)
    answers = (scheduler.will_run(snapshot, row) for row in queue.rows(job.job_id))
    first = next((answer for answer in answers if answer is not None), None)
    if first is None:
        raise SlurmError(errors.ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE)
    start_s = float(first.start_s + _work_before_s(world, job, first.partition))
    return WillRun(job.job_id, start_s, first.cpus, hostlist(world, first.nodes), first.partition,
                   tuple(getattr(first, "preempted", ())))


def _asked_only(world: World, row: QueueRow) -> QueueRow:
    """A test looks at no preferred features, and at no other nodes than those that were named."""
    shape = row.shape
    if shape.constraint and "[" in shape.constraint:
        shape = replace(shape, constraint=None)       # what is chosen among, Slurm's test passes over
    elif not shape.prefer and not shape.node_list:
        return row
    others = tuple(name for name in world.nodes if name not in shape.node_list) if shape.node_list else ()
    return replace(row, shape=replace(shape, prefer=None, exclude=shape.exclude + others))


def _work_before_s(world: World, job: JobRecord, name: str) -> int:
    """The work of pending jobs of the partition with no less priority, spread over all its CPUs."""
    partition = world.partitions[name]
    cpus = sum(world.nodes[node].cpus for node in partition.nodes)
    per_node = max(1, cpus // max(1, len(partition.nodes)))
    longest = 0xFFFFFFFF if partition.max_time_min is None else partition.max_time_min
    work = 0
    for other in world.jobs.pending.values():
        if other.partition.partition(",")[0] == name and other.priority >= job.priority and other.job_id != job.job_id:
            limit = longest if other.time_limit_min is None else other.time_limit_min
            work += max(other.num_cpus, other.min_nodes * per_node) * limit
    return work // max(1, cpus) * 60


# --- texts
def name_files(world: World, job: JobRecord) -> None:
    """StdIn, StdOut and StdErr as scontrol shows them."""
    request = job.request
    if not request.batch:
        job.std_in = job.std_out = job.std_err = ""
        return
    default = "slurm-%A_%a.out" if job.array_job_id else "slurm-%j.out"

    def expand(pattern: str | None) -> str:
        if not pattern:
            return ""
        if "%" not in pattern and "\\" not in pattern:
            return pattern if pattern.startswith("/") else f"{request.work_dir.rstrip('/')}/{pattern}"
        task = job.array_task_id if job.array_task_id is not None else patterns.NO_TASK
        return patterns.expand(pattern, job_id=job.job_id, work_dir=request.work_dir or "/",
                               array_job_id=job.array_job_id, array_task_id=task,
                               user_name=job.user_name, job_name=job.name, restarts=job.restarts,
                               node_name=job.batch_host or "(null)")
    job.std_out = expand(default if request.std_out is None else request.std_out)
    job.std_err = expand(request.std_err)
    job.std_in = expand(request.std_in) or "/dev/null"


@lru_cache(maxsize=4096)
def _compressed(names: tuple[str, ...]) -> str:
    return compress(names)


def hostlist(world: World, names: Sequence[str]) -> str:
    """Node names as Slurm writes them, in the cluster's order."""
    return _compressed(tuple(names))


