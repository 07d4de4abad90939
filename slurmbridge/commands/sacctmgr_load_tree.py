"""What ``sacctmgr load`` makes of a file's accounts, users and associations: one draft, what is said, and the tables of
what is new."""
from __future__ import annotations

from typing import Any

from slurmbridge.commands.sacctmgr_file import FileLine
from slurmbridge.commands.sacctmgr_merge import association_changes, changed_line
from slurmbridge.commands.sacctmgr_modify import described
from slurmbridge.commands.sacctmgr_rows import Row
from slurmbridge.commands.sacctmgr_tables import association_preview
from slurmbridge.commands.sacctmgr_talk import Talk
from slurmbridge.commands.sacctmgr_words import Settings
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.views.associations import Tree
from slurmbridge.views.directory import Draft
from slurmbridge.views.records import AssociationRecord


class TreeLoader:
    """``operations``: what it comes to, as far as it is in ``draft``; ``later``: what needs all accounts."""

    def __init__(self, talk: Talk) -> None:
        self.talk = talk
        self.changed = False
        self.parent = ""
        self.new_accounts: list[Row] = []
        self.new_associations: list[Row] = []
        self.new_users: list[Row] = []
        self.new_user_associations: list[Row] = []
        self.later: list[dict[str, Any]] = []
        self.operations: list[dict[str, Any]] = []
        self.seen: set[tuple[str, str, str]] = set()
        self.users_seen: set[str] = set()
        self.default_accounts: dict[str, str] = {}
        self.draft: Draft = talk.draft()

    def apply(self, operation: dict[str, Any]) -> None:
        self.draft.apply(operation)
        self.operations.append(operation)

    # ----------------------------------------------------------------------------------------------------- accounts
    def account(self, found: FileLine) -> None:
        key = (found.name, "", "")
        record = self.draft.tree.find(found.name)
        account = self.draft.data.accounts.get(found.name)
        description = found.description or found.name
        organization = found.organization or (self.parent if self.parent != "root" else found.name)
        if account is None or account.deleted:
            self.apply({"op": "add_account", "name": found.name, "description": description,
                         "organization": organization})
            self.new_accounts.append({"name": found.name, "desc": description, "org": organization})
        elif key not in self.seen:
            self._change_account(found, account.description, account.organization)
        if record is None:
            self.apply({"op": "add_association", "account": found.name, "parent": self.parent,
                         "settings": _without(found.settings, "parent")})
            added = self.draft.tree.find(found.name)
            if added is not None:
                self.new_associations.append(
                    association_preview(self.draft.data, added, found.settings, parent=self.parent))
        elif key not in self.seen:
            self.change_association(record, "Account", found.name, found.settings, self.parent)
        self.seen.add(key)

    def _change_account(self, found: FileLine, description: str, organization: str) -> None:
        settings: Settings = {}
        lines = ""
        for key, label, before, after in (("description", "description", description, found.description),
                                          ("organization", "organization", organization, found.organization)):
            if after and after != before:
                settings[key] = after
                lines += changed_line(label, "Account", found.name, before, after)
        if settings:
            self.talk.say(lines)
            self.apply({"op": "modify_account", "name": found.name, "settings": settings})
            self.changed = True

    # -------------------------------------------------------------------------------------------------------- users
    def user(self, found: FileLine) -> None:
        key = (self.parent, found.name, found.partition)
        user = self.draft.data.users.get(found.name)
        record = self.draft.tree.find(*key)
        if user is None or user.deleted:
            self._new_user(found)
        elif found.name not in self.users_seen:
            self._change_user(found)
        self.users_seen.add(found.name)
        if record is None:
            wanted = self.default_accounts.get(found.name)
            self.apply({"op": "add_association", "account": self.parent, "user": found.name,
                         "partition": found.partition, "settings": _without(found.settings, "parent"),
                         "is_default": wanted == self.parent or not self._has_default(found.name)})
            added = self.draft.tree.find(*key)
            if added is not None:
                self.new_user_associations.append(association_preview(self.draft.data, added, found.settings))
        elif key not in self.seen:
            self.change_association(record, "User", found.name, found.settings, None)
        self.seen.add(key)

    def _has_default(self, user: str) -> bool:
        return any(record.is_default for record in self.draft.tree.by_user.get(user, ()))

    def _new_user(self, found: FileLine) -> None:
        self.apply({"op": "add_user", "name": found.name, "admin_level": found.admin_level})
        self.default_accounts[found.name] = found.default_account or self.parent
        self.new_users.append({
            "name": found.name, "dacct": found.default_account or self.parent, "dwckey": found.default_wckey,
            "admin": found.admin_level or "Not Set", "coords": ",".join(sorted(found.coordinator_of))})
        self._extras(found, announce=False)

    def _extras(self, found: FileLine, announce: bool) -> None:
        """Coordinators (their accounts may come later in the file) and WCKeys."""
        user = self.draft.data.users[found.name]
        accounts = [name for name in found.coordinator_of if name not in user.coordinator_of]
        if accounts and announce:
            names = ", ".join(accounts)
            self.talk.say(f" Making User '{found.name}' coordinator for account(s) {names}\n" if not user.coordinator_of
                          else "".join(f" Making User '{found.name}' coordinator of account '{name}'\n"
                                       for name in accounts))
            self.changed = True
        self.later += [{"op": "add_coordinator", "account": name, "user": found.name} for name in accounts]
        owned = {name for name, owner in self.draft.data.wckeys.values() if owner == found.name}
        wckeys = [name for name in found.wckeys if name not in owned]
        if wckeys and announce:
            quoted = ", ".join(f"'{name}'" for name in wckeys)
            self.talk.say(f" Adding WCKey(s) {quoted} for user '{found.name}'\n")
            self.changed = True
        for name in wckeys:
            self.apply({"op": "add_wckey", "name": name, "user": found.name,
                         "is_default": name == found.default_wckey})

    def _change_user(self, found: FileLine) -> None:
        user = self.draft.data.users[found.name]
        lines, settings = "", Settings()
        if found.default_account:
            self.default_accounts[found.name] = found.default_account
            before = self.talk.data.users[found.name].default_account
            if found.default_account != before:
                lines += changed_line("Default Account", "User", found.name, before or "(null)", found.default_account)
        if found.default_wckey and found.default_wckey != user.default_wckey:
            lines += changed_line("Default WCKey", "User", found.name, user.default_wckey or "(null)",
                                  found.default_wckey)
            settings["default_wckey"] = found.default_wckey
        if found.admin_level and found.admin_level != user.admin_level:
            lines += changed_line("Admin Level", "User", found.name, user.admin_level, found.admin_level)
            settings["admin_level"] = found.admin_level
        if settings:
            self.apply({"op": "modify_user", "name": found.name, "settings": settings})
        if lines:
            self.talk.say(lines)
            self.changed = True
        self._extras(found, announce=True)

    # ------------------------------------------------------------------------------------------------ associations
    def change_association(self, record: AssociationRecord, kind: str, name: str, settings: Settings,
                            parent: str | None) -> None:
        lines, changed = association_changes(self.draft.tree, record, kind, name, settings, parent)
        if not changed:
            return
        operation = {"op": "modify_association", "id": record.id, "settings": changed}
        trial = Draft(self.draft.data, self.talk.session.now())
        try:
            trial.apply(operation)
        except SlurmError as error:
            self.talk.log_error(error.text)
            return
        if "qos" in changed or "default_qos" in changed:
            trouble = _without_default_qos(self.talk.cluster, trial.tree, record)
            if trouble:
                self.talk.log_error("\n These associations don't have access to their default qos.\n"
                                    " Please give them access before they the default can be set to this.\n" + trouble)
                return
        self.talk.say(lines)
        self.apply(operation)
        self.changed = True


def _without_default_qos(cluster: str, tree: Tree, record: AssociationRecord) -> str:
    """Lines of the user's (or account's) associations that could not use their default QOS."""
    lines = ""
    for other in tree.in_order():
        if other.account == record.account and (not record.user or other.user == record.user):
            default = tree.default_qos(other)
            if default and default not in tree.qos(other):
                lines += f"  DefQOS = {default:<10} {described(cluster, other)}\n"
    return lines


def _without(settings: Settings, name: str) -> Settings:
    return {key: value for key, value in settings.items() if key != name}
