"""Usage for reports: from the roll-ups, summed up the association tree, and in Slurm's order."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slurmbridge.commands.sreport_talk import Talk, Tres, sorted_like_libc, usage_width
from slurmbridge.commands.sreport_words import Conditions, full_hours, is_here
from slurmbridge.views.associations import Tree
from slurmbridge.views.records import AssociationRecord
from slurmbridge.views.session import Session

ENERGY, CPU = 3, 1
TOTAL = ("allocated", "down", "planned_down", "idle", "planned")


@dataclass(slots=True)
class Line:
    """One line of a report: whose usage, and seconds by TRES id."""

    account: str = ""
    user: str = ""
    qos: str = ""
    partition: str = ""
    accounts: list[str] = field(default_factory=list)
    seconds: dict[int, int] = field(default_factory=dict)
    association: AssociationRecord | None = None

    def add(self, seconds: Mapping[int, int]) -> None:
        for tres, count in seconds.items():
            self.seconds[tres] = self.seconds.get(tres, 0) + count


async def cluster_totals(talk: Talk, found: Conditions) -> dict[int, int] | None:
    """Seconds of everything in the window; None: the cluster had none then."""
    rows = await cluster_rows(talk, found)
    return {row["tres_id"]: sum(row[name] for name in TOTAL) for row in rows} or None


async def cluster_rows(talk: Talk, found: Conditions) -> Sequence[Mapping[str, Any]]:
    if not is_here(talk, found):
        return ()
    return await talk.session.views.ledger_query(
        "cluster_usage", now_s=talk.now, start_s=found.start_s, end_s=found.end_s)


async def usage_rows(talk: Talk, found: Conditions) -> Sequence[Mapping[str, Any]]:
    """Rows of usage that the caller may see. The window is put to whole hours a second time, as Slurm does."""
    found.start_s, found.end_s = full_hours(talk.zone, talk.now, found.start_s, found.end_s)
    if not is_here(talk, found):
        return ()
    rows = await talk.session.views.ledger_query(
        "usage", start_s=found.start_s, end_s=found.end_s)
    mine = own_usage(talk.session)
    return rows if mine is None else [row for row in rows if mine(row["assoc_id"])]


def own_usage(session: Session) -> Callable[[int], bool] | None:
    """With PrivateData=usage users see their own usage and that of accounts which they coordinate; None: all."""
    data = session.views.accounting
    name = session.identity.user_name
    private = session.views.conf.values.get("PrivateData", "").lower().split(",")
    user = data.users.get(name)
    if "usage" not in private or session.identity.is_admin or (user is not None and user.admin_level != "None"):
        return None
    led = Tree(data).coordinated(name)

    def is_own(number: int) -> bool:
        record = data.associations.get(number)
        return record is not None and (record.user == name or record.account in led)
    return is_own


def by_association(rows: Iterable[Mapping[str, Any]], qos: Sequence[str] | None = None,
                   split_qos: bool = False) -> dict[int, dict[str, dict[int, int]]]:
    """Association -> QOS (or "") -> seconds by TRES id."""
    found: dict[int, dict[str, dict[int, int]]] = {}
    for row in rows:
        if (split_qos or qos is not None) and (not row["qos"] or (qos is not None and row["qos"] not in qos)):
            continue
        seconds = found.setdefault(row["assoc_id"], {}).setdefault(row["qos"] if split_qos else "", {})
        seconds[row["tres_id"]] = seconds.get(row["tres_id"], 0) + row["seconds"]
    return found


def summed_up(tree: Tree, own: Mapping[int, Mapping[str, Mapping[int, int]]]) -> dict[int, dict[str, dict[int, int]]]:
    """The same with what is below each association: an account's users and accounts, a user's partitions."""
    found: dict[int, dict[str, dict[int, int]]] = {}
    for number, parts in own.items():
        record = tree.data.associations.get(number)
        if record is None:
            continue
        above = list(tree.chain(record))
        if record.partition:
            user = tree.find(record.account, record.user)
            above += [user] if user else []
        for one in above:
            sums = found.setdefault(one.id, {})
            for name, seconds in parts.items():
                total = sums.setdefault(name, {})
                for tres, count in seconds.items():
                    total[tres] = total.get(tres, 0) + count
    return found


def in_tree_order(tree: Tree, records: Iterable[AssociationRecord], cluster: str) -> list[AssociationRecord]:
    """By hierarchy: users before accounts, each by name; those whose parent is not among them come first of all."""
    known = {record.id: record for record in records}
    children: dict[int, list[AssociationRecord]] = {}
    for record in sorted(known.values(), key=tree.lineage):
        parent = record.parent_id if record.parent_id in known else 0
        children.setdefault(parent, []).append(record)

    def order(record: AssociationRecord) -> tuple[bool, str]:
        return not record.user, record.user or (record.account if record.parent_id else cluster)

    found: list[AssociationRecord] = []
    stack = sorted(children.get(0, ()), key=order)[::-1]
    while stack:
        record = stack.pop()
        found.append(record)
        stack += sorted(children.get(record.id, ()), key=order)[::-1]
    return found


def chosen(talk: Talk, tree: Tree, found: Conditions, *, sub_accounts: bool, users_only: bool = False
           ) -> list[AssociationRecord]:
    """The associations that a report is about; those of a partition count with their user's.

    What is below ``root`` does not say so in Slurm's lineages: asked for with its sub-accounts, it has none.
    """
    users, accounts = found.get("users"), found.get("accounts")
    wanted = set(accounts or ())
    if accounts and sub_accounts:
        wanted.discard("root")
        for name in accounts:
            top = tree.find(name)
            if top is not None and name != "root":
                wanted.update(record.account for record in tree.in_order(top))
    return [record for record in tree.data.associations.values()
            if not record.partition and (users is None or record.user in users)
            and (not accounts or record.account in wanted) and (record.user or not users_only)]


def by_usage(talk: Talk, lines: Sequence[Line], tres_id: int) -> list[Line]:
    """From the largest usage to the smallest, equal ones by name."""
    def compare(a: Line, b: Line) -> int:
        if not talk.sort_by_name:
            if tres_id not in a.seconds:
                return 1
            if tres_id not in b.seconds:
                return -1
            if a.seconds[tres_id] != b.seconds[tres_id]:
                return -1 if a.seconds[tres_id] > b.seconds[tres_id] else 1
        return (a.user > b.user) - (a.user < b.user)
    return sorted_like_libc(lines, compare)


def used_widths(talk: Talk, keys: Iterable[str], largest: Mapping[int, int]) -> dict[str, int]:
    """Widths of Used and Energy by the amounts of a report's largest line."""
    if "energy" in keys:
        return {"used": usage_width(largest.get(CPU, 0), talk.unit),
                "energy": usage_width(largest.get(ENERGY, 0), talk.unit)}
    return {"used": usage_width(max((largest.get(tres.id, 0) for tres in talk.tres), default=0), talk.unit)}


def amounts(talk: Talk, line: Line, tres: Tres, totals: Mapping[int, int]) -> dict[str, str]:
    """Used, Energy and TRES Name of a line."""
    return {"used": talk.amount(line.seconds.get(tres.id, 0), totals.get(tres.id, 0)), "tres": tres.name,
            "energy": talk.amount(line.seconds.get(ENERGY, 0), totals.get(ENERGY, 0))}
