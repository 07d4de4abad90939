"""Where step daemons are reached: one string form for both kinds of socket, so that only this module knows them.

``unix:///path`` on one machine (the local engine), ``tcp://host:port`` between pods.
"""
from __future__ import annotations

import asyncio
import os
import socket
import struct

UNIX_PATH_LIMIT = 100
"""Bytes of a socket path that every Unix takes (sun_path is 108 on Linux, 104 elsewhere)."""


SILENT_S = 30
"""How long the machine at the other end of a TCP connection may answer nothing at all."""


def unix_address(path: str) -> str:
    return f"unix://{path}"


def split_address(address: str) -> tuple[int, str | tuple[str, int]]:
    """(address family, socket address). Raises ValueError for anything but ``unix://`` and ``tcp://``."""
    scheme, _, rest = address.partition("://")
    if scheme == "unix" and rest.startswith("/"):
        return socket.AF_UNIX, rest
    if scheme == "tcp":
        host, _, port = rest.rpartition(":")
        if host and port.isdigit():
            return socket.AF_INET6 if ":" in host else socket.AF_INET, (host.strip("[]"), int(port))
    raise ValueError(f"not an address: {address!r}")


def listen(address: str, *, mode: int = 0o600, owner: tuple[int, int] | None = None,
           backlog: int = 128) -> socket.socket:
    """A listening socket. A Unix one gets ``mode`` and ``owner`` (uid, gid) before anybody can connect."""
    family, target = split_address(address)
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_UNIX:
            old_umask = os.umask(0o177)
            try:
                sock.bind(target)
            finally:
                os.umask(old_umask)
            if owner is not None:
                os.chown(target, *owner)  # type: ignore[arg-type]
            os.chmod(target, mode)  # type: ignore[arg-type]
        else:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(target)
        sock.listen(backlog)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


async def connect(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A peer on another machine that falls silent is an error after ``SILENT_S``. Raises OSError."""
    family, target = split_address(address)
    if family == socket.AF_UNIX:
        assert isinstance(target, str)
        return await asyncio.open_unix_connection(target)
    assert isinstance(target, tuple)
    reader, writer = await asyncio.open_connection(*target)
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, SILENT_S // 2), (socket.TCP_KEEPINTVL, SILENT_S // 6),
                          (socket.TCP_KEEPCNT, 3), (socket.TCP_USER_TIMEOUT, SILENT_S * 1000)):
        sock.setsockopt(socket.IPPROTO_TCP, option, value)
    return reader, writer


def peer_uid(sock: socket.socket) -> int | None:
    """Who is at the other end of a Unix socket; None where the transport does not tell (TCP)."""
    if sock.family != socket.AF_UNIX:
        return None
    data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", data)[1])
