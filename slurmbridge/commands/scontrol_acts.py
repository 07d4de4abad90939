"""scontrol's acts on jobs: hold, release, requeue, suspend, resume, top, notify, write batch_script. (scontrol(1).)"""
from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Sequence

from slurmbridge.commands.scontrol_call import Call, starts
from slurmbridge.slurm import errors
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.slurm.hostlist import HostlistError, expand
from slurmbridge.views.records import JobRecord

Act = Callable[[str], Awaitable[None]]
_DIGITS = frozenset("0123456789")


def job_ids(text: str) -> list[str] | None:
    """The jobs of a list such as ``12,13_[1-4],[20-22]_3,15+1``, one act's argument each; None where it is none."""
    jobs: list[str] = []
    plus = under = False
    depth, start = 0, 0
    for index, char in enumerate(text):
        if char == "+":
            if plus:
                return None
            plus = True
        elif char == "_":
            if under:
                return None
            under = True
        elif char in "[]":
            depth += 1 if char == "[" else -1
        elif char == "-":
            if depth == 0 and not under:
                return None
        elif char in ", ":
            if depth == 0:
                jobs.append(text[start:index])
                start, plus, under = index + 1, False, False
        elif char not in _DIGITS:
            return None
    if depth:
        return None
    jobs.append(text[start:])
    return [one for job in jobs if job for one in _expanded(job)]


def _expanded(job: str) -> Iterator[str]:
    head, under, tasks = job.partition("_")
    suffix = under + tasks
    if "[" not in head:
        yield job
        return
    try:
        for one in expand(head):
            yield one + suffix
    except HostlistError:
        yield job


async def on_jobs(call: Call, text: str, act: Act, *, tells_success: bool = True) -> int:
    """The act on each job of the list; refusals as Slurm words them. The largest error number, or 0.
    ``tells_success``: where some tasks of an array are refused, the others are told of too."""
    jobs = job_ids(text)
    if jobs is None:
        call.complain(f"{errors.strerror(errors.ESLURM_INVALID_JOB_ID)} for job {text}")
        return errors.ESLURM_INVALID_JOB_ID
    worst = 0
    for job in jobs:
        worst = max(worst, await on_job(call, job, act, tells_success=tells_success))
    return worst


async def on_job(call: Call, job: str, act: Act, *, tells_success: bool = True) -> int:
    """The act on one job. Its error number, or 0.

    A refusal of tasks names the tasks first, and counts as no error of the call itself.
    """
    try:
        await act(_plain(job))
    except errors.ArrayAnswers as several:
        for tasks, refusal in several.answers:
            if refusal is not None:
                call.complain(f"{tasks}: {refusal.text}" + "".join(f" ({line})" for line in refusal.details))
            elif tells_success:
                call.complain(f"{tasks}: {errors.strerror(0)}")
        return 0
    except SlurmError as error:
        if "_" in job and error.code == errors.ESLURM_INVALID_JOB_ID:
            call.complain(f"{_shown(job)}: {error.text}")
            return 0
        call.details_of(error)
        call.complain(f"{error.text} for job {_shown(job)}")
        return error.code
    return 0


def _plain(job: str) -> str:
    """``12_3-5`` as acts take it: ``12_[3-5]``."""
    head, under, tasks = job.partition("_")
    if under and tasks and not tasks.startswith("[") and not tasks.isdigit():
        return f"{head}_[{tasks}]"
    return job


def _shown(job: str) -> str:
    return job.replace("[", "").replace("]", "") if "_[" in job else job


def _without(text: str, *prefixes: str) -> str:
    for prefix in prefixes:
        if text.lower().startswith(prefix):
            text = text[len(prefix):]
    return text


# ----------------------------------------------------------------------------------------------- hold and release


async def hold(call: Call, argv: Sequence[str]) -> None:
    """hold, holdu, uhold, release: job lists, or name=NAME."""
    word = argv[0].lower()
    acts, caller = call.session.acts, call.session.identity

    async def act(job: str) -> None:
        if word.startswith(("holdu", "uhold")):
            await acts.hold(caller, job, user_hold=True)
        elif word.startswith("hold"):
            await acts.hold(caller, job)
        else:
            await acts.release(caller, job)

    if len(argv) < 2:
        call.complain(f"too few arguments for keyword:{argv[0]}")
        return
    for given in argv[1:]:
        text = _without(given, "jobid=", "job=")
        lower = text.lower()
        if lower.startswith(("name=", "jobname=")):
            code = await _by_name(call, text.partition("=")[2], act)
        else:
            code = await on_jobs(call, text, act)
        if code:
            call.complain(f"slurm_suspend error:{errors.strerror(code)}")


async def _by_name(call: Call, name: str, act: Act) -> int:
    worst = 0
    for job in list(call.session.views.jobs.values()):
        if job.name != name:
            continue
        if job.state != "PENDING":
            if job.array_task_id is not None:
                continue
            worst = max(worst, errors.ESLURM_JOB_NOT_PENDING)
        worst = max(worst, await on_job(call, written_id(job), act))
    return worst


def written_id(job: JobRecord) -> str:
    """The record as scontrol would name it: ``12``, ``12_3``."""
    if job.array_task_id is not None:
        return f"{job.array_job_id}_{job.array_task_id}"
    return str(job.array_job_id or job.job_id)


