"""The command protocol over HTTPS: an HTTP/1.1 upgrade with a bearer token, then the frames.

The server's certificate is checked by the system's store, or by SLURMBRIDGE_CA (a file, or a directory of
certificates). SLURMBRIDGE_TOKEN is the token itself or the name of a file that holds it; commands inside a job have
the job's own.
"""
from __future__ import annotations

import os
import socket
import ssl

from slurmbridge.client.transport import AWAY, CONNECT_TIMEOUT_S, DENIED, Unreachable

DEFAULT_PATH = "/command"
MAX_HEAD = 64 << 10


class Tls:
    """A TLS connection with the methods of ``transport.Plain``."""

    def __init__(self, connected: ssl.SSLSocket) -> None:
        connected.setblocking(False)
        self._socket = connected

    def fileno(self) -> int:
        return self._socket.fileno()

    def receive(self, size: int) -> bytes | None:
        try:
            return self._socket.recv(size)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        except (ConnectionError, ssl.SSLError):
            return b""

    def send(self, data: bytes) -> int:
        try:
            return self._socket.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0

    def close(self) -> None:
        self._socket.close()


def token() -> str:
    """SLURMBRIDGE_TOKEN's token, inside a job its credential; "" when there is none. Raises Unreachable when its file
    cannot be read."""
    value = os.environ.get("SLURMBRIDGE_TOKEN", "")
    credential, job = os.environ.get("SLURMBRIDGE_CREDENTIAL", ""), os.environ.get("SLURM_JOB_ID", "")
    if not value and credential and job:
        return f"slurmbridge-job.{job}.{credential}"
    if not value.startswith(("/", "~")):
        return value.strip()
    try:
        with open(os.path.expanduser(value), encoding="ascii") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Unreachable(f"SLURMBRIDGE_TOKEN: {error}") from None


def trust() -> ssl.SSLContext:
    """Which certificates are believed. Raises Unreachable when SLURMBRIDGE_CA names none."""
    place = os.environ.get("SLURMBRIDGE_CA", "")
    try:
        if os.path.isdir(place):
            return ssl.create_default_context(capath=place)
        return ssl.create_default_context(cafile=place or None)
    except (OSError, ssl.SSLError) as error:
        raise Unreachable(f"SLURMBRIDGE_CA: {error}") from None


def connect_https(rest: str) -> tuple[Tls, bytes]:
    """``rest`` is what follows ``https://``. Raises Unreachable or OSError."""
    authority, slash, path = rest.partition("/")
    host, _, port = authority.rpartition(":") if authority.rpartition(":")[2].isdigit() else (authority, "", "443")
    host = host.strip("[]")
    secret = token()
    if any(c in secret + authority + path for c in "\r\n "):
        raise Unreachable(DENIED)
    plain = socket.create_connection((host, int(port)), CONNECT_TIMEOUT_S)
    try:
        secure = trust().wrap_socket(plain, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        raise Unreachable(f"{AWAY}: {error.verify_message}") from None
    head = [f"GET {slash + path if path else DEFAULT_PATH} HTTP/1.1", f"Host: {authority}", "Connection: Upgrade",
            "Upgrade: slurmbridge", *([f"Authorization: Bearer {secret}"] if secret else []), "", ""]
    secure.sendall("\r\n".join(head).encode("latin-1"))
    answer = b""
    while b"\r\n\r\n" not in answer:
        data = secure.recv(4096)
        if not data or len(answer) > MAX_HEAD:
            raise Unreachable(AWAY)
        answer += data
    head_bytes, _, frames = answer.partition(b"\r\n\r\n")
    words = head_bytes.split(b"\r\n")[0].decode("latin-1").split(None, 2)
    status = words[1] if len(words) > 1 else ""
    if status in ("401", "403"):
        raise Unreachable(DENIED)
    if status != "101":
        raise Unreachable(f"{AWAY}: {authority} answered {' '.join(words[1:])}")
    return Tls(secure), frames
