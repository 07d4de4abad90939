"""``sacctmgr list`` of transactions and of what is looked into (problems, configuration …)."""
from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

from slurmbridge.commands.common import time_texts, uid_of
from slurmbridge.commands.sacctmgr_fields import columns, matches
from slurmbridge.commands.sacctmgr_lists import show
from slurmbridge.commands.sacctmgr_modify import DENIED, deny
from slurmbridge.commands.sacctmgr_rows import Row
from slurmbridge.commands.sacctmgr_talk import Talk
from slurmbridge.commands.sacctmgr_words import Word, name_list, numbers, refuse_operator, split_word
from slurmbridge.slurm import durations, errors
from slurmbridge.slurm.columns import UnknownField
from slurmbridge.slurm.version import SLURM_VERSION
from slurmbridge.slurm.zones import Zone


def take_time(talk: Talk, text: str) -> int | None:
    """None, which is no time at all, where it cannot be read; sacctmgr goes on."""
    try:
        return durations.parse_time(text, talk.session.now(), Zone.of(talk.env), past=True) or None
    except durations.TimeSpecError as error:
        talk.warn(f"{error}\n")
        return None


def _take_time(talk: Talk, word: Word, span: dict[str, int | None]) -> bool:
    for name in ("Start", "End"):
        if word.value is not None and matches(word.name, name, 1):
            span[name.lower()] = take_time(talk, word.operand)
            return True
    return False


_ACTIONS = {f"{verb} {what}" for verb in ("add", "get", "modify", "remove") for what in (
    "accounts", "associations", "clusters", "federations", "resources", "users", "qos", "wckeys", "reservation")} | {
    "add account coord", "remove account coords", "add tres", "modify job", "archive dump", "archive load",
    "register cluster", "cluster tres", "reconfigure", "roll usage", "node state", "flush jobs", "import usage"}
"""What transactions may be called, Slurm's names of requests (and our own)."""


async def list_transactions(talk: Talk, argv: Sequence[str]) -> None:
    span: dict[str, int | None] = {"start": None, "end": None}
    formats: list[str] = []
    actors: list[str] = []
    actions: list[str] = []
    ids: list[int] = []
    with_info = False
    wanted: list[str] = []                     # accounts, users: looked for in the text
    for text in argv:
        word = split_word(text)
        bare = word.value is None
        if not refuse_operator(talk, word, False) or (bare and word.named("where", 5)):
            continue
        if bare and word.named("WithAssocInfo", 5):
            with_info = True
        elif bare or word.named("Ids", 1) or word.named("Txn", 1):
            ids += numbers(talk, word.operand, "Transaction ID")
        elif word.named("Accounts", 3) and not word.named("Action", 4):
            wanted += name_list(word.operand)
        elif word.named("Actors", 4) and word.name.lower() not in ("acti", "actio", "action"):
            actors += name_list(word.operand)
        elif word.named("Action", 4):
            for name in name_list(word.operand):
                if name not in _ACTIONS:
                    talk.log_error(f"You gave a bad action '{name}'.")
                    talk.exit_code = 1
                    break
                actions.append(name)
        elif word.named("Clusters", 3):
            pass
        elif word.named("Format", 1):
            formats.append(word.operand)
        elif _take_time(talk, word, span):
            pass
        elif word.named("Users", 1):
            wanted += name_list(word.operand)
        else:
            talk.complain(f" Unknown condition: {word.text}\n")
    if talk.exit_code:
        return
    text_of, warning = time_texts("sacctmgr", talk.env, talk.session.now())
    talk.warn(warning)
    found = await talk.session.views.ledger_query(
        "changes", start_s=span["start"], end_s=span["end"], actors=actors or None, ids=ids or None)
    rows: list[Row] = [
        {"ts": text_of(change["time_s"]), "action": change["action"], "actionraw": change["action"],
         "actor": change["actor"], "where": change["where_text"], "info": change["info"], "id": str(change["id"]),
         "cluster": talk.cluster}
        for change in found
        if (not actions or change["action"].lower() in actions)
        and (not wanted or any(f"'{name}'" in change["info"] + change["where_text"] or change["where_text"] == name
                               for name in wanted))]
    show(talk, formats or ["Time,Action,Actor,Where,Info"] + (["User,Account,Cluster"] if with_info else []), rows)


async def list_problem(talk: Talk, argv: Sequence[str]) -> None:
    formats: list[str] = []
    asked: dict[str, list[str]] = {"accounts": [], "clusters": [], "partitions": [], "users": []}
    for text in argv:
        word = split_word(text)
        bare = word.value is None
        if bare or word.named("Ids", 1) or word.named("Problems", 2):        # ids are read and not looked at
            continue
        if word.named("Accounts", 2) or word.named("Acct", 4):
            asked["accounts"] += name_list(word.operand)
        elif word.named("Clusters", 1):
            asked["clusters"] += name_list(word.operand)
        elif word.named("Format", 1):
            formats.append(word.operand)
        elif word.named("Partitions", 4):
            asked["partitions"] += name_list(word.operand)
        elif word.named("Users", 1):
            asked["users"] += name_list(word.operand)
        else:
            talk.complain(f" Unknown condition: {word.text}\n")
    if talk.exit_code:
        return
    try:
        columns(formats)
    except UnknownField as error:
        talk.complain(f"Unknown field '{error.args[0]}'\n")
        return
    if not talk.is_operator:
        deny(talk, errors.strerror(errors.ESLURM_ACCESS_DENIED))
        return
    if any(name != talk.cluster for name in asked["clusters"]):              # a table that is not there
        said = errors.strerror(errors.ESLURM_BAD_SQL)
        talk.log_error(said)
        talk.complain(f" Error with request: {said}\n")
        return
    rows = _problems(talk, asked["accounts"], asked["users"], set(asked["partitions"]))
    show(talk, formats or ["Cl,Acct,User,Problem"], rows)


