"""Limits of associations and QOS against the live cluster: the scheduler's LimitBook, kept up to date as jobs start and
end, and the counts of submitted jobs that submissions are held against.

Groups are made anew when the accounting data change; the jobs that run are then counted into them.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from slurmbridge.controller.jobs import tasks_of
from slurmbridge.controller.relative_qos import absolute
from slurmbridge.fairshare.usage import run_seconds_left
from slurmbridge.scheduling.facts import FOREVER_S
from slurmbridge.scheduling.limit_pass import NO_LIMIT, LimitPass
from slurmbridge.scheduling.limits import Group, LimitBook, Limits, Subject, Usage
from slurmbridge.slurm.jobspec import UNLIMITED_MIN
from slurmbridge.slurm.settings import SlurmConf
from slurmbridge.views.associations import Tree
from slurmbridge.views.records import AssociationData, AssociationRecord, JobRecord, PartitionRecord, QosRecord
from slurmbridge.views.records import Limits as RecordLimits

Key = tuple[object, ...]


class LimitBooks:
    """``active``: the jobs that hold resources; ``now``: epoch seconds."""

    def __init__(self, conf: SlurmConf, accounting: AssociationData, partitions: Mapping[str, PartitionRecord],
                 active: Callable[[], Iterable[JobRecord]], now: Callable[[], float]) -> None:
        self._conf = conf
        self._accounting = accounting
        self._partitions = partitions
        self._active = active
        self._generation = -1
        self._book = LimitBook()
        self._tree = Tree(accounting)
        self.accrued_until_s: Callable[[], float | None] = now       # when usage was last brought up to date
        self.fair_shares: Callable[[], Mapping[int, float]] = dict                # fair-share factors by association
        self.billing: Callable[[Mapping[str, int], str], float] | None = None     # billing units in a partition
        self.tres_total: Callable[[str], Mapping[str, int]] = lambda partition: {}     # "": of the cluster
        self._groups: dict[Key, int] = {}
        self._subjects: dict[tuple[int, str, str, str, str], int] = {}
        self._running: dict[int, tuple[Subject, dict[str, int]]] = {}
        self.submitted: Counter[Key] = Counter()
        self._counted: dict[int, tuple[tuple[Key, ...], int]] = {}
        self._same_keys: dict[tuple[Key, ...], tuple[Key, ...]] = {}              # one object for all jobs that have it

    @property
    def enforced(self) -> bool:
        return "limits" in self._conf.accounting_enforce or "safe" in self._conf.accounting_enforce

    # --- groups and subjects
    def book(self) -> LimitBook:
        """The book with usage as of now."""
        self._sync()
        self._refresh_usage()
        self._book.below_threshold = self._below_threshold()
        return self._book

    def _below_threshold(self) -> frozenset[int]:
        """Subjects of a QOS with UsageThreshold (flag EnforceUsageThreshold) whose fair share has fallen below it."""
        bounds = {qos.name: qos.usage_threshold for qos in self._accounting.qos.values()
                  if qos.usage_threshold is not None and "EnforceUsageThreshold" in qos.flags}
        if not bounds:
            return frozenset()
        shares = self.fair_shares()
        return frozenset(index for (assoc_id, qos, *_), index in self._subjects.items()
                         if qos in bounds and shares.get(assoc_id, 1.0) < bounds[qos])

    def subject(self, job: JobRecord, partition: str = "", qos: str = "") -> int:
        """Index of the limits this job stands under in one of its partitions, with one of its QOS (its own by default);
        -1 where none are enforced."""
        if not self.enforced:
            return -1
        self._sync()
        return self._subject(job, partition, qos)

    def holds_back(self, job: JobRecord, partition: str) -> bool:
        """Whether a limit keeps the job waiting now, whatever nodes it would get."""
        if not self.enforced:
            return False
        subject = self.subject(job, partition)
        minutes = job.time_limit_min
        limit_s = FOREVER_S if minutes is None or minutes == UNLIMITED_MIN else minutes * 60
        return bool(LimitPass(self._book, ()).before_selection(subject, limit_s, time_waived=job.time_waived))

    def most_nodes(self, job: JobRecord, partition: str) -> int:
        """The most nodes that limits let the job have."""
        if not self.enforced:
            return NO_LIMIT
        return LimitPass(self._book, ()).max_nodes(self.subject(job, partition))[0]

    def chain(self, association_id: int) -> list[AssociationRecord]:
        """The association and all above it."""
        result = []
        seen: set[int] = set()
        record = self._accounting.associations.get(association_id)
        while record is not None and record.id not in seen:
            seen.add(record.id)
            result.append(record)
            record = self._accounting.associations.get(record.parent_id)
        return result

    def _subject(self, job: JobRecord, partition: str = "", qos: str = "") -> int:
        partition = partition or job.partition.partition(",")[0]
        key = (job.assoc_id, qos or job.qos, self._partition_qos(partition), job.user_name, job.account)
        index = self._subjects.get(key)
        if index is None:
            index = self._subjects[key] = len(self._book.subjects)
            self._book.subjects.append(self._make_subject(*key))
        return index

    def _make_subject(self, assoc_id: int, qos: str, partition_qos: str, user: str, account: str) -> Subject:
        chain = tuple(self._group(("assoc", record.id)) for record in self.chain(assoc_id))
        own = self._group(("qos", qos)) if qos in self._accounting.qos else -1
        other = self._group(("qos", partition_qos)) if partition_qos in self._accounting.qos else -1
        return Subject(user, account, chain, own, -1 if other == own else other)

    def _partition_qos(self, name: str) -> str:
        partition = self._partitions.get(name)
        return partition.qos if partition is not None else ""

    def _group(self, key: Key) -> int:
        index = self._groups.get(key)
        if index is None:
            index = self._groups[key] = len(self._book.groups)
            kind, name = key
            if kind == "assoc":
                record = self._accounting.associations[name]  # type: ignore[index]
                limits = scheduler_limits(self._tree.limits(record), is_qos=False)
                group = Group(f"{record.account}/{record.user}", "assoc", limits)
            else:
                qos = self._accounting.qos[name]  # type: ignore[index]
                group = Group(qos.name, "qos", scheduler_limits(self.qos_limits(qos), is_qos=True),
                              flags=frozenset(qos.flags), usage_factor=qos.usage_factor,
                              limit_factor=qos.limit_factor or 0.0)
            self._book.groups.append(group)
        return index

    def _sync(self) -> None:
        if self._generation == self._accounting.generation:
            return
        self._generation = self._accounting.generation
        self._book = LimitBook(safe="safe" in self._conf.accounting_enforce, billing=self.billing)
        self._tree = Tree(self._accounting)
        self._groups.clear()
        self._running.clear()
        for key in self._subjects:            # queued jobs know their index
            self._book.subjects.append(self._make_subject(*key))
        for job in self._active():
            if job.allocation:
                self.job_started(job)

    def changed(self) -> None:
        """Partitions or the configuration changed: everything is made anew."""
        self._generation = -1

    # --- usage
    def job_started(self, job: JobRecord) -> None:
        if not self.enforced or job.job_id in self._running:
            return
        self._sync()
        if job.job_id in self._running:
            return
        subject = self._book.subjects[self._subject(job)]
        tres = dict(job.tres_alloc)
        self._running[job.job_id] = (subject, tres)
        for usage in self._usages(subject):
            usage.jobs += 1
            for name, count in tres.items():
                usage.tres[name] = usage.tres.get(name, 0) + count

    def job_ended(self, job: JobRecord) -> None:
        found = self._running.pop(job.job_id, None)
        if found is None:
            return
        subject, tres = found
        for usage in self._usages(subject):
            usage.jobs -= 1
            for name, count in tres.items():
                usage.tres[name] = usage.tres.get(name, 0) - count

    def _usages(self, subject: Subject) -> list[Usage]:
        groups = self._book.groups
        usages = [groups[index].usage for index in subject.chain]
        for index in (subject.qos, subject.partition_qos):
            if index >= 0:
                group = groups[index]
                usages += [group.usage, group.by_user.setdefault(subject.user, Usage()),
                           group.by_account.setdefault(subject.account, Usage())]
        return usages

    def _refresh_usage(self) -> None:
        """Decayed usage and the TRES-seconds that running jobs may still take, of groups with such limits."""
        for (kind, name), index in self._groups.items():
            group = self._book.groups[index]
            if group.limits.grp_tres_mins or group.limits.grp_wall_s is not None:
                record: AssociationRecord | QosRecord | None
                record = self._accounting.associations.get(name) if kind == "assoc" else self._accounting.qos.get(name)  # type: ignore[call-overload]
                if record is not None:
                    group.usage.tres_used_secs = dict(record.usage_tres_raw)
                    group.usage.wall_used_s = getattr(record, "grp_used_wall_s", 0.0)
        limited = [group for group in self._book.groups if group.limits.grp_tres_run_mins or group.limits.grp_tres_mins
                   or group.limits.max_tres_run_mins_per_user or group.limits.max_tres_run_mins_per_account]
        if not limited:
            return
        for group in limited:
            for usage in (group.usage, *group.by_user.values(), *group.by_account.values()):
                usage.tres_run_secs = {}
        accrued_until_s = self.accrued_until_s() or 0.0
        for job in self._active():
            found = self._running.get(job.job_id)
            if found is None or job.time_limit_min is None or job.time_limit_min == UNLIMITED_MIN:
                continue
            qos = self._accounting.qos.get(job.qos)
            left = run_seconds_left(job.start_s or 0.0, job.time_limit_min, accrued_until_s,
                                    1.0 if qos is None else qos.usage_factor)
            for usage in self._usages(found[0]):
                for name, count in found[1].items():
                    usage.tres_run_secs[name] = usage.tres_run_secs.get(name, 0.0) + count * left

    # --- submitted jobs
    def keys(self, job: JobRecord) -> tuple[Key, ...]:
        """The counters a submitted job is in."""
        keys: list[Key] = [("assoc", record.id) for record in self.chain(job.assoc_id)]
        for qos in dict.fromkeys((job.qos, *map(self._partition_qos, job.partition.split(",")))):
            if qos:
                keys += [("qos", qos), ("qos", qos, "user", job.user_name), ("qos", qos, "account", job.account)]
        return tuple(keys)

    def qos_limits(self, qos: QosRecord) -> RecordLimits:
        """The QOS's limits as numbers."""
        if "Relative" not in qos.flags:
            return qos.limits
        partition = next((name for name, one in self._partitions.items() if one.qos == qos.name), "")
        return absolute(qos.limits, self.tres_total(partition))

    def limits_of(self, record: AssociationRecord) -> RecordLimits:
        """The association's limits with those it inherits."""
        self._sync()
        return self._tree.limits(record)

    def job_entered_queue(self, job: JobRecord) -> None:
        """A job (or an array of them) is in the system; again after each change of its number of tasks."""
        self.job_left_queue(job)
        keys, count = self.keys(job), tasks_of(job)
        keys = self._same_keys.setdefault(keys, keys)
        for key in keys:
            self.submitted[key] += count
        self._counted[job.job_id] = (keys, count)

    def job_left_queue(self, job: JobRecord) -> None:
        keys, count = self._counted.pop(job.job_id, ((), 0))
        for key in keys:
            self.submitted[key] -= count
            if self.submitted[key] <= 0:
                del self.submitted[key]


