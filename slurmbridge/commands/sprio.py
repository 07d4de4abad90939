"""sprio: the factors that make the priorities of pending jobs (sprio(1))."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cmp_to_key
from typing import Any

from slurmbridge.commands.common import (
    VERSION_LINE,
    Stop,
    check_clusters,
    command,
    parse_job_name,
    parse_options,
    uid_of,
    user_name,
)
from slurmbridge.slurm.format import ListField, parse_letters
from slurmbridge.slurm.getopt import NO_ARGUMENT, OPTIONAL_ARGUMENT, REQUIRED_ARGUMENT, LongOption, OptionTable
from slurmbridge.slurm.settings import PrioritySettings
from slurmbridge.views.session import Reply, Session

_WIRE = 1e6
"""Slurm sends doubles multiplied by this; the round trip can move the last bit, and with it a cut-off integer."""

_EPSILON = 1e-5                               # doubles closer than this sort as equal
_HIGHEST = float(0xFFFFFFFF)

_OPTIONS = OptionTable("hj::lM:no:S:p:u:vVw", [
    LongOption("noheader", NO_ARGUMENT, "h"), LongOption("jobs", OPTIONAL_ARGUMENT, "j"),
    LongOption("long", NO_ARGUMENT, "l"), LongOption("cluster", REQUIRED_ARGUMENT, "M"),
    LongOption("clusters", REQUIRED_ARGUMENT, "M"), LongOption("norm", NO_ARGUMENT, "n"),
    LongOption("format", REQUIRED_ARGUMENT, "o"), LongOption("sort", REQUIRED_ARGUMENT, "S"),
    LongOption("partition", REQUIRED_ARGUMENT, "p"), LongOption("user", REQUIRED_ARGUMENT, "u"),
    LongOption("users", REQUIRED_ARGUMENT, "u"), LongOption("verbose", NO_ARGUMENT, "v"),
    LongOption("version", NO_ARGUMENT, "V"), LongOption("weights", NO_ARGUMENT, "w"),
    LongOption("federation", NO_ARGUMENT, "federation"), LongOption("help", NO_ARGUMENT, "help"),
    LongOption("helpformat", NO_ARGUMENT, "helpformat"), LongOption("local", NO_ARGUMENT, "local"),
    LongOption("sib", NO_ARGUMENT, "sibling"), LongOption("sibling", NO_ARGUMENT, "sibling"),
    LongOption("usage", NO_ARGUMENT, "usage")])

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
    said: str = ""                            # standard error so far


@dataclass(frozen=True, slots=True)
class _Line:
    """A row of the table: one job in one partition, or the weights (``job`` None)."""

    settings: PrioritySettings
    job: Mapping[str, Any] | None
    tres_weights: Mapping[str, float] = field(default_factory=dict)

    def factor(self, name: str) -> float:
        """The weighted factor, as it arrives at the client."""
        return 0.0 if self.job is None else float(self.job[name]) * _WIRE / _WIRE

    @property
    def fixed(self) -> int:
        return 0 if self.job is None else int(self.job["direct_priority"])

    @property
    def tres(self) -> dict[str, float]:
        return {} if self.job is None else {n: v * _WIRE / _WIRE for n, v in self.job["tres"].items()}

    @property
    def priority(self) -> float:
        """The sum, added up in sprio's order."""
        if self.job is None or self.fixed:
            return float(self.fixed)
        total = self.factor("age")
        for name in ("assoc", "fairshare", "jobsize", "part", "qos"):
            total += self.factor(name)
        total = total + float(self.job["site"]) - float(self.job["nice"])
        for value in self.tres.values():
            if value:
                total += value
        return max(total, 1.0)


def _text(key: str, weights: str = "") -> Callable[[_Line], str]:
    """A text of the job; ``weights``: what the line of weights has there."""
    return lambda line: weights if line.job is None else str(line.job[key])


def _weighted(name: str, weight: Callable[[PrioritySettings], int]) -> Callable[[_Line], str]:
    return lambda line: f"{float(weight(line.settings)) if line.job is None else line.factor(name):.0f}"


