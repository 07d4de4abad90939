"""Every word of SchedulerParameters in 25.11 (slurm.conf(5)): whether it is honoured, and if not what that means."""
from __future__ import annotations

HONOURED = frozenset({
    "assoc_limit_stop", "batch_sched_delay", "bf_busy_nodes", "bf_continue", "bf_interval", "bf_job_part_count_reserve",
    "bf_max_job_array_resv", "bf_max_job_assoc", "bf_max_job_part", "bf_max_job_start", "bf_max_job_test",
    "bf_max_job_user", "bf_max_job_user_part", "bf_min_age_reserve", "bf_min_prio_reserve", "bf_node_space_size",
    "bf_allow_magnetic_slot", "bf_one_resv_per_job", "bf_resolution", "bf_window", "bf_window_linear",
    "correspond_after_task_cnt",
    "enable_user_top", "ignore_prefer_validation", "max_array_tasks", "max_script_size",
    "max_submit_line_size", "max_switch_wait", "pack_serial_at_end", "partition_job_depth", "preempt_reorder_count",
    "preempt_strict_order", "preempt_youngest_first", "requeue_delay", "salloc_wait_nodes", "sched_interval",
    "sched_max_job_start"})

_WHOLE = "passes are not cut short: each looks at all that it would look at"
_AT_ONCE = "a change is followed by a pass at once, bounded by the length of the last one"
_HET = "components of a heterogeneous job are planned by their own priorities and start together"
_NO_STEPS_LIMIT = "the step daemon decides about steps as often as it can"
_MEANINGS = {
    "allow_zero_lic": "a job that asks for more licenses than there are is refused",
    "bb_array_stage_cnt": "there are no burst buffers",
    "bf_hetjob_immediate": _HET, "bf_hetjob_prio": _HET,
    "bf_licenses": "backfill looks at the licenses that are free now, not at those that will be",
    "bf_max_time": _WHOLE, "bf_yield_interval": _WHOLE, "bf_yield_rpc_cnt": _WHOLE, "bf_yield_sleep": _WHOLE,
    "max_rpc_cnt": _WHOLE, "max_sched_time": _WHOLE, "build_queue_timeout": _WHOLE,
    "bf_running_job_reserve": "nodes of running jobs are busy until their time limits, with no reservation beside that",
    "bf_topopt_enable": "no start is put off for a better place in the topology",
    "bf_topopt_iterations": "no start is put off for a better place in the topology",
    "default_queue_depth": "every main pass looks at the whole queue",
    "defer": "batch jobs are never started by their submission, others are",
    "defer_batch": "it is so: batch jobs are never started by their submission",
    "delay_boot": "nodes are not booted for jobs",
    "disable_hetjob_steps": "steps may span the components of a heterogeneous job",
    "disable_hetero_steps": "steps may span the components of a heterogeneous job",
    "enable_hetjob_steps": "it is so",
    "disable_job_shrink": "running jobs may give up nodes",
    "enable_job_state_cache": "squeue is always answered from memory",
    "extra_constraints": "--extra is kept and shown, it constrains nothing",
    "Ignore_NUMA": "each node is one NUMA node",
    "ignore_constraint_validation": "a job whose features no node has is refused",
    "no_backup_scheduling": "there is no backup controller",
    "nohold_on_prolog_fail": "there are no prologs",
    "reduce_completing_frag": "CompleteWait holds all jobs back",
    "requeue_on_resume_failure": "nodes are not powered up or down",
    "sbatch_wait_nodes": "a batch job starts once all of its nodes are ready, always",
    "sched_min_interval": _AT_ONCE,
    "spec_cores_first": "specialized cores are the last ones of a node",
    "step_retry_count": _NO_STEPS_LIMIT, "step_retry_time": _NO_STEPS_LIMIT,
    "time_min_as_soft_limit": "--time-min shortens a job's limit when it starts, and only then",
    "whole_hetjob": "components of a heterogeneous job are held, released and cancelled one by one",
}
_UNKNOWN = "25.11 knows no such word, and passes over it"


def meaning(word: str) -> str:
    """What it means that the word is not honoured; "" for one that is."""
    return "" if word in HONOURED else _MEANINGS.get(word, _UNKNOWN)
