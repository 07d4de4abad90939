"""Job dependencies (sbatch(1), --dependency): their grammar, and whether they are met.

A record keeps its dependencies as the text scontrol shows (``afterok:12(unfulfilled),singleton(unfulfilled)``); parsing
it again gives the list with the state of each. Fulfilled ones disappear from the text.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from slurmbridge.slurm import states
from slurmbridge.views.records import JobRecord

UNFULFILLED, FULFILLED, FAILED = "unfulfilled", "fulfilled", "failed"
WHOLE_ARRAY = -1
KINDS = ("afternotok", "aftercorr", "afterany", "afterok", "afterburstbuffer", "after", "expand")
MAX_DEPTH = 10
_JOB = re.compile(r"\s*(\d+)(?:_(\*|\d+))?")
_STATE = re.compile(r"\(([a-z]*)\)", re.IGNORECASE)


class BadDependency(ValueError):
    """Slurm's ESLURM_DEPENDENCY."""


@dataclass(frozen=True, slots=True)
class Dependency:
    """One test. ``job_id`` 0: singleton. ``task``: a task id, WHOLE_ARRAY, or None. ``delay_min``: after:N+M."""

    kind: str
    job_id: int = 0
    task: int | None = None
    delay_min: int = 0
    state: str = UNFULFILLED

    def __str__(self) -> str:
        if self.kind == "singleton":
            return f"singleton({self.state})"
        task = "" if self.task is None else "_*" if self.task == WHOLE_ARRAY else f"_{self.task}"
        delay = f"+{self.delay_min}" if self.delay_min else ""
        return f"{self.kind}:{self.job_id}{task}{delay}({self.state})"


@dataclass(frozen=True, slots=True)
class Dependencies:
    tests: tuple[Dependency, ...] = ()
    any_of: bool = False                      # separated by "?"

    def __str__(self) -> str:
        return ("?" if self.any_of else ",").join(str(test) for test in self.tests if test.state != FULFILLED)


def parse(text: str, max_array_size: int = 1001) -> Dependencies:
    """Reads what was given to --dependency, or what ``str`` printed. Raises BadDependency."""
    if text in ("", "0"):
        return Dependencies()
    rest = _expand_tasks(text, max_array_size)
    tests: list[Dependency] = []
    separator = ""
    while True:
        old_form = False
        if rest[:9].lower() == "singleton":
            state, rest = _state(rest[9:])
            tests.append(Dependency("singleton", state=state))
        elif ":" not in rest and rest[:1].isdigit():
            job_id, task, rest = _job(rest)
            tests.append(Dependency("afterany", job_id, task))
            old_form = True
        else:
            kind = next((kind for kind in KINDS if rest.lower().startswith(kind + ":")), None)
            if kind is None:
                raise BadDependency(text)
            rest = rest[len(kind) + 1:]
            delay = 0
            while True:
                job_id, task, rest = _job(rest)
                found = re.match(r"\+\s*(\d+)", rest)
                if found:
                    delay, rest = int(found.group(1)), rest[found.end():]
                    if delay <= 0:
                        raise BadDependency(text)
                state, rest = _state(rest)
                tests.append(Dependency(kind, job_id, task, delay, state))
                if rest[:1] != ":":
                    break
                rest = rest[1:]
        if not rest:
            break
        mark = rest[0]
        if mark not in ",?" or (separator and mark != separator) or (old_form and mark != ","):
            raise BadDependency(text)
        separator, rest = mark, rest[1:]
        if not rest:
            raise BadDependency(text)
    unique = dict.fromkeys(tests)
    return Dependencies(tuple(unique), separator == "?")


def _job(text: str) -> tuple[int, int | None, str]:
    found = _JOB.match(text)
    if found is None or int(found.group(1)) == 0:
        raise BadDependency(text)
    task = found.group(2)
    return int(found.group(1)), None if task is None else WHOLE_ARRAY if task == "*" else int(task), text[found.end():]


def _state(text: str) -> tuple[str, str]:
    found = _STATE.match(text)
    if found is None:
        if text[:1] == "(":
            raise BadDependency(text)
        return UNFULFILLED, text
    word = found.group(1).lower()
    return word if word in (FULFILLED, FAILED) else UNFULFILLED, text[found.end():]


def _expand_tasks(text: str, max_array_size: int) -> str:
    """``12_[1-3]`` becomes ``12_1:12_2:12_3``."""
    def tasks(found: re.Match[str]) -> str:
        numbers: set[int] = set()
        for part in found.group(2).split(","):
            first, _, last = part.partition("-")
            if not first.isdigit() or (last and not last.isdigit()) or int(last or first) >= max_array_size:
                raise BadDependency(text)
            numbers.update(range(int(first), int(last or first) + 1))
        if not numbers:
            raise BadDependency(text)
        return ":".join(f"{found.group(1)}_{number}" for number in sorted(numbers))
    return re.sub(r"(\d+)_\[([^\]]*)\]", tasks, text)


