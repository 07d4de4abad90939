"""A session over fabricated records: the oracle's cluster as it was when the samples were taken."""
from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slurmbridge.controller.inventory import make_nodes, make_partitions
from slurmbridge.slurm.conf import read_conf
from slurmbridge.slurm.settings import SlurmConf
from slurmbridge.views.records import AssociationData, JobRecord, NodeRecord, PartitionRecord, ReservationRecord
from slurmbridge.views.session import Identity, Invocation, Reply

DATA = Path(__file__).parent.parent / "data" / "conf"
NOW_S = 1795974066.0                          # 2026-11-29T17:41:06 UTC
ROOT = Identity(0, 0, "root", "root", True)
USER = Identity(12345, 100, "someone", "users", False)


@dataclass
class FakeViews:
    conf: SlurmConf
    nodes: dict[str, NodeRecord]
    partitions: dict[str, PartitionRecord]
    jobs: dict[int, JobRecord] = field(default_factory=dict)
    reservations: dict[str, ReservationRecord] = field(default_factory=dict)
    resources: dict[str, Any] = field(default_factory=dict)
    accounting: AssociationData = field(default_factory=lambda: AssociationData("lab"))
    boot_s: float = NOW_S - 48
    share_rows: list[dict[str, Any]] = field(default_factory=list)

    def shares(self) -> list[dict[str, Any]]:
        return self.share_rows

    def array_tasks(self, array_job_id: int) -> list[JobRecord]:
        found = [job for job in self.jobs.values() if array_job_id and job.array_job_id == array_job_id]
        return sorted(found, key=lambda job: job.array_task_id is not None)


class RecordingActs:
    """Remembers what was asked; ``refuse`` maps an act's name to the error it raises."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.refuse: dict[str, Exception] = {}

    def __getattr__(self, name: str) -> Any:
        async def act(*args: Any, **kwargs: Any) -> None:
            self.calls.append((name, *args[1:], kwargs) if kwargs else (name, *args[1:]))
            if name in self.refuse:
                raise self.refuse[name]
        return act


class FakeSession:
    def __init__(self, views: FakeViews, argv: Sequence[str] = (), env: Mapping[str, str] | None = None,
                 identity: Identity = ROOT) -> None:
        self.views, self.acts, self.identity = views, RecordingActs(), identity
        self.invocation = Invocation("scontrol", tuple(argv), env or {}, "/tmp")
        self.files: dict[str, bytes] = {}
        self.out = ""
        self.clock = NOW_S

    def now(self) -> float:
        return self.clock

    async def read_file(self, path: str, limit: int = 64 << 20) -> bytes:
        if path not in self.files:
            raise FileNotFoundError(2, "No such file or directory", path)
        return self.files[path]

    async def write_file(self, path: str, data: bytes, mode: int = 0o666, exclusive: bool = False) -> None:
        self.files[path] = data

    async def write_stdout(self, text: str) -> None:
        self.out += text

    async def write_stderr(self, text: str) -> None:
        self.out += text

    async def sleep(self, seconds: float) -> None:
        raise ConnectionError


def run(command: Any, session: FakeSession, *argv: str, env: Mapping[str, str] | None = None) -> Reply:
    """Runs a command to its reply."""
    return asyncio.run(command(argv, {"TZ": "UTC", **(env or {})}, session))


def sample(name: str) -> str:
    return (DATA / name).read_text()


LOAD = 2.39
FREE_MB = {"g1": 8563, "g2": 8561, "n1": 8570, "n2": 8569, "n3": 8567, "n4": 8567, "n5": 8565, "n6": 8564}


def lab_views() -> FakeViews:
    """The lab with n1–n6 full, two CPUs in use on each GPU node, g2 planned and one of its GPUs taken."""
    conf = read_conf(str(DATA / "slurm.conf"))
    nodes = make_nodes(conf, NOW_S - 48)
    for name, node in nodes.items():
        node.cpu_load, node.free_mem_mb = LOAD, FREE_MB[name]
        node.os = "Linux 6.18.44-fc-v657 #1 SMP PREEMPT_DYNAMIC @0"
        node.arch = "x86_64"
        node.boot_s = 1795966571 + (name[0] == "n" and name != "n6")
        node.last_busy_s = NOW_S - 10 if name[0] == "g" else NOW_S - 47 if name == "n1" else NOW_S - 48
        full = name[0] == "n"
        node.cpus_alloc = node.cpus if full else 2
        node.mem_alloc_mb = node.cpus * 1000 if full else 2000
    nodes["g2"].flags.add("PLANNED")
    nodes["g2"].gres_alloc = {"gpu:v100": (0,)}
    return FakeViews(conf, nodes, make_partitions(conf, nodes))
