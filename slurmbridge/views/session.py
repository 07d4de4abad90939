"""What a command may see and do: the caller's invocation, read-only views, and the controller's acts.

Commands live against these protocols only; the controller and the server implement them. Every act that changes
state returns after it is durable. Acts raise ``slurmbridge.slurm.errors.SlurmError`` (Slurm's code and text).
"""
from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from slurmbridge.slurm.jobspec import JobRequest
from slurmbridge.slurm.settings import SlurmConf
from slurmbridge.slurm.zones import Zone
from slurmbridge.views.records import (
    AssociationData,
    JobRecord,
    NodeRecord,
    PartitionRecord,
    ReservationRecord,
    ResourceRecord,
)


@dataclass(frozen=True, slots=True)
class Identity:
    """Who calls, from the transport (SO_PEERCRED), never from what the caller wrote."""

    uid: int
    gid: int
    user_name: str
    group_name: str
    is_admin: bool                            # root or SlurmUser


@dataclass(frozen=True, slots=True)
class Invocation:
    """One call of a command. ``argv`` is without the command's name."""

    command: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    umask: int = 0o022
    host: str = ""
    pid: int = 0
    sid: int = 0
    rlimits: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    tty_columns: int | None = None            # None: stdout is not a terminal
    stdin_is_tty: bool = False
    groups: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Reply:
    stdout: str = ""
    stderr: str = ""
    exit_code: int = 0


@dataclass(frozen=True, slots=True)
class SubmitResult:
    job_id: int
    messages: tuple[str, ...] = ()            # lines for the user's stderr (job_submit_user_msg)


@dataclass(frozen=True, slots=True)
class WillRun:
    """Answer of --test-only."""

    job_id: int
    start_s: float
    cpus: int
    nodes: str                                # hostlist
    partition: str
    preempted_job_ids: tuple[int, ...] = ()


class Views(Protocol):
    """Read-only. Iteration order of jobs is by job id."""

    @property
    def conf(self) -> SlurmConf: ...
    @property
    def jobs(self) -> Mapping[int, JobRecord]: ...
    @property
    def nodes(self) -> Mapping[str, NodeRecord]: ...
    @property
    def partitions(self) -> Mapping[str, PartitionRecord]: ...
    @property
    def resources(self) -> Mapping[str, ResourceRecord]: ...
    @property
    def reservations(self) -> Mapping[str, ReservationRecord]: ...
    @property
    def accounting(self) -> AssociationData: ...
    @property
    def boot_s(self) -> float: ...
    def array_tasks(self, array_job_id: int) -> Sequence[JobRecord]:
        """All records (pending remainder first) of an array."""
        ...
    def priority_columns(self, job_ids: Sequence[int] | None = None) -> Mapping[str, Sequence[Any]]:
        """sprio's rows by column, one row per job and partition, in order of job ids: job_id, partition (its name),
        user, uid, account, qos_name, direct_priority (0: computed; else the fixed priority, and all factors are 0),
        site, nice, the weighted factors age assoc fairshare jobsize part qos, and tres ({"cpu": float, …} without
        zeros; equal rows share one object). Held jobs and those not yet eligible have no rows."""
        ...
    def shares(self) -> Sequence[Mapping[str, Any]]:
        """sshare's rows in tree order: assoc (AssociationRecord), depth, raw_shares (None: root), norm_shares,
        raw_usage, norm_usage, effective_usage, fair_share, level_fs (floats or None),
        tres_run_s ({"cpu": seconds, …})."""
        ...
    async def ledger_query(self, kind: str, **filters: Any) -> Sequence[Mapping[str, Any]]:
        """A read-only question to the ledger (kinds and filters are documented in accounting/queries.py)."""
        ...


