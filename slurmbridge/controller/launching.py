"""Carries out what a job's life decided: starts, ends and suspends runs at the engine, once the decision is durable."""
from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from slurmbridge.cluster.port import LaunchOrder
from slurmbridge.controller.journal import NotDurable
from slurmbridge.controller.life import Cause, JobLife
from slurmbridge.controller.transitions import Phase, phase_of
from slurmbridge.controller.world import World
from slurmbridge.slurm.jobspec import UNLIMITED_MIN
from slurmbridge.slurm.topology import address
from slurmbridge.views.records import JobRecord

log = logging.getLogger(__name__)

RUNTIME_KEYS = (
    "KillOnBadExit", "WaitTime", "InactiveLimit", "JobAcctGatherFrequency", "PropagateResourceLimits",
    "PropagateResourceLimitsExcept", "TaskPlugin", "MaxTasksPerNode", "BatchStartTimeout", "JobFileAppend",
    "MaxStepCount", "TaskProlog", "TaskEpilog", "SrunProlog", "SrunEpilog", "MpiDefault", "VSizeFactor",
    "InteractiveStepOptions", "UnkillableStepTimeout", "TreeWidth", "TaskPluginParam", "MpiParams",
    "ProctrackType")
"""Keys of slurm.conf that step daemons honour."""
PARALLEL = 64


class Launching:
    """``work`` is called when there is something to do; ``run`` does it until cancelled."""

    def __init__(self, world: World, life: JobLife, ends_at: Callable[[JobRecord], float | None]) -> None:
        self._world = world
        self._life = life
        self._ends_at = ends_at
        self._pending = asyncio.Event()
        self._limit = asyncio.Semaphore(PARALLEL)
        self._tasks: set[asyncio.Task[None]] = set()
        self._launching: dict[int, asyncio.Task[None]] = {}
        self.configure()

    def configure(self) -> None:
        """slurm.conf is new."""
        values = self._world.conf.values
        self.settings = {key: values[key] for key in RUNTIME_KEYS if key in values}

    def work(self) -> None:
        self._pending.set()

    async def run(self) -> None:
        while True:
            await self._pending.wait()
            self._pending.clear()
            life = self._life
            launches, life.pending_launches = life.pending_launches, []
            kills, life.pending_kills = life.pending_kills, []
            controls, life.pending_controls = life.pending_controls, []
            try:
                await self._world.journal.acknowledged()
            except NotDurable:                # what runs can be ended even so; nothing is started
                life.pending_launches[:0] = launches
                launches = []
            for job in launches:
                self._launching[job.job_id] = self._start(self._launch(job))
            for job, cause in kills:
                self._start(self._terminate(job, cause))
            for what, job in controls:
                self._start(self._control(what, job))

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _launch(self, job: JobRecord) -> None:
        async with self._limit:
            if phase_of(job) is not Phase.STARTING:
                self._life.never_launched(job)
                return
            try:
                await self._world.engine.launch(self.order(job))
            except Exception as error:
                log.exception("launch of job %d", job.job_id)
                self._life.launch_failed(job, str(error))
            finally:
                self._launching.pop(job.job_id, None)

    def order(self, job: JobRecord) -> LaunchOrder:
        world = self._world
        end_by = self._end_by(job)
        request = job.request
        tasks: tuple[int, ...] = ()
        if job.array_job_id:
            tasks = tuple(range(job.array_task_min, job.array_task_max + 1, job.array_task_step)) if (
                job.array_task_step * (job.array_task_count - 1) == job.array_task_max - job.array_task_min) else ()
        before_end = end_by is not None and request.signal_number
        if job.het_offset:                    # the script runs on the first component only
            job = replace(job, request=replace(request, batch=False, script=None))
        return LaunchOrder(
            run=world.run_of(job), job=job, credential=job.credential, cluster_name=world.accounting.cluster,
            controller_url=world.controller_url, kill_wait_s=float(world.conf.kill_wait_s), end_by_s=end_by,
            array_tasks=tasks, conf_path=world.conf.path,
            warn_signal=request.signal_number if before_end else None,
            warn_before_s=self._warn_before_s(job, end_by) if end_by is not None and before_end else 0,
            warn_batch=request.signal_batch, settings=self.settings,
            topology={share.node: address(world.conf.switches, share.node)[0] for share in job.allocation}
            if world.conf.switches else {},
            het_jobs=tuple(world.jobs.het_components(job)) if job.het_job_id and not job.het_offset else ())

    def _warn_before_s(self, job: JobRecord, end_by_s: float) -> int:
        """Seconds from --signal to ``end_by_s``: the signal is for the time limit, OverTimeLimit comes after that."""
        before_s = job.request.signal_before_s if job.request.signal_before_s is not None else 60
        if job.start_s is None or job.time_limit_min in (None, UNLIMITED_MIN):
            return before_s
        limit_s = job.start_s + job.pre_suspend_s + (job.time_limit_min or 0) * 60
        return before_s + max(0, round(end_by_s - limit_s))

    def _end_by(self, job: JobRecord) -> float | None:
        """When the step daemon is to end the job by itself."""
        limit = None if job.time_limit_min == UNLIMITED_MIN else self._ends_at(job)
        if job.deadline_s and (limit is None or job.deadline_s < limit):
            return float(job.deadline_s)
        return limit

    async def _terminate(self, job: JobRecord, cause: Cause) -> None:
        launching = self._launching.get(job.job_id)
        if launching is not None and not launching.done():
            await asyncio.wait([launching])
        world = self._world
        if phase_of(job) in (Phase.PENDING, Phase.ENDED):
            return
        grace = float(world.conf.kill_wait_s) if cause.grace_s is None else cause.grace_s
        try:
            await world.engine.terminate(world.run_of(job), cause=cause.cause, grace_s=grace,
                                         signal_first=cause.signal_first, uid=cause.uid or 0)
        except Exception:
            log.exception("end of job %d", job.job_id)

    async def _control(self, what: str, job: JobRecord) -> None:
        try:
            await getattr(self._world.engine, what)(self._world.run_of(job))
        except Exception:
            log.exception("%s of job %d", what, job.job_id)

    def limit_changed(self, job: JobRecord) -> None:
        """A running job's time limit was changed."""
        async def tell() -> None:
            async with self._limit:
                try:
                    await self._world.engine.update(self._world.run_of(job), end_by_s=self._end_by(job))
                except Exception:
                    log.exception("time limit of job %d", job.job_id)
        self._start(tell())
