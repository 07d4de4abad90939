"""What each running job has added to the usage of its association and QOS, as that has decayed since: so that a run
that ended with its node can be taken back (slurmbridge.yaml, ``health.node_fail_usage: refund_run``).

Slurm charges such runs: its decay never looks at a job's state. Tables of jobs and events stay as they are.
"""
from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Sum:
    """An amount of usage: billing x seconds, seconds, and TRES x seconds by name."""

    usage: float = 0.0
    wall_s: float = 0.0
    tres_s: dict[str, float] = field(default_factory=dict)

    def add(self, usage: float, wall_s: float, tres: dict[str, int]) -> None:
        self.usage += usage
        self.wall_s += wall_s
        for name, count in tres.items():
            if count and name != "energy":
                self.tres_s[name] = self.tres_s.get(name, 0.0) + wall_s * count

    def scale(self, factor: float) -> None:
        self.usage *= factor
        self.wall_s *= factor
        for name in self.tres_s:
            self.tres_s[name] *= factor


@dataclass(slots=True)
class Run:
    """``plain``: without decay, for QOS with the flag NoDecay."""

    decayed: Sum = field(default_factory=Sum)
    plain: Sum = field(default_factory=Sum)


class RunBook:
    """By job id, of runs that are under way."""

    def __init__(self) -> None:
        self.runs: dict[int, Run] = {}

    def decay(self, left: float) -> None:
        for run in self.runs.values():
            run.decayed.scale(left)

    def reset(self) -> None:
        """Usage was set to zero: there is nothing to take back of what came before."""
        for run in self.runs.values():
            run.decayed, run.plain = Sum(), Sum()
