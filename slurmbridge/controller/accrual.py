"""The usage that associations and QOS carry: how running jobs add to it, and how it decays, is reset and moved.

The figures live in ``AssociationRecord`` and ``QosRecord`` (``usage_raw``, ``usage_tres_raw``, ``grp_used_wall_s``);
an account's are totals of everything at and below it, as in slurmctld, so usage of removed users stays with their
account. The arithmetic is the fair-share room's (``slurmbridge.fairshare.usage``).
"""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from slurmbridge.controller.refunds import Run, RunBook, Sum
from slurmbridge.fairshare import usage as arithmetic
from slurmbridge.fairshare.tree import LongDoubles, Tree
from slurmbridge.slurm import states
from slurmbridge.slurm.jobspec import UNLIMITED_MIN
from slurmbridge.slurm.settings import SlurmConf
from slurmbridge.views.records import AssociationData, AssociationRecord, JobRecord, QosRecord


class UsageBook:
    """See the module docstring. ``partition_qos`` names the QOS of partitions that have one."""

    def __init__(self, conf: SlurmConf, accounting: AssociationData, billing_of: Callable[[JobRecord], float],
                 last_ran_s: float | None, last_reset_s: float | None) -> None:
        self.accounting = accounting
        self.billing_of = billing_of
        self.last_ran_s = last_ran_s          # when usage was last brought up to date
        self.last_reset_s = last_reset_s
        self.partition_qos: dict[str, str] = {}
        self.runs: RunBook | None = None      # kept where runs may have to be taken back
        self.configure(conf)

    def configure(self, conf: SlurmConf) -> None:
        """A new slurm.conf; PriorityUsageResetPeriod=NOW resets at the next ``run``."""
        self._per_second = arithmetic.decay_per_second(conf.priority.decay_half_life_s)
        self._period = conf.priority.usage_reset_period.upper()
        self._tres_too = "limits" in conf.accounting_enforce

    # --- periods
    def run(self, active: Iterable[JobRecord], now_s: float) -> None:
        """Reset if due, decay, then add what running jobs used since the last run."""
        now_s = int(now_s)
        if self.last_reset_s is None:
            self.last_reset_s = now_s
        if self._period == "NOW":
            self._reset()
            self._period, self.last_reset_s = "NONE", now_s
        due = arithmetic.next_reset_s(self._period, self.last_reset_s, now_s)
        if due is not None and now_s >= due:
            self._reset()
            self.last_reset_s = due
        if self.last_ran_s is not None and now_s > self.last_ran_s:
            self._decay(arithmetic.decay_over(self._per_second, now_s - int(self.last_ran_s)))
        self._add((job for job in active if _accrues(job)), now_s)
        self.last_ran_s = now_s

    def end(self, job: JobRecord, now_s: float) -> None:
        """A run is over: its rest up to ``end_s`` (or now)."""
        if job.start_s is not None:
            self._add((job,), now_s if job.end_s is None else min(now_s, job.end_s))

    def _add(self, jobs: Iterable[JobRecord], until_s: float) -> None:
        associations: dict[int, Sum] = defaultdict(Sum)
        qos_sums: dict[str, Sum] = defaultdict(Sum)
        since_s = self.last_ran_s or 0.0
        for job in jobs:
            seconds = arithmetic.elapsed_s(job.start_s or 0.0, since_s, until_s)
            if not seconds:
                continue
            accrued = arithmetic.accrue(seconds, self.billing_of(job), self._usage_factor(job), self._per_second)
            tres = job.tres_alloc if self._tres_too else {}
            for name in {job.qos, self.partition_qos.get(job.partition, "")} & self.accounting.qos.keys():
                if "NoDecay" in self.accounting.qos[name].flags:
                    qos_sums[name].add(accrued.usage_undecayed, accrued.seconds_undecayed, tres)
                else:
                    qos_sums[name].add(accrued.usage, accrued.seconds, tres)
            associations[job.assoc_id].add(accrued.usage, accrued.seconds, tres)
            if self.runs is not None:
                run = self.runs.runs.get(job.job_id)
                if run is None:
                    run = self.runs.runs[job.job_id] = self._before(job, since_s)
                run.decayed.add(accrued.usage, accrued.seconds, tres)
                run.plain.add(accrued.usage_undecayed, accrued.seconds_undecayed, tres)
        for association_id, total in associations.items():
            for association in self._upwards(association_id):
                _credit(association, total)
        for name, total in qos_sums.items():
            _credit(self.accounting.qos[name], total)

    def _before(self, job: JobRecord, until_s: float) -> Run:
        """What a run of before this controller's start has added, as if it had been counted without a break."""
        run, left = Run(), self._per_second
        seconds = arithmetic.elapsed_s(job.start_s or 0.0, 0.0, until_s)
        if seconds > 0:
            factor, billing = self._usage_factor(job), self.billing_of(job)
            decayed_s = (1 - left ** seconds) / (1 - left) if left < 1 else float(seconds)
            tres = job.tres_alloc if self._tres_too else {}
            run.decayed.add(decayed_s * billing * factor, decayed_s * factor, tres)
            run.plain.add(seconds * billing * factor, seconds * factor, tres)
        return run

    def refund(self, job: JobRecord) -> None:
        """Takes back what the run that has just ended added, in its association, those above, and its QOS."""
        if self.runs is None:
            return
        run = self.runs.runs.pop(job.job_id, None) or self._before(job, self.last_ran_s or 0.0)
        for association in self._upwards(job.assoc_id):
            _debit(association, run.decayed)
        for name in {job.qos, self.partition_qos.get(job.partition, "")} & self.accounting.qos.keys():
            qos = self.accounting.qos[name]
            _debit(qos, run.plain if "NoDecay" in qos.flags else run.decayed)

    def _usage_factor(self, job: JobRecord) -> float:
        qos = self.accounting.qos.get(job.qos)
        return 1.0 if qos is None else qos.usage_factor

    def _upwards(self, association_id: int) -> Iterator[AssociationRecord]:
        """An association and those above it, the root last."""
        association = self.accounting.associations.get(association_id)
        while association is not None:
            yield association
            association = self.accounting.associations.get(association.parent_id)

    def _records(self) -> Iterator[AssociationRecord | QosRecord]:
        yield from self.accounting.associations.values()
        yield from self.accounting.qos.values()

    def _decay(self, left: float) -> None:
        if left == 1:
            return
        if self.runs is not None:
            self.runs.decay(left)
        for record in self._records():
            if not (isinstance(record, QosRecord) and "NoDecay" in record.flags):
                _scale(record, left)

    def _reset(self) -> None:
        if self.runs is not None:
            self.runs.reset()
        for record in self._records():
            _scale(record, 0.0)

    # --- by hand
    def replace(self, rows: Iterable[tuple[str, str, float]]) -> None:
        """(account, user, raw usage): see Priorities.set_usage. Raises KeyError((account, user))."""
        known = {(a.account, a.user): a for a in self.accounting.associations.values()
                 if a.user and not a.deleted and not a.partition}
        changes = [(known[account, user], float(usage)) for account, user, usage in rows]
        for association, usage in changes:
            more = usage - association.usage_raw
            for record in self._upwards(association.id):
                record.usage_raw = max(record.usage_raw + more, 0.0)
            association.usage_raw = usage

    def totals(self, tree: Tree) -> LongDoubles:
        """Raw usage by row of the tree."""
        by_id = self.accounting.associations
        return np.array([by_id[association_id].usage_raw for association_id in tree.ids.tolist()], np.longdouble)

    def moved(self, before: Tree, after: Tree) -> None:
        """Associations got other parents: each account's total is what is below it now plus what was its own."""
        parents_before = _parents(before)
        parents_after = _parents(after)
        if all(parents_before.get(child, parent) == parent for child, parent in parents_after.items()):
            return
        by_id = self.accounting.associations
        own = {i: _Total.of(by_id[i]) for i in parents_before if i in by_id}
        for child, parent in parents_before.items():
            if child in own and parent in own and not by_id[child].deleted:
                own[parent].add(_Total.of(by_id[child]), -1)
        total = {i: own[i] if i in own else _Total.of(by_id[i]) for i in parents_after}
        for row in range(len(after.ids) - 1, 0, -1):          # children come after their parents
            total[int(after.ids[after.parent[row]])].add(total[int(after.ids[row])], 1)
        for association_id, figures in total.items():
            figures.store(by_id[association_id])

    # --- what running jobs may still use
    def run_seconds(self, active: Iterable[JobRecord]) -> dict[int, dict[str, int]]:
        """TRES-seconds × UsageFactor left to running jobs up to their limits, by association and those above.
        Empty unless limits are enforced."""
        left: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        if not self._tres_too:
            return {}
        for job in active:
            if not _accrues(job):
                continue
            limit = UNLIMITED_MIN if job.time_limit_min is None else job.time_limit_min
            start = job.start_s or 0.0
            seconds = arithmetic.run_seconds_left(start, limit, self.last_ran_s or 0.0, self._usage_factor(job))
            for association in self._upwards(job.assoc_id):
                sums = left[association.id]
                for name, count in job.tres_alloc.items():
                    if name != "energy":
                        sums[name] += count * seconds
        return left


