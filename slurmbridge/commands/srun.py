"""srun outside an allocation: allocates, then hands its caller over to the job's step daemon (srun(1)).

With --jobid (or SLURM_JOB_ID without a step daemon at hand) the step goes into that running job.
"""
from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

from slurmbridge.commands import submitting
from slurmbridge.commands.allocation import allocation_variables, wait_for_start
from slurmbridge.commands.common import command, parse_job_name
from slurmbridge.slurm import errors
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.translate.call import Submission
from slurmbridge.views.session import Reply, Session

_KEPT = ("SLURM_JOB_CPUS_PER_NODE", "SLURM_MEM_PER_CPU", "SLURM_MEM_PER_NODE", "SLURM_JOB_NODELIST", "SLURM_JOB_QOS",
         "SLURM_JOB_RESERVATION")
"""Variables that srun leaves as it found them, even those of another job."""


@command
async def run(argv: Sequence[str], env: Mapping[str, str], session: Session) -> Reply:
    submission = await submitting.parse(session)
    if isinstance(submission, Reply):
        return submission
    request = submission.requests[0]
    if request.test_only:
        return await submitting.test_only(session, submission)
    job_text = _job_id(submission, env)
    if job_text:
        return await _join(session, submission, job_text)
    await session.write_stderr(submission.stderr)
    try:
        result = await submitting.submit_attended(session, submission)
    except SlurmError as error:
        return submitting.refusal("srun", error, "Unable to allocate resources", submission.error_exit)
    job_id = result.job_id
    handed = False
    try:
        job = await wait_for_start(session, job_id, request, submission.error_exit)
        if isinstance(job, Reply):
            return job
        address, credential = await session.acts.step_address(session.identity, job_id)
        inherited = {name: submission.env[name] for name in _KEPT if name in submission.env}
        variables = {**submission.env, **allocation_variables(job, session), **inherited}
        if job.het_job_ids:
            variables["SLURM_HET_SIZE"] = str(len(job.het_job_ids))
        code = await session.hand_over(address, credential, variables, session.invocation.argv)
        handed = True
        return Reply(exit_code=code)
    finally:
        if not handed:
            with contextlib.suppress(SlurmError):
                await session.acts.signal(session.identity, job_id)


def _job_id(submission: Submission, env: Mapping[str, str]) -> str:
    """The job that --jobid or SLURM_JOB_ID names, "" for a new allocation."""
    for parsed in submission.parsed[:1]:
        if parsed.get("jobid"):
            return str(parsed["jobid"])
    return env.get("SLURM_JOB_ID") or env.get("SLURM_JOBID") or ""


async def _join(session: Session, submission: Submission, text: str) -> Reply:
    """A step of a job that runs already."""
    name = parse_job_name(text)
    try:
        if name is None:
            raise SlurmError(2017)
        job_id = name.job_id
        if name.tasks:
            job_id = next((job.job_id for job in session.views.array_tasks(name.job_id)
                           if job.array_task_id == name.tasks[0]), 0)
        address, credential = await session.acts.step_address(session.identity, job_id)
        if session.views.jobs[job_id].het_offset:
            raise SlurmError(errors.ESLURM_NOT_HET_JOB_LEADER)
    except SlurmError as error:
        lines = (f"srun: error: Unable to confirm allocation for job {text}: {error.text}\n"
                 f"srun: Check SLURM_JOB_ID environment variable. Expired or invalid job {text}\n")
        return Reply(stderr=submission.stderr + lines, exit_code=submission.error_exit)
    await session.write_stderr(submission.stderr)
    job = session.views.jobs[job_id]
    variables = {**submission.env, **allocation_variables(job, session)}
    return Reply(exit_code=await session.hand_over(address, credential, variables, session.invocation.argv))
