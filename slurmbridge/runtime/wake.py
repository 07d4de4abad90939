"""Telling the controller's engine that a journal has grown. Nothing depends on it but speed."""
from __future__ import annotations

import asyncio
import contextlib
import socket


class Waker:
    """Sends the run's name to the engine's datagram socket; a full or absent one is no error."""

    def __init__(self, path: str, run_name: str) -> None:
        self._path = path
        self._message = run_name.encode()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)

    def wake(self) -> bool:
        """Whether it was delivered, or there is nobody to hear it."""
        try:
            self._socket.sendto(self._message, self._path)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    async def wake_surely(self, tries: int = 50) -> None:
        for _ in range(tries):
            if self.wake():
                return
            await asyncio.sleep(0.02)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()
