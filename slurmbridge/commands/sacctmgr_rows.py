"""Records as rows of ``sacctmgr list``, and limits as the ``Settings`` that add and modify echo."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slurmbridge.slurm import durations
from slurmbridge.slurm.memory import with_unit
from slurmbridge.views.associations import Tree
from slurmbridge.views.records import FAIRSHARE_PARENT, AssociationRecord, Limits, QosRecord

Row = dict[str, str | None]


def tres_text(counts: Mapping[str, int | None]) -> str:
    """``cpu=4,gres/gpu=2,mem=4G``; a count that is to be taken out reads NONE."""
    return ",".join(sorted(f"{name}={_count(name, count)}" for name, count in counts.items()))


def _count(name: str, count: int | None) -> str:
    if count is None:
        return "NONE"
    if name == "mem" or name.startswith("bb/"):
        return with_unit(count, "M")
    return with_unit(count, "") if name.startswith(("fs/", "ic/")) else str(count)


def _number(value: int | None) -> str | None:
    return None if value is None else str(value)


def _wall(minutes: int | None) -> str | None:
    return None if minutes is None else durations.format_minutes(minutes)


def _seconds(value: int | None) -> str | None:
    return None if value is None else durations.format_seconds(value)


def _single(counts: Mapping[str, int], name: str) -> str | None:
    return _number(counts.get(name))


def shares_text(shares: int) -> str:
    return "parent" if shares == FAIRSHARE_PARENT else str(shares)


def names_text(names: Sequence[str]) -> str:
    """QOS names as lists show them: in alphabetical order."""
    return ",".join(sorted(names))


def _limit_cells(limits: Limits) -> Row:
    """The limits that associations and QOS have in common."""
    job, job_mins = limits.max_tres_per_job, limits.max_tres_mins_per_job
    return {
        "grpt": tres_text(limits.grp_tres), "grptm": tres_text(limits.grp_tres_mins),
        "grptrm": tres_text(limits.grp_tres_run_mins), "grpj": _number(limits.grp_jobs),
        "grpja": _number(limits.grp_jobs_accrue), "grps": _number(limits.grp_submit_jobs),
        "grpw": _wall(limits.grp_wall_min), "grpc": _single(limits.grp_tres, "cpu"),
        "grpcm": _single(limits.grp_tres_mins, "cpu"), "grpcrm": _single(limits.grp_tres_run_mins, "cpu"),
        "grpmem": _single(limits.grp_tres, "mem"), "grpn": _single(limits.grp_tres, "node"),
        "maxt": tres_text(job), "maxtn": tres_text(limits.max_tres_per_node), "maxtm": tres_text(job_mins),
        "maxj": _number(limits.max_jobs), "maxs": _number(limits.max_submit_jobs), "maxw": _wall(limits.max_wall_min),
        "maxc": _single(job, "cpu"), "maxn": _single(job, "node"), "maxcm": _single(job_mins, "cpu"),
        "minpt": _number(limits.min_prio_threshold),
    }


def association_row(tree: Tree, record: AssociationRecord, *, own_only: bool = False, raw_qos: bool = False) -> Row:
    """``own_only``: without what it inherits."""
    limits = record.limits if own_only else tree.limits(record)
    parent = tree.parent(record)
    if own_only:
        qos: Sequence[str] = record.qos or record.delta_qos
        default_qos, priority = record.default_qos, record.priority
    else:
        qos, default_qos, priority = tree.qos(record), tree.default_qos(record), tree.priority(record)
    ids = {name: tree.data.qos[name].id for name in qos if name in tree.data.qos}
    return {
        "cluster": tree.data.cluster, "acct": record.account, "user": record.user, "part": record.partition,
        "fairshare": shares_text(record.shares), "prio": _number(priority), "id": str(record.id),
        "pid": str(record.parent_id), "pname": parent.account if parent and not record.user else "",
        "lineage": tree.lineage(record), "qos": names_text(qos), "dqos": default_qos,
        "qos_raw": ",".join(str(ids[name]) for name in sorted(ids, key=lambda name: ids[name])),
        "comment": record.comment, "flags": ",".join(record.flags) or "None", **_limit_cells(limits),
        "maxja": _number(limits.max_jobs_accrue), "maxtrm": tres_text(limits.max_tres_run_mins),
        "maxcrm": _single(limits.max_tres_run_mins, "cpu"),
    }


def qos_row(qos: QosRecord) -> Row:
    limits = qos.limits
    return {
        **_limit_cells(limits), "name": qos.name, "id": str(qos.id), "desc": qos.description,
        "prio": str(qos.priority), "grace": _seconds(qos.grace_time_s), "pree": names_text(qos.preempt),
        "preem": (qos.preempt_mode or "cluster").lower(), "prxmpt": _seconds(qos.preempt_exempt_time_s),
        "flags": ",".join(sorted_flags(qos.flags)), "uf": repr(float(qos.usage_factor)),
        "ut": None if qos.usage_threshold is None else repr(float(qos.usage_threshold)),
        "lf": None if qos.limit_factor is None else repr(float(qos.limit_factor)),
        "maxtu": tres_text(limits.max_tres_per_user), "maxta": tres_text(limits.max_tres_per_account),
        "maxtrm": tres_text(limits.max_tres_run_mins_per_user),
        "maxtrma": tres_text(limits.max_tres_run_mins_per_account),
        "maxcu": _single(limits.max_tres_per_user, "cpu"), "maxnu": _single(limits.max_tres_per_user, "node"),
        "maxcrm": _single(limits.max_tres_run_mins_per_user, "cpu"), "maxjpa": _number(limits.max_jobs_per_account),
        "maxjaa": _number(limits.max_jobs_accrue_per_account), "maxjau": _number(limits.max_jobs_accrue),
        "maxsa": _number(limits.max_submit_jobs_per_account), "mint": tres_text(limits.min_tres_per_job),
        "minc": _single(limits.min_tres_per_job, "cpu"),
    }


_FLAG_ORDER = ("DenyOnLimit", "EnforceUsageThreshold", "PartitionMinNodes", "PartitionMaxNodes", "PartitionTimeLimit",
               "RequiresReservation", "OverPartQOS", "PartQOS", "NoReserve", "NoDecay", "Relative", "UsageFactorSafe")


def sorted_flags(flags: Sequence[str]) -> list[str]:
    """QOS flags in Slurm's order."""
    return sorted(flags, key=lambda flag: _FLAG_ORDER.index(flag) if flag in _FLAG_ORDER else len(_FLAG_ORDER))


