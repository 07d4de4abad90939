"""The report of ``slurmbridge lint slurm.conf``: what of a slurm.conf is not used, with what that means."""
from __future__ import annotations

from slurmbridge.slurm.conf_keys import DOWN_NODE_KEYS, KEYS, NODE_KEYS, NODE_SET_KEYS, PARTITION_KEYS, ConfKey
from slurmbridge.slurm.mpi import mpi_type, mpi_types
from slurmbridge.slurm.settings import SlurmConf

_TABLES = {"NodeName": NODE_KEYS, "PartitionName": PARTITION_KEYS, "DownNodes": DOWN_NODE_KEYS,
           "NodeSet": NODE_SET_KEYS}
USED_SCHEDULER_PARAMETERS = frozenset({
    "bf_interval", "bf_window", "bf_resolution", "bf_max_job_test", "bf_continue", "bf_max_job_user",
    "bf_max_job_part", "bf_max_job_assoc", "bf_max_job_start", "bf_max_job_array_resv", "bf_min_age_reserve",
    "bf_min_prio_reserve", "bf_node_space_size", "bf_job_part_count_reserve", "bf_one_resv_per_job", "bf_busy_nodes",
    "default_queue_depth", "sched_interval", "max_array_tasks", "max_script_size", "max_submit_line_size",
    "partition_job_depth", "requeue_delay", "assoc_limit_stop", "max_switch_wait", "ignore_prefer_validation",
    "pack_serial_at_end"})
"""SchedulerParameters words that the scheduler or the submission reads."""
_LINEAR = "CPUs, memory and devices are given out as by select/cons_tres: whole nodes only with --exclusive"
_GANG = "jobs that share cores run at the same time: none is suspended for a while so that another may run"
_PARTITION_UNIT = "SelectTypeParameters of the cluster holds in the partition too"
_NO_SUCH_WORD = "the scheduler does not look at it"


def lint(conf: SlurmConf) -> list[tuple[str, str, int, str]]:
    """(key, value, line, what it means) of every key that is read and not used, once each, in the file's order."""
    found: list[tuple[str, str, int, str]] = []
    seen: set[str] = set()
    for name, value, line in sorted(conf.unused, key=lambda item: item[2]):
        if name not in seen and not (name == "MpiDefault" and mpi_type(value, None) in mpi_types()):
            seen.add(name)
            found.append((name, value, line, _key(name).meaning))
    for word, value in conf.scheduler_parameters.items():
        if word not in USED_SCHEDULER_PARAMETERS:
            text = f"{word}={value}" if value else word
            found.append(("SchedulerParameters", text, conf.lines["SchedulerParameters"], _NO_SUCH_WORD))
    if conf.values.get("SelectType", "").lower() == "select/linear":
        found.append(("SelectType", "select/linear", conf.lines.get("SelectType", 0), _LINEAR))
    if "GANG" in conf.preempt_mode.upper().split(","):
        found.append(("PreemptMode", conf.preempt_mode, conf.lines.get("PreemptMode", 0), _GANG))
    for partition in conf.partitions:
        name = f"PartitionName={partition['PartitionName']}"
        if "SelectTypeParameters" in partition:
            found.append((f"{name}: SelectTypeParameters", partition["SelectTypeParameters"], 0, _PARTITION_UNIT))
    return found


def _key(name: str) -> ConfKey:
    table, colon, key = name.partition(": ")
    return _TABLES.get(table, KEYS)[key.lower()] if colon else KEYS[name.lower()]
