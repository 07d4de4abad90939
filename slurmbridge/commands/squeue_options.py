"""squeue's command line and SQUEUE_ variables (squeue(1))."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

from slurmbridge.commands.common import VERSION_LINE, Stop, check_clusters, hosts_of, parse_options, refuse_json, uid_of
from slurmbridge.commands.squeue_rows import FLAG_STATES, WantedJob, parse_wanted
from slurmbridge.commands.squeue_steps import parse_wanted_steps
from slurmbridge.slurm.durations import format_seconds, parse_seconds
from slurmbridge.slurm.getopt import OptionTable, long_options
from slurmbridge.slurm.memory import leading_int
from slurmbridge.slurm.states import LONG
from slurmbridge.views.session import Reply, Session

NAME = "squeue"
START_FORMAT = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R"
_BASE_STATES = ("PENDING", "RUNNING", "SUSPENDED", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL",
                "PREEMPTED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY")
STATE_NAMES = tuple(name.lower() for name in (*_BASE_STATES, *FLAG_STATES))

OPTIONS = OptionTable("A:ahi:j::lL:n:M:O:o:p:Pq:R:rs::S:t:u:U:vVw:", long_options("""
    autocomplete= accounts=:A all:a array:r expand-patterns Format=:O format=:o federation help helpstate helpformat
    helpFormat hide iterate=:i jobs=?:j local long:l licenses=:L cluster=:M clusters=:M me name=:n noconvert node=:w
    nodes=:w nodelist=:w noheader:h notme only-job-state partitions=:p priority:P qos=:q reservation=:R running-over=
    running-under= sib:sibling sibling sort=:S start steps=?:s states=:t usage user=:u users=:u verbose:v version:V
    json=? yaml=?"""))

USAGE = """Usage: squeue [-A account] [--clusters names] [-i seconds] [--job jobid]
              [-n name] [-o format] [--only-job-state] [-p partitions]
              [--qos qos] [--reservation reservation] [--sort fields] [--start]
              [--step step_id] [-t states] [-u user_name] [--usage]
              [-L licenses] [-w nodes] [--federation] [--local] [--sibling]
              [--expand-patterns] [--json=data_parser] [--yaml=data_parser]
              [--running-over=time] [--running-under=time] [-ahjlrsv]
"""
HELP = """Usage: squeue [OPTIONS]
Which jobs
  -A, --account=LIST            of these accounts
  -a, --all                     in hidden partitions, too
      --hide                    not in hidden partitions
  -j, --job=LIST                these jobs, or tasks of arrays (12_3)
  -L, --licenses=LIST           that need one of these licenses
      --me, --notme             the caller's; all but the caller's
  -n, --name=LIST               with one of these names
  -p, --partition=LIST          of these partitions
  -q, --qos=LIST                of these QOS
  -R, --reservation=LIST        of these reservations
      --running-over=TIME       that have run at least this long
      --running-under=TIME      that have not yet run this long
  -s, --step[=LIST]             running steps instead of jobs
  -t, --states=LIST             in these states; "all" for every state
  -u, --user=LIST               of these users
  -w, --nodelist=HOSTS          on one of these nodes
  -M, --clusters=LIST           of these clusters
      --federation, --local, --sibling   which clusters of a federation
How they are shown
      --expand-patterns         file names with their patterns replaced
  -h, --noheader                no first line with the names of the columns
  -i, --iterate=SECONDS         again and again
  -l, --long                    more columns
      --noconvert               sizes in the unit they were given in
  -O, --Format=NAMES            columns by name
  -o, --format=LETTERS          columns by letter
      --only-job-state          nothing but the states
  -P, --priority                a line for each partition of a job
  -r, --array                   a line for each task of an array
  -S, --sort=LETTERS            in this order
      --start                   when pending jobs are expected to start
  -v, --verbose                 what was asked, first
Help
  -V, --version                 the version
      --help, --usage           this text, the short one
      --helpformat, --helpFormat, --helpstate
                                the letters of -o, the names of -O, the states of -t
