"""What the controller can have written down: small values, any number of which become durable together.

``Ledger.write`` turns them into rows at once (a record may change right after), keeps only the last row of each key
within one commit, and resolves its future when the commit is on disk.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from slurmbridge.views.records import (
    AccountRecord,
    AssociationRecord,
    JobRecord,
    QosRecord,
    StepRecord,
    UserRecord,
)


@dataclass(frozen=True, slots=True)
class SaveJob:
    """Insert or update a job: accounting row (key ``db_index``, which must be set) and recovery row (key ``job_id``).

    ``recoverable=False`` writes the accounting row alone: of a run that a requeue has ended while the job goes on.
    ``accounted=False`` writes the recovery record alone: while the processes of such a run still end.
    """

    job: JobRecord
    recoverable: bool = True
    accounted: bool = True


@dataclass(frozen=True, slots=True)
class SaveStep:
    """Insert or update one step of the job's current run."""

    job: JobRecord
    step: StepRecord


@dataclass(frozen=True, slots=True)
class ForgetJob:
    """The job is older than MinJobAge: a restart need not know it. Its accounting row stays."""

    job_id: int


@dataclass(frozen=True, slots=True)
class SaveRun:
    """A run that another Slurm recorded, as rows of tables ``job`` and ``step`` (history.py makes them)."""

    job: tuple[Any, ...]
    steps: tuple[tuple[Any, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class SaveSuspension:
    """The run was suspended from ``start_s`` to ``end_s`` (None: still is)."""

    db_index: int
    start_s: float
    end_s: float | None = None


@dataclass(frozen=True, slots=True)
class SaveEvent:
    """A line of ``sacctmgr show event``; ``node == ""``: the cluster's own (its TRES changed, controller down).

    ``state`` as sacctmgr prints it (``DOWN``, ``DRAIN``, …); the open event of a node is written again with its end.
    """

    node: str
    start_s: float
    end_s: float | None = None
    state: str = ""
    reason: str = ""
    reason_uid: int | None = None
    tres: Mapping[str, int] = field(default_factory=dict)
    nodes: str = ""                           # hostlist of the whole cluster, for node == ""
    state_raw: int = 0                        # Slurm's number of the state where it is known; a cluster's: it was away


@dataclass(frozen=True, slots=True)
class DropEvent:
    node: str
    start_s: float


@dataclass(frozen=True, slots=True)
class SaveReservation:
    """A reservation from ``start_s`` on; one that is changed while it lasts ends and begins anew under the same id.

    ``associations``: who may use it, ids with a minus for those who may not. ``flags`` as scontrol prints them.
    """

    id: int
    start_s: float
    end_s: float
    name: str
    flags: Iterable[str] = ()
    nodes: str = ""                           # hostlist
    tres: Mapping[str, int] = field(default_factory=dict)
    associations: Iterable[int] = ()
    comment: str = ""


@dataclass(frozen=True, slots=True)
class DropReservation:
    """It never was: ``scontrol delete`` before its start."""

    id: int
    start_s: float


@dataclass(frozen=True, slots=True)
class SaveRows:
    """Rows of the roll-up tables as they are, by key; None deletes (rolling.py makes them)."""

    table: str
    rows: Mapping[tuple[Any, ...], tuple[Any, ...] | None]


@dataclass(frozen=True, slots=True)
class SaveNode:
    """What an administrator (or the health policy) has set on a node; ``settings`` empty: nothing, forget it."""

    name: str
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SavePartition:
    """What scontrol changed of a partition, in the caller's words; ``settings`` empty: as slurm.conf has it."""

    name: str
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SaveMeta:
    """One of the controller's own facts (last decay time, next job id …)."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class SaveUsage:
    """The decayed usage of these associations and QOS. Cheap; meant for every decay period."""

    associations: Iterable[AssociationRecord] = ()
    qos: Iterable[QosRecord] = ()


@dataclass(frozen=True, slots=True)
class SaveAssociation:
    """Insert or update one association (its usage is ``SaveUsage``'s)."""

    association: AssociationRecord


@dataclass(frozen=True, slots=True)
class DropAssociation:
    """The association was never used: its row goes."""

    id: int


@dataclass(frozen=True, slots=True)
class SaveQos:
    qos: QosRecord


@dataclass(frozen=True, slots=True)
class SaveAccount:
    account: AccountRecord


@dataclass(frozen=True, slots=True)
class SaveUser:
    user: UserRecord


@dataclass(frozen=True, slots=True)
class DropQos:
    id: int


@dataclass(frozen=True, slots=True)
class DropAccount:
    name: str


@dataclass(frozen=True, slots=True)
class DropUser:
    name: str


@dataclass(frozen=True, slots=True)
class SaveTres:
    name: str
    id: int


@dataclass(frozen=True, slots=True)
class SaveWckey:
    """``wckey``: (name, user) or None when deleted."""

    id: int
    wckey: tuple[str, str] | None


@dataclass(frozen=True, slots=True)
class AddChange:
    """A line of ``sacctmgr show transactions``; numbers itself."""

    time_s: float
    action: str
    actor: str
    where: str
    info: str


Operation = (
    SaveJob | SaveStep | ForgetJob | SaveRun | SaveSuspension | SaveEvent | SaveNode | SavePartition | SaveMeta
    | SaveUsage | SaveAssociation | DropAssociation | SaveQos | SaveAccount | SaveUser | SaveTres | SaveWckey
    | AddChange | DropQos | DropAccount | DropUser | DropEvent | SaveReservation | DropReservation | SaveRows)
