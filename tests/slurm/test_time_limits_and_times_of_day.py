"""Durations and times: tables of accepted and refused forms, zones, formats."""
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmbridge.slurm import durations
from slurmbridge.slurm.zones import Zone

NOW = 1796005800     # 2026-11-30T02:30:00Z, a Monday
UTC = Zone("UTC")


@pytest.mark.parametrize(("text", "seconds"), [
    ("5", 300), ("1:30", 90), ("1:2:3", 3723), ("1-", 86400), ("1-2", 93600), ("1-2:3", 93780), ("1-2:3:4", 93784),
    ("0", 0), ("-5", -432000), ("90:00:00", 324000), ("infinite", durations.INFINITE), ("-1", durations.INFINITE),
    ("UNLIMITED", durations.INFINITE), ("", None), ("x", None), ("1:", None), (":3", None), ("5m", None),
    ("1:2:3:4", None), ("1-2-3", None), ("1:2-3", None), (" 5", None)])
def test_durations(text: str, seconds: int | None) -> None:
    assert durations.parse_seconds(text) == seconds


@pytest.mark.parametrize(("text", "minutes"), [("0:01", 1), ("1:01", 2), ("1-0", 1440), ("-5", -7199)])
def test_minutes_round_up(text: str, minutes: int) -> None:
    assert durations.parse_minutes(text) == minutes


@given(st.integers(0, 10 ** 9))
def test_formatted_durations_read_back(seconds: int) -> None:
    assert durations.parse_seconds(durations.format_seconds(seconds)) == seconds


@pytest.mark.parametrize(("seconds", "long", "short"), [
    (0, "00:00:00", "0:00"), (59, "00:00:59", "0:59"), (3600, "01:00:00", "1:00:00"), (90061, "1-01:01:01",
                                                                                     "1-01:01:01"),
    (-1, "INVALID", "INVALID"), (366 * 86400, "366-00:00:00", "INVALID")])
def test_printed_durations(seconds: int, long: str, short: str) -> None:
    assert (durations.format_seconds(seconds), durations.format_short(seconds)) == (long, short)
    assert durations.format_minutes(durations.INFINITE) == "UNLIMITED"


@pytest.mark.parametrize(("text", "stamp"), [
    ("now", "2026-11-30T02:30:00"), ("now+90", "2026-11-30T02:31:30"), ("now+2hours", "2026-11-30T04:30:00"),
    ("now + 5 days", "2026-12-05T02:30:00"), ("now-1week", "2026-11-23T02:30:00"), ("today", "2026-11-30T00:00:00"),
    ("tomorrow", "2026-12-01T00:00:00"), ("midnight", "2026-12-01T00:00:00"), ("noon", "2026-11-30T12:00:00"),
    ("fika", "2026-11-30T15:00:00"), ("teatime", "2026-11-30T16:00:00"), ("elevenses", "2026-11-30T11:00:00"),
    ("noon tomorrow", "2026-12-01T12:00:00"), ("16:00", "2026-11-30T16:00:00"), ("1:00", "2026-12-01T01:00:00"),
    ("4:15PM", "2026-11-30T16:15:00"), ("12:00 am", "2026-12-01T00:00:00"), ("1/20", "2027-01-20T00:00:00"),
    ("12/31", "2026-12-31T00:00:00"), ("012031", "2031-01-20T00:00:00"), ("1/20/31-12:30", "2031-01-20T12:30:00"),
    ("2031-01-20", "2031-01-20T00:00:00"), ("2031-01-20T12:30:59", "2031-01-20T12:30:59"),
    ("2031-02-31", "2031-03-03T00:00:00"), ("uts1800000000", "2027-01-15T08:00:00")])
def test_times(text: str, stamp: str) -> None:
    show = durations.time_formatter({"TZ": "UTC"}, NOW)
    assert show(durations.parse_time(text, NOW, UTC)) == stamp


@pytest.mark.parametrize(("text", "position"), [
    ("bogus", 0), ("Teatime", 1), ("13:61", 3), ("2031-13-01", 5), ("now+", 3), ("uts5", 0), ("25:00", 0)])
def test_refused_times_say_where(text: str, position: int) -> None:
    with pytest.raises(durations.TimeSpecError) as caught:
        durations.parse_time(text, NOW, UTC)
    assert str(caught.value) == f"Invalid time specification (pos={position}): {text}"


@pytest.mark.parametrize(("text", "stamp"), [("16:00", "2026-11-30T16:00:00"), ("12/31", "2025-12-31T00:00:00"),
                                             ("11/30", "2026-11-30T00:00:00")])
def test_times_in_the_past_are_the_last_ones(text: str, stamp: str) -> None:
    assert durations.time_formatter({"TZ": "UTC"}, NOW)(durations.parse_time(text, NOW, UTC, past=True)) == stamp


@pytest.mark.parametrize(("zone", "stamp"), [
    ("America/New_York", "2026-11-29T21:30:00"), ("CET-1CEST,M3.5.0,M10.5.0/3", "2026-11-30T03:30:00"),
    (":Europe/Berlin", "2026-11-30T03:30:00"), ("XYZ+3", "2026-11-29T23:30:00"), ("", "2026-11-30T02:30:00"),
    ("../../etc/passwd", "2026-11-30T02:30:00")])
def test_stamps_are_in_the_callers_zone(zone: str, stamp: str) -> None:
    assert durations.time_formatter({"TZ": zone}, NOW)(NOW) == stamp
    assert durations.parse_time(stamp, NOW, Zone(zone)) == NOW


@pytest.mark.parametrize(("form", "offset", "text"), [
    ("standard", 0, "2026-11-30T02:30:00"), ("%H.%M", 0, "02.30"), ("nonsense", 0, "2026-11-30T02:30:00"),
    ("relative", 0, "02:30:00"), ("relative", -86400, "Ystday 02:30"), ("relative", 86400, "Tomorr 02:30"),
    ("relative", 3 * 86400, "Thu 02:30"), ("relative", 30 * 86400, "30 Dec 02:30"),
    ("relative", 800 * 86400, "7 Feb 2029")])
def test_slurm_time_format(form: str, offset: int, text: str) -> None:
    show = durations.time_formatter({"TZ": "UTC", "SLURM_TIME_FORMAT": form}, NOW)
    assert show(NOW + offset) == text
    assert (show(0), show(durations.NO_VAL)) == ("Unknown", "None")
