"""When the scheduler looks at the queue, and how its plan becomes allocations.

A change wakes the main pass, changes that come together are one pass; a backfill pass follows when somebody still
waits. Batch jobs that are submitted one after another are one pass as well: slurmctld starts none of them at its
submission either (batch_sched_delay), so that they start by priority. Both passes also run periodically
(sched_interval, bf_interval). Where nobody waited before, backfill is the first to see a burst: in slurmctld it then
looks every second, the main pass every sched_interval. The planning itself is ``slurmbridge.scheduling``.
"""
from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence

from slurmbridge.controller import aside, job_texts, magnets, pass_input, queueing, shapes
from slurmbridge.controller.evictions import Evictions
from slurmbridge.controller.jobs import lowest_task, note_wait
from slurmbridge.controller.late_plans import noted, prune
from slurmbridge.controller.life import Cause, JobLife
from slurmbridge.controller.transitions import Event, Phase, phase_of
from slurmbridge.controller.world import World
from slurmbridge.scheduling import passes as scheduler
from slurmbridge.scheduling.snapshot import MAIN, REASONS, Plan, Snapshot, Start
from slurmbridge.slurm import states
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.views.records import JobRecord

log = logging.getLogger(__name__)

COALESCE_S = 0.01
"""Changes that come within this time are one pass."""
QUIET_S = 0.5
"""So long without another submission, and a burst of them is over."""
BATCH_SCHED_DELAY_S = 3.0
"""A burst is looked at so long after its first job, be it over or not (slurm.conf(5), batch_sched_delay)."""
TRY_S, TRY_NODE_S = 4e-4, 3e-7
"""What it is taken to need for each job, and for each of a job's nodes, where no pass has been timed."""
HELD = frozenset({
    "JobHeldUser", "JobHeldAdmin", "JobHoldMaxRequeue", "Dependency", "DependencyNeverSatisfied", "BeginTime",
    "JobArrayTaskLimit"})


