"""``sacctmgr add|modify|delete user`` and coordinators (sacctmgr(1), SPECIFICATIONS FOR USERS)."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slurmbridge.commands.common import uid_of
from slurmbridge.commands.sacctmgr_accounts import reset_usage
from slurmbridge.commands.sacctmgr_fields import matches
from slurmbridge.commands.sacctmgr_limits import as_left, set_association
from slurmbridge.commands.sacctmgr_modify import DENIED, deny, modify_associations
from slurmbridge.commands.sacctmgr_rows import association_settings
from slurmbridge.commands.sacctmgr_talk import Talk
from slurmbridge.commands.sacctmgr_where import ASSOCIATION, USER, WCKEY, Where, here
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
from slurmbridge.views.records import UserRecord

ADMIN_LEVELS = (("None", 1), ("Operator", 1), ("SuperUser", 1), ("Administrator", 1))


def admin_level(text: str) -> str | None:
    """``None``, ``Operator`` or ``Administrator`` of a word; None where it is no level."""
    word = strip_quotes(text)
    for name, letters in ADMIN_LEVELS:
        if word and matches(word, name, letters):
            return "Administrator" if name == "SuperUser" else name
    return None


def take_user_condition(talk: Talk, word: Word, where: Where, wckeys: bool) -> int:
    """One condition on users; which kind it was."""
    if where.take_flag(word):
        return 0
    bare = word.value is None
    if bare or word.named("Names", 1) or word.named("Users", 1):
        where.users = (where.users or []) + name_list(word.operand)
        return USER
    elif word.named("AdminLevel", 2):
        where.admin_level = admin_level(word.operand)
        return USER
    elif word.named("Clusters", 1):
        where.clusters = (where.clusters or []) + name_list(word.operand)
        return USER
    elif word.named("DefaultAccount", 8):
        where.default_accounts = (where.default_accounts or []) + name_list(word.operand)
        return USER
    elif word.named("DefaultWCKey", 8):
        where.default_wckeys = (where.default_wckeys or []) + name_list(word.operand)
        return USER
    elif word.named("Format", 1):
        where.only_defaults = where.only_defaults or "default" in word.operand.lower()
        where.formats.append(word.operand)
    elif word.named("WCKeys", 1):
        if not wckeys:
            talk.exit_code = 1
        where.wckeys = (where.wckeys or []) + name_list(word.operand)
        return WCKEY
    elif where.take(talk, word):
        return ASSOCIATION
    else:
        talk.complain(f" Unknown condition: {word.text}\n Use keyword 'set' to modify value\n")
    return 0


def user_conditions(talk: Talk, argv: Sequence[str], where: Where, wckeys: bool = False) -> int:
    where.users = where.users or []
    given = 0
    for text in argv:
        word = split_word(text)
        structure = word.named("Set", 3) or (word.value is None and word.named("where", 5))
        if refuse_operator(talk, word, False) and not structure:
            given |= take_user_condition(talk, word, where, wckeys)
    if given & ASSOCIATION and given & WCKEY:
        talk.complain(" Mixing Account and WCKeys is not allowed\n")
    return given


def matching_users(talk: Talk, where: Where) -> list[UserRecord]:
    """Users by name, level and default account, in order of their names."""
    return [user for name, user in sorted(talk.data.users.items())
            if (not user.deleted or where.with_deleted)
            and (not where.users or name in where.users)
            and (where.admin_level is None or user.admin_level == where.admin_level)
            and (not where.default_accounts or user.default_account in where.default_accounts)
            and (not where.default_wckeys or user.default_wckey in where.default_wckeys)]


class NewUsers:
    """What ``add user`` was told."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.accounts: list[str] = []
        self.partitions: list[str] = []
        self.clusters: list[str] = []
        self.wckeys: list[str] = []
        self.default_account = ""
        self.default_wckey = ""
        self.admin_level: str | None = None
        self.level_given = False
        self.association: Settings = {}

    def take(self, talk: Talk, word: Word) -> None:
        allowed = False
        if word.value is None or word.named("Names", 1) or word.named("Users", 1):
            self.names = _joined(self.names, word.operand)
        elif word.named("Accounts", 3) or word.named("Acct", 4):
            self.accounts = _joined(self.accounts, word.operand)
        elif word.named("AdminLevel", 2):
            self.admin_level, self.level_given = admin_level(word.operand), True
        elif word.named("Clusters", 1):
            self.clusters = _joined(self.clusters, word.operand)
        elif word.named("DefaultAccount", 8):
            if self.default_account:
                talk.complain(f" Already listed DefaultAccount {self.default_account}\n")
                return
            self.default_account = strip_quotes(word.operand)
            self.accounts = _joined(self.accounts, self.default_account)
        elif word.named("DefaultWCKey", 8):
            if self.default_wckey:
                talk.complain(f" Already listed DefaultWCKey {self.default_wckey}\n")
                return
            self.default_wckey = strip_quotes(word.operand)
            self.wckeys = _joined(self.wckeys, self.default_wckey)
        elif word.named("Partitions", 1):
            self.partitions = _joined(self.partitions, word.operand)
        elif word.named("WCKeys", 1):
            self.wckeys = _joined(self.wckeys, word.operand)
        elif set_association(talk, word, self.association):
            allowed = word.named("QosLevel", 1)
        else:
            allowed = True
            talk.complain(f" Unknown option: {as_left(word)}\n")
        refuse_operator(talk, word, allowed)


