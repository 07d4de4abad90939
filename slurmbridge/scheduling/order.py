"""The order in which a pass takes jobs: preemptors, reservations, partition tier, priority, submission, job id.

"Preemptors" is a relation between two jobs and not transitive, so slurmctld's order then depends on how it sorts: with
the merge sort of its C library, over jobs in the order of their ids. It is done the same way here.
"""
from __future__ import annotations

import numpy as np

from slurmbridge.scheduling.facts import BoolArray, IntArray
from slurmbridge.scheduling.queue import QueueColumns
from slurmbridge.scheduling.snapshot import Snapshot

LAST_TASK = 1 << 40
MOST_COMPARED = 20_000
"""More rows than this are ordered by whether their QOS preempts any that waits."""


def order(snapshot: Snapshot, rows: IntArray) -> IntArray:
    """Rows as a pass takes them."""
    queue = snapshot.queue
    if not len(rows):
        return rows
    listed = rows[np.lexsort((_place_in_job(queue, rows), *_place_in_list(queue, rows)))]
    reserved = np.array([shape.reservation is None for shape in queue.shapes], dtype=np.bool_)
    arrays, tasks = queue.array_job_id[listed], queue.array_task_id[listed]
    ids = np.where(arrays > 0, arrays, queue.job_id[listed])
    tasks = np.where(tasks < 0, LAST_TASK, tasks)     # what is left of an array comes after its tasks
    by_rank = np.lexsort((np.arange(len(listed)), tasks, ids, queue.submit_s[listed],
                          -queue.priority[listed], -queue.tier[listed], reserved[queue.shape[listed]]))
    preempts, qos = _preemptors(snapshot, listed)
    if not preempts.any():
        return listed[by_rank]
    if len(listed) > MOST_COMPARED:
        preemptor = np.array([row.any() for row in preempts], dtype=np.bool_)
        first = ~preemptor[qos[by_rank]]
        return listed[by_rank[np.argsort(first, kind="stable")]]
    rank = np.empty(len(listed), dtype=np.int64)
    rank[by_rank] = np.arange(len(listed))
    sorter = _Sorter(rank.tolist(), qos.tolist(), preempts.tolist())
    return listed[np.array(sorter.sort(list(range(len(listed)))), dtype=np.int64)]


def _place_in_list(queue: QueueColumns, rows: IntArray) -> tuple[IntArray, IntArray]:
    """Sort keys (last one first): job ids, but what is left of an array stands after the task that left it last."""
    jobs: IntArray = queue.job_id[rows]
    if not queue.listed_after:
        return jobs, jobs
    after = queue.listed_after
    places = np.array([after.get(job_id, job_id) for job_id in jobs.tolist()], dtype=np.int64)
    return (places != jobs).astype(np.int64), places


def _place_in_job(queue: QueueColumns, rows: IntArray) -> IntArray:
    """A job's rows, one for each partition, stay as the job names its partitions."""
    place = np.zeros(len(rows), dtype=np.int64)
    jobs, counts = np.unique(queue.job_id[rows], return_counts=True)
    several = set(jobs[counts > 1].tolist())
    if several:
        for at, (row, job_id) in enumerate(zip(rows.tolist(), queue.job_id[rows].tolist())):
            if job_id in several:
                place[at] = queue.rows(job_id).index(row)
    return place


def _preemptors(snapshot: Snapshot, rows: IntArray) -> tuple[BoolArray, IntArray]:
    """Whether QOS ``i`` preempts QOS ``j``, and the number of each row's QOS."""
    rules, settings = snapshot.preemption, snapshot.settings
    if rules is None or settings.preempt_type != "preempt/qos" or settings.preempt_mode == "OFF":
        return np.zeros((1, 1), dtype=np.bool_), np.zeros(len(rows), dtype=np.int64)
    numbers: IntArray = snapshot.queue.qos[rows]
    names = {name: i for i, name in enumerate(snapshot.queue.qoses)}
    preempts = np.zeros((len(names), len(names)), dtype=np.bool_)
    waiting = set(np.unique(numbers).tolist())
    for one, i in names.items():
        if i not in waiting:
            continue
        for other in rules.victims.get(one, ()):
            if names.get(other) in waiting and other != one:
                preempts[i, names[other]] = True
    return preempts, numbers


class _Sorter:
    """A merge sort that halves downwards and takes the left one of equals, as the C library's does."""

    def __init__(self, rank: list[int], qos: list[int], preempts: list[list[bool]]) -> None:
        self._rank, self._qos, self._preempts = rank, qos, preempts

    def sort(self, items: list[int]) -> list[int]:
        if len(items) < 2:
            return items
        half = len(items) // 2
        left, right = self.sort(items[:half]), self.sort(items[half:])
        merged: list[int] = []
        i = j = 0
        while i < len(left) and j < len(right):
            if self._after(left[i], right[j]):
                merged.append(right[j])
                j += 1
            else:
                merged.append(left[i])
                i += 1
        return merged + left[i:] + right[j:]

    def _after(self, one: int, other: int) -> bool:
        a, b = self._qos[one], self._qos[other]
        if self._preempts[a][b]:
            return False
        return self._preempts[b][a] or self._rank[one] > self._rank[other]
