"""Roll-ups in the ledger: rebuilt with equal figures, continued after a stop, right at clock changes, kept for ever."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from accounting.histories import CASES, case_with, open_stage, roll_up, take_over
from accounting.stage import Stage
from sqlalchemy import select

from slurmbridge.accounting import archive, database, schema
from slurmbridge.accounting.operations import SaveMeta
from slurmbridge.accounting.rolling import ROLLED, day_of, month_of
from slurmbridge.slurm.zones import Zone

TABLES = (schema.cluster_usage, schema.job_usage)
BERLIN = Zone("Europe/Berlin")


def figures(stage: Stage) -> list[set[tuple[Any, ...]]]:
    """All rows of usage, whose it is spelt out."""
    engine = database.make_engine(stage.ledger.url, read_only=True)
    with engine.connect() as connection:
        whose = {row[0]: tuple(row[1:]) for row in connection.execute(select(schema.usage_key))}
        cluster = set(map(tuple, connection.execute(select(schema.cluster_usage))))
        jobs = {(row.span, row.time_s, whose[row.key_id], row.tres_id, row.seconds)
                for row in connection.execute(select(schema.job_usage))}
    engine.dispose()
    return [cluster, jobs]


@pytest.fixture
def stage(ledger_url: str) -> Any:
    """A month's end by day and night, on each database."""
    opened = open_stage(case_with(1042), ledger_url)
    take_over(opened, case_with(1042))
    yield opened
    opened.close()


def test_a_rebuild_gives_equal_figures(stage: Stage) -> None:
    case = case_with(1042)
    hours = roll_up(stage, case)
    before = figures(stage)
    assert hours > 24 and all(before)
    assert {row[0] for row in before[1]} == {"h", "d", "m"}
    assert roll_up(stage, case) == 0
    stage.ledger.write_and_wait([SaveMeta(ROLLED, "0")])
    assert roll_up(stage, case) == hours
    assert figures(stage) == before


def test_hour_by_hour_or_after_a_stop_of_days(stage: Stage, tmp_path: Path) -> None:
    case = case_with(1042)
    roll_up(stage, case)
    start = min(row[1] for row in figures(stage)[0] if row[0] == "h")
    other = open_stage(case, tmp_path / "other.db")
    take_over(other, case)
    for hour in range(start, start + 30 * 3600, 3600):
        assert roll_up(other, case, hour + 3600 + 59) == 1
    assert roll_up(other, case) > 24
    assert figures(other) == figures(stage)
    other.close()


def test_what_changes_the_past_is_counted_and_nothing_else_is_left(stage: Stage) -> None:
    case = case_with(1042)
    roll_up(stage, case)
    before = figures(stage)
    engine = database.make_engine(stage.ledger.url)
    with engine.begin() as connection:        # one run less
        job = schema.job.c
        first = connection.execute(
            select(schema.job).where(job.end_s > 0, job.start_s > 0).order_by(job.start_s.desc())).first()
        assert first is not None
        connection.execute(schema.job.delete().where(schema.job.c.db_index == first.db_index))
    stage.ledger.write_and_wait([SaveMeta(ROLLED, "0")])
    roll_up(stage, case)
    without = figures(stage)
    assert without[1] != before[1]
    with engine.begin() as connection:
        connection.execute(schema.job.insert().values(first._mapping))
    engine.dispose()
    stage.ledger.write_and_wait([SaveMeta(ROLLED, "0")])
    roll_up(stage, case)
    assert figures(stage) == before


def test_any_window_has_the_sum_of_its_hours(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever days and months it is put together from."""
    case = case_with(1042)
    monkeypatch.setenv("TZ", case["tz"])
    roll_up(stage, case)
    hours = [row for row in figures(stage)[1] if row[0] == "h"]
    first, last = min(row[1] for row in hours), max(row[1] for row in hours)
    for start in range(first - 90000, last, 11 * 3600):
        for end in range(start + 3600, last + 90000, 17 * 3600):
            found = stage.queries.answer("usage", start_s=start, end_s=end)
            wanted = sum(row[4] for row in hours if start <= row[1] < end and row[3] == 1)
            assert sum(row["seconds"] for row in found if row["tres_id"] == 1) == wanted, (start, end)


def test_purged_jobs_leave_their_usage(stage: Stage, tmp_path: Path) -> None:
    case = case_with(1042)
    roll_up(stage, case)
    before, jobs = figures(stage), stage.queries.answer("jobs", steps=True, suspensions=True)
    parts = [archive.Part("job", case["now"] - 86400, True), archive.Part("event", case["now"], False)]
    gone = archive.dump(stage.ledger.url, stage.ledger.write_and_wait, parts, tmp_path, "lab", BERLIN)
    left = stage.queries.answer("jobs")
    assert gone > 10 and 0 < len(left) < len(jobs)
    files = [path for path in tmp_path.iterdir() if "_archive_" in path.name]
    assert len(files) == 1 and files[0].name.startswith("lab_job_archive_")
    stage.ledger.write_and_wait([SaveMeta(ROLLED, "0")])
    roll_up(stage, case)
    assert figures(stage) == before
    for operations in archive.load(files[0]):
        stage.ledger.write_and_wait(operations)
    assert stage.queries.answer("jobs", steps=True, suspensions=True) == jobs


def test_an_archive_that_cannot_be_written_or_read(stage: Stage, tmp_path: Path) -> None:
    case = case_with(1042)
    roll_up(stage, case)
    jobs = stage.queries.answer("jobs")
    with pytest.raises(archive.ArchiveError):
        archive.dump(stage.ledger.url, stage.ledger.write_and_wait, [archive.Part("job", case["now"], True)],
                     tmp_path / "nowhere", "lab", BERLIN)
    assert stage.queries.answer("jobs") == jobs
    bad = tmp_path / "bad"
    bad.write_text('["job",[1,2]]\n')
    with pytest.raises(archive.ArchiveError, match="line 1 "):
        list(archive.load(bad))


@pytest.mark.parametrize(("time", "hour", "day", "next_day", "next_month"), [
    # 2026-03-29: 23 hours; 2026-10-25: 25 hours; and a month's end
    (1774749600 + 1800, 1774749600, 1774738800, 1774821600, 1774994400),
    (1792890000 + 1800, 1792890000, 1792879200, 1792969200, 1793487600),
    (1793487600, 1793487600, 1793487600, 1793574000, 1796079600),
])
def test_borders_at_clock_changes(time: int, hour: int, day: int, next_day: int, next_month: int) -> None:
    assert BERLIN.hour_of(time) == hour
    assert (day_of(BERLIN, time), day_of(BERLIN, time, 1)) == (day, next_day)
    assert month_of(BERLIN, time, 1) == next_month


def test_a_day_has_all_of_its_hours(tmp_path: Path) -> None:
    """On the day of the clock change the day's cluster time is that of 23 or 25 hours."""
    for case in CASES:
        if case["kind"] != "dst" or case["tz"] != "Europe/Berlin":
            continue
        stage = open_stage(case, tmp_path / f"{case['id']}.db")
        take_over(stage, case)
        roll_up(stage, case)
        cluster = figures(stage)[0]
        stage.close()
        days = [row for row in cluster if row[0] == "d" and row[2] == 1]
        assert days
        for _, begin, _, _, *times in days:
            hours = [row for row in cluster if row[0] == "h" and row[2] == 1
                     and begin <= row[1] < day_of(BERLIN, begin, 1)]
            assert [sum(row[at] for row in hours) for at in range(4, 10)] == times
