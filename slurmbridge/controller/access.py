"""Who may do what to whose job, and which records a user's job text names."""
from __future__ import annotations

import re
from collections.abc import Sequence

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


def tasks_named(job_id: int, text: str, world: World, *, split: bool) -> list[JobRecord]:
    try:
        tasks, _ = array.parse(text, world.conf.max_array_size)
    except array.ArraySpecError:
        raise SlurmError(errors.ESLURM_INVALID_JOB_ID) from None
    return task_records(job_id, tasks, world, split=split)


def task_records(job_id: int, tasks: Sequence[int], world: World, *, split: bool) -> list[JobRecord]:
    """The records of these tasks of an array. Raises SlurmError(ESLURM_INVALID_JOB_ID) where none of them exists."""
    records: list[JobRecord] = []
    for task in tasks:
        job = world.jobs.task(job_id, task)
        if job is None:
            continue
        if split and job.array_pending is not None and job.state == states.PENDING:
            job = world.split(job, task)
        if job not in records:
            records.append(job)
    if not records:
        raise SlurmError(errors.ESLURM_INVALID_JOB_ID)
    return records
