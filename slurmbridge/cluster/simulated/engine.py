"""The simulated engine: nodes and runs that take time and nothing else.

A run lasts until its job's time limit, or as its script says by ``#SIMULATED seconds=N exit=M`` (docs/simulated.md).
All times come from the clock it is given, so that tests and replays own them. It keeps no files: after a restart the
runs that the controller lists go on by their start times.
"""
from __future__ import annotations

import asyncio
import heapq
import itertools
import re
import signal as signals
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurmbridge.cluster.port import Event, LaunchOrder, RunId
from slurmbridge.slurm.jobspec import UNLIMITED_MIN
from slurmbridge.views.records import JobRecord, NodeRecord

DIRECTIVE = re.compile(r"^#SIMULATED\b(.*)$", re.MULTILINE)
_WORD = re.compile(r"(\w+)=(\S+)")
REASONS = {"TIME LIMIT": "TimeLimit", "NODE FAILURE": "NodeFail", "PREEMPTION": "Preempted", "JOB REQUEUE": "Requeued",
           "CANCELLED": "Cancelled"}


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What a script says of its run: it ends after ``seconds`` (None: runs on), with exit code ``exit_code``."""

    seconds: float | None = None
    exit_code: int = 0


def behaviour(script: str | None) -> Behaviour:
    """From the script's first ``#SIMULATED`` line; without one the run goes on until it is ended."""
    found = DIRECTIVE.search(script or "")
    if found is None:
        return Behaviour()
    words = dict(_WORD.findall(found[1]))
    try:
        seconds = float(words["seconds"]) if "seconds" in words else None
        return Behaviour(seconds, int(words.get("exit", "0")) & 0xFF)
    except ValueError:
        return Behaviour()


@dataclass(slots=True)
class _Run:
    start_s: float
    behaviour: Behaviour
    end_by_s: float | None
    serial: int = 0                           # of its timer; an older one in the heap is void
    sequence: int = 0
    suspended_s: float | None = None
    held_s: float = 0.0                       # seconds it was suspended
    is_over: bool = False


