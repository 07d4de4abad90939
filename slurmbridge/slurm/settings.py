"""slurm.conf as the rest of the system reads it: typed, with Slurm's defaults, units in names."""
from __future__ import annotations

from dataclasses import dataclass, field

from slurmbridge.slurm.topology import Switch


@dataclass(slots=True)
class PrioritySettings:
    """The multifactor plugin's parameters (slurm.conf(5), Priority*)."""

    type: str = "priority/multifactor"
    weight_age: int = 0
    weight_assoc: int = 0
    weight_fairshare: int = 0
    weight_jobsize: int = 0
    weight_partition: int = 0
    weight_qos: int = 0
    weight_tres: dict[str, float] = field(default_factory=dict)      # "cpu" -> 400.0, "mem", "gres/gpu"
    weight_tres_text: str = ""
    max_age_s: int = 7 * 86400
    decay_half_life_s: int = 7 * 86400        # 0 = no decay
    calc_period_s: int = 300
    favor_small: bool = False
    usage_reset_period: str = "NONE"
    # ACCRUE_ALWAYS, CALCULATE_RUNNING, DEPTH_OBLIVIOUS, INCR_ONLY, MAX_TRES, NO_FAIR_TREE, NO_NORMAL_*,
    # SMALL_RELATIVE_TO_TIME
    flags: frozenset[str] = frozenset()
    site_factor_plugin: str = ""


@dataclass(slots=True)
class NodeLine:
    """One node after expansion of a NodeName line (defaults of NodeName=DEFAULT applied)."""

    name: str
    host_name: str = ""
    address: str = ""
    port: int = 6818
    cpus: int = 1
    boards: int = 1
    sockets: int = 1
    cores_per_socket: int = 1
    threads_per_core: int = 1
    real_memory_mb: int = 1
    tmp_disk_mb: int = 0
    weight: int = 1
    features: tuple[str, ...] = ()
    gres_text: str = ""                       # "gpu:a100:4"
    gres: dict[str, int] = field(default_factory=dict)
    state: str = "UNKNOWN"
    reason: str = ""
    mem_spec_limit_mb: int = 0
    core_spec_count: int = 0
    cpu_spec_list: str = ""


@dataclass(slots=True)
class SlurmConf:
    """A read slurm.conf (+ gres.conf). ``values``: every key as written (canonical spelling)."""

    path: str = ""
    cluster_name: str = "cluster"
    slurm_user: str = "root"
    slurm_uid: int = 0
    control_host: str = "localhost"
    values: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, NodeLine] = field(default_factory=dict)             # expanded, in file order
    found_nodes: dict[str, NodeLine] = field(default_factory=dict)       # that the engine has, named in the file or not
    # PartitionName lines, keys canonical, DEFAULT applied
    partitions: list[dict[str, str]] = field(default_factory=list)
    node_sets: dict[str, dict[str, str]] = field(default_factory=dict)
    # node -> "gpu:a100" -> device files
    gres_devices: dict[str, dict[str, tuple[str, ...]]] = field(default_factory=dict)
    gres_types: tuple[str, ...] = ()
    priority: PrioritySettings = field(default_factory=PrioritySettings)
    scheduler_parameters: dict[str, str] = field(default_factory=dict)   # "bf_interval" -> "10", flags -> ""
    scheduler_type: str = "sched/backfill"
    select_type_parameters: tuple[str, ...] = ("CR_Core_Memory",)
    # full: cpu,mem,energy,node,billing,fs/disk,vmem,pages + configured
    accounting_storage_tres: tuple[str, ...] = ()
    # associations limits qos safe wckeys nojobs nosteps
    accounting_enforce: frozenset[str] = frozenset()
    preempt_type: str = "preempt/none"
    preempt_mode: str = "OFF"
    preempt_exempt_time_s: int = 0
    kill_wait_s: int = 30
    min_job_age_s: int = 300
    max_array_size: int = 1001
    max_job_count: int = 10000
    first_job_id: int = 1
    max_job_id: int = 0x03FF0000
    over_time_limit_min: int = 0              # 0xFFFF = UNLIMITED
    requeue_exit: frozenset[int] = frozenset()
    requeue_exit_hold: frozenset[int] = frozenset()
    job_requeue: bool = True
    enforce_part_limits: str = "NO"           # NO | ANY | ALL
    def_mem_per_cpu_mb: int | None = None
    def_mem_per_node_mb: int | None = None
    max_mem_per_cpu_mb: int | None = None
    max_mem_per_node_mb: int | None = None
    complete_wait_s: int = 0
    inactive_limit_s: int = 0
    wait_time_s: int = 0
    kill_on_bad_exit: bool = False
    return_to_service: int = 0
    batch_start_timeout_s: int = 10
    max_step_count: int = 40000
    max_tasks_per_node: int = 512
    job_acct_gather_frequency: str = "30"
    propagate_resource_limits: str = "ALL"
    propagate_resource_limits_except: str = ""
    task_plugin: str = ""
    disable_root_jobs: bool = False
    vsize_factor: int = 0
    health_check_program: str = ""
    mail_prog: str = ""
    topology_param: str = ""
    switches: tuple[Switch, ...] = ()         # topology.conf, with TopologyPlugin=topology/tree
    # (key, value, path, line) not used by slurmbridge
    unused: list[tuple[str, str, str, int]] = field(default_factory=list)
    select_type: str = "select/cons_tres"
    def_cpu_per_gpu: int | None = None
    def_mem_per_gpu_mb: int | None = None
    job_file_append: bool = False
    max_batch_requeue: int = 5
    preempt_parameters: dict[str, str] = field(default_factory=dict)
    dependency_parameters: tuple[str, ...] = ()
    # job_comment job_env job_extra job_script no_stdio
    accounting_store_flags: frozenset[str] = frozenset()
    interactive_step_options: str = "--interactive --preserve-env --pty $SHELL"
    # (node name, state word, reason) of DownNodes lines
    down_nodes: list[tuple[str, str, str]] = field(default_factory=list)
    # key, or PartitionName=NAME -> path and line of its last value
    places: dict[str, tuple[str, int]] = field(default_factory=dict)
    # (file, line, what was corrected or ignored), for lint and `up`
    notes: list[tuple[str, int, str]] = field(default_factory=list)

    @property
    def tracks_wckeys(self) -> bool:
        """TrackWCKey, or enforced wckeys."""
        return "wckeys" in self.accounting_enforce or self.values.get("TrackWCKey", "no").lower() in (
            "yes", "1", "true", "up")
