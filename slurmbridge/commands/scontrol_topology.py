"""``scontrol show topology``: the switches of topology.conf (scontrol(1) SHOW TOPOLOGY)."""
from __future__ import annotations

from collections.abc import Sequence

from slurmbridge.commands.scontrol_call import Call, starts
from slurmbridge.slurm.hostlist import HostlistError, compress, expand
from slurmbridge.slurm.topology import Switch

_DEFAULT = "default"
"""Name of the one topology there is."""


async def show(call: Call, text: str | None, rest: Sequence[str]) -> None:
    """``rest``: the words after "topology": a topology's name, nodes=…, switch=…"""
    name, nodes, unit = None, None, None
    for place, word in enumerate(rest):
        key, equals, value = word.partition("=")
        if not equals and name is None:
            name = key
        elif not equals and place:
            call.err.append(f"Too many arguments ({word}), the topology name ({name}) is already defined\n")
            return
        elif starts(key, "nodes", 1):
            nodes = value
        elif any(starts(key, known, 1) for known in ("switch", "block", "unit")):
            unit = value
        else:
            call.err.append(f"Unknown argument {word}\n")
            return
    switches = call.session.views.conf.switches
    if not switches:
        return
    if name not in (None, _DEFAULT):
        call.err.append("slurm_load_topo error: Requested topology configuration is not available\n")
        return
    found = [one for one in switches if (not unit or one.name == unit) and (not nodes or _holds(one, nodes))]
    if not found:
        named, with_nodes = f" named {unit}" if unit else "", f" with nodes {nodes}" if nodes else ""
        call.err.append(f"scontrol: error: Topology information contains no switch{named}{with_nodes}\n")
    for one in found:
        call.print(_line(one))


def _holds(switch: Switch, nodes: str) -> bool:
    try:
        wanted = set(expand(nodes))
    except HostlistError:
        return False
    return wanted <= switch.nodes


def _line(switch: Switch) -> str:
    below = f" Nodes={compress(sorted(switch.nodes), unique=True)}" if switch.nodes else ""
    children = f" Switches={switch.switches_text}" if switch.switches_text else ""
    return f"SwitchName={switch.name} Level={switch.level} LinkSpeed={switch.link_speed}{below}{children}\n"
