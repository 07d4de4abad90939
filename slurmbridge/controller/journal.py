"""What changed since the last commit, and when it is on disk.

The controller changes records in memory first and marks them here; all marks of one turn of the event loop become one
write of the ledger, for all that wait for it. Whoever acknowledges something to a user awaits ``acknowledged()``
before.
"""
from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from slurmbridge.accounting.errors import LedgerError
from slurmbridge.accounting.operations import ForgetJob, Operation, SaveJob, SaveStep
from slurmbridge.controller.jobs import note_wait
from slurmbridge.controller.transitions import Phase, phase_of
from slurmbridge.views.records import JobRecord, StepRecord

log = logging.getLogger(__name__)


class NotDurable(Exception):
    """The ledger cannot be written for now. What was marked is kept and will be written when it can."""


class Write(Protocol):
    """``Ledger.write``: a future per batch; ``alone``: nobody else waits for anything."""

    def __call__(self, operations: list[Operation], *, alone: bool = False) -> asyncio.Future[None]: ...


class Journal:
    """``on_failure`` is called once when the ledger fails."""

    def __init__(self, write: Write, on_failure: Callable[[BaseException], None] = lambda error: None) -> None:
        self._write = write
        self._on_failure = on_failure
        self._jobs: dict[int, JobRecord] = {}
        self._steps: dict[tuple[int, str], tuple[JobRecord, StepRecord]] = {}     # by run (db_index) and step
        self._operations: list[Operation] = []
        self.prepare: Callable[[JobRecord], None] = lambda job: None          # before a job is written
        self._scheduled = False
        self._waiting: list[asyncio.Future[None]] = []         # for what is not yet given to the ledger
        self._given: list[asyncio.Future[None]] = []           # for what was given to it last
        self._last: asyncio.Future[None] | None = None         # that, unless it is on disk
        self._hasty: set[asyncio.Future[None]] = set()         # those that do not outwait trouble
        self._failure: BaseException | None = None             # the ledger writes no more
        self.trouble = ""                     # why nothing can be written for now

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
        self._give([SaveJob(job, recoverable=False)], [])

    def set_trouble(self, text: str) -> None:
        """The ledger cannot be written for now ("": it can again)."""
        self.trouble = text
        if text:
            for waiter in self._hasty:
                if not waiter.done():
                    waiter.set_exception(NotDurable(text))

    async def durable(self) -> None:
        """Returns when everything marked so far is on disk. Raises the ledger's error when it never will be."""
        waiter = self._waiter()
        if waiter is not None:
            await waiter

    async def acknowledged(self) -> None:
        """The same, but raises NotDurable at once when it may take long."""
        waiter = self._waiter()
        if waiter is None:
            return
        if self.trouble:
            waiter.cancel()
            raise NotDurable(self.trouble)
        self._hasty.add(waiter)
        try:
            await waiter
        finally:
            self._hasty.discard(waiter)

    def _waiter(self) -> asyncio.Future[None] | None:
        """A future of all that was marked so far; None: it is on disk. Raises the error of a ledger that has failed."""
        if self._failure is not None:
            raise self._failure
        if self._scheduled:
            waiting = self._waiting
        elif self._last is not None:
            waiting = self._given
        else:
            return None
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting.append(waiter)
        return waiter

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
        waiting, self._waiting = self._waiting, []
        self._give(operations, waiting)

    def _give(self, operations: list[Operation], waiting: list[asyncio.Future[None]]) -> None:
        try:
            written = self._write(operations, alone=len(waiting) == 1)
        except LedgerError as error:
            written = asyncio.get_running_loop().create_future()
            written.set_exception(error)
        if written.done():
            self._settle(written, waiting)
            return
        self._last, self._given = written, waiting
        written.add_done_callback(lambda future: self._settle(future, waiting))

    def _settle(self, written: asyncio.Future[None], waiting: list[asyncio.Future[None]]) -> None:
        error = None if written.cancelled() else written.exception()
        if error is not None:
            self._failure = error
            self._on_failure(error)
        elif self._last is written:
            self._last = None
        for waiter in waiting:
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        if self._scheduled:
            self.flush()
