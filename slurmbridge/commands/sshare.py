"""sshare: the shares of the association tree, their usage and what fair share makes of both (sshare(1))."""
from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from slurmbridge.commands.common import (
    VERSION_LINE,
    Stop,
    check_clusters,
    command,
    parse_options,
    refuse_json,
    user_name,
)
from slurmbridge.slurm import hostlist
from slurmbridge.slurm.columns import ColumnField, ColumnPrinter
from slurmbridge.slurm.getopt import OptionTable, long_options
from slurmbridge.views.records import FAIRSHARE_PARENT, AssociationData
from slurmbridge.views.session import Reply, Session

_WIRE = 1e6
"""Slurm sends doubles multiplied by this; the round trip can move the last bit."""

_API_VERSION = "slurm_api_version: 2883584, 44.0.0\n"

_OPTIONS = OptionTable("aA:ehlM:no:pPqUu:t:vVm", long_options("""
    autocomplete= accounts=:A all:a helpformat:e long:l partition:m cluster=:M clusters=:M noheader:n format=:o
    parsable:p parsable2:P users=:u Users:U verbose:v version:V help usage:help json=? yaml=?"""))

_HELP = """Usage: sshare [OPTION]...
  -a, --all              all users
  -A, --accounts=LIST    only these accounts
  -e, --helpformat       the fields that --format knows
  -l, --long             more columns: normalized usage, limits, running TRES minutes
  -m, --partition        a column with the partition of the association
  -M, --cluster=NAME     the cluster to ask
  -n, --noheader         no header
  -o, --format=LIST      the columns, each as NAME or NAME%WIDTH
  -p, --parsable         columns between '|', one '|' at the end of a line
  -P, --parsable2        columns between '|'
  -u, --users=LIST       only these users
  -U, --Users            only rows of users
  -v, --verbose          say which users and accounts are asked for
  -V, --version          the version
  --help, --usage        this text
"""


@dataclass(slots=True)
class _Request:
    """The command line."""

    all_users: bool = False
    accounts: list[str] = field(default_factory=list)
    users: list[str] = field(default_factory=list)
    clusters: list[str] = field(default_factory=list)
    words: str = ""                           # -o, collected
    long: bool = False
    partitions: bool = False
    users_only: bool = False
    header: bool = True
    parsable: str = ""
    verbose: int = 0
    said: str = ""                            # standard error so far


@dataclass(frozen=True, slots=True)
class _Row:
    """One printed association; ``name`` is its account with the indentation of the tree."""

    share: Mapping[str, Any]
    name: str
    data: AssociationData
    tres: Sequence[str]

    def number(self, key: str) -> str | None:
        value = self.share[key]
        return None if value is None else repr(value * _WIRE / _WIRE)


def _tres_text(row: _Row, counts: Callable[[str], int | None]) -> str | None:
    """``cpu=1,mem=2`` of all TRES of the cluster for which there is a count."""
    shown = [f"{name}={count}" for name in row.tres if (count := counts(name)) is not None]
    return ",".join(shown) or None


def _raw_shares(row: _Row, width: int = 0) -> str | None:
    """A number, never cut, or a word that is."""
    shares = row.share["raw_shares"]
    if shares == FAIRSHARE_PARENT:
        return "parent"[:width - 1] + "+" if 0 < width < len("parent") else "parent"
    return None if shares is None else str(shares)


