"""What a site wants done about what is said of its nodes: rules, stages, windows. Data; ``rules.DEFAULTS`` fills it.

A rule says for one type of signal which statuses are bad - polarity is never inferred from a name - and what follows:
the class, whether and when new work is kept off, and whether and when running jobs are acted upon.
"""
from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from slurmbridge.health.sight import CONDITION, SOURCES, Signal

LOST, HARDWARE, RUNTIME, MAINTENANCE, CAPACITY, PRESSURE, INFORMATION = "L0", "H", "R", "M", "C", "P", "I"
CLASSES = (LOST, HARDWARE, RUNTIME, MAINTENANCE, CAPACITY, PRESSURE, INFORMATION)
"""Worst first: lost node, hardware, runtime and infrastructure, maintenance, devices missing, pressure, information."""
NOTHING, STUCK_JOBS, GPU_JOBS, JOBS, WARN = "nothing", "stuck-jobs", "gpu-jobs", "jobs", "warn"
ACTIONS = frozenset({NOTHING, STUCK_JOBS, GPU_JOBS, JOBS, WARN})
"""What becomes of running jobs when a rule acts: none; those whose pods do not get on; those with GPUs; all fail
(NODE_FAIL); or all are only sent the signal they asked for with --signal."""
_SEVEREST = (JOBS, GPU_JOBS, STUCK_JOBS, WARN, NOTHING)
ALL, GPUS, LAST, NONE = "all", "gpus", "last", "none"
WORK = frozenset({ALL, GPUS, LAST, NONE})
"""New work that is kept off: all; what wants devices; none, but the node is taken last; none."""
OBSERVE, DRAIN_ONLY, ACT = "observe", "drain-only", "act"
STAGES = (OBSERVE, DRAIN_ONLY, ACT)
_MOST = 100_000
_WORDS = re.compile(r"[\s;,:=]+")


@dataclass(frozen=True, slots=True)
class Rule:
    """One row. ``type``, ``reason`` and ``message`` are globs, several with ``|``; a reason is also looked for among
    the words of the message (an agent that found two things keeps only the last as its reason).

    ``exclude_after_s`` and ``act_after_s`` count from when the signal was first seen bad; None: never. ``warn_after_s``
    is when jobs get the signal of their --signal. ``period_s``: how often the reporter repeats itself (None: it does
    not, and is never stale). ``healthy_delay_s``: how long it must be good before it is over (None: the policy's;
    negative: only a human ends it). ``is_hard``: a fact, or an order of another owner: counts in every stage and
    the breaker does not hold it.
    """

    type: str
    bad: tuple[str, ...]
    cls: str
    source: str = CONDITION
    reason: str = "*"
    message: str = "*"
    keeps_off: str = ALL
    exclude_after_s: float = 0.0
    act: str = NOTHING
    act_after_s: float | None = None
    warn_after_s: float | None = None
    state: str = "DRAIN"                      # DRAIN | FAIL | "": the node's state does not change
    down_when_empty: bool = False             # DOWN once it has acted and no job is left
    short: str = ""                           # the word in Reason; else made from reason and type
    period_s: float | None = None
    healthy_delay_s: float | None = None
    is_hard: bool = False

    def __post_init__(self) -> None:
        """Raises ValueError, one line."""
        for name, value, allowed in (("source", self.source, SOURCES), ("class", self.cls, CLASSES),
                                     ("action", self.act, ACTIONS), ("keeps_off", self.keeps_off, WORK),
                                     ("state", self.state, ("DRAIN", "FAIL", ""))):
            if value not in allowed:
                raise ValueError(f"{name} {value!r} of {self.type} is none of {', '.join(sorted(allowed))}")
        if not self.bad:
            raise ValueError(f"{self.type}: which status is bad?")

    @property
    def rank(self) -> int:
        """Smaller is worse: by class, then by what it does to jobs."""
        return CLASSES.index(self.cls) * len(_SEVEREST) + _SEVEREST.index(self.act)

    def concerns(self, signal: Signal) -> bool:
        return self.source == signal.source and _fits(self.type, signal.type)

    def finds(self, signal: Signal) -> bool:
        """Whether the signal is bad by this rule."""
        return self.concerns(signal) and ("*" in self.bad or signal.status in self.bad) \
            and (self.message == "*" or _fits(self.message, signal.message)) \
            and (self.reason == "*" or any(_fits(self.reason, word) for word in reasons_of(signal)))


