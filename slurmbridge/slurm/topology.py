"""topology.conf: the tree of switches that TopologyPlugin=topology/tree places jobs by (topology.conf(5)).

Lines in, ``Switch`` records out, in the file's order, which decides ties. What slurmctld warns of is noted, what it
stops at is a ConfError.
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from slurmbridge.slurm.conf_lines import ConfEntry, ConfError, read_entries
from slurmbridge.slurm.hostlist import HostlistError, compress, expand

MAX_DEPTH = 20
NO_PARENT = -1
UNRESOLVED = -1
_KEYS = {"nodes": "Nodes", "switches": "Switches", "linkspeed": "LinkSpeed"}


@dataclass(frozen=True, slots=True)
class Switch:
    """``level``: 0 for a leaf; ``nodes``: all that can be reached below it; ``children``, ``parent``: places in the
    file; ``switches_text``: as written."""

    name: str
    level: int
    nodes: frozenset[str]
    children: tuple[int, ...] = ()
    parent: int = NO_PARENT
    link_speed: int = 1
    switches_text: str = ""


def read_topology(path: str, known_nodes: Collection[str], note: Callable[[int, str], None]) -> tuple[Switch, ...]:
    """``note(line, text)`` takes what slurmctld would warn of. Raises ConfError."""
    switches: list[Switch] = []
    places: dict[str, int] = {}
    entries = []
    for entry in read_entries(path):
        if entry.key.lower() != "switchname":
            raise entry.error(f"unrecognized key: {entry.key}")
        if entry.value in places:
            raise entry.error(f"Switch ({entry.value}) has already been defined")
        places[entry.value] = len(switches)
        entries.append(entry)
        switches.append(_switch(entry, known_nodes, note))
    if not switches:
        raise ConfError(path, 0, "No switches configured, failed to create context for topology plugin")
    for at, entry in enumerate(entries):
        children = _children(entry, at, switches[at].switches_text, places)
        switches[at] = replace(switches[at], children=children)
        for child in children:
            switches[child] = replace(switches[child], parent=at)
    resolved = _resolved(path, switches)
    _remark(resolved, known_nodes, note)
    return resolved


def address(switches: Sequence[Switch], node: str) -> tuple[str, str]:
    """SLURM_TOPOLOGY_ADDR of the node ("top.s[0-1].n1") and its pattern ("switch.switch.node")."""
    levels = range(max((one.level for one in switches), default=-1), -1, -1)
    above = [compress([one.name for one in switches if one.level == level and node in one.nodes]) for level in levels]
    return ".".join([*above, node]), "switch." * len(above) + "node"


def _switch(entry: ConfEntry, known_nodes: Collection[str], note: Callable[[int, str], None]) -> Switch:
    given: dict[str, str] = {}
    for name, value in entry.pairs:
        key = _KEYS.get(name.lower())
        if key is None:
            raise entry.error(f"SwitchName={entry.value}: unrecognized key: {name}")
        given[key] = value
    if "Nodes" in given and "Switches" in given:
        raise entry.error(f"switch {entry.value} has both child switches and nodes")
    speed = given.get("LinkSpeed", "1")
    if not speed.isdigit():
        raise entry.error(f'"LinkSpeed={speed}": not a number')
    names = _names(entry, "node name", given.get("Nodes", ""))
    if [name.upper() for name in names] == ["ALL"]:
        names = list(known_nodes)
    unknown = [name for name in names if name not in known_nodes]
    if unknown:
        note(entry.line, f"Invalid hostnames in switch configuration: {','.join(unknown)}")
    level = UNRESOLVED if "Switches" in given else 0
    return Switch(entry.value, level, frozenset(names) - frozenset(unknown), link_speed=int(speed),
                  switches_text=given.get("Switches", ""))


def _names(entry: ConfEntry, what: str, text: str) -> list[str]:
    try:
        return expand(text) if text else []
    except HostlistError:
        raise entry.error(f"Invalid {what} ({text}) in switch config ({entry.value})") from None


def _children(entry: ConfEntry, at: int, text: str, places: dict[str, int]) -> tuple[int, ...]:
    found = []
    for name in _names(entry, "switches", text):
        place = places.get(name, at)
        if place == at:
            raise entry.error(f"Switch configuration {entry.value} has invalid child ({name})")
        found.append(place)
    return tuple(found)


def _resolved(path: str, switches: list[Switch]) -> tuple[Switch, ...]:
    """Levels and nodes of the switches above the leaves. Raises ConfError where they are no tree."""
    for _ in range(MAX_DEPTH):
        for at, one in enumerate(switches):
            below = [switches[child] for child in one.children]
            if one.level == UNRESOLVED and all(child.level != UNRESOLVED for child in below):
                switches[at] = replace(one, level=1 + max((child.level for child in below), default=0),
                                       nodes=frozenset().union(*(child.nodes for child in below)))
        if all(one.level != UNRESOLVED for one in switches):
            return tuple(switches)
    raise ConfError(path, 0, "Switch configuration is not a tree")


def _remark(switches: tuple[Switch, ...], known_nodes: Collection[str], note: Callable[[int, str], None]) -> None:
    leaves = [one.nodes for one in switches if one.level == 0]
    missing = [name for name in known_nodes if not any(name in nodes for nodes in leaves)]
    if missing:
        note(0, f"switches lack access to {len(missing)} nodes: {','.join(missing)}")
    twice = [name for name in known_nodes if sum(name in nodes for nodes in leaves) > 1]
    if twice:
        note(0, f"Multiple leaf switches contain nodes: {','.join(twice)}")
    if not any(len(one.nodes) == len(known_nodes) for one in switches):
        note(0, "no switch can reach all nodes through its descendants: jobs are placed below one switch")
