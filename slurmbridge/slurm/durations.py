"""Time limits and times of day: the forms that Slurm's commands accept, and those in which they print.

Durations: ``minutes``, ``minutes:seconds``, ``hours:minutes:seconds``, ``days-hours``, ``days-hours:minutes``,
``days-hours:minutes:seconds``, ``UNLIMITED``. Times: ``now+2hours``, ``teatime``, ``16:00``, ``MMDDYY``,
``2031-01-20T12:00`` … in the caller's time zone (sbatch(1) --time and --begin, sacct(1) --starttime).
"""
from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from slurmbridge.slurm.zones import LocalTime, Zone, within

INFINITE = 0xFFFFFFFF
"""UNLIMITED, in whatever unit."""
NO_VAL = 0xFFFFFFFE
"""Not set."""

_UNITS = (("seconds", 1), ("second", 1), ("minutes", 60), ("minute", 60), ("hours", 3600), ("hour", 3600),
          ("days", 86400), ("day", 86400), ("weeks", 604800), ("week", 604800))
_DAYTIMES = {"midnight": 0, "noon": 12, "elevenses": 11, "fika": 15, "teatime": 16}


class TimeSpecError(ValueError):
    """No such time. ``str(error)`` is the line that Slurm prints (without a command's prefix)."""


def parse_seconds(text: str) -> int | None:
    """Seconds of a time limit; INFINITE for UNLIMITED, INFINITE and -1; None where it is none."""
    if not text:
        return None
    if text == "-1" or text.upper() in ("INFINITE", "UNLIMITED"):
        return INFINITE
    if not _is_timespec(text):
        return None
    if "-" in text:
        days, hours, minutes, seconds = _scan(text)
        return days * 86400 + hours * 3600 + minutes * 60 + seconds
    parts = [int(part) if part else 0 for part in text.split(":")]
    if len(parts) == 3 and text[-1] != ":":
        return parts[0] * 3600 + parts[1] * 60 + parts[2]
    return parts[0] * 60 + (parts[1] if len(parts) > 1 else 0)


def parse_minutes(text: str) -> int | None:
    """Like parse_seconds, in minutes rounded up."""
    seconds = parse_seconds(text)
    if seconds is None or seconds == INFINITE:
        return seconds
    return int((seconds + 59) / 60)      # towards zero, as C divides


def _is_timespec(text: str) -> bool:
    digits = dashes = colons = 0
    in_digits = False
    for char in text:
        if "0" <= char <= "9":
            digits += not in_digits
            in_digits = True
            continue
        in_digits = False
        if char == "-":
            dashes += 1
            if colons:
                return False
        elif char == ":":
            colons += 1
        else:
            return False
    if not digits or dashes > 1 or colons > 2:
        return False
    return not colons or digits >= colons + 1 + bool(dashes)


def _scan(text: str) -> tuple[int, int, int, int]:
    """sscanf("%d-%d:%d:%d"): as many numbers as match, in order; a leading "-" is a sign."""
    values = [0, 0, 0, 0]
    position = 0
    for index, separator in enumerate(("", "-", ":", ":")):
        if separator:
            if text[position:position + 1] != separator:
                break
            position += 1
        end = position + (text[position:position + 1] == "-")
        first = end
        while end < len(text) and "0" <= text[end] <= "9":
            end += 1
        if end == first:
            break
        values[index] = int(text[position:end])
        position = end
    return values[0], values[1], values[2], values[3]


def format_seconds(seconds: int) -> str:
    """``D-HH:MM:SS`` or ``HH:MM:SS`` (scontrol, sacct)."""
    if seconds == INFINITE:
        return "UNLIMITED"
    if seconds < 0:
        return "INVALID"
    days, rest = divmod(int(seconds), 86400)
    clock = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{days}-{clock}" if days else clock


def format_minutes(minutes: int) -> str:
    """``D-HH:MM:00`` or ``HH:MM:00``; UNLIMITED."""
    return "UNLIMITED" if minutes == INFINITE else format_seconds(minutes * 60)


