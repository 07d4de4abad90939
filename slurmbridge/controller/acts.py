"""What commands may do (``views.session.Acts``): permission, the change in memory, and the wait until it is durable.

Changes are made without awaiting in between, so an act is whole or not at all whatever becomes of its caller.
"""
from __future__ import annotations

import asyncio
import errno
import signal as signals
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from slurmbridge.controller import access, admission, holds, outputs, queueing
from slurmbridge.controller.job_update import JobUpdate
from slurmbridge.controller.journal import NotDurable
from slurmbridge.controller.life import Cause, JobLife
from slurmbridge.controller.node_updates import NodeUpdates, PartitionUpdates
from slurmbridge.controller.reservation_updates import ReservationUpdates
from slurmbridge.controller.submission import Submission
from slurmbridge.controller.talks import JobTalks
from slurmbridge.controller.top import move_to_top
from slurmbridge.controller.transitions import Event, Phase, phase_of
from slurmbridge.controller.update_keys import KEYS, ORDER
from slurmbridge.controller.world import World
from slurmbridge.slurm import errors, states
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.slurm.jobspec import JobRequest
from slurmbridge.slurm.zones import Zone
from slurmbridge.views.records import JobRecord
from slurmbridge.views.session import Identity, Invocation, SubmitResult, WillRun


