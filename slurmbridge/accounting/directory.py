"""The accounting data as the controller keeps it: what it begins with, and sacctmgr's writes applied and written down.

The operations themselves are ``slurmbridge.views.directory``'s. Here each becomes rows of the ledger and a line of
``sacctmgr show transactions``.
"""
from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from slurmbridge.accounting import operations as ops
from slurmbridge.views.directory import Draft
from slurmbridge.views.records import AssociationData

STATIC_TRES = ("cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages")
FIRST_CONFIGURED_TRES = 1001
_ACTIONS = {
    "add_account": "Add Accounts", "modify_account": "Modify Accounts", "delete_account": "Remove Accounts",
    "add_user": "Add Users", "modify_user": "Modify Users", "rename_user": "Modify Users",
    "delete_user": "Remove Users",
    "add_association": "Add Associations", "modify_association": "Modify Associations",
    "delete_association": "Remove Associations", "set_default_account": "Modify Associations", "add_qos": "Add QOS",
    "modify_qos": "Modify QOS", "delete_qos": "Remove QOS", "add_coordinator": "Add Account Coord",
    "delete_coordinator": "Remove Account Coords", "add_wckey": "Add WCKeys", "delete_wckey": "Remove WCKeys",
}


def apply_operations(data: AssociationData, operations: Sequence[Mapping[str, Any]], now_s: float, *,
                     actor: str = "root", used: Collection[int] = ()) -> list[ops.Operation]:
    """Applies sacctmgr's operations to ``data``, all or none, and returns what the ledger has to write.

    ``used``: ids of associations that live jobs belong to (their rows are kept when deleted). Raises SlurmError, with
    ``data`` untouched.
    """
    draft = Draft(data, now_s, used)
    changes: list[ops.Operation] = []
    for operation in operations:
        draft.apply(operation)
        action = _ACTIONS.get(operation["op"])
        if action:
            where, info = _described(operation, draft)
            changes.append(ops.AddChange(now_s, action, actor, where, info))
    before_qos = {name: qos.id for name, qos in data.qos.items()}
    draft.commit()
    return changes + _rows(data, draft, before_qos)


def _rows(data: AssociationData, draft: Draft, before_qos: Mapping[str, int]) -> list[ops.Operation]:
    rows: list[ops.Operation] = []
    for number in sorted(draft.associations):
        record = data.associations.get(number)
        rows.append(ops.SaveAssociation(record) if record else ops.DropAssociation(number))
    for name in sorted(draft.qos):
        qos = data.qos.get(name)
        if qos:
            rows.append(ops.SaveQos(qos))
        elif name in before_qos:
            rows.append(ops.DropQos(before_qos[name]))
    for name in sorted(draft.accounts):
        account = data.accounts.get(name)
        rows.append(ops.SaveAccount(account) if account else ops.DropAccount(name))
    for name in sorted(draft.users):
        user = data.users.get(name)
        rows.append(ops.SaveUser(user) if user else ops.DropUser(name))
    rows.extend(ops.SaveWckey(number, data.wckeys.get(number)) for number in sorted(draft.wckeys))
    reset, reset_qos = draft.usage_reset
    if reset or reset_qos:
        associations = [data.associations[number] for number in sorted(reset) if number in data.associations]
        rows.append(ops.SaveUsage(associations, [data.qos[name] for name in sorted(reset_qos)]))
    return rows


def _described(operation: Mapping[str, Any], draft: Draft) -> tuple[str, str]:
    """The Where and Info of a transaction line."""
    kind = operation["op"]
    info = ", ".join(f"{key}={_value(value)}" for key, value in operation.get("settings", {}).items())
    if kind == "add_association":
        number = max(draft.associations, default=0)
        who = ", ".join(f"{key}='{operation.get(key, '')}'" for key in ("account", "user", "partition"))
        return f"id_assoc={number}", f"{who}{', ' if info else ''}{info}"
    if kind in ("modify_association", "delete_association"):
        return f"(id_assoc={operation['id']})", info
    if kind == "set_default_account":
        return f"(user='{operation['user']}' && acct='{operation['account']}')", "is_def=1"
    if kind in ("add_coordinator", "delete_coordinator"):
        return operation["user"], operation["account"]
    if kind == "add_account":
        return operation["name"], f"description='{operation.get('description', '')}', " \
                                  f"organization='{operation.get('organization', '')}'"
    if kind == "add_user":
        return operation["name"], f"admin_level={operation.get('admin_level') or 'None'}"
    if kind == "rename_user":
        return f"(name='{operation['name']}')", f"name='{operation['new_name']}'"
    if kind == "delete_wckey":
        return f"id_wckey={operation['id']}", ""
    name = str(operation.get("name", ""))
    return (name if kind.startswith("add_") else f"(name='{name}')"), info


def _value(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, Mapping):
        return "'" + ",".join(f"{tres}={-1 if count is None else count}" for tres, count in value.items()) + "'"
    if isinstance(value, str):
        return f"'{value}'"
    return "'" + ",".join(value) + "'" if isinstance(value, list | tuple) else str(value)


def ensure_content(data: AssociationData, cluster: str, configured_tres: Sequence[str],
                   now_s: float) -> list[ops.Operation]:
    """Fills in what every cluster has: name, root account and user, the QOS ``normal``, the TRES with their ids.

    ``configured_tres``: AccountingStorageTRES in its order (static ones are skipped). Returns what the ledger has to
    write; nothing where all is there. The ledger's cluster name is kept when it has one.
    """
    rows: list[ops.Operation] = []
    if not data.cluster:
        data.cluster = cluster
        rows.append(ops.SaveMeta("cluster", cluster))
    rows += _ensure_tres(data, configured_tres)
    operations: list[dict[str, Any]] = []
    if "normal" not in data.qos:
        operations.append({"op": "add_qos", "name": "normal", "settings": {"description": "Normal QOS default"}})
    if "root" not in data.accounts:
        operations.append({"op": "add_account", "name": "root", "description": "default root account",
                           "organization": "root"})
    if "root" not in data.users:
        operations.append({"op": "add_user", "name": "root", "admin_level": "Administrator"})
    if not any(not record.parent_id for record in data.associations.values()):
        operations += [
            {"op": "add_association", "account": "root", "settings": {"qos": ["normal"]}},
            {"op": "add_association", "account": "root", "user": "root", "is_default": True}]
    return rows + (apply_operations(data, operations, now_s) if operations else [])


def _ensure_tres(data: AssociationData, configured: Sequence[str]) -> list[ops.Operation]:
    rows: list[ops.Operation] = []
    for number, name in enumerate(STATIC_TRES, 1):
        if name not in data.tres:
            data.tres[name] = number
            rows.append(ops.SaveTres(name, number))
    wanted = [name for name in configured if name not in STATIC_TRES]
    if any(name == "gres/gpu" or name.startswith("gres/gpu:") for name in wanted):
        wanted += ["gres/gpumem", "gres/gpuutil"]
    following = max(FIRST_CONFIGURED_TRES - 1, *data.tres.values()) + 1
    for name in dict.fromkeys(wanted):
        if name not in data.tres:
            data.tres[name] = following
            rows.append(ops.SaveTres(name, following))
            following += 1
    if rows:
        data.generation += 1
    return rows
