"""Flags of reservations: the words that scontrol takes, in which order it shows them, and which exclude each other.

Source: scontrol(1), Reservations. A flag that an update takes away is kept as ``NO_…`` in the parsed set.
"""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

REPEATING = frozenset({"HOURLY", "DAILY", "WEEKDAY", "WEEKEND", "WEEKLY"})
SHOWN = ("MAINT", "FLEX", "OVERLAP", "IGNORE_JOBS", "HOURLY", "DAILY", "WEEKDAY", "WEEKEND", "WEEKLY", "SPEC_NODES",
         "ALL_NODES", "ANY_NODES", "STATIC", "PART_NODES", "TIME_FLOAT", "REPLACE", "REPLACE_DOWN", "PURGE_COMP",
         "NO_HOLD_JOBS_AFTER_END", "MAGNETIC", "USER_DELETE", "FORCE_START")
"""In the order of ``scontrol show reservation``."""

# (word as typed, letters that must be typed, flag, may it be taken away, only when created)
_WORDS: tuple[tuple[str, int, str, bool, bool], ...] = (
    ("Maintenance", 3, "MAINT", True, False), ("Overlap", 1, "OVERLAP", False, False), ("Flex", 1, "FLEX", True, False),
    ("Ignore_Jobs", 1, "IGNORE_JOBS", True, False), ("Hourly", 1, "HOURLY", True, False),
    ("Daily", 1, "DAILY", True, False), ("Weekday", 1, "WEEKDAY", True, False), ("Weekend", 1, "WEEKEND", True, False),
    ("Weekly", 1, "WEEKLY", True, False), ("Any_Nodes", 1, "ANY_NODES", True, False),
    ("License_Only", 1, "ANY_NODES", True, False), ("Static_Alloc", 1, "STATIC", True, False),
    ("Part_Nodes", 2, "PART_NODES", True, False), ("magnetic", 3, "MAGNETIC", True, False),
    ("promiscuous", 2, "MAGNETIC", True, False), ("PURGE_COMP", 2, "PURGE_COMP", True, False),
    ("Time_Float", 1, "TIME_FLOAT", False, True), ("Replace", 1, "REPLACE", False, False),
    ("Replace_Down", 8, "REPLACE_DOWN", False, False),
    ("NO_HOLD_JOBS_AFTER_END", 1, "NO_HOLD_JOBS_AFTER_END", False, False),
    ("User_Delete", 1, "USER_DELETE", True, False), ("Force_Start", 1, "FORCE_START", False, True))


@dataclass(frozen=True, slots=True)
class ParsedFlags:
    """``given``: flags to set, and ``NO_`` + those to take away; ``purge_after``: text after ``PURGE_COMP=``."""

    given: frozenset[str]
    purge_after: str = ""


def parse_flags(text: str) -> ParsedFlags | None:
    """``Flags=``: words with commas between them, ``+`` or ``-`` before the first of those added or taken away.
    None: one of them is not known."""
    sign = ""
    given: set[str] = set()
    purge_after = ""
    for part in text.split(","):
        if part[:1] in ("+", "-"):
            sign, part = part[0], part[1:]
        if not part:
            continue
        word, _, value = part.partition("=")
        for name, least, flag, removable, new_only in _WORDS:
            if len(word) > len(name) or not name.lower().startswith(word.lower()) or len(word) < least:
                continue
            if (sign == "-" and not removable) or (sign and new_only):
                continue
            given.add("NO_" + flag if sign == "-" else flag)
            purge_after = value if flag == "PURGE_COMP" else purge_after
            break
        else:
            return None
    return ParsedFlags(frozenset(given), purge_after)


def flags_text(flags: Iterable[str], purge_comp_s: int = 0, duration: str = "") -> str:
    """As ``Flags=`` shows them. ``duration``: ``purge_comp_s`` as hh:mm:ss."""
    words = set(flags)
    shown = [name for name in SHOWN if name in words]
    return ",".join(f"PURGE_COMP={duration}" if name == "PURGE_COMP" and purge_comp_s and duration else name
                    for name in shown)
