"""Which rows a pass looks at: pending, eligible, and within their partition's limits; the others get their reason."""
from __future__ import annotations

import numpy as np

from slurmbridge.scheduling.columns import ClusterColumns
from slurmbridge.scheduling.demand import lifted
from slurmbridge.scheduling.facts import FOREVER_S, IntArray, Partition
from slurmbridge.scheduling.reservations import named
from slurmbridge.scheduling.shape import Shape
from slurmbridge.scheduling.snapshot import REASON_INDEX
from slurmbridge.scheduling.state import NONE, PassState

NODE_LIMIT, TIME_LIMIT, CONFIG, DOWN, INACTIVE, MEMORY = (REASON_INDEX[w] for w in (
    "PartitionNodeLimit", "PartitionTimeLimit", "PartitionConfig", "PartitionDown", "PartitionInactive",
    "MaxMemPerLimit"))
RESERVATION = REASON_INDEX["Reservation"]
NO_FLAGS: frozenset[str] = frozenset()
PARTITION_FLAGS = frozenset({"PartitionMinNodes", "PartitionMaxNodes", "PartitionTimeLimit"})
"""Flags of a QOS that lift a partition's limits."""
PARTITION_REASONS = np.array([NODE_LIMIT, TIME_LIMIT, CONFIG, DOWN, INACTIVE, RESERVATION])


def partition_reasons(state: PassState, *, min_time: bool) -> IntArray:
    """Rows to test: not those that wait for their reservation to begin.

    ``min_time``: --time-min counts instead of the time limit (backfill)."""
    queue, columns = state.snapshot.queue, state.snapshot.cluster
    rows = np.flatnonzero(queue.live & queue.eligible)
    if not len(rows):
        return rows
    shapes, flags = len(queue.shapes), [state.snapshot.qos_flags.get(name, NO_FLAGS) for name in queue.qoses]
    flagged = np.array([bool(of_qos & PARTITION_FLAGS) for of_qos in flags], dtype=np.bool_)
    qos = np.where(flagged[queue.qos[rows]], queue.qos[rows] + 1, 0)
    keys = (qos * len(queue.partitions) + queue.partition[rows]) * shapes + queue.shape[rows]
    unique, inverse = np.unique(keys, return_inverse=True)
    verdicts = np.array([_shape_reason(state, columns, int(key) // shapes % len(queue.partitions), int(key) % shapes,
                                       flags, int(key) // shapes // len(queue.partitions)) for key in unique],
                        dtype=np.int64)[inverse]
    waiting = np.array([not _may_begin(state, shape) for shape in queue.shapes], dtype=np.bool_)
    verdicts = np.where((verdicts == NONE) & waiting[queue.shape[rows]], RESERVATION, verdicts)
    time_s = queue.time_limit_s[rows]
    if min_time:
        time_s = np.where(queue.time_min_s[rows] > 0, queue.time_min_s[rows], time_s)
    most_s = np.array([columns.partitions[name].max_time_s or FOREVER_S if name in columns.partitions else 0
                       for name in queue.partitions], dtype=np.int64)
    over = (time_s > most_s[queue.partition[rows]]) & (time_s < FOREVER_S)
    over |= (time_s >= FOREVER_S) & (most_s[queue.partition[rows]] < FOREVER_S)
    free = np.array(["PartitionTimeLimit" in of_qos for of_qos in flags], dtype=np.bool_)
    over &= ~free[queue.qos[rows]] & (queue.time_waived[rows] == 0)
    verdicts = np.where((verdicts == NONE) & over, TIME_LIMIT, verdicts)
    magnets = np.array([shape.magnet for shape in queue.shapes], dtype=np.bool_)[queue.shape[rows]]
    if magnets.any():
        kept = ~magnets | ((verdicts == NONE) & (time_s <= _lasts_s(state)[queue.shape[rows]]))
        rows, verdicts = rows[kept], verdicts[kept]
    shown = state.reasons[rows]
    changes = (verdicts != shown) & ((verdicts != NONE) | np.isin(shown, PARTITION_REASONS))
    state.reasons[rows[changes]] = verdicts[changes]
    state.touched[rows[changes]] = True
    testable: IntArray = rows[verdicts == NONE]
    return testable


def _lasts_s(state: PassState) -> IntArray:
    """How long from now the reservations last that shapes name: longer jobs are not attracted."""
    ends = {one.name: one.end_s for one in state.snapshot.reservations}
    return np.array([ends.get(shape.reservation or "", 0) - state.snapshot.now_s
                     for shape in state.snapshot.queue.shapes], dtype=np.int64)


def _may_begin(state: PassState, shape: Shape) -> bool:
    """Whether one of its reservations is there and active (always without one)."""
    now_s = state.snapshot.now_s
    return shape.reservation is None or any(
        one.flex or (one.start_s <= now_s <= one.end_s and bool(one.nodes or one.any_nodes))
        for one in named(state.snapshot.reservations, shape.reservation))


def _shape_reason(state: PassState, columns: ClusterColumns, partition: int, shape: int,
                  flags: list[frozenset[str]], qos: int) -> int:
    """``qos``: one more than the number of a QOS that has flags about partitions; 0: none."""
    name = state.snapshot.queue.partitions[partition]
    found = columns.partitions.get(name)
    if found is None:
        return CONFIG
    return partition_reason(columns, lifted(found, flags[qos - 1]) if qos else found,
                            state.snapshot.queue.shapes[shape])


def partition_reason(columns: ClusterColumns, partition: Partition, shape: Shape) -> int:
    """NONE, or why the partition as configured does not take jobs of this shape (whatever their time)."""
    members = columns.partition_nodes[partition.name]
    total_nodes = int(members.sum())
    if partition.state in ("UP", "DRAIN"):
        if shape.min_cpus > int(columns.cpus[members].sum()):
            return CONFIG
        if partition.max_cpus_per_node and shape.min_cpus > partition.max_cpus_per_node * total_nodes:
            return CONFIG
        if shape.min_nodes > total_nodes or shape.min_nodes < partition.min_nodes:
            return NODE_LIMIT
        if partition.max_nodes and shape.max_nodes > partition.max_nodes:
            return NODE_LIMIT
    if partition.state == "DOWN":
        return DOWN
    if partition.state == "INACTIVE":
        return INACTIVE
    return MEMORY if over_memory(partition, shape) else NONE


def over_memory(partition: Partition, shape: Shape) -> bool:
    """--mem beyond MaxMemPerNode. (MaxMemPerCPU raises the CPU count instead, when the job is submitted.)"""
    if partition.max_mem_per_node_mb is None:
        return False
    if shape.mem_per_cpu_mb:
        tasks = max(shape.ntasks_per_node, 1)
        if shape.num_tasks and shape.max_nodes:
            tasks = max(tasks, -(-shape.num_tasks // shape.max_nodes))
        cpus = max(tasks * shape.cpus_per_task, shape.min_cpus_per_node)
        return shape.mem_per_cpu_mb * cpus > partition.max_mem_per_node_mb
    return (shape.mem_per_node_mb or 0) > partition.max_mem_per_node_mb
