"""The other ways of choosing nodes: one by one in order, least loaded first, or spread over as many as possible."""
from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from slurmbridge.scheduling.facts import BoolArray, IntArray
from slurmbridge.scheduling.walk import Impossible, Walk


def _begin(walk: Walk, needed: IntArray) -> bool:
    """Bounds the node count by the tasks and takes the required nodes; True when they are enough."""
    if walk.question.num_tasks:
        walk.max_nodes = min(walk.max_nodes, walk.question.num_tasks)
    return len(needed) > 0 and walk.take_required(needed)


def _found(walk: Walk) -> bool:
    return walk.rem_cpus <= 0 and walk.min_rem_nodes <= 0 and walk.gres_met()


def one_by_one(walk: Walk, mask: BoolArray, needed: IntArray, order: Iterable[int]) -> bool:
    """Takes nodes in ``order`` (positions; those outside ``mask`` are skipped) until the job is filled."""
    if _begin(walk, needed):
        return True
    for position in order:
        if walk.max_nodes <= 0:
            break
        if not mask[position] or position in walk.chosen:
            continue
        given = walk.offer(np.array([position]))
        if given.cpus[0] and walk.take_offer(position, given, 0) and walk.satisfied():
            return True
    return _found(walk)


def busy_first(walk: Walk, busy: BoolArray) -> list[int]:
    """By weight, nodes with jobs before idle ones (bf_busy_nodes)."""
    return [int(p) for p in np.lexsort((np.arange(len(busy)), ~busy, walk.weight))]


def last_first(walk: Walk) -> list[int]:
    """By weight, from the end of the node table (pack_serial_at_end)."""
    return [int(p) for p in np.lexsort((-np.arange(len(walk.weight)), walk.weight))]


def least_loaded(walk: Walk, mask: BoolArray, needed: IntArray) -> bool:
    """By weight, the node with the greatest share of free CPUs (LLN, CR_LLN)."""
    load = walk.fit.max_cpus / np.maximum(walk.question.columns.cpus[walk.fit.nodes], 1)
    order = np.lexsort((np.arange(len(mask)), -load, walk.weight))
    return one_by_one(walk, mask, needed, (int(p) for p in order))


def widely(walk: Walk, mask: BoolArray, needed: IntArray) -> bool:
    """--spread-job: a task a node on as many nodes as the job may have, then the rest round and round."""
    shape = walk.question.shape
    if walk.question.num_tasks:
        walk.max_nodes = min(walk.max_nodes, walk.question.num_tasks)
    most, each = walk.max_nodes, shape.cpus_per_task
    at = np.flatnonzero(mask)
    room = np.zeros(len(mask), dtype=np.int64)
    room[at] = walk.offer(at).cpus
    order = [int(p) for p in np.lexsort((np.arange(len(mask)), walk.weight)) if mask[p] and room[p] > 0]
    chosen = [int(p) for p in needed]
    if any(room[p] <= 0 for p in chosen) or len(chosen) > most:
        raise Impossible
    order = [p for p in order if p not in set(chosen)]
    wanted = min(max(walk.rem_nodes, len(chosen)), most)
    while True:
        chosen += [order.pop(0) for _ in range(min(wanted - len(chosen), len(order)))]
        used = _share_out(chosen, room, each, walk.question.min_cpus)
        if sum(used.values()) >= walk.question.min_cpus or not order or len(chosen) >= most:
            break
        wanted = len(chosen) + 1
    for position in sorted(chosen):
        given = walk.offer(np.array([position]))
        given.cpus[0] = max(used[position], shape.min_cpus_per_node)
        walk.take_offer(position, given, 0)
    return _found(walk)


def _share_out(chosen: list[int], room: IntArray, each: int, cpus: int) -> dict[int, int]:
    """CPUs per node: one task each, then one more task a round on every node that has room."""
    used = dict.fromkeys(chosen, each)
    total = each * len(chosen)
    progress = True
    while total < cpus and progress:
        progress = False
        for position in sorted(chosen):
            if used[position] < room[position]:
                used[position] += each
                total += each
                progress = True
                if total >= cpus:
                    break
    return used
