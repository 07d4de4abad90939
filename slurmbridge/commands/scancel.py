"""scancel: ends jobs, tasks of arrays and steps, or signals them (scancel(1)).

Jobs that are only named are ended unseen, so that a job which is already over is no mistake. With a filter, a signal or
a step, the queue is looked at first, and a job that is not in it is one.
"""
from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace

from slurmbridge.commands import scancel_filters
from slurmbridge.commands.common import Stop, array_tasks_text, command, holds_task, parse_job_name
from slurmbridge.commands.scancel_options import EVERY_TASK, NAME, Options, Target, list_text, parse
from slurmbridge.slurm import errors
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.slurm.states import FINISHED, PENDING, RUNNING, SUSPENDED
from slurmbridge.views.records import JobRecord
from slurmbridge.views.session import Reply, Session

RETRIES = 10
"""How often a job that is between two states is tried again, each time a second later than the last (from 5)."""
_DONE = frozenset({errors.ESLURM_ALREADY_DONE, errors.ESLURM_INVALID_JOB_ID})
_ACTIVE = frozenset({PENDING, RUNNING, SUSPENDED})


@command
async def run(argv: Sequence[str], env: Mapping[str, str], session: Session) -> Reply:
    """The exit code is the highest error number met (its low byte), as scancel has it."""
    options = parse(argv, env, session)
    canceller = Canceller(options, session)
    if options.verbose > 2:
        canceller.lines.append(list_text(options))
    if options.nodelist is not None and "/" in options.nodelist:
        options.nodelist = await canceller.read_hosts(options.nodelist)
    if options.only_ids:
        for word in options.words:
            await canceller.cancel_word(word)
    else:
        await canceller.cancel_selected()
    return Reply("", options.notes + "".join(canceller.lines), canceller.code & 0xFF)


