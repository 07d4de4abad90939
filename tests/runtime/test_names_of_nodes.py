"""Virtual nodes are found by their names, in jobs."""
from __future__ import annotations

import os

import pytest

from slurmbridge.runtime import hosts


def test_the_file_has_the_nodes_that_the_machine_does_not_know(tmp_path):
    system = tmp_path / "system"
    system.write_text("127.0.0.1 localhost\n10.0.0.9 n2 other # n3")
    hosts.write(str(tmp_path), ["n1", "n2", "n3"], str(system))
    assert (tmp_path / "hosts").read_text() == system.read_text() + "\n127.0.0.1 n1\n127.0.0.1 n3\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="takes a mount namespace")
def test_a_job_finds_its_nodes_and_the_machine_stays_as_it_is(rig):
    lines = rig.do("getent hosts n1; srun getent hosts n2", nodes=2).lines()
    assert [line.split() for line in lines] == [["127.0.0.1", "n1"], *[["127.0.0.1", "n2"]] * 2]
    with open(hosts.SYSTEM_FILE) as file:
        assert "n2" not in file.read().split()
