"""The report of ``slurmbridge lint slurm.conf``: what of a slurm.conf is not used, with what that means."""
from __future__ import annotations

from slurmbridge.slurm import scheduler_words
from slurmbridge.slurm.conf_keys import (
    DOWN_NODE_KEYS,
    GRES_KEYS,
    KEYS,
    NODE_KEYS,
    NODE_SET_KEYS,
    PARTITION_KEYS,
    ConfKey,
)
from slurmbridge.slurm.mpi import mpi_type, mpi_types
from slurmbridge.slurm.settings import SlurmConf

_TABLES = {"NodeName": NODE_KEYS, "PartitionName": PARTITION_KEYS, "DownNodes": DOWN_NODE_KEYS,
           "NodeSet": NODE_SET_KEYS, "gres.conf line": GRES_KEYS}
_LINEAR = "CPUs, memory and devices are given out as by select/cons_tres: whole nodes only with --exclusive"
_GANG = "jobs that share cores run at the same time: none is suspended for a while so that another may run"
_TOPOLOGIES = ("topology/tree", "topology/flat", "topology/default", "topology/none")
_FLAT = "nodes are placed as by topology/flat"
_NO_ADDRESSES = "daemons do not talk along a tree of switches"
_TOPOLOGY_WORDS = {"topooptional": "", "dragonfly": "switches are taken as a plain tree",
                   "switchasnoderank": "nodes stay in the order of their names",
                   "topomaxsizeunroll": "there is no topology/block"}
_PARTITION_UNIT = "SelectTypeParameters of the cluster holds in the partition too"


def lint(conf: SlurmConf) -> list[tuple[str, str, int, str]]:
    """(key, value, line, what it means) of every key that is read and not used, once each, in the file's order."""
    found: list[tuple[str, str, int, str]] = []
    seen: set[str] = set()
    for name, value, line in sorted(conf.unused, key=lambda item: item[2]):
        if name not in seen and not (name == "MpiDefault" and mpi_type(value, None) in mpi_types()):
            seen.add(name)
            found.append((name, value, line, _key(name).meaning))
    for word, value in conf.scheduler_parameters.items():
        if not_honoured := scheduler_words.meaning(word):
            text = f"{word}={value}" if value else word
            found.append(("SchedulerParameters", text, conf.lines["SchedulerParameters"], not_honoured))
    if conf.values.get("SelectType", "").lower() == "select/linear":
        found.append(("SelectType", "select/linear", conf.lines.get("SelectType", 0), _LINEAR))
    found += _topology(conf)
    if "GANG" in conf.preempt_mode.upper().split(","):
        found.append(("PreemptMode", conf.preempt_mode, conf.lines.get("PreemptMode", 0), _GANG))
    for partition in conf.partitions:
        name = f"PartitionName={partition['PartitionName']}"
        if "SelectTypeParameters" in partition:
            found.append((f"{name}: SelectTypeParameters", partition["SelectTypeParameters"], 0, _PARTITION_UNIT))
    return found


def _topology(conf: SlurmConf) -> list[tuple[str, str, int, str]]:
    plugin = conf.values.get("TopologyPlugin", "")
    found = []
    if plugin and plugin.lower() not in _TOPOLOGIES:
        found.append(("TopologyPlugin", plugin, conf.lines.get("TopologyPlugin", 0), _FLAT))
    for word in filter(None, conf.topology_param.split(",")):
        what = _TOPOLOGY_WORDS.get(word.partition("=")[0].lower(), _NO_ADDRESSES)
        if what:
            found.append(("TopologyParam", word, conf.lines.get("TopologyParam", 0), what))
    return found


def _key(name: str) -> ConfKey:
    table, colon, key = name.partition(": ")
    return _TABLES.get(table, KEYS)[key.lower()] if colon else KEYS[name.lower()]
