"""sbatch: submits a script (sbatch(1))."""
from __future__ import annotations

from collections.abc import Mapping, Sequence

from slurmbridge.commands import submitting
from slurmbridge.commands.common import command
from slurmbridge.slurm import exitcodes
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.views.session import Reply, Session


@command
async def run(argv: Sequence[str], env: Mapping[str, str], session: Session) -> Reply:
    submission = await submitting.parse(session)
    if isinstance(submission, Reply):
        return submission
    request = submission.requests[0]
    if request.test_only:
        return await submitting.test_only(session, submission)
    try:
        result = await submitting.submit(session, submission)
    except SlurmError as error:
        reply = submitting.refusal("sbatch", error, "Batch job submission failed", submission.error_exit)
        return Reply(stderr=submission.stderr + reply.stderr, exit_code=reply.exit_code)
    stderr = submission.stderr + "".join(f"sbatch: {line}\n" for line in result.messages)
    cluster = session.views.conf.cluster_name if request.clusters else None
    if request.quiet:
        stdout = ""
    elif request.parsable:
        stdout = f"{result.job_id};{cluster}\n" if cluster else f"{result.job_id}\n"
    else:
        stdout = f"Submitted batch job {result.job_id}" + (f" on cluster {cluster}\n" if cluster else "\n")
    if not request.wait:
        return Reply(stdout, stderr)
    await session.write_stderr(stderr)
    await session.write_stdout(stdout)
    return Reply(exit_code=await wait(session, result.job_id))


async def wait(session: Session, job_id: int) -> int:
    """--wait: the largest exit code of the job's tasks and components; 1 for one that a signal ended."""
    code = 0
    for job in await session.acts.wait_job_end(job_id):
        status, signal = exitcodes.split(job.exit_status)
        code = max(code, 1 if signal else status)
    return code
