"""sreport job Sizes…: how much time went to jobs of which size. From the jobs themselves, not from roll-ups."""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from slurmbridge.commands import sacct_select
from slurmbridge.commands import sreport_words as words
from slurmbridge.commands.common import wckey_asked
from slurmbridge.commands.sacct_options import Options
from slurmbridge.commands.sacct_rows import Job
from slurmbridge.commands.sreport_fields import Picked, pick
from slurmbridge.commands.sreport_talk import RULE, UNITS, Row, Talk, amount
from slurmbridge.slurm.columns import ColumnField
from slurmbridge.slurm.memory import leading_int
from slurmbridge.views.associations import Tree

LARGEST = 0xFFFFFFFF


@dataclass(slots=True)
class _Size:
    """Jobs of so many CPUs."""

    least: int
    most: int
    jobs: int = 0
    seconds: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Group:
    """An account, a wckey or both; ``lineage``: which jobs belong to it (None: those of its name)."""

    name: str
    sizes: list[_Size]
    lineage: str | None = None
    jobs: int = 0
    seconds: dict[str, int] = field(default_factory=dict)


async def by_account(talk: Talk, argv: Sequence[str]) -> None:
    await _report(talk, argv, "account", "cl,a")


async def by_wckey(talk: Talk, argv: Sequence[str]) -> None:
    await _report(talk, argv, "wckey", "cl,wc")


async def by_account_and_wckey(talk: Talk, argv: Sequence[str]) -> None:
    await _report(talk, argv, "both", "cl,a%-20")


async def _report(talk: Talk, argv: Sequence[str], kind: str, default: str) -> None:
    found = words.read(talk, argv, words.JOB, {"uids": []})
    talk.flat_view = talk.flat_view or "flatview" in found.flags
    talk.account_as_parent = talk.account_as_parent or "acctasparent" in found.flags
    individual, counts_jobs = "individual" in found.flags, "printjobcount" in found.flags
    grouping = found.get("grouping") or ([] if individual else ["50", "250", "500", "1000"])
    allowed = kind == "account" or talk.sees_wckeys()
    jobs = [job for job in await _jobs(talk, found) if job.elapsed_s] if allowed else []
    if not grouping:
        grouping = [str(size) for size in sorted({job.cpus for job in jobs if "cpu" in job.tres_alloc})]
        single = True
    else:
        single = False
    groups = _filled(talk, found, kind, grouping, single, jobs) if allowed else []
    picked = pick(talk, "job", found.formats or default.split(",")) if len(talk.tres) == 1 else []
    if len(talk.tres) > 1:
        talk.complain(" Job report only supports a single --tres type.\n"
                      " Generate a separate report for each TRES type.\n")
        return
    if not grouping:
        talk.complain(" We need a grouping list to set up the print.\n")
        return
    _heading(talk, found, "by Wckey " if kind == "wckey" else "", counts_jobs)
    _print(talk, picked, _size_columns(talk, grouping, individual, counts_jobs), groups, counts_jobs)


async def _jobs(talk: Talk, found: words.Conditions) -> list[Job]:
    """Every run in the window, cut to it."""
    if not words.is_here(talk, found):
        return []
    options = Options(talk.now, talk.zone)
    options.start_s, options.end_s = found.start_s, found.end_s
    options.duplicates = options.truncate = True
    options.steps = False
    options.uids = [int(uid) for uid in found.get("uids") or ()]
    options.gids = [number[0] if (number := leading_int(gid)) else 0 for gid in found.get("gid") or ()]
    options.partitions = found.get("partitions") or []
    options.wckeys = found.get("wckeys") or []
    options.associations = found.get("associations") or []
    if (asked := found.get("nodes")) is not None:
        if not asked[0] or not words.is_one_cluster(talk, found):
            return []
        options.nodes = asked[0]
    if talk.flat_view:
        options.accounts = found.get("accounts") or []
    fetched = await sacct_select.fetch(talk.session, options)
    wanted = {number[0] for word in found.get("jobs") or () if (number := leading_int(word))}
    return [job for job in sacct_select.choose(fetched, options)
            if not wanted or wanted & {job.job_id, job.array_job_id, job.het_job_id}]


# ----------------------------------------------------------------------------------------------------------- groups


def _filled(talk: Talk, found: words.Conditions, kind: str, grouping: Sequence[str], single: bool,
            jobs: Iterable[Job]) -> list[_Group]:
    """The groups that have jobs, by name, with what their jobs used."""
    tree = Tree(talk.data, with_deleted=True)
    jobs = list(jobs)
    groups: list[_Group] = []
    if not talk.flat_view or kind == "wckey":
        groups = [_Group(name, _sizes(grouping, single), lineage) for name, lineage in
                  _names(talk, tree, found, kind, jobs).items()]
    for job in jobs:
        account, wckey = str(job.row["account"]), str(job.row["wckey"])
        name = wckey if kind == "wckey" else account if kind == "account" else f"{account}:{wckey}"
        record = talk.data.associations.get(job.row["assoc_id"])
        lineage = tree.lineage(record) if record else ""
        group = next((one for one in groups if _holds(one, kind, name, lineage, wckey)), None)
        if group is None:
            if not talk.flat_view or kind == "wckey":
                continue
            group = _Group(name, _sizes(grouping, single))
            groups.append(group)
        cpus = job.tres_alloc.get("cpu")
        for size in group.sizes:
            if cpus is not None and size.least <= cpus <= size.most:
                size.jobs += 1
                group.jobs += 1
                for seconds in (size.seconds, group.seconds):
                    for tres, count in job.tres_alloc.items():
                        seconds[tres] = seconds.get(tres, 0) + count * job.elapsed_s
    return sorted((group for group in groups if group.jobs), key=lambda group: tuple(group.name.split(":", 1)))


