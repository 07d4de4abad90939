"""Who may do what with sacctmgr: an operator (carl), an administrator (dana), a coordinator (bob) and a user (alice).

``tests/data/sacctmgr_rights.jsonl``: what Slurm 25.11.7 said to each of them, one command after another; both outputs
are one text there.
"""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from accounting.histories import open_stage
from accounting.stage import UIDS, Stage
from accounting.test_questions_as_recorded import CASES as HISTORIES

from slurmbridge.commands import sacctmgr, sacctmgr_users

DATA = Path(__file__).parents[1] / "data/sacctmgr_rights.jsonl"
CASES: list[dict[str, Any]] = [json.loads(line) for line in DATA.read_text().splitlines()]


def test_each_may_do_what_slurm_lets_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sacctmgr_users, "uid_of", UIDS.get)
    monkeypatch.setenv("TZ", "UTC")
    seeded = next(case for case in HISTORIES if case["id"] == 103)
    stage = open_stage({**seeded, "tz": "UTC", "track_wckey": False}, tmp_path / "ledger.db")
    differing = []
    for case in CASES:
        reply = stage.call(sacctmgr.run, case["argv"], case["user"])
        got = (reply.exit_code, reply.stdout + reply.stderr)
        if got != (case["rc"], case["said"]):
            differing.append((case["user"], case["argv"], got, (case["rc"], case["said"])))
    stage.close()
    assert len(CASES) > 180
    assert differing == []


def test_resources_are_talked_of_as_slurm_does(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "ledger.db")
    differing = []
    cases = [json.loads(line) for line in DATA.with_name("sacctmgr_resources.jsonl").read_text().splitlines()]
    for case in cases:
        reply = stage.call(sacctmgr.run, case["argv"], case["user"])
        said = reply.stdout + reply.stderr
        if reply.exit_code != case["rc"] or case["said"] not in (None, said):
            differing.append((case["argv"], reply.exit_code, said, case["said"]))
    stage.close()
    assert len(cases) > 20
    assert differing == []
