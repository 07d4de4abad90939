"""The multifactor priority of whole columns of jobs: 100,000 jobs in milliseconds, each integer as Slurm computes it.

One row is one job in one partition; a job in several partitions has several rows. ``compute`` is pure: columns of the
queue, lookups of the cluster and the time go in, weighted factors and priorities come out. Additions are done in
Slurm's order, so that the sums round alike. Sources: slurm.conf(5) Priority*, sprio(1), the multifactor page.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from slurmbridge.fairshare.billing import parse_weights
from slurmbridge.slurm.settings import PrioritySettings

Ints = NDArray[np.int64]
Doubles = NDArray[np.float64]
Flags = NDArray[np.bool_]

NO_TIME_LIMIT_MIN = -1
"""Time limit of a job that has none of its own: its partition's MaxTime counts."""

_LARGEST = float(0xFFFFFFFF)


@dataclass(frozen=True, slots=True)
class Weights:
    """PriorityWeight* and the parameters that shape factors."""

    age: int = 0
    assoc: int = 0
    fairshare: int = 0
    jobsize: int = 0
    partition: int = 0
    qos: int = 0
    tres: dict[str, float] = field(default_factory=dict)     # in TRES order
    max_age_s: int = 7 * 86400
    favor_small: bool = False
    flags: frozenset[str] = frozenset()

    @classmethod
    def of(cls, settings: PrioritySettings, tres_ids: Mapping[str, int] | None = None) -> Weights:
        """``tres_ids``: numbers of the cluster's TRES, for their order. Raises ValueError for unreadable weights."""
        tres = parse_weights(settings.weight_tres_text, tres_ids) or dict(settings.weight_tres)
        return cls(settings.weight_age, settings.weight_assoc, settings.weight_fairshare, settings.weight_jobsize,
                   settings.weight_partition, settings.weight_qos, tres, settings.max_age_s, settings.favor_small,
                   settings.flags)

    def raw(self, factor: str) -> bool:
        """Whether a factor (ASSOC, PART, QOS, TRES) is not to be normalised to 0–1."""
        return f"NO_NORMAL_{factor}" in self.flags or "NO_NORMAL_ALL" in self.flags


