"""Kubernetes' resource quantities: ``500m``, ``16Gi``, ``129M``, ``1e3``."""
from __future__ import annotations

import re
from decimal import Decimal

_SUFFIXES = {"": Decimal(1), "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "k": Decimal(1000),
             **{letter: Decimal(1000) ** power for power, letter in enumerate("MGTPE", 2)},
             **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", 1)}}
_QUANTITY = re.compile(r"([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)([a-zA-Z]*)")


def quantity(text: str) -> Decimal:
    """Raises ValueError."""
    found = _QUANTITY.fullmatch(text.strip())
    if found is None or found[2] not in _SUFFIXES:
        raise ValueError(f"not a quantity: {text!r}")
    return Decimal(found[1]) * _SUFFIXES[found[2]]
