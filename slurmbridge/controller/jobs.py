"""All jobs the controller knows, by id, and the indexes that keep every look-up off the whole table.

The store only files records; it changes none but at a split, where one task leaves a pending array. After a change of
state ``refile`` puts the record where it now belongs.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from slurmbridge.controller.transitions import Phase, phase_of
from slurmbridge.slurm import states
from slurmbridge.views.records import JobRecord


class JobStore(Mapping[int, JobRecord]):
    """Records by job id, in order of id. ``first_id``: the smallest id to give out; ``last_id``: the largest."""

    def __init__(self, first_id: int = 1, last_id: int = 0x03FF0000) -> None:
        self._records: dict[int, JobRecord] = {}
        self._sorted = True
        self.next_id = max(1, first_id)
        self._last_id = last_id
        self.pending: dict[int, JobRecord] = {}       # waits and holds nothing
        self.active: dict[int, JobRecord] = {}        # holds an allocation
        self.ended: dict[int, JobRecord] = {}
        self._arrays: dict[int, dict[int, JobRecord]] = {}
        self._named: dict[tuple[int, str], dict[int, JobRecord]] = {}
        self._waiters: dict[int, set[int]] = {}
        self.dependent: dict[int, JobRecord] = {}     # pending with dependencies
        self._refiled: set[int] = set()
        self.count = 0                                # array tasks one by one, as MaxJobCount counts

    # --- Mapping
    def __getitem__(self, job_id: int) -> JobRecord:
        return self._records[job_id]

    def __iter__(self) -> Iterator[int]:
        self._sort()
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def _sort(self) -> None:
        if not self._sorted:
            self._records = dict(sorted(self._records.items()))
            self._sorted = True

    # --- ids
    def new_id(self) -> int:
        """Never one that was given out before. Raises OverflowError when all are used."""
        if self.next_id > self._last_id:
            raise OverflowError("all job ids are used")
        job_id = self.next_id
        self.next_id += 1
        return job_id

    # --- filing
    def add(self, job: JobRecord) -> None:
        if self._records and self._sorted and job.job_id < next(reversed(self._records)):
            self._sorted = False
        self._records[job.job_id] = job
        self.next_id = max(self.next_id, job.job_id + 1)
        if job.array_job_id:
            self._arrays.setdefault(job.array_job_id, {})[job.job_id] = job
        self.count += tasks_of(job)
        self.refile(job)

    def refile(self, job: JobRecord) -> None:
        """Puts the record into the indexes of the phase it is in."""
        job_id = job.job_id
        self._refiled.add(job_id)
        phase = phase_of(job)
        pending = phase is Phase.PENDING
        ended = phase is Phase.ENDED
        _file(self.pending, job_id, job, pending)
        _file(self.active, job_id, job, not pending and not ended)
        _file(self.ended, job_id, job, ended)
        _file(self.dependent, job_id, job, job.state == states.PENDING and bool(job.dependency))
        key = (job.uid, job.name)
        if ended:
            named = self._named.get(key)
            if named is not None:
                named.pop(job_id, None)
                if not named:
                    del self._named[key]
        else:
            self._named.setdefault(key, {})[job_id] = job

    def rename(self, job: JobRecord, name: str) -> None:
        named = self._named.get((job.uid, job.name))
        if named is not None:
            named.pop(job.job_id, None)
        job.name = name
        self.refile(job)

    def forget(self, job: JobRecord) -> None:
        job_id = job.job_id
        self._refiled.add(job_id)
        del self._records[job_id]
        for index in (self.pending, self.active, self.ended, self.dependent):
            index.pop(job_id, None)
        named = self._named.get((job.uid, job.name))
        if named is not None:
            named.pop(job_id, None)
        tasks = self._arrays.get(job.array_job_id)
        if tasks is not None:
            tasks.pop(job_id, None)
            if not tasks:
                del self._arrays[job.array_job_id]
        self.count -= tasks_of(job)

    def take_refiled(self) -> set[int]:
        """Jobs that were filed or forgotten since the last call."""
        taken, self._refiled = self._refiled, set()
        return taken

    # --- look-ups
    def array(self, array_job_id: int) -> list[JobRecord]:
        """All records of an array, the pending remainder first; [] when this is no array's id."""
        tasks = self._arrays.get(array_job_id)
        if not tasks:
            return []
        return sorted(tasks.values(), key=lambda job: (job.array_task_id is not None, job.array_task_id or 0))

    def task(self, array_job_id: int, task_id: int) -> JobRecord | None:
        """The record that stands for this task: its own, or the pending record it is still in."""
        for job in self._arrays.get(array_job_id, {}).values():
            if job.array_task_id == task_id:
                return job
            if job.array_task_id is None and job.array_pending and job.array_pending >> task_id & 1:
                return job
        return None

    def het_components(self, job: JobRecord) -> list[JobRecord]:
        """The job itself, or all components of its heterogeneous job in order."""
        if not job.het_job_id:
            return [job]
        return [self._records[one] for one in job.het_job_ids if one in self._records]

    def unfinished_with_name(self, uid: int, name: str) -> list[JobRecord]:
        return list(self._named.get((uid, name), {}).values())

    # --- arrays
    def split(self, meta: JobRecord, task_id: int) -> JobRecord:
        """Takes one task out of a pending array and returns its own record. The last task left keeps the array's id
        and record. Raises KeyError when the task is not pending in it."""
        bitmap = meta.array_pending or 0
        if not bitmap >> task_id & 1:
            raise KeyError(task_id)
        rest = bitmap & ~(1 << task_id)
        if not rest:
            self.count -= tasks_of(meta)
            meta.array_task_id = task_id
            meta.array_pending = None
            self.count += 1
            return meta
        task = replace(
            meta, job_id=self.new_id(), array_task_id=task_id, array_pending=None, db_index=0, flags=set(meta.flags),
            tres_req=dict(meta.tres_req), tres_alloc={}, allocation=[], steps={},
            partition_priorities=dict(meta.partition_priorities))
        meta.array_pending = rest
        self.count -= 1
        self.add(task)
        return task

    def drop(self, meta: JobRecord, tasks: int) -> None:
        """These tasks (a bitmap), not all of them, leave a pending array and are none any more."""
        before = tasks_of(meta)
        meta.array_pending = (meta.array_pending or 0) & ~tasks
        self.count += tasks_of(meta) - before
        self.refile(meta)

    def waiting_tasks(self, array_job_id: int) -> list[JobRecord]:
        """Records of the array that wait: what is left of it, and tasks that wait on their own."""
        return [job for job in self._arrays.get(array_job_id, {}).values() if job.job_id in self.pending]

    def running_tasks(self, array_job_id: int) -> int:
        return sum(1 for job in self._arrays.get(array_job_id, {}).values() if job.job_id in self.active)


def note_wait(job: JobRecord) -> None:
    """Keeps what a pending job waits for, for the accounts, unless it is only its turn."""
    if job.state == states.PENDING and job.reason not in _ITS_TURN:
        job.reason_before = job.reason


_ITS_TURN = frozenset({"None", "Priority", "Resources"})


def tasks_of(job: JobRecord) -> int:
    """How many jobs the record stands for."""
    return job.array_pending.bit_count() if job.array_pending else 1


def lowest_task(bitmap: int) -> int:
    return (bitmap & -bitmap).bit_length() - 1


def _file(index: dict[int, JobRecord], job_id: int, job: JobRecord, belongs: bool) -> None:
    if belongs:
        index[job_id] = job
    else:
        index.pop(job_id, None)
