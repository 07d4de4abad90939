"""Environment, directory, limits, output and accounting rows of jobs and their steps, as recorded with Slurm 25.11:
batch scripts, arrays, heterogeneous jobs, salloc, srun, requeues (tests/data/jobenv)."""
from __future__ import annotations

import json
import os
import pwd
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from played import FIRST_JOB, Played, differences
from sites import DATA, Site

CASES = [json.loads(line) for name in ("cases.jsonl", "input_variables.jsonl")
         for line in (DATA / "jobenv" / name).read_text().splitlines()]
ACCOUNTS = {"alice": ("phys_qcd", "eng_ml"), "bob": ("phys_qcd",), "dana": ("phys_astro",), "liam": ("eng_ml",)}
UIDS = {"alice": 20001, "bob": 20002, "dana": 20004, "liam": 20012}


@pytest.fixture(scope="module")
def seeded(commands: Path) -> Iterator[Site]:
    if os.getuid():
        pytest.skip("jobs of several users need root")
    for name, uid in UIDS.items():
        try:
            pwd.getpwnam(name)
        except KeyError:
            subprocess.run(["useradd", "-M", "-N", "-d", "/tmp", "-s", "/bin/bash", "-u", str(uid), name], check=True)
    site = Site("local", f"FirstJobId={FIRST_JOB}\n", None, (), {}, enforce=True)
    try:
        site.up()
        for qos in ("low", "scav", "high", "capped", "gpuq"):
            site.ok("sacctmgr", "-iQ", "add", "qos", qos)
        for account in sorted({account for names in ACCOUNTS.values() for account in names}):
            site.ok("sacctmgr", "-iQ", "add", "account", account)
        for user, accounts in ACCOUNTS.items():
            for account in accounts:
                site.ok("sacctmgr", "-iQ", "add", "user", user, f"account={account}",
                        "qos=normal,low,scav,high,capped,gpuq", "defaultqos=normal")
            site.ok("sacctmgr", "-iQ", "modify", "user", user, "set", f"defaultaccount={accounts[0]}")
        yield site
    finally:
        site.remove()


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['seed']}-{case['kind']}")
def test_a_submission_goes_as_recorded(case: dict[str, Any], seeded: Site) -> None:
    found = differences(case["slurm"], Played(seeded, case).run())
    assert not found, "\n".join(found)
