"""``scontrol show assoc_mgr``: users, associations and QOSes with their limits and what is used of them."""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slurmbridge.commands.common import uid_of, user_name
from slurmbridge.commands.scontrol_call import Call, starts
from slurmbridge.slurm import states
from slurmbridge.slurm.durations import INFINITE
from slurmbridge.views.records import FAIRSHARE_PARENT, AssociationRecord, JobRecord, QosRecord, Tres
from slurmbridge.views.session import Views


@dataclass(slots=True)
class Used:
    """What the jobs of an association, QOS, account or user have and wait for."""

    jobs: int = 0
    submitted: int = 0
    accruing: int = 0
    tres: dict[str, float] = field(default_factory=dict)
    run_seconds: dict[str, float] = field(default_factory=dict)

    def add(self, job: JobRecord, now_s: float) -> None:
        waiting = bin(job.array_pending).count("1") if job.array_pending else 1
        self.submitted += waiting if job.state == states.PENDING else 1
        if job.state == states.PENDING:
            self.accruing += waiting if job.accrue_s else 0
            return
        self.jobs += 1
        left_s = max((job.time_limit_min or 0) * 60 - (now_s - (job.start_s or now_s)), 0.0)
        for name, count in job.tres_alloc.items():
            self.tres[name] = self.tres.get(name, 0) + count
            self.run_seconds[name] = self.run_seconds.get(name, 0) + count * left_s


@dataclass(slots=True)
class Ledger:
    """Usage by association (with its parents), QOS, and account and user within a QOS."""

    associations: dict[int, Used] = field(default_factory=dict)
    qos: dict[str, Used] = field(default_factory=dict)
    accounts: dict[str, dict[str, Used]] = field(default_factory=dict)
    users: dict[str, dict[int, Used]] = field(default_factory=dict)


def ledger_of(views: Views, now_s: float) -> Ledger:
    """Counts every job that is not over."""
    found = Ledger()
    for job in views.jobs.values():
        if job.state in states.FINISHED:
            continue
        assoc = views.accounting.associations.get(job.assoc_id)
        while assoc is not None:
            found.associations.setdefault(assoc.id, Used()).add(job, now_s)
            assoc = views.accounting.associations.get(assoc.parent_id)
        found.qos.setdefault(job.qos, Used()).add(job, now_s)
        found.accounts.setdefault(job.qos, {}).setdefault(job.account, Used()).add(job, now_s)
        found.users.setdefault(job.qos, {}).setdefault(job.uid, Used()).add(job, now_s)
    return found


@dataclass(slots=True)
class Question:
    """What is asked for: records of which kinds, of whom."""

    users: set[str] = field(default_factory=set)
    accounts: set[str] = field(default_factory=set)
    qos: set[str] = field(default_factory=set)
    kinds: set[str] = field(default_factory=set)


def _read(call: Call, words: Sequence[str]) -> Question | None:
    question = Question()
    for word in words:
        tag, equals, value = word.partition("=")
        if not equals or not value:
            call.err.append(f"No value given for option {tag}\n")
            return None
        names = {name.strip() for name in value.split(",") if name.strip()}
        if starts(tag, "accounts", 1):
            question.accounts = {name.lower() for name in names}
        elif starts(tag, "flags", 1):
            question.kinds = {kind for kind in ("users", "assoc", "qos") if kind in value.lower()}
            if not question.kinds:
                call.err.append(f"invalid flag '{value}', valid options are 'Assoc, QOS, and/or Users'\n")
                return None
        elif starts(tag, "qos", 1):
            question.qos = {name.lower() for name in names}
        elif starts(tag, "users", 1):
            question.users = names
        else:
            call.complain(f"invalid entity: {tag} for keyword:show assoc_mgr")
            return None
    question.kinds = question.kinds or {"users", "assoc", "qos"}
    return question


def show(call: Call, words: Sequence[str]) -> None:
    """``words``: accounts=, flags=, qos=, users=."""
    question = _read(call, words)
    if question is None:
        return
    call.print("Current Association Manager state\n")
    writer = _Writer(call, question)
    if "users" in question.kinds:
        writer.section("User Records", "No users currently cached in Slurm.", writer.users())
    if "assoc" in question.kinds:
        writer.section("Association Records", "No associations currently cached in Slurm.", writer.associations())
    if "qos" in question.kinds:
        writer.section("QOS Records", "No QOS currently cached in Slurm.", writer.qos())


