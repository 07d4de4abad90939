"""The frames of docs/protocol.md: one type byte, a 4-byte big-endian length, the payload.

Kept apart from the server so that the grammar can be tested (and fed garbage) without a socket.
"""
from __future__ import annotations

import json
import struct
from typing import Any

HEADER = struct.Struct(">cI")
_U32 = struct.Struct(">I")
_U64 = struct.Struct(">Q")

MAX_REQUEST = 16 << 20
"""Bytes of an ``R`` frame; execve allows a few MB of arguments and environment, escapes may make them longer."""
MAX_ANSWER = (64 << 20) + 4
"""Bytes of a ``D`` frame: the largest file that may be read, and its errno."""
MAX_INPUT = 1 << 20
"""Bytes of an ``i`` frame."""
LIMITS = {b"R": MAX_REQUEST, b"D": MAX_ANSWER, b"i": MAX_INPUT, b"S": 4, b"Z": 4}


class ProtocolError(Exception):
    """The peer does not speak the protocol; the connection ends."""


def pack(kind: bytes, payload: bytes = b"") -> bytes:
    return HEADER.pack(kind, len(payload)) + payload


def pack_json(kind: bytes, value: Any) -> bytes:
    return pack(kind, json.dumps(value, ensure_ascii=True).encode("ascii"))


def pack_exit(code: int) -> bytes:
    return pack_number(b"X", code)


def pack_number(kind: bytes, number: int) -> bytes:
    return pack(kind, _U32.pack(number & 0xFFFFFFFF))


def pack_read(path: str, limit: int) -> bytes:
    return pack(b"F", _U64.pack(limit) + encode(path))


def pack_write(path: str, data: bytes, mode: int, exclusive: bool) -> bytes:
    name = encode(path)
    return pack(b"W", struct.pack(">IBH", mode, exclusive, len(name)) + name + data)


def encode(text: str) -> bytes:
    """Text as it goes to a terminal or a file system: escaped bytes come back as they were."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


def unpack_answer(payload: bytes) -> tuple[int, bytes]:
    """(errno or wait status, data) of a ``D`` frame."""
    if len(payload) < 4:
        raise ProtocolError("short answer")
    return _U32.unpack_from(payload)[0], payload[4:]


class Parser:
    """Cuts a byte stream into frames. ``feed`` returns the frames completed by these bytes."""

    __slots__ = ("_buffer", "_limits")

    def __init__(self, limits: dict[bytes, int] | None = None) -> None:
        self._buffer = bytearray()
        self._limits = LIMITS if limits is None else limits

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        buffer = self._buffer
        buffer += data
        frames = []
        start = 0
        while len(buffer) - start >= HEADER.size:
            kind, length = HEADER.unpack_from(buffer, start)
            limit = self._limits.get(kind)
            if limit is None or length > limit:
                raise ProtocolError(f"frame {kind!r} of {length} bytes")
            end = start + HEADER.size + length
            if len(buffer) < end:
                break
            frames.append((kind, bytes(buffer[start + HEADER.size:end])))
            start = end
        if start:
            del buffer[:start]
        return frames
