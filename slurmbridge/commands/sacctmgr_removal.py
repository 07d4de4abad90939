"""Removing associations: what goes with them and what forbids it."""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from slurmbridge.commands.sacctmgr_modify import deny, described
from slurmbridge.commands.sacctmgr_talk import Talk
from slurmbridge.commands.sacctmgr_where import Where, select
from slurmbridge.slurm import errors
from slurmbridge.views.associations import Tree
from slurmbridge.views.records import AssociationRecord


@dataclass(slots=True)
class Removal:
    """``lines``: what would go, or (``problem``: Slurm's errno) what stands in the way."""

    operations: list[dict[str, Any]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    problem: int = 0
    users: list[str] = field(default_factory=list)            # of the removed associations


def refused(talk: Talk, removal: Removal, default_account_hint: str) -> bool:
    """Says what stands in the way, or that there is nothing to remove. False: it may go on."""
    if removal.problem:
        talk.warn(f" Error with request: {errors.strerror(removal.problem)}\n"
                  + "".join(f"  {line}\n" for line in removal.lines))
        if removal.problem == errors.ESLURM_NO_REMOVE_DEFAULT_ACCOUNT:
            talk.warn(default_account_hint)
    elif not removal.lines:
        talk.say(" Nothing deleted\n")
    else:
        return False
    talk.exit_code = 1
    return True


def still_default(talk: Talk, tree: Tree, going: Iterable[AssociationRecord]) -> list[str]:
    """Users whose default account would go while others of their associations stay."""
    going = list(going)
    numbers = {record.id for record in going}
    lines = []
    for record in going:
        if record.is_default and any(other.id not in numbers for other in tree.by_user.get(record.user, ())):
            lines.append(f"C = {talk.cluster:<15} A = {record.account:<10} U = {record.user:<9}"
                         + (f" P = {record.partition}" if record.partition else ""))
    return lines


def active_jobs(talk: Talk, records: Iterable[AssociationRecord]) -> list[str]:
    """The lines of jobs that still use these associations."""
    numbers = {record.id: record for record in records}
    lines = []
    for job in talk.session.views.jobs.values():
        record = numbers.get(job.assoc_id)
        if record is not None and job.state in ("PENDING", "RUNNING", "SUSPENDED"):
            lines.append(f"JobID = {job.job_id:<10} {described(talk.cluster, record, width=10)}")
    return lines


def remove_associations(talk: Talk, where: Where) -> Removal | None:
    """What ``where`` selects and all below. None: refused (said so)."""
    tree = talk.tree()
    chosen = list(select(talk, tree, where))
    going: dict[int, AssociationRecord] = {}
    for record in chosen:
        below = [record] if record.user or where.partitions else list(tree.in_order(record))
        going.update({child.id: child for child in below if child.parent_id})
    if not talk.is_operator:
        mine = talk.coordinated()
        if not mine or any(record.account not in mine for record in going.values()):
            deny(talk)
            return None
    busy = active_jobs(talk, going.values())
    if busy:
        return Removal(problem=errors.ESLURM_JOBS_RUNNING_ON_ASSOC, lines=busy)
    kept = still_default(talk, tree, going.values())
    if kept:
        return Removal(problem=errors.ESLURM_NO_REMOVE_DEFAULT_ACCOUNT, lines=kept)
    lines, operations = [], []
    for record in going.values():
        parent = tree.parent(record)
        lines.append(described(talk.cluster, record, parent.account if parent else "", width=10))
        if parent is None or parent.id not in going:
            operations.append({"op": "delete_association", "id": record.id})
    return Removal(operations, lines, users=list(dict.fromkeys(r.user for r in going.values() if r.user)))
