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
    """A job that runs is held as well: it waits when it is requeued. Raises SlurmError where the job is over."""
    if job.state in states.FINISHED:
        raise SlurmError(errors.ESLURM_JOB_FINISHED)
    by_admin = is_operator(caller, world) and not user_hold
    if job.priority == 0 and not is_operator(caller, world):
        return
    job.priority = 0
    job.partition_priorities = {}
    job.priority_fixed = False
    job.held_by_admin = by_admin
    job.reason, job.reason_desc = queueing.held_reason(job), ""
    if job.state == states.PENDING:
        job.start_s, job.sched_nodes, job.accrue_s = None, "", None
        queueing.refresh(world, job)
    world.journal.job(job)


def release(world: World, job: JobRecord, caller: Identity) -> None:
    """A requeued job still waits until its delay is over. Raises SlurmError: over, or held by an administrator."""
    if job.state in states.FINISHED:
        raise SlurmError(errors.ESLURM_JOB_FINISHED)
    if job.priority != 0:
        return
    if job.held_by_admin and not is_operator(caller, world):
        raise SlurmError(errors.ESLURM_ACCESS_DENIED)
    job.held_by_admin = False
    if states.SPECIAL_EXIT in job.flags:
        job.exit_status = 0
    job.flags -= {states.SPECIAL_EXIT, states.REQUEUE_HOLD}
    job.reason, job.reason_desc = "None", ""
    job.priority = 1
    job.priority_fixed = False
    if job.state != states.PENDING:
        world.journal.job(job)
        return
    if job.restarts and job.eligible_s is not None and job.eligible_s > world.now():
        job.reason = "BeginTime"
    queueing.becomes_eligible(world, job)
    world.judge(job)
    world.journal.job(job)
    world.wake_later()


def set_priority(world: World, job: JobRecord, caller: Identity, priority: int) -> None:
    """scontrol update Priority=N. 0 holds; users may only lower theirs; a held job is to be released first."""
    if priority == 0:
        hold(world, job, caller, user_hold=False)
        return
    if job.state in states.FINISHED:
        raise SlurmError(errors.ESLURM_JOB_FINISHED)
    if job.priority == 0:
        raise SlurmError(errors.ESLURM_JOB_HELD)
    if not is_operator(caller, world) and priority > job.priority:
        raise SlurmError(errors.ESLURM_ACCESS_DENIED)
    job.priority, job.priority_fixed = priority, True
    job.partition_priorities = {}
    queueing.refresh(world, job)
    world.journal.job(job)
    world.wake_later()
