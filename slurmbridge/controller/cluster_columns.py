"""The cluster for the scheduler: its nodes and partitions as columns."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from slurmbridge.controller import queueing
from slurmbridge.controller.world import World
from slurmbridge.scheduling import config
from slurmbridge.scheduling.columns import ClusterColumns
from slurmbridge.scheduling.facts import NodeSpec, Partition
from slurmbridge.scheduling.snapshot import SchedulerSettings
from slurmbridge.scheduling.switches import switch_tree
from slurmbridge.slurm.jobspec import UNLIMITED_MIN
from slurmbridge.slurm.settings import SlurmConf
from slurmbridge.slurm.spec_cores import specialized
from slurmbridge.views.records import NodeRecord, PartitionRecord


def make_columns(conf: SlurmConf, nodes: Mapping[str, NodeRecord],
                 partitions: Mapping[str, PartitionRecord]) -> tuple[ClusterColumns, SchedulerSettings]:
    """Columns in the order of the node records, and the scheduler's settings."""
    columns = ClusterColumns([node_spec(record) for record in nodes.values()])
    columns.switches = switch_tree(conf.switches, columns.index)
    for record in partitions.values():
        columns.set_partition(scheduler_partition(record))
    return columns, config.settings_of(conf)


def node_spec(node: NodeRecord) -> NodeSpec:
    """What the scheduler needs of a node."""
    gres = tuple((*(name.split(":", 1) if ":" in name else (name, "")), count) for name, count in node.gres.items())
    return NodeSpec(
        node.name, node.sockets, node.cores_per_socket, node.threads_per_core, node.cpus, node.real_memory_mb,
        node.mem_spec_limit_mb, node.tmp_disk_mb, node.weight, node.usable_features, gres,  # type: ignore[arg-type]
        specialized(node.core_spec_count, node.cpu_spec_list, node.sockets, node.cores_per_socket,
                    node.threads_per_core))


def scheduler_partition(record: PartitionRecord) -> Partition:
    """What the scheduler needs of a partition."""
    word, _, share = record.over_subscribe.partition(":")
    shares = int(share) if share else 4 if word in ("YES", "FORCE") else 1
    return Partition(
        record.name, frozenset(record.nodes), record.priority_tier, record.state, record.min_nodes,
        record.max_nodes or 0,
        None if record.max_time_min is None else record.max_time_min * 60,
        None if record.default_time_min in (None, UNLIMITED_MIN) else record.default_time_min * 60,
        record.max_cpus_per_node or 0, record.max_cpus_per_socket or 0, word or "NO", shares,
        record.exclusive_user, record.lln, record.preempt_mode, record.def_mem_per_cpu_mb, record.def_mem_per_node_mb,
        record.max_mem_per_cpu_mb, record.max_mem_per_node_mb, record.def_cpu_per_gpu, record.def_mem_per_gpu_mb,
        "" if record.select_type_parameters == "NONE" else record.select_type_parameters)


def partition_changed(world: World, record: PartitionRecord) -> None:
    """A partition is new or changed: columns, priorities and limits follow."""
    closed = {name for name in record.nodes if (node := world.nodes.get(name)) is not None
              and record.name in node.closed_partitions}
    found = scheduler_partition(record)
    world.columns.set_partition(replace(found, nodes=found.nodes - closed) if closed else found)
    world.shapes.clear()
    world.admitted.clear()
    if world.priorities is not None:
        world.priorities.reload(world.conf, world.partitions, world.nodes)
        world.limits.changed()
        for job in world.jobs.pending.values():
            if record.name in job.partition.split(","):
                queueing.refresh(world, job)
    world.wake()
