"""The tree of switches as columns: which nodes are below each switch, and how far switches are from one another."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from slurmbridge.scheduling.facts import BoolArray, IntArray
from slurmbridge.slurm.topology import NO_PARENT, Switch

APART = 1 << 30
"""Distance of switches that no cable joins."""


@dataclass(frozen=True, slots=True)
class SwitchTree:
    """``nodes``: (switches, nodes of the cluster); ``distance``: cables between two switches."""

    names: tuple[str, ...]
    level: tuple[int, ...]
    parent: tuple[int, ...]
    nodes: BoolArray
    distance: IntArray

    def leaves_of(self, nodes: BoolArray) -> int:
        """On how many leaf switches the nodes are."""
        leaf = np.array(self.level) == 0
        return int((self.nodes[leaf] & nodes).any(axis=1).sum())

    def up(self, switch: int) -> list[int]:
        """The switch and those above it."""
        found = []
        while switch != NO_PARENT:
            found.append(switch)
            switch = self.parent[switch]
        return found


def switch_tree(switches: Sequence[Switch], index: Mapping[str, int]) -> SwitchTree | None:
    """``index``: node name -> number. None without switches."""
    if not switches:
        return None
    count = len(switches)
    nodes = np.zeros((count, len(index)), dtype=np.bool_)
    for at, one in enumerate(switches):
        nodes[at, [index[name] for name in one.nodes if name in index]] = True
    distance = np.full((count, count), APART, dtype=np.int64)
    np.fill_diagonal(distance, 0)
    for at, one in enumerate(switches):
        for child in one.children:
            distance[at, child] = distance[child, at] = 1
    for middle in range(count):
        distance = np.minimum(distance, distance[:, middle, None] + distance[None, middle])
    return SwitchTree(tuple(one.name for one in switches), tuple(one.level for one in switches),
                      tuple(one.parent for one in switches), nodes, np.minimum(distance, APART))
