"""The head's view of one branch of a step's tree: what it says, what it is told, and what is under way to it."""
from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from slurmbridge.runtime import frames
from slurmbridge.runtime.tree import Branch, Group

if TYPE_CHECKING:
    from slurmbridge.runtime.step import RunningStep

LOOK_TIMEOUT_S = 2.0


class BranchLink:
    """``request`` and ``groups`` are launch.step_request's and launch.groups'."""

    def __init__(self, step: RunningStep, request: dict[str, Any], groups: Sequence[Group]) -> None:
        self.step = step
        self.unconsumed = 0                   # bytes of standard input under way, counted for each task
        self._branch = Branch(request, groups, self._take)
        self._looks: dict[str, dict[str, Any]] = {}            # by node
        self._looked: asyncio.Future[None] | None = None
        self._readers = [task["rank"] for node in self._branch.nodes for task in node["tasks"]
                         if task["stdin"] == "stream"]

    async def run(self) -> None:
        """Until everything of the step on these nodes is ended, or lost."""
        await self._branch.run()
        self.step.orphans_used(await self._branch.gone)

    async def ready(self) -> None:
        """Until all tasks of the branch were started, or never will be."""
        self.step.tasks_started(await self._branch.started)

    async def _take(self, kind: bytes, payload: bytes) -> None:
        if kind == b"o":
            rank, stream = frames.RANK_STREAM.unpack_from(payload)
            data = payload[frames.RANK_STREAM.size:]
            if data:
                await self.step.output(-1 if rank == frames.ALL_TASKS else rank, stream, data)
            return
        event = frames.decode_json(payload)
        name, node = event.get("event"), str(event.get("node"))
        if name == "exited":
            self.step.tasks_ended(node, event["ranks"], int(event["status"]),
                                  {int(rank): usage for rank, usage in event["usage"].items()})
        elif name == "consumed":
            self.unconsumed -= int(event["bytes"])
            self.step.stdin_backlog()
        elif name == "pmi" and self.step.world is not None:
            self.step.world.take(self, node, event["message"])
        elif name == "looked":
            self._looks[node] = event
            if self._looked is not None and not self._looked.done() and len(self._looks) == len(self._branch.nodes):
                self._looked.set_result(None)
        elif name == "failed":
            self.step.launch_failed(event["ranks"], str(event["message"]), int(event.get("error", 0)))
        elif name == "lost":
            self.step.keeper_lost(node, event["ranks"])

    async def look(self) -> dict[str, dict[str, Any]]:
        """By node: ``tasks`` (by rank) with what each has used up to now, and ``pids``; nothing of silent nodes."""
        if self._looked is None or self._looked.done():
            self._looks = {}
            self._looked = asyncio.get_running_loop().create_future()
            self.order({"op": "look"})
        await asyncio.wait([self._looked], timeout=LOOK_TIMEOUT_S)
        return self._looks

    def order(self, order: dict[str, Any]) -> None:
        """With ``node`` in it, for that node alone."""
        self._branch.send(frames.encode_json(b"K", order))

    def resize(self, payload: bytes) -> None:
        self._branch.send(frames.encode(b"Z", payload))

    def feed(self, data: bytes, only_task: int | None) -> None:
        """Standard input for every task that reads it, or for one."""
        readers = self._readers if only_task is None else [rank for rank in self._readers if rank == only_task]
        if not readers:
            return
        rank = frames.ALL_TASKS if only_task is None else only_task
        self.unconsumed += len(data) * len(readers)
        self._branch.send(frames.encode(b"n", frames.RANK.pack(rank) + data))
        self.step.stdin_backlog()
