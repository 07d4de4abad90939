"""The frames of docs/protocol.md: one type byte, a 4-byte big-endian length, the payload.

Besides the command protocol's types, daemons of one job and the engine speak the internal types listed here:

| type | direction | payload |
|------|-----------|---------|
| ``K`` | engine, daemon → daemon | JSON ``{"credential", "op", …}``: an order (see daemon.py) |
| ``k`` | daemon → whoever asked | JSON answer ``{"ok": true, …}`` or ``{"ok": false, "error": …}`` |
| ``L`` | head → step keeper | JSON: tasks of one step to start on this node |
| ``o`` | step keeper → head | 4-byte rank, 1 byte stream (1, 2), bytes |
| ``n`` | head → step keeper | 4-byte rank (ALL_TASKS = every task), bytes; no bytes = end of standard input |
| ``e`` | step keeper → head | JSON ``{"event": "started" | "exited" | "gone" | "log", …}`` |
"""
from __future__ import annotations

import asyncio
import json
import struct
from typing import Any

HEADER = struct.Struct(">cI")
MAX_PAYLOAD = 64 << 20
ALL_TASKS = 0xFFFFFFFF
RANK = struct.Struct(">I")
RANK_STREAM = struct.Struct(">IB")


class FrameError(ConnectionError):
    """What came is not a frame of ours."""


def encode(kind: bytes, payload: bytes = b"") -> bytes:
    return HEADER.pack(kind, len(payload)) + payload


def encode_json(kind: bytes, value: object) -> bytes:
    return encode(kind, json_bytes(value))


def json_bytes(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def decode_json(payload: bytes) -> dict[str, Any]:
    """Raises FrameError when it is not a JSON object."""
    try:
        value = json.loads(payload)
    except ValueError as error:
        raise FrameError(f"bad JSON payload: {error}") from None
    if not isinstance(value, dict):
        raise FrameError("JSON payload is not an object")
    return value


async def read_frame(reader: asyncio.StreamReader) -> tuple[bytes, bytes] | None:
    """The next frame; None at the end of the connection (also in the middle of a frame)."""
    try:
        kind, length = HEADER.unpack(await reader.readexactly(HEADER.size))
        if length <= MAX_PAYLOAD:
            return kind, await reader.readexactly(length) if length else b""
    except (asyncio.IncompleteReadError, OSError):
        return None
    raise FrameError(f"frame of {length} bytes")


async def send(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Writes and waits until the peer keeps up. Raises ConnectionError when it has gone."""
    try:
        writer.write(data)
        await writer.drain()
    except TimeoutError as error:             # the machine at the other end has fallen silent
        raise ConnectionAbortedError(error.errno, error.strerror) from None
