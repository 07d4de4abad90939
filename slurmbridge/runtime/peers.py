"""The head's hold on the step daemons of the run's other nodes: they live as long as these connections. And what the
first component of a heterogeneous job waits for: the gangs of the others."""
from __future__ import annotations

import asyncio
from collections.abc import Callable

from slurmbridge.runtime import addresses, frames
from slurmbridge.runtime.order import NodeShare, RunOrder

JOIN_TIMEOUT_S = 30.0
RETRY_S = 0.1


class PeerLost(ConnectionError):
    """A node's step daemon cannot be had. ``node`` is its name."""

    def __init__(self, node: str, text: str) -> None:
        super().__init__(text)
        self.node = node


async def components_whole(order: RunOrder, timeout_s: float = JOIN_TIMEOUT_S) -> None:
    """Returns when the gang of every other component is whole. Raises PeerLost for one that does not come to be."""
    await asyncio.gather(*(_component_whole(number, address, credential, timeout_s)
                           for number, (address, credential) in enumerate(order.het_heads)
                           if number != order.het_offset))


async def _component_whole(number: int, address: str, credential: str, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                try:
                    reader, writer = await addresses.connect(address)
                    break
                except OSError:               # its daemon has not been started yet
                    await asyncio.sleep(RETRY_S)
            try:
                await frames.send(writer, frames.encode_json(b"K", {"credential": credential, "op": "whole"}))
                answer = await frames.read_frame(reader)
            finally:
                writer.close()
    except (OSError, TimeoutError) as error:
        raise PeerLost("", f"component {number}: {error or 'no answer'}") from None
    if answer is None or not frames.decode_json(answer[1]).get("ok"):
        raise PeerLost("", f"component {number} did not start")


class Peers:
    """Connections to nodes 1…n-1 of the run."""

    def __init__(self, order: RunOrder) -> None:
        self._order = order
        self._links: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._watches: list[asyncio.Task[None]] = []
        self._ending = False

    @property
    def none(self) -> bool:
        return not self._links

    async def join(self, retry_s: float = 0.0) -> None:
        """Returns when the gang is whole. A daemon that does not listen yet is tried again for ``retry_s``.

        Raises PeerLost.
        """
        joining = [asyncio.create_task(self._join(node, retry_s)) for node in self._order.nodes[1:]]
        try:
            self._links = list(await asyncio.gather(*joining))
        except PeerLost:
            for task in joining:
                task.cancel()
            ended = await asyncio.gather(*joining, return_exceptions=True)
            self._links = [link for link in ended if not isinstance(link, BaseException)]
            raise

    async def _join(self, node: NodeShare, retry_s: float) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        loop = asyncio.get_running_loop()
        until = loop.time() + retry_s
        try:
            while True:
                try:
                    reader, writer = await asyncio.wait_for(addresses.connect(node.address), JOIN_TIMEOUT_S)
                    break
                except OSError:
                    if loop.time() >= until:
                        raise
                    await asyncio.sleep(RETRY_S)
            join = {"credential": self._order.credential, "op": "join"}
            await frames.send(writer, frames.encode_json(b"K", join))
            answer = await asyncio.wait_for(frames.read_frame(reader), JOIN_TIMEOUT_S)
        except (OSError, TimeoutError) as error:
            raise PeerLost(node.name, f"step daemon of {node.name}: {error or 'no answer'}") from None
        if answer is None or not frames.decode_json(answer[1]).get("ok"):
            writer.close()
            raise PeerLost(node.name, f"step daemon of {node.name} did not join")
        return reader, writer

    def watch(self, lost: Callable[[str], None]) -> None:
        """Calls ``lost`` with the name of a node whose step daemon goes before it is told to."""
        async def watch_one(reader: asyncio.StreamReader, node: str) -> None:
            if await frames.read_frame(reader) is None and not self._ending:
                lost(node)
        self._watches = [asyncio.create_task(watch_one(reader, node.name))
                         for (reader, _), node in zip(self._links, self._order.nodes[1:])]

    async def end(self) -> None:
        """Every peer ends all that is left on its node and goes; returns when they have said so or are gone."""
        self._ending = True
        for _, writer in self._links:
            try:
                await frames.send(writer, frames.encode_json(b"K", {"op": "end"}))
            except ConnectionError:
                continue
        if self._watches:
            await asyncio.wait(self._watches)
        for _, writer in self._links:
            writer.close()
        self._links = []
