"""A whole controller in the test's own process: simulated nodes, a clock that the test moves, a ledger on disk."""
from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from slurmbridge.accounting.ledger import Ledger
from slurmbridge.accounting.queries import Queries
from slurmbridge.cluster.simulated.engine import SimulatedEngine
from slurmbridge.controller.inventory import make_nodes
from slurmbridge.controller.service import Controller
from slurmbridge.controller.world import Pace
from slurmbridge.health.policy import Policy
from slurmbridge.slurm.conf import read_conf
from slurmbridge.slurm.jobspec import JobRequest
from slurmbridge.views.records import JobRecord
from slurmbridge.views.session import Identity, Invocation

ROOT = Identity(0, 0, "root", "root", True)
ALICE = Identity(20001, 100, "alice", "users", False)
BOB = Identity(20002, 100, "bob", "users", False)
CONF = """\
ClusterName=test
SlurmctldHost=here
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0
MinJobAge=300
KillWait=1
MaxArraySize=100
MaxJobCount=60
RequeueExit=101
RequeueExitHold=102
GresTypes=gpu
NodeName=n[1-3] CPUs=4 Sockets=1 CoresPerSocket=4 RealMemory=4000 Feature=old
NodeName=g1 CPUs=8 Sockets=2 CoresPerSocket=4 RealMemory=8000 Feature=new Gres=gpu:a100:2
PartitionName=main Nodes=n[1-3] Default=YES MaxTime=60 DefaultTime=10 DefMemPerCPU=100
PartitionName=gpu Nodes=g1 MaxTime=UNLIMITED DefMemPerCPU=100
PartitionName=root Nodes=ALL RootOnly=YES
PartitionName=closed Nodes=n1 State=DRAIN Alternate=main
PartitionName=shut Nodes=n1 State=INACTIVE
"""
PACE = Pace(rest=0.0, quick_s=float("inf"), completing_s=0.0, next_s=0.0)
"""No pass is put off or computed elsewhere; the clock stands: a job that ended is gone at once."""


class Lab:
    """``async with Lab() as lab``; ``restart`` is what a killed controller does next."""

    def __init__(self, conf: str = "", health: Policy | None = None) -> None:
        self.health = health
        self.folder = tempfile.TemporaryDirectory(prefix="slurmbridge-lab-")
        path = Path(self.folder.name) / "slurm.conf"
        path.write_text(CONF + conf)
        (Path(self.folder.name) / "gres.conf").write_text("NodeName=g1 Name=gpu Type=a100 Count=2\n")
        self.conf_path = str(path)
        self.now = 1_800_000_000.0
        self._moved = asyncio.Condition()
        self.ended: list[tuple[int, str]] = []

    async def __aenter__(self) -> Lab:
        await self._open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()
        self.folder.cleanup()

    async def _close(self) -> None:
        await self.controller.close()
        self.queries.close()

    async def _open(self) -> None:
        self.conf = read_conf(self.conf_path)
        database = str(Path(self.folder.name) / "ledger.db")
        self.engine = SimulatedEngine(list(make_nodes(self.conf, self.now).values()), clock=lambda: self.now,
                                      sleep=self._sleep)
        self.queries = Queries(database)
        self.controller = Controller(self.conf, self.engine, Ledger.open(database), lambda: self.now, self.queries,
                                     health=self.health, pace=PACE)
        await self.controller.start()
        self.acts, self.views = self.controller.acts, self.controller.views

    async def restart(self) -> None:
        await self._close()
        await self._open()
        await self.settle()

    async def _sleep(self, seconds: float) -> None:
        until = self.now + seconds
        async with self._moved:
            while self.now < until:
                await self._moved.wait()

    async def settle(self) -> None:
        """Lets everything happen that does not need time to go by."""
        quiet = 0
        before = None
        while quiet < 3:
            await asyncio.sleep(0.012)
            await self.controller.journal.durable()        # however slow the disk is
            now = [(job.job_id, job.state, sorted(job.flags), job.reason, job.nodes)
                   for job in self.views.jobs.values()]
            quiet = quiet + 1 if now == before else 0
            before = now

    async def advance(self, seconds: float) -> None:
        self.now += seconds
        async with self._moved:
            self._moved.notify_all()
        await asyncio.sleep(0.02)
        self.controller.timers.run()
        self.controller.health.tick()
        await self.settle()

    async def submit(self, *, by: Identity = ROOT, **fields: Any) -> int:
        request = {"name": "job", "script": "#!/bin/sh\n", "environment": ("A=1",), "work_dir": "/tmp", "uid": by.uid,
                   "gid": by.gid, "user_name": by.user_name, "submit_line": "sbatch", **fields}
        if "num_tasks" in request:
            request.setdefault("num_tasks_given", True)
        result = await self.acts.submit(by, INVOCATION, [JobRequest(**request)])
        return result.job_id

    async def run_for(self, seconds: float, exit_code: int = 0, **fields: Any) -> int:
        """A job that ends by itself."""
        return await self.submit(script=f"#!/bin/sh\n#SIMULATED seconds={seconds} exit={exit_code}\n", **fields)

    def job(self, job_id: int) -> JobRecord:
        return self.views.jobs[job_id]

    def shown(self, job_id: int) -> str:
        job = self.job(job_id)
        return f"{job.shown_state} {job.reason}"

    async def rows(self, job_id: int) -> list[tuple[str, int]]:
        """(state, exit status) of every accounting row of the job."""
        return [(row["state"], row.get("exit_status", 0))
                for row in await self.views.ledger_query("jobs", job_ids=[job_id])]


INVOCATION = Invocation("sbatch", (), {}, "/tmp", host="here")


def in_lab(test: Callable[[Lab], Awaitable[None]], conf: str = "", health: Policy | None = None) -> None:
    async def go() -> None:
        async with Lab(conf, health) as lab:
            await test(lab)
    asyncio.run(go())
