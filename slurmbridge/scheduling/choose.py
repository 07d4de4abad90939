"""Which of the usable nodes a job gets, and the second chances when a choice fails.

The second half of the selection (topology/flat here, topology/tree in ``tree``): the rule is by the job and the
configuration; a failed choice is repeated without the least useful nodes.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from slurmbridge.scheduling import runs, spread, tree
from slurmbridge.scheduling.demand import Question
from slurmbridge.scheduling.facts import BoolArray, IntArray
from slurmbridge.scheduling.fit import Fit
from slurmbridge.scheduling.plain_runs import PlainRuns
from slurmbridge.scheduling.switches import SwitchTree
from slurmbridge.scheduling.walk import Details, Impossible, Unreachable, Walk


@dataclass(slots=True)
class Choice:
    """``at``: positions in the fit, in node order; per position the CPUs it may use, the least its devices need, the
    most tasks (gres jobs), the cores to keep (0: all) and devices per request."""

    at: IntArray
    cpus: dict[int, int]
    offers: dict[int, Details]


def choose(question: Question, fit: Fit, weight: IntArray, busy: BoolArray, *,
           prefer_busy: bool = False) -> Choice | None:
    """The nodes to use, None when there is no fitting set. ``busy``: candidates on which jobs run.

    Raises Unreachable where the question is whether the job could ever run."""
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

    def start(first_pass: bool, most: int) -> Walk:
        walk = Walk(question, fit, weight, first_pass, min_nodes, most, question.req_nodes)
        walk.begin()
        return walk

    rule = _rule(question, busy, needed, prefer_busy)
    switches = _switches(question)
    if not (switches and question.tests_ever) and not _may_suffice(question, fit, in_map,
                                                                   max(max_nodes, question.max_nodes)):
        return None
    walk: Walk | None
    try:
        if rule is None and switches is not None:
            walk = tree.choose(start, switches, question, fit, in_map, needed, min_nodes, max_nodes)
        else:
            rule = rule or _by_runs(question, needed)
            walk = start(True, max_nodes)
            if not (rule(walk, in_map) if rule is not None else PlainRuns(walk, in_map).choose(walk)):
                walk = _retry(start, rule, question, fit, in_map, needed, min_nodes)
    except Impossible as problem:
        if question.tests_ever and isinstance(problem, Unreachable):
            raise
        return None
    if walk is None:
        return None
    return Choice(np.array(sorted(walk.chosen), dtype=np.int64), walk.chosen, walk.details)


Rule = Callable[[Walk, BoolArray], bool]


def _retry(start: Callable[[bool, int], Walk], rule: Rule | None, question: Question, fit: Fit, in_map: BoolArray,
           needed: IntArray, min_nodes: int) -> Walk | None:
    """Again with fewer and fewer nodes, those of least use leave first."""
    mask = in_map.copy()
    kept = set(needed.tolist())
    removable = [int(p) for p in np.argsort(fit.product, kind="stable") if in_map[p] and p not in kept]
    most = question.max_nodes
    if fit.gres:
        walk = start(False, most)
        if rule(walk, mask) if rule is not None else PlainRuns(walk, mask).choose(walk):
            return walk
    known: PlainRuns | None = None
    left = int(mask.sum())
    for position in removable[:-1]:
        if left <= min_nodes:
            return None
        mask[position] = False
        left -= 1
        if known is not None and known.repeats and not known.used[position]:
            continue
        if not _may_suffice(question, fit, mask, most):
            return None
        walk = start(False, most)
        if rule is not None:
            done = rule(walk, mask)
        else:
            if known is None:
                known = PlainRuns(walk, mask)
            known.keep(mask)
            done = known.choose(walk)
        if done:
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


def _rule(question: Question, busy: BoolArray, needed: IntArray, prefer_busy: bool) -> Rule | None:
    """How nodes are taken, by the job and the configuration. None: by switches or runs of consecutive nodes."""
    settings, shape = question.settings, question.shape
    if shape.spread_job:
        return lambda walk, mask: spread.widely(walk, mask, needed)
    if prefer_busy and not shape.contiguous:
        return lambda walk, mask: spread.one_by_one(walk, mask, needed, spread.busy_first(walk, busy))
    if settings.lln or question.partition.lln:
        return lambda walk, mask: spread.least_loaded(walk, mask, needed)
    if settings.pack_serial_at_end and question.min_cpus == 1 and question.req_nodes == 1:
        return lambda walk, mask: spread.one_by_one(walk, mask, needed, spread.last_first(walk))
    return None


def _by_runs(question: Question, needed: IntArray) -> Rule | None:
    """None: from plain runs."""
    if len(needed) or question.shape.contiguous:
        return lambda walk, mask: runs.consecutive(walk, mask, needed)
    return None


def _switches(question: Question) -> SwitchTree | None:
    """The tree that the job's nodes are chosen by."""
    if question.shape.contiguous or (question.settings.topo_optional and not question.shape.switches):
        return None
    return question.columns.switches
