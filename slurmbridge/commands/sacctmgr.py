"""sacctmgr: accounts, users, associations, QOS and what hangs on them (sacctmgr(1)).

``run`` reads the options and the one command of the line, or commands from standard input when there is none. What a
command changes goes to the controller as operations of ``views/directory.py``, after the question.
"""
from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from slurmbridge.commands import sacctmgr_accounts as accounts
from slurmbridge.commands import sacctmgr_archive as archive
from slurmbridge.commands import sacctmgr_books as books
from slurmbridge.commands import sacctmgr_clusters as clusters
from slurmbridge.commands import sacctmgr_coordinators as coordinators
from slurmbridge.commands import sacctmgr_dump as dump
from slurmbridge.commands import sacctmgr_events as events
from slurmbridge.commands import sacctmgr_federations as federations
from slurmbridge.commands import sacctmgr_jobs as jobs
from slurmbridge.commands import sacctmgr_lists as lists
from slurmbridge.commands import sacctmgr_load as load
from slurmbridge.commands import sacctmgr_qos as qos
from slurmbridge.commands import sacctmgr_reservations as reservations
from slurmbridge.commands import sacctmgr_resources as resources
from slurmbridge.commands import sacctmgr_user_removal as user_removal
from slurmbridge.commands import sacctmgr_users as users
from slurmbridge.commands import sacctmgr_wckeys as wckeys
from slurmbridge.commands.common import VERSION_LINE, command, parse_options, refuse_json
from slurmbridge.commands.sacctmgr_fields import matches
from slurmbridge.commands.sacctmgr_talk import Talk
from slurmbridge.slurm.getopt import OptionTable, long_options
from slurmbridge.views.session import Reply, Session

Handler = Callable[[Talk, Sequence[str]], Awaitable[None]]
OPTIONS = OptionTable("hionpPQrsvV", long_options("""
    autocomplete= help:h usage:h immediate:i noheader:n oneliner:o parsable:p parsable2:P quiet:Q readonly:r
    associations:s verbose:v version:V json=? yaml=?"""))
USAGE = """\
sacctmgr [OPTION...] COMMAND ENTITY [NAME...] [where CONDITION=VALUE...] [set FIELD=VALUE...]

  -i, --immediate     change without asking        -n, --noheader    no header
  -p, --parsable      fields ended by '|'          -P, --parsable2   fields separated by '|'
  -Q, --quiet         print less                   -r, --readonly    allow no changes
  -s, --associations  list with associations       -V, --version     print the version

  add|modify|delete   account, cluster, coordinator, qos, user (modify: job too)
  list|show           account, association, cluster, configuration, event, problem, qos, runawayjobs, stats,
                      transactions, tres, user, wckey
  dump CLUSTER [file=FILE]       load file=FILE [clean]       ping       version
  archive dump [jobs|steps|events|reservations|suspend|txn] PurgeJobAfter=12months... [directory=DIR]
  archive load file=FILE
"""


Entities = tuple[tuple[str, int, Handler], ...]
_ADD: Entities = (
    ("Account", 1, accounts.add_account), ("Acct", 4, accounts.add_account), ("Cluster", 2, clusters.add_cluster),
    ("Coordinator", 2, coordinators.add_coordinator),
    ("Federation", 1, federations.add_federation), ("QOS", 1, qos.add_qos),
    ("Resource", 1, resources.add_resource), ("User", 1, users.add_user))
_MODIFY: Entities = (
    ("Accounts", 1, accounts.modify_account), ("Acct", 4, accounts.modify_account),
    ("Clusters", 5, clusters.modify_cluster),
    ("Federation", 1, federations.modify_federation), ("Job", 1, jobs.modify_job),
    ("QOSs", 1, qos.modify_qos), ("Resource", 1, resources.modify_resource), ("Users", 1, users.modify_user))
_DELETE: Entities = (
    ("Accounts", 1, accounts.delete_account), ("Acct", 4, accounts.delete_account),
    ("Clusters", 2, clusters.delete_cluster), ("Coordinators", 2, coordinators.delete_coordinator),
    ("Federations", 1, federations.delete_federation),
    ("QOS", 2, qos.delete_qos), ("Resource", 1, resources.delete_resource),
    ("Users", 1, user_removal.delete_user))
_LIST: Entities = (
    ("Accounts", 2, lists.list_account), ("Acct", 4, lists.list_account), ("Associations", 2, lists.list_association),
    ("Clusters", 2, lists.list_cluster), ("Configuration", 2, books.list_configuration),
    ("Events", 1, events.list_event), ("Federation", 1, books.list_federation), ("Instances", 1, books.list_instance),
    ("Problems", 1, books.list_problem), ("RunawayJobs", 2, jobs.list_runaway), ("OrphanJobs", 1, jobs.list_runaway),
    ("LostJobs", 1, jobs.list_runaway), ("QOS", 1, lists.list_qos), ("Resource", 4, resources.list_resource),
    ("Reservations", 4, reservations.list_reservation), ("Resv", 4, reservations.list_reservation),
    ("Stats", 1, books.list_stats),
    ("Transactions", 1, books.list_transactions), ("Txn", 1, books.list_transactions), ("Users", 1, lists.list_user),
    ("WCKeys", 1, wckeys.list_wckey), ("tres", 2, lists.list_tres))
_NONE_ADD = ('No valid entity in add command\nInput line must include "Account", "Cluster", "Coordinator", '
             '"Federation", "QOS", "Resource", or "User"\n')
_NONE_MODIFY = ('No valid entity in modify command\nInput line must include "Account", "Cluster", "Federation", '
                '"Job", "QOS", "Resource" or "User"\n')
