"""sreport: reports on usage, from the roll-ups of the ledger and from jobs and reservations (sreport(1)).

``run`` reads the options and the one command of the line, or commands from standard input when there is none.
"""
from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from slurmbridge.commands import sreport_cluster as cluster
from slurmbridge.commands import sreport_jobs as jobs
from slurmbridge.commands import sreport_reservations as reservations
from slurmbridge.commands import sreport_users as users
from slurmbridge.commands.common import VERSION_LINE, Stop, command, parse_options
from slurmbridge.commands.sreport_help import HELP
from slurmbridge.commands.sreport_talk import Talk, begins, set_sort, set_tres, set_unit
from slurmbridge.slurm.getopt import OptionTable, long_options
from slurmbridge.views.session import Reply, Session

Report = Callable[[Talk, Sequence[str]], Awaitable[None]]
OPTIONS = OptionTable("aM:hnpPQs:t:T:vV", long_options("""
    autocomplete= all_clusters:a cluster=:M federation help:h immediate:i local noheader:n parsable:p parsable2:P
    quiet:Q sort tres=:T usage:h verbose:v version:V"""))
ONE_CLUSTER = "Only one cluster option can be used (--all_clusters OR --cluster OR --local)\n"


API_MAJOR = 44
"""Of the library of Slurm 25.11."""


@command
async def run(argv: Sequence[str], env: Mapping[str, str], session: Session) -> Reply:
    talk = Talk(session, env)
    talk.tres_text = env.get("SREPORT_TRES")
    local = "SREPORT_LOCAL" in env or "SREPORT_CLUSTER" in env
    operands: list[str] = []
    for key, value in parse_options("sreport", argv, OPTIONS, operands=operands):
        if key in ("h", "V"):
            return Reply(HELP if key == "h" else _version(talk))
        local = local or key == "local"
        _take(talk, key, value or "")
    if talk.all_clusters + bool(talk.clusters) + local > 1:
        talk.complain(ONE_CLUSTER)
        return talk.reply()
    set_tres(talk)
    if operands:
        await _execute(talk, operands)
    else:
        await _converse(talk)
    return talk.reply()


def _version(talk: Talk) -> str:
    number = API_MAJOR << 16
    return VERSION_LINE + (f"slurm_api_version: {number}, {API_MAJOR}.0.0\n" if talk.quiet == -1 else "")


def _take(talk: Talk, key: str, value: str) -> None:
    if key == "a":
        talk.all_clusters = True
    elif key == "M":
        talk.clusters = value
    elif key == "n":
        talk.header = False
    elif key in ("p", "P"):
        talk.parsable = key
    elif key == "Q":
        talk.quiet = 1
    elif key == "v":
        talk.quiet = -1
    elif key == "s":
        set_sort(talk, value)
    elif key == "t":
        set_unit(talk, value)
    elif key == "T":
        talk.tres_text = value


async def _converse(talk: Talk) -> None:
    """Commands from standard input, one a line, until it ends."""
    last = ""
    failed = 0
    while True:
        talk.say("sreport: ")
        await talk.flush()
        line = (await talk.session.read_line()).decode("utf-8", "surrogateescape")
        if not line:
            talk.say("\n")
            break
        line = line.rstrip("\n")
        if not talk.session.invocation.stdin_is_tty:
            talk.say(line + "\n")
        if line.startswith("#"):
            continue
        if line == "!!":
            line = last
        last = line
        try:
            if await _execute(talk, _split(line)):
                break
        except Stop as stop:                   # a fatal mistake ends the conversation
            talk.warn(stop.reply.stderr)
            talk.exit_code = stop.reply.exit_code
            return
        failed = failed or talk.exit_code
    talk.exit_code = failed or talk.exit_code


def _split(line: str) -> list[str]:
    """Blanks separate words but within quotes, which stay part of the word."""
    words: list[str] = []
    word, quote = "", ""
    for char in line:
        if char.isspace() and not quote:
            words += [word] if word else []
            word = ""
            continue
        if word and char in "\"'":
            quote = "" if quote == char else quote or char
        word += char
    return [*words, word] if word else words


