"""Job arrays: ``--array=0-15%4,20`` as a set of task numbers, and the texts that stand for such a set."""
from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise

from slurmbridge.slurm.memory import leading_int

DEFAULT_TEXT_LENGTH = 64
"""squeue's and scontrol's limit for a list of tasks (SLURM_BITSTR_LEN)."""


class ArraySpecError(ValueError):
    """Not an array specification, or a task number beyond MaxArraySize."""


def parse(text: str, max_array_size: int = 1001) -> tuple[tuple[int, ...], int]:
    """(ascending task numbers, most to run at once or 0). Task numbers are below ``max_array_size``.

    Raises ArraySpecError, where slurmctld says ``Invalid job array specification``.
    """
    tasks: set[int] = set()
    for token in text.split(","):
        if token:
            tasks.update(_parse_token(token, max_array_size))
    if not tasks:
        raise ArraySpecError(text)
    limit = leading_int(text.split("%", 1)[1]) if "%" in text else None
    return tuple(sorted(tasks)), max(limit[0], 0) if limit else 0


def _parse_token(token: str, max_array_size: int) -> range:
    def number(rest: str) -> tuple[int, str]:
        value, rest = leading_int(rest) or (0, rest)
        return value, rest.removeprefix("]")

    first, rest = number(token.removeprefix("["))
    last, step = first, 1
    if first < 0:
        raise ArraySpecError(token)
    if rest.startswith("-"):
        last, rest = number(rest[1:])
        if rest.startswith(":"):
            step, rest = number(rest[1:])
            if step <= 0 or step >= max_array_size:
                raise ArraySpecError(token)
    if (rest and not rest.startswith("%")) or last < first or last >= max_array_size:
        raise ArraySpecError(token)
    return range(first, last + 1, step)


def ranges(tasks: Collection[int]) -> str:
    """``0-3,7,9-10``: always complete."""
    parts: list[str] = []
    first = previous = -2
    for task in sorted(tasks):
        if task == previous + 1:
            previous = task
            continue
        if previous >= 0:
            parts.append(str(first) if first == previous else f"{first}-{previous}")
        first = previous = task
    if previous >= 0:
        parts.append(str(first) if first == previous else f"{first}-{previous}")
    return ",".join(parts)


def text(tasks: Collection[int], max_running: int = 0, length: int = DEFAULT_TEXT_LENGTH) -> str:
    """The pending part of an array as squeue and scontrol print it: ``0-9%2``, ``0-98:3``, cut with ``...``.

    ``length`` is SLURM_BITSTR_LEN (0: never cut); see text_length.
    """
    ordered = sorted(tasks)
    result = ""
    if len(ordered) > 5 and ordered[-1] - ordered[0] > 10 and ordered[1] != ordered[0] + 1:
        step = ordered[1] - ordered[0]
        if all(b - a == step for a, b in pairwise(ordered)):
            result = f"{ordered[0]}-{ordered[-1]}:{step}"
    if not result:
        result = ranges(ordered)
        if 0 < length <= len(result) + 2:
            result = _cut(result, length)
    return f"{result}%{max_running}" if max_running else result


def _cut(full: str, length: int) -> str:
    """As much as fits into a C buffer of ``length`` bytes; dots over its end where it is full."""
    kept = full
    if len(full) >= length:
        kept = full[:length - 1]
    if len(kept) > length - 3:
        kept = kept[:length - 4] + "..."
    return kept


def text_length(value: str | None) -> int:
    """The limit that SLURM_BITSTR_LEN sets."""
    if value is None:
        return DEFAULT_TEXT_LENGTH
    parsed = leading_int(value)
    number = parsed[0] if parsed else 0
    return DEFAULT_TEXT_LENGTH if number < 0 else min(number, 4096)
