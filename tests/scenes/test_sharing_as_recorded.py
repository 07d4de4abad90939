"""Cores shared between jobs, and the kinds of SelectTypeParameters, as recorded with Slurm 25.11 (tests/data/sharing):
jobs that were submitted while all nodes were drained get the same nodes, cores, memory and devices when they return."""
from __future__ import annotations

import gzip
import json
import os
import pwd
import re
import subprocess
import time
from typing import Any

import pytest
from scenes.playing import call
from sites import DATA, Site

SCENES = [json.loads(line) for line in gzip.decompress(
    (DATA / "sharing" / "scenes.jsonl.gz").read_bytes()).splitlines()]
WAIT_S = 8.0
WAITS_BEHIND_OTHERS = {"Priority", "ReqNodeNotAvail,_May_be_reserved_for_other_job"}
"""Which of the two depends on whether a pass came by while the nodes were drained."""


@pytest.fixture
def users() -> None:
    if os.geteuid() != 0:
        pytest.skip("submits for several unix users")
    for name in ("alice", "bob"):
        try:
            pwd.getpwnam(name)
        except KeyError:
            subprocess.run(["useradd", "-M", "-N", "-d", "/tmp", "-s", "/bin/bash", name], check=False)


def fields(text: str) -> dict[str, str]:
    return dict(re.findall(r"(\S+?)=(\S*)", text))


class Played:
    def __init__(self, site: Site) -> None:
        self.site = site
        self.numbers: dict[str, str] = {}     # JOB1 -> 1001

    def act(self, act: dict[str, Any]) -> None:
        code, out, err = call(self.site, *(self.numbers.get(word, word) for word in act["do"]))
        assert (code == 0, err) == (act["rc"] == 0, act["stderr"]), act["do"]
        if act["do"][0] == "sbatch" and out.strip().isdigit():
            self.numbers[f"JOB{len(self.numbers) + 1}"] = out.strip()
        if act["do"][0] == "scancel":         # commands were slower than epilogs where this was recorded
            until = time.monotonic() + 60
            while call(self.site, "squeue", "-h", "-t", "COMPLETING")[1]:
                assert time.monotonic() < until
                time.sleep(0.02)

    def differences(self, act: dict[str, Any]) -> list[str]:
        blocks = {fields(block)["JobId"]: block for block in call(
            self.site, "scontrol", "show", "job", "-d")[1].split("\n\n") if "JobId=" in block}
        found = []
        for want in act["jobs"]:
            block = blocks.get(self.numbers[want["job"]], "")
            have: dict[str, Any] = fields(block)
            have["parts"] = re.findall(r"Nodes=(\S+ CPU_IDs=\S* Mem=\d+ GRES=\S*)", block)
            found += [f"{want['job']} {key}: {have.get(key)!r} for {value!r}" for key, value in want.items()
                      if key != "job" and have.get(key) != value and not (
                          key == "Reason" and {value, have.get(key)} <= WAITS_BEHIND_OTHERS)]
        nodes = {one["NodeName"]: one for one in map(fields, call(
            self.site, "scontrol", "show", "node", "-o")[1].splitlines())}
        for name, want in act["nodes"].items():
            have = [nodes[name][key] for key in ("CPUAlloc", "CPUEfctv", "AllocMem", "State")]
            if [word.partition("+")[0] for word in have] != [word.partition("+")[0] for word in want]:
                found.append(f"{name}: {have} for {want}")
        return found


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: f"{scene['kind']}-{scene['seed']}")
def test_jobs_get_the_cores_that_slurm_gave_them(scene: dict[str, Any], make_site: Any, users: None) -> None:
    site = make_site(conf_file=DATA / "sharing" / "slurm.conf", conf="\n".join(scene["conf"]) + "\n", started=False)
    (site.folder / "gres.conf").write_text("NodeName=g1 Name=gpu File=/dev/gpu[0-1]\n")
    site.up()
    played = Played(site)
    for act in scene["acts"]:
        if "do" in act:
            played.act(act)
        elif "read" in act:
            until = time.monotonic() + WAIT_S
            while found := played.differences(act):
                assert time.monotonic() < until, "\n".join(found)
                time.sleep(0.2)
