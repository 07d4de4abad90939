"""A site with the accounts and users of the recordings."""
from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from played import FIRST_JOB
from sites import Site

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