def format_short(seconds: int) -> str:
    """``D-HH:MM:SS``, ``H:MM:SS`` or ``M:SS`` (squeue's TIME); INVALID above a year, as there."""
    if seconds < 0 or seconds > 365 * 86400:
        return "INVALID"
    days, rest = divmod(int(seconds), 86400)
    hours, minutes, rest = rest // 3600, rest // 60 % 60, rest % 60
    if days:
        return f"{days}-{hours:02d}:{minutes:02d}:{rest:02d}"
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def parse_time(text: str, now_s: float, zone: Zone, *, past: bool = False) -> int:
    """Epoch seconds of a time; 0 for an empty text. ``past``: a bare time or date is the last one, not the next.

    Raises TimeSpecError.
    """
    if text[:3].lower() == "uts":
        digits = text[3:]
        if digits.isascii() and digits.isdigit() and 1000000 <= int(digits) < (1 << 63) - 1:
            return within(int(digits))
        raise TimeSpecError(f"Invalid time specification (pos=0): {text}")
    return _TimeReader(text, int(now_s), zone).read(past)


class _TimeReader:
    """One pass over the text; the words it meets set the date or the time of day."""

    def __init__(self, text: str, now_s: int, zone: Zone) -> None:
        self.text, self.now_s, self.zone = text, now_s, zone
        self.now = zone.local(now_s)
        self.hour = self.minute = self.month = self.day = self.year = -1
        self.second = 0

    def at(self, position: int) -> str:
        return self.text[position:position + 1]

    def is_digit(self, position: int) -> bool:
        return "0" <= self.at(position) <= "9"

    def fail(self, position: int) -> TimeSpecError:
        return TimeSpecError(f"Invalid time specification (pos={position}): {self.text}")

    def set_date(self, date: LocalTime) -> None:
        self.month, self.day, self.year = date.month, date.day, date.year

    def read(self, past: bool) -> int:
        position, text = 0, self.text
        while position < len(text) and text[position] != "\n":
            if text[position] in " \t-T":        # so "Teatime" is no time in Slurm either
                position += 1
                continue
            position = self.word(position)
        return self.result(past)

    def word(self, position: int) -> int:
        rest = self.text[position:position + 9].lower()
        if rest.startswith("today"):
            self.set_date(self.now)
            return position + 5
        if rest.startswith("tomorrow"):
            self.set_date(self.zone.local(self.now_s + 86400))
            return position + 8
        for name, hour in _DAYTIMES.items():
            if rest.startswith(name):
                self.hour, self.minute, self.second = hour, 0, 0
                return position + len(name)
        if rest.startswith("now"):
            return self.relative(position)
        if not self.is_digit(position):
            raise self.fail(position)
        if ":" in (self.at(position + 1), self.at(position + 2)):
            return self.clock(position)
        return self.date(position)

    def relative(self, position: int) -> int:
        index = position + 3
        while self.at(index) in (" ", "\t") and self.at(index):
            index += 1
        sign = self.at(index)
        delta = 0
        if sign in ("+", "-") and sign:
            delta, index = self.delta(position, index)
            if sign == "-":
                delta = -delta
        elif sign not in ("", "\n"):
            raise self.fail(position + index)
        later = self.zone.local(self.now_s + delta)
        self.set_date(later)
        self.hour, self.minute, self.second = later.hour, later.minute, later.second
        return index

    def delta(self, start: int, sign_at: int) -> tuple[int, int]:
        """(seconds, position after) of the count and unit that follow the sign."""
        count, digits, index = 0, 0, sign_at + 1
        while index < len(self.text) and self.text[index] != "\n":
            rest = self.text[index:index + 7].lower()
            unit = next(((name, factor) for name, factor in _UNITS if rest.startswith(name)), None)
            if unit:
                index += len(unit[0])
                count *= unit[1]
                break
            if self.is_digit(index):
                count = count * 10 + int(self.text[index])
                digits += 1
            elif not self.text[index].isspace():
                raise self.fail(start + index - 1)
            index += 1
        if not digits:
            raise self.fail(start + sign_at)
        return count, index

    def two_digits(self, position: int) -> int:
        if not self.is_digit(position):
            raise self.fail(position)
        if not self.is_digit(position + 1):
            raise self.fail(position + 1)
        return int(self.text[position:position + 2])

    def clock(self, position: int) -> int:
        hour = int(self.text[position])
        position += 1
        if self.at(position) != ":":
            if not self.is_digit(position):
                raise self.fail(position)
            hour = hour * 10 + int(self.text[position])
            position += 1
        if hour > 23:
            raise self.fail(position - 2)
        if self.at(position) != ":":
            raise self.fail(position)
        minute = self.two_digits(position + 1)
        position += 3
        if minute > 59:
            raise self.fail(position - 2)
        second = 0
        if self.at(position) == ":":
            second = self.two_digits(position + 1)
            position += 3
            if second > 59:
                raise self.fail(position - 2)
        while self.at(position).isspace():
            position += 1
        half = self.text[position:position + 2].lower()
        if half == "pm":
            if hour > 12:
                raise self.fail(position)
            hour = 12 if hour == 12 else hour + 12
            position += 2
        elif half == "am":
            if hour > 12:
                raise self.fail(position)
            hour = 0 if hour == 12 else hour
            position += 2
        self.hour, self.minute, self.second = hour, minute, second
        return position

    def one_or_two(self, position: int, highest: int) -> tuple[int, int]:
        """(number from 1 to ``highest``, position after it)."""
        value = ord(self.at(position) or "\0") - 48
        position += 1
        if self.is_digit(position):
            value = value * 10 + int(self.text[position])
            position += 1
        if not 1 <= value <= highest:
            raise self.fail(position - 2)
        return value, position

    def date(self, position: int) -> int:
        if self.at(position + 4) == "-" and self.at(position + 7) == "-":
            for index in range(position, position + 4):
                if not self.is_digit(index):
                    raise self.fail(index)
            year = int(self.text[position:position + 4])
            month, position = self.one_or_two(position + 5, 12)
            if not self.is_digit(position + 1):
                raise self.fail(position + 1)
            day, position = self.one_or_two(position + 1, 31)
            self.year, self.month, self.day = year, month, day
            return position
        month, position = self.one_or_two(position, 12)
        if self.at(position) in (".", "/") and self.at(position):
            position += 1
        if not self.is_digit(position):
            raise self.fail(position)
        day, position = self.one_or_two(position, 31)
        if self.at(position) in (".", "/") and self.at(position):
            position += 1
        year = 0
        if self.is_digit(position):
            year = self.two_digits(position)
            position += 2
        self.month, self.day = month, day
        if year:
            self.year = 2000 + year
        return position

    def result(self, past: bool) -> int:
        now = self.now
        if self.hour == -1 and self.month == -1:
            return 0
        if self.hour == -1:
            self.hour = self.minute = 0
        elif self.month == -1:
            if past or (self.hour, self.minute) > (now.hour, now.minute):
                self.set_date(now)
            else:
                self.set_date(self.zone.local(self.now_s + 86400))
        if self.year == -1:
            if past:
                self.year = now.year - (self.month > now.month)
            else:
                coming = (self.month, self.day, self.hour, self.minute) > (now.month, now.day, now.hour, now.minute)
                self.year = now.year + (not coming)
        return self.zone.epoch(self.year, self.month, self.day, self.hour, self.minute, self.second)


