"""Node states: Slurm's numbers, the words and suffix characters that sinfo and scontrol show, and sinfo's -t filter.

A state is a base (low four bits) and flags. Records keep words (``base_state`` and a set of flags); ``number`` turns
them into Slurm's integer, by which sinfo also sorts. (sinfo(1) NODE STATE CODES.)
"""
from __future__ import annotations

from collections.abc import Iterable

BASES = ("UNKNOWN", "DOWN", "IDLE", "ALLOCATED", "ERROR", "MIXED", "FUTURE")
_SHORT_BASES = ("UNK", "DOWN", "IDLE", "ALLOC", "ERR", "MIX", "FUTR")
BASE_MASK = 0xF
UNKNOWN, DOWN, IDLE, ALLOCATED, ERROR, MIXED, FUTURE = range(7)

_BITS = {
    "EXTERNAL": 4, "RESERVED": 5, "UNDRAIN": 6, "CLOUD": 7, "RESUME": 8, "DRAIN": 9, "COMPLETING": 10,
    "NOT_RESPONDING": 11, "POWERED_DOWN": 12, "FAIL": 13, "POWERING_UP": 14, "MAINTENANCE": 15,
    "REBOOT_REQUESTED": 16, "REBOOT_CANCEL": 17, "POWERING_DOWN": 18, "DYNAMIC_FUTURE": 19, "REBOOT_ISSUED": 20,
    "PLANNED": 21, "INVALID_REG": 22, "POWER_DOWN": 23, "POWER_UP": 24, "POWER_DRAIN": 25, "DYNAMIC_NORM": 26,
    "BLOCKED": 27}
FLAGS = {word: 1 << bit for word, bit in _BITS.items()}
_ALIASES = {"MAINT": "MAINTENANCE", "NO_RESPOND": "NOT_RESPONDING", "RES": "RESERVED"}
_SHOWN_ORDER = (
    "BLOCKED", "CLOUD", "COMPLETING", "DRAIN", "DYNAMIC_FUTURE", "DYNAMIC_NORM", "EXTERNAL", "INVALID_REG", "FAIL",
    "MAINTENANCE", "POWER_DOWN", "POWER_UP", "POWERED_DOWN", "REBOOT_REQUESTED", "REBOOT_ISSUED", "RESERVED", "RESUME",
    "NOT_RESPONDING", "PLANNED", "POWERING_UP", "POWERING_DOWN")
_SUFFIXES = (("MAINTENANCE", "$"), ("REBOOT_ISSUED", "^"), ("REBOOT_REQUESTED", "@"), ("POWERING_UP", "#"),
             ("POWERING_DOWN", "%"), ("POWERED_DOWN", "~"), ("POWER_DOWN", "!"), ("NOT_RESPONDING", "*"))
_ALONE = (
    ("REBOOT_ISSUED", "REBOOT_ISSUED", "BOOT^"), ("REBOOT_CANCEL", "CANCEL_REBOOT", "CANC_R"),
    ("CLOUD", "CLOUD", "CLOUD"), ("EXTERNAL", "EXTERNAL", "EXT"), ("POWER_DOWN", "POWER_DOWN", "POW_DN"),
    ("POWER_UP", "POWER_UP", "POW_UP"), ("POWERING_DOWN", "POWERING_DOWN", "POWRING_DN"),
    ("POWERED_DOWN", "POWERED_DOWN", "POWERED_DN"), ("POWERING_UP", "POWERING_UP", "POWERING_UP"),
    ("UNDRAIN", "UNDRAIN", ""), ("DYNAMIC_FUTURE", "DYNAMIC_FUTURE", ""), ("DYNAMIC_NORM", "DYNAMIC_NORM", ""))
"""(flag, long, compact) of the numbers that are one flag and base UNKNOWN: names for -t, never a real node's state."""


def number(base: str, flags: Iterable[str]) -> int:
    """Slurm's integer of a base word and flag words (words that Slurm has no bit for are passed over)."""
    state = BASES.index(base) if base in BASES else UNKNOWN
    for flag in flags:
        state |= FLAGS.get(_ALIASES.get(flag, flag), 0)
    return state


def _has(state: int, flag: str) -> bool:
    return bool(state & FLAGS[flag])


def is_draining(state: int) -> bool:
    """Drain asked for, work still there."""
    return _has(state, "DRAIN") and (state & BASE_MASK in (ALLOCATED, ERROR, MIXED) or _has(state, "COMPLETING"))


def is_drained(state: int) -> bool:
    return _has(state, "DRAIN") and not is_draining(state)


def _suffix(state: int) -> str:
    return next((char for flag, char in _SUFFIXES if _has(state, flag)), "")


