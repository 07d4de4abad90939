"""The queue's columns for the priority, kept from pass to pass: only what changed is written again."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from slurmbridge.fairshare.multifactor import Doubles, Factors, Flags, Ints, JobColumns


@dataclass(frozen=True, slots=True)
class JobShape:
    """What of a job its priority depends on. Indices are the caller's (see multifactor.Lookups)."""

    job_id: int
    association_id: int                       # 0: none
    partitions: Sequence[int]                 # by falling tier
    leading: int                              # place in ``partitions`` of the one that gives the job's priority
    qos: int
    accrue_s: int                             # epoch; 0: no age yet
    cpus: int
    min_nodes: int
    time_limit_min: int
    nice: int
    site: int
    tres: Sequence[float]

    def content(self, now_s: int) -> tuple[object, ...]:
        """Jobs with the same content have the same priority at ``now_s``."""
        age_s = max(now_s - self.accrue_s, 0) if self.accrue_s > 0 else -1
        return (self.association_id, tuple(self.partitions), self.leading, self.qos, age_s, self.cpus, self.min_nodes,
                self.time_limit_min, self.nice, self.site, tuple(self.tres))


class PriorityNews(NamedTuple):
    """A row's new priority. ``partition`` -1: the job is in only one; ``job_priority`` 0: this row does not give it."""

    job_id: int
    partition: int
    priority: int
    job_priority: int


class JobTable:
    """Rows by job and partition. Freed rows are used again, so a row's number holds as long as its job is here."""

    _INTS = ("job_id", "association_id", "partition", "qos", "accrue_s", "cpus", "min_nodes", "time_limit_min", "nice",
             "site", "priority", "job_priority")
    _FLAGS = ("live", "leading", "several")

    def __init__(self, tres_count: int, capacity: int = 256) -> None:
        self._ints: dict[str, Ints] = {name: np.zeros(capacity, np.int64) for name in self._INTS}
        self._flags: dict[str, Flags] = {name: np.zeros(capacity, np.bool_) for name in self._FLAGS}
        self._tres: Doubles = np.zeros((capacity, tres_count))
        self._rows: dict[int, list[int]] = {}
        self._free: list[int] = []
        self._used = 0

    def __contains__(self, job_id: int) -> bool:
        return job_id in self._rows

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self, job_id: int) -> list[int]:
        """The job's rows, its partitions by falling tier; [] when it is not here."""
        return self._rows.get(job_id, [])

    def drop(self, job_id: int) -> None:
        """Unknown jobs are none."""
        for row in self._rows.pop(job_id, ()):
            self._flags["live"][row] = False
            self._free.append(row)

    def put(self, shape: JobShape) -> None:
        """A new job, or the new shape of one that is here (its last priority is kept)."""
        rows = self._rows.get(shape.job_id)
        if rows is None or len(rows) != len(shape.partitions):
            self.drop(shape.job_id)
            rows = [self._new_row() for _ in shape.partitions]
            self._rows[shape.job_id] = rows
            self._ints["priority"][rows] = self._ints["job_priority"][rows] = 0
        ints = self._ints
        for place, row in enumerate(rows):
            ints["job_id"][row] = shape.job_id
            ints["association_id"][row] = shape.association_id
            ints["partition"][row] = shape.partitions[place]
            ints["qos"][row] = shape.qos
            ints["accrue_s"][row] = shape.accrue_s
            ints["cpus"][row] = shape.cpus
            ints["min_nodes"][row] = shape.min_nodes
            ints["time_limit_min"][row] = shape.time_limit_min
            ints["nice"][row] = shape.nice
            ints["site"][row] = shape.site
            self._tres[row] = shape.tres
            self._flags["live"][row] = True
            self._flags["leading"][row] = place == shape.leading
            self._flags["several"][row] = len(rows) > 1

    def _new_row(self) -> int:
        if self._free:
            return self._free.pop()
        if self._used == len(self._tres):
            for name, ints in self._ints.items():
                self._ints[name] = np.concatenate((ints, np.zeros_like(ints)))
            for name, flags in self._flags.items():
                self._flags[name] = np.concatenate((flags, np.zeros_like(flags)))
            self._tres = np.concatenate((self._tres, np.zeros_like(self._tres)))
        self._used += 1
        return self._used - 1

    def live_rows(self) -> Ints:
        """Row numbers in use."""
        return np.flatnonzero(self._flags["live"][:self._used])

    def partitions_of(self, rows: Ints) -> list[int]:
        """Partition indices, by place in ``rows``."""
        found: list[int] = self._ints["partition"][rows].tolist()
        return found

    def association_ids(self, rows: Ints) -> Ints:
        """By place in ``rows``."""
        ids: Ints = self._ints["association_id"][rows]
        return ids

    def columns(self, rows: Ints, association_rows: Ints) -> JobColumns:
        """Columns of these rows. ``association_rows``: by place in ``rows``, what Lookups has the association under."""
        ints = {name: column[rows] for name, column in self._ints.items()}
        return JobColumns(
            association=association_rows, partition=ints["partition"], qos=ints["qos"], accrue_s=ints["accrue_s"],
            cpus=ints["cpus"], min_nodes=ints["min_nodes"], time_limit_min=ints["time_limit_min"], nice=ints["nice"],
            site=ints["site"], tres=self._tres[rows], several=self._flags["several"][rows])

    def news(self, rows: Ints, factors: Factors, everything: bool = False) -> Iterator[PriorityNews]:
        """Stores the priorities of these rows and yields those that differ from the stored ones (or all)."""
        leading = self._flags["leading"][rows]
        changed = (self._ints["priority"][rows] != factors.priority) | (
            leading & (self._ints["job_priority"][rows] != factors.job_priority))
        self._ints["priority"][rows] = factors.priority
        self._ints["job_priority"][rows] = factors.job_priority
        at = np.arange(len(rows)) if everything else np.flatnonzero(changed)
        several = self._flags["several"][rows[at]]
        yield from map(
            PriorityNews, self._ints["job_id"][rows[at]].tolist(),
            np.where(several, self._ints["partition"][rows[at]], -1).tolist(), factors.priority[at].tolist(),
            np.where(leading[at], factors.job_priority[at], 0).tolist())

    def priorities(self, rows: Sequence[int]) -> list[tuple[int, int]]:
        """(row's priority, job's priority) as stored."""
        return [(int(self._ints["priority"][row]), int(self._ints["job_priority"][row])) for row in rows]

    def repeat(self, rows: Sequence[int], known: Sequence[tuple[int, int]]) -> Iterator[PriorityNews]:
        """Stores what ``priorities`` said of a job with the same content and yields it."""
        ints, flags = self._ints, self._flags
        for row, (priority, job_priority) in zip(rows, known):
            ints["priority"][row] = priority
            ints["job_priority"][row] = job_priority
            yield PriorityNews(int(ints["job_id"][row]), int(ints["partition"][row]) if flags["several"][row] else -1,
                               priority, job_priority if flags["leading"][row] else 0)
