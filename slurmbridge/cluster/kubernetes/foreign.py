"""What pods that are not ours take of each node: the sum of their requests, kept as they come and go."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any

from slurmbridge.cluster.kubernetes.objects import Container, Pod
from slurmbridge.cluster.kubernetes.quantity import quantity

Amounts = dict[str, Decimal]


def requests(pod: Pod) -> Amounts:
    """As kube-scheduler counts: the containers and sidecars together, or the largest init container, and overhead."""
    always = [*pod.spec.containers, *(one for one in pod.spec.init_containers if one.restart_policy == "Always")]
    total = _sum(one.resources.requests for one in always)
    for one in pod.spec.init_containers:
        for name, amount in _amounts(one).items():
            total[name] = max(total.get(name, Decimal(0)), amount)
    return _sum([total, pod.spec.overhead])


def _amounts(one: Container) -> Amounts:
    return _sum([one.resources.requests])


def _sum(parts: Iterable[Mapping[str, Any]]) -> Amounts:
    total: Amounts = {}
    for part in parts:
        for name, text in part.items():
            try:
                total[name] = total.get(name, Decimal(0)) + (quantity(text) if isinstance(text, str) else text)
            except ValueError:
                continue
    return total


class ForeignPods:
    """``changed`` is called with the name of a node on which something else is taken now."""

    def __init__(self, changed: Callable[[str], None]) -> None:
        self._changed = changed
        self._taken: dict[str, dict[tuple[str, str], Amounts]] = {}        # node -> pod -> requests

    def see(self, before: Pod | None, pod: Pod | None) -> None:
        """A reflector's change."""
        one = pod or before
        assert one is not None
        key = (one.metadata.namespace, one.metadata.name)
        for node in {item.spec.node_name for item in (before, pod) if item is not None and item.spec.node_name}:
            now = requests(pod) if pod is not None and pod.spec.node_name == node \
                and pod.status.phase not in ("Succeeded", "Failed") else None
            pods = self._taken.setdefault(node, {})
            if now == pods.get(key):
                continue
            if now is None:
                del pods[key]
            else:
                pods[key] = now
            self._changed(node)

    def on(self, node: str) -> Amounts:
        """The sum of what foreign pods have requested of a node."""
        return _sum(self._taken.get(node, {}).values())


def use_of(amounts: Amounts, allocatable: Mapping[str, str], resources: Mapping[str, str]) -> dict[str, Any]:
    """In Slurm's units: whole CPUs that jobs cannot have any more, MB, devices by Slurm's name (``resources``)."""
    whole = quantity(allocatable.get("cpu", "0"))
    left = max(int(whole - amounts.get("cpu", Decimal(0))), 0)
    memory = -(-int(amounts.get("memory", Decimal(0))) // (1 << 20))
    return {"cpus": int(whole) - left, "mem_mb": memory,
            "gres": {name: int(amounts[resource]) for name, resource in resources.items() if amounts.get(resource)}}