class Passes:
    """``wake`` asks for a pass; ``run`` is the task that does them."""

    def __init__(self, world: World, life: JobLife, evictions: Evictions) -> None:
        self._world = world
        self._life = life
        self._evictions = evictions
        self._changed = asyncio.Event()
        self._backfill_s: float | None = None     # what the last backfill pass took
        self._backfill_jobs = 0                   # how many waited then
        self._last_backfill = 0.0                 # loop time
        self._backfill_free = 0.0                 # loop time from when the next may begin
        self._later: asyncio.TimerHandle | None = None
        self._aside: asyncio.Task[None] | None = None
        self.main_count = self.backfill_count = 0
        self._expecting: set[int] = set()         # jobs with an expected start
        self._planned = None                      # nodes that the last backfill pass keeps for somebody
        self._described: set[int] = set()         # jobs whose reason carries a text
        self._preempting: dict[int, set[int]] = {}               # job that waits for those it preempted
        self.stopped = False                      # nothing starts any more
        self.configure()
        self._burst: asyncio.TimerHandle | None = None
        self._burst_since = 0.0                   # loop time
        self._idle = True                         # nobody waited for the last pass
        self._backfill_first = False

    def configure(self) -> None:
        """slurm.conf is new."""
        parameters = self._world.conf.scheduler_parameters
        self._sched_interval = _seconds(parameters.get("sched_interval"), 60.0)
        self._bf_interval = max(_seconds(parameters.get("bf_interval"), 30.0), 0.5)
        self._batch_delay = _seconds(parameters.get("batch_sched_delay"), BATCH_SCHED_DELAY_S)
        self._with_backfill = self._world.conf.scheduler_type.endswith("backfill")

    def wake(self) -> None:
        if self._burst is not None:
            self._burst.cancel()
            self._burst = None
        self._backfill_first = False
        self._changed.set()

    def wake_later(self) -> None:
        """A batch job came in, limits or reservations changed: a pass follows once no more of that comes, or after
        batch_sched_delay."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if self._burst is None:
            self._burst_since = now
        else:
            self._burst.cancel()
        self._burst = loop.call_at(min(now + QUIET_S, self._burst_since + self._batch_delay), self._burst_over)

    def _burst_over(self) -> None:
        self.wake()
        self._backfill_first = self._idle

    async def run(self) -> None:
        """Until cancelled. A pass that fails is logged and the next one tried."""
        loop = asyncio.get_running_loop()
        free = 0.0
        timeout = min(self._sched_interval, self._bf_interval if self._with_backfill else self._sched_interval)
        try:
            while not self.stopped:           # wait_for may swallow a cancellation that comes with a change
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), timeout)
                if self._burst is not None and not self._changed.is_set():
                    continue                  # submissions are coming in: they will wake
                await asyncio.sleep(max(COALESCE_S, free - loop.time()))
                self._changed.clear()
                began = time.perf_counter()
                try:
                    self.once()
                except Exception:
                    log.exception("scheduling pass")
                    await asyncio.sleep(1)
                free = loop.time() + self._world.pace.rest * (time.perf_counter() - began)
        finally:
            if self._aside is not None:
                self._aside.cancel()
            if self._later is not None:
                self._later.cancel()
            if self._burst is not None:
                self._burst.cancel()

    def once(self) -> None:
        """One main pass and, when it left somebody waiting, one backfill pass."""
        world = self._world
        if self._world.accrual.limited:
            self._accrue()
        self.update_priorities()
        self._resume()
        self._idle = not world.queue.eligible.any()
        if not len(world.queue) or self.stopped or world.journal.trouble or self._waits_for_completion():
            return
        if (world.nodes_returned or self._backfill_first) and self._with_backfill:
            self._backfill()
        world.nodes_returned = self._backfill_first = False
        self.main_count += 1
        self.apply(scheduler.main_pass(self._snapshot()))
        if self._with_backfill and len(world.queue):
            self._backfill()
        self._idle = not world.queue.eligible.any()

    def _backfill(self) -> None:
        """A backfill pass: now where it is quick, beside the event loop where it is not, later where one just was."""
        loop = asyncio.get_running_loop()
        if self._aside is not None or self._later is not None or self._preemptors_first():
            return
        if loop.time() < self._backfill_free:
            self._later = loop.call_at(self._backfill_free, self._backfill_later)
            return
        self.backfill_count += 1
        if self._expected_s() > self._world.pace.quick_s:
            self._aside = loop.create_task(self._backfill_aside())
            return
        began = time.perf_counter()
        self.apply(scheduler.backfill_pass(self._snapshot()))
        self._backfilled(time.perf_counter() - began)

    def _waits_for_completion(self) -> bool:
        """CompleteWait: nothing starts while a job that ended less than so many seconds ago is still completing. The
        pass follows once it is gone, or once the time is over."""
        world = self._world
        wait_s, now = world.conf.complete_wait_s, world.now()
        if not wait_s:
            return False
        left_s = [job.end_s + wait_s - now for job in world.jobs.active.values()
                  if states.COMPLETING in job.flags and job.end_s is not None and job.end_s + wait_s >= now]
        if left_s:
            asyncio.get_running_loop().call_later(max(left_s) + COALESCE_S, self._changed.set)
        return bool(left_s)

    def _preemptors_first(self) -> bool:
        """Nodes that are being emptied are looked at again once they are: until then backfill keeps its interval."""
        return bool(self._preempting) and asyncio.get_running_loop().time() < self._last_backfill + self._bf_interval

    def _expected_s(self) -> float:
        """How long a backfill pass takes: as the last one, unless the queue has grown much since."""
        world = self._world
        if self._backfill_s is not None and len(world.queue) <= 2 * self._backfill_jobs:
            return self._backfill_s
        tried = min(len(world.queue), world.settings.bf_max_job_test)
        return tried * (TRY_S + TRY_NODE_S * len(world.nodes))

    def _backfilled(self, took_s: float) -> None:
        self._backfill_s, self._backfill_jobs = took_s, len(self._world.queue)
        self._last_backfill = asyncio.get_running_loop().time()
        self._backfill_free = self._last_backfill + min(self._world.pace.rest * took_s, self._bf_interval)

    def _backfill_later(self) -> None:
        self._later = None
        world = self._world
        if not len(world.queue) or self.stopped or world.journal.trouble or self._waits_for_completion():
            return
        try:
            self.update_priorities()
            self._backfill()
        except Exception:
            log.exception("backfill pass")

    async def _backfill_aside(self) -> None:
        world, snapshot = self._world, self._snapshot()
        running_then = dict(world.columns.running)
        began = time.perf_counter()
        try:
            late = await aside.compute(lambda: noted(scheduler.backfill_pass(snapshot), snapshot))
            if not self.stopped and not world.journal.trouble:
                self.apply(prune(late, world, running_then))
        except Exception:
            log.exception("backfill pass")
        finally:
            self._aside = None
        self._backfilled(time.perf_counter() - began)

    def _accrue(self) -> None:
        world = self._world
        for job in world.accrual.run(list(world.jobs.pending.values()), world.now()):
            world.priorities.track(job)
            world.journal.job(job)

    def update_priorities(self) -> None:
        world = self._world
        changed = world.priorities.refreshed(world.jobs.pending, world.now(), world.jobs.take_refiled())
        for job_id, (priority, by_partition) in changed.items():
            job = world.jobs.pending.get(job_id)
            if job is None:
                continue
            job.priority, job.partition_priorities = priority, by_partition
            queueing.reprioritize(world, job)

    def _snapshot(self) -> Snapshot:
        world = self._world
        for job_id, victims in list(self._preempting.items()):
            running = world.columns.running
            if job_id not in world.queue or all(one not in running or running[one].suspended for one in victims):
                del self._preempting[job_id]
        return pass_input.snapshot(world, planned=self._planned, preempting=self._preempting)

    # --- the plan
    def apply(self, plan: Plan) -> list[JobRecord]:
        """Starts what can still be started, writes down reasons and expectations. Returns the started records."""
        world = self._world
        now = world.now()
        self._write_reasons(plan, now)
        started = []
        for start in self._whole_het_jobs(plan.starts):
            record = self._start(start)
            if record is not None:
                started.append(record)
        return started

    def _write_reasons(self, plan: Plan, now: float) -> None:
        world, queue = self._world, self._world.queue
        changed = plan.reason_codes != queue.reason[plan.reason_rows]
        for row, code in zip(plan.reason_rows[changed].tolist(), plan.reason_codes[changed].tolist()):
            queue.reason[row] = code
            if row not in plan.limit_reasons:
                self._write_reason(int(queue.job_id[row]), REASONS[code], plan, now)
        for row, word in plan.limit_reasons.items():
            self._write_reason(int(queue.job_id[row]), word, plan, now)
        for job_id, count in plan.node_counts.items():
            job = world.jobs.pending.get(job_id)
            if job is not None:
                shapes.size_requested(world, job, count)
        for job_id, word in plan.held.items():
            job = world.jobs.pending.get(job_id)
            if job is not None and job.priority:
                job.priority, job.reason, job.held_by_admin = 0, word, True
                queueing.refresh(world, job)
                world.journal.job(job)
        self._describe(plan)
        if plan.decided_by != MAIN:
            for job_id in self._expecting - plan.expected.keys():
                job = world.jobs.pending.get(job_id)
                if job is not None:
                    job.start_s, job.sched_nodes = None, ""
            for job_id, expected in plan.expected.items():
                job = world.jobs.pending.get(job_id)
                if job is not None:
                    job.start_s, job.sched_nodes = expected.start_s, job_texts.hostlist(world, expected.nodes)
            self._expecting = set(plan.expected)
            self._mark_planned(plan)

    def _describe(self, plan: Plan) -> None:
        """Texts that some reasons carry; a row that the pass judged without one loses its own."""
        world, queue = self._world, self._world.queue
        judged = set(plan.reason_rows.tolist()) if self._described else set()
        for job_id in [one for one in self._described if judged.intersection(queue.rows(one))]:
            self._described.discard(job_id)
            job = world.jobs.pending.get(job_id)
            if job is not None:
                job.reason_desc = ""
        for row, text in plan.descriptions.items():
            job = world.jobs.pending.get(int(queue.job_id[row]))
            if job is not None:
                job.reason_desc = text
                self._described.add(job.job_id)

    def described(self, job: JobRecord) -> None:
        """A submission gave the job such a text."""
        self._described.add(job.job_id)

    def _write_reason(self, job_id: int, word: str, plan: Plan, now: float) -> None:
        job = self._world.jobs.pending.get(job_id)
        if job is None or (job.reason in HELD and job.priority == 0):
            return
        if word != "None" or job.reason not in HELD:
            job.reason = word
            note_wait(job)
        job.last_sched_eval_s = now
        job.scheduler = plan.decided_by

    def _mark_planned(self, plan: Plan) -> None:
        self._planned = plan.planned_nodes
        if plan.planned_nodes is None:
            return
        for name, planned in zip(self._world.columns.names, plan.planned_nodes):
            node = self._world.nodes.get(name)
            if node is not None:
                (node.flags.add if planned else node.flags.discard)("PLANNED")

    def _whole_het_jobs(self, starts: Sequence[Start]) -> list[Start]:
        """Components of a heterogeneous job start together or not at all."""
        planned = {start.job_id for start in starts}
        result = []
        for start in starts:
            job = self._world.jobs.get(start.job_id)
            if job is not None and job.het_job_id and not planned.issuperset(job.het_job_ids):
                continue
            result.append(start)
        return result

    def _start(self, start: Start) -> JobRecord | None:
        world = self._world
        job = world.jobs.pending.get(start.job_id)
        if job is None or job.job_id not in world.queue:
            return None
        if start.preempted:
            self._preempt(start)
            return None
        if job.array_max_running and world.jobs.running_tasks(job.array_job_id) >= job.array_max_running:
            return None
        if job.array_pending is not None:
            record = world.jobs.split(job, lowest_task(job.array_pending))
            if record is not job:
                record.db_index = world.new_db_index()
                world.queue.listed_after[job.job_id] = record.job_id
                world.limits.job_entered_queue(record)
                world.limits.job_entered_queue(job)
                job_texts.name_files(world, record)
                world.journal.job(job)
                queueing.refresh(world, job)
            else:
                job_texts.name_files(world, record)
        else:
            record = job
        magnets.attract(world, record, start.attracted_by)
        try:
            self._life.apply(record, Event.START, Cause(start=start))
        except ValueError:
            log.exception("job %d: plan not applicable", record.job_id)
            return None
        return record

    def _resume(self) -> None:
        """Jobs that were suspended for others go on once nobody has their cores any more."""
        columns = self._world.columns
        for job_id in columns.suspended:
            job = self._world.jobs.active.get(job_id)
            if job is not None and columns.may_resume(job_id):
                with contextlib.suppress(SlurmError):
                    self._life.apply(job, Event.RESUME)

    def _preempt(self, start: Start) -> None:
        """Victims end first, or stop; the preemptor starts once their resources are free."""
        world = self._world
        self._preempting[start.job_id] = set(start.preempted)
        for victim_id in start.preempted:
            victim = world.jobs.active.get(victim_id)
            if victim is None or phase_of(victim) in (Phase.STOPPING, Phase.REQUEUING):
                continue
            self._evictions.begin(victim)


def _seconds(text: str | None, default: float) -> float:
    try:
        return float(text) if text else default
    except ValueError:
        return default


__all__ = ["Passes"]
