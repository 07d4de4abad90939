"""Process trees: who descends from whom, how to end all of them, and being the one that orphans come back to.

A daemon that is a child subreaper keeps every descendant, double forks and setsid included: nothing of a job can
leave its tree, so a tree without members proves that nothing is left.
"""
from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


def become_subreaper(is_one: bool = True) -> None:
    """Orphaned descendants become children of this process. Raises OSError."""
    if _libc.prctl(PR_SET_CHILD_SUBREAPER, int(is_one), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def children(pid: int) -> list[int]:
    """Direct children, zombies included, of all threads. Empty when the process is gone."""
    found: list[int] = []
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for task in tasks:
        try:
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                found += map(int, file.read().split())
        except FileNotFoundError:
            if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
                return _children_by_scan(pid)
        except OSError:
            continue
    return found


def _children_by_scan(pid: int) -> list[int]:
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [child for child in pids if (stat := _stat(child)) and stat[1] == pid]


def _stat(pid: int) -> tuple[str, int, int] | None:
    """(state letter, parent, start time in ticks) of a process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            rest = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return rest[0].decode(), int(rest[1]), int(rest[19])


def start_ticks(pid: int) -> int | None:
    """With the pid it names a process for ever; None when there is no such process or it is a zombie."""
    stat = _stat(pid)
    return None if stat is None or stat[0] == "Z" else stat[2]


def descendants(pid: int) -> list[int]:
    """All living descendants (no zombies), parents before their children."""
    found: list[int] = []
    queue = [pid]
    while queue:
        for child in children(queue.pop()):
            stat = _stat(child)
            if stat is None:
                continue
            queue.append(child)
            if stat[0] not in "ZX":
                found.append(child)
    return found


def signal_all(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def signal_tree(members: Callable[[], list[int]], number: int) -> None:
    """A signal to all of a changing set. One that stops or kills is repeated for those that were forked meanwhile."""
    seen: set[int] = set()
    while True:
        new = [pid for pid in members() if pid not in seen]
        signal_all(new, number)
        seen.update(new)
        if not new or number not in (signal.SIGSTOP, signal.SIGKILL):
            return


def kill_tree(pid: int) -> None:
    """SIGKILL to all descendants, so often that none can have forked in between."""
    seen: set[int] = set()
    while True:
        alive = [child for child in descendants(pid) if child not in seen]
        if not alive:
            return
        signal_all(alive, signal.SIGKILL)
        seen.update(alive)


def kill_with_environment(entry: str) -> None:
    """SIGKILL to every process that was started with this ``NAME=value`` in its environment, until there is none."""
    wanted = entry.encode()
    while True:
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit():
                with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
                    if wanted in file.read().split(b"\0") and start_ticks(int(name)) is not None:
                        found.append(int(name))
        if not found:
            return
        signal_all(found, signal.SIGKILL)
        time.sleep(0.005)


def close_all_but(keep: set[int]) -> None:
    """Closes every descriptor of this process that is not in ``keep``: after a fork they are someone else's."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in keep:
            with contextlib.suppress(OSError):
                os.close(int(name))
