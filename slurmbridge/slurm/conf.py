"""Reads a site's slurm.conf (and gres.conf beside it) into one typed SlurmConf.

``read_conf(path)`` is strict as slurmctld is: a key that 25.11 does not know, or a value of the wrong kind, is a
ConfError with file and line. What slurmctld would correct with a log line is corrected and noted; keys that slurmbridge
does not use are in ``unused``. ``read_conf(path, strict=False)`` (for lint) notes errors and reads on. Sources:
slurm.conf(5), gres.conf(5).
"""
from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Mapping

from slurmbridge.slurm import conf_nodes, conf_scalars
from slurmbridge.slurm import conf_values as values
from slurmbridge.slurm.conf_keys import (
    DOWN_NODE_KEYS,
    GRES_KEYS,
    GRES_LINE,
    KEYS,
    NODE_KEYS,
    NODE_SET_KEYS,
    PARTITION_KEYS,
    ConfKey,
)
from slurmbridge.slurm.conf_lines import ConfEntry, ConfError, read_entries
from slurmbridge.slurm.settings import SlurmConf
from slurmbridge.slurm.topology import read_topology

__all__ = ["ConfError", "read_conf"]

_PAIR_KEYS: dict[str, Mapping[str, ConfKey]] = {
    "NodeName": NODE_KEYS, "PartitionName": PARTITION_KEYS, "DownNodes": DOWN_NODE_KEYS, "NodeSet": NODE_SET_KEYS}
_NOT_INHERITED = frozenset({"DisableRootJobs", "ExclusiveUser", "ExclusiveTopo", "PowerDownOnIdle", "SuspendTime",
                            "SelectTypeParameters"})
"""Partition keys that PartitionName=DEFAULT does not pass on."""
_MANY = frozenset({"Epilog", "EpilogSlurmctld", "Prolog", "PrologSlurmctld"})
"""Keys that may be given more than once; ``values`` holds them joined by newlines."""


