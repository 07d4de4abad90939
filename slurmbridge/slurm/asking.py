"""Client logic that needs files: written as generators, so that one code serves plain calls, sessions and tests."""
from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import TypeVar

T = TypeVar("T")
Asking = Generator["str | None", "bytes | OSError", T]
"""Yields a path (None: standard input), receives its content or the error, returns T."""


def run(asking: Asking[T], read_file: Callable[[str], bytes], read_stdin: Callable[[], bytes] | None = None) -> T:
    """Drives a generator with plain functions; read_file raises OSError."""
    answer: bytes | OSError
    try:
        wanted = next(asking)
        while True:
            try:
                answer = (read_stdin or bytes)() if wanted is None else read_file(wanted)
            except OSError as error:
                answer = error
            wanted = asking.send(answer)
    except StopIteration as stop:
        result: T = stop.value
        return result


async def run_async(asking: Asking[T], read_file: Callable[[str], Awaitable[bytes]],
                    read_stdin: Callable[[], Awaitable[bytes]]) -> T:
    """The same for a session's coroutines."""
    answer: bytes | OSError
    try:
        wanted = next(asking)
        while True:
            try:
                answer = await (read_stdin() if wanted is None else read_file(wanted))
            except OSError as error:
                answer = error
            wanted = asking.send(answer)
    except StopIteration as stop:
        result: T = stop.value
        return result
