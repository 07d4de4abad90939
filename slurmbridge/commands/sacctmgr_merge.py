"""What a sacctmgr file would change of a record that is there: the lines that say so, and the settings."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slurmbridge.commands.sacctmgr_rows import names_text, sorted_flags
from slurmbridge.commands.sacctmgr_words import Settings
from slurmbridge.views.associations import Tree
from slurmbridge.views.records import AssociationRecord, QosRecord

_ASSOCIATION = (
    ("grp_tres_mins", "GrpTRESMins"), ("grp_tres_run_mins", "GrpTRESRunMins"), ("grp_tres", "GrpTRES"),
    ("grp_jobs", "GrpJobs"), ("grp_jobs_accrue", "GrpJobsAccrue"), ("grp_submit_jobs", "GrpSubmitJobs"),
    ("grp_wall_min", "GrpWallDuration"), ("max_tres_mins_per_job", "MaxTRESMinsPerJob"),
    ("max_tres_run_mins", "MaxTRESRunMins"), ("max_tres_per_job", "MaxTRESPerJob"),
    ("max_tres_per_node", "MaxTRESPerNode"), ("max_jobs", "MaxJobs"), ("max_jobs_accrue", "MaxJobsAccrue"),
    ("max_submit_jobs", "MaxSubmitJobs"), ("max_wall_min", "MaxWallDurationPerJob"),
    ("min_prio_threshold", "MinPrioThresh"))
_QOS = (
    ("grace_time_s", "GraceTime"), ("grp_jobs_accrue", "GrpJobsAccrue"), ("grp_jobs", "GrpJobs"),
    ("grp_submit_jobs", "GrpSubmitJobs"), ("grp_tres", "GrpTRES"), ("grp_tres_mins", "GrpTRESMins"),
    ("grp_tres_run_mins", "GrpTRESRunMins"), ("grp_wall_min", "GrpWallDuration"), ("limit_factor", "LimitFactor"),
    ("max_jobs_per_account", "MaxJobsPerAccount"), ("max_jobs", "MaxJobsPerUser"),
    ("max_jobs_accrue_per_account", "MaxJobsAccruePerAccount"), ("max_jobs_accrue", "MaxJobsAccruePerUser"),
    ("max_submit_jobs_per_account", "MaxSubmitJobsPerAccount"), ("max_submit_jobs", "MaxSubmitJobsPerUser"),
    ("max_tres_mins_per_job", "MaxTRESMinsPerJob"), ("max_tres_per_account", "MaxTRESPerAccount"),
    ("max_tres_per_job", "MaxTRESPerJob"), ("max_tres_per_node", "MaxTRESPerNode"),
    ("max_tres_per_user", "MaxTRESPerUser"), ("max_tres_run_mins_per_account", "MaxTRESRunMinsPerAccount"),
    ("max_tres_run_mins_per_user", "MaxTRESRunMinsPerUser"), ("max_wall_min", "MaxWallDurationPerJob"),
    ("min_prio_threshold", "MinPrioThresh"), ("min_tres_per_job", "MinTRESPerJob"))
_QOS_END = (("preempt_exempt_time_s", "PreemptExemptTime"), ("priority", "Priority"), ("usage_factor", "UsageFactor"),
            ("usage_threshold", "UsageThreshold"))


def changed_line(what: str, kind: str, name: str, before: str, after: str) -> str:
    return f"{' Changed ' + what:<30.30} for {kind:<7.7} {name:<10.10} {before:>8} -> {after}\n"


def numbered_tres(ids: Mapping[str, int], counts: Mapping[str, int | None]) -> str:
    """``1=96,2=1024``: TRES by their ids, as the database keeps them; ``(null)`` for none."""
    pairs = sorted((ids.get(name, 0), count) for name, count in counts.items() if count is not None)
    return ",".join(f"{number}={count}" for number, count in pairs) or "(null)"


def _compare(holders: Sequence[Any], table: Sequence[tuple[str, str]], settings: Settings, ids: Mapping[str, int],
             kind: str, name: str, unset: str) -> tuple[str, Settings]:
    lines, changed = "", {}
    for field, label in table:
        if field not in settings:
            continue
        before = next((getattr(holder, field) for holder in holders if hasattr(holder, field)), None)
        after = settings[field]
        if isinstance(after, dict):
            wanted = {tres: count for tres, count in after.items() if count is not None}
            if before == wanted:
                continue
            texts = numbered_tres(ids, before or {}), numbered_tres(ids, wanted)
            after = wanted                     # what the file does not name stays
        elif before == after:
            continue
        elif isinstance(after, float) or isinstance(before, float):
            texts = f"{before if before is not None else 4294967295.0:f}", f"{after if after is not None else 0:f}"
        else:
            texts = unset if before is None else str(before), unset if after is None else str(after)
        lines += changed_line(label, kind, name, *texts)
        changed[field] = after
    return lines, changed


def association_changes(tree: Tree, record: AssociationRecord, kind: str, name: str, settings: Settings,
                        parent: str | None) -> tuple[str, Settings]:
    """(lines, settings that differ) for an association of a Cluster, Account or User line."""
    ids = tree.data.tres
    lines, changed = "", Settings()
    if settings.get("comment") and settings["comment"] != record.comment:
        lines += changed_line("Comment", kind, name, record.comment or "(null)", settings["comment"])
        changed["comment"] = settings["comment"]
    shares = settings.get("shares", record.shares)
    if shares != record.shares:
        lines += changed_line("fairshare", kind, name, str(record.shares), str(shares))
        changed["shares"] = shares
    more, differing = _compare([record.limits], _ASSOCIATION, settings, ids, kind, name, "-1")
    lines, changed = lines + more, changed | differing
    above = tree.parent(record)
    if parent is not None and above is not None and not record.user and above.account != parent:
        lines += changed_line("Parent", kind, name, above.account, parent)
        changed["parent"] = parent
    more, differing = _compare([record], (("priority", "Priority"),), settings, ids, kind, name, "-1")
    lines, changed = lines + more, changed | differing
    default = settings.get("default_qos")
    if default is not None and default != record.default_qos:
        lines += f"{' Set DefaultQOS':<30} for {kind:<7.7} {name:<10.10} {default:>8}\n"
        changed["default_qos"] = default
    own = record.qos or record.delta_qos
    added = [word for word in settings.get("qos", ()) if word not in own]
    if added:
        lines += f"{' Added QOS':<30} for {kind:<7.7} {name:<10.10} {names_text(added):>8}\n"
        changed["qos"] = added
    return lines, changed


def qos_changes(ids: Mapping[str, int], qos: QosRecord, settings: Settings) -> tuple[str, Settings]:
    """(lines, settings that differ) for a QOS line."""
    lines, changed = "", Settings()
    if settings.get("description") and settings["description"].lower() != qos.description.lower():
        lines += changed_line("Description", "QOS", qos.name, qos.description or "(null)", settings["description"])
        changed["description"] = settings["description"]
    if "flags" in settings and set(settings["flags"]) != set(qos.flags):
        lines += changed_line("Flags", "QOS", qos.name, ",".join(sorted_flags(qos.flags)) or "(null)",
                              ",".join(sorted_flags(settings["flags"])))
        changed["flags"] = settings["flags"]
    more, differing = _compare([qos.limits, qos], _QOS, settings, ids, "QOS", qos.name, "4294967295")
    lines, changed = lines + more, changed | differing
    if "preempt" in settings and set(settings["preempt"]) != set(qos.preempt):
        changed["preempt"] = settings["preempt"]
    if "preempt_mode" in settings and settings["preempt_mode"] != qos.preempt_mode:
        lines += changed_line("PreemptMode", "QOS", qos.name, qos.preempt_mode or "OFF",
                              settings["preempt_mode"] or "OFF")
        changed["preempt_mode"] = settings["preempt_mode"]
    more, differing = _compare([qos], _QOS_END, settings, ids, "QOS", qos.name, "4294967295")
    changed |= differing
    if changed and settings.get("description"):
        changed["description"] = settings["description"]      # also where only its letters' case differs
    return lines + more, changed