class SimulatedEngine:
    """``nodes`` may be ten thousand: nothing is done per node but to list them.

    ``clock`` gives epoch seconds, ``sleep`` waits for so many of its seconds. ``state``, the controller's directory, is
    not needed here; engines are made alike.
    """

    name = "simulated"
    suspended_frees_cores = True

    def __init__(self, nodes: Sequence[NodeRecord], state: Path | None = None, *,
                 clock: Callable[[], float] = time.time,
                 sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._nodes = list(nodes)
        self._now = clock
        self._sleep = sleep
        self._runs: dict[RunId, _Run] = {}
        self._timers: list[tuple[float, int, RunId]] = []
        self._serials = itertools.count(1)
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._changed = asyncio.Event()
        self._ticker: asyncio.Task[None] | None = None

    def stale_s(self) -> float:
        return 0.0

    async def inventory(self) -> Sequence[NodeRecord]:
        return self._nodes

    async def recover(self, runs: Sequence[JobRecord]) -> None:
        listed = {RunId(job.job_id, job.restarts): job for job in runs}
        for run in [run for run in self._runs if run not in listed]:
            del self._runs[run]
        for run, job in listed.items():
            if run in self._runs:
                continue
            start_s = self._now() if job.start_s is None else job.start_s
            self._begin(run, start_s, behaviour(job.request.script), _end_by(job, start_s))
            self._tell(run, "started", start_s)
        if self._ticker is None:
            self._ticker = asyncio.create_task(self._tick())

    async def launch(self, order: LaunchOrder) -> None:
        if order.run not in self._runs:
            now = self._now()
            self._begin(order.run, now, behaviour(order.job.request.script), order.end_by_s)
            self._tell(order.run, "started", now)
            if self._ticker is None:
                self._ticker = asyncio.create_task(self._tick())

    def _begin(self, run: RunId, start_s: float, how: Behaviour, end_by_s: float | None) -> None:
        self._runs[run] = _Run(start_s, how, end_by_s)
        self._arm(run)

    # ---- time -------------------------------------------------------------------------------------------------------

    def _next_s(self, record: _Run) -> float | None:
        ends = [] if record.behaviour.seconds is None else [record.start_s + record.behaviour.seconds + record.held_s]
        if record.end_by_s is not None:
            ends.append(record.end_by_s)
        return min(ends, default=None)

    def _arm(self, run: RunId) -> None:
        record = self._runs[run]
        record.serial = next(self._serials)
        at_s = self._next_s(record)
        if at_s is not None and record.suspended_s is None:
            heapq.heappush(self._timers, (at_s, record.serial, run))
            if self._timers[0][1] == record.serial:
                self._changed.set()

    async def _tick(self) -> None:
        while True:
            now = self._now()
            while self._timers and self._timers[0][0] <= now:
                at_s, serial, run = heapq.heappop(self._timers)
                record = self._runs.get(run)
                if record is not None and record.serial == serial and not record.is_over:
                    self._reached(run, record, at_s)
            self._changed.clear()
            change = asyncio.ensure_future(self._changed.wait())
            waits: list[asyncio.Future[Any]] = [change]
            if self._timers:
                waits.append(asyncio.ensure_future(self._sleep(self._timers[0][0] - now)))
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()

    def _reached(self, run: RunId, record: _Run, at_s: float) -> None:
        natural = record.behaviour.seconds
        if natural is not None and record.start_s + natural + record.held_s <= at_s:
            self._end(run, at_s, record.behaviour.exit_code << 8, "")
        else:
            self._end(run, at_s, signals.SIGTERM, "TimeLimit")

    # ---- events -----------------------------------------------------------------------------------------------------

    def _tell(self, run: RunId, kind: str, at_s: float, exit_status: int = 0, **data: object) -> None:
        record = self._runs[run]
        record.sequence += 1
        self._events.put_nowait(Event(kind, run, at_s, exit_status=exit_status, data=data, sequence=record.sequence))

    def _end(self, run: RunId, at_s: float, exit_status: int, reason: str) -> None:
        self._runs[run].is_over = True
        self._tell(run, "script_ended", at_s, exit_status, usage={})
        self._tell(run, "finished", at_s, exit_status, reason=reason)

    async def events(self) -> AsyncIterator[Event]:
        while True:
            yield await self._events.get()

    async def acknowledge(self, run: RunId, sequence: int) -> None:
        record = self._runs.get(run)
        if record is not None and record.is_over and sequence >= record.sequence:
            del self._runs[run]

    def happens(self, event: Event) -> None:
        """What a simulation makes happen, to a node or a run, as an engine with real ones would tell it."""
        self._events.put_nowait(event)

    # ---- orders -----------------------------------------------------------------------------------------------------

    async def signal(self, run: RunId, signal: int, *, steps: bool = True, batch: bool = False,
                     step_id: str | None = None, quiet: bool = False) -> None:
        """A signal that ends a shell ends the run when it goes to the batch script; simulated jobs have no steps."""
        record = self._runs.get(run)
        ends = signal in (signals.SIGKILL, signals.SIGTERM, signals.SIGINT, signals.SIGHUP, signals.SIGQUIT)
        if record is not None and not record.is_over and batch and ends:
            self._end(run, self._now(), signal, "")

    async def terminate(self, run: RunId, *, cause: str, grace_s: float, signal_first: int | None = None,
                        uid: int = 0) -> None:
        record = self._runs.get(run)
        if record is None:
            self._events.put_nowait(Event("finished", run, self._now(), data={"reason": "NotStarted"}))
        elif not record.is_over:
            self._end(run, self._now(), signals.SIGTERM if grace_s else signals.SIGKILL, REASONS.get(cause, ""))

    async def suspend(self, run: RunId) -> None:
        record = self._runs.get(run)
        if record is not None and record.suspended_s is None and not record.is_over:
            record.suspended_s = self._now()
            self._arm(run)

    async def resume(self, run: RunId) -> None:
        record = self._runs.get(run)
        if record is not None and record.suspended_s is not None:
            held_s = self._now() - record.suspended_s
            record.suspended_s = None
            record.held_s += held_s
            if record.end_by_s is not None:
                record.end_by_s += held_s
            self._arm(run)

    async def notify(self, run: RunId, text: str) -> None:
        """Nothing runs that could show it."""

    async def update(self, run: RunId, *, end_by_s: float | None) -> None:
        record = self._runs.get(run)
        if record is not None and not record.is_over:
            record.end_by_s = end_by_s
            self._arm(run)

    async def look(self, run: RunId) -> Mapping[str, Mapping[str, Any]]:
        """No process runs."""
        return {}

    async def step_address(self, run: RunId) -> str:
        """There is nobody to speak with."""
        raise ConnectionError("the simulated engine runs no steps")

    async def close(self) -> None:
        if self._ticker is not None:
            self._ticker.cancel()
            self._ticker = None

    async def shutdown(self) -> None:
        self._runs.clear()
        await self.close()


def _end_by(job: JobRecord, start_s: float) -> float | None:
    """The end of a run that goes on after a restart."""
    if job.end_s is not None:
        return job.end_s
    if job.time_limit_min is None or job.time_limit_min >= UNLIMITED_MIN:
        return None
    return start_s + 60 * job.time_limit_min
