"""sacct against what Slurm 25.11 answered: over recorded histories, and over records of its own states."""
from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from accounting.stage import Stage

from slurmbridge.accounting.history import HistoryError, read_events, read_history
from slurmbridge.commands import sacct, sacctmgr
from slurmbridge.slurm.zones import Zone

DATA = Path(__file__).parents[1] / "data"
CASES = [json.loads(line)
         for line in gzip.decompress((DATA / "sacct/answers.jsonl.gz").read_bytes()).decode().splitlines()]
LOST_BY_EXPORT = {"DBIndex", "SLUID", "AssocID"}


@pytest.fixture
def dump() -> bytes:
    return (DATA / "sacctmgr_dump.cfg").read_bytes()


def _gres(text: str) -> Iterator[str]:
    for line in text.splitlines()[1:]:
        kind, name, _ = line.split("|")
        if kind == "gres":
            yield f"{kind}/{name}"


@pytest.mark.parametrize("case", CASES, ids=[f"{case['id']}-{case['kind']}" for case in CASES])
def test_answers_over_a_recorded_history(case: dict[str, Any], tmp_path: Path) -> None:
    stage = Stage(tmp_path / "ledger.db", tres=tuple(_gres(case["tres"])), now_s=float(case["now"]))
    stage.files["/dump"] = case["dump"].encode()
    assert stage.call(sacctmgr.run, ["-i", "load", "file=/dump", "clean"]).exit_code == 0
    env = {"TZ": case["tz"]}
    zone = Zone.of(env)
    stage.ledger.write_and_wait([
        *read_history(case["history"], zone, stage.ledger.next_db_index, suspended=case["suspend"]),
        *read_events(case["events"], zone)])
    for argv, exit_code, stdout, stderr in case["answers"]:
        reply = stage.call(sacct.run, argv[1:], env=env)
        assert (reply.exit_code, reply.stdout, reply.stderr) == (exit_code, stdout, stderr), argv
    stage.close()


def test_every_field_of_every_state(dump: bytes, tmp_path: Path) -> None:
    """Jobs that ended in every way, some still running: exported with all fields, imported, and printed again."""
    text = (DATA / "sacct/states.psv").read_text()
    stage = Stage(tmp_path / "ledger.db", tres=("gres/gpu", "gres/gpu:a100", "gres/gpu:v100"))
    stage.files["/dump"] = dump
    assert stage.call(sacctmgr.run, ["-i", "load", "file=/dump", "clean"]).exit_code == 0
    stage.ledger.write_and_wait(list(read_history(text, Zone.of({"TZ": "UTC"}), stage.ledger.next_db_index)))
    printed = stage.call(sacct.run, ["-aDP", "-S", "2026-11-29", "-o", "all"]).stdout
    stage.close()
    wanted, found = _records(text), _records(printed)
    assert [record["JobID"] for record in found] == [record["JobID"] for record in wanted]
    for want, got in zip(wanted, found):
        for name, value in want.items():
            if name in LOST_BY_EXPORT or (name.endswith(("CPU", "CPUTime", "CPUTimeRAW")) and value != got[name]
                                          and (value[:5] == got[name][:5] or want["State"] == "RUNNING")):
                continue                       # an export has milliseconds of each step, not their sum's microseconds
            if want["State"] == "RUNNING" and name in ("Elapsed", "ElapsedRaw"):
                continue
            assert got[name] == value, (want["JobID"], name)


def _records(text: str) -> list[dict[str, str]]:
    """Records of a -P listing; submit lines of the sample have line ends and bars in them."""
    names = text.partition("\n")[0].split("|")
    place = names.index("SubmitLine")
    found, waiting = [], ""
    for line in text.split("\n")[1:]:
        waiting += line + "\n"
        values = waiting[:-1].split("|")
        if len(values) < len(names):
            continue
        more = len(values) - len(names)
        values[place:place + more + 1] = ["|".join(values[place:place + more + 1])]
        found.append(dict(zip(names, values)))
        waiting = ""
    return found


def test_names_of_all_fields(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "ledger.db")
    assert stage.call(sacct.run, ["-e"]).stdout == (DATA / "sacct/helpformat.txt").read_text()
    stage.close()


@pytest.mark.parametrize(("argv", "said"), [
    (["-o", "nosuch"], 'sacct: error: Invalid field requested: "nosuch"\n'),
    (["-o", "AllocGRES"], "sacct: fatal: AllocGRES has been removed, please use AllocTRES\n"),
    (["-s", "cg"], "sacct: fatal: job state cg is not supported / accounted\n"),
    (["-R", "tired"], "sacct: fatal: unrecognized job reason value 'tired'\n"),
    (["-B"], "sacct: fatal: When requesting job scripts you must also request specific jobs with the '-j' option.\n"),
    (["-l", "-o", "jobid"], "sacct: fatal: Options -o(--format) and -l(--long) are mutually exclusive. Please remove "
                            "one and retry.\n"),
    (["-u", "nosuchuser"], "sacct: error: Invalid user id: nosuchuser\n"),
    (["--whole-hetjob=maybe"], 'sacct: error: Invalid --whole-hetjob value "maybe". Valid values: [yes|no].\n'),
    (["-Z"], "sacct: invalid option -- 'Z'\n"),
    (["-q", "none"], "sacct: error: You gave a bad qos 'none'. Valid QOS's are normal\n"
                     "sacct: fatal: problem processing qos list\n"),
    (["--json"], "sacct: error: --json is not offered by slurmbridge yet; use the text formats\n"),
])
def test_mistakes(argv: list[str], said: str, tmp_path: Path) -> None:
    stage = Stage(tmp_path / "ledger.db")
    reply = stage.call(sacct.run, argv)
    stage.close()
    assert (reply.stdout, reply.stderr, reply.exit_code) == ("", said, 1)


@pytest.mark.parametrize("text", [
    "JobID|JobIDRaw\n1\n", "JobID|JobIDRaw|State\nx|y|COMPLETED\n", "JobID|State\n1.0|RUNNING\n"])
def test_a_history_that_cannot_be_read(text: str) -> None:
    with pytest.raises(HistoryError):
        list(read_history(text, Zone.of({}), lambda _now_s: 1))
