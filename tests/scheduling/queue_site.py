"""A queue played through the whole controller in this process: sbatch as root for alice while all nodes are drained,
one resume, then passes for some seconds, as it was recorded with Slurm (tests/tools/queues.py)."""
from __future__ import annotations

import asyncio
import calendar
import importlib
import re
import tempfile
import time
from pathlib import Path
from typing import Any

from controller.lab import Lab

from slurmbridge.scheduling import passes as scheduler
from slurmbridge.slurm.conf import read_conf
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.views.session import Identity, Invocation, Reply

DATA = Path(__file__).parent.parent / "data"
MINUTE = 1_800_000_000
ROOT = Identity(0, 0, "root", "root", True)
NODES = "n[1-6],g[1-2]"
SUBMITTED = ("--parsable", "--uid=alice", "-A", "phys_qcd", "-o", "/dev/null", "-D", "/tmp")
SHOWN = {"nodes": "NodeList", "sched_nodes": "SchedNodeList", "num_nodes": "NumNodes", "num_cpus": "NumCPUs",
         "reason": "Reason"}

SAME_S = 2
BEHIND_OTHERS = {"Priority", "ReqNodeNotAvail,_May_be_reserved_for_other_job"}
"""Which of the two depends on whether a pass came by while the nodes were drained."""


def words_of(job: dict[str, Any]) -> list[str]:
    """The sbatch call of a recorded job."""
    return ["sbatch", *SUBMITTED, f"--priority={job['priority']}", *job["args"], "--wrap", "sleep 3000"]


def configured(case: dict[str, Any]) -> dict[str, str]:
    """File name -> text: the lab's configuration with the case's own lines."""
    text = (DATA / "slurm.conf").read_text()
    for old, new in case.get("substitute", ()):
        text = text.replace(old, new)
    more = case.get("conf", [])
    keys = tuple(line.partition("=")[0] + "=" for line in more if not line.startswith(("PartitionName", "NodeName")))
    partitions = tuple(line.split()[0] + " " for line in more if line.startswith("PartitionName"))
    kept = [line for line in text.splitlines() if not (keys and line.startswith(keys)) and not (
        partitions and line.startswith(partitions)) and not line.startswith("AccountingStorageEnforce")]
    gres = case.get("gres")
    files = {"slurm.conf": "\n".join([*kept, *more]) + "\n",
             "gres.conf": (DATA / "gres.conf").read_text() if gres is None else gres}
    if "topology" in case:
        files["topology.conf"] = case["topology"]
    return files


def fields(line: str) -> dict[str, str]:
    return dict(re.findall(r"(\S+?)=(\S*)", line))


def shown(job: dict[str, Any], record: dict[str, str], origin_s: int) -> dict[str, Any]:
    """What is compared of a job's record."""
    found: dict[str, Any] = {"state": record["JobState"]}
    found.update({key: "" if record.get(name) == "(null)" else record.get(name, "") for key, name in SHOWN.items()})
    start = record.get("StartTime", "Unknown")
    found["start_s"] = None if start in ("Unknown", "N/A") else (
        calendar.timegm(time.strptime(start, "%Y-%m-%dT%H:%M:%S")) - origin_s)
    return found


class _Session:
    """The caller's connection, as far as sbatch and scontrol use it."""

    def __init__(self, lab: QueueSite, words: list[str]) -> None:
        self.identity, self.views, self.acts = ROOT, lab.views, lab.acts
        self.invocation = Invocation(words[0], tuple(words[1:]), {"TZ": "UTC", "HOME": "/tmp", "PATH": "/bin"}, "/tmp",
                                     host="here")
        self.now = lambda: lab.now

    async def read_file(self, path: str, limit: int = 64 << 20) -> bytes:
        return Path(path).read_bytes()[:limit]

    async def read_stdin(self) -> bytes:
        return b""


