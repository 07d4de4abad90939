"""Peak memory of tasks, by looking now and then, as Slurm's accounting gatherer does.

The kernel's own figure (ru_maxrss) starts with the interpreter that forked the task, so it counts only above that.
"""
from __future__ import annotations

import asyncio
import os

from slurmbridge.runtime import processes
from slurmbridge.runtime.children import Exit

FIRST_LOOK_S = 1.0
_PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024


def resident_kb(pid: int) -> int:
    """Resident memory of one process; 0 when it is gone."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE_KB
    except (OSError, IndexError, ValueError):
        return 0


class MemoryGauge:
    """Make it in the process that forks the tasks. ``interval_s`` 0: never looks."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._floor_kb = resident_kb(os.getpid()) * 5 // 4
        self._peaks: dict[int, int] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, pid: int) -> None:
        self._peaks[pid] = 0
        if self._timer is None and self._interval_s:
            self._timer = asyncio.get_running_loop().call_later(min(FIRST_LOOK_S, self._interval_s), self._look)

    def _look(self) -> None:
        for pid in self._peaks:
            total = resident_kb(pid) + sum(map(resident_kb, processes.descendants(pid)))
            self._peaks[pid] = max(self._peaks[pid], total)
        self._timer = asyncio.get_running_loop().call_later(self._interval_s, self._look) if self._peaks else None

    def corrected(self, pid: int, ended: Exit) -> dict[str, float]:
        """The usage of a task that has ended, with a peak that is its own."""
        peak = self._peaks.pop(pid, 0)
        kernel = ended.usage.get("max_rss_kb", 0)
        return {**ended.usage, "max_rss_kb": max(peak, kernel if kernel > self._floor_kb else 0)}


def gather_interval_s(frequency: str | None) -> float:
    """JobAcctGatherFrequency or --acctg-freq: ``30``, ``task=2,energy=60``; 30 when nothing usable is said."""
    for part in (frequency or "").split(","):
        name, equals, value = part.strip().rpartition("=")
        if value.isdigit() and (not equals or name == "task"):
            return float(value)
    return 30.0
