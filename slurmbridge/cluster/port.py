"""The engine port: what the controller asks of whatever runs the work, and what it hears back.

An engine owns nodes and processes; it decides nothing. It must survive the controller: everything it started goes on
when the controller dies, and ``recover`` finds it again with its true outcome.
"""
from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from slurmbridge.views.records import JobRecord, NodeRecord


@dataclass(frozen=True, slots=True)
class RunId:
    """One run of a job: a requeue makes a new one."""

    job_id: int
    restart: int


@dataclass(frozen=True, slots=True)
class LaunchOrder:
    """A whole gang to start. ``job`` carries allocation, request and everything the environment needs."""

    run: RunId
    job: JobRecord
    credential: str                           # opens this run's step daemons and nothing else
    cluster_name: str
    controller_url: str                       # SLURMBRIDGE_URL for commands inside the job
    kill_wait_s: float
    end_by_s: float | None                    # epoch at which the step daemon itself ends the job (None: no limit)
    array_tasks: tuple[int, ...] = ()         # all task ids of the array, for SLURM_ARRAY_TASK_COUNT/MIN/MAX/STEP
    conf_path: str = ""
    warn_signal: int | None = None            # --signal: the step daemon sends it warn_before_s before end_by_s
    warn_before_s: int = 0
    warn_batch: bool = False
    settings: dict[str, str] = field(default_factory=dict)   # other slurm.conf values the runtime honours
    topology: dict[str, str] = field(default_factory=dict)   # node -> SLURM_TOPOLOGY_ADDR, with topology/tree
    het_jobs: tuple[JobRecord, ...] = ()      # all components of a het job, in the order of its first component


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened. ``kind``:

    - ``started``       the gang is whole and the batch script (or the waiting allocation) runs; ``at_s``
    - ``step_started``  ``step_id`` with ``data`` = StepRecord fields
    - ``step_ended``    ``step_id``, ``exit_status`` (wait status of the worst task), ``data``: {"usage": {…}}
    - ``script_ended``  the batch script ended with ``exit_status`` (53: its files could not be opened);
                        ``data``: {"usage": {…}} of the batch step
    - ``finished``      every process of the run is gone on every node: the allocation may be released;
                        ``exit_status`` of the batch script, ``data``: {"reason"}: "" (it ended by itself), TimeLimit,
                        Cancelled, Preempted, Requeued, NodeFail, Shutdown, StepDaemonLost (somebody killed a step
                        daemon; "node" says whose), NotStarted (the engine does not know the run)
    - ``launch_failed`` the gang could not be started; nothing of it runs; ``data``: {"node", "reason", "message"}
    - ``held_back``     nothing of the gang was made yet, for a reason that passes: ``data``: {"message"}
    - ``node``          something of a node changed; ``data`` = {"name", …}: "line" (NodeLine), "foreign" (what others
                        use), facts such as "os", and "health", what is said of it, None: there is no such node any
                        more. Keys: uid, boot_id, created_s, zone, conditions, taints, labels, unschedulable, deleting,
                        leftovers, capacity and allocatable (devices by Slurm's name), pods (job id -> stuck,
                        deleting, over, of those that do not get on; None: cannot be told)
    - ``request``       a process inside the job asked the controller for something; ``data``

    ``usage``: user_cpu_s, system_cpu_s, num_tasks; where the tasks lived long enough to be looked at also cpu_khz and
    stats: in_ave, in_max, in_max_node, … out_tot, each a map by TRES (cpu in ms, memory and disk in bytes), as
    commands.sacct_rows.Stats has them.
    """

    kind: str
    run: RunId | None
    at_s: float
    step_id: str = ""
    exit_status: int = 0
    data: dict[str, object] = field(default_factory=dict)
    sequence: int = 0                         # grows per run; an event may be told again after a restart


class Engine(Protocol):
    name: str
    suspended_frees_cores: bool
    """Whether others may have the cores of a job that an administrator suspended."""

    def stale_s(self) -> float:
        """How old what the engine knows of its nodes and runs may be; 0: it is current."""
        ...
    async def inventory(self) -> Sequence[NodeRecord]:
        """The nodes this engine has now (static slurm.conf lines have been applied)."""
        ...
    async def recover(self, runs: Sequence[JobRecord]) -> None:
        """After a controller start: adopt these runs, tell what ended meanwhile as events, kill those not listed."""
        ...
    async def launch(self, order: LaunchOrder) -> None:
        """Starts the gang. Returns once accepted; the outcome is an event. Safe to repeat."""
        ...
    async def signal(self, run: RunId, signal: int, *, steps: bool = True, batch: bool = False,
                     step_id: str | None = None, quiet: bool = False) -> None:
        """Delivers a signal: to all steps' processes, and/or to the batch script, or to one step. ``quiet``: the step's
        end by it is not announced."""
        ...
    async def terminate(self, run: RunId, *, cause: str, grace_s: float, signal_first: int | None = None,
                        uid: int = 0) -> None:
        """Ends the run everywhere: SIGCONT, SIGTERM, after ``grace_s`` SIGKILL. ``cause``: CANCELLED, "TIME LIMIT",
        PREEMPTION, "NODE FAILURE", "JOB REQUEUE" - as slurmstepd writes it into the job's stderr.
        Ends in ``finished``.
        """
        ...
    async def suspend(self, run: RunId) -> None: ...
    async def resume(self, run: RunId) -> None: ...
    async def look(self, run: RunId) -> Mapping[str, Mapping[str, Any]]:
        """What each step that runs has used up to now, by step id ("batch" too): ``usage`` as in step_ended, and
        ``pids`` by node. Nothing where the run is not there."""
        ...
    async def update(self, run: RunId, *, end_by_s: float | None) -> None:
        """The time limit changed."""
        ...
    async def notify(self, run: RunId, text: str) -> None:
        """A line of slurmstepd's on the standard error of the batch script, or of srun's where there is none."""
        ...
    async def step_address(self, run: RunId) -> str:
        """Address of the step daemon of the run's first node."""
        ...
    def events(self) -> AsyncIterator[Event]:
        """Everything that happens, at least once each, in order per run. ``acknowledge`` lets the engine forget."""
        ...
    async def acknowledge(self, run: RunId, sequence: int) -> None:
        """Everything up to ``sequence`` is durable at the controller; after ``finished`` the run's spool may go."""
        ...
    async def close(self) -> None:
        """Lets go without ending anything that runs."""
        ...
    async def shutdown(self) -> None:
        """Ends everything this engine started (slurmbridge down)."""
        ...