def _normalized(name: str, weight: Callable[[PrioritySettings], int]) -> Callable[[_Line], str]:
    def value(line: _Line) -> str:
        highest = weight(line.settings)
        if line.job is None or line.fixed:
            return "0" if line.fixed else str(highest)
        return f"{line.factor(name) / highest if highest else 0.0:.7f}"
    return value


def _priority_normalized(line: _Line) -> str:
    if line.job is None:
        return ""
    return f"{float(line.fixed) if line.fixed else line.priority / _HIGHEST:16.14f}"


def _plain(key: str, weights: str) -> Callable[[_Line], str]:
    """site and nice: 0 for jobs with a fixed priority."""
    return lambda line: weights if line.job is None else "0" if line.fixed else f"{float(line.job[key]):.0f}"


def _tres_weighted(line: _Line) -> str:
    if line.job is None:
        return line.settings.weight_tres_text or "(null)"
    return ",".join(f"{name}={value:.0f}" for name, value in line.tres.items() if value)


def _tres_normalized(line: _Line) -> str:
    if line.job is None:
        return ""
    shares = line.job["tres_norm"]
    parts = []
    for name, value in line.tres.items():
        if value:
            weight = line.job["tres"][name] / shares[name] * _WIRE / _WIRE
            parts.append(f"{name}={value / weight:.2f}")
    return ",".join(parts)


def _user(line: _Line) -> str:
    return "" if line.job is None else line.job["user"] or user_name(line.job["uid"])


_FACTORS: tuple[tuple[str, str, str, Callable[[PrioritySettings], int]], ...] = (
    ("a", "AGE", "age", lambda s: s.weight_age), ("b", "ASSOC", "assoc", lambda s: s.weight_assoc),
    ("f", "FAIRSHARE", "fairshare", lambda s: s.weight_fairshare),
    ("j", "JOBSIZE", "jobsize", lambda s: s.weight_jobsize),
    ("p", "PARTITION", "part", lambda s: s.weight_partition), ("q", "QOS", "qos", lambda s: s.weight_qos))

_FIELDS: tuple[ListField[_Line], ...] = (
    *(ListField(name, letter, header, _normalized(name, weight)) for letter, header, name, weight in _FACTORS),
    *(ListField(name, letter.upper(), header, _weighted(name, weight)) for letter, header, name, weight in _FACTORS),
    ListField("cluster", "c", "CLUSTER", lambda line: "" if line.job is None else "(null)"),
    ListField("job", "i", "JOBID", _text("job_id", "Weights")),
    ListField("qosname", "n", "QOSNAME", _text("qos_name")),
    ListField("nice", "N", "NICE", _plain("nice", "")),
    ListField("account", "o", "ACCOUNT", _text("account")),
    ListField("partition", "r", "PARTITION", _text("partition")),
    ListField("site", "S", "SITE", _plain("site", "1")),
    ListField("user", "u", "USER", _user),
    ListField("priority_normalized", "y", "PRIORITY", _priority_normalized),
    ListField("priority", "Y", "PRIORITY", lambda line: "" if line.job is None else str(int(line.priority))),
    ListField("tres_normalized", "t", "TRES", _tres_normalized),
    ListField("tres", "T", "TRES", _tres_weighted))

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
        uid = uid_of(word)
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
    request = _Request(local="SPRIO_LOCAL" in env or "SLURM_CLUSTERS" in env, sibling="SPRIO_SIBLING" in env)
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
        elif key == "local":
            request.local = True
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
        raise Stop(Reply(_USAGE, f"{request.said}sprio: error: Unrecognized option: {operands[0]}\n", 1))
    if clusters is not None:
        request.said += check_clusters("sprio", clusters, own_cluster)
    return request


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
              for letter, _, _, weight in _FACTORS if weight(settings)]
    if settings.weight_tres_text:
        parts.append("%20t" if normalized else "%.20T")
    return " ".join(parts)


