"""sacctmgr's writes as operations on the accounting data: applied to a draft, kept or dropped as a whole.

``sacctmgr`` applies them to a draft to show what would change and asks whether to commit; the controller applies the
same operations to its own data. An operation is a mapping; ``"op"`` names it:

- ``add_account`` name, description, organization; ``modify_account`` name, settings; ``delete_account`` name
- ``add_user`` name, admin_level; ``modify_user`` name, settings (admin_level, default_wckey); ``rename_user`` name,
  new_name; ``delete_user`` name
- ``add_association`` account, user, partition, parent (account), settings, is_default; ``modify_association`` id,
  settings; ``delete_association`` id
- ``set_default_account`` user, account
- ``add_qos`` name, settings; ``modify_qos`` name, settings; ``delete_qos`` name
- ``add_coordinator`` account, user; ``delete_coordinator`` account, user
- ``add_wckey`` name, user, is_default; ``delete_wckey`` id
- ``reset_usage`` associations (ids), qos (names)

``settings`` maps field names of the record or of its ``Limits`` to values; None clears. TRES limits are mappings merged
into what is there (None takes one out). ``qos`` and ``preempt`` are lists: plain names replace, ``+name`` and ``-name``
change; an empty list clears (an association then inherits). ``flags`` likewise. ``parent`` (account) moves an account.
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

from slurmbridge.slurm import errors
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.views.associations import Tree, number
from slurmbridge.views.records import (
    AccountRecord,
    AssociationData,
    AssociationRecord,
    Limits,
    QosRecord,
    UserRecord,
)

DAY_S = 86400
"""What is younger than this and never used is forgotten when deleted; other rows stay, marked."""
_LIMITS = {field.name: field for field in fields(Limits)}
_CLEARED = {"shares": 1, "usage_factor": 1.0, "grace_time_s": 0, "description": "", "organization": "", "comment": "",
            "default_qos": "", "preempt_mode": ""}
R = TypeVar("R")
Operation = Mapping[str, Any]


class Draft:
    """A changed view of the data. ``data`` reads like the original; ``commit()`` carries the changes over.

    Raises SlurmError from ``apply`` for what cannot be; the draft is then to be dropped.
    """

    def __init__(self, original: AssociationData, now_s: float, used: Collection[int] = ()) -> None:
        """``used``: ids of associations that jobs belong to."""
        self.original = original
        self.data = replace(
            original, associations=dict(original.associations), qos=dict(original.qos),
            accounts=dict(original.accounts), users=dict(original.users), tres=dict(original.tres),
            wckeys=dict(original.wckeys))
        self.now_s = now_s
        self.used = used
        self.associations: set[int] = set()
        self.qos: set[str] = set()
        self.accounts: set[str] = set()
        self.users: set[str] = set()
        self.wckeys: set[int] = set()
        self.usage_reset: tuple[set[int], set[str]] = (set(), set())
        self.renamed: dict[str, str] = {}
        self._tree: Tree | None = None
        self._next_id = max(original.associations, default=0) + 1
        self._gone = {(r.account, r.user, r.partition): r for r in original.associations.values() if r.deleted}

    @property
    def tree(self) -> Tree:
        """The tree as drafted so far."""
        if self._tree is None:
            self._tree = Tree(self.data)
        return self._tree

    def apply(self, operation: Operation) -> None:
        handler = _HANDLERS.get(operation["op"])
        if handler is None:
            raise SlurmError(errors.SLURM_ERROR, f"unknown accounting operation {operation['op']!r}")
        handler(self, operation)

    def apply_all(self, operations: Sequence[Operation]) -> Draft:
        for operation in operations:
            self.apply(operation)
        return self

    def commit(self) -> None:
        """Changes the original in place (its records keep their identity) and raises its generation."""
        self.associations.update(record.id for record in self._numbered())
        original = self.original
        _carry(original.associations, self.data.associations, self.associations)
        _carry(original.qos, self.data.qos, self.qos)
        _carry(original.accounts, self.data.accounts, self.accounts)
        _carry(original.users, self.data.users, self.users)
        original.wckeys = self.data.wckeys
        original.tres = self.data.tres
        original.cluster = self.data.cluster
        original.generation += 1

    # ---------------------------------------------------------------------------------------------- touching records
    def _numbered(self) -> list[AssociationRecord]:
        """Numbers copies, so that a dropped draft leaves the original alone."""
        for number_of in list(self.data.associations):
            self._association(number_of)
        return list(number(self.data))

    def _association(self, number_of: int) -> AssociationRecord:
        record = self.data.associations.get(number_of)
        if record is None:
            raise SlurmError(errors.ESLURM_INVALID_ACCOUNT)
        if record is self.original.associations.get(number_of):
            record = self.data.associations[number_of] = replace(record, limits=replace(record.limits))
            self._tree = None                  # it knows the record before
        return record

    def _known(self, here: dict[str, R], before: dict[str, R], name: str, error: int) -> R:
        record = here.get(name)
        if record is None:
            raise SlurmError(error)
        if record is before.get(name):
            record = here[name] = replace(record)  # type: ignore[type-var]
        return record

    def _qos(self, name: str) -> QosRecord:
        record = self._known(self.data.qos, self.original.qos, name, errors.ESLURM_INVALID_QOS)
        if record.limits is getattr(self.original.qos.get(name), "limits", None):
            record.limits = replace(record.limits)
        self.qos.add(name)
        return record

    def _account(self, name: str) -> AccountRecord:
        self.accounts.add(name)
        return self._known(self.data.accounts, self.original.accounts, name, errors.ESLURM_INVALID_ACCOUNT)

    def _user(self, name: str) -> UserRecord:
        self.users.add(name)
        return self._known(self.data.users, self.original.users, name, errors.ESLURM_USER_ID_MISSING)

    # ------------------------------------------------------------------------------------------- accounts and users
    def _add_account(self, operation: Operation) -> None:
        name = operation["name"]
        before = self.data.accounts.get(name)
        coordinators = before.coordinators if before and not before.deleted else ()
        self.data.accounts[name] = AccountRecord(
            name, operation.get("description") or name, operation.get("organization") or name,
            tuple(operation.get("flags", ())), coordinators, created_s=self.now_s)
        self.accounts.add(name)

    def _modify_account(self, operation: Operation) -> None:
        record = self._account(operation["name"])
        for key, value in operation["settings"].items():
            if key == "flags":
                record.flags = tuple(_changed_words(record.flags, value))
            else:
                setattr(record, key, value)

    def _delete_account(self, operation: Operation) -> None:
        name = operation["name"]
        top = self.tree.find(name)
        if top is not None:
            for below in list(self.tree.in_order(top)):
                self._drop_association(below.id)
        record = self._account(name)
        for user in record.coordinators:
            self._drop_coordinator(name, user)
        self._drop(self.data.accounts, name, record)

    def _add_user(self, operation: Operation) -> None:
        name = operation["name"]
        self.data.users[name] = UserRecord(
            name, admin_level=operation.get("admin_level") or "None", created_s=self.now_s)
        self.users.add(name)

    def _modify_user(self, operation: Operation) -> None:
        record = self._user(operation["name"])
        for key, value in operation["settings"].items():
            setattr(record, key, value)

    def _rename_user(self, operation: Operation) -> None:
        old, new = operation["name"], operation["new_name"]
        if new in self.data.users and not self.data.users[new].deleted:
            raise SlurmError(errors.SLURM_ERROR, f"user {new} exists already")
        record = self._user(old)
        del self.data.users[old]
        self.data.users[new] = replace(record, name=new)
        self.users.update((old, new))
        self.renamed[old] = new
        for association in list(self.data.associations.values()):
            if association.user == old:
                self._association(association.id).user = new
                self.associations.add(association.id)
                self._tree = None
        for coordinated in record.coordinator_of:
            if coordinated in self.data.accounts:
                account = self._account(coordinated)
                account.coordinators = tuple(new if user == old else user for user in account.coordinators)
        for number_of, (name, user) in list(self.data.wckeys.items()):
            if user == old:
                self.data.wckeys[number_of] = (name, new)
                self.wckeys.add(number_of)

    def _delete_user(self, operation: Operation) -> None:
        name = operation["name"]
        for association in list(self.data.associations.values()):
            if association.user == name and not association.deleted:
                self._drop_association(association.id)
        for number_of, (_name, user) in list(self.data.wckeys.items()):
            if user == name:
                self._delete_wckey({"id": number_of})
        record = self._user(name)
        for account in record.coordinator_of:
            self._drop_coordinator(account, name)
        self._drop(self.data.users, name, record)

    def _drop(self, records: dict[str, Any], name: str, record: Any) -> None:
        if self.now_s - record.created_s < DAY_S:
            del records[name]
        else:
            record.deleted = True

    def _add_coordinator(self, operation: Operation) -> None:
        account, user = self._account(operation["account"]), self._user(operation["user"])
        account.coordinators = tuple(sorted({*account.coordinators, user.name}))
        user.coordinator_of = tuple(sorted({*user.coordinator_of, account.name}))

    def _delete_coordinator(self, operation: Operation) -> None:
        self._drop_coordinator(operation["account"], operation["user"])

    def _drop_coordinator(self, account_name: str, user_name: str) -> None:
        if account_name in self.data.accounts:
            account = self._account(account_name)
            account.coordinators = tuple(name for name in account.coordinators if name != user_name)
        if user_name in self.data.users:
            user = self._user(user_name)
            user.coordinator_of = tuple(name for name in user.coordinator_of if name != account_name)

    # ------------------------------------------------------------------------------------------------- associations
    def _add_association(self, operation: Operation) -> None:
        account, user, partition = operation["account"], operation.get("user", ""), operation.get("partition", "")
        parent = self.tree.find(account if user else operation.get("parent") or "root")
        if parent is None and (user or account != "root"):
            raise SlurmError(errors.ESLURM_INVALID_PARENT_ACCOUNT)
        if self.tree.find(account, user, partition) is not None:
            raise SlurmError(errors.ESLURM_INVALID_ACCOUNT, f"association of {account} {user} exists already")
        gone = self._gone.pop((account, user, partition), None)
        record = AssociationRecord(
            gone.id if gone else self._next_id, account, user, partition, parent.id if parent else 0,
            created_s=gone.created_s if gone else self.now_s)
        if gone:
            record.usage_raw, record.usage_tres_raw, record.grp_used_wall_s = (
                gone.usage_raw, gone.usage_tres_raw, gone.grp_used_wall_s)
        else:
            self._next_id += 1
        self.data.associations[record.id] = record
        self.associations.add(record.id)
        self.tree.add(record)
        self._set_association(record, operation.get("settings", {}))
        if operation.get("is_default"):
            self._set_default(user, account)

    def _modify_association(self, operation: Operation) -> None:
        record = self._association(operation["id"])
        self.associations.add(record.id)
        self._set_association(record, operation["settings"])

    def _set_association(self, record: AssociationRecord, settings: Mapping[str, Any]) -> None:
        for key, value in settings.items():
            if key in _LIMITS:
                _set_limit(record.limits, key, value)
            elif key == "qos":
                _set_association_qos(record, value)
            elif key == "parent":
                self._move(record, value)
            elif key == "flags":
                record.flags = tuple(_changed_words(record.flags, value))
            else:
                setattr(record, key, _CLEARED.get(key) if value is None else value)

    def _move(self, record: AssociationRecord, parent_name: str) -> None:
        parent = self.tree.find(parent_name)
        if parent is None or record.user:
            raise SlurmError(errors.ESLURM_INVALID_PARENT_ACCOUNT)
        if any(above.id == record.id for above in self.tree.chain(parent)):
            raise SlurmError(errors.ESLURM_INVALID_PARENT_ACCOUNT)
        record.parent_id = parent.id
        self._tree = None

    def _delete_association(self, operation: Operation) -> None:
        top = self._association(operation["id"])
        for record in list(self.tree.in_order(top)) if not top.user else [top]:
            self._drop_association(record.id)

    def _drop_association(self, number_of: int) -> None:
        record = self._association(number_of)
        self.associations.add(number_of)
        self._tree = None
        if record.is_default and record.user in self.data.users:
            self._user(record.user).default_account = ""
        if self.now_s - record.created_s < DAY_S and number_of not in self.used:
            del self.data.associations[number_of]
        else:
            record.deleted, record.is_default = True, False
            self._gone[record.account, record.user, record.partition] = record

    def _set_default_account(self, operation: Operation) -> None:
        self._set_default(operation["user"], operation["account"])

    def _set_default(self, user: str, account: str) -> None:
        for other in list(self.tree.by_user.get(user, ())):
            wanted = other.account == account
            if other.is_default != wanted:
                self._association(other.id).is_default = wanted
                self.associations.add(other.id)
        if user in self.data.users:
            self._user(user).default_account = account

    # ------------------------------------------------------------------------------------------ QOS, WCKeys, usage
    def _add_qos(self, operation: Operation) -> None:
        name = operation["name"]
        before = self.data.qos.get(name)
        if before is not None and not before.deleted:
            raise SlurmError(errors.ESLURM_INVALID_QOS, f"QOS {name} exists already")
        number_of = before.id if before else max((qos.id for qos in self.data.qos.values()), default=0) + 1
        self.data.qos[name] = QosRecord(number_of, name, created_s=self.now_s)
        self.qos.add(name)
        self._set_qos(self.data.qos[name], operation.get("settings", {}))

    def _modify_qos(self, operation: Operation) -> None:
        self._set_qos(self._qos(operation["name"]), operation["settings"])

    def _set_qos(self, record: QosRecord, settings: Mapping[str, Any]) -> None:
        for key, value in settings.items():
            if key in _LIMITS:
                _set_limit(record.limits, key, value)
            elif key in ("flags", "preempt"):
                names = _changed_words(getattr(record, key), value)
                if key == "preempt":
                    names = sorted(names, key=lambda name: self.data.qos[name].id if name in self.data.qos else 0)
                setattr(record, key, tuple(names))
            else:
                setattr(record, key, (0 if key == "priority" else _CLEARED.get(key)) if value is None else value)
        if "preempt" in settings:
            self._refuse_preempt_loop(record.name)

    def _refuse_preempt_loop(self, name: str) -> None:
        seen: set[str] = set()
        stack = list(self.data.qos[name].preempt)
        while stack:
            here = stack.pop()
            if here == name:
                raise SlurmError(errors.ESLURM_QOS_PREEMPTION_LOOP)
            if here not in seen and here in self.data.qos:
                seen.add(here)
                stack.extend(self.data.qos[here].preempt)

    def _delete_qos(self, operation: Operation) -> None:
        name = operation["name"]
        record = self._qos(name)
        for association in list(self.data.associations.values()):
            if name in (association.qos or ()) or any(word[1:] == name for word in association.delta_qos):
                changed = self._association(association.id)
                self.associations.add(association.id)
                if changed.qos is not None:
                    changed.qos = tuple(other for other in changed.qos if other != name) or None
                changed.delta_qos = tuple(word for word in changed.delta_qos if word[1:] != name)
        for other in list(self.data.qos.values()):
            if name in other.preempt:
                preempting = self._qos(other.name)
                preempting.preempt = tuple(word for word in preempting.preempt if word != name)
        self._drop(self.data.qos, name, record)

    def _add_wckey(self, operation: Operation) -> None:
        key = (operation["name"], operation["user"])
        if key in self.data.wckeys.values():
            return
        number_of = max(self.data.wckeys, default=0) + 1
        self.data.wckeys[number_of] = key
        self.wckeys.add(number_of)
        if operation.get("is_default") and key[1] in self.data.users:
            self._user(key[1]).default_wckey = key[0]

    def _delete_wckey(self, operation: Operation) -> None:
        name, user = self.data.wckeys.pop(operation["id"])
        self.wckeys.add(operation["id"])
        if user in self.data.users and self.data.users[user].default_wckey == name:
            self._user(user).default_wckey = ""

    def _reset_usage(self, operation: Operation) -> None:
        for number_of in operation.get("associations", ()):
            for below in list(self.tree.in_order(self._association(number_of))):
                if below.user:
                    self._subtract(below, below.usage_raw, below.usage_tres_raw)
            record = self._association(number_of)
            record.usage_raw, record.usage_tres_raw, record.grp_used_wall_s = 0.0, {}, 0.0
        for name in operation.get("qos", ()):
            qos = self._qos(name)
            qos.usage_raw, qos.usage_tres_raw = 0.0, {}
            self.usage_reset[1].add(name)

    def _subtract(self, below: AssociationRecord, raw: float, tres: Mapping[str, float]) -> None:
        for above in list(self.tree.chain(below)):
            record = self._association(above.id)
            record.usage_raw = max(0.0, record.usage_raw - raw)
            record.usage_tres_raw = {name: max(0.0, used - tres.get(name, 0.0))
                                     for name, used in record.usage_tres_raw.items()}
            self.associations.add(record.id)
            self.usage_reset[0].add(record.id)


def _carry(original: dict[Any, Any], drafted: dict[Any, Any], touched: Collection[Any]) -> None:
    for key in touched:
        new = drafted.get(key)
        if new is None:
            original.pop(key, None)
            continue
        old = original.get(key)
        if old is None:
            original[key] = new
        elif old is not new:
            for field in fields(old):
                setattr(old, field.name, getattr(new, field.name))


def _set_limit(limits: Limits, key: str, value: Any) -> None:
    if not isinstance(getattr(limits, key), dict):
        setattr(limits, key, value)
        return
    merged = dict(getattr(limits, key))
    for tres, count in (value or {}).items():
        if count is None:
            merged.pop(tres, None)
        else:
            merged[tres] = count
    setattr(limits, key, merged if value is not None else {})


def _changed_words(before: Sequence[str], words: Sequence[str] | None) -> list[str]:
    """A list after plain words (which replace it) or ``+word``/``-word``."""
    result = list(before)
    plain = [word for word in words or () if word and word[0] not in "+-"]
    if plain or not words:
        result = []
        result.extend(dict.fromkeys(plain))
    for word in words or ():
        if word[:1] == "+" and word[1:] not in result:
            result.append(word[1:])
        elif word[:1] == "-" and word[1:] in result:
            result.remove(word[1:])
    return result


def _set_association_qos(record: AssociationRecord, words: Sequence[str] | None) -> None:
    plain = [word for word in words or () if word and word[0] not in "+-"]
    if plain:
        record.qos, record.delta_qos = tuple(dict.fromkeys(plain)), ()
    elif not words:
        record.qos, record.delta_qos = None, ()
    if not words or plain:
        return
    if record.qos is not None:
        record.qos = tuple(_changed_words(record.qos, words)) or None
        return
    delta = [word for word in record.delta_qos if all(word[1:] != other[1:] for other in words)]
    record.delta_qos = tuple(delta + list(words))


_HANDLERS: dict[str, Callable[[Draft, Operation], None]] = {
    name: getattr(Draft, f"_{name}") for name in (
        "add_account", "modify_account", "delete_account", "add_user", "modify_user", "rename_user", "delete_user",
        "add_association", "modify_association", "delete_association", "set_default_account", "add_qos", "modify_qos",
        "delete_qos", "add_coordinator", "delete_coordinator", "add_wckey", "delete_wckey", "reset_usage")}
