"""What is seen of a node at one moment: everything that anybody says of it, each as a ``Signal``.

A sight is made of plain data as an engine tells it (``read``); nothing here judges.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CONDITION, TAINT, CORDON, LABEL, CAPACITY, DEVICE_TAINT, LAUNCH, BOOT = (
    "condition", "taint", "cordon", "label", "capacity", "device-taint", "launch", "boot")
SOURCES = frozenset({CONDITION, TAINT, CORDON, LABEL, CAPACITY, DEVICE_TAINT, LAUNCH})
"""Who a rule may listen to. Metrics and Kubernetes events are none: they tell what was once, not what is."""
READY = (CONDITION, "Ready")
CORDONED, BEING_DELETED, LEFTOVERS = "spec.unschedulable", "metadata.deletionTimestamp", "pods of an ended job"
_OF_NODE = {"unschedulable": CORDONED, "deleting": BEING_DELETED, "leftovers": LEFTOVERS}
STUCK, DELETING, OVER = "stuck", "deleting", "over"
"""What a job's pod on the node does that does not get on: it was ready and is no more; somebody deleted it and it is
still there; its containers are gone."""


@dataclass(frozen=True, slots=True)
class Signal:
    """``status`` is a condition's status, a taint's effect, a label's value, or of CAPACITY ``short`` or ``none``.

    ``missing``: devices of a CAPACITY signal that are configured and cannot be had. Times in epoch seconds.
    """

    source: str
    type: str
    status: str
    reason: str = ""
    message: str = ""
    heartbeat_s: float | None = None
    changed_s: float | None = None
    missing: int = 0

    @property
    def key(self) -> tuple[str, str]:
        return self.source, self.type


@dataclass(frozen=True, slots=True)
class Sight:
    """``pods``: what pods of jobs do that do not get on; None: nobody can tell. ``uid`` and ``boot_id`` are the
    machine's: other ones are another machine, or another boot of it."""

    node: str
    signals: Mapping[tuple[str, str], Signal]
    uid: str = ""
    boot_id: str = ""
    created_s: float | None = None
    zone: str = ""
    pods: Mapping[int, str] | None = None

    def status(self, source: str, type_: str) -> str:
        found = self.signals.get((source, type_))
        return found.status if found is not None else ""

    @property
    def is_ready(self) -> bool:
        return self.status(*READY) == "True"


def read(node: str, data: Mapping[str, Any]) -> Sight:
    """From what an engine tells (cluster.port.Event, ``health``)."""
    found = [*(_condition(one) for one in data.get("conditions", ())),
             *(Signal(TAINT, str(one["key"]), str(one["effect"]), str(one.get("value") or ""))
               for one in data.get("taints", ())),
             *(Signal(LABEL, key, str(value)) for key, value in data.get("labels", {}).items()),
             *(Signal(DEVICE_TAINT, str(one["key"]), str(one["effect"]), str(one.get("value") or ""))
               for one in data.get("device_taints", ())),
             *_capacity(data.get("capacity", {}), data.get("allocatable", {}))]
    found += [Signal(CORDON, kind, "true") for key, kind in _OF_NODE.items() if data.get(key)]
    pods = data.get("pods")
    return Sight(node, {one.key: one for one in found}, str(data.get("uid") or ""), str(data.get("boot_id") or ""),
                 data.get("created_s"), str(data.get("zone") or ""),
                 None if pods is None else {int(job): str(state) for job, state in pods.items()})


def _condition(one: Mapping[str, Any]) -> Signal:
    return Signal(CONDITION, str(one["type"]), str(one["status"]), str(one.get("reason") or ""),
                  str(one.get("message") or ""), one.get("heartbeat_s"), one.get("changed_s"))


def _capacity(capacity: Mapping[str, int], allocatable: Mapping[str, int]) -> list[Signal]:
    """A device kind of which all can be had is no signal."""
    found = []
    for kind, count in capacity.items():
        left = min(int(allocatable.get(kind, 0)), int(count))
        if left < count:
            found.append(Signal(CAPACITY, kind, "short" if left else "none", missing=int(count) - left))
    return found
