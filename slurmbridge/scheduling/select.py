"""One test of a job against a set of nodes: can it run there now, could it ever, when would it?

Puts the steps of the selection together: nodes that cannot be shared are left out, each node's fit, the choice, and the
layout.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from slurmbridge.scheduling.choose import Choice, choose
from slurmbridge.scheduling.demand import Question
from slurmbridge.scheduling.facts import BoolArray, IntArray, NodeShare
from slurmbridge.scheduling.fit import Fit, fit, free_devices
from slurmbridge.scheduling.layout import allocate, distribute, memory_by_gres
from slurmbridge.scheduling.sharing import closed_nodes, search
from slurmbridge.scheduling.use import Counts, Use


@dataclass(slots=True)
class Selected:
    """Chosen nodes (mask), their numbers, CPUs of the job, and the shares when they were worked out."""

    nodes: BoolArray
    cpus: int
    shares: tuple[NodeShare, ...] = ()

    @property
    def count(self) -> int:
        return int(self.nodes.sum())


def could_ever(question: Question, nodes: BoolArray, use: Counts) -> Selected | None:
    """As if the nodes were empty. Raises Unreachable where no switch reaches enough of them."""
    at = np.flatnonzero(nodes)
    return _sized(replace(question, tests_ever=True), nodes, lambda q: _ever(q, at, use))


def _ever(question: Question, at: IntArray, use: Counts) -> Selected | None:
    if len(at) < question.min_nodes:
        return None
    fitted = fit(question, use, at, ever=True)
    choice = choose(question, fitted, weights(question, fitted, None), use.jobs[at] > 0)
    if choice is None:
        return None
    return Selected(_mask(question, fitted, choice), max(question.min_cpus, question.job_min_nodes))


def can_now(question: Question, nodes: BoolArray, use: Use, *, with_shares: bool) -> Selected | None:
    """With what is free in ``use``."""
    def test(some: Use) -> Selected | None:
        usable = shareable(question, nodes, some)
        if usable is None:
            return None
        at = np.flatnonzero(usable)
        return _sized(question, usable, lambda q: _now(q, at, some, with_shares))

    return search(question, use, test)


def _now(question: Question, at: IntArray, use: Use, with_shares: bool) -> Selected | None:
    if len(at) < question.min_nodes:
        return None
    fitted = fit(question, use, at, ever=False)
    choice = choose(question, fitted, weights(question, fitted, None), use.jobs[at] > 0)
    if choice is None:
        return None
    if not with_shares:
        return Selected(_mask(question, fitted, choice), max(question.min_cpus, question.job_min_nodes))
    shares = allocate(question, fitted, choice, use)
    if shares is None:
        return None
    return Selected(_mask(question, fitted, choice), sum(s.cpus for s in shares), shares)


def can_with(question: Question, fitted: Fit, use: Counts, *, prefer_busy: bool, avoid: BoolArray | None,
             ) -> Selected | None:
    """With a fit that was made before; ``avoid``: nodes to take last among equals."""
    if len(fitted.nodes) < question.min_nodes:
        return None
    mask = np.zeros(len(question.columns), dtype=np.bool_)
    mask[fitted.nodes] = True

    def test(q: Question) -> Selected | None:
        choice = choose(q, fitted, weights(q, fitted, avoid), use.jobs[fitted.nodes] > 0, prefer_busy=prefer_busy)
        return None if choice is None else sized(q, fitted, choice)

    return _sized(question, mask, test)


def can_share(question: Question, nodes: BoolArray, use: Use, *, prefer_busy: bool, avoid: BoolArray | None,
              ) -> Selected | None:
    """As ``can_with``, where cores are shared: what fits depends on the rows."""
    def test(some: Use) -> Selected | None:
        usable = shareable(question, nodes, some)
        if usable is None:
            return None
        fitted = fit(question, some, np.flatnonzero(usable), ever=False)
        return can_with(question, fitted, some, prefer_busy=prefer_busy, avoid=avoid)

    return search(question, use, test)


def weights(question: Question, fitted: Fit, avoid: BoolArray | None) -> IntArray:
    """Scheduling weights: the node's, and among equals nodes with more devices near first."""
    near = 255 - fitted.near if question.demand.gres else np.full(len(fitted.nodes), 255)
    later = avoid[fitted.nodes].astype(np.int64) if avoid is not None else 0
    return (question.columns.weight[fitted.nodes] * 2 + later) * 256 + near


def _sized(question: Question, nodes: BoolArray, test: Callable[[Question], Selected | None]) -> Selected | None:
    """Runs the test once, or for each allowed node count from the largest down (-N 1,2,4)."""
    counts = question.shape.node_counts
    if not counts:
        return test(question)
    if question.max_nodes < min(counts):
        return test(question)                 # fewer tasks than nodes: the list no longer counts
    most = min(int(nodes.sum()), question.max_nodes)
    for count in sorted((c for c in counts if question.min_nodes <= c <= most), reverse=True):
        found = test(replace(question, min_nodes=count, max_nodes=count, req_nodes=count))
        if found is not None:
            return found
    return None


def shareable(question: Question, nodes: BoolArray, use: Counts, *, ignore_required: bool = False) -> BoolArray | None:
    """Drops nodes that what runs there closes to this job; None when a required node is among them."""
    columns, shape, demand = question.columns, question.shape, question.demand
    usable = nodes & ~use.alone
    if isinstance(use, Use) and use.shared is not None:
        usable &= ~closed_nodes(question, use)
    at = np.flatnonzero(usable)
    if question.settings.select_memory:
        free = columns.mem_mb[at] - use.mem_alloc_mb[at]
        if memory_by_gres(question):
            least = max(r.mem_per_gres_mb for r in shape.gres)
        elif shape.mem_per_cpu_mb:
            least = shape.mem_per_cpu_mb * max(shape.ntasks_per_node, shape.min_cpus_per_node, shape.cpus_per_task)
        else:
            least = shape.mem_per_node_mb or 0
        usable[at] = free >= least if least else use.mem_alloc_mb[at] == 0
    for gres in demand.gres:
        usable[at] &= free_devices(question, use, at, gres, True) >= gres.least
    if question.whole:
        for kind, total in enumerate(columns.gres_total):
            usable[at] &= use.gres_free[kind][at] == total[at]
        usable[at] &= (use.socket_free[at] == columns.socket_cores[at]).all(axis=1)
        if question.partition.over_subscribe == "EXCLUSIVE":
            usable[at] &= use.jobs[at] == 0
    if not ignore_required and question.required is not None and (question.required & ~usable).any():
        return None
    return usable


def _mask(question: Question, fitted: Fit, choice: Choice) -> BoolArray:
    chosen = np.zeros(len(question.columns), dtype=np.bool_)
    chosen[fitted.nodes[choice.at]] = True
    return chosen


def sized(question: Question, fitted: Fit, choice: Choice) -> Selected | None:
    """The selection without its shares; None when the tasks do not come out."""
    laid = distribute(question, fitted, choice)
    if laid is None:
        return None
    columns, nodes = question.columns, fitted.nodes[choice.at]
    chosen = _mask(question, fitted, choice)
    if question.whole:
        return Selected(chosen, int(columns.job_cpus[nodes].sum()))
    tpc = columns.threads[nodes]
    return Selected(chosen, int((-(-laid[1] // fitted.threads[choice.at]) * tpc).sum()))
