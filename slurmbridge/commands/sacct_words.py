"""How sacct reads the words of its options' values, with its own texts for what it cannot read."""
from __future__ import annotations

import grp

from slurmbridge.commands.common import Stop
from slurmbridge.slurm import hostlist
from slurmbridge.slurm.memory import leading_int

FLAGS = ("SchedSubmit", "SchedMain", "SchedBackfill", "StartReceived")
_FLAG_WORDS = ("None", *FLAGS)
_MAX_INT = 0x7FFFFFFF


def char_list(into: list[str], text: str) -> list[str]:
    """slurm_addto_char_list: words in lower case, hosts in brackets written out, a word that comes again moves back.

    Returns what sacct complains of.
    """
    complaints: list[str] = []
    for word in _split(text.strip("\"'")):
        names = [word]
        if "[" in word:
            try:
                names = hostlist.expand(word)
            except hostlist.HostlistError:
                names = [word]
                inside = word.partition("[")[2].partition("]")[0]
                complaints.append(f"sacct: error: _parse_single_range: Invalid range: `{inside}'\n")
        for name in names:
            lowered = name.strip().lower()
            if lowered in into:
                into.remove(lowered)
            into.append(lowered)
    if not _split(text.strip("\"'")):
        into.append("")                        # fits nothing
    return complaints


def _split(text: str) -> list[str]:
    """At commas outside brackets; empty words are left out."""
    words, depth, start = [], 0, 0
    for index, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if char == "," and depth <= 0:
            words.append(text[start:index])
            start = index + 1
    words.append(text[start:])
    return [word for word in words if word]


def number_range(text: str, what: str) -> tuple[int, int]:
    """``4``, ``1-4``, ``*``; k and m multiply."""
    if not text or text[0] == "*":
        return 1, _MAX_INT

    def number(rest: str, least: int) -> tuple[int, str]:
        value, rest = leading_int(rest) or (0, rest)
        if rest[:1] in ("k", "K", "m", "M"):
            value, rest = value * (1024 if rest[0] in "kK" else 1048576), rest[1:]
        if (rest and not rest.startswith("-")) or value < least:
            raise Stop.error("sacct", f'Invalid numeric value "{text}" for {what}.')
        if value > _MAX_INT:
            raise Stop.error("sacct", f"Numeric argument ({value}) too large for {what}.")
        return value, rest

    low, rest = number(text, 0)
    if not rest:
        return low, 0
    high, _ = number(rest[1:], 1)
    return low, high


def gid_of(text: str) -> int | None:
    try:
        return grp.getgrnam(text).gr_gid
    except (KeyError, ValueError):
        return int(text) if text.isascii() and text.isdigit() and int(text) <= 0xFFFFFFFF else None


def flags(text: str) -> frozenset[str]:
    found = set()
    for word in text.split(","):
        if not word:
            continue
        name = next((flag for flag in _FLAG_WORDS if flag.lower() in word.lower()), None)
        if name is None:
            raise Stop.error("sacct", f"str_2_job_flags: Invalid job flag {word}")
        found.add(name)
    return frozenset(found - {"None"})
