"""Limits during one pass: what the controller's LimitBook says, plus what this pass has started.

The order of the checks is slurmctld's (acct_policy): the partition's QOS before the job's (OverPartQOS turns this
round) before the associations from the user up; a limit set nearer masks the same limit set further away.
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from slurmbridge.scheduling.facts import FOREVER_S, NodeShare, RunningJob
from slurmbridge.scheduling.limit_words import position, word
from slurmbridge.scheduling.limits import Group, LimitBook, Subject, Usage
from slurmbridge.scheduling.size import allocated_tres

NO_LIMIT = 1 << 40
_SCALED = frozenset({"grp_tres", "max_tres_per_job"})
"""Limits of associations that LimitFactor raises."""
_NODE_RULES = ("grp_tres", "max_tres_per_user", "max_tres_per_account")
Scope = tuple[int, str, str]
"""(group, "" | "user" | "account", name)."""


@dataclass(slots=True)
class _Added:
    """What the pass has started within a scope, and the nodes that its jobs hold."""

    jobs: int = 0
    tres: dict[str, int] = field(default_factory=dict)
    run_secs: dict[str, float] = field(default_factory=dict)
    nodes: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Asked:
    tres: Mapping[str, int]
    minutes: int
    nodes: Collection[str]
    free: bool = False                        # UsageFactor=0: past usage does not hold the job back


class LimitPass:
    """``running``: jobs that hold resources, for limits on nodes (a node counts once for all jobs of a group)."""

    def __init__(self, book: LimitBook, running: Iterable[RunningJob]) -> None:
        self._book = book
        self._added: dict[Scope, _Added] = {}
        if running and any("node" in getattr(group.limits, rule) for group in book.groups for rule in _NODE_RULES):
            for job in running:
                if job.subject >= 0:
                    for scope in self._scopes(book.subjects[job.subject]):
                        self._at(scope).nodes.update(share.node for share in job.shares)

    # --- before nodes are chosen
    def before_selection(self, subject: int, limit_s: int, *, time_waived: bool = False) -> str:
        """The word of the limit that holds the job back whatever nodes it gets; "" for none. ``limit_s``: its time;
        ``time_waived``: MaxWall does not hold it back."""
        if subject < 0:
            return ""
        if subject in self._book.below_threshold:
            return "QOSUsageThreshold"
        who = self._book.subjects[subject]
        limit_s = self._weighed(who, limit_s)
        masked: set[str] = {"max_wall"} if time_waived else set()
        for index in self._qos_of(who):
            found = self._qos_before(index, who, limit_s, masked)
            if found:
                return found
        for level, index in enumerate(who.chain):
            found = self._association_before(index, limit_s, masked, own=level == 0)
            if found:
                return found
        return ""

    def _qos_before(self, index: int, who: Subject, limit_s: int, masked: set[str]) -> str:
        group = self._book.groups[index]
        limits = group.limits
        checks: tuple[tuple[str, int | None, Callable[[int], bool], str], ...] = (
            ("grp_jobs", limits.grp_jobs, lambda most: self._jobs((index, "", "")) >= most, "QOSGrpJobsLimit"),
            ("grp_wall", limits.grp_wall_s, lambda most: self._wall_used(group, limit_s, most), "QOSGrpWallLimit"),
            ("max_jobs_per_account", limits.max_jobs_per_account,
             lambda most: self._jobs((index, "account", who.account)) >= most, "MaxJobsPerAccount"),
            ("max_jobs_per_user", limits.max_jobs_per_user,
             lambda most: self._jobs((index, "user", who.user)) >= most, "QOSMaxJobsPerUserLimit"),
            ("max_wall", limits.max_wall_s, lambda most: limit_s > most, "QOSMaxWallDurationPerJobLimit"))
        return _first(checks, masked, keeps=True)

    def _association_before(self, index: int, limit_s: int, masked: set[str], *, own: bool) -> str:
        group = self._book.groups[index]
        limits = group.limits
        jobs_masked = bool(masked & {"max_jobs_per_account", "max_jobs_per_user"})
        checks: tuple[tuple[str, int | None, Callable[[int], bool], str], ...] = (
            ("grp_jobs", limits.grp_jobs, lambda most: self._jobs((index, "", "")) >= most, "AssocGrpJobsLimit"),
            ("grp_wall", limits.grp_wall_s, lambda most: self._wall_used(group, limit_s, most), "AssocGrpWallLimit"))
        if own:
            checks += (
                ("max_jobs", None if jobs_masked else limits.max_jobs,
                 lambda most: self._jobs((index, "", "")) >= most, "AssocMaxJobsLimit"),
                ("max_wall", limits.max_wall_s, lambda most: limit_s > most, "AssocMaxWallDurationPerJobLimit"))
        return _first(checks, masked, keeps=False)

    def _wall_used(self, group: Group, limit_s: int, most_s: int) -> bool:
        used_s = group.usage.wall_used_s // 60 * 60
        return used_s >= most_s or (self._book.safe and used_s + limit_s > most_s)

    # --- once nodes are chosen
    def after_selection(self, subject: int, shares: Sequence[NodeShare], limit_s: int, partition: str,
                        licenses: tuple[tuple[str, int], ...] = ()) -> str:
        """The word of the limit that what the job would get breaks; "" for none."""
        if subject < 0:
            return ""
        tres = self._billed(allocated_tres(shares, licenses), partition)
        return self._after(subject, tres, limit_s, [share.node for share in shares])

    def planned(self, subject: int, tres: dict[str, int], nodes: Sequence[str], limit_s: int, partition: str) -> str:
        """As ``after_selection``, for nodes promised for later. ``tres``: without billing."""
        if subject < 0:
            return ""
        return self._after(subject, self._billed(tres, partition), limit_s, nodes)

    def _billed(self, tres: dict[str, int], partition: str) -> dict[str, int]:
        if self._book.billing is None:
            return tres
        return {**tres, "billing": int(self._book.billing(tres, partition))}

    def _qos(self, who: Subject) -> Group | None:
        return self._book.groups[who.qos] if who.qos >= 0 else None

    def _weighed(self, who: Subject, limit_s: int) -> int:
        """With the QOS flag UsageFactorSafe a job's time counts UsageFactor times."""
        qos = self._qos(who)
        if qos is None or "UsageFactorSafe" not in qos.flags or qos.usage_factor < 0:
            return limit_s
        return int(min(limit_s, FOREVER_S) * qos.usage_factor)

    def _limit_factor(self, who: Subject) -> float:
        """How many times as high the associations' limits on TRES are (LimitFactor of the QOS that comes first)."""
        return next((factor for index in self._qos_of(who) if (factor := self._book.groups[index].limit_factor) > 0),
                    1.0)

    def _after(self, subject: int, tres: Mapping[str, int], limit_s: int, nodes: Collection[str]) -> str:
        who = self._book.subjects[subject]
        qos = self._qos(who)
        asked = _Asked(tres, self._weighed(who, min(limit_s, FOREVER_S)) // 60, nodes,
                       free=qos is not None and qos.usage_factor == 0)
        masked: set[tuple[str, str]] = set()
        for index in self._qos_of(who):
            group, user, account = (index, "", ""), (index, "user", who.user), (index, "account", who.account)
            rules = (*self._grouped(group), *self._own(group), ("min_tres_per_job", _too_little),
                     ("max_tres_per_account", self._too_much(account)), ("max_tres_per_user", self._too_much(user)),
                     ("max_tres_run_mins_per_account", self._too_long(account)),
                     ("max_tres_run_mins_per_user", self._too_long(user)))
            found = self._tres(index, "QOS", rules, asked, masked, keeps=True)
            if found:
                return found
        for level, index in enumerate(who.chain):
            group = (index, "", "")
            rules = (*self._grouped(group), *(self._own(group) if level == 0 else ()))
            found = self._tres(index, "Assoc", rules, asked, masked, keeps=False, factor=self._limit_factor(who))
            if found:
                return found
        return ""

    def _tres(self, index: int, owner: str, rules: Iterable[tuple[str, _Rule]], asked: _Asked,
              masked: set[tuple[str, str]], *, keeps: bool, factor: float = 1.0) -> str:
        """The first rule of one group that is broken. ``keeps``: its limits mask those of groups further away."""
        limits = self._book.groups[index].limits
        for rule, broken in rules:
            bounds: dict[str, int] = getattr(limits, rule)
            for name in sorted(bounds, key=position):
                if (rule, name) in masked:
                    continue
                if keeps:
                    masked.add((rule, name))
                most = int(bounds[name] * factor) if rule in _SCALED else bounds[name]
                if broken(name, most, asked):
                    return word(rule, owner, name)
        return ""

    def _grouped(self, scope: Scope) -> tuple[tuple[str, _Rule], ...]:
        return (("grp_tres_mins", self._used_up(scope)), ("grp_tres", self._too_much(scope)),
                ("grp_tres_run_mins", self._too_long(scope)))

    @staticmethod
    def _own(scope: Scope) -> tuple[tuple[str, _Rule], ...]:
        return (("max_tres_mins_per_job", lambda name, most, asked: asked.tres.get(name, 0) * asked.minutes > most),
                ("max_tres_per_job", lambda name, most, asked: asked.tres.get(name, 0) > most),
                ("max_tres_per_node",
                 lambda name, most, asked: asked.tres.get(name, 0) // max(1, asked.tres.get("node", 1)) > most))

    def _used_up(self, scope: Scope) -> _Rule:
        def broken(name: str, most: int, asked: _Asked) -> bool:
            if not asked.tres.get(name, 0):
                return False
            used = 0 if asked.free else int(self._usage(scope).tres_used_secs.get(name, 0.0) / 60)
            if used >= most:
                return True
            running = 0 if asked.free else int(self._run_secs(scope, name) / 60)
            return self._book.safe and asked.tres[name] * asked.minutes + running > most - used
        return broken

    def _too_much(self, scope: Scope) -> _Rule:
        def broken(name: str, most: int, asked: _Asked) -> bool:
            wanted = asked.tres.get(name, 0)
            if not wanted:
                return False
            if name == "node":
                held = self._added[scope].nodes if scope in self._added else set()
                return wanted > most or len(held.union(asked.nodes)) > most
            added = self._added.get(scope)
            used = self._usage(scope).tres.get(name, 0) + (added.tres.get(name, 0) if added else 0)
            return used + wanted > most
        return broken

    def _too_long(self, scope: Scope) -> _Rule:
        def broken(name: str, most: int, asked: _Asked) -> bool:
            wanted = asked.tres.get(name, 0) * asked.minutes
            running = 0 if asked.free and scope[1] != "user" else int(self._run_secs(scope, name) / 60)
            return bool(wanted) and wanted + running > most
        return broken

    # --- promises
    def prio_threshold(self, subject: int) -> int:
        """MinPrioThreshold of the QOS that comes first, else of the association; 0: none."""
        if subject < 0:
            return 0
        who = self._book.subjects[subject]
        bounds = (self._book.groups[index].limits.min_prio_threshold for index in (*self._qos_of(who), *who.chain[:1]))
        return next((bound for bound in bounds if bound), 0)

    def has_flag(self, subject: int, flag: str) -> bool:
        """Whether the job's QOS has the flag."""
        qos = self._qos(self._book.subjects[subject]) if subject >= 0 else None
        return qos is not None and flag in qos.flags

    # --- nodes
    def max_nodes(self, subject: int) -> tuple[int, str]:
        """Most nodes that the limits let any job have, and the word of that limit (NO_LIMIT, "" without)."""
        most, reason = NO_LIMIT, ""
        if subject < 0:
            return most, reason
        who = self._book.subjects[subject]
        factor = self._limit_factor(who)
        for index in self._qos_of(who):
            limits = self._book.groups[index].limits
            for rule in ("max_tres_per_account", "max_tres_per_job", "max_tres_per_user", "grp_tres"):
                bound = getattr(limits, rule).get("node", NO_LIMIT)
                if bound < most:
                    most, reason = bound, word(rule, "QOS", "node")
        for level, index in enumerate(who.chain):
            limits = self._book.groups[index].limits
            for rule in ("grp_tres", "max_tres_per_job") if level == 0 else ("grp_tres",):
                bound = int(getattr(limits, rule).get("node", NO_LIMIT) * factor)
                if bound < most:
                    most, reason = bound, word(rule, "Assoc", "node")
        return most, reason

    # --- usage
    def job_begins(self, job: RunningJob) -> None:
        """A job of this pass counts from now on."""
        if job.subject < 0:
            return
        tres = self._billed(allocated_tres(job.shares, job.licenses), job.partition)
        who = self._book.subjects[job.subject]
        qos = self._qos(who)
        left_s = min(job.end_s - job.start_s, FOREVER_S) * (qos.usage_factor if qos and qos.usage_factor >= 0 else 1.0)
        for scope in self._scopes(who):
            added = self._at(scope)
            added.jobs += 1
            added.nodes.update(share.node for share in job.shares)
            for name, count in tres.items():
                added.tres[name] = added.tres.get(name, 0) + count
                added.run_secs[name] = added.run_secs.get(name, 0.0) + count * left_s

    def _at(self, scope: Scope) -> _Added:
        return self._added.setdefault(scope, _Added())

    def _scopes(self, who: Subject) -> list[Scope]:
        scopes: list[Scope] = [(index, "", "") for index in who.chain]
        for index in (who.qos, who.partition_qos):
            if index >= 0:
                scopes += [(index, "", ""), (index, "user", who.user), (index, "account", who.account)]
        return scopes

    def _usage(self, scope: Scope) -> Usage:
        """As the controller has it (jobs that ran when the pass began)."""
        index, kind, name = scope
        group = self._book.groups[index]
        if not kind:
            return group.usage
        return (group.by_user if kind == "user" else group.by_account).get(name) or Usage()

    def _jobs(self, scope: Scope) -> int:
        added = self._added.get(scope)
        return self._usage(scope).jobs + (added.jobs if added else 0)

    def _run_secs(self, scope: Scope, name: str) -> float:
        added = self._added.get(scope)
        return self._usage(scope).tres_run_secs.get(name, 0.0) + (added.run_secs.get(name, 0.0) if added else 0.0)

    def _qos_of(self, who: Subject) -> tuple[int, ...]:
        job_first = who.qos >= 0 and "OverPartQOS" in self._book.groups[who.qos].flags
        both = (who.qos, who.partition_qos) if job_first else (who.partition_qos, who.qos)
        return tuple(index for index in both if index >= 0)


_Rule = Callable[[str, int, _Asked], bool]


def _too_little(name: str, least: int, asked: _Asked) -> bool:
    return asked.tres.get(name, 0) < least


def _first(checks: Iterable[tuple[str, int | None, Callable[[int], bool], str]], masked: set[str], *,
           keeps: bool) -> str:
    """The word of the first broken check whose limit is set and not masked by one nearer."""
    for rule, bound, broken, reason in checks:
        if bound is None or rule in masked:
            continue
        if keeps:
            masked.add(rule)
        if broken(bound):
            return reason
    return ""
