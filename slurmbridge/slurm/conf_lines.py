"""slurm.conf's grammar: physical lines to ``key=value`` entries with their place, before any meaning.

One entry a logical line: a first pair and, for the keys that take a list of pairs (NodeName, PartitionName, NodeSet,
DownNodes, SlurmctldHost, and gres.conf's lines), the pairs after it. A backslash at the end continues a line, ``#``
starts a comment unless escaped, values with blanks are quoted, keys are case-insensitive. ``Include`` files are read in
place. (slurm.conf(5).)
"""
from __future__ import annotations

import os
import re
from dataclasses import dataclass

_PAIR = re.compile(r'[ \t\r\n\v\f]*([A-Za-z0-9_.]+)[ \t\r\n\v\f]*([-*+/]?)=[ \t\r\n\v\f]*'
                   r'(?:"([^"]*)"|([^ \t\r\n\v\f]+))(?:[ \t\r\n\v\f]|$)')
_UNCOMMENTED = re.compile(r"(?:[^\\#]|\\.|\\\Z)*", re.S)
_INCLUDE = re.compile(r"include[ \t]+([^ \t\r\n]+)(.*)\Z", re.I | re.S)
_BLANK = " \t\r\n\v\f"

MAX_INCLUDE_DEPTH = 16


class ConfError(ValueError):
    """Something in a configuration file cannot be used. ``str(error)`` is one line, ``file:line: what``."""

    def __init__(self, path: str, line: int, message: str) -> None:
        self.path, self.line, self.message = path, line, message
        super().__init__(f"{path}:{line}: {message}" if line else f"{path}: {message}")


@dataclass(frozen=True, slots=True)
class ConfEntry:
    """``key=value`` and the pairs after it, as written. ``pairs`` keep their order; repeated keys are all there."""

    path: str
    line: int
    key: str
    value: str
    pairs: tuple[tuple[str, str], ...] = ()

    def error(self, message: str) -> ConfError:
        return ConfError(self.path, self.line, message)


def read_text(path: str) -> str:
    """The file's text (bytes that are not UTF-8 as surrogate escapes). Raises ConfError."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
            text = file.read(64 << 20)
    except OSError as error:
        raise ConfError(path, 0, f"cannot be read: {error.strerror}") from None
    if "\0" in text:
        raise ConfError(path, text[:text.index("\0")].count("\n") + 1, "NUL byte: this is not a text file")
    return text


def logical_lines(text: str) -> list[tuple[int, str]]:
    """(first line number, text) of every logical line: comments off, continuations joined, escapes taken."""
    result: list[tuple[int, str]] = []
    start, joined = 0, ""
    for number, raw in enumerate(text.split("\n"), 1):
        match = _UNCOMMENTED.match(raw)
        line = match[0] if match else raw
        start = start or number
        bare = line.rstrip(_BLANK)
        slashes = len(bare) - len(bare.rstrip("\\"))
        if slashes % 2:
            joined += bare[:-1]
            continue
        result.append((start, re.sub(r"\\(.)", r"\1", joined + line)))
        start, joined = 0, ""
    if joined:
        result.append((start, joined))
    return [(number, line) for number, line in result if line.strip(_BLANK)]


def parse_pairs(path: str, number: int, line: str) -> list[tuple[str, str]]:
    """Every ``key=value`` of a line. Raises ConfError at what is none."""
    pairs: list[tuple[str, str]] = []
    at = 0
    while line[at:].strip(_BLANK):
        match = _PAIR.match(line, at)
        if match is None:
            raise ConfError(path, number, f'parse error at "{line[at:].strip(_BLANK)[:80]}"')
        pairs.append((match[1], match[3] if match[3] is not None else match[4]))
        at = match.end()
    return pairs


def read_entries(path: str, *, cluster_name: str = "", depth: int = 0) -> list[ConfEntry]:
    """All entries of a file and of the files it includes, in order. Raises ConfError.

    ``%c`` in an Include path is the cluster's name (lower case); relative paths are beside the including file.
    """
    if depth > MAX_INCLUDE_DEPTH:
        raise ConfError(path, 0, "Include files nest too deep (does one include itself?)")
    entries: list[ConfEntry] = []
    for number, line in logical_lines(read_text(path)):
        include = _INCLUDE.match(line)
        if include and "=" not in include[1]:
            if include[2].strip(_BLANK):
                raise ConfError(path, number, f'parse error at "{include[2].strip(_BLANK)[:80]}"')
            name = include[1]
            if "%c" in name:
                if not cluster_name:
                    raise ConfError(path, number, "Include with %c before ClusterName")
                name = name.replace("%c", cluster_name.lower())
            if "*" in name:
                raise ConfError(path, number, f"Include {name}: Slurm does not expand * in Include")
            inner = os.path.join(os.path.dirname(path), name)
            if not os.path.exists(inner):
                raise ConfError(path, number, f"Include file {inner} does not exist")
            entries += read_entries(inner, cluster_name=cluster_name, depth=depth + 1)
            cluster_name = _cluster_of(entries) or cluster_name
            continue
        (key, value), *rest = parse_pairs(path, number, line)
        entries.append(ConfEntry(path, number, key, value, tuple(rest)))
        if key.lower() == "clustername":
            cluster_name = value
    return entries


def _cluster_of(entries: list[ConfEntry]) -> str:
    return next((entry.value for entry in reversed(entries) if entry.key.lower() == "clustername"), "")
