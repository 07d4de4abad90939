"""sinfo's rows: every node of every partition, gathered into one row where everything shown is alike, then sorted."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cmp_to_key
from typing import Any

from slurmbridge.commands import node_view
from slurmbridge.slurm import node_states
from slurmbridge.slurm.hostlist import compress, natural_compare, parse
from slurmbridge.slurm.settings import SlurmConf
from slurmbridge.slurm.version import SLURM_VERSION
from slurmbridge.views.records import NodeRecord, PartitionRecord

INFINITE = 0xFFFFFFFF
NO_UID = 0xFFFFFFFE


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One node, computed once however many partitions it is in."""

    record: NodeRecord
    state: int
    gres: str | None
    gres_used: str | None
    features: str | None
    cpu_load: float | None
    reason: str | None
    reason_uid: int
    reason_s: int


def node_facts(node: NodeRecord, conf: SlurmConf) -> NodeFacts:
    return NodeFacts(
        node, node_view.state_number(node), node_view.gres_text(node), node_view.gres_used(node, conf),
        ",".join(node.features) or None, node.cpu_load, node.reason or None,
        NO_UID if node.reason_uid is None else node.reason_uid, int(node.reason_s or 0))


@dataclass(slots=True)
class Row:
    """A partition with some of its nodes. ``low``/``high``: smallest and largest of each size among the nodes."""

    partition: PartitionRecord | None
    partition_index: int
    nodes: list[NodeFacts] = field(default_factory=list)
    low: dict[str, float] = field(default_factory=dict)
    high: dict[str, float] = field(default_factory=dict)
    nodes_alloc: int = 0
    nodes_idle: int = 0
    nodes_other: int = 0
    cpus_alloc: int = 0
    cpus_idle: int = 0
    cpus_other: int = 0
    cpus_total: int = 0
    alloc_memory_mb: int = 0
    cluster: str | None = None
    _texts: dict[str, str] = field(default_factory=dict)

    @property
    def first(self) -> NodeFacts | None:
        return self.nodes[0] if self.nodes else None

    def names(self) -> str:
        """The node names, sorted and compressed."""
        return self._compressed("names", lambda node: node.name, sort=True)

    def hosts(self) -> str:
        return self._compressed("hosts", lambda node: node.host_name or node.name)

    def addresses(self) -> str:
        return self._compressed("addresses", lambda node: node.address or node.name)

    def _compressed(self, key: str, get: Callable[[NodeRecord], str], sort: bool = False) -> str:
        if key not in self._texts:
            found = dict.fromkeys(get(facts.record) for facts in self.nodes)
            self._texts[key] = compress(found, sort=sort)
        return self._texts[key]

    def add(self, facts: NodeFacts) -> None:
        node = facts.record
        for name, value in sizes(facts).items():
            if name not in self.low or value < self.low[name]:
                self.low[name] = value
            if name not in self.high or value > self.high[name]:
                self.high[name] = value
        self.nodes.append(facts)
        base = facts.state & node_states.BASE_MASK
        away = bool(facts.state & node_states.FLAGS["DRAIN"]) or base == node_states.DOWN
        if base in (node_states.ALLOCATED, node_states.MIXED) or facts.state & node_states.FLAGS["COMPLETING"]:
            self.nodes_alloc += 1
        elif away:
            self.nodes_other += 1
        else:
            self.nodes_idle += 1
        self.cpus_alloc += node.cpus_alloc
        self.cpus_total += node.cpus
        if away:
            self.cpus_other += node.cpus - node.cpus_alloc
        else:
            self.cpus_idle += node.cpus - node.cpus_alloc
        self.alloc_memory_mb = node.mem_alloc_mb


_UNKNOWN_MEMORY = float(0xFFFFFFFFFFFFFFFE)


def sizes(facts: NodeFacts) -> dict[str, float]:
    """What a row shows the range of."""
    node = facts.record
    return {
        "cpus": node.cpus, "sockets": node.sockets, "cores": node.cores_per_socket, "threads": node.threads_per_core,
        "disk": node.tmp_disk_mb, "memory": node.real_memory_mb, "weight": node.weight,
        "load": int((facts.cpu_load or 0) * 100 + 0.5),
        "free": _UNKNOWN_MEMORY if node.free_mem_mb is None else node.free_mem_mb}


# ------------------------------------------------------------------------------------------------------- gathering

