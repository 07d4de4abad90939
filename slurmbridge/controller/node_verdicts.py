"""A health verdict becomes the state of a node's record. What an administrator or anybody else has set is left alone.

``NodeRecord.set_by_health`` says which of DOWN, DRAIN, FAIL and NOT_RESPONDING are health's.
"""
from __future__ import annotations

from slurmbridge.controller import cluster_columns, node_arrivals
from slurmbridge.controller.world import World
from slurmbridge.health.verdict import Verdict, is_ours
from slurmbridge.views.records import NodeRecord

_FLAGS = ("DRAIN", "FAIL")


def put(node: NodeRecord, verdict: Verdict, now: float, user: tuple[str, int]) -> bool:
    """Whether the record changed. ``user``: name and uid of SlurmUser."""
    before = (node.base_state, frozenset(node.flags), node.reason)
    ours = node.set_by_health
    foreign = bool(node.flags & set(_FLAGS) - ours) or (node.base_state == "DOWN" and "DOWN" not in ours)
    _flag(node, "NOT_RESPONDING", verdict.not_responding)
    wanted = verdict.state
    if wanted != "DOWN" and "DOWN" in ours:
        ours.discard("DOWN")
        if node.base_state == "DOWN":
            node.base_state = "IDLE"
    if wanted == "DOWN" and node.base_state not in ("DOWN", "FUTURE"):
        node.base_state = "DOWN"
        ours.add("DOWN")
    for flag in _FLAGS:
        _flag(node, flag, wanted == flag and not foreign)
    if node.reason == "" or is_ours(node.reason):
        _reason(node, "" if foreign and wanted != "DOWN" else verdict.reason, now, user)
    return before != (node.base_state, frozenset(node.flags), node.reason)


def _flag(node: NodeRecord, flag: str, wanted: bool) -> None:
    if wanted and flag not in node.flags:
        node.flags.add(flag)
        node.set_by_health.add(flag)
    elif not wanted and flag in node.set_by_health:
        node.set_by_health.discard(flag)
        node.flags.discard(flag)


def _reason(node: NodeRecord, text: str, now: float, user: tuple[str, int]) -> None:
    if text == node.reason:
        return
    node.reason = text
    node.reason_user, node.reason_uid, node.reason_s = (*user, now) if text else ("", None, None)


def taken_over(node: NodeRecord) -> None:
    """An administrator set the node's state or reason: it is theirs from now on."""
    node.set_by_health &= {"NOT_RESPONDING"}


def recognise(node: NodeRecord) -> None:
    """After a restart: a state whose reason is ours is ours."""
    if is_ours(node.reason):
        node.set_by_health |= node.flags & {*_FLAGS, "NOT_RESPONDING"}
        if node.base_state == "DOWN":
            node.set_by_health.add("DOWN")


def show(world: World, node: NodeRecord, verdict: Verdict) -> bool:
    """What of a verdict is no state of the node goes to the scheduler; whether that is another than before."""
    before = (node.blocked, node.taken_last, node.closed_gres, node.closed_partitions)
    closed = {kind: count if verdict.no_devices else min(verdict.closed.get(kind, 0), count)
              for kind, count in node.gres.items()}
    node.blocked, node.taken_last, node.closed_partitions = verdict.blocked, verdict.last, verdict.closed_partitions
    node.closed_gres = {kind: count for kind, count in closed.items() if count}
    if node.closed_gres or before[:3] != (node.blocked, node.taken_last, node.closed_gres):
        node_arrivals.show_use(world, node)
    for name in set(before[3]) ^ set(node.closed_partitions):
        if name in world.partitions:
            cluster_columns.partition_changed(world, world.partitions[name])
    return before != (node.blocked, node.taken_last, node.closed_gres, node.closed_partitions)