async def _execute(talk: Talk, words: Sequence[str]) -> bool:
    """One command. True: the conversation is over."""
    if not words:
        talk.exit_code = 1
        if talk.quiet == -1:
            talk.warn("no input")
        return False
    word, rest = words[0], list(words[1:])
    for name, letters, reports in _KINDS:
        if begins(word, name, letters):
            if not rest:
                talk.complain("" if talk.quiet == 1 else f"too few arguments for keyword:{word}\n")
            else:
                await reports(talk, rest)
            return False
    if begins(word, "sort", 1) or begins(word, "time", 1):
        if not rest:
            talk.complain(f"too few arguments for keyword:{word}\n")
        else:
            (set_sort if begins(word, "sort", 1) else set_unit)(talk, rest[0])
        return False
    return _plain(talk, word, rest)


def _plain(talk: Talk, word: str, rest: Sequence[str]) -> bool:
    """Words that take no arguments."""
    name = next((name for name, letters in (
        ("help", 2), ("quiet", 4), ("exit", 1), ("\\q", 2), ("quit", 4), ("local", 3), ("nonparsable", 4),
        ("parsable", 8), ("parsable2", 9), ("verbose", 4), ("version", 4)) if begins(word, name, letters)), None)
    if name is None:
        talk.complain(f"invalid keyword: {word}\n")
        return False
    if rest:
        odd = f"{word} keyword" if name in ("verbose", "version") else f"keyword:{word}"
        talk.complain(f"too many arguments for {odd}\n")
    if name == "help":
        talk.say(HELP)
    elif name == "version":
        talk.say(_version(talk))
    elif name in ("quiet", "verbose"):
        talk.quiet = 1 if name == "quiet" else -1
    elif name in ("nonparsable", "parsable", "parsable2"):
        talk.parsable = {"nonparsable": "", "parsable": "p", "parsable2": "P"}[name]
    return name in ("exit", "\\q", "quit")


# ---------------------------------------------------------------------------------------------------------- reports


async def _cluster(talk: Talk, words: Sequence[str]) -> None:
    name, rest = words[0], words[1:]
    report = _by_start(name, (
        ("AccountUtilizationByU", cluster.account_by_user), ("AccountUtilizationByQ", cluster.account_by_qos),
        ("AQ", cluster.account_by_qos), ("UserUtilizationByA", cluster.user_by_account),
        ("UA", cluster.user_by_account), ("UserUtilizationByW", cluster.user_by_wckey), ("UW", cluster.user_by_wckey),
        ("Ut", cluster.utilization), ("W", cluster.wckey_by_user)))
    if report is None:
        talk.complain(f'Not valid report {name}\nValid cluster reports are, "AccountUtilizationByUser", '
                      '"AccountUtilizationByQOS", "UserUtilizationByAccount", "UserUtilizationByWckey", '
                      '"Utilization", and "WCKeyUtilizationByUser"\n')
        return
    await report(talk, rest)


async def _job(talk: Talk, words: Sequence[str]) -> None:
    name, rest = words[0], words[1:]
    for known, letters, report in (("SizesByAccount", 1, jobs.by_account), ("SizesByWcKey", 8, jobs.by_wckey),
                                   ("SizesByAccountAndWcKey", 15, jobs.by_account_and_wckey)):
        if begins(name, known, letters):
            await report(talk, rest)
            return
    talk.complain(f'Not valid report {name}\nValid job reports are, "SizesByAccount, SizesByAccountAndWcKey, and  '
                  'SizesByWckey"\n')


async def _user(talk: Talk, words: Sequence[str]) -> None:
    if _by_start(words[0], (("T", users.top),)) is None:
        talk.complain(f'Not valid report {words[0]}\nValid user reports are, "Top"\n')
        return
    await users.top(talk, words[1:])


async def _reservation(talk: Talk, words: Sequence[str]) -> None:
    if _by_start(words[0], (("U", reservations.utilization),)) is None:
        talk.complain(f'Not valid report {words[0]}\nValid reservation reports are, "Utilization"\n')
        return
    await reservations.utilization(talk, words[1:])


def _by_start(word: str, reports: Sequence[tuple[str, Report]]) -> Report | None:
    """Of these names only so many letters are looked at."""
    return next((report for start, report in reports if word.lower().startswith(start.lower())), None)


_KINDS: tuple[tuple[str, int, Report], ...] = (
    ("cluster", 2, _cluster), ("job", 1, _job), ("reservation", 2, _reservation), ("resv", 2, _reservation),
    ("user", 1, _user))
