"""Processes of one cluster's folder: started detached, known by name, found again by a later run."""
from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from cluster import build


class Processes:
    """``procs.json`` holds the commands, ``pids/NAME`` the process ids, ``log/NAME`` what they say."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._file = folder / "procs.json"
        self.commands: dict[str, dict[str, object]] = json.loads(self._file.read_text()) if self._file.exists() else {}

    def start(self, name: str, argv: Sequence[object] | None = None, netns: str = "") -> None:
        """Starts a process, or one that was started before as it was then."""
        with self._lock:
            if argv is not None:
                self.commands[name] = {"argv": [str(word) for word in argv], "netns": netns}
                self._file.write_text(json.dumps(self.commands, indent=1))
        command = self.commands[name]
        # nsenter, not `ip netns exec`: that one remounts /sys and hides the cgroups
        prefix = ["nsenter", f"--net=/run/netns/{command['netns']}"] if command["netns"] else []
        for folder in ("log", "pids"):
            (self.folder / folder).mkdir(exist_ok=True)
        env = {"PATH": f"{build.tools()}:{build.SEARCH}", "HOME": "/root"}
        with open(self.folder / "log" / name, "ab") as log:
            process = subprocess.Popen([*prefix, *command["argv"]],  # type: ignore[misc]
                                       stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env,
                                       start_new_session=True)
        (self.folder / "pids" / name).write_text(str(process.pid))

    def pid(self, name: str) -> int | None:
        """None when it does not run (any more)."""
        try:
            pid = int((self.folder / "pids" / name).read_text())
        except (OSError, ValueError):
            return None
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        return pid if self._is_ours(pid) else None

    def _is_ours(self, pid: int) -> bool:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        return any(os.fsencode(self.folder) + b"/" in word for word in words)

    def kill(self, name: str, number: int = signal.SIGKILL, wait_s: float = 10) -> None:
        """Returns when it is gone; one that does not go by ``number`` goes by SIGKILL."""
        pid = self.pid(name)
        if pid is None:
            return
        os.kill(pid, number)
        end = time.monotonic() + wait_s
        while self.pid(name) is not None:
            if time.monotonic() > end:
                os.kill(pid, signal.SIGKILL)
                end += wait_s
            time.sleep(0.02)

    def kill_all(self) -> None:
        """Everything that has a file of this folder in its command line: also what a killed run did not write down."""
        own = _ancestors()
        for _ in range(200):
            found = [pid for name in os.listdir("/proc") if name.isdigit()
                     and (pid := int(name)) not in own and self._is_ours(pid) and _lives(pid)]
            if not found:
                return
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)

    def all_live(self) -> bool:
        return bool(self.commands) and all(self.pid(name) is not None for name in self.commands)


def _ancestors() -> set[int]:
    found, pid = set(), os.getpid()
    while pid > 1:
        found.add(pid)
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            break
    return found


def _lives(pid: int) -> bool:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until(ready: Callable[[], object], what: str, limit_s: float = 120) -> None:
    """Raises TimeoutError."""
    end = time.monotonic() + limit_s
    error: Exception | None = None
    while True:
        try:
            if ready():
                return
        except Exception as caught:           # not up yet
            error = caught
        if time.monotonic() > end:
            raise TimeoutError(f"{what} did not come up in {limit_s:.0f} s ({error})")
        time.sleep(0.1)
