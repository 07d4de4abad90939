"""Plans that were made of a snapshot some time ago: what of them still holds.

The pass notes what it saw of each row it judged (``noted``, in the child); afterwards ``prune`` drops starts whose job
changed, whose nodes got another job or went away, and words about rows that now are another job's. What is dropped is
judged anew by the next pass.
"""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurmbridge.controller.world import World
from slurmbridge.scheduling.columns import ClusterColumns
from slurmbridge.scheduling.facts import IntArray, RunningJob
from slurmbridge.scheduling.queue import QueueColumns
from slurmbridge.scheduling.snapshot import Plan, Snapshot, Start

_SEEN = ("job_id", "partition", "shape", "time_limit_s", "time_min_s", "uid", "subject", "tasks", "deadline_s",
         "live", "eligible")
Seen = dict[int, tuple[tuple[int, ...], ...]]     # job -> its rows as the pass saw them


@dataclass(frozen=True, slots=True)
class LatePlan:
    """``row_jobs``: whose the rows of ``plan.reason_rows`` were; ``others``: the same for rows with a text or a limit's
    word; ``seen``: of jobs that shall start or be held."""

    plan: Plan
    row_jobs: IntArray
    others: dict[int, int]
    seen: Seen


def noted(plan: Plan, snapshot: Snapshot) -> LatePlan:
    queue = snapshot.queue
    rows = {*plan.limit_reasons, *plan.descriptions}
    jobs = {*(start.job_id for start in plan.starts), *plan.held}
    return LatePlan(plan, queue.job_id[plan.reason_rows], {row: int(queue.job_id[row]) for row in rows},
                    {job_id: _rows(queue, job_id) for job_id in jobs})


def _rows(queue: QueueColumns, job_id: int) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(int(getattr(queue, name)[row]) for name in _SEEN) for row in queue.rows(job_id))


def prune(late: LatePlan, world: World, running_then: dict[int, RunningJob]) -> Plan:
    """The plan without what is not true any more. ``running_then``: ``columns.running`` at the time of the snapshot."""
    plan, queue, columns = late.plan, world.queue, world.columns
    same = queue.live[plan.reason_rows] & (queue.job_id[plan.reason_rows] == late.row_jobs)
    plan.reason_rows, plan.reason_codes = plan.reason_rows[same], plan.reason_codes[same]
    gone = {row for row, job_id in late.others.items() if not (queue.live[row] and queue.job_id[row] == job_id)}
    plan.limit_reasons = {row: word for row, word in plan.limit_reasons.items() if row not in gone}
    plan.descriptions = {row: text for row, text in plan.descriptions.items() if row not in gone}
    unchanged = {job_id for job_id, rows in late.seen.items() if _rows(queue, job_id) == rows}
    plan.held = {job_id: word for job_id, word in plan.held.items() if job_id in unchanged}
    started = [job for job_id, job in columns.running.items() if running_then.get(job_id) is not job]
    taken = {share.node for job in started for share in job.shares}
    if started and world.limits.enforced:     # a limit may be full now
        plan.starts = []
    plan.starts = [start for start in plan.starts if start.job_id in unchanged and _free(start, columns, taken)]
    if plan.planned_nodes is not None and len(plan.planned_nodes) != len(columns.names):
        plan.planned_nodes = np.zeros(len(columns.names), dtype=np.bool_)
    return plan


def _free(start: Start, columns: ClusterColumns, taken: set[str]) -> bool:
    nodes = [share.node for share in start.shares]
    return taken.isdisjoint(nodes) and all(
        name in columns.index and columns.available[columns.index[name]] for name in nodes)
