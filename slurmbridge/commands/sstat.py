"""sstat(1): what the steps that run have used up to now."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from slurmbridge.commands import sstat_fields
from slurmbridge.commands.common import VERSION_LINE, Stop, command, records_of
from slurmbridge.commands.sacct_rows import Stats
from slurmbridge.commands.scontrol_step import running_steps, step_name
from slurmbridge.commands.sstat_fields import LiveStep
from slurmbridge.slurm.columns import ColumnField, ColumnPrinter, UnknownField, pick_column, split_names
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.slurm.getopt import OptionTable, Parser, completions, long_options
from slurmbridge.slurm.selected_step import SelectedStep, StepSpecError, listed_steps
from slurmbridge.views.records import JobRecord, StepRecord
from slurmbridge.views.session import Reply, Session

FIELDS = (
    "jobid,alloctres,maxvmsize,maxvmsizenode,maxvmsizetask,avevmsize,maxrss,maxrssnode,maxrsstask,averss,maxpages,"
    "maxpagesnode,maxpagestask,avepages,mincpu,mincpunode,mincputask,avecpu,ntasks,avecpufreq,reqcpufreqmin,"
    "reqcpufreqmax,reqcpufreqgov,consumedenergy,maxdiskread,maxdiskreadnode,maxdiskreadtask,avediskread,maxdiskwrite,"
    "maxdiskwritenode,maxdiskwritetask,avediskwrite,tresusageinave,tresusageinmax,tresusageinmaxn,tresusageinmaxt,"
    "tresusageinmin,tresusageinminn,tresusageinmint,tresusageintot,tresusageoutave,tresusageoutmax,tresusageoutmaxn,"
    "tresusageoutmaxt,tresusageoutmin,tresusageoutminn,tresusageoutmint,tresusageouttot")
PID_FIELDS = "jobid,nodelist,pids"
USAGE = "Usage: sstat [options] -j <job(.stepid)>\n\tUse --help for help\n"
HELP = """\
sstat [<OPTION>] -j <job(.stepid)>
    -a, --allsteps     all running steps of the jobs, where no step is named
    -e, --helpformat   names of the fields of --format
    -h, --help         this text
    -i, --pidformat    node by node, the processes of each step
    -j, --jobs         jobs or steps (12, 12.0, 12.batch), separated by commas; without a step the first numbered one
    -n, --noheader     no heading
        --noconvert    numbers in their own units
    -o, --format       fields, separated by commas; NAME%WIDTH sets the width
    -p, --parsable     fields end with "|"
    -P, --parsable2    fields are separated by "|"
        --usage        how to call it, in short
    -v, --verbose      say more
    -V, --version      the version
"""
_SPECIAL = frozenset({"batch", "extern", "interactive"})
_ORDER = {"extern": -3, "batch": -2, "interactive": -1}
TABLE = OptionTable("aehij:no:pPvV", long_options("""
    autocomplete= allsteps:a helpformat:e help:h jobs=:j noheader:n fields=:o format=:o noconvert pidformat:i parsable:p
    parsable2:P usage verbose:v version:V"""))


@command
async def run(argv: Sequence[str], env: Mapping[str, str], session: Session) -> Reply:
    given: dict[str, str] = {}
    jobs: list[SelectedStep] = []
    parser = Parser("sstat", argv, TABLE, permute=True)
    while (found := parser.next()) is not None:
        key, value = found
        if key == "?":
            raise Stop(Reply("", f"{parser.error}\n", 1))
        if key == "V":
            return Reply(VERSION_LINE)
        if key == "autocomplete":
            return Reply(completions(TABLE.long, value or ""))
        if key == "j":
            jobs += _selected(value or "")
        elif key in ("o", "i"):
            given["fields"] = given.get("fields", "") + (PID_FIELDS if key == "i" else value or "") + ","
        given[key] = value or ""
    table = sstat_fields.fields(keep_units="noconvert" in given)
    if given.keys() & {"h", "e", "usage"}:
        return Reply(HELP if "h" in given else USAGE if "usage" in given else _names([one.name for one in table]))
    jobs += _selected(parser.operands[0]) if parser.operands else []
    try:
        columns = _columns(given.get("fields") or FIELDS, table)
    except UnknownField as error:
        raise Stop.error("sstat", f'Invalid field requested: "{error}"') from None
    if not jobs:
        raise Stop.error("sstat", "You didn't give me any jobs to stat.")
    rows: list[LiveStep] = []
    errors: list[str] = []
    for name in dict.fromkeys(jobs):
        try:
            rows += await _steps(name, session, all_steps="a" in given, by_node="i" in given)
        except LookupError as error:
            errors.append(f"sstat: error: {error.args[0]}\n")
    parsable = "p" if "p" in given else "P" if "P" in given else ""
    printer = ColumnPrinter(columns, parsable=parsable, delimiter="|", header="n" not in given)
    return Reply(printer.header_text() + printer.rows(rows), "".join(errors))


def _columns(text: str, table: Sequence[ColumnField[LiveStep]]) -> list[ColumnField[LiveStep]]:
    """A width is the field's for all its uses; width 0 is none. Raises UnknownField."""
    chosen = [(pick_column(word, table), "%" in word) for word in split_names(text)]
    widths = {column.name: column.width for column, given in chosen if given and column.width}
    usual = {column.name: column.width for column in table}
    return [replace(column, width=widths.get(column.name, usual[column.name])) for column, _ in chosen]


