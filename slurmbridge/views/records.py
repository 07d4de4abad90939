"""The shapes in which jobs, steps, nodes, partitions and associations are known everywhere outside the scheduler.

The controller owns and mutates these objects; commands and the ledger only read them. Times are epoch seconds
(``None`` = never/unknown), limits are minutes where the name says so, memory is MB. ``None`` = no value / no limit.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from slurmbridge.slurm.jobspec import JobRequest
from slurmbridge.slurm.sluid import sluid_text

Tres = dict[str, int]
"""TRES name as Slurm prints it ("cpu", "mem" (MB), "node", "billing", "gres/gpu", "gres/gpu:a100") -> count."""


@dataclass(slots=True)
class NodeAllocation:
    """What one job has on one node."""

    node: str
    cpus: int
    mem_mb: int
    gres: dict[str, tuple[int, ...]] = field(default_factory=dict)   # "gpu:a100" (or "gpu") -> device indices
    cores: tuple[int, ...] = ()                                       # abstract core indices on the node
    tasks: int = 0                                                    # tasks the job's default layout puts here


@dataclass(slots=True)
class StepRecord:
    """One step: ``batch``, ``extern``, ``interactive`` or a number."""

    job_id: int
    step_id: str
    name: str
    state: str = "RUNNING"
    start_s: float = 0.0
    end_s: float | None = None
    exit_status: int = 0                      # wait(2) status of the worst task
    nodes: tuple[str, ...] = ()
    num_tasks: int = 1
    cpus: int = 0
    layout: str = ""                          # "Block", "Cyclic", … ("" for batch and extern)
    tres: Tres = field(default_factory=dict)
    submit_line: str = ""
    command: str = ""
    killed_by_uid: int | None = None
    usage: dict[str, object] = field(default_factory=dict)   # cpu seconds, max rss… as the runtime measured
    time_limit_min: int | None = None
    std_out: str = ""
    std_err: str = ""
    std_in: str = ""
    cwd: str = ""
    container: str = ""


@dataclass(slots=True)
class JobRecord:
    """One job, one pending array (its not yet started tasks together), one array task, or one het component."""

    job_id: int
    request: JobRequest
    # identity
    array_job_id: int = 0                     # 0: not an array
    array_task_id: int | None = None          # set once split from the pending record
    array_pending: int | None = None          # bitmap (bit i = task i pending) of a pending array record
    array_max_running: int = 0                # %N, 0 = no limit
    array_task_min: int = 0
    array_task_max: int = 0
    array_task_step: int = 1
    array_task_count: int = 0
    het_job_id: int = 0
    het_job_ids: tuple[int, ...] = ()
    het_offset: int = 0
    user_name: str = ""
    group_name: str = ""
    uid: int = 0
    gid: int = 0
    # what it is accounted to and how it is queued
    name: str = ""
    account: str = ""
    assoc_id: int = 0
    partition: str = ""                       # as shown: "a,b" while pending in several, the one it runs in after
    qos: str = ""
    wckey: str = ""
    priority: int = 0                         # 0 = held
    partition_priorities: dict[str, int] = field(default_factory=dict)
    priority_fixed: bool = False              # set by --priority or scontrol: not recomputed
    held_by_admin: bool = False
    nice: int = 0
    site_factor: int = 0
    reason: str = "None"
    reason_desc: str = ""                     # extra text some reasons carry
    reason_before: str = ""                   # last reason but None, Priority, Resources that it waited for (sacct's)
    state: str = "PENDING"
    # COMPLETING, CONFIGURING, REQUEUED, REQUEUE_HOLD, SPECIAL_EXIT…
    flags: set[str] = field(default_factory=set)
    scheduler: str = "Main"                   # who looked at it last: Main | Backfill
    last_sched_eval_s: float | None = None
    # times
    submit_s: float = 0.0
    eligible_s: float | None = None
    accrue_s: float | None = None
    start_s: float | None = None              # actual, or expected while pending (backfill)
    end_s: float | None = None
    suspend_s: float | None = None
    pre_suspend_s: float = 0.0
    preempt_s: float | None = None
    time_limit_min: int | None = None         # UNLIMITED_MIN = none
    time_min_min: int | None = None
    time_waived: bool = False                 # an operator set its time limit: limits on time do not hold it back
    deadline_s: int | None = None
    # size as scontrol shows it
    num_nodes: str = "1"                      # "1", "2-2", "1-4"
    num_cpus: int = 1
    num_tasks: int = 1
    cpus_per_task: int | None = 1             # None -> "N/A"
    min_cpus_node: int = 1
    min_nodes: int = 1
    max_nodes: int | None = None
    mem_per_node_mb: int | None = None
    mem_per_cpu_mb: int | None = None
    tres_req: Tres = field(default_factory=dict)
    tres_alloc: Tres = field(default_factory=dict)
    tres_kept: Tres = field(default_factory=dict)            # of the last run: shown while an ended job waits again
    billable: float = 0.0                     # unrounded billing of the allocation
    oversubscribe: str = "OK"                 # OK | NO | YES | USER | EXCLUSIVE
    # allocation
    nodes: tuple[str, ...] = ()
    allocation: list[NodeAllocation] = field(default_factory=list)
    batch_host: str = ""
    licenses_alloc: str = ""                  # what it has, or had, of the licenses
    sched_nodes: str = ""
    alloc_node: str = ""                      # host of the submission
    alloc_sid: int = 0
    # how it went
    exit_status: int = 0                      # wait(2) status
    script_status: int = 0                    # of a script that ended after its job was over: scontrol's ExitCode then
    derived_exit_status: int = 0
    failed_node: str = ""
    restarts: int = 0
    leaving_run: int | None = None            # cancelled while requeued: restart of the run that still holds its nodes
    avoid_nodes: tuple[str, ...] = ()         # that failed it, most recent last
    node_failures: int = 0                    # runs lost with a node since it was submitted or released
    launch_failures: int = 0                  # since it was submitted or released (MaxBatchRequeue)
    requeue: bool = True
    dependency: str = ""                      # remaining dependencies as scontrol shows them
    comment: str = ""
    admin_comment: str = ""
    system_comment: str = ""
    std_in: str = ""                          # expanded as scontrol shows them
    std_out: str = ""
    std_err: str = ""
    killed_by_uid: int | None = None          # sacct's "CANCELLED by N"
    db_index: int = 0                         # one per run: a requeue makes a new accounting row
    steps: dict[str, StepRecord] = field(default_factory=dict)
    next_step: int = 0
    reservation_id: int = 0                   # the one it is or was in, of several the first
    reservation_name: str = ""                # where it started after the reservation did (sacct's Reservation)
    magnetic: bool = False                    # a MAGNETIC reservation drew it in, for this run
    credential: str = ""                      # opens the step daemons of the current run; never shown

    @property
    def is_held(self) -> bool:
        return self.priority == 0

    @property
    def sluid(self) -> str:
        """The run's id that never comes again; "" before it has one."""
        return sluid_text(self.db_index) if self.db_index else ""

    @property
    def shown_priority(self) -> int:
        """0 also of a job that an administrator has suspended."""
        return 0 if self.state == "SUSPENDED" and self.preempt_s is None else self.priority

    @property
    def shown_state(self) -> str:
        """The one word squeue shows: a flag hides the base state."""
        for flag in ("COMPLETING", "CONFIGURING", "RESIZING", "REQUEUE_HOLD", "SPECIAL_EXIT", "REQUEUED", "STOPPED",
                     "SIGNALING"):
            if flag in self.flags:
                return flag
        return self.state


