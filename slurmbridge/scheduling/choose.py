"""Which of the usable nodes a job gets, and the second chances when a choice fails.

The second half of the selection (topology/flat): the rule is by the job and the configuration; a failed choice is
repeated without the least useful nodes.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from slurmbridge.scheduling import runs, spread
from slurmbridge.scheduling.columns import BoolArray, IntArray
from slurmbridge.scheduling.demand import Question
from slurmbridge.scheduling.fit import Fit
from slurmbridge.scheduling.walk import Details, Impossible, Walk


@dataclass(slots=True)
class Choice:
    """``at``: positions in the fit, in node order; per position the CPUs it may use, the least its devices need, the
    most tasks (gres jobs), the cores to keep (0: all) and devices per request."""

    at: IntArray
    cpus: dict[int, int]
    offers: dict[int, Details]


def choose(question: Question, fit: Fit, weight: IntArray, busy: BoolArray, *,
           prefer_busy: bool = False) -> Choice | None:
    """The nodes to use, None when there is no fitting set. ``busy``: candidates on which jobs run."""
    shape = question.shape
    in_map = fit.cpus > 0
    required = question.required
    if required is not None:
        where = fit.position(len(question.columns))
        needed = where[np.flatnonzero(required)]
        if (needed < 0).any() or not in_map[needed].all():
            return None
    else:
        needed = np.zeros(0, dtype=np.int64)
    min_nodes = question.min_nodes
    if shape.ntasks_per_node and question.num_tasks:
        min_nodes = max(min_nodes, -(-question.num_tasks // shape.ntasks_per_node))
    if int(in_map.sum()) < min_nodes:
        return None
    max_nodes = question.max_nodes
    if question.num_tasks and not shape.ntasks_per_node and max_nodes > question.num_tasks:
        max_nodes = max(question.num_tasks, min_nodes)

    def attempt(mask: BoolArray, first_pass: bool, most: int) -> Walk | None:
        walk = Walk(question, fit, weight, first_pass, min_nodes, most, question.req_nodes)
        walk.begin()
        return walk if _evaluate(walk, mask, needed, busy, prefer_busy) else None

    try:
        walk = attempt(in_map, True, max_nodes)
        if walk is None:
            walk = _retry(attempt, question, fit, in_map, needed, min_nodes)
    except Impossible:
        return None
    if walk is None:
        return None
    return Choice(np.array(sorted(walk.chosen), dtype=np.int64), walk.chosen, walk.details)


Attempt = Callable[[BoolArray, bool, int], Walk | None]


def _retry(attempt: Attempt, question: Question, fit: Fit, in_map: BoolArray, needed: IntArray,
           min_nodes: int) -> Walk | None:
    """Again with fewer and fewer nodes, those of least use leave first."""
    mask = in_map.copy()
    removable = [int(p) for p in np.argsort(fit.product, kind="stable") if in_map[p] and p not in set(needed.tolist())]
    most = question.max_nodes
    if fit.gres:
        walk = attempt(mask, False, most)
        if walk is not None:
            return walk
    for position in removable[:-1] if removable else ():
        if int(mask.sum()) <= min_nodes or not _may_suffice(question, fit, mask, most):
            return None
        mask[position] = False
        walk = attempt(mask, False, most)
        if walk is not None:
            return walk
    return None


def _may_suffice(question: Question, fit: Fit, mask: BoolArray, most: int) -> bool:
    """Whether the biggest nodes together could carry the job: if not, leaving nodes out is in vain."""
    cpus = fit.cpus[mask]
    if most < len(cpus):
        cpus = np.partition(cpus, len(cpus) - most)[len(cpus) - most:]
    if int(cpus.sum()) < question.min_cpus:
        return False
    return all(int(g.total[mask].sum()) >= g.demand.request.per_job for g in fit.gres)


def _evaluate(walk: Walk, mask: BoolArray, needed: IntArray, busy: BoolArray, prefer_busy: bool) -> bool:
    """One attempt on the nodes of ``mask``; the rule depends on the job and the configuration."""
    settings, shape, partition = walk.question.settings, walk.question.shape, walk.question.partition
    if shape.spread_job:
        return spread.widely(walk, mask, needed)
    if prefer_busy and not shape.contiguous:
        return spread.one_by_one(walk, mask, needed, spread.busy_first(walk, busy))
    if settings.lln or partition.lln:
        return spread.least_loaded(walk, mask, needed)
    if settings.pack_serial_at_end and walk.question.min_cpus == 1 and walk.req_nodes == 1:
        return spread.one_by_one(walk, mask, needed, spread.last_first(walk))
    return runs.consecutive(walk, mask, needed)
