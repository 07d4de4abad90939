"""The pending queue as columns: one row per job and partition, added and removed by the controller in O(1).

Rows live in arrays that grow; removed rows go to a free list, so row numbers stay valid for the life of a job. Array
jobs are one row with ``tasks`` pending tasks, as Slurm keeps them. Times are epoch seconds, limits seconds.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from slurmbridge.scheduling.facts import FOREVER_S, BoolArray, IntArray
from slurmbridge.scheduling.shape import Shape


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One pending job in one partition under one QOS (a job has a row for each pair, adjacent: partitions in
    ``--partition`` order, of each the QOS by falling priority)."""

    job_id: int
    partition: str
    priority: int
    submit_s: int
    shape: Shape
    time_limit_s: int = FOREVER_S             # FOREVER_S: UNLIMITED
    time_min_s: int = 0                       # --time-min; 0: not given
    uid: int = 0
    subject: int = -1                         # index into Snapshot.limits.subjects; -1: no limits
    tasks: int = 1                            # pending tasks of an array record
    tier: int = 1                             # the partition's PriorityTier
    deadline_s: int = 0                       # --deadline; 0: none
    reason: int = 0                           # index into snapshot.REASONS of what the job shows now
    qos: str = ""
    array_job_id: int = 0                     # of a task that waits on its own; 0: the job's own id orders it
    array_task_id: int = -1
    switch_wait_until_s: int = 0              # --switches counts until then
    time_waived: bool = False                 # limits on the time of one job do not hold it back
    het_ids: tuple[int, ...] = ()             # all components of the heterogeneous job that it is one of
    eligible: bool = True                     # not held, begin time reached, dependencies met, association known


_COLUMNS = ("job_id", "partition", "priority", "submit_s", "shape", "time_limit_s", "time_min_s", "uid", "subject",
            "tasks", "tier", "deadline_s", "reason", "qos", "time_waived",
            "array_job_id", "array_task_id", "switch_wait_until_s")


class QueueColumns:
    """See the module docstring. ``partition``, ``shape`` and ``qos`` hold indices into ``partitions``, ``shapes`` and
    ``qoses``."""

    job_id: IntArray
    partition: IntArray
    priority: IntArray
    submit_s: IntArray
    shape: IntArray
    time_limit_s: IntArray
    time_min_s: IntArray
    uid: IntArray
    subject: IntArray
    tasks: IntArray
    tier: IntArray
    deadline_s: IntArray
    reason: IntArray
    qos: IntArray
    time_waived: IntArray                     # 0 or 1
    array_job_id: IntArray
    array_task_id: IntArray
    switch_wait_until_s: IntArray

    def __init__(self, capacity: int = 64) -> None:
        self.shapes: list[Shape] = []
        self.partitions: list[str] = []
        self.qoses: list[str] = []
        self.listed_after: dict[int, int] = {}                   # array that was split -> its task that left it last
        self.het: dict[int, tuple[int, ...]] = {}                # job id -> all components of its heterogeneous job
        self._shape_index: dict[Shape, int] = {}
        self._partition_index: dict[str, int] = {}
        self._qos_index: dict[str, int] = {}
        self._rows: dict[int, list[int]] = {}
        self._free: list[int] = []
        self._high = 0
        for name in _COLUMNS:
            setattr(self, name, np.zeros(capacity, dtype=np.int64))
        self.live: BoolArray = np.zeros(capacity, dtype=np.bool_)
        self.eligible: BoolArray = np.zeros(capacity, dtype=np.bool_)

    def __len__(self) -> int:
        """Pending jobs (not rows)."""
        return len(self._rows)

    def __contains__(self, job_id: int) -> bool:
        return job_id in self._rows

    def rows(self, job_id: int) -> list[int]:
        """The job's rows, in its partition order; empty when it is not pending."""
        return self._rows.get(job_id, [])

    def is_magnet(self, row: int) -> bool:
        """A reservation that attracts the job: whether it can run there is tried, and says nothing of why it waits."""
        return bool(self.shapes[int(self.shape[row])].magnet)

    def add(self, row: QueueRow) -> int:
        """Returns the row's number."""
        if self._free:
            at = self._free.pop()
        else:
            at = self._high
            self._high += 1
            if at >= len(self.live):
                self._grow()
        self._rows.setdefault(row.job_id, []).append(at)
        self.live[at] = True
        self._write(at, row)
        return at

    def remove(self, job_id: int) -> None:
        """Takes the job's rows out; unknown jobs are none."""
        self.het.pop(job_id, None)
        for at in self._rows.pop(job_id, ()):
            self.live[at] = False
            self.eligible[at] = False
            self._free.append(at)

    def replace(self, rows: list[QueueRow]) -> None:
        """The job's request changed (scontrol update): all its rows anew."""
        self.remove(rows[0].job_id)
        for row in rows:
            self.add(row)

    def set_eligible(self, job_id: int, eligible: bool) -> None:
        for at in self.rows(job_id):
            self.eligible[at] = eligible

    def apply_reasons(self, rows: IntArray, codes: IntArray) -> None:
        """Keeps a plan's ``reason_rows`` and ``reason_codes``: the next pass builds on what jobs show."""
        self.reason[rows] = codes

    def _write(self, at: int, row: QueueRow) -> None:
        for name in _COLUMNS:
            if name not in ("partition", "shape", "qos"):
                getattr(self, name)[at] = getattr(row, name)
        self.partition[at] = _intern(row.partition, self.partitions, self._partition_index)
        self.shape[at] = _intern(row.shape, self.shapes, self._shape_index)
        self.qos[at] = _intern(row.qos, self.qoses, self._qos_index)
        self.eligible[at] = row.eligible
        if row.het_ids:
            self.het[row.job_id] = row.het_ids

    def _grow(self) -> None:
        for name in (*_COLUMNS, "live", "eligible"):
            column = getattr(self, name)
            setattr(self, name, np.concatenate([column, np.zeros_like(column)]))


T = TypeVar("T")


def _intern(value: T, values: list[T], index: dict[T, int]) -> int:
    """The value's number in ``values``, appended when new."""
    at = index.get(value)
    if at is None:
        at = index[value] = len(values)
        values.append(value)
    return at
