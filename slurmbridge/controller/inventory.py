"""From slurm.conf's lines to the node and partition records that the controller keeps.

``make_nodes`` and ``make_partitions`` are pure but for what they read of this machine (kernel, boot time); the engine
overrides what it knows better. (slurm.conf(5), scontrol(1) SHOW NODE and SHOW PARTITION.)
"""
from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterable, Mapping

from slurmbridge.slurm import conf_values as values
from slurmbridge.slurm import spec_cores
from slurmbridge.slurm.hostlist import HostlistError, compress, expand
from slurmbridge.slurm.jobspec import UNLIMITED_MIN
from slurmbridge.slurm.settings import NodeLine, SlurmConf
from slurmbridge.views.records import NodeRecord, PartitionRecord

_FLAG_STATES = {"DRAIN": "DRAIN", "FAIL": "FAIL", "FAILING": "FAIL"}


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Node names without duplicates, in the order in which Slurm keeps nodes."""
    found = list(names)
    return tuple(expand(compress(found, unique=True))) if found else ()


def add_found_nodes(conf: SlurmConf) -> None:
    """Nodes that the engine has and slurm.conf does not name are as the engine says."""
    for name, line in conf.found_nodes.items():
        conf.nodes.setdefault(name, line)


def make_nodes(conf: SlurmConf, now_s: float) -> dict[str, NodeRecord]:
    """A record for every node of the configuration, by name, sorted as Slurm sorts its node table."""
    names = in_order(conf.nodes)
    down = {node: (state, reason) for node, state, reason in conf.down_nodes}
    records = {}
    for name in names:
        line = conf.nodes[name]
        record = _node(line, now_s)
        if name in down:
            set_conf_state(record, *down[name], now_s)
        records[name] = record
    _join_partitions(records, conf)
    return records


def _node(line: NodeLine, now_s: float) -> NodeRecord:
    kernel = os.uname()
    kept = spec_cores.specialized(line.core_spec_count, line.cpu_spec_list, line.sockets, line.cores_per_socket,
                                  line.threads_per_core)
    record = NodeRecord(
        name=line.name, cpus=line.cpus, boards=line.boards, sockets=line.sockets,
        cores_per_socket=line.cores_per_socket,
        threads_per_core=line.threads_per_core, real_memory_mb=line.real_memory_mb, tmp_disk_mb=line.tmp_disk_mb,
        weight=line.weight, features=line.features, gres=dict(line.gres), gres_text=line.gres_text,
        address=line.address, host_name=line.host_name, port=line.port, arch=kernel.machine,
        os=f"{kernel.sysname} {kernel.release} {kernel.version}", boot_s=boot_time_s(), daemon_start_s=now_s,
        last_busy_s=now_s, mem_spec_limit_mb=line.mem_spec_limit_mb, core_spec_count=len(kept),
        cpu_spec_list=spec_cores.cpu_list(kept, line.threads_per_core))
    set_conf_state(record, line.state, line.reason, now_s)
    return record


def set_conf_state(record: NodeRecord, state: str, reason: str, now_s: float) -> None:
    """What ``State=`` and ``Reason=`` of slurm.conf make of a node."""
    if state in _FLAG_STATES:
        record.flags.add(_FLAG_STATES[state])
    elif state == "CLOUD":
        record.flags.add("CLOUD")
    elif state in ("DOWN", "FUTURE"):
        record.base_state = state
    if reason:
        record.reason, record.reason_user, record.reason_uid, record.reason_s = reason, "root", 0, now_s


@functools.cache
def boot_time_s() -> float:
    """When this machine booted (0 where that cannot be known)."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            return next((float(line.split()[1]) for line in file if line.startswith("btime ")), 0.0)
    except OSError:
        return 0.0


def partition_nodes(text: str, conf: SlurmConf, nodes: Mapping[str, NodeRecord]) -> tuple[tuple[str, ...], str]:
    """(node names sorted, the NodeSets used) of a partition's ``Nodes=``: names, NodeSets and ALL.

    Raises HostlistError. Names that are no node are left out.
    """
    found: set[str] = set()
    sets: list[str] = []
    for word in expand(text.replace(" ", ",")):
        if word.upper() == "ALL":
            sets.append("ALL")
            found.update(nodes)
        elif word in conf.node_sets:
            sets.append(word)
            found.update(_set_nodes(conf.node_sets[word], nodes))
        elif word in nodes:
            found.add(word)
    return in_order(found), ",".join(dict.fromkeys(sets))


def _set_nodes(node_set: Mapping[str, str], nodes: Mapping[str, NodeRecord]) -> set[str]:
    found: set[str] = set()
    if "Feature" in node_set:
        wanted = node_set["Feature"]
        found.update(name for name, node in nodes.items() if wanted in node.features)
    if "Nodes" in node_set:
        with contextlib.suppress(HostlistError):
            found.update(name for name in expand(node_set["Nodes"]) if name in nodes)
    return found


def make_partitions(conf: SlurmConf, nodes: Mapping[str, NodeRecord]) -> dict[str, PartitionRecord]:
    """A record for every partition, in the file's order. The last ``Default=YES`` is the default."""
    records = {line["PartitionName"]: _partition(line, conf, nodes) for line in conf.partitions}
    defaults = [record for record in records.values() if record.default]
    for record in defaults[:-1]:
        record.default = False
    return records


