"""What ``slurmbridge status``, ``down``, ``import`` and ``report`` ask of a controller: a command of its socket."""
from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from slurmbridge import __version__
from slurmbridge.api.session import ClientSession
from slurmbridge.commands import table_writers, usage_report
from slurmbridge.slurm import durations, states
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.slurm.zones import Zone
from slurmbridge.views.session import Reply

USAGE_LIMIT = IMPORT_LIMIT = 64 << 20
IMPORTS = ("events", "reservations", "history")


class UsageFileError(ValueError):
    """The file is no output of ``sshare -alP``. ``str()`` is one line."""


def parse_usage(text: str) -> list[tuple[str, str, float]]:
    """(account, user, raw usage) of every user row; columns are found by their names."""
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise UsageFileError("the file is empty")
    header = [name.strip().lower() for name in lines[0].split("|")]
    try:
        account, user, usage = (header.index(name) for name in ("account", "user", "rawusage"))
    except ValueError:
        raise UsageFileError("no header with Account|User|RawUsage (sshare -alP prints it)") from None
    rows = []
    for number, line in enumerate(lines[1:], 2):
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) <= max(account, user, usage):
            raise UsageFileError(f"line {number}: {len(cells)} columns for {len(header)}")
        if not cells[user]:
            continue
        try:
            rows.append((cells[account], cells[user], float(cells[usage] or 0)))
        except ValueError:
            raise UsageFileError(f"line {number}: RawUsage {cells[usage]!r} is no number") from None
    return rows


async def run(argv: Sequence[str], env: Mapping[str, str], session: ClientSession) -> Reply:
    """``status``, ``shutdown``, ``logs JOB follow|all``, ``import-usage FILE``, ``import-KIND FILE [FILE]``,
    ``health-VERB …`` or ``report-usage …``."""
    what = argv[0] if argv else ""
    if what == "status":
        return Reply(stdout=status_text(session))
    if what == "shutdown":
        try:
            await session.acts.shutdown(session.identity)
        except SlurmError as error:
            return Reply(stderr=f"slurmbridge: {error}\n", exit_code=1)
        return Reply(stdout=f"{os.getpid()}\n")
    if what == "import-usage" and len(argv) == 2:
        try:
            rows = parse_usage((await session.read_file(argv[1], USAGE_LIMIT)).decode("utf-8", "replace"))
            await session.acts.import_usage(session.identity, rows)
        except OSError as error:
            return Reply(stderr=f"slurmbridge: {argv[1]}: {error.strerror}\n", exit_code=1)
        except (UsageFileError, SlurmError) as error:
            return Reply(stderr=f"slurmbridge: {argv[1]}: {error}\n", exit_code=1)
        return Reply(stdout=f"usage of {len(rows)} associations imported\n")
    if what.startswith("health-"):
        try:
            verb = what.removeprefix("health-")
            return Reply(stdout=await session.acts.health(session.identity, verb, argv[1:]))
        except SlurmError as error:
            return Reply(stderr=f"slurmbridge: {error}\n", exit_code=1)
    if what == "logs" and len(argv) == 3:
        return await _logs(argv[1], argv[2] == "follow", session)
    if what == "report-usage" and len(argv) == 7:
        return await _report_usage(argv[1:], env, session)
    if what.removeprefix("import-") in IMPORTS and len(argv) in (2, 3):
        return await _import(what.removeprefix("import-"), argv[1:], env, session)
    return Reply(stderr=f"slurmbridge: unknown request {what!r}\n", exit_code=1)


async def _logs(job: str, follow: bool, session: ClientSession) -> Reply:
    try:
        async for piece in await session.acts.output(session.identity, job, follow=follow):
            await session.write_stdout(piece.decode("utf-8", "surrogateescape"))
    except (SlurmError, LookupError) as error:
        return Reply(stderr=f"slurmbridge: job {job}: {error.args[0] if type(error) is LookupError else error}\n",
                     exit_code=1)
    except ConnectionError:
        raise
    except OSError as error:
        return Reply(stderr=f"slurmbridge: job {job}: {error.strerror}\n", exit_code=1)
    return Reply()


async def _report_usage(words: Sequence[str], env: Mapping[str, str], session: ClientSession) -> Reply:
    """By, start, end, TRES, format and file ("": standard output)."""
    by, start, end, tres, form, path = words
    zone = Zone.of(env)
    try:
        asked = usage_report.question(by, start, end, tres, session, zone)
        if form not in table_writers.FORMATS:
            raise usage_report.ReportError(f"--format {form}: one of {', '.join(table_writers.FORMATS)}")
        if form == "parquet" and not path:
            raise usage_report.ReportError("parquet goes to a file (-o FILE)")
        content = table_writers.write(await usage_report.answer(session, asked), form)
        if not path:
            head = f"usage {usage_report.window_text(asked, zone)}\n" if form == "table" else ""
            return Reply(head + content.decode())
        await session.write_file(path, content)
    except (usage_report.ReportError, table_writers.WriterMissing) as error:
        return Reply(stderr=f"slurmbridge: {error}\n", exit_code=1)
    except OSError as error:
        return Reply(stderr=f"slurmbridge: {path}: {error.strerror}\n", exit_code=1)
    return Reply()


async def _import(kind: str, paths: Sequence[str], env: Mapping[str, str], session: ClientSession) -> Reply:
    """Records of another Slurm: the file, and the one that explains it where there is one."""
    texts = []
    for path in paths:
        try:
            texts.append((await session.read_file(path, IMPORT_LIMIT)).decode("utf-8", "surrogateescape"))
        except OSError as error:
            return Reply(stderr=f"slurmbridge: {path}: {error.strerror}\n", exit_code=1)
    more = texts[1] if len(texts) > 1 else ""
    try:
        return Reply(stdout=await session.acts.import_records(session.identity, kind, texts[0], more, Zone.of(env)))
    except SlurmError as error:
        return Reply(stderr=f"slurmbridge: {paths[0]}: {error}\n", exit_code=1)


def status_text(session: ClientSession) -> str:
    """A few lines on the controller."""
    views: Any = session.views
    jobs = list(views.jobs.values())
    running = sum(1 for job in jobs if job.state in (states.RUNNING, states.SUSPENDED))
    pending = sum((job.array_pending or 1).bit_count() if job.array_pending else 1
                  for job in jobs if job.state == states.PENDING)
    ended = sum(1 for job in jobs if job.state in states.FINISHED)
    usable = sum(1 for node in views.nodes.values() if node.base_state == "IDLE" and "DRAIN" not in node.flags)
    up_s = int(session.now() - views.boot_s)
    up = durations.format_seconds(max(0, up_s))
    return (f"slurmbridge {__version__}: cluster {views.accounting.cluster}, up {up}, pid {os.getpid()}\n"
            f"nodes: {usable} of {len(views.nodes)} usable\n"
            f"jobs: {running} running, {pending} pending, {ended} ended lately\n")