class _Writer:
    def __init__(self, call: Call, question: Question) -> None:
        self.call, self.question = call, question
        self.views = call.session.views
        self.data = self.views.accounting
        self.names = self.views.conf.accounting_storage_tres
        self.children: dict[int, list[AssociationRecord]] = {}
        self.levels: dict[int, int] = {}
        self.used = ledger_of(self.views, call.style.now_s)
        self.line_end = " " if call.one_line else "\n    "
        self.shares = {row["assoc"].id: row for row in self.views.shares()} if "assoc" in question.kinds else {}

    def section(self, title: str, none: str, records: Iterable[str]) -> None:
        texts = list(records)
        blank = "" if self.call.one_line else "\n"
        self.call.print(f"{blank}{title if texts else none}{blank}\n")
        self.call.out += texts

    # ---------------------------------------------------------------------------------------------------- records

    def users(self) -> Iterable[str]:
        for user in self.data.users.values():
            if user.deleted or (self.question.users and user.name not in self.question.users):
                continue
            uid = uid_of(user.name)
            yield (f"UserName={user.name}({0xFFFFFFFE if uid is None else uid}) "
                   f"DefAccount={user.default_account or '(null)'} DefWckey={user.default_wckey} "
                   f"AdminLevel={user.admin_level}\n")

    def associations(self) -> Iterable[str]:
        wanted, accounts = self.question.users, self.question.accounts
        for assoc in sorted(self.data.associations.values(), key=lambda one: (one.lft, one.id)):
            if assoc.deleted or (assoc.user and wanted and assoc.user not in wanted) \
                    or (accounts and assoc.account not in accounts):
                continue
            yield self.line_end.join(self._association(assoc)) + "\n"

    def _association(self, assoc: AssociationRecord) -> Iterable[str]:
        limits, used = assoc.limits, self.used.associations.get(assoc.id, Used())
        user = f"{assoc.user}({uid_of(assoc.user) or 0})" if assoc.user else ""
        yield (f"ClusterName={self.data.cluster} Account={assoc.account} UserName={user} Partition={assoc.partition} "
               f"Priority={assoc.priority or 0} ID={assoc.id}")
        row: Mapping[str, Any] = self.shares.get(assoc.id, {})
        yield (f"SharesRaw/Norm/Level/Factor={assoc.shares}/{row.get('norm_shares') or 0:.2f}/{self._level(assoc)}/"
               f"{(row.get('fair_share') or 0) if assoc.user else 0:.2f}")
        yield (f"UsageRaw/Norm/Efctv={row.get('raw_usage', assoc.usage_raw) or 0:.2f}/"
               f"{row.get('norm_usage') or 0:.2f}/{row.get('effective_usage') or 0:.2f}")
        parent = self.data.associations.get(assoc.parent_id)
        above = f"{parent.account}({parent.id})" if parent is not None and not assoc.user else ""
        yield f"ParentAccount={above} Lineage={self._lineage(assoc)} DefAssoc={'Yes' if assoc.is_default else 'No'}"
        yield (f"GrpJobs={_limit(limits.grp_jobs)}({used.jobs}) "
               f"GrpJobsAccrue={_limit(limits.grp_jobs_accrue)}({used.accruing})")
        yield (f"GrpSubmitJobs={_limit(limits.grp_submit_jobs)}({used.submitted}) "
               f"GrpWall={_limit(limits.grp_wall_min)}({assoc.grp_used_wall_s / 60:.2f})")
        yield self._group("GrpTRES", limits.grp_tres, used.tres, 1)
        yield self._group("GrpTRESMins", limits.grp_tres_mins, assoc.usage_tres_raw, 60)
        yield self._group("GrpTRESRunMins", limits.grp_tres_run_mins, used.run_seconds, 60)
        most = [f"{label}={'' if limit is None else f'{limit}({count})'}" for label, limit, count in (
            ("MaxJobs", limits.max_jobs, used.jobs), ("MaxJobsAccrue", limits.max_jobs_accrue, used.accruing),
            ("MaxSubmitJobs", limits.max_submit_jobs, used.submitted))]
        yield " ".join([*most, f"MaxWallPJ={_blank(limits.max_wall_min)}"])
        yield self._plain("MaxTRESPJ", limits.max_tres_per_job)
        yield self._plain("MaxTRESPN", limits.max_tres_per_node)
        yield self._plain("MaxTRESMinsPJ", limits.max_tres_mins_per_job)
        yield f"MinPrioThresh={_blank(limits.min_prio_threshold)}"
        yield f"Comment={assoc.comment or '(null)'}"

    def _level(self, assoc: AssociationRecord) -> int:
        """The shares handed out among the association and its siblings; those with the parent's shares pass through."""
        above = self.data.associations.get(assoc.parent_id)
        if above is None:
            return 1
        while above.shares == FAIRSHARE_PARENT and above.parent_id in self.data.associations:
            above = self.data.associations[above.parent_id]
        return self._handed_out(above.id)

    def _handed_out(self, parent_id: int) -> int:
        if not self.children:
            for one in self.data.associations.values():
                if not one.deleted:
                    self.children.setdefault(one.parent_id, []).append(one)
        if parent_id not in self.levels:
            self.levels[parent_id] = sum(
                self._handed_out(one.id) if one.shares == FAIRSHARE_PARENT else one.shares
                for one in self.children.get(parent_id, ()))
        return self.levels[parent_id]

    def _lineage(self, assoc: AssociationRecord) -> str:
        parts: list[str] = []
        one: AssociationRecord | None = assoc
        while one is not None and one.parent_id:
            parts.append(f"0-{one.user}" if one.user else one.account)
            one = self.data.associations.get(one.parent_id)
        return "/" + "".join(f"{part}/" for part in reversed(parts))

    def qos(self) -> Iterable[str]:
        for qos in sorted(self.data.qos.values(), key=lambda one: one.id):
            if not qos.deleted and (not self.question.qos or qos.name in self.question.qos):
                yield self.line_end.join(self._qos(qos)) + "\n"

    def _qos(self, qos: QosRecord) -> Iterable[str]:
        limits, used = qos.limits, self.used.qos.get(qos.name, Used())
        yield f"QOS={qos.name}({qos.id})"
        yield f"UsageRaw={qos.usage_raw:f}"
        yield (f"GrpJobs={_limit(limits.grp_jobs)}({used.jobs}) "
               f"GrpJobsAccrue={_limit(limits.grp_jobs_accrue)}({used.accruing}) "
               f"GrpSubmitJobs={_limit(limits.grp_submit_jobs)}({used.submitted}) "
               f"GrpWall={_limit(limits.grp_wall_min)}({qos.grp_used_wall_s / 60:.2f})")
        yield self._group("GrpTRES", limits.grp_tres, used.tres, 1)
        yield self._group("GrpTRESMins", limits.grp_tres_mins, qos.usage_tres_raw, 60)
        yield self._group("GrpTRESRunMins", limits.grp_tres_run_mins, used.run_seconds, 60)
        yield f"MaxWallPJ={_blank(limits.max_wall_min)}"
        yield self._plain("MaxTRESPJ", limits.max_tres_per_job)
        yield self._plain("MaxTRESPN", limits.max_tres_per_node)
        yield self._plain("MaxTRESMinsPJ", limits.max_tres_mins_per_job)
        yield f"MinPrioThresh={_blank(limits.min_prio_threshold)} "
        yield self._plain("MinTRESPJ", limits.min_tres_per_job)
        yield f"PreemptMode={qos.preempt_mode or 'OFF'}"
        yield f"Priority={'NONE' if qos.priority == INFINITE else qos.priority}"
        yield "Account Limits" + self._members(
            list(self.used.accounts.get(qos.name, {}).items()), "PA",
            (limits.max_jobs_per_account, limits.max_jobs_accrue_per_account, limits.max_submit_jobs_per_account),
            limits.max_tres_per_account, limits.max_tres_run_mins_per_account, "No Accounts")
        yield "User Limits" + self._members(
            [(f"{user_name(uid)}({uid})", use) for uid, use in self.used.users.get(qos.name, {}).items()], "PU",
            (limits.max_jobs, limits.max_jobs_accrue, limits.max_submit_jobs),
            limits.max_tres_per_user, limits.max_tres_run_mins_per_user, "No Users")

    def _members(self, members: Sequence[tuple[str, Used]], suffix: str, limits: tuple[int | None, ...],
                 most: Tres, run: Tres, none: str) -> str:
        """The accounts or users with jobs under a QOS."""
        one_line = self.call.one_line
        if not members:
            return f"={none}" if one_line else f"\n        {none}"
        inner = " " if one_line else "\n        "
        text = "=" if one_line else ""
        for name, used in members:
            lines = [
                f"MaxJobs{suffix}={_limit(limits[0])}({used.jobs}) "
                f"MaxJobsAccrue{suffix}={_limit(limits[1])}({used.accruing}) "
                f"MaxSubmitJobs{suffix}={_limit(limits[2])}({used.submitted})",
                self._group(f"MaxTRES{suffix}", most, used.tres, 1),
                self._group(f"MaxTRESRunMins{suffix}", run, used.run_seconds, 60)]
            body = inner.join(lines)
            text += f" {name}={{{body}}}" if one_line else f"\n      {name}{inner}{body}"
        return text

    # ------------------------------------------------------------------------------------------------- TRES lines

    def _group(self, label: str, limits: Tres, used: Mapping[str, float], divisor: int) -> str:
        """``cpu=96(0),mem=N(0),…``: every TRES, its limit or N, and what is used."""
        return f"{label}=" + ",".join(
            f"{name}={_limit(limits.get(name))}({int(used.get(name, 0)) // divisor})" for name in self.names)

    def _plain(self, label: str, limits: Tres) -> str:
        """Only the limits there are."""
        return f"{label}=" + ",".join(f"{name}={limits[name]}" for name in self.names if name in limits)


def _limit(value: int | None) -> str:
    return "N" if value is None else str(value)


def _blank(value: int | None) -> str:
    return "" if value is None else str(value)
