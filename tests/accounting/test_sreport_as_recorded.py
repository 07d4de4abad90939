"""sreport, and sacctmgr's events and reservations, against what Slurm 25.11 answered over recorded histories."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from accounting.histories import CASES, case_with, open_stage, roll_up, take_over
from accounting.stage import UIDS

from slurmbridge.commands import sacctmgr, sacctmgr_events, sreport, sreport_words, usage_report
from slurmbridge.slurm.zones import Zone


@pytest.fixture(autouse=True)
def users(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recording's users, whoever lives here."""
    names = {uid: name for name, uid in UIDS.items()}
    monkeypatch.setattr(sreport_words, "uid_of", UIDS.get)
    monkeypatch.setattr(sacctmgr_events, "user_name", names.get)


def in_qos_order(text: str) -> str:
    """Slurm prints the QOS of one account in no fixed order."""
    lines = text.splitlines(keepends=True)
    top = next((number for number, line in enumerate(lines) if "|" in line), len(lines))
    names = lines[top].rstrip("\n").split("|") if top < len(lines) else []
    if "QOS" not in names:
        return text
    account, qos = names.index("Account"), names.index("QOS")
    places = {line.split("|")[account]: number for number, line in reversed(list(enumerate(lines[top + 1:])))}
    rows = sorted(lines[top + 1:], key=lambda line: (places[line.split("|")[account]], line.split("|")[qos]))
    return "".join(lines[:top + 1] + rows)


@pytest.mark.parametrize("case", CASES, ids=[f"{case['id']}-{case['kind']}" for case in CASES])
def test_answers_over_a_recorded_history(case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                         ) -> None:
    monkeypatch.setenv("TZ", case["tz"])
    stage = open_stage(case, tmp_path / "ledger.db")
    take_over(stage, case)
    roll_up(stage, case)
    differing = []
    for answer in case["answers"]:
        command = sreport if answer["argv"][0] == "sreport" else sacctmgr
        reply = stage.call(command.run, answer["argv"][1:], env={"TZ": case["tz"]})
        got = in_qos_order(reply.stdout) if answer.get("any_order") else reply.stdout
        if (reply.exit_code, got, reply.stderr) != (answer["rc"], answer["stdout"], answer["stderr"]):
            differing.append((answer["argv"], got, answer["stdout"]))
    stage.close()
    assert len(case["answers"]) > 45
    assert differing == []


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    case = case_with(1055)
    monkeypatch.setenv("TZ", case["tz"])
    opened = open_stage(case, tmp_path / "ledger.db")
    take_over(opened, case)
    roll_up(opened, case)
    yield opened
    opened.close()


@pytest.mark.parametrize("by", usage_report.BY)
@pytest.mark.parametrize("tres", ["cpu", "mem", "billing", "gres/gpu"])
def test_a_report_adds_up_to_sreports_total(stage: Any, by: str, tres: str) -> None:
    window = ("2026-03-01", "2026-04-02")
    printed = stage.call(sreport.run, [
        "-nP", "-tseconds", f"-T{tres}", "cluster", "AccountUtilizationByUser", "Users=",
        f"start={window[0]}", f"end={window[1]}", "format=account,used"], env={"TZ": "Europe/Berlin"}).stdout
    total = int(next(line for line in printed.splitlines() if line.startswith("root|")).partition("|")[2])
    asked = usage_report.question(by, *window, tres, stage, Zone.of({"TZ": "Europe/Berlin"}))
    table = stage.run_async(usage_report.answer(stage, asked))
    assert total > 0
    assert usage_report.total(table, tres) == total
    assert len({row[1] for row in table.rows}) == len(table.rows)


@pytest.mark.parametrize(("argv", "exit_code", "stdout", "stderr"), [
    (["cluster"], 1, "", "too few arguments for keyword:cluster\n"),
    (["nonsense"], 1, "", "invalid keyword: nonsense\n"),
    (["cluster", "Nonsense"], 1, "", 'Not valid report Nonsense\nValid cluster reports are, "AccountUtilizationByUser"'
     ', "AccountUtilizationByQOS", "UserUtilizationByAccount", "UserUtilizationByWckey", "Utilization", and '
     '"WCKeyUtilizationByUser"\n'),
    (["user", "least"], 1, "", 'Not valid report least\nValid user reports are, "Top"\n'),
    (["-Tnonsense", "user", "Top"], 1, "", "sreport: fatal: No valid TRES given\n"),
    (["-Tnode", "-tpercent", "user", "Top"], 1, "", "sreport: fatal: TRES node usage is no longer reported in percent "
     "format reports.  Please use TRES CPU instead.\n"),
    (["-a", "-Mlab", "user", "Top"], 1, "", "Only one cluster option can be used (--all_clusters OR --cluster OR "
     "--local)\n"),
    (["-nP", "-Melsewhere", "cluster", "Ut", "start=2026-03-29"], 0, "", ""),
    (["-nP", "user", "Top", "TopCount=many"], 1, None, "sreport: error: Invalid value for TopCount (many)\n"),
    (["-V"], 0, "slurm 25.11.7\n", ""),
])
def test_mistakes(stage: Any, argv: list[str], exit_code: int, stdout: str | None, stderr: str) -> None:
    reply = stage.call(sreport.run, argv, env={"TZ": "Europe/Berlin"})
    assert (reply.exit_code, reply.stderr) == (exit_code, stderr)
    assert stdout is None or reply.stdout == stdout


def test_users_see_their_own_where_usage_is_private(stage: Any) -> None:
    stage.conf.values["PrivateData"] = "usage"
    words = ["-nP", "user", "Top", "start=2026-03-01", "format=login"]
    everybody = stage.call(sreport.run, words).stdout.split()
    assert len(everybody) > 3
    own = stage.call(sreport.run, words, user=everybody[0]).stdout.split()
    assert set(own) == {everybody[0]}


def test_a_conversation(stage: Any) -> None:
    lines = [b"parsable2\n", b"time seconds\n", b"user Top start=2026-03-01 TopCount=1 format=login,used\n", b"quit\n"]

    async def read_line() -> bytes:
        return lines.pop(0) if lines else b""

    stage.read_line = read_line
    said = stage.call(sreport.run, ["-n"]).stdout.splitlines()
    alone = stage.call(sreport.run, ["-nP", "-tseconds", "user", "Top", "start=2026-03-01", "TopCount=1",
                                     "format=login,used"]).stdout.strip()
    assert alone in said
