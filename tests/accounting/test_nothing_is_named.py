"""``name=`` with nothing behind it names nothing: no account, user or QOS goes or changes (as Slurm 25.11 answered)."""
from __future__ import annotations

from pathlib import Path

import pytest
from accounting.stage import Stage

from slurmbridge.commands import sacctmgr

NO_CHANGE = " Error with request: Data has not changed since time specified\n"


@pytest.mark.parametrize(("line", "out", "err"), [
    ("remove user name=", "", NO_CHANGE),
    ("remove user where adminlevel=", "", NO_CHANGE),
    ("remove user where account=", " Nothing deleted\n", ""),
    ("delete account name=", " Nothing deleted\n", ""),
    ("delete account description=", " Nothing deleted\n", ""),
    ("delete qos name=", "  Nothing deleted\n", ""),
    ("delete qos id=", "  Nothing deleted\n", ""),
    ("modify account name= set description=zz", " Modified accounts...\n  Nothing modified\n", ""),
    ("modify cluster name= set fairshare=3", "  Nothing modified\n", ""),
    ("delete coordinator account=", "", " You specified a non-existent account ''.\n"),
    ("modify user alice set GrpTRES=", "",
     " Unknown option: GrpTRES=\n Use keyword 'where' to modify condition\n"),
    ("add account fz MaxJobs=2G", "", "sacctmgr: error: Invalid value for MaxJobs (2g)\n"
     " Unknown option: MaxJobs=2g\n Use keyword 'where' to modify condition\n"),
])
def test_an_empty_value(line: str, out: str, err: str, tmp_path: Path) -> None:
    stage = Stage(tmp_path / "ledger.db")
    for words in ("add account phys", "add user alice account=phys", "add qos low"):
        assert stage.call(sacctmgr.run, ["-iQ", *words.split()]).exit_code == 0
    before = stage.call(sacctmgr.run, ["-P", "show", "association"]).stdout
    reply = stage.call(sacctmgr.run, ["-i", *line.split()])
    after = stage.call(sacctmgr.run, ["-P", "show", "association"]).stdout
    stage.close()
    assert (reply.stdout, reply.stderr, reply.exit_code) == (out, err, 1)
    assert after == before


def test_numbers_of_32_bits(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "ledger.db")
    for words, shown in (("MaxJobsPU=99999999999", "1215752191"), ("MaxJobsPU=4294967295", "")):
        stage.call(sacctmgr.run, ["-iQ", "modify", "qos", "normal", "set", words])
        assert stage.call(sacctmgr.run, ["-nP", "show", "qos", "format=maxjobspu"]).stdout == f"{shown}\n"
    stage.close()
