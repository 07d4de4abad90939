"""From a Kubernetes node to the line that slurm.conf would have for it, and to its state; pure functions.

Labels are features (``key=value``), allocatable is what jobs can have, extended resources are GRES by rules that are
data (settings.GresRule).
"""
from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from slurmbridge.cluster.kubernetes.objects import Node, Taint
from slurmbridge.cluster.kubernetes.quantity import quantity
from slurmbridge.cluster.kubernetes.settings import GresRule
from slurmbridge.slurm.settings import NodeLine
from slurmbridge.translate.manifest import DOMAIN

_NOISE = ("beta.kubernetes.io/", "feature.node.kubernetes.io/", "kubernetes.io/hostname", "node.kubernetes.io/exclude",
          "kubernetes.io/os", "nvidia.com/", "node-role.kubernetes.io/")
FEATURES_ANNOTATION = f"{DOMAIN}/features"
_VENDOR_WORDS = frozenset({"nvidia", "amd", "tesla", "geforce", "quadro", "instinct", "radeon", "gpu"})


@dataclass(frozen=True, slots=True)
class Found:
    """A node as the cluster has it. ``resources``: Slurm's name of each device kind -> Kubernetes' resource."""

    line: NodeLine
    resources: Mapping[str, str]
    is_ready: bool                            # its kubelet answers
    capacity: Mapping[str, int]               # devices by Slurm's name: what there is, and what can be had of it
    allocatable: Mapping[str, int]
    facts: Mapping[str, Any]                  # fields of NodeRecord besides


def read_node(node: Node, rules: Sequence[GresRule]) -> Found:
    """A node that says too little to be used has 1 CPU. Devices that are missing at the moment are counted."""
    allocatable = node.status.allocatable
    cpus = max(int(_amount(allocatable, "cpu")), 1)
    had, _ = devices(allocatable, node.metadata.labels, rules)
    whole = {**allocatable, **{name: text for name, text in node.status.capacity.items()
                               if _amount(node.status.capacity, name) > _amount(allocatable, name)}}
    gres, resources = devices(whole, node.metadata.labels, rules)
    address = next((one.address for one in node.status.addresses if one.type == "InternalIP"), node.metadata.name)
    line = NodeLine(
        name=node.metadata.name, host_name=node.metadata.name, address=address, cpus=cpus, sockets=1,
        cores_per_socket=cpus, real_memory_mb=max(int(_amount(allocatable, "memory")) >> 20, 1),
        tmp_disk_mb=int(_amount(allocatable, "ephemeral-storage")) >> 20, features=features_of(node), gres=gres,
        gres_text=",".join(f"{name}:{count}" for name, count in gres.items()))
    ready = next((one for one in node.status.conditions if one.type == "Ready"), None)
    info = node.status.node_info
    facts = {"arch": _arch(info.architecture), "os": f"{info.os_image} {info.kernel_version}".strip(),
             "address": address}
    return Found(line, resources, ready is not None and ready.status == "True", gres, had,
                 {name: value for name, value in facts.items() if value})


def _arch(text: str) -> str:
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(text, text)


def _amount(resources: Mapping[str, str], name: str) -> Any:
    try:
        return quantity(resources.get(name, "0"))
    except ValueError:
        return 0


def features_of(node: Node) -> tuple[str, ...]:
    """``key=value`` of each label (the key alone without a value), and the words of the features annotation."""
    words = [word for word in node.metadata.annotations.get(FEATURES_ANNOTATION, "").split(",") if word]
    for key, value in sorted(node.metadata.labels.items()):
        if not key.startswith(_NOISE):
            words.append(f"{key}={value}" if value else key)
    return tuple(dict.fromkeys(words))


def devices(allocatable: Mapping[str, str], labels: Mapping[str, str], rules: Iterable[GresRule],
            ) -> tuple[dict[str, int], dict[str, str]]:
    """("gpu:h100" -> count, "gpu:h100" -> resource). The first rule whose pattern fits a resource counts."""
    found: dict[str, int] = {}
    resources: dict[str, str] = {}
    rules = list(rules)
    for resource, text in sorted(allocatable.items()):
        rule = next((one for one in rules if fnmatchcase(resource, one.resource)), None)
        count = int(_amount({resource: text}, resource))
        if rule is None or count <= 0:
            continue
        kind = rule.type
        if kind == "*":
            kind = resource[rule.resource.index("*"):]
        elif not kind and rule.type_label in labels:
            kind = model(labels[rule.type_label])
        name = f"{rule.gres}:{kind}" if kind else rule.gres
        found[name] = found.get(name, 0) + count
        resources[name] = resource
    return found, resources


def model(label: str) -> str:
    """``NVIDIA-H100-80GB-HBM3`` -> ``h100``: vendors' words go, and what follows the first part with a number."""
    words = [word for word in re.split(r"[-_ ]+", label.lower()) if word and word not in _VENDOR_WORDS]
    for number, word in enumerate(words):
        if any(letter.isdigit() for letter in word):
            return "".join(words[:number + 1])
    return "".join(words)


def tolerates(toleration: Mapping[str, Any], taint: Taint) -> bool:
    if toleration.get("effect") not in (None, "", taint.effect):
        return False
    key, operator = toleration.get("key") or "", toleration.get("operator") or "Equal"
    if not key:
        return operator == "Exists"
    return bool(key == taint.key and (operator == "Exists" or (toleration.get("value") or "") == taint.value))


def topology_key(node: Node, labels: Sequence[str]) -> tuple[str, ...]:
    """Nodes with equal beginnings are near each other."""
    return tuple(node.metadata.labels.get(label, "") for label in labels)
