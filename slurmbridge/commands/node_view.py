"""Nodes and partitions as sinfo and scontrol both see them: state numbers, GRES texts, who may see what."""
from __future__ import annotations

from collections.abc import Iterable, Mapping

from slurmbridge.commands.common import group_name
from slurmbridge.slurm import array, node_states, tres
from slurmbridge.slurm.settings import SlurmConf
from slurmbridge.views.records import NodeRecord, PartitionRecord
from slurmbridge.views.session import Session


def effective_cpus(node: NodeRecord) -> int:
    """CPUs that jobs may have: all but those of the cores kept for the system."""
    threads = max(node.cpus // max(node.sockets * node.cores_per_socket, 1), 1)
    return max(node.cpus - node.core_spec_count * threads, 0)


def state_number(node: NodeRecord) -> int:
    """Slurm's state integer: an idle node with work on it is ALLOCATED or MIXED."""
    base = node.base_state
    if base == "IDLE" and (node.cpus_alloc > 0 or node.paused):     # suspended jobs keep their memory
        base = "ALLOCATED" if node.cpus_alloc >= effective_cpus(node) else "MIXED"
    return node_states.number(base, node.flags)


def gres_text(node: NodeRecord) -> str | None:
    """``gpu:a100:4``; None for none."""
    if node.gres_text:
        return node.gres_text
    return ",".join(f"{name}:{count}" for name, count in node.gres.items()) or None


def gres_used(node: NodeRecord, conf: SlurmConf) -> str | None:
    """``gpu:a100:1(IDX:0)``; devices that are no files are only counted. None for none."""
    devices = conf.gres_devices.get(node.name, {})
    parts = []
    for name in node.gres:
        used = node.gres_alloc.get(name, ())
        has_files = name.partition(":")[0] == "gpu" or bool(devices.get(name))
        places = f"(IDX:{array.ranges(used) or 'N/A'})" if has_files else ""
        parts.append(f"{name}:{len(used)}{places}")
    return ",".join(parts) or None


def member_groups(session: Session) -> frozenset[str]:
    """Names of the caller's groups."""
    identity = session.identity
    return frozenset(group_name(gid) for gid in {identity.gid, *session.invocation.groups})


def visible_partitions(session: Session, show_all: bool) -> list[PartitionRecord]:
    """In the configuration's order, without the hidden ones and those whose AllowGroups leave the caller out."""
    found: Iterable[PartitionRecord] = session.views.partitions.values()
    if show_all or session.identity.is_admin:
        return list(found)
    groups = member_groups(session)
    return [partition for partition in found if not partition.hidden
            and (partition.allow_groups is None or not groups.isdisjoint(partition.allow_groups))]


def configured_tres(node: NodeRecord, partitions: Mapping[str, PartitionRecord], conf: SlurmConf) -> dict[str, int]:
    """CfgTRES of a node. Its billing is the highest that any of its partitions with weights would ask for it all."""
    counts = _tracked({"cpu": effective_cpus(node), "mem": node.real_memory_mb, **gres_tres(node.gres)}, conf)
    bills = [billing(counts, partitions[name].tres_billing_weights, conf) for name in node.partitions
             if name in partitions and partitions[name].tres_billing_weights]
    counts["billing"] = int(max(bills, default=0.0)) or counts["cpu"]
    return counts


def partition_tres(partition: PartitionRecord, nodes: Mapping[str, NodeRecord], conf: SlurmConf) -> dict[str, int]:
    """TRES of a partition: the sum of its nodes', and its own billing of that."""
    counts: dict[str, int] = {}
    for name in partition.nodes:
        node = nodes.get(name)
        if node is None:
            continue
        parts = {"cpu": effective_cpus(node), "mem": node.real_memory_mb, "node": 1, **gres_tres(node.gres)}
        for kind, count in _tracked(parts, conf).items():
            counts[kind] = counts.get(kind, 0) + count
    weights = partition.tres_billing_weights
    counts["billing"] = int(billing(counts, weights, conf)) if weights else counts.get("cpu", 0)
    return counts


def allocated_tres(node: NodeRecord, conf: SlurmConf) -> dict[str, int]:
    """AllocTRES of a node."""
    used = {name: len(indices) for name, indices in node.gres_alloc.items()}
    return _tracked({"cpu": node.cpus_alloc, "mem": node.mem_alloc_mb, **gres_tres(used)}, conf)


def gres_tres(gres: Mapping[str, int]) -> dict[str, int]:
    """{"gpu:a100": 4} -> {"gres/gpu": 4, "gres/gpu:a100": 4}."""
    counts: dict[str, int] = {}
    for name, count in gres.items():
        kind = name.partition(":")[0]
        for key in dict.fromkeys((f"gres/{kind}", f"gres/{name}")):
            counts[key] = counts.get(key, 0) + count
    return counts


def _tracked(counts: Mapping[str, int], conf: SlurmConf) -> dict[str, int]:
    """Only what AccountingStorageTRES follows."""
    return {name: count for name, count in counts.items() if name in conf.accounting_storage_tres or name == "node"}


def billing(counts: Mapping[str, int], weights_text: str, conf: SlurmConf) -> float:
    """The weighted sum; MAX_TRES: of node TRES the largest counts; MAX_TRES_GRES: and all GRES besides."""
    flags = conf.priority.flags
    most, gres_sum, rest = 0.0, 0.0, 0.0
    for name, weight in tres.parse_weights(weights_text).items():
        value = counts.get(name, 0) * weight
        is_gres = name.startswith("gres/")
        if not flags & {"MAX_TRES", "MAX_TRES_GRES"} or not (is_gres or name in ("cpu", "mem", "node")):
            rest += value
        elif is_gres and "MAX_TRES_GRES" in flags:
            gres_sum += value
        else:
            most = max(most, value)
    return most + gres_sum + rest
