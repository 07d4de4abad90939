"""squeue: the jobs in the queue, or their steps (squeue(1))."""
from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from slurmbridge.commands import squeue_options
from slurmbridge.commands.common import MANY_ROWS, Stop, TimeTexts, command, date_line, records_of
from slurmbridge.commands.squeue_fields import WHOLE_HEADERS, Shown, job_fields
from slurmbridge.commands.squeue_options import NAME, Options
from slurmbridge.commands.squeue_rows import (
    ArrayTexts,
    Row,
    combine_pending,
    creation_order,
    in_queue,
    is_in_state,
    make_row,
    one_by_one,
    per_partition,
    state_alone,
    time_used,
    wanted_bits,
)
from slurmbridge.commands.squeue_sort import SortError, sort_rows
from slurmbridge.commands.squeue_steps import FORMAT as STEP_FORMAT
from slurmbridge.commands.squeue_steps import LEFT_HEADERS, StepRow, is_wanted, running_steps, sort_steps, step_fields
from slurmbridge.commands.squeue_verbose import verbose_text
from slurmbridge.slurm import errors
from slurmbridge.slurm.format import ListField, ListLayout, parse_letters, parse_names
from slurmbridge.slurm.states import RUNNING
from slurmbridge.slurm.tres import order_key
from slurmbridge.views.records import JobRecord
from slurmbridge.views.session import Reply, Session

USUAL = ("jobarrayid:.18 ,partition:.9 ,name:.8 ,username:.8 ,statecompact:.2 ,timeused:.10 ,numnodes:.6 ,reasonlist:0")
LONG = ("jobarrayid:.18 ,partition:.9 ,name:.8 ,username:.8 ,state:.8 ,timeused:.10 ,timelimit:.9 ,numnodes:.6 ,"
        "reasonlist:0")
ONLY_STATE = "%.18i %.2t"
R = TypeVar("R")


@command
async def run(argv: Sequence[str], env: Mapping[str, str], session: Session) -> Reply:
    """One table, or one every ``--iterate`` seconds until the caller goes."""
    options = squeue_options.parse(argv, env, session)
    if options.array:
        env = {**env, "SLURM_BITSTR_LEN": "0"}
    before = verbose_text(options) if options.verbose else ""
    while True:
        reply = await _once(options, env, session, before)
        if not options.iterate_s:
            return reply
        if reply.stderr:
            await session.write_stderr(reply.stderr)
        await session.write_stdout(reply.stdout + "\n")
        if reply.exit_code and reply.stderr.startswith(f"{NAME}: error: Invalid sort"):
            return Reply("", "", reply.exit_code)
        before = ""
        await session.sleep(options.iterate_s)


async def _once(options: Options, env: Mapping[str, str], session: Session, before: str) -> Reply:
    now_s = session.now()
    show_time = TimeTexts(NAME, env, now_s)
    conf = session.views.conf
    shown = Shown(now_s, show_time, options.keep_units, options.expand, "SLURM_BITSTR_LEN" in env, conf.cluster_name,
                  order_key(conf.accounting_storage_tres),
                  {name: partition.max_time_min for name, partition in session.views.partitions.items()})
    head = before
    if not options.noheader:
        if options.iterate_s or options.verbose or options.long:
            head += date_line(env, now_s)
        if options.clusters is not None:
            head += f"CLUSTER: {conf.cluster_name}\n"
    notes = options.notes
    try:
        if options.step_flag:
            out, more = _steps(options, session, shown)
        else:
            out, more = await _jobs(options, session, shown, ArrayTexts.of(env))
    except Stop as stop:
        return Reply(head + stop.reply.stdout, notes + show_time.warning + stop.reply.stderr, stop.reply.exit_code)
    return Reply(head + out, notes + more + show_time.warning)


def _layout(table: Sequence[ListField[R]], letters: str | None, names: str, what: str) -> tuple[ListLayout[R], str]:
    """The layout, and a line for standard error for each field that there is not."""
    layout = parse_names(names, table) if letters is None else parse_letters(letters, table, all_tail="")
    return layout, "".join(f"{NAME}: error: Invalid {what} format specification: {word}\n" for word in layout.invalid)


def _header(layout: ListLayout[R], left: frozenset[str] = frozenset()) -> str:
    """The first line. Headers are cut to their columns even where values are not. ``left``: never at the right."""
    columns = [replace(column, field=replace(column.field, cut=column.field.name not in WHOLE_HEADERS),
                       right=column.right and column.field.name not in left)
               if column.field else column for column in layout.columns]
    return ListLayout(columns).header()


# ---------------------------------------------------------------------------------------------------------- jobs


