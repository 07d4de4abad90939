"""Who waits for a job and is told of it: its start, its end, and what ``scontrol notify`` says (scontrol(1))."""
from __future__ import annotations

import asyncio
from collections.abc import Sequence

from slurmbridge.controller import access
from slurmbridge.controller.transitions import Phase, phase_of
from slurmbridge.controller.world import World
from slurmbridge.slurm import errors, states
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.views.records import JobRecord
from slurmbridge.views.session import Identity


class JobTalks:
    """The part of ``views.session.Acts`` that waits for jobs and speaks to who does."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._listeners: dict[int, list[asyncio.Future[str]]] = {}

    async def wait_job_start(self, job_id: int) -> JobRecord:
        world = self._world
        while True:
            changed = world.watch(job_id)
            job = world.jobs.get(job_id)
            if job is None:
                raise SlurmError(errors.ESLURM_INVALID_JOB_ID)
            parts = world.jobs.het_components(job)
            if all(phase_of(one) in (Phase.RUNNING, Phase.SUSPENDED) for one in parts) or any(
                    one.state in states.FINISHED for one in parts):
                return job
            await changed

    async def wait_job_end(self, job_id: int) -> Sequence[JobRecord]:
        world = self._world
        while True:
            changed = world.watch(job_id)
            records = access.named(str(job_id), world)
            if all(phase_of(one) is Phase.ENDED for one in records):
                return records
            await changed

    async def next_message(self, job_id: int) -> str:
        heard: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        listeners = self._listeners.setdefault(job_id, [])
        listeners.append(heard)
        try:
            return await heard
        finally:
            listeners.remove(heard)
            if not listeners:
                self._listeners.pop(job_id, None)

    async def notify(self, caller: Identity, job_id: int, text: str) -> None:
        job = self._world.jobs.get(job_id)
        if job is None:
            raise SlurmError(errors.ESLURM_INVALID_JOB_ID)
        if caller.uid != job.uid and not access.is_super_user(caller, self._world):
            raise SlurmError(errors.ESLURM_USER_ID_MISSING)
        heard = [one for one in self._listeners.get(job_id, ()) if not one.done()]
        for one in heard:
            one.set_result(text)
        if heard:
            return
        if job.state == states.PENDING:
            raise SlurmError(errors.ESLURM_DISABLED)
        if job.state != states.RUNNING:
            raise SlurmError(errors.ESLURM_ALREADY_DONE)
        await self._world.engine.notify(self._world.run_of(job), text)
