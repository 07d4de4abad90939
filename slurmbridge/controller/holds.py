"""Hold, release and priority: what a priority of 0 means, who set it, and how it goes away (scontrol(1))."""
from __future__ import annotations

from slurmbridge.controller import queueing
from slurmbridge.controller.access import is_operator
from slurmbridge.controller.world import World
from slurmbridge.slurm import errors, states
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.views.records import JobRecord
from slurmbridge.views.session import Identity


def hold(world: World, job: JobRecord, caller: Identity, *, user_hold: bool) -> None:
    """Raises SlurmError where the job is over or runs."""
    if job.state in states.FINISHED:
        raise SlurmError(errors.ESLURM_JOB_FINISHED)
    if job.state != states.PENDING:
        raise SlurmError(errors.ESLURM_JOB_NOT_PENDING)
    by_admin = is_operator(caller, world) and not user_hold
    if job.priority == 0 and not is_operator(caller, world):
        return
    job.priority = 0
    job.partition_priorities = {}
    job.priority_fixed = False
    job.held_by_admin = by_admin
    job.reason, job.reason_desc = ("JobHeldAdmin" if by_admin else "JobHeldUser"), ""
    job.start_s, job.sched_nodes, job.accrue_s = None, "", None
    queueing.refresh(world, job)
    world.journal.job(job)


def release(world: World, job: JobRecord, caller: Identity) -> None:
    """Raises SlurmError: over, running, or held by an administrator."""
    if job.state in states.FINISHED:
        raise SlurmError(errors.ESLURM_JOB_FINISHED)
    if job.state != states.PENDING:
        raise SlurmError(errors.ESLURM_JOB_NOT_PENDING)
    if job.priority != 0:
        return
    if job.held_by_admin and not is_operator(caller, world):
        raise SlurmError(errors.ESLURM_ACCESS_DENIED)
    job.held_by_admin = False
    job.flags -= {states.SPECIAL_EXIT, states.REQUEUE_HOLD}
    job.reason, job.reason_desc = "None", ""
    job.priority = 1
    job.priority_fixed = False
    queueing.becomes_eligible(world, job)
    world.judge(job)
    world.journal.job(job)
    world.wake()


def set_priority(world: World, job: JobRecord, caller: Identity, priority: int) -> None:
    """scontrol update Priority=N. 0 holds; users may only lower theirs."""
    if priority == 0:
        hold(world, job, caller, user_hold=False)
        return
    if job.state != states.PENDING:
        raise SlurmError(errors.ESLURM_JOB_NOT_PENDING)
    if not is_operator(caller, world) and (job.priority == 0 or priority > job.priority):
        raise SlurmError(errors.ESLURM_ACCESS_DENIED)
    was_held = job.priority == 0
    job.priority, job.priority_fixed = priority, True
    job.partition_priorities = {}
    if was_held:
        job.held_by_admin = False
        job.flags -= {states.SPECIAL_EXIT, states.REQUEUE_HOLD}
        job.reason, job.reason_desc = "None", ""
        queueing.becomes_eligible(world, job)
        world.judge(job)
    queueing.refresh(world, job)
    world.journal.job(job)
    world.wake()