async def _jobs(options: Options, session: Session, shown: Shown, texts: ArrayTexts) -> tuple[str, str]:
    jobs = visible_jobs(options, session)
    out = ""
    if options.verbose and not options.only_state:
        one = len(options.wanted or ()) == 1 or (len(options.uids or ()) == 1 and options.uids != [0])
        out += f"last_update_time={0 if one else int(shown.now_s)} records={len(jobs)}\n"
    layout, notes = _layout(job_fields(shown), ONLY_STATE if options.only_state and options.format_long is None
                            and options.format is None else options.format,
                            options.format_long or (LONG if options.long else USUAL), "job")
    if not options.noheader:
        out += _header(layout)
    is_shown, every_partition = partition_filter(options), options.partitions is None
    passes = job_filter(options, session, shown.now_s)
    rows: list[Row] = []
    for start in range(0, len(jobs), MANY_ROWS):
        if start:
            await asyncio.sleep(0)            # others' turn
        for job in jobs[start:start + MANY_ROWS]:
            picked = -1 if options.wanted is None else wanted_bits(job, options.wanted)
            if not picked or not passes(job):
                continue
            if options.only_state:
                row = make_row(state_alone(job), picked, texts, plain=True)
            else:
                row = make_row(job, picked, texts)
            if options.priority:
                rows += per_partition(row, session.views.partitions, is_shown)
            elif every_partition or is_shown(row.partition):
                rows.append(row)
    if not options.array:
        rows = combine_pending(rows, texts)
    try:
        rows, more = sort_rows(rows, options.sort, shown.now_s)
    except SortError as error:
        letter, said = error.args
        raise Stop(Reply(out, f"{notes}{said}{NAME}: error: Invalid sort specification: {letter}\n", 1)) from None
    if options.array:
        rows = one_by_one(rows)
    printed = [out]
    for start in range(0, len(rows), MANY_ROWS):
        if start:
            await asyncio.sleep(0)
        printed.append(layout.rows(rows[start:start + MANY_ROWS]))
    return "".join(printed), notes + more


def visible_jobs(options: Options, session: Session) -> Sequence[JobRecord]:
    """The jobs that the controller would send. Raises Stop where one job was asked for and there is none."""
    views, identity = session.views, session.identity
    single = options.wanted is not None and len(options.wanted) == 1 and not options.only_state
    if options.wanted and single:
        jobs = creation_order(sorted(records_of(views, options.wanted[0].job_id), key=lambda job: job.job_id))
    else:
        jobs = creation_order(list(views.jobs.values()))
    if not identity.is_admin:
        if "jobs" in views.conf.values.get("PrivateData", "").lower().split(","):
            jobs = [job for job in jobs if job.uid == identity.uid]
        if not options.all and not options.wanted:
            seen = {name for name, part in views.partitions.items() if not part.hidden and (
                part.allow_groups is None or identity.group_name in part.allow_groups)}
            if len(seen) != len(views.partitions):
                jobs = [job for job in jobs if seen.intersection(job.partition.split(","))]
    if single and not jobs:
        raise Stop(Reply("", f"slurm_load_jobs error: {errors.strerror(errors.ESLURM_INVALID_JOB_ID)}\n", 1))
    return jobs


def partition_filter(options: Options) -> Callable[[str], bool]:
    """-p: whether one of a job's partitions is meant."""
    if options.partitions is None:
        return lambda partition: True
    meant = frozenset(filter(None, options.partitions.split(",")))
    return lambda partition: not meant.isdisjoint(partition.split(","))


def job_filter(options: Options, session: Session, now_s: float) -> Callable[[JobRecord], bool]:
    """All filters but -j and -p as one question."""
    tests: list[Callable[[JobRecord], bool]] = []
    if options.state_list is not None:
        states = options.state_list
        tests.append(lambda job: any(is_in_state(job, state) for state in states))
    elif not options.all_states:
        tests.append(in_queue)
    if options.uids is not None:
        uids = frozenset(options.uids)
        tests.append(lambda job: job.uid in uids)
    if options.notme:
        own = session.identity.uid
        tests.append(lambda job: job.uid != own)
    for text, value in ((options.accounts, lambda job: job.account), (options.qos, lambda job: job.qos),
                        (options.names, lambda job: job.name)):
        if text is not None:
            tests.append(_is_one_of(text, value))
    if options.licenses is not None:
        licenses = frozenset(filter(None, options.licenses.split(",")))
        tests.append(lambda job: any(word.partition(":")[0] in licenses
                                     for word in (job.request.licenses or "").split(",") if word))
    if options.reservation is not None:
        reservations = frozenset(filter(None, options.reservation.split(",")))
        tests.append(lambda job: not reservations.isdisjoint((job.request.reservation or "").split(",")))
    if options.node_set is not None:
        nodes = options.node_set
        tests.append(lambda job: not nodes.isdisjoint(job.nodes))
    if options.over_s:
        over = options.over_s
        tests.append(lambda job: job.state == RUNNING and time_used(job, now_s) >= over)
    if options.under_s:
        under = options.under_s
        tests.append(lambda job: job.state == RUNNING and time_used(job, now_s) < under)
    if len(tests) == 1:
        return tests[0]
    return lambda job: all(test(job) for test in tests)


def _is_one_of(text: str, value: Callable[[JobRecord], str]) -> Callable[[JobRecord], bool]:
    meant = frozenset(word.lower() for word in text.split(",") if word)
    return lambda job: value(job).lower() in meant


# --------------------------------------------------------------------------------------------------------- steps


def _steps(options: Options, session: Session, shown: Shown) -> tuple[str, str]:
    every = list(running_steps(visible_jobs(replace(options, wanted=None), session)))
    out = f"last_update_time={int(shown.now_s)} records={len(every)}\n" if options.verbose else ""
    letters = STEP_FORMAT if options.format is None and options.format_long is None else options.format
    layout, notes = _layout(step_fields(shown), letters, options.format_long or "", "job step")
    if not options.noheader:
        out += _header(layout, LEFT_HEADERS)
    is_shown = partition_filter(options)

    def passes(row: StepRow) -> bool:
        return ((options.wanted is None or is_wanted(row, options.wanted))
                and (options.wanted_steps is None or is_wanted(row, options.wanted_steps))
                and is_shown(row.job.partition)
                and (options.node_set is None or not options.node_set.isdisjoint(row.step.nodes))
                and (options.uids is None or row.job.uid in options.uids))

    rows = [row for row in every if passes(row)]
    notes += sort_steps(rows, options.sort, shown.now_s)
    return out + layout.rows(rows), notes
