"""scancel's command line and SCANCEL_ variables (scancel(1))."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from slurmbridge.commands.common import VERSION_LINE, Stop, check_clusters, parse_options, uid_of
from slurmbridge.slurm import hostlist
from slurmbridge.slurm.getopt import OptionTable, long_options
from slurmbridge.slurm.memory import leading_int
from slurmbridge.slurm.states import COMPACT, LONG
from slurmbridge.slurm.words import signal_number
from slurmbridge.views.session import Reply, Session

NAME = "scancel"
EVERY_TASK = -1
"""``12_*``."""

OPTIONS = OptionTable("A:bcfHiM:n:p:Qq:R:s:t:u:vVw:", long_options("""
    autocomplete= account=:A admin-comment= batch:b ctld cron:c full:f help hurry:H interactive:i cluster=:M clusters=:M
    jobname=:n me name=:n nodelist=:w partition=:p qos=:q quiet:Q reservation=:R sibling= signal=:s state=:t usage
    user=:u verbose:v version:V wckey="""))

USAGE = """Usage: scancel [-A account] [--batch] [--ctld] [--full] [--interactive] [-n job_name]
               [-p partition] [-Q] [-q qos] [-R reservation] [-s signal | integer]
               [-t PENDING | RUNNING | SUSPENDED] [--usage] [-u user_name]
               [--hurry] [-V] [-v] [-w hosts...] [--wckey=wckey]
               [job_id[_array_id][.step_id]]
"""
HELP = """Usage: scancel [OPTIONS] [job_id[_array_id][.step_id]]
Which jobs, besides those named
  -A, --account=NAME            of this account
      --me                      the caller's
  -n, --name=NAME               with this name
  -p, --partition=NAME          in this partition
  -q, --qos=NAME                of this QOS
  -R, --reservation=NAME        in this reservation
  -t, --state=STATE             in this state: PENDING, RUNNING or SUSPENDED
  -u, --user=NAME               of this user
  -w, --nodelist=HOSTS          on one of these nodes
      --wckey=KEY               with this workload key
  -M, --clusters=LIST           of these clusters
What is done to them
      --admin-comment=TEXT      a comment on each
  -b, --batch                   signal the batch script only
  -c, --cron                    jobs of scrontab, too
      --ctld                    leave the choice to the controller
  -f, --full                    signal the batch script and all steps
  -H, --hurry                   without staging out
  -i, --interactive             ask about each
  -s, --signal=NAME|NUMBER      send this signal instead of ending the job
      --sibling=CLUSTER         only the copy on this cluster of a federation
How it is told
  -Q, --quiet                   no warnings
  -v, --verbose                 every job that is acted on
Help
  -V, --version                 the version
      --help, --usage           this text, the short one
