"""sprio: the factors that make the priorities of pending jobs (sprio(1))."""
from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cmp_to_key
from typing import Any

from slurmbridge.commands.common import (
    MANY_ROWS,
    VERSION_LINE,
    Stop,
    check_clusters,
    command,
    parse_job_name,
    parse_options,
    uid_of,
)
from slurmbridge.commands.sprio_columns import FACTORS, FIELDS, TEXTS, Table
from slurmbridge.slurm.format import ListLayout, parse_letters
from slurmbridge.slurm.getopt import OptionTable, long_options
from slurmbridge.slurm.settings import PrioritySettings
from slurmbridge.views.session import Reply, Session

_EPSILON = 1e-5                               # doubles closer than this sort as equal

_OPTIONS = OptionTable("hj::lM:no:S:p:u:vVw", long_options("""
    autocomplete= noheader:h jobs=?:j long:l cluster=:M clusters=:M norm:n format=:o sort=:S partition=:p user=:u
    users=:u verbose:v version:V weights:w federation help helpformat local sib:sibling sibling usage"""))

_USAGE = ("Usage: sprio [-j jid[s]] [-u user_name[s]] [-o format] [-p partitions]\n"
          "   [--federation] [--local] [--sibling] [--usage] [-hlnvVw]\n")
_HELP = """Usage: sprio [OPTIONS]
  -h, --noheader           no header
  -j, --jobs=LIST          only these jobs
  -l, --long               all factors
  -M, --cluster=NAME       the cluster to ask
  -n, --norm               factors between 0 and 1 instead of weighted ones
  -o, --format=FORMAT      the columns, as %[.][width]letter
  -p, --partition=LIST     only jobs in these partitions
  -S, --sort=LETTERS       the order, by letters of --format
  -u, --user=LIST          only jobs of these users
  -v, --verbose            show the options first
  -V, --version            the version
  -w, --weights            the weights of the factors
      --federation, --local, --sibling   which clusters of a federation to show
      --help, --helpformat, --usage      this text, the letters of --format, the options in short
"""


@dataclass(slots=True)
class _Request:
    """The command line and the environment."""

    header: bool = True
    job_flag: bool = False
    jobs: str | None = None
    job_ids: list[int] | None = None
    long: bool = False
    normalized: bool = False
    format: str | None = None
    sort: str = "i"
    partitions: str | None = None
    users: str | None = None
    uids: list[int] | None = None
    verbose: int = 0
    weights: bool = False
    local: bool = False
    sibling: bool = False
    federation: bool = False
    shown: str = ""                           # what -v prints
    said: str = ""                            # standard error so far


_LETTERS = "aAbBcfFijJnNopPrSqQuyYtT"         # in the order of --helpformat


def _job_ids(text: str) -> list[int]:
    ids = []
    for word in filter(None, text.split(",")):
        name = parse_job_name(word)
        if name is None or (name.tasks is not None and "[" in word):
            raise Stop.error("sprio", f"Invalid job id: {word}")
        ids.append(name.job_id + (name.het_offset or 0))
    return ids


def _uids(text: str, request: _Request) -> list[int]:
    """Uids of the users that exist; the others are reported and left out."""
    uids = []
    for word in filter(None, text.split(",")):
        uid = uid_of(word, known=True)
        if uid is None:
            request.said += f"sprio: error: Invalid user: {word}\n\n"
        else:
            uids.append(uid)
    return uids


def _help_format() -> str:
    rows = [_LETTERS[at:at + 8] for at in range(0, len(_LETTERS), 8)]
    return "".join("".join(f"%{letter:<5}" for letter in row) + "\n" for row in rows)


def _read(argv: Sequence[str], env: Mapping[str, str], own_cluster: str) -> _Request:
    """Command line and environment. Raises Stop for mistakes and for options that only print something."""
    request = _Request(local="SPRIO_LOCAL" in env or "SLURM_CLUSTERS" in env, sibling="SPRIO_SIBLING" in env,
                       federation="SPRIO_FEDERATION" in env)
    try:
        clusters = _read_options(request, argv, env)
        if request.verbose:
            request.shown = _shown_options(request)
        if clusters is not None:
            request.said += check_clusters("sprio", clusters, own_cluster, federation=request.federation)
    except Stop as stop:
        raise Stop(replace(stop.reply, stdout=request.shown + stop.reply.stdout,
                           stderr=request.said + stop.reply.stderr)) from None
    return request


