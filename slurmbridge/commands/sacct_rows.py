"""Accounting rows as sacct shows them: jobs and steps with their times worked out, for the whole or for a window.

``make`` turns rows of ``ledger_query("jobs", steps=…, suspensions=True)`` into :class:`Job` objects. Times are epoch
seconds, 0 = not yet, ``NEVER`` = it ended without having started.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slurmbridge.slurm import array, states

NEVER = 0xFFFFFFFE                             # NO_VAL in a time
NO_TASK = 0xFFFFFFFE
_UNFINISHED = (states.PENDING, states.RUNNING, states.SUSPENDED)
Counts = dict[str, int]
Spans = Sequence[tuple[int, int | None]]


@dataclass(slots=True)
class Job:
    """One run of a job."""

    row: Mapping[str, Any]
    job_id: int
    array_job_id: int
    array_task_id: int
    het_job_id: int
    het_offset: int
    state: str
    requested_by: int | None
    submit_s: int
    eligible_s: int
    start_s: int
    end_s: int
    elapsed_s: int
    suspended_s: int
    id_text: str
    tasks: tuple[int, ...] = ()               # pending tasks of an array that are one row
    shown: bool = True                        # False: only some of its steps were asked for
    steps: list[Step] = field(default_factory=list)
    user_us: int = 0
    system_us: int = 0

    # what few formats show is looked for when it is shown
    @property
    def nodes(self) -> Sequence[str]:
        return self.row.get("nodes") or ()

    @property
    def alloc_nodes(self) -> int:
        return int(self.row.get("alloc_nodes", len(self.nodes)))

    @property
    def tres_req(self) -> Counts:
        return self.row.get("tres_req") or {}

    @property
    def tres_alloc(self) -> Counts:
        return self.row.get("tres_alloc") or {}

    @property
    def req_cpus(self) -> int:
        return int(self.row.get("req_cpus", 0))

    @property
    def flags(self) -> frozenset[str]:
        return frozenset(self.row["job_flags"] if "job_flags" in self.row else _live_flags(self.row))

    @property
    def cpus(self) -> int:
        return self.tres_alloc.get("cpu", 0)


@dataclass(slots=True)
class Step:
    job: Job
    row: Mapping[str, Any]
    step_id: str
    state: str
    requested_by: int | None
    start_s: int
    end_s: int
    elapsed_s: int
    suspended_s: int
    nodes: Sequence[str]
    num_nodes: int
    tres_alloc: Counts
    user_us: int
    system_us: int
    stats: Stats

    @property
    def cpus(self) -> int:
        return self.tres_alloc.get("cpu", self.job.tres_alloc.get("cpu", 0))


Line = Job | Step


@dataclass(slots=True)
class Stats:
    """What was measured of a step: TRES -> count; cpu in milliseconds, memory and disk in bytes.

    ``nodes`` and ``tasks`` of a maximum or minimum name where it was met.
    """

    in_ave: Counts = field(default_factory=dict)
    in_max: Counts = field(default_factory=dict)
    in_max_node: dict[str, str] = field(default_factory=dict)
    in_max_task: Counts = field(default_factory=dict)
    in_min: Counts = field(default_factory=dict)
    in_min_node: dict[str, str] = field(default_factory=dict)
    in_min_task: Counts = field(default_factory=dict)
    in_tot: Counts = field(default_factory=dict)
    out_ave: Counts = field(default_factory=dict)
    out_max: Counts = field(default_factory=dict)
    out_max_node: dict[str, str] = field(default_factory=dict)
    out_max_task: Counts = field(default_factory=dict)
    out_min: Counts = field(default_factory=dict)
    out_min_node: dict[str, str] = field(default_factory=dict)
    out_min_task: Counts = field(default_factory=dict)
    out_tot: Counts = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Window:
    """``truncate``: times are cut to [start_s, end_s)."""

    start_s: int
    end_s: int
    now: int
    truncate: bool


def make_job(row: Mapping[str, Any], window: Window, bits_length: int = array.DEFAULT_TEXT_LENGTH) -> Job:
    """The job of one accounting row, without its steps."""
    start, end = row["start_s"] or 0, row["end_s"] or 0
    ended = bool(end)
    if ended and start > end:
        start = end
    spans: Spans = row.get("suspensions") or ()
    if window.truncate:
        start, end, elapsed, suspended = _truncated(start, end, spans, window)
    else:
        suspended = _suspended(row, spans, window.now) if start else 0
        elapsed = (end or window.now) - start - suspended if start else 0
    tasks = _pending_tasks(row)
    task_id = row["array_task_id"]
    job = Job(
        row, row["job_id"], row["array_job_id"], NO_TASK if task_id is None else task_id, row["het_job_id"],
        row["het_offset"], row["state"], row.get("killed_by_uid"), row["submit_s"], row["eligible_s"] or 0, start, end,
        max(elapsed, 0), suspended, _id_text(row, tasks, bits_length), tasks)
    if not start and end and "StartReceived" in job.flags:
        job.start_s = NEVER
    return job


def _truncated(start: int, end: int, spans: Spans, window: Window) -> tuple[int, int, int, int]:
    """(start, end, elapsed, suspended) within the window. A suspension that still lasts does not count, as in Slurm."""
    last = min(window.end_s or window.now, window.now)
    if start and start < window.start_s:
        start = window.start_s
    if not end or end > last:
        end = last
    start = start or end
    suspended = 0
    for from_s, to_s in spans:
        if from_s < last and (not to_s or to_s >= window.start_s):
            suspended += max(min(end, to_s or 0) - max(from_s, start), 0)
    return start, end, end - start - suspended, suspended


def _suspended(row: Mapping[str, Any], spans: Spans, now: int) -> int:
    if row["state"] == states.SUSPENDED:
        return sum((to_s or now) - from_s for from_s, to_s in spans)
    if "suspended_s" in row:
        return int(row["suspended_s"])
    end = row["end_s"] or now
    return sum((to_s or end) - from_s for from_s, to_s in spans)


def _live_flags(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Who decided that the job starts, and that the ledger was told of it."""
    return (f"Sched{row.get('scheduler', 'Main')}", "StartReceived") if row["start_s"] else ("StartReceived",)


