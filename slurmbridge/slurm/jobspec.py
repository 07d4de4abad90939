"""What a submission asks for, in Slurm's own terms (the fields of a job_desc_msg, after the client's parsing).

``translate`` fills it from command line, environment and script; the controller validates it and adds the defaults;
the scheduler reads its shape. ``None`` means "not given". Memory is in MB, times are seconds unless the name says else.
"""
from __future__ import annotations

from dataclasses import dataclass, field, fields
from operator import attrgetter


@dataclass(slots=True)
class JobRequest:
    """One job (or one component of a heterogeneous job) as its submitter described it."""

    # what runs
    name: str | None = None
    script: str | None = None                 # text of the batch script; None for srun/salloc
    script_args: tuple[str, ...] = ()
    command: str | None = None                # scontrol's Command=: script path, or the srun/salloc command line
    submit_line: str = ""
    # "NAME=value", as the job's processes shall find it (before SLURM_* are added)
    environment: tuple[str, ...] = ()
    export: str | None = None                 # value of --export as given (ALL, NONE, NIL, list)
    get_user_env: str | None = None           # "" when given without argument
    work_dir: str = "/"
    submit_dir: str = ""                      # the command's own directory (SLURM_SUBMIT_DIR)
    std_in: str | None = None                 # patterns, unexpanded
    std_out: str | None = None
    std_err: str | None = None
    open_mode: str | None = None              # "append" | "truncate"
    umask: int = 0o022
    rlimits: dict[str, int] = field(default_factory=dict)   # RLIMIT name -> soft limit, as --propagate selects
    propagate: str | None = None
    batch: bool = True                        # BatchFlag: sbatch; False for srun and salloc
    interactive_command: str = "sbatch"       # which command made it: sbatch | srun | salloc

    # who and under what
    uid: int = 0
    gid: int = 0
    user_name: str = ""
    group_name: str = ""
    account: str | None = None
    partitions: tuple[str, ...] = ()          # () = default partition
    qos: str | None = None
    wckey: str | None = None
    reservation: str | None = None
    licenses: str | None = None
    comment: str | None = None
    admin_comment: str | None = None
    extra: str | None = None
    mcs_label: str | None = None
    clusters: str | None = None

    # size
    min_nodes: int | None = None
    max_nodes: int | None = None
    nodes_given: bool = False                 # -N was given
    node_counts: tuple[int, ...] = ()         # -N list form: the only counts allowed
    num_tasks: int | None = None              # -n as given or derived by the client (None: not set)
    num_tasks_given: bool = False
    min_cpus: int | None = None               # CPUs of the whole job as the client works them out
    min_cpus_exact: bool = False              # scontrol update NumCPUs: as many, whatever the tasks need
    cpus_per_task: int | None = None
    ntasks_per_node: int | None = None
    ntasks_per_socket: int | None = None
    ntasks_per_core: int | None = None
    ntasks_per_board: int | None = None
    ntasks_per_tres: int | None = None        # --ntasks-per-gpu
    min_cpus_per_node: int | None = None      # --mincpus
    sockets_per_node: int | None = None
    cores_per_socket: int | None = None
    threads_per_core: int | None = None
    core_spec: int | None = None
    thread_spec: int | None = None
    mem_per_node_mb: int | None = None        # 0 = all memory of the node
    mem_per_cpu_mb: int | None = None
    mem_per_tres: str | None = None           # "gres/gpu:4096"
    cpus_per_tres: str | None = None          # "gres/gpu:4"
    tmp_disk_mb: int | None = None
    tres_per_job: str | None = None           # canonical "gres/gpu:a100:2,…" (--gpus)
    tres_per_node: str | None = None          # --gres, --gpus-per-node
    tres_per_socket: str | None = None
    tres_per_task: str | None = None          # --gpus-per-task, --tres-per-task; "cpu=2" when -c was given
    tres_bind: str | None = None
    tres_freq: str | None = None
    gres_flags: str | None = None

    # where
    constraint: str | None = None
    prefer: str | None = None
    cluster_constraint: str | None = None
    batch_features: str | None = None
    node_list: str | None = None              # hostlist expression, as given
    exclude: str | None = None
    contiguous: bool = False
    exclusive: str | None = None              # None | "exclusive" | "user" | "mcs" | "topo"
    oversubscribe: bool = False
    overcommit: bool = False
    spread_job: bool = False
    use_min_nodes: bool = False
    switches: int | None = None
    switches_wait_s: int | None = None
    segment_size: int | None = None
    distribution: str | None = None           # canonical text as scontrol/env show it
    plane_size: int | None = None
    hint: str | None = None
    cpu_bind: str | None = None
    mem_bind: str | None = None
    network: str | None = None
    power: str | None = None
    profile: str | None = None
    acctg_freq: str | None = None
    cpu_freq: tuple[str, ...] = ()            # (min, max, governor) texts as parsed
    burst_buffer: str | None = None
    context: str | None = None                # SELinux
    x11: str | None = None                    # all | batch | first | last
    consolidate_segments: bool = False
    spread_segments: bool = False
    stepmgr: bool = False
    resv_ports: int | None = None
    container: str | None = None
    container_id: str | None = None
    pyxis: dict[str, str] = field(default_factory=dict)     # --container-image and kin

    # when
    time_limit_min: int | None = None         # UNLIMITED_MIN = no limit
    time_min_min: int | None = None
    begin_s: int | None = None                # epoch
    deadline_s: int | None = None
    hold: bool = False
    priority: int | None = None
    nice: int | None = None
    dependency: str | None = None
    kill_on_invalid_dep: bool | None = None
    immediate_s: int | None = None
    delay_boot_s: int | None = None
    reboot: bool = False

    # how it ends
    signal: str | None = None                 # as given
    signal_number: int | None = None
    signal_before_s: int | None = None
    signal_batch: bool = False
    signal_reservation: bool = False
    requeue: bool | None = None               # None = JobRequeue of the configuration
    expedited_requeue: bool = False           # --requeue=expedite
    no_kill: bool = False
    kill_on_bad_exit: int | None = None
    oom_kill_step: bool | None = None
    wait_all_nodes: int | None = None
    mail_type: str | None = None              # canonical
    mail_user: str | None = None

    # arrays and het jobs
    array: str | None = None                  # --array as given
    het_offset: int | None = None             # None: not a het job

    # what only the command does
    parsable: bool = False
    test_only: bool = False
    wait: bool = False
    quiet: bool = False
    verbose: int = 0
    external: bool = False                    # --external: an allocation without a script
    no_shell: bool = False                    # salloc
    kill_command_signal: int = 0              # salloc -K
    bell: str = ""                            # salloc: bell-always | bell-never | bell-after-delay


_values = attrgetter(*(one.name for one in fields(JobRequest)))


def with_changes(request: JobRequest, **changes: object) -> JobRequest:
    """A copy with these fields changed: dataclasses.replace in a sixth of its time, every submission needs some."""
    copy = JobRequest(*_values(request))
    for name, value in changes.items():
        setattr(copy, name, value)
    return copy


UNLIMITED_MIN = 0xFFFFFFFF
"""A time limit of UNLIMITED/INFINITE, in minutes."""
