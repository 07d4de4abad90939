"""The backfill pass's map of the future: for stretches of time, the nodes that are not promised to a waiting job."""
from __future__ import annotations

from dataclasses import dataclass

from slurmbridge.scheduling.columns import BoolArray


@dataclass(slots=True)
class Slot:
    """From ``begin_s`` to ``end_s`` (epoch) these nodes are open."""

    begin_s: int
    end_s: int
    open: BoolArray


class Timeline:
    """Slots in time order without gaps. Times are multiples of bf_resolution."""

    def __init__(self, begin_s: int, end_s: int, nodes: BoolArray, resolution_s: int) -> None:
        self.resolution_s = resolution_s
        self.slots = [Slot(begin_s, end_s, nodes.copy())]
        self.records = 1

    def slot_times(self, start_s: int, limit_s: int) -> tuple[int, int]:
        """Start and end of a reservation, rounded outwards to the resolution."""
        end_s = start_s + limit_s + self.resolution_s - 1
        return start_s // self.resolution_s * self.resolution_s, end_s // self.resolution_s * self.resolution_s

    def overlaps(self, nodes: BoolArray, start_s: int, end_s: int) -> bool:
        """Whether any of the nodes is promised to another job in that time."""
        return any(slot.end_s > start_s and slot.begin_s < end_s and bool((nodes & ~slot.open).any())
                   for slot in self.slots)

    def open_for(self, nodes: BoolArray, start_s: int, end_s: int, later_s: int) -> tuple[BoolArray, int]:
        """Nodes open all through the time, and the next time at which more of ``nodes`` may be (``later_s`` if it is
        set already; 0: none)."""
        slots = self.slots
        left = nodes.copy()
        for j, slot in enumerate(slots):
            following = slots[j + 1] if j + 1 < len(slots) else None
            if slot.end_s > start_s and following is not None and later_s == 0 and bool(
                    (nodes & following.open & ~(left & slot.open)).any()):
                later_s = slot.end_s
            if slot.end_s <= start_s:
                continue
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
        before, j = self._split(start_s)
        if j < 0:
            return
        first_changed = before
        while j < len(self.slots):
            slot = self.slots[j]
            if end_s < slot.end_s:
                self.slots.insert(j + 1, Slot(end_s, slot.end_s, slot.open.copy()))
                slot.end_s = end_s
                self.records += 1
            slot.open &= ~nodes
            if end_s == slot.end_s:
                break
            j += 1
        self._join(first_changed, min(j + 1, len(self.slots) - 1))

    def _split(self, start_s: int) -> tuple[int, int]:
        """(slot before, first slot of the reservation); the second is -1 beyond the window."""
        before = 0
        for j, slot in enumerate(self.slots):
            if slot.end_s > start_s:
                self.slots.insert(j + 1, Slot(start_s, slot.end_s, slot.open.copy()))
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
            if i + 1 < len(self.slots) and bool((self.slots[i].open == self.slots[i + 1].open).all()):
                self.slots[i].end_s = self.slots[i + 1].end_s
                del self.slots[i + 1]
                return

    def first_conflict_s(self, nodes: BoolArray, end_s: int, now_s: int) -> int:
        """When, before ``end_s``, the first of the nodes is promised to another job (0: never)."""
        times = [slot.begin_s for slot in self.slots
                 if slot.begin_s != now_s and slot.begin_s < end_s and bool((nodes & ~slot.open).any())]
        return min(times, default=0)
