"""Which waiting jobs gain age: the limits GrpJobsAccrue, MaxJobsAccrue and MaxJobsAccruePerUser/PerAccount.

A job's age counts from ``accrue_s``. Where no such limit is set that is when it became eligible; where one is set, a
pass gives it to as many jobs of an association or a QOS as the limit allows, in the order of the job list. Of an array
the tasks that may accrue leave the array (acct_policy in slurmctld). The QOS is the job's of highest priority; its
limits come before the associations', of which the first in the tree that has one counts.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from slurmbridge.controller.jobs import lowest_task, tasks_of
from slurmbridge.controller.world import World
from slurmbridge.views.records import JobRecord

Key = tuple[object, ...]
Subject = tuple[int, str, str, str]
"""(association id, QOS, user, account)"""


class Accrual:
    """``limited``: whether any limit is set; jobs get no age by themselves then."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._generation = -1
        self._limited = False

    @property
    def limited(self) -> bool:
        world = self._world
        if not world.limits.enforced or "ACCRUE_ALWAYS" in world.conf.priority.flags:
            return False
        accounting = world.accounting
        if self._generation != accounting.generation:
            self._generation = accounting.generation
            records = (*accounting.associations.values(), *accounting.qos.values())
            self._limited = any(
                bound is not None for one in records if not one.deleted for bound in (
                    one.limits.grp_jobs_accrue, one.limits.max_jobs_accrue, one.limits.max_jobs_accrue_per_account))
        return self._limited

    def run(self, pending: Iterable[JobRecord], now_s: float) -> list[JobRecord]:
        """Gives age to the jobs that may have it now; tasks leave their arrays. Returns the jobs that got it."""
        counts: Counter[Subject] = Counter()
        waiting: list[JobRecord] = []
        for job in pending:
            if job.accrue_s is not None:
                counts[_subject(job)] += tasks_of(job)
            elif job.priority and not job.dependency and job.eligible_s is not None and job.eligible_s <= now_s:
                waiting.append(job)
        used: Counter[Key] = Counter()
        for subject, count in counts.items():
            for key in self._keys(subject):
                used[key] += count
        after = self._world.queue.listed_after
        waiting.sort(key=lambda job: (after.get(job.job_id, job.job_id), job.job_id in after))
        full: set[Subject] = set()
        given: list[JobRecord] = []
        for job in waiting:
            subject = _subject(job)
            if subject in full:
                continue
            room = self._room(subject, used)
            if room == 0:
                full.add(subject)
                continue
            for one in self._taken(job, room):
                one.accrue_s = one.eligible_s if room is None else now_s
                given.append(one)
                for key in self._keys(subject):
                    used[key] += tasks_of(one)
        return given

    def _taken(self, job: JobRecord, room: int | None) -> list[JobRecord]:
        """The job, or the tasks of the array for which there is room."""
        if room is None or not job.array_pending:
            return [job]
        return [self._world.split(job, lowest_task(job.array_pending))
                for _ in range(min(room, job.array_pending.bit_count()))]

    def _room(self, subject: Subject, used: Counter[Key]) -> int | None:
        """How many more may accrue; None: no limit."""
        association, name, user, account = subject
        room: int | None = None
        qos = self._world.accounting.qos.get(name)
        if qos is not None:
            limits = qos.limits
            room = _least([(limits.grp_jobs_accrue, used["qos", name]),
                           (limits.max_jobs_accrue_per_account, used["qos", name, "account", account]),
                           (limits.max_jobs_accrue, used["qos", name, "user", user])])
        for level, record in enumerate(self._world.limits.chain(association)):
            if room is not None:
                break
            limits, held = self._world.limits.limits_of(record), used["assoc", record.id]
            room = _least([(record.limits.grp_jobs_accrue, held),
                           (limits.max_jobs_accrue if level == 0 else None, held)])
        return room

    def _keys(self, subject: Subject) -> list[Key]:
        association, qos, user, account = subject
        return [*(("assoc", record.id) for record in self._world.limits.chain(association)), ("qos", qos),
                ("qos", qos, "user", user), ("qos", qos, "account", account)]


def _subject(job: JobRecord) -> Subject:
    return job.assoc_id, job.qos, job.user_name, job.account


def _least(bounds: list[tuple[int | None, int]]) -> int | None:
    """Room under the lowest bound that is set."""
    given = [(bound, held) for bound, held in bounds if bound is not None]
    if not given:
        return None
    bound, held = min(given)
    return max(0, bound - held)
