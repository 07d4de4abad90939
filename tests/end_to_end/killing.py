"""Controllers that tests kill, submitters that go on meanwhile, and what must hold afterwards."""
from __future__ import annotations

import collections
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from sites import BIN, Site

GIVE_UP_S = 240


class Controller:
    """``slurmbridge up --foreground`` as a child, so that it can be killed at any instant, its start included."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.process: subprocess.Popen[str] | None = None
        self.log = site.folder / "controller.log"

    def start(self) -> None:
        site = self.site
        words = [BIN / "slurmbridge", "up", "--foreground", "--state", site.state, "--slurm-conf", site.slurm_conf,
                 "--engine", site.engine, *site.options]
        with open(self.log, "a") as log:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
                                            text=True, env=site.env, cwd=site.work)
        site.is_up = True

    def wait(self) -> None:
        """Until it serves."""
        assert self.process is not None and self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("unix://"), f"the controller does not start: {line}{self.log.read_text()[-2000:]}"

    def kill(self) -> None:
        assert self.process is not None and self.process.stdout is not None
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.process = None

    def __enter__(self) -> Controller:
        self.start()
        self.wait()
        return self

    def __exit__(self, *exception: object) -> None:
        if self.process is not None:
            self.kill()


class Crew:
    """Threads that do ``work(number)`` for 0, 1, 2… until as many have returned true as are wanted."""

    def __init__(self, work: Callable[[int], bool], wanted: int, threads: int = 4) -> None:
        self.work, self.wanted = work, wanted
        self.done = 0
        self.next_number = 0
        self.lock = threading.Lock()
        self.stopped = threading.Event()
        self.failures: list[BaseException] = []
        self.threads = [threading.Thread(target=self.run) for _ in range(threads)]

    def __enter__(self) -> Crew:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stopped.set()
        for thread in self.threads:
            thread.join(timeout=60)

    def finish(self) -> None:
        for thread in self.threads:
            thread.join(timeout=GIVE_UP_S)
            assert not thread.is_alive(), "the submitters do not come to an end"
        assert not self.failures, self.failures

    def run(self) -> None:
        try:
            while not self.stopped.is_set():
                with self.lock:
                    if self.done >= self.wanted:
                        return
                    number = self.next_number
                    self.next_number += 1
                if self.work(number):
                    with self.lock:
                        self.done += 1
                else:
                    time.sleep(0.03)
        except BaseException as error:
            self.failures.append(error)
            raise


def wait_until_idle(site: Site, timeout_s: float = 120) -> None:
    """Until no job is pending, running or completing."""
    deadline = time.monotonic() + timeout_s
    while site.ok("squeue", "-h", "-a", "-t", "PD,R,CG,S,CF", "-o", "%i"):
        assert time.monotonic() < deadline, site.ok("squeue", "-o", "%i %T %r")
        time.sleep(0.15)


def rows_of(site: Site) -> dict[str, list[tuple[str, str]]]:
    """Job id as users write it ("7", "8_1") -> (state, exit code) of each of its accounting rows, in order."""
    rows: dict[str, list[tuple[str, str]]] = collections.defaultdict(list)
    words = ("sacct", "-a", "-X", "-D", "-P", "-n", "-S", "now-1hours", "-o", "JobID,State,ExitCode")
    for line in site.ok(*words).splitlines():
        job_id, state, code = line.split("|")
        rows[job_id].append((re.sub(r"^CANCELLED by \d+", "CANCELLED", state), code))
    return rows


def processes_of(site: Site) -> list[str]:
    """Command lines of processes that carry a job of this site."""
    left = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environment = (entry / "environ").read_bytes()
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if site.url.encode() in environment and b"SLURM_JOB_ID=" in environment:
            left.append(line)
    return left


def daemons_of(site: Site) -> list[int]:
    """Pids of everything that works for this state: controllers, spawners, step daemons."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(site.state).encode() in line:
                found.append(int(entry.name))
    return found


def spawner_pid(site: Site) -> int:
    return int((site.state / "run" / "spawner.lock").read_text())


def kill_hard(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def eventually(condition: Callable[[], object], what: str, timeout_s: float = 20) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
