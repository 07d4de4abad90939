"""A step's standard input on its way to the tasks: from srun, or from a file, never faster than they read."""
from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable

from slurmbridge.runtime.client import START, STOP, Client

HIGH_BYTES, LOW_BYTES = 1 << 20, 256 << 10
CHUNK = 64 << 10


class StdinSource:
    """``fd`` is a file to read (owned), or None: ``client`` sends. ``feed`` takes pieces; an empty one is the end."""

    def __init__(self, fd: int | None, feed: Callable[[bytes], None], client: Client | None = None) -> None:
        self._fd, self._feed, self._client = fd, feed, client
        self._paused = self._ended = False
        self._resume = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._fd is not None:
            self._reading = asyncio.create_task(self._read(self._fd))

    async def _read(self, fd: int) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if self._paused:
                await self._resume.wait()
            try:
                data = os.read(fd, CHUNK)
            except BlockingIOError:
                ready = loop.create_future()
                loop.add_reader(fd, ready.set_result, None)
                try:
                    await ready
                finally:
                    loop.remove_reader(fd)
                continue
            except OSError:
                data = b""
            self._feed(data)
            if not data:
                return
            await asyncio.sleep(0)

    def received(self, data: bytes) -> None:
        """From the client."""
        if self._fd is None and not self._ended:
            self._ended = not data
            self._feed(data)

    def backlog(self, count: int) -> None:
        """So many bytes are not yet with the tasks."""
        if count > HIGH_BYTES and not self._paused:
            self._paused = True
            self._resume.clear()
            if self._client is not None:
                self._client.write_soon(b"I", STOP)
        elif count < LOW_BYTES and self._paused:
            self._paused = False
            self._resume.set()
            if self._client is not None:
                self._client.write_soon(b"I", START)

    def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        if self._fd is not None:
            with contextlib.suppress(OSError):
                os.close(self._fd)
            self._fd = None
