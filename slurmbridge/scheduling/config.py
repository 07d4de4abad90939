"""Scheduler settings from slurm.conf: SchedulerParameters, SelectTypeParameters and kin, with Slurm's defaults."""
from __future__ import annotations

from slurmbridge.scheduling import licensing
from slurmbridge.scheduling.snapshot import SchedulerSettings
from slurmbridge.slurm.settings import SlurmConf

MINUTE_S = 60


def settings_of(conf: SlurmConf) -> SchedulerSettings:
    """Parameters out of their range, or not numbers, keep Slurm's default, as slurmctld logs and does."""
    given = conf.scheduler_parameters
    select = {word.upper() for word in conf.select_type_parameters}
    default = SchedulerSettings()

    def number(name: str, otherwise: int, least: int = 0) -> int:
        return _number(given.get(name), otherwise, least)

    bf_window_s = number("bf_window", default.bf_window_s // MINUTE_S, 1) * MINUTE_S
    return SchedulerSettings(
        default_queue_depth=number("default_queue_depth", default.default_queue_depth),
        partition_job_depth=number("partition_job_depth", 0),
        bf_interval_s=number("bf_interval", default.bf_interval_s, 1),
        bf_window_s=bf_window_s,
        bf_resolution_s=number("bf_resolution", default.bf_resolution_s, 1),
        bf_max_job_test=number("bf_max_job_test", default.bf_max_job_test, 1),
        bf_max_job_user=number("bf_max_job_user", 0),
        bf_max_job_part=number("bf_max_job_part", 0),
        bf_max_job_assoc=number("bf_max_job_assoc", 0),
        bf_max_job_user_part=number("bf_max_job_user_part", 0),
        bf_max_job_start=number("bf_max_job_start", 0),
        bf_max_job_array_resv=number("bf_max_job_array_resv", default.bf_max_job_array_resv),
        bf_min_age_reserve_s=number("bf_min_age_reserve", 0),
        bf_min_prio_reserve=number("bf_min_prio_reserve", 0),
        bf_node_space_size=number("bf_node_space_size", 0, 2),
        bf_job_part_count_reserve=number("bf_job_part_count_reserve", 0),
        bf_allow_magnetic_slot="bf_allow_magnetic_slot" in given,
        bf_one_resv_per_job="bf_one_resv_per_job" in given,
        bf_busy_nodes="bf_busy_nodes" in given,
        bf_window_linear_s=number("bf_window_linear", 0, 1),
        sched_max_job_start=number("sched_max_job_start", 0),
        bf_continue="bf_continue" in given,
        assoc_limit_stop="assoc_limit_stop" in given,
        pack_serial_at_end="pack_serial_at_end" in given,
        ignore_prefer_validation="ignore_prefer_validation" in given,
        over_time_limit_s=0 if conf.over_time_limit_min == 0xFFFF else conf.over_time_limit_min * MINUTE_S,
        kill_wait_s=conf.kill_wait_s,
        select_memory=any(word.endswith("MEMORY") for word in select),
        select_unit=_unit(select),
        lln="CR_LLN" in select,
        pack_nodes="CR_PACK_NODES" in select,
        one_task_per_core="CR_ONE_TASK_PER_CORE" in select,
        topo_optional="topooptional" in conf.topology_param.lower(),
        preempt_type=conf.preempt_type,
        preempt_mode=conf.preempt_mode.upper(),
        preempt_reorder_count=_number(conf.preempt_parameters.get("reorder_count"), default.preempt_reorder_count)
        if "reorder_count" in conf.preempt_parameters
        else number("preempt_reorder_count", default.preempt_reorder_count),
        reclaim_licenses="reclaim_licenses" in conf.preempt_parameters,
        preempt_strict_order="strict_order" in conf.preempt_parameters or "preempt_strict_order" in given,
        enforce_part_limits=conf.enforce_part_limits,
        licenses_total=licensing.counts(conf.values.get("Licenses", "")),
        max_tasks_per_node=conf.max_tasks_per_node)


def _number(text: str | None, otherwise: int, least: int = 0) -> int:
    try:
        value = int(text or "")
    except ValueError:
        return otherwise
    return value if value >= least else otherwise


def _unit(select: set[str]) -> str:
    """The smallest thing a job gets: a core unless CR_CPU or CR_Socket says otherwise."""
    for unit in ("SOCKET", "CPU"):
        if any(word.startswith(f"CR_{unit}") for word in select):
            return unit.lower()
    return "core"
