"""Database indices that are Slurm's SLUIDs: 12 bits of cluster, 42 bits of milliseconds, 10 bits of counter.

They sort by the time at which a job's run was first recorded, so the ledger's natural order is submission order.
"""
from __future__ import annotations

import threading

_SEQUENCES = 1 << 10


class SluidSource:
    """Gives strictly growing SLUIDs. ``last``: the largest one already used (0: none)."""

    def __init__(self, cluster_id: int, last: int = 0) -> None:
        self._cluster = cluster_id << 52
        self._last = last & ((1 << 52) - 1) if last >> 52 == cluster_id else 0
        self._lock = threading.Lock()         # an import takes its numbers in a thread of its own

    def next(self, now_s: float) -> int:
        candidate = int(now_s * 1000) * _SEQUENCES
        with self._lock:
            self._last = max(candidate, self._last + 1)
            return self._cluster | self._last
