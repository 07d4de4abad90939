"""``scontrol show ENTITY``: which entity an abbreviation means, and what is printed for it."""
from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from slurmbridge.commands import node_view, scontrol_assoc, scontrol_reservation, scontrol_step, scontrol_topology
from slurmbridge.commands.common import holds_task
from slurmbridge.commands.scontrol_call import Call, starts
from slurmbridge.commands.scontrol_config import config_text
from slurmbridge.commands.scontrol_job import job_text
from slurmbridge.commands.scontrol_node import node_text, partition_text
from slurmbridge.slurm.hostlist import HostlistError, parse
from slurmbridge.views.records import JobRecord, ResourceRecord

MAX_HOST_FILE = 1 << 20
AT_ONCE = 100                                     # jobs between others' turns


async def show(call: Call, argv: Sequence[str]) -> None:
    """``argv``: from the word show on."""
    keyword = argv[0]
    if len(argv) < 2:
        call.complain(f"too few arguments for keyword:{keyword}")
        return
    word, equals, value = argv[1].partition("=")
    if len(argv) > 3 and not any(starts(argv[1], name, 2) for name in ("assoc_mgr", "bbstat", "dwstat")) \
            and not starts(argv[1], "topology", 4):
        call.complain(f"too many arguments for keyword:{keyword}")
        return
    given = value if equals else argv[2] if len(argv) == 3 else None
    for name, least, act in _ENTITIES:
        if starts(word, name, least):
            await act(call, given, argv[2:])
            return
    call.complain(f"invalid entity:{word} for keyword:{keyword}")


# ----------------------------------------------------------------------------------------------------------- jobs


async def _jobs(call: Call, text: str | None, rest: Sequence[str]) -> None:
    views = call.session.views
    if text is None:
        jobs = _visible(call, list(views.jobs.values()), whole_list=True)
        if not jobs and not call.quiet:
            call.print("No jobs in the system\n")
        for place, job in enumerate(jobs):
            if place % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)            # others' turn: a job takes about 0.1 ms
            call.out.append(job_text(job, views, call.style))
        return
    if not text or any(char not in "0123456789_+" for char in text):
        call.complain("scontrol_print_job error: Invalid job id specified")
        return
    head, _, tail = text.partition("_")
    task = _leading_number(tail) if "_" in text else None
    head, plus, tail = head.partition("+")
    offset = _leading_number(tail) if plus else None
    job_id = _leading_number(head)
    if job_id == 0:
        await _jobs(call, None, rest)
        return
    found = _visible(call, _records(call, job_id), whole_list=False)
    if not found:
        call.complain("slurm_load_jobs error: Invalid job id specified")
        return
    shown = 0
    for job in found:
        if (offset is not None and job.het_offset != offset) or (task is not None and not holds_task(job, task)):
            continue
        shown += 1
        one_task = task if task is not None and job.array_pending is not None else None
        call.print(job_text(job, views, call.style, one_task))
    if not shown:
        which = f"_{task}" if task is not None else f"+{offset}" if offset is not None else ""
        call.missing(f"Job {job_id}{which} not found")


def _leading_number(text: str) -> int:
    digits = text[:len(text) - len(text.lstrip("0123456789"))]
    return int(digits[:18]) if digits else 0


def _visible(call: Call, jobs: list[JobRecord], *, whole_list: bool) -> list[JobRecord]:
    """The jobs that the controller would send the caller; of a whole list none in partitions hidden from it."""
    session = call.session
    views, identity = session.views, session.identity
    if identity.is_admin:
        return jobs
    if "jobs" in views.conf.values.get("PrivateData", "").lower().split(","):
        jobs = [job for job in jobs if job.uid == identity.uid]
    if whole_list and not call.show_all:
        seen = {partition.name for partition in node_view.visible_partitions(session, False)}
        if len(seen) != len(views.partitions):
            jobs = [job for job in jobs if seen.intersection(job.partition.split(","))]
    return jobs


