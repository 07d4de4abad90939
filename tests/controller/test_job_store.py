"""The job store: indexes by phase, ids that only grow, and arrays whose tasks leave one by one."""
from __future__ import annotations

import pytest

from slurmbridge.controller.jobs import JobStore, lowest_task, tasks_of
from slurmbridge.slurm.jobspec import JobRequest
from slurmbridge.views.records import JobRecord


def add(store: JobStore, **fields: object) -> JobRecord:
    job = JobRecord(store.new_id(), JobRequest(), **fields)  # type: ignore[arg-type]
    if job.array_pending:
        job.array_job_id = job.job_id
    store.add(job)
    return job


def test_the_last_task_keeps_the_arrays_id() -> None:
    store = JobStore(100)
    meta = add(store, array_pending=0b1011, name="a", uid=7)
    assert store.count == 3
    first, second = store.split(meta, 0), store.split(meta, 1)
    last = store.split(meta, 3)
    assert [(one.job_id, one.array_task_id) for one in (first, second, last)] == [(101, 0), (102, 1), (100, 3)]
    assert last is meta and meta.array_pending is None
    assert store.count == 3
    assert [one.array_task_id for one in store.array(100)] == [0, 1, 3]
    assert list(store) == [100, 101, 102]


def test_a_task_does_not_share_its_containers() -> None:
    store = JobStore()
    meta = add(store, array_pending=0b11)
    task = store.split(meta, 0)
    task.flags.add("COMPLETING")
    task.tres_req["cpu"] = 3
    assert not meta.flags and not meta.tres_req


def test_pending_remainder_comes_first() -> None:
    store = JobStore()
    meta = add(store, array_pending=0b111)
    task = store.split(meta, 2)
    assert store.array(meta.job_id) == [meta, task]
    assert store.task(meta.job_id, 2) is task and store.task(meta.job_id, 1) is meta
    assert store.task(meta.job_id, 9) is None
    with pytest.raises(KeyError):
        store.split(meta, 2)


@pytest.mark.parametrize(("state", "flags", "index"), [
    ("PENDING", set(), "pending"), ("RUNNING", {"CONFIGURING"}, "active"), ("COMPLETED", {"COMPLETING"}, "active"),
    ("PENDING", {"COMPLETING", "REQUEUED"}, "active"), ("FAILED", set(), "ended"), ("SUSPENDED", set(), "active")])
def test_a_record_is_in_one_index(state: str, flags: set[str], index: str) -> None:
    store = JobStore()
    job = add(store)
    job.state, job.flags = state, flags
    store.refile(job)
    assert [name for name in ("pending", "active", "ended") if job.job_id in getattr(store, name)] == [index]


def test_ids_are_never_given_twice() -> None:
    store = JobStore(5, last_id=7)
    first = add(store)
    store.forget(first)
    assert [first.job_id, add(store).job_id, add(store).job_id] == [5, 6, 7]
    with pytest.raises(OverflowError):
        store.new_id()


def test_forgotten_jobs_leave_no_trace() -> None:
    store = JobStore()
    meta = add(store, array_pending=0b11, name="n", uid=3)
    task = store.split(meta, 0)
    for job in (task, meta):
        store.forget(job)
    assert len(store) == store.count == 0
    assert not store.array(meta.job_id) and not store.unfinished_with_name(3, "n")


def test_counting_tasks() -> None:
    assert tasks_of(JobRecord(1, JobRequest())) == 1
    assert tasks_of(JobRecord(1, JobRequest(), array_pending=0b10110)) == 3
    assert lowest_task(0b10100) == 2
