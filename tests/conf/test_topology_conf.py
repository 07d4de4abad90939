"""topology.conf: the tree it makes, what is refused in slurmctld's words, and what the lint says of the rest."""
from __future__ import annotations

from pathlib import Path

import pytest

from slurmbridge.slurm.conf import read_conf
from slurmbridge.slurm.conf_lines import ConfError
from slurmbridge.slurm.conf_lint import lint
from slurmbridge.slurm.settings import SlurmConf
from slurmbridge.slurm.topology import address

HEAD = "ClusterName=c\nSlurmctldHost=h\nTopologyPlugin=topology/tree\nNodeName=n[1-4]\n"
TREE = "SwitchName=s0 Nodes=n[1-2]\nSwitchName=s1 Nodes=n[3-4] LinkSpeed=9\nSwitchName=top Switches=s[0-1]\n"


def read(folder: Path, topology: str, more: str = "") -> SlurmConf:
    (folder / "slurm.conf").write_text(HEAD + more)
    (folder / "topology.conf").write_text(topology)
    return read_conf(str(folder / "slurm.conf"))


def test_levels_nodes_and_parents(tmp_path: Path) -> None:
    conf = read(tmp_path, TREE)
    assert [(one.name, one.level, sorted(one.nodes), one.parent, one.link_speed) for one in conf.switches] == [
        ("s0", 0, ["n1", "n2"], 2, 1), ("s1", 0, ["n3", "n4"], 2, 9), ("top", 1, ["n1", "n2", "n3", "n4"], -1, 1)]
    assert address(conf.switches, "n3") == ("top.s1.n3", "switch.switch.node")
    assert conf.notes == [] and lint(conf) == []


@pytest.mark.parametrize(("topology", "words"), [
    ("", "No switches configured"),
    ("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2\n", "has already been defined"),
    ("SwitchName=a Switches=b\n", "has invalid child (b)"),
    ("SwitchName=a Switches=b\nSwitchName=b Switches=a\n", "is not a tree"),
    ("SwitchName=a Nodes=n1 Switches=b\nSwitchName=b Nodes=n2\n", "both child switches and nodes"),
    ("SwitchName=a Speed=1\n", "unrecognized key: Speed"), ("BlockName=a Nodes=n1\n", "unrecognized key: BlockName"),
])
def test_what_is_refused(tmp_path: Path, topology: str, words: str) -> None:
    with pytest.raises(ConfError) as refused:
        read(tmp_path, topology)
    assert words in str(refused.value)


def test_a_topology_yaml_is_refused(tmp_path: Path) -> None:
    (tmp_path / "topology.yaml").write_text("- topology: x\n")
    with pytest.raises(ConfError, match="write the switches into topology"):
        read(tmp_path, TREE)


def test_nodes_that_are_unknown_left_out_or_twice_are_noted(tmp_path: Path) -> None:
    conf = read(tmp_path, "SwitchName=a Nodes=n[1-2],x1\nSwitchName=b Nodes=n2\n")
    assert [text for _, _, text in conf.notes] == [
        "Invalid hostnames in switch configuration: x1", "switches lack access to 2 nodes: n3,n4",
        "Multiple leaf switches contain nodes: n2",
        "no switch can reach all nodes through its descendants: jobs are placed below one switch"]


def test_lint_names_what_of_the_topology_is_not_there(tmp_path: Path) -> None:
    conf = read(tmp_path, TREE, "TopologyParam=TopoOptional,Dragonfly,RouteTree\n")
    assert [(key, value) for key, value, *_ in lint(conf)] == [
        ("TopologyParam", "Dragonfly"), ("TopologyParam", "RouteTree")]
    (tmp_path / "slurm.conf").write_text(HEAD.replace("tree", "block"))
    assert [key for key, *_ in lint(read_conf(str(tmp_path / "slurm.conf")))] == ["TopologyPlugin"]
