"""What a pass is given (``Snapshot``) and what it answers (``Plan``): the contract between controller and scheduler.

A snapshot refers to the controller's live columns; passes read them and never write. A plan names jobs, nodes and
devices; the controller applies it (or drops a start whose job is gone meanwhile). Times are epoch seconds.

Entry points, all pure, in ``slurmbridge.scheduling.passes``: ``main_pass(snapshot) -> Plan``,
``backfill_pass(snapshot) -> Plan``, ``plan(snapshot) -> Plan`` (main, then backfill on what is left),
``feasible(snapshot, shape, partition) -> Refusal | None`` for submissions, and
``will_run(snapshot, row) -> WillRun | None`` for --test-only. ``scheduling.config`` makes the settings of a SlurmConf;
``scheduling.size`` makes a Shape of a JobRequest and derives NumNodes, NumCPUs, ReqTRES and kin.
"""
from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from slurmbridge.scheduling.columns import ClusterColumns
from slurmbridge.scheduling.facts import BoolArray, IntArray, NodeShare
from slurmbridge.scheduling.limits import LimitBook
from slurmbridge.scheduling.queue import QueueColumns

MAIN, BACKFILL = "Main", "Backfill"

# the Reason= words of squeue(1) that a pass can give; the plan's reason column holds indices into this tuple.
# AccountingPolicy stands for the limit's own word, which is in Plan.limit_reasons.
REASONS = (
    "None", "Priority", "Resources", "PartitionNodeLimit", "PartitionTimeLimit", "PartitionDown", "PartitionInactive",
    "PartitionConfig", "ReqNodeNotAvail", "Reservation", "ReservationDeleted", "Licenses", "BadConstraints",
    "NodeDown", "InvalidQOS", "InvalidAccount", "BeginTime", "DeadLine", "MaxMemPerLimit", "JobArrayTaskLimit",
    "Cleaning", "AccountingPolicy",
)
REASON_INDEX = {word: i for i, word in enumerate(REASONS)}


Devices = tuple[str, str, str, tuple[int, ...]]
"""(node, "gpu", "a100", devices as ``NodeShare.gres`` numbers them)."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """An advanced reservation (scontrol(1)): ``nodes`` are closed to other jobs from ``start_s`` to ``end_s``.

    Who may use it is the controller's business."""

    name: str
    nodes: frozenset[str]
    start_s: int
    end_s: int
    maint: bool = False
    overlap: bool = False
    ignore_jobs: bool = False
    flex: bool = False
    id: int = 0                               # of several that a job names the lowest is tried first
    all_nodes: bool = False                   # made with Nodes=ALL
    part_nodes: str = ""                      # made of all nodes of this partition
    any_nodes: bool = False                   # of licenses only: not bound to nodes
    max_start_delay_s: int = 0
    cores: tuple[tuple[str, tuple[int, ...]], ...] = ()      # (node, cores): parts of nodes; (): whole nodes
    licenses: tuple[tuple[str, int], ...] = ()
    devices: tuple[Devices, ...] = ()         # of parts of nodes


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """SchedulerParameters and kin (slurm.conf(5)), with Slurm's defaults."""

    default_queue_depth: int = 100            # main pass after a submission tests so many jobs; 0: all
    partition_job_depth: int = 0
    bf_interval_s: int = 30
    bf_window_s: int = 86400
    bf_resolution_s: int = 60
    bf_max_job_test: int = 500
    bf_max_job_user: int = 0
    bf_max_job_part: int = 0
    bf_max_job_assoc: int = 0
    bf_max_job_user_part: int = 0
    bf_max_job_start: int = 0
    bf_max_job_array_resv: int = 20
    bf_min_age_reserve_s: int = 0
    bf_min_prio_reserve: int = 0
    bf_allow_magnetic_slot: bool = False      # jobs are also promised nodes of reservations that attract them
    bf_node_space_size: int = 0               # 0: bf_max_job_test * 2 + 1
    bf_job_part_count_reserve: int = 0
    bf_one_resv_per_job: bool = False
    bf_busy_nodes: bool = False
    bf_window_linear_s: int = 0               # 0: windows of ended jobs double instead
    sched_max_job_start: int = 0
    bf_continue: bool = False
    assoc_limit_stop: bool = False
    pack_serial_at_end: bool = False
    ignore_prefer_validation: bool = False
    over_time_limit_s: int = 0
    kill_wait_s: int = 30
    select_memory: bool = True                # CR_*_Memory: memory is a consumable resource
    select_unit: str = "core"                 # "core" | "cpu" | "socket" (CR_Core, CR_CPU, CR_Socket)
    lln: bool = False                         # CR_LLN
    pack_nodes: bool = False                  # CR_PACK_NODES
    one_task_per_core: bool = False           # CR_ONE_TASK_PER_CORE
    topo_optional: bool = False               # TopologyParam=TopoOptional
    preempt_type: str = "preempt/none"
    preempt_mode: str = "OFF"
    preempt_reorder_count: int = 1
    preempt_strict_order: bool = False
    reclaim_licenses: bool = False            # jobs are preempted for licenses too
    enforce_part_limits: str = "NO"
    licenses_total: dict[str, int] = field(default_factory=dict)
    max_tasks_per_node: int = 512


