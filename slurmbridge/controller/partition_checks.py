"""Which partitions a submission goes to, and what of it their limits refuse (EnforcePartLimits, slurm.conf(5))."""
from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Sequence

from slurmbridge.controller.directory_checks import refused_by_partition
from slurmbridge.controller.world import World
from slurmbridge.slurm import errors, hostlist
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.slurm.jobspec import UNLIMITED_MIN, JobRequest
from slurmbridge.views.records import PartitionRecord
from slurmbridge.views.session import Identity


class PartitionChecks:
    """Look-ups and tests of one submission against the cluster's partitions and nodes."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._capacities: dict[str, tuple[tuple[str, ...], int, int]] = {}

    def nodes(self, text: str) -> list[str]:
        """The nodes a hostlist names. Raises SlurmError(ESLURM_INVALID_NODE_NAME)."""
        try:
            names = list(dict.fromkeys(hostlist.expand(text)))
        except hostlist.HostlistError:
            raise SlurmError(errors.ESLURM_INVALID_NODE_NAME) from None
        if any(name not in self._world.nodes for name in names):
            raise SlurmError(errors.ESLURM_INVALID_NODE_NAME)
        return names

    def partitions(self, request: JobRequest) -> list[PartitionRecord]:
        """The partitions asked for, or the default one; a drained one's alternate. Raises SlurmError."""
        world = self._world
        if request.partitions:
            unknown = [name for name in request.partitions if name not in world.partitions]
            if unknown:
                raise SlurmError(errors.ESLURM_INVALID_PARTITION_NAME,
                                 details=(f"invalid partition specified: {unknown[0]}",))
            asked = [world.partitions[name] for name in dict.fromkeys(request.partitions)]
        else:
            asked = [partition for partition in world.partitions.values() if partition.default][:1]
            if not asked:
                raise SlurmError(errors.ESLURM_DEFAULT_PARTITION_NOT_SET)
        usable: list[PartitionRecord] = []
        failure = errors.ESLURM_PARTITION_NOT_AVAIL
        for partition in asked:
            try:
                found = self._alternate(partition)
            except SlurmError as error:
                failure = error.code
                continue
            if found not in usable:
                usable.append(found)
        if not usable:
            raise SlurmError(failure)
        return usable

    def _alternate(self, partition: PartitionRecord) -> PartitionRecord:
        seen = {partition.name}
        while partition.state in ("DRAIN", "INACTIVE"):
            name = partition.alternate
            if not name or name in seen:
                raise SlurmError(errors.ESLURM_PARTITION_NOT_AVAIL)
            if name not in self._world.partitions:
                raise SlurmError(errors.ESLURM_INVALID_PARTITION_NAME)
            seen.add(name)
            partition = self._world.partitions[name]
        return partition

    def check(self, caller: Identity, request: JobRequest, partitions: Sequence[PartitionRecord],
              account: str, qos: str, host: str) -> None:
        """Access always refuses; limits refuse as EnforcePartLimits says. ``host``: where the command was called."""
        enforce = self._world.conf.enforce_part_limits
        failures: list[int] = []
        for partition in partitions:
            code = self._fault(caller, request, partition, account, qos, host)
            if code in (errors.ESLURM_ACCESS_DENIED, errors.ESLURM_USER_ID_MISSING):
                raise SlurmError(code)
            if code:
                if enforce == "ALL":
                    raise SlurmError(code)
                failures.append(code)
        if enforce == "ANY" and len(failures) == len(partitions):
            raise SlurmError(failures[-1])

    def _fault(self, caller: Identity, request: JobRequest, partition: PartitionRecord, account: str,
               qos: str, host: str) -> int:
        """Slurm's error for the first test this job fails in this partition, 0 when it passes."""
        world = self._world
        if partition.req_resv and not request.reservation:
            return errors.ESLURM_ACCESS_DENIED
        if partition.root_only and not caller.is_admin:
            return errors.ESLURM_ACCESS_DENIED
        if partition.disable_root_jobs and request.uid == 0:
            return errors.ESLURM_USER_ID_MISSING
        if partition.alloc_nodes != "ALL" and host not in hostlist.expand(partition.alloc_nodes):
            return errors.ESLURM_ACCESS_DENIED
        record = world.accounting.qos.get(qos)
        flags = record.flags if record is not None else ()
        if partition.state in ("UP", "DOWN") and partition.state == "UP":
            fault = self._size_fault(request, partition)
            if fault:
                return fault
            if "PartitionMinNodes" not in flags and request.min_nodes is not None and (
                    request.min_nodes < partition.min_nodes):
                return errors.ESLURM_INVALID_NODE_COUNT
            if "PartitionMaxNodes" not in flags and request.max_nodes is not None and (
                    partition.max_nodes is not None and request.max_nodes > partition.max_nodes):
                return errors.ESLURM_INVALID_NODE_COUNT
            if "PartitionTimeLimit" not in flags and request.time_limit_min is not None and (
                    partition.max_time_min is not None and request.time_limit_min > partition.max_time_min):
                return errors.ESLURM_INVALID_TIME_LIMIT
        if world.conf.enforce_part_limits != "NO":
            if not in_allowed_group(partition, request.uid):
                return errors.ESLURM_JOB_MISSING_REQUIRED_PARTITION_GROUP
            refused = refused_by_partition(partition, account, qos, world.accounting, world.conf)
            if refused is not None:
                return refused[0]
            if self._needs_too_much_memory(request, partition):
                return errors.ESLURM_INVALID_TASK_MEMORY
        return 0

    def _needs_too_much_memory(self, request: JobRequest, partition: PartitionRecord) -> bool:
        """MaxMemPerNode, the partition's before the cluster's; MaxMemPerCPU takes more CPUs instead."""
        conf = self._world.conf
        limit = partition.max_mem_per_node_mb
        if limit is None and partition.max_mem_per_cpu_mb is None:
            limit = conf.max_mem_per_node_mb
        if limit is None:
            return False
        if request.mem_per_cpu_mb is None:
            return (request.mem_per_node_mb or 0) > limit
        tasks = max(request.ntasks_per_node or 1, -(-(request.num_tasks or 1) // (request.max_nodes or 0xFFFFFFFF)))
        cpus = max(tasks * (request.cpus_per_task or 1), request.min_cpus_per_node or 0)
        return request.mem_per_cpu_mb * cpus > limit

    def _size_fault(self, request: JobRequest, partition: PartitionRecord) -> int:
        nodes, most_cpus = self._capacity(partition)
        cpus = 1
        if not request.overcommit:
            cpus = (request.num_tasks or request.min_nodes or 1) * (request.cpus_per_task or 1)
        if cpus > most_cpus:
            return errors.ESLURM_TOO_MANY_REQUESTED_CPUS
        if partition.max_cpus_per_node is not None and cpus > partition.max_cpus_per_node * nodes:
            return errors.ESLURM_TOO_MANY_REQUESTED_CPUS
        if request.min_nodes is not None and request.min_nodes > nodes:
            return errors.ESLURM_INVALID_NODE_COUNT
        if request.node_list:
            wanted = self.nodes(request.node_list)
            if len(wanted) <= (request.min_nodes or 1) and not set(wanted) <= set(partition.nodes):
                return errors.ESLURM_REQUESTED_NODES_NOT_IN_PARTITION
        return 0

    def _capacity(self, partition: PartitionRecord) -> tuple[int, int]:
        """(nodes, their CPUs), counted once until the partition gets other nodes."""
        known = self._capacities.get(partition.name)
        if known is None or known[0] is not partition.nodes:
            nodes = [self._world.nodes[name] for name in partition.nodes if name in self._world.nodes]
            known = self._capacities[partition.name] = (partition.nodes, len(nodes), sum(node.cpus for node in nodes))
        return known[1], known[2]

    def time_limit(self, request: JobRequest, partition: PartitionRecord, now: float) -> int | None:
        """The job's time limit in minutes (None: the partition's). Raises SlurmError for contradictions."""
        limit = request.time_limit_min
        if limit is None:
            if partition.default_time_min == 0:
                raise SlurmError(errors.ESLURM_INVALID_TIME_LIMIT)
            limit = partition.default_time_min
        enforce = self._world.conf.enforce_part_limits != "NO"
        most = partition.max_time_min
        time_min = request.time_min_min
        if time_min is not None:
            if most is not None and time_min > most:
                raise SlurmError(errors.ESLURM_INVALID_TIME_MIN_LIMIT)
            if limit is not None and time_min > limit:
                raise SlurmError(errors.ESLURM_INVALID_TIME_MIN_LIMIT)
        elif limit is not None and most is not None and limit > most and enforce and len(request.partitions) < 2:
            raise SlurmError(errors.ESLURM_INVALID_TIME_LIMIT)
        if request.deadline_s:
            earliest = max(request.begin_s or 0, int(now))     # a deadline of now+1hour leaves room for an hour
            if request.deadline_s < earliest:
                raise SlurmError(errors.ESLURM_INVALID_TIME_LIMIT)
            if time_min and request.deadline_s < earliest + time_min * 60:
                raise SlurmError(errors.ESLURM_INVALID_TIME_MIN_LIMIT)
            limited = limit not in (None, UNLIMITED_MIN)
            if not time_min and limited and request.deadline_s < earliest + (limit or 0) * 60:
                raise SlurmError(errors.ESLURM_INVALID_TIME_LIMIT)
        return limit


def in_allowed_group(partition: PartitionRecord, uid: int) -> bool:
    """AllowGroups; root always passes."""
    if partition.allow_groups is None or uid == 0:
        return True
    try:
        entry = pwd.getpwuid(uid)
        groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
    except KeyError:
        return False
    names = set()
    for gid in groups:
        try:
            names.add(grp.getgrgid(gid).gr_name)
        except KeyError:
            continue
    return bool(names & set(partition.allow_groups))