@dataclass(slots=True)
class NodeRecord:
    """One node as the engine's inventory and the administrator make it."""

    name: str
    cpus: int
    boards: int = 1
    sockets: int = 1
    cores_per_socket: int = 1
    threads_per_core: int = 1
    real_memory_mb: int = 1
    tmp_disk_mb: int = 0
    weight: int = 1
    features: tuple[str, ...] = ()            # available ones
    active_features: tuple[str, ...] | None = None          # None: all of them
    gres: dict[str, int] = field(default_factory=dict)       # "gpu:a100" -> 4
    gres_text: str = ""                                       # as slurm.conf has it
    partitions: tuple[str, ...] = ()
    address: str = ""
    host_name: str = ""
    port: int = 0
    arch: str = "x86_64"
    os: str = ""
    # state: base IDLE|DOWN|UNKNOWN|FUTURE (ALLOCATED and MIXED follow from use)
    # + flags DRAIN, FAIL, MAINT, PLANNED, NOT_RESPONDING, COMPLETING…
    base_state: str = "IDLE"
    flags: set[str] = field(default_factory=set)
    reason: str = ""
    reason_user: str = ""
    reason_uid: int | None = None
    reason_s: float | None = None
    comment: str = ""
    extra: str = ""
    core_spec_count: int = 0                  # cores the system keeps: CPUEfctv is less by their threads
    cpu_spec_list: str = ""
    mem_spec_limit_mb: int = 0
    boot_s: float = 0.0
    daemon_start_s: float = 0.0
    last_busy_s: float = 0.0
    resume_after_s: float | None = None
    # what health makes of it (controller.node_verdicts)
    set_by_health: set[str] = field(default_factory=set)     # of DOWN DRAIN FAIL NOT_RESPONDING
    blocked: bool = False                     # no new work, without a state of Slurm's
    taken_last: bool = False
    closed_gres: dict[str, int] = field(default_factory=dict)              # "gpu:h100" -> devices not handed out
    closed_partitions: tuple[str, ...] = ()   # whose jobs do not come here
    foreign: dict[str, Any] = field(default_factory=dict)    # what others use (node_arrivals.Foreign)
    cpu_load: float | None = None
    free_mem_mb: int | None = None
    # use, kept up to date by the controller
    cpus_alloc: int = 0
    mem_alloc_mb: int = 0
    gres_alloc: dict[str, tuple[int, ...]] = field(default_factory=dict)   # "gpu:a100" -> indices in use
    job_ids: set[int] = field(default_factory=set)
    core_jobs: dict[int, int] = field(default_factory=dict)                # core -> jobs that have it
    paused: set[int] = field(default_factory=set)                          # suspended jobs: their cores are free
    owner_uid: int | None = None

    @property
    def usable_features(self) -> tuple[str, ...]:
        """Those that jobs may ask for."""
        return self.features if self.active_features is None else self.active_features


