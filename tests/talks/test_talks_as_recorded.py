"""Talks recorded on Slurm 25.11 (tests/data/talks): every command says the same, and ends with the same code."""
from __future__ import annotations

import json
import os
import pwd
import re
import subprocess
from typing import Any

import pytest
from playing import Player
from sites import DATA

CONF = ("FirstJobId=700001\nSchedulerParameters=bf_interval=2,bf_window=1440,bf_continue,sched_interval=2,"
        "bf_resolution=60,requeue_delay=1\n")
TALKS = [json.loads(line) for path in sorted((DATA / "talks").glob("*.jsonl"))
         for line in path.read_text().splitlines()]
# a part of a step on another component: its SIGTERM and the end of the step's leader, which kills it, are a race
CANCELLED_PART = re.compile(r"^(J\d+\+[1-9]\.\d+\|CANCELLED\|0:)9$")
USERS = ("alice", "bob", "liam")
ACCOUNTS = """add account phys_qcd
add account eng_ml
add user alice account=phys_qcd
add user bob account=phys_qcd
add user liam account=eng_ml"""


@pytest.fixture
def users() -> None:
    if os.geteuid() != 0:
        pytest.skip("submits for several unix users")
    for name in USERS:
        try:
            pwd.getpwnam(name)
        except KeyError:
            subprocess.run(["useradd", "-M", "-N", "-d", "/tmp", "-s", "/bin/bash", name], check=False)
            pwd.getpwnam(name)


@pytest.mark.parametrize("talk", TALKS, ids=lambda talk: talk["name"])
def test_a_talk_goes_as_recorded(talk: dict[str, Any], make_site: Any, users: None) -> None:
    site = make_site(engine="local", conf=CONF, enforce=True)
    for line in ACCOUNTS.splitlines():
        site.ok("sacctmgr", "-i", *line.split())
    player = Player(site.env)
    try:
        for act in talk["acts"]:
            came = player.act(act)
            came["out"] = [CANCELLED_PART.sub(r"\g<1>15", line) for line in came["out"]]
            assert came == {name: act[name] for name in came}, act["do"]
    finally:
        player.close()
