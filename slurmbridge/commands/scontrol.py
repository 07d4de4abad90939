"""scontrol: what is there, and administrators' acts on it. Options and commands as in scontrol(1) of 25.11."""
from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from slurmbridge.commands import scontrol_acts, scontrol_show, scontrol_update
from slurmbridge.commands import scontrol_daemons as daemons
from slurmbridge.commands.common import VERSION_LINE, Stop, check_clusters, command, parse_options, refuse_json, uid_of
from slurmbridge.commands.scontrol_call import NAME, Call, starts
from slurmbridge.commands.scontrol_config import ping_text
from slurmbridge.commands.scontrol_help import HELP
from slurmbridge.commands.scontrol_refused import refused
from slurmbridge.commands.scontrol_talk import converse
from slurmbridge.slurm import errors, states
from slurmbridge.slurm.durations import format_seconds
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.slurm.getopt import OptionTable, long_options
from slurmbridge.slurm.hostlist import compress
from slurmbridge.slurm.memory import atoi
from slurmbridge.views.session import Reply, Session

OPTIONS = OptionTable("adhM:FoQu:vV", long_options("""
    autocomplete= all:a cluster=:M clusters=:M details:d federation future:F help:h hide json=? local oneliner:o quiet:Q
    sibling uid=:u usage:h verbose:v version:V yaml=?"""))
_API_LINE = "slurm_api_version: 2883584, 44.0.0\n"


def _version(call: Call) -> str:
    return VERSION_LINE + (_API_LINE if call.verbose else "")


def _read_options(call: Call, argv: Sequence[str]) -> list[str]:
    """Sets the call's flags; the words of the command. Raises Stop."""
    own = call.session.views.conf.cluster_name
    call.show_all = "SCONTROL_ALL" in call.env
    call.future = "SCONTROL_FUTURE" in call.env
    words: list[str] = []
    clusters = call.env.get("SLURM_CLUSTERS", "")
    end = _options_end(argv)
    for key, value in parse_options(NAME, argv[:end], OPTIONS, operands=words):
        if key == "a":
            call.show_all = True
        elif key == "d":
            call.details = True
        elif key == "F":
            call.future = True
        elif key == "h":
            raise Stop(Reply(HELP))
        elif key == "hide":
            call.show_all = call.details = False
        elif key == "M":
            clusters = value or ""
        elif key == "o":
            call.one_line = True
        elif key == "Q":
            call.quiet, call.verbose = True, False
        elif key == "u":
            if uid_of(value or "") is None:
                raise Stop.error(NAME, f'--uid="{value}" invalid', 0)
        elif key == "v":
            call.verbose, call.quiet = True, False
        elif key == "V":
            raise Stop(Reply(_version(call)))
        elif key in ("json", "yaml"):
            raise refuse_json(NAME, f"--{key}")
    if clusters:
        call.err.append(check_clusters(NAME, clusters, own))
    return [*words, *argv[end:]]


def _options_end(argv: Sequence[str]) -> int:
    """Options stand everywhere, but not after setdebug and setdebugflags, whose flags look like them."""
    for at, word in enumerate(argv):
        if word[:8].lower() == "setdebug":
            return at
        if not word.startswith("-"):
            break
    return len(argv)


@command
async def run(argv: Sequence[str], env: Mapping[str, str], session: Session) -> Reply:
    """scontrol."""
    call = Call(session, env)
    words = _read_options(call, argv)
    call.restyle()
    if words:
        await _command(call, words)
    else:
        await converse(call, _command)
    return call.reply()


async def _command(call: Call, words: Sequence[str]) -> None:
    lower = words[0].lower()
    for name, least, act in _COMMANDS:
        # hold, holdu, uhold and requeuehold are compared by their own length: holdfoo is hold
        if lower.startswith(name) if least == 0 else starts(lower, name, least):
            await act(call, words)
            return
    call.fail(f"invalid keyword: {words[0]}")


def _too_many(call: Call, words: Sequence[str], most: int, text: str = "too many arguments for keyword:{0}") -> bool:
    if len(words) > most:
        call.fail(text.format(words[0]))
        return True
    return False


# ---------------------------------------------------------------------------------------------------- the commands


async def _ping(call: Call, words: Sequence[str]) -> None:
    if not _too_many(call, words, 1):
        call.print(ping_text(call.session.views))


async def _show_version(call: Call, words: Sequence[str]) -> None:
    if len(words) > 1:
        call.fail(f"too many arguments for {words[0]} keyword")
    call.print(_version(call))


async def _reconfigure(call: Call, words: Sequence[str]) -> None:
    _too_many(call, words, 2)
    try:
        await call.session.acts.reconfigure(call.session.identity)
    except SlurmError as error:
        call.details_of(error)
        code = errors.ESLURM_USER_ID_MISSING if error.code == errors.ESLURM_ACCESS_DENIED else error.code
        text = error.text if code == error.code else errors.strerror(code)
        call.complain(f"slurm_reconfigure error:{text}")


async def _shutdown(call: Call, words: Sequence[str]) -> None:
    if len(words) == 2 and words[1] not in ("slurmctld", "controller"):
        call.fail(f"invalid shutdown argument:{words[1]}")
    elif not _too_many(call, words, 2):
        try:
            await call.session.acts.shutdown(call.session.identity)
        except SlurmError as error:
            code = errors.ESLURM_USER_ID_MISSING if error.code == errors.ESLURM_ACCESS_DENIED else error.code
            text = error.text if code == error.code else errors.strerror(code)
            call.complain(f"slurm_shutdown error:{text}")


async def _requeue(call: Call, words: Sequence[str]) -> None:
    await scontrol_acts.requeue(call, words, hold_it=False)


