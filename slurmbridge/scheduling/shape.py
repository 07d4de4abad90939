"""The shape of a job: everything that decides where and when it fits, and nothing else.

Jobs of equal shape are the same question to the scheduler, so shapes are frozen, hashable and kept once; the queue's
columns hold an index. A shape is made after the controller's defaults (partition, memory, task count) are in. Memory
is in MB; counts of 0 mean "not asked", as in Slurm's job_desc (sbatch(1)).
"""
from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GresRequest:
    """What a job asks of one kind of generic resource. ``type`` None: any type. Counts of 0: not asked that way."""

    name: str                                 # "gpu"
    type: str | None = None                   # "a100"
    per_job: int = 0                          # --gpus
    per_node: int = 0                         # --gres, --gpus-per-node
    per_socket: int = 0                       # --gpus-per-socket
    per_task: int = 0                         # --gpus-per-task
    cpus_per_gres: int = 0                    # --cpus-per-gpu
    mem_per_gres_mb: int = 0                  # --mem-per-gpu
    ntasks_per_gres: int = 0                  # --ntasks-per-gpu


@dataclass(frozen=True, slots=True)
class Shape:
    """A job's resource request after all defaults."""

    min_nodes: int = 1
    max_nodes: int = 0                        # 0: no upper bound given
    nodes_given: bool = False                 # -N was given
    node_counts: tuple[int, ...] = ()         # -N list: the only counts allowed
    min_cpus: int = 1                         # of the whole job
    num_tasks: int = 1
    tasks_given: bool = False                 # -n given or derived by the client
    cpus_per_task: int = 1
    cpus_per_task_given: bool = False
    ntasks_per_node: int = 0
    ntasks_per_socket: int = 0
    ntasks_per_core: int = 0
    ntasks_per_board: int = 0
    min_cpus_per_node: int = 1                # --mincpus, or what the tasks of one node take
    auto_min_cpus: bool = False               # raised because of MaxMemPerCPU
    sockets_per_node: int = 0
    cores_per_socket: int = 0
    threads_per_core: int = 0
    core_spec: int = 0
    thread_spec: int = 0
    mem_per_node_mb: int | None = None        # 0: the node's whole memory
    mem_per_cpu_mb: int | None = None         # exactly one of the two is set (or none: memory is not asked)
    memory_given: bool = False                # --mem or --mem-per-cpu
    tmp_disk_mb: int = 0
    gres: tuple[GresRequest, ...] = ()
    gres_flags: frozenset[str] = frozenset()
    constraint: str | None = None             # text as given; parsed once per shape (scheduling.features)
    prefer: str | None = None
    node_list: tuple[str, ...] = ()           # required nodes, expanded
    exclude: tuple[str, ...] = ()             # expanded
    contiguous: bool = False
    whole_node: str | None = None             # None | "exclusive" | "user" | "mcs" | "topo"
    oversubscribe: bool = False
    overcommit: bool = False
    spread_job: bool = False
    use_min_nodes: bool = False
    switches: int = 0
    switches_wait_s: int = 0                  # how long the job waits for so few
    segment_size: int = 0
    distribution: str | None = None           # canonical text (block, cyclic, plane=N, *:cyclic …)
    plane_size: int = 0
    licenses: tuple[tuple[str, int], ...] = ()
    license_choice: bool = False              # one of them is enough
    reservation: str | None = None            # names, comma separated
    magnet: bool = False                      # the reservation attracts the job, which did not ask for it
    reservation_signal_s: int = 0             # --signal=R…@time: may run on reserved nodes and leaves so long before
