"""The standard streams of one task: pipes read line by line towards the head, and fed without ever blocking."""
from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Callable

from slurmbridge.runtime import frames
from slurmbridge.runtime.stepfiles import label, write_all

CHUNK = 64 << 10
LONGEST_LINE = 64 << 10
"""A line without end is sent in pieces of this size."""
HIGH_WATER = 1 << 20
"""Bytes waiting for the head above which a task's output is left in its pipe."""


class Output:
    """Reads ``fd`` (and owns it) until its end; ``finished`` is then resolved.

    ``lines``: only whole lines are sent, so that the lines of several tasks do not mix.
    """

    def __init__(self, writer: asyncio.StreamWriter, rank: int, stream: int, fd: int, *, lines: bool) -> None:
        self._loop = asyncio.get_running_loop()
        self._writer, self._header = writer, frames.RANK_STREAM.pack(rank, stream)
        self._fd, self._lines, self._rest = fd, lines, b""
        self._draining: asyncio.Task[None] | None = None
        self.finished: asyncio.Future[None] = self._loop.create_future()
        os.set_blocking(fd, False)
        self._loop.add_reader(fd, self._readable)

    def _readable(self) -> None:
        try:
            data = os.read(self._fd, CHUNK)
        except BlockingIOError:
            return
        except OSError:                       # the last holder of a terminal is gone
            data = b""
        if not data:
            if self._rest:
                self._send(self._rest)
            self.abandon()
            return
        if self._lines:
            data = self._rest + data
            end = data.rfind(b"\n") + 1 or (len(data) if len(data) >= LONGEST_LINE else 0)
            data, self._rest = data[:end], data[end:]
        if data:
            self._send(data)
        if self._writer.transport.get_write_buffer_size() > HIGH_WATER and self._draining is None:
            self._loop.remove_reader(self._fd)
            self._draining = self._loop.create_task(self._drain())

    def _send(self, data: bytes) -> None:
        self._writer.write(frames.encode(b"o", self._header + data))

    async def _drain(self) -> None:
        with contextlib.suppress(ConnectionError):
            await self._writer.drain()
        self._draining = None
        if not self.finished.done():
            self._loop.add_reader(self._fd, self._readable)

    def abandon(self) -> None:
        if not self.finished.done():
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self.finished.set_result(None)


class LabelledFile(Output):
    """Writes what it reads into ``file_fd`` (owned), each line behind the task's number."""

    def __init__(self, writer: asyncio.StreamWriter, rank: int, fd: int, file_fd: int, width: int) -> None:
        super().__init__(writer, rank, 1, fd, lines=True)
        self._rank, self._file_fd, self._width = rank, file_fd, width

    def _send(self, data: bytes) -> None:
        with contextlib.suppress(OSError):    # as for a task that writes itself: what the disk does not take is lost
            write_all(self._file_fd, label(data, self._rank, self._width))

    def abandon(self) -> None:
        if not self.finished.done():
            os.close(self._file_fd)
        super().abandon()


class StdinPipe:
    """The writing end of a task's standard input (owned). ``consumed`` is told how many bytes are out of the way."""

    def __init__(self, fd: int, consumed: Callable[[int], None], *, is_terminal: bool = False) -> None:
        self._loop = asyncio.get_running_loop()
        self._fd, self._consumed, self._is_terminal = fd, consumed, is_terminal
        self._waiting: deque[bytes] = deque()
        self._writing = self._ending = self._closed = False
        os.set_blocking(fd, False)

    def feed(self, data: bytes) -> None:
        if self._closed:
            self._consumed(len(data))
            return
        self._waiting.append(data)
        self._write()

    def finish(self) -> None:
        """End of file after what is waiting (on a terminal: its end-of-file character)."""
        if self._is_terminal:
            self.feed(b"\x04")
            return
        self._ending = True
        self._write()

    def _write(self) -> None:
        while self._waiting and not self._closed:
            data = self._waiting[0]
            try:
                count = os.write(self._fd, data)
            except BlockingIOError:
                if not self._writing:
                    self._writing = True
                    self._loop.add_writer(self._fd, self._write)
                return
            except OSError:                   # nobody reads any more
                self.close()
                return
            self._consumed(count)
            if count < len(data):
                self._waiting[0] = data[count:]
            else:
                self._waiting.popleft()
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._fd)
        if self._ending:
            self.close()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._writing:
            self._loop.remove_writer(self._fd)
        os.close(self._fd)
        left = sum(map(len, self._waiting))
        self._waiting.clear()
        if left:
            self._consumed(left)
