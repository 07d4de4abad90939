"""Rows: how jobs share cores (OverSubscribe=YES and FORCE, slurm.conf(5)). Of each row every core has one job at most.

A partition has as many rows as jobs may share a core. A job goes into the first row in which its cores are free; when a
job has left, the others are put into the rows anew, ordered by their first core, and the fullest rows come first
(select/cons_tres). Jobs are known by their cells: flat core numbers, node number times the widest node's cores.
"""
from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """A job's cells in ascending order."""

    job_id: int
    cpus: int
    cells: IntArray

    def same(self, other: Placed) -> bool:
        return self.job_id == other.job_id and np.array_equal(self.cells, other.cells)


@dataclass(slots=True)
class Row:
    """``busy``: by cell."""

    busy: BoolArray
    jobs: list[Placed] = field(default_factory=list)

    def fits(self, job: Placed) -> bool:
        return not self.busy[job.cells].any()

    def add(self, job: Placed) -> None:
        self.jobs.append(job)
        self.busy[job.cells] = True

    @property
    def filled(self) -> int:
        return int(self.busy.sum())


class Rows:
    """The rows of one partition. ``count``: most jobs on a core."""

    def __init__(self, count: int, cells: int) -> None:
        self.count = count
        self._cells = cells
        self._rows = [Row(np.zeros(cells, dtype=np.bool_)) for _ in range(count)]
        self._stale = False

    def copy(self) -> Rows:
        made = Rows(0, self._cells)
        made.count, made._stale = self.count, self._stale
        made._rows = [Row(row.busy.copy(), list(row.jobs)) for row in self._rows]
        return made

    def add(self, job: Placed) -> None:
        """A job without room in any row (cores were given out by hand, or rows became fewer) is in none."""
        self._settle()
        for row in self._rows:
            if row.fits(job):
                row.add(job)
                return

    def remove(self, job: Placed) -> None:
        for row in self._rows:
            for at, other in enumerate(row.jobs):
                if job.same(other):
                    del row.jobs[at]
                    row.busy[job.cells] = False
                    self._stale = self.count > 1
                    return

    def busy(self) -> BoolArray:
        """Cells with a job."""
        taken = np.zeros(self._cells, dtype=np.bool_)
        for row in self._rows:
            taken |= row.busy
        return taken

    def in_order(self, *, fullest_first: bool) -> list[BoolArray]:
        """The cells taken in each row, in the order in which a job tries them."""
        self._settle()
        if fullest_first:
            self._sort()
        return [row.busy for row in self._rows]

    def _sort(self) -> None:
        """Exchanges pairs, as slurmctld does: rows that are equally full may change places."""
        rows = self._rows
        for i in range(len(rows)):
            for j in range(i + 1, len(rows)):
                if rows[j].filled > rows[i].filled:
                    rows[i], rows[j] = rows[j], rows[i]

    def _settle(self) -> None:
        if not self._stale:
            return
        self._stale = False
        before = self._rows
        jobs = sorted((job for row in before for job in row.jobs), key=lambda job: (int(job.cells[0]), job.cpus))
        self._rows = [Row(np.zeros(self._cells, dtype=np.bool_)) for _ in range(self.count)]
        for job in jobs:
            row = next((row for row in self._rows if row.fits(job)), None)
            if row is None:
                self._rows = before           # the old places were better
                return
            row.add(job)
            self._sort()


@dataclass(slots=True)
class Shared:
    """What is kept besides the counts where some partition shares cores.

    ``users``: jobs per cell; ``apart``: jobs per node that share no core; ``sharing``: jobs per node that do or must;
    ``rows``: by partition."""

    users: IntArray
    apart: IntArray
    sharing: IntArray
    rows: dict[str, Rows]

    def copy(self) -> Shared:
        return Shared(self.users.copy(), self.apart.copy(), self.sharing.copy(),
                      {name: rows.copy() for name, rows in self.rows.items()})
