"""The backfill pass's map of the future: for stretches of time, the nodes that are not promised to a waiting job.

Node sets are integers here, one bit per node: a pass asks thousands of times, and nothing else is as quick.
"""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurmbridge.scheduling.facts import BoolArray


def bits(mask: BoolArray) -> int:
    """The set as an integer, node 0 in the lowest bit."""
    return int.from_bytes(np.packbits(mask, bitorder="little").tobytes(), "little")


def mask_of(nodes: int, count: int) -> BoolArray:
    """The set of ``count`` nodes as a mask."""
    packed = np.frombuffer(nodes.to_bytes((count + 7) // 8, "little"), dtype=np.uint8)
    return np.unpackbits(packed, count=count, bitorder="little").astype(np.bool_)


@dataclass(slots=True)
class Slot:
    """From ``begin_s`` to ``end_s`` (epoch) these nodes are open."""

    begin_s: int
    end_s: int
    open: int


class Timeline:
    """Slots in time order without gaps. Times are multiples of bf_resolution."""

    def __init__(self, begin_s: int, end_s: int, nodes: BoolArray, resolution_s: int) -> None:
        self.resolution_s = resolution_s
        self.slots = [Slot(begin_s, end_s, bits(nodes))]
        self.records = 1

    def slot_times(self, start_s: int, limit_s: int) -> tuple[int, int]:
        """Start and end of a reservation, rounded outwards to the resolution."""
        end_s = start_s + limit_s + self.resolution_s - 1
        return start_s // self.resolution_s * self.resolution_s, end_s // self.resolution_s * self.resolution_s

    def overlaps(self, nodes: BoolArray, start_s: int, end_s: int) -> bool:
        """Whether any of the nodes is promised to another job in that time."""
        wanted = bits(nodes)
        return any(slot.end_s > start_s and slot.begin_s < end_s and wanted & slot.open != wanted
                   for slot in self.slots)

    def open_for(self, nodes: int, start_s: int, end_s: int, later_s: int) -> tuple[int, int]:
        """Nodes open all through the time, and the next time at which more of ``nodes`` may be (``later_s`` if it is
        set already; 0: none)."""
        slots = self.slots
        left = nodes
        for j, slot in enumerate(slots):
            if slot.end_s <= start_s:
                continue
            following = slots[j + 1] if j + 1 < len(slots) else None
            if following is not None and later_s == 0:
                more = nodes & following.open
                if more & left & slot.open != more:
                    later_s = slot.end_s
            if slot.begin_s > end_s:
                if later_s == 0 and following is not None and j + 2 < len(slots):
                    later_s = following.end_s
                break
            left &= slot.open
        return left, later_s

    def reserve(self, nodes: BoolArray, start_s: int, end_s: int) -> None:
        """Promises the nodes from ``start_s`` to ``end_s`` (multiples of the resolution)."""
        start_s = max(start_s, self.slots[0].begin_s)
        end_s = max(end_s, start_s + self.resolution_s)
        taken = bits(nodes)
        before, j = self._split(start_s)
        if j < 0:
            return
        first_changed = before
        while j < len(self.slots):
            slot = self.slots[j]
            if end_s < slot.end_s:
                self.slots.insert(j + 1, Slot(end_s, slot.end_s, slot.open))
                slot.end_s = end_s
                self.records += 1
            slot.open &= ~taken
            if end_s == slot.end_s:
                break
            j += 1
        self._join(first_changed, min(j + 1, len(self.slots) - 1))

    def _split(self, start_s: int) -> tuple[int, int]:
        """(slot before, first slot of the reservation); the second is -1 beyond the window."""
        before = 0
        for j, slot in enumerate(self.slots):
            if slot.end_s > start_s:
                self.slots.insert(j + 1, Slot(start_s, slot.end_s, slot.open))
                slot.end_s = start_s
                self.records += 1
                return before, j + 1
            if slot.end_s == start_s:
                return before, j + 1 if j + 1 < len(self.slots) else -1
            before = j
        return before, -1

    def _join(self, first: int, last: int) -> None:
        """Joins the first pair of equal neighbours (at most one)."""
        for i in range(first, last):
            if i + 1 < len(self.slots) and self.slots[i].open == self.slots[i + 1].open:
                self.slots[i].end_s = self.slots[i + 1].end_s
                del self.slots[i + 1]
                return

    def first_conflict_s(self, nodes: BoolArray, end_s: int, now_s: int) -> int:
        """When, before ``end_s``, the first of the nodes is promised to another job (0: never)."""
        wanted = bits(nodes)
        times = [slot.begin_s for slot in self.slots
                 if slot.begin_s != now_s and slot.begin_s < end_s and wanted & slot.open != wanted]
        return min(times, default=0)
