"""sattach from outside a job: finds the job's step daemon and hands its caller over to it (sattach(1))."""
from __future__ import annotations

from collections.abc import Mapping, Sequence

from slurmbridge.commands.common import command, parse_job_name
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.slurm.sattach_options import read_call
from slurmbridge.slurm.sbcast_options import Over
from slurmbridge.views.session import Reply, Session


@command
async def run(argv: Sequence[str], env: Mapping[str, str], session: Session) -> Reply:
    try:
        call = read_call(argv)
        address, credential = await session.acts.step_address(
            session.identity, running_job(session, call.step.partition(".")[0]))
    except Over as over:
        return Reply(*over.args)
    except SlurmError as error:
        return Reply(stderr=f"sattach: error: Could not get job step info: {error.text}\n", exit_code=1)
    return Reply(exit_code=await session.hand_over(address, credential, env, argv))


def running_job(session: Session, text: str) -> int:
    """The id of ``12``, ``12_3`` or ``12+1``. Raises SlurmError."""
    name = parse_job_name(text)
    if name is None:
        raise SlurmError(2017)
    if name.tasks:
        return next((job.job_id for job in session.views.array_tasks(name.job_id)
                     if job.array_task_id == name.tasks[0]), 0)
    return name.job_id
