"""Who may do what to whose job, and which records a user's job text names."""
from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from slurmbridge.controller.world import World
from slurmbridge.slurm import array, errors, states
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.views.records import JobRecord
from slurmbridge.views.session import Identity

_JOB = re.compile(r"(\d+)(?:_(\d+|\[[^\]]+\]|\*)|\+(\d+))?\Z")


def is_super_user(caller: Identity, world: World) -> bool:
    """root, SlurmUser, or an Administrator of the accounting data."""
    user = world.accounting.users.get(caller.user_name)
    return caller.is_admin or (user is not None and user.admin_level == "Administrator")


def is_operator(caller: Identity, world: World) -> bool:
    user = world.accounting.users.get(caller.user_name)
    return caller.is_admin or (user is not None and user.admin_level in ("Operator", "Administrator"))


def is_coordinator(caller: Identity, account: str, world: World) -> bool:
    record = world.accounting.accounts.get(account)
    user = world.accounting.users.get(caller.user_name)
    return (record is not None and caller.user_name in record.coordinators) or (
        user is not None and account in user.coordinator_of)


def may_change(caller: Identity, job: JobRecord, world: World) -> bool:
    return caller.uid == job.uid or is_operator(caller, world) or is_coordinator(caller, job.account, world)


def check_may_change(caller: Identity, jobs: Sequence[JobRecord], world: World,
                     code: int = errors.ESLURM_ACCESS_DENIED) -> None:
    """Raises SlurmError(code)."""
    for job in jobs:
        if not may_change(caller, job, world):
            raise SlurmError(code)


def named(text: str, world: World, *, split: bool = False) -> list[JobRecord]:
    """The records that ``12``, ``12_3``, ``12_[1-4]`` or ``12+1`` stands for: an array's id means all its records, a
    heterogeneous job's all components. ``split``: tasks named one by one leave the pending record first.

    Raises SlurmError(ESLURM_INVALID_JOB_ID) where there is none.
    """
    found = _JOB.match(text.strip())
    if found is None:
        raise SlurmError(errors.ESLURM_INVALID_JOB_ID)
    job_id = int(found.group(1))
    if found.group(3) is not None:
        leader = world.jobs.get(job_id)
        parts = world.jobs.het_components(leader) if leader is not None else []
        parts = [job for job in parts if job.het_offset == int(found.group(3)) and job.het_job_id]
        if not parts:
            raise SlurmError(errors.ESLURM_INVALID_JOB_ID)
        return parts
    if found.group(2) not in (None, "*"):
        return tasks_named(job_id, found.group(2).strip("[]"), world, split=split)
    records = world.jobs.array(job_id)
    if records:
        return records
    job = world.jobs.get(job_id)
    if job is None:
        raise SlurmError(errors.ESLURM_INVALID_JOB_ID)
    return world.jobs.het_components(job) if job.het_job_id == job_id else [job]


def is_component(text: str) -> bool:
    """Whether the text names one component of a heterogeneous job, as ``12+1``."""
    found = _JOB.match(text.strip())
    return found is not None and found.group(3) is not None


def missing_tasks(text: str, world: World) -> list[int]:
    """Which of the tasks that ``12_3`` or ``12_[1-4]`` names are none of the array's."""
    found = _JOB.match(text.strip())
    if found is None or found.group(2) in (None, "*"):
        return []
    try:
        tasks, _ = array.parse(found.group(2).strip("[]"), world.conf.max_array_size)
    except array.ArraySpecError:
        return []
    return [task for task in tasks if world.jobs.task(int(found.group(1)), task) is None]


def is_of_array(text: str, records: Sequence[JobRecord], world: World) -> bool:
    """Whether the text names tasks or an array, not one record by its own id."""
    return "_" in text or (bool(records[0].array_job_id) and text.strip() == str(records[0].array_job_id))


def ended_unstarted(job: JobRecord) -> bool:
    """A task that was cancelled while it waited: further acts pass it over as one that is not there."""
    return job.state == states.CANCELLED and job.array_task_id is not None and not job.tres_alloc


def check_whole_array(text: str, world: World) -> None:
    """What counts for an array as a whole. Raises SlurmError(ESLURM_NOT_SUPPORTED)."""
    records = named(text, world, split=True)          # tasks leave the array even so
    if "_" in text or not is_of_array(text, records, world):
        error = SlurmError(errors.ESLURM_NOT_SUPPORTED,
                           details=("Update of ArrayTaskThrottle is only allowed on ArrayJobId",))
        raise errors.ArrayAnswers(((text, error),)) if "_" in text else error


def tell_tasks(array_id: int, records: Sequence[JobRecord], refused: Mapping[int, SlurmError],
               missing: Sequence[int]) -> None:
    """``refused``: by job id. Raises ArrayAnswers where there is any refusal, tasks with the same answer together."""
    if not refused and not missing:
        return
    answers: dict[int, tuple[SlurmError | None, set[int]]] = {}
    for record in records:
        error = refused.get(record.job_id)
        tasks = answers.setdefault(error.code if error else 0, (error, set()))[1]
        if record.array_task_id is not None:
            tasks.add(record.array_task_id)
        elif record.array_pending:
            tasks.update(task for task in range(record.array_pending.bit_length()) if record.array_pending >> task & 1)
    if missing:
        code = errors.ESLURM_INVALID_JOB_ID
        answers.setdefault(code, (SlurmError(code), set()))[1].update(missing)
    told = sorted(answers.values(), key=lambda answer: min(answer[1], default=0))
    raise errors.ArrayAnswers(tuple((f"{array_id}_{array.ranges(tasks)}", error) for error, tasks in told))


def tasks_named(job_id: int, text: str, world: World, *, split: bool) -> list[JobRecord]:
    try:
        tasks, _ = array.parse(text, world.conf.max_array_size)
    except array.ArraySpecError:
        raise SlurmError(errors.ESLURM_INVALID_JOB_ID) from None
    return task_records(job_id, tasks, world, split=split)


def task_records(job_id: int, tasks: Sequence[int], world: World, *, split: bool) -> list[JobRecord]:
    """The records of these tasks of an array. ``split``: those leave the pending record, unless they are all of it.
    Raises SlurmError(ESLURM_INVALID_JOB_ID) where none of them exists."""
    records: list[JobRecord] = []
    wanted = sum(1 << task for task in set(tasks))
    for task in tasks:
        job = world.jobs.task(job_id, task)
        if job is None:
            continue
        if split and job.state == states.PENDING and (job.array_pending or 0) & ~wanted:
            job = world.split(job, task)
        if job not in records:
            records.append(job)
    if not records:
        raise SlurmError(errors.ESLURM_INVALID_JOB_ID)
    return records
