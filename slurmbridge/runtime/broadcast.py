"""Copying a file to the nodes of a job: sbcast(1), and srun --bcast.

The file goes from the head's daemon to the daemon of every node, which writes it with the user's rights. Nodes that are
one machine (the local engine's) are told from each other by where the file would lie, so that it is written once.
"""
from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurmbridge.runtime import addresses, frames
from slurmbridge.runtime.client import Client
from slurmbridge.runtime.order import NodeShare

CHUNK = 1 << 20
CLIENT_LIMIT = 60 << 20
"""Bytes of a file that the command's own client is asked for; larger ones are read where the daemon runs."""
TIMEOUT_S = 60.0


class BroadcastFailed(OSError):
    """``errno`` is the node's (or the source's); the text is for the user, without the command's name."""


@dataclass(frozen=True, slots=True)
class Source:
    data: bytes
    mode: int = 0o700
    times_ns: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """One node and the credential that its daemon takes; ``path`` is absolute."""

    node: NodeShare
    credential: str
    path: str


async def read_source(client: Client, path: str) -> Source:
    """From the client, with the caller's rights, else from here. Raises BroadcastFailed."""
    number, data = await client.ask_file(path, CLIENT_LIMIT)
    if number not in (0, errno.EFBIG):
        raise BroadcastFailed(number, f"Can't open `{path}`: {os.strerror(number)}")
    try:
        facts = os.stat(path)
        if number:
            with open(path, "rb") as file:
                data = file.read()
    except OSError as error:
        if number:
            raise BroadcastFailed(error.errno, f"Can't open `{path}`: {error.strerror}") from None
        return Source(data)
    return Source(data, facts.st_mode & 0o777, (facts.st_atime_ns, facts.st_mtime_ns))


async def send(source: Source, targets: Sequence[Target], *, force: bool, preserve: bool) -> None:
    """Raises BroadcastFailed with what the first failing node said."""
    seen: set[str] = set()
    lock = asyncio.Lock()
    outcomes = await asyncio.gather(*(_send_one(source, target, seen, lock, force, preserve) for target in targets),
                                    return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome


async def _send_one(source: Source, target: Target, seen: set[str], lock: asyncio.Lock, force: bool,
                    preserve: bool) -> None:
    def failed(number: int) -> BroadcastFailed:
        return BroadcastFailed(number, f"REQUEST_FILE_BCAST({target.node.name}): {os.strerror(number)}")

    try:
        async with asyncio.timeout(TIMEOUT_S):
            reader, writer = await addresses.connect(target.node.address)
            try:
                await _ask(writer, {"credential": target.credential, "op": "file", "path": target.path})
                place = str((await _answer(reader, failed)).get("place"))
                async with lock:
                    is_first = place not in seen
                    seen.add(place)
                if not is_first:
                    return
                await _ask(writer, {"force": force, "mode": source.mode,
                                    "times_ns": source.times_ns if preserve else None})
                await _answer(reader, failed)
                for at in range(0, len(source.data), CHUNK):
                    await frames.send(writer, frames.encode(b"n", source.data[at:at + CHUNK]))
                await frames.send(writer, frames.encode(b"n"))
                await _answer(reader, failed)
            finally:
                writer.close()
    except BroadcastFailed:
        raise
    except (OSError, TimeoutError) as error:
        raise failed(error.errno or errno.ETIMEDOUT if isinstance(error, OSError) else errno.ETIMEDOUT) from None


async def _ask(writer: asyncio.StreamWriter, what: dict[str, Any]) -> None:
    await frames.send(writer, frames.encode_json(b"K", what))


async def _answer(reader: asyncio.StreamReader, failed: Callable[[int], BroadcastFailed]) -> dict[str, Any]:
    frame = await frames.read_frame(reader)
    if frame is None:
        raise failed(errno.ECONNRESET)
    answer = frames.decode_json(frame[1])
    if not answer.get("ok"):
        raise failed(int(answer.get("errno") or errno.EACCES))
    return answer


async def receive(request: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A node's side. The file is removed again when the sender goes before its end."""
    async def say(**what: Any) -> None:
        await frames.send(writer, frames.encode_json(b"k", what))

    path = str(request["path"])
    fd = -1
    try:
        folder = os.stat(os.path.dirname(path) or "/")
        await say(ok=True, place=f"{_boot_id()}:{folder.st_dev}:{folder.st_ino}:{os.path.basename(path)}")
        frame = await frames.read_frame(reader)
        if frame is None:
            return
        order = frames.decode_json(frame[1])
        fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC | (os.O_TRUNC if order["force"] else os.O_EXCL),
                     0o700)
        await say(ok=True)
        while (frame := await frames.read_frame(reader)) is not None and frame[1]:
            view = memoryview(frame[1])
            while view:
                view = view[os.write(fd, view):]
        if frame is None:
            os.unlink(path)
            return
        os.fchmod(fd, int(order["mode"]))
        if order["times_ns"]:
            os.utime(fd, ns=tuple(order["times_ns"]))
        await say(ok=True)
    except OSError as error:
        with contextlib.suppress(ConnectionError):
            await say(ok=False, errno=error.errno)
    finally:
        if fd >= 0:
            os.close(fd)


def dest_dir(settings: Mapping[str, str]) -> str:
    """BcastParameters=DestDir= (slurm.conf(5))."""
    return next((part.partition("=")[2] for part in settings.get("BcastParameters", "").split(",")
                 if part.lower().startswith("destdir=")), "")


def step_target(base: str, wanted: str, job_id: int, step_id: str, node: str) -> str:
    """Where srun --bcast puts the program on a node: the file that was named, or one of its own in a directory."""
    if wanted.startswith("/") and not wanted.endswith("/"):
        return wanted
    return os.path.join(base, f"slurm_bcast_{job_id}.{step_id}_{node}")


def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return os.uname().nodename
