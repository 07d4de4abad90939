"""Association and QOS limits as jobs start one after another in a pass (resource_limits in slurm.conf terms).

Two levels: subjects (association chain + QOS + user, shared by many jobs) and groups (one counter set per limited
association or QOS). The controller keeps a ``LimitBook``; a pass adds what it starts in ``limit_pass.LimitPass``.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Limits:
    """One association's or QOS's limits; None or a missing TRES: unlimited. TRES keys: "cpu", "mem" (MB), "node",
    "billing", "gres/gpu", "gres/gpu:a100", …; minutes for *_mins; seconds for wall."""

    grp_tres: dict[str, int] = field(default_factory=dict)
    grp_tres_mins: dict[str, int] = field(default_factory=dict)
    grp_tres_run_mins: dict[str, int] = field(default_factory=dict)
    grp_jobs: int | None = None
    grp_wall_s: int | None = None
    max_tres_per_job: dict[str, int] = field(default_factory=dict)
    max_tres_per_node: dict[str, int] = field(default_factory=dict)
    max_tres_mins_per_job: dict[str, int] = field(default_factory=dict)
    max_tres_run_mins_per_user: dict[str, int] = field(default_factory=dict)
    max_tres_run_mins_per_account: dict[str, int] = field(default_factory=dict)
    max_tres_per_user: dict[str, int] = field(default_factory=dict)
    max_tres_per_account: dict[str, int] = field(default_factory=dict)
    min_tres_per_job: dict[str, int] = field(default_factory=dict)
    max_jobs: int | None = None               # association: MaxJobs; QOS: unused
    max_jobs_per_user: int | None = None
    max_jobs_per_account: int | None = None
    max_wall_s: int | None = None
    min_prio_threshold: int | None = None     # jobs below it are not promised nodes


@dataclass(slots=True)
class Usage:
    """What counts against ``Limits``: running now, and decayed usage (minutes) where the limit is on usage."""

    tres: dict[str, int] = field(default_factory=dict)
    tres_run_secs: dict[str, float] = field(default_factory=dict)    # TRES-seconds that running jobs may still use
    tres_used_secs: dict[str, float] = field(default_factory=dict)   # decayed TRES-seconds used (GrpTRESMins)
    wall_used_s: float = 0.0
    jobs: int = 0


@dataclass(slots=True)
class Group:
    """An association or a QOS. ``by_user``/``by_account``: usage per user / account in a QOS."""

    name: str
    kind: str                                 # "assoc" | "qos"
    limits: Limits
    usage: Usage = field(default_factory=Usage)
    by_user: dict[str, Usage] = field(default_factory=dict)
    by_account: dict[str, Usage] = field(default_factory=dict)
    flags: frozenset[str] = frozenset()
    usage_factor: float = 1.0                 # a QOS's
    limit_factor: float = 0.0                 # a QOS's: associations' TRES limits are so many times as high (0: no)


@dataclass(frozen=True, slots=True)
class Subject:
    """Under which limits a job stands: group numbers of its association chain (user first, root last), of its QOS and
    of its partition's QOS (-1: none)."""

    user: str
    account: str
    chain: tuple[int, ...]
    qos: int = -1
    partition_qos: int = -1


@dataclass(slots=True)
class LimitBook:
    """All groups and subjects. Indices are stable for the life of the book. ``safe``: AccountingStorageEnforce=safe, a
    job must be able to end within GrpTRESMins; ``billing``: billing units of TRES in a partition (a pure function)."""

    groups: list[Group] = field(default_factory=list)
    subjects: list[Subject] = field(default_factory=list)
    safe: bool = False
    below_threshold: frozenset[int] = frozenset()            # subjects whose fair share is under UsageThreshold
    billing: Callable[[Mapping[str, int], str], float] | None = None