async def _requeue_hold(call: Call, words: Sequence[str]) -> None:
    await scontrol_acts.requeue(call, words, hold_it=True)


async def _error_text(call: Call, words: Sequence[str]) -> None:
    if len(words) != 2:
        call.fail(f"one arguments required for keyword:{words[0]}")
    elif words[1].lstrip("-").isdigit():
        call.print(errors.strerror(int(words[1])) + "\n")
    else:
        call.fail(f"numeric arguments required for keyword:{words[0]}")


async def _completing(call: Call, words: Sequence[str]) -> None:
    """Jobs that are ending, with their nodes that still clean up or are down."""
    if _too_many(call, words, 1):
        return
    views = call.session.views
    for job in views.jobs.values():
        if states.COMPLETING not in job.flags:
            continue
        nodes = [views.nodes[name] for name in job.nodes if name in views.nodes]
        busy = compress([node.name for node in nodes if states.COMPLETING in node.flags], sort=True)
        down = compress([node.name for node in nodes if node.base_state == "DOWN"], sort=True)
        since = format_seconds(int(call.style.now_s - (job.end_s or call.style.now_s)))
        call.print(f"JobId={job.job_id} EndTime={call.style.time(job.end_s)} CompletingTime={since} "
                   + (f"Nodes(COMPLETING)={busy} " if busy else "") + (f"Nodes(DOWN)={down} " if down else "") + "\n")


async def _wait_job(call: Call, words: Sequence[str]) -> None:
    if len(words) != 2:
        call.complain(f"too {'few' if len(words) < 2 else 'many'} arguments for keyword:{words[0]}")
        return
    job_id = atoi(words[1])
    if job_id <= 0:
        call.exit_code = 1
        call.err.append(f"Invalid job_id {words[1]}")
        return
    job = call.session.views.jobs.get(job_id)
    if job is None:
        call.fail(f"{NAME}: Problem running job {job_id}")
    elif job.state not in (states.RUNNING, states.SUSPENDED) or (
            (await call.session.acts.wait_job_start(job_id)).state in states.FINISHED):
        call.fail(f"{NAME}: Job {job_id} no longer running")
    else:
        call.err.append(f"{NAME}: Nodes are ready for job {job_id}\n")


async def _help(call: Call, words: Sequence[str]) -> None:
    _too_many(call, words, 1)
    call.print(HELP)


async def _flag(call: Call, words: Sequence[str]) -> None:
    """all, details, hide, oneliner, quiet, verbose, exit, quit: what holds for the commands that follow."""
    name = next(name for name, least, _ in _COMMANDS if starts(words[0], name, least))
    if name == "all":
        call.show_all = True
    elif name == "hide":
        call.show_all = call.details = False
    elif name == "details":
        call.details = call.details or not _too_many(call, words, 1)
    else:
        _too_many(call, words, 1, *(["too many arguments for {0} keyword"] if name == "verbose" else []))
        call.one_line = call.one_line or name == "oneliner"
        call.leaves = name in ("exit", "quit")
        if name in ("quiet", "verbose"):
            call.quiet, call.verbose = name == "quiet", name == "verbose"


async def _cluster(call: Call, words: Sequence[str]) -> None:
    """There is one."""
    if len(words) > 1:
        call.err.append(check_clusters(NAME, words[1], call.session.views.conf.cluster_name))


Act = Callable[[Call, Sequence[str]], Awaitable[None]]
# (name, letters that must be typed; 0: whatever begins with the name), in scontrol's order: the first match counts
_COMMANDS: tuple[tuple[str, int, Act], ...] = (
    ("all", 2, _flag), ("cancel_reboot", 3, daemons.cancel_reboot), ("completing", 2, _completing),
    ("cluster", 2, _cluster), ("create", 2, scontrol_update.create), ("details", 1, _flag),
    ("errnumstr", 2, _error_text), ("errnostr", 2, _error_text), ("exit", 2, _flag),
    ("getaddrs", 8, daemons.addresses), ("gethost", 7, refused), ("hash_file", 15, refused), ("hash", 9, refused),
    ("help", 2, _help), ("hide", 2, _flag), ("oneliner", 1, _flag), ("pidinfo", 3, refused), ("ping", 3, _ping),
    ("power", 2, daemons.power), ("quiet", 4, _flag), ("quit", 4, _flag), ("reboot_nodes", 3, daemons.reboot),
    ("reconfigure", 3, _reconfigure), ("requeue", 3, _requeue), ("requeuehold", 0, _requeue_hold),
    ("hold", 0, scontrol_acts.hold), ("uhold", 0, scontrol_acts.hold), ("release", 3, scontrol_acts.hold),
    ("suspend", 2, scontrol_acts.suspend), ("resume", 3, scontrol_acts.suspend), ("top", 3, scontrol_acts.top),
    ("token", 3, daemons.token), ("wait_job", 2, _wait_job), ("setdebugflags", 9, daemons.set_debug_flags),
    ("fsdampeningfactor", 3, daemons.dampening_factor), ("fairsharedampeningfactor", 3, daemons.dampening_factor),
    ("setdebug", 2, daemons.set_debug), ("schedloglevel", 3, daemons.sched_log_level),
    ("show", 3, scontrol_show.show), ("write", 5, scontrol_acts.write), ("takeover", 8, daemons.take_over),
    ("shutdown", 8, _shutdown), ("update", 1, scontrol_update.update), ("delete", 1, scontrol_update.delete),
    ("verbose", 4, _flag), ("version", 4, _show_version), ("listpids", 1, refused),
    ("listjobs", 1, daemons.list_running), ("liststeps", 1, daemons.list_running), ("getent", 6, refused),
    ("notify", 1, scontrol_acts.notify), ("callerid", 3, refused))
