"""What a job's TRES cost by the TRESBillingWeights of its partition; PriorityWeightTRES has the same grammar."""
from __future__ import annotations

import re
from collections.abc import Mapping

_NUMBER = re.compile(r"\s*[+-]?(?:inf(?:inity)?|nan|(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)", re.IGNORECASE)
_UNITS = "KMGTP"
_MEGABYTES = frozenset({"mem", "bb"})         # TRES types counted in MB
_FIRST = ("cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages")      # TRES with fixed places
_PER_NODE = frozenset({"cpu", "mem", "node"})


def _unit_factor(tres_type: str, unit: str) -> float:
    """How many of the TRES's base unit ``unit`` is; 1 for none or one not above the base."""
    exponent = (_UNITS.index(unit.upper()) + 1 if unit else 0) - (2 if tres_type in _MEGABYTES else 0)
    return 1024.0 ** exponent if exponent > 0 else 1.0


def _position(tres: str) -> int:
    return _FIRST.index(tres) if tres in _FIRST else len(_FIRST)


def parse_weights(text: str) -> dict[str, float]:
    """``"CPU=1.0,Mem=0.25G,GRES/gpu=10"`` -> weight per base unit (of "mem": MB) by TRES name, in TRES order.

    Raises ValueError for an item without a number or with an unknown unit.
    """
    weights: dict[str, float] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = item.partition("=")
        number = _NUMBER.match(value)
        if not name or number is None:
            raise ValueError(f'"{item}" is an invalid TRES weight entry')
        kind, slash, rest = name.strip().partition("/")
        tres = kind.lower() + slash + rest
        unit = value[number.end():][:1]
        if unit and unit.upper() not in _UNITS:
            raise ValueError(f"Invalid unit type '{unit}'. Possible options are '{_UNITS}'")
        weights[tres] = float(number[0]) / _unit_factor(kind.lower(), unit)
    return dict(sorted(weights.items(), key=lambda item: _position(item[0])))


def billable(tres: Mapping[str, int], weights: Mapping[str, float] | None, flags: frozenset[str] = frozenset(),
             default_cpus: int | None = None) -> float:
    """The unrounded billing of an allocation or request.

    Without weights (None or empty) it is the number of CPUs: ``default_cpus``, else the "cpu" of ``tres``.
    PriorityFlags MAX_TRES bills the dearest of cpu, mem, node and gres instead of their sum, MAX_TRES_GRES the dearest
    of cpu, mem and node plus all gres; licenses and burst buffers are always added.
    """
    if not weights:
        return float(tres.get("cpu", 0) if default_cpus is None else default_cpus)
    only_gres = "MAX_TRES_GRES" in flags
    dearest = "MAX_TRES" in flags or only_gres
    node_bill = gres_bill = global_bill = 0.0
    for name, weight in weights.items():
        if name == "billing":
            continue
        cost = float(tres.get(name, 0)) * weight
        is_gres = name.startswith("gres/")
        if not dearest or not (is_gres or name in _PER_NODE):
            global_bill += cost
        elif only_gres and is_gres:
            gres_bill += cost
        else:
            node_bill = max(node_bill, cost)
    return node_bill + gres_bill + global_bill
