"""The key-value space that all tasks of one MPI program share, at the step daemon that has its srun in hand.

Each node's PMI server (pmi) sends what its tasks put; when all have, everybody is told everything.
"""
from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slurmbridge.runtime.links import BranchLink
    from slurmbridge.runtime.step import RunningStep



def process_mapping(nodes_of_ranks: Sequence[int]) -> str:
    """PMI_process_mapping of tasks whose nodes these are, by rank: ``(vector,(first node,nodes,tasks each),…)``."""
    blocks: list[list[int]] = []              # first node, nodes, tasks on each
    for node, group in groupby(nodes_of_ranks):
        count = len(list(group))
        if blocks and blocks[-1][2] == count and blocks[-1][0] + blocks[-1][1] == node:
            blocks[-1][1] += 1
        else:
            blocks.append([node, 1, count])
    return "(vector," + ",".join(f"({first},{nodes},{count})" for first, nodes, count in blocks) + ")"


class World:
    """One srun's tasks, of all its components. ``name``: ``JOB.STEP``; ``ranks_of``: each node's ranks, by its name."""

    def __init__(self, mpi: str, name: str, ranks_of: dict[str, list[int]]) -> None:
        self._nodes = list(ranks_of)
        node_of = {rank: index for index, ranks in enumerate(ranks_of.values()) for rank in ranks}
        self._facts: dict[str, Any] = {"kind": mpi, "jobid": name, "size": len(node_of)}
        if mpi == "pmix":
            self._facts |= {"nspace": name, "nodes": self._nodes, "ranks_of": list(ranks_of.values())}
        else:
            self._facts["mapping"] = process_mapping([node_of[rank] for rank in sorted(node_of)])
        self._steps: list[RunningStep] = []
        self._inside = 0                      # nodes that wait in a fence
        self._pairs: dict[str, str] = {}
        self._ports: dict[str, str] = {}

    def join(self, step: RunningStep) -> None:
        self._steps.append(step)
        step.world = self

    def facts(self, node: str, local_tasks: int) -> dict[str, Any]:
        """What a node's server is made of."""
        return {**self._facts, "node": self._nodes.index(node), "local_tasks": local_tasks}

    def take(self, link: BranchLink, node: str, message: dict[str, Any]) -> None:
        """A message of a node's server, which came by ``link``."""
        op = message.get("op")
        if op == "fence":
            self._inside += 1
            self._pairs.update(message["pairs"])
            if self._inside >= sum(len(step.plan.shares) for step in self._steps):
                self._inside, pairs, self._pairs = 0, self._pairs, {}
                for each in [link for step in self._steps for link in step.links]:
                    each.order({"op": "pmi", "message": {"op": "fence", "pairs": pairs}})
        elif op == "abort":
            for step in self._steps:
                step.mpi_abort()
        elif op in ("publish", "unpublish", "lookup"):
            link.order({"op": "pmi", "node": node, "message": {"id": message["id"], "port": self._port(op, message)}})

    def _port(self, op: str, message: dict[str, Any]) -> str | None:
        """None: that name is unknown, or taken."""
        name, port = str(message["name"]), str(message["port"])
        if op == "publish":
            return port if self._ports.setdefault(name, port) == port else None
        return self._ports.pop(name, None) if op == "unpublish" else self._ports.get(name)


def share_world(job_id: int, step_id: str, steps: Sequence[RunningStep], mpi: str) -> None:
    """Gives the steps of one srun their world, where PMI or PMIx is asked for."""
    if mpi == "none":
        return
    ranks_of: dict[str, list[int]] = {}
    for step in steps:
        for share in step.plan.shares:
            ranks_of.setdefault(share.name, []).extend(step.place.first_task + rank for rank in share.tasks)
    world = World(mpi, f"{job_id}.{step_id.partition('+')[0]}", ranks_of)
    for step in steps:
        world.join(step)