@dataclass(slots=True)
class PartitionRecord:
    """A partition: slurm.conf's line with defaults filled in, plus what scontrol update changed."""

    name: str
    nodes: tuple[str, ...] = ()
    nodes_text: str = ""
    node_sets: str = ""                       # the NodeSets (and ALL) that nodes came from, comma separated
    default: bool = False
    state: str = "UP"                         # UP DOWN DRAIN INACTIVE
    allow_accounts: tuple[str, ...] | None = None            # None = ALL
    deny_accounts: tuple[str, ...] = ()
    allow_qos: tuple[str, ...] | None = None
    deny_qos: tuple[str, ...] = ()
    allow_groups: tuple[str, ...] | None = None
    alloc_nodes: str = "ALL"
    alternate: str = ""
    qos: str = ""
    max_time_min: int | None = None           # None = UNLIMITED
    default_time_min: int | None = None
    min_nodes: int = 0
    max_nodes: int | None = None
    max_cpus_per_node: int | None = None
    max_cpus_per_socket: int | None = None
    def_mem_per_cpu_mb: int | None = None
    def_mem_per_node_mb: int | None = None
    max_mem_per_cpu_mb: int | None = None
    max_mem_per_node_mb: int | None = None
    def_cpu_per_gpu: int | None = None
    def_mem_per_gpu_mb: int | None = None
    priority_job_factor: int = 1
    priority_tier: int = 1
    root_only: bool = False
    req_resv: bool = False
    disable_root_jobs: bool = False
    hidden: bool = False
    lln: bool = False
    exclusive_user: bool = False
    exclusive_topo: bool = False
    grace_time_s: int = 0
    over_subscribe: str = "NO"                # NO | EXCLUSIVE | YES:4 | FORCE:4
    over_time_limit_min: int | None = None
    preempt_mode: str = ""                    # "" = the cluster's
    suspend_time_s: int | None = None
    tres_billing_weights: str = ""            # as written
    cpu_bind: str = ""
    job_defaults: str = ""
    select_type_parameters: str = "NONE"


