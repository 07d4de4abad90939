"""The usual choice of nodes: from runs of consecutive nodes of equal weight, the tightest sufficient run first."""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurmbridge.scheduling.facts import BoolArray, IntArray
from slurmbridge.scheduling.offer import Offer
from slurmbridge.scheduling.walk import Walk


@dataclass(slots=True, eq=False)
class NodeSet:
    """A run of consecutive nodes of one weight: positions, their sums, and the first required position in it."""

    at: IntArray
    cpus: int
    count: int
    weight: int
    devices: list[int]
    required: int = -1


def consecutive(walk: Walk, mask: BoolArray, needed: IntArray) -> bool:
    """Fills the job from runs of consecutive nodes, best run first."""
    if len(needed) and walk.take_required(needed):
        return True
    is_needed = np.zeros(len(mask), dtype=np.bool_)
    is_needed[needed] = True
    at = np.flatnonzero(mask)
    given = walk.offer(at)
    cpus = np.zeros(len(mask), dtype=np.int64)
    cpus[at] = given.cpus
    where = np.full(len(mask), -1, dtype=np.int64)
    where[at] = np.arange(len(at))
    sets = _sets(walk, at[(given.cpus > 0) | is_needed[at]], is_needed, cpus, given, where)
    contiguous = walk.question.shape.contiguous
    while sets and walk.max_nodes > 0:
        best = _best_set(walk, sets, bool(len(needed)), contiguous)
        if best is None:
            break
        node_set, sufficient = best
        if contiguous and not sufficient:
            break
        _fill(walk, node_set, cpus, given, where)
        if walk.satisfied():
            return True
        sets.remove(node_set)
    return walk.finished()


def _sets(walk: Walk, at: IntArray, is_needed: BoolArray, cpus: IntArray, given: Offer,
          where: IntArray) -> list[NodeSet]:
    """Runs of adjacent node numbers and equal weight (--contiguous: whatever the weight). Required nodes join a run
    but are not counted in it: they are taken already."""
    out = []
    for run, required in (_runs_with_required(walk, at, is_needed) if is_needed.any() else _plain_runs(walk, at)):
        out.append(NodeSet(run, int(cpus[run].sum()), len(run), int(walk.weight[run[-1]]),
                           [int(d[where[run]].sum()) for d in given.devices], required))
    return out


def _plain_runs(walk: Walk, at: IntArray) -> list[tuple[IntArray, int]]:
    if not len(at):
        return []
    cut = np.diff(walk.fit.nodes[at]) != 1
    if not walk.question.shape.contiguous:
        cut |= np.diff(walk.weight[at]) != 0
    return [(run, -1) for run in (np.split(at, np.flatnonzero(cut) + 1) if cut.any() else [at])]


def _runs_with_required(walk: Walk, at: IntArray, is_needed: BoolArray) -> list[tuple[IntArray, int]]:
    """As plain runs; a required node ends a run of another weight, and is forgotten when such a run follows it."""
    out: list[tuple[IntArray, int]] = []
    run: list[int] = []
    required, weight, last = -1, -1, -2
    contiguous = walk.question.shape.contiguous

    def end() -> None:
        if run:
            out.append((np.array(run, dtype=np.int64), required))
            run.clear()

    for position in at.tolist():
        number, its_weight = int(walk.fit.nodes[position]), int(walk.weight[position])
        if number != last + 1:
            end()
            required, weight = -1, -1
        elif not contiguous and weight not in (-1, its_weight):
            had_nodes = bool(run)
            end()
            required = -1
            weight = 0 if had_nodes else weight
        last = number
        if is_needed[position]:
            required = position if required == -1 else required
            continue
        run.append(position)
        weight = its_weight
    end()
    return out


def _best_set(walk: Walk, sets: list[NodeSet], any_required: bool, contiguous: bool) -> tuple[NodeSet, bool] | None:
    best: NodeSet | None = None
    best_sufficient = False
    needed = walk.rem_nodes + walk.min_nodes - walk.req_nodes if walk.req_nodes > walk.min_nodes else walk.rem_nodes
    candidates = sets if any_required or contiguous else _lightest(sets)
    for i, s in enumerate(candidates):
        if contiguous and any_required and s.required == -1:
            continue
        sufficient = s.cpus >= walk.rem_cpus and s.count >= needed and (
            not walk.per_job or walk.sufficient_gres(s.devices))
        if best is None or (best.required == -1 and s.required != -1) or s.weight < best.weight:
            better = True
        elif s.weight == best.weight:
            better = (sufficient and (not best_sufficient or s.cpus < best.cpus)) or (
                not sufficient and s.cpus > best.cpus)
        else:
            better = False
        if not better and contiguous and sufficient and not best_sufficient:
            better = True
        if better:
            best, best_sufficient = s, sufficient
        if contiguous and any_required and any(other.required != -1 for other in candidates[i + 1:]):
            return None
    return None if best is None else (best, best_sufficient)


def _lightest(sets: list[NodeSet]) -> list[NodeSet]:
    least = min(s.weight for s in sets)
    return [s for s in sets if s.weight == least]


def _fill(walk: Walk, node_set: NodeSet, cpus: IntArray, given: Offer, where: IntArray) -> None:
    """Takes nodes of the set: the best single one if one is enough, upwards then downwards from a required one."""
    at = node_set.at
    if node_set.required != -1:
        above = at[at > node_set.required]
        order = np.concatenate([above, at[at < node_set.required][::-1]])
    else:
        order = at
        if walk.rem_nodes <= 1:
            single = _single(walk, at, cpus, given, where)
            if single is not None:
                order = np.array([single])
    for position in order:
        if walk.max_nodes == 0 or walk.satisfied():
            return
        k = where[position]
        if cpus[position] <= 0 or (node_set.required == -1 and walk.max_nodes == 1 and cpus[position] < walk.rem_cpus):
            continue
        walk.take_offer(int(position), given, int(k))


def _single(walk: Walk, at: IntArray, cpus: IntArray, given: Offer, where: IntArray) -> int | None:
    """The smallest node of the set that alone provides all that is missing."""
    enough = cpus[at] >= walk.rem_cpus
    if walk.per_job:
        enough &= np.array([walk.sufficient_gres([int(d[where[p]]) for d in given.devices]) for p in at],
                           dtype=np.bool_)
    if not enough.any():
        return None
    fitting = at[enough]
    return int(fitting[np.argmin(cpus[fitting])])
