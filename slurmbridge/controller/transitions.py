"""The life of a job as one table: in which phase, at which event, what becomes of it and what has to be done.

Every change of ``JobRecord.state`` and of its flags goes through ``rule_for``; ``life.py`` carries out the actions.
A pair that is not in ``TABLE`` is in ``REFUSED`` (a user's act that Slurm answers with an error) or in ``IGNORED``
(news that come too late); the three together cover phases x events, which a test checks.
"""
from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from slurmbridge.slurm import states
from slurmbridge.views.records import JobRecord


class Phase(Enum):
    PENDING = auto()        # queued, holds nothing
    STARTING = auto()       # RUNNING + CONFIGURING: holds its allocation, the gang is not whole yet
    RUNNING = auto()
    SUSPENDED = auto()
    STOPPING = auto()       # a final state + COMPLETING: over, but its processes still hold the allocation
    REQUEUING = auto()      # PENDING + COMPLETING: will wait again once its processes are gone
    ENDED = auto()          # a final state, holds nothing


class Event(Enum):
    START = auto()          # the scheduler gave it an allocation
    STARTED = auto()        # the engine: the gang is whole
    LAUNCH_FAILED = auto()  # the engine: nothing of it runs
    EXITED = auto()         # the batch script (or the waiting allocation) ended by itself
    FINISHED = auto()       # the engine: every process is gone
    CANCEL = auto()
    TIME_OUT = auto()
    DEADLINE = auto()
    NODE_FAILED = auto()
    PREEMPT = auto()
    REQUEUE = auto()
    SUSPEND = auto()
    RESUME = auto()
    ABANDON = auto()        # it could not be started and must not be tried again
    ABANDON_NODE = auto()   # the same, and a node is to blame
    PURGE = auto()


BY_EXIT = "by exit"
"""The state follows from the exit status: COMPLETED, FAILED or OUT_OF_MEMORY."""
KEEP = "keep"
OUT_OF_MEMORY_SIGNAL = 125
"""Stands for a death by the kernel's OOM killer (Slurm's SIG_OOM)."""


@dataclass(frozen=True, slots=True)
class Rule:
    """``state``: a base state, BY_EXIT or KEEP. ``actions`` are names of ``JobLife._do_*`` methods, in order."""

    phase: Phase
    state: str
    add: frozenset[str] = frozenset()
    remove: frozenset[str] = frozenset()
    actions: tuple[str, ...] = ()


_CG = frozenset({states.COMPLETING})
_CF = frozenset({states.CONFIGURING})
_WAITING = frozenset({states.REQUEUED, states.REQUEUE_HOLD, states.SPECIAL_EXIT})
_TRANSIENT = _CG | _CF | frozenset({states.STOPPED, states.SIGNALING})


def _stop(state: str, *first: str) -> Rule:
    return Rule(Phase.STOPPING, state, add=_CG, remove=_CF, actions=(*first, "end", "terminate"))


def _requeue(*actions: str) -> Rule:
    return Rule(Phase.REQUEUING, states.PENDING, add=_CG, remove=_CF, actions=actions)


_END_PENDING = Rule(Phase.ENDED, states.CANCELLED, remove=_WAITING, actions=("end_unstarted",))

TABLE: dict[tuple[Phase, Event], Rule] = {
    (Phase.PENDING, Event.START): Rule(
        Phase.STARTING, states.RUNNING, add=_CF, remove=_WAITING, actions=("allocate", "launch")),
    (Phase.PENDING, Event.CANCEL): _END_PENDING,
    (Phase.PENDING, Event.DEADLINE): Rule(Phase.ENDED, states.DEADLINE, remove=_WAITING, actions=("end_unstarted",)),
    (Phase.PENDING, Event.ABANDON): Rule(Phase.ENDED, states.FAILED, remove=_WAITING, actions=("end_unstarted",)),
    (Phase.PENDING, Event.ABANDON_NODE): Rule(
        Phase.ENDED, states.NODE_FAIL, remove=_WAITING, actions=("end_unstarted",)),
    (Phase.STARTING, Event.STARTED): Rule(Phase.RUNNING, states.RUNNING, remove=_CF, actions=("running",)),
    (Phase.STARTING, Event.LAUNCH_FAILED): Rule(
        Phase.PENDING, states.PENDING, remove=_TRANSIENT,
        actions=("close_run", "release", "wait_again", "after_launch_failure")),
    (Phase.STARTING, Event.EXITED): _stop(BY_EXIT),
    (Phase.RUNNING, Event.EXITED): Rule(Phase.STOPPING, BY_EXIT, add=_CG, actions=("end", "requeue_by_exit_code")),
    (Phase.SUSPENDED, Event.EXITED): Rule(Phase.STOPPING, BY_EXIT, add=_CG, actions=("end", "requeue_by_exit_code")),
    (Phase.STARTING, Event.FINISHED): Rule(
        Phase.ENDED, BY_EXIT, remove=_TRANSIENT, actions=("end", "release", "requeue_by_exit_code")),
    (Phase.RUNNING, Event.FINISHED): Rule(
        Phase.ENDED, BY_EXIT, remove=_TRANSIENT, actions=("end", "release", "requeue_by_exit_code")),
    (Phase.SUSPENDED, Event.FINISHED): Rule(
        Phase.ENDED, BY_EXIT, remove=_TRANSIENT, actions=("end", "release", "requeue_by_exit_code")),
    (Phase.STOPPING, Event.FINISHED): Rule(Phase.ENDED, KEEP, remove=_TRANSIENT, actions=("release",)),
    (Phase.STOPPING, Event.LAUNCH_FAILED): Rule(Phase.ENDED, KEEP, remove=_TRANSIENT, actions=("release",)),
    (Phase.REQUEUING, Event.FINISHED): Rule(
        Phase.PENDING, states.PENDING, remove=_TRANSIENT, actions=("release", "wait_again")),
    (Phase.REQUEUING, Event.LAUNCH_FAILED): Rule(
        Phase.PENDING, states.PENDING, remove=_TRANSIENT, actions=("release", "wait_again")),
    (Phase.REQUEUING, Event.CANCEL): Rule(
        Phase.STOPPING, states.CANCELLED, remove=_WAITING, actions=("end_requeued",)),
    (Phase.REQUEUING, Event.DEADLINE): Rule(
        Phase.STOPPING, states.DEADLINE, remove=_WAITING, actions=("end_requeued",)),
    (Phase.STOPPING, Event.REQUEUE): _requeue("count_restart"),
    (Phase.ENDED, Event.REQUEUE): Rule(
        Phase.PENDING, states.PENDING, actions=("count_restart", "wait_again")),
    (Phase.RUNNING, Event.SUSPEND): Rule(Phase.SUSPENDED, states.SUSPENDED, actions=("suspend",)),
    (Phase.SUSPENDED, Event.RESUME): Rule(Phase.RUNNING, states.RUNNING, actions=("resume",)),
    (Phase.ENDED, Event.PURGE): Rule(Phase.ENDED, KEEP, actions=("forget",)),
}
for _phase in (Phase.STARTING, Phase.RUNNING, Phase.SUSPENDED):
    TABLE[_phase, Event.CANCEL] = _stop(states.CANCELLED)
    TABLE[_phase, Event.TIME_OUT] = _stop(states.TIMEOUT)
    TABLE[_phase, Event.DEADLINE] = _stop(states.DEADLINE)
    TABLE[_phase, Event.NODE_FAILED] = _stop(states.NODE_FAIL)
    TABLE[_phase, Event.PREEMPT] = _stop(states.PREEMPTED)
    TABLE[_phase, Event.REQUEUE] = _requeue("close_run", "count_restart", "terminate")

