"""The report of ``slurmbridge lint slurm.conf``: what of a slurm.conf is not used, with what that means."""
from __future__ import annotations

from typing import NamedTuple

from slurmbridge.slurm import scheduler_words
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
from slurmbridge.slurm.mpi import mpi_type, mpi_types
from slurmbridge.slurm.settings import SlurmConf

_TABLES = {"NodeName": NODE_KEYS, "PartitionName": PARTITION_KEYS, "DownNodes": DOWN_NODE_KEYS,
           "NodeSet": NODE_SET_KEYS, GRES_LINE: GRES_KEYS}
_LINEAR = "CPUs, memory and devices are given out as by select/cons_tres: whole nodes only with --exclusive"
_GANG = "jobs that share cores run at the same time: none is suspended for a while so that another may run"
_TOPOLOGIES = ("topology/tree", "topology/flat", "topology/default", "topology/none")
_FLAT = "nodes are placed as by topology/flat"
_NO_ADDRESSES = "daemons do not talk along a tree of switches"
_TOPOLOGY_WORDS = {"topooptional": "", "dragonfly": "switches are taken as a plain tree",
                   "switchasnoderank": "nodes stay in the order of their names",
                   "topomaxsizeunroll": "there is no topology/block"}
_PARTITION_UNIT = "the cluster's CR_CPU holds in the partition too, as in Slurm"


class Unused(NamedTuple):
    """A key that is read and not used. ``line`` counts from 1 in the file ``path``."""

    key: str
    value: str
    path: str
    line: int
    meaning: str


def lint(conf: SlurmConf) -> list[Unused]:
    """Every key that is read and not used, once each: in the order of the files, gres.conf last."""
    found: list[Unused] = []
    seen: set[str] = set()
    for name, value, path, line in conf.unused:
        if name not in seen and not (name == "MpiDefault" and mpi_type(value, None) in mpi_types()):
            seen.add(name)
            found.append(Unused(name, value, path, line, _key(name).meaning))

    def add(key: str, value: str, meaning: str, of: str = "") -> None:
        found.append(Unused(key, value, *conf.places.get(of or key, (conf.path, 0)), meaning))

    for word, value in conf.scheduler_parameters.items():
        if not_honoured := scheduler_words.meaning(word):
            add("SchedulerParameters", f"{word}={value}" if value else word, not_honoured)
    if conf.values.get("SelectType", "").lower() == "select/linear":
        add("SelectType", "select/linear", _LINEAR)
    for key, value, meaning in _topology(conf):
        add(key, value, meaning)
    if "GANG" in conf.preempt_mode.upper().split(","):
        add("PreemptMode", conf.preempt_mode, _GANG)
    by_cpu = any(word.upper().startswith("CR_CPU") for word in conf.select_type_parameters)
    for partition in conf.partitions if by_cpu else ():
        name = f"PartitionName={partition['PartitionName']}"
        if "SelectTypeParameters" in partition:
            add(f"{name}: SelectTypeParameters", partition["SelectTypeParameters"], _PARTITION_UNIT, name)
    return found


def _topology(conf: SlurmConf) -> list[tuple[str, str, str]]:
    plugin = conf.values.get("TopologyPlugin", "")
    found = []
    if plugin and plugin.lower() not in _TOPOLOGIES:
        found.append(("TopologyPlugin", plugin, _FLAT))
    for word in filter(None, conf.topology_param.split(",")):
        what = _TOPOLOGY_WORDS.get(word.partition("=")[0].lower(), _NO_ADDRESSES)
        if what:
            found.append(("TopologyParam", word, what))
    return found


def _key(name: str) -> ConfKey:
    table, colon, key = name.partition(": ")
    return _TABLES.get(table, KEYS)[key.lower()] if colon else KEYS[name.lower()]
