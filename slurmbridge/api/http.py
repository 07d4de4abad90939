"""The little of HTTP/1.1 that the controller speaks: one head in, one short answer out, or an upgrade.

What is doubtful is refused: a head is small, its names are plain, and what says who calls may stand there once only.
"""
from __future__ import annotations

import re
from dataclasses import dataclass

MAX_HEAD = 32 << 10
"""Bytes; tokens with many groups are long."""
HEAD_S = 10.0
REASONS = {101: "Switching Protocols", 200: "OK", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden",
           404: "Not Found", 405: "Method Not Allowed", 426: "Upgrade Required", 431: "Request Header Fields Too Large",
           503: "Service Unavailable"}
_NAME = re.compile(rb"[A-Za-z0-9!#$%&'*+.^_`|~-]+\Z")
_SINGLE = frozenset({"authorization", "slurmbridge-peer", "upgrade", "host", "content-length", "transfer-encoding"})


class HttpError(Exception):
    """The request is answered with ``status`` and nothing else happens."""

    def __init__(self, status: int, text: str = "") -> None:
        super().__init__(text or REASONS[status])
        self.status = status


@dataclass(frozen=True, slots=True)
class Head:
    """``fields`` by lower-case name."""

    method: str
    path: str
    fields: dict[str, str]


def read_head(buffer: bytes | bytearray) -> tuple[Head, bytes] | None:
    """(head, what follows it); None while it is not complete. Raises HttpError."""
    end = buffer.find(b"\r\n\r\n")
    if end < 0 or end > MAX_HEAD:
        if len(buffer) > MAX_HEAD:
            raise HttpError(431)
        return None
    first, *lines = bytes(buffer[:end]).split(b"\r\n")
    words = first.split(b" ")
    if len(words) != 3 or words[2] not in (b"HTTP/1.1", b"HTTP/1.0") or not words[1].startswith(b"/"):
        raise HttpError(400)
    fields: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not _NAME.match(name) or any(byte < 32 and byte != 9 for byte in value):
            raise HttpError(400)
        key = name.decode("ascii").lower()
        if key in fields and key in _SINGLE:
            raise HttpError(400, f"{key} is given twice")
        fields[key] = value.strip().decode("latin-1")
    path = words[1].decode("latin-1").partition("?")[0]
    return Head(words[0].decode("latin-1"), path, fields), bytes(buffer[end + 4:])


def answer(status: int, text: str = "", content: str = "text/plain; charset=utf-8") -> bytes:
    """A whole answer; the connection ends after it."""
    body = (text or f"{REASONS[status]}\n").encode()
    challenge = "WWW-Authenticate: Bearer\r\n" if status == 401 else ""
    return (f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: {content}\r\nContent-Length: {len(body)}\r\n"
            f"{challenge}Connection: close\r\n\r\n").encode() + body


UPGRADED = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: slurmbridge\r\nConnection: Upgrade\r\n\r\n"
