"""How many writes a second the API server is asked for: a token bucket that admits a gang's writes together or not yet.
"""
from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

PRESETS = {"small": 20.0, "medium": 100.0, "large": 400.0}
"""Writes a second by the size of the control plane."""
BURST_S = 2.0


class Budget:
    """``take(n)`` returns when n writes may be made; in order, so that a large gang is not overtaken for ever."""

    def __init__(self, writes_per_s: float, *, clock: Callable[[], float] = time.monotonic,
                 sleep: Callable[[float], object] | None = None) -> None:
        self.rate = writes_per_s
        self.burst = writes_per_s * BURST_S
        self._clock = clock
        self._sleep = sleep or asyncio.sleep
        self._level = self.burst
        self._at = clock()
        self._turns: deque[asyncio.Future[None]] = deque()

    def _fill(self) -> None:
        now = self._clock()
        self._level = min(self.burst, self._level + (now - self._at) * self.rate)
        self._at = now

    @property
    def waiting(self) -> int:
        """Gangs that are held back now."""
        return len(self._turns)

    def holds_back(self, writes: int) -> bool:
        """Whether ``take`` would wait."""
        self._fill()
        return bool(self._turns) or self._level < min(float(writes), self.burst) - 1e-9

    async def take(self, writes: int) -> None:
        """A gang larger than the burst is admitted when the bucket is full, and leaves it in debt."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turns.append(turn)
        try:
            if self._turns[0] is not turn:
                await turn
            needed = min(float(writes), self.burst)
            self._fill()
            while self._level < needed - 1e-9:
                await self._sleep((needed - self._level) / self.rate)  # type: ignore[misc]
                self._fill()
            self._level -= writes
        finally:
            self._turns.remove(turn)
            if self._turns and not self._turns[0].done():
                self._turns[0].set_result(None)

    def slow_down(self, pause_s: float) -> None:
        """The API server asked for a pause."""
        self._fill()
        self._level = min(self._level, -pause_s * self.rate)
