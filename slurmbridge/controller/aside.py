"""Long computations beside the event loop: in a forked child, on the memory as it is at this moment.

A backfill pass over a long queue takes about a second. Meanwhile commands are answered and jobs end, so its snapshot
must not move; a child sees a frozen copy of all columns for the price of a page table, and uses another core. The
answer comes back over a pipe. What changed in between is the caller's to check.
"""
from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import pickle
import signal
import sys
from collections.abc import Callable
from typing import Any

CHUNK = 1 << 20


class AsideError(Exception):
    """The child ended without an answer; ``str()`` says what it met."""


async def compute(work: Callable[[], Any]) -> Any:
    """What ``work()`` returns (it must be picklable), computed in a child. Raises AsideError, or OSError where no child
    can be had. A cancelled caller ends the child."""
    reading, writing = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        os.close(reading)
        os.close(writing)
        raise
    if pid == 0:
        _child(work, writing)
    os.close(writing)
    try:
        answer = await _read_all(reading)
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        raise
    finally:
        os.close(reading)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
    if not answer:
        raise AsideError("the child process ended early")
    good, value = pickle.loads(answer)
    if not good:
        raise AsideError(value)
    return value


async def _read_all(reading: int) -> bytes:
    loop = asyncio.get_running_loop()
    os.set_blocking(reading, False)
    ended: asyncio.Future[None] = loop.create_future()
    parts: list[bytes] = []

    def more() -> None:
        try:
            data = os.read(reading, CHUNK)
        except BlockingIOError:
            return
        if data:
            parts.append(data)
        elif not ended.done():
            ended.set_result(None)

    loop.add_reader(reading, more)
    try:
        await ended
    finally:
        loop.remove_reader(reading)
    return b"".join(parts)


def _child(work: Callable[[], Any], writing: int) -> None:
    """Never returns. Lets go of everything that is the parent's: sockets, files and locks stay the parent's alone."""
    try:
        gc.disable()                          # a collection would touch, and so copy, every page
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        os.closerange(3, writing)
        os.closerange(writing + 1, os.sysconf("SC_OPEN_MAX"))
        try:
            answer = pickle.dumps((True, work()), pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            answer = pickle.dumps((False, f"{type(error).__name__}: {error}"))
        view = memoryview(answer)
        while view:
            view = view[os.write(writing, view):]
    finally:
        sys.stderr.flush()
        os._exit(0)
