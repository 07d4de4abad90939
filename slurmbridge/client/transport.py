"""Addresses and connections: ``unix:///path``, ``tcp://host:port`` (step daemons) and ``https://host[:port][/path]``.

A stream's ``receive`` gives bytes, b"" at the end, or None where nothing is there yet; ``send`` gives how many bytes
went. Both never block once ``connect`` has returned.
"""
from __future__ import annotations

import os
import time
from _socket import AF_INET, AF_INET6, AF_UNIX, MSG_NOSIGNAL, SO_SNDTIMEO, SOCK_STREAM, SOL_SOCKET, socket
from errno import EAGAIN, ECONNREFUSED, EINPROGRESS, ENOENT

CONNECT_TIMEOUT_S = 10
RESTART_WAIT_S = 3.0
"""How long a socket that nobody serves is tried again: a controller that died is usually being restarted."""

AWAY = "Unable to contact slurm controller (connect failure)"
TIMED_OUT = "Socket timed out on send/recv operation"
LOST = "Zero Bytes were transmitted or received"
DENIED = "Protocol authentication error"


class Unreachable(Exception):
    """The reason, in Slurm's words."""


class Plain:
    """A connected socket."""

    __slots__ = ("_socket",)

    def __init__(self, connected: socket) -> None:
        connected.setblocking(False)
        self._socket = connected

    def fileno(self) -> int:
        return self._socket.fileno()

    def receive(self, size: int) -> bytes | None:
        try:
            return self._socket.recv(size)
        except BlockingIOError:
            return None
        except ConnectionError:
            return b""

    def send(self, data: bytes) -> int:
        try:
            return self._socket.send(data, MSG_NOSIGNAL)
        except BlockingIOError:
            return 0

    def close(self) -> None:
        self._socket.close()


def connect(address: str) -> tuple[Plain, bytes]:
    """A stream and the bytes that were received with the greeting. Raises Unreachable."""
    scheme, _, rest = address.partition("://")
    try:
        if scheme == "unix":
            return Plain(_connect_unix(rest)), b""
        if scheme == "tcp":
            return Plain(_connect_tcp(rest)), b""
        if scheme == "https":
            from slurmbridge.client.https import connect_https
            return connect_https(rest)
    except TimeoutError:
        raise Unreachable(TIMED_OUT) from None
    except OSError as error:
        raise Unreachable(TIMED_OUT if error.errno in (EAGAIN, EINPROGRESS) else AWAY) from None
    raise Unreachable(f"SLURMBRIDGE_URL is neither unix:// nor https://: {address}")


def _connect_unix(path: str) -> socket:
    deadline = 0.0
    while True:
        connection = socket(AF_UNIX, SOCK_STREAM)
        connection.setsockopt(SOL_SOCKET, SO_SNDTIMEO, CONNECT_TIMEOUT_S.to_bytes(8, "little") + bytes(8))
        try:
            connection.connect(path)
            return connection
        except OSError as error:
            connection.close()
            was_there = error.errno == ECONNREFUSED or (error.errno == ENOENT and deadline)
            if not was_there or (deadline and time.monotonic() > deadline):
                raise
            deadline = deadline or time.monotonic() + RESTART_WAIT_S
            time.sleep(0.05)


def _connect_tcp(rest: str) -> socket:
    host, _, port = rest.rpartition(":")
    host = host.strip("[]")
    connection = socket(AF_INET6 if ":" in host else AF_INET, SOCK_STREAM)
    connection.settimeout(CONNECT_TIMEOUT_S)
    connection.connect((host, int(port)))
    return connection


def default_address(env: dict[str, str]) -> str:
    """Where the controller is: SLURMBRIDGE_URL, else the socket of the user's default state directory."""
    if env.get("SLURMBRIDGE_URL"):
        return env["SLURMBRIDGE_URL"]
    state = env.get("XDG_STATE_HOME") or ""
    if not state.startswith("/"):
        home = env.get("HOME")
        if not home:
            import pwd
            try:
                home = pwd.getpwuid(os.geteuid()).pw_dir
            except KeyError:
                home = "/"
        state = f"{home}/.local/state"
    return f"unix://{state}/slurmbridge/slurmbridge.sock"
