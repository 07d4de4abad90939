"""Which task runs on which node: Slurm's block, cyclic, plane and arbitrary distributions (srun(1), --distribution)."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class LayoutError(ValueError):
    """The tasks cannot be laid out; the text is for the user."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """``base``: block, cyclic, plane or arbitrary. ``pack``: None = the cluster's CR_Pack_Nodes."""

    base: str = "block"
    plane_size: int = 0
    pack: bool | None = None


def task_capacity(cpus: Sequence[int], cpus_per_task: int, ntasks_per_node: int = 0) -> list[int]:
    """Tasks that fit each node's CPUs, at least one."""
    fit = [max(1, count // max(1, cpus_per_task)) for count in cpus]
    return [min(count, ntasks_per_node) for count in fit] if ntasks_per_node else fit


def lay_out(num_tasks: int, capacity: Sequence[int], distribution: Distribution) -> list[list[int]]:
    """Task ids of each node. ``capacity`` is task_capacity's; more tasks than it holds share nodes evenly.

    Raises LayoutError when the distribution cannot be had (arbitrary is laid out by ``lay_out_arbitrary``).
    """
    if distribution.base == "cyclic":
        return _cyclic(num_tasks, capacity)
    if distribution.base == "plane":
        if distribution.plane_size < 1:
            raise LayoutError("Plane size must be positive")
        return _plane(num_tasks, capacity, distribution.plane_size)
    if distribution.pack:
        return _consecutive(_packed_counts(num_tasks, capacity))
    return _consecutive([len(ids) for ids in _even(num_tasks, capacity)])


def lay_out_arbitrary(nodes: Sequence[str], hosts: Sequence[str], num_tasks: int) -> list[list[int]]:
    """Task i runs on ``hosts[i]``; the result is per node of ``nodes``. Raises LayoutError."""
    if len(hosts) != num_tasks:
        raise LayoutError(f"Asked for {num_tasks} tasks have {len(hosts)} in the nodelist.  "
                          f"Check your nodelist, or set the -n option to be {len(hosts)}")
    tasks: dict[str, list[int]] = {node: [] for node in nodes}
    for task, host in enumerate(hosts):
        if host not in tasks:
            raise LayoutError(f"Asked for {num_tasks} tasks but placed {task}. Check your nodelist")
        tasks[host].append(task)
    return list(tasks.values())


def tasks_per_node_text(counts: Sequence[int]) -> str:
    """``3(x2),1``: SLURM_TASKS_PER_NODE and SLURM_JOB_CPUS_PER_NODE."""
    parts: list[str] = []
    at = 0
    while at < len(counts):
        end = at
        while end < len(counts) and counts[end] == counts[at]:
            end += 1
        parts.append(f"{counts[at]}(x{end - at})" if end - at > 1 else str(counts[at]))
        at = end
    return ",".join(parts)


def _even(num_tasks: int, capacity: Sequence[int]) -> list[list[int]]:
    """Round robin over nodes that have room; all of them again once none has."""
    tasks: list[list[int]] = [[] for _ in capacity]
    given, turn, shared = 0, 0, False
    while given < num_tasks:
        room_left = False
        for node, room in enumerate(capacity):
            if given < num_tasks and (turn < room or shared):
                tasks[node].append(given)
                given += 1
                room_left = room_left or turn + 1 < room
        shared = shared or not room_left
        turn += 1
    return tasks


def _cyclic(num_tasks: int, capacity: Sequence[int]) -> list[list[int]]:
    """As ``_even``, but a cluster too small from the start is shared up to an equal excess per node."""
    tasks: list[list[int]] = [[] for _ in capacity]
    lacking = num_tasks - sum(capacity)
    excess = -(-lacking // len(capacity)) if lacking > 0 else 0
    shared, given, turn = lacking > 0, 0, 0
    while given < num_tasks:
        room_left = False
        for node, room in enumerate(capacity):
            if given < num_tasks and (turn < room or (shared and turn < room + excess)):
                tasks[node].append(given)
                given += 1
                room_left = room_left or turn + 1 < room
        shared = shared or not room_left
        turn += 1
    return tasks


def _packed_counts(num_tasks: int, capacity: Sequence[int]) -> list[int]:
    counts = [0] * len(capacity)
    left = num_tasks
    for node in range(len(capacity)):
        if left:
            counts[node] = 1
            left -= 1
    for node, room in enumerate(capacity):
        more = min(left, max(0, room - counts[node])) if counts[node] else 0
        counts[node] += more
        left -= more
    node = 0
    while left:
        counts[node % len(counts)] += 1
        left -= 1
        node += 1
    return counts


def _plane(num_tasks: int, capacity: Sequence[int], size: int) -> list[list[int]]:
    counts = [0] * len(capacity)
    given = 0
    for node in range(len(capacity)):
        if given < num_tasks:
            counts[node] = 1
            given += 1
    first, shared = True, False
    while given < num_tasks:
        room_left = False
        for node, room in enumerate(capacity):
            for _ in range(size - 1 if first else size):
                if given < num_tasks and (room != counts[node] or shared):
                    counts[node] += 1
                    given += 1
                    room_left = room_left or room - counts[node] - 1 >= 0
        shared = shared or not room_left
        first = False
    tasks: list[list[int]] = [[] for _ in capacity]
    given = 0
    while given < num_tasks:
        for node, count in enumerate(counts):
            block = min(size, count - len(tasks[node]), num_tasks - given)
            tasks[node] += range(given, given + block)
            given += block
    return tasks


def _consecutive(counts: Sequence[int]) -> list[list[int]]:
    tasks, given = [], 0
    for count in counts:
        tasks.append(list(range(given, given + count)))
        given += count
    return tasks
