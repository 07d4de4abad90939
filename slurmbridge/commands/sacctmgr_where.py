"""Conditions of sacctmgr's commands: which associations, users and accounts a command is about."""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from slurmbridge.commands.sacctmgr_talk import Talk
from slurmbridge.commands.sacctmgr_words import Word, name_list, number, qos_list
from slurmbridge.views.associations import Tree
from slurmbridge.views.records import AssociationRecord

USER, ASSOCIATION, WCKEY = 1, 2, 4            # what kind of condition was given


@dataclass(slots=True)
class Where:
    """None: not given. ``users == []``: any user, but no account's own association."""

    accounts: list[str] | None = None
    ids: list[int] | None = None
    clusters: list[str] | None = None
    default_qos: list[str] | None = None
    partitions: list[str] | None = None
    parents: list[str] | None = None
    qos: list[str] | None = None
    users: list[str] | None = None
    only_defaults: bool = False
    with_deleted: bool = False
    raw_qos: bool = False
    sub_accounts: bool = False
    own_only: bool = False
    without_limits: bool = False
    # of users and accounts
    descriptions: list[str] | None = None
    organizations: list[str] | None = None
    admin_level: str | None = None
    default_accounts: list[str] | None = None
    default_wckeys: list[str] | None = None
    wckeys: list[str] | None = None
    with_associations: bool = False
    with_coordinators: bool = False
    formats: list[str] = field(default_factory=list)

    def narrows(self) -> bool:
        """Whether any condition has a value: ``name=`` alone changes and removes nothing."""
        lists = (self.accounts, self.ids, self.clusters, self.default_qos, self.partitions, self.parents, self.qos,
                 self.users, self.descriptions, self.organizations, self.default_accounts, self.default_wckeys,
                 self.wckeys)
        return any(any(one or ()) for one in lists) or bool(self.admin_level)

    def take_flag(self, word: Word) -> bool:
        """A bare word of lists of users and accounts. False: not one."""
        if word.value is not None:
            return False
        if word.named("WithAssoc", 5):
            self.with_associations = True
        elif word.named("WithCoordinators", 5):
            self.with_coordinators = True
        elif word.named("WithDeleted", 5):
            self.with_deleted = True
        elif word.named("WithRawQOSLevel", 5):
            self.raw_qos = True
        elif word.named("WOPLimits", 4):
            self.own_only = True
        else:
            return False
        return True

    def take(self, talk: Talk, word: Word) -> bool:
        """A condition on associations. False: not one."""
        text = word.operand
        if word.named("Accounts", 2) or word.named("Acct", 4):
            self.accounts = _merged(self.accounts, name_list(text))
        elif word.named("Ids", 1) or word.named("Associations", 2):
            self.take_ids(talk, text)
        elif word.named("Clusters", 1):
            self.clusters = _merged(self.clusters, name_list(text))
        elif word.named("DefaultQOS", 8):
            names = qos_list(talk, text, "")
            if not names:
                talk.exit_code = 1
                return False
            self.default_qos = _merged(self.default_qos, names)
        elif word.named("Partitions", 3):
            self.partitions = _merged(self.partitions, name_list(text))
        elif word.named("Parents", 4):
            self.parents = _merged(self.parents, name_list(text))
        elif word.named("QosLevel", 1):
            names = qos_list(talk, text, "")
            if not names:
                return False
            self.qos = _merged(self.qos, names)
        elif word.named("Users", 1):
            self.users = _merged(self.users, name_list(text))
        else:
            return False
        return True

    def take_ids(self, talk: Talk, text: str) -> None:
        self.ids = self.ids or []
        for part in name_list(text):
            value = number(talk, part, "AssocId")
            if value is False or value is None:
                talk.exit_code = 1
            else:
                self.ids.append(value)


def _merged(before: list[str] | None, more: list[str]) -> list[str]:
    return [name for name in before or [] if name not in more] + more


def here(talk: Talk, where: Where) -> bool:
    """Whether the condition on clusters lets this one in."""
    return not where.clusters or talk.cluster in where.clusters


def select(talk: Talk, tree: Tree, where: Where) -> Iterator[AssociationRecord]:
    """The associations a condition is about, in the order of their paths."""
    if not here(talk, where) or tree.root is None:
        return
    wanted_accounts = set(where.accounts or ())
    if where.sub_accounts and wanted_accounts:
        for name in list(wanted_accounts):
            top = tree.find(name)
            if top is not None:
                wanted_accounts.update(below.account for below in tree.in_order(top))
    for record in _candidates(tree, where):
        if wanted_accounts and record.account not in wanted_accounts:
            continue
        if where.only_defaults and not record.is_default:
            continue
        if where.ids is not None and record.id not in where.ids:
            continue
        if where.default_qos and record.default_qos not in where.default_qos:
            continue
        if where.partitions and record.partition not in where.partitions:
            continue
        if where.users is not None and (record.user not in where.users if where.users else not record.user):
            continue
        if where.parents:
            parent = tree.parent(record)
            if record.user or parent is None or parent.account not in where.parents:
                continue
        if where.qos and not set(tree.qos(record)) & set(where.qos):
            continue
        yield record


def _candidates(tree: Tree, where: Where) -> Iterable[AssociationRecord]:
    seen = list(tree.in_order())
    if where.with_deleted:
        known = {record.id for record in seen}
        seen += [record for record in tree.data.associations.values() if record.id not in known]
    return seen
