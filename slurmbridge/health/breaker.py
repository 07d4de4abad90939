"""When one fault hits many nodes at once it is the reporter's, or the control plane's: nothing is done to jobs for it.

Counted by pool and cause, a cause being (type, reason). A tripped breaker holds actions only: never recovery, other
causes, other pools, or hard facts. Released, it lets one node after the other go.
"""
from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from slurmbridge.health.policy import BreakerLimits

Cause = tuple[str, str]
CLUSTER = "cluster"
STORM: Cause = ("Ready", "")
"""Cause of the trip that a silent control plane makes: holds whatever is the reason of Ready."""


@dataclass(slots=True)
class Circuit:
    """``found``: (when, node) of what turned bad lately; ``acted``: the same of what was let through since release."""

    pool: str
    cause: Cause
    found: list[tuple[float, str]] = field(default_factory=list)
    tripped_s: float | None = None
    calm_s: float | None = None
    trips: list[float] = field(default_factory=list)
    released_s: float | None = None
    acted: list[tuple[float, str]] = field(default_factory=list)

    @property
    def is_idle(self) -> bool:
        return not self.found and self.tripped_s is None and not self.trips


class Breaker:
    """``note`` what turns bad, ``tick``, ask ``holds`` and ``lets_go``."""

    def __init__(self, limits: BreakerLimits) -> None:
        self.limits = limits
        self.circuits: dict[tuple[str, Cause], Circuit] = {}

    def _circuit(self, pool: str, cause: Cause) -> Circuit:
        return self.circuits.setdefault((pool, cause), Circuit(pool, cause))

    def allowed(self, size: int) -> int:
        """So many nodes of a pool may turn bad for one cause within the window."""
        return max(self.limits.least, math.ceil(self.limits.share * size))

    def note(self, pool: str, size: int, cause: Cause, node: str, now: float) -> bool:
        """A node turned bad; whether that trips it."""
        one = self._circuit(pool, cause)
        one.found = [(at, name) for at, name in self._recent(one, now) if name != node] + [(now, node)]
        return len(one.found) > self.allowed(size) and self.trip(pool, cause, now)

    def _recent(self, one: Circuit, now: float) -> list[tuple[float, str]]:
        return [(at, name) for at, name in one.found if now - at < self.limits.window]

    def trip(self, pool: str, cause: Cause, now: float) -> bool:
        """False where it is tripped already."""
        one = self._circuit(pool, cause)
        one.calm_s = None
        if one.tripped_s is not None:
            return False
        one.tripped_s, one.released_s, one.acted = now, None, []
        one.trips = [at for at in one.trips if now - at < self.limits.trips_within] + [now]
        return True

    def tick(self, sizes: dict[str, int], storms: bool, now: float) -> list[Circuit]:
        """What is released now. ``storms``: the control plane is still suspected."""
        released = []
        for key, one in list(self.circuits.items()):
            one.found = self._recent(one, now)
            one.trips = [at for at in one.trips if now - at < self.limits.trips_within]
            if one.tripped_s is None:
                if one.is_idle and (one.released_s is None or now - one.released_s > self.limits.trips_within):
                    del self.circuits[key]
                continue
            noisy = storms if one.cause == STORM else len(one.found) > self.allowed(sizes.get(one.pool, 0))
            if noisy:
                one.calm_s = None
            elif one.calm_s is None:
                one.calm_s = now
            elif now - one.calm_s >= self.limits.cool_down and len(one.trips) < self.limits.trips:
                self._release(one, now)
                released.append(one)
        return released

    def _release(self, one: Circuit, now: float) -> None:
        one.tripped_s, one.calm_s, one.released_s = None, None, now

    def reset(self, now: float) -> list[Circuit]:
        """A human releases all."""
        released = [one for one in self.circuits.values() if one.tripped_s is not None]
        for one in released:
            one.trips, one.found = [], []
            self._release(one, now)
        return released

    def holds(self, pools: Iterable[str], cause: Cause) -> bool:
        """Whether nothing may be done about the cause in one of these pools."""
        causes = [cause, STORM] if cause[0] == STORM[0] else [cause]
        return any(one.tripped_s is not None for pool in (*pools, CLUSTER) for this in causes
                   if (one := self.circuits.get((pool, this))) is not None)

    def lets_go(self, pools: Iterable[str], sizes: dict[str, int], cause: Cause, node: str, still_bad: set[str],
                now: float) -> bool:
        """After a release: whether it is this node's turn (which is counted)."""
        after = [one for pool in pools if (one := self.circuits.get((pool, cause))) is not None
                 and one.released_s is not None]
        for one in after:
            if any(name == node for _, name in one.acted):
                continue
            in_flight = sum(name in still_bad for _, name in one.acted)
            if in_flight >= max(1, math.ceil(self.limits.in_flight * sizes.get(one.pool, 0))) \
                    or (one.acted and now - one.acted[-1][0] < self.limits.pace):
                return False
        for one in after:
            if all(name != node for _, name in one.acted):
                one.acted.append((now, node))
        return True

    @property
    def tripped(self) -> list[Circuit]:
        return [one for one in self.circuits.values() if one.tripped_s is not None]

    def dump(self) -> list[dict[str, Any]]:
        return [asdict(one) for one in self.circuits.values() if not one.is_idle]

    def load(self, plain: Iterable[dict[str, Any]]) -> None:
        for values in plain:
            pairs = {name: [(float(at), str(node)) for at, node in values.get(name, ())] for name in ("found", "acted")}
            one = Circuit(**{**values, **pairs, "cause": tuple(values["cause"])})
            self.circuits[one.pool, one.cause] = one