def _shown_options(request: _Request) -> str:
    """What -v prints first."""
    dashes = "-----------------------------\n"
    lines = [f"format     = {request.format or '(null)'}\n", f"job_flag   = {int(request.job_flag)}\n",
             f"jobs       = {request.jobs or '(null)'}\n", f"partition  = {request.partitions or '(null)'}\n",
             f"users      = {request.users or '(null)'}\n", f"verbose    = {request.verbose}\n"]
    if request.verbose > 1:
        lines += [f"job_list[{n}] = {job_id}\n" for n, job_id in enumerate(request.job_ids or ())]
        lines += [f"user_list[{n}] = {uid}\n" for n, uid in enumerate(request.uids or ())]
    return dashes + "".join(lines) + dashes + "\n\n"


def _close(first: float, second: float) -> int:
    return 0 if abs(first - second) < _EPSILON else -1 if first < second else 1


def _of_job(key: str) -> Callable[[_Line], Any]:
    return lambda line: line.job[key] if line.job else ""


_TEXT_KEYS: dict[str, Callable[[_Line], Any]] = {
    "c": lambda line: "", "i": _of_job("job_id"), "N": lambda line: 0 if line.fixed else _of_job("nice")(line),
    "n": _of_job("qos_name"), "o": _of_job("account"), "r": _of_job("partition"), "u": _user}
_NUMBER_KEYS: dict[str, Callable[[_Line], float]] = {
    "a": lambda line: line.factor("age"), "f": lambda line: line.factor("fairshare"),
    "j": lambda line: line.factor("jobsize"), "p": lambda line: line.factor("part"),
    "q": lambda line: line.factor("qos"), "t": lambda line: sum(line.tres.values()), "y": lambda line: line.priority}


def _by_number(letter: str, falling: bool) -> Callable[[_Line], Any]:
    value, sign = _NUMBER_KEYS[letter.lower()], -1 if falling else 1

    def compare(first: _Line, second: _Line) -> int:
        return sign * _close(value(first), value(second))
    return cmp_to_key(compare)


def _sorted(lines: list[_Line], order: str) -> list[_Line]:
    """By the letters of -S, the first the most important, '-' before one: falling. Raises ValueError(letter)."""
    for at in range(len(order) - 1, -1, -1):
        letter = order[at]
        if letter in ",-+":
            continue
        falling = at > 0 and order[at - 1] == "-"
        if letter in _TEXT_KEYS:
            lines = sorted(lines, key=_TEXT_KEYS[letter], reverse=falling)
        elif letter.lower() in _NUMBER_KEYS and letter.isascii():
            lines = sorted(lines, key=_by_number(letter, falling))
        else:
            raise ValueError(letter)
    return lines


def _wanted(request: _Request, job: Mapping[str, Any]) -> bool:
    partitions = None if request.partitions is None else set(filter(None, request.partitions.split(",")))
    return ((request.job_ids is None or job["job_id"] in request.job_ids)
            and (request.uids is None or job["uid"] in request.uids)
            and (partitions is None or job["partition"] in partitions))


@command
async def run(argv: Sequence[str], env: Mapping[str, str], session: Session) -> Reply:
    """sprio(1)."""
    conf = session.views.conf
    request = _read(argv, env, conf.cluster_name)
    settings = conf.priority
    text = _shown_options(request) if request.verbose else ""
    if settings.type.lower() == "priority/basic":
        return Reply(text, request.said + "You are not running a supported priority plugin\n"
                                          f"({settings.type}).\nOnly 'priority/multifactor' is supported.\n", 1)
    if request.format is None:
        request.format = _default_format(request, settings)
    layout = parse_letters(request.format, _FIELDS, keep_invalid=False)
    said = request.said + "".join(
        f"sprio: error: Invalid job format specification: {letter}\n" for letter in layout.invalid)
    factors = session.views.priority_factors()
    if request.jobs is not None and not factors:
        return Reply(text + "Unable to find jobs matching user/id(s) specified\n", said)
    text += layout.header() if request.header else ""
    if request.weights:
        return Reply(text + layout.rows([_Line(settings, None)]), said)
    lines = [_Line(settings, job) for job in factors if _wanted(request, job)]
    try:
        return Reply(text + layout.rows(_sorted(lines, request.sort)), said)
    except ValueError as error:
        return Reply(text, said + f"sprio: error: Invalid sort specification: {error.args[0]}\n", 1)
