"""Questions to the association tree: who is whose parent, what is inherited, in which order lists show it.

An association inherits from those above it what it does not set itself: the Max… limits (TRES by TRES), MinPrioThresh,
Priority, default QOS and the list of QOS. Grp… limits and shares belong to one association alone (sacctmgr(1)).
All functions are pure; a :class:`Tree` is good for one state of the data (its ``generation``).
"""
from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator
from dataclasses import replace

from slurmbridge.views.records import AssociationData, AssociationRecord, Limits, QosRecord

ROOT = "root"
_PLAIN = ("max_jobs", "max_jobs_accrue", "max_submit_jobs", "max_wall_min", "min_prio_threshold")
_TRES = ("max_tres_per_job", "max_tres_per_node", "max_tres_mins_per_job", "max_tres_run_mins")


class Tree:
    """The associations that are not deleted (``with_deleted``: all), indexed by key and by parent."""

    def __init__(self, data: AssociationData, with_deleted: bool = False) -> None:
        self.data = data
        self.by_key: dict[tuple[str, str, str], AssociationRecord] = {}
        self.by_user: dict[str, list[AssociationRecord]] = {}
        self.children: dict[int, list[AssociationRecord]] = {}
        self.root: AssociationRecord | None = None
        self._qos_by_name = {name: qos for name, qos in data.qos.items() if not qos.deleted}
        for record in data.associations.values():
            if record.deleted and not with_deleted:
                continue
            self._index(record)
        for records in self.children.values():
            records.sort(key=_sibling_order)

    def _index(self, record: AssociationRecord) -> None:
        self.by_key.setdefault((record.account, record.user, record.partition), record)
        self.children.setdefault(record.parent_id, []).append(record)
        if record.user:
            self.by_user.setdefault(record.user, []).append(record)
        elif not record.parent_id:
            self.root = record

    def add(self, record: AssociationRecord) -> None:
        """A record that is new to the data."""
        self._index(record)
        siblings = self.children[record.parent_id]
        siblings.pop()
        insort(siblings, record, key=_sibling_order)

    def find(self, account: str, user: str = "", partition: str = "") -> AssociationRecord | None:
        return self.by_key.get((account, user, partition))

    def parent(self, record: AssociationRecord) -> AssociationRecord | None:
        return self.data.associations.get(record.parent_id) if record.parent_id else None

    def chain(self, record: AssociationRecord | None) -> Iterator[AssociationRecord]:
        """The association, its parent, and so on up to the root."""
        seen: set[int] = set()
        while record is not None and record.id not in seen:
            seen.add(record.id)
            yield record
            record = self.parent(record)

    def lineage(self, record: AssociationRecord) -> str:
        """``/phys/phys_qcd/0-alice/``: the path as sacctmgr shows it."""
        accounts = [above.account for above in self.chain(record) if not above.user and above.parent_id]
        path = "/" + "".join(name + "/" for name in reversed(accounts))
        if record.user:
            path += f"0-{record.user}/" + (f"{record.partition}/" if record.partition else "")
        return path

    def in_order(self, record: AssociationRecord | None = None) -> Iterator[AssociationRecord]:
        """The tree from ``record`` (the root) down: an account, its users by name, then its accounts by name."""
        top = record or self.root
        if top is None:
            return
        stack = [top]
        while stack:
            here = stack.pop()
            yield here
            stack.extend(reversed(self.children.get(here.id, [])))

    def depth(self, record: AssociationRecord) -> int:
        """0 for the root."""
        return sum(1 for _ in self.chain(record)) - 1

    def qos(self, record: AssociationRecord) -> tuple[str, ...]:
        """The QOS it may use, by id: its own list, or what it inherits with the additions and removals on the way."""
        deltas: list[tuple[str, ...]] = []
        names: set[str] = set()
        for above in self.chain(record):
            if above.qos is not None:
                names = set(above.qos)
                break
            if above.delta_qos:
                deltas.append(above.delta_qos)
        for delta in reversed(deltas):
            for word in delta:
                (names.add if word[0] == "+" else names.discard)(word[1:])
        known = [self._qos_by_name[name] for name in names if name in self._qos_by_name]
        return tuple(qos.name for qos in sorted(known, key=_qos_id))

    def default_qos(self, record: AssociationRecord) -> str:
        """Its own default QOS or the nearest above; "" for none."""
        return next((above.default_qos for above in self.chain(record) if above.default_qos), "")

    def priority(self, record: AssociationRecord) -> int | None:
        return next((above.priority for above in self.chain(record) if above.priority is not None), None)

    def limits(self, record: AssociationRecord) -> Limits:
        """Its limits with the inherited ones filled in (a new object)."""
        found = replace(record.limits)
        chain = list(self.chain(record))[1:]
        for name in _PLAIN:
            if getattr(found, name) is None:
                values = (getattr(above.limits, name) for above in chain)
                setattr(found, name, next((value for value in values if value is not None), None))
        for name in _TRES:
            merged: dict[str, int] = {}
            for above in (record, *chain):
                for tres, count in getattr(above.limits, name).items():
                    merged.setdefault(tres, count)
            setattr(found, name, merged)
        return found

    def coordinated(self, user: str) -> set[str]:
        """Accounts the user coordinates: those set directly and all below them."""
        direct = {name for name, account in self.data.accounts.items()
                  if user in account.coordinators and not account.deleted}
        if not direct:
            return set()
        found = set(direct)
        for name in direct:
            top = self.find(name)
            if top is not None:
                found.update(record.account for record in self.in_order(top) if not record.user)
        return found


def _sibling_order(record: AssociationRecord) -> tuple[bool, str, str]:
    return (not record.user, record.user or record.account, record.partition)


def _qos_id(qos: QosRecord) -> int:
    return qos.id


def active_qos(data: AssociationData) -> list[QosRecord]:
    """The QOS that are not deleted, by id."""
    return sorted((qos for qos in data.qos.values() if not qos.deleted), key=_qos_id)


def number(data: AssociationData) -> Iterable[AssociationRecord]:
    """Sets lft and rgt of every association (nested sets, in list order); gives those that changed."""
    tree = Tree(data)
    changed: list[AssociationRecord] = []
    if tree.root is None:
        return changed
    counter = 0
    stack: list[tuple[AssociationRecord, bool]] = [(tree.root, False)]
    left: dict[int, int] = {}
    while stack:
        record, leaving = stack.pop()
        counter += 1
        if leaving:
            if (record.lft, record.rgt) != (left[record.id], counter):
                record.lft, record.rgt = left[record.id], counter
                changed.append(record)
            continue
        left[record.id] = counter
        stack.append((record, True))
        stack.extend((child, False) for child in reversed(tree.children.get(record.id, [])))
    return changed