def _records(call: Call, job_id: int) -> list[JobRecord]:
    """What slurmctld answers for one id: the record first, then the rest of its array or het job."""
    views = call.session.views
    job = views.jobs.get(job_id)
    if job is not None and job.het_job_id == job_id:
        return [views.jobs[one] for one in job.het_job_ids or (job_id,) if one in views.jobs]
    if job is not None and not job.array_job_id:
        return [job]
    found = [] if job is None else [job]
    return found + [one for one in views.array_tasks(job_id) if one.job_id != job_id]


# ------------------------------------------------------------------------------------------- nodes and partitions


async def _nodes(call: Call, text: str | None, rest: Sequence[str]) -> None:
    views = call.session.views
    known = {name: node for name, node in views.nodes.items() if node.base_state != "FUTURE" or call.future}
    if text is None:
        if not known and not call.quiet:
            call.print("No nodes in the system\n")
        call.out += [node_text(node, views, call.style) for node in known.values()]
        return
    names = _expanded(text)
    if names is None:
        call.complain(f"unable to parse node list {text}")
        call.err.append("scontrol: error: hostlist_shift_dims: no hostlist given\n")
        return
    for name in names:
        if name in known:
            call.print(node_text(known[name], views, call.style))
        else:
            call.missing(f"Node {name} not found")


def _expanded(text: str) -> list[str] | None:
    try:
        return list(parse(text))
    except HostlistError:
        return None


async def _partitions(call: Call, text: str | None, rest: Sequence[str]) -> None:
    found = [partition for partition in node_view.visible_partitions(call.session, call.show_all)
             if text is None or partition.name == text]
    call.out += [partition_text(partition, call.session.views, call.style) for partition in found]
    if not found and text is not None:
        call.missing(f"Partition {text} not found")
    elif not found and not call.quiet:
        call.print("No partitions in the system\n")


# ----------------------------------------------------------------------------------------------------- host lists


async def _host_names(call: Call, text: str | None, rest: Sequence[str]) -> None:
    given = call.env.get("SLURM_NODELIST") if text is None else text
    if given is None:
        call.err.append("scontrol: error: host list is empty\n")
        return
    try:
        call.out += [f"{name}\n" for name in parse(given)]
    except HostlistError as error:
        if str(error):
            call.err.append(f"scontrol: error: {error}\n")
        call.err.append(f"Invalid hostlist: {given}\n")


async def _host_list(call: Call, text: str | None, rest: Sequence[str], *, sort: bool = False) -> None:
    from slurmbridge.commands.scontrol_help import HELP
    if text is None:
        call.fail("invalid encode argument")
        call.print(HELP)
        return
    if text == "-" or text.startswith("/"):
        content = await _host_file(call, text)
        if content is None:
            return
        text = ",".join(part for part in content.replace("\n", ",").split(",") if part)
    try:
        found = parse(text)
    except HostlistError as error:
        if str(error):
            call.err.append(f"scontrol: error: {error}\n")
        call.fail(f"Invalid hostlist: {text}")
        return
    if sort:
        found.sort()
    call.print(found.ranged() + "\n")


async def _host_file(call: Call, path: str) -> str | None:
    shown = "/dev/stdin" if path == "-" else path
    try:
        raw = await call.session.read_stdin() if path == "-" else await call.session.read_file(path, MAX_HOST_FILE + 1)
    except OSError:
        call.fail(f"Can not open {shown}")
        return None
    if len(raw) >= MAX_HOST_FILE:
        call.fail(f"File {shown} is too large")
        return None
    return raw.decode("utf-8", "surrogateescape")


async def _host_list_sorted(call: Call, text: str | None, rest: Sequence[str]) -> None:
    await _host_list(call, text, rest, sort=True)


# --------------------------------------------------------------------------------------------------------- others


async def _steps(call: Call, text: str | None, rest: Sequence[str]) -> None:
    scontrol_step.show(call, text)


async def _config(call: Call, text: str | None, rest: Sequence[str]) -> None:
    call.print(config_text(call.session.views, call.style))