_PARTITION_KEYS: dict[str, Callable[[PartitionRecord], Any]] = {
    "partition": lambda p: p.name, "available": lambda p: p.state, "groups": lambda p: p.allow_groups,
    "size": lambda p: (p.min_nodes, p.max_nodes), "defaulttime": lambda p: p.default_time_min,
    "time": lambda p: p.max_time_min, "root": lambda p: p.root_only, "share": lambda p: p.over_subscribe,
    "preemptmode": lambda p: p.preempt_mode, "prioritytier": lambda p: p.priority_tier,
    "priorityjobfactor": lambda p: p.priority_job_factor, "maxcpuspernode": lambda p: p.max_cpus_per_node}
_NODE_KEYS: dict[str, Callable[[NodeFacts], Any]] = {
    "nodehost": lambda f: f.record.host_name or f.record.name, "nodeaddr": lambda f: f.record.address,
    "extra": lambda f: f.record.extra, "features": lambda f: f.features,
    "features_act": lambda f: ",".join(f.record.usable_features),
    "gres": lambda f: f.gres, "gresused": lambda f: f.gres_used, "comment": lambda f: f.record.comment,
    "reason": lambda f: f.reason, "timestamp": lambda f: f.reason_s, "user": lambda f: f.reason_uid,
    "userlong": lambda f: f.reason_uid, "state": lambda f: node_states.shown(f.state),
    "statecomplete": lambda f: node_states.complete(f.state), "allocmem": lambda f: f.record.mem_alloc_mb}
_EXACT_KEYS: dict[str, Callable[[NodeFacts], Any]] = {
    "cpus": lambda f: f.record.cpus, "cpusstate": lambda f: f.record.cpus, "sockets": lambda f: f.record.sockets,
    "cores": lambda f: f.record.cores_per_socket, "threads": lambda f: f.record.threads_per_core,
    "socketcorethread": lambda f: (f.record.sockets, f.record.cores_per_socket, f.record.threads_per_core),
    "disk": lambda f: f.record.tmp_disk_mb, "memory": lambda f: f.record.real_memory_mb,
    "weight": lambda f: f.record.weight, "cpusload": lambda f: f.cpu_load, "freemem": lambda f: f.record.free_mem_mb,
    "port": lambda f: f.record.port, "version": lambda f: f.record.name}
# OverSubscribe tells no rows apart in sinfo, its other name Share does
_SAME = {"partitionname": "partition", "statecompact": "state", "statelong": "state"}


@dataclass(frozen=True, slots=True)
class Grouping:
    """What tells rows apart. ``fields``: lower-case long names of the fields that are shown."""

    fields: frozenset[str]
    by_node: bool = False                     # -N
    exact: bool = False                       # -e
    reasons: bool = False                     # -R


def gather(partitions: Sequence[PartitionRecord], nodes: Mapping[str, NodeFacts], grouping: Grouping) -> list[Row]:
    """Rows in the order in which sinfo makes them: every partition once (though it has no nodes), then as they come."""
    shown = {_SAME.get(name, name) for name in grouping.fields}
    partition_names = () if grouping.reasons else sorted(shown & {*_PARTITION_KEYS})
    partition_keys = [_PARTITION_KEYS[name] for name in partition_names]
    node_keys = [_NODE_KEYS[name] for name in sorted(shown & {*_NODE_KEYS})]
    if grouping.exact:
        node_keys += [_EXACT_KEYS[name] for name in sorted(shown & {*_EXACT_KEYS})]
    rows: list[Row] = []
    if not grouping.by_node and "partition" in shown:
        rows = [Row(partition, index) for index, partition in enumerate(partitions)]
    empty = {id(row.partition): row for row in rows} if not grouping.reasons else {}
    unused = list(rows) if grouping.reasons else []
    found: dict[tuple[Any, ...], Row] = {}
    member: set[tuple[int, str]] = set()
    for index, partition in enumerate(partitions):
        partition_key = tuple(key(partition) for key in partition_keys)
        for name in partition.nodes:
            facts = nodes.get(name)
            if facts is None:
                continue
            key = (partition_key, tuple(get(facts) for get in node_keys))
            row = None if grouping.by_node else found.get(key)
            if row is None:
                row = empty.pop(id(partition), None) or (unused.pop(0) if unused else None)
                if row is None:
                    row = Row(partition, index)
                    rows.append(row)
                found[key] = row
            elif (id(row), name) in member:
                continue
            member.add((id(row), name))
            row.add(facts)
    return rows


