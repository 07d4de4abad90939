"""The check at submission: could the job ever run, and why does it wait at first?"""
from __future__ import annotations

from dataclasses import dataclass, replace

from slurmbridge.scheduling import pick, reservations
from slurmbridge.scheduling.demand import lifted
from slurmbridge.scheduling.eligible import CONFIG, DOWN, INACTIVE, NO_FLAGS, NODE_LIMIT, TIME_LIMIT, partition_reason
from slurmbridge.scheduling.facts import FOREVER_S
from slurmbridge.scheduling.features import FeatureError, names, parse
from slurmbridge.scheduling.shape import Shape
from slurmbridge.scheduling.snapshot import REASON_INDEX, Snapshot
from slurmbridge.scheduling.state import NONE, NOT_AVAIL, PRIORITY, RESOURCES, begin
from slurmbridge.scheduling.waits import LICENSES, MAINTENANCE, RESERVATION, not_available_text

PART_CONFIG = REASON_INDEX["PartitionConfig"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """``error``: errno name; ``text``: its words; ``message``: a line that sbatch prints before it ("" for none)."""

    error: str
    text: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Admission:
    """The job may wait: ``reason`` (index into REASONS) and text that it shows, nodes it is likely to get (NumNodes).
    ``can_start``: it would start now if it were its turn."""

    reason: int
    description: str = ""
    node_count: int = 0
    can_start: bool = False


NEVER = Refusal("ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE", "Requested node configuration is not available")
NO_SWITCH = Refusal("ESLURM_REQUESTED_TOPO_CONFIG_UNAVAILABLE", "Requested topology configuration is not available")
BAD_FEATURE = Refusal("ESLURM_INVALID_FEATURE", "Invalid feature specification")
BAD_NODES = Refusal("ESLURM_INVALID_NODE_NAME", "Invalid node name specified")
BAD_COUNT = Refusal("ESLURM_INVALID_NODE_COUNT", "Node count specification invalid")
NOT_IN_PARTITION = Refusal("ESLURM_REQUESTED_NODES_NOT_IN_PARTITION", "Requested nodes not in this partition")
TOO_MANY_CPUS = Refusal("ESLURM_TOO_MANY_REQUESTED_CPUS", "More processors requested than permitted")
BAD_TIME = Refusal("ESLURM_INVALID_TIME_LIMIT", "Requested time limit is invalid (missing or exceeds some limit)")
PARTITION_LIMIT = Refusal("ESLURM_REQUESTED_PART_CONFIG_UNAVAILABLE",
                          "Requested partition configuration not available now")


def feasible(snapshot: Snapshot, shape: Shape, partition: str, *, uid: int = 0,
             time_limit_s: int = FOREVER_S) -> Refusal | None:
    """None when the job may wait in the partition."""
    verdict = admit(snapshot, shape, partition, uid=uid, time_limit_s=time_limit_s)
    return verdict if isinstance(verdict, Refusal) else None


def admit(snapshot: Snapshot, shape: Shape, partition: str, *, uid: int = 0, time_limit_s: int = FOREVER_S,
          first_in_line: bool = True, qos: str = "") -> Refusal | Admission:
    """The verdict of slurmctld on a submission to one partition. ``first_in_line``: no pending job of the partition
    has a higher priority."""
    columns = snapshot.cluster
    refusal = _names_known(snapshot, shape)
    if refusal is not None:
        return refusal
    found = lifted(columns.partitions[partition], snapshot.qos_flags.get(qos, NO_FLAGS))
    reason = partition_reason(columns, found, shape)
    if reason == NONE and found.max_time_s is not None and time_limit_s > found.max_time_s:
        reason = TIME_LIMIT
    if snapshot.settings.enforce_part_limits != "NO":
        refusal = _enforced(snapshot, shape, partition, reason)
        if refusal is not None:
            return refusal
    if reason in (CONFIG, NODE_LIMIT):
        return Admission(PART_CONFIG)
    state = begin(snapshot)
    demand = state.demands.of(shape)
    features = demand.prefer if demand.prefer and not snapshot.settings.ignore_prefer_validation else demand.features
    for view in reservations.views(columns, snapshot.reservations, demand, partition, snapshot.now_s, time_limit_s):
        outcome = pick.try_now(state, demand, found, uid, features=features, view=replace(view, overlap=False),
                               max_switches=shape.switches if shape.switches_wait_s else 0, test_only=True)
        if outcome.code not in (pick.NEVER, pick.NO_SWITCH):
            break
    waiting = NONE if first_in_line else PRIORITY
    if outcome.code == pick.NEVER:
        return Refusal(NEVER.error, NEVER.text, outcome.message)
    if outcome.code == pick.NO_SWITCH:
        return NO_SWITCH
    if outcome.code == pick.SUCCESS:
        shown = reason if reason in (DOWN, INACTIVE, TIME_LIMIT) else waiting
        return Admission(shown, node_count=outcome.possible, can_start=shown == NONE)
    if outcome.code == pick.NOT_AVAIL:
        text = MAINTENANCE if view.maint else not_available_text(state, demand, partition)
        return Admission(NOT_AVAIL, text, outcome.possible)
    codes = {pick.BUSY: RESOURCES, pick.RESERVED: RESERVATION, pick.PART_CONFIG: PART_CONFIG, pick.LICENSES: LICENSES}
    return Admission(codes.get(outcome.code, waiting), node_count=outcome.possible)


def _names_known(snapshot: Snapshot, shape: Shape) -> Refusal | None:
    """Features and nodes that exist, and no node both wanted and excluded."""
    columns = snapshot.cluster
    try:
        wanted = [*names(parse(shape.constraint))]
        if not snapshot.settings.ignore_prefer_validation:
            wanted += names(parse(shape.prefer))
    except FeatureError:
        return BAD_FEATURE
    if any(name not in columns.features or not columns.features[name].any() for name in wanted):
        return BAD_FEATURE
    if any(name not in columns.index for name in (*shape.node_list, *shape.exclude)):
        return BAD_NODES
    if set(shape.node_list) & set(shape.exclude) and len(set(shape.node_list)) <= shape.min_nodes:
        return BAD_NODES
    return None


def _enforced(snapshot: Snapshot, shape: Shape, partition: str, reason: int) -> Refusal | None:
    """EnforcePartLimits: partition limits refuse the job instead of letting it wait."""
    if reason == TIME_LIMIT:
        return BAD_TIME
    if reason == NODE_LIMIT:
        return BAD_COUNT
    if reason == CONFIG:
        return TOO_MANY_CPUS
    members = snapshot.cluster.partition_nodes[partition]
    if shape.node_list and any(not members[snapshot.cluster.index[n]] for n in shape.node_list):
        return NOT_IN_PARTITION
    return None