def reasons_of(signal: Signal) -> list[str]:
    """The reason, and what the message has besides."""
    return [signal.reason, *(word for word in _WORDS.split(signal.message) if word and word != signal.reason)]


def _fits(globs: str, text: str) -> bool:
    return any(fnmatchcase(text, glob) for glob in globs.split("|"))


@dataclass(frozen=True, slots=True)
class Windows:
    """Times in seconds. The sources are in docs/health.md."""

    down_after: float = 300                   # NotReady so long is DOWN (SlurmdTimeout)
    lost_jobs_after: float = 1800             # NotReady so long, and its jobs are lost whatever their pods look like
    unknown_kept: float = 900                 # a verdict outlives "Unknown" so long
    stale_after_periods: int = 3
    healthy_delay: float = 300
    agent_restart: float = 600                # a good verdict on hardware must last so long (two heartbeats)
    flap: float = 3600                        # three bad periods within it are flapping, which delays recovery by it
    flap_most: float = 86400
    flap_count: int = 3
    relapse: float = 7 * 86400                # lifted twice within it: a human lifts it the next time
    relapse_count: int = 2
    warm_up: float = 600                      # after a start nothing is done to running jobs
    coverage: float = 600                     # after its creation a node must have the types that are required
    launch: float = 3600                      # so many failed launches within it drain the node
    launch_count: int = 3
    boot: float = 600                         # a node that is not Ready so long after it came has failed to boot
    boot_count: int = 10                      # so many in a row close the partition
    readmit: float = 300                      # one device more each
    orphans: float = 60                       # a kubelet has so long to end what ran before its node was deleted


@dataclass(frozen=True, slots=True)
class BreakerLimits:
    """When a fault hits so many nodes at once that it is taken for a fault of who reports it."""

    window: float = 600
    share: float = 0.2
    least: int = 2
    storm: float = 120                        # all nodes of a cluster, or of two zones, turn NotReady within it
    cool_down: float = 600
    pace: float = 60                          # after release one node each
    in_flight: float = 0.1                    # of the pool
    trips: int = 3                            # within ``trips_within``: only a human releases it
    trips_within: float = 86400
    floor: float = 0.5                        # of a pool soft faults may keep off at most


@dataclass(frozen=True, slots=True)
class Policy:
    """``stages`` by partition. ``requires``: condition types that a partition's nodes must have, by partition."""

    rules: tuple[Rule, ...]
    stage: str = DRAIN_ONLY
    stages: Mapping[str, str] = field(default_factory=dict)
    requires: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    closed_zones: frozenset[str] = frozenset()
    windows: Windows = Windows()
    breaker: BreakerLimits = BreakerLimits()

    max_node_fail_requeue: int = 5            # a job that lost its node more often is held
    refunds_runs: bool = False                # what a run used that ended with its node is not charged (fair share)
    _found: dict[tuple[str, ...], Rule | None] = field(default_factory=dict, init=False, compare=False, repr=False)
    _types: dict[tuple[str, str], Rule | None] = field(default_factory=dict, init=False, compare=False, repr=False)

    def stage_of(self, partition: str) -> str:
        return self.stages.get(partition, self.stage)

    def rule_for(self, signal: Signal) -> Rule | None:
        """By which rule the signal is bad."""
        key = (signal.source, signal.type, signal.status, signal.reason, signal.message)
        if key not in self._found:
            if len(self._found) > _MOST:
                self._found.clear()
            self._found[key] = next((rule for rule in self.rules if rule.finds(signal)), None)
        return self._found[key]

    def any_rule(self, signal: Signal) -> Rule | None:
        """The first that names its type. None: the signal is shown and never acted upon."""
        if signal.key not in self._types:
            if len(self._types) > _MOST:
                self._types.clear()
            self._types[signal.key] = next((rule for rule in self.rules if rule.concerns(signal)), None)
        return self._types[signal.key]

    def knows(self, signal: Signal) -> bool:
        return self.any_rule(signal) is not None

    def strongest(self, partitions: Iterable[str]) -> str:
        """The stage of a node of several partitions."""
        return max((self.stage_of(name) for name in partitions), key=STAGES.index, default=self.stage)