@dataclass(slots=True)
class _Total:
    """The decaying figures of one association."""

    usage: float
    wall_s: float
    tres: dict[str, float]

    @classmethod
    def of(cls, record: AssociationRecord) -> _Total:
        return cls(record.usage_raw, record.grp_used_wall_s, dict(record.usage_tres_raw))

    def add(self, other: _Total, sign: int) -> None:
        self.usage = max(self.usage + sign * other.usage, 0.0)
        self.wall_s = max(self.wall_s + sign * other.wall_s, 0.0)
        for name, value in other.tres.items():
            self.tres[name] = max(self.tres.get(name, 0.0) + sign * value, 0.0)

    def store(self, record: AssociationRecord) -> None:
        record.usage_raw, record.grp_used_wall_s, record.usage_tres_raw = self.usage, self.wall_s, self.tres


def _parents(tree: Tree) -> dict[int, int]:
    ids = tree.ids
    return {int(ids[row]): int(ids[up]) if up >= 0 else 0 for row, up in enumerate(tree.parent.tolist())}


def _accrues(job: JobRecord) -> bool:
    """The job holds resources and its run has not been closed by ``end``."""
    return (job.start_s is not None and job.state not in states.FINISHED and job.state != states.PENDING
            and states.COMPLETING not in job.flags)


def _credit(record: AssociationRecord | QosRecord, total: Sum) -> None:
    record.usage_raw += total.usage
    record.grp_used_wall_s += total.wall_s
    for name, value in total.tres_s.items():
        record.usage_tres_raw[name] = record.usage_tres_raw.get(name, 0.0) + value


def _debit(record: AssociationRecord | QosRecord, total: Sum) -> None:
    record.usage_raw = max(record.usage_raw - total.usage, 0.0)
    record.grp_used_wall_s = max(record.grp_used_wall_s - total.wall_s, 0.0)
    for name, value in total.tres_s.items():
        record.usage_tres_raw[name] = max(record.usage_tres_raw.get(name, 0.0) - value, 0.0)


def _scale(record: AssociationRecord | QosRecord, left: float) -> None:
    record.usage_raw *= left
    record.grp_used_wall_s *= left
    for name in record.usage_tres_raw:
        record.usage_tres_raw[name] *= left
