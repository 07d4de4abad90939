"""The order of squeue's lines: ``-S`` letters, applied from the last to the first by stable sorts (squeue(1))."""
from __future__ import annotations

from collections.abc import Callable
from functools import cmp_to_key
from operator import attrgetter, itemgetter
from typing import Any

from slurmbridge.commands.common import user_name
from slurmbridge.commands.squeue_rows import Row, end_of, start_of, state_word, time_left, time_used
from slurmbridge.slurm.hostlist import natural_compare
from slurmbridge.slurm.states import COMPACT, PENDING

DEFAULT = "P,t,-p"
NOT_A_TASK = 0xFFFFFFFE
FOREVER = 0xFFFFFFFF
UNSET = 0xFFFE
_IGNORED = "cfhnO"                            # letters of the manual that no version sorts by
_by_host = cmp_to_key(natural_compare)

Key = Callable[[Any], Any]


class SortError(ValueError):
    """``args``: the letter that stands for nothing, and what was said before."""


def first_host(nodes: tuple[str, ...]) -> Any:
    """What a node list is sorted by."""
    return min(map(_by_host, nodes)) if nodes else _by_host("")


def _size(value: int | None) -> int:
    return UNSET if value is None else value


def _id(row: Row) -> tuple[int, int]:
    job = row.job
    if job.het_job_id:
        return job.het_job_id, job.het_offset
    if row.task_id is None:
        return job.job_id, NOT_A_TASK
    return job.array_job_id, row.task_id


def job_keys(now_s: float) -> dict[str, Key]:
    """The key of each letter but S."""
    def left(row: Row) -> int:
        seconds = time_left(row.job, now_s)
        return FOREVER if seconds is None else seconds

    return {
        "B": lambda row: row.job.batch_host, "C": lambda row: row.job.num_cpus,
        "d": lambda row: row.job.request.tmp_disk_mb or 0,
        "D": lambda row: len(row.job.nodes) or int(row.job.num_nodes.split("-")[0]),
        "e": lambda row: end_of(row.job, now_s), "g": lambda row: row.job.group_name, "G": lambda row: row.job.gid,
        "H": lambda row: _size(row.job.request.sockets_per_node), "i": _id,
        "I": lambda row: _size(row.job.request.cores_per_socket), "j": lambda row: row.job.name,
        "J": lambda row: _size(row.job.request.threads_per_core),
        "l": lambda row: FOREVER - 1 if row.job.time_limit_min is None else row.job.time_limit_min, "L": left,
        "m": lambda row: row.job.mem_per_cpu_mb or row.job.mem_per_node_mb or 0,
        "M": lambda row: time_used(row.job, now_s), "N": lambda row: first_host(row.job.nodes),
        "p": attrgetter("tier", "priority"), "Q": attrgetter("tier", "priority"),
        "P": attrgetter("partition"), "t": lambda row: COMPACT[state_word(row.job)],
        "T": lambda row: state_word(row.job), "u": lambda row: user_name(row.job.uid), "U": lambda row: row.job.uid,
        "v": lambda row: row.job.request.reservation or "", "V": lambda row: int(row.job.submit_s),
        "z": lambda row: (_size(row.job.request.sockets_per_node), _size(row.job.request.cores_per_socket),
                          _size(row.job.request.threads_per_core)),
    }


def by_start(rows: list[Row], now_s: float, reverse: bool) -> list[Row]:
    """Lines without a start time come last, and each such sort turns them round (the comparison says so)."""
    timed: list[tuple[int, Row]] = []
    untimed: list[Row] = []
    for row in rows:
        job = row.job
        start = start_of(job, now_s) if job.start_s or job.state != PENDING or (
            job.eligible_s or 0) > now_s or job.request.begin_s else 0
        if start:
            timed.append((int(start), row))
        else:
            untimed.append(row)
    timed.sort(key=itemgetter(0), reverse=reverse)
    return [row for _, row in timed] + untimed[::-1]


def letters_of(text: str) -> list[tuple[str, bool]]:
    """(letter or ``cluster``, reverse) from the last to the first."""
    result, index = [], len(text) - 1
    while index >= 0:
        letter = text[index]
        if letter in ",+-":
            index -= 1
            continue
        start = index - 6
        if start >= 0 and text[start:index + 1].lower() == "cluster":
            result.append(("cluster", start > 0 and text[start - 1] == "-"))
            index = start - 1
            continue
        result.append((letter, index > 0 and text[index - 1] == "-"))
        index -= 1
    return result


def sort_rows(rows: list[Row], text: str | None, now_s: float) -> tuple[list[Row], str]:
    """The rows in order, and lines for standard error. Raises SortError."""
    rows = by_start(rows, now_s, True)
    keys, notes = job_keys(now_s), ""
    for letter, reverse in letters_of(DEFAULT if text is None else text):
        if letter == "S":
            rows = by_start(rows, now_s, reverse)
        elif letter in keys:
            rows.sort(key=keys[letter], reverse=reverse)
        elif letter == "b":
            notes += "squeue: Invalid sort specification: b\n"
        elif letter != "cluster" and letter not in _IGNORED:
            raise SortError(letter, notes)
    return rows, notes
