"""Records to rows: what of a job and a step the accounting tables hold, apart from what a restart needs.

The printed-only fields of a job travel as one JSON text (``data``), whose keys ``queries.py`` documents.
"""
from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from slurmbridge.accounting import codec
from slurmbridge.slurm.jobspec import JobRequest
from slurmbridge.slurm.states import PENDING
from slurmbridge.views.records import JobRecord, StepRecord

Row = tuple[Any, ...]
LIVE_OMIT = frozenset({"steps", "request", "array_pending"})
REQUEST_OMIT = frozenset({"script", "environment"})


def clean(text: str) -> str:
    """Text that every database accepts: undecodable bytes and NUL become backslash escapes."""
    if text.isascii() and "\0" not in text:
        return text
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\x00")


def whole(time_s: float | None) -> int | None:
    return None if time_s is None else int(time_s)


def job_row(job: JobRecord) -> Row:
    """A row of table ``job``, columns in the schema's order."""
    started = job.start_s if job.state != PENDING and (job.nodes or job.tres_alloc) else None
    return (
        job.db_index, job.job_id, job.array_job_id, job.array_task_id, job.het_job_id, job.het_offset,
        clean(job.user_name), job.uid, job.gid, clean(job.account), job.assoc_id, clean(job.partition), clean(job.qos),
        clean(job.wckey), clean(job.name), job.state, int(job.submit_s), whole(job.eligible_s), whole(started),
        whole(job.end_s) if _is_over(job) else None, codec.dumps(_job_data(job)))


def _is_over(job: JobRecord) -> bool:
    return job.state not in ("PENDING", "RUNNING", "SUSPENDED")


def _exit_status(job: JobRecord) -> int:
    """Of this run: none while it waits. A bare 1 is no signal but slurmctld's word for what it lost: exit code 1."""
    if job.state == PENDING:
        return 0
    return 1 << 8 if job.exit_status == 1 else job.exit_status


def _waited_for(job: JobRecord) -> str:
    """sacct's Reason: what the job last waited for, other than its turn."""
    if job.state == PENDING and job.reason not in ("None", "Priority", "Resources"):
        return job.reason
    return job.reason_before


def _job_data(job: JobRecord) -> dict[str, Any]:
    request = job.request
    values: dict[str, Any] = {
        "group": job.group_name, "nodes": job.nodes, "tres_req": job.tres_req, "tres_alloc": job.tres_alloc,
        "req_cpus": job.num_cpus, "req_nodes": job.min_nodes, "req_mem_cpu": job.mem_per_cpu_mb,
        "req_mem_node": job.mem_per_node_mb, "time_limit_min": job.time_limit_min, "priority": job.priority,
        "exit_status": _exit_status(job), "derived": job.derived_exit_status, "reason": _waited_for(job),
        "scheduler": job.scheduler, "constraints": request.constraint, "work_dir": request.work_dir,
        "std_in": request.std_in, "std_out": request.std_out, "std_err": request.std_err,
        "submit_line": request.submit_line, "comment": job.comment, "admin_comment": job.admin_comment,
        "system_comment": job.system_comment, "extra": request.extra, "licenses": request.licenses,
        "mcs_label": request.mcs_label, "container": request.container, "failed_node": job.failed_node,
        "restarts": job.restarts, "qos_req": request.qos,
        "reservation": request.reservation, "reservation_id": job.reservation_id,
        "reservation_name": job.reservation_name, "segment_size": request.segment_size, "cpu_freq": request.cpu_freq,
        "batch": request.batch, "array_max_running": job.array_max_running,
    }
    if job.array_pending:
        values["array_pending"] = hex(job.array_pending)
    if "REQUEUED" in job.flags or "REQUEUE_HOLD" in job.flags or "SPECIAL_EXIT" in job.flags or "RESIZING" in job.flags:
        values["flags"] = job.flags
    kept = {name: value for name, value in values.items() if value not in (None, "", 0, (), {})}
    if job.killed_by_uid is not None:         # 0 is root
        kept["killed_by_uid"] = job.killed_by_uid
    return kept


def request_text(request: JobRequest) -> str:
    """The request in a row of table ``live``, without its big texts."""
    return codec.encode(request, REQUEST_OMIT)


def live_row(job: JobRecord, script: str | None, environment: str | None, request: str) -> Row:
    """A row of table ``live``: everything of the record but its steps and its big texts (given as hashes).

    ``request``: its ``request_text``.
    """
    pending = "" if job.array_pending is None else hex(job.array_pending)
    data = f"{pending}\n{request}\n{codec.encode(job, LIVE_OMIT)}"
    return job.job_id, job.db_index, script, environment, data


def job_from_live(data: str, script: str | None, environment: tuple[str, ...]) -> JobRecord:
    """The JobRecord that ``live_row`` wrote."""
    pending, request_text, job_text = data.split("\n")
    request = codec.decode(JobRequest, request_text)
    request.script, request.environment = script, environment
    record = codec.decode(JobRecord, job_text, {"request": request})
    record.array_pending = int(pending, 16) if pending else None
    return record


def step_row(db_index: int, step: StepRecord) -> Row:
    return db_index, clean(step.step_id), codec.encode(step)


def text_hash(text: bytes) -> str:
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def script_bytes(script: str) -> bytes:
    return script.encode("utf-8", "surrogateescape")


def environment_bytes(environment: tuple[str, ...]) -> bytes:
    return "\0".join(environment).encode("utf-8", "surrogateescape")


def environment_from(content: bytes) -> tuple[str, ...]:
    return tuple(content.decode("utf-8", "surrogateescape").split("\0")) if content else ()


def settings_row(name: str, settings: Mapping[str, Any]) -> Row | None:
    return (clean(name), codec.dumps(settings)) if settings else None