"""


@dataclass(frozen=True, slots=True)
class Target:
    """One job that was named. ``text`` is the word it came from."""

    job_id: int
    text: str
    task_id: int | None = None                # EVERY_TASK for "12_*"
    het_offset: int | None = None
    step_id: int | None = None

    @property
    def job_text(self) -> str:
        """The job as scancel writes it in its errors."""
        if self.task_id is None:
            return str(self.job_id)
        return f"{self.job_id}_*" if self.task_id == EVERY_TASK else f"{self.job_id}_{self.task_id}"


@dataclass(slots=True)
class Options:
    account: str | None = None
    admin_comment: str | None = None
    batch: bool = False
    clusters: str | None = None
    cron: bool = False
    ctld: bool = False
    full: bool = False
    hurry: bool = False
    interactive: bool = False
    job_name: str | None = None
    nodelist: str | None = None
    partition: str | None = None
    qos: str | None = None
    reservation: str | None = None
    sibling: str | None = None
    signal: int | None = None
    state: str | None = None
    user_name: str | None = None
    uid: int = 0
    verbose: int = 0
    wckey: str | None = None
    words: list[str] = field(default_factory=list)     # the named jobs, one word each
    targets: list[Target] = field(default_factory=list)
    notes: str = ""

    @property
    def has_filter(self) -> bool:
        return any(value is not None for value in (
            self.account, self.job_name, self.nodelist, self.partition, self.qos, self.reservation, self.state,
            self.user_name, self.wckey))

    @property
    def only_ids(self) -> bool:
        """Nothing but jobs was named: they are cancelled without looking at them first."""
        return not (self.has_filter or self.batch or self.ctld or self.interactive or self.signal is not None
                    or any(target.step_id is not None for target in self.targets))


_FLAG_FIELDS = {"b": "batch", "ctld": "ctld", "c": "cron", "f": "full", "H": "hurry", "i": "interactive"}
_TEXT_FIELDS = {"n": "job_name", "p": "partition", "R": "reservation", "u": "user_name", "w": "nodelist",
                "wckey": "wckey", "sibling": "sibling", "M": "clusters"}
_SWITCHES = {"true": True, "t": True, "false": False, "f": False}


def parse(argv: Sequence[str], env: Mapping[str, str], session: Session) -> Options:
    """Raises Stop where scancel would exit. ``nodelist`` may still be a file's name."""
    options = Options()
    _take_environment(options, env)
    operands: list[str] = []
    try:
        for key, value in parse_options(NAME, argv, OPTIONS, operands=operands):
            _take(options, key, value or "", session)
            if key == "M":                    # asked for as soon as it is read
                options.notes += check_clusters(NAME, value or "", session.views.conf.cluster_name)
        if "SLURM_CLUSTERS" in env and options.clusters == env["SLURM_CLUSTERS"]:
            options.notes += check_clusters(NAME, options.clusters, session.views.conf.cluster_name)
    except Stop as stop:                      # the environment was complained about first
        if stop.reply.stderr.startswith(options.notes):
            raise
        raise Stop(Reply(stop.reply.stdout, options.notes + stop.reply.stderr, stop.reply.exit_code)) from None
    _take_jobs(options, operands)
    if options.user_name is not None:
        uid = uid_of(options.user_name)
        if uid is None:
            raise Stop(Reply("", f"{options.notes}{NAME}: error: Invalid user name: {options.user_name}\n", 1))
        options.uid = uid
    if not options.targets and not options.has_filter:
        raise Stop(Reply("", f"{options.notes}{NAME}: error: No job identification provided\n", 1))
    return options


def _take(options: Options, key: str, value: str, session: Session) -> None:
    if key in _FLAG_FIELDS:
        setattr(options, _FLAG_FIELDS[key], True)
    elif key in _TEXT_FIELDS:
        setattr(options, _TEXT_FIELDS[key], value)
        options.ctld |= key == "M"
    elif key == "A":
        options.account = value.lower()
    elif key == "q":
        options.qos = value.lower()
    elif key == "admin-comment":
        options.ctld, options.admin_comment = True, value
    elif key == "me":
        options.user_name = str(session.identity.uid)
    elif key == "Q":
        options.verbose = -1
    elif key == "v":
        options.verbose += 1
    elif key == "s":
        options.signal = signal_number(value)
        if not options.signal:
            raise Stop(Reply("", f"{options.notes}Unknown job signal: {value}\n", 1))
    elif key == "t":
        options.state = _state(value, "Invalid job state specified", options)
    elif key == "V":
        raise Stop(Reply(VERSION_LINE))
    else:
        raise Stop(Reply(HELP if key == "help" else USAGE))


def _state(word: str, complaint: str, options: Options) -> str:
    state = LONG.get(word.upper(), word.upper())
    if state not in COMPACT:
        raise Stop(Reply("", f"{options.notes}{complaint}: {word}\n"
                             "Valid job states are PENDING, RUNNING, and SUSPENDED\n", 1))
    return state


