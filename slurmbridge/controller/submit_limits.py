"""Whether associations and QOS let a job be submitted (AccountingStorageEnforce=limits).

At submission Slurm refuses what goes beyond a Max/GrpSubmit limit, and with the QOS flag DenyOnLimit also what could
never start under the QOS's or the associations' limits; otherwise such a job waits with the limit as its reason.
"""
from __future__ import annotations

from slurmbridge.controller.jobs import tasks_of
from slurmbridge.controller.limit_book import LimitBooks
from slurmbridge.slurm.jobspec import UNLIMITED_MIN
from slurmbridge.slurm.settings import SlurmConf
from slurmbridge.views.records import AssociationData, JobRecord, Limits, QosRecord

_WORDS = {"cpu": "Cpu", "mem": "Mem", "node": "Node", "energy": "Energy", "billing": "Billing"}


def violated(job: JobRecord, books: LimitBooks, accounting: AssociationData, conf: SlurmConf,
             partition_qos: str = "") -> str | None:
    """The reason word of the limit that refuses this submission, or None. ``job`` has account, QOS and size."""
    if not books.enforced:
        return None
    count = tasks_of(job)
    submitted = books.submitted
    qoses = [accounting.qos[name] for name in dict.fromkeys((partition_qos, job.qos)) if name in accounting.qos]
    for qos in qoses:
        limits = qos.limits
        if _over(limits.grp_submit_jobs, submitted["qos", qos.name], count):
            return "QOSGrpSubmitJobsLimit"
        if _over(limits.max_submit_jobs_per_account, submitted["qos", qos.name, "account", job.account], count):
            return "MaxSubmitJobsPerAccount"
        if _over(limits.max_submit_jobs, submitted["qos", qos.name, "user", job.user_name], count):
            return "QOSMaxSubmitJobPerUserLimit"
    strict = any("DenyOnLimit" in qos.flags for qos in qoses)
    if strict:
        for qos in qoses:
            word = _never_starts(job, qos.limits, "QOS", qos)
            if word:
                return word
    for depth, association in enumerate(books.chain(job.assoc_id)):
        limits = books.limits_of(association)
        if _over(limits.grp_submit_jobs, submitted["assoc", association.id], count) and not any(
                qos.limits.grp_submit_jobs is not None for qos in qoses):
            return "AssocGrpSubmitJobsLimit"
        if depth == 0 and _over(limits.max_submit_jobs, submitted["assoc", association.id], count) and not any(
                qos.limits.max_submit_jobs is not None for qos in qoses):
            return "AssocMaxSubmitJobLimit"
        if strict:
            word = _never_starts(job, limits, "Assoc", None)
            if word:
                return word
    return None


def _over(limit: int | None, have: int, more: int) -> bool:
    return limit is not None and have + more > limit


def _never_starts(job: JobRecord, limits: Limits, who: str, qos: QosRecord | None) -> str | None:
    """A limit that the job alone exceeds."""
    tres = job.tres_req
    for name, limit in limits.max_tres_per_job.items():
        if tres.get(name, 0) > limit:
            return f"{who}Max{_word(name)}PerJobLimit"
    nodes = max(tres.get("node", 1), 1)
    for name, limit in limits.max_tres_per_node.items():
        if tres.get(name, 0) / nodes > limit:
            return f"{who}Max{_word(name)}PerNode"
    for name, limit in limits.grp_tres.items():
        if tres.get(name, 0) > limit:
            return f"{who}Grp{_word(name)}Limit"
    if qos is not None:
        for name, limit in limits.max_tres_per_user.items():
            if tres.get(name, 0) > limit:
                return f"QOSMax{_word(name)}PerUserLimit"
        for name, limit in limits.max_tres_per_account.items():
            if tres.get(name, 0) > limit:
                return "MaxCpuPerAccount" if name == "cpu" else f"Max{_word(name)}PerAccount"
        for name, limit in limits.min_tres_per_job.items():
            if tres.get(name, 0) < limit:
                return "QOSMinCpuNotSatisfied" if name == "cpu" else "QOSMinMemory" if name == "mem" else (
                    "QOSMinNode" if name == "node" else f"QOSMin{_word(name)}")
    minutes = job.time_limit_min
    if minutes is not None and minutes != UNLIMITED_MIN:
        if limits.max_wall_min is not None and minutes > limits.max_wall_min:
            return f"{who}MaxWallDurationPerJobLimit"
        for name, limit in limits.max_tres_mins_per_job.items():
            if tres.get(name, 0) * minutes > limit:
                return f"{who}Max{_word(name)}MinutesPerJob" + ("Limit" if name == "cpu" else "")
    return None


def _word(tres: str) -> str:
    if tres.startswith("gres/"):
        return "GRES"
    if tres.startswith("license/"):
        return "License"
    if tres.startswith("bb/"):
        return "BB"
    return _WORDS.get(tres, "Unknown")
