"""Heterogeneous jobs in a backfill pass: components are looked at one by one and start together or not at all.

The semantics of sched/backfill: each component is promised its nodes like any job, so that components never share
one; the pass ends by starting the jobs whose components can all start now.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from slurmbridge.scheduling.queue import QueueColumns
from slurmbridge.scheduling.willrun import YEAR_S

T = TypeVar("T")


@dataclass(slots=True)
class HetJobs(Generic[T]):
    """What the pass knows of the components it has met: job id -> (``T``, start in epoch seconds)."""

    queue: QueueColumns
    now_s: int
    met: dict[int, int] = field(default_factory=dict)          # job id -> earliest start, now + YEAR_S: unknown
    found: dict[int, tuple[T, int]] = field(default_factory=dict)

    def __contains__(self, job_id: int) -> bool:
        return job_id in self.queue.het

    def start_of_others_s(self, job_id: int) -> int:
        """When the components met before could all start (0: none was met). This one is met now."""
        self.met.setdefault(job_id, self.now_s + YEAR_S)
        return max((self.met[one] for one in self.queue.het[job_id] if one != job_id and one in self.met), default=0)

    def can_start(self, job_id: int, job: T, start_s: int) -> None:
        """Over its partitions a component keeps the earliest start."""
        if job_id not in self.found or start_s < self.found[job_id][1]:
            self.found[job_id] = job, start_s
            self.met[job_id] = start_s

    def ready(self) -> Iterator[list[T]]:
        """Jobs of which every component can start now; components as the pass met them."""
        place = {job_id: number for number, job_id in enumerate(self.met)}
        for ids in dict.fromkeys(self.queue.het[job_id] for job_id in self.met):
            parts = [self.found[job_id] for job_id in sorted(self.found.keys() & set(ids), key=place.__getitem__)]
            if len(parts) == len(ids) and all(start_s <= self.now_s for _, start_s in parts):
                yield [job for job, _ in parts]