async def _licenses(call: Call, text: str | None, rest: Sequence[str]) -> None:
    """The site's licences, with how many running jobs asked for."""
    totals = _counts(call.session.views.conf.values.get("Licenses", ""))
    remote = {key: record for key, record in call.session.views.resources.items() if record.allowed is not None}
    totals.update({key: record.total for key, record in remote.items()})
    used: dict[str, int] = {}
    for job in call.session.views.jobs.values():
        if job.state in ("RUNNING", "SUSPENDED"):
            for name, count in _counts(job.licenses_alloc or job.request.licenses or "").items():
                used[name] = used.get(name, 0) + count
    now, reserved = call.session.now(), Counter[str]()
    for record in call.session.views.reservations.values():
        if record.start_s <= now < record.end_s and "TIME_FLOAT" not in record.flags:
            reserved.update(_counts(record.licenses))
    if not totals:
        call.print("No licenses configured in Slurm.\n")
    for name, total in sorted(totals.items()):
        if text in (None, name):
            line_end = " " if call.one_line else "\n    "
            taken = used.get(name, 0)
            call.print(f"LicenseName={name}{line_end}Total={total} Used={taken} Free={max(total - taken, 0)} "
                       f"Reserved={reserved[name]} Remote={'yes' if name in remote else 'no'}"
                       f"{_consumed(call, remote[name], line_end) if name in remote else ''}\n")


def _consumed(call: Call, record: ResourceRecord, line_end: str) -> str:
    """What others than Slurm's clusters use of a remote license, as its last update told."""
    deficit = max(record.last_consumed - record.count, 0)
    return (f"{line_end}LastConsumed={record.last_consumed} LastDeficit={deficit} "
            f"LastUpdate={call.style.show_time(record.updated_s)}")


def _counts(text: str) -> dict[str, int]:
    counts = {}
    for part in text.replace(";", ",").split(","):
        name, colon, count = part.strip().replace("*", ":").partition(":")
        if name:
            counts[name] = int(count) if colon and count.isdigit() else 1
    return counts


async def _nothing(call: Call, text: str | None, rest: Sequence[str]) -> None:
    """Entities of which there are none here: burst buffers, federations, a topology.yaml."""


async def _aliases(call: Call, text: str | None, rest: Sequence[str]) -> None:
    host = text or call.session.invocation.host or call.session.views.conf.control_host
    names = [node.name for node in call.session.views.nodes.values() if host in (node.host_name, node.name)]
    if names:
        call.print(" ".join(names) + "\n")


async def _daemons(call: Call, text: str | None, rest: Sequence[str]) -> None:
    if text is not None:
        call.complain("too many arguments for keyword:show")
        return
    call.print("slurmctld \n")


async def _slurmd(call: Call, text: str | None, rest: Sequence[str]) -> None:
    call.complain("slurm_load_slurmd_status: there are no slurmd daemons; nodes belong to the engine")


async def _assoc_mgr(call: Call, text: str | None, rest: Sequence[str]) -> None:
    scontrol_assoc.show(call, rest)


Act = Callable[[Call, str | None, Sequence[str]], Awaitable[None]]
_ENTITIES: tuple[tuple[str, int, Act], ...] = (
    ("aliases", 1, _aliases), ("bbstat", 2, _nothing), ("dwstat", 2, _nothing), ("burstbuffer", 2, _nothing),
    ("assoc_mgr", 2, _assoc_mgr), ("cache", 2, _assoc_mgr), ("config", 1, _config), ("daemons", 1, _daemons),
    ("Federations", 1, _nothing), ("hostnames", 5, _host_names), ("hostlist", 5, _host_list),
    ("hostlistsorted", 9, _host_list_sorted), ("jobs", 1, _jobs), ("jobid", 1, _jobs), ("licenses", 2, _licenses),
    ("nodes", 1, _nodes), ("partitions", 2, _partitions), ("partitionname", 2, _partitions),
    ("reservations", 1, scontrol_reservation.show), ("reservationname", 1, scontrol_reservation.show),
    ("slurmd", 2, _slurmd),
    ("steps", 2, _steps), ("topoconf", 5, _nothing), ("topology", 1, scontrol_topology.show))
