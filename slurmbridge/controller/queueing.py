"""A job's rows in the scheduler's queue, its eligibility and its priorities.

Whatever changes a pending job calls ``refresh``; whatever starts or ends its wait calls ``enter`` or ``leave``.
"""
from __future__ import annotations

from slurmbridge.controller import job_texts, magnets, shapes
from slurmbridge.controller.directory_checks import refused_by_partition
from slurmbridge.controller.jobs import note_wait, tasks_of
from slurmbridge.controller.world import World
from slurmbridge.scheduling.demand import lifted
from slurmbridge.scheduling.eligible import TIME_LIMIT, partition_reason
from slurmbridge.scheduling.facts import FOREVER_S
from slurmbridge.scheduling.queue import QueueRow
from slurmbridge.scheduling.snapshot import REASON_INDEX, REASONS
from slurmbridge.scheduling.state import NONE
from slurmbridge.slurm.jobspec import UNLIMITED_MIN
from slurmbridge.views.records import JobRecord

NOT_ELIGIBLE = frozenset({"DependencyNeverSatisfied"})
LIMIT_WORDS = ("Assoc", "QOS", "Max")
PARTITION_WORDS = frozenset({"PartitionNodeLimit", "PartitionTimeLimit", "PartitionDown", "PartitionInactive"})


def eligible(world: World, job: JobRecord) -> bool:
    """Not held, nothing it still waits for but resources."""
    return (job.priority != 0 and not job.dependency and job.reason not in NOT_ELIGIBLE
            and (job.eligible_s is None or job.eligible_s <= world.now())
            and (not job.request.reservation or world.reservation_book.may_start(job))
            and not (job.array_max_running and free_tasks(world, job) <= 0))


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
    refused: tuple[str, str] | None = None
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
                refused = _shown_of_refused(world, job, name, qos, limit_s, kept_out)
                continue
            result.append(QueueRow(
                job_id=job.job_id, partition=name, priority=row_priority(world, job, name, qos),
                submit_s=int(job.submit_s), shape=shapes.shape_of(world, job, name), time_limit_s=limit_s,
                time_min_s=(job.time_min_min or 0) * 60, uid=job.uid, subject=world.limits.subject(job, name, qos),
                tasks=max(1, free_tasks(world, job)), tier=partition.priority_tier, deadline_s=job.deadline_s or 0,
                qos=qos, array_job_id=job.array_job_id if job.array_task_id is not None else 0,
                array_task_id=-1 if job.array_task_id is None else job.array_task_id, time_waived=job.time_waived,
                reason=reason_code(job.reason), eligible=can_start,
                switch_wait_until_s=int(job.eligible_s or job.submit_s) + (job.request.switches_wait_s or 0),
                het_ids=job.het_job_ids if job.het_job_id else ()))
    if not result and refused is not None and can_start:
        job.reason, job.reason_desc = refused
    elif result and job.reason_desc and job.reason == "InvalidQOS":
        job.reason, job.reason_desc = "None" if job.priority else held_reason(job), ""
    if can_start:
        _gains_age(world, job, now)
    return [*result, *magnets.rows(world, job, result)]


def _shown_of_refused(world: World, job: JobRecord, partition: str, qos: str, limit_s: int,
                      kept_out: tuple[int, str, str]) -> tuple[str, str]:
    """(reason, text) of a job that the partition's lists keep out: limits of the partition come first, and of accounts
    nothing is said."""
    record = world.accounting.qos.get(qos)
    found = lifted(world.columns.partitions[partition], frozenset(record.flags if record is not None else ()))
    reason = partition_reason(world.columns, found, shapes.shape_of(world, job, partition))
    if reason == NONE and found.max_time_s is not None and limit_s > found.max_time_s:
        reason = TIME_LIMIT
    if reason != NONE:
        return REASONS[reason], ""
    if kept_out[1] == "InvalidAccount":
        return ("None" if job.reason in PARTITION_WORDS else job.reason), ""
    return kept_out[1], kept_out[2]


def held_reason(job: JobRecord) -> str:
    return "JobHeldAdmin" if job.held_by_admin else "JobHeldUser"


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
    if job.array_max_running or job.reason == "JobArrayTaskLimit":
        _within_throttle(world, job)
    new = rows(world, job)
    if new:
        world.queue.replace(new)
    else:
        world.queue.remove(job.job_id)


def _within_throttle(world: World, job: JobRecord) -> None:
    """Whether %N lets one more task start. The reason stays until the scheduler has tried the job again."""
    now = world.now()
    if free_tasks(world, job) <= 0:
        if job.priority and not job.dependency and job.reason not in NOT_ELIGIBLE:
            job.reason, job.reason_desc = "JobArrayTaskLimit", ""
            if job.eligible_s is not None and job.eligible_s <= now:
                job.eligible_s = None         # what is left becomes eligible when there is room again
        note_wait(job)
    elif job.reason == "JobArrayTaskLimit":
        if job.eligible_s is None:
            job.eligible_s = now
        elif job.eligible_s > now:
            begins_later(job, now)


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
        begins_later(job, now)
    _set_eligible(world, job)
    if job.priority and not job.priority_fixed:
        world.priorities.initial(job, now)
    refresh(world, job)


def begins_later(job: JobRecord, now_s: float) -> None:
    """What a job shows that waits for its begin time alone; nothing once it has come."""
    if job.eligible_s is not None and job.eligible_s > now_s:
        job.reason, job.start_s = "BeginTime", job.eligible_s
    else:
        job.reason = "None"


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
    job_texts.name_files(world, record)
    refresh(world, job)
    world.journal.job(record)
    return record


def drop_tasks(world: World, job: JobRecord, tasks: int) -> None:
    """Tasks (a bitmap) that are cancelled out of a waiting array leave no record, as in Slurm."""
    world.jobs.drop(job, tasks)
    world.limits.job_entered_queue(job)
    refresh(world, job)
    world.journal.job(job)
