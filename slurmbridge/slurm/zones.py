"""Local time in a caller's zone: the server must not change its own TZ, and its users' zones differ."""
from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from datetime import tzinfo

EARLIEST_S, LATEST_S = -62_135_000_000, 253_402_000_000
"""Times outside the years 1 to 9999 count as the nearest one inside."""
_zones: dict[str, Zone] = {}


class LocalTime(NamedTuple):
    """A broken-down local time; month and day from 1, year_day from 0."""

    year: int
    month: int
    day: int
    hour: int
    minute: int
    second: int
    year_day: int


def within(epoch_s: int) -> int:
    """``epoch_s`` inside those years."""
    return min(max(epoch_s, EARLIEST_S), LATEST_S)


class Zone:
    """The time zone that TZ names; None is the machine's own."""

    def __init__(self, name: str | None) -> None:
        self.name = name
        self._info: tzinfo | None = None if name is None else _load(name)

    @staticmethod
    def of(env: Mapping[str, str]) -> Zone:
        """The zone of a process with this environment."""
        name = env.get("TZ")
        key = "\0" if name is None else name
        zone = _zones.get(key)
        if zone is None:
            if len(_zones) > 1000:            # callers choose the names
                _zones.clear()
            zone = _zones[key] = Zone(name)
        return zone

    def local(self, epoch_s: int) -> LocalTime:
        epoch_s = within(epoch_s)
        if self._info is None:
            t = time.gmtime(epoch_s) if self.name is not None else time.localtime(epoch_s)
            return LocalTime(t.tm_year, t.tm_mon, t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec, t.tm_yday - 1)
        from datetime import datetime
        d = datetime.fromtimestamp(epoch_s, self._info)
        return LocalTime(d.year, d.month, d.day, d.hour, d.minute, d.second, d.timetuple().tm_yday - 1)

    def epoch(self, year: int, month: int, day: int, hour: int, minute: int, second: int) -> int:
        """mktime: days beyond the month's end run on into the next."""
        if self._info is None and self.name is None:
            return within(int(time.mktime((year, month, day, hour, minute, second, 0, 0, -1))))
        from datetime import UTC, datetime, timedelta
        zone = UTC if self._info is None else self._info
        wanted = datetime(min(max(year, 2), 9998), month, 1)
        wanted += timedelta(days=day - 1, hours=hour, minutes=minute, seconds=second)
        first, second_time = (wanted.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
        if first.utcoffset() != second_time.utcoffset() and first.timestamp() < second_time.timestamp():
            # an hour that comes twice: glibc looks for it from the side of UTC
            offset = second_time.utcoffset()
            return int((second_time if offset and offset > timedelta() else first).timestamp())
        return int(first.timestamp())

    def hour_of(self, epoch_s: int) -> int:
        """When the hour of local time began."""
        when = self.local(epoch_s)
        return self.epoch(when.year, when.month, when.day, when.hour, 0, 0)

    def strftime(self, form: str, epoch_s: int) -> str:
        epoch_s = within(epoch_s)
        if self._info is None:
            return time.strftime(form, time.gmtime(epoch_s) if self.name is not None else time.localtime(epoch_s))
        from datetime import datetime
        return datetime.fromtimestamp(epoch_s, self._info).strftime(form)


def _load(name: str) -> tzinfo | None:
    """A zone by database name or POSIX rule ("CET-1CEST,M3.5.0,M10.5.0/3"); None: UTC, as for an unknown name."""
    name = name.removeprefix(":")
    if name in ("", "UTC", "UTC0", "GMT", "GMT0", "Etc/UTC", "Universal", "Zulu"):
        return None
    from zoneinfo import ZoneInfo
    try:
        if not name.startswith("/"):
            return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        pass
    return _posix_rule(name)


def _posix_rule(rule: str) -> tzinfo | None:
    """A zone from a bare rule: an empty time zone file whose footer says it all."""
    import io
    from zoneinfo import ZoneInfo
    header = b"TZif2" + bytes(15) + bytes(12) + (0).to_bytes(4, "big") + (1).to_bytes(4, "big") + (4).to_bytes(4, "big")
    block = bytes(6) + b"UTC\0"
    try:
        return ZoneInfo.from_file(io.BytesIO((header + block) * 2 + b"\n" + rule.encode("ascii") + b"\n"))
    except (ValueError, OSError, KeyError, IndexError):
        return None
