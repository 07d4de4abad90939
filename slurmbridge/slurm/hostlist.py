"""Host lists such as ``gpu[01-04,7],login``: one name for many nodes, as every Slurm command reads and prints them.

A list keeps its order and its duplicates; numbers join into ranges only where neighbours follow one another with
compatible zero padding. ``scontrol show hostnames`` is :func:`expand`, ``show hostlist`` is ``parse(text).ranged()``,
``show hostlistsorted`` is the same after :meth:`Hostlist.sort`. (scontrol(1), slurm.conf(5) NodeName.)
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cmp_to_key
from itertools import pairwise

MAX_RANGE = 64 * 1024
"""Most hosts one range may name."""
MAX_HOSTS = 4 * MAX_RANGE
"""Most hosts one list may name: products of ranges are short to write and long to expand."""
_SEPARATORS = "\t, \n"


class HostlistError(ValueError):
    """The text is no host list. ``str(error)`` is what Slurm logs about it, or "" where it says nothing of its own."""


class HostRange:
    """``prefix`` followed by ``lo`` … ``hi``, padded to ``width``; ``width`` -1 = the bare name ``prefix``."""

    __slots__ = ("hi", "lo", "prefix", "width")

    def __init__(self, prefix: str, lo: int = 0, hi: int = 0, width: int = -1) -> None:
        self.prefix, self.lo, self.hi, self.width = prefix, lo, hi, width

    @property
    def count(self) -> int:
        return self.hi - self.lo + 1

    def hosts(self) -> Iterator[str]:
        if self.width < 0:
            yield self.prefix
            return
        for number in range(self.lo, self.hi + 1):
            yield f"{self.prefix}{number:0{self.width}d}"

    def numbers(self) -> str:
        if self.width < 0:
            return ""
        text = f"{self.lo:0{self.width}d}"
        return text if self.hi == self.lo else f"{text}-{self.hi:0{self.width}d}"

    def same_family(self, other: HostRange) -> bool:
        """Both numbered, with the same prefix: they may share one pair of brackets."""
        return self.width >= 0 and other.width >= 0 and natural_compare(self.prefix, other.prefix) == 0


class Hostlist:
    """Ranges in order. ``sort`` and ``unique`` work in place."""

    __slots__ = ("ranges",)

    def __init__(self, ranges: list[HostRange] | None = None) -> None:
        self.ranges: list[HostRange] = ranges or []

    def __iter__(self) -> Iterator[str]:
        for item in self.ranges:
            yield from item.hosts()

    def __len__(self) -> int:
        return sum(item.count for item in self.ranges)

    def push(self, new: HostRange) -> None:
        """Appends, joining the last range where it goes on without a gap."""
        if self.ranges and new.width >= 0:
            tail = self.ranges[-1]
            if tail.hi == new.lo - 1 and tail.same_family(new) and _same_width(tail, new):
                tail.hi = new.hi
                return
        self.ranges.append(new)

    def push_host(self, name: str) -> None:
        self.push(_split(name))

    def sort(self) -> None:
        """By name, numbers as numbers; duplicates stay."""
        if len(self.ranges) < 2:
            return
        if any(a.hi >= b.lo for a, b in _numbered_pairs(_sorted(self.ranges))):
            # overlapping ranges: take them apart, so that duplicates stand beside each other
            self.ranges = [_split_range(item, n) for item in self.ranges for n in range(item.lo, item.hi + 1)]
        ordered = _sorted(self.ranges)
        self.ranges = []
        for item in ordered:
            self.push(item)

    def unique(self) -> None:
        """Sorts and drops duplicates."""
        if len(self.ranges) < 2:
            return
        ordered = _sorted(self.ranges)
        result = [ordered[0]]
        for item in ordered[1:]:
            last = result[-1]
            if last.width < 0 and item.width < 0 and last.prefix == item.prefix:
                continue
            if last.same_family(item) and _same_width(last, item) and item.lo <= last.hi + 1:
                last.hi = max(last.hi, item.hi)
                continue
            result.append(item)
        self.ranges = result

    def ranged(self) -> str:
        """The compressed text."""
        parts: list[str] = []
        index, ranges = 0, self.ranges
        while index < len(ranges):
            first = ranges[index]
            numbers = [first.numbers()]
            index += 1
            while index < len(ranges) and ranges[index].same_family(ranges[index - 1]):
                numbers.append(ranges[index].numbers())
                index += 1
            if len(numbers) > 1 or first.count > 1:
                parts.append(f"{first.prefix}[{','.join(numbers)}]")
            else:
                parts.append(first.prefix + numbers[0])
        return ",".join(parts)


def parse(text: str) -> Hostlist:
    """Reads a host list. Raises HostlistError."""
    result = Hostlist()
    room = MAX_HOSTS
    for token in _tokens(text):
        room = _push_token(result, token, room)
    return result


def expand(text: str) -> list[str]:
    """All names, in order. Raises HostlistError."""
    return list(parse(text))


def compress(hosts: Iterable[str], *, sort: bool = False, unique: bool = False) -> str:
    """Names to one text. Unsorted input keeps its order; ``unique`` implies ``sort``."""
    result = Hostlist()
    for name in hosts:
        result.push_host(name)
    if unique:
        result.unique()
    elif sort:
        result.sort()
    return result.ranged()


def natural_compare(a: str, b: str) -> int:
    """-1, 0, 1: text, with runs of digits compared as numbers (runs that begin with 0 as fractions)."""
    if a == b:
        return 0
    i = j = 0
    while True:
        while i < len(a) and a[i].isspace():
            i += 1
        while j < len(b) and b[j].isspace():
            j += 1
        x, y = a[i:i + 1], b[j:j + 1]
        if _is_digit(x) and _is_digit(y):
            left, right = _digits(a, i), _digits(b, j)
            if x == "0" or y == "0":
                shared = min(len(left), len(right))
                result = _compare(left[:shared], right[:shared]) or _compare(len(left), len(right))
            else:
                result = _compare(len(left), len(right)) or _compare(left, right)
            if result:
                return result
        if not x and not y:
            return 0
        if x != y:
            return -1 if x < y else 1
        i += 1
        j += 1


def _compare(a: str | int, b: str | int) -> int:
    return (a > b) - (a < b)        # type: ignore[operator]


def _is_digit(char: str) -> bool:
    return "0" <= char <= "9"


def _digits(text: str, start: int) -> str:
    end = start
    while end < len(text) and "0" <= text[end] <= "9":
        end += 1
    return text[start:end]


def _tokens(text: str) -> Iterator[str]:
    """Splits at separators that are outside brackets."""
    depth, start = 0, -1
    for index, char in enumerate(text):
        if depth == 0 and char in _SEPARATORS:
            if start >= 0:
                yield text[start:index]
                start = -1
            continue
        if start < 0:
            start = index
        if char == "[":
            depth = 1 if "]" in text[index:] else 0
        elif char == "]":
            depth = 0
    if start >= 0:
        yield text[start:]


def _push_token(result: Hostlist, token: str, room: int) -> int:
    """How many more hosts the list may have then. Raises HostlistError."""
    at = token.rfind("[")
    if at < 0:
        result.push_host(token)
        return room - 1
    prefix, rest = token[:at], token[at + 1:]
    if "]" not in rest:
        raise HostlistError("")
    inner, suffix = rest.split("]", 1)
    return _push_ranges(result, prefix, suffix, [_parse_range(item) for item in inner.split(",")], room)


def _push_ranges(result: Hostlist, prefix: str, suffix: str, ranges: list[tuple[int, int, int]], room: int) -> int:
    open_at = prefix.rfind("[")
    close_at = prefix.rfind("]")
    if 0 <= open_at < close_at:
        outer = [_parse_range(item) for item in prefix[open_at + 1:close_at].split(",")]
        if sum(hi - lo + 1 for lo, hi, _ in outer) > MAX_RANGE:
            raise HostlistError("")
        head, tail = prefix[:open_at], prefix[close_at + 1:]
        for lo, hi, width in outer:
            for number in range(lo, hi + 1):
                room = _push_ranges(result, f"{head}{number:0{width}d}{tail}", suffix, ranges, room)
        return room
    room -= sum(hi - lo + 1 for lo, hi, _ in ranges)
    if room < 0:
        raise HostlistError("")
    for lo, hi, width in ranges:
        if suffix:
            for number in range(lo, hi + 1):
                result.push(HostRange(f"{prefix}{number:0{width}d}{suffix}"))
        else:
            result.push(HostRange(prefix, lo, hi, width))
    return room


def _parse_range(text: str) -> tuple[int, int, int]:
    lo_text, dash, hi_text = text.partition("-")
    if not _all_digits(lo_text) or (hi_text and not _all_digits(hi_text)):
        raise HostlistError(f"_parse_single_range: Invalid range: `{text}'")
    lo = int(lo_text)
    hi = int(hi_text) if dash and hi_text else lo
    if lo > hi or (dash and not hi_text):
        raise HostlistError(f"_parse_single_range: Invalid range: `{text}'")
    if hi - lo + 1 > MAX_RANGE:
        raise HostlistError(f"_parse_single_range: Too many hosts in range `{text}'")
    return lo, hi, len(lo_text)


def _all_digits(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _split(name: str) -> HostRange:
    end = len(name)
    while end and "0" <= name[end - 1] <= "9":
        end -= 1
    if end == len(name) or len(name) - end > 19:
        return HostRange(name)
    digits = name[end:]
    return HostRange(name[:end], int(digits), int(digits), len(digits))


def _split_range(item: HostRange, number: int) -> HostRange:
    return HostRange(item.prefix, number, number, item.width) if item.width >= 0 else HostRange(item.prefix)


def _padding(number: int, width: int) -> int:
    return max(width - len(str(number)), 0)


def _same_width(a: HostRange, b: HostRange) -> bool:
    """Whether one width prints both as they are now; if so both get it."""
    if a.width == b.width:
        return True
    a_own, a_other = _padding(a.lo, a.width), _padding(a.lo, b.width)
    b_own, b_other = _padding(b.lo, b.width), _padding(b.lo, a.width)
    if a_own != a_other and b_own != b_other:
        return False
    if a_own != a_other:
        b.width = a.width
    else:
        a.width = b.width
    return True


def _order(a: HostRange, b: HostRange) -> int:
    result = natural_compare(a.prefix, b.prefix)
    if result:
        return result
    if (a.width < 0) != (b.width < 0):
        return -1 if a.width < 0 else 1
    if a.width < 0:
        return 0
    if _same_width(a, b):
        return a.lo - b.lo
    return a.width - b.width


def _sorted(ranges: list[HostRange]) -> list[HostRange]:
    width = ranges[0].width
    if all(item.width == width for item in ranges) and all(item.prefix == ranges[0].prefix for item in ranges):
        return sorted(ranges, key=lambda item: item.lo)
    return sorted(ranges, key=cmp_to_key(_order))


def _numbered_pairs(ranges: list[HostRange]) -> Iterator[tuple[HostRange, HostRange]]:
    for a, b in pairwise(ranges):
        if a.same_family(b):
            yield a, b