class Canceller:
    """One run of scancel: what it says and the code it ends with."""

    def __init__(self, options: Options, session: Session) -> None:
        self.options, self.session = options, session
        self.lines: list[str] = []
        self.code = 0
        self._reason = ""

    # --- output
    def error(self, text: str) -> None:
        self.lines.append(f"{NAME}: error: {text}\n")

    def verbose(self, text: str) -> None:
        if self.options.verbose > 0:
            self.lines.append(f"{NAME}: {text}\n")

    async def flush(self) -> None:
        """Before a question, so that what was said stands above it."""
        if self.lines:
            await self.session.write_stderr("".join(self.lines))
            self.lines.clear()

    async def read_hosts(self, path: str) -> str:
        """-w with a file: its names, one or more a line, ``name*3`` and comments allowed."""
        try:
            text = (await self.session.read_file(path)).decode("utf-8", "surrogateescape")
        except OSError as error:
            self.error(f"slurm_allocate_resources error opening file {path}, {error.strerror}")
            return path
        words = ",".join(line.partition("#")[0] for line in text.splitlines()).split(",")
        return ",".join(word.strip().partition("*")[0] for word in words if word.strip()) or path

    # --- jobs that were only named
    async def cancel_word(self, word: str) -> None:
        views = self.session.views
        name = parse_job_name(word.replace("_*", ""))
        if name is None:
            await self.act(word, None, None)
            return
        job_id: int | None = name.job_id
        unknown = errors.ESLURM_INVALID_JOB_ID
        if name.het_offset is not None and self.options.signal is None:
            job_id = next((job.job_id for job in views.jobs.values()
                           if job.het_job_id == name.job_id and job.het_offset == name.het_offset), None)
            if name.het_offset == 0 and name.job_id in views.jobs:
                unknown = errors.ESLURM_NOT_HET_JOB
        await self.act(word, job_id, name.tasks, unknown)

    async def act(self, text: str, job_id: int | None, tasks: Sequence[int] | None,
                  unknown: int = errors.ESLURM_INVALID_JOB_ID) -> None:
        """Ends or signals one job; ``text`` is how it is called, ``unknown`` what is wrong where it has no number."""
        options = self.options
        kind = "full " if options.full else "batch " if options.batch else ""
        number = options.signal or int(signal.SIGKILL)
        if options.signal is None:
            self.verbose(f"Terminating {kind}job {text}")
        else:
            self.verbose(f"Signal {number} to {kind}job {text}")
        plain = options.signal is None and not options.batch
        code = await self._try(job_id, tasks, None, None if plain else number, unknown)
        if not code:
            return
        if options.verbose > 0 or code not in _DONE:
            self.error(f"Kill job error on job id {text}: {self._reason}")
        if code not in _DONE or number != signal.SIGKILL:
            self.code = max(self.code, code)

    async def act_on_step(self, job: JobRecord, step: int) -> None:
        number = self.options.signal or int(signal.SIGKILL)
        if number == signal.SIGKILL:
            self.verbose(f"Terminating step {job.job_id}.{step}")
        else:
            self.verbose(f"Signal {number} to step {job.job_id}.{step}")
        code = await self._try(job.job_id, None, str(step), self.options.signal)
        if not code:
            return
        done = code == errors.ESLURM_ALREADY_DONE
        if self.options.verbose > 0 or not done:
            self.error(f"Kill job error on job step id {job.job_id}: {self._reason}")
        if not done or number != signal.SIGKILL:
            self.code = max(self.code, code)

    async def _try(self, job_id: int | None, tasks: Sequence[int] | None, step: str | None, number: int | None,
                   unknown: int = errors.ESLURM_INVALID_JOB_ID) -> int:
        """Slurm's error number, 0 when it was done; ``_reason`` is its text."""
        retried = {errors.ESLURM_TRANSITION_STATE_NO_UPDATE} | ({errors.ESLURM_JOB_PENDING} if step else set())
        for attempt in range(RETRIES):
            try:
                if job_id is None:
                    raise SlurmError(unknown)
                if self.options.sibling is not None and step is None and job_id in self.session.views.jobs:
                    raise SlurmError(errors.ESLURM_JOB_NOT_FEDERATED)
                if self.options.admin_comment is not None:
                    await self.session.acts.update_job(self.session.identity, str(job_id),
                                                       {"admincomment": self.options.admin_comment})
                await self.session.acts.signal(self.session.identity, job_id, task_ids=tasks, step_id=step,
                                               signal=number, batch_only=self.options.batch, full=self.options.full)
                return 0
            except SlurmError as error:
                self._reason, code = error.text, error.code
            if code not in retried:
                break
            self.verbose("Job is in transitional state, retrying")
            await self.flush()
            await self.session.sleep(5 + attempt)
        return code

    # --- jobs that are looked for
    async def cancel_selected(self) -> None:
        queue = self._queue()
        wanted = self._existing(queue) if self.options.targets else []
        if self.options.targets:
            queue = [job for job in queue if any(self._is_meant(job, target) for target in wanted)]
        if self.options.has_filter:
            chosen = self._filtered(queue)
            if wanted and self.options.ctld and self.options.sibling is None and all(
                    target.step_id is None for target in wanted):
                self._tell_filtered(queue)
            queue = chosen
            if not queue and self.options.verbose > 0:
                self.error(f"No active jobs match ALL job filters, including: {self._filters()}")
        # pending jobs first: none of them shall start in the place of one that ends
        for job in sorted(queue, key=lambda job: job.state != PENDING):
            await self._cancel(job, wanted)

    async def _cancel(self, job: JobRecord, wanted: Sequence[Target]) -> None:
        if not wanted:
            text, tasks = self._job_text(job)
            if await self._confirmed(f"job_id={text}", job):
                await self.act(text, job.job_id if tasks is None else job.array_job_id, tasks)
            return
        for target in wanted:
            if not self._is_meant(job, target):
                continue
            if target.step_id is not None:
                text, _ = self._job_text(job)
                if job.state != PENDING and await self._confirmed(f"step_id={text}.{target.step_id}", job):
                    await self.act_on_step(job, target.step_id)
                continue
            if target.task_id is None or target.task_id == EVERY_TASK:
                text, tasks = self._job_text(job)
            else:
                text, tasks = f"{job.array_job_id}_{target.task_id}", (target.task_id,)
            if await self._confirmed(f"job_id={text}", job):
                await self.act(text, job.job_id if tasks is None else job.array_job_id, tasks)
            if target.task_id is None or target.task_id == EVERY_TASK:
                return

    def _job_text(self, job: JobRecord) -> tuple[str, tuple[int, ...] | None]:
        """(how the record is called, its tasks where it is a part of an array)."""
        if job.array_pending:
            tasks = tuple(task for task in range(job.array_pending.bit_length()) if job.array_pending >> task & 1)
            return f"{job.array_job_id}_[{array_tasks_text(job, 0)}]", tasks
        if job.array_task_id is not None:
            return f"{job.array_job_id}_{job.array_task_id}", (job.array_task_id,)
        return str(job.job_id), None

    def _queue(self) -> list[JobRecord]:
        """Every job that is not over and that the caller may see."""
        views, identity = self.session.views, self.session.identity
        private = "jobs" in views.conf.values.get("PrivateData", "").lower().split(",") and not identity.is_admin
        return [job for job in views.jobs.values() if job.state not in FINISHED
                and (not private or job.uid == identity.uid)]

    def _existing(self, queue: Sequence[JobRecord]) -> list[Target]:
        """The named jobs that are in the queue; an error for each other one."""
        found = []
        for target in self.options.targets:
            if any(self._is_meant(job, target) for job in queue):
                found.append(target)
                continue
            by_controller = self.options.ctld and target.step_id is None        # which minds no job that is over
            if not by_controller:
                self.code = max(self.code, 1)
            if self.options.verbose > 0 or (self.options.verbose == 0 and not by_controller):
                invalid = errors.strerror(errors.ESLURM_INVALID_JOB_ID)
                step = "" if target.step_id is None else f".{target.step_id}"
                self.error(f"Kill job error on job {'step ' if step else ''}id {target.job_text}{step}: {invalid}")
        return found

    def _filtered(self, queue: Sequence[JobRecord]) -> list[JobRecord]:
        kept = [job for job in queue if job.state in _ACTIVE and scancel_filters.mismatch(job, self.options) is None]
        leaders = {job.het_job_id for job in kept if job.het_job_id and not job.het_offset}
        return [job for job in kept if not (job.het_offset and job.het_job_id in leaders)]

    def _tell_filtered(self, queue: Sequence[JobRecord]) -> None:
        """The controller says of each named job why a filter leaves it out; that is no failure."""
        for job in queue:
            if why := scancel_filters.mismatch(job, self.options):
                text, _ = self._job_text(job)
                self.error(f"Kill job error on job id {text}: {why}: "
                           f"{errors.strerror(errors.ESLURM_JOB_SIGNAL_FAILED)}")

    def _is_meant(self, job: JobRecord, target: Target) -> bool:
        """As in Slurm ``N+k`` is the component for the job's end only: a signal, or a step's number, means job N."""
        if target.het_offset is not None and (self.options.signal is not None or target.step_id is not None):
            target = replace(target, het_offset=0)
        return _is(job, target)

    def _filters(self) -> str:
        options = self.options
        given = (("account", options.account), ("job_name", options.job_name), ("nodelist", options.nodelist),
                 ("partition", options.partition), ("qos", options.qos), ("reservation", options.reservation),
                 ("state", options.state), ("user_name", options.user_name), ("wckey", options.wckey))
        return "".join(f"{name}={value} " for name, value in given if value is not None)

    async def _confirmed(self, what: str, job: JobRecord) -> bool:
        """-i: the caller's word. At the end of the input nothing more can be confirmed."""
        if not self.options.interactive:
            return True
        await self.flush()
        while True:
            await self.session.write_stdout(f"Cancel {what} name={job.name} partition={job.partition} [y/n]? ")
            line = await self.session.read_line()
            if line[:1] in (b"y", b"Y"):
                return True
            if line[:1] in (b"n", b"N"):
                return False
            if not line:
                raise Stop(Reply("\n", f"{NAME}: error: --interactive: no answer on standard input\n", 1))


def _is(job: JobRecord, target: Target) -> bool:
    if target.task_id == EVERY_TASK:
        return target.job_id == job.array_job_id
    if target.task_id is not None:
        return target.job_id == job.array_job_id and holds_task(job, target.task_id)
    if target.het_offset is not None:
        return target.job_id == job.het_job_id and target.het_offset == job.het_offset
    return target.job_id == job.job_id or (target.job_id == job.array_job_id and target.step_id is None)

