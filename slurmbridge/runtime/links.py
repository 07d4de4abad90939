"""The head's connection to the keeper of one node of a step."""
from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from slurmbridge.runtime import addresses, frames
from slurmbridge.runtime.steptypes import StepShare

if TYPE_CHECKING:
    from slurmbridge.runtime.step import RunningStep

LOOK_TIMEOUT_S = 2.0


class KeeperLink:
    """``ready`` is resolved once the node's tasks were started, or never will be."""

    def __init__(self, step: RunningStep, share: StepShare, request: dict[str, Any]) -> None:
        self.step, self.share, self._request = step, share, request
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.unconsumed = 0                   # bytes of standard input under way, counted for each task
        self._looking: asyncio.Future[dict[str, Any]] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._waiting: list[bytes] = []       # frames for a keeper that is not there yet
        self._left = set(share.tasks)
        self._readers = [task["rank"] for task in request["tasks"] if task["stdin"] == "stream"]

    async def run(self) -> None:
        """Until the keeper has ended everything of the step on its node, or is lost."""
        node = self.step.order.nodes[self.share.node_index]
        writer = None
        try:
            reader, writer = await addresses.connect(node.address)
            await frames.send(writer, frames.encode_json(b"L", self._request))
            while (frame := await frames.read_frame(reader)) is not None:
                if await self._take(*frame, writer):
                    return
            self._lost()
        except (ConnectionError, OSError):
            self._lost()
        finally:
            self._writer = None
            self._set_ready()
            if writer is not None:
                writer.close()

    def _set_ready(self) -> None:
        if not self.ready.done():
            self.ready.set_result(None)

    def _lost(self) -> None:
        if self._left:
            self.step.keeper_lost(self.share.name, sorted(self._left))
            self._left.clear()

    async def _take(self, kind: bytes, payload: bytes, writer: asyncio.StreamWriter) -> bool:
        """Whether it was the last frame."""
        if kind == b"o":
            rank, stream = frames.RANK_STREAM.unpack_from(payload)
            data = payload[frames.RANK_STREAM.size:]
            if data:
                await self.step.output(-1 if rank == frames.ALL_TASKS else rank, stream, data)
            return False
        event = frames.decode_json(payload)
        name = event.get("event")
        if name == "ready":
            self._writer = writer
            for frame in self._waiting:
                writer.write(frame)
            self._waiting.clear()
        elif name == "started":
            self.step.tasks_started([int(rank) for rank in event["pids"]])
            self._set_ready()
        elif name == "exited":
            ranks = [int(rank) for rank in event["ranks"]]
            self._left -= set(ranks)
            self.step.tasks_ended(self.share.name, ranks, int(event["status"]),
                                     {int(rank): usage for rank, usage in event["usage"].items()})
        elif name == "consumed":
            self.unconsumed -= int(event["bytes"])
            self.step.stdin_backlog()
        elif name == "pmi" and self.step.world is not None:
            self.step.world.take(self, event["message"])
        elif name == "looked":
            if self._looking is not None and not self._looking.done():
                self._looking.set_result(event)
        elif name == "failed":
            self.step.launch_failed(sorted(self._left), str(event["message"]))
            self._left.clear()
        elif name == "gone":
            self.step.orphans_used(event["usage"])
            self._lost()
            return True
        return False

    def _send(self, frame: bytes) -> None:
        if self._writer is not None:
            with contextlib.suppress(ConnectionError):
                self._writer.write(frame)
        elif not self.ready.done():
            self._waiting.append(frame)

    async def look(self) -> dict[str, Any]:
        """``tasks`` (by rank) with what each has used up to now, and ``pids``; nothing where the keeper is silent."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_future()
            self.order({"op": "look"})
        try:
            return await asyncio.wait_for(asyncio.shield(self._looking), LOOK_TIMEOUT_S)
        except TimeoutError:
            return {"tasks": {}, "pids": []}

    def order(self, order: dict[str, Any]) -> None:
        self._send(frames.encode_json(b"K", order))

    def resize(self, payload: bytes) -> None:
        self._send(frames.encode(b"Z", payload))

    def feed(self, data: bytes, only_task: int | None) -> None:
        """Standard input for every task that reads it, or for one."""
        readers = self._readers if only_task is None else [rank for rank in self._readers if rank == only_task]
        if not readers:
            return
        rank = frames.ALL_TASKS if only_task is None else only_task
        self.unconsumed += len(data) * len(readers)
        self._send(frames.encode(b"n", frames.RANK.pack(rank) + data))
        self.step.stdin_backlog()
