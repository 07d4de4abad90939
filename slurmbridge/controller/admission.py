"""Whether a job can ever run, and when it would."""
from __future__ import annotations

from dataclasses import replace

from slurmbridge.controller import job_texts, pass_input, queueing, shapes
from slurmbridge.controller.directory_checks import refused_by_partition
from slurmbridge.controller.world import World
from slurmbridge.scheduling import passes as scheduler
from slurmbridge.scheduling.facts import FOREVER_S
from slurmbridge.scheduling.queue import QueueColumns, QueueRow
from slurmbridge.scheduling.snapshot import REASONS
from slurmbridge.slurm import errors
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.slurm.jobspec import UNLIMITED_MIN
from slurmbridge.views.records import JobRecord
from slurmbridge.views.session import WillRun

MOST_ADMITTED = 10_000


def refusal(world: World, job: JobRecord) -> SlurmError | None:
    """Slurm's error for a job that none of its partitions can ever run. Else the job gets the reason it waits for."""
    if job.priority == 0:
        _show_refused_qos(world, job)
        return None
    if job.request.reservation and not world.reservation_book.may_start(job):
        return SlurmError(errors.ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE, details=("Problem using reservation",))
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
            kept_out = refused_by_partition(world.partitions[name], job.account, job.qos, world.accounting, world.conf)
            if answer.node_count and kept_out is None and not world.limits.holds_back(job, name):
                most = max(job.min_nodes, world.limits.most_nodes(job, name))
                shapes.size_requested(world, job, min(answer.node_count, most))
            if job.reason == "None" and kept_out is not None and kept_out[1] == "InvalidAccount":
                job.reason = "PartitionConfig"
            elif job.reason == "None":
                job.reason, job.reason_desc = word, answer.description
            return None
        if is_down:
            return None
        details = (answer.message,) if answer.message else ()
        error = SlurmError(getattr(errors, answer.error), details=details)
    if too_small and error is None and job.reason == "None":
        job.reason, job.reason_desc = "PartitionConfig", ""
    return error


def _show_refused_qos(world: World, job: JobRecord) -> None:
    """Of a job that is held, that its partition does not take its QOS is what it shows."""
    partition = world.partitions.get(job.partition)
    kept_out = partition and refused_by_partition(partition, job.account, job.qos, world.accounting, world.conf)
    if kept_out and kept_out[1] == "InvalidQOS":
        job.reason, job.reason_desc = kept_out[1:]


def _admission(world: World, job: JobRecord, partition: str) -> scheduler.Admission | scheduler.Refusal:
    """The scheduler's verdict on this shape, asked once until nodes or partitions change."""
    shape = shapes.shape_of(world, job, partition)
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
    for row in queueing.rows(world, probe):
        if not row.shape.magnet:
            queue.add(replace(_asked_only(world, row), eligible=True))
    snapshot = pass_input.snapshot(world, queue, limits=False)
    answers = (scheduler.will_run(snapshot, row) for row in queue.rows(job.job_id))
    first = next((answer for answer in answers if answer is not None), None)
    if first is None:
        raise SlurmError(errors.ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE)
    start_s = float(first.start_s + _work_before_s(world, job, first.partition))
    return WillRun(job.job_id, start_s, first.cpus, job_texts.hostlist(world, first.nodes), first.partition,
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
