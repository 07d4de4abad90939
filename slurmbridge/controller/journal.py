"""What changed since the last commit, and when it is on disk.

The controller changes records in memory first and marks them here; all marks of one turn of the event loop become one
write of the ledger. Whoever acknowledges something to a user awaits ``durable()`` before.
"""
from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from slurmbridge.accounting.operations import ForgetJob, Operation, SaveJob, SaveStep
from slurmbridge.controller.jobs import note_wait
from slurmbridge.controller.transitions import Phase, phase_of
from slurmbridge.views.records import JobRecord, StepRecord

log = logging.getLogger(__name__)


class NotDurable(Exception):
    """The ledger cannot be written for now. What was marked is kept and will be written when it can."""


class Journal:
    """``write``: the ledger's write, a future per batch. ``on_failure`` is called once when the ledger fails."""

    def __init__(self, write: Callable[[list[Operation]], asyncio.Future[None]],
                 on_failure: Callable[[BaseException], None] = lambda error: None) -> None:
        self._write = write
        self._on_failure = on_failure
        self._jobs: dict[int, JobRecord] = {}
        self._steps: dict[tuple[int, str], tuple[JobRecord, StepRecord]] = {}     # by run (db_index) and step
        self._operations: list[Operation] = []
        self.prepare: Callable[[JobRecord], None] = lambda job: None          # before a job is written
        self._scheduled = False
        self._last: asyncio.Future[None] | None = None
        self.trouble = ""                     # why nothing can be written for now
        self._troubled: asyncio.Future[None] | None = None

    def job(self, job: JobRecord) -> None:
        if job.request.reservation or job.reservation_id:
            self.prepare(job)
        note_wait(job)
        self._jobs[job.job_id] = job
        self._schedule()

    def step(self, job: JobRecord, step: StepRecord) -> None:
        """The step belongs to the run that the job is in at this moment."""
        self._steps[job.db_index, step.step_id] = (job, step)
        self._schedule()

    def add(self, operation: Operation) -> None:
        self._operations.append(operation)
        self._schedule()

    def forget(self, job: JobRecord) -> None:
        self._jobs.pop(job.job_id, None)
        self.add(ForgetJob(job.job_id))

    def close_run(self, job: JobRecord) -> None:
        """Writes the accounting row of a run that ends while the job goes on: as the record is at this moment."""
        self.flush()
        self._note(self._write([SaveJob(job, recoverable=False)]))

    def durable(self) -> asyncio.Future[None]:
        """Done when everything marked so far is on disk; fails with the ledger's error."""
        if self._scheduled or self._last is None:
            self.flush()
        if self._last is None:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            done.set_result(None)
            return done
        return asyncio.shield(self._last)

    def set_trouble(self, text: str) -> None:
        """The ledger cannot be written for now ("": it can again)."""
        self.trouble = text
        if text and self._troubled is not None and not self._troubled.done():
            self._troubled.set_result(None)

    async def acknowledged(self) -> None:
        """Returns when everything marked so far is on disk. Raises NotDurable at once when that may take long, and the
        ledger's error when it never will be."""
        last = self.durable()
        if not last.done():
            if self._troubled is None or (self._troubled.done() and not self.trouble):
                self._troubled = asyncio.get_running_loop().create_future()
            await asyncio.wait((last, self._troubled), return_when=asyncio.FIRST_COMPLETED)
            if not last.done():
                last.cancel()                 # of the shield only
                raise NotDurable(self.trouble)
        await last

    def flush(self) -> None:
        self._scheduled = False
        if not (self._jobs or self._steps or self._operations):
            return
        operations: list[Operation] = [
            SaveJob(job, accounted=phase_of(job) is not Phase.REQUEUING) for job in self._jobs.values()]
        operations += [SaveStep(job if job.db_index == run else replace(job, db_index=run), step)
                       for (run, _), (job, step) in self._steps.items()]
        operations += self._operations
        self._jobs.clear()
        self._steps.clear()
        self._operations = []
        self._note(self._write(operations))

    def _note(self, future: asyncio.Future[None]) -> None:
        self._last = future
        future.add_done_callback(self._done)

    def _done(self, future: asyncio.Future[None]) -> None:
        if not future.cancelled() and future.exception() is not None:
            self._on_failure(future.exception())  # type: ignore[arg-type]
        if self._last is future and not future.cancelled() and future.exception() is None:
            self._last = None

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        if self._scheduled:
            self.flush()
