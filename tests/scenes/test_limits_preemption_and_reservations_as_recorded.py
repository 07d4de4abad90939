"""Limits, preemption and reservations as recorded with Slurm 25.11 (tests/data/scenes): each command's exit code and
error, and at each look every job's record and squeue line. Looks are repeated until they agree or the recorded wait is
over. Commands go straight to the controller's socket, because a scene has many."""
from __future__ import annotations

import json
import os
import pwd
import re
import socket
import subprocess
import time
from typing import Any

import pytest
from sites import DATA, Site

from slurmbridge.client import protocol

CONF = ("FirstJobId=700001\n"
        "SchedulerParameters=bf_interval=2,bf_window=1440,bf_continue,sched_interval=2,bf_resolution=60\n")
SCENES = [json.loads(line) for name in ("limits", "enforcement", "preemption", "reservations")
          for line in (DATA / "scenes" / f"{name}.jsonl").read_text().splitlines()]
USERS = ("alice", "bob", "dana", "liam", "ivan")
QOS = "qos=normal,low,scav,high,capped,gpuq defaultqos=normal"
ACCOUNTS = f"""add qos low
add qos scav
add qos high
add qos capped
add qos gpuq
modify qos normal set Priority=10
modify qos low set Priority=1 UsageFactor=0.5 PreemptMode=requeue
modify qos scav set Priority=0 UsageFactor=0 PreemptMode=cancel
modify qos high set Priority=100 UsageFactor=2 MaxWall=2-0 Preempt=low,scav
add account phys
add account eng
add account phys_qcd parent=phys
add account phys_astro parent=phys
add account eng_ml parent=eng
add account bio
add account bio_img parent=bio
add user alice account=phys_qcd {QOS}
add user bob account=phys_qcd {QOS}
add user dana account=phys_astro {QOS}
add user liam account=eng_ml {QOS}
add user alice account=eng_ml {QOS}
modify user alice set defaultaccount=phys_qcd
add user ivan account=bio_img fairshare=0 {QOS}"""
MORE_S = 4.0


@pytest.fixture
def users() -> None:
    for name in USERS:
        try:
            pwd.getpwnam(name)
        except KeyError:
            if os.geteuid() != 0:
                pytest.skip("submits for several unix users")
            subprocess.run(["useradd", "-M", "-N", "-d", "/tmp", "-s", "/bin/bash", name], check=False)
            pwd.getpwnam(name)
    if os.geteuid() != 0:
        pytest.skip("submits for several unix users")


def call(site: Site, *argv: str) -> tuple[int, str, str]:
    """(exit code, standard output, standard error) of a command of root's."""
    texts = {protocol.OUTPUT: bytearray(), protocol.ERROR: bytearray()}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(site.url.removeprefix("unix://"))
        connection.sendall(protocol.pack_request({
            "v": 1, "command": argv[0], "argv": list(argv[1:]), "env": [f"{k}={v}" for k, v in site.env.items()],
            "cwd": "/tmp", "umask": 0o22, "host": "localhost", "pid": 1, "sid": 1, "rlimits": {}, "tty_columns": None,
            "stdin_tty": False, "credential": ""}))
        frames = protocol.Frames()
        while data := connection.recv(1 << 20):
            for kind, payload in frames.feed(data):
                if kind in texts:
                    texts[kind] += payload
                elif kind == protocol.EXIT:
                    out, err = (bytes(text).decode() for text in texts.values())
                    return protocol.unpack_number(payload) & 0xFF, out, err
    raise AssertionError("the controller hung up")


def record(line: str) -> dict[str, str]:
    return dict(re.findall(r"(\S+?)=(.*?)(?= \S+?=|$)", line))


def merged(text: str, more: list[str]) -> str:
    """slurm.conf with more lines, which replace those of the same key; ``-KEY`` only takes them away."""
    keys = tuple(one.partition("=")[0].lstrip("-") + "=" for one in more if not one.startswith("PartitionName"))
    added = [one for one in more if not one.startswith("-")]
    return "\n".join([*(line for line in text.splitlines() if not line.startswith(keys)), *added]) + "\n"


