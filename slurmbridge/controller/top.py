"""``scontrol top``: jobs before all others of their user, by nice values (scontrol(1), observed in 25.11)."""
from __future__ import annotations

from collections.abc import Iterable

from slurmbridge.controller import queueing
from slurmbridge.controller.access import is_operator
from slurmbridge.controller.world import World
from slurmbridge.slurm import errors, states
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.views.records import JobRecord
from slurmbridge.views.session import Identity


def move_to_top(world: World, caller: Identity, text: str) -> None:
    """The jobs get the best priorities that their user's jobs of the same association, partition and QOS have, in the
    order they are named; the other jobs lose together what these win. Raises SlurmError."""
    operator = is_operator(caller, world)
    if not operator and "enable_user_top" not in world.conf.scheduler_parameters:
        raise SlurmError(errors.ESLURM_ACCESS_DENIED)
    named = [_named(world, word) for word in text.split(",") if word]
    if not named:
        raise SlurmError(errors.ESLURM_INVALID_JOB_ID)
    chosen = _movable(named, None if operator else caller.uid)
    others = [job for job in world.jobs.pending.values() if _gives_way(job, chosen)]
    priorities = sorted((job.priority for job in (*chosen, *others)), reverse=True)
    last = None
    won = 0
    for job, best in zip(chosen, priorities):
        last = last - 1 if last is not None and best == last and last > 2 else best
        by = last - job.priority
        won += by
        _set(world, job, last, job.nice - by)
    assert last is not None
    for left, job in zip(range(len(others), 0, -1), others):
        lost = int(won / left)
        priority = job.priority - lost
        if priority >= last:
            priority = last - 1
            lost = job.priority - priority
        won -= lost
        _set(world, job, priority, job.nice + lost)
    world.wake()


def _named(world: World, word: str) -> JobRecord:
    head, _, task = word.partition("_")
    number = int(head) if head.isdigit() else 0
    job = world.jobs.get(number) if task in ("", "*") else None
    if task.isdigit():
        job = world.jobs.task(number, int(task))
    if job is None:
        raise SlurmError(errors.ESLURM_INVALID_JOB_ID)
    return job


def _movable(named: Iterable[JobRecord], uid: int | None) -> list[JobRecord]:
    """Those of the jobs that can be moved, each once; ``uid``: whose they must be. Raises SlurmError where there is
    none, or where one must not be moved."""
    found: list[JobRecord] = []
    code = errors.ESLURM_JOB_NOT_PENDING
    for job in named:
        if uid is not None and job.uid != uid:
            raise SlurmError(errors.ESLURM_ACCESS_DENIED)
        if job.state != states.PENDING:
            code = errors.ESLURM_JOB_NOT_PENDING
        elif "," in job.partition:
            raise SlurmError(errors.ESLURM_REQUESTED_PART_CONFIG_UNAVAILABLE)
        elif job.priority == 0:
            code = errors.ESLURM_JOB_HELD
        elif job not in found:
            found.append(job)
    if not found:
        raise SlurmError(code)
    return found


def _gives_way(job: JobRecord, chosen: list[JobRecord]) -> bool:
    """A job of priority 1 would be held by less."""
    first = chosen[0]
    return job not in chosen and "," not in job.partition and job.priority > 1 and job.state == states.PENDING and (
        job.assoc_id, job.partition, job.qos, job.uid) == (first.assoc_id, first.partition, first.qos, first.uid)


def _set(world: World, job: JobRecord, priority: int, nice: int) -> None:
    job.priority, job.nice = priority, nice
    queueing.refresh(world, job)
    queueing.reprioritize(world, job)
    world.journal.job(job)
