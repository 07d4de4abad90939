"""Orders to a step daemon, whichever engine started it."""
from __future__ import annotations

import asyncio
from typing import Any

from slurmbridge.runtime import addresses, frames

ORDER_TIMEOUT_S = 10.0


async def ask(address: str, credential: str, op: str, **fields: Any) -> dict[str, Any] | None:
    """The daemon's answer; None when it cannot be reached or does not answer."""
    try:
        async with asyncio.timeout(ORDER_TIMEOUT_S):
            reader, writer = await addresses.connect(address)
            try:
                await frames.send(writer, frames.encode_json(b"K", {"credential": credential, "op": op, **fields}))
                answer = await frames.read_frame(reader)
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return None
    return None if answer is None else frames.decode_json(answer[1])