@dataclass(frozen=True, slots=True)
class JobColumns:
    """The queue, one row per job and partition."""

    association: Ints                         # index into Lookups.fair_share and assoc_factor; -1: none
    partition: Ints                           # index into Lookups.partition_*
    qos: Ints                                 # index into Lookups.qos_factor
    accrue_s: Ints                            # epoch; 0: no age yet
    cpus: Ints
    min_nodes: Ints
    time_limit_min: Ints                      # NO_TIME_LIMIT_MIN: none given
    nice: Ints
    site: Ints
    tres: Doubles                             # [rows, weighted TRES] counts asked for (or allocated)
    several: Flags                            # the job is in several partitions

    def take(self, rows: Ints | slice) -> JobColumns:
        """Only these rows."""
        return JobColumns(*(getattr(self, name)[rows] for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class Lookups:
    """What jobs are measured against."""

    node_count: int
    cpu_count: int
    fair_share: Doubles                       # by association
    assoc_factor: Doubles                     # by association, normalised (or not: NO_NORMAL_ASSOC)
    partition_factor: Doubles                 # by partition
    partition_max_time_min: Ints
    partition_tres: Doubles                   # [partitions, weighted TRES] totals
    qos_factor: Doubles                       # by QOS


@dataclass(frozen=True, slots=True)
class Factors:
    """Weighted factors by row; ``priority`` as the row's own, ``job_priority`` as the job's when this row leads it."""

    age: Doubles
    assoc: Doubles
    fairshare: Doubles
    jobsize: Doubles
    partition: Doubles
    qos: Doubles
    tres: Doubles                             # [rows, weighted TRES]
    priority: Ints
    job_priority: Ints


def normalised(values: Ints, at_least: int = 0) -> Doubles:
    """Each value by the highest (or ``at_least``, if that is more); all 0 when there is nothing above 0."""
    highest = max(int(values.max(initial=0)), at_least)
    return values / float(highest) if highest else np.zeros(len(values))


def _picked(table: Doubles, index: Ints) -> Doubles:
    """table[index], 0 where the index is -1 or the table has NaN."""
    if not len(table):
        return np.zeros(len(index))
    return np.where(index >= 0, np.nan_to_num(table)[index], 0.0)


def age_factor(accrue_s: Ints, now_s: int, max_age_s: int) -> Doubles:
    """Waiting time by PriorityMaxAge, 1 at most."""
    waited = np.maximum(now_s - accrue_s, 0)
    aged = np.where(waited < max_age_s, waited / float(max_age_s or 1), 1.0)
    return np.where(accrue_s > 0, aged, 0.0)


def size_factor(columns: JobColumns, lookups: Lookups, weights: Weights) -> Doubles:
    """Job size by nodes and CPUs: larger is higher, or smaller is (PriorityFavorSmall), or by CPU-minutes."""
    nodes, cpus = lookups.node_count, lookups.cpu_count
    if not nodes or not cpus:
        return np.zeros(len(columns.cpus))
    if "SMALL_RELATIVE_TO_TIME" in weights.flags:
        size = np.maximum(columns.min_nodes * float(cpus) / float(nodes), columns.cpus)
        own_limit = columns.time_limit_min != NO_TIME_LIMIT_MIN
        limit = np.where(own_limit, columns.time_limit_min, lookups.partition_max_time_min[columns.partition])
        with np.errstate(divide="ignore", invalid="ignore"):
            size = size / limit / cpus
        size = 1.0 - size if weights.favor_small else size
    elif weights.favor_small:
        size = np.where(nodes > columns.min_nodes, (nodes - columns.min_nodes) / float(nodes), 0.0)
        left = np.mod(cpus - columns.cpus, 1 << 32)           # unsigned: asking for more than there is counts as small
        size = np.where(columns.cpus > 0, (size + left / float(cpus)) / 2, size)
    else:
        size = columns.min_nodes / float(nodes)
        size = np.where(columns.cpus > 0, (size + columns.cpus / float(cpus)) / 2, size)
    bounded: Doubles = np.clip(size, 0.0, 1.0)
    return bounded


def tres_factors(columns: JobColumns, lookups: Lookups, weights: Weights) -> Doubles:
    """[rows, weighted TRES]: the part of its partition's TRES that a job asks for, weighted."""
    if weights.raw("TRES"):
        share = columns.tres
    else:
        whole = lookups.partition_tres[columns.partition]
        share = np.zeros_like(columns.tres)
        np.divide(columns.tres, whole, out=share, where=whole > 0)
    return share * np.fromiter(weights.tres.values(), np.float64, len(weights.tres))


def _integer(priority: Doubles) -> Ints:
    """1 to 2^32-1: 0 is for held jobs."""
    return np.clip(priority, 1.0, _LARGEST).astype(np.int64)


def compute(columns: JobColumns, lookups: Lookups, weights: Weights, now_s: float) -> Factors:
    """All factors and priorities at ``now_s`` (epoch)."""
    rows = len(columns.cpus)
    nothing = np.zeros(rows)
    age = age_factor(columns.accrue_s, int(now_s), weights.max_age_s) * float(weights.age) if weights.age else nothing
    fairshare = _picked(lookups.fair_share, columns.association) * float(weights.fairshare)
    jobsize = size_factor(columns, lookups, weights) * float(weights.jobsize) if weights.jobsize else nothing
    assoc = _picked(lookups.assoc_factor, columns.association) * float(weights.assoc)
    partition = _picked(lookups.partition_factor, columns.partition) * float(weights.partition)
    qos = _picked(lookups.qos_factor, columns.qos) * float(weights.qos)
    tres = tres_factors(columns, lookups, weights) if weights.tres else np.zeros((rows, 0))
    tres_sum = nothing.copy()
    for column in range(tres.shape[1]):
        tres_sum += tres[:, column]
    site, nice = columns.site.astype(np.float64), columns.nice.astype(np.float64)
    led = age + assoc + fairshare + jobsize + partition + qos + tres_sum + site - nice
    among = partition + (age + assoc + fairshare + jobsize + qos + tres_sum + site - nice)
    job_priority = _integer(led)
    return Factors(age, assoc, fairshare, jobsize, partition, qos, tres,
                   np.where(columns.several, _integer(among), job_priority), job_priority)