def _selected(text: str) -> list[SelectedStep]:
    try:
        return listed_steps(text)
    except StepSpecError as error:
        raise Stop.fatal("sstat", str(error)) from None


async def _steps(name: SelectedStep, session: Session, *, all_steps: bool, by_node: bool) -> list[LiveStep]:
    """Raises LookupError with what sstat says."""
    jobs = _jobs(name, session)
    if not jobs:
        raise LookupError(f"couldn't get steps for JobId={name.job_id}")
    steps = sorted(((job, step) for job in jobs for step in running_steps(job) if name.step in ("", step.step_id)),
                   key=lambda pair: _ORDER.get(pair[1].step_id, 0))
    if not steps:
        raise LookupError(f"StepId={name.job_id}.{name.step} not found running." if name.step
                          else f"No steps running for job {name.job_id}")
    if not name.step and not all_steps:
        steps = [pair for pair in steps if pair[1].step_id not in _SPECIAL][:1]
    rows = []
    for job, step in steps:
        try:
            live = await session.acts.look_at_steps(session.identity, job.job_id)
        except SlurmError as error:
            raise LookupError(
                f"problem getting step_layout for StepId={step_name(job, step)}: {error.text}") from None
        rows.append(_row(job, step, live.get(step.step_id, {})))
    return [part for row in rows for part in row.nodes_apart()] if by_node else rows


def _jobs(name: SelectedStep, session: Session) -> list[JobRecord]:
    """The jobs that go by this id, whatever task or offset is named: of an array all, of a heterogeneous job the
    leader's component. (As Slurm's sstat; a step is looked for in the one job of this number.)"""
    if not name.job_id:
        return [job for job in session.views.jobs.values() if job.steps]
    return [job for job in records_of(session.views, name.job_id)
            if job.job_id == name.job_id or not (job.het_job_id or name.step)]


def _row(job: JobRecord, step: StepRecord, live: Mapping[str, Any]) -> LiveStep:
    """A step that nobody has looked at (extern) shows no figures."""
    nothing = Stats(in_ave={"energy": 0}, in_tot={"energy": 0}, out_ave={"energy": 0}, out_tot={"energy": 0})
    special = step.step_id in _SPECIAL
    tres = {} if special else {name: count for name, count in step.tres.items() if name != "billing"}
    return LiveStep(
        f"{job.job_id}.{step.step_id}", tres, tuple(step.nodes), int(live.get("num_tasks", step.num_tasks)),
        live.get("pids") or {}, int(live.get("cpu_khz", 0)),
        Stats(**live["stats"]) if "stats" in live else nothing, special)


def _names(names: Sequence[str]) -> str:
    lines = [" ".join(f"{name:<19}" for name in names[start:start + 4]) for start in range(0, len(names), 4)]
    return "\n".join(lines) + "\n"
