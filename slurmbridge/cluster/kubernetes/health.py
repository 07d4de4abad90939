"""What is said of a node, as plain data for whoever judges it (cluster.port.Event, ``health``); nothing here judges."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from slurmbridge.cluster.kubernetes.ends import is_over
from slurmbridge.cluster.kubernetes.inventory import tolerates
from slurmbridge.cluster.kubernetes.objects import Condition, Node, Pod
from slurmbridge.cluster.kubernetes.settings import ZONE_LABEL

STARTING, PROGRESSING, STUCK, DELETING, OVER = "", "progressing", "stuck", "deleting", "over"


def seen(node: Node, pods: Mapping[int, str], leftovers: bool, capacity: Mapping[str, int],
         allocatable: Mapping[str, int], tolerations: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """``pods``: job id -> ``pod_word`` of ours on the node. ``leftovers``: containers of a run that is over are still
    there. Taints that all our pods tolerate are left out."""
    return {
        "uid": node.metadata.uid, "boot_id": node.status.node_info.boot_id,
        "created_s": epoch(node.metadata.creation_timestamp), "zone": node.metadata.labels.get(ZONE_LABEL, ""),
        "conditions": [_condition(one) for one in node.status.conditions],
        "taints": [{"key": one.key, "effect": one.effect, "value": one.value} for one in node.spec.taints
                   if not any(tolerates(given, one) for given in tolerations)],
        "labels": dict(node.metadata.labels), "unschedulable": node.spec.unschedulable,
        "deleting": node.metadata.deletion_timestamp is not None, "leftovers": leftovers,
        "capacity": dict(capacity), "allocatable": dict(allocatable),
        "pods": dict(pods)}


def _condition(one: Condition) -> dict[str, Any]:
    return {"type": one.type, "status": one.status, "reason": one.reason, "message": one.message,
            "heartbeat_s": epoch(one.last_heartbeat_time), "changed_s": epoch(one.last_transition_time)}


def epoch(text: str | None) -> float | None:
    """Seconds of Kubernetes' time; None for none, or one that is no time."""
    try:
        return datetime.fromisoformat(text).timestamp() if text else None
    except ValueError:
        return None


def pod_word(pod: Pod, before: str) -> str:
    """What a pod does; ``before``: what it did. One that has never been ready is starting, not stuck."""
    if is_over(pod):
        return OVER
    if pod.metadata.deletion_timestamp:
        return DELETING
    if any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions):
        return PROGRESSING
    return STUCK if before in (PROGRESSING, STUCK) else STARTING


def is_worth_telling(word: str, before: str = "") -> bool:
    """A pod that starts and runs is no news."""
    return word in (STUCK, DELETING, OVER) or before in (STUCK, DELETING, OVER)
