"""Jobs without a controller: records from the recorded samples, and a session that squeue and scancel can run in."""
from __future__ import annotations

import asyncio
import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

from slurmbridge.slurm.array import parse as parse_array
from slurmbridge.slurm.jobspec import UNLIMITED_MIN, JobRequest
from slurmbridge.slurm.memory import parse_mb
from slurmbridge.slurm.settings import SlurmConf
from slurmbridge.slurm.tres import parse_counts
from slurmbridge.views.records import AssociationData, JobRecord, NodeRecord, PartitionRecord, StepRecord
from slurmbridge.views.session import Identity, Invocation, Reply

DATA = Path(__file__).resolve().parent.parent / "data" / "squeue"
NOW = "2026-11-29T17:41:06"


def epoch(text: str) -> float | None:
    if text in ("N/A", "None", "Unknown", "NONE"):
        return None
    return datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC).timestamp()


def minutes(text: str) -> int:
    if text == "UNLIMITED":
        return UNLIMITED_MIN
    days, _, clock = text.rpartition("-")
    parts = [int(part) for part in clock.split(":")]
    hours = parts[0] if len(parts) == 3 else 0
    return int(days or 0) * 1440 + hours * 60 + parts[-2]


def null(text: str) -> str | None:
    return None if text in ("(null)", "N/A", "") else text


def hosts(text: str) -> tuple[str, ...]:
    from slurmbridge.slurm.hostlist import expand
    return tuple(expand(text)) if text else ()


def record(row: Mapping[str, str]) -> JobRecord:
    """A row of ``squeue -O`` with every field, back to what it was printed from."""
    raw, own = int(row["JobID"]), int(row["ArrayJobID"])
    shown = row["JobArrayID"]
    request = JobRequest(
        batch=row["BatchFlag"] == "1", constraint=null(row["Feature"]), command=null(row["Command"]),
        work_dir=row["WorkDir"], std_out=null(row["STDOUT"]), std_err=null(row["STDERR"]),
        std_in=null(row["STDIN"]), node_list=null(row["ReqNodes"]), tres_per_node=null(row["tres-per-node"]),
        tres_per_job=null(row["tres-per-job"]), tres_per_task=null(row["tres-per-task"]),
        contiguous=row["Contiguous"] == "1", reservation=null(row["Reservation"]), licenses=null(row["Licenses"]))
    job = JobRecord(
        raw, request, name=row["Name"], user_name=row["UserName"], uid=int(row["UserID"]), group_name=row["GroupName"],
        gid={"users": 100, "root": 0}[row["GroupName"]], account=row["Account"],
        partition=row["Partition"], qos=row["QOS"], state=row["State"],
        priority=int(row["PriorityLong"]), nice=int(row["Nice"]), time_limit_min=minutes(row["TimeLimit"]),
        submit_s=epoch(row["SubmitTime"]) or 0, eligible_s=epoch(row["EligibleTime"]), start_s=epoch(row["StartTime"]),
        accrue_s=epoch(row["AccrueTime"]), num_nodes=row["NumNodes"], num_cpus=int(row["NumCPUs"]),
        num_tasks=int(row["NumTasks"]), min_cpus_node=int(row["MinCpus"]), mem_per_cpu_mb=parse_mb(row["MinMemory"]),
        tres_req=parse_counts(row["tres-alloc"]), nodes=hosts(row["NodeList"]),
        sched_nodes=null(row["SchedNodes"]) or "", oversubscribe=row["OverSubscribe"],
        dependency=null(row["Dependency"]) or "", comment=null(row["Comment"]) or "",
        restarts=int(row["RestartCnt"]), requeue=row["Requeue"] == "1", last_sched_eval_s=epoch(row["LastSchedEval"]),
        alloc_node=row["AllocNodes"], alloc_sid=int(row["AllocSID"]), max_nodes=int(row["MaxNodes"]))
    if row["BatchHost"] != "n/a":
        job.batch_host = row["BatchHost"]
    if " " in row["Reason"]:
        job.reason, job.reason_desc = "Resources", row["Reason"]
    else:
        job.reason = row["Reason"]
    if "_[" in shown:
        job.array_job_id = own
        tasks, job.array_max_running = parse_array(row["ArrayTaskID"], 100000)
        job.array_pending = sum(1 << task for task in tasks)
        job.array_task_max = 4
    elif "_" in shown:
        job.array_job_id, job.array_task_id = own, int(row["ArrayTaskID"])
    if row["HetJobID"] != "N/A":
        job.het_job_id, job.het_offset = int(row["HetJobID"]), int(row["HetJobOffset"])
    if job.state != "PENDING":
        job.end_s = epoch(row["EndTime"])
    return job


