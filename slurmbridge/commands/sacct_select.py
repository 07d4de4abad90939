"""Which jobs sacct shows: filters, time window, duplicates and order, as slurmdbd and sacct apply them."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurmbridge.commands.common import Stop
from slurmbridge.commands.sacct_options import Options
from slurmbridge.commands.sacct_rows import Job, Window, add_steps, make_job
from slurmbridge.commands.sacct_words import FLAGS
from slurmbridge.slurm import array, hostlist, states
from slurmbridge.slurm.jobspec import UNLIMITED_MIN
from slurmbridge.slurm.selected_step import SelectedStep
from slurmbridge.views.associations import Tree
from slurmbridge.views.session import Session, Views

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Found:
    """Rows of the ledger, and what else is needed to choose among them."""

    rows: Sequence[Row]
    leaders: frozenset[int]                   # of heterogeneous jobs that are wanted whole
    tres_ids: Mapping[str, int]
    node_spans: Sequence[tuple[int, int]]     # when the cluster had one of the nodes asked for


async def fetch(session: Session, options: Options) -> Found:
    """All rows that may be wanted and that the caller may see."""
    views = session.views
    leaders: frozenset[int] = frozenset()
    if options.nothing or options.no_nodes:
        return Found((), leaders, {}, ())
    options.set_window()                       # slurmdbd applies the defaults once more
    filters: dict[str, Any] = {"uids": options.uids or None, "gids": options.gids or None}
    if options.jobs:
        ids = [name.job_id for name in options.jobs]
        if options.whole_het:
            leaders = await _het_leaders(views, [name.job_id for name in options.jobs
                                                 if name.task is None and name.het_offset is None])
        filters["job_ids"] = list(dict.fromkeys([*ids, *leaders]))
    elif options.start_s:
        filters["start_s"] = options.start_s
        if not options.states:
            filters["end_s"] = options.end_s
    rows = await views.ledger_query("jobs", steps=options.steps, suspensions=True, lazy=True, **filters)
    if _is_private(session, options):
        own, led = session.identity.user_name, Tree(views.accounting).coordinated(session.identity.user_name)
        rows = [row for row in rows if row["user_name"] == own or row["account"] in led]
    spans = await _node_spans(views, options) if options.nodes else ()
    return Found(rows, leaders, dict(views.accounting.tres), spans)


def choose(found: Found, options: Options, bits_length: int = array.DEFAULT_TEXT_LENGTH) -> list[Job]:
    """The jobs that were asked for, in sacct's order, with their steps where wanted. For any thread."""
    tests = list(_tests(options, found))
    chosen = [row for row in found.rows if _in_window(row, options) and all(test(row) for test in tests)]
    chosen.sort(key=lambda row: (row["job_id"], -row["submit_s"]))
    window = Window(options.start_s, options.end_s, options.now, options.truncate)
    kept = _without_duplicates(chosen, options) if not options.duplicates else chosen
    if options.nodes:
        kept = _on_nodes(options, kept, found.node_spans)
    jobs = [make_job(row, window, bits_length) for row in kept]
    jobs.sort(key=lambda job: (job.submit_s, job.array_job_id, job.array_task_id, job.job_id))
    if options.steps and options.states != [states.PENDING]:
        for job in jobs:
            _add_steps(job, options, window)
    return jobs


async def _het_leaders(views: Views, ids: Sequence[int]) -> frozenset[int]:
    """The heterogeneous jobs that jobs with these ids are components of."""
    rows = await views.ledger_query("jobs", job_ids=ids)
    return frozenset(row["het_job_id"] for row in rows if row["het_job_id"] and row["job_id"] in ids)


def _is_private(session: Session, options: Options) -> bool:
    """Whether the caller sees only the own jobs and those of coordinated accounts."""
    user = session.views.accounting.users.get(session.identity.user_name)
    if session.identity.is_admin or (user is not None and user.admin_level != "None"):
        return False
    private = session.views.conf.values.get("PrivateData", "").lower().split(",")
    return "jobs" in private or options.script or options.environment


# ---------------------------------------------------------------------------------------------------------- filters


def _tests(options: Options, found: Found) -> Iterator[Callable[[Row], bool]]:
    """What the options ask of a row."""
    if options.jobs:
        yield lambda row: row["het_job_id"] in found.leaders or any(
            _is_job(row, name, options) for name in options.jobs)
    if not options.duplicates:
        yield lambda row: row["state"] != states.REVOKED
    for key, wanted in (("account", options.accounts), ("name", options.names), ("partition", options.partitions),
                        ("qos", options.qos), ("wckey", options.wckeys), ("assoc_id", options.associations)):
        if wanted:
            yield _matching(key, frozenset(wanted))
    if options.reasons:
        yield lambda row: row.get("reason", "None") in options.reasons
    if options.constraints:
        yield lambda row: _has_constraints(row, options.constraints)
    if options.flags is not None:
        yield lambda row: _has_flags(row, options.flags or frozenset())
    if options.node_range[0]:
        yield lambda row: _in_range(row.get("alloc_nodes", len(row.get("nodes") or ())), options.node_range)
    if options.cpu_range[0]:
        yield lambda row: _in_range(filter_cpus(row.get("tres_alloc") or {}, found.tres_ids), options.cpu_range)
    if options.limit_min:
        yield lambda row: _in_range(_limit(row), (options.limit_min, options.limit_max))


def _matching(key: str, wanted: frozenset[str]) -> Callable[[Row], bool]:
    return lambda row: str(row[key]).lower() in wanted


def _has_constraints(row: Row, wanted: Sequence[str]) -> bool:
    given = str(row.get("constraints") or "").lower()
    return all(word in given for word in wanted)


