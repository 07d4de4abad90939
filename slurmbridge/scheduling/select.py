"""One test of a job against a set of nodes: can it run there now, could it ever, when would it?

Puts the steps of the selection together: nodes that cannot be shared are left out, each node's fit, the choice, and the
layout.
"""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurmbridge.scheduling.choose import Choice, choose
from slurmbridge.scheduling.columns import BoolArray, IntArray, NodeShare, Use
from slurmbridge.scheduling.demand import MANY, Question
from slurmbridge.scheduling.fit import Fit, fit, free_devices
from slurmbridge.scheduling.layout import allocate, distribute, memory_by_gres


@dataclass(slots=True)
class Selected:
    """Chosen nodes (mask), their numbers, CPUs of the job, and the shares when they were worked out."""

    nodes: BoolArray
    cpus: int
    shares: tuple[NodeShare, ...] = ()

    @property
    def count(self) -> int:
        return int(self.nodes.sum())


def could_ever(question: Question, nodes: BoolArray, use: Use) -> Selected | None:
    """As if the nodes were empty."""
    return _sized(question, nodes, lambda q: _try(q, nodes, use, ever=True, with_shares=False))


def can_now(question: Question, nodes: BoolArray, use: Use, *, with_shares: bool, prefer_busy: bool = False,
            offset: IntArray | None = None) -> Selected | None:
    """With what is free in ``use``. ``offset`` is added to node weights (prefers some nodes)."""
    usable = shareable(question, nodes, use)
    if usable is None:
        return None
    return _sized(question, usable, lambda q: _try(q, usable, use, ever=False, with_shares=with_shares,
                                                   prefer_busy=prefer_busy, offset=offset))


def _sized(question, nodes, test):  # type: ignore[no-untyped-def]
    """Runs the test once, or for each allowed node count from the largest down (-N 1,2,4)."""
    counts = question.shape.node_counts
    if not counts:
        return test(question)
    most = min(int(nodes.sum()), question.max_nodes)
    from dataclasses import replace
    for count in sorted((c for c in counts if question.min_nodes <= c <= most), reverse=True):
        found = test(replace(question, min_nodes=count, max_nodes=count, req_nodes=count))
        if found is not None:
            return found
    return None


def shareable(question: Question, nodes: BoolArray, use: Use) -> BoolArray | None:
    """Drops nodes that what runs there closes to this job; None when a required node is among them."""
    columns, shape, demand = question.columns, question.shape, question.demand
    usable = nodes & ~use.exclusive_partition
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
            usable[at] &= (~use.gres_busy[kind][at]).sum(axis=1) == total[at]
        usable[at] &= (use.socket_free[at] == columns.socket_cores[at]).all(axis=1)
        if question.partition.over_subscribe == "EXCLUSIVE":
            usable[at] &= use.jobs[at] == 0
    if question.required is not None and (question.required & ~usable).any():
        return None
    return usable


def _try(question: Question, nodes: BoolArray, use: Use, *, ever: bool, with_shares: bool, prefer_busy: bool = False,
         offset: IntArray | None = None) -> Selected | None:
    at = np.flatnonzero(nodes)
    if len(at) < question.min_nodes:
        return None
    fitted = fit(question, use, at, ever=ever)
    weight = question.columns.weight[at] * 256 + (255 - fitted.near if question.demand.gres else 255)
    if offset is not None:
        weight = weight + offset[at]
    choice = choose(question, fitted, weight, use.jobs[at] > 0, prefer_busy=prefer_busy)
    if choice is None:
        return None
    chosen = np.zeros(len(question.columns), dtype=np.bool_)
    chosen[fitted.nodes[choice.at]] = True
    if ever:
        return Selected(chosen, max(question.min_cpus, question.job_min_nodes))
    return _laid_out(question, fitted, choice, use, chosen, with_shares)


def _laid_out(question: Question, fitted: Fit, choice: Choice, use: Use, chosen: BoolArray,
              with_shares: bool) -> Selected | None:
    if with_shares:
        shares = allocate(question, fitted, choice, use)
        return None if shares is None else Selected(chosen, sum(s.cpus for s in shares), shares)
    laid = distribute(question, fitted, choice)
    if laid is None:
        return None
    columns, nodes = question.columns, fitted.nodes[choice.at]
    if question.whole:
        return Selected(chosen, int(columns.cpus[nodes].sum()))
    tpc = columns.threads[nodes]
    return Selected(chosen, int((-(-laid[1] // fitted.threads[choice.at]) * tpc).sum()))


__all__ = ["MANY", "Selected", "can_now", "could_ever", "shareable"]
