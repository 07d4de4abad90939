"""sacct's options (sacct(1)): what was asked for, and the texts of mistakes."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from slurmbridge.commands import sacct_words
from slurmbridge.commands.common import (
    Stop,
    date_line,
    refuse_json,
    time_texts,
    uid_of,
)
from slurmbridge.slurm import durations, reasons, states
from slurmbridge.slurm.getopt import OptionTable, Parser, completions, long_options
from slurmbridge.slurm.selected_step import SelectedStep, StepSpecError, listed_steps
from slurmbridge.slurm.words import quoted_list
from slurmbridge.slurm.zones import Zone
from slurmbridge.views.session import Reply, Session

DEFAULT_FIELDS = "jobid,jobname,partition,account,alloccpus,state,exitcode"
BRIEF_FIELDS = "jobid,state,exitcode"
LONG_FIELDS = (
    "jobid,jobidraw,jobname,partition,maxvmsize,maxvmsizenode,maxvmsizetask,avevmsize,maxrss,maxrssnode,maxrsstask,"
    "averss,maxpages,maxpagesnode,maxpagestask,avepages,mincpu,mincpunode,mincputask,avecpu,ntasks,alloccpus,elapsed,"
    "state,exitcode,avecpufreq,reqcpufreqmin,reqcpufreqmax,reqcpufreqgov,reqmem,consumedenergy,maxdiskread,"
    "maxdiskreadnode,maxdiskreadtask,avediskread,maxdiskwrite,maxdiskwritenode,maxdiskwritetask,avediskwrite,reqtres,"
    "alloctres,tresusageinave,tresusageinmax,tresusageinmaxn,tresusageinmaxt,tresusageinmin,tresusageinminn,"
    "tresusageinmint,tresusageintot,tresusageoutmax,tresusageoutmaxn,tresusageoutmaxt,tresusageoutave,tresusageouttot")
ENDED = (states.COMPLETED, states.CANCELLED, states.FAILED, states.TIMEOUT, states.NODE_FAIL, states.PREEMPTED,
         states.BOOT_FAIL, states.DEADLINE, states.OUT_OF_MEMORY, states.REQUEUED, states.RESIZING, states.REVOKED)
SUPPORTED_STATES = frozenset({states.PENDING, states.RUNNING, states.SUSPENDED, *ENDED})


TABLE = OptionTable("aA:bBcC:DeE:f:F:g:hi:I:j:k:K:lLM:nN:o:pPq:r:R:s:S:Ttu:UvVW:x:X", long_options("""
    autocomplete= allusers:a accounts=:A allocations:X array brief:b batch-script:B completion:c constraints=:C
    delimiter= duplicates:D federation helpformat:e help-fields:e helpreason helpstate endtime=:E env-vars
    expand-patterns file=:f flags=:F gid=:g group=:g help:h local name= nnodes=:i ncpus=:I jobs=:j timelimit-min=:k
    timelimit-max=:K long:l allclusters:L cluster=:M clusters=:M nodelist=:N noconvert units= noheader:n fields=:o
    format=:o parsable:p parsable2:P qos=:q partition=:r reason=:R state=:s starttime=:S truncate:T uid=:u
    use-local-uid usage:U user=:u verbose:v version:V wckeys=:W whole-hetjob=? associations=:x json=? yaml=?"""))

ASKS = frozenset({"e", "h", "U", "V", "helpreason", "helpstate"})
"""Options that print something about sacct itself, at once, and end it."""
STATE_FLAGS = frozenset({"REQUEUED", "RESIZING", "REVOKED"})
"""What -v names together with the state that it goes with."""


@dataclass(slots=True)
class Options:
    """What was asked for. ``None`` and empty: not restricted; times in epoch seconds, 0 = not given."""

    now: int
    zone: Zone
    warnings: list[str] = field(default_factory=list)
    ask: str = ""                             # one of ASKS
    # which jobs
    jobs: list[SelectedStep] = field(default_factory=list)
    all_users: bool = False
    uids: list[int] = field(default_factory=list)
    gids: list[int] = field(default_factory=list)
    accounts: list[str] = field(default_factory=list)
    associations: list[str] = field(default_factory=list)
    constraints: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    partitions: list[str] = field(default_factory=list)
    qos: list[str] = field(default_factory=list)
    wckeys: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    states: list[str] = field(default_factory=list)
    flags: frozenset[str] | None = None
    nodes: str = ""
    node_range: tuple[int, int] = (0, 0)
    cpu_range: tuple[int, int] = (0, 0)
    limit_min: int = 0
    limit_max: int = 0
    start_s: int = 0
    end_s: int = 0
    duplicates: bool = False
    whole_het: bool | None = None
    nothing: bool = False                     # none of the clusters asked for is this one
    no_nodes: bool = False                    # -N "": no node was asked for, so no job is
    # how
    steps: bool = True
    truncate: bool = False
    expand_array: bool = False
    expand_patterns: bool = False
    script: bool = False
    environment: bool = False
    header: bool = True
    parsable: str = ""
    delimiter: str = "|"
    units: str = ""
    keep_units: bool = False
    format: str = ""
    brief: bool = False
    long: bool = False
    verbose: int = 0
    use_local_uid: bool = False
    completion: bool = False                  # asked of the job completion plugin, which there is none of
    completion_file: str | None = None
    operands: list[str] = field(default_factory=list)

    def set_window(self) -> None:
        """The defaults of -S and -E (slurmdb_job_cond_def_start_end); applied twice, it may move ``end_s`` twice."""
        if self.states:
            if not self.start_s and not self.jobs:
                self.start_s = self.now
            if self.start_s and not self.end_s:
                self.end_s = self.start_s
        elif not self.jobs and not self.start_s:
            today = self.zone.local(self.now)
            self.start_s = self.zone.epoch(today.year, today.month, today.day, 0, 0, 0)
        if not self.end_s:
            self.end_s = self.now
        if self.end_s in (self.start_s, self.now):
            self.end_s += 1


def parse(options: Options, argv: Sequence[str], env: Mapping[str, str], session: Session) -> None:
    """Raises Stop where sacct would exit; ``options`` has what was read before."""
    try:
        _parse(options, argv, env, session)
    except Stop as stop:
        stop.reply = replace(stop.reply, stderr="".join(options.warnings) + stop.reply.stderr)
        raise


def _parse(options: Options, argv: Sequence[str], env: Mapping[str, str], session: Session) -> None:
    parser = Parser("sacct", argv, TABLE, permute=True)
    clusters: str | None = None
    while (found := parser.next()) is not None:
        key, value = found
        if key == "?":
            raise Stop(Reply("", f"{parser.error}\n", 1))
        if key in ASKS:
            options.ask = key
            return
        if key == "autocomplete":
            raise Stop(Reply(completions(TABLE.long, value or "")))
        if key == "M":
            clusters = value or ""
        elif key == "L":
            clusters = None
        else:
            _take(options, key, value or "", value is not None)
    options.operands = parser.operands
    _check(options, env, session.now())
    if options.qos:
        _check_qos(options, session)
    if clusters is not None and clusters not in ("all", "-1"):
        own = session.views.conf.cluster_name.lower()
        named: list[str] = []
        sacct_words.char_list(named, clusters)
        options.nothing = own not in named
    _choose_users(options, session)
    _choose_fields(options, env)


def _take(options: Options, key: str, value: str, given: bool) -> None:
    simple = _SWITCHES.get(key)
    if simple is not None:
        setattr(options, *simple)
    elif key == "q" and value and not value.strip(","):
        raise Stop(Reply("", "sacct: error: You gave me an empty qos list\nsacct: fatal: problem processing qos list\n",
                         1))
    elif key in _LISTS:
        options.warnings += sacct_words.char_list(getattr(options, _LISTS[key]), value)
    elif key in ("E", "S"):
        _take_time(options, key, value)
    elif key in ("g", "u"):
        _take_ids(options, key, value)
    elif key in ("i", "I"):
        what = "requested node range" if key == "i" else "requested cpu range"
        found = sacct_words.number_range(value, what)
        setattr(options, "node_range" if key == "i" else "cpu_range", found)
    elif key in ("k", "K"):
        minutes = durations.parse_minutes(value)
        if minutes is None or minutes <= 0:
            raise Stop.fatal("sacct", "Invalid time limit specification")
        setattr(options, "limit_min" if key == "k" else "limit_max", minutes)
    elif key == "j":
        _take_jobs(options, value)
    elif key == "s":
        _take_states(options, value)
    elif key == "R":
        _take_reasons(options, value)
    elif key == "F":
        options.flags = sacct_words.flags(value)
    elif key == "c":
        options.completion = True
    elif key == "N":
        if options.nodes:
            options.warnings.append(f"sacct: error: Already asked for nodes '{options.nodes}'\n")
        else:
            options.nodes, options.no_nodes = value, not value
    elif key == "o":
        options.format += value + ","
    elif key == "units":
        options.units = value[:1].upper()
        if not options.units or options.units not in "KMGTP":
            rest = "'. Possible options are 'KMGTP'" if value else ""
            lines = f"sacct: error: Invalid unit type '{value[:1]}{rest}\n"
            raise Stop(Reply("", f"{lines}sacct: fatal: Invalid unit type\n", 1))
    elif key == "delimiter":
        options.delimiter = value
    elif key == "v":
        options.verbose += 1
    elif key == "f":
        options.completion_file = value
    elif key == "whole-hetjob":
        options.whole_het = _yes_no(value, given)
    else:
        _take_refused(key, value)


_SWITCHES: dict[str, tuple[str, object]] = {
    "a": ("all_users", True), "X": ("steps", False), "t": ("steps", False), "array": ("expand_array", True),
    "b": ("brief", True), "D": ("duplicates", True), "l": ("long", True), "n": ("header", False),
    "noconvert": ("keep_units", True), "p": ("parsable", "p"), "P": ("parsable", "P"), "T": ("truncate", True),
    "B": ("script", True), "env-vars": ("environment", True), "expand-patterns": ("expand_patterns", True),
    "use-local-uid": ("use_local_uid", True)}
_LISTS = {"A": "accounts", "C": "constraints", "name": "names", "r": "partitions", "q": "qos", "W": "wckeys",
          "x": "associations"}


def _take_refused(key: str, value: str) -> None:
    """What slurmbridge has not, and what changes nothing here."""
    if key in ("json", "yaml"):
        raise refuse_json("sacct", f"--{key}")


def _take_time(options: Options, key: str, value: str) -> None:
    try:
        epoch = durations.parse_time(value, options.now, options.zone, past=True)
    except durations.TimeSpecError as error:
        raise Stop(Reply("", f"{error}\n", 1)) from None
    if key == "E":
        options.end_s = epoch
    else:
        options.start_s = epoch


def _take_ids(options: Options, key: str, value: str) -> None:
    if key == "u" and value == "-1":
        options.all_users = True
        return
    into = options.gids if key == "g" else options.uids
    for word in quoted_list(value):
        number = sacct_words.gid_of(word) if key == "g" else uid_of(word, known=True)
        if number is None:
            raise Stop.error("sacct", f"Invalid {'group' if key == 'g' else 'user'} id: {word}")
        if number not in into:
            into.append(number)
    if not into:
        raise Stop(Reply(exit_code=1))
    if key == "u":
        options.all_users = False


def _take_jobs(options: Options, text: str) -> None:
    try:
        options.jobs += [name for name in listed_steps(text) if name not in options.jobs]
    except StepSpecError as error:
        raise Stop.fatal("sacct", str(error)) from None


def _take_states(options: Options, text: str) -> None:
    for word in quoted_list(text):
        wanted = word.upper()
        state = states.LONG.get(wanted, wanted)
        if state not in states.COMPACT:
            raise Stop.fatal("sacct", f"unrecognized job state value '{word}'")
        if state not in SUPPORTED_STATES:
            raise Stop.fatal("sacct", f"job state {word} is not supported / accounted")
        if state not in options.states:
            options.states.append(state)


def _take_reasons(options: Options, text: str) -> None:
    known = {reason.lower(): reason for reason in reversed(reasons.REASONS)}
    for word in quoted_list(text):
        reason = known.get(word.lower())
        if reason is None:
            raise Stop.fatal("sacct", f"unrecognized job reason value '{word}'")
        if reason not in options.reasons:
            options.reasons.append(reason)


def _yes_no(value: str, given: bool) -> bool:
    if not given or value.lower() in ("yes", "y"):
        return True
    if value.lower() in ("no", "n"):
        return False
    raise Stop.error("sacct", f'Invalid --whole-hetjob value "{value}". Valid values: [yes|no].')


def _check(options: Options, env: Mapping[str, str], now_s: float) -> None:
    if not options.jobs and (options.script or options.environment):
        what = "job environment" if options.environment else "job scripts"
        raise Stop.fatal("sacct", f"When requesting {what} you must also request specific jobs with the '-j' option.")
    if options.script and options.environment:
        raise Stop.fatal("sacct", "Options --batch-script and --env-vars are mutually exclusive")
    if options.script or options.environment:
        options.steps = False
    if options.long and options.format:
        raise Stop.fatal("sacct", "Options -o(--format) and -l(--long) are mutually exclusive. Please remove one and "
                                  "retry.")
    options.set_window()
    times, _ = time_texts("sacct", env, now_s)
    if options.start_s > options.end_s:
        raise Stop.error("sacct", f"Start time ({times(options.start_s)}) requested is after end time "
                                  f"({times(options.end_s)}).")
    if options.verbose:
        start = date_line(env, options.start_s).rstrip("\n") if options.start_s else "Epoch 0"
        end = date_line(env, options.end_s).rstrip("\n")
        what = ",".join(f"PENDING,{word}" if word in STATE_FLAGS else word for word in options.states) or "Eligible"
        span = f"in the time window from {start} to {end}" if start != end else f"at the time instant {start}"
        options.warnings.append(f"sacct: Jobs {what} {span}\n")
    if options.completion:
        raise Stop(Reply("", "".join(options.warnings) + "Slurm job completion is disabled\n", 1))


def _check_qos(options: Options, session: Session) -> None:
    known = session.views.accounting.qos
    for name in options.qos:
        if name and name not in known:
            listed = ",".join(record.name for record in sorted(known.values(), key=lambda record: record.id))
            raise Stop(Reply("", f"sacct: error: You gave a bad qos '{name}'. Valid QOS's are {listed}\n"
                                 "sacct: fatal: problem processing qos list\n", 1))


def _choose_users(options: Options, session: Session) -> None:
    if not options.uids and (options.jobs or options.nodes or not session.identity.uid):
        options.all_users = True
    if options.all_users:
        options.uids = []
    elif not options.uids:
        options.uids = [session.identity.uid]


def _choose_fields(options: Options, env: Mapping[str, str]) -> None:
    if options.brief:
        options.format += BRIEF_FIELDS + ","
    if options.long:
        options.format += LONG_FIELDS + ","
    if not options.format:
        options.format = env.get("SACCT_FORMAT", DEFAULT_FIELDS)
