"""Nodes and partitions as sinfo and scontrol both see them: state numbers, GRES texts, who may see what."""
from __future__ import annotations

from collections.abc import Iterable

from slurmbridge.commands.common import group_name
from slurmbridge.slurm import array, node_states
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
    if base == "IDLE" and node.cpus_alloc > 0:
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