@dataclass(slots=True)
class ReservationRecord:
    """An advance reservation (scontrol(1)). Lists are as given; ``*_not``: those listed may not use it."""

    id: int
    name: str
    start_s: int                              # TIME_FLOAT: seconds from now
    end_s: int
    duration_s: int | None = None             # None: up to end_s
    nodes: tuple[str, ...] = ()
    cores: dict[str, tuple[int, ...]] = field(default_factory=dict)   # core numbers by node; {}: whole nodes
    gres: dict[str, dict[str, tuple[int, ...]]] = field(default_factory=dict)   # devices by "gpu:a100" by node
    gres_types: tuple[str, ...] = ()          # "gpu:a100": those asked for by type
    core_count: int = 0
    cpu_count: int = 0
    flags: tuple[str, ...] = ()
    partition: str = ""
    features: str = ""
    users: tuple[str, ...] = ()
    users_not: bool = False
    groups: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    accounts_not: bool = False
    qos: tuple[str, ...] = ()
    qos_not: bool = False
    allowed_partitions: tuple[str, ...] = ()
    allowed_partitions_not: bool = False
    licenses: str = ""
    burst_buffer: str = ""
    comment: str = ""
    max_start_delay_s: int = 0
    purge_comp_s: int = 300                   # counts with the flag PURGE_COMP
    idle_since_s: float | None = None         # no job in it since then

    @property
    def tres(self) -> Tres:
        """CPUs and devices: all types of a name together, and the types that were asked for."""
        counts: Tres = {}
        for kinds in self.gres.values():
            for kind, devices in kinds.items():
                for name in {kind.partition(":")[0], kind if kind in self.gres_types else kind.partition(":")[0]}:
                    counts[f"gres/{name}"] = counts.get(f"gres/{name}", 0) + len(devices)
        typed_first = sorted(counts, key=lambda name: (name.partition(":")[0], ":" not in name, name))
        return {"cpu": self.cpu_count, **{name: counts[name] for name in typed_first}}


@dataclass(slots=True)
class ResourceRecord:
    """A resource of sacctmgr(1): licenses of a server that clusters share. Jobs name it ``name@server``."""

    name: str
    server: str = "slurmdb"
    count: int = 0
    allowed: int | None = None                # this cluster's part in percent, ABSOLUTE: as a number; None: no part
    description: str = ""
    server_type: str = ""
    flags: tuple[str, ...] = ()
    last_consumed: int = 0
    updated_s: int = 0

    @property
    def key(self) -> str:
        return f"{self.name}@{self.server}"

    @property
    def total(self) -> int:
        """Licenses of this cluster."""
        part = self.allowed or 0
        return part if "Absolute" in self.flags else self.count * part // 100


@dataclass(slots=True)
class Limits:
    """The limits an association or a QOS can carry. TRES limits: {"cpu": 64, "gres/gpu": 4}; None/absent = no limit."""

    grp_tres: Tres = field(default_factory=dict)
    grp_tres_mins: Tres = field(default_factory=dict)
    grp_tres_run_mins: Tres = field(default_factory=dict)
    grp_jobs: int | None = None
    grp_jobs_accrue: int | None = None
    grp_submit_jobs: int | None = None
    grp_wall_min: int | None = None
    max_tres_per_job: Tres = field(default_factory=dict)
    max_tres_per_node: Tres = field(default_factory=dict)
    max_tres_mins_per_job: Tres = field(default_factory=dict)
    max_tres_run_mins: Tres = field(default_factory=dict)
    max_wall_min: int | None = None
    max_jobs: int | None = None               # association: MaxJobs; QOS: MaxJobsPerUser
    max_jobs_accrue: int | None = None        # QOS: per user
    max_submit_jobs: int | None = None
    min_prio_threshold: int | None = None
    # QOS only
    min_tres_per_job: Tres = field(default_factory=dict)
    max_tres_per_user: Tres = field(default_factory=dict)
    max_tres_per_account: Tres = field(default_factory=dict)
    max_tres_run_mins_per_user: Tres = field(default_factory=dict)
    max_tres_run_mins_per_account: Tres = field(default_factory=dict)
    max_jobs_per_account: int | None = None
    max_jobs_accrue_per_account: int | None = None
    max_submit_jobs_per_account: int | None = None