def _joined(before: list[str], text: str) -> list[str]:
    more = name_list(text)
    return [name for name in before if name not in more] + more


async def add_user(talk: Talk, argv: Sequence[str]) -> None:
    wanted = NewUsers()
    for _, word in where_and_set(argv):
        wanted.take(talk, word)
    if talk.exit_code:
        return
    if not wanted.names:
        talk.complain(" Need name of user to add.\n")
        return
    if not wanted.accounts and not wanted.wckeys:
        talk.complain(" Need name of account or wckey to add.\n")
        return
    for name in wanted.names:
        if uid_of(name) is None and not await talk.ask(
                f"There is no uid for user '{name}'\nAre you sure you want to continue?"):
            talk.exit_code = 1
            return
    refusal = _may_add(talk, wanted)
    if refusal:
        talk.complain(f" error: Problem adding user associations: {errors.strerror(errors.ESLURM_ACCESS_DENIED)} "
                      f"({refusal})\n")
        return
    await _add_users(talk, wanted)


def _may_add(talk: Talk, wanted: NewUsers) -> str:
    if talk.is_operator:
        return ""
    if wanted.level_given:
        return "Only admins/operators can add an admin/operator"
    mine = talk.coordinated()
    if not mine:
        return "Only admins/operators/coordinators can add accounts"
    return "" if mine.issuperset(wanted.accounts) else DENIED + "\n"