def _has_flags(row: Row, wanted: frozenset[str]) -> bool:
    """Any of them; none wanted: the row must have none."""
    has = set(row["job_flags"] if "job_flags" in row else (f"Sched{row.get('scheduler', 'Main')}", FLAGS[-1])
              if row["start_s"] else FLAGS[-1:])
    return bool(has & wanted) if wanted else not has


def _in_range(value: int, wanted: tuple[int, int]) -> bool:
    low, high = wanted
    return low <= value <= high if high else value == low


def filter_cpus(tres: Mapping[str, int], ids: Mapping[str, int]) -> int:
    """What slurmdbd takes for the CPUs: the number behind the last ``1=`` of the TRES, so with GPUs (1001) it counts
    those. Kept, as scripts see it."""
    count = 0
    for name, value in sorted(tres.items(), key=lambda item: ids.get(item[0], 0)):
        if str(ids.get(name, 0)).endswith("1"):
            count = value
    return count


def _limit(row: Row) -> int:
    limit = row.get("time_limit_min")
    if limit is None:
        return 0
    return UNLIMITED_MIN if limit >= UNLIMITED_MIN else int(limit)


def _is_job(row: Row, name: SelectedStep, options: Options) -> bool:
    """The offsets of all heterogeneous jobs that were named count for each of them, as in slurmdbd's query."""
    whole_het = options.whole_het
    if name.task is not None:
        return row["array_job_id"] == name.job_id and row["array_task_id"] == name.task
    if name.het_offset is not None:
        offsets = {other.het_offset for other in options.jobs}
        return row["het_job_id"] == name.job_id and (whole_het is True or row["het_offset"] in offsets)
    if name.job_id in (row["job_id"], row["array_job_id"]):
        return True
    return row["het_job_id"] == name.job_id and whole_het is None


# ------------------------------------------------------------------------------------------------------------ window


def _in_window(row: Row, options: Options) -> bool:
    start, end = options.start_s, options.end_s
    if options.states:
        return any(_was(row, state, start, end) for state in options.states)
    eligible, ended = row["eligible_s"] or 0, row["end_s"] or 0
    if options.jobs:
        return bool(row["submit_s"] < end and (not ended or ended >= start))
    return bool(eligible and eligible < end and (not ended or ended >= start))


def _was(row: Row, state: str, start: int, end: int) -> bool:
    """Whether the job was in this state in the window (_state_time_string)."""
    if not start and not end:
        return bool(row["state"] == state)
    started, ended, eligible = row["start_s"] or 0, row["end_s"] or 0, row["eligible_s"] or 0
    if state == states.PENDING:
        waited = start < started if started else start < ended if ended else row["state"] == state
        return bool(eligible and waited and end > eligible)
    if state == states.SUSPENDED:
        return any(from_s <= end and (not to_s or to_s >= start) for from_s, to_s in row.get("suspensions") or ())
    if state == states.RUNNING:
        return bool(started and (start < ended or (not ended and row["state"] == state)) and end > started)
    return bool(row["state"] == state and ended and start <= ended <= end)


def _without_duplicates(rows: Iterable[Row], options: Options) -> list[Row]:
    """The newest row of each id. Rows come by id and descending submission; with -j Slurm also looks at array and het
    ids, and drops what came back under the id of another job."""
    kept: list[Row] = []
    last, combined = -1, 0
    for row in rows:
        if row["job_id"] == last and row["state"] != states.RESIZING:
            continue
        if options.jobs:
            together = row["array_job_id"] + row["het_job_id"]
            if last not in (row["het_job_id"], row["array_job_id"]):
                combined = together
            elif combined != together:
                continue
        kept.append(row)
        last = row["job_id"]
    return kept


async def _node_spans(views: Views, options: Options) -> list[tuple[int, int]]:
    try:
        wanted = frozenset(hostlist.expand(options.nodes))
    except hostlist.HostlistError:
        raise Stop.error("sacct", "Invalid argument") from None
    return await spans_with(views, wanted, options.start_s, options.end_s, options.now)


async def spans_with(views: Views, hosts: frozenset[str], start_s: int, end_s: int, now: int) -> list[tuple[int, int]]:
    """When the cluster had one of these nodes, as far as it touches the window."""
    events = await views.ledger_query("events", nodes=[""], start_s=start_s or None, end_s=end_s)
    return [(event["start_s"], event["end_s"] or now + 1) for event in events
            if event.get("nodes") and hosts & _hosts(event["nodes"])]


def _on_nodes(options: Options, rows: Iterable[Row], spans: Sequence[tuple[int, int]]) -> list[Row]:
    """Jobs that had one of these nodes, and that started while the cluster had one of them."""
    wanted = _hosts(options.nodes)
    return [row for row in rows if wanted & set(row.get("nodes") or ())
            and (not spans or any(first <= (row["start_s"] or 0) < last for first, last in spans))]


def _hosts(text: str) -> frozenset[str]:
    try:
        return frozenset(hostlist.expand(text))
    except hostlist.HostlistError:
        return frozenset()


def _add_steps(job: Job, options: Options, window: Window) -> None:
    steps: Sequence[Row] = job.row.get("steps") or ()
    wanted: set[str] = set()
    for name in options.jobs:
        if name.job_id not in (job.job_id, job.het_job_id, job.array_job_id):
            continue
        if name.task is not None and job.array_task_id != name.task:
            continue
        if name.het_offset is not None and job.het_offset != name.het_offset:
            continue
        if not name.step:
            job.shown = True
            break
        wanted.add(name.step.lower())
        job.shown = False
    if wanted:
        steps = [step for step in steps if str(step["step_id"]).partition("+")[0] in wanted]
    if options.nodes:
        asked = _hosts(options.nodes)
        steps = [step for step in steps if asked & set(step.get("nodes") or ())]
    add_steps(job, steps, window)
