"""Which running jobs a waiting job may push aside, and which of them it takes (PreemptType, slurm.conf(5)).

As in slurmctld, candidates leave one after another, the least important first, until the job fits; then it is tried
again with the one that made room first, followed by those that hold the most of the nodes, so that fewer have to go.
Only those on the nodes chosen are preempted.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from slurmbridge.scheduling.columns import ClusterColumns
from slurmbridge.scheduling.demand import Question
from slurmbridge.scheduling.facts import NO_USER, BoolArray, RunningJob, without_cores
from slurmbridge.scheduling.select import Selected, can_now
from slurmbridge.scheduling.snapshot import Preemption, Snapshot
from slurmbridge.scheduling.use import Use, charge, release

MOST_NODES = 0xFFFF
REMOVING = frozenset({"REQUEUE", "CANCEL", "SUSPEND"})
WITHIN, BY_PRIORITY = "WITHIN", "PRIORITY"
"""Words of a PreemptMode about the preemptor: also jobs of its own QOS, and only those of less priority."""
OPTIONS = frozenset({WITHIN, BY_PRIORITY})


@dataclass(frozen=True, slots=True)
class Preemptor:
    """A waiting job in one of its partitions, under one of its QOS."""

    job_id: int
    qos: str
    partition: str
    priority: int


def candidates(snapshot: Snapshot, running: dict[int, RunningJob], job: Preemptor,
               spared: set[int]) -> list[RunningJob]:
    """Jobs that ``job`` may preempt, the first to go first. ``spared``: those preempted already in this pass."""
    rules, columns = snapshot.preemption, snapshot.cluster
    if rules is None or job.job_id in rules.in_progress or snapshot.settings.preempt_type == "preempt/none":
        return []
    members = columns.partition_nodes[job.partition]
    by_qos = snapshot.settings.preempt_type == "preempt/qos"
    found = []
    for victim in running.values():
        if victim.job_id in spared or victim.job_id in rules.leaving or victim.suspended or (
                victim.job_id not in columns.running):
            continue
        if victim.preempt_exempt_until_s > snapshot.now_s or (
                _mode(rules, snapshot, victim, by_qos).isdisjoint(REMOVING)):
            continue
        if victim.priority > rules.min_exempt_priority:
            continue
        if _may(rules, snapshot, victim, job) and any(
                members[columns.index[share.node]] for share in victim.shares):
            modes = _mode(rules, snapshot, victim, by_qos)
            stays = "SUSPEND" in modes and not ("REQUEUE" in modes and victim.requeue)
            found.append(replace(victim, stays=True) if stays else victim)
    found.sort(key=lambda victim: victim.job_id)
    if rules.youngest_first:
        return sorted(found, key=lambda victim: -victim.start_s)
    return sorted(found, key=lambda victim: _importance(rules, columns, victim, by_qos))


def closed_by_suspended(snapshot: Snapshot, job: Preemptor) -> BoolArray | None:
    """Nodes of suspended jobs that this job could not have suspended: they go on there."""
    columns, rules = snapshot.cluster, snapshot.preemption
    if not columns.suspended or rules is None:
        return None
    closed = np.zeros(len(columns), dtype=np.bool_)
    for job_id in columns.suspended:
        victim = columns.running[job_id]
        if not _may(rules, snapshot, victim, job):
            closed[[columns.index[share.node] for share in victim.shares]] = True
    return closed if closed.any() else None


def _may(rules: Preemption, snapshot: Snapshot, victim: RunningJob, job: Preemptor) -> bool:
    if snapshot.settings.preempt_type != "preempt/qos":
        return _tier(snapshot.cluster, victim.partition) < _tier(snapshot.cluster, job.partition)
    words = {*rules.qos_mode.get(job.qos, "").split(","), *snapshot.settings.preempt_mode.split(",")}
    if victim.qos == job.qos:
        return WITHIN in words and job.priority > victim.priority
    return victim.qos in rules.victims.get(job.qos, ()) and (
        BY_PRIORITY not in words or job.priority > victim.priority)


def _mode(rules: Preemption, snapshot: Snapshot, victim: RunningJob, by_qos: bool) -> frozenset[str]:
    """The victim's PreemptMode: its QOS's or partition's, else the cluster's."""
    partition = snapshot.cluster.partitions.get(victim.partition)
    own = rules.qos_mode.get(victim.qos, "") if by_qos else partition.preempt_mode if partition is not None else ""
    return mode_words(own) or mode_words(snapshot.settings.preempt_mode)


def mode_words(text: str) -> frozenset[str]:
    """What a PreemptMode says of who is preempted; nothing where it has words about preemptors alone."""
    return frozenset(filter(None, text.upper().split(","))) - OPTIONS


def _tier(columns: ClusterColumns, partition: str) -> int:
    found = columns.partitions.get(partition)
    return found.tier if found is not None else 0


def _importance(rules: Preemption, columns: ClusterColumns, victim: RunningJob, by_qos: bool) -> tuple[int, int]:
    """Lowest first; among equals the job with the fewest nodes."""
    rank = rules.qos_priority.get(victim.qos, 0) if by_qos else _tier(columns, victim.partition)
    return min(rank, MOST_NODES), min(len(victim.shares), MOST_NODES)


def make_room(question: Question, nodes: BoolArray, use: Use, uid: int, victims: Sequence[RunningJob],
              short: Mapping[str, int]) -> tuple[Selected, tuple[int, ...]] | None:
    """The nodes the job would get, and the jobs that must end for it; None when all of them are not enough.
    ``short``: how many licenses it needs besides those that are free (PreemptParameters=reclaim_licenses)."""
    columns = question.columns
    for attempt in range(1, question.settings.preempt_reorder_count + 3):
        found = _without(question, nodes, use, uid, victims, short)
        if found is None:
            return None
        count, selected = found
        if attempt > question.settings.preempt_reorder_count + 1 or len(victims) <= attempt:
            break
        last = victims[count - 1]
        before, after = list(victims[:count - 1]), list(victims[count:])
        if not question.settings.preempt_strict_order:
            before.sort(key=lambda victim: -sum(bool(selected.nodes[columns.index[share.node]])
                                                for share in victim.shares))
        victims = [last, *before, *after]
    on_them = tuple(victim.job_id for victim in victims[:count]
                    if any(selected.nodes[columns.index[share.node]] for share in victim.shares)
                    or _licenses_of(victim).keys() & short.keys())
    return selected, on_them


def _licenses_of(victim: RunningJob) -> dict[str, int]:
    """What comes free of licenses when the victim goes: a suspended job keeps them."""
    return {} if victim.stays else dict(victim.licenses)


def _without(question: Question, nodes: BoolArray, use: Use, uid: int, victims: Sequence[RunningJob],
             short: Mapping[str, int]) -> tuple[int, Selected] | None:
    """How many of the first victims must go, and the selection then."""
    left, freed = use.copy(), Counter[str]()
    for count, victim in enumerate(victims, 1):
        release(question.columns, left, victim)
        if victim.stays:
            charge(question.columns, left, without_cores(victim))
        freed.update(_licenses_of(victim))
        if any(freed[name] < count for name, count in short.items()):
            continue
        open_nodes = nodes & ~left.whole & ((left.owner == NO_USER) | (left.owner == uid))
        if question.demand.whole_user or question.partition.exclusive_user:
            open_nodes &= left.jobs == 0
        found = can_now(question, open_nodes, left, with_shares=True)
        if found is not None and found.count <= question.max_nodes:
            return count, found
    return None