class _Reader:
    """What is carried from line to line."""

    def __init__(self, conf: SlurmConf, strict: bool) -> None:
        self.conf = conf
        self.strict = strict
        self.defaults: dict[str, dict[str, str]] = {"NodeName": {}, "PartitionName": {}}
        self.partition_entries: dict[str, ConfEntry] = {}
        self.deferred: list[tuple[ConfEntry, dict[str, str]]] = []       # NodeName lines, until SlurmdPort is known
        self.places: dict[str, ConfEntry] = {}

    def refuse(self, error: ConfError) -> None:
        """Raises, or in lint notes the error."""
        if self.strict:
            raise error
        self.conf.notes.append((error.path, error.line, error.message))

    def note(self, entry: ConfEntry) -> Callable[[str], None]:
        return lambda text: self.conf.notes.append((entry.path, entry.line, text))

    def pairs(self, entry: ConfEntry, table: Mapping[str, ConfKey]) -> dict[str, str]:
        """The pairs after the first, by canonical key, each checked for its kind."""
        found: dict[str, str] = {}
        what = f"{entry.key}={entry.value}: " if entry.value else ""
        for name, value in entry.pairs:
            key = table.get(name.lower())
            if key is None:
                self.refuse(entry.error(f"{what}unrecognized key: {name}"))
                continue
            try:
                values.check(key, value)
            except ValueError as error:
                self.refuse(entry.error(f"{what}{error}"))
                continue
            found[key.name] = value
            if key.use:
                self.conf.unused.append((f"{entry.key}: {key.name}", value, entry.path, entry.line))
        return found

    def line(self, entry: ConfEntry) -> None:
        key = KEYS.get(entry.key.lower())
        if key is None:
            self.refuse(entry.error(f"unrecognized key: {entry.key}"))
        elif key.name == "SlurmctldHost":
            self.plain(entry, key)
        elif key.name in _PAIR_KEYS:
            given = self.pairs(entry, _PAIR_KEYS[key.name])
            {"NodeName": self.node, "PartitionName": self.partition, "DownNodes": self.down,
             "NodeSet": self.node_set}[key.name](entry, given)
        elif entry.pairs:
            left = " ".join(f"{name}={value}" for name, value in entry.pairs)
            self.refuse(entry.error(f'parse error at "{left[:80]}"'))
        else:
            self.plain(entry, key)

    def plain(self, entry: ConfEntry, key: ConfKey) -> None:
        if key.use == "fatal":
            self.refuse(entry.error(f"{key.name}: {key.meaning}"))
            return
        try:
            values.check(key, entry.value)
        except ValueError as error:
            self.refuse(entry.error(str(error)))
            return
        stored = self.conf.values
        if key.name == "SlurmctldHost" or key.name in _MANY:
            stored[key.name] = f"{stored[key.name]}\n{entry.value}" if key.name in stored else entry.value
        else:
            if key.name in stored:
                self.note(entry)(f"{key.name} is given more than once, the latest value is used")
            stored[key.name] = entry.value
        self.places[key.name] = entry
        self.conf.places[key.name] = entry.path, entry.line
        if key.use:
            self.conf.unused.append((key.name, entry.value, entry.path, entry.line))

    def node(self, entry: ConfEntry, given: dict[str, str]) -> None:
        word = entry.value.upper()
        if word == "ALL":
            raise entry.error("'ALL' is a reserved word disallowed for use with NodeName")
        if word == "DEFAULT":
            for key in ("NodeHostname", "BcastAddr", "NodeAddr"):
                if key in given:
                    self.refuse(entry.error(f"{key} not allowed with NodeName=DEFAULT"))
            self.defaults["NodeName"].update(given)
            return
        aliases = (("Feature", "Features"), ("CPUs", "Procs"))
        self.deferred.append((entry, _over(self.defaults["NodeName"], given, aliases)))

    def partition(self, entry: ConfEntry, given: dict[str, str]) -> None:
        try:
            given.update(conf_scalars.checked_partition(given, self.note(entry)))
        except ValueError as error:
            self.refuse(entry.error(f"PartitionName={entry.value}: {error}"))
            return
        if entry.value.upper() == "DEFAULT":
            self.defaults["PartitionName"].update(given)
            return
        if entry.value in self.partition_entries:
            self.refuse(entry.error(f"Duplicate PartitionName={entry.value}"))
            return
        self.partition_entries[entry.value] = entry
        self.conf.places[f"PartitionName={entry.value}"] = entry.path, entry.line
        inherited = {k: v for k, v in self.defaults["PartitionName"].items() if k not in _NOT_INHERITED}
        aliases = (("OverSubscribe", "Shared"),)
        self.conf.partitions.append({"PartitionName": entry.value, **_over(inherited, given, aliases)})

    def down(self, entry: ConfEntry, given: dict[str, str]) -> None:
        if entry.value.upper() != "DEFAULT":
            self.conf.down_nodes += conf_nodes.down_nodes(entry, given)

    def node_set(self, entry: ConfEntry, given: dict[str, str]) -> None:
        if entry.value.upper() in ("ALL", "DEFAULT"):
            raise entry.error(f"'{entry.value}' is a reserved word disallowed for use with NodeSet")
        if not given:
            raise entry.error(f"NodeSet={entry.value} needs Feature or Nodes")
        if entry.value in self.conf.node_sets:
            raise entry.error(f"Duplicate NodeSet={entry.value}")
        self.conf.node_sets[entry.value] = given

    def finish_nodes(self) -> None:
        """NodeName lines, in order, now that SlurmdPort is known."""
        port = values.number("SlurmdPort", self.conf.values.get("SlurmdPort", "6818").split("-")[0])
        for entry, given in self.deferred:
            try:
                lines = conf_nodes.node_lines(entry, given, self.note(entry), port)
            except ConfError as error:
                self.refuse(error)
                continue
            for line in lines:
                if line.name in self.conf.nodes:
                    self.refuse(entry.error(f"Duplicated NodeName {line.name}"))
                self.conf.nodes[line.name] = line
        for name in self.conf.node_sets:
            if name in self.conf.nodes:
                raise ConfError(self.conf.path, 0, f"NodeSet={name} has the name of a node")
        if self.conf.nodes:                   # without NodeName lines the engine alone knows the nodes
            self.check_partition_nodes()

    def check_partition_nodes(self) -> None:
        for given in self.conf.partitions:
            entry = self.partition_entries[given["PartitionName"]]
            text = given.get("Nodes", "").replace(" ", ",")
            for name in conf_nodes.host_names(entry, "Nodes", text) if text.strip(",") else ():
                if name not in self.conf.nodes and name not in self.conf.node_sets and name.upper() != "ALL":
                    self.refuse(entry.error(f"PartitionName={entry.value}: invalid node specified: {name!r}"))


