"""Controllers that tests kill, submitters that go on meanwhile, and what must hold afterwards."""
from __future__ import annotations

import collections
import contextlib
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import warm
from sites import Site

GIVE_UP_S = 240


class Controller:
    """``slurmbridge up --foreground`` as a process that can be killed at any instant, its start included."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.process: warm.Process | None = None
        self.output: IO[str] | None = None
        self.log = site.folder / "controller.log"

    def start(self) -> None:
        site = self.site
        words = ["slurmbridge", "up", "--foreground", "--state", str(site.state), "--slurm-conf",
                 str(site.slurm_conf), "--engine", site.engine, *site.options]
        reading, writing = os.pipe()
        self.output = os.fdopen(reading)
        with open(self.log, "a") as log, open(writing, "w") as out:
            self.process = warm.Process(words, site.env, site.work, out, log)
        site.is_up = True

    def wait(self) -> None:
        """Until it serves."""
        assert self.output is not None
        line = self.output.readline()
        assert line.startswith("unix://"), f"the controller does not start: {line}{self.log.read_text()[-2000:]}"

    def kill(self) -> None:
        assert self.process is not None and self.output is not None
        kill_hard(self.process.pid)
        with self.process:
            self.process.wait()
        self.output.close()
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
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        named = []
        with contextlib.suppress(OSError):
            named.append((entry / "cmdline").read_bytes().decode(errors="replace"))
            for file in (entry / "fd").iterdir():
                with contextlib.suppress(OSError):
                    named.append(os.readlink(file))
        if any(str(site.state) in text for text in named):
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