class Acts(Protocol):
    """What changes state. ``caller`` is always the transport's identity."""

    async def submit(self, caller: Identity, invocation: Invocation,
                     requests: Sequence[JobRequest]) -> SubmitResult: ...
    async def will_run(self, caller: Identity, invocation: Invocation, request: JobRequest) -> WillRun: ...
    async def signal(self, caller: Identity, job_id: int, *, task_ids: Sequence[int] | None = None,
                     step_id: str | None = None,
                     signal: int | None = None, batch_only: bool = False, full: bool = False) -> None:
        """scancel: no signal = cancel. task_ids select tasks of array ``job_id``."""
        ...
    async def update_job(self, caller: Identity, job: str, changes: Mapping[str, str]) -> None:
        """scontrol update JobId=: keys are lower-case, values text. ``job`` may be "12", "12_3", "12_[1-4]", "12+1"."""
        ...
    async def hold(self, caller: Identity, job: str, *, user_hold: bool = False) -> None: ...
    async def release(self, caller: Identity, job: str) -> None: ...
    async def requeue(self, caller: Identity, job: str, *, hold: bool = False, special_exit: bool = False) -> None: ...
    async def suspend(self, caller: Identity, job: str) -> None: ...
    async def resume(self, caller: Identity, job: str) -> None: ...
    async def update_node(self, caller: Identity, names: Sequence[str], changes: Mapping[str, str]) -> None: ...
    async def update_partition(self, caller: Identity, name: str, changes: Mapping[str, str], *,
                               create: bool = False) -> None: ...
    async def delete_partition(self, caller: Identity, name: str) -> None: ...
    async def change_resources(self, caller: Identity, operations: Sequence[Mapping[str, Any]]) -> None:
        """Operations of ``controller.resources``."""
        ...
    async def create_reservation(self, caller: Identity, request: Mapping[str, str]) -> str:
        """Its name. Keys are lower-case; times are epoch seconds, durations minutes, flags words (NO_… takes away)."""
        ...
    async def update_reservation(self, caller: Identity, name: str, changes: Mapping[str, str]) -> None: ...
    async def delete_reservation(self, caller: Identity, name: str) -> None: ...
    async def change_accounting(self, caller: Identity, operations: Sequence[Mapping[str, Any]]) -> None:
        """sacctmgr's writes, all or none. Operations are documented in accounting/directory.py (apply_operations)."""
        ...
    async def import_usage(self, caller: Identity, rows: Sequence[tuple[str, str, float]]) -> None:
        """(account, user, raw usage) replaces the usage of these user associations and of the accounts above."""
        ...
    async def health(self, caller: Identity, verb: str, words: Sequence[str]) -> str:
        """Health of nodes: ``show``, ``undo`` or ``stage``; the text to print. Raises SlurmError."""
        ...
    async def import_records(self, caller: Identity, kind: str, text: str, more: str, zone: Zone) -> str:
        """Another Slurm's ``history`` (more: suspensions), ``events`` or ``reservations`` (more: ids of associations),
        as accounting/history.py reads them; a line that says what was done."""
        ...
    async def change_runs(self, caller: Identity, changes: Sequence[tuple[int, Mapping[str, Any]]]) -> None:
        """sacctmgr modify job: values of runs by db_index (accounting/corrections.py)."""
        ...
    async def archive(self, caller: Identity, parts: Sequence[tuple[str, int, bool]], directory: str) -> None:
        """(kind, from before when, kept in a file) of old records that go (accounting/archive.py)."""
        ...
    async def load_archive(self, caller: Identity, path: str) -> None: ...
    async def complete(self, caller: Identity, job_id: int, exit_status: int = 0) -> None:
        """The allocation of an salloc or srun is given back: its command ended with this wait status."""
        ...
    async def wait_job_start(self, job_id: int) -> JobRecord:
        """Until the job runs or is over."""
        ...
    async def wait_job_end(self, job_id: int) -> Sequence[JobRecord]:
        """Until all of the job (all array tasks, all het components) is over; the final records."""
        ...
    async def next_message(self, job_id: int) -> str:
        """What ``notify`` says next to the salloc of this job."""
        ...
    async def notify(self, caller: Identity, job_id: int, text: str) -> None:
        """A line for who watches the job: its salloc, else the standard error of its batch script or srun."""
        ...
    async def move_to_top(self, caller: Identity, jobs: str) -> None:
        """scontrol top: ``jobs`` as typed, ``12,13_4``."""
        ...
    async def look_at_steps(self, caller: Identity, job_id: int) -> Mapping[str, Mapping[str, Any]]:
        """sstat: what the job's running steps have used up to now (cluster.port.Engine.look)."""
        ...
    async def step_address(self, caller: Identity, job_id: int) -> tuple[str, str]:
        """(address, credential) of the running job's first step daemon, for srun from outside."""
        ...
    async def set_conf(self, caller: Identity, key: str, value: str) -> None:
        """A value of slurm.conf that scontrol changes until the file is read again."""
        ...
    async def output(self, caller: Identity, job: str, *, follow: bool = False) -> AsyncIterator[bytes]:
        """What a batch script wrote, where no volume took it. Raises LookupError (not here) or OSError too."""
        ...
    async def reconfigure(self, caller: Identity) -> None: ...
    async def shutdown(self, caller: Identity) -> None: ...


class Session(Protocol):
    """One caller's connection."""

    identity: Identity
    invocation: Invocation
    views: Views
    acts: Acts

    def now(self) -> float:
        """Epoch seconds, from the controller's clock."""
        ...
    async def read_file(self, path: str, limit: int = 64 << 20) -> bytes:
        """The caller's file, read by the caller's client with the caller's rights. Raises the client's OSError."""
        ...
    async def write_file(self, path: str, data: bytes, mode: int = 0o666, exclusive: bool = False) -> None:
        """Writes the caller's file whole (by rename) with the caller's rights. Raises OSError."""
        ...
    async def read_stdin(self) -> bytes: ...
    async def read_line(self) -> bytes:
        """The caller's next line of standard input with its newline; b"" at the end (scancel -i)."""
        ...
    async def write_stdout(self, text: str) -> None:
        """At once, for commands that go on (squeue -i, sbatch --wait); the Reply's text comes after it."""
        ...
    async def write_stderr(self, text: str) -> None: ...
    async def sleep(self, seconds: float) -> None:
        """Raises ConnectionError when the caller has gone."""
        ...
    async def hand_over(self, address: str, credential: str, env: Mapping[str, str], argv: Sequence[str]) -> int:
        """The client goes on with the step daemon at ``address`` (srun outside an allocation); its exit code."""
        ...
    async def run_local(self, argv: Sequence[str], env: Mapping[str, str]) -> int:
        """The client runs a command of the caller's on its own terminal (salloc); its wait status."""
        ...
    async def last_words(self, text: str | None) -> None:
        """What the client says when a signal ends it from now on, with exit code 1; None where it just dies."""
        ...
    async def kill_local(self, signal: int) -> None:
        """The command of ``run_local`` and its group get the signal (0: only what it has in its foreground, SIGHUP)."""
        ...