@dataclass(frozen=True, slots=True)
class Preemption:
    """Who may preempt whom, besides PriorityTier (preempt/partition_prio). ``victims``: QOS -> the QOSes it may
    preempt; ``qos_mode``: their PreemptMode ("" or absent: the cluster's); ``in_progress``: waiting
    jobs that have preempted others and wait for these to end."""

    victims: dict[str, frozenset[str]] = field(default_factory=dict)
    qos_priority: dict[str, int] = field(default_factory=dict)
    qos_mode: dict[str, str] = field(default_factory=dict)
    youngest_first: bool = False              # PreemptParameters: the job that started last goes first
    min_exempt_priority: int = 0xFFFFFFFF     # PreemptParameters: jobs of higher priority stay
    in_progress: frozenset[int] = frozenset()
    leaving: frozenset[int] = frozenset()     # running jobs that were preempted already and have their GraceTime


@dataclass(slots=True)
class Snapshot:
    """Everything a pass may know. ``limits`` None: no limits are enforced (see scheduling.limits.LimitBook);
    ``preemption`` None: nobody is preempted."""

    now_s: int
    cluster: ClusterColumns
    queue: QueueColumns
    settings: SchedulerSettings = field(default_factory=SchedulerSettings)
    reservations: tuple[Reservation, ...] = ()
    licenses_used: dict[str, int] = field(default_factory=dict)
    limits: LimitBook | None = None
    preemption: Preemption | None = None
    full_queue: bool = True                   # main pass: test every row, not only default_queue_depth of them
    qos_flags: dict[str, frozenset[str]] = field(default_factory=dict)       # of QOS that have any
    planned: BoolArray | None = None          # what the last backfill pass planned; no pass asks, Slurm's neither


@dataclass(frozen=True, slots=True)
class Start:
    """This job (one task of it, when it is an array) starts now. ``shares`` in node order, which is rank order.

    ``time_limit_s`` is what it was started with (shorter than asked with --time-min). With ``preempted`` it does not
    start yet: these jobs must end first, it waits (Resources) and is tried again."""

    job_id: int
    partition: str
    shares: tuple[NodeShare, ...]
    decided_by: str                           # MAIN | BACKFILL
    time_limit_s: int
    preempted: tuple[int, ...] = ()
    qos: str = ""
    attracted_by: str = ""                    # the MAGNETIC reservation that it runs in without having asked
    licenses: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Expected:
    """Where and when a waiting job would start (StartTime and SchedNodeList of scontrol show job)."""

    job_id: int
    partition: str
    start_s: int
    nodes: tuple[str, ...]


@dataclass(slots=True)
class Plan:
    """Answer of a pass. Rows that the pass did not reach keep what they had: they are not in ``reasons``."""

    decided_by: str
    starts: list[Start] = field(default_factory=list)
    reason_rows: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))     # rows of the queue
    reason_codes: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))    # indices into REASONS
    limit_reasons: dict[int, str] = field(default_factory=dict)      # row -> limit word (AssocGrpCpuLimit, …)
    descriptions: dict[int, str] = field(default_factory=dict)       # row -> text that replaces the word in squeue
    node_counts: dict[int, int] = field(default_factory=dict)        # job id -> nodes it would get (NumNodes)
    held: dict[int, str] = field(default_factory=dict)               # job id -> reason: can never run; priority 0 now
    expected: dict[int, Expected] = field(default_factory=dict)      # job id -> earliest expectation
    planned_nodes: BoolArray | None = None    # set by a backfill pass: nodes in state PLANNED
    tested: int = 0                           # rows tried, for sdiag
    last_depth: int = 0

    def reasons(self, queue: QueueColumns) -> dict[int, str]:
        """Job id -> Reason word of every job that the pass judged (of several partitions, the last judged)."""
        words = {int(queue.job_id[row]): REASONS[code] for row, code in zip(self.reason_rows, self.reason_codes)}
        words.update({int(queue.job_id[row]): word for row, word in self.limit_reasons.items()})
        return words