def _sizes(grouping: Sequence[str], single: bool) -> list[_Size]:
    sizes, last = [], 0
    for word in grouping:
        number = leading_int(word)
        size = number[0] & LARGEST if number else 0
        sizes.append(_Size(size, size) if single else _Size(last, (size - 1) & LARGEST))
        last = size
    if last and not single:
        sizes.append(_Size(last, LARGEST))
    return sizes


def _names(talk: Talk, tree: Tree, found: words.Conditions, kind: str, jobs: Iterable[Job]) -> dict[str, str | None]:
    """Names of groups and their lineage, in the order in which jobs are held against them."""
    wckeys: list[str] = []
    if kind != "account":
        tracked = talk.session.views.conf.tracks_wckeys        # else there is the one without a name alone
        used = {str(job.row["wckey"]) for job in jobs} if tracked else {""}
        wckeys = sorted({name for name, _ in talk.data.wckeys.values()} | used)
        asked = found.get("wckeys")
        wckeys = [name for name in wckeys if wckey_asked(asked, name)]
    if kind == "wckey":
        return dict.fromkeys(wckeys)
    accounts = found.get("accounts")
    records = [record for record in talk.data.associations.values() if not record.deleted]
    if talk.account_as_parent:
        parents = accounts or ["root"]
        records = [record for record in records if not record.user and (above := tree.parent(record)) is not None
                   and above.account in parents]
    elif accounts:
        records = [record for record in records if record.account in accounts]
    names: dict[str, str | None] = {}
    for record in sorted(records, key=tree.lineage):
        for name in [record.account] if kind == "account" else [f"{record.account}:{wckey}" for wckey in wckeys]:
            names.setdefault(name, tree.lineage(record))
    return names


def _holds(group: _Group, kind: str, name: str, lineage: str, wckey: str) -> bool:
    if kind != "wckey" and group.lineage is not None and lineage and group.lineage in lineage:
        return kind == "account" or group.name.partition(":")[2] == wckey
    return group.name == name


# ---------------------------------------------------------------------------------------------------------- printing


def _size_columns(talk: Talk, grouping: Sequence[str], individual: bool, counts_jobs: bool) -> Picked:
    what = "CPUs" if talk.tres_text is None or _first_tres(talk).lower() == "cpu" else "TRES"
    standard = 20 if talk.unit.percent and talk.unit.divisor is not None else 13
    columns: Picked = []
    last, width = 0, standard

    def add(header: str) -> None:
        key = f"size{len(columns)}"
        columns.append((key, ColumnField(header, width, lambda row: row.get(key), "number" if counts_jobs else "text")))

    for word in grouping:
        number, _, width_text = word.partition("%")
        size = (leading_int(number) or (0, ""))[0] & LARGEST
        width = (leading_int(width_text) or (0, ""))[0] or standard
        add(f"{size} {what}" if individual else f"{last}-{(size - 1) & LARGEST} {what}")
        last = size
    if last and not individual:
        add(f">= {last} {what}")
    return columns


def _first_tres(talk: Talk) -> str:
    """What is left of -T's text once it was taken apart."""
    text = talk.tres_text or ""
    stripped = text.lstrip(",")
    return text[:len(text) - len(stripped)] + stripped.partition(",")[0]


def _heading(talk: Talk, found: words.Conditions, what: str, counts_jobs: bool) -> None:
    if talk.header:
        tres = "" if talk.tres_text is None else f"TRES type is {_first_tres(talk)}\n"
        unit = "Units are in number of jobs ran" if counts_jobs else f"Time reported in {talk.unit.label}"
        talk.say(f"{RULE}Job Sizes {what}{talk.text_of(found.start_s)} - {talk.text_of(found.end_s - 1)} "
                 f"({found.end_s - found.start_s} secs)\n{tres}{unit}\n{RULE}")


def _print(talk: Talk, picked: Picked, sizes: Picked, groups: Sequence[_Group], counts_jobs: bool) -> None:
    tres = talk.tres[0].name
    columns = [column for _, column in (*picked, *sizes)]
    columns += [ColumnField[Row]("Total Count", 11, lambda row: row.get("total")),
                ColumnField[Row]("% of cluster", 12, lambda row: row.get("share"))]
    everything = sum(group.jobs if counts_jobs else group.seconds.get(tres, 0) for group in groups)
    rows: list[Mapping[str, str | None]] = []
    for group in groups:
        seconds = group.seconds.get(tres, 0)
        row: dict[str, str | None] = {
            "cluster": talk.cluster, "account": group.name, "wckey": group.name,
            "total": str(group.jobs) if counts_jobs else talk.amount(seconds, 0),
            "share": amount(group.jobs if counts_jobs else seconds, everything, UNITS[-1])}
        for (key, _), size in zip(sizes, group.sizes):
            row[key] = str(size.jobs) if counts_jobs else talk.amount(size.seconds.get(tres, 0), seconds)
        rows.append(row)
    talk.table(columns, rows)
