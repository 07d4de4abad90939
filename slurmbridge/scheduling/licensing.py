"""Licenses that jobs ask for (sbatch(1), --licenses): all that are named, or one of several (``a:2|b``)."""
from __future__ import annotations

from collections.abc import Callable

Licenses = tuple[tuple[str, int], ...]


def counts(text: str) -> dict[str, int]:
    """"matlab:10,ansys" (slurm.conf(5), Licenses): counts by name, 1 where none is given."""
    found = {}
    for item in text.replace(";", ",").replace("|", ",").split(","):
        name, _, count = item.strip().replace("=", ":").partition(":")
        if name and name != "(null)":
            found[name] = int(count) if count.isdigit() else 1
    return found


def is_choice(text: str) -> bool:
    """Whether one of those named is enough."""
    return "|" in text


def granted(asked: Licenses, *, choice: bool, free: Callable[[str], int]) -> Licenses | None:
    """What the job gets: of a choice the first that is there in its number; None where it has to wait.
    ``free``: how many of one name there are for it."""
    if not choice:
        return asked if all(free(name) >= count for name, count in asked) else None
    return next((((name, count),) for name, count in asked if free(name) >= count), None) if asked else ()


def text(licenses: Licenses, *, choice: bool = False) -> str:
    """As scontrol shows what a job has; of a job that waits again also what it asks for."""
    return ("|" if choice else ";").join(f"{name}:{count}" for name, count in licenses)
