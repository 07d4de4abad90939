"""sattach from outside a job: finds the job's step daemon and hands its caller over to it (sattach(1))."""
from __future__ import annotations

from collections.abc import Mapping, Sequence

from slurmbridge.commands.common import command
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.slurm.sattach_options import read_call
from slurmbridge.slurm.sbcast_options import Over
from slurmbridge.slurm.selected_step import SelectedStep
from slurmbridge.views.session import Reply, Session


@command
async def run(argv: Sequence[str], env: Mapping[str, str], session: Session) -> Reply:
    try:
        call = read_call(argv)
        address, credential = await session.acts.step_address(
            session.identity, running_job(session, call.step))
    except Over as over:
        return Reply(*over.args)
    except SlurmError as error:
        return Reply(stderr=f"sattach: error: Could not get job step info: {error.text}\n", exit_code=1)
    return Reply(exit_code=await session.hand_over(address, credential, env, argv))


def running_job(session: Session, name: SelectedStep) -> int:
    """The id of the job, or of the task of the array, that is meant."""
    if name.task is not None:
        return next((job.job_id for job in session.views.array_tasks(name.job_id) if job.array_task_id == name.task), 0)
    return name.job_id
