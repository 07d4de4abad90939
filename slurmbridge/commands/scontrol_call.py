"""One call of scontrol: its flags, what it has said so far, and its exit code."""
from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from slurmbridge.commands.common import time_texts
from slurmbridge.commands.scontrol_job import Style
from slurmbridge.slurm import array, errors
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.slurm.zones import Zone
from slurmbridge.views.session import Reply, Session

NAME = "scontrol"


class Refused(Exception):
    """The update is not made; what to say has been said."""


class Void(Refused):
    """The update is not made, and scontrol leaves with 0 all the same."""


U16, U32, U64 = 0xFFFE, 0xFFFFFFFE, 0xFFFFFFFFFFFFFFFE
"""Slurm's values for "none" in numbers of 16, 32 and 64 bits: what is typed must be below."""
_NUMBER = re.compile(r"(?:[ \t\n\v\f\r]*[+-]?[0-9]+)?\Z")


def number_text(text: str, limit: int) -> str | None:
    """A number as scontrol reads it, in plain decimal: nothing is 0. None: it is none, or not below ``limit``."""
    number = int(text or 0) if _NUMBER.match(text) else -1
    return str(number) if 0 <= number < limit else None


def starts(word: str, name: str, least: int) -> bool:
    """Whether ``word`` is ``name`` or a beginning of at least ``least`` letters, in any case."""
    return len(word) >= min(least, len(name)) and name.lower().startswith(word.lower()) and word != ""


@dataclass(slots=True)
class Call:
    """What the functions of scontrol share. ``quiet`` is -Q, ``verbose`` -v."""

    session: Session
    env: Mapping[str, str]
    one_line: bool = False
    details: bool = False
    show_all: bool = False
    future: bool = False
    quiet: bool = False
    verbose: bool = False
    leaves: bool = False                      # exit or quit was said
    out: list[str] = field(default_factory=list)
    err: list[str] = field(default_factory=list)
    exit_code: int = 0
    style: Style = field(init=False)

    def __post_init__(self) -> None:
        show_time, warning = time_texts(NAME, self.env, self.session.now())
        if warning:
            self.err.append(warning)
        self.style = Style(self.session.now(), show_time, array_text_length=array.text_length(
            self.env.get("SLURM_BITSTR_LEN")))

    def restyle(self) -> None:
        """Takes over -o and -d, and the time."""
        self.style = Style(self.session.now(), self.style.show_time, self.one_line, self.details,
                           self.style.array_text_length)

    @property
    def zone(self) -> Zone:
        return Zone.of(self.env)

    def print(self, text: str) -> None:
        self.out.append(text)

    def fail(self, text: str, exit_code: int = 1) -> None:
        """A line on standard error, whether quiet or not."""
        self.exit_code = exit_code
        self.err.append(text + "\n")

    def complain(self, text: str) -> None:
        """A line on standard error unless quiet."""
        self.exit_code = 1
        if not self.quiet:
            self.err.append(text + "\n")

    def error(self, text: str) -> None:
        """``scontrol: error: text``."""
        self.exit_code = 1
        self.err.append(f"{NAME}: error: {text}\n")

    def missing(self, text: str) -> None:
        """A line on standard output for what was not found, unless quiet."""
        self.exit_code = 1
        if not self.quiet:
            self.out.append(text + "\n")

    def details_of(self, error: SlurmError) -> None:
        """What the controller sent along with a refusal."""
        for line in error.details:
            self.err.append(f"{NAME}: error: {line}\n")

    def refused(self, what: str, error: SlurmError) -> None:
        """``what: text`` of an administrator's act that was refused; who may not is an invalid user there."""
        self.details_of(error)
        code = errors.ESLURM_USER_ID_MISSING if error.code == errors.ESLURM_ACCESS_DENIED else error.code
        self.fail(f"{what}: {error.text if code == error.code else errors.strerror(code)}")

    async def flush(self) -> None:
        """Shows what was said so far."""
        out, err, self.out, self.err = "".join(self.out), "".join(self.err), [], []
        if out:
            await self.session.write_stdout(out)
        if err:
            await self.session.write_stderr(err)

    def reply(self) -> Reply:
        return Reply("".join(self.out), "".join(self.err), self.exit_code)
