"""Limits of QOS with the flag Relative: percentages of the cluster's TRES, of a partition's QOS of the partition's.

A percentage above 100 counts as 100; the number is rounded down (sacctmgr(1), QOS flags).
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from slurmbridge.views.records import Limits, Tres

_TRES = ("grp_tres", "grp_tres_mins", "grp_tres_run_mins", "max_tres_per_account", "max_tres_per_job",
         "max_tres_per_node", "max_tres_per_user", "max_tres_mins_per_job", "max_tres_run_mins_per_account",
         "max_tres_run_mins_per_user", "min_tres_per_job")


def absolute(limits: Limits, total: Mapping[str, int]) -> Limits:
    """The limits as numbers. ``total``: of what they are percentages."""
    changed: dict[str, Tres] = {}
    for name in _TRES:
        parts: Tres = getattr(limits, name)
        if parts:
            changed[name] = {tres: min(part, 100) * total.get(tres, 0) // 100 for tres, part in parts.items()}
    return replace(limits, **changed)  # type: ignore[arg-type]
