"""``slurmbridge logs``: whose output it is, and which run's, also of jobs that only the ledger remembers."""
from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from slurmbridge.cluster.port import RunId
from slurmbridge.controller import access
from slurmbridge.controller.world import World
from slurmbridge.slurm import errors
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.views.session import Identity


async def output(world: World, views: Any, caller: Identity, job: str, follow: bool) -> AsyncIterator[bytes]:
    """``job``: a number, or ARRAY_TASK. Raises SlurmError, LookupError or OSError."""
    number, _, task = job.partition("_")
    if not number.isdecimal() or (task and not task.isdecimal()):
        raise SlurmError(errors.ESLURM_INVALID_JOB_ID)
    known = world.jobs.task(int(number), int(task)) if task else world.jobs.get(int(number))
    if known is not None:
        run, uid, account = world.run_of(known), known.uid, known.account
    else:
        rows = [row for row in await views.ledger_query("jobs", job_ids=[int(number)])
                if (row["array_task_id"] == int(task) if task else row["job_id"] == int(number))]
        if not rows:
            raise SlurmError(errors.ESLURM_INVALID_JOB_ID)
        uid, account = rows[-1]["uid"], rows[-1]["account"]
        run = RunId(rows[-1]["job_id"], int(rows[-1].get("restarts") or 0))
    if caller.uid != uid and not access.is_operator(caller, world) and not access.is_coordinator(
            caller, account, world):
        raise SlurmError(errors.ESLURM_ACCESS_DENIED)
    read = getattr(world.engine, "output", None)
    if read is None:
        raise LookupError("its output is in the files that sbatch named (scontrol show job)")
    pieces: AsyncIterator[bytes] = read(run, follow)
    return pieces
