"""Names of files and nodes as a job's record has them."""
from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from slurmbridge.controller.world import World
from slurmbridge.slurm import patterns
from slurmbridge.slurm.hostlist import compress
from slurmbridge.views.records import JobRecord


def name_files(world: World, job: JobRecord) -> None:
    """StdIn, StdOut and StdErr as scontrol shows them."""
    request = job.request
    if not request.batch:
        job.std_in = job.std_out = job.std_err = ""
        return
    default = "slurm-%A_%a.out" if job.array_job_id else "slurm-%j.out"

    def expand(pattern: str | None) -> str:
        if not pattern:
            return ""
        if "%" not in pattern and "\\" not in pattern:
            return pattern if pattern.startswith("/") else f"{request.work_dir.rstrip('/')}/{pattern}"
        task = job.array_task_id if job.array_task_id is not None else patterns.NO_TASK
        return patterns.expand(pattern, job_id=job.job_id, work_dir=request.work_dir or "/",
                               array_job_id=job.array_job_id, array_task_id=task,
                               user_name=job.user_name, job_name=job.name, restarts=job.restarts,
                               node_name=job.batch_host or "(null)")
    job.std_out = expand(default if request.std_out is None else request.std_out)
    job.std_err = expand(request.std_err)
    job.std_in = expand(request.std_in) or "/dev/null"


@lru_cache(maxsize=4096)
def _compressed(names: tuple[str, ...]) -> str:
    return compress(names)


def hostlist(world: World, names: Sequence[str]) -> str:
    """Node names as Slurm writes them, in the cluster's order."""
    return _compressed(tuple(names))
