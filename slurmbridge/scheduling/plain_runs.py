"""Runs of consecutive nodes as arrays, for the usual job: none of its nodes is named and they need not be adjacent.

The choice is that of ``runs``; arrays make it quick enough for the thousands of tests of a backfill pass. An attempt
that took runs only because they had the most CPUs, none being enough, comes out the same without other nodes.
"""
from __future__ import annotations

import numpy as np

from slurmbridge.scheduling.facts import BoolArray, IntArray
from slurmbridge.scheduling.walk import Walk


class PlainRuns:
    """Run ``r`` holds the nodes ``at[begin[r]:end[r]]`` (positions in the fit), ``cpus[r]`` CPUs together."""

    def __init__(self, walk: Walk, mask: BoolArray) -> None:
        at = np.flatnonzero(mask)
        self.given = walk.offer(at)
        self._numbers, self._weights = walk.fit.nodes, walk.weight
        serving = np.flatnonzero(self.given.cpus > 0)
        self._all_at, self._all_index = at[serving], serving
        self.repeats = False
        """The last attempt failed, and would fail again without any of the nodes that are not in ``used``."""
        self.used: BoolArray = np.zeros(len(mask), dtype=np.bool_)
        self._join(self._all_at, self._all_index)

    def keep(self, mask: BoolArray) -> None:
        """Goes on with fewer nodes."""
        kept = mask[self._all_at]
        self._join(self._all_at[kept], self._all_index[kept])

    def _join(self, at: IntArray, index: IntArray) -> None:
        """Makes the runs. ``index``: of the nodes in ``given``."""
        self.at, self.index = at, index
        self.node_cpus: IntArray = self.given.cpus[index]
        weight = self._weights[at]
        cut = (np.diff(self._numbers[at]) != 1) | (np.diff(weight) != 0)
        bounds = np.concatenate([[0], np.flatnonzero(cut) + 1, [len(at)]]) if len(at) else np.zeros(1, dtype=np.int64)
        self.begin, self.end = bounds[:-1].astype(np.int64), bounds[1:].astype(np.int64)
        self.weight: IntArray = weight[self.begin]
        sums = np.concatenate([[0], np.cumsum(self.node_cpus)])
        self.cpus: IntArray = sums[self.end] - sums[self.begin]
        self._devices = [np.concatenate([[0], np.cumsum(d[index])]) for d in self.given.devices]
        self._most: IntArray = np.concatenate([[0], np.cumsum(np.sort(self.node_cpus)[::-1])])

    def choose(self, walk: Walk) -> bool:
        """Fills the job, best run first; False when the nodes do not come together."""
        weight = self.weight.astype(np.float64)
        count = self.end - self.begin
        left = len(weight)
        self.used[:] = False
        self.repeats = True
        largest: list[int] = []               # the lightest runs that are left, the one with the most CPUs last
        while left and walk.max_nodes > 0 and self.may_suffice(walk.max_nodes, walk.rem_cpus):
            if not largest:
                lightest = np.flatnonzero(weight == weight.min())
                largest = lightest[np.argsort(-self.cpus[lightest], kind="stable")][::-1].tolist()
            if self.cpus[largest[-1]] < walk.rem_cpus:
                best = largest.pop()          # none is enough
            else:
                best = self._best(walk, np.array(sorted(largest), dtype=np.int64), count)
                largest.remove(best)
            begin, end = int(self.begin[best]), int(self.end[best])
            self.used[self.at[begin:end]] = True
            self._fill(walk, begin, end)
            if walk.satisfied():
                return True
            weight[best] = np.inf
            left -= 1
        return walk.finished()

    def may_suffice(self, nodes: int, cpus: int) -> bool:
        """Whether the best nodes together have that many CPUs."""
        return bool(self._most[min(nodes, len(self._most) - 1)] >= cpus)

    def _best(self, walk: Walk, lightest: IntArray, count: IntArray) -> int:
        """Of these runs of equal weight the one with the fewest CPUs that is enough, else the one with the most."""
        needed = walk.rem_nodes + walk.min_nodes - walk.req_nodes if walk.req_nodes > walk.min_nodes else walk.rem_nodes
        cpus = self.cpus[lightest]
        enough = (cpus >= walk.rem_cpus) & (count[lightest] >= needed)
        if walk.per_job and enough.any():
            for i in np.flatnonzero(enough):
                r = lightest[i]
                enough[i] = walk.sufficient_gres([int(d[self.end[r]] - d[self.begin[r]]) for d in self._devices])
        if not enough.any():
            return int(lightest[cpus.argmax()])
        self.repeats = False
        if enough.all():
            return int(lightest[cpus.argmin()])
        best, best_cpus, best_enough = 0, int(cpus[0]), bool(enough[0])
        for k, (its, its_enough) in enumerate(zip(cpus.tolist(), enough.tolist())):
            if (its_enough and (not best_enough or its < best_cpus)) or (not its_enough and its > best_cpus):
                best, best_cpus, best_enough = k, its, its_enough
        return int(lightest[best])

    def _fill(self, walk: Walk, begin: int, end: int) -> None:
        """Takes nodes of the run in order, or the one that alone is enough where one is enough."""
        order = range(begin, end)
        if walk.rem_nodes <= 1:
            single = self._single(walk, begin, end)
            if single is not None:
                order = range(single, single + 1)
        for k in order:
            if walk.max_nodes == 0 or walk.satisfied():
                return
            if walk.max_nodes == 1 and self.node_cpus[k] < walk.rem_cpus:
                continue
            walk.take_offer(int(self.at[k]), self.given, int(self.index[k]))

    def _single(self, walk: Walk, begin: int, end: int) -> int | None:
        """The smallest node of the run that alone provides all that is missing."""
        cpus = self.node_cpus[begin:end]
        enough = cpus >= walk.rem_cpus
        if walk.per_job:
            enough &= np.array([walk.sufficient_gres([int(d[self.index[k]]) for d in self.given.devices])
                                for k in range(begin, end)], dtype=np.bool_)
        if not enough.any():
            return None
        fitting = np.flatnonzero(enough)
        return begin + int(fitting[cpus[fitting].argmin()])
