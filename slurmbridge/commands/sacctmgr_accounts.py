"""``sacctmgr add|modify|delete account`` (sacctmgr(1), SPECIFICATIONS FOR ACCOUNTS)."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slurmbridge.commands.sacctmgr_limits import as_left, set_association
from slurmbridge.commands.sacctmgr_modify import DENIED, deny, modify_associations
from slurmbridge.commands.sacctmgr_removal import Removal, active_jobs, refused, remove_associations, still_default
from slurmbridge.commands.sacctmgr_rows import association_settings
from slurmbridge.commands.sacctmgr_talk import Talk
from slurmbridge.commands.sacctmgr_where import ASSOCIATION, USER, Where, here
from slurmbridge.commands.sacctmgr_words import (
    Settings,
    Word,
    name_list,
    number,
    refuse_operator,
    split_word,
    strip_quotes,
    where_and_set,
)
from slurmbridge.slurm import errors
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.views.records import AccountRecord

_FLAGS = {"nousersarecoords": "NoUsersAreCoords", "usersarecoords": "UsersAreCoords"}


def take_account_condition(talk: Talk, word: Word, where: Where) -> int:
    """One condition on accounts; which kind it was (0: none that selects)."""
    if where.take_flag(word):
        return 0
    bare = word.value is None
    if bare or word.named("Names", 1) or word.named("Accounts", 1) or word.named("Acct", 4):
        where.accounts = (where.accounts or []) + name_list(word.operand)
        return USER
    elif word.named("Descriptions", 1):
        where.descriptions = (where.descriptions or []) + name_list(word.operand)
        return USER
    elif word.named("Flags", 2):
        if any(name not in _FLAGS for name in name_list(word.operand)):
            talk.complain(f" Unknown Flag(s)={word.value}\n")
        return USER
    elif word.named("Format", 2):
        where.formats.append(word.operand)
    elif word.named("Organizations", 1):
        where.organizations = (where.organizations or []) + name_list(word.operand)
        return USER
    elif where.take(talk, word):
        return ASSOCIATION
    else:
        talk.complain(f" Unknown condition: {word.text}\n Use keyword 'set' to modify value\n")
    return 0


def account_conditions(talk: Talk, argv: Sequence[str], where: Where) -> int:
    """All conditions of a line; the kinds given, or'ed."""
    given = 0
    for text in argv:
        word = split_word(text)
        structure = word.named("Set", 3) or (word.value is None and word.named("where", 5))
        if refuse_operator(talk, word, False) and not structure:
            given |= take_account_condition(talk, word, where)
    return given


def matching_accounts(talk: Talk, where: Where) -> list[AccountRecord]:
    """Accounts by name, description and organization, in order of their names."""
    return [account for name, account in sorted(talk.data.accounts.items())
            if (not account.deleted or where.with_deleted)
            and (not where.accounts or name in where.accounts)
            and (not where.descriptions or account.description in where.descriptions)
            and (not where.organizations or account.organization in where.organizations)]


