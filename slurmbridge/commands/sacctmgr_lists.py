"""``sacctmgr list`` of what is in the accounting data itself: accounts, associations, users, QOS, TRES, the cluster."""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from slurmbridge.commands.sacctmgr_accounts import account_conditions, matching_accounts
from slurmbridge.commands.sacctmgr_fields import columns, matches
from slurmbridge.commands.sacctmgr_qos import qos_conditions
from slurmbridge.commands.sacctmgr_rows import Row, association_row, qos_row
from slurmbridge.commands.sacctmgr_talk import Talk
from slurmbridge.commands.sacctmgr_users import matching_users, user_conditions
from slurmbridge.commands.sacctmgr_where import ASSOCIATION, Where, here, select
from slurmbridge.commands.sacctmgr_words import name_list, number, refuse_operator, split_word
from slurmbridge.slurm.columns import UnknownField
from slurmbridge.views.associations import Tree
from slurmbridge.views.records import AssociationRecord, UserRecord

_ONLY_WITH = ("You requested options that are only valid when querying with the withassoc option.\n"
              "Are you sure you want to continue?")
RPC_VERSION = 44 << 8                         # what Slurm 25.11 calls its protocol


def show(talk: Talk, formats: Sequence[str], rows: Sequence[Row], tree: bool = False,
         headers: Mapping[str, str] = MappingProxyType({})) -> None:
    """Prints rows in the wanted columns, some under other ``headers``; an unknown column ends the command."""
    try:
        wanted = columns(formats, tree)
    except UnknownField as error:
        talk.complain(f"Unknown field '{error.args[0]}'\n")
        return
    talk.table([replace(one, name=headers.get(one.name, one.name)) for one in wanted], rows)


def check_fields(talk: Talk, formats: Sequence[str]) -> bool:
    try:
        columns(formats)
    except UnknownField as error:
        talk.complain(f"Unknown field '{error.args[0]}'\n")
        return False
    return True


async def list_account(talk: Talk, argv: Sequence[str]) -> None:
    where = Where(with_associations=talk.with_assoc)
    given = account_conditions(talk, argv, where)
    if talk.exit_code:
        return
    formats = where.formats
    if not formats:
        formats = ["Acc,Des,O"]
        if where.with_associations:
            formats.append("Cl,ParentN,U,Share,Priority,GrpJ,GrpN,GrpCPUs,GrpMEM,GrpS,GrpWall,GrpCPUMins,MaxJ,MaxN,"
                           "MaxCPUs,MaxS,MaxW,MaxCPUMins,QOS,DefaultQOS")
        if where.with_coordinators:
            formats.append("Coord")
    if not where.with_associations and given & ASSOCIATION and not await talk.ask(_ONLY_WITH):
        talk.say("Aborted\n")
        return
    tree = Tree(talk.data, where.with_deleted)
    rows: list[Row] = []
    for account in matching_accounts(talk, where):
        own: Row = {"acct": account.name, "desc": account.description, "org": account.organization,
                    "coords": ",".join(_coordinators(tree, account.name))}
        below = list(_of_account(talk, tree, where, account.name)) if where.with_associations else []
        if below:
            rows += [{**_row(tree, where, record), **own} for record in below]
        else:
            rows.append({**own, "flags": ",".join(account.flags) or "None", "qos": ""})
    show(talk, formats, rows)


def _of_account(talk: Talk, tree: Tree, where: Where, name: str) -> Iterator[AssociationRecord]:
    for record in select(talk, tree, where):
        if record.account == name:
            yield record


def _coordinators(tree: Tree, account: str) -> list[str]:
    """Those of the account and of all above it."""
    found: set[str] = set()
    for record in tree.chain(tree.find(account)):
        above = tree.data.accounts.get(record.account)
        found.update(above.coordinators if above else ())
    return sorted(found)


def _row(tree: Tree, where: Where, record: AssociationRecord) -> Row:
    return association_row(tree, record, own_only=where.own_only)


