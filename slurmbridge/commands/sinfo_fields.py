"""sinfo's fields: -o letters and -O names, each with its header and what it shows of a row."""
from __future__ import annotations

from collections.abc import Callable

from slurmbridge.commands.common import user_name
from slurmbridge.commands.sinfo_rows import NO_UID, NodeFacts, Row, version_text
from slurmbridge.slurm import node_states
from slurmbridge.slurm.format import ListField, fit
from slurmbridge.slurm.jobspec import UNLIMITED_MIN
from slurmbridge.slurm.memory import with_unit
from slurmbridge.slurm.settings import SlurmConf
from slurmbridge.views.records import PartitionRecord

Field = ListField[Row]


def clock(seconds: int) -> str:
    """``D-HH:MM:SS``, ``H:MM:SS`` or ``M:SS``, however long."""
    days, rest = divmod(seconds, 86400)
    hours, minutes, rest = rest // 3600, rest // 60 % 60, rest % 60
    if days:
        return f"{days}-{hours:02d}:{minutes:02d}:{rest:02d}"
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _of_partition(get: Callable[[PartitionRecord], str]) -> Callable[[Row], str]:
    return lambda row: "n/a" if row.partition is None else get(row.partition)


def _of_node(get: Callable[[NodeFacts], str | None], without: str | None = None) -> Callable[[Row], str | None]:
    return lambda row: without if row.first is None else get(row.first)


def _default_star(row: Row, width: int) -> str:
    """The partition's name, the default one's with ``*`` (over its last character where there is no room)."""
    if row.partition is None:
        return "n/a"
    name = row.partition.name
    if not row.partition.default:
        return name
    if width == 0 or len(name.encode("utf-8", "surrogateescape")) < width:
        return name + "*"
    return fit(name, width - 1) + "*" if width > 1 else "*"


def _minutes(minutes: int | None, none: str) -> str:
    if minutes is None:
        return none
    return "infinite" if minutes == UNLIMITED_MIN else clock(minutes * 60)