class QueueSite(Lab):
    """``async with QueueSite(case) as site``."""

    def __init__(self, case: dict[str, Any]) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="slurmbridge-queue-")
        for name, text in configured(case).items():
            (Path(self.folder.name) / name).write_text(text)
        self.conf_path = str(Path(self.folder.name) / "slurm.conf")
        self.case = case
        read_conf(self.conf_path)

    async def call(self, *words: str) -> Reply:
        run = importlib.import_module(f"slurmbridge.commands.{words[0]}").run
        try:
            return await run(words[1:], {"TZ": "UTC"}, _Session(self, list(words)))
        except SlurmError as error:
            return Reply(stderr=f"{words[0]}: error: {error}\n", exit_code=1)

    async def play(self) -> list[dict[str, Any]]:
        """What became of each job, in the recording's words."""
        jobs, nodes = self.case["jobs"], self.case.get("nodes", NODES)
        await self.call("scontrol", "update", f"NodeName={nodes}", "State=DRAIN", "Reason=case")
        self.now = float(MINUTE - 60)
        out: list[dict[str, Any]] = []
        numbers = []
        for job in jobs:
            reply = await self.call(*words_of(job))
            numbers.append(reply.stdout.strip())
            out.append({"refused": reply.stderr.strip()} if reply.exit_code else {})
        await self.settle()
        origin_s = MINUTE + self.case["resumed_s"] % 60
        self.controller.passes.once = lambda: None               # the recording says which pass was when
        await self.advance(origin_s - self.now)
        await self.call("scontrol", "update", f"NodeName={nodes}", "State=RESUME")
        seen = sorted({(job["start_s"], job["scheduler"]) for job in jobs if job.get("state") == "RUNNING"},
                      key=lambda pair: (pair[0], pair[1] != "Main"))
        for start_s, which in seen:
            await self.advance(max(0, origin_s + start_s - self.now))
            await self._pass(which)
        for _ in range(3):
            await self._pass("Main")
            await self._pass("Backfill")
            await self.advance(2)
        return await self._shown(numbers, out, origin_s)

    async def _pass(self, which: str) -> None:
        passes = self.controller.passes
        if which == "Backfill" and not self.controller.world.conf.scheduler_type.endswith("backfill"):
            return
        passes.update_priorities()
        plan = (scheduler.main_pass if which == "Main" else scheduler.backfill_pass)(passes._snapshot())
        passes.apply(plan)
        await self.settle()

    async def _shown(self, numbers: list[str], out: list[dict[str, Any]], origin_s: int) -> list[dict[str, Any]]:
        records = {fields(line)["JobId"]: fields(line) for line in (
            await self.call("scontrol", "show", "job", "-o")).stdout.splitlines() if "JobId=" in line}
        for i, number in enumerate(numbers):
            if number:
                out[i] = shown(self.case["jobs"][i], records[number], origin_s)
        return out


async def answer(case: dict[str, Any]) -> list[dict[str, Any]]:
    async with QueueSite(case) as site:
        return await site.play()


def played(case: dict[str, Any]) -> list[dict[str, Any]]:
    return asyncio.run(answer(case))


def _same(key: str, want: Any, have: Any) -> bool:
    if key == "reason":
        return want == have or {want, have} == BEHIND_OTHERS
    if key == "start_s":                      # one pass of Slurm's may last from one second into the next
        return (want is None) == (have is None) and abs((want or 0) - (have or 0)) <= SAME_S
    return bool(want == have)


def differences(case: dict[str, Any], got: list[dict[str, Any]]) -> list[str]:
    """One line a job that came out otherwise than recorded."""
    found = []
    for want, have in zip(case["jobs"], got):
        expected = {key: value for key, value in want.items() if key not in ("args", "priority", "scheduler")}
        keys = [key for key in {**expected, **have} if not _same(key, expected.get(key), have.get(key))]
        if keys:
            found.append(f"{want['priority']} {' '.join(want['args'])}: " + "; ".join(
                f"{key} {have.get(key)!r} for {expected.get(key)!r}" for key in keys))
    return found
