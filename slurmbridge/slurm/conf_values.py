"""The kinds of value slurm.conf knows, each from text: numbers, yes/no, time spans, GRES lists.

Every function raises ``ValueError`` with Slurm's words for what is wrong; the reader adds file and line.
"""
from __future__ import annotations

import re

from slurmbridge.slurm import durations
from slurmbridge.slurm.conf_keys import ConfKey

UNLIMITED = -1
"""What the number and time readers return for UNLIMITED or INFINITE."""
_LARGEST = {"u16": 0xFFFF, "u32": 0xFFFFFFFF, "u64": 0xFFFFFFFFFFFFFFFF}
_YES = frozenset({"yes", "up", "true", "1"})
_NO = frozenset({"no", "down", "false", "0"})
_NUMBER = re.compile(r"[ \t]*[+-]?(0[xX][0-9a-fA-F]+|[0-9]+)\Z")
_COUNT = re.compile(r"([0-9]+)([kKmMgGtTpP]?)\Z")
_UNITS = " kmgtp"


def number(key: str, value: str, kind: str = "u32") -> int:
    """An unsigned number (decimal, 0x… or 0…); UNLIMITED/INFINITE give ``UNLIMITED``."""
    if value.upper() in ("UNLIMITED", "INFINITE"):
        return UNLIMITED
    if not _NUMBER.match(value):
        raise ValueError(f'{key} value "{value}" is not a valid number')
    if value.strip().startswith("-"):
        raise ValueError(f"{key} value ({value}) is less than zero")
    digits = value.strip().lstrip("+")
    result = int(digits, 16) if digits[:2].lower() == "0x" else int(digits, 8 if _is_octal(digits) else 10)
    if result > _LARGEST[kind]:
        if kind == "u64":
            raise ValueError(f"{key} value ({value}) is out of range")
        raise ValueError(f"{key} value ({value}) is greater than {_LARGEST[kind]}")
    return result


def _is_octal(digits: str) -> bool:
    return len(digits) > 1 and digits[0] == "0" and not set(digits) & {"8", "9"}


def boolean(key: str, value: str) -> bool:
    """YES/UP/TRUE/1 or NO/DOWN/FALSE/0."""
    word = value.lower()
    if word in _YES or word in _NO:
        return word in _YES
    raise ValueError(f'"{value}" is not a valid option for "{key}"')


def check(key: ConfKey, value: str) -> None:
    """That the value is of the key's kind."""
    if key.kind == "bool":
        boolean(key.name, value)
    elif key.kind in _LARGEST:
        number(key.name, value, key.kind)


def seconds(key: str, text: str) -> int:
    """A time span in seconds; UNLIMITED/INFINITE/-1 give ``UNLIMITED``."""
    found = durations.parse_seconds(text)
    if found is None or found < 0:
        raise ValueError(f'Bad value "{text}" for {key}')
    return UNLIMITED if found == durations.INFINITE else found


def minutes(key: str, text: str) -> int:
    """A time span in whole minutes, seconds rounded up; UNLIMITED/INFINITE/-1 give ``UNLIMITED``."""
    found = seconds(key, text)
    return found if found == UNLIMITED else (found + 59) // 60


def options(text: str) -> dict[str, str]:
    """``a=1,b`` -> {"a": "1", "b": ""}."""
    pairs = (part.partition("=") for part in text.split(",") if part.strip())
    return {name.strip(): value.strip() for name, _, value in pairs}


def gres_counts(text: str) -> dict[str, int]:
    """A node's ``Gres=gpu:a100:4(S:0-1),gpu:2,shard:no_consume:8`` -> {"gpu:a100": 4, …}."""
    counts: dict[str, int] = {}
    for part in re.sub(r"\([^)]*\)", "", text).split(","):
        words = [word for word in part.strip().split(":") if word]
        if not words or words[0].lower() in ("(null)", "none"):
            continue
        count = 1
        if len(words) > 1:
            match = _COUNT.match(words[-1])
            if match:
                count = int(match[1]) * 1024 ** _UNITS.index(match[2].lower() or " ")
                words.pop()
        name = ":".join(word for word in words if word.lower() != "no_consume")
        counts[name] = counts.get(name, 0) + count
    return counts


def exit_codes(key: str, text: str) -> frozenset[int]:
    """``1-3,101`` -> the codes."""
    codes: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"[ \t]*([0-9]+)(?:-([0-9]+))?[ \t]*", part)
        if not match or int(match[2] or match[1]) > 255:
            raise ValueError(f"{key}: {part!r} is no exit code")
        codes.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return frozenset(codes)
