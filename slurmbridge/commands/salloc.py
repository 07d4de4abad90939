"""salloc: an allocation for a command on the caller's own machine (salloc(1))."""
from __future__ import annotations

import asyncio
import contextlib
import os
import signal as signals
from collections.abc import Mapping, Sequence

from slurmbridge.commands import submitting
from slurmbridge.commands.allocation import salloc_variables, wait_for_start
from slurmbridge.commands.common import command
from slurmbridge.slurm import states
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.slurm.hostlist import compress
from slurmbridge.slurm.jobspec import JobRequest
from slurmbridge.views.session import Reply, Session

BELL_DELAY_S = 10.0


@command
async def run(argv: Sequence[str], env: Mapping[str, str], session: Session) -> Reply:
    submission = await submitting.parse(session)
    if isinstance(submission, Reply):
        return submission
    if submission.requests[0].test_only:
        return await submitting.test_only(session, submission)
    await session.write_stderr(submission.stderr)
    request = submission.requests[0]
    try:
        result = await submitting.submit_attended(session, submission)
    except SlurmError as error:
        return submitting.refusal("salloc", error, "Job submit/allocate failed", submission.error_exit)
    job_id = result.job_id
    given = False
    began_s = session.now()
    try:
        job = await wait_for_start(session, job_id, request, submission.error_exit)
        if isinstance(job, Reply):
            return job
        await _say(session, request.quiet, f"salloc: Granted job allocation {job_id}\n")
        jobs = [session.views.jobs[one] for one in job.het_job_ids or (job_id,)]
        for one in jobs:
            await _say(session, request.quiet, f"salloc: Nodes {compress(one.nodes)} are ready for job\n")
        await _ring(session, request.bell, session.now() - began_s)
        if any(one.no_shell for one in submission.requests):
            given = True
            return Reply()
        address, credential = await session.acts.step_address(session.identity, job_id)
        variables = {**submission.env, **salloc_variables(jobs, session),
                     "SLURMBRIDGE_STEPD": address, "SLURMBRIDGE_CREDENTIAL": credential}
        program = submission.argv or (env.get("SHELL") or "/bin/sh",)
        running = asyncio.ensure_future(session.run_local(program, variables))
        watching = asyncio.ensure_future(_watch(session, job_id, request))
        try:
            status = await running
        finally:
            watching.cancel()
        current = session.views.jobs.get(job_id)
        given = True
        if current is None or current.state in states.FINISHED:
            return Reply(exit_code=_exit_code(status))
        await _say(session, request.quiet, f"salloc: Relinquishing job allocation {job_id}\n")
        with contextlib.suppress(SlurmError):
            await session.acts.complete(session.identity, job_id, status)
        return Reply(exit_code=_exit_code(status))
    finally:
        if not given:                         # the caller has gone, or nothing came of it
            with contextlib.suppress(SlurmError):
                await session.acts.signal(session.identity, job_id)


async def _watch(session: Session, job_id: int, request: JobRequest) -> None:
    """While the command runs: what is said to the job, and the end of the allocation, which may end the command."""
    ended = asyncio.ensure_future(session.acts.wait_job_end(job_id))
    try:
        while True:
            message = asyncio.ensure_future(session.acts.next_message(job_id))
            try:
                await asyncio.wait((ended, message), return_when=asyncio.FIRST_COMPLETED)
                if ended.done():
                    break
                await _say(session, request.quiet, f"salloc: {message.result()}\n")
            finally:
                message.cancel()
        if ended.result()[0].state == states.TIMEOUT:
            text = f"Job {job_id} has exceeded its time limit and its allocation has been revoked."
        else:
            text = f"Job allocation {job_id} has been revoked."
        await _say(session, request.quiet, f"salloc: {text}\n")
        await session.kill_local(request.kill_command_signal)
    finally:
        ended.cancel()


async def _ring(session: Session, bell: str, waited_s: float) -> None:
    """The terminal's bell, for who has waited."""
    if session.invocation.tty_columns is not None and (
            bell == "bell-always" or (bell == "bell-after-delay" and waited_s > BELL_DELAY_S)):
        await session.write_stdout("\a")


async def _say(session: Session, quiet: bool, text: str) -> None:
    if not quiet:
        await session.write_stderr(text)


def _exit_code(status: int) -> int:
    """The command's own; 0 where a signal that users send ended it."""
    if os.WIFEXITED(status):
        return os.waitstatus_to_exitcode(status)
    return 0 if os.WTERMSIG(status) in (signals.SIGHUP, signals.SIGINT, signals.SIGQUIT, signals.SIGKILL) else 1
