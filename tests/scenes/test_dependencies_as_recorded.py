"""Scenes recorded with Slurm 25.11 (tests/data/scenes): the same acts give the same answers, states, reasons and
remaining dependencies at each look. Job numbers are shown as JOB1, JOB2, … in the order of submission."""
from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from sites import DATA, Site

SCENES = [json.loads(line) for line in (DATA / "scenes" / "dependencies.jsonl").read_text().splitlines()]
CONF = ("FirstJobId=700001\n"
        "SchedulerParameters=bf_interval=2,bf_window=1440,bf_continue,sched_interval=2,bf_resolution=60\n")
FIELDS = ("JobState Reason NumNodes NumCPUs QOS Account Partition Dependency Restarts ArrayTaskId ExitCode Reservation "
          "ReqTRES AllocTRES TimeLimit").split()


class Played:
    """One scene on one site. ``differences`` from the recording."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.names: dict[str, str] = {}
        self.differences: list[str] = []

    def mask(self, text: str) -> str:
        for number, name in self.names.items():
            text = re.sub(rf"(?<![0-9]){number}(?![0-9])", name, text)
        return text

    def act(self, number: int, act: dict[str, Any]) -> None:
        numbers = {name: job for job, name in self.names.items()}
        words = [re.sub(r"JOB\d+", lambda m: numbers.get(m.group(), m.group()), word) for word in act["do"]]
        done = self.site.run(*words, user=act.get("as"), cwd="/tmp")
        if words[0] == "sbatch" and done.stdout.strip().isdigit():
            self.names[done.stdout.strip()] = f"JOB{len(self.names) + 1}"
        got = (done.returncode == 0, self.mask(done.stderr).strip())
        if got != (act["rc"] == 0, act["stderr"].strip()):
            self.differences.append(f"act {number} {words}: {got} for rc {act['rc']} {act['stderr']!r}")

    def look(self, number: int, act: dict[str, Any]) -> None:
        rows = {}
        for line in self.site.ok("scontrol", "show", "job", "-o").splitlines():
            row = dict(re.findall(r"(\S+?)=(.*?)(?= \S+?=|$)", line))
            name = self.names.get(row.get("ArrayJobId", row["JobId"]))
            if name:
                rows[name, row.get("ArrayTaskId", "")] = {key: self.mask(value) for key, value in row.items()}
        for want in act["jobs"]:
            have = rows.pop((want["job"], want.get("ArrayTaskId", "")), {})
            for key in FIELDS:
                if want.get(key) != have.get(key):
                    self.differences.append(
                        f"act {number} {want['job']}: {key} {have.get(key)!r} for {want.get(key)!r}")
        self.differences += [f"act {number}: one record too many: {key}" for key in rows]
        lines = self.site.ok("squeue", "-h", "-a", "-o", "%i|%T|%r|%D|%C|%q|%E").splitlines()
        queue = sorted(line for line in (self.mask(line.strip()) for line in lines) if line.startswith("JOB"))
        if queue != act["squeue"]:
            self.differences.append(f"act {number}: squeue {queue} for {act['squeue']}")


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: str(scene["seed"]))
def test_a_scene_goes_as_recorded(scene: dict[str, Any], make_site: Any) -> None:
    played = Played(make_site(engine="local", conf=CONF))
    for number, act in enumerate(scene["acts"]):
        if "wait" in act:
            time.sleep(act["wait"])
        elif act.get("read"):
            played.look(number, act)
        else:
            played.act(number, act)
    assert not played.differences, "\n".join(played.differences)