REFUSED: dict[tuple[Phase, Event], str] = {
    (Phase.PENDING, Event.REQUEUE): "ESLURM_JOB_PENDING",
    (Phase.REQUEUING, Event.REQUEUE): "ESLURM_JOB_PENDING",
    (Phase.PENDING, Event.SUSPEND): "ESLURM_JOB_PENDING",
    (Phase.REQUEUING, Event.SUSPEND): "ESLURM_JOB_PENDING",
    (Phase.PENDING, Event.RESUME): "ESLURM_JOB_PENDING",
    (Phase.REQUEUING, Event.RESUME): "ESLURM_JOB_PENDING",
    (Phase.STARTING, Event.SUSPEND): "ESLURM_JOB_NOT_RUNNING",
    (Phase.STARTING, Event.RESUME): "ESLURM_DISABLED",
    (Phase.RUNNING, Event.RESUME): "ESLURM_JOB_NOT_SUSPENDED",
    (Phase.STOPPING, Event.SUSPEND): "ESLURM_ALREADY_DONE",
    (Phase.STOPPING, Event.RESUME): "ESLURM_ALREADY_DONE",
    (Phase.STOPPING, Event.CANCEL): "ESLURM_ALREADY_DONE",
    (Phase.ENDED, Event.CANCEL): "ESLURM_ALREADY_DONE",
    (Phase.ENDED, Event.SUSPEND): "ESLURM_ALREADY_DONE",
    (Phase.ENDED, Event.RESUME): "ESLURM_ALREADY_DONE",
}

IGNORED: frozenset[tuple[Phase, Event]] = frozenset(
    (phase, event) for phase in Phase for event in Event
    if (phase, event) not in TABLE and (phase, event) not in REFUSED
    and (event in {Event.START, Event.STARTED, Event.LAUNCH_FAILED, Event.EXITED, Event.FINISHED, Event.TIME_OUT,
                   Event.DEADLINE, Event.NODE_FAILED, Event.PREEMPT, Event.ABANDON, Event.ABANDON_NODE, Event.PURGE}
         or (phase, event) == (Phase.SUSPENDED, Event.SUSPEND)))


class Refusal(Exception):
    """A user's act that this phase does not allow; ``code`` is Slurm's error name."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


def phase_of(job: JobRecord) -> Phase:
    """The phase a record is in, from its state and flags."""
    completing = states.COMPLETING in job.flags
    if job.state == states.PENDING:
        return Phase.REQUEUING if completing else Phase.PENDING
    if job.state == states.RUNNING:
        return Phase.STARTING if states.CONFIGURING in job.flags else Phase.RUNNING
    if job.state == states.SUSPENDED:
        return Phase.SUSPENDED
    return Phase.STOPPING if completing else Phase.ENDED


def rule_for(phase: Phase, event: Event) -> Rule | None:
    """The rule, or None for news that come too late. Raises Refusal for acts that are not possible now."""
    rule = TABLE.get((phase, event))
    if rule is None and (phase, event) in REFUSED:
        raise Refusal(REFUSED[phase, event])
    return rule


def state_by_exit(exit_status: int, out_of_memory: bool = False) -> tuple[str, str]:
    """(state, reason) of a job whose script ended with this wait(2) status, as slurmctld judges it."""
    if out_of_memory or exit_status & 0x7F == OUT_OF_MEMORY_SIGNAL:
        return states.OUT_OF_MEMORY, "OutOfMemory"
    if exit_status & 0x7F:
        return states.FAILED, "RaisedSignal"
    if exit_status >> 8:
        return states.FAILED, "NonZeroExitCode"
    return states.COMPLETED, "None"
