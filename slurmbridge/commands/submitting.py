"""What sbatch, salloc and srun share: the client's parsing, the controller's refusal in Slurm's words, start times."""
from __future__ import annotations

import asyncio
import contextlib
import errno
import grp
import pwd
from collections.abc import Sequence

from slurmbridge.commands.common import clusters_text, slurm_error_lines
from slurmbridge.slurm import durations, errors
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.slurm.hostlist import compress, expand
from slurmbridge.translate.call import Call, ClientError, Submission
from slurmbridge.translate.request import build_requests_async
from slurmbridge.views.session import Reply, Session, SubmitResult, WillRun

MAX_RETRIES = 15
_RETRIED = {
    errors.ESLURM_ERROR_ON_DESC_TO_RECORD_COPY: "Slurm job queue full, sleeping and retrying",
    errno.EAGAIN: "Slurm temporarily unable to accept job, sleeping and retrying",
}


def uid_of(text: str) -> int | None:
    try:
        return pwd.getpwnam(text).pw_uid
    except (KeyError, ValueError):
        return int(text) if text.isdigit() and int(text) < 0xFFFFFFFF else None


def gid_of(text: str) -> int | None:
    try:
        return grp.getgrnam(text).gr_gid
    except (KeyError, ValueError):
        return int(text) if text.isdigit() and int(text) < 0xFFFFFFFF else None


async def parse(session: Session) -> Submission | Reply:
    """The call as the client understands it; a Reply where it refuses (or only informs)."""
    call = Call.of(session.invocation, session.identity, session.views.conf, session.now(), uid_of, gid_of)
    try:
        submission = await build_requests_async(call, session.read_file, session.read_stdin)
    except ClientError as error:
        return Reply(error.stdout_text, error.stderr_text, error.exit_code)
    clusters = submission.requests[0].clusters
    return (clusters and _unknown_clusters(session, clusters, submission.stderr)) or submission


def _unknown_clusters(session: Session, text: str, before: str) -> Reply | None:
    """-M: only this cluster is known."""
    command = session.invocation.command
    own = session.views.accounting.cluster
    lines, known = clusters_text(command, text, own)
    return None if known else Reply(stderr=before + lines, exit_code=1)


def refusal(command: str, error: SlurmError, what: str, exit_code: int) -> Reply:
    """The controller's lines and its error after ``what``."""
    lines = slurm_error_lines(command, error)
    return Reply(stderr=f"{lines}{command}: error: {what}: {error.text}\n", exit_code=exit_code)


async def submit(session: Session, submission: Submission) -> SubmitResult:
    """Submits, again and again for a while when the controller is full. Raises SlurmError."""
    command = session.invocation.command
    for attempt in range(MAX_RETRIES + 1):
        try:
            return await session.acts.submit(session.identity, session.invocation, submission.requests)
        except SlurmError as error:
            text = _RETRIED.get(error.code)
            if text is None or attempt == MAX_RETRIES:
                raise
            if attempt == 0:
                await session.write_stderr(f"{command}: error: {text}\n")
            await session.sleep(attempt + 1)
    raise AssertionError


async def submit_attended(session: Session, submission: Submission) -> SubmitResult:
    """``submit`` for a job that is nothing without its caller (srun, salloc): when the caller goes while the
    submission is being written, the job is cancelled as soon as it is there."""
    writing = asyncio.ensure_future(submit(session, submission))
    try:
        return await asyncio.shield(writing)
    except asyncio.CancelledError:
        withdrawal = asyncio.ensure_future(_withdraw(session, writing))
        _withdrawals.add(withdrawal)
        withdrawal.add_done_callback(_withdrawals.discard)
        raise


_withdrawals: set[asyncio.Future[None]] = set()


async def _withdraw(session: Session, writing: asyncio.Future[SubmitResult]) -> None:
    with contextlib.suppress(SlurmError, ConnectionError):
        result = await writing
        await session.acts.signal(session.identity, result.job_id)


async def test_only(session: Session, submission: Submission) -> Reply:
    """--test-only: when and where it would start; nothing is submitted."""
    command = session.invocation.command
    answers: list[WillRun] = []
    try:
        for request in submission.requests:
            answers.append(await session.acts.will_run(session.identity, session.invocation, request))
    except SlurmError as error:
        lines = slurm_error_lines(command, error)
        return Reply(stderr=f"{submission.stderr}{lines}allocation failure: {error.text}\n", exit_code=1)
    return Reply(stderr=submission.stderr + start_line(command, answers, session, submission))


def start_line(command: str, answers: Sequence[WillRun], session: Session, submission: Submission) -> str:
    """``Job 12 to start at … a using 4 processors on nodes n1 in partition batch``; of a heterogeneous job the sum."""
    first = answers[0]
    when = durations.time_formatter(session.invocation.env, session.now())(max(answer.start_s for answer in answers))
    where = f" on cluster {session.views.conf.cluster_name}" if submission.requests[0].clusters else ""
    if len(answers) == 1:
        text = (f"{command}: Job {first.job_id} to start at {when}{where} a using {first.cpus} processors on nodes "
                f"{first.nodes} in partition {first.partition}\n")
    else:
        names = [name for answer in answers for name in expand(answer.nodes)]
        text = (f"{command}: Job {first.job_id} to start at {when} using {sum(answer.cpus for answer in answers)} "
                f"processors on {compress(names, sort=True, unique=True)}\n")
    preempted = [str(job_id) for answer in answers for job_id in answer.preempted_job_ids]
    return text + (f"{command}:   Preempts: {','.join(preempted)}\n" if preempted else "")
