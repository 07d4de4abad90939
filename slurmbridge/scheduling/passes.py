"""The scheduler's entry points; see scheduling.snapshot for the contract."""
from __future__ import annotations

from slurmbridge.scheduling import backfill, mainpass
from slurmbridge.scheduling.backfill import backfill_pass
from slurmbridge.scheduling.feasible import Admission, Refusal, admit, feasible
from slurmbridge.scheduling.mainpass import main_pass
from slurmbridge.scheduling.probe import WillRun, will_run
from slurmbridge.scheduling.snapshot import BACKFILL, MAIN, Plan, Snapshot
from slurmbridge.scheduling.state import begin

__all__ = ["Admission", "Refusal", "WillRun", "admit", "backfill_pass", "feasible", "main_pass", "plan", "will_run"]


def plan(snapshot: Snapshot) -> Plan:
    """The main pass, then the backfill pass on what it left, as one answer; each start says who decided it."""
    state = begin(snapshot)
    first, answer = Plan(MAIN), Plan(BACKFILL)
    mainpass.run(state, first)
    state.available = snapshot.cluster.available.copy()
    backfill.run(state, answer)
    answer.starts = first.starts + answer.starts
    answer.held.update(first.held)
    answer.tested += first.tested
    mainpass.finish(state, answer)
    return answer
