"""``srun --multi-prog``: a file that says which task runs which program (srun(1), MULTIPLE PROGRAM CONFIGURATION)."""
from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass


class MultiProgError(ValueError):
    """``lines`` are srun's error messages."""

    def __init__(self, *lines: str) -> None:
        super().__init__(lines[-1])
        self.lines = lines


@dataclass(frozen=True, slots=True)
class _Record:
    offsets: dict[int, int]                   # task -> its place in the line's ranges
    text: str


def programs(name: str, text: str, num_tasks: int, more_args: Sequence[str]) -> list[list[str]]:
    """The argument vector of every task. ``more_args`` of the command line follow each. Raises MultiProgError."""
    records: list[_Record] = []
    covered: set[int] = set()
    for number, line in _logical_lines(text):
        ranks, *rest = line.split(None, 1)
        if not rest:
            raise MultiProgError(f"Line {number} of configuration file {name} invalid")
        try:
            offsets = _offsets(ranks, num_tasks, covered)
        except MultiProgError as error:
            raise MultiProgError(*error.lines, f"Line {number} of configuration file {name} invalid") from None
        covered |= offsets.keys()
        records.append(_Record(offsets, rest[0]))
    for task in range(num_tasks):
        if task not in covered:
            raise MultiProgError(f"Configuration file {name} invalid, no record for task id {task}")
    result = []
    for task in range(num_tasks):
        record = next(record for record in records if task in record.offsets)
        result.append([*_words(record.text, task, record.offsets[task]), *more_args])
    return result


def checked_tasks(name: str, text: str, num_tasks: int, *, is_fixed: bool) -> int:
    """The number of tasks once srun has read the file: without ``is_fixed`` its ranks make it larger.
    Raises MultiProgError."""
    for _, line in _logical_lines(text):
        ranks, *rest = line.split(None, 1)
        highest = max((int(rank) for rank in re.split("[,-]", ranks) if rank.isdigit()), default=0)
        if not is_fixed and rest and not ranks.startswith("*"):
            num_tasks = max(num_tasks, highest + 1)
    programs(name, text, num_tasks, ())
    return num_tasks


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Lines with their numbers; a backslash at the end joins the next, comments and blank lines are left out."""
    found: list[tuple[int, str]] = []
    joined, start = "", 0
    for number, line in enumerate(text.split("\n"), 1):
        if not joined:
            start = number
        joined += line
        if joined.endswith("\\"):
            joined = joined[:-1]
            continue
        stripped = joined.strip()
        if stripped and not stripped.startswith("#"):
            found.append((start, stripped))
        joined = ""
    return found


def _offsets(ranks: str, num_tasks: int, covered: set[int]) -> dict[int, int]:
    if ranks == "*":
        rest = [task for task in range(num_tasks) if task not in covered]
        return {task: offset for offset, task in enumerate(rest)}
    tasks: list[int] = []
    for part in ranks.split(","):
        low, dash, high = part.partition("-")
        if not low.isdigit() or (dash and not high.isdigit()):
            raise MultiProgError(f"Invalid task range specification ({part})")
        if int(high or low) < int(low):
            raise MultiProgError(f"Invalid task range, {low}-{high}")
        if int(high or low) >= num_tasks:
            raise MultiProgError(f"Invalid task id, {int(high or low)} >= ntasks")
        tasks += range(int(low), int(high or low) + 1)
    for task in tasks:
        if task in covered or tasks.count(task) > 1:
            raise MultiProgError(f"Duplicate record for task {task}")
    return {task: offset for offset, task in enumerate(tasks)}


def _words(text: str, task: int, offset: int) -> list[str]:
    """At blanks; single quotes and backslashes protect, %t and %o are the task's rank and offset."""
    words: list[str] = []
    word: str | None = None
    index = 0
    while index < len(text):
        char = text[index]
        index += 1
        if char in " \t":
            if word is not None:
                words.append(word)
            word = None
            continue
        word = word or ""
        if char == "%" and index < len(text):
            word += {"t": str(task), "o": str(offset)}.get(text[index], "")
            index += 1
        elif char == "\\" and index < len(text):
            word += text[index]
            index += 1
        elif char == "'":
            end = text.find("'", index)
            if end < 0:
                raise MultiProgError(f"Program arguments specification format invalid: {text}.")
            word += text[index:end]
            index = end + 1
        else:
            word += char
    return words if word is None else [*words, word]