class Played:
    """One scene on one site; jobs are called JOB1, JOB2, … in the order of submission."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.names: dict[str, str] = {}

    def mask(self, text: str) -> str:
        text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", "TIME", text)
        for number, name in self.names.items():
            text = re.sub(rf"(?<![0-9]){number}(?![0-9])", name, text)
        return text

    def act(self, act: dict[str, Any]) -> None:
        numbers = {name: job for job, name in self.names.items()}
        words = [re.sub(r"JOB\d+", lambda m: numbers.get(m.group(), m.group()), word) for word in act["do"]]
        if "as" in act:
            done = self.site.run(*words, user=act["as"], cwd="/tmp")
            code, out, err = done.returncode, done.stdout, done.stderr
        else:
            code, out, err = call(self.site, *words)
        if words[0] == "sbatch" and out.strip().isdigit():
            self.names[out.strip()] = f"JOB{len(self.names) + 1}"
        assert (code == 0) == (act["rc"] == 0), (words, err, act["stderr"])
        if words[0] != "sacctmgr":
            assert self.mask(err).strip() == act["stderr"].strip(), words
        if "stdout" in act and words[:3] != ["scontrol", "show", "reservation"] and words[0] != "sbatch":
            assert self.mask(out).split() == act["stdout"].split(), words
        elif "stdout" in act and words[0] != "sbatch":
            assert [record(line) for line in self.mask(out).splitlines() if line.strip()] == [
                record(line) for line in act["stdout"].splitlines() if line.strip()]

    def differences(self, act: dict[str, Any]) -> list[str]:
        rows = {}
        for line in call(self.site, "scontrol", "show", "job", "-o")[1].splitlines():
            row = record(line)
            name = self.names.get(row.get("ArrayJobId", row.get("JobId", "")))
            if name:
                rows[name, row.get("ArrayTaskId", "")] = {key: self.mask(value) for key, value in row.items()}
        found = []
        for want in act["jobs"]:
            have = rows.pop((want["job"], want.get("ArrayTaskId", "")), {})
            found += [f"{want['job']}: {key} {have.get(key)!r} for {value!r}"
                      for key, value in want.items() if key != "job" and have.get(key) != value]
        found += [f"one record too many: {key}" for key in rows]
        lines = call(self.site, "squeue", "-h", "-a", "-o", "%i|%T|%r|%D|%C|%q|%E")[1].splitlines()
        queue = sorted(line for line in (self.mask(line.strip()) for line in lines) if line.startswith("JOB"))
        return found if queue == act["squeue"] else [*found, f"squeue {queue} for {act['squeue']}"]

    def look(self, act: dict[str, Any], until: float) -> None:
        while found := self.differences(act):
            assert time.monotonic() < until, "\n".join(found)
            time.sleep(0.2)


def play(scene: dict[str, Any], make_site: Any) -> None:
    """Asserts that a scene goes as recorded."""
    site = make_site(engine="local", started=False, enforce=True)
    site.slurm_conf.write_text(merged(site.slurm_conf.read_text(), (CONF + scene.get("conf", "")).splitlines()))
    site.up()
    for line in ACCOUNTS.splitlines():
        code, out, err = call(site, "sacctmgr", "-i", *line.split())
        assert code == 0, (line, out, err)
    played = Played(site)
    until = time.monotonic()
    for act in scene["acts"]:
        if act.get("stay"):
            time.sleep(act["wait"])
        if "wait" in act:
            until = time.monotonic() + act["wait"] + MORE_S
        elif act.get("read"):
            played.look(act, until)
        else:
            played.act(act)


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: f"{scene['kind']}-{scene['seed']}")
def test_a_scene_goes_as_recorded(scene: dict[str, Any], make_site: Any, users: None) -> None:
    play(scene, make_site)
