"""What all parts of the controller share: records, columns, journal, clock, engine. One object, one event loop.

No behaviour lives here but the few look-ups that several parts need; each part takes the ``World`` it works on.
"""
from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from slurmbridge.cluster.port import Engine, RunId
from slurmbridge.controller.jobs import JobStore
from slurmbridge.controller.journal import Journal
from slurmbridge.controller.sharing import Shared
from slurmbridge.controller.transitions import Phase, phase_of
from slurmbridge.scheduling.columns import ClusterColumns
from slurmbridge.scheduling.passes import Admission, Refusal
from slurmbridge.scheduling.queue import QueueColumns
from slurmbridge.scheduling.shape import Shape
from slurmbridge.scheduling.snapshot import SchedulerSettings
from slurmbridge.slurm.jobspec import JobRequest
from slurmbridge.slurm.settings import SlurmConf
from slurmbridge.views.records import (
    AssociationData,
    JobRecord,
    NodeRecord,
    PartitionRecord,
    ReservationRecord,
    ResourceRecord,
)

if TYPE_CHECKING:
    from slurmbridge.controller.accrue import Accrual
    from slurmbridge.controller.limit_book import LimitBooks
    from slurmbridge.controller.priorities import Priorities
    from slurmbridge.controller.reservations import Reservations


@dataclass(frozen=True, slots=True)
class Pace:
    """What the controller takes time for beside its work; tests whose time stands or flies have another."""

    rest: float = 4.0
    """After a pass as many times its own length without one: commands and ends of jobs have the rest of the time."""
    quick_s: float = 0.1
    """A backfill pass that takes longer is computed beside the event loop."""
    completing_s: float = 0.08
    """So long after its end a batch job is completing at least, as during slurmd's epilog."""
    next_s: float = 0.02
    """Of jobs that end together the others are completing so much longer. Who waited for the first one then avoids
    their nodes, as with slurmctld."""


@dataclass(slots=True)
class World:
    """The controller's whole state. Times of ``clock`` are epoch seconds."""

    conf: SlurmConf
    clock: Callable[[], float]
    engine: Engine
    ledger: Any
    journal: Journal
    jobs: JobStore
    nodes: dict[str, NodeRecord]
    partitions: dict[str, PartitionRecord]
    accounting: AssociationData
    columns: ClusterColumns
    queue: QueueColumns
    settings: SchedulerSettings
    controller_url: str = ""
    boot_s: float = 0.0
    pace: Pace = field(default_factory=Pace)
    max_node_fail_requeue: int = 5            # health's policy: slurm.conf has no word for it
    priorities: Priorities = None             # type: ignore[assignment]
    limits: LimitBooks = None                 # type: ignore[assignment]
    reservations: dict[str, ReservationRecord] = field(default_factory=dict)                  # by name
    resources: dict[str, ResourceRecord] = field(default_factory=dict)                        # by name@server
    accrual: Accrual = None                   # type: ignore[assignment]
    reservation_book: Reservations = None     # type: ignore[assignment]
    wake: Callable[[], None] = lambda: None   # a pass should look at the queue soon
    wake_later: Callable[[], None] = lambda: None             # the same once nothing more comes
    split: Callable[[JobRecord, int], JobRecord] = None       # type: ignore[assignment]   # queueing.split
    judge: Callable[[JobRecord], None] = lambda job: None                 # tests the job's dependencies
    limit_changed: Callable[[JobRecord], None] = lambda job: None         # a running job ends at another time
    refresh_priorities: Callable[[], None] = lambda: None
    usage_ended: Callable[[JobRecord], None] = lambda job: None           # a run's usage was added
    node_changed: Callable[[NodeRecord], None] = lambda node: None        # events of sacctmgr, ledger
    nodes_released: Callable[[list[str]], None] = lambda names: None      # a job left them
    node_taken_over: Callable[[NodeRecord, str], None] = lambda node, state: None     # by an administrator
    roll_up: Callable[[], Awaitable[None]] = None             # type: ignore[assignment]   # usage of all full hours
    shapes: dict[tuple[int, str], tuple[JobRequest, Shape]] = field(default_factory=dict)     # by request's id
    admitted: dict[tuple[Shape, str, str], Admission | Refusal] = field(default_factory=dict)      # until nodes change
    shared: Shared = field(default_factory=Shared)
    avoiding: set[int] = field(default_factory=set)           # pending jobs that nodes have failed
    nodes_returned: bool = False              # slurmctld's main pass is not woken by nodes: its backfill is first then
    _watchers: dict[int, list[asyncio.Future[None]]] = field(default_factory=dict)

    def now(self) -> float:
        return self.clock()

    def find(self, job_id: int) -> JobRecord | None:
        return self.jobs.get(job_id)

    def new_db_index(self) -> int:
        return int(self.ledger.next_db_index(self.now()))

    def run_of(self, job: JobRecord) -> RunId:
        """The engine's name of the job's current run; while a requeued job's old processes end, of the old run."""
        if job.leaving_run is not None:
            return RunId(job.job_id, job.leaving_run)
        return RunId(job.job_id, job.restarts - 1 if phase_of(job) is Phase.REQUEUING else job.restarts)

    # --- waiting for a job's next change
    def watch(self, job_id: int) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watchers.setdefault(job_id, []).append(future)
        return future

    def tell(self, job: JobRecord) -> None:
        """The job changed: whoever watches it, its array or its heterogeneous job looks again."""
        if not self._watchers:
            return
        for job_id in {job.job_id, job.array_job_id, job.het_job_id}:
            for future in self._watchers.pop(job_id, ()):
                if not future.done():
                    future.set_result(None)
