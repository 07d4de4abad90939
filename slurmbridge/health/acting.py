"""Which of a node's jobs an act concerns."""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from slurmbridge.health.policy import ACT, GPU_JOBS, STUCK_JOBS, Policy
from slurmbridge.health.sight import DELETING, OVER, STUCK
from slurmbridge.health.verdict import Act


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What of a job on the node decides. ``partition``: its own, whose stage counts for it."""

    job_id: int
    partition: str = ""
    has_devices: bool = False
    start_s: float = 0.0


def concerned(act: Act, jobs: Iterable[JobFacts], pods: Mapping[int, str] | None, policy: Policy) -> list[int]:
    """Job ids. A job whose pod nobody can tell of counts as getting on."""
    found = []
    for job in jobs:
        if not act.is_hard and policy.stage_of(job.partition) != ACT:
            continue
        if act.started_before_s is not None and job.start_s >= act.started_before_s:
            continue
        if act.action == GPU_JOBS and not job.has_devices:
            continue
        if act.action == STUCK_JOBS and (pods or {}).get(job.job_id) not in (STUCK, DELETING, OVER):
            continue
        found.append(job.job_id)
    return found