def _read_options(request: _Request, argv: Sequence[str], env: Mapping[str, str]) -> str | None:
    """The clusters that were named."""
    clusters = env.get("SLURM_CLUSTERS")
    operands: list[str] = []
    for key, value in parse_options("sprio", argv, _OPTIONS, operands=operands):
        text = value or ""
        if key == "h":
            request.header = False
        elif key == "j":
            request.job_flag = True
            if value is not None:
                request.jobs, request.job_ids = value, _job_ids(value)
        elif key == "l":
            request.long = True
        elif key == "M":
            clusters, request.local = text, True
        elif key == "n":
            request.normalized = True
        elif key == "o":
            request.format = text
        elif key == "S":
            request.sort = text
        elif key == "p":
            request.partitions = text
        elif key == "u":
            request.users, request.uids = text, _uids(text, request)
        elif key == "v":
            request.verbose += 1
        elif key == "V":
            raise Stop(Reply(VERSION_LINE))
        elif key == "w":
            request.weights = True
        elif key in ("local", "federation"):
            setattr(request, key, True)
        elif key == "sibling":
            request.sibling = True
        elif key in ("help", "usage", "helpformat"):
            raise Stop(Reply({"help": _HELP, "usage": _USAGE, "helpformat": _help_format()}[key]))
    if request.long and request.format is not None:
        raise Stop.fatal("sprio", "Options -o(--format) and -l(--long) are mutually exclusive. "
                                  "Please remove one and retry.")
    if not request.long and request.format is None:
        request.format = env.get("SPRIO_FORMAT")
    if operands and request.job_flag:
        request.jobs = operands.pop(0)
        request.job_ids = _job_ids(request.jobs)
    if operands:
        raise Stop(Reply(_USAGE, f"sprio: error: Unrecognized option: {operands[0]}\n", 1))
    return clusters


def _default_format(request: _Request, settings: PrioritySettings) -> str:
    """The columns of the factors that have a weight, or all of them with -l."""
    if request.long and request.normalized:
        return "%.15i %9r %.8u %.8o %10y %10a %10b %10f %10j %10p %10n %10q %20t"
    if request.long:
        return "%.15i %9r %.8u %.8o %.10Y %.10S %.10A %.10B %.10F %.10J %.10P %.10n %.10Q %.11N %.20T"
    parts = ["%.15i", "%9r"]
    if request.sibling and not request.local:
        parts.append("%.8c")
    if request.users is not None:
        parts.append("%.8u")
    normalized = request.normalized
    parts += ["%10y"] if normalized else ["%.10Y", "%.10S"]
    parts += [f"%10{letter}" if normalized else f"%.10{letter.upper()}"
              for letter, _, _, weight in FACTORS if weight(settings)]
    if settings.weight_tres_text:
        parts.append("%20t" if normalized else "%.20T")
    return " ".join(parts)


def _shown_options(request: _Request) -> str:
    """What -v prints first."""
    dashes = "-----------------------------\n"
    lines = [f"format     = {request.format or '(null)'}\n", f"job_flag   = {int(request.job_flag)}\n",
             f"jobs       = {request.jobs or '(null)'}\n", f"partition  = {request.partitions or '(null)'}\n",
             f"users      = {'(null)' if request.users is None else request.users}\n",
             f"verbose    = {request.verbose}\n"]
    if request.verbose > 1:
        lines += [f"job_list[{n}] = {job_id}\n" for n, job_id in enumerate(request.job_ids or ())]
        lines += [f"user_list[{n}] = {uid}\n" for n, uid in enumerate(request.uids or ())]
    return dashes + "".join(lines) + dashes + "\n\n"


def _close(first: float, second: float) -> int:
    return 0 if abs(first - second) < _EPSILON else -1 if first < second else 1


