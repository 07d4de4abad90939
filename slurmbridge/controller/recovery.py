"""A controller's start: what the ledger remembers is put back, then the engine tells what became of it meanwhile."""
from __future__ import annotations

import logging
from dataclasses import replace

from slurmbridge.controller import nodes, queueing
from slurmbridge.controller.life import JobLife
from slurmbridge.controller.node_updates import NodeUpdates, PartitionUpdates
from slurmbridge.controller.preemption_rules import exempt_until_s, preempt_mode
from slurmbridge.controller.transitions import Phase, phase_of
from slurmbridge.controller.world import World
from slurmbridge.views.records import JobRecord

log = logging.getLogger(__name__)


def restore_settings(world: World, node_settings: dict[str, dict[str, object]],
                     partition_settings: dict[str, dict[str, object]]) -> None:
    """What administrators had set, over what slurm.conf says."""
    for name, settings in node_settings.items():
        node = world.nodes.get(name)
        if node is not None:
            NodeUpdates.restore(node, settings)
    for name, settings in partition_settings.items():
        if settings.get("deleted"):
            world.partitions.pop(name, None)
        elif settings:                        # none: as slurm.conf says, since a reconfigure
            world.partitions[name] = PartitionUpdates.restored(settings)


def restore_jobs(world: World, jobs: dict[int, JobRecord]) -> list[JobRecord]:
    """Files all records; pending ones are queued, those that hold an allocation get it back. Returns the latter."""
    holding: list[JobRecord] = []
    for job in sorted(jobs.values(), key=lambda one: one.job_id):
        world.jobs.add(job)
        phase = phase_of(job)
        if phase in (Phase.ENDED,):
            continue
        if phase is not Phase.STOPPING:
            world.limits.job_entered_queue(job)
        if phase is Phase.PENDING:
            queueing.enter(world, job)
            continue
        if any(one.node not in world.columns.index for one in job.allocation):
            log.error("job %d holds a node that is no longer configured", job.job_id)
        else:
            nodes.occupy(job, world.nodes)
            running = nodes.running_job(job, world.limits.subject(job), exempt_until_s(world, job))
            returns = job.preempt_s is not None and "SUSPEND" in preempt_mode(world, job)
            if phase is Phase.SUSPENDED and (returns or world.engine.suspended_frees_cores):
                world.columns.start_suspended(running, returns=returns)
                nodes.pause(job, world.nodes)
            else:
                world.columns.apply_start(running)
            world.limits.job_started(job)
        if phase in (Phase.STARTING, Phase.RUNNING, Phase.SUSPENDED):
            world.priorities.job_started(job, world.now())
        holding.append(job)
    return holding


async def recover(world: World, life: JobLife, holding: list[JobRecord]) -> None:
    """Lets the engine adopt the runs. What was decided but perhaps never carried out is ordered again."""
    adopted = [replace(job, restarts=world.run_of(job).restart) for job in holding]
    await world.engine.recover(adopted)
    for job in holding:
        phase = phase_of(job)
        if phase in (Phase.STOPPING, Phase.REQUEUING):
            nodes.mark_completing(job, world.nodes, world.jobs)
            life.give_back(job)
        elif phase is Phase.SUSPENDED:
            life.control("suspend", job)
        elif phase is Phase.RUNNING:
            if job.pre_suspend_s:
                life.control("resume", job)
            world.limit_changed(job)
    life.judge_dependents()
