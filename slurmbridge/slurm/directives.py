"""``#SBATCH`` lines: which lines count, how they split into arguments, where het components end.

Slurm's dialect is not a shell's: quotes group, a backslash keeps the next character, ``#`` ends the line's arguments,
and everything after the first command is left alone (sbatch(1)).
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

SPACE = " \t\n\v\f\r"
MAX_SCRIPT_BYTES = 512 * 1024 * 1024
"""Beyond this sbatch refuses to read the file at all."""
_SEPARATORS = ("packjob", "hetjob")


class DirectiveError(ValueError):
    """A line that ends the client (``fatal``)."""


class Logger(Protocol):
    def error(self, text: str) -> None: ...
    def warning(self, text: str) -> None: ...


def script_error(data: bytes) -> tuple[str, ...]:
    """What sbatch says about a script it does not send at all, line by line; () for a good one."""
    if not data:
        return ("Batch script is empty!",)
    head = data.split(b"\0", 1)[0]
    if not head.strip(b" \t\n\v\f\r"):
        return ("Batch script contains only whitespace!",)
    if not data.startswith(b"#!"):
        return ("This does not look like a batch script.  The first",
                "line must start with #! followed by the path to an interpreter.", "For instance: #!/bin/sh")
    if b"\0" in data:
        return ("The Slurm controller does not allow scripts that", "contain a NULL character '\\0'.")
    if b"\r\n" in data:
        return ("Batch script contains DOS line breaks (\\r\\n)", "instead of expected UNIX line breaks (\\n).")
    return ()


def component_arguments(script: str, component: int, file_name: str, log: Logger) -> tuple[list[str], bool]:
    """(arguments of one het component's directives, whether further components follow). Raises DirectiveError."""
    arguments: list[str] = []
    seen = 0
    warned = False
    for number, prefix, rest in directive_lines(script):
        if prefix == "#SLURM" and not warned:
            log.error("Change from #SLURM to #SBATCH in your script and verify the options are valid in sbatch")
            warned = True
        rest = rest.lstrip(SPACE)
        if separator_at(rest):
            seen += 1
        if seen < component:
            continue
        if seen > component:
            return arguments, True
        arguments += line_arguments(rest, number, file_name, log)
    return arguments, False


def directive_lines(script: str) -> Iterator[tuple[int, str, str]]:
    """(line number, prefix, rest of the line) up to the first command."""
    for number, line in enumerate(script.split("\n"), 1):
        if line.startswith("#SBATCH"):
            yield number, "#SBATCH", line[7:]
        elif line.startswith("#SLURM"):
            yield number, "#SLURM", line[6:]
        elif not line.startswith("#"):
            stripped = line.lstrip(SPACE)
            if stripped and stripped[0] != "#":
                return


def foreign_arguments(script: str, prefix: str, file_name: str, log: Logger) -> list[str] | None:
    """Arguments of another system's directives (``#PBS``, ``#BSUB``); None where there are none.

    These are found after commands too, until about a hundred lines are no comments.
    """
    arguments: list[str] = []
    found = False
    commands = 0
    for number, line in enumerate(script.split("\n"), 1):
        if line.startswith(prefix):
            found = True
            arguments += line_arguments(line[len(prefix):], number, file_name, log)
            continue
        commands += not line.startswith("#")
        if commands > 100:
            break
    return arguments if found else None


def separator_at(text: str) -> str:
    """``hetjob`` or ``packjob`` where ``text`` begins with that word, else ""."""
    for word in _SEPARATORS:
        if text[:len(word)].lower() == word and (len(text) == len(word) or text[len(word)] in SPACE):
            return word
    return ""


def line_arguments(rest: str, line: int, file_name: str, log: Logger) -> list[str]:
    """The arguments of one directive line; an empty one (``""``) ends them, as does ``hetjob``."""
    result: list[str] = []
    position = 0
    while True:
        argument, position = _argument(rest, position, line, file_name, log)
        if argument is None:
            return result
        result.append(argument)


def _argument(text: str, start: int, line: int, file_name: str, log: Logger) -> tuple[str | None, int]:
    index, end = start, len(text)
    while index < end and text[index] in SPACE:
        index += 1
    separator = separator_at(text[index:index + 8])
    if separator:
        if separator == "packjob":
            log.warning('The "packjob" component separator is deprecated. Please use "hetjob" instead.')
        return None, end
    if text[index:index + 1] == ":":
        raise DirectiveError(f"{file_name}: line {line}: Unexpected `:` in [{text[start:]}]")
    collected: list[str] = []
    quote = ""
    escaped = False
    while index < end and (quote or text[index] not in SPACE):
        char = text[index]
        index += 1
        if escaped:
            escaped = False
        elif char == "\\":
            if text[index:index + 1] == " ":
                collected.append(" ")
                index += 1
            else:
                escaped = True
            continue
        elif quote:
            if char == quote:
                quote = ""
                continue
        elif char in "\"'":
            quote = char
            continue
        elif char == "#":
            index -= 1
            break
        collected.append(char)
    if quote:
        raise DirectiveError(f"{file_name}: line {line}: Unmatched `{quote}` in [{text[start:]}]")
    return "".join(collected) if collected else None, index