async def _add_users(talk: Talk, wanted: NewUsers) -> None:
    if "" in wanted.names:
        text = errors.strerror(errors.ESLURM_USER_ID_MISSING)
        talk.complain(f" error: Problem adding user associations: {text} ({text})\n")
        return
    tree = talk.tree()
    operations: list[dict[str, Any]] = []
    new = [name for name in wanted.names if name not in talk.data.users or talk.data.users[name].deleted]
    for name in new:
        operations.append({"op": "add_user", "name": name, "admin_level": wanted.admin_level})
    skipped, lines = "", ""
    with_default = {name for name in wanted.names if name not in new and any(
        record.is_default for record in tree.by_user.get(name, ()))}
    if not wanted.clusters or talk.cluster in wanted.clusters:
        for account in wanted.accounts:
            if tree.find(account) is None:
                text = f"No account {account} on cluster {talk.cluster}, skipping.\n"
                skipped += text
                continue
            for name in wanted.names:
                for partition in wanted.partitions or [""]:
                    if tree.find(account, name, partition) is not None:
                        continue
                    default = account == wanted.default_account or (not wanted.default_account
                                                                    and name not in with_default)
                    if default:
                        with_default.add(name)
                    operations.append({"op": "add_association", "account": account, "user": name,
                                       "partition": partition, "settings": wanted.association, "is_default": default})
                    lines += f"  C = {talk.cluster:<10} A = {account:<20} U = {name:<9}"
                    lines += f" P = {partition}\n" if partition else "\n"
    wckey_lines = _wckeys(talk, wanted, operations)
    if not lines and not wckey_lines:
        # nothing but the users would be new: they are not added either
        text = skipped or "Request didn't affect anything\n"
        talk.say(f"{text}Nothing added.\nMake sure the accounts requested here have been added to the system/cluster. "
                 "(sacctmgr add account...)\n")
        talk.exit_code = 1
        return
    if new:
        talk.say(" Adding User(s)\n" + "".join(f"  {name}\n" for name in new) + " Settings\n")
        if wanted.default_account:
            talk.say(f"  Default Account = {wanted.default_account}\n")
        if wanted.default_wckey:
            talk.say(f"  Default WCKey   = {wanted.default_wckey}\n")
        if wanted.level_given:
            talk.say(f"  Admin Level     = {wanted.admin_level or 'Unknown'}\n")
    talk.say(skipped + (f" Associations =\n{lines}" if lines else "")
             + (f" Wckey(s)\n{wckey_lines}" if wckey_lines else ""))
    if wanted.association:
        talk.say(" Non Default Settings\n" + association_settings(wanted.association))
    await talk.commit(operations)


def _wckeys(talk: Talk, wanted: NewUsers, operations: list[dict[str, Any]]) -> str:
    known = set(talk.data.wckeys.values())
    lines = ""
    for wckey in wanted.wckeys:
        for name in wanted.names:
            if (wckey, name) in known:
                continue
            user = talk.data.users.get(name)
            first = wckey == wanted.wckeys[0] and not (user and user.default_wckey)
            operations.append({"op": "add_wckey", "name": wckey, "user": name,
                               "is_default": wckey == (wanted.default_wckey or (wckey if first else ""))})
            lines += f"  C = {talk.cluster:<10} W = {wckey:<10} U = {name:<9}\n"
    return lines


class UserSettings:
    """What ``set`` says of a user: own fields and those of the associations."""

    def __init__(self) -> None:
        self.admin_level: str | None = None
        self.default_account: str | None = None
        self.default_wckey: str | None = None
        self.new_name: str | None = None
        self.raw_usage: int | None = None
        self.association: Settings = {}
        self.given = 0

    def take(self, talk: Talk, word: Word) -> None:
        allowed = False
        if word.value is None:
            if not word.named("set", 3):
                talk.complain(f" Bad format on {word.text}: End your option with an '=' sign\n")
            return
        if word.named("AdminLevel", 2):
            self.admin_level = admin_level(word.operand) or ""
            self.given |= USER
        elif word.named("DefaultAccount", 8):
            self.default_account = strip_quotes(word.operand)
            self.given |= USER
        elif word.named("DefaultWCKey", 8):
            self.default_wckey = strip_quotes(word.operand)
            self.given |= USER
        elif word.named("NewName", 1):
            self.new_name = strip_quotes(word.operand)
            self.given |= USER
        elif word.named("RawUsage", 7):
            usage = number(talk, word.operand, "RawUsage")
            if usage is not False:
                self.raw_usage = usage or 0
                self.given |= ASSOCIATION
        elif set_association(talk, word, self.association):
            self.given |= ASSOCIATION
            allowed = word.named("QosLevel", 1)
        else:
            allowed = True
            talk.complain(f" Unknown option: {as_left(word)}\n Use keyword 'where' to modify condition\n")
        refuse_operator(talk, word, allowed)


