"""How usage comes and goes: accrual of running jobs, decay by half-life, and the resets of PriorityUsageResetPeriod.

A running job adds billing × UsageFactor of its QOS for every second, its own decay of the elapsed interval included;
all usage shrinks by ``decay_per_second`` ** seconds before that. Times are whole epoch seconds, as Slurm's.
Source: slurm.conf(5) PriorityDecayHalfLife, PriorityCalcPeriod, PriorityUsageResetPeriod.
"""
from __future__ import annotations

import math
import sys
import time
from dataclasses import dataclass

_DAY_S = 86400
_WEEK_S = 7 * _DAY_S
_QUARTER_STARTS = (4, 7, 10)                  # months; the fourth is January of the next year

RESET_PERIODS = frozenset({"DAILY", "WEEKLY", "MONTHLY", "QUARTERLY", "YEARLY"})


def decay_per_second(half_life_s: float) -> float:
    """What is left of usage after a second: 1 - 0.693 / half-life; 1 without decay."""
    return 1 - 0.693 / half_life_s if half_life_s > 0 else 1.0


def decay_over(per_second: float, seconds: float) -> float:
    """What is left after an interval; never quite nothing."""
    return max(per_second ** seconds, sys.float_info.min) if seconds > 0 else 1.0


@dataclass(frozen=True, slots=True)
class Accrual:
    """What one interval of a run adds. ``seconds`` counts wall time; both are × UsageFactor."""

    seconds: float                            # decayed
    usage: float                              # decayed, × billing
    seconds_undecayed: float                  # for QOS with the flag NoDecay
    usage_undecayed: float


def elapsed_s(start_s: float, since_s: float, until_s: float) -> int:
    """Whole seconds of a run that began at ``start_s`` inside an interval."""
    return max(int(until_s) - max(int(start_s), int(since_s)), 0)


def accrue(seconds: float, billing: float, usage_factor: float, per_second: float) -> Accrual:
    """The usage of ``seconds`` of a run; a negative usage factor (unset) counts as 1."""
    factor = usage_factor if usage_factor >= 0 else 1.0
    decayed = seconds * per_second ** seconds
    return Accrual(decayed * factor, decayed * billing * factor, seconds * factor, seconds * billing * factor)


def run_seconds_left(start_s: float, time_limit_min: int, accrued_until_s: float, usage_factor: float) -> int:
    """Seconds × UsageFactor that a running job may still take (the run minutes of limits and sshare, × 60)."""
    factor = usage_factor if usage_factor >= 0 else 1.0
    limit_s = time_limit_min * 60
    spent_s = min(elapsed_s(start_s, start_s, accrued_until_s), limit_s)
    return int(limit_s * factor) - int(spent_s * factor)


def next_reset_s(period: str, last_reset_s: float, now_s: float) -> float | None:
    """When usage is next set to zero, by local time; None for NONE and NOW. May be in the past: due."""
    if period not in RESET_PERIODS:
        return None
    last = time.localtime(last_reset_s)
    midnight = time.mktime((last.tm_year, last.tm_mon, last.tm_mday, 0, 0, 0, 0, 0, -1))
    if period in ("DAILY", "WEEKLY"):
        step = _DAY_S if period == "DAILY" else _WEEK_S
        due = midnight + (_DAY_S if period == "DAILY" else _DAY_S * (7 - (last.tm_wday + 1) % 7))
        return due + max(math.ceil((now_s - due) / step) - 1, 0) * step
    if period == "MONTHLY":
        month = last.tm_mon + 1
    elif period == "QUARTERLY":
        month = next((start for start in _QUARTER_STARTS if last.tm_mon < start), 13)
    else:
        month = 13
    return time.mktime((last.tm_year + (month > 12), (month - 1) % 12 + 1, 1, 0, 0, 0, 0, 0, -1))
