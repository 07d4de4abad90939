"""Modifying associations: whose limits change, who inherits the change, and who may ask for it.

The list that sacctmgr prints names the chosen associations and, below each account, all who inherit what is set.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from slurmbridge.commands.sacctmgr_talk import Talk
from slurmbridge.commands.sacctmgr_where import Where, select
from slurmbridge.commands.sacctmgr_words import Settings
from slurmbridge.slurm import errors
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.views.associations import Tree
from slurmbridge.views.records import AssociationRecord

DENIED = "Your user doesn't have privilege to perform this action"
_INHERITED = ("default_qos", "max_jobs", "max_jobs_accrue", "min_prio_threshold", "max_submit_jobs", "max_wall_min",
              "priority")
_INHERITED_TRES = ("max_tres_per_job", "max_tres_per_node", "max_tres_mins_per_job", "max_tres_run_mins")


def deny(talk: Talk, said: str = DENIED) -> None:
    """Access denied, as a request that the database refuses."""
    talk.log_error(said)
    talk.complain(f" Error with request: {errors.strerror(errors.ESLURM_ACCESS_DENIED)}\n")


def described(cluster: str, record: AssociationRecord, parent: str | None = None, width: int = 20) -> str:
    """``C = lab        A = phys                 U = alice     P = batch``; ``parent``: ``A = phys of root``."""
    if record.user:
        text = f"C = {cluster:<10} A = {record.account:<{width}} U = {record.user:<9}"
        return text + (f" P = {record.partition}" if record.partition else "")
    if parent is None:
        return f"C = {cluster:<10} A = {record.account:<{width}}"
    return f"C = {cluster:<10} A = {record.account}" + (f" of {parent}" if parent else "")


async def modify_associations(talk: Talk, where: Where, settings: Settings, title: str) -> bool:
    """Changes what ``where`` selects; prints title, list and question. Raises SlurmError where it is refused."""
    tree = talk.tree()
    chosen = list(select(talk, tree, where))
    settings = _permitted(talk, tree, chosen, where, settings)
    lines: list[str] = []
    operations: list[dict[str, Any]] = []
    if settings:
        for record in chosen:
            problem = _move_problem(talk, tree, record, settings)
            if problem is not None:
                if problem:
                    lines.append(problem)
                    break
                continue
            parent = tree.parent(record)
            lines.append(described(talk.cluster, record, parent.account if parent else ""))
            operations.append({"op": "modify_association", "id": record.id, "settings": _own(record, settings)})
            if not record.user:
                lines += _heirs(talk.cluster, tree, record, settings, "parent" in settings)
    talk.say(title)
    if operations and ("qos" in settings or settings.get("default_qos")):
        _check_default_qos(talk, operations, chosen)
    if not lines:
        talk.say("  Nothing modified\n")
        return False
    talk.say("".join(f"  {line}\n" for line in lines))
    await talk.commit(operations)
    return True


def _own(record: AssociationRecord, settings: Settings) -> Settings:
    """A user has no parent account to move to."""
    return {key: value for key, value in settings.items() if key != "parent" or not record.user}


def _move_problem(talk: Talk, tree: Tree, record: AssociationRecord, settings: Settings) -> str | None:
    """None: fine. "": already there. Else what is said instead of moving."""
    name = settings.get("parent")
    if not name or record.user or not record.parent_id:
        return None
    parent = tree.find(name)
    if parent is None:
        return f"Parent account {name} doesn't exist on cluster {talk.cluster}"
    if any(above.id == record.id for above in tree.chain(parent)):
        return (f"Requested parent account {name} is a child of {record.account} on cluster {talk.cluster}. "
                f"Please re-parent {name} before using it as a parent.")
    return "" if record.parent_id == parent.id else None


def _heirs(cluster: str, tree: Tree, record: AssociationRecord, settings: Settings, moved: bool) -> Iterator[str]:
    """Those below who take over something of the settings, in order."""
    for child in tree.children.get(record.id, []):
        passed: Settings = {}
        for key in _INHERITED:
            if key in settings and not _sets(child, key):
                passed[key] = settings[key]
        passed.update({key: settings[key] for key in _INHERITED_TRES if settings.get(key)})
        if "qos" in settings and child.qos is None:
            words = [word for word in settings["qos"] if not _contradicted(word, child)]
            if words or not settings["qos"]:
                passed["qos"] = words
        if not passed and not moved:
            continue
        yield described(cluster, child)
        if not child.user:
            yield from _heirs(cluster, tree, child, passed, moved)


def _sets(record: AssociationRecord, key: str) -> bool:
    if key == "default_qos":
        return bool(record.default_qos)
    value = record.priority if key == "priority" else getattr(record.limits, key)
    return value is not None


def _contradicted(word: str, child: AssociationRecord) -> bool:
    """``+low`` from above where the child has ``-low``."""
    return word[0] in "+-" and any(own[1:] == word[1:] and own[0] != word[0] for own in child.delta_qos)


def _check_default_qos(talk: Talk, operations: Sequence[dict[str, Any]], chosen: Iterable[AssociationRecord]) -> None:
    """Raises SlurmError, with the list said, where someone could no longer use the default QOS."""
    tree = talk.draft().apply_all(operations).tree
    users = {record.user for record in chosen if record.user}
    accounts = {record.account for record in chosen}
    lines = ""
    for record in tree.in_order():
        if record.account not in accounts or (users and record.user not in users):
            continue
        default = tree.default_qos(record)
        if default and default not in tree.qos(record):
            lines += f"  DefQOS = {default:<10} {described(talk.cluster, record)}\n"
    if lines:
        talk.log_error("\n These associations don't have access to their default qos.\n"
                       f" Please give them access before they the default can be set to this.\n{lines}")
        raise SlurmError(errors.ESLURM_NO_REMOVE_DEFAULT_QOS)


def _permitted(talk: Talk, tree: Tree, chosen: Sequence[AssociationRecord], where: Where,
               settings: Settings) -> Settings:
    """What of the settings the caller may set. Raises SlurmError(ESLURM_ACCESS_DENIED), with the reason said."""
    if talk.is_operator:
        return settings
    mine = talk.coordinated()
    if not mine:
        if where.users == [talk.user]:
            return {key: value for key, value in settings.items() if key == "default_qos"}
        _refuse(talk)
    if "parent" in settings and settings["parent"] not in mine:
        _refuse(talk)
    for record in chosen:
        above = tree.parent(record)
        responsible = record.account if record.user else above.account if above else ""
        if responsible not in mine:
            _refuse(talk)
        if above is not None:
            _check_coordinator(talk, tree, above, settings)
    return settings


def _check_coordinator(talk: Talk, tree: Tree, above: AssociationRecord, settings: Settings) -> None:
    """A coordinator gives neither QOS that the account lacks nor more than the account has."""
    allowed = set(tree.qos(above))
    if any(word.lstrip("+-") not in allowed for word in settings.get("qos", ())):
        _refuse(talk)
    limits = tree.limits(above)
    for key in ("max_jobs", "max_submit_jobs", "max_wall_min", "max_jobs_accrue"):
        most = getattr(limits, key)
        if settings.get(key) is not None and most is not None and settings[key] > most:
            raise SlurmError(errors.ESLURM_COORD_NO_INCREASE_JOB_LIMIT)
    for key in _INHERITED_TRES:
        most_tres = getattr(limits, key)
        for name, count in (settings.get(key) or {}).items():
            if count is not None and name in most_tres and count > most_tres[name]:
                raise SlurmError(errors.ESLURM_COORD_NO_INCREASE_JOB_LIMIT)


def _refuse(talk: Talk) -> None:
    talk.log_error(DENIED)
    raise SlurmError(errors.ESLURM_ACCESS_DENIED)
