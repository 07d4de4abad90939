"""A whole controller in the test's own process, with a time of its own: it goes by as fast as it can be computed.

Nodes are simulated. What a batch script does is found by running it in bash with a ``sleep`` that only counts, so
scripts of sleeps, tests and exits end when and how they would; traps, steps and background processes need a site with
real processes.
"""
from __future__ import annotations

import asyncio
import os
import pwd
import selectors
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from sites import DATA

from slurmbridge.accounting.ledger import Ledger
from slurmbridge.accounting.operations import Operation
from slurmbridge.accounting.queries import Queries
from slurmbridge.api import frames
from slurmbridge.api.identity import Identities
from slurmbridge.api.server import CommandServer
from slurmbridge.api.session import ClientSession
from slurmbridge.cluster.port import LaunchOrder
from slurmbridge.cluster.simulated.engine import SimulatedEngine
from slurmbridge.controller.inventory import make_nodes
from slurmbridge.controller.service import Controller
from slurmbridge.controller.world import Pace
from slurmbridge.slurm.conf import read_conf
from slurmbridge.views.session import Invocation

EPOCH_S = 1_796_040_000.0
"""When every site begins: a Monday noon."""
COMMAND_S = 0.1
"""How long a command takes."""
PACE = Pace(rest=0.0, quick_s=float("inf"))
"""No pass is put off or computed elsewhere."""
COUNTED = """T=0; sleep() { T=$(awk "BEGIN { print $T + $1 }"); }; trap 'echo "#SIMULATED seconds=$T exit=$?" >&3' EXIT
exec 3>&1 >/dev/null 2>&1; cd /tmp
"""


class Selector(selectors.DefaultSelector):  # type: ignore[valid-type,misc]
    """Instead of waiting for a time it moves the loop's."""

    def __init__(self, loop: Loop) -> None:
        super().__init__()
        self.loop = loop

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(timeout if timeout is None else 0)
        if not ready and timeout is not None:
            self.loop.now_s += max(timeout, 0.0)
        return ready


class Loop(asyncio.SelectorEventLoop):
    """Nothing waits for threads or disks: they are done before time goes on."""

    def __init__(self) -> None:
        self.now_s = 0.0
        super().__init__(Selector(self))

    def time(self) -> float:
        return self.now_s

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except BaseException as error:
            future.set_exception(error)
        return future


class PromptLedger(Ledger):
    """What is written is on disk when ``write`` returns."""

    def write(self, operations: Iterable[Operation], *, alone: bool = False) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            self.write_and_wait(operations)
            future.set_result(None)
        except Exception as error:
            future.set_exception(error)
        return future


class ScriptedEngine(SimulatedEngine):
    """Runs last as long as their scripts would sleep, and end as those would."""

    async def launch(self, order: LaunchOrder) -> None:
        job = order.job
        if job.het_offset:                    # lasts as long as the first component
            await super().launch(order)
            return
        request = replace(job.request, script=scripted(job.request.script or "", {
            "SLURM_JOB_ID": str(job.job_id), "SLURM_RESTART_COUNT": str(job.restarts),
            **({} if job.array_task_id is None else {"SLURM_ARRAY_TASK_ID": str(job.array_task_id)})}))
        await super().launch(replace(order, job=replace(job, request=request)))


def scripted(script: str, env: dict[str, str]) -> str:
    """The ``#SIMULATED`` line of a script."""
    commands = [line for line in script.splitlines() if line and not line.startswith("#")]
    if commands == ["sleep 3000"]:
        return "#SIMULATED seconds=3000 exit=0"
    done = subprocess.run(["bash", "-c", COUNTED + script], text=True, capture_output=True, timeout=60,
                          env={"PATH": "/usr/bin:/bin", **env}, stdin=subprocess.DEVNULL, check=False)
    return done.stdout


class Wire:
    """A caller that has the files of this machine, no input, and keeps what it is told."""

    def __init__(self) -> None:
        self.texts = {b"O": bytearray(), b"E": bytearray()}
        self.code = 0
        self.closed = asyncio.Event()

    async def send(self, data: bytes) -> None:
        for kind, payload in frames.Parser({b"O": 1 << 30, b"E": 1 << 30, b"X": 4}).feed(data):
            if kind == b"X":
                self.code = int.from_bytes(payload, "big") & 0xFF
            else:
                self.texts[kind] += payload

    async def ask(self, data: bytes) -> tuple[int, bytes]:
        ((_, payload),) = frames.Parser({b"F": 1 << 30}).feed(data)
        try:
            return 0, Path(os.fsdecode(payload[8:])).read_bytes()
        except OSError as error:
            return error.errno or 5, b""

    async def read_input(self) -> bytes:
        return b""

    async def read_line(self) -> bytes:
        return b""


class OwnTimeSite:
    """``run`` and ``wait``; ``with`` closes it."""

    def __init__(self, conf: Callable[[str], str], ledger: bytes = b"") -> None:
        """``conf`` makes this site's slurm.conf of that of the tests; ``ledger``: of a site that was closed."""
        memory = Path("/dev/shm")
        self.folder = Path(tempfile.mkdtemp(prefix="sbo-", dir=memory if os.access(memory, os.W_OK) else None))
        shutil.copy(DATA / "gres.conf", self.folder)
        self.slurm_conf = self.folder / "slurm.conf"
        self.slurm_conf.write_text(conf((DATA / "slurm.conf").read_text()))
        self.database = self.folder / "ledger.db"
        if ledger:
            self.database.write_bytes(ledger)
        self.ledger = b""
        self.loop = Loop()
        self.loop.run_until_complete(self._open())

    async def _open(self) -> None:
        conf = read_conf(str(self.slurm_conf))
        database = str(self.database)
        nodes = list(make_nodes(conf, self.now()).values())
        self.queries = Queries(database)
        self.controller = Controller(conf, ScriptedEngine(nodes, clock=self.now), PromptLedger.open(database),
                                     self.now, self.queries, pace=PACE)
        await self.controller.start()
        self.identities = Identities({conf.slurm_uid, os.getuid()})
        self.server = CommandServer(self.controller.views, self.controller.acts, self.identities, self.now)
        self.server.preload()

    def now(self) -> float:
        return EPOCH_S + self.loop.now_s

    def main_pass_first(self) -> None:
        """Backfill is not the first to see jobs that come in."""
        self.controller.passes._burst_over = self.controller.passes.wake  # type: ignore[method-assign]

    def wait(self, seconds: float) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))

    def run(self, *words: str, user: str | None = None) -> tuple[int, str, str]:
        """(exit code, standard output, standard error) of a command."""
        return self.loop.run_until_complete(self._run(words, user))

    async def _run(self, words: tuple[str, ...], user: str | None) -> tuple[int, str, str]:
        entry = pwd.getpwnam(user or "root")
        identity = self.identities.of_ids(entry.pw_uid, entry.pw_gid)
        env = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8", "TZ": "UTC"}
        wire = Wire()
        session = ClientSession(wire, identity, Invocation(words[0], tuple(words[1:]), env, "/tmp", host="localhost"),
                                self.controller.views, self.controller.acts, self.now)
        await session.answer(await self.server.run(session))
        await asyncio.sleep(COMMAND_S)
        return wire.code, wire.texts[b"O"].decode(), wire.texts[b"E"].decode()

    def __enter__(self) -> OwnTimeSite:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.loop.run_until_complete(self.controller.close())
            self.queries.close()
            self.loop.run_until_complete(asyncio.sleep(0))     # for what was cancelled
            self.loop.close()
            self.ledger = self.database.read_bytes()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)