async def modify_user(talk: Talk, argv: Sequence[str]) -> None:
    where, wanted, given = Where(users=[]), UserSettings(), 0
    for setting, word in where_and_set(argv):
        if setting:
            wanted.take(talk, word)
        elif refuse_operator(talk, word, False):
            given |= take_user_condition(talk, word, where, False)
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
        if where.accounts is None:
            talk.log_error("An account must be specified")
            talk.exit_code = 1
            return
        await reset_usage(talk, where, wanted.raw_usage)
        return
    if wanted.given & USER:
        if given == ASSOCIATION:
            talk.complain(" There was a problem with your 'where' options.\n")
        else:
            await _modify_users(talk, where, wanted, given)
    if wanted.given & ASSOCIATION:
        if given == USER and not where.users:
            talk.complain(" There was a problem with your 'where' options.\n")
            return
        try:
            if not await modify_associations(talk, where, wanted.association, " Modified user associations...\n"):
                talk.exit_code = 1
        except SlurmError as error:
            talk.say(" Modified user associations...\n" if error.code != errors.ESLURM_NO_REMOVE_DEFAULT_QOS else "")
            talk.complain(f" Error with request: {error.text}\n")


async def _modify_users(talk: Talk, where: Where, wanted: UserSettings, given: int) -> None:
    if where.accounts and await talk.ask(
            " You specified Accounts in your request.  Did you mean DefaultAccounts?\n"):
        where.default_accounts, where.accounts = (where.default_accounts or []) + where.accounts, None
    talk.say(" Modified users...\n")
    if not _may_modify(talk, where, wanted):
        return
    names = [user.name for user in matching_users(talk, where)] if here(talk, where) and (
        where.narrows() or not given) else []
    if wanted.admin_level == "" or not names:
        talk.say("  Nothing modified\n")
        talk.exit_code = 1
        return
    if wanted.new_name is not None and len(names) > 1:
        talk.complain(f" Error with request: {errors.strerror(errors.ESLURM_ONE_CHANGE)}\n"
                      " If you are changing a users name you can only specify 1 user at a time.\n")
        return
    tree = talk.tree()
    if wanted.default_account:
        regret = [name for name in names if all(record.account != wanted.default_account
                                                for record in tree.by_user.get(name, ()))]
        if regret:
            _say_regret(talk, "account", wanted.default_account, regret)
            return
    if wanted.default_wckey:
        known = set(talk.data.wckeys.values())
        regret = [name for name in names if (wanted.default_wckey, name) not in known]
        if regret:
            _say_regret(talk, "wckey", wanted.default_wckey, regret)
            return
    talk.say("".join(f"  {name}\n" for name in names))
    operations: list[dict[str, Any]] = []
    for name in names:
        settings = {key: value for key, value in (
            ("admin_level", wanted.admin_level), ("default_wckey", wanted.default_wckey)) if value is not None}
        if settings:
            operations.append({"op": "modify_user", "name": name, "settings": settings})
        if wanted.default_account is not None:
            operations.append({"op": "set_default_account", "user": name, "account": wanted.default_account})
        if wanted.new_name is not None:
            operations.append({"op": "rename_user", "name": name, "new_name": wanted.new_name})
    await talk.commit(operations)


def _may_modify(talk: Talk, where: Where, wanted: UserSettings) -> bool:
    if wanted.admin_level and talk.is_operator and not talk.is_super:
        deny(talk, "You must be a super user to modify a users admin level")
        return False
    if not talk.is_operator and (where.users != [talk.user] or wanted.new_name is not None):
        deny(talk)
        return False
    return True


def _say_regret(talk: Talk, what: str, name: str, users: Sequence[str]) -> None:
    talk.say(f" Can't modify because these users aren't associated with new default {what} '{name}'...\n"
             + "".join(f"  U = {user} C = {talk.cluster}\n" for user in users))
    talk.exit_code = 1