def scheduler_limits(limits: RecordLimits, *, is_qos: bool) -> Limits:
    """The limits of a record as the scheduler counts them (walls in seconds)."""
    return Limits(
        grp_tres=limits.grp_tres, grp_tres_mins=limits.grp_tres_mins, grp_tres_run_mins=limits.grp_tres_run_mins,
        grp_jobs=limits.grp_jobs, grp_wall_s=_seconds(limits.grp_wall_min), max_tres_per_job=limits.max_tres_per_job,
        max_tres_per_node=limits.max_tres_per_node, max_tres_mins_per_job=limits.max_tres_mins_per_job,
        max_tres_run_mins_per_user=limits.max_tres_run_mins_per_user,
        max_tres_run_mins_per_account=limits.max_tres_run_mins_per_account, max_tres_per_user=limits.max_tres_per_user,
        max_tres_per_account=limits.max_tres_per_account, min_tres_per_job=limits.min_tres_per_job,
        max_jobs=None if is_qos else limits.max_jobs, max_jobs_per_user=limits.max_jobs if is_qos else None,
        max_jobs_per_account=limits.max_jobs_per_account, max_wall_s=_seconds(limits.max_wall_min),
        min_prio_threshold=limits.min_prio_threshold)


def _seconds(minutes: int | None) -> int | None:
    return None if minutes is None else minutes * 60
