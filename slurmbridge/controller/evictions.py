"""How a job that others preempt leaves: at once, or warned and after its GraceTime."""
from __future__ import annotations

import asyncio
import contextlib
import signal

from slurmbridge.cluster.port import RunId
from slurmbridge.controller.life import Cause, JobLife
from slurmbridge.controller.preemption_rules import grace_time_s, preempt_mode
from slurmbridge.controller.transitions import Event, Phase, phase_of
from slurmbridge.controller.world import World
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.views.records import JobRecord


class Evictions:
    """``begin`` for each victim. When ``ends_at`` has come, ``finish``: the record tells, also after a restart."""

    def __init__(self, world: World, life: JobLife) -> None:
        self._world = world
        self._life = life
        self._signals: set[asyncio.Task[None]] = set()

    def begin(self, victim: JobRecord) -> None:
        """Takes the resources, or warns: the steps get SIGTERM, and the job has GraceTime to end by itself."""
        if not grace_time_s(self._world, victim):
            self.finish(victim)
            return
        if victim.preempt_s is not None:
            return
        victim.preempt_s = self._world.now()
        self._world.journal.job(victim)
        self._life.on_change(victim)
        loop, run = asyncio.get_running_loop(), self._world.run_of(victim)
        for number in (signal.SIGCONT, signal.SIGTERM):
            task = loop.create_task(self._signal(run, number))
            self._signals.add(task)
            task.add_done_callback(self._signals.discard)

    def ends_at(self, job: JobRecord) -> float | None:
        """Epoch seconds at which the GraceTime of a warned job is over; None: it was not warned, or is already gone."""
        if job.preempt_s is None or phase_of(job) not in (Phase.STARTING, Phase.RUNNING, Phase.SUSPENDED):
            return None
        if "SUSPEND" in preempt_mode(self._world, job):
            return None
        return job.preempt_s + grace_time_s(self._world, job)

    def finish(self, victim: JobRecord) -> None:
        """Requeues, suspends or cancels the job."""
        world = self._world
        mode, cause = preempt_mode(world, victim), Cause(preempted=True)
        with contextlib.suppress(SlurmError):
            if "REQUEUE" in mode and victim.request.batch and victim.requeue:
                self._life.apply(victim, Event.REQUEUE, cause)
            elif "SUSPEND" in mode:
                self._life.apply(victim, Event.SUSPEND, cause)
            else:
                self._life.apply(victim, Event.PREEMPT, cause)

    async def _signal(self, run: RunId, number: int) -> None:
        with contextlib.suppress(SlurmError):
            await self._world.engine.signal(run, number, steps=True, batch=False)