async def list_user(talk: Talk, argv: Sequence[str]) -> None:
    where = Where(with_associations=talk.with_assoc)
    given = user_conditions(talk, argv, where)
    if talk.exit_code:
        return
    track_wckeys = talk.session.views.conf.tracks_wckeys
    formats = where.formats
    defaults_only = where.only_defaults
    if not formats:
        formats = ["U,DefaultA,DefaultW,Ad" if track_wckeys else "U,DefaultA,Ad"]
        if where.with_coordinators:
            formats.append("Coord")
        if where.with_associations:
            formats.append("Cl,Acc,Part,Share,Priority,MaxJ,MaxN,MaxCPUs,MaxS,MaxW,MaxCPUMins,QOS,DefaultQOS")
        else:
            defaults_only = True
    where.only_defaults = defaults_only and not where.with_associations
    if not where.with_associations and given & ASSOCIATION and not await talk.ask(_ONLY_WITH):
        talk.say("Aborted\n")
        return
    if not check_fields(talk, formats):
        return
    tree = Tree(talk.data, where.with_deleted)
    rows: list[Row] = []
    for user in matching_users(talk, where):
        rows += _user_rows(talk, tree, where, user, bool(given & ASSOCIATION))
    show(talk, formats, rows)


def _user_rows(talk: Talk, tree: Tree, where: Where, user: UserRecord, chosen_by_association: bool) -> list[Row]:
    own: Row = {"user": user.name, "admin": user.admin_level, "dacct": user.default_account,
                "dwckey": user.default_wckey, "coords": ",".join(sorted(tree.coordinated(user.name)))}
    mine = sorted(tree.by_user.get(user.name, ()), key=tree.lineage)
    chosen = {record.id for record in select(talk, tree, where)} if chosen_by_association else None
    if chosen is not None:
        mine = [record for record in mine if record.id in chosen]
        if not where.with_associations:
            own["dacct"] = next((record.account for record in mine if record.is_default), "")
    if where.with_associations and mine:
        return [{**_row(tree, where, record), **own} for record in mine]
    default = next((record for record in mine if record.is_default), None)
    return [{**own, "qos": "", "dqos": tree.default_qos(default) if default else ""}]


async def list_association(talk: Talk, argv: Sequence[str]) -> None:
    where, display_tree = Where(), False
    for text in argv:
        word = split_word(text)
        bare = word.value is None
        if not refuse_operator(talk, word, False) or (bare and word.named("where", 5)):
            continue
        if bare and word.named("OnlyDefaults", 2):
            where.only_defaults = True
        elif bare and word.named("Tree", 4):
            display_tree = True
        elif bare and word.named("WithDeleted", 5):
            where.with_deleted = True
        elif bare and word.named("WithRawQOSLevel", 5):
            where.raw_qos = True
        elif bare and word.named("WithSubAccounts", 5):
            where.sub_accounts = True
        elif bare and word.named("WOPInfo", 4):
            where.own_only = True
        elif bare and (word.named("WOPLimits", 4) or word.named("WOLimits", 3)):
            where.without_limits = True
        elif bare or word.named("Ids", 1) or word.named("Associations", 2):
            where.take_ids(talk, word.operand)
        elif word.named("Format", 1):
            where.formats.append(word.operand)
        elif not where.take(talk, word) or talk.exit_code:
            talk.complain(f" Unknown condition: {word.text}\n")
    if talk.exit_code:
        return
    where.users = [""] if where.users == [] else where.users      # user= asks for the accounts' own
    formats = where.formats or ["Cluster,Account,User,Part"] + ([] if where.without_limits else [
        "Share,Priority,GrpJ,GrpTRES,GrpS,GrpWall,GrpTRESMins,MaxJ,MaxTRES,MaxTRESPerN,MaxS,MaxW,MaxTRESMins,QOS,"
        "DefaultQOS,GrpTRESRunMins"])
    tree = Tree(talk.data, where.with_deleted)
    if where.without_limits:
        where.own_only = True
    rows = []
    for record in select(talk, tree, where):
        row = _row(tree, where, record)
        if display_tree:
            row["acct"] = " " * tree.depth(record) + record.account
        rows.append(row)
    show(talk, formats, rows, display_tree)


