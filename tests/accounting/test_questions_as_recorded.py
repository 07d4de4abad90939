"""Random questions to sacct, sreport and sacctmgr about random histories: the answers of Slurm 25.11.7, byte for byte.

``tests/data/accounting_questions.jsonl.gz``, a history a line: written into slurmdbd's tables, exported with its own
commands, and asked about while its clock stood (tests/tools/record_books.py). ``answers``: arguments, user,
environment, exit code, both outputs.
"""
from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from accounting.histories import open_stage, roll_up, take_over
from accounting.stage import UIDS

from slurmbridge.commands import sacct, sacct_options, sacctmgr, sacctmgr_events, sreport, sreport_words

DATA = Path(__file__).parents[1] / "data/accounting_questions.jsonl.gz"
CASES: list[dict[str, Any]] = [json.loads(line) for line in gzip.decompress(DATA.read_bytes()).decode().split("\n")]
COMMANDS = {"sacct": sacct.run, "sreport": sreport.run, "sacctmgr": sacctmgr.run}


@pytest.fixture(autouse=True)
def users(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recording's users, whoever lives here."""
    names = {uid: name for name, uid in UIDS.items()}

    def uid_of(text: str, *, known: bool = False) -> int | None:
        return int(text) if text.isdigit() else UIDS.get(text)
    for module in (sacct_options, sacctmgr_events, sreport_words):
        monkeypatch.setattr(module, "uid_of", uid_of)
    monkeypatch.setattr(sacctmgr_events, "user_name", lambda uid: names.get(uid, str(uid)))


@pytest.mark.parametrize("case", CASES, ids=[f"{case['id']}-{case['tz']}" for case in CASES])
def test_every_answer_is_slurms(case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", case["tz"])
    stage = open_stage(case, tmp_path / "ledger.db")
    take_over(stage, case)
    roll_up(stage, case)
    differing = []
    for argv, user, env, *wanted in case["answers"]:
        reply = stage.call(COMMANDS[argv[0]], argv[1:], user=user, env={"TZ": case["tz"], **env})
        got = [reply.exit_code, reply.stdout, reply.stderr]
        if "AccountUtilizationByQOS" in argv or "event" in argv:   # rows that Slurm prints in no certain order
            got, wanted = ([code, sorted(out.split("\n")), err] for code, out, err in (got, wanted))
        if got != wanted:
            differing.append((argv, got, wanted))
    stage.close()
    assert len(case["answers"]) >= 30
    assert differing == []