def _take_environment(options: Options, env: Mapping[str, str]) -> None:
    options.ctld, options.cron, options.hurry = "SCANCEL_CTLD" in env, "SCANCEL_CRON" in env, "SCANCEL_HURRY" in env
    for name in ("BATCH", "FULL", "INTERACTIVE", "VERBOSE"):
        value = env.get(f"SCANCEL_{name}")
        if value is None:
            continue
        switch = _SWITCHES.get(value.lower())
        if switch is None:
            options.notes += f"{NAME}: error: Unrecognized SCANCEL_{name} value: {value}\n"
        else:
            setattr(options, name.lower(), int(switch) if name == "VERBOSE" else switch)
    for variable, field_name in (("NAME", "job_name"), ("PARTITION", "partition"), ("USER", "user_name"),
                                 ("WCKEY", "wckey")):
        setattr(options, field_name, env.get(f"SCANCEL_{variable}"))
    if "SCANCEL_ACCOUNT" in env:
        options.account = env["SCANCEL_ACCOUNT"].lower()
    if "SCANCEL_QOS" in env:
        options.qos = env["SCANCEL_QOS"].lower()
    if "SCANCEL_STATE" in env:
        options.state = _state(env["SCANCEL_STATE"], "Unrecognized SCANCEL_STATE value", options)
    if "SLURM_CLUSTERS" in env:
        options.clusters, options.ctld = env["SLURM_CLUSTERS"], True


def _take_jobs(options: Options, operands: Sequence[str]) -> None:
    """Words may be several jobs joined by commas; commas between brackets are an array's."""
    waiting = list(operands)
    while waiting:
        word = waiting.pop(0)
        targets, rest = _targets(word, options)
        options.targets += targets
        options.words.append(word[:len(word) - len(rest)])
        if rest:
            waiting.insert(0, rest[1:])       # nothing after a comma is no job either


def _number(text: str, bad: Stop) -> tuple[int, str]:
    """A number as strtol reads it: none counts as 0, a negative one is a mistake."""
    value, rest = leading_int(text) or (0, text)
    if value < 0:
        raise bad
    return value, rest


def _targets(word: str, options: Options) -> tuple[list[Target], str]:
    bad = Stop(Reply("", f"{options.notes}{NAME}: error: Invalid job id {word}\n", 1))
    job_id, rest = _number(word, bad)
    if job_id <= 0:
        raise bad
    task_id = het_offset = step_id = None
    if rest.startswith("_["):
        inside, close, after = rest[2:].partition("]")
        if not close or after:
            raise bad
        try:
            numbers = [int(name) for name in hostlist.expand(f"[{inside}]")]
        except hostlist.HostlistError as error:
            said = f"{NAME}: error: {error}\n" if str(error) else ""
            raise Stop(Reply("", options.notes + said + bad.reply.stderr.removeprefix(options.notes), 1)) from None
        except ValueError:
            raise bad from None
        return [Target(job_id, word, number) for number in numbers], ""
    if rest.startswith("_*"):
        task_id, rest = EVERY_TASK, rest[2:]
    elif rest.startswith("_"):
        task_id, rest = _number(rest[1:], bad)
    elif rest.startswith("+"):
        het_offset, rest = _number(rest[1:], bad)
    if rest.startswith("."):
        step_id, rest = _number(rest[1:], bad)
    if rest and not rest.startswith(","):
        raise bad
    text = word[:len(word) - len(rest)] if rest else word
    return [Target(job_id, text, task_id, het_offset, step_id)], rest


def list_text(options: Options) -> str:
    """What -vvv says about the options."""
    def flag(value: bool) -> str:
        return "true" if value else "false"

    def text(value: str | None) -> str:
        return "(null)" if value is None else value

    lines = [("account", text(options.account)), ("batch", flag(options.batch)), ("ctld", flag(options.ctld)),
             ("cron", flag(options.cron)), ("full", flag(options.full)), ("hurry", flag(options.hurry)),
             ("interactive", flag(options.interactive)), ("job_name", text(options.job_name)),
             ("nodelist", text(options.nodelist)), ("partition", text(options.partition)), ("qos", text(options.qos)),
             ("reservation", text(options.reservation)), ("sibling", text(options.sibling))]
    if options.signal is not None:
        lines.append(("signal", str(options.signal)))
    lines += [("state", options.state or "?"), ("user_id", str(options.uid)), ("user_name", text(options.user_name)),
              ("verbose", str(options.verbose)), ("wckey", text(options.wckey))]
    for index, target in enumerate(options.targets):
        if target.step_id is None:
            lines.append((f"job_id[{index}]", target.job_text))
        else:
            lines.append((f"job_step_id[{index}]", f"{target.job_text}.{target.step_id}"))
    return "".join(f"{NAME}: {name:<15}: {value}\n" for name, value in lines)
