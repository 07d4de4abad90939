"""Commands of scontrol about slurmds' processes and secrets: refused, after their arguments are counted."""
from __future__ import annotations

from collections.abc import Sequence

from slurmbridge.commands.scontrol_call import Call
from slurmbridge.slurm import errors

_FEW = "too few arguments for keyword:{0}"
_MISSING = "missing argument for keyword:{0}"
_MANY = "too many arguments for keyword:{0}"
_ANY = 1 << 31
# letters it begins with → (fewest arguments, what is said of fewer, most arguments, what is said of more)
_COUNTS: dict[str, tuple[int, str, int, str]] = {
    "gethost": (2, "two arguments required for keyword:{0}", 2, "two arguments required for keyword:{0}"),
    "hash": (1, _MISSING, 2, _MANY), "pid": (1, _MISSING, 1, _MANY), "l": (0, "", 2, _MANY),
    "cal": (4, _FEW, 5, _MANY)}


async def refused(call: Call, words: Sequence[str]) -> None:
    call.fail(refusal(words))


def refusal(words: Sequence[str]) -> str:
    """What scontrol says of such a command (counts and texts of scontrol 25.11)."""
    lower, count = words[0].lower(), len(words) - 1
    least, few, most, many = next(
        (rule for start, rule in _COUNTS.items() if lower.startswith(start)), (0, "", _ANY, ""))
    if count < least:
        return few.format(words[0])
    if count > most:
        return many.format(words[0])
    return f"{words[0]}: {errors.strerror(errors.ESLURM_NOT_SUPPORTED)}"