# -------------------------------------------------------------------------------------------- settings as echoed
def _echo(label: str, value: str | None, width: int) -> str:
    return f"  {label:<{width}}= {value}\n"


def _plain(value: Any) -> str:
    return "NONE" if value is None else str(value)


def _walled(value: Any) -> str:
    return "NONE" if value is None else durations.format_minutes(value)


def _shared(value: Any) -> str:
    return "NONE" if value is None else shares_text(value)


_ASSOCIATION_ECHO = (
    ("shares", "Fairshare", 14, _shared), ("grp_jobs", "GrpJobs", 14, _plain),
    ("grp_jobs_accrue", "GrpJobsAccrue", 25, lambda value: "None" if value is None else str(value)),
    ("grp_submit_jobs", "GrpSubmitJobs", 14, _plain), ("grp_tres", "GrpTRES", 14, tres_text),
    ("grp_tres_mins", "GrpTRESMins", 14, tres_text), ("grp_tres_run_mins", "GrpTRESRunMins", 14, tres_text),
    ("grp_wall_min", "GrpWall", 14, _walled), ("max_jobs", "MaxJobs", 14, _plain),
    ("max_jobs_accrue", "MaxJobsPrioAcc", 14, _plain), ("max_submit_jobs", "MaxSubmitJobs", 14, _plain),
    ("max_tres_per_job", "MaxTRES", 14, tres_text), ("max_tres_per_node", "MaxTRESPerNode", 14, tres_text),
    ("max_tres_mins_per_job", "MaxTRESMins", 14, tres_text), ("max_tres_run_mins", "MaxTRESRUNMins", 14, tres_text),
    ("max_wall_min", "MaxWall", 14, _walled), ("min_prio_threshold", "MinPrioThresh", 14, _plain),
    ("parent", "Parent", 14, str), ("priority", "Priority", 14, _plain), ("qos", "QOS", 14, names_text),
    ("default_qos", "DefQOS", 14, lambda value: value or "(null)"), ("comment", "Comment", 14, str),
)


