"""The other end of a command that runs inside the job: its output, its input and its signals (docs/protocol.md)."""
from __future__ import annotations

import asyncio
import contextlib

from slurmbridge.runtime import frames
from slurmbridge.slurm.option_values import Log

START, STOP, RAW = b"1", b"0", b"r"


class Client:
    """One connection, after its ``R`` frame."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._file: asyncio.Future[tuple[int, bytes]] | None = None

    async def frame(self) -> tuple[bytes, bytes] | None:
        return await frames.read_frame(self._reader)

    async def write(self, kind: bytes, data: bytes) -> None:
        """``O``, ``E`` or another frame; waits until the client keeps up. Silent when it has gone."""
        with contextlib.suppress(ConnectionError):
            await frames.send(self._writer, frames.encode(kind, data))

    def write_soon(self, kind: bytes, data: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(frames.encode(kind, data))

    def say(self, text: str) -> None:
        """A line of srun's own on its standard error."""
        self.write_soon(b"E", f"srun: {text}\n".encode(errors="surrogateescape"))

    def flush(self, log: Log) -> None:
        """What option parsing had to say."""
        if log.lines:
            self.write_soon(b"E", log.text.encode(errors="surrogateescape"))
            log.lines.clear()

    async def ask_file(self, path: str, limit: int) -> tuple[int, bytes]:
        """(errno or 0, content) of a file of the caller's. Somebody must read frames and pass ``D`` to ``answered``."""
        self._file = asyncio.get_running_loop().create_future()
        await self.write(b"F", limit.to_bytes(8, "big") + path.encode(errors="surrogateescape"))
        return await self._file

    async def read_answers(self) -> None:
        """Until the client closes, for commands that have nothing else to hear."""
        while (frame := await self.frame()) is not None:
            if frame[0] == b"D":
                self.answered(frame[1])

    def answered(self, payload: bytes) -> None:
        if self._file is not None and not self._file.done():
            self._file.set_result((int.from_bytes(payload[:4], "big"), payload[4:]))

    async def exit(self, code: int) -> None:
        await self.write(b"X", (code & 0xFFFFFFFF).to_bytes(4, "big"))
