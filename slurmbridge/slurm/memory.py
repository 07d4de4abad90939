"""Sizes: what ``--mem`` and its kin accept, and how scontrol, squeue and sacct print counts with units."""
from __future__ import annotations

_UNITS = ("", "K", "M", "G", "T", "P")
_TO_MB = {"": 1, "m": 1, "g": 1024, "t": 1024 * 1024}
_SUFFIXES = {
    "": 1, "k": 1 << 10, "kib": 1 << 10, "kb": 10 ** 3, "m": 1 << 20, "mib": 1 << 20, "mb": 10 ** 6,
    "g": 1 << 30, "gib": 1 << 30, "gb": 10 ** 9, "t": 1 << 40, "tib": 1 << 40, "tb": 10 ** 12,
    "p": 1 << 50, "pib": 1 << 50, "pb": 10 ** 15,
}
MAX_INT64 = (1 << 63) - 1
_MANY_DIGITS = 100                         # more make no number that anybody has, and int() refuses thousands of them


def leading_int(text: str) -> tuple[int, str] | None:
    """C's strtol: the number that ``text`` begins with, and the rest. None where it begins with none."""
    start = len(text) - len(text.lstrip(" \t\n\v\f\r"))
    end = start + (text[start:start + 1] in ("+", "-"))
    first = end
    while end < len(text) and "0" <= text[end] <= "9":
        end += 1
    if end == first:
        return None
    return int(text[start:end][:_MANY_DIGITS]), text[end:]


def atoi(text: str) -> int:
    """C's atoi: the number that ``text`` begins with, of 32 bits; 0 where it begins with none."""
    number = (leading_int(text) or (0, ""))[0]
    number = max(-MAX_INT64 - 1, min(number, MAX_INT64))
    return (number + (1 << 31)) % (1 << 32) - (1 << 31)


def parse_mb(text: str) -> int | None:
    """Megabytes of ``500``, ``4G``, ``512MB``, ``1t``; kilobytes round up. None: no such size."""
    parsed = leading_int(text)
    if parsed is None or parsed[0] < 0 or parsed[0] >= MAX_INT64:
        return None
    number, unit = parsed[0], parsed[1].lower()
    if len(unit) == 2 and unit[1] == "b":
        unit = unit[0]
    if unit == "k":
        return (number + 1023) // 1024
    factor = _TO_MB.get(unit)
    return None if factor is None else number * factor


def plain_mb(megabytes: int) -> str:
    """The shortest exact form, megabytes without unit: 4096 -> ``4G``, 500 -> ``500``, 0 -> ``0P``."""
    index, units = 0, "MGTP"
    while index < len(units) - 1 and not megabytes % 1024:
        megabytes //= 1024
        index += 1
    if index == len(units) - 1 and not megabytes % 1024:
        return f"{megabytes // 1024}?"
    return f"{megabytes}{units[index]}" if index else str(megabytes)


def with_unit(number: float, unit: str = "M", *, exact: bool = True, divisor: int = 1024, wanted: str = "",
              raw: bool = False, keep: bool = False) -> str:
    """A count of ``unit`` as Slurm prints it: 1000 -> ``1000M``, 4096 -> ``4G``, 0 -> ``0``.

    ``exact`` goes to a larger unit only where nothing (or a half) is left; without it two decimals show the rest.
    ``wanted``: this unit and no other (``--units``). ``keep``: the unit as it is (``--noconvert``). ``raw``: the
    bare number.
    """
    if int(number) == 0:
        return "0"
    index = _UNITS.index(unit)
    if wanted:
        target = _UNITS.index(wanted)
        while index < target:
            number /= divisor
            index += 1
        while index > target:
            number *= divisor
            index -= 1
    elif raw:
        index = 0
    elif keep:
        pass
    elif exact:
        while number >= divisor and index < len(_UNITS) - 1 and int(number) % (divisor // 2) == 0:
            number /= divisor
            index += 1
    else:
        while number >= divisor and index < len(_UNITS) - 1:
            number /= divisor
            index += 1
    if int(number) == number:
        return f"{int(number)}{_UNITS[index]}"
    return f"{number:.2f}{_UNITS[index]}"


def suffix_factor(suffix: str) -> int | None:
    """1024 for ``k`` and ``KiB``, 1000 for ``kB``, and so on to P. None: no such suffix."""
    return _SUFFIXES.get(suffix.lower())