async def list_qos(talk: Talk, argv: Sequence[str]) -> None:
    where = qos_conditions(talk, argv)
    if talk.exit_code:
        return
    show(talk, where.formats or [
        "Name,Prio,GraceT,Preempt,PreemptE,PreemptM,Flags%40,UsageThres,UsageFactor,GrpTRES,GrpTRESMins,GrpTRESRunMins,"
        "GrpJ,GrpS,GrpW,MaxTRES,MaxTRESPerN,MaxTRESMins,MaxW,MaxTRESPerUser,MaxJobsPerUser,MaxSubmitJobsPerUser,"
        "MaxTRESPerAcct,MaxTRESRunMinsPerAcct%22,MaxTRESRunMinsPerUser%22,MaxJobsPerAcct,MaxSubmitJobsPerAcct,MinTRES"],
        [qos_row(qos) for qos in where.matching(talk)])


async def list_tres(talk: Talk, argv: Sequence[str]) -> None:
    formats: list[str] = []
    ids: set[int] | None = None
    types: list[str] = []
    names: list[str] = []
    for text in argv:
        word = split_word(text)
        if not refuse_operator(talk, word, False) or (word.value is None and word.named("where", 5)):
            continue
        if word.value is None and word.named("WithDeleted", 5):
            continue
        if word.value is None or word.named("Type", 2):
            types += name_list(word.operand)
        elif word.named("Names", 1):
            names += name_list(word.operand)
        elif word.named("Format", 1):
            formats.append(word.operand)
        elif word.named("Id", 1):
            values = [number(talk, part, "ID") for part in name_list(word.operand)]
            ids = (ids or set()) | {int(value) for value in values if value is not None and value is not False}
        else:
            talk.complain(f" Unknown condition: {word.text}\n Use keyword 'set' to modify value\n")
    if talk.exit_code:
        return
    rows: list[Row] = []
    for name, number_of in sorted(talk.data.tres.items(), key=lambda item: item[1]):
        kind, _, rest = name.partition("/")
        if (ids is None or number_of in ids) and (not types or kind in types) and (not names or rest in names):
            rows.append({"type": kind, "name": rest, "id": str(number_of)})
    show(talk, formats or ["Type,Name%15,ID"], rows)


async def list_cluster(talk: Talk, argv: Sequence[str]) -> None:
    formats: list[str] = []
    versions: list[str] = []
    where = Where()
    for text in argv:
        word = split_word(text)
        bare = word.value is None
        if not refuse_operator(talk, word, False) or (bare and (
                word.named("where", 5) or word.named("WithDeleted", 5) or word.named("WOLimits", 3)
                or word.named("WithFed", 5))):
            continue
        if bare or word.named("Names", 1) or word.named("Clusters", 3):
            where.clusters = (where.clusters or []) + name_list(word.operand)
        elif word.named("Format", 2):
            formats.append(word.operand)
        elif matches(word.name, "Classification", 3) or matches(word.name, "Federations", 3) or matches(
                word.name, "Flags", 2):
            pass
        elif matches(word.name, "RPCVersions", 1):
            versions += name_list(word.operand)
        else:
            talk.complain(f" Unknown condition: {word.text}\n Use keyword 'set' to modify value\n")
    if talk.exit_code:
        return
    tree = talk.tree()
    rows: list[Row] = []
    if here(talk, where) and tree.root is not None and (not versions or str(RPC_VERSION) in versions):
        conf = talk.session.views.conf
        port = conf.values.get("SlurmctldPort", "6817").partition("-")[0]
        rows.append({**_row(tree, where, tree.root), "name": talk.cluster, "chost": "127.0.0.1", "cport": port,
                     "rpc_version": str(RPC_VERSION), "class": "*", "nodecnt": str(len(talk.session.views.nodes)),
                     "fairshare": str(tree.root.shares)})
    show(talk, formats or [
        "Cl,Controlh,Controlp,RPC,Share,GrpJ,GrpTRES,GrpS,MaxJ,MaxTRES,MaxS,MaxW,QOS,DefaultQOS"], rows)
