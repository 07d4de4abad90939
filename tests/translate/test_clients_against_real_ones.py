"""sbatch, salloc and srun against recordings of the real clients of 25.11.7.

``sbatch_client.jsonl``: 270 scripts with what sbatch parsed. ``client_calls.jsonl``: about 1000 calls with -v, so that
the option table is part of stderr; odd directives, other systems' scripts, bad scripts, het jobs, variables.
"""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slurmbridge.slurm.settings import SlurmConf
from slurmbridge.translate.request import Call, ClientError, Submission, build_requests

DATA = Path(__file__).parents[1] / "data"
CONF = SlurmConf(gres_types=("gpu",), values={"GresTypes": "gpu", "TaskPlugin": "task/none", "SlurmUser": "root",
                                              "SelectTypeParameters": "CR_Core_Memory"})
NOW = 1795974026.0
PATH = "/opt/slurm2511/bin:/usr/bin:/bin"


def rows(name: str, groups: int) -> list[list[dict[str, Any]]]:
    """The recording in a few parts: one test each."""
    cases = [json.loads(line) for line in (DATA / name).open()]
    return [cases[start::groups] for start in range(groups)]


def attempt(call: Call, script: str | None) -> tuple[int, str, Submission | None]:
    def read(path: str) -> bytes:
        if script is not None and path == f"{call.cwd}/job.sh":
            return script.encode("utf-8", "surrogateescape")
        if path == "/tmp":
            raise IsADirectoryError(21, "Is a directory", path)
        raise FileNotFoundError(2, "No such file or directory", path)

    try:
        submission = build_requests(call, read)
    except ClientError as error:
        return error.exit_code, error.stderr_text, None
    return 0, submission.stderr, submission


@pytest.mark.parametrize("cases", rows("sbatch_client.jsonl", 6))
def test_what_sbatch_parses(cases: list[dict[str, Any]]) -> None:
    for case in cases:
        env = {**case["env"], "HOME": "WORK", "USER": "alice", "PATH": "/usr/bin:/bin", "TZ": "UTC"}
        call = Call("sbatch", ("-H", *case["args"], "/W/job.sh"), env, "/W", uid=20001, now_s=NOW, conf=CONF)
        code, stderr, submission = attempt(call, case["script"])
        assert stderr.replace("/W", "WORK") == case["stderr"], case["seed"]
        if case["rc"] is not None:
            assert code == case["rc"], case["seed"]
        if case["client"] is not None and submission is not None:
            parsed = json.loads(json.dumps(submission.parsed).replace("/W/", "WORK/").replace('"/W"', '"WORK"'))
            for one, other in zip(parsed, case["client"], strict=True):
                one.pop("hold")
                other.pop("hold", None)
            assert parsed == case["client"], case["seed"]


@pytest.mark.parametrize("cases", rows("client_calls.jsonl", 8))
def test_what_the_clients_say(cases: list[dict[str, Any]]) -> None:
    for case in cases:
        env = {"PATH": PATH, "HOME": "/root", "TZ": "UTC", **case["env"]}
        call = Call(case["command"], ("-v", *case["args"]), env, "WORK", host="vm", now_s=NOW, conf=CONF)
        code, stderr, _ = attempt(call, case["script"])
        assert (code, stderr) == (case["rc"], case["stderr"]), (case["args"], case["env"], case["script"])
