"""A local engine without a controller: jobs are made here, events read here."""
from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import pwd
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slurmbridge.cluster.local import LocalEngine
from slurmbridge.cluster.port import Event, LaunchOrder, RunId
from slurmbridge.slurm.jobspec import JobRequest
from slurmbridge.views.records import JobRecord, NodeAllocation, NodeRecord

TIMEOUT_S = 30
KILL_WAIT_S = 0.5
NODES = [NodeRecord(name=f"n{i}", cpus=8) for i in range(1, 5)]
USER = pwd.getpwnam("nobody") if os.getuid() == 0 else pwd.getpwuid(os.getuid())
"""Who the jobs run as."""


@dataclass
class Job:
    """One run: what was ordered, and what came of it."""

    order: LaunchOrder
    folder: Path
    events: list[Event] = field(default_factory=list)

    @property
    def run(self) -> RunId:
        return self.order.run

    @property
    def last(self) -> Event:
        return self.events[-1]

    @property
    def status(self) -> int:
        """The wait status of the script."""
        return self.last.exit_status

    @property
    def reason(self) -> str:
        return str(self.last.data["reason"])

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]

    def of(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.kind == kind]

    def text(self, name: str | None = None) -> str:
        return (self.folder / (name or f"slurm-{self.run.job_id}.out")).read_text()

    def lines(self, name: str | None = None) -> list[str]:
        return self.text(name).splitlines()


class Rig:
    """An engine on a thread of its own, and the commands that jobs find in their PATH."""

    def __init__(self, commands: Path) -> None:
        self.commands = commands
        self.state = Path(tempfile.mkdtemp(prefix="runtime-", dir="/tmp"))
        self.state.chmod(0o755)
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.jobs: dict[RunId, Job] = {}
        self.changed = threading.Condition()
        self.next_id = 100
        self.start([])

    def start(self, runs: Sequence[JobRecord]) -> None:
        """An engine on this state, as after a controller's start."""
        self.engine = LocalEngine(NODES, self.state)
        self.call(self.engine.recover(runs))
        self.reading = asyncio.run_coroutine_threadsafe(self._read(), self.loop)

    def stop_reading(self) -> None:
        self.reading.cancel()
        with contextlib.suppress(concurrent.futures.CancelledError):
            self.reading.result(5)
        self.call(asyncio.sleep(0))

    def call(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(TIMEOUT_S)

    async def _read(self) -> None:
        async for event in self.engine.events():
            with self.changed:
                assert event.run is not None
                if event.run in self.jobs:
                    self.jobs[event.run].events.append(event)
                self.changed.notify_all()

    def launch(self, script: str | None, *, nodes: int = 1, cpus: int = 2, limit_s: float | None = 60,
               order: dict[str, Any] | None = None, record: dict[str, Any] | None = None, **request: Any) -> Job:
        """Starts a job of USER's; ``script`` without its first line (None: an allocation)."""
        self.next_id += 1
        folder = self.state / f"job{self.next_id}"
        folder.mkdir()
        folder.chmod(0o777)
        names = tuple(node.name for node in NODES[:nodes])
        if script is not None and not script.startswith("#!"):
            script = f"#!/bin/bash\n{script}\n"
        wanted = JobRequest(**{
            "script": script, "batch": script is not None,
            "environment": (f"PATH={self.commands}:/usr/bin:/bin", "HOME=/tmp", "FOO=foo"), "work_dir": str(folder),
            **request})
        job = JobRecord(**{
            "job_id": self.next_id, "request": wanted, "uid": USER.pw_uid, "gid": USER.pw_gid,
            "user_name": USER.pw_name, "group_name": "users", "name": "job.sh", "start_s": time.time(),
            "allocation": [NodeAllocation(name, cpus, cpus * 1000) for name in names], "nodes": names,
            "batch_host": "n1", "mem_per_cpu_mb": 1000, **(record or {})})
        launch = LaunchOrder(**{
            "run": RunId(self.next_id, 0), "job": job, "credential": secrets.token_hex(8), "cluster_name": "lab",
            "controller_url": "", "kill_wait_s": KILL_WAIT_S,
            "end_by_s": None if limit_s is None else time.time() + limit_s, **(order or {})})
        made = self.jobs[launch.run] = Job(launch, folder)
        self.call(self.engine.launch(launch))
        return made

    def wait(self, job: Job, until: Callable[[Job], bool] | None = None) -> Job:
        """Until the run is over, or ``until`` holds."""
        def done() -> bool:
            over = bool(job.events) and job.last.kind in ("finished", "launch_failed")
            return until(job) if until else over
        with self.changed:
            assert self.changed.wait_for(done, TIMEOUT_S), f"job {job.run}: {job.events}"
        return job

    def started(self, job: Job) -> Job:
        return self.wait(job, lambda job: "started" in job.kinds())

    def do(self, script: str | None, **options: Any) -> Job:
        return self.wait(self.launch(script, **options))

    def srun(self, job: Job, *argv: str, env: dict[str, str] | None = None, credential: str | None = None,
             **options: Any) -> Any:
        """A srun process of the submitter's that is handed over to the job."""
        identity = {"user": USER.pw_uid, "group": USER.pw_gid, "extra_groups": []} if os.getuid() == 0 else {}
        address = self.call(self.engine.step_address(job.run))
        return subprocess.Popen(
            [str(self.commands / "srun"), *argv], cwd=job.folder, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env={"PATH": "/usr/bin:/bin", "SLURMBRIDGE_STEPD": address,
                                         "SLURMBRIDGE_CREDENTIAL": credential or job.order.credential, **(env or {})},
            **{"stdin": subprocess.DEVNULL, **identity, **options})

    def close(self) -> None:
        self.call(self.engine.shutdown())
        self.stop_reading()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(5)
        shutil.rmtree(self.state, ignore_errors=True)


def processes_matching(text: str) -> list[int]:
    """Pids whose command line holds ``text``."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                if text in Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"):
                    found.append(int(name))
            except OSError:
                continue
    return found


def until(condition: Callable[[], bool], what: str = "") -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


PYTHON = sys.executable
