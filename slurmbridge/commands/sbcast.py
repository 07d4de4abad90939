"""sbcast from outside a job: finds the job's step daemon and hands its caller over to it (sbcast(1))."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from slurmbridge.commands.common import command
from slurmbridge.commands.sattach import running_job
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.slurm.sbcast_options import Over, read_call
from slurmbridge.slurm.selected_step import parse_selected_step
from slurmbridge.views.session import Reply, Session


@command
async def run(argv: Sequence[str], env: Mapping[str, str], session: Session) -> Reply:
    try:
        call = read_call(argv, env, session.invocation.cwd)
        own = env.get("SLURM_JOB_ID", "")
        job, text = (call.job, call.job_text) if call.job else (parse_selected_step(own), own)
        if not text:
            raise Over("", "sbcast: error: Need a job id to run this command.  Run from within a Slurm job or use the "
                       "--jobid option.\n", 1)
        address, credential = await session.acts.step_address(
            session.identity, running_job(session, replace(job, het_offset=None)))
    except Over as over:
        return Reply(*over.args)
    except SlurmError as error:
        return Reply(stderr=f"sbcast: error: Slurm job {text} lookup error: {error.text}\n", exit_code=1)
    return Reply(exit_code=await session.hand_over(address, credential, env, argv))