# --------------------------------------------------------------------------------------------------------- sorting

_OVER_SUBSCRIBE_FORCE = 0x8000


def over_subscribe_number(text: str) -> int:
    word, _, count = text.partition(":")
    number = int(count) if count.isdigit() else 0 if word == "EXCLUSIVE" else 1
    return number | _OVER_SUBSCRIBE_FORCE if word == "FORCE" else number


def _partition(get: Callable[[PartitionRecord], Any], default: Any) -> Callable[[Row], Any]:
    return lambda row: default if row.partition is None else get(row.partition)


def _first(get: Callable[[NodeFacts], Any], default: Any) -> Callable[[Row], Any]:
    return lambda row: default if row.first is None else get(row.first)


def _lowest(name: str) -> Callable[[Row], Any]:
    return lambda row: row.low.get(name, 0)


_HOST_ORDER = cmp_to_key(natural_compare)


def _first_host(text: str) -> Any:
    return _HOST_ORDER(next(iter(parse(text)), ""))


_STATE_ORDER = {"UP": 3, "DOWN": 1, "DRAIN": 2, "INACTIVE": 0}
_PREEMPT_ORDER = {"OFF": 0, "SUSPEND": 1, "REQUEUE": 2, "CANCEL": 8}
_NAME: Callable[[Row], Any] = _partition(lambda p: p.name, "")
_JOB_SIZE = _partition(lambda p: INFINITE if p.max_nodes is None else p.max_nodes + p.min_nodes, 0)
_TIER = _partition(lambda p: p.priority_tier, 0)
_FACTOR = _partition(lambda p: p.priority_job_factor, 0)
_SORT_KEYS: dict[str, Callable[[Row], Any]] = {
    "a": _partition(lambda p: _STATE_ORDER.get(p.state, 0), 0),
    "A": lambda row: row.nodes_alloc, "F": lambda row: row.nodes_alloc, "D": lambda row: len(row.nodes),
    "b": _first(lambda f: ",".join(f.record.usable_features), ""), "f": _first(lambda f: f.features or "", ""),
    "E": _first(lambda f: f.reason or "", ""), "H": _first(lambda f: f.reason_s, 0.0),
    "u": _first(lambda f: f.reason_uid, 0), "U": _first(lambda f: f.reason_uid, 0),
    "t": _first(lambda f: f.state, 0), "T": _first(lambda f: f.state, 0),
    "g": _partition(lambda p: ",".join(p.allow_groups or ()), ""),
    "h": _partition(lambda p: over_subscribe_number(p.over_subscribe), 0),
    "l": _partition(lambda p: INFINITE if p.max_time_min is None else p.max_time_min, 0),
    "M": _partition(lambda p: _PREEMPT_ORDER.get(p.preempt_mode, 0xFFFE), 0),
    "p": _TIER, "S": _FACTOR, "P": _NAME, "R": _NAME, "r": _partition(lambda p: p.root_only, False), "s": _JOB_SIZE,
    "V": lambda row: row.cluster or "",
    "n": lambda row: _first_host(row.hosts()), "N": lambda row: _first_host(row.names()),
    "o": lambda row: _first_host(row.addresses()),
    "z": lambda row: (row.low.get("sockets", 0), row.low.get("cores", 0), row.low.get("threads", 0)),
    **{letter: _lowest(name) for letter, name in
       (("c", "cpus"), ("d", "disk"), ("m", "memory"), ("w", "weight"), ("X", "sockets"), ("Y", "cores"),
        ("Z", "threads"), ("O", "load"), ("e", "free"))}}


def sort_rows(rows: list[Row], order: str) -> None:
    """Sorts by the letters of -S, the first letter first; ``-`` reverses, ``#P`` is the configuration's order."""
    for at in range(len(order) - 1, -1, -1):
        letter, before = order[at], order[at - 1] if at else ""
        if letter in ",#+-":
            continue
        key = _SORT_KEYS.get(letter)
        if letter in "PR" and before == "#":
            key = _configured
        if key is not None:
            rows.sort(key=key, reverse=before == "-")


def _configured(row: Row) -> int:
    return row.partition_index


def version_text(row: Row) -> str:
    return SLURM_VERSION if row.nodes else "N/A"
