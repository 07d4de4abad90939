"""From when on each node could serve a job, as running jobs end: a lower bound that spares the backfill pass tests.

A node changes only when one of its jobs ends. The states of all nodes after each such end are rows of one table, made
once per pass; a binary search over each node's rows, all nodes at once, finds the first in which it is of use: with so
many CPUs that the job could get enough from the nodes it may have at most. Whole-node holders, owners, per-partition
counts and what the pass starts are left out: they only make it later.
"""
from __future__ import annotations

import numpy as np

from slurmbridge.scheduling.columns import ClusterColumns
from slurmbridge.scheduling.demand import Question
from slurmbridge.scheduling.facts import FOREVER_S, NO_USER, IntArray
from slurmbridge.scheduling.fit import fit
from slurmbridge.scheduling.select import shareable
from slurmbridge.scheduling.use import Counts

NEVER_S = 4 * FOREVER_S


class Earliest:
    """``shares``: (job, node, MB, 0) columns; ``cells``: (job, node, socket, cores); ``devices``: (job, node, kind,
    count); ``end_s``: by job."""

    def __init__(self, columns: ClusterColumns, now: Counts, end_s: IntArray, shares: IntArray, cells: IntArray,
                 devices: IntArray) -> None:
        self.columns = columns
        count = len(columns)
        per_node = np.bincount(shares[1], minlength=count)
        order = np.lexsort((end_s[shares[0]], shares[1]))
        first = np.concatenate([[0], np.cumsum(per_node)[:-1]])
        self.base: IntArray = first + np.arange(count)                 # row of the state now
        self.last: IntArray = per_node.astype(np.int64)                # states after it
        rank = np.arange(len(order)) - first[shares[1][order]]
        row = np.empty(len(order), dtype=np.int64)
        row[order] = self.base[shares[1][order]] + rank + 1
        rows = len(order) + count
        self.end_s: IntArray = np.zeros(rows, dtype=np.int64)
        self.end_s[row] = end_s[shares[0]]
        key = shares[0] * count + shares[1]
        by_key = np.argsort(key)
        owner = np.repeat(np.arange(count), per_node + 1)

        def states(start: IntArray, where: IntArray, what: IntArray) -> IntArray:
            """Per row: the start value of the node and all that its jobs gave back until then."""
            given = np.cumsum(np.bincount(where, weights=what, minlength=rows).astype(np.int64))
            state: IntArray = start[owner] + given - given[self.base][owner]
            return state

        def rows_of(table: IntArray) -> IntArray:
            found = np.searchsorted(key[by_key], table[0] * count + table[1])
            held: IntArray = row[by_key[found]]
            return held

        self.mem: IntArray = states(now.mem_alloc_mb, row, -shares[2])
        self.jobs: IntArray = states(now.jobs, row, np.full(len(row), -1))
        cell_rows, device_rows = rows_of(cells), rows_of(devices)
        sockets = []
        for socket in range(now.socket_free.shape[1]):
            mine = cells[2] == socket
            sockets.append(states(now.socket_free[:, socket], cell_rows[mine], cells[3][mine]))
        self.socket_free: IntArray = np.stack(sockets, axis=1)
        self.gres = [states(free, device_rows[devices[2] == kind], devices[3][devices[2] == kind])
                     for kind, free in enumerate(now.gres_free)]
        self._known: dict[tuple[object, ...], IntArray] = {}

    def of(self, question: Question) -> IntArray:
        """Per node: epoch seconds from which the job may fit there (0: now; NEVER_S: not at all)."""
        key = (id(question.demand), question.features, question.whole, question.partition.name, question.min_cpus,
               question.num_tasks, question.job_min_nodes, question.max_nodes)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._search(question)
        return known

    def _search(self, question: Question) -> IntArray:
        demand = question.demand
        members = self.columns.partition_nodes[question.partition.name] & self.columns.up
        nodes: IntArray = np.flatnonzero(members & demand.feature_nodes(self.columns, question.features)[0])
        from_s = np.full(len(self.columns), NEVER_S, dtype=np.int64)
        most = self._cpus(question, nodes, self.last[nodes])
        least = max(1, question.min_cpus - (question.max_nodes - 1) * int(most.max(initial=0)))
        nodes = nodes[most >= least]
        now = self._cpus(question, nodes, np.zeros(len(nodes), dtype=np.int64)) >= least
        from_s[nodes[now]] = 0
        nodes = nodes[~now]
        low, high = np.zeros(len(nodes), dtype=np.int64), self.last[nodes]
        while (open_ := high - low > 1).any():
            middle = (low + high) // 2
            fits = self._cpus(question, nodes[open_], middle[open_]) >= least
            high[open_] = np.where(fits, middle[open_], high[open_])
            low[open_] = np.where(fits, low[open_], middle[open_])
        from_s[nodes] = self.end_s[self.base[nodes] + high]
        return from_s

    def _cpus(self, question: Question, nodes: IntArray, state: IntArray) -> IntArray:
        """CPUs that the job could use on each of the nodes in the given state of each (0: it does not fit)."""
        rows, count = self.base[nodes] + state, len(self.columns)

        def column(table: IntArray) -> IntArray:
            out = np.zeros((count, *table.shape[1:]), dtype=np.int64)
            out[nodes] = table[rows]
            return out

        none = np.zeros(count, dtype=np.bool_)
        counts = Counts(column(self.socket_free), column(self.mem), [column(table) for table in self.gres],
                        column(self.jobs), none, np.full(count, NO_USER), np.zeros(count, dtype=np.int64), none, {})
        mask = none.copy()
        mask[nodes] = True
        usable = shareable(question, mask, counts, ignore_required=True)
        assert usable is not None
        at = np.flatnonzero(usable)
        cpus = np.zeros(count, dtype=np.int64)
        cpus[at] = fit(question, counts, at, ever=False).cpus
        given: IntArray = cpus[nodes]
        return given
