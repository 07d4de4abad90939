"""What tasks use, by looking at /proc now and then, as Slurm's accounting gatherer does, and once more when they end.

CPU time is exact at the end (wait4). Bytes read and written are those of read(2) and write(2) (rchar and wchar), as in
Slurm. The kernel's own memory peak (ru_maxrss) starts with the interpreter that forked the task, so it counts only
above that; a task that ended before the first look and stayed below has no statistics, as in Slurm.
"""
from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from slurmbridge.runtime import processes
from slurmbridge.runtime.children import Exit
from slurmbridge.runtime.gpumeter import GpuMeter, GpuUse

FIRST_LOOK_S = 1.0
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_MS_PER_TICK = 1000 // os.sysconf("SC_CLK_TCK")
Counts = dict[str, int]
"""What was used: cpu (ms), mem, vmem, fs/disk (read) and out (written) in bytes, pages (major faults); of GPUs
gres/gpuutil (percent) and gres/gpumem (bytes)."""


def look(pid: int) -> Counts | None:
    """Of one process and of the children it has waited for; None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read().rpartition(b")")[2].split()
        found = {"cpu": sum(map(int, stat[11:15])) * _MS_PER_TICK, "pages": int(stat[9]) + int(stat[10]),
                 "vmem": int(stat[20]), "mem": int(stat[21]) * _PAGE_BYTES}
    except (OSError, IndexError, ValueError):
        return None
    try:
        with open(f"/proc/{pid}/io", "rb") as file:
            lines = file.read().split()
        found |= {"fs/disk": int(lines[1]), "out": int(lines[3])}
    except (OSError, IndexError, ValueError):
        found |= {"fs/disk": 0, "out": 0}
    return found


def together(counts: Iterable[Counts | None]) -> Counts:
    total: Counts = {}
    for one in counts:
        for name, value in (one or {}).items():
            total[name] = total.get(name, 0) + value
    return total


@dataclass(slots=True)
class _Task:
    devices: Sequence[int]
    most: Counts = field(default_factory=dict)


class Meter:
    """Make it in the process that forks the tasks. ``interval_s`` 0: looks only when they end."""

    def __init__(self, interval_s: float, gpus: GpuMeter | None = None) -> None:
        self._interval_s = interval_s
        self._gpus = gpus
        self._floor_bytes = (look(os.getpid()) or {"mem": 0})["mem"] * 5 // 4
        self._tasks: dict[int, _Task] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._asking: asyncio.Task[None] | None = None

    def add(self, pid: int, devices: Sequence[int] = ()) -> None:
        """``devices``: the GPUs bound to the task."""
        self._tasks[pid] = _Task(devices)
        if self._timer is None and self._interval_s:
            self._timer = asyncio.get_running_loop().call_later(min(FIRST_LOOK_S, self._interval_s), self._look)

    def _look(self) -> None:
        self.look_now()
        if self._gpus is not None and self._tasks and (self._asking is None or self._asking.done()):
            self._asking = asyncio.get_running_loop().create_task(self._look_at_gpus(self._gpus))
        self._timer = asyncio.get_running_loop().call_later(self._interval_s, self._look) if self._tasks else None

    def look_now(self) -> dict[int, Counts]:
        """What every task has used up to now, by pid."""
        for pid, task in self._tasks.items():
            _raise(task.most, together(map(look, [pid, *processes.descendants(pid)])))
        return {pid: task.most for pid, task in self._tasks.items()}

    def pids(self, tasks: Iterable[int]) -> list[int]:
        """Every process of these tasks that lives."""
        return [one for pid in tasks if pid in self._tasks for one in (pid, *processes.descendants(pid))]

    async def _look_at_gpus(self, gpus: GpuMeter) -> None:
        by_process, by_device = await gpus.read()
        for pid, task in self._tasks.items():
            used = [by_process[one] for one in [pid, *processes.descendants(pid)] if one in by_process]
            used += [by_device[device] for device in task.devices if device in by_device]
            whole = sum(used, GpuUse())
            _raise(task.most, {"gres/gpuutil": whole.util_percent, "gres/gpumem": whole.mem_bytes})

    def last_look(self, pid: int) -> None:
        """The task has ended and was not waited for yet."""
        task = self._tasks.get(pid)
        if task is not None and task.most:
            _raise(task.most, look(pid) or {})

    def ended(self, pid: int, end: Exit) -> tuple[dict[str, float], Counts]:
        """(CPU seconds, statistics) of a task that has ended; no statistics where nothing was seen."""
        task = self._tasks.pop(pid, None)
        times = {name: end.usage.get(name, 0.0) for name in ("user_cpu_s", "system_cpu_s")}
        most = task.most if task is not None else {}
        peak = int(end.usage.get("max_rss_kb", 0)) * 1024
        if peak > self._floor_bytes:
            _raise(most, {"mem": peak, "pages": int(end.usage.get("pages", 0))})
        if most:
            _raise(most, {"cpu": round(1000 * sum(times.values()))})
        return times, most


def _raise(most: Counts, seen: Counts) -> None:
    for name, value in seen.items():
        most[name] = max(most.get(name, 0), value)


IN = ("cpu", "fs/disk", "mem", "pages", "vmem")
FROM_GPUS = ("gres/gpumem", "gres/gpuutil")
Stats = dict[str, dict[str, int | str]]


def statistics(tasks: dict[int, Counts], node_of: dict[int, str]) -> Stats:
    """sacct's statistics of a step, named as in sacct_rows.Stats, from what its tasks (by rank) used; {} of none."""
    if not tasks:
        return {}
    names = [*IN, *(name for name in FROM_GPUS if any(name in counts for counts in tasks.values()))]
    return {**_extremes("in", {name: name for name in names}, tasks, node_of),
            **_extremes("out", {"fs/disk": "out"}, tasks, node_of)}


