"""What is on the nodes: applying an allocation to node records and the scheduler's columns, and taking it back.

A node's base state and flags are the engine's and the administrator's; ALLOCATED and MIXED follow from use.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from slurmbridge.scheduling import licensing
from slurmbridge.scheduling.columns import ClusterColumns
from slurmbridge.scheduling.facts import FOREVER_S, NodeShare, RunningJob
from slurmbridge.slurm import states
from slurmbridge.slurm.jobspec import UNLIMITED_MIN
from slurmbridge.views.records import JobRecord, NodeAllocation, NodeRecord

NOT_SCHEDULABLE = frozenset({
    "DRAIN", "FAIL", "MAINT", "NOT_RESPONDING", "REBOOT_REQUESTED", "REBOOT_ISSUED", "POWERED_DOWN"})


def allocations_of(shares: Iterable[NodeShare]) -> list[NodeAllocation]:
    """A plan's shares as the record of the job keeps them."""
    result = []
    for share in shares:
        gres = {f"{name}:{kind}" if kind else name: tuple(indices) for name, kind, indices in share.gres}
        result.append(NodeAllocation(share.node, share.cpus, share.mem_mb, gres, tuple(share.cores), share.tasks))
    return result


def shares_of(allocation: Iterable[NodeAllocation]) -> tuple[NodeShare, ...]:
    """The reverse, for a restart."""
    return tuple(
        NodeShare(one.node, one.cpus, one.mem_mb, tuple(one.cores),
                  tuple((name.partition(":")[0], name.partition(":")[2], tuple(indices))
                        for name, indices in one.gres.items()), one.tasks)
        for one in allocation)


def end_of(job: JobRecord) -> int:
    """Epoch second at which the job's time limit ends it (FOREVER_S: never)."""
    if job.time_limit_min is None or job.time_limit_min == UNLIMITED_MIN or job.start_s is None:
        return FOREVER_S
    return int(job.start_s + job.pre_suspend_s + job.time_limit_min * 60)


def running_job(job: JobRecord, subject: int = -1, exempt_until_s: int = 0) -> RunningJob:
    """The job as the scheduler's columns know it while it holds its allocation."""
    return RunningJob(
        job.job_id, job.partition, shares_of(job.allocation), end_of(job), int(job.start_s or 0), job.uid,
        job.request.exclusive, job.request.oversubscribe, job.priority, job.qos, job.account, subject,
        job.request.reservation, tuple(licensing.counts(job.licenses_alloc or job.request.licenses or "").items()),
        exempt_until_s,
        requeue=bool(job.requeue and job.request.batch))


def occupy(job: JobRecord, nodes: Mapping[str, NodeRecord]) -> None:
    """Counts the job's allocation on its nodes' records."""
    for one in job.allocation:
        node = nodes.get(one.node)
        if node is None:
            continue
        _take_cores(node, one)
        node.mem_alloc_mb += one.mem_mb
        for name, indices in one.gres.items():
            node.gres_alloc[name] = tuple(sorted({*node.gres_alloc.get(name, ()), *indices}))
        node.job_ids.add(job.job_id)
        if job.oversubscribe == "USER" or job.request.exclusive == "user":
            node.owner_uid = job.uid


def pause(job: JobRecord, nodes: Mapping[str, NodeRecord]) -> None:
    """A suspended job gives its cores; its memory and devices stay taken."""
    for one in job.allocation:
        node = nodes.get(one.node)
        if node is not None and job.job_id in node.job_ids and job.job_id not in node.paused:
            node.paused.add(job.job_id)
            _drop_cores(node, one)


def resume(job: JobRecord, nodes: Mapping[str, NodeRecord]) -> None:
    """The reverse of ``pause``; for one that was not paused, nothing."""
    for one in job.allocation:
        node = nodes.get(one.node)
        if node is not None and job.job_id in node.paused:
            node.paused.discard(job.job_id)
            _take_cores(node, one)


def _take_cores(node: NodeRecord, one: NodeAllocation) -> None:
    for core in one.cores:
        node.core_jobs[core] = node.core_jobs.get(core, 0) + 1
    _count_cpus(node)


def _drop_cores(node: NodeRecord, one: NodeAllocation) -> None:
    for core in one.cores:
        if node.core_jobs.get(core, 0) > 1:
            node.core_jobs[core] -= 1
        else:
            node.core_jobs.pop(core, None)
    _count_cpus(node)


def _count_cpus(node: NodeRecord) -> None:
    """CPUs of cores that have a job: one that several jobs share counts once."""
    node.cpus_alloc = len(node.core_jobs) * node.threads_per_core


def vacate(job: JobRecord, nodes: Mapping[str, NodeRecord], now_s: float) -> None:
    """Takes the job off its nodes' records."""
    for one in job.allocation:
        node = nodes.get(one.node)
        if node is None or job.job_id not in node.job_ids:
            continue
        if job.job_id in node.paused:
            node.paused.discard(job.job_id)
        else:
            _drop_cores(node, one)
        node.mem_alloc_mb -= one.mem_mb
        for name, indices in one.gres.items():
            left = tuple(index for index in node.gres_alloc.get(name, ()) if index not in indices)
            if left:
                node.gres_alloc[name] = left
            else:
                node.gres_alloc.pop(name, None)
        node.job_ids.discard(job.job_id)
        node.last_busy_s = now_s
        if not node.job_ids:
            node.owner_uid = None
            node.flags.discard(states.COMPLETING)


def ends_soon(job: JobRecord, columns: ClusterColumns, now_s: float) -> None:
    """The job is over: what it still holds is free in a moment, whatever its time limit was."""
    running = columns.running.get(job.job_id)
    if running is not None:
        columns.running[job.job_id] = replace(running, end_s=int(now_s))


def is_available(node: NodeRecord) -> bool:
    """Whether it takes new jobs."""
    return node.base_state not in ("DOWN", "UNKNOWN", "FUTURE", "ERROR") and not node.blocked \
        and not node.flags & NOT_SCHEDULABLE


def show_to_scheduler(node: NodeRecord, columns: ClusterColumns) -> None:
    """Tells the columns what the node's state means."""
    if node.name in columns.index:
        columns.set_node_state(
            node.name, available=is_available(node), up=node.base_state not in ("DOWN", "UNKNOWN", "FUTURE", "ERROR"),
            completing=states.COMPLETING in node.flags)


def mark_completing(job: JobRecord, nodes: Mapping[str, NodeRecord], jobs: Mapping[int, JobRecord]) -> None:
    """A node is COMPLETING while a job on it is."""
    for one in job.allocation:
        node = nodes.get(one.node)
        if node is None:
            continue
        if any(states.COMPLETING in jobs[other].flags for other in node.job_ids if other in jobs):
            node.flags.add(states.COMPLETING)
        else:
            node.flags.discard(states.COMPLETING)
