"""Whether someone who is no operator may carry out a change of the accounting data.

sacctmgr asks and words its refusals before; this is the controller's own check of what is left: coordinators change
what is below their accounts, users their own defaults (sacctmgr(1), as observed in 25.11).
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slurmbridge.slurm import errors
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.views.associations import Tree
from slurmbridge.views.records import AssociationData


def check(user: str, operations: Sequence[Mapping[str, Any]], data: AssociationData) -> None:
    """Raises SlurmError(ESLURM_ACCESS_DENIED)."""
    tree = Tree(data)
    mine = tree.coordinated(user)
    for operation in operations:
        if not _may(user, operation, tree, mine):
            raise SlurmError(errors.ESLURM_ACCESS_DENIED)
        if operation["op"] == "add_association" and not operation.get("user"):
            mine.add(str(operation["account"]))          # an account of one's own making is below one's own


def _may(user: str, operation: Mapping[str, Any], tree: Tree, mine: set[str]) -> bool:
    kind = operation["op"]
    account = str(operation.get("account") or "")
    if kind == "add_user":
        return bool(mine) and not operation.get("admin_level")
    if kind == "add_account":
        return bool(mine)
    if kind == "add_association" and not operation.get("user"):
        return str(operation.get("parent") or "") in mine
    if kind in ("add_association", "add_coordinator", "delete_coordinator"):
        return account in mine
    if kind in ("modify_association", "delete_association"):
        return _may_association(user, operation, tree, mine)
    if kind == "delete_user":
        records = tree.by_user.get(str(operation["name"]), ())
        return bool(mine) and all(record.account in mine for record in records)
    if kind == "modify_user":
        return operation["name"] == user and not set(operation["settings"]) - {"default_wckey"}
    return kind == "set_default_account" and operation["user"] == user


def _may_association(user: str, operation: Mapping[str, Any], tree: Tree, mine: set[str]) -> bool:
    record = tree.data.associations[operation["id"]]
    own = record.user == user and operation["op"] == "modify_association"
    if own and set(operation["settings"]) <= {"default_qos"}:
        return True
    if record.user:
        return record.account in mine
    above = tree.parent(record)
    return above is not None and above.account in mine