"""


@dataclass(slots=True)
class Options:
    """What was asked. Lists are None where their option was not given."""

    all: bool = False
    array: bool = False
    expand: bool = False
    federation: bool = False
    noheader: bool = False
    local: bool = False
    long: bool = False
    keep_units: bool = False
    notme: bool = False
    only_state: bool = False
    priority: bool = False
    sibling: bool = False
    start: bool = False
    job_flag: bool = False
    step_flag: bool = False
    iterate_s: int = 0
    verbose: int = 0
    over_s: int = 0
    under_s: int = 0
    accounts: str | None = None
    clusters: str | None = None
    format: str | None = None
    format_long: str | None = None
    jobs: str | None = None
    licenses: str | None = None
    names: str | None = None
    nodes: str | None = None
    node_names: list[str] = field(default_factory=list)
    partitions: str | None = None
    qos: str | None = None
    reservation: str | None = None
    sort: str | None = None
    states: str | None = None
    steps: str | None = None
    users: str | None = None
    wanted: list[WantedJob] | None = None
    wanted_steps: list[WantedJob] | None = None
    uids: list[int] | None = None
    state_list: list[str] | None = None       # None: the usual ones, or all where all_states
    all_states: bool = False
    node_set: frozenset[str] | None = None
    notes: str = ""                           # lines for standard error that stop nothing


_SIMPLE = {"a": "all", "r": "array", "h": "noheader", "l": "long", "P": "priority", "expand-patterns": "expand",
           "federation": "federation", "local": "local", "noconvert": "keep_units", "notme": "notme",
           "only-job-state": "only_state", "sibling": "sibling", "start": "start"}
_TEXTS = {"A": "accounts", "U": "accounts", "L": "licenses", "n": "names", "q": "qos", "R": "reservation", "S": "sort"}
_ONLY_STATE = frozenset({
    "array", "expand", "format", "format_long", "federation", "iterate_s", "job_flag", "wanted", "jobs", "local",
    "clusters", "keep_units", "noheader", "only_state", "sibling", "sort", "states", "all_states", "state_list",
    "verbose", "notes"})
"""Options that --only-job-state goes with."""


_NOTHING = Options()


def parse(argv: Sequence[str], env: Mapping[str, str], session: Session) -> Options:
    """Raises Stop where Slurm would exit."""
    options = Options(all="SQUEUE_ALL" in env, array="SQUEUE_ARRAY" in env, sort=env.get("SQUEUE_SORT"),
                      federation="SQUEUE_FEDERATION" in env, priority="SQUEUE_PRIORITY" in env,
                      local="SQUEUE_LOCAL" in env, sibling="SQUEUE_SIB" in env or "SQUEUE_SIBLING" in env)
    try:
        _parse(options, argv, env, session)
    except Stop as stop:
        raise Stop(Reply(stop.reply.stdout, options.notes + stop.reply.stderr, stop.reply.exit_code)) from None
    return options


def _parse(options: Options, argv: Sequence[str], env: Mapping[str, str], session: Session) -> None:
    options.clusters = env.get("SLURM_CLUSTERS")
    operands: list[str] = []
    formatted = False
    for key, value in parse_options(NAME, argv, OPTIONS, operands=operands):
        formatted |= _take(options, key, value, session)
    if options.long and options.format is not None:
        raise Stop.fatal(NAME, "Options -o(--format) and -l(--long) are mutually exclusive. "
                               "Please remove one and retry.")
    if options.only_state and any(getattr(options, f.name) != getattr(_NOTHING, f.name)
                                  for f in fields(options) if f.name not in _ONLY_STATE):
        raise Stop.fatal(NAME, "Option --only-job-state only works alone, with -j (--jobs) and/or -t (--states) "
                               "parameters, parameters for cluster/federation selection, and the printing options.")
    if not formatted:
        options.format = env.get("SQUEUE_FORMAT")
        if options.format is None:
            options.format_long = env.get("SQUEUE_FORMAT2")
    _take_operands(options, operands)
    if options.clusters is not None:
        options.notes += check_clusters(NAME, options.clusters, session.views.conf.cluster_name,
                                        federation=options.federation)
        options.local = True
    if options.job_flag and options.step_flag:
        if options.wanted is None:
            raise Stop.error(NAME, "Incompatible options --jobs and --steps")
        options.job_flag = False
    _check_nodes(options, session)
    _take_environment(options, env)
    if options.over_s and options.under_s and options.over_s > options.under_s:
        raise Stop.fatal(NAME, f"--running-over={format_seconds(options.over_s)} and "
                               f"--running-under={format_seconds(options.under_s)} will return 0 jobs.")


def _take(options: Options, key: str, value: str | None, session: Session) -> bool:
    """One option; whether it decides about the format, so that SQUEUE_FORMAT does not."""
    text = value or ""
    if key in _SIMPLE:
        setattr(options, _SIMPLE[key], True)
        return key in ("l", "start")
    if key in _TEXTS:
        setattr(options, _TEXTS[key], text)
    elif key == "v":
        options.verbose += 1
    elif key == "hide":
        options.all = False
    elif key == "i":
        options.iterate_s = (leading_int(text) or (0, ""))[0]
        if options.iterate_s <= 0:
            raise Stop.error(NAME, f"--iterate={text}\n")
    elif key == "j":
        options.job_flag = True
        if value is not None:
            _take_jobs(options, value)
    elif key == "s":
        options.step_flag = True
        if value is not None:
            _take_steps(options, value)
        return True
    elif key in ("o", "O"):
        own, other = ("format", "format_long") if key == "o" else ("format_long", "format")
        if getattr(options, other) is not None:
            names = "-o (--format)", "-O (--Format)"
            raise Stop.error(NAME, "{} is incompatible with {}".format(*(names if key == "o" else names[::-1])))
        setattr(options, own, text)
        return True
    elif key == "p":
        options.partitions, options.all = text, True
    elif key == "t":
        _take_states(options, text)
    elif key == "u":
        _take_users(options, text)
    elif key == "me":
        options.users, options.uids = str(session.identity.uid), [session.identity.uid]
    elif key == "w":
        options.nodes = text
        options.node_names = hosts_of(NAME, text, "--nodelist")
    elif key == "M":
        options.clusters = text
    elif key in ("running-over", "running-under"):
        seconds = parse_seconds(text)
        if not seconds or seconds < 0:
            raise Stop.fatal(NAME, "Invalid time limit specification")
        setattr(options, "over_s" if key == "running-over" else "under_s", seconds)
    elif key in ("json", "yaml"):
        raise refuse_json(NAME, f"--{key}")
    elif key == "V":
        raise Stop(Reply(VERSION_LINE))
    elif key in ("help", "usage"):
        raise Stop(Reply(HELP if key == "help" else USAGE))
    elif key == "helpstate":
        raise Stop(Reply("\n".join(STATE_NAMES) + "\n"))
    elif key in ("helpformat", "helpFormat"):
        raise Stop(Reply(_help_format(key == "helpFormat", options.step_flag, session)))
    return False


def _help_format(long_names: bool, steps: bool, session: Session) -> str:
    from slurmbridge.commands import squeue_fields, squeue_steps
    shown = squeue_fields.Shown(0, str, False, False, False, "", {}, {})
    table = squeue_steps.step_fields(shown) if steps else squeue_fields.job_fields(shown)
    hidden = squeue_steps.HIDDEN if steps else squeue_fields.HIDDEN
    words = [field.name if long_names else field.letter for field in table if field.name not in hidden]
    words = [word for word in words if word]
    in_row, form = (4, "{:<20}") if long_names else (8, "%{:<5}")
    rows = [words[start:start + in_row] for start in range(0, len(words), in_row)]
    return "\n".join("".join(form.format(word) for word in row) for row in rows) + "\n"


def _take_jobs(options: Options, text: str) -> None:
    options.jobs = text
    options.wanted, bad = parse_wanted(text)
    if bad:
        raise Stop.error(NAME, f"Invalid job id: {bad}")


def _take_steps(options: Options, text: str) -> None:
    options.steps = text
    options.wanted_steps, bad = parse_wanted_steps(text)
    if bad:
        raise Stop.error(NAME, bad)


def _take_states(options: Options, text: str) -> None:
    options.states = text
    options.all_states, options.state_list = text.lower() == "all", None
    if options.all_states:
        return
    options.state_list = []
    for word in filter(None, text.split(",")):
        state = LONG.get(word.upper(), word.upper())
        if state.lower() not in STATE_NAMES:
            raise Stop(Reply("", f"{NAME}: error: Invalid job state specified: {word}\n"
                                 f"{NAME}: error: Valid job states include: {','.join(STATE_NAMES)}\n\n", 1))
        options.state_list.append(state)


def _take_users(options: Options, text: str) -> None:
    options.users, options.uids = text, []
    for word in filter(None, text.split(",")):
        uid = uid_of(word)
        if uid is None:
            options.notes += f"{NAME}: error: Invalid user: {word}\n\n"
        else:
            options.uids.append(uid)


def _take_operands(options: Options, operands: list[str]) -> None:
    if operands and options.job_flag:
        _take_jobs(options, operands.pop(0))
    elif operands and options.step_flag:
        _take_steps(options, operands.pop(0))
    if operands:
        raise Stop(Reply(USAGE, f"{NAME}: error: Unrecognized option: {operands[0]}\n", 1))


def _check_nodes(options: Options, session: Session) -> None:
    if options.nodes is None:
        return
    by_host = {node.host_name: node.name for node in session.views.nodes.values() if node.host_name}
    found = set()
    for name in options.node_names:
        wanted = session.invocation.host if name.lower() == "localhost" else name
        known = wanted if wanted in session.views.nodes else by_host.get(wanted)
        if known is None:
            raise Stop.error(NAME, f"Invalid node name {name}")
        found.add(known)
    options.node_set = frozenset(found)


def _take_environment(options: Options, env: Mapping[str, str]) -> None:
    """Variables that stand for options which were not given, and what --start implies."""
    for variable, name in (("SQUEUE_ACCOUNT", "accounts"), ("SQUEUE_NAMES", "names"), ("SQUEUE_LICENSES", "licenses"),
                           ("SQUEUE_QOS", "qos")):
        if getattr(options, name) is None and variable in env:
            setattr(options, name, env[variable])
    if options.partitions is None and "SQUEUE_PARTITION" in env:
        options.partitions, options.all = env["SQUEUE_PARTITION"], True
    if options.states is None and "SQUEUE_STATES" in env:
        _take_states(options, env["SQUEUE_STATES"])
    if options.users is None and "SQUEUE_USERS" in env:
        _take_users(options, env["SQUEUE_USERS"])
    if options.start and not options.step_flag:
        options.format = START_FORMAT if options.format is None else options.format
        options.sort = "S" if options.sort is None else options.sort
        if options.states is None:
            _take_states(options, "PD")
