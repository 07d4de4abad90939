"""What a job's own credential opens: this one job, to see and to steer, while its run lasts; nothing else.

Everything that is not named here is refused. The check is made at each use, not at the connection's begin: a command
that goes on (``squeue -i``) sees nothing more once the run is over.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slurmbridge.api.callers import Caller, is_live
from slurmbridge.slurm import errors
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.slurm.settings import SlurmConf
from slurmbridge.views.records import AssociationData, JobRecord, NodeRecord, PartitionRecord, ResourceRecord
from slurmbridge.views.session import Acts, Identity, Views

COMMANDS = frozenset({"squeue", "scancel", "scontrol", "sacct", "sstat", "srun", "salloc", "sbatch", "sattach",
                      "sbcast", "sinfo"})
"""Those that can say anything to a job: what starts jobs is refused with its own words."""


class JobViews:
    """``views.session.Views`` with one job in it. Nodes, partitions and slurm.conf are what every user sees."""

    def __init__(self, views: Views, caller: Caller) -> None:
        self._views, self._caller = views, caller

    def job(self) -> JobRecord | None:
        """None once the run is over."""
        assert self._caller.job is not None
        job = self._views.jobs.get(self._caller.job)
        return job if job is not None and job.restarts == self._caller.restart and is_live(job) else None

    @property
    def conf(self) -> SlurmConf:
        return self._views.conf

    @property
    def jobs(self) -> Mapping[int, JobRecord]:
        job = self.job()
        return {} if job is None else {job.job_id: job}

    @property
    def nodes(self) -> Mapping[str, NodeRecord]:
        return self._views.nodes

    @property
    def partitions(self) -> Mapping[str, PartitionRecord]:
        return self._views.partitions

    @property
    def reservations(self) -> Mapping[str, Any]:
        return {}

    @property
    def resources(self) -> Mapping[str, ResourceRecord]:
        return {}

    @property
    def accounting(self) -> AssociationData:
        """No associations, users or QOS: only what every answer needs to be printed."""
        whole = self._views.accounting
        return AssociationData(whole.cluster, tres=dict(whole.tres), generation=whole.generation)

    @property
    def boot_s(self) -> float:
        return self._views.boot_s

    def array_tasks(self, array_job_id: int) -> Sequence[JobRecord]:
        job = self.job()
        return [job] if job is not None and job.array_job_id == array_job_id else []

    def priority_factors(self, job_ids: Sequence[int] | None = None) -> Sequence[Mapping[str, Any]]:
        return self._views.priority_factors(list(self.jobs))

    def priority_columns(self, job_ids: Sequence[int] | None = None) -> Mapping[str, Sequence[Any]]:
        return self._views.priority_columns(list(self.jobs))

    def shares(self) -> Sequence[Mapping[str, Any]]:
        return []

    async def ledger_query(self, kind: str, **filters: Any) -> Sequence[Mapping[str, Any]]:
        job = self.job()
        if kind != "jobs" or job is None:
            return []
        asked = filters.pop("job_ids", None)
        own = {job.job_id, job.array_job_id, job.het_job_id} - {0}
        if asked is not None and not own & set(asked):
            return []
        rows = await self._views.ledger_query("jobs", job_ids=[job.job_id], **filters)
        return [row for row in rows if row["job_id"] == job.job_id]


class JobActs:
    """``views.session.Acts`` on one job; any other act answers as to a stranger."""

    def __init__(self, acts: Acts, views: JobViews) -> None:
        self._acts, self._views = acts, views

    def __getattr__(self, name: str) -> Any:
        async def refuse(*_words: object, **_named: object) -> Any:
            raise SlurmError(errors.ESLURM_ACCESS_DENIED)
        return refuse

    def _own(self) -> JobRecord:
        job = self._views.job()
        if job is None:
            raise SlurmError(errors.ESLURM_ACCESS_DENIED)
        return job

    def _named(self, text: str) -> str:
        """The job's own name where the text means it and nothing beside it. Raises SlurmError."""
        job = self._own()
        task = f"{job.array_job_id}_{job.array_task_id}" if job.array_job_id else ""
        if job.het_job_id or text not in (str(job.job_id), task or str(job.job_id)):
            raise SlurmError(errors.ESLURM_ACCESS_DENIED)
        return task or text                   # the plain number of a last task would mean the whole array

    def _number(self, job_id: int) -> int:
        job = self._own()
        if job.job_id != job_id:
            raise SlurmError(errors.ESLURM_ACCESS_DENIED)
        return job_id

    async def signal(self, caller: Identity, job_id: int, *, task_ids: Sequence[int] | None = None,
                     step_id: str | None = None, signal: int | None = None, batch_only: bool = False,
                     full: bool = False) -> None:
        job = self._own()
        if task_ids is not None and len(task_ids) != 1:
            raise SlurmError(errors.ESLURM_ACCESS_DENIED)
        self._named(f"{job_id}_{task_ids[0]}" if task_ids else str(job_id))
        if job.array_job_id and job.array_task_id is not None:
            job_id, task_ids = job.array_job_id, [job.array_task_id]
        await self._acts.signal(caller, job_id, task_ids=task_ids, step_id=step_id, signal=signal,
                                batch_only=batch_only, full=full)

    async def update_job(self, caller: Identity, job: str, changes: Mapping[str, str]) -> None:
        await self._acts.update_job(caller, self._named(job), changes)

    async def hold(self, caller: Identity, job: str, *, user_hold: bool = False) -> None:
        await self._acts.hold(caller, self._named(job), user_hold=user_hold)

    async def release(self, caller: Identity, job: str) -> None:
        await self._acts.release(caller, self._named(job))

    async def requeue(self, caller: Identity, job: str, *, hold: bool = False, special_exit: bool = False) -> None:
        await self._acts.requeue(caller, self._named(job), hold=hold, special_exit=special_exit)

    async def wait_job_start(self, job_id: int) -> JobRecord:
        return await self._acts.wait_job_start(self._number(job_id))

    async def look_at_steps(self, caller: Identity, job_id: int) -> Mapping[str, Mapping[str, Any]]:
        return await self._acts.look_at_steps(caller, self._number(job_id))

    async def step_address(self, caller: Identity, job_id: int) -> tuple[str, str]:
        return await self._acts.step_address(caller, self._number(job_id))