class AccountSettings:
    """What ``set`` says of an account: its own fields and its association's."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.clusters: list[str] = []
        self.account: Settings = {}
        self.association: Settings = {}
        self.raw_usage: int | None = None
        self.given = 0

    def take(self, talk: Talk, word: Word, adding: bool) -> None:
        allowed = False
        if word.value is None and word.named("set", 3):
            return
        if word.value is None or word.named("Accounts", 1) or word.named("Names", 1) or word.named("Acct", 4):
            if adding:
                more = name_list(word.operand)
                self.names = [name for name in self.names if name not in more] + more
            else:
                talk.complain(" Can't modify the name of an account\n")
        elif word.named("Clusters", 1):
            if adding:
                self.clusters += name_list(word.operand)
            else:
                talk.complain(" Can't modify the cluster of an account\n")
        elif word.named("Description", 1):
            self.account["description"] = strip_quotes(word.operand)
            self.given |= USER
        elif word.named("Flags", 2):
            self._flags(talk, word)
        elif word.named("Organization", 1):
            self.account["organization"] = strip_quotes(word.operand)
            self.given |= USER
        elif word.named("RawUsage", 7):
            usage = number(talk, word.operand, "RawUsage")
            if usage is not False:
                self.raw_usage = usage or 0
                self.given |= ASSOCIATION
        elif set_association(talk, word, self.association):
            self.given |= ASSOCIATION
            allowed = word.named("QosLevel", 1) and not word.named("Parent", 2)
        else:
            allowed = True
            talk.complain(f" Unknown option: {as_left(word)}\n Use keyword 'where' to modify condition\n")
        refuse_operator(talk, word, allowed)

    def _flags(self, talk: Talk, word: Word) -> None:
        names = name_list(word.operand)
        if any(name not in _FLAGS for name in names):
            talk.complain(f" Unknown Flag(s)={word.value}\n")
            return
        self.account["flags"] = [_FLAGS[name] for name in names if name == "usersarecoords"]
        self.given |= USER


async def add_account(talk: Talk, argv: Sequence[str]) -> None:
    wanted = AccountSettings()
    for text in argv:
        if not split_word(text).named("Where", 5):
            wanted.take(talk, split_word(text), adding=True)
    if talk.exit_code:
        return
    if not wanted.names:
        talk.complain(" Need name of account to add.\n")
        return
    parent_name = wanted.association.pop("parent", None)
    above = parent_name or "root"
    tree = talk.tree()
    if not talk.is_operator:
        mine = talk.coordinated()
        if not mine:
            talk.complain(" error: Only admins/operators/coordinators can add accounts\n")
            return
        if above not in mine:
            talk.complain(f" error: {DENIED}\n\n")
            return
    if "" in wanted.names:
        talk.complain(" error: Something was wrong with your query\n")
        return
    parent = tree.find(above)
    if wanted.clusters and talk.cluster not in wanted.clusters:
        talk.complain(f" error: Cluster '{wanted.clusters[0]}' has not been added yet, "
                      "please contact your admin before adding accounts to it\n")
        return
    if parent is None:
        talk.complain(f" error: No parent account '{above}' on cluster '{talk.cluster}'\n")
        return
    operations: list[dict[str, Any]] = []
    fresh, lines, existing = "", "", ""
    for name in wanted.names:
        if name not in talk.data.accounts or talk.data.accounts[name].deleted:
            fresh += f"  {name}\n"
            operations.append({
                "op": "add_account", "name": name, "description": wanted.account.get("description", name),
                "organization": wanted.account.get("organization", above if above != "root" else name),
                "flags": wanted.account.get("flags", [])})
        if tree.find(name) is not None:
            existing += f"Already existing account {name} on cluster {talk.cluster}\n"
            continue
        lines += f"  C = {talk.cluster:<10} A = {name:<20}\n"
        operations.append({"op": "add_association", "account": name, "parent": above, "settings": wanted.association})
    if not operations:
        talk.say(" " + (existing or "Request didn't affect anything"))
        talk.exit_code = 1
        return
    if fresh:
        talk.say(f" Adding Account(s)\n{fresh} Settings\n"
                 f"  Description     = {wanted.account.get('description', 'Account Name')}\n"
                 f"  Organization    = {wanted.account.get('organization', 'Parent/Account Name')}\n")
    talk.say(existing + (f" Associations =\n{lines}" if lines else ""))
    if wanted.given:
        echoed = {**wanted.association, **({"parent": parent_name} if parent_name else {})}
        talk.say(" Settings\n" + association_settings(echoed))
    await talk.commit(operations)


async def modify_account(talk: Talk, argv: Sequence[str]) -> None:
    where, wanted, given = Where(), AccountSettings(), 0
    for setting, word in where_and_set(argv):
        if setting:
            wanted.take(talk, word, adding=False)
        elif refuse_operator(talk, word, False):
            given |= take_account_condition(talk, word, where)
    if talk.exit_code:
        return
    if not wanted.given:
        talk.complain(" You didn't give me anything to set\n")
        return
    if not given and not await talk.ask("You didn't set any conditions with 'WHERE'.\n"
                                        "Are you sure you want to continue?"):
        talk.say("Aborted\n")
        return
    if wanted.raw_usage is not None:
        await reset_usage(talk, where, wanted.raw_usage)
        return
    if wanted.given & USER:
        await _modify_records(talk, where, given, wanted.account)
    if wanted.given & ASSOCIATION:
        if given == USER and where.accounts is None:
            talk.complain(" There was a problem with your 'where' options.\n")
            return
        where.users = None
        if where.accounts is None and (where.descriptions or where.organizations):
            where.accounts = [account.name for account in matching_accounts(talk, where)]
        await modify_accounts_associations(talk, where, wanted.association)


async def modify_accounts_associations(talk: Talk, where: Where, settings: Settings) -> None:
    """Only the accounts' own associations are chosen."""
    try:
        where.users = [""]
        if not await modify_associations(talk, where, settings, " Modified account associations...\n"):
            talk.exit_code = 1
    except SlurmError as error:
        talk.say(" Modified account associations...\n" if error.code == errors.ESLURM_ACCESS_DENIED else "")
        talk.complain(f" Error with request: {error.text}\n")