def association_settings(settings: Mapping[str, Any]) -> str:
    return "".join(_echo(label, text(settings[key]), width) for key, label, width, text in _ASSOCIATION_ECHO
                   if key in settings and not (key == "qos" and not settings[key]))


def _measure(value: Any) -> str:
    return "NONE" if value is None else f"{value:.4f}"


_QOS_ECHO = (
    ("flags", "Flags", 25, lambda value: ",".join(sorted_flags([flag.lstrip("+") for flag in value]))),
    ("grace_time_s", "GraceTime", 25, _plain), ("grp_jobs", "GrpJobs", 25, _plain),
    ("grp_jobs_accrue", "GrpJobsAccrue", 25, lambda value: "None" if value is None else str(value)),
    ("grp_submit_jobs", "GrpSubmitJobs", 25, _plain), ("grp_tres", "GrpTRES", 25, tres_text),
    ("grp_tres_mins", "GrpTRESMins", 25, tres_text), ("grp_tres_run_mins", "GrpTRESRunMins", 25, tres_text),
    ("grp_wall_min", "GrpWall", 25, _walled), ("max_jobs_accrue_per_account", "MaxJobsAccruePerAccount", 25, _plain),
    ("max_jobs_accrue", "MaxJobsAccruePerUser", 25, _plain), ("max_jobs_per_account", "MaxJobsPerAccount", 25, _plain),
    ("max_jobs", "MaxJobsPerUser", 15, _plain),
    ("max_submit_jobs_per_account", "MaxSubmitJobsPerAccount", 25, _plain),
    ("max_submit_jobs", "MaxSubmitJobsPerUser", 25, _plain),
    ("max_tres_per_account", "MaxTRESPerAccount", 25, tres_text), ("max_tres_per_job", "MaxTRESPerJob", 25, tres_text),
    ("max_tres_per_node", "MaxTRESPerNode", 25, tres_text), ("max_tres_per_user", "MaxTRESPerUser", 25, tres_text),
    ("min_prio_threshold", "MinPrioThresh", 25, _plain), ("min_tres_per_job", "MinTRESPerJob", 25, tres_text),
    ("max_tres_mins_per_job", "MaxTRESMins", 25, tres_text),
    ("max_tres_run_mins_per_account", "MaxTRESRUNMinsPerAccount", 25, tres_text),
    ("max_tres_run_mins_per_user", "MaxTRESRUNMinsPerUser", 25, tres_text), ("max_wall_min", "MaxWall", 25, _walled),
    ("preempt", "Preempt", 25, names_text), ("preempt_mode", "PreemptMode", 25, str),
    ("preempt_exempt_time_s", "PreemptExemptTime", 25,
     lambda value: "NONE" if value is None else durations.format_seconds(value)),
    ("priority", "Priority", 25, _plain), ("usage_factor", "UsageFactor", 25, _measure),
    ("usage_threshold", "UsageThreshold", 25, _measure), ("limit_factor", "LimitFactor", 25, _measure),
)


def qos_settings(settings: Mapping[str, Any]) -> str:
    return "".join(_echo(label, text(settings[key]), width) for key, label, width, text in _QOS_ECHO
                   if key in settings and not (key in ("preempt", "preempt_mode", "flags") and not settings[key]))
