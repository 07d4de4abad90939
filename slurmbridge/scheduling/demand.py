"""A shape resolved on a cluster: names become node masks and device kinds, so that tests are array arithmetic.

Made once per shape and pass (``Demands``), because required nodes, features and device kinds are looked up by name.
"""
from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from slurmbridge.scheduling import features as feature_grammar
from slurmbridge.scheduling.columns import ClusterColumns
from slurmbridge.scheduling.facts import BoolArray, Partition, takes_request
from slurmbridge.scheduling.features import Feature
from slurmbridge.scheduling.shape import GresRequest, Shape
from slurmbridge.scheduling.snapshot import SchedulerSettings

MANY = 1 << 40
"""Larger than any count; stands for "not limited"."""


@dataclass(frozen=True, slots=True)
class GresDemand:
    """A gres request and the cluster's device kinds that can satisfy it."""

    request: GresRequest
    kinds: tuple[int, ...]

    @property
    def cpus_per_gres(self) -> int:
        return self.request.cpus_per_gres

    @property
    def least(self) -> int:
        """Devices that a node must have at all to be of use."""
        r = self.request
        return max(1 if r.per_job else 0, r.per_node, r.per_socket, r.per_task)


@dataclass(slots=True)
class Demand:
    """A shape on a cluster. ``required``: nodes that must be in (None: none named);
    ``allowed``: nodes left by -w, -x."""

    shape: Shape
    features: tuple[Feature, ...]
    prefer: tuple[Feature, ...]
    required: BoolArray | None
    allowed: BoolArray
    gres: tuple[GresDemand, ...]
    whole: bool                               # --exclusive
    whole_user: bool                          # --exclusive=user
    min_gres_cpus_node: int                   # CPUs that the devices of one node ask for (--cpus-per-gpu)
    min_gres_cpus_job: int
    feature_cache: dict[tuple[Feature, ...], tuple[BoolArray, bool]] = field(default_factory=dict)

    def feature_nodes(self, columns: ClusterColumns, which: tuple[Feature, ...]) -> tuple[BoolArray, bool]:
        """Allowed nodes that satisfy the expression, and whether it has a bracket group."""
        cached = self.feature_cache.get(which)
        if cached is None:
            lookup = feature_grammar.lookup_in(columns.features, len(columns))
            cached = self.feature_cache[which] = feature_grammar.match(which, lookup, self.allowed)
        return cached


class Demands:
    """All shapes of a pass, resolved when first asked for. Raises FeatureError for a malformed constraint."""

    def __init__(self, columns: ClusterColumns) -> None:
        self.columns = columns
        self._made: dict[Shape, Demand] = {}

    def of(self, shape: Shape) -> Demand:
        demand = self._made.get(shape)
        if demand is None:
            demand = self._made[shape] = resolve(self.columns, shape)
        return demand


def resolve(columns: ClusterColumns, shape: Shape) -> Demand:
    required, allowed = _named_nodes(columns, shape)
    gres = tuple(GresDemand(r, tuple(k for k, kind in enumerate(columns.gres_kinds)
                                     if kind.name == r.name and r.type in (None, kind.type))) for r in shape.gres)
    sockets = shape.sockets_per_node or 1
    per_node, per_job = _gres_cpus(shape, sockets)
    return Demand(shape, feature_grammar.parse(shape.constraint), feature_grammar.parse(shape.prefer), required,
                  allowed, gres, shape.whole_node == "exclusive", shape.whole_node == "user", per_node, per_job)


def _named_nodes(columns: ClusterColumns, shape: Shape) -> tuple[BoolArray | None, BoolArray]:
    """-w with more nodes than asked for means "only of these"; otherwise all of them are required."""
    allowed = np.ones(len(columns), dtype=np.bool_)
    required: BoolArray | None = None
    if shape.node_list:
        required = np.zeros(len(columns), dtype=np.bool_)
        required[[columns.index[n] for n in shape.node_list if n in columns.index]] = True
        if shape.contiguous:
            inside = np.flatnonzero(required)
            required[inside[0]:inside[-1] + 1] = True
        if int(required.sum()) > shape.min_nodes:
            allowed, required = required, None
    if shape.exclude:
        allowed = allowed.copy()
        allowed[[columns.index[n] for n in shape.exclude if n in columns.index]] = False
    return required, allowed


