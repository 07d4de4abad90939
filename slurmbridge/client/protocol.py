"""The frames of docs/protocol.md, for both ends of a connection.

Standard library only and nothing beyond what every start needs: the user's commands import this module before they
do anything, and the step daemon speaks the same frames. ``json`` and ``struct`` are not imported for that reason.
"""
from __future__ import annotations

from _json import encode_basestring_ascii

VERSION = 1
HEADER_SIZE = 5
MAX_PAYLOAD = 128 << 20
"""Bytes of the largest payload that is taken; more is a peer that speaks something else."""
CHUNK = 64 << 10
"""Bytes of standard input sent in one frame."""

OWN = (b"SLURMBRIDGE_TOKEN", b"SLURMBRIDGE_CA")
"""Variables that are for this client's connection, and are not told."""

REQUEST, ANSWER, INPUT, SIGNAL, SIZE = b"R", b"D", b"i", b"S", b"Z"
OUTPUT, ERROR, READ, WRITE, WANT_INPUT = b"O", b"E", b"F", b"W", b"I"
FORWARD, RUN, KILL, GO, EXIT, LAST_WORDS = b"T", b"C", b"K", b"G", b"X", b"N"


class ProtocolError(Exception):
    """The peer sent what is not a frame of this protocol."""


def pack(kind: bytes, payload: bytes = b"") -> bytes:
    """One frame."""
    return kind + len(payload).to_bytes(4, "big") + payload


def pack_answer(status: int, data: bytes = b"") -> bytes:
    """``D``: errno (or wait status) and data."""
    return pack(ANSWER, (status & 0xFFFFFFFF).to_bytes(4, "big") + data)


def pack_number(kind: bytes, number: int) -> bytes:
    """A frame whose payload is one 4-byte number (``S``, ``X``)."""
    return pack(kind, (number & 0xFFFFFFFF).to_bytes(4, "big"))


def unpack_number(payload: bytes) -> int:
    """Raises ProtocolError when the payload is shorter than a number."""
    if len(payload) < 4:
        raise ProtocolError("short payload")
    return int.from_bytes(payload[:4], "big")


def pack_size(rows: int, columns: int) -> bytes:
    """``Z``: the terminal's size."""
    return pack(SIZE, rows.to_bytes(2, "big") + columns.to_bytes(2, "big"))


def unpack_read(payload: bytes) -> tuple[int, bytes]:
    """``F``: (limit in bytes, path)."""
    if len(payload) < 9:
        raise ProtocolError("short payload")
    return int.from_bytes(payload[:8], "big"), payload[8:]


def unpack_write(payload: bytes) -> tuple[int, bool, bytes, bytes]:
    """``W``: (mode, must not exist, path, data)."""
    length = int.from_bytes(payload[5:7], "big")
    if len(payload) < 7 + length:
        raise ProtocolError("short payload")
    return int.from_bytes(payload[:4], "big"), payload[4] != 0, payload[7:7 + length], payload[7 + length:]


def text(raw: bytes) -> str:
    """Bytes of the system (an argument, a path) as the protocol's JSON carries them."""
    return raw.decode("utf-8", "surrogateescape")


def raw(value: str) -> bytes:
    """The way back of ``text``."""
    return value.encode("utf-8", "surrogateescape")


def pack_request(fields: dict[str, object]) -> bytes:
    """``R`` from str, int, bool, None, and lists and dicts of them."""
    return pack(REQUEST, _json(fields).encode("ascii"))


def _json(value: object) -> str:
    if isinstance(value, str):
        return str(encode_basestring_ascii(value))
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join([f"{encode_basestring_ascii(key)}:{_json(item)}" for key, item in value.items()]) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join([_json(item) for item in value]) + "]"
    raise TypeError(f"no JSON for {type(value).__name__}")


class Frames:
    """Cuts a stream of bytes into frames; any division of the stream gives the same frames."""

    __slots__ = ("_buffer",)

    def __init__(self, first: bytes = b"") -> None:
        self._buffer = bytearray(first)

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """The frames that are whole now. Raises ProtocolError for a payload above ``MAX_PAYLOAD``."""
        buffer = self._buffer
        buffer += data
        frames = []
        start = 0
        while len(buffer) - start >= HEADER_SIZE:
            end = start + HEADER_SIZE + int.from_bytes(buffer[start + 1:start + HEADER_SIZE], "big")
            if end - start > MAX_PAYLOAD:
                raise ProtocolError("frame too large")
            if len(buffer) < end:
                break
            frames.append((bytes(buffer[start:start + 1]), bytes(buffer[start + HEADER_SIZE:end])))
            start = end
        del buffer[:start]
        return frames
