"""Trackable resources: ``cpu=4,mem=16G,gres/gpu:a100=2`` and the gres forms of ``--gres`` and ``--gpus…``.

Three grammars meet here: what users write per node, task or socket (``gpu:a100:2``), the canonical texts that
scontrol shows (``gres/gpu:a100:2``), and counts of accounting (``gres/gpu=2``).
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from slurmbridge.slurm.memory import leading_int, suffix_factor, with_unit

ORDER = ("cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages")
"""The TRES every cluster has, in the order of their ids (1–8); configured ones follow."""
_MEGABYTES = ("mem", "bb")
_FACTORS = {"K": 1024 ** -1, "M": 1, "G": 1024, "T": 1024 ** 2, "P": 1024 ** 3}


class TresError(ValueError):
    """Bad format (ESLURM_INVALID_TRES). ``str(error)`` is a line Slurm prints before its refusal, or ""."""


class Item(NamedTuple):
    """One request: ``gres/gpu:a100:2`` is ("gpu", "a100", 2); ``cpu=4`` is ("", "", 4)."""

    name: str
    type: str
    amount: int


def items(text: str | None, kind: str) -> Iterator[Item]:
    """The requests of one kind ("gres", "cpu", "license") in a tres_per_… text; others are passed over.

    Zero counts are left out. Raises TresError.
    """
    rest = text or ""
    while True:
        at = rest.find(kind)
        if at < 0 or not rest:
            return
        rest = rest[at + len(kind):].removeprefix("/")
        entry, _, rest = rest.partition(",")
        if entry:
            item = _item(entry, kind)
            if item.amount:
                yield item


def _item(entry: str, kind: str) -> Item:
    name, type_name, count = entry, "", 1
    separator = "=" if "=" in entry else ":" if ":" in entry else ""
    if separator:
        name, _, last = entry.rpartition(separator)
        if not last:
            raise TresError("")
        number = parse_count(last)
        if number is not None:
            count = number
        elif separator == "=":
            raise TresError("")
        else:
            type_name = last
    else:
        number = parse_count(entry)
        if number is not None:
            return Item("", "", number)
    if ":" in name:
        name, _, middle = name.partition(":")
        if type_name:
            raise TresError("")
        type_name = middle
    if type_name and kind.lower() != "gres":
        raise TresError(f"TRES '{kind}' can't have a type ({name}:{type_name})")
    return Item(name, type_name, count)


def parse_count(text: str) -> int | None:
    """``2``, ``1k``, ``4GiB``: a count with an optional factor. None: no number."""
    if not text[:1].isdigit():
        return None
    parsed = leading_int(text)
    if parsed is None or parsed[0] >= (1 << 64) - 1:
        return None
    factor = suffix_factor(parsed[1])
    return None if factor is None else parsed[0] * factor


def canonical_gres(text: str) -> str:
    """``gpu:2,craynetwork`` -> ``gres/gpu:2,gres/craynetwork`` (what ``--gres`` stores)."""
    return ("gres/" + text).replace(",", ",gres/").replace("gres/gres/", "gres/")


def prefixed(prefix: str, text: str | None, before: str | None = None) -> str | None:
    """``2`` or ``a100:1,v100:1`` under a prefix: ``gres/gpu:2`` (what ``--gpus…`` store), after ``before``."""
    if not text:
        return before
    entries = [f"{prefix}:{token}" for token in text.split(",") if token]
    return ",".join(([before] if before else []) + entries) or None


def canonical_kind(text: str | None, kind: str) -> str | None:
    """``gres:gpu:1`` -> ``gres/gpu:1`` in a list."""
    if not text or f"{kind}:" not in text:
        return text
    tokens = [token for token in text.split(",") if token]
    return ",".join(f"{kind}/{token[len(kind) + 1:]}" if token.startswith(f"{kind}:") else token for token in tokens)


def replace_count(text: str | None, name: str, count: int) -> str | None:
    """``tres_per_task`` with ``name`` set to ``count`` (0 takes it out); a new one goes to the front."""
    at = (text or "").lower().find(name.lower())
    if text is None or at < 0:
        if not count:
            return text
        return f"{name}={count},{text}" if text else f"{name}={count}"
    parsed = leading_int(text[at + len(name) + 1:])
    if (parsed[0] if parsed else 0) == count:
        return text
    before, after = text[:at].removesuffix(","), text[at:].partition(",")[2]
    return ",".join(part for part in (before, f"{name}={count}" if count else "", after) if part) or None


def parse_counts(text: str) -> dict[str, int]:
    """``cpu=4,mem=16G,gres/gpu:a100=2`` as counts, memory in MB. Names in lower case but for gres types.

    Raises TresError with the entry that is no ``name=count``.
    """
    result: dict[str, int] = {}
    for entry in text.split(","):
        if not entry:
            continue
        name, equals, value = entry.partition("=")
        parsed = leading_int(value)
        if not equals or not name or parsed is None:
            raise TresError(entry)
        result[normal_name(name)] = _scaled(normal_name(name), parsed[0], parsed[1])
    return result


def _scaled(name: str, count: int, unit: str) -> int:
    unit = unit[:1].upper()
    if not unit or unit not in _FACTORS:
        return count
    if name.split("/")[0] in _MEGABYTES:
        return int(count * _FACTORS[unit])
    return int(count * _FACTORS[unit] * 1024 * 1024)


def normal_name(name: str) -> str:
    """``CPU`` -> ``cpu``, ``GRES/gpu:a100`` -> ``gres/gpu:a100``."""
    kind, slash, rest = name.partition("/")
    return kind.lower() + slash + rest


def order_key(names: Iterable[str]) -> dict[str, int]:
    """Position of each TRES, for format_counts: the fixed ones, then ``names`` as configured."""
    result = {name: index for index, name in enumerate(ORDER)}
    for name in names:
        result.setdefault(normal_name(name), len(result))
    return result


def format_counts(counts: Mapping[str, int], order: Mapping[str, int] | None = None, *, units: bool = True) -> str:
    """``cpu=1,mem=1000M,node=1,billing=1,gres/gpu=2``: zero counts are left out; "" for none."""
    position = order or {name: index for index, name in enumerate(ORDER)}
    names = sorted((name for name, count in counts.items() if count),
                   key=lambda name: (position.get(name, 1 << 30), name))
    return ",".join(f"{name}={_count_text(name, counts[name], units)}" for name in names)


def _count_text(name: str, count: int, units: bool) -> str:
    kind = name.split("/")[0]
    if units and kind in _MEGABYTES:
        return with_unit(count, "M")
    if kind in ("fs", "ic"):
        return with_unit(count, "")
    return str(int(count))


def parse_weights(text: str) -> dict[str, float]:
    """``CPU=1.0,Mem=0.25G,GRES/gpu=10``: weight per unit, memory per MB. Raises TresError with Slurm's line."""
    result: dict[str, float] = {}
    for entry in text.strip("\"'").split(","):
        if not entry.strip():
            continue
        name, equals, value = entry.strip().partition("=")
        number = value.rstrip("KMGTPkmgtp")
        unit = value[len(number):][:1].upper()
        try:
            weight = float(number)
        except ValueError:
            raise TresError(f'"{entry}" is an invalid TRES weight entry') from None
        if not equals or not name:
            raise TresError(f'"{entry}" is an invalid TRES weight entry')
        key = normal_name(name)
        if unit:
            weight /= _scaled(key, 1, unit) or 1
        result[key] = weight
    return result
