"""Recorded answers of real Slurm 25.11.7 (tests/data/fairshare.jsonl.gz) and the cluster they were recorded on."""
from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from slurmbridge.controller.priorities import Priorities
from slurmbridge.slurm.jobspec import JobRequest
from slurmbridge.slurm.settings import PrioritySettings, SlurmConf
from slurmbridge.views.records import (
    FAIRSHARE_PARENT,
    AssociationData,
    AssociationRecord,
    JobRecord,
    NodeRecord,
    PartitionRecord,
    QosRecord,
)

DATA = Path(__file__).parent.parent / "data" / "fairshare.jsonl.gz"
WITH_FLAGS = DATA.with_name("fairshare_flags.jsonl.gz")
"""Other trees, each with ``settings`` of its own."""
DEFAULT_MIN = {"batch": 60, "debug": 5, "gpu": 60}
NOW_S = 1_800_000_000


def load(path: Path = DATA) -> list[dict[str, Any]]:
    with gzip.open(path, "rt") as lines:
        return [json.loads(line) for line in lines]


def node(name: str, cpus: int, memory_mb: int, gres: dict[str, int] | None = None) -> NodeRecord:
    return NodeRecord(name, cpus, real_memory_mb=memory_mb, gres=gres or {})


def nodes() -> dict[str, NodeRecord]:
    made = [node(f"n{i}", 32, 128000) for i in range(1, 5)] + [node(f"n{i}", 64, 256000) for i in (5, 6)]
    made += [node("g1", 64, 256000, {"gpu:a100": 4}), node("g2", 32, 128000, {"gpu:v100": 2})]
    return {one.name: one for one in made}


def partitions() -> dict[str, PartitionRecord]:
    cpu, gpu = tuple(f"n{i}" for i in range(1, 7)), ("g1", "g2")
    made = [
        PartitionRecord("batch", cpu, default=True, priority_job_factor=10, tres_billing_weights="CPU=1.0,Mem=0.25G"),
        PartitionRecord("debug", cpu[:2], priority_job_factor=50, tres_billing_weights="CPU=1.0"),
        PartitionRecord("gpu", gpu, priority_job_factor=30, tres_billing_weights="CPU=0.5,Mem=0.1G,GRES/gpu=10"),
        PartitionRecord("long", cpu[2:], priority_job_factor=1, tres_billing_weights="CPU=1.0,Mem=0.25G"),
        PartitionRecord("physonly", cpu, priority_job_factor=20),
        PartitionRecord("all", cpu + gpu, priority_job_factor=5)]
    return {one.name: one for one in made}


def conf(**priority: Any) -> SlurmConf:
    settings = PrioritySettings(
        weight_age=1000, weight_fairshare=10000, weight_jobsize=500, weight_partition=2000, weight_qos=3000,
        weight_assoc=700, weight_tres_text="CPU=400,Mem=200,GRES/gpu=900", calc_period_s=60)
    for name, value in priority.items():
        setattr(settings, name, value)
    return SlurmConf(priority=settings, accounting_enforce=frozenset({"associations", "limits", "qos"}))


def accounting(case: dict[str, Any]) -> AssociationData:
    """The case's accounts and users, ids in an order that has nothing to do with the tree."""
    shares = {"parent": FAIRSHARE_PARENT}
    names = [account["name"] for account in case["accounts"]]
    ids = {"root": 1, **{name: 100 - index for index, name in enumerate(names)}}
    records = [AssociationRecord(1, "root"), AssociationRecord(2, "root", "root", parent_id=1)]
    records += [AssociationRecord(ids[a["name"]], a["name"], parent_id=ids[a["parent"]],
                                  shares=shares.get(a["shares"], a["shares"])) for a in case["accounts"]]
    records += [AssociationRecord(1000 - index, u["account"], u["name"], parent_id=ids[u["account"]],
                                  shares=shares.get(u["shares"], u["shares"]), priority=u.get("priority"))
                for index, u in enumerate(case["users"])]
    qos = {"normal": 10, "low": 1, "scav": 0, "high": 100, "capped": 10, "gpuq": 50}
    tres = ["cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages"]
    return AssociationData(
        "lab", {a.id: a for a in records},
        {name: QosRecord(i, name, priority=p) for i, (name, p) in enumerate(qos.items(), 1)},
        tres={**{name: i for i, name in enumerate(tres, 1)}, "gres/gpu": 1001, "gres/gpu:a100": 1002})


def usage_rows(case: dict[str, Any]) -> list[tuple[str, str, float]]:
    return [(*reversed(key.split("@")), value) for key, value in case["usage"].items()]


_LONG = {"-p": "partition", "-n": "tasks", "-N": "nodes", "-c": "cpus", "-q": "qos", "-t": "time",
         "--ntasks-per-node": "per_node", "--nice": "nice", "--mem": "mem",
         "--mem-per-cpu": "mem_per_cpu", "--gres": "gres"}


def _megabytes(text: str) -> int:
    return int(text.rstrip("MG")) * (1024 if text.endswith("G") else 1)


def job(number: int, case_job: dict[str, Any]) -> JobRecord:
    """A pending job as the controller files it, from the few options that the cases use."""
    words = iter(case_job.get("args", []))
    given: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        given[_LONG[name]] = value if equals else next(words)
    node_count, cpus_per_task = int(given.get("nodes", 1)), int(given.get("cpus", 1))
    tasks = int(given.get("tasks", node_count * int(given.get("per_node", 1))))
    cpus = tasks * cpus_per_task
    if "mem" in given:
        memory = _megabytes(given["mem"]) * node_count
    else:
        memory = _megabytes(given.get("mem_per_cpu", "1000")) * cpus
    partition = given.get("partition", "batch")
    tres = {"cpu": cpus, "mem": memory, "node": node_count}
    if "gres" in given:
        parts = given["gres"].split(":")
        tres["gres/gpu"] = int(parts[-1]) * node_count
        if len(parts) == 3:
            tres[f"gres/gpu:{parts[1]}"] = tres["gres/gpu"]
    return JobRecord(
        number, JobRequest(), user_name=case_job["user"], account=case_job["account"], uid=30000 + number,
        partition=partition, qos=given.get("qos", "normal"), nice=int(given.get("nice", 0)),
        submit_s=NOW_S, eligible_s=NOW_S, accrue_s=NOW_S, num_cpus=cpus, num_tasks=tasks, min_nodes=node_count,
        time_limit_min=int(given["time"]) if "time" in given else DEFAULT_MIN.get(partition.partition(",")[0]),
        tres_req=tres)


def priorities(case: dict[str, Any], **settings: Any) -> Priorities:
    """The case's tree with its usage, no jobs yet."""
    made = Priorities(conf(**settings), accounting(case), partitions(), nodes(), last_ran_s=NOW_S)
    made.set_usage(usage_rows(case))
    return made