def time_formatter(env: Mapping[str, str], now_s: float, zone: Zone | None = None) -> Callable[[float], str]:
    """How this caller wants time stamps: SLURM_TIME_FORMAT (standard, relative, a strftime text) and TZ.

    The result turns epoch seconds into text: ``Unknown`` for 0, ``None`` for NO_VAL. A bad format counts as standard
    (Slurm also complains; see bad_time_format).
    """
    local = zone or Zone.of(env)
    form = env.get("SLURM_TIME_FORMAT", "")
    today = local.local(int(now_s))

    def show(epoch_s: float) -> str:
        epoch = int(epoch_s)
        if epoch in (0, INFINITE):
            return "Unknown"
        if epoch == NO_VAL:
            return "None"
        when = local.local(epoch)
        if form == "relative":
            return local.strftime(_relative_form(when, today), epoch)
        if form in ("", "standard") or bad_time_format(form):
            return (f"{when.year:04d}-{when.month:02d}-{when.day:02d}"
                    f"T{when.hour:02d}:{when.minute:02d}:{when.second:02d}")
        return local.strftime(form, epoch)

    return show


def bad_time_format(form: str) -> bool:
    """Whether Slurm refuses this SLURM_TIME_FORMAT (``invalid SLURM_TIME_FORMAT = '…'``)."""
    return form not in ("", "standard", "relative") and ("%" not in form or len(form.encode()) >= 32)


def _relative_form(when: LocalTime, today: LocalTime) -> str:
    distance = (1000 * when.year + when.year_day) - (1000 * today.year + today.year_day)
    if distance == -1:
        return "Ystday %H:%M"
    if distance == 0:
        return "%H:%M:%S"
    if distance == 1:
        return "Tomorr %H:%M"
    if abs(distance) > 365:
        return "%-d %b %Y"
    if distance < -1 or distance > 6:
        return "%-d %b %H:%M"
    return "%a %H:%M"


def timestamp(epoch_s: float, env: Mapping[str, str]) -> str:
    """One time stamp; time_formatter is cheaper for many."""
    return time_formatter(env, time.time())(epoch_s)
