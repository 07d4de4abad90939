"""scontrol reconfigure: slurm.conf is read again and holds from now on, as far as that goes without a restart.

Partitions, features and weights of nodes, priorities, scheduler parameters, limits and times follow the file; what
``scontrol update`` made of partitions is gone, as in Slurm, but for ReconfigFlags=KeepPartInfo or KeepPartState.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace

from slurmbridge.accounting.operations import SavePartition
from slurmbridge.controller import cluster_columns
from slurmbridge.controller.inventory import add_found_nodes, make_partitions
from slurmbridge.controller.world import World
from slurmbridge.scheduling import config
from slurmbridge.slurm import errors
from slurmbridge.slurm.conf import ConfError, read_conf
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.slurm.settings import NodeLine, SlurmConf
from slurmbridge.views.records import PartitionRecord

_FIXED = {"cluster_name": "ClusterName", "slurm_user": "SlurmUser", "max_job_id": "MaxJobId",
          "gres_types": "GresTypes", "accounting_storage_tres": "AccountingStorageTRES", "node_sets": "NodeSet"}


def reconfigure(world: World, delete_partition: Callable[[str], None]) -> None:
    """Raises SlurmError, one line, for a file that cannot be used or that changes what needs a restart; nothing has
    changed then."""
    conf = world.conf
    try:
        new = read_conf(conf.path)
    except ConfError as error:
        raise SlurmError(errors.ESLURM_NOT_SUPPORTED, str(error)) from None
    new.found_nodes = conf.found_nodes
    add_found_nodes(new)
    _check(conf, new)
    changed = [line for name, line in new.nodes.items()
               if (line.weight, line.features) != (conf.nodes[name].weight, conf.nodes[name].features)]
    for field in fields(SlurmConf):           # everybody holds this object
        setattr(conf, field.name, getattr(new, field.name))
    world.settings = config.settings_of(conf)
    _nodes(world, changed)
    _partitions(world, delete_partition)
    world.limits.changed()
    world.wake()


def _check(conf: SlurmConf, new: SlurmConf) -> None:
    found = [key for name, key in _FIXED.items() if getattr(conf, name) != getattr(new, name)]
    if not found and {name: _size(line) for name, line in conf.nodes.items()} != {
            name: _size(line) for name, line in new.nodes.items()}:
        found = ["NodeName"]
    if found:
        raise SlurmError(errors.ESLURM_NOT_SUPPORTED,
                         f"{found[0]} is changed, which needs slurmbridge down and up; nothing was changed")


def _size(line: NodeLine) -> NodeLine:
    """What of a node's line cannot change."""
    return replace(line, weight=0, features=(), state="", reason="")


def _nodes(world: World, changed: list[NodeLine]) -> None:
    for line in changed:
        node = world.nodes[line.name]
        node.weight, node.features = line.weight, line.features
        if line.name in world.columns.index:
            world.columns.set_node_features(line.name, line.features, line.weight)


def _partitions(world: World, delete_partition: Callable[[str], None]) -> None:
    flags = world.conf.values.get("ReconfigFlags", "").lower()
    new = make_partitions(world.conf, world.nodes)
    old = dict(world.partitions)
    if "keeppartinfo" in flags:
        new.update({name: record for name, record in old.items() if name in new})
    elif "keeppartstate" in flags:
        for name in new.keys() & old.keys():
            new[name].state = old[name].state
    for name in old.keys() - new.keys():
        try:
            delete_partition(name)
        except SlurmError:                    # jobs are in it
            new[name] = old[name]
            new[name].default = False
    world.partitions.clear()
    world.partitions.update(new)
    for node in world.nodes.values():
        node.partitions = tuple(name for name, record in new.items() if node.name in record.nodes)
    for record in new.values():
        cluster_columns.partition_changed(world, record)
        if _is_plain(record, old, flags):
            world.journal.add(SavePartition(record.name, {}))         # a restart takes it from the file


def _is_plain(record: PartitionRecord, old: dict[str, PartitionRecord], flags: str) -> bool:
    return record is not old.get(record.name) and "keeppartstate" not in flags
