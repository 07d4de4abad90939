"""One account tree with jobs of every kind on real Slurm 25.11.7 under nine configurations, and 85 command lines.

tests/data/fairshare_lab.json.gz: ``case`` (accounts, users, usage, jobs), ``associations`` and ``jobs`` as sacctmgr and
scontrol showed them, ``variants`` (rows of sshare and sprio by configuration) and ``commands`` (argv, env, answers).
"""
from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fairshare_cases as cases

from slurmbridge.controller.priorities import Priorities
from slurmbridge.slurm.durations import parse_minutes
from slurmbridge.slurm.jobspec import UNLIMITED_MIN, JobRequest
from slurmbridge.slurm.settings import SlurmConf
from slurmbridge.slurm.tres import parse_counts
from slurmbridge.views.records import FAIRSHARE_PARENT, AssociationData, AssociationRecord, JobRecord, QosRecord
from slurmbridge.views.session import Identity

DATA = json.loads(gzip.decompress((Path(__file__).parent.parent / "data" / "fairshare_lab.json.gz").read_bytes()))
VARIANTS: dict[str, Any] = DATA["variants"]


def accounting() -> AssociationData:
    records = {}
    for number, account, user, parent, share, priority in DATA["associations"]:
        shares = FAIRSHARE_PARENT if share == "parent" else int(share)
        records[int(number)] = AssociationRecord(
            int(number), account, user, parent_id=int(parent), shares=shares,
            priority=int(priority) if priority else None)
    names = {f"{kind}/{name}" if name else kind: int(number) for kind, name, number in DATA["tres"]}
    factors = {"high": 2.0, "low": 0.5, "scav": 0.0}
    qos = {name: QosRecord(number, name, usage_factor=factors.get(name, 1.0) if DATA.get("factors") else 1.0)
           for number, name in enumerate(("normal", "low", "scav", "high", "capped", "gpuq"), 1)}
    data = AssociationData("lab", records, qos, tres=names)
    numbers = {tres_id: name for name, tres_id in names.items()}
    for key, used in DATA["case"]["usage"].items():
        user, account = key.split("@")
        used = used if isinstance(used, dict) else {"raw": used, "tres": f"5={used}"}
        at = next(a for a in records.values() if (a.user, a.account) == (user, account))
        while at is not None:
            at.usage_raw += used["raw"]
            at.grp_used_wall_s += used.get("wall", 0)
            for part in used["tres"].split(","):
                number, _, count = part.partition("=")
                name = numbers[int(number)]
                at.usage_tres_raw[name] = at.usage_tres_raw.get(name, 0.0) + float(count)
            at = records.get(at.parent_id)
    return data


def conf(settings: Mapping[str, Any]) -> SlurmConf:
    made = cases.conf(**{key: frozenset(value) if key == "flags" else value
                         for key, value in settings.items() if key != "dampening"})
    made.cluster_name = "lab"
    if "dampening" in settings:
        made.values["FairShareDampeningFactor"] = str(settings["dampening"])
    return made


def _time(text: str) -> float | None:
    return None if text == "Unknown" else datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def _limit(text: str) -> int:
    return UNLIMITED_MIN if text == "UNLIMITED" else parse_minutes(text) or 0


def jobs(rows: Sequence[Mapping[str, Any]]) -> list[JobRecord]:
    """The recorded jobs as the controller would have them."""
    made = []
    for row in rows:
        user, uid = row["UserId"].rstrip(")").split("(")
        fixed = row["Fixed"]
        made.append(JobRecord(
            int(row["JobId"]), JobRequest(), user_name=user, uid=int(uid), account=row["Account"], qos=row["QOS"],
            partition=row["Partition"], nice=int(row["Nice"]), priority=int(row["Priority"]) if fixed else 0,
            priority_fixed=fixed, submit_s=_time(row["SubmitTime"]) or 0.0, eligible_s=_time(row["EligibleTime"]),
            accrue_s=_time(row["AccrueTime"]), time_limit_min=_limit(row["TimeLimit"]), num_cpus=int(row["NumCPUs"]),
            min_nodes=parse_counts(row["ReqTRES"])["node"], tres_req=parse_counts(row["ReqTRES"]),
            tres_alloc={} if row["AllocTRES"] == "(null)" else parse_counts(row["AllocTRES"]), state=row["JobState"],
            start_s=_time(row["StartTime"]), end_s=_time(row["EndTime"])))
    return made


@dataclass
class Cluster:
    """Priorities with jobs submitted one after the other, as the lab had them."""

    priorities: Priorities
    now_s: float
    jobs: dict[int, JobRecord] = field(default_factory=dict)


def cluster(variant: str = "base", recorded: str = "jobs", partition_tiers: Mapping[str, int] | None = None) -> Cluster:
    parts = cases.partitions()
    for name, tier in (partition_tiers or {}).items():
        parts[name].priority_tier = tier
    rows = DATA[recorded]
    now_s = max(_time(row["SubmitTime"]) or 0.0 for row in rows)
    settings = conf(VARIANTS[variant]["settings"])
    made = Cluster(Priorities(settings, accounting(), parts, cases.nodes(), last_ran_s=now_s), now_s)
    for job in jobs(rows):
        made.jobs[job.job_id] = job
        job.tres_req["billing"] = int(made.priorities.billing(job.tres_req, job.partition.split(",")[0]))
        held = next(row for row in rows if int(row["JobId"]) == job.job_id)["Priority"] == "0"
        if held:
            made.priorities.track(job)
        else:
            made.priorities.initial(job, now_s)
    return made


def session(made: Cluster, user: str = "root", uid: int = 0) -> Any:
    """What a command is called with."""
    views = SimpleNamespace(
        conf=made.priorities.conf, accounting=made.priorities.accounting, jobs=made.jobs, boot_s=0.0,
        shares=made.priorities.shares,
        priority_columns=lambda ids=None: made.priorities.priority_columns(made.now_s, ids))
    caller = Identity(uid, uid, user, user, uid == 0)
    return SimpleNamespace(identity=caller, views=views, acts=None, now=lambda: made.now_s)