class FieldTable:
    """The table for one call: times and units as the caller wants them."""

    def __init__(self, conf: SlurmConf, show_time: Callable[[float], str], *, convert: bool = True) -> None:
        self.conf = conf
        self.show_time = show_time
        self.convert = convert
        self.fields = self._fields()

    def _number(self, value: float) -> str:
        """With K, M … where exact, unless --noconvert."""
        return with_unit(value, "") if self.convert else str(int(value))

    def _least(self, name: str, *, units: bool = True) -> Callable[[Row], str]:
        """``64``, or ``32+`` where nodes differ."""
        show = self._number if units else lambda value: str(int(value))

        def text(row: Row) -> str:
            low, high = row.low.get(name, 0), row.high.get(name, 0)
            return show(high) if low == high else show(low) + "+"
        return text

    def _size(self, partition: PartitionRecord) -> str:
        smallest = partition.min_nodes
        if smallest < 1 and partition.max_nodes != 0:
            smallest = 1
        if partition.max_nodes is None:
            return f"{self._number(smallest)}-infinite"
        if partition.max_nodes == smallest:
            return self._number(smallest)
        return f"{self._number(smallest)}-{self._number(partition.max_nodes)}"

    def _shape(self, row: Row) -> str:
        return ":".join(self._least(name)(row) for name in ("sockets", "cores", "threads"))

    def _preempt_mode(self, partition: PartitionRecord) -> str:
        return partition.preempt_mode or self.conf.preempt_mode

    def _since(self, facts: NodeFacts) -> str:
        return self.show_time(facts.reason_s) if facts.reason_s else "Unknown"

    def _fields(self) -> tuple[Field, ...]:
        least = self._least
        return (
            Field("AllocMem", "", "ALLOCMEM", lambda row: str(row.alloc_memory_mb)),
            Field("AllocNodes", "S", "ALLOCNODES",
                  _of_partition(lambda p: "all" if p.alloc_nodes == "ALL" else p.alloc_nodes)),
            Field("Available", "a", "AVAIL", _of_partition(lambda p: p.state.lower())),
            Field("Cluster", "V", "CLUSTER", lambda row: row.cluster or "N/A"),
            Field("Comment", "", "COMMENT", _of_node(lambda f: f.record.comment or None), nullable=True),
            Field("Cores", "Y", "CORES", least("cores")),
            Field("CPUs", "c", "CPUS", least("cpus")),
            Field("CPUsLoad", "O", "CPU_LOAD", _load),
            Field("CPUsState", "C", "CPUS(A/I/O/T)",
                  lambda row: f"{row.cpus_alloc}/{row.cpus_idle}/{row.cpus_other}/{row.cpus_total}"),
            Field("DefaultTime", "L", "DEFAULTTIME", _of_partition(lambda p: _minutes(p.default_time_min, "n/a"))),
            Field("Disk", "d", "TMP_DISK", least("disk", units=False)),
            Field("Extra", "", "EXTRA", _of_node(lambda f: f.record.extra or None), nullable=True),
            Field("Features", "f", "AVAIL_FEATURES", _of_node(lambda f: f.features), nullable=True),
            Field("features_act", "b", "ACTIVE_FEATURES",
                  _of_node(lambda f: ",".join(f.record.usable_features) or None), nullable=True),
            Field("FreeMem", "e", "FREE_MEM", _free_memory),
            Field("Gres", "G", "GRES", _of_node(lambda f: f.gres), nullable=True),
            Field("GresUsed", "", "GRES_USED", _of_node(lambda f: f.gres_used), nullable=True),
            Field("Groups", "g", "GROUPS",
                  _of_partition(lambda p: "all" if p.allow_groups is None else ",".join(p.allow_groups))),
            Field("MaxCPUsPerNode", "B", "MAX_CPUS_PER_NODE",
                  _of_partition(lambda p: "UNLIMITED" if p.max_cpus_per_node is None else str(p.max_cpus_per_node))),
            Field("Memory", "m", "MEMORY", least("memory", units=False)),
            Field("NodeAddr", "o", "NODE_ADDR", lambda row: row.addresses()),
            Field("NodeAI", "A", "NODES(A/I)", lambda row: f"{row.nodes_alloc}/{row.nodes_idle}"),
            Field("NodeAIOT", "F", "NODES(A/I/O/T)",
                  lambda row: f"{row.nodes_alloc}/{row.nodes_idle}/{row.nodes_other}/{len(row.nodes)}"),
            Field("NodeHost", "n", "HOSTNAMES", lambda row: row.hosts()),
            Field("NodeList", "N", "NODELIST", lambda row: row.names()),
            Field("Nodes", "D", "NODES", lambda row: str(len(row.nodes))),
            Field("OverSubscribe", "h", "OVERSUBSCRIBE", _of_partition(lambda p: p.over_subscribe)),
            Field("Partition", "P", "PARTITION", lambda row: "", sized=_default_star),
            Field("PartitionName", "R", "PARTITION", _of_partition(lambda p: p.name)),
            Field("Port", "", "PORT", lambda row: self._number(row.first.record.port if row.first else 0)),
            Field("PreemptMode", "M", "PREEMPT_MODE", _of_partition(self._preempt_mode)),
            Field("PriorityJobFactor", "I", "PRIO_JOB_FACTOR",
                  _of_partition(lambda p: self._number(p.priority_job_factor))),
            Field("PriorityTier", "p", "PRIO_TIER", _of_partition(lambda p: self._number(p.priority_tier))),
            Field("Reason", "E", "REASON", _of_node(lambda f: f.reason or "none", "none")),
            Field("Reservation", "i", "RESERVATION", lambda row: ""),
            Field("Root", "r", "ROOT", _of_partition(lambda p: "yes" if p.root_only else "no")),
            Field("Share", "", "OVERSUBSCRIBE", _of_partition(lambda p: p.over_subscribe)),
            Field("Size", "s", "JOB_SIZE", _of_partition(self._size)),
            Field("Sockets", "X", "SOCKETS", least("sockets")),
            Field("SocketCoreThread", "z", "S:C:T", self._shape),
            Field("StateCompact", "t", "STATE",
                  _of_node(lambda f: node_states.shown(f.state, compact=True).lower(), "n/a")),
            Field("StateComplete", "", "STATECOMPLETE",
                  _of_node(lambda f: node_states.complete(f.state).lower(), "n/a")),
            Field("StateLong", "T", "STATE", _of_node(lambda f: node_states.shown(f.state).lower(), "n/a")),
            Field("Threads", "Z", "THREADS", least("threads")),
            Field("Time", "l", "TIMELIMIT", _of_partition(lambda p: _minutes(p.max_time_min, "infinite"))),
            Field("TimeStamp", "H", "TIMESTAMP", _of_node(self._since, "Unknown")),
            Field("User", "u", "USER", _of_node(lambda f: _user(f.reason_uid), user_name(0))),
            Field("UserLong", "U", "USER", _of_node(lambda f: _user(f.reason_uid, long=True), f"{user_name(0)}(0)")),
            Field("Version", "v", "VERSION", version_text),
            Field("Weight", "w", "WEIGHT", least("weight", units=False)),
        )


def _user(uid: int, *, long: bool = False) -> str:
    if uid == NO_UID:
        return "Unknown"
    name = user_name(uid)
    if name == "nobody" and uid != 65534:
        return f"Unk({uid})"
    return f"{name}({uid})" if long else name


def _load(row: Row) -> str:
    return _range(row, "load", lambda value: f"{value / 100.0:.2f}")


def _free_memory(row: Row) -> str:
    def show(value: float) -> str:
        return "N/A" if value >= 0xFFFFFFFFFFFFFFFE else str(int(value))
    return _range(row, "free", show)


def _range(row: Row, name: str, show: Callable[[float], str]) -> str:
    low, high = row.low.get(name, 0), row.high.get(name, 0)
    return show(high) if low == high else f"{show(low)}-{show(high)}"


def help_letters(table: FieldTable) -> str:
    """--helpformat: eight letters a line."""
    letters = [f"%{field.letter or 'G':<5}" for field in table.fields if field.letter or field.name == "GresUsed"]
    return "".join(("\n" if i and i % 8 == 0 else "") + text for i, text in enumerate(letters)) + "\n"


def help_names(table: FieldTable) -> str:
    """--helpFormat: four names a line."""
    names = [f"{field.name:<20}" for field in table.fields if field.name != "Share"]
    return "".join(("\n" if i and i % 4 == 0 else "") + text for i, text in enumerate(names)) + "\n"