def _partition(line: Mapping[str, str], conf: SlurmConf, nodes: Mapping[str, NodeRecord]) -> PartitionRecord:
    names, sets = partition_nodes(line.get("Nodes", ""), conf, nodes)
    record = PartitionRecord(line["PartitionName"], nodes=names, nodes_text=compress(names), node_sets=sets,
                             disable_root_jobs=conf.disable_root_jobs)
    record.lln = "CR_LLN" in (word.upper() for word in conf.select_type_parameters)
    for key, value in line.items():
        apply_key(record, key, value)
    if record.allow_accounts is not None:
        record.deny_accounts = ()
    if record.allow_qos is not None:
        record.deny_qos = ()
    if "Priority" in line:
        record.priority_job_factor = record.priority_tier = _limit(line["Priority"]) or 0
    name_job_defaults(record)
    for key in ("DefMemPerNode", "MaxMemPerNode"):
        one_memory_default(record, key)
    return record


def name_job_defaults(record: PartitionRecord) -> None:
    """``JobDefaults=`` as shown."""
    record.job_defaults = ",".join(
        f"{name}={count}" for name, count in (("DefCpuPerGPU", record.def_cpu_per_gpu),
                                              ("DefMemPerGPU", record.def_mem_per_gpu_mb)) if count is not None)


def one_memory_default(record: PartitionRecord, key: str) -> None:
    """Memory per CPU or per node: the one that ``key`` set puts the other away."""
    pair = _EITHER.get(key)
    if pair is not None and getattr(record, pair[0]) is not None:
        setattr(record, pair[1], None)


def _limit(text: str) -> int | None:
    """A number; None for UNLIMITED."""
    found = values.number("", text, "u64")
    return None if found == values.UNLIMITED else found


def _minutes(text: str) -> int | None:
    found = values.minutes("", text)
    return None if found == values.UNLIMITED else found


def _figure(text: str) -> int | None:
    """A memory or count default: 0 and UNLIMITED are none."""
    return _limit(text) or None


def _words(text: str, *, lower: bool = False) -> tuple[str, ...]:
    return tuple(word.strip() for word in (text.lower() if lower else text).split(",") if word.strip())


_NUMBERS = {"MinNodes": "min_nodes", "GraceTime": "grace_time_s", "PriorityJobFactor": "priority_job_factor",
            "PriorityTier": "priority_tier"}
_LIMITS = {"MaxNodes": "max_nodes", "MaxCPUsPerNode": "max_cpus_per_node", "MaxCPUsPerSocket": "max_cpus_per_socket"}
_FIGURES = {"DefMemPerCPU": "def_mem_per_cpu_mb", "DefMemPerNode": "def_mem_per_node_mb",
            "MaxMemPerCPU": "max_mem_per_cpu_mb", "MaxMemPerNode": "max_mem_per_node_mb",
            "DefCPUPerGPU": "def_cpu_per_gpu", "DefMemPerGPU": "def_mem_per_gpu_mb"}
_EITHER = {"DefMemPerCPU": ("def_mem_per_cpu_mb", "def_mem_per_node_mb"),
           "DefMemPerNode": ("def_mem_per_node_mb", "def_mem_per_cpu_mb"),
           "MaxMemPerCPU": ("max_mem_per_cpu_mb", "max_mem_per_node_mb"),
           "MaxMemPerNode": ("max_mem_per_node_mb", "max_mem_per_cpu_mb")}
_SWITCHES = {"RootOnly": "root_only", "ReqResv": "req_resv", "Hidden": "hidden", "LLN": "lln", "Default": "default",
             "DisableRootJobs": "disable_root_jobs", "ExclusiveUser": "exclusive_user",
             "ExclusiveTopo": "exclusive_topo"}
_TEXTS = {"Alternate": "alternate", "QOS": "qos", "OverSubscribe": "over_subscribe", "Shared": "over_subscribe",
          "PreemptMode": "preempt_mode", "State": "state", "CpuBind": "cpu_bind"}
_ALLOWED = {"AllowAccounts": ("allow_accounts", True), "AllowQos": ("allow_qos", True),
            "AllowGroups": ("allow_groups", False)}


def apply_key(record: PartitionRecord, key: str, value: str) -> None:
    """One pair of a PartitionName line, already checked by the reader."""
    if key in _NUMBERS:
        setattr(record, _NUMBERS[key], _limit(value) or 0)
    elif key in _LIMITS:
        setattr(record, _LIMITS[key], _limit(value))
    elif key in _FIGURES:
        setattr(record, _FIGURES[key], _figure(value))
    elif key in _SWITCHES:
        setattr(record, _SWITCHES[key], values.boolean(key, value))
    elif key in _TEXTS:
        setattr(record, _TEXTS[key], value)
    elif key in _ALLOWED:
        field, lower = _ALLOWED[key]
        setattr(record, field, None if value.upper() == "ALL" else _words(value, lower=lower))
    elif key == "DenyAccounts":
        record.deny_accounts = _words(value, lower=True)
    elif key == "DenyQos":
        record.deny_qos = _words(value, lower=True)
    elif key == "AllocNodes":
        record.alloc_nodes = "ALL" if value.upper() == "ALL" else value
    elif key == "MaxTime":
        record.max_time_min = _minutes(value)
    elif key == "DefaultTime":
        found = values.minutes(key, value)
        record.default_time_min = UNLIMITED_MIN if found == values.UNLIMITED else found
    elif key == "OverTimeLimit":
        record.over_time_limit_min = 0xFFFF if value.upper() in ("INFINITE", "UNLIMITED") else _limit(value)
    elif key == "TRESBillingWeights":
        record.tres_billing_weights = value
    elif key == "SelectTypeParameters":
        record.select_type_parameters = value.upper()


def _join_partitions(records: Mapping[str, NodeRecord], conf: SlurmConf) -> None:
    """Every node's ``Partitions=``, in the file's order."""
    members: dict[str, list[str]] = {name: [] for name in records}
    for line in conf.partitions:
        names, _ = partition_nodes(line.get("Nodes", ""), conf, records)
        for name in names:
            members[name].append(line["PartitionName"])
    for name, record in records.items():
        record.partitions = tuple(members[name])
