"""The head's hold on the step daemons of the run's other nodes: they live as long as these connections."""
from __future__ import annotations

import asyncio

from slurmbridge.runtime import addresses, frames
from slurmbridge.runtime.order import RunOrder

JOIN_TIMEOUT_S = 30.0


class PeerLost(ConnectionError):
    """A node's step daemon cannot be had. ``node`` is its name."""

    def __init__(self, node: str, text: str) -> None:
        super().__init__(text)
        self.node = node


class Peers:
    """Connections to nodes 1…n-1 of the run."""

    def __init__(self, order: RunOrder) -> None:
        self._order = order
        self._links: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    @property
    def none(self) -> bool:
        return not self._links

    async def join(self) -> None:
        """Returns when the gang is whole. Raises PeerLost."""
        for node in self._order.nodes[1:]:
            try:
                reader, writer = await asyncio.wait_for(addresses.connect(node.address), JOIN_TIMEOUT_S)
                self._links.append((reader, writer))
                join = {"credential": self._order.credential, "op": "join"}
                await frames.send(writer, frames.encode_json(b"K", join))
                answer = await asyncio.wait_for(frames.read_frame(reader), JOIN_TIMEOUT_S)
            except (OSError, TimeoutError) as error:
                raise PeerLost(node.name, f"step daemon of {node.name}: {error or 'no answer'}") from None
            if answer is None or not frames.decode_json(answer[1]).get("ok"):
                raise PeerLost(node.name, f"step daemon of {node.name} did not join")

    async def end(self) -> None:
        """Every peer ends all that is left on its node and goes; returns when they have said so or are gone."""
        async def end_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await frames.send(writer, frames.encode_json(b"K", {"op": "end"}))
                await frames.read_frame(reader)
            except ConnectionError:
                return
            finally:
                writer.close()
        links, self._links = self._links, []
        await asyncio.gather(*(end_one(reader, writer) for reader, writer in links))
