"""Recorded calls: ``### command line``, its output, ``--- err``, its error output, ``--- rc N``."""
from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from tests.conf.world import sample


@dataclass(frozen=True)
class Recorded:
    user: str
    argv: tuple[str, ...]
    stdout: str
    stderr: str
    exit_code: int

    def __str__(self) -> str:
        return " ".join((self.user, *self.argv)).strip()[:60]


def recorded(name: str) -> list[Recorded]:
    """Every call in a file of samples."""
    calls = []
    for part in re.split(r"(?m)^### ", sample(name))[1:]:
        line, rest = part.split("\n", 1)
        user, _, command = line.rpartition(": ") if line.startswith("alice: ") else ("", "", line)
        stdout, rest = re.split(r"(?m)^--- err\n", rest)
        stderr, code = re.split(r"(?m)^--- rc ", rest)
        calls.append(Recorded(user, tuple(shlex.split(command)[1:]), stdout, stderr, int(code)))
    return calls
