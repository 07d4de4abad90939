"""Waiting for the children of one event loop: each exit is told once, with its resource usage.

The process is a subreaper, so children that nobody started here turn up too: the orphans of what was started.
"""
from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from slurmbridge.runtime import processes

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
BLOCK_BYTES = 512


@dataclass(frozen=True, slots=True)
class Exit:
    """``status`` is a wait(2) status, ``usage`` see usage_of."""

    status: int
    usage: dict[str, float]


def usage_of(rusage: Any) -> dict[str, float]:
    """CPU seconds, peak memory in KB, major faults, bytes read and written, of a process and what it waited for."""
    return {
        "user_cpu_s": rusage.ru_utime, "system_cpu_s": rusage.ru_stime, "max_rss_kb": rusage.ru_maxrss,
        "pages": rusage.ru_majflt, "read_bytes": rusage.ru_inblock * BLOCK_BYTES,
        "write_bytes": rusage.ru_oublock * BLOCK_BYTES,
    }


def add_usage(total: dict[str, float], more: dict[str, float]) -> None:
    for name, value in more.items():
        total[name] = max(total.get(name, 0), value) if name == "max_rss_kb" else total.get(name, 0) + value


class Children:
    """All children of this process. Make it inside the running loop; it takes over SIGCHLD."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, asyncio.Future[Exit]] = {}
        self._unclaimed: dict[int, Exit] = {}
        self._changed = asyncio.Event()
        self.orphan_usage: dict[str, float] = {}
        self.none_left = True
        self.before_reaped: Callable[[int], None] = lambda pid: None
        self._loop.add_signal_handler(signal.SIGCHLD, self.reap)

    def watch(self, pid: int) -> asyncio.Future[Exit]:
        """Resolved when the child ``pid`` has ended. Ask right after the fork, before the loop runs again."""
        self.none_left = False
        future = self._loop.create_future()
        if pid in self._unclaimed:
            future.set_result(self._unclaimed.pop(pid))
        else:
            self._waiting[pid] = future
        return future

    def reap(self) -> None:
        while True:
            try:
                info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                self.none_left = True
                break
            if info is None:
                self.none_left = False
                break
            if info.si_pid in self._waiting:
                self.before_reaped(info.si_pid)
            pid, status, rusage = os.wait4(info.si_pid, 0)
            ended = Exit(status, usage_of(rusage))
            future = self._waiting.pop(pid, None)
            if future is None:
                add_usage(self.orphan_usage, ended.usage)
            elif not future.done():
                future.set_result(ended)
        self._changed.set()

    def others(self, keep: set[int]) -> list[int]:
        """Living descendants that are neither one of ``keep`` nor below one."""
        found: list[int] = []
        for child in processes.children(os.getpid()):
            if child not in keep:
                found += [child, *processes.descendants(child)]
        return found

    async def end_others(self, keep: set[int]) -> None:
        """SIGKILL until no descendant but ``keep`` (and theirs) is left; returns once all of them are really gone."""
        pause_s = 0.001
        while True:
            self.reap()
            if self.none_left:
                return
            rest = self.others(keep)
            if not rest:
                return
            processes.signal_all(rest, signal.SIGKILL)
            self._changed.clear()
            self.reap()
            if self.none_left:
                return
            try:
                await asyncio.wait_for(self._changed.wait(), pause_s)
            except TimeoutError:
                pause_s = min(pause_s * 2, 0.25)
