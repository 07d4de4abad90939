"""What happens to a job because time goes by: begin times, deadlines, time limits, GraceTime, and being forgotten.

One heap of (due, job id); an entry is only a reminder to look at the job, so nothing has to be cancelled.
"""
from __future__ import annotations

import heapq

from slurmbridge.controller import queueing
from slurmbridge.controller.dependencies import parse
from slurmbridge.controller.evictions import Evictions
from slurmbridge.controller.life import Cause, JobLife
from slurmbridge.controller.transitions import Event, Phase, phase_of
from slurmbridge.controller.world import World
from slurmbridge.slurm.jobspec import UNLIMITED_MIN
from slurmbridge.views.records import JobRecord

UNLIMITED_OVER_MIN = 0xFFFF
SLACK = 1000
WAIT_FOR_STEP_S = 60.0
"""An allocation made by srun whose step never came (its client is gone) is given back after this time."""


class Timers:
    """``arm`` after every change of a job; ``run`` at least once a second."""

    def __init__(self, world: World, life: JobLife, evictions: Evictions) -> None:
        self._world = world
        self._life = life
        self._evictions = evictions
        self._heap: list[tuple[float, int]] = []

    def arm(self, job: JobRecord) -> None:
        due = self._due(job)
        if due is not None:
            heapq.heappush(self._heap, (due, job.job_id))

    @property
    def next_due(self) -> float | None:
        return self._heap[0][0] if self._heap else None

    def run(self) -> None:
        """Acts on everything that is due."""
        now = self._world.now()
        if len(self._heap) > SLACK + 4 * len(self._world.jobs):       # mostly reminders of what is over
            self._heap = [(due, job.job_id) for job in self._world.jobs.values() if (due := self._due(job)) is not None]
            heapq.heapify(self._heap)
        heap = self._heap
        again = []
        while heap and heap[0][0] <= now:
            _, job_id = heapq.heappop(heap)
            job = self._world.jobs.get(job_id)
            if job is not None:
                self._act(job, now)
                if job_id in self._world.jobs:
                    again.append(job)
        for job in again:
            due = self._due(job)
            if due is not None:
                heapq.heappush(heap, (max(due, now + 0.2), job.job_id))

    def _due(self, job: JobRecord) -> float | None:
        phase = phase_of(job)
        if phase is Phase.PENDING:
            dues = []
            now = self._world.now()
            if job.eligible_s is not None and (job.eligible_s > now or job.reason == "BeginTime"):
                dues.append(job.eligible_s)
            if job.deadline_s:
                dues.append(float(job.deadline_s))
            if "+" in job.dependency:
                dues.append(self._delayed(job))
            return min(dues) if dues else None
        if phase in (Phase.STARTING, Phase.RUNNING):
            ends = (self.ends_at(job), self._evictions.ends_at(job), job.deadline_s)
            return min((float(end) for end in ends if end), default=None)
        if phase is Phase.SUSPENDED:
            return self._evictions.ends_at(job)
        if phase is Phase.ENDED and self._world.conf.min_job_age_s > 0:
            return (job.end_s or 0) + self._world.conf.min_job_age_s
        return None

    def _delayed(self, job: JobRecord) -> float:
        """When the next ``after:N+M`` of the job may be met."""
        dues = []
        for test in parse(job.dependency, self._world.conf.max_array_size).tests:
            if test.delay_min:
                for other in [self._world.find(test.job_id), *self._world.jobs.array(test.job_id)]:
                    if other is not None and other.start_s is not None:
                        dues.append(other.start_s + test.delay_min * 60)
        later = [due for due in dues if due > self._world.now()]
        return min(later) if later else self._world.now() + 1

    def ends_at(self, job: JobRecord) -> float | None:
        """Epoch seconds at which the time limit, with OverTimeLimit, or its reservation ends the job; None: never."""
        limit = self._time_limit_ends_at(job)
        record = self._world.reservation_book.of(job) if job.request.reservation else None
        if record is None or "FLEX" in record.flags:
            return limit
        over_min = int(self._world.conf.values.get("ResvOverRun") or 0)
        if over_min >= UNLIMITED_OVER_MIN:
            return limit
        end = float(record.end_s + over_min * 60)
        return end if limit is None else min(limit, end)

    def _time_limit_ends_at(self, job: JobRecord) -> float | None:
        if job.time_limit_min is None or job.time_limit_min == UNLIMITED_MIN or job.start_s is None:
            return None
        partition = self._world.partitions.get(job.partition)
        over = self._world.conf.over_time_limit_min
        if partition is not None and partition.over_time_limit_min is not None:
            over = partition.over_time_limit_min
        if over >= UNLIMITED_OVER_MIN:
            return None
        return job.start_s + job.pre_suspend_s + (job.time_limit_min + over) * 60

    def _act(self, job: JobRecord, now: float) -> None:
        phase = phase_of(job)
        if phase is Phase.PENDING:
            if job.deadline_s and now >= job.deadline_s:
                self._life.apply(job, Event.DEADLINE)
                return
            if job.eligible_s is not None and now >= job.eligible_s:
                if job.reason == "BeginTime":
                    job.reason = "None"
                queueing.refresh(self._world, job)
                self._world.wake()
            if job.dependency:
                self._life.judge_dependents([job])
        elif (grace_ends := self._evictions.ends_at(job)) is not None and now >= grace_ends:
            self._evictions.finish(job)
        elif phase in (Phase.STARTING, Phase.RUNNING):
            limit = self.ends_at(job)
            if limit is not None and now >= limit:
                self._life.apply(job, Event.TIME_OUT, Cause(uid=0))
            elif job.deadline_s and now >= job.deadline_s:
                self._life.apply(job, Event.DEADLINE, Cause(uid=0))
        elif phase is Phase.ENDED and self._world.conf.min_job_age_s > 0 and self._may_go(job, now):
            self._life.apply(job, Event.PURGE)

    def _may_go(self, job: JobRecord, now: float) -> bool:
        """An array and a heterogeneous job are forgotten task by task, but no dependent may still ask for them."""
        if now < (job.end_s or 0) + self._world.conf.min_job_age_s:
            return False
        return job.het_job_id in (0, job.job_id) or all(
            phase_of(one) is Phase.ENDED for one in self._world.jobs.het_components(job))
