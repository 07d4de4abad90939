"""Nodes that the engine finds while the controller runs: new ones, and ones whose size or features are others now."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slurmbridge.controller import cluster_columns, job_texts, nodes
from slurmbridge.controller.inventory import in_order, make_nodes, partition_nodes
from slurmbridge.controller.world import World
from slurmbridge.slurm.settings import NodeLine
from slurmbridge.views.records import NodeRecord

LAST_WEIGHT = 1 << 24
"""Added to the weight of a node that is to be taken last: more than slurm.conf's weights are."""
Foreign = Mapping[str, Any]
"""{"cpus", "mem_mb", "gres": {"gpu:h100": count}}: what others use of a node."""


def found(world: World, line: NodeLine) -> bool:
    """A line of slurm.conf for the same node counts more. What jobs hold is resized only once they are gone.

    Whether anything is another than before.
    """
    conf = world.conf
    known = conf.found_nodes.get(line.name)
    if line.name in conf.nodes and known is None:
        return False
    record = world.nodes.get(line.name)
    if record is not None and (known == line or record.job_ids):
        return False
    conf.found_nodes[line.name] = conf.nodes[line.name] = line
    made = make_nodes(conf, world.now())
    if record is None:
        record = made[line.name]
    else:
        fresh = made[line.name]
        for name in ("cpus", "sockets", "cores_per_socket", "real_memory_mb", "tmp_disk_mb", "features", "gres",
                     "gres_text", "partitions", "address", "host_name"):
            setattr(record, name, getattr(fresh, name))
    record.partitions = made[line.name].partitions
    everything = {**world.nodes, line.name: record}
    world.nodes.clear()
    world.nodes.update((name, everything[name]) for name in in_order(everything))
    for given in conf.partitions:
        partition = world.partitions.get(given["PartitionName"])
        members, _ = partition_nodes(given.get("Nodes", ""), conf, world.nodes)
        if partition is not None and (line.name in members) != (line.name in partition.nodes):
            names = {*partition.nodes, line.name} if line.name in members else {*partition.nodes} - {line.name}
            partition.nodes = in_order(names)
            partition.nodes_text = job_texts.hostlist(world, partition.nodes)
    _new_columns(world)
    return True


def _new_columns(world: World) -> None:
    """A pass under way goes on with the old ones; what it decides is checked against the new."""
    old = world.columns
    world.columns, _ = cluster_columns.make_columns(world.conf, world.nodes, world.partitions)
    for job in old.running.values():
        world.columns.apply_start(job)
    for node in world.nodes.values():
        nodes.show_to_scheduler(node, world.columns)
        show_use(world, node)
    for partition in world.partitions.values():
        cluster_columns.partition_changed(world, partition)


def set_foreign(world: World, name: str, use: Foreign) -> None:
    """Jobs get what others leave."""
    node = world.nodes[name]
    node.foreign = dict(use)
    show_use(world, node)


def show_use(world: World, node: NodeRecord) -> None:
    """What jobs cannot have of a node: others' use, missing and closed devices; and whether it is taken last."""
    if node.name not in world.columns.index:
        return
    use, gres = node.foreign, {}
    held = use.get("gres", {})
    for kind, count in node.gres.items():
        gone = min(int(held.get(kind, 0)) + node.closed_gres.get(kind, 0), count)
        if gone:
            gres[kind.partition(":")[0], kind.partition(":")[2]] = gone
    world.columns.set_foreign(node.name, int(use.get("cpus", 0)), int(use.get("mem_mb", 0)), gres)
    weight = node.weight + (LAST_WEIGHT if node.taken_last else 0)
    if world.columns.weight[world.columns.index[node.name]] != weight:
        world.columns.set_node_features(node.name, node.usable_features, weight)
