"""The report of ``slurmbridge lint slurm.conf``: what of a slurm.conf is not used, with what that means."""
from __future__ import annotations

from slurmbridge.slurm.conf_keys import DOWN_NODE_KEYS, KEYS, NODE_KEYS, NODE_SET_KEYS, PARTITION_KEYS, ConfKey
from slurmbridge.slurm.settings import SlurmConf

_TABLES = {"NodeName": NODE_KEYS, "PartitionName": PARTITION_KEYS, "DownNodes": DOWN_NODE_KEYS,
           "NodeSet": NODE_SET_KEYS}
USED_SCHEDULER_PARAMETERS = frozenset({
    "bf_interval", "bf_window", "bf_resolution", "bf_max_job_test", "bf_continue", "bf_max_time", "bf_max_job_user",
    "bf_max_job_part", "bf_max_job_start", "bf_max_job_array_resv", "bf_min_age_reserve", "bf_min_prio_reserve",
    "default_queue_depth", "defer", "defer_batch", "sched_interval", "sched_min_interval", "batch_sched_delay",
    "max_rpc_cnt", "max_array_tasks", "max_script_size", "max_submit_line_size", "partition_job_depth",
    "kill_invalid_depend", "nohold_on_prolog_fail", "assoc_limit_stop", "max_switch_wait", "ignore_prefer_validation"})
"""SchedulerParameters words that the scheduler or the submission reads."""


def lint(conf: SlurmConf) -> list[tuple[str, str, int, str]]:
    """(key, value, line, what it means) of every key that is read and not used, once each, in the file's order."""
    found: list[tuple[str, str, int, str]] = []
    seen: set[str] = set()
    for name, value, line in sorted(conf.unused, key=lambda item: item[2]):
        if name not in seen:
            seen.add(name)
            found.append((name, value, line, _key(name).meaning))
    for word, value in conf.scheduler_parameters.items():
        if word not in USED_SCHEDULER_PARAMETERS:
            text = f"{word}={value}" if value else word
            found.append(("SchedulerParameters", text, 0, "the scheduler has no such switch"))
    return found


def _key(name: str) -> ConfKey:
    table, colon, key = name.partition(": ")
    return _TABLES.get(table, KEYS)[key.lower()] if colon else KEYS[name.lower()]
