"""Whether associations and QOS let a job be submitted (AccountingStorageEnforce=limits).

At submission Slurm refuses what goes beyond a Max/GrpSubmit limit, and with the QOS flag DenyOnLimit also what could
never start under the QOS's or the associations' limits; otherwise such a job waits with the limit as its reason. The
order and what masks what is slurmctld's: in each of the job's partitions the first QOS, the second, the associations
from the user up; a limit of a QOS hides the same limit of all that follow.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from slurmbridge.controller.jobs import tasks_of
from slurmbridge.controller.limit_book import LimitBooks
from slurmbridge.scheduling.limit_words import position, word
from slurmbridge.slurm.jobspec import UNLIMITED_MIN
from slurmbridge.views.records import AssociationData, JobRecord, Limits, PartitionRecord, QosRecord

ENDLESS_MIN = 1 << 32
_TIMES = ("max_tres_mins_per_job", "grp_tres_mins", "grp_tres_run_mins", "max_tres_run_mins_per_account",
          "max_tres_run_mins_per_user")


def violated(job: JobRecord, books: LimitBooks, accounting: AssociationData,
             partitions: Sequence[PartitionRecord]) -> str | None:
    """The reason word of the limit that refuses this submission, or None. ``job`` has account, QOS and size; a time
    limit that it leaves open is set to what a MaxWall or GrpWall allows."""
    if not books.enforced:
        return None
    for partition in partitions:
        own, other = accounting.qos.get(job.qos), accounting.qos.get(partition.qos)
        both = (own, other) if own is not None and "OverPartQOS" in own.flags else (other, own)
        qoses = list({one.name: one for one in both if one is not None}.values())
        found = next(_Check(job, books, qoses).faults(), None)
        if found is not None:
            return found
    return None


@dataclass(slots=True)
class _Check:
    """One job against the limits of one of its partitions."""

    job: JobRecord
    books: LimitBooks
    qoses: list[QosRecord]
    masked: set[tuple[str, str]] = field(default_factory=set)

    def faults(self) -> Iterator[str]:
        strict = not self.qoses or any("DenyOnLimit" in qos.flags for qos in self.qoses)
        for qos in self.qoses:
            yield from self._qos(qos, strict)
        factor = next((qos.limit_factor for qos in self.qoses if qos.limit_factor), 1.0)
        for level, association in enumerate(self.books.chain(self.job.assoc_id)):
            yield from self._association(association.id, self.books.limits_of(association), factor, strict,
                                         own=level == 0)

    def _qos(self, qos: QosRecord, strict: bool) -> Iterator[str]:
        limits, name = self.books.qos_limits(qos), qos.name
        if strict:
            yield from self._sizes(limits, "max_tres_per_account", "QOS")
            yield from self._user_or_group(limits)
        yield from self._submitted(limits.grp_submit_jobs, "grp_submit", ("qos", name), "QOSGrpSubmitJobsLimit")
        if strict:
            for rule in _TIMES:
                yield from self._times(limits, rule, "QOS")
        yield from self._wall(limits.max_wall_min, "max_wall", "QOSMaxWallDurationPerJobLimit", strict)
        yield from self._wall(limits.grp_wall_min, "grp_wall", "QOSGrpWallLimit", strict)
        if strict:
            yield from self._sizes(limits, "max_tres_per_job", "QOS")
            yield from self._sizes(limits, "max_tres_per_node", "QOS", per_node=True)
        job = self.job
        yield from self._submitted(limits.max_submit_jobs_per_account, "max_submit_pa",
                                   ("qos", name, "account", job.account), "MaxSubmitJobsPerAccount")
        yield from self._submitted(limits.max_submit_jobs, "max_submit_pu", ("qos", name, "user", job.user_name),
                                   "QOSMaxSubmitJobPerUserLimit")
        if strict:
            yield from self._sizes(limits, "min_tres_per_job", "QOS", least=True)

    def _association(self, number: int, limits: Limits, factor: float, strict: bool, *, own: bool) -> Iterator[str]:
        if strict:
            yield from self._sizes(limits, "grp_tres", "Assoc", factor=factor)
        if ("grp_submit", "") not in self.masked:
            yield from self._submitted(limits.grp_submit_jobs, "", ("assoc", number), "AssocGrpSubmitJobsLimit")
        if strict:
            yield from self._times(limits, "grp_tres_mins", "Assoc")
            yield from self._times(limits, "grp_tres_run_mins", "Assoc")
        yield from self._wall(limits.grp_wall_min, "grp_wall", "AssocGrpWallLimit", strict)
        if not own:
            return
        if strict:
            yield from self._sizes(limits, "max_tres_per_job", "Assoc", factor=factor)
            yield from self._sizes(limits, "max_tres_per_node", "Assoc", per_node=True)
        if not self.masked & {("max_submit_pa", ""), ("max_submit_pu", "")}:
            yield from self._submitted(limits.max_submit_jobs, "", ("assoc", number), "AssocMaxSubmitJobLimit")
        if strict:
            yield from self._times(limits, "max_tres_mins_per_job", "Assoc")
        yield from self._wall(limits.max_wall_min, "max_wall", "AssocMaxWallDurationPerJobLimit", strict)

    # --- the rules
    def _submitted(self, most: int | None, rule: str, key: tuple[object, ...], reason: str) -> Iterator[str]:
        """``rule``: "" where the limit masks no other."""
        if most is None or (rule and (rule, "") in self.masked):
            return
        if rule:
            self.masked.add((rule, ""))
        if self.books.submitted[key] + tasks_of(self.job) > most:
            yield reason

    def _sizes(self, limits: Limits, rule: str, owner: str, *, per_node: bool = False, least: bool = False,
               factor: float = 1.0) -> Iterator[str]:
        tres = self.job.tres_req
        nodes = max(1, tres.get("node", 1)) if per_node else 1
        for name, bound in self._bounds(getattr(limits, rule), rule, masks=owner == "QOS"):
            count = tres.get(name, 0) // nodes
            if owner == "Assoc" and not count:
                continue
            if count < bound if least else count > int(bound * factor):
                yield word(rule, owner, name)

    def _user_or_group(self, limits: Limits) -> Iterator[str]:
        """Of one TRES the limit per user is told before the group's."""
        tres = self.job.tres_req
        grouped = dict(self._bounds(limits.grp_tres, "grp_tres", masks=True))
        of_user = dict(self._bounds(limits.max_tres_per_user, "max_tres_per_user", masks=True))
        for name in sorted({*grouped, *of_user}, key=position):
            for bounds, rule in ((of_user, "max_tres_per_user"), (grouped, "grp_tres")):
                if name in bounds and tres.get(name, 0) > bounds[name]:
                    yield word(rule, "QOS", name)

    def _bounds(self, bounds: Mapping[str, int], rule: str, *, masks: bool) -> list[tuple[str, int]]:
        """Bounds that no limit before them hides, in Slurm's order of TRES."""
        free = [(name, bounds[name]) for name in sorted(bounds, key=position) if (rule, name) not in self.masked]
        if masks:
            self.masked.update((rule, name) for name, _ in free)
        return free

    def _times(self, limits: Limits, rule: str, owner: str) -> Iterator[str]:
        tres = self.job.tres_req
        for name, bound in self._bounds(getattr(limits, rule), rule, masks=True):
            count = tres.get(name, 0)
            if count and self._over(bound // count):
                yield word(rule, owner, name)

    def _wall(self, most: int | None, rule: str, reason: str, strict: bool) -> Iterator[str]:
        if most is None or (rule, "") in self.masked:
            return
        self.masked.add((rule, ""))
        if self._over(most) and strict:
            yield reason

    def _over(self, most_min: int) -> bool:
        """Whether the job wants more time; one that names no time gets as much as there is."""
        job = self.job
        if job.time_limit_min is None:
            job.time_limit_min = most_min
        minutes = ENDLESS_MIN if job.time_limit_min == UNLIMITED_MIN else job.time_limit_min
        return minutes > most_min