_FIELDS: tuple[ColumnField[_Row], ...] = (
    ColumnField("Account", -20, lambda row: row.name),
    ColumnField("Cluster", 10, lambda row: row.data.cluster),
    ColumnField("EffectvUsage", 13, lambda row: row.number("effective_usage"), "float"),
    ColumnField("FairShare", 10, lambda row: row.number("fair_share"), "float"),
    ColumnField("GrpTRESMins", 30, lambda row: _tres_text(row, row.share["assoc"].limits.grp_tres_mins.get)),
    ColumnField("GrpTRESRaw", 30,
                lambda row: _tres_text(row, lambda tres: int(row.share["assoc"].usage_tres_raw.get(tres, 0) / 60))),
    ColumnField("ID", 6, lambda row: str(row.share["assoc"].id), "number"),
    ColumnField("LevelFS", 10, lambda row: row.number("level_fs"), "float"),
    ColumnField("NormShares", 11, lambda row: row.number("norm_shares"), "float"),
    ColumnField("NormUsage", 11, lambda row: row.number("norm_usage"), "float"),
    ColumnField("Partition", 12, lambda row: row.share["assoc"].partition or None),
    ColumnField("RawShares", 10, _raw_shares, "number"),
    ColumnField("RawUsage", 11, lambda row: str(int(row.share["raw_usage"])), "number"),
    ColumnField("TRESRunMins", 30,
                lambda row: _tres_text(row, lambda tres: row.share["tres_run_s"].get(tres, 0) // 60)),
    ColumnField("User", 10, lambda row: row.share["assoc"].user or None))


_WORD = re.compile(r"(?:\[[^\]]*\]|[^,])+")


def _unquoted(text: str) -> str:
    """The content of a leading quote; other quotes become grave accents."""
    if text[:1] in ("'", '"'):
        text = text[1:].partition(text[0])[0]
    return text.replace("'", "`").replace('"', "`")


def _merge(words: list[str], more: str) -> list[str]:
    """Lower-cased words, those with brackets expanded; one that comes again moves to the end. Nothing is one empty
    word."""
    for part in _WORD.findall(_unquoted(more)) or [""]:
        for word in _expanded(part):
            name = word.strip().lower()
            words = [*(other for other in words if other != name), name]
    return words


def _expanded(word: str) -> list[str]:
    try:
        return hostlist.expand(word) if "[" in word else [word]
    except hostlist.HostlistError:
        return [word]


def _add_users(users: list[str], text: str) -> None:
    for word in filter(None, _unquoted(text).split(",")):
        name = word
        if word[0].isdigit():
            digits = word[:len(word) - len(word.lstrip("0123456789"))]
            name = user_name(int(digits))
            if name == "nobody" and int(digits) != 65534:
                raise Stop(Reply("", f"Invalid user id: {int(digits) & 0xFFFFFFFF}\n", 1))
        if name not in users:
            users.append(name)


def _help_format() -> str:
    lines = [" ".join(f"{column.name:<17}" for column in _FIELDS[at:at + 4]) for at in range(0, len(_FIELDS), 4)]
    return "\n".join(lines) + "\n"


def _read(argv: Sequence[str], own_cluster: str) -> _Request:
    """The command line. Raises Stop for mistakes and for options that only print something."""
    request = _Request()
    for key, value in parse_options("sshare", argv, _OPTIONS):
        text = value or ""
        if key == "a":
            request.all_users = True
        elif key == "A":
            request.accounts = _merge(request.accounts, text)
        elif key == "e":
            raise Stop(Reply(_help_format()))
        elif key in ("h", "n"):
            request.header = False
        elif key == "l":
            request.long = True
        elif key == "M":
            request.said += check_clusters("sshare", text, own_cluster)
            request.clusters = [own_cluster]
        elif key == "m":
            request.partitions = True
        elif key == "o":
            request.words += text + ","
        elif key in ("p", "P"):
            request.parsable = key
        elif key == "u":
            request.all_users = text == "-1"
            if not request.all_users:
                _add_users(request.users, text)
        elif key == "U":
            request.users_only = True
        elif key == "v":
            request.verbose += 1
        elif key == "V":
            raise Stop(Reply(VERSION_LINE + (_API_VERSION if request.verbose else "")))
        elif key == "help":
            raise Stop(Reply(_HELP))
        elif key in ("json", "yaml"):
            raise refuse_json("sshare", f"--{key}")
        else:
            raise Stop(Reply("", f"getopt error, returned {key}\n", 1))
    return request


def _default_words(request: _Request, fair_tree: bool) -> list[str]:
    words = ["account", "user", *(["partition"] if request.partitions else []), "rawshares", "normshares", "rawusage"]
    if not request.long:
        return [*words, "effectvusage", "fairshare"]
    level = ["levelfs"] if fair_tree else []
    return [*words, "normusage", "effectvusage", "fairshare", *level, "grptresmins", "tresrunmins"]


def _columns(words: Sequence[str]) -> list[ColumnField[_Row]]:
    """The columns of these words: each the first field that begins with it, with ``%width`` perhaps (the width then
    holds for all columns of that field). Raises Stop for a word that begins no field."""
    picked, widths = [], {}
    for word in words:
        name, percent, width = word.partition("%")
        column = next((one for one in _FIELDS if one.name.lower().startswith(name)), None)
        if column is None:
            raise Stop.error("sshare", f'Invalid field requested: "{name}"')
        sign = width.strip().startswith("-")
        digits = width.strip().lstrip("+-")
        digits = digits[:len(digits) - len(digits.lstrip("0123456789"))]
        if percent and int(digits or 0):
            widths[column.name] = -int(digits) if sign else int(digits)
        picked.append(column)
    sized = [replace(column, width=widths.get(column.name, column.width)) for column in picked]
    return [replace(column, value=partial(_raw_shares, width=abs(column.width)))
            if column.name == "RawShares" else column for column in sized]


def _visible(session: Session) -> Callable[[Mapping[str, Any]], bool]:
    """PrivateData=usage: others than operators see their own associations and the accounts they coordinate."""
    views, identity = session.views, session.identity
    private = {word.strip().lower() for word in views.conf.values.get("PrivateData", "").split(",")}
    user = views.accounting.users.get(identity.user_name)
    operator = identity.is_admin or (user is not None and user.admin_level in ("Operator", "Administrator"))
    if operator or not private & {"usage", "all"}:
        return lambda share: True
    coordinated = {account.lower() for account in user.coordinator_of} if user else set()
    return lambda share: (share["assoc"].user == identity.user_name
                          or share["assoc"].account.lower() in coordinated)


def _rows(request: _Request, session: Session) -> list[_Row]:
    """What is to be printed, in tree order. Indentation follows the accounts that are printed themselves."""
    data = session.views.accounting
    users = {user.lower() for user in request.users}
    accounts = set(request.accounts)
    tres = sorted(data.tres, key=lambda name: data.tres[name])
    visible = _visible(session)
    indents: dict[str, str] = {}
    rows = []
    for share in session.views.shares():
        association = share["assoc"]
        if association.user and users and association.user.lower() not in users:
            continue
        if accounts and association.account.lower() not in accounts:
            continue
        if not visible(share) or (request.users_only and not association.user):
            continue
        if association.user:
            above = association.account
        else:
            parent = data.associations.get(association.parent_id)
            above = parent.account if parent else ""
        indent = indents[above] + " " if above in indents else ""
        if not association.user:
            indent = indents.setdefault(association.account, indent)
        rows.append(_Row(share, indent + association.account, data, tres))
    return rows


@command
async def run(argv: Sequence[str], env: Mapping[str, str], session: Session) -> Reply:
    """sshare(1)."""
    conf = session.views.conf
    request = _read(argv, conf.cluster_name)
    said = request.said
    if request.all_users:
        request.users = []
        said += "Users requested:\n\t: all\n" if request.verbose else ""
    else:
        request.users = request.users or [session.identity.user_name]
        said += "Users requested:\n" + "".join(f"\t: {user}\n" for user in request.users) if request.verbose else ""
    if request.verbose:
        said += "Accounts requested:\n" + "".join(f"\t: {name}\n" for name in request.accounts or ["all"])
    fair_tree = not conf.priority.flags & {"NO_FAIR_TREE", "DEPTH_OBLIVIOUS"}
    words = _merge([], request.words) if request.words else _default_words(request, fair_tree)
    titles = "".join(f"CLUSTER: {name}\n" for name in request.clusters)
    try:
        columns = _columns(words)
    except Stop as stop:
        raise Stop(replace(stop.reply, stdout=titles + stop.reply.stdout, stderr=said + stop.reply.stderr)) from None
    printer = ColumnPrinter(columns, parsable=request.parsable, header=request.header)
    text = printer.header_text() + printer.rows(_rows(request, session))
    return Reply(titles + text, said)