_TEXT_KEYS: dict[str, Callable[[Table], Sequence[Any]]] = {
    "c": lambda table: [""] * len(table), "i": lambda table: table.columns["job_id"],
    "N": lambda table: [0 if fixed else nice for nice, fixed in zip(table.columns["nice"], table.fixed)],
    "n": lambda table: table.columns["qos_name"], "o": lambda table: table.columns["account"],
    "r": lambda table: table.columns["partition"], "u": lambda table: table.users}
_NUMBER_KEYS: dict[str, Callable[[Table], Sequence[float]]] = {
    "a": lambda table: table.factor("age"), "f": lambda table: table.factor("fairshare"),
    "j": lambda table: table.factor("jobsize"), "p": lambda table: table.factor("part"),
    "q": lambda table: table.factor("qos"), "t": lambda table: [sum(row.values()) for row in table.tres],
    "y": lambda table: table.priority}


def _by_number(values: Sequence[float], falling: bool) -> Callable[[int], Any]:
    sign = -1 if falling else 1

    def compare(first: int, second: int) -> int:
        return sign * _close(values[first], values[second])
    return cmp_to_key(compare)


def _order(table: Table, order: str) -> list[int]:
    """Rows by the letters of -S, the first the most important, '-' before one: falling. Raises ValueError(letter)."""
    places = list(range(len(table)))
    for at in range(len(order) - 1, -1, -1):
        letter = order[at]
        if letter in ",-+":
            continue
        falling = at > 0 and order[at - 1] == "-"
        if letter in _TEXT_KEYS:
            places.sort(key=_TEXT_KEYS[letter](table).__getitem__, reverse=falling)
        elif letter.lower() in _NUMBER_KEYS and letter.isascii():
            places.sort(key=_by_number(_NUMBER_KEYS[letter.lower()](table), falling))
        else:
            raise ValueError(letter)
    return places


def _wanted(request: _Request, table: Table) -> Table:
    """The rows that were asked for."""
    tests: list[tuple[str, set[Any]]] = []
    if request.job_ids is not None:
        tests.append(("job_id", set(request.job_ids)))
    if request.uids is not None:
        tests.append(("uid", set(request.uids)))
    if request.partitions is not None:
        tests.append(("partition", set(filter(None, request.partitions.split(",")))))
    if not tests:
        return table
    return table.taken([at for at in range(len(table))
                        if all(table.columns[key][at] in wanted for key, wanted in tests)])


def _rows(layout: ListLayout[PrioritySettings], table: Table, order: str) -> str:
    """Raises ValueError(letter) for an order that is none."""
    places = _order(table, order)
    if places != list(range(len(table))):
        table = table.taken(places)
    blank = [""] * len(table)
    return layout.table([TEXTS[column.field.letter](table) if column.field else blank for column in layout.columns]) \
        if len(table) and layout.columns else "\n" * len(table)


@command
async def run(argv: Sequence[str], env: Mapping[str, str], session: Session) -> Reply:
    """sprio(1)."""
    conf = session.views.conf
    request = _read(argv, env, conf.cluster_name)
    settings = conf.priority
    text = request.shown
    if settings.type.lower() == "priority/basic":
        return Reply(text, request.said + "You are not running a supported priority plugin\n"
                                          f"({settings.type}).\nOnly 'priority/multifactor' is supported.\n", 1)
    if request.format is None:
        request.format = _default_format(request, settings)
    layout = parse_letters(request.format, FIELDS, keep_invalid=False)
    said = request.said + "".join(
        f"sprio: error: Invalid job format specification: {letter}\n" for letter in layout.invalid)
    columns = session.views.priority_columns()
    table = Table(settings, columns)
    if request.jobs is not None and not len(table):
        return Reply(text + "Unable to find jobs matching user/id(s) specified\n", said)
    text += layout.header() if request.header else ""
    if request.weights:
        return Reply(text + layout.rows([settings]), said)

    if not len(table):                        # without any job the order is not even read
        return Reply(text, said)

    def print_rows() -> str:
        return _rows(layout, _wanted(request, table), request.sort)

    try:
        if len(table) > MANY_ROWS:
            return Reply(text + await asyncio.to_thread(print_rows), said)
        return Reply(text + print_rows(), said)
    except ValueError as error:
        return Reply(text, said + f"sprio: error: Invalid sort specification: {error.args[0]}\n", 1)