_NONE_DELETE = ('No valid entity in delete command\nInput line must include "Account", "Cluster", "Coordinator", '
                '"Federation", "QOS", "Resource", or "User"\n')
_NONE_LIST = ('No valid entity in list command\nInput line must include "Account", "Association", "Cluster", '
              '"Configuration",\n"Event", "Federation", "Problem", "QOS", "Resource", "Reservation",\n'
              '"RunAwayJobs", "Stats", "Transaction", "TRES", "User", or "WCKey"\n')


@command
async def run(argv: Sequence[str], env: Mapping[str, str], session: Session) -> Reply:
    """The whole program; see sacctmgr(1)."""
    talk = Talk(session, env)
    operands: list[str] = []
    for key, _value in parse_options("sacctmgr", argv, OPTIONS, operands=operands):
        if key == "h":
            return Reply(USAGE)
        if key == "V":
            return Reply(VERSION_LINE)
        if key in ("json", "yaml"):
            raise refuse_json("sacctmgr", f"--{key}")
        if key == "i":
            talk.immediate = True
        elif key == "n":
            talk.header = False
        elif key in ("p", "P"):
            talk.parsable = key
        elif key == "r":
            talk.readonly = True
        elif key == "s":
            talk.with_assoc = True
        elif key == "Q":
            talk.quiet = True
        elif key == "v":
            talk.verbosity += 1
    if operands:
        await execute(talk, operands)
    else:
        await _converse(talk)
    return talk.reply()


async def _converse(talk: Talk) -> None:
    """Commands from standard input, one a line."""
    failed = 0
    while True:
        talk.say("sacctmgr: ")
        await talk.flush()
        line = await talk.line()
        if line is None:
            talk.say("\n")
            break
        if not talk.session.invocation.stdin_is_tty:
            talk.say(line + "\n")
        if line.startswith("#"):
            continue
        words = _split_line(line)
        if words and any(matches(words[0], name, 4) for name in ("exit", "quit")):
            break
        if words:
            await execute(talk, words)
        failed = failed or talk.exit_code
        talk.exit_code = 0
        await talk.flush()
    talk.exit_code = failed


def _split_line(line: str) -> list[str]:
    """Blanks separate words but within quotes; quotes stay part of the word, and one that begins it does not count."""
    words: list[str] = []
    word, quote = "", ""
    for char in line:
        if char.isspace() and not quote:
            if word:
                words.append(word)
            word = ""
            continue
        if word and char in "\"'":
            quote = "" if quote == char else quote or char
        word += char
    return [*words, word] if word else words


async def execute(talk: Talk, words: Sequence[str]) -> None:
    """One command."""
    word, rest = words[0], words[1:]
    if matches(word, "dump", 3):
        await dump.dump(talk, rest)
    elif matches(word, "load", 2):
        if _may_change(talk):
            await load.load(talk, rest)
    elif matches(word, "add", 3) or matches(word, "create", 3):
        await _entity(talk, rest, _ADD, _NONE_ADD, True)
    elif matches(word, "archive", 3):
        await _archive(talk, rest)
    elif matches(word, "clear", 3):
        if not rest or not matches(rest[0], "Stats", 1):
            talk.complain('No valid entity in list command\nInput line must include "Stats"\n')
        elif not talk.is_super:
            talk.exit_code = 1                # and nothing is said
    elif matches(word, "show", 3) or matches(word, "list", 3):
        await _entity(talk, rest, _LIST, _NONE_LIST, False)
    elif matches(word, "modify", 1) or matches(word, "update", 1):
        await _entity(talk, rest, _MODIFY, _NONE_MODIFY, True)
    elif matches(word, "delete", 3) or matches(word, "remove", 3):
        await _entity(talk, rest, _DELETE, _NONE_DELETE, True)
    elif matches(word, "help", 2):
        talk.say(USAGE)
    else:
        _plain(talk, word, rest)


def _plain(talk: Talk, word: str, rest: Sequence[str]) -> None:
    """Words that take no entity."""
    known = next((name for name, letters in (
        ("associations", 3), ("exit", 1), ("quit", 4), ("oneliner", 1), ("quiet", 4), ("readonly", 4),
        ("verbose", 4), ("ping", 4), ("reconfigure", 4), ("rollup", 2), ("shutdown", 4), ("version", 4))
        if matches(word, name, letters)), None)
    if known is None:
        talk.complain(f"invalid keyword: {word}\n")
        return
    if rest and known != "rollup":
        talk.complain(f"too many arguments for {word} keyword\n")
    if known == "associations":
        talk.with_assoc = True
    elif known == "readonly":
        talk.readonly = True
    elif known == "ping":
        talk.say("slurmdbd(primary) at 127.0.0.1 is UP\n")
    elif known == "version":
        talk.say(VERSION_LINE)
    elif known == "shutdown":
        talk.complain(" Problem shutting down server: the ledger belongs to the controller; use 'slurmbridge down'\n")


def _may_change(talk: Talk) -> bool:
    if talk.readonly:
        talk.complain("Can't run this command in readonly mode.\n")
    return not talk.readonly


async def _entity(talk: Talk, words: Sequence[str], entities: Entities, none: str, changes: bool) -> None:
    if changes and not _may_change(talk):
        return
    if words:
        for name, letters, handler in entities:
            if matches(words[0], name, letters):
                await handler(talk, words[1:])
                return
    talk.complain(none)


async def _archive(talk: Talk, rest: Sequence[str]) -> None:
    if not _may_change(talk):
        return
    if rest and matches(rest[0], "dump", 1):
        await archive.dump(talk, rest[1:])
    elif rest and matches(rest[0], "load", 1):
        await archive.load(talk, rest[1:])
    else:
        talk.complain('No valid entity in archive command\nInput line must include, "Dump", or "load"\n')
