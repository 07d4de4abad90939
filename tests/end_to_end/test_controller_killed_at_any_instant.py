"""500 jobs while the controller is killed 30 times: what was acknowledged ends once, with its true state."""
from __future__ import annotations

import collections
import os
import random
import re
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from sites import Site

JOBS, KILLS, SUBMITTERS = 500, 30, 4


def controller_pid(site: Site) -> int | None:
    found = re.search(r"pid (\d+)", site.run("slurmbridge", "status", "--state", str(site.state)).stdout)
    return int(found[1]) if found else None


def exit_code_of(number: int) -> int:
    """Every seventh job fails, with a code of its own."""
    return number % 100 + 1 if number % 7 == 0 else 0


class Submitters:
    """Threads that submit numbered jobs until there are enough, and remember what was acknowledged."""

    def __init__(self, site: Site, marks: Path) -> None:
        self.site, self.marks = site, marks
        self.acknowledged: dict[int, int] = {}         # job id -> number
        self.next_number = 0
        self.lock = threading.Lock()
        self.stopped = threading.Event()
        self.threads = [threading.Thread(target=self.work) for _ in range(SUBMITTERS)]

    def __enter__(self) -> Submitters:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stopped.set()
        for thread in self.threads:
            thread.join(timeout=60)

    def finish(self) -> None:
        """Until enough are acknowledged."""
        for thread in self.threads:
            thread.join(timeout=240)
            assert not thread.is_alive(), "submissions do not come to an end"

    def work(self) -> None:
        while not self.stopped.is_set():
            with self.lock:
                if len(self.acknowledged) >= JOBS:
                    return
                number = self.next_number
                self.next_number += 1
            done = self.site.run("sbatch", "--parsable", "-n1", "--mem=1", "-t", "5", "-o", "/dev/null", "--job-name", f"k{number}",
                                 "--wrap", f"echo x >> {self.marks}/{number}; sleep 0.0{number % 5}; exit {exit_code_of(number)}")
            if done.returncode == 0:
                with self.lock:
                    assert int(done.stdout) not in self.acknowledged, "a job id was given twice"
                    self.acknowledged[int(done.stdout)] = number
            else:
                time.sleep(0.05)


def test_every_acknowledged_job_ends_once_with_its_own_exit_code(make_site: Callable[..., Site]) -> None:
    seed = int(os.environ.get("SLURMBRIDGE_TEST_SEED", "20261130"))
    chance = random.Random(seed)
    site = make_site(engine="local", conf="MinJobAge=3600\n")
    marks = site.work / "marks"
    marks.mkdir()
    with Submitters(site, marks) as submitters:
        for _ in range(KILLS):
            time.sleep(chance.uniform(0.02, 0.6))
            if (pid := controller_pid(site)) is not None:
                os.kill(pid, signal.SIGKILL)
            site.up()
        submitters.finish()

    deadline = time.monotonic() + 120
    while site.ok("squeue", "-h", "-t", "PD,R,CG,S", "-o", "%i"):
        assert time.monotonic() < deadline, site.ok("squeue", "-o", "%i %T %r")
        time.sleep(0.2)

    rows: dict[int, list[tuple[str, str]]] = collections.defaultdict(list)
    for line in site.ok("sacct", "-a", "-X", "-D", "-P", "-n", "-S", "now-1hours", "-o", "JobIDRaw,State,ExitCode").splitlines():
        job_id, state, code = line.split("|")
        rows[int(job_id)].append((state, code))
    for job_id, number in submitters.acknowledged.items():
        code = exit_code_of(number)
        assert rows[job_id] == [("FAILED", f"{code}:0") if code else ("COMPLETED", "0:0")], f"job {job_id} (number {number}, seed {seed})"
        assert (marks / str(number)).read_text() == "x\n", f"job {job_id} did not run exactly once"
    assert not processes_of(site), "processes of finished jobs were left behind"


def processes_of(site: Site) -> list[str]:
    """Command lines of processes that still carry a job of this site."""
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
