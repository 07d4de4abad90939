"""The relay of a login node: users' commands come by a unix socket and go on over HTTPS with the relay's own token.

As munge does, it vouches for one thing: the uid and gid that the kernel says are behind the socket. What a user writes
is passed on unread and cannot change that. Standard library only.
"""
from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import ssl
import struct
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

ATTEMPT_S = 5.0
"""For one connection: the address may be that of a machine, or of a frozen process, that is gone."""
PATIENCE_S = 20.0
"""For a controller that is being restarted, or followed by another once its lease has run out."""
MAX_HEAD = 16 << 10
CHUNK = 256 << 10


@dataclass(frozen=True, slots=True)
class RelayOptions:
    """``url``: https://host[:port]. ``token``: a file, read anew for each connection (it is renewed in place)."""

    socket: Path
    url: str
    token: Path
    ca: Path | None = None


class Refused(Exception):
    """The controller is not there or does not take us. ``str()`` is one line for the log."""


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """(uid, gid) of the process that connected."""
    _pid, uid, gid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return uid, gid


def head(host: str, token: str, uid: int, gid: int) -> bytes:
    """Raises Refused for a token that is none."""
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise Refused("the token's file has no token")
    return (f"GET /command HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: slurmbridge\r\n"
            f"Authorization: Bearer {token}\r\nSlurmbridge-Peer: uid={uid} gid={gid}\r\n\r\n").encode("ascii")


async def _upstream(options: RelayOptions, uid: int, gid: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """An upgraded connection. Raises Refused or OSError."""
    place = urlsplit(options.url)
    context = ssl.create_default_context(cafile=str(options.ca) if options.ca else None)
    reader, writer = await asyncio.open_connection(
        place.hostname, place.port or 443, ssl=context, limit=MAX_HEAD, ssl_handshake_timeout=ATTEMPT_S)
    try:
        writer.write(head(place.netloc, options.token.read_text("ascii").strip(), uid, gid))
        answer = await reader.readuntil(b"\r\n\r\n")
        words = answer.split(b"\r\n", 1)[0].split(None, 2)
        if len(words) < 2 or words[1] != b"101":
            rest = await reader.read(500)
            raise Refused(f"{b' '.join(words[1:]).decode('latin-1')}: {rest.decode('utf-8', 'replace').strip()}")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        writer.close()
        raise Refused("no answer") from None
    except BaseException:
        writer.close()
        raise
    return reader, writer


async def _patient(options: RelayOptions, uid: int, gid: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """The same; a controller that is not there yet is waited for. Nothing of the command has been sent so far."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    while True:
        try:
            async with asyncio.timeout(ATTEMPT_S):
                return await _upstream(options, uid, gid)
        except ssl.SSLCertVerificationError:
            raise
        except (OSError, TimeoutError):
            if asyncio.get_running_loop().time() > deadline:
                raise
        await asyncio.sleep(0.2)


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Bytes one way until their source ends; a slow target stops the source."""
    with contextlib.suppress(OSError, ssl.SSLError):
        while data := await source.read(CHUNK):
            target.write(data)
            await target.drain()


async def _serve(options: RelayOptions, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    uid, gid = peer_of(writer.get_extra_info("socket"))
    try:
        up_reader, up_writer = await _patient(options, uid, gid)
    except (Refused, OSError, TimeoutError, ssl.SSLError, ValueError) as error:
        print(f"uid {uid}: {error or type(error).__name__}", flush=True)
        writer.transport.abort()
        return
    ways = [asyncio.create_task(_pump(reader, up_writer)), asyncio.create_task(_pump(up_reader, writer))]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        with contextlib.suppress(OSError, ssl.SSLError):
            await writer.drain()
    finally:
        for task in ways:
            task.cancel()
        for end in (up_writer, writer):
            end.close()


async def relay(options: RelayOptions) -> None:
    """Until SIGTERM. Raises OSError where the socket cannot be had."""
    options.socket.unlink(missing_ok=True)
    tasks: set[asyncio.Task[None]] = set()

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(_serve(options, reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    server = await asyncio.start_unix_server(begin, str(options.socket), backlog=1024)
    os.chmod(options.socket, 0o777)
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    print(f"unix://{options.socket} -> {options.url}", flush=True)
    await stopped.wait()
    server.close()
    for task in list(tasks):
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    options.socket.unlink(missing_ok=True)
