"""The fan-out of a step: each keeper starts the first keepers of up to TreeWidth branches below it, and so on.

What goes down is for every node of a branch. What comes up passes through unchanged, but for the two replies that
every node gives (``started`` and ``gone``), which a keeper gives for its whole branch once.
"""
from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from typing import Any, TypeVar

from slurmbridge.runtime import addresses, frames

DEFAULT_WIDTH = 16
T = TypeVar("T")
Node = dict[str, Any]
"""One node of a step's request: see launch.node_requests."""
Group = Sequence[Node]
"""Nodes that one keeper keeps."""
Take = Callable[[bytes, bytes], Awaitable[None]]
"""Gets a frame's kind and payload (``o`` and ``e``)."""


def branches(items: Sequence[T], width: int) -> list[Sequence[T]]:
    """At most ``width`` runs of neighbours, as equal as can be."""
    count = min(max(width, 1), len(items))
    cuts = [len(items) * index // count for index in range(count + 1)] if count else [0]
    return [items[start:end] for start, end in pairwise(cuts)]


class Branch:
    """The connection to the keeper of ``groups[0]``, which stands for all of ``groups``.

    ``started`` and ``gone`` are resolved once all of them have started, or are gone; a branch that is lost is both, and
    ``take`` has had an event ``lost`` with the ranks that were left.
    """

    def __init__(self, request: dict[str, Any], groups: Sequence[Group], take: Take) -> None:
        loop = asyncio.get_running_loop()
        self.nodes = [node for group in groups for node in group]
        self.started: asyncio.Future[list[int]] = loop.create_future()
        self.gone: asyncio.Future[dict[str, float]] = loop.create_future()
        self.asked: asyncio.Future[None] = loop.create_future()
        self._request, self._take = {**request, "groups": groups}, take
        self._writer: asyncio.StreamWriter | None = None
        self._is_ready = False
        self._waiting: list[bytes] = []       # frames for a keeper that is not there yet
        self._left = {int(task["rank"]) for node in self.nodes for task in node["tasks"]}

    async def run(self) -> None:
        """Until all of the branch is gone, or its first keeper is lost."""
        usage: dict[str, float] | None = None
        try:
            reader, self._writer = await addresses.connect(self.nodes[0]["address"])
            await frames.send(self._writer, frames.encode_json(b"L", self._request))
            self._settle(self.asked, None)
            while usage is None and (frame := await frames.read_frame(reader)) is not None:
                usage = await self._took(*frame)
        except OSError:
            pass
        finally:
            self.close()
            self._settle(self.asked, None)
        if self._left:
            await self._take(b"e", frames.json_bytes({
                "event": "lost", "node": self.nodes[0]["node"], "ranks": sorted(self._left)}))
            self._left.clear()
        self._settle(self.started, [])
        self._settle(self.gone, usage or {})

    async def _took(self, kind: bytes, payload: bytes) -> dict[str, float] | None:
        """The usage of what nobody waited for, when that was the last frame."""
        if kind == b"e":
            event = frames.decode_json(payload)
            name = event.get("event")
            if name == "ready":
                self._is_ready = True
                for frame in self._waiting:
                    self.send(frame)
                self._waiting.clear()
                return None
            if name == "started":
                self._settle(self.started, event["ranks"])
                return None
            if name == "gone":
                return dict(event["usage"])
            if name in ("exited", "failed", "lost"):
                self._left -= set(event["ranks"])
        await self._take(kind, payload)
        return None

    @staticmethod
    def _settle(future: asyncio.Future[Any], value: Any) -> None:
        if not future.done():
            future.set_result(value)

    def send(self, frame: bytes) -> None:
        """To every node of the branch; nothing where it is gone."""
        if not self._is_ready:
            self._waiting.append(frame)
        elif self._writer is not None:
            with contextlib.suppress(ConnectionError):
                self._writer.write(frame)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class Relay:
    """What a keeper has to do with the branches below it. ``up``: towards the head."""

    def __init__(self, request: dict[str, Any], groups: Sequence[Group], up: asyncio.StreamWriter) -> None:
        self._up = up
        self._branches = [Branch(request, some, self._pass_up) for some in branches(groups, int(request["width"]))]
        self._runs = [asyncio.get_running_loop().create_task(branch.run()) for branch in self._branches]

    async def asked(self) -> None:
        """Until every branch has been asked to start."""
        for branch in self._branches:
            await branch.asked

    async def started(self) -> list[int]:
        """The ranks that were started below here."""
        return [rank for branch in self._branches for rank in await branch.started]

    async def gone(self) -> list[dict[str, float]]:
        """What orphans used on each branch, once nothing is left below here."""
        return [await branch.gone for branch in self._branches]

    async def _pass_up(self, kind: bytes, payload: bytes) -> None:
        with contextlib.suppress(ConnectionError):
            await frames.send(self._up, frames.encode(kind, payload))

    def pass_down(self, kind: bytes, payload: bytes) -> None:
        for branch in self._branches:
            branch.send(frames.encode(kind, payload))

    def cut(self) -> None:
        """The head is gone: all below ends."""
        for branch in self._branches:
            branch.close()
