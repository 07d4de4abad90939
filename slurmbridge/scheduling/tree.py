"""Choosing nodes by the tree of switches (topology/tree): as few leaf switches as possible, the tightest fit first.

Nodes come from below one switch, in groups of equal weight: the groups that are needed as a whole first, then more
nodes of the leaf switches in use, then whole leaf switches by their distance from those in use and by how tightly they
fit what is missing. A choice that fails is repeated without a node, or without the switch it was tried under.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

import numpy as np

from slurmbridge.scheduling.demand import Question
from slurmbridge.scheduling.facts import BoolArray, IntArray
from slurmbridge.scheduling.fit import Fit
from slurmbridge.scheduling.offer import Offer
from slurmbridge.scheduling.switches import APART, SwitchTree
from slurmbridge.scheduling.walk import Impossible, Unreachable, Walk

Start = Callable[[bool, int], Walk]
"""(first pass, most nodes) -> a walk that has begun."""


class Verdict(Enum):
    DONE = auto()
    UNREACHABLE = auto()                      # no switch reaches what is needed
    WITHOUT_SWITCH = auto()                   # again without all nodes of ``tried``
    WITHOUT_NODE = auto()                     # again without the least useful node of ``tried``


def choose(start: Start, tree: SwitchTree, question: Question, fit: Fit, in_map: BoolArray, needed: IntArray,
           min_nodes: int, max_nodes: int) -> Walk | None:
    """The walk that filled the job; None where no set of nodes does, or only one on more switches than asked for.

    ``needed``: positions of required nodes. Raises Impossible, Unreachable where no switch reaches enough."""
    first = _Attempt(start(True, max_nodes), start, tree, in_map, needed)
    verdict = first.run()
    if verdict is Verdict.UNREACHABLE:
        raise Unreachable
    attempt = first if verdict is Verdict.DONE else _again(start, tree, question, fit, in_map, needed, min_nodes)
    if attempt is None or (question.bound_by_switches and attempt.leaves > question.max_switches):
        return None
    return attempt.walk


def _again(start: Start, tree: SwitchTree, question: Question, fit: Fit, in_map: BoolArray, needed: IntArray,
           min_nodes: int) -> _Attempt | None:
    mask, kept = in_map.copy(), set(needed.tolist())
    order: list[int] = []
    at = 0
    while True:
        attempt = _Attempt(start(False, question.max_nodes), start, tree, mask, needed)
        verdict = attempt.run()
        if verdict is Verdict.DONE:
            return attempt
        if int(mask.sum()) <= min_nodes:
            return None
        if verdict is Verdict.WITHOUT_SWITCH:
            if not (mask & attempt.tried).any():
                return None
            mask &= ~attempt.tried
            continue
        if not order:
            order = [int(p) for p in np.argsort(fit.product, kind="stable") if mask[p] and p not in kept]
        among = attempt.tried if verdict is Verdict.WITHOUT_NODE and attempt.tried.any() else mask
        left = [k for k in range(at, len(order)) if among[order[k]] and mask[order[k]]]
        if not left:
            return None
        mask[order[left[0]]] = False
        at += left[0] == at
        if at >= len(order):
            return None


@dataclass(slots=True)
class _Groups:
    """``best``: nodes that may serve; ``whole``: those of them that are all taken, as lighter than the last group."""

    best: BoolArray
    whole: BoolArray
    sufficient: bool


class _Attempt:
    """One try with the nodes of ``mask``. ``tried``: what a verdict is about; ``leaves``: leaf switches of the job."""

    def __init__(self, walk: Walk, start: Start, tree: SwitchTree, mask: BoolArray, needed: IntArray) -> None:
        self.walk, self._start, self.tree, self.mask, self.needed = walk, start, tree, mask, needed
        self._most = walk.max_nodes
        self.tried = np.zeros_like(mask)
        self.leaves = 0
        self._below: BoolArray = tree.nodes[:, walk.fit.nodes] & mask         # (switches, positions)
        self._cpus = (self._below * walk.fit.cpus).sum(axis=1)
        self._offer: Offer | None = None
        self._where: dict[int, int] = {}                                      # position -> its place in the offer
        self._open = np.zeros(len(mask), dtype=np.bool_)                      # positions with an offer to take

    def run(self) -> Verdict:
        """Tries with fewer nodes than wanted, down to the least, where --switches is not met otherwise."""
        walk = self.walk
        if int(self.needed.size) > walk.max_nodes:
            raise Impossible
        self._take_needed()
        top = self._top()
        if top < 0 or not self._below[top, self.needed].all():
            return Verdict.UNREACHABLE
        self._below &= self._below[top]
        below, wanted = self._below.copy(), walk.req_nodes
        if len(self.needed):
            if self._satisfied():
                return self._done()
            if walk.max_nodes <= 0:
                return Verdict.UNREACHABLE
        switches = walk.question.max_switches
        while True:
            verdict = self._fill(top)
            if verdict is not Verdict.DONE or not switches or self.leaves <= switches or wanted <= walk.min_nodes:
                return verdict
            wanted -= 1
            walk = self.walk = self._start(walk.first_pass, self._most)
            walk.req_nodes = walk.rem_nodes = wanted
            self._below = below.copy()
            self._open[:] = False
            self._take_needed()

    def _take_needed(self) -> None:
        for position in self.needed.tolist():
            given = self.walk.offer(np.array([position]))
            if given.cpus[0] == 0 or not self.walk.take_offer(position, given, 0):
                raise Impossible

    def _satisfied(self) -> bool:
        return self.walk.satisfied()

    def _enough(self, count: int) -> bool:
        walk = self.walk
        short = walk.rem_nodes + walk.min_nodes - walk.req_nodes if walk.req_nodes > walk.min_nodes else walk.rem_nodes
        return count >= short

    def _top(self) -> int:
        """The switch below which all nodes of the job will be (-1: none)."""
        tree, walk = self.tree, self.walk
        found, lightest = -1, 0
        for at, level in enumerate(tree.level):
            if len(self.needed):
                if self._below[at, self.needed].any() and (found < 0 or level > tree.level[found]):
                    found = at
                continue
            if not self._enough(int(self._below[at].sum())) or walk.rem_cpus > self._cpus[at] or (
                    not self._below[at].any()):
                continue
            weight = int(walk.weight[self._below[at]].min())
            if found < 0 or (level >= tree.level[found] and weight <= lightest):
                found, lightest = at, weight
        return found

    def _fill(self, top: int) -> Verdict:
        walk = self.walk
        groups = self._groups(top)
        if not groups.sufficient:
            self.tried = self._below[top].copy()
            return Verdict.WITHOUT_SWITCH
        for position in np.flatnonzero(groups.whole).tolist():
            if walk.max_nodes <= 0:
                break
            groups.whole[position] = self._take(position)
        if groups.whole.any():
            if self._satisfied():
                return self._done()
            if walk.max_nodes <= 0:
                return self._full()
        taken = self._chosen()
        used = np.array([bool((nodes & taken).any()) for nodes in self._below])
        self._below &= groups.best | taken
        counts = self._below.sum(axis=1)
        if taken.any() and (verdict := self._more_of_used(used, counts)) is not None:
            return verdict
        verdict = self._whole_leaves(used, counts)
        if verdict is not None:
            return verdict
        if walk.min_rem_nodes <= 0 and walk.rem_cpus <= 0 and walk.gres_met():
            return self._done()
        return self._full()

    def _groups(self, top: int) -> _Groups:
        """Groups of equal weight below the switch, lightest first, until they are what is wanted."""
        walk = self.walk
        candidates = self._below[top].copy()
        candidates[self.needed] = False
        at = np.flatnonzero(candidates)
        given = self._offer = walk.offer(at)
        cpus = np.zeros(len(candidates), dtype=np.int64)
        cpus[at] = given.cpus
        best, whole = np.zeros_like(candidates), np.zeros_like(candidates)
        sufficient = False
        for weight in np.unique(walk.weight[self.mask]).tolist():
            if best.any():
                whole |= best
            best |= candidates & (walk.weight == weight) & (cpus > 0)
            count, total = int(best.sum()), int(cpus[best].sum())
            devices = walk.sufficient_gres([int(kind[best[at]].sum()) for kind in given.devices]) if (
                walk.per_job) else True
            sufficient |= total >= walk.rem_cpus and self._enough(count) and devices
            if count >= walk.rem_nodes and total >= walk.rem_cpus and devices:
                break
        self._open = best.copy()
        self._where = {int(position): k for k, position in enumerate(at.tolist())}
        return _Groups(best, whole, sufficient)

    def _take(self, position: int) -> bool:
        assert self._offer is not None
        taken = self.walk.take_offer(position, self._offer, self._where[position])
        self._open[position] = False
        return taken

    def _chosen(self) -> BoolArray:
        taken = np.zeros_like(self.mask)
        taken[list(self.walk.chosen)] = True
        return taken

    def _more_of_used(self, used: BoolArray, counts: IntArray) -> Verdict | None:
        """More nodes of the leaf switches that the job is on already."""
        taken = 0
        for at, level in enumerate(self.tree.level):
            if level == 0 and used[at]:
                for position in np.flatnonzero(self._below[at] & self._open).tolist():
                    if not self._take(position):
                        continue
                    taken += 1
                    if (verdict := self._verdict()) is not None:
                        return verdict
                self._lower(counts, at, taken)
        return None

    def _whole_leaves(self, used: BoolArray, counts: IntArray) -> Verdict | None:
        """Other leaf switches, one after another, until the job is filled or nothing more comes of it."""
        walk, tree = self.walk, self.tree
        distance = np.minimum(tree.distance[used].sum(axis=0), APART)
        before = walk.rem_nodes + 1
        while before != walk.rem_nodes:
            before, best = walk.rem_nodes, -1
            for at, level in enumerate(tree.level):
                if level == 0 and not used[at]:
                    best = self._better(distance, counts, at, best)
            if best < 0:
                break
            distance = np.minimum(distance + tree.distance[best], APART)
            for position in np.flatnonzero(self._below[best] & self._open).tolist():
                if walk.max_nodes <= 0:
                    break
                if self._take(position) and (verdict := self._verdict()) is not None:
                    return verdict
            self._lower(counts, best, int(counts[best]))
            counts[best] = 0
        return None

    def _better(self, distance: IntArray, counts: IntArray, at: int, best: int) -> int:
        """The one of the two leaf switches to take first."""
        if not counts[at] or distance[at] >= APART:
            return best
        if best < 0:
            return at
        tighter, fits = self._tighter(at, best, counts)
        closer = distance[at] < distance[best] and fits
        return at if closer or (distance[at] == distance[best] and tighter > 0) else best

    def _tighter(self, at: int, best: int, counts: IntArray) -> tuple[int, bool]:
        """(1, -1 or 0: which of them fits better, whether the first fits), looking upwards while neither fits."""
        walk, tree = self.walk, self.tree
        while True:
            fits, other = (bool(counts[s] >= walk.rem_nodes and self._cpus[s] >= walk.rem_cpus) for s in (at, best))
            if fits != other:
                return (1 if fits else -1), fits
            if fits and counts[at] != counts[best]:
                return (1 if counts[at] < counts[best] else -1), True
            if fits or tree.parent[at] == tree.parent[best] or -1 in (tree.parent[at], tree.parent[best]):
                break
            at, best = tree.parent[at], tree.parent[best]
        if counts[at] != counts[best]:
            return (1 if counts[at] > counts[best] else -1), fits
        return int(np.sign(tree.level[best] - tree.level[at])), fits

    def _lower(self, counts: IntArray, switch: int, taken: int) -> None:
        for above in self.tree.up(switch):
            counts[above] = max(0, int(counts[above]) - taken)

    def _verdict(self) -> Verdict | None:
        """After a node: whether the job is filled, or full without being so."""
        if self._satisfied():
            return self._done()
        return self._full() if self.walk.max_nodes <= 0 else None

    def _done(self) -> Verdict:
        chosen = self._chosen()
        leaf = np.array(self.tree.level) == 0
        self.leaves = int((self._below[leaf] & chosen).any(axis=1).sum())
        return Verdict.DONE

    def _full(self) -> Verdict:
        self.tried = self._chosen()
        return Verdict.WITHOUT_NODE