class ControllerActs(JobTalks):
    """``views.session.Acts`` over the world. ``service`` offers what concerns the controller as a whole."""

    def __init__(self, world: World, life: JobLife, submission: Submission, node_updates: NodeUpdates,
                 partition_updates: PartitionUpdates, reservations: ReservationUpdates, service: Any) -> None:
        super().__init__(world)
        self._life = life
        self._submission = submission
        self._nodes = node_updates
        self._partitions = partition_updates
        self._reservations = reservations
        self._service = service

    async def _durable(self) -> None:
        try:
            await self._world.journal.acknowledged()
        except NotDurable:
            raise SlurmError(errors.ESLURM_WRITING_TO_FILE) from None

    # --- submission
    async def submit(self, caller: Identity, invocation: Invocation, requests: Sequence[JobRequest]) -> SubmitResult:
        world = self._world
        if world.journal.trouble:
            raise SlurmError(errors.ESLURM_WRITING_TO_FILE)
        records = self._submission.create(caller, invocation, requests)
        refusals = [admission.refusal(world, job) for job in records]
        for job in records:
            job.db_index = world.new_db_index()
            world.jobs.add(job)
        refusal = next((error for error in refusals if error is not None), None)
        if refusal is not None:
            for job in records:
                self._fail_at_once(job)
            await self._durable()
            raise refusal
        for job in records:
            queueing.enter(world, job)
            world.limits.job_entered_queue(job)
            if job.reason_desc:
                self._service.passes.described(job)
            self._service.timers.arm(job)
            world.journal.job(job)
        self._life.judge_dependents([job for job in records if job.dependency])
        if all(job.request.batch for job in records):
            world.wake_later()
        else:
            world.wake()
        try:
            await self._durable()
        except SlurmError:
            self._take_back(records)
            raise
        return SubmitResult(records[0].job_id)

    def _take_back(self, records: Sequence[JobRecord]) -> None:
        """A submission that could not be made durable was refused: it ends FAILED, as slurmctld ends a job whose script
        it cannot save. Nothing of it was started, since starts are made durable before."""
        for record in records:
            for job in self._world.jobs.array(record.array_job_id) or [record]:
                if self._life.apply(job, Event.CANCEL, Cause(uid=0, reason="SystemFailure")):
                    job.state, job.reason, job.killed_by_uid = states.FAILED, "SystemFailure", None
                    job.exit_status = 1 << 8
                    self._world.journal.job(job)

    def _fail_at_once(self, job: JobRecord) -> None:
        """Slurm keeps a record of a job that can never run: FAILED, exit code 1."""
        now = self._world.now()
        job.state, job.reason = states.FAILED, "BadConstraints"
        job.start_s = job.end_s = job.eligible_s = now
        job.exit_status, job.priority = 1 << 8, 0
        self._world.jobs.refile(job)
        self._service.timers.arm(job)
        self._world.journal.job(job)

    async def will_run(self, caller: Identity, invocation: Invocation, request: JobRequest) -> WillRun:
        job = self._submission.create(caller, invocation, [request], test_only=True)[0]
        return admission.will_run(self._world, job)

    # --- signals
    async def signal(self, caller: Identity, job_id: int, *, task_ids: Sequence[int] | None = None,
                     step_id: str | None = None, signal: int | None = None, batch_only: bool = False,
                     full: bool = False) -> None:
        world = self._world
        if task_ids is not None:
            cancelling = signal in (None, signals.SIGKILL) and step_id is None
            access.check_may_change(caller, access.task_records(job_id, task_ids, world, split=False), world)
            if cancelling and self._drop_waiting(job_id, task_ids):
                await self._durable()
                return
            jobs = access.task_records(job_id, task_ids, world, split=False)
        else:
            jobs = access.named(str(job_id), world)
        access.check_may_change(caller, jobs, world)
        if step_id is not None:
            await self._signal_step(caller, jobs[0], step_id, signal)
            return
        failure: SlurmError | None = None
        done = 0
        for job in jobs:
            try:
                await self._signal_job(caller, job, signal, batch_only=batch_only, full=full, alone=len(jobs) == 1)
                done += 1
            except SlurmError as error:
                failure = error
        await self._durable()
        if failure is not None and not done:
            raise failure

    def _drop_waiting(self, array_id: int, task_ids: Sequence[int]) -> bool:
        """Cancels those of the tasks that wait in the array's record, unless they are all of it. Whether that was all
        there was to do."""
        wanted = sum(1 << task for task in set(task_ids))
        rest = next((job for job in self._world.jobs.array(array_id) if job.array_pending), None)
        dropped = (rest.array_pending or 0) & wanted if rest is not None else 0
        if rest is None or not dropped or dropped == rest.array_pending:
            return False
        queueing.drop_tasks(self._world, rest, dropped)
        self._life.judge_dependents()
        return all(self._world.jobs.task(array_id, task) is None for task in task_ids)

    async def _signal_job(self, caller: Identity, job: JobRecord, signal: int | None, *, batch_only: bool,
                          full: bool, alone: bool) -> None:
        """``alone``: other components of a heterogeneous job are not meant."""
        phase = phase_of(job)
        if phase in (Phase.ENDED, Phase.STOPPING):
            raise SlurmError(errors.ESLURM_ALREADY_DONE)
        if job.het_offset and alone and phase in (Phase.PENDING, Phase.REQUEUING):
            raise SlurmError(errors.ESLURM_NOT_WHOLE_HET_JOB)
        if signal is None or (signal == signals.SIGKILL and phase in (Phase.PENDING, Phase.REQUEUING)):
            self._life.apply(job, Event.CANCEL, Cause(uid=caller.uid))
            return
        if phase in (Phase.PENDING, Phase.REQUEUING):
            raise SlurmError(errors.ESLURM_TRANSITION_STATE_NO_UPDATE)
        if batch_only and not job.request.batch:
            raise SlurmError(errors.ESLURM_JOB_SCRIPT_MISSING)
        run = self._world.run_of(job)
        if signal == signals.SIGKILL and not batch_only:
            self._life.apply(job, Event.CANCEL, Cause(uid=caller.uid))
            return
        await self._world.engine.signal(run, signal, steps=not batch_only or full, batch=batch_only or full)

    async def _signal_step(self, caller: Identity, job: JobRecord, step_id: str, signal: int | None) -> None:
        step = job.steps.get(step_id)
        if phase_of(job) in (Phase.PENDING, Phase.REQUEUING):
            raise SlurmError(errors.ESLURM_JOB_PENDING)
        if step is None:
            raise SlurmError(errors.ESLURM_INVALID_JOB_ID)
        if step.end_s is not None:
            raise SlurmError(errors.ESLURM_ALREADY_DONE)
        if signal is None:
            step.killed_by_uid = caller.uid
        await self._world.engine.signal(self._world.run_of(job), signals.SIGKILL if signal is None else signal,
                                        steps=False, step_id=step_id, quiet=signal == signals.SIGKILL)

    async def complete(self, caller: Identity, job_id: int, exit_status: int = 0) -> None:
        job = self._world.jobs.get(job_id)
        if job is None:
            raise SlurmError(errors.ESLURM_INVALID_JOB_ID)
        access.check_may_change(caller, [job], self._world)
        for one in self._world.jobs.het_components(job):
            if phase_of(one) is Phase.PENDING:
                self._life.apply(one, Event.CANCEL, Cause(uid=caller.uid))
            elif phase_of(one) in (Phase.STARTING, Phase.RUNNING, Phase.SUSPENDED):
                self._life.apply(one, Event.EXITED, Cause(exit_status=exit_status))
                self._life.give_back(one)
        await self._durable()

    # --- updates
    async def update_job(self, caller: Identity, job: str, changes: Mapping[str, str]) -> None:
        if "arraytaskthrottle" in changes:
            access.check_whole_array(job, self._world)

        def act(record: JobRecord) -> None:
            JobUpdate(self._world, self._submission, caller, record).run(changes, KEYS, ORDER)
        await self._each(caller, job, act, errors.ESLURM_USER_ID_MISSING)

    async def hold(self, caller: Identity, job: str, *, user_hold: bool = False) -> None:
        await self._each(caller, job, lambda record: holds.hold(self._world, record, caller, user_hold=user_hold),
                         errors.ESLURM_USER_ID_MISSING)

    async def release(self, caller: Identity, job: str) -> None:
        await self._each(caller, job, lambda record: holds.release(self._world, record, caller),
                         errors.ESLURM_USER_ID_MISSING)

    async def _each(self, caller: Identity, job: str, act: Any, denied: int = errors.ESLURM_ACCESS_DENIED, *,
                    split: bool = True) -> None:
        """The act on every record: an array's tasks answer one by one, of a heterogeneous job the last component.
        ``split``: tasks that were named leave the pending record first. Raises SlurmError, of an array ArrayAnswers."""
        world = self._world
        missing = access.missing_tasks(job, world)
        records = access.named(job, world, split=split)
        of_array = access.is_of_array(job, records, world)
        array_id = records[0].array_job_id
        if of_array:
            gone = [record for record in records if access.ended_unstarted(record)]
            if "_" in job or len(gone) < len(records):
                missing += [record.array_task_id or 0 for record in gone if "_" in job]
                records = [record for record in records if record not in gone]
        refused: dict[int, SlurmError] = {}
        for record in records:
            try:
                access.check_may_change(caller, [record], world, denied)
                act(record)
                self._service.timers.arm(record)
            except SlurmError as error:
                refused[record.job_id] = error
        await self._durable()
        if of_array:
            access.tell_tasks(array_id, records, refused, missing)
        elif records[-1].job_id in refused:
            raise refused[records[-1].job_id]

    async def move_to_top(self, caller: Identity, jobs: str) -> None:
        move_to_top(self._world, caller, jobs)
        await self._durable()

    async def requeue(self, caller: Identity, job: str, *, hold: bool = False, special_exit: bool = False) -> None:
        def act(record: JobRecord) -> None:
            if record.het_offset and access.is_component(job):
                raise SlurmError(errors.ESLURM_INVALID_JOB_ID)
            if record.het_offset and job == str(record.job_id):
                raise SlurmError(errors.ESLURM_NOT_HET_JOB_LEADER)
            if not record.requeue:
                raise SlurmError(errors.ESLURM_DISABLED)
            if not record.request.batch:
                raise SlurmError(errors.ESLURM_BATCH_ONLY)
            self._life.apply(record, Event.REQUEUE, Cause(uid=caller.uid, hold=hold, special_exit=special_exit))
        await self._each(caller, job, act, split=False)

    async def suspend(self, caller: Identity, job: str) -> None:
        await self._suspend(caller, job, Event.SUSPEND)

    async def resume(self, caller: Identity, job: str) -> None:
        await self._suspend(caller, job, Event.RESUME)

    async def _suspend(self, caller: Identity, job: str, event: Event) -> None:
        """Suspends or resumes a whole job."""
        if access.is_component(job):
            raise SlurmError(errors.ESLURM_NOT_WHOLE_HET_JOB)
        if not access.is_operator(caller, self._world):
            raise SlurmError(errors.ESLURM_ACCESS_DENIED)

        def act(record: JobRecord) -> None:
            if record.het_offset and job == str(record.job_id):
                raise SlurmError(errors.ESLURM_NOT_WHOLE_HET_JOB)
            self._life.apply(record, event, Cause(uid=caller.uid))
        await self._each(caller, job, act)

    # --- nodes and partitions
    def _super(self, caller: Identity) -> None:
        if not access.is_super_user(caller, self._world):
            raise SlurmError(errors.ESLURM_ACCESS_DENIED)

    async def update_node(self, caller: Identity, names: Sequence[str], changes: Mapping[str, str]) -> None:
        self._super(caller)
        nodes = [self._world.nodes.get(name) for name in names]
        if not nodes or any(node is None for node in nodes):
            raise SlurmError(errors.ESLURM_INVALID_NODE_NAME)
        failure: SlurmError | None = None
        for node in nodes:
            assert node is not None
            try:
                self._nodes.update(caller, node, changes)
            except SlurmError as error:
                failure = error
        await self._durable()
        if failure is not None:
            raise failure

    async def update_partition(self, caller: Identity, name: str, changes: Mapping[str, str], *,
                               create: bool = False) -> None:
        self._super(caller)
        self._partitions.update(name, changes, create=create)
        self._world.wake()
        await self._durable()

    async def delete_partition(self, caller: Identity, name: str) -> None:
        self._super(caller)
        self._partitions.delete(name)
        await self._durable()

    # --- resources
    async def change_resources(self, caller: Identity, operations: Sequence[Mapping[str, Any]]) -> None:
        self._service.resources.change(caller, operations)
        await self._durable()

    # --- reservations
    async def create_reservation(self, caller: Identity, request: Mapping[str, str]) -> str:
        name = self._reservations.create(caller, request)
        await self._durable()
        return name

    async def update_reservation(self, caller: Identity, name: str, changes: Mapping[str, str]) -> None:
        self._reservations.update(caller, name, changes)
        await self._durable()

    async def delete_reservation(self, caller: Identity, name: str) -> None:
        self._reservations.delete(caller, name)
        await self._durable()

    # --- accounting
    async def change_accounting(self, caller: Identity, operations: Sequence[Mapping[str, Any]]) -> None:
        self._service.change_accounting(caller, operations)
        await self._durable()

    async def import_usage(self, caller: Identity, rows: Sequence[tuple[str, str, float]]) -> None:
        self._super(caller)
        self._service.import_usage(rows)
        await self._durable()

    async def health(self, caller: Identity, verb: str, words: Sequence[str]) -> str:
        """``show [NODE…]``, ``undo [NODE…]`` (without one: all) or ``stage PARTITION STAGE``; the text to print.

        Raises SlurmError.
        """
        health = self._service.health
        if verb == "show":
            self._known_nodes(words)
            return "".join(health.explain(name) for name in words) if words else str(health.overview())
        self._super(caller)
        if verb == "undo":
            self._known_nodes(words)
            done = health.undo(words or None)
            text = f"lifted: {', '.join(done)}\n" if done else "there is nothing to lift\n"
        else:
            try:
                health.set_stage(*words)
            except ValueError as error:
                raise SlurmError(errors.ESLURM_INVALID_PARTITION_NAME, str(error)) from None
            text = f"{words[0]}: {words[1]}\n"
        await self._durable()
        return text

    def _known_nodes(self, names: Sequence[str]) -> None:
        if any(name not in self._world.nodes for name in names):
            raise SlurmError(errors.ESLURM_INVALID_NODE_NAME)

    async def import_records(self, caller: Identity, kind: str, text: str, more: str, zone: Zone) -> str:
        self._super(caller)
        return await self._service.books.take_over(kind, text, more, zone)

    async def change_runs(self, caller: Identity, changes: Sequence[tuple[int, Mapping[str, Any]]]) -> None:
        await self._service.books.change_runs(caller, changes)

    async def archive(self, caller: Identity, parts: Sequence[tuple[str, int, bool]], directory: str) -> None:
        self._super(caller)
        await self._service.books.archive(parts, directory)

    async def load_archive(self, caller: Identity, path: str) -> None:
        self._super(caller)
        await self._service.books.load_archive(path)

    # --- waiting
    def _running_job(self, caller: Identity, job_id: int) -> JobRecord:
        """Whose steps the caller may reach. Raises SlurmError."""
        world = self._world
        job = world.jobs.get(job_id)
        if job is None:
            raise SlurmError(errors.ESLURM_INVALID_JOB_ID)
        if caller.uid != job.uid and not access.is_super_user(caller, world):
            raise SlurmError(errors.ESLURM_ACCESS_DENIED)
        phase = phase_of(job)
        if phase in (Phase.ENDED, Phase.STOPPING):
            raise SlurmError(errors.ESLURM_ALREADY_DONE)
        if phase not in (Phase.RUNNING, Phase.SUSPENDED):
            raise SlurmError(errors.ESLURM_JOB_PENDING)
        return job

    async def step_address(self, caller: Identity, job_id: int) -> tuple[str, str]:
        job = self._running_job(caller, job_id)
        return await self._world.engine.step_address(self._world.run_of(job)), job.credential

    async def look_at_steps(self, caller: Identity, job_id: int) -> Mapping[str, Mapping[str, Any]]:
        return await self._world.engine.look(self._world.run_of(self._running_job(caller, job_id)))

    async def output(self, caller: Identity, job: str, *, follow: bool = False) -> AsyncIterator[bytes]:
        return await outputs.output(self._world, self._service.views, caller, job, follow)

    # --- the controller
    async def set_conf(self, caller: Identity, key: str, value: str) -> None:
        if not access.is_super_user(caller, self._world):
            raise SlurmError(errno.EACCES)
        self._service.set_conf(key, value)

    async def reconfigure(self, caller: Identity) -> None:
        self._super(caller)
        self._service.reconfigure()

    async def shutdown(self, caller: Identity) -> None:
        self._super(caller)
        asyncio.get_running_loop().call_later(0.05, self._service.request_stop)


