"""Recorded histories of another Slurm, taken into a test's ledger and rolled up.

``tests/data/sreport/histories.jsonl.gz``: jobs, events, reservations over days, month ends and clock changes, and what
Slurm 25.11 answered about them.
"""
from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from accounting.stage import Stage

from slurmbridge.accounting.history import read_events, read_history
from slurmbridge.accounting.reservation_history import order_of, read_reservations
from slurmbridge.accounting.rolling import Roller, Settings, default_qos_of
from slurmbridge.commands import sacctmgr
from slurmbridge.slurm.zones import Zone

DATA = Path(__file__).parents[1] / "data"
CASES: list[dict[str, Any]] = [
    json.loads(line)
    for line in gzip.decompress((DATA / "sreport/histories.jsonl.gz").read_bytes()).decode().splitlines()]


def case_with(number: int) -> dict[str, Any]:
    return next(case for case in CASES if case["id"] == number)


def open_stage(case: dict[str, Any], path: Path | str) -> Stage:
    """A stage at the history's time, with its accounts."""
    gres = [line.split("|")[1] for line in case["tres"].splitlines() if line.startswith("gres|")]
    stage = Stage(Path(path) if "://" not in str(path) else path, [f"gres/{name}" for name in gres],  # type: ignore[arg-type]
                  float(case["now"]))
    if case["track_wckey"]:
        stage.conf.values["TrackWCKey"] = "yes"
    stage.files["/dump"] = case["dump"].encode()
    assert stage.call(sacctmgr.run, ["-i", "load", "file=/dump", "clean"]).exit_code == 0
    return stage


def take_over(stage: Stage, case: dict[str, Any]) -> None:
    zone, ids = Zone.of({"TZ": case["tz"]}), ids_of(stage)
    stage.ledger.write_and_wait([
        *read_events(case["events"], zone),
        *read_reservations(case["reservations"], zone, ids, associations=case["assoc_ids"]),
        *read_history(case["history"], zone, stage.ledger.next_db_index, suspended=case["suspend"], ids=ids)])


def ids_of(stage: Stage) -> dict[tuple[str, str], int]:
    return {(record.account, record.user): number for number, record in stage.accounting.associations.items()}


def settings_of(stage: Stage, case: dict[str, Any]) -> Settings:
    places = {number: place for place, number in enumerate(order_of(case["assoc_ids"], ids_of(stage)))}
    return Settings(Zone.of({"TZ": case["tz"]}), stage.accounting.tres, default_qos_of(stage.accounting),
                    case["track_wckey"], places)


def roll_up(stage: Stage, case: dict[str, Any], now_s: float | None = None) -> int:
    """How many hours."""
    roller = Roller(stage.ledger.url, stage.ledger.write_and_wait)
    try:
        return roller.catch_up(settings_of(stage, case), case["now"] if now_s is None else now_s)
    finally:
        roller.close()
