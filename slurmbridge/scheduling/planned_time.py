"""How long the backfill pass plans a job for: its time limit, or less where --time-min, a deadline or its QOS allow."""
from __future__ import annotations

from slurmbridge.scheduling.facts import FOREVER_S
from slurmbridge.scheduling.state import PassState
from slurmbridge.scheduling.waits import DEADLINE
from slurmbridge.scheduling.willrun import YEAR_S


def planned_limits_s(state: PassState, row: int) -> tuple[int, int] | None:
    """(planned, full) time limit; None: a deadline that cannot be met, which becomes the job's reason."""
    queue = state.snapshot.queue
    partition = state.partition(row)
    most_s = partition.max_time_s or YEAR_S
    limit_s = int(queue.time_limit_s[row])
    full_s = most_s if limit_s >= FOREVER_S else limit_s if partition.max_time_s is None else min(limit_s, most_s)
    if state.snapshot.settings.preempt_mode != "OFF" and state.never_promised(row):
        return 60, full_s                     # it may be where others will be: they preempt it
    least_s = int(queue.time_min_s[row])
    deadline_s = int(queue.deadline_s[row])
    if deadline_s:
        left_s = (deadline_s - state.snapshot.now_s) // 60 * 60
        if left_s < (least_s or (limit_s if limit_s < FOREVER_S else 60)):
            state.set_reason(row, DEADLINE)
            return None
        return full_s, min(full_s, left_s)
    return (least_s, full_s) if 0 < least_s < full_s else (full_s, full_s)