def sample_jobs() -> list[JobRecord]:
    lines = (DATA / "O_all.txt").read_text().splitlines()[2:]
    names = [word.split(":")[0] for word in (DATA / "O_all.command").read_text().split(" -O ")[1].strip().split(",")]
    rows = [dict(zip(names, line.split("|"), strict=True)) for line in lines[1:]]
    jobs = sorted((record(row) for row in rows), key=lambda job: job.job_id)
    for job in jobs:
        if job.state == "RUNNING":
            kinds = [("extern", "extern", job.nodes), ("batch", "batch", job.nodes[:1])]
            if job.job_id == 434:
                kinds.append(("0", "sleep", job.nodes))
            for step_id, name, nodes in kinds:
                job.steps[step_id] = StepRecord(job.job_id, step_id, name, start_s=job.start_s or 0, nodes=nodes)
    return jobs


def plain_job(job_id: int, **fields: object) -> JobRecord:
    """A pending one-node job of alice's, with these fields."""
    request = fields.pop("request", None) or JobRequest(work_dir="/home/alice")
    given = {"name": f"job{job_id}", "user_name": "alice", "uid": 20001, "gid": 100, "group_name": "users",
             "account": "phys", "partition": "batch", "qos": "normal", "priority": 100, "submit_s": 1000.0,
             "time_limit_min": 60, "reason": "Priority", **fields}
    return JobRecord(job_id, request, **given)


def array_job(job_id: int, tasks: str, **fields: object) -> JobRecord:
    """The pending remainder of an array."""
    numbers, limit = parse_array(tasks, 1_000_000)
    return plain_job(job_id, array_job_id=job_id, array_pending=sum(1 << task for task in numbers),
                     array_max_running=limit, array_task_max=max(numbers), **fields)


class Acts:
    """Remembers what was asked; ``errors`` maps a job id to what is raised for it."""

    def __init__(self) -> None:
        self.calls: list[dict] = []
        self.errors: dict[int, Exception] = {}

    async def signal(self, caller, job_id, **options):
        self.calls.append({"job_id": job_id, **{k: v for k, v in options.items() if v not in (None, False)}})
        if job_id in self.errors:
            raise self.errors[job_id]

    async def update_job(self, caller, job, changes):
        self.calls.append({"update": job, **changes})


class FakeSession:
    """``answers`` are what the caller types; ``written`` is what was printed before the reply."""

    def __init__(self, jobs: Sequence[JobRecord], *, uid: int = 0, host: str = "login", now: str = NOW,
                 partitions: Sequence[PartitionRecord] = (), answers: bytes = b"", tty: bool = False) -> None:
        conf = SlurmConf(cluster_name="lab", accounting_storage_tres=(
            "cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages", "gres/gpu", "gres/gpu:a100",
            "gres/gpu:v100"))
        names = {name for job in jobs for name in job.nodes} | {"n1", "n2", "g1"}
        given = {part.name: part for part in partitions}
        self.views = SimpleNamespace(
            conf=conf, jobs={job.job_id: job for job in jobs}, nodes={n: NodeRecord(n, 32) for n in sorted(names)},
            partitions={name: given.get(name) or PartitionRecord(name)
                        for job in jobs for name in job.partition.split(",")},
            accounting=AssociationData("lab"), boot_s=0.0,
            array_tasks=lambda own: [job for job in jobs if job.array_job_id == own and own])
        self.acts = Acts()
        self.identity = Identity(uid, 100, "root" if uid == 0 else "alice", "users", uid == 0)
        self.invocation = Invocation("squeue", (), {}, "/", host=host, stdin_is_tty=tty)
        self.answers = answers
        self.written = ""
        self.errors_written = ""
        self.sleeps: list[float] = []
        self.patience = 3                     # the caller goes during this many-th sleep
        self._now = epoch(now) or 0

    def now(self) -> float:
        return self._now

    async def write_stdout(self, text: str) -> None:
        self.written += text

    async def write_stderr(self, text: str) -> None:
        self.errors_written += text

    async def read_line(self) -> bytes:
        line, newline, self.answers = self.answers.partition(b"\n")
        return line + newline

    async def read_file(self, path: str, limit: int = 1 << 20) -> bytes:
        return Path(path).read_bytes()

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self._now += seconds
        if len(self.sleeps) >= self.patience:
            raise ConnectionError

    def call(self, command, *argv: str, env: Mapping[str, str] | None = None) -> Reply:
        return asyncio.run(command(argv, {"TZ": "UTC", **(env or {})}, self))
