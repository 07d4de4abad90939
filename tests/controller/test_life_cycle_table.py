"""The transition table covers every phase and event exactly once, and leads where a job can go on from."""
from __future__ import annotations

import pytest

from slurmbridge.controller import life
from slurmbridge.controller.transitions import (
    BY_EXIT,
    IGNORED,
    KEEP,
    REFUSED,
    TABLE,
    Event,
    Phase,
    Refusal,
    phase_of,
    rule_for,
    state_by_exit,
)
from slurmbridge.slurm import errors, states
from slurmbridge.slurm.jobspec import JobRequest
from slurmbridge.views.records import JobRecord

PAIRS = [(phase, event) for phase in Phase for event in Event]


def record(state: str, *flags: str) -> JobRecord:
    return JobRecord(1, JobRequest(), state=state, flags=set(flags))


@pytest.mark.parametrize(("phase", "event"), PAIRS, ids=lambda one: one.name)
def test_every_pair_is_ruled_exactly_once(phase: Phase, event: Event) -> None:
    assert ((phase, event) in TABLE) + ((phase, event) in REFUSED) + ((phase, event) in IGNORED) == 1


@pytest.mark.parametrize(("phase", "event"), sorted(TABLE, key=str), ids=lambda one: one.name)
def test_a_rule_leads_into_the_phase_it_names(phase: Phase, event: Event) -> None:
    rule = TABLE[phase, event]
    flags = {Phase.STARTING: {"CONFIGURING"}, Phase.STOPPING: {"COMPLETING"}, Phase.REQUEUING: {"COMPLETING"}}
    start = {Phase.PENDING: "PENDING", Phase.REQUEUING: "PENDING", Phase.SUSPENDED: "SUSPENDED",
             Phase.STARTING: "RUNNING", Phase.RUNNING: "RUNNING"}.get(phase, "CANCELLED")
    job = record(start, *flags.get(phase, ()))
    assert phase_of(job) is phase
    if rule.state == BY_EXIT:
        job.state = "FAILED"
    elif rule.state != KEEP:
        job.state = rule.state
    job.flags = (job.flags | rule.add) - rule.remove
    assert phase_of(job) is rule.phase


def test_all_actions_and_errors_exist() -> None:
    for rule in TABLE.values():
        for action in rule.actions:
            assert hasattr(life.JobLife, "_do_" + action), action
    for name in REFUSED.values():
        assert hasattr(errors, name)


def test_an_allocation_is_released_only_when_every_process_is_gone() -> None:
    for (_, event), rule in TABLE.items():
        if "release" in rule.actions:
            assert event in (Event.FINISHED, Event.LAUNCH_FAILED)


def test_user_acts_are_refused_and_late_news_ignored() -> None:
    with pytest.raises(Refusal) as refused:
        rule_for(Phase.ENDED, Event.CANCEL)
    assert refused.value.code == "ESLURM_ALREADY_DONE"
    assert rule_for(Phase.ENDED, Event.FINISHED) is None


@pytest.mark.parametrize(("status", "oom", "expected"), [
    (0, False, (states.COMPLETED, "None")), (3 << 8, False, (states.FAILED, "NonZeroExitCode")),
    (9, False, (states.FAILED, "RaisedSignal")), (9, True, (states.OUT_OF_MEMORY, "OutOfMemory"))])
def test_state_follows_from_the_exit_status(status: int, oom: bool, expected: tuple[str, str]) -> None:
    assert state_by_exit(status, oom) == expected