def _pending_tasks(row: Mapping[str, Any]) -> tuple[int, ...]:
    text = row.get("array_pending") if row["array_job_id"] else None
    if not text:
        return ()
    bits = int(text, 16)
    return tuple(task for task in range(bits.bit_length()) if bits >> task & 1)


def _id_text(row: Mapping[str, Any], tasks: tuple[int, ...], bits_length: int) -> str:
    if tasks:
        return f"{row['array_job_id']}_[{array.text(tasks, row.get('array_max_running', 0), bits_length)}]"
    if row["array_task_id"] is not None:
        return f"{row['array_job_id']}_{row['array_task_id']}"
    if row["het_job_id"]:
        return f"{row['het_job_id']}+{row['het_offset']}"
    return str(row["job_id"])


def add_steps(job: Job, rows: Sequence[Mapping[str, Any]], window: Window) -> None:
    """The steps that touch the window; their CPU time is summed up in the job."""
    last = min(window.end_s or window.now, window.now) if window.truncate else window.end_s
    job_ended = bool(job.row["end_s"])
    for row in rows:
        step = _step(job, row)
        if step.start_s > last or (step.end_s and step.end_s < window.start_s):
            continue
        if not step.end_s and job_ended:
            step.end_s, step.state = job.end_s, job.state
        elif not step.end_s and job.state == states.SUSPENDED:
            step.state = states.SUSPENDED
        if window.truncate and window.start_s:
            _truncate_step(step, window.start_s, last)
        step.suspended_s = _step_suspended(job, step, row, window.now)
        if step.start_s:
            step.elapsed_s = max((step.end_s or window.now) - step.start_s - step.suspended_s, 0)
        job.steps.append(step)
        if step.state not in _UNFINISHED:
            job.user_us += step.user_us
            job.system_us += step.system_us
    for step in job.steps:
        step.end_s = step.end_s or job.end_s


def _step(job: Job, row: Mapping[str, Any]) -> Step:
    usage: Mapping[str, Any] = row.get("usage") or {}
    nodes = tuple(row.get("nodes") or ())
    end = row.get("end_s")
    return Step(
        job, row, str(row["step_id"]), row.get("state", states.RUNNING), row.get("killed_by_uid"),
        int(row.get("start_s") or 0), int(end or 0), 0, 0, nodes, usage.get("num_nodes", len(nodes)),
        row.get("tres") or {},
        round(float(usage.get("user_cpu_s", 0)) * 1e6), round(float(usage.get("system_cpu_s", 0)) * 1e6),
        _stats(usage, not row.get("end_s") and not job.row["end_s"]))


def _truncate_step(step: Step, start_s: int, last: int) -> None:
    if step.start_s and step.start_s < start_s:
        step.start_s = start_s
    if not step.start_s and step.end_s:
        step.start_s = step.end_s
    if not step.end_s or step.end_s > last:
        step.end_s = last
    if step.start_s and step.end_s and step.start_s > step.end_s:
        step.start_s = step.end_s = 0


def _step_suspended(job: Job, step: Step, row: Mapping[str, Any], now: int) -> int:
    """Recorded once and for all, or from the job's suspensions while the step ran."""
    usage = row.get("usage") or {}
    if "suspended_s" in usage and step.state != states.SUSPENDED:
        return int(usage["suspended_s"])
    first, last = int(row.get("start_s") or 0), int(row.get("end_s") or 0) or job.row["end_s"] or now
    spans: Spans = job.row.get("suspensions") or ()
    return sum(max(min(to_s or last, last) - max(from_s, first), 0) for from_s, to_s in spans)


def _stats(usage: Mapping[str, Any], running: bool) -> Stats:
    if "stats" in usage:
        return Stats(**usage["stats"])
    if running:
        return Stats()
    return Stats(in_ave={"energy": 0}, in_tot={"energy": 0}, out_ave={"energy": 0}, out_tot={"energy": 0})