def _over(defaults: Mapping[str, str], given: Mapping[str, str],
          aliases: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """A line's pairs over the defaults; a key given under one name hides a default under its other."""
    merged = dict(defaults)
    for pair in aliases:
        if any(name in given for name in pair):
            for name in pair:
                merged.pop(name, None)
    merged.update(given)
    return merged


def read_conf(path: str, *, strict: bool = True) -> SlurmConf:
    """The configuration of a file and of gres.conf beside it. Raises ConfError (one line, ``file:line: what``)."""
    conf = SlurmConf(path=path)
    reader = _Reader(conf, strict)
    for entry in read_entries(path):
        reader.line(entry)
    if not conf.values.get("ClusterName"):
        reader.refuse(ConfError(path, 0, "ClusterName needs to be specified"))
    reader.finish_nodes()
    for key, error in conf_scalars.apply(conf):
        place = reader.places.get(key)
        reader.refuse(place.error(error) if place else ConfError(path, 0, error))
    _slurm_user(conf)
    _read_gres(conf, reader)
    _read_topology(conf, reader)
    return conf


def _slurm_user(conf: SlurmConf) -> None:
    conf.slurm_user = conf.values.get("SlurmUser", "root")
    try:
        known = pwd.getpwuid(int(conf.slurm_user)) if conf.slurm_user.isdigit() else pwd.getpwnam(conf.slurm_user)
        conf.slurm_user, conf.slurm_uid = known.pw_name, known.pw_uid
    except KeyError:
        conf.slurm_uid = int(conf.slurm_user) if conf.slurm_user.isdigit() else 0
        conf.notes.append((conf.path, 0, f"SlurmUser={conf.slurm_user} is no user of this machine: "
                                         "only root is administrator"))


def _read_topology(conf: SlurmConf, reader: _Reader) -> None:
    if conf.values.get("TopologyPlugin", "").lower() != "topology/tree":
        return
    path = os.path.join(os.path.dirname(conf.path), "topology.conf")
    try:
        if os.path.exists(yaml := path.removesuffix("conf") + "yaml"):
            raise ConfError(yaml, 0, "is not read here: write the switches into topology.conf")
        conf.switches = read_topology(path, list(conf.nodes), lambda line, text: conf.notes.append((path, line, text)))
    except ConfError as error:
        reader.refuse(error)


def _read_gres(conf: SlurmConf, reader: _Reader) -> None:
    path = os.path.join(os.path.dirname(conf.path), "gres.conf")
    if not os.path.exists(path):
        return
    for entry in read_entries(path, cluster_name=conf.cluster_name):
        whole = ConfEntry(entry.path, entry.line, GRES_LINE, "", ((entry.key, entry.value), *entry.pairs))
        given = reader.pairs(whole, GRES_KEYS)
        try:
            conf_nodes.add_gres_line(conf, entry, given, reader.note(entry))
        except ConfError as error:
            reader.refuse(error)
    conf_nodes.type_untyped_gres(conf)