# ------------------------------------------------------------------------------------------------ requeue, suspend


async def requeue(call: Call, argv: Sequence[str], *, hold_it: bool) -> None:
    """requeue and requeuehold, with the words ``incomplete`` and ``state=specialexit`` before the jobs."""
    if len(argv) < 2:
        call.complain(f"too few arguments for keyword:{argv[0]}")
        return
    special = incomplete = False
    rest = list(argv[1:])
    while rest:
        word = rest[0].lower()
        if word and "incomplete".startswith(word):
            incomplete = True
        elif word.startswith(("state=specialexit", "state=se")):
            special = True
        else:
            break
        rest.pop(0)
    acts, caller, views = call.session.acts, call.session.identity, call.session.views

    async def act(job: str) -> None:
        if incomplete:
            head = job.partition("_")[0].partition("+")[0]
            record = views.jobs.get(int(head)) if head.isdigit() else None
            if record is not None and record.state == "COMPLETED" and not record.array_job_id:
                return
        await acts.requeue(caller, job, hold=hold_it, special_exit=special)

    for given in rest:
        if not given:
            call.exit_code = 1
            continue
        await on_jobs(call, given if hold_it else _without(given, "jobid=", "job="), act)


async def suspend(call: Call, argv: Sequence[str]) -> None:
    """suspend and resume."""
    if len(argv) < 2:
        call.complain(f"too few arguments for keyword:{argv[0]}")
        return
    acts, caller = call.session.acts, call.session.identity
    chosen = acts.suspend if starts(argv[0], "suspend", 2) else acts.resume

    async def act(job: str) -> None:
        try:
            await chosen(caller, job)
        except SlurmError as error:
            if error.code == errors.ESLURM_INVALID_JOB_ID and "_" not in job:
                raise SlurmError(errors.SLURM_UNEXPECTED_MSG_ERROR) from None
            raise

    for given in argv[1:]:
        await on_jobs(call, _without(given, "jobid=", "job="), act)


async def top(call: Call, argv: Sequence[str]) -> None:
    """top JOBS."""
    if len(argv) != 2:
        call.complain(f"too {'few' if len(argv) < 2 else 'many'} arguments for keyword:{argv[0]}")
        return
    jobs = _without(argv[1], "jobid=", "job=")
    try:
        await call.session.acts.move_to_top(call.session.identity, jobs)
    except SlurmError as error:
        call.complain(f"{error.text} for job {jobs}")


async def notify(call: Call, argv: Sequence[str]) -> None:
    """notify JOB TEXT…"""
    if len(argv) < 3:
        call.fail(f"too few arguments for keyword:{argv[0]}")
        return
    digits = re.match(r"[0-9]{1,9}", argv[1])
    if digits is None:
        call.fail(f"Invalid job_id {argv[1]}job notify failure: {errors.strerror(0)}")
        return
    try:
        await call.session.acts.notify(call.session.identity, int(digits[0]), " ".join(argv[2:]))
    except SlurmError as error:
        call.fail(f"job notify failure: {error.text}")


# ------------------------------------------------------------------------------------------------------------ write


async def write(call: Call, argv: Sequence[str]) -> None:
    """write batch_script JOB [FILE|-]."""
    if len(argv) < 2:
        call.fail(f"too few arguments for keyword:{argv[0]}")
    elif starts(argv[1], "batch_script", 5):
        if len(argv) > 4:
            call.fail(f"too many arguments for keyword:{argv[0]}")
        elif len(argv) > 2:
            await _write_script(call, argv[2], argv[3] if len(argv) > 3 else None)
    elif starts(argv[1], "config", 6):
        if len(argv) > 3:
            call.fail(f"too many arguments for keyword:{argv[0]}")
            return
        call.fail("write config: slurmbridge writes no configuration; its file is "
                  + (call.session.views.conf.path or "the default one"))
    else:
        call.fail(f"invalid write argument:{argv[1]}")


async def _write_script(call: Call, job_text: str, path: str | None) -> None:
    digits = job_text[:len(job_text) - len(job_text.lstrip("0123456789"))]
    job_id = int(digits[:18] or "0")
    target = path if path is not None else f"slurm-{job_id}.sh"
    try:
        script = _script(call, job_id)
    except SlurmError as error:
        call.err.append(f"job script retrieval failed: {error.text}\n")
        return
    if target == "-":
        call.print(script)
        return
    data = script.encode("utf-8", "surrogateescape")
    directory = call.session.invocation.cwd.rstrip("/")
    full = target if target.startswith("/") else f"{directory}/{target}"
    try:
        await call.session.write_file(full, data)
    except OSError as error:
        call.err.append(f"failed to open file `{target}`: {error.strerror}\n")
        return
    if not call.quiet:
        call.print(f"batch script for job {job_id} written to {target}\n")


def _script(call: Call, job_id: int) -> str:
    """Raises SlurmError."""
    views, identity = call.session.views, call.session.identity
    job = views.jobs.get(job_id) or next(iter(views.array_tasks(job_id)), None)
    if job is None:
        raise SlurmError(errors.ESLURM_INVALID_JOB_ID)
    if identity.uid != job.uid and not identity.is_admin:
        raise SlurmError(errors.ESLURM_ACCESS_DENIED)
    if job.request.script is None:
        raise SlurmError(errors.ESLURM_JOB_SCRIPT_MISSING)
    return job.request.script
