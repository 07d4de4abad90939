"""One caller's connection as commands see it (``views.session.Session``): files, input, output, hand-over.

Every question to the client waits for its answer on this connection alone; a client that does not read its output
only stops its own command.
"""
from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from slurmbridge.api import frames
from slurmbridge.views.session import Acts, Identity, Invocation, Reply, Views

CHUNK = 256 << 10


class Wire(Protocol):
    """What the session needs of its connection."""

    async def send(self, data: bytes) -> None: ...
    async def ask(self, data: bytes) -> tuple[int, bytes]: ...
    async def read_input(self) -> bytes: ...
    async def read_line(self) -> bytes: ...
    @property
    def closed(self) -> asyncio.Event: ...


class ClientSession:
    """``views.session.Session`` over one connection of the command protocol."""

    __slots__ = ("_now", "_wire", "acts", "handed_over", "identity", "invocation", "views")

    def __init__(self, wire: Wire, identity: Identity, invocation: Invocation, views: Views, acts: Acts,
                 now) -> None:  # type: ignore[no-untyped-def]
        self._wire = wire
        self.identity = identity
        self.invocation = invocation
        self.views = views
        self.acts = acts
        self._now = now
        self.handed_over = False

    def now(self) -> float:
        return float(self._now())

    async def read_file(self, path: str, limit: int = 64 << 20) -> bytes:
        error, data = await self._wire.ask(frames.pack_read(path, min(limit, 64 << 20)))
        if error:
            raise OSError(error, os.strerror(error), path)
        return data

    async def write_file(self, path: str, data: bytes, mode: int = 0o666, exclusive: bool = False) -> None:
        error, _ = await self._wire.ask(frames.pack_write(path, data, mode, exclusive))
        if error:
            raise OSError(error, os.strerror(error), path)

    async def read_stdin(self) -> bytes:
        return await self._wire.read_input()

    async def read_line(self) -> bytes:
        return await self._wire.read_line()

    async def write_stdout(self, text: str) -> None:
        await self._write(b"O", text)

    async def write_stderr(self, text: str) -> None:
        await self._write(b"E", text)

    async def _write(self, kind: bytes, text: str) -> None:
        for frame in _cut(kind, text):
            await self._wire.send(frame)

    async def answer(self, reply: Reply) -> None:
        """The reply and the end: in one piece where it is short."""
        pieces = [*_cut(b"O", reply.stdout), *_cut(b"E", reply.stderr)]
        pieces[-1:] = [b"".join(pieces[-1:]) + frames.pack_exit(reply.exit_code)]
        for piece in pieces:
            await self._wire.send(piece)

    async def sleep(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._wire.closed.wait(), seconds)
        except TimeoutError:
            return
        raise ConnectionError("the caller has gone")

    async def hand_over(self, address: str, credential: str, env: Mapping[str, str], argv: Sequence[str]) -> int:
        self.handed_over = True
        await self._wire.send(frames.pack_json(b"G", {
            "address": address, "credential": credential, "argv": list(argv),
            "env": [f"{name}={value}" for name, value in env.items()]}))
        return 0

    async def run_local(self, argv: Sequence[str], env: Mapping[str, str]) -> int:
        status, _ = await self._wire.ask(frames.pack_json(b"C", {
            "argv": list(argv), "env": [f"{name}={value}" for name, value in env.items()]}))
        return status

    async def last_words(self, text: str | None) -> None:
        await self._wire.send(frames.pack(b"N", b"" if text is None else b"\1" + frames.encode(text)))

    async def kill_local(self, signal: int) -> None:
        await self._wire.send(frames.pack_number(b"K", signal))


def _cut(kind: bytes, text: str) -> Iterator[bytes]:
    data = frames.encode(text)
    for start in range(0, len(data), CHUNK):
        yield frames.pack(kind, data[start:start + CHUNK])
