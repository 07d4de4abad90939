"""Runs of consecutive nodes as arrays, for the usual job: none of its nodes is named and they need not be adjacent.

The choice is that of ``runs``; arrays make it quick enough for the thousands of tests of a backfill pass, and a node
can be taken out between attempts without building everything anew.
"""
from __future__ import annotations

import numpy as np

from slurmbridge.scheduling.columns import BoolArray, IntArray
from slurmbridge.scheduling.walk import Walk


class PlainRuns:
    """Run ``r`` holds the nodes ``at[begin[r]:end[r]]`` (positions in the fit), ``cpus[r]`` CPUs together."""

    def __init__(self, walk: Walk, mask: BoolArray) -> None:
        at = np.flatnonzero(mask)
        self.given = walk.offer(at)
        self.index: IntArray = np.flatnonzero(self.given.cpus > 0)     # into ``given``
        self.at: IntArray = at[self.index]
        self.node_cpus: IntArray = self.given.cpus[self.index]
        weight = walk.weight[self.at]
        cut = (np.diff(walk.fit.nodes[self.at]) != 1) | (np.diff(weight) != 0)
        bounds = np.concatenate([[0], np.flatnonzero(cut) + 1, [len(self.at)]]) if len(self.at) else np.zeros(1, int)
        self.begin, self.end = bounds[:-1].astype(np.int64), bounds[1:].astype(np.int64)
        self.weight: IntArray = weight[self.begin]
        self._sum = np.concatenate([[0], np.cumsum(self.node_cpus)])
        self.cpus: IntArray = self._sum[self.end] - self._sum[self.begin]
        self._devices = [np.concatenate([[0], np.cumsum(d[self.index])]) for d in self.given.devices]
        self._sorted = np.sort(self.node_cpus)
        self._most = self._best_sums()

    def _best_sums(self) -> IntArray:
        """CPUs of the k best nodes together."""
        sums: IntArray = np.concatenate([[0], np.cumsum(self._sorted[::-1])])
        return sums

    def drop(self, position: int) -> None:
        """Takes a node out: its run falls into what is before and what is after it."""
        k = int(np.searchsorted(self.at, position))
        if k >= len(self.at) or self.at[k] != position:
            return
        r = int(np.searchsorted(self.begin, k, side="right")) - 1
        begin, end = int(self.begin[r]), int(self.end[r])
        parts = [(b, e) for b, e in ((begin, k), (k + 1, end)) if b < e]
        weight = self.weight[r]
        self.begin = np.concatenate([self.begin[:r], [b for b, _ in parts], self.begin[r + 1:]]).astype(np.int64)
        self.end = np.concatenate([self.end[:r], [e for _, e in parts], self.end[r + 1:]]).astype(np.int64)
        self.weight = np.concatenate([self.weight[:r], [weight] * len(parts), self.weight[r + 1:]]).astype(np.int64)
        self.cpus = self._sum[self.end] - self._sum[self.begin]
        self._sorted = np.delete(self._sorted, int(np.searchsorted(self._sorted, self.node_cpus[k])))
        self._most = self._best_sums()

    def choose(self, walk: Walk) -> bool:
        """Fills the job, best run first; False when the nodes do not come together."""
        weight = self.weight.astype(np.float64)
        count = self.end - self.begin
        left = len(weight)
        while left and walk.max_nodes > 0 and self.may_suffice(walk.max_nodes, walk.rem_cpus):
            best = self._best(walk, weight, count)
            self._fill(walk, int(self.begin[best]), int(self.end[best]))
            if walk.satisfied():
                return True
            weight[best] = np.inf
            left -= 1
        return walk.finished()

    def may_suffice(self, nodes: int, cpus: int) -> bool:
        """Whether the best nodes together have that many CPUs."""
        return bool(self._most[min(nodes, len(self._most) - 1)] >= cpus)

    def _best(self, walk: Walk, weight: np.ndarray[tuple[int, ...], np.dtype[np.float64]], count: IntArray) -> int:
        """The lightest run; among equals the one with the fewest CPUs that is enough, else the one with the most."""
        needed = walk.rem_nodes + walk.min_nodes - walk.req_nodes if walk.req_nodes > walk.min_nodes else walk.rem_nodes
        lightest = np.flatnonzero(weight == weight.min())
        cpus = self.cpus[lightest]
        enough = (cpus >= walk.rem_cpus) & (count[lightest] >= needed)
        if walk.per_job and enough.any():
            for i in np.flatnonzero(enough):
                r = lightest[i]
                enough[i] = walk.sufficient_gres([int(d[self.end[r]] - d[self.begin[r]]) for d in self._devices])
        if not enough.any():
            return int(lightest[cpus.argmax()])
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