def _gres_cpus(shape: Shape, sockets: int) -> tuple[int, int]:
    """Least CPUs per node and per job that --cpus-per-gpu implies, over the devices of one name together."""
    per_node = per_job = 0
    for name in {r.name for r in shape.gres}:
        same = [r for r in shape.gres if r.name == name]
        each = same[0].cpus_per_gres
        if not each:
            continue
        job, node = sum(r.per_job for r in same), sum(r.per_node for r in same)
        socket, task = sum(r.per_socket for r in same), sum(r.per_task for r in same)
        per_node = max(per_node, each * (node or socket * sockets or task * shape.ntasks_per_node or 1))
        tasks = max(shape.ntasks_per_node, 1) * shape.min_nodes
        per_job = max(per_job, each * (job or node * shape.min_nodes or socket * sockets * shape.min_nodes
                                       or task * tasks))
    return per_node, per_job


@dataclass(slots=True)
class Question:
    """One test: a demand in a partition. ``share`` False: the job would not share nodes (a first try of backfill);
    ``whole``: it gets whole nodes (--exclusive, or OverSubscribe=EXCLUSIVE)."""

    columns: ClusterColumns
    demand: Demand
    partition: Partition
    settings: SchedulerSettings
    min_nodes: int
    max_nodes: int
    req_nodes: int
    whole: bool
    share: bool
    required: BoolArray | None
    min_cpus: int
    job_min_nodes: int                        # the job's own bounds, which feature groups replace for a while
    num_tasks: int
    max_switches: int = 0                     # --switches, as long as the job waits for them; 0: any number
    tests_ever: bool = False                  # whether it could run at all is asked, not on how many switches
    features: tuple[Feature, ...] = ()

    @property
    def shape(self) -> Shape:
        return self.demand.shape

    @property
    def bound_by_switches(self) -> bool:
        return self.max_switches > 0 and not self.tests_ever

    @property
    def shares_cores(self) -> bool:
        """Whether the job may have cores that other jobs of the partition have."""
        return takes_request(self.partition, oversubscribe=self.share and self.shape.oversubscribe)


def lifted(partition: Partition, qos_flags: frozenset[str]) -> Partition:
    """The partition without the limits that flags of a QOS lift (PartitionMinNodes and kin)."""
    changes: dict[str, int | None] = {name: value for flag, name, value in (
        ("PartitionMinNodes", "min_nodes", 0), ("PartitionMaxNodes", "max_nodes", 0),
        ("PartitionTimeLimit", "max_time_s", None)) if flag in qos_flags}
    return replace(partition, **changes) if changes else partition  # type: ignore[arg-type]


def node_bounds(shape: Shape, partition: Partition, limit_nodes: int = MANY) -> tuple[int, int, int]:
    """(least, most, wanted) nodes of the job in the partition; ``limit_nodes``: most that its limits allow."""
    least = max(shape.min_nodes, partition.min_nodes)
    most = partition.max_nodes or MANY
    if shape.max_nodes:
        most = min(shape.max_nodes, most)
    most = min(most, limit_nodes, 500_000)
    wanted = most if shape.max_nodes and not shape.use_min_nodes else least
    return least, most, wanted


def of_partition(settings: SchedulerSettings, partition: Partition) -> SchedulerSettings:
    """The settings with the partition's own SelectTypeParameters, which count beside CR_Core and CR_Socket only."""
    if not partition.select_type or settings.select_unit == "cpu":
        return settings
    return replace(settings, select_unit="socket" if partition.select_type.startswith("CR_SOCKET") else "core",
                   select_memory=partition.select_type.endswith("_MEMORY"))


def ask(columns: ClusterColumns, demand: Demand, partition: Partition, settings: SchedulerSettings,
        bounds: tuple[int, int, int], max_switches: int = 0) -> Question:
    whole = demand.whole or partition.over_subscribe == "EXCLUSIVE"
    return Question(columns, demand, partition, of_partition(settings, partition), *bounds, whole=whole,
                    share=not whole or partition.forced, required=demand.required,
                    min_cpus=demand.shape.min_cpus, job_min_nodes=demand.shape.min_nodes,
                    num_tasks=demand.shape.num_tasks, max_switches=max_switches, features=demand.features)
