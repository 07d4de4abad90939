"""sacct(1): what the ledger knows of jobs and steps, past and present."""
from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from slurmbridge.commands import sacct_fields, sacct_select
from slurmbridge.commands.common import MANY_ROWS, VERSION_LINE, Stop, command, time_texts
from slurmbridge.commands.sacct_help import HELP
from slurmbridge.commands.sacct_options import Options, parse
from slurmbridge.commands.sacct_rows import Job, Line
from slurmbridge.slurm import array, reasons, states
from slurmbridge.slurm.columns import ColumnField, ColumnPrinter
from slurmbridge.slurm.memory import leading_int
from slurmbridge.slurm.zones import Zone
from slurmbridge.views.session import Reply, Session

_STATES = (states.PENDING, states.RUNNING, states.SUSPENDED, states.COMPLETED, states.CANCELLED, states.FAILED,
           states.TIMEOUT, states.NODE_FAIL, states.PREEMPTED, states.BOOT_FAIL, states.DEADLINE, states.OUT_OF_MEMORY)
_RULE = "-" * 80


@command
async def run(argv: Sequence[str], env: Mapping[str, str], session: Session) -> Reply:
    options = Options(int(session.now()), Zone.of(env))
    try:
        parse(options, argv, env, session)
    except Stop:
        if options.completion_file is not None:        # looked at before what came after it was read
            await _check_file(options.completion_file, session)
        raise
    if options.completion_file is not None:
        await _check_file(options.completion_file, session)
    if options.ask:
        return Reply(_about(options.ask, _fields(options, env, session)[0]))
    if options.completion_file is not None:
        raise Stop(Reply("", "Slurm job completion is disabled\n", 1))
    fields, warning = _fields(options, env, session)
    columns = _columns(options.format, fields)
    if options.operands:
        lines = "".join(f"sacct: error:  {word}\n" for word in options.operands)
        said = "".join(options.warnings) + warning
        raise Stop(Reply("", f"{said}sacct: error: Unknown arguments:\n{lines}", 1))
    bits_length = array.text_length(env.get("SLURM_BITSTR_LEN"))
    printer = ColumnPrinter(columns, parsable=options.parsable, delimiter=options.delimiter, header=options.header)
    notes = "".join(options.warnings) + warning
    try:
        found = await sacct_select.fetch(session, options)
    except Stop as stop:
        raise Stop(Reply(printer.header_text(), notes + stop.reply.stderr, stop.reply.exit_code)) from None
    if options.script or options.environment:
        jobs = sacct_select.choose(found, options, bits_length)
        return Reply("".join(_text(job, options, session) for job in jobs), notes)
    if not options.steps:
        printer.columns = tuple(
            replace(column, value=column.of_job or _unset) for column in columns)  # type: ignore[arg-type]

    def print_all() -> str:
        return printer.header_text() + printer.rows(_lines(sacct_select.choose(found, options, bits_length), options))

    many = len(found.rows) > MANY_ROWS
    return Reply(await asyncio.to_thread(print_all) if many else print_all(), notes)


async def _check_file(path: str, session: Session) -> None:
    """-f: raises Stop where it is no file; of one that is, sacct says what it says of -c."""
    try:
        if not path:
            raise FileNotFoundError
        await session.read_file(path, 1)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise Stop(Reply("", f"{path} is not a valid file\n", 1)) from None
    except OSError:                            # too large, or not for this user to read
        pass


def _unset(_line: Line) -> None:
    return None


def _fields(options: Options, env: Mapping[str, str], session: Session) -> tuple[tuple[sacct_fields.Field, ...], str]:
    times, warning = time_texts("sacct", env, options.now)
    views = session.views
    style = sacct_fields.Style(
        options.now, times, views.conf.cluster_name, {name: qos.id for name, qos in views.accounting.qos.items()},
        options.units, options.keep_units, options.use_local_uid, options.expand_patterns)
    return sacct_fields.build(style), warning


def _columns(text: str, fields: Sequence[sacct_fields.Field]) -> list[sacct_fields.Field]:
    """Any beginning of a name will do (``all``: everything); a width is the field's for all its uses."""
    widths: dict[str, int] = {}
    chosen: list[str] = []
    for word in text.split(","):
        name, percent, width_text = word.lstrip(" \t\n").partition("%")
        if not name and not percent:
            continue
        found = [field.name for field in fields] if "all".startswith(name.lower()) else [
            field.name for field in fields if field.name.lower().startswith(name.lower())][:1]
        if not found:
            raise _unknown(name)
        chosen += found
        if percent:
            number = leading_int(width_text)
            widths.update(dict.fromkeys(found, number[0] if number else 0))
    by_name = {field.name: field for field in fields}
    return [replace(by_name[name], width=widths.get(name, by_name[name].width)) for name in chosen]


def _unknown(name: str) -> Stop:
    instead = {"allocgres": "AllocGRES has been removed, please use AllocTRES",
               "reqgres": "ReqGRES has been removed, please use ReqTRES"}.get(name.lower())
    return Stop.fatal("sacct", instead) if instead else Stop.error("sacct", f'Invalid field requested: "{name}"')


def _lines(jobs: Sequence[Job], options: Options) -> list[Line]:
    lines: list[Line] = []
    for job in jobs:
        if job.shown:
            if options.expand_array and job.tasks:
                lines += [replace(job, array_task_id=task, tasks=(), steps=[], id_text=f"{job.array_job_id}_{task}")
                          for task in job.tasks]
            else:
                lines.append(job)
        lines += job.steps
    return lines


def _text(job: Job, options: Options, session: Session) -> str:
    """-B and --env-vars: known while the job is, where AccountingStoreFlags says that they are kept."""
    heading = f"Batch Script for {job.id_text}" if options.script else \
        f"Environment used for {job.id_text} (must be batch to display)"
    record = session.views.jobs.get(job.job_id)
    stored = session.views.conf.values.get("AccountingStoreFlags", "").lower().split(",")
    found = ""
    if record is not None and record.db_index == job.row["db_index"]:
        if options.script and "job_script" in stored:
            found = record.request.script or ""
        elif options.environment and "job_env" in stored and record.request.batch:
            found = "".join(f"{line}\n" for line in record.request.environment)
    return (f"{heading}\n{_RULE}\n" if options.header else "") + (found or "NONE\n")


def _about(ask: str, fields: Sequence[ColumnField[Line]]) -> str:
    if ask == "V":
        return VERSION_LINE
    if ask == "U":
        return "Usage: sacct [options]\n\tUse --help for help\n"
    if ask == "h":
        return HELP
    if ask == "helpreason":
        return _table(reasons.REASONS, 39, 2)
    return _table([field.name for field in fields] if ask == "e" else _STATES, 19, 4)


def _table(words: Sequence[str], width: int, per_line: int) -> str:
    lines = [" ".join(f"{word:<{width}}" for word in words[start:start + per_line])
             for start in range(0, len(words), per_line)]
    return "\n".join(lines) + "\n"