def _extremes(way: str, names: dict[str, str], tasks: dict[int, Counts], node_of: dict[int, str]) -> Stats:
    first = node_of[min(tasks)]
    stats: Stats = {f"{way}_{key}": {"energy": 0} for key in ("ave", "max", "min", "tot")}
    stats |= {f"{way}_{key}_node": {"energy": first} for key in ("max", "min")}
    stats |= {f"{way}_{key}_task": {} for key in ("max", "min")}
    for tres, name in names.items():
        values = {rank: tasks[rank].get(name, 0) for rank in sorted(tasks)}
        total = sum(values.values())
        stats[f"{way}_tot"][tres], stats[f"{way}_ave"][tres] = total, total // len(values)
        for key, choose in (("max", max), ("min", min)):
            rank = choose(values, key=values.__getitem__)
            stats[f"{way}_{key}"][tres] = values[rank]
            stats[f"{way}_{key}_node"][tres], stats[f"{way}_{key}_task"][tres] = node_of[rank], rank
    return stats


def clock_rate() -> int:
    """AveCPUFreq of this machine's first CPU: kHz where the kernel scales it, else its MHz (shown as if kHz, as in
    Slurm); 0 where it does not tell."""
    try:
        with open("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "rb") as file:
            return int(file.read())
    except (OSError, ValueError):
        pass
    try:
        with open("/proc/cpuinfo", "rb") as file:
            return next((int(float(line.partition(b":")[2])) for line in file if line.startswith(b"cpu MHz")), 0)
    except (OSError, ValueError):
        return 0


def gather_interval_s(frequency: str | None) -> float:
    """JobAcctGatherFrequency or --acctg-freq: ``30``, ``task=2,energy=60``; 30 when nothing usable is said."""
    for part in (frequency or "").split(","):
        name, equals, value = part.strip().rpartition("=")
        if value.isdigit() and (not equals or name.lower() == "task"):
            return float(value)
    return 30.0