class Judge:
    """Answers about other jobs. ``find``: a record by id; ``array``: all records of an array, [] when it is none;
    ``same_name``: other unfinished jobs with this name and user that were submitted before."""

    def __init__(self, find: Callable[[int], JobRecord | None], array: Callable[[int], list[JobRecord]],
                 blocked_by_name: Callable[[JobRecord], bool], now: float) -> None:
        self._find = find
        self._array = array
        self._blocked_by_name = blocked_by_name
        self._now = now

    def test(self, job: JobRecord, given: Dependencies) -> tuple[Dependencies, str]:
        """The dependencies with new states, and "" (met), UNFULFILLED or FAILED (can never be met)."""
        tests = tuple(test if test.state != UNFULFILLED else replace(test, state=self._one(job, test))
                      for test in given.tests)
        found = {test.state for test in tests}
        after = Dependencies(tests, given.any_of)
        if given.any_of:
            if FULFILLED in found or not tests:
                return after, ""
            return after, UNFULFILLED if UNFULFILLED in found else FAILED
        if FAILED in found:
            return after, FAILED
        return after, UNFULFILLED if UNFULFILLED in found else ""

    def _records(self, job_id: int, task: int | None) -> list[JobRecord]:
        if task is not None and task != WHOLE_ARRAY:
            records = self._array(job_id)
            for record in records:
                if record.array_task_id == task:
                    return [record]
            return [record for record in records
                    if record.array_task_id is None and record.array_pending and record.array_pending >> task & 1]
        records = self._array(job_id)
        if records:
            return records
        record = self._find(job_id)
        return [] if record is None else [record]

    def _one(self, job: JobRecord, test: Dependency) -> str:
        if test.kind == "singleton":
            return UNFULFILLED if self._blocked_by_name(job) else FULFILLED
        records = self._records(test.job_id, test.task)
        if not records:
            return FULFILLED                  # gone: nothing left to wait for
        over = all(is_over(record) for record in records)
        well = all(record.state == states.COMPLETED for record in records)
        if test.kind == "after":
            begun = all(record.state != states.PENDING and states.CONFIGURING not in record.flags
                        and not (test.task == WHOLE_ARRAY and record.array_pending) for record in records)
            started = [record.start_s or 0.0 for record in records]
            met = begun and (not test.delay_min or self._now - max(started) >= test.delay_min * 60)
            return FULFILLED if met else UNFULFILLED
        if test.kind in ("afterany", "afterburstbuffer"):
            return FULFILLED if over else UNFULFILLED
        if test.kind == "afternotok":
            # of a whole array the record with the array's id tells
            if any(states.SPECIAL_EXIT in record.flags for record in records
                   if len(records) == 1 or record.job_id == test.job_id):
                return FULFILLED
            return UNFULFILLED if not over else FAILED if well else FULFILLED
        if test.kind == "aftercorr" and job.array_task_id is not None:
            own = self._records(test.job_id, job.array_task_id)
            if own:
                over, well = is_over(own[0]), own[0].state == states.COMPLETED
        return UNFULFILLED if not over else FULFILLED if well else FAILED


def is_over(record: JobRecord) -> bool:
    return record.state in states.FINISHED and states.COMPLETING not in record.flags


def resolve(given: Dependencies, own_id: int, find: Callable[[int], JobRecord | None],
            array: Callable[[int], list[JobRecord]]) -> Dependencies:
    """What a submission's dependencies mean: arrays named by their id are meant whole. Raises BadDependency for a
    job of afterok or afternotok that does not exist, and for itself."""
    tests = []
    for test in given.tests:
        if test.kind != "singleton":
            records = array(test.job_id)
            if not records and find(test.job_id) is None and test.kind in ("afterok", "afternotok"):
                raise BadDependency(str(test))
            if test.task not in (None, WHOLE_ARRAY) and test.kind in ("afterok", "afternotok") and not any(
                    record.array_task_id == test.task
                    or (record.array_pending or 0) >> (test.task or 0) & 1 for record in records):
                raise BadDependency(str(test))
            if test.job_id == own_id and test.task in (None, WHOLE_ARRAY):
                raise BadDependency(str(test))
            if test.task is None and records:
                test = replace(test, task=WHOLE_ARRAY)
        tests.append(test)
    return Dependencies(tuple(dict.fromkeys(tests)), given.any_of)


def is_circular(tests: Iterable[Dependency], own_id: int, find: Callable[[int], JobRecord | None],
                depth: int = MAX_DEPTH) -> bool:
    """Whether one of these jobs waits, over at most ``depth`` others, for ``own_id``."""
    for test in tests:
        if not test.job_id:
            continue
        if test.job_id == own_id:
            return True
        other = find(test.job_id)
        if depth and other is not None and other.dependency and other.state not in states.FINISHED and is_circular(
                parse(other.dependency).tests, own_id, find, depth - 1):
            return True
    return False
