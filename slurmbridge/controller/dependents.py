"""Pending jobs that wait for others: their dependencies are tested again (sbatch(1), --dependency)."""
from __future__ import annotations

from collections.abc import Callable, Iterable

from slurmbridge.controller import dependencies, queueing
from slurmbridge.controller.jobs import lowest_task
from slurmbridge.controller.transitions import Phase, phase_of
from slurmbridge.controller.world import World
from slurmbridge.slurm import states
from slurmbridge.views.records import JobRecord

_NOT_TESTED = frozenset({"DependencyNeverSatisfied", "JobHeldUser", "JobHeldAdmin"})
"""Jobs with these reasons keep their dependencies as they are."""
CORRESPONDING_TASKS = 10
"""So many tasks of an array that waits with aftercorr wait on their own, if not told otherwise."""


def judge(world: World, cancel: Callable[[JobRecord], object], only: Iterable[JobRecord] | None = None) -> None:
    """Tests the dependencies of pending jobs (of ``only`` these); those that can never run are marked or cancelled."""
    waiting = list(world.jobs.dependent.values() if only is None else only)
    if not waiting:
        return
    tests = dependencies.Judge(world.find, world.jobs.array, lambda job: _blocked_by_name(world, job), world.now())
    for job in waiting:
        if job.state != states.PENDING or not job.dependency or job.reason in _NOT_TESTED:
            continue
        given = dependencies.parse(job.dependency, world.conf.max_array_size)
        after, verdict = tests.test(job, given)
        if job.array_pending and any(test.kind == "aftercorr" for test in given.tests):
            waiting += _apart(world, job)   # each task waits for its own counterpart
            if not job.array_pending:
                continue
        text = "" if not verdict else str(after)
        if text != job.dependency:
            job.dependency = text
            world.journal.job(job)
        if verdict == dependencies.FAILED:
            _never(world, job, cancel)
        elif verdict:
            if job.priority != 0:
                job.reason = "Dependency"
        else:
            if job.reason == "Dependency":
                queueing.begins_later(job, world.now())
            world.jobs.refile(job)
            queueing.refresh(world, job)
            world.wake_later()


def _apart(world: World, job: JobRecord) -> list[JobRecord]:
    """The first tasks of a waiting array as records of their own: as many as ``correspond_after_task_cnt`` lets
    wait so."""
    text = world.conf.scheduler_parameters.get("correspond_after_task_cnt") or ""
    most = max(int(text), CORRESPONDING_TASKS) if text.isdigit() else CORRESPONDING_TASKS
    found = []
    waiting = sum(one.array_task_id is not None and one.state == states.PENDING
                  for one in world.jobs.waiting_tasks(job.array_job_id))
    for _ in range(most - waiting):
        if job.array_pending:
            found.append(world.split(job, lowest_task(job.array_pending)))
    return found


def _never(world: World, job: JobRecord, cancel: Callable[[JobRecord], object]) -> None:
    job.reason = "DependencyNeverSatisfied"
    kill = job.request.kill_on_invalid_dep
    if kill is None:
        kill = "kill_invalid_depend" in world.conf.dependency_parameters
    world.journal.job(job)
    queueing.refresh(world, job)
    if kill and phase_of(job) is Phase.PENDING:
        cancel(job)


def _blocked_by_name(world: World, job: JobRecord) -> bool:
    """singleton: another job of this name and user is before it, or runs."""
    for other in world.jobs.unfinished_with_name(job.uid, job.name):
        if other.job_id == job.job_id or (job.array_job_id and other.array_job_id == job.array_job_id) \
                or other.state in states.FINISHED or (job.het_job_id and job.het_job_id == other.het_job_id):
            continue
        if other.state != states.PENDING or other.job_id < job.job_id:
            return True
    return False