FAIRSHARE_PARENT = 0x7FFFFFFF
"""Shares value meaning Fairshare=parent (SLURMDB_FS_USE_PARENT)."""


@dataclass(slots=True)
class AssociationRecord:
    """One association: a cluster's root, an account (user == ""), or a user in an account (of a partition)."""

    id: int
    account: str
    user: str = ""
    partition: str = ""
    parent_id: int = 0                        # 0 for root
    shares: int = 1                           # FAIRSHARE_PARENT = parent
    priority: int | None = None
    limits: Limits = field(default_factory=Limits)
    qos: tuple[str, ...] | None = None        # None = inherits from its parent
    delta_qos: tuple[str, ...] = ()           # "+low", "-high": applied to what is inherited (qos is None then)
    default_qos: str = ""                     # "" = inherits
    is_default: bool = False                  # the user's default account
    comment: str = ""
    flags: tuple[str, ...] = ()
    lft: int = 0
    rgt: int = 0
    created_s: float = 0.0
    deleted: bool = False
    # usage, kept by the controller (decays): raw TRES-seconds × weights × UsageFactor, unrounded
    usage_raw: float = 0.0
    usage_tres_raw: dict[str, float] = field(default_factory=dict)
    grp_used_wall_s: float = 0.0


@dataclass(slots=True)
class QosRecord:
    id: int
    name: str
    description: str = ""
    priority: int = 0
    usage_factor: float = 1.0
    usage_threshold: float | None = None
    limit_factor: float | None = None
    grace_time_s: int = 0
    preempt: tuple[str, ...] = ()
    preempt_mode: str = ""                    # "" = cluster
    preempt_exempt_time_s: int | None = None
    flags: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    created_s: float = 0.0
    deleted: bool = False
    usage_raw: float = 0.0
    usage_tres_raw: dict[str, float] = field(default_factory=dict)
    grp_used_wall_s: float = 0.0


@dataclass(slots=True)
class AccountRecord:
    name: str
    description: str = ""
    organization: str = ""
    flags: tuple[str, ...] = ()
    coordinators: tuple[str, ...] = ()        # set directly; those of an account above count too (views.associations)
    created_s: float = 0.0
    deleted: bool = False


@dataclass(slots=True)
class UserRecord:
    name: str
    default_account: str = ""
    default_wckey: str = ""
    admin_level: str = "None"                 # None | Operator | Administrator
    coordinator_of: tuple[str, ...] = ()      # set directly
    created_s: float = 0.0
    deleted: bool = False


@dataclass(slots=True)
class AssociationData:
    """The whole of sacctmgr's database for one cluster, in memory. Mutated only by the controller."""

    cluster: str
    associations: dict[int, AssociationRecord] = field(default_factory=dict)
    qos: dict[str, QosRecord] = field(default_factory=dict)
    accounts: dict[str, AccountRecord] = field(default_factory=dict)
    users: dict[str, UserRecord] = field(default_factory=dict)
    # "cpu" -> 1, "mem" -> 2, "energy" 3, "node" 4, "billing" 5, "fs/disk" 6, "vmem" 7, "pages" 8, "gres/gpu" 1001…
    tres: dict[str, int] = field(default_factory=dict)
    wckeys: dict[int, tuple[str, str]] = field(default_factory=dict)
    generation: int = 0                       # grows with every change