def _problems(talk: Talk, accounts: Sequence[str], users: Sequence[str], partitions: Container[str]) -> list[Row]:
    """Empty lists ask for all; users and partitions are those of associations, which an account has none of."""
    tree = talk.tree()
    rows: list[Row] = []
    for name in sorted(talk.data.accounts):
        if not talk.data.accounts[name].deleted and tree.find(name) is None and (not accounts or name in accounts):
            rows.append({"acct": name, "problem": "Account has no Associations"})
    if (not users or "" in users) and (not partitions or "" in partitions):
        rows += [{"cluster": talk.cluster, "acct": record.account, "problem": "Account has no users"}
                 for record in sorted(tree.in_order(), key=lambda record: record.account)
                 if not record.user and not any(child.user for child in tree.children.get(record.id, ()))
                 and (not accounts or record.account in accounts)]
    for name in sorted(talk.data.users):
        if talk.data.users[name].deleted or (users and name not in users):
            continue
        if uid_of(name) is None:
            rows.append({"user": name, "problem": "User does not have a uid"})
        elif not tree.by_user.get(name):
            rows.append({"user": name, "problem": "User has no Associations"})
    return rows


@dataclass(frozen=True, slots=True)
class _Empty:
    """A table that is always empty here. ``conditions``: "Name:letters" that must be typed at least, in order.

    ``flags``: those without a value; ``bare``: whether any other word without a value is a name.
    """

    default: str
    conditions: str
    flags: str = ""
    bare: bool = False
    advice: str = ""                          # after the line about an unknown condition
    settable: bool = True                     # whether the word "set" is passed over wherever it stands


_SET = " Use keyword 'set' to modify value\n"
_FEDERATION = _Empty("Federation,Cluster,ID%2,Features,FedState", "Names:1 Federations:3 Clusters:3 Format:2",
                     "WithDeleted:5 Tree:4", True, _SET)
_INSTANCE = _Empty("Cluster,NodeName,Start,End,InstanceId,InstanceType,Extra",
                   "Clusters:2 End:2 Extra:2 Format:1 InstanceId:9 InstanceType:9 Nodes:1 Start:4", settable=False)


def _named_in(word: Word, listed: str) -> str:
    for entry in listed.split():
        name, _, letters = entry.partition(":")
        if word.named(name, int(letters)):
            return name
    return ""


def _nothing(talk: Talk, argv: Sequence[str], table: _Empty) -> tuple[list[str], set[str]] | None:
    """The wanted columns and the flags; None: something was wrong (said so)."""
    formats: list[str] = []
    flags: set[str] = set()
    for place, text in enumerate(argv):
        word = split_word(text)
        if not refuse_operator(talk, word, False) or (word.value is None and word.named("where", 5)):
            continue
        if word.named("Set", 3) and (table.settable or not place):
            continue
        flag = "" if word.value is not None else _named_in(word, table.flags)
        name = "Names" if table.bare and word.value is None else _named_in(word, table.conditions)
        if flag:
            flags.add(flag)
        elif name == "Format":
            formats.append(word.operand)
        elif name in ("Start", "End"):
            take_time(talk, word.operand)
        elif not name:
            talk.complain(f" Unknown condition: {word.text}\n{table.advice}")
    return None if talk.exit_code else (formats, flags)


async def list_federation(talk: Talk, argv: Sequence[str]) -> None:
    """There are none."""
    if found := _nothing(talk, argv, _FEDERATION):
        show(talk, found[0] or [_FEDERATION.default], [])


async def list_instance(talk: Talk, argv: Sequence[str]) -> None:
    """There are none: nodes of a cloud."""
    if found := _nothing(talk, argv, _INSTANCE):
        show(talk, found[0] or [_INSTANCE.default], [])


async def list_configuration(talk: Talk, argv: Sequence[str]) -> None:
    conf = talk.session.views.conf
    text_of, _ = time_texts("sacctmgr", talk.env, talk.session.now())
    pairs = (
        ("AccountingStorageParameters", conf.values.get("AccountingStorageParameters", "(null)")),
        ("AccountingStorageType", "accounting_storage/slurmdbd"), ("AuthType", "auth/slurmbridge"),
        ("PrivateData", "none"), ("SlurmUserId", f"{conf.slurm_user}({conf.slurm_uid})"), ("SLURM_CONF", conf.path),
        ("SLURM_VERSION", SLURM_VERSION), ("TrackWCKey", "Yes" if conf.tracks_wckeys else "No"))
    talk.say(f"Configuration data as of {text_of(talk.session.now())}\n"
             + "".join(f"{name:<22} = {value}\n" for name, value in pairs))


async def list_stats(talk: Talk, argv: Sequence[str]) -> None:
    """The database is the controller's own: there are no messages to count."""
    if not talk.is_super:
        talk.complain("sacctmgr: accounting_storage/slurmdbd: acct_storage_p_get_stats: RC:2002 "
                      f"{DENIED}\n")
        return
    zone, now, boot = Zone.of(talk.env), int(talk.session.now()), int(talk.session.views.boot_s)
    line = "*" * 67
    talk.say(f"{line}\nsacctmgr show stats output at {zone.strftime('%a %b %d %H:%M:%S %Y', now)} ({now})\n"
             f"Data since                    {zone.strftime('%a %b %d %H:%M:%S %Y', boot)} ({boot})\n"
             f"All statistics are in microseconds\n{line}\n\n")
