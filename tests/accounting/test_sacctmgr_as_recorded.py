"""Every command of a long session with a real Slurm 25.11, put to ours in the same order: text, errors, exit codes.

``tests/data/sacctmgr.jsonl``: one command a line (argv, user, stdin; rc, out, err), files before they are loaded, dumps
as they were written (without comments). Ids are masked: a discarded add uses up an id in Slurm, not here.
"""
from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from accounting.stage import UIDS, Stage

from slurmbridge.accounting.operations import SaveEvent
from slurmbridge.commands import sacctmgr, sacctmgr_users

DATA = Path(__file__).parents[1] / "data"
CASES = [json.loads(line) for line in (DATA / "sacctmgr.jsonl").read_text().splitlines()]
BOOT = 1_796_007_600.0                         # 2026-11-30T03:00:00


def masked(argv: list[str], out: str) -> str:
    if "-P" not in argv or not out:
        return out
    rows = [line.split("|") for line in out.splitlines()]
    for index, name in enumerate(rows[0]):
        if name in ("ID", "ParentID"):
            for row in rows[1:]:
                row[index:index + 1] = ["N"] if row[index:index + 1] not in ([], [""]) else row[index:index + 1]
    return "\n".join("|".join(row) for row in rows) + "\n"


def without_comments(text: str) -> str:
    return re.sub(r"(?m)^#.*\n", "", text)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """(wanted, got) of every line, in order."""
    patch = pytest.MonkeyPatch()
    patch.setattr(sacctmgr_users, "uid_of", UIDS.get)         # the recording's users, whoever lives here
    stage = Stage(tmp_path_factory.mktemp("stage") / "ledger.db", ["gres/gpu", "gres/gpu:a100", "gres/gpu:v100"], BOOT)
    stage.now_s += 1                          # of this second are no events yet
    stage.ledger.write_and_wait([SaveEvent("", BOOT, reason="Cluster Registered TRES")])
    for name in ("low", "scav", "high", "capped", "gpuq"):
        stage.call(sacctmgr.run, ["-i", "add", "qos", name])
    results = []
    for case in CASES:
        if "file" in case:
            stage.files["/work/" + case["file"]] = case["text"].encode()
        elif "shown" in case:
            text = stage.files.get("/work/" + case["shown"], b"").decode()
            results.append(({"dump": case["shown"], "text": case["text"]},
                            {"dump": case["shown"], "text": without_comments(text)}))
        else:
            reply = stage.call(sacctmgr.run, case["argv"][1:], case.get("user"), case.get("stdin"))
            got = {"rc": reply.exit_code, "out": masked(case["argv"], reply.stdout),
                   "err": re.sub(r"usec=\d+", "usec=N", reply.stderr)}
            wanted = {"rc": case["rc"], "out": case.get("out", ""), "err": case.get("err", "")}
            line = " ".join(case["argv"])
            results.append(({"line": line, **wanted}, {"line": line, **got}))
    stage.close()
    patch.undo()
    return results


def test_every_answer_is_slurms(played: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    differing = [(wanted, got) for wanted, got in played if wanted != got]
    assert len(played) > 470
    assert differing == []