def shown(state: int, *, compact: bool = False) -> str:
    """The one word of sinfo's STATE, upper case: ``IDLE``, ``MIXED-``, ``DRAINING*``; ``compact``: ``MIX-``, …"""
    base = state & BASE_MASK
    star = "*" if _has(state, "NOT_RESPONDING") else ""
    busy = base in (ALLOCATED, MIXED)
    if _has(state, "INVALID_REG"):
        return "INVAL"
    if _has(state, "MAINTENANCE") and not (_has(state, "DRAIN") or busy or base == DOWN):
        return "MAINT" + star
    if (_has(state, "REBOOT_REQUESTED") or _has(state, "REBOOT_ISSUED")) and not busy:
        return ("BOOT" if compact else "REBOOT") + ("^" if _has(state, "REBOOT_ISSUED") else star)
    working = busy or _has(state, "COMPLETING")
    if _has(state, "DRAIN"):
        word = ("DRNG" if working else "DRAIN") if compact else ("DRAINING" if working else "DRAINED")
        return word + _suffix(state)
    if _has(state, "FAIL"):
        return (("FAILG" if compact else "FAILING") if working else "FAIL") + star
    for flag, long, short in _ALONE:
        if state == FLAGS[flag] and (short or not compact):
            return short if compact else long
    names = _SHORT_BASES if compact else BASES
    suffix = _suffix(state)
    if base == ALLOCATED:
        return names[base] + (suffix or ("+" if _has(state, "COMPLETING") else ""))
    if base == DOWN:
        return names[base] + suffix
    if _has(state, "COMPLETING"):
        return ("COMP" if compact else "COMPLETING") + suffix
    if base == IDLE:
        return names[base] + suffix if suffix else _idle_word(state, compact)
    if base == MIXED:
        return names[base] + (suffix or ("-" if _has(state, "PLANNED") else ""))
    if base == FUTURE:
        return names[base] + suffix
    if _has(state, "RESUME"):
        return "RESM" if compact else "RESUME"
    return names[base] + star if base == UNKNOWN else "?"


def _idle_word(state: int, compact: bool) -> str:
    for flag, long, short in (("RESERVED", "RESERVED", "RESV"), ("BLOCKED", "BLOCKED", "BLOCK"),
                              ("PLANNED", "PLANNED", "PLND")):
        if _has(state, flag):
            return short if compact else long
    return "IDLE"


def complete(state: int) -> str:
    """Base and every flag, as ``scontrol show node`` has it: ``IDLE+DRAIN``, ``MIXED+PLANNED``."""
    base = state & BASE_MASK
    word = BASES[base] if base < len(BASES) else "INVALID"
    return word + "".join(f"+{flag}" for flag in _SHOWN_ORDER if _has(state, flag))


# ------------------------------------------------------------------------------------------------- sinfo's filter

_FILTER_WORDS: tuple[tuple[str, int], ...] = (
    ("BLOCKED", FLAGS["BLOCKED"]), ("INVALID_REG", FLAGS["INVALID_REG"]), ("PLANNED", FLAGS["PLANNED"]),
    ("PLND", FLAGS["PLANNED"]), ("DRAIN", FLAGS["DRAIN"]), ("DRAINED", FLAGS["DRAIN"] | IDLE),
    ("RESV", FLAGS["RESERVED"]), ("RESERVED", FLAGS["RESERVED"]), ("DRAINING", FLAGS["DRAIN"] | ALLOCATED),
    ("DRNG", FLAGS["DRAIN"] | ALLOCATED), ("DYNAMIC_FUTURE", FLAGS["DYNAMIC_FUTURE"]),
    ("DYNAMIC_NORM", FLAGS["DYNAMIC_NORM"]), ("COMPLETING", FLAGS["COMPLETING"]),
    ("NO_RESPOND", FLAGS["NOT_RESPONDING"]), ("POWER_UP", FLAGS["POWER_UP"]), ("POW_UP", FLAGS["POWER_UP"]),
    ("POWERING_DOWN", FLAGS["POWERING_DOWN"]), ("POWRING_DN", FLAGS["POWERING_DOWN"]),
    ("POWERED_DOWN", FLAGS["POWERED_DOWN"]), ("POWERED_DN", FLAGS["POWERED_DOWN"]),
    ("POWER_DOWN", FLAGS["POWER_DOWN"]), ("POW_DN", FLAGS["POWER_DOWN"]), ("POWERING_UP", FLAGS["POWERING_UP"]),
    ("FAIL", FLAGS["FAIL"]), ("MAINT", FLAGS["MAINTENANCE"]), ("REBOOT", FLAGS["REBOOT_REQUESTED"]),
    ("BOOT", FLAGS["REBOOT_REQUESTED"]), ("BOOT^", FLAGS["REBOOT_ISSUED"]), ("REBOOT^", FLAGS["REBOOT_ISSUED"]),
    ("CLOUD", FLAGS["CLOUD"]), ("EXTERNAL", FLAGS["EXTERNAL"]))
FILTER_NAMES = (
    "unknown,down,idle,allocated,mixed,future,drain,drained,draining,no_respond,reserved,planned,blocked,cloud,"
    "completing,powering_down,powered_down,power_down,powering_up,power_up,inval,fail,maint,reboot,reboot^,external,"
    "dynamic_future,dynamic_norm")
"""What sinfo names as valid for -t."""


def filter_number(word: str) -> int | None:
    """The state that a word of -t asks for (any unambiguous or first beginning counts); None for no such state."""
    upper = word.upper()
    if not upper:
        return UNKNOWN
    for base, (long, short) in enumerate(zip(BASES, _SHORT_BASES)):
        if base == ERROR:
            continue
        if long.startswith(upper) or short.startswith(upper):
            return base
    return next((state for name, state in _FILTER_WORDS if name.startswith(upper)), None)


def matches(wanted: int, state: int, cpus_alloc: int) -> bool:
    """Whether a node in ``state`` is one of those that -t ``wanted`` asks for."""
    if wanted == FLAGS["DRAIN"]:
        return _has(state, "DRAIN")
    if is_draining(wanted):
        return is_draining(state)
    if is_drained(wanted):
        return is_drained(state)
    if wanted & ~BASE_MASK:
        return bool(wanted & state & ~BASE_MASK)
    if wanted == ALLOCATED:
        return cpus_alloc > 0
    return wanted == state & BASE_MASK