async def _modify_records(talk: Talk, where: Where, given: int, settings: Settings) -> None:
    if given == ASSOCIATION:
        talk.complain(" There was a problem with your 'where' options.\n")
        return
    talk.say(" Modified accounts...\n")
    if not talk.is_operator:
        deny(talk)
        return
    names = [account.name for account in matching_accounts(talk, where)] if where.narrows() or not given else []
    if not names:
        talk.say("  Nothing modified\n")
        talk.exit_code = 1
        return
    talk.say("".join(f"  {name}\n" for name in names))
    await talk.commit([{"op": "modify_account", "name": name, "settings": settings} for name in names])


async def reset_usage(talk: Talk, where: Where, usage: int) -> None:
    """``set RawUsage=0``."""
    if usage:
        talk.log_error("Raw usage can only be set to 0 (zero)")
        talk.exit_code = 1
        return
    if not where.clusters:
        talk.say(f"No cluster specified, resetting on local cluster {talk.cluster}\n")
    if not talk.is_super:
        talk.exit_code = 1                    # slurmctld refuses, and nothing is said of it
        return
    tree = talk.tree()
    found = []
    for account in where.accounts or []:
        for user in where.users or [""]:
            record = next((r for r in tree.in_order() if (r.account, r.user) == (account, user)), None)
            if record is None:
                whom = f"account {account} user {user}" if user else f"account {account}"
                talk.log_error(f"Failed to find cluster {talk.cluster} {whom} association in database")
                talk.exit_code = 1
                return
            found.append(record.id)
    await talk.commit([{"op": "reset_usage", "associations": found}], "Would you like to reset usage?")


async def delete_account(talk: Talk, argv: Sequence[str]) -> None:
    where = Where()
    given = account_conditions(talk, argv, where)
    if not given:
        talk.complain(" No conditions given to remove, not executing.\n")
        return
    if talk.exit_code:
        return
    if not where.narrows():
        talk.say(" Nothing deleted\n")
        talk.exit_code = 1
        return
    if "root" in (where.accounts or ()):
        talk.complain(" You are not allowed to remove the root account.\n Use remove cluster instead.\n")
        return
    if given & ASSOCIATION:
        removal = remove_associations(talk, where)
        title = " Deleting account associations...\n"
    else:
        removal = _remove_accounts(talk, where)
        title = " Deleting accounts...\n"
    if removal is None:
        return
    if refused(talk, removal, " Please either remove the accounts listed above from list and resubmit,\n"
                               " or change these users' default accounts to remove the account(s).\n"
                               " Changes Discarded\n"):
        return
    talk.say(title + "".join(f"  {line}\n" for line in removal.lines))
    await talk.commit(removal.operations)


def _remove_accounts(talk: Talk, where: Where) -> Removal | None:
    if not talk.is_operator:
        deny(talk)
        return None
    if not here(talk, where):
        return Removal()
    names = [account.name for account in matching_accounts(talk, where) if account.name != "root"]
    tree = talk.tree()
    going = {}
    for name in names:
        top = tree.find(name)
        if top is not None:
            going.update({record.id: record for record in tree.in_order(top)})
    busy = active_jobs(talk, going.values())
    if busy:
        return Removal(problem=errors.ESLURM_JOBS_RUNNING_ON_ASSOC, lines=busy)
    kept = still_default(talk, tree, going.values())
    if kept:
        return Removal(problem=errors.ESLURM_NO_REMOVE_DEFAULT_ACCOUNT, lines=kept)
    return Removal([{"op": "delete_account", "name": name} for name in names], names)
