"""Which nodes the backfill pass looks at for a job: those that could ever serve it, without those of other users."""
from __future__ import annotations

import numpy as np

from slurmbridge.scheduling import pick
from slurmbridge.scheduling.columns import ClusterColumns
from slurmbridge.scheduling.demand import Demand
from slurmbridge.scheduling.facts import NO_USER, BoolArray
from slurmbridge.scheduling.features import Feature
from slurmbridge.scheduling.future import Future
from slurmbridge.scheduling.shape import Shape
from slurmbridge.scheduling.state import PassState
from slurmbridge.scheduling.timeline import bits

Ground = tuple[BoolArray, int, int]
"""Nodes that a job may use at some time, as mask and bits, and those of them that could ever serve it."""


class Grounds:
    """Kept for a pass: jobs of one shape in one partition share theirs."""

    def __init__(self, state: PassState, future: Future) -> None:
        self.state, self.future = state, future
        self._known: dict[tuple[object, ...], Ground] = {}
        self._owned: tuple[int, bool] | None = None          # starts so far, and what _any_owner said then

    def of(self, demand: Demand, partition: str, features: tuple[Feature, ...]) -> Ground:
        key = (id(demand), partition, features)
        found = self._known.get(key)
        if found is None:
            columns = self.state.snapshot.cluster
            base = columns.partition_nodes[partition] & columns.up & demand.allowed
            base &= _with_memory(columns, demand.shape)
            serving, _ = pick.configured(self.state, demand, base & demand.feature_nodes(columns, features)[0])
            found = self._known[key] = base, bits(base), bits(serving)
        return found

    def without_owners(self, demand: Demand, partition: str, uid: int, nodes: BoolArray, least: int,
                       start_s: int) -> tuple[BoolArray, int, bool]:
        """Leaves out nodes that other users' exclusive jobs hold at ``start_s``. Returns the nodes, the last end among
        those left out (0: none), and whether too few remain, so that the start must wait for that end."""
        columns, future = self.state.snapshot.cluster, self.future
        alone = demand.whole_user or columns.partitions[partition].exclusive_user
        if not alone and not self._any_owner():
            return nodes, 0, False
        ends: dict[int, int] = {}
        for running in future.jobs:
            if running.uid != uid and running.end_s > start_s and (alone or running.whole_node == "user"):
                for share in running.shares:
                    i = columns.index[share.node]
                    ends[i] = max(ends.get(i, 0), running.end_s)
        nodes = nodes.copy()
        held_until_s = 0
        count = int(nodes.sum())
        for i, end_s in sorted(ends.items(), key=lambda item: -item[1]):
            if not nodes[i]:
                continue
            held_until_s = end_s
            if count <= least or (demand.required is not None and demand.required[i]):
                return nodes, held_until_s, True
            nodes[i] = False
            count -= 1
        return nodes, held_until_s, False

    def _any_owner(self) -> bool:
        """Whether any node is one user's alone, as far as the pass has started jobs."""
        known, starts = self._owned, len(self.future.starts)
        if known is None or known[0] != starts:
            known = self._owned = starts, bool((self.state.use.owner != NO_USER).any())
        return known[1]


def _with_memory(columns: ClusterColumns, shape: Shape) -> BoolArray:
    """Nodes with the memory of the job's least CPUs there, whether memory is given out or not."""
    need_mb = shape.mem_per_cpu_mb * shape.min_cpus_per_node if shape.mem_per_cpu_mb else 0
    enough: BoolArray = np.asarray(columns.mem_mb + columns.mem_spec_mb >= need_mb)
    return enough
