"""squeue, sinfo, sprio, sacct, sshare, sstat, sacctmgr and sreport, asked about jobs and nodes in many states, say what
Slurm 25.11 said of the same ones. (tests/data/readers/answers.jsonl, recorded by ``tests/tools/differ.py --record``.)
"""
from __future__ import annotations

import json
import os
import pwd
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sites import DATA, MakeSite

sys.path.append(str(Path(__file__).resolve().parents[1] / "tools"))

from worlds import Side, new_world

FOLDER = DATA / "readers"
QUESTIONS = [json.loads(line) for line in (FOLDER / "answers.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def recorded_users() -> None:
    """The accounts' users exist on the machine where this runs as root."""
    if os.geteuid() != 0:
        pytest.skip("submits for another unix user")
    for name in set(re.findall(r"^User - '(\w+)'", (FOLDER / "accounts.cfg").read_text(), re.M)) - {"root"}:
        try:
            pwd.getpwnam(name)
        except KeyError:
            subprocess.run(["useradd", "-M", "-N", "-d", "/tmp", "-s", "/bin/bash", name], check=False)


def test_every_question_has_the_recorded_answer(make_site: MakeSite, recorded_users: None, tmp_path: Path) -> None:
    site = make_site(engine="local", conf="FirstJobId=700001\n", enforce=True)
    site.ok("sacctmgr", "-i", "load", f"file={FOLDER / 'accounts.cfg'}", "clean")
    side = Side([], site.env, site.work)
    new_world(side, True)
    wrong: list[dict[str, Any]] = []
    for asked in QUESTIONS:
        rc, out, err = side.said(side.start(asked["words"], asked["user"], asked["env"]))
        got, want = ({"rc": rc, "out": out, "err": err}, {key: asked[key] for key in ("rc", "out", "err")})
        if asked["words"][0] == "sinfo":      # rows that its order does not tell apart come as they come
            got["out"], want["out"] = (sorted(text.splitlines()) for text in (got["out"], want["out"]))
        if got != want:
            wrong.append({"words": asked["words"], "user": asked["user"], "got": got, "want": want})
    assert not wrong, "\n".join(map(json.dumps, wrong))
