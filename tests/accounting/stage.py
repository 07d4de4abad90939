"""A controller's side of sacctmgr and sacct, small enough to own: accounting data, a real ledger, files in memory."""
from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from slurmbridge.accounting.directory import apply_operations, ensure_content
from slurmbridge.accounting.ledger import Ledger
from slurmbridge.accounting.queries import Queries
from slurmbridge.controller import directory_rights
from slurmbridge.controller.resources import Resources
from slurmbridge.scheduling.snapshot import SchedulerSettings
from slurmbridge.slurm.settings import SlurmConf
from slurmbridge.views.records import AssociationData, JobRecord
from slurmbridge.views.session import Identity, Invocation, Reply

NOW = 1_796_006_499.0
USERS = ("alice", "bob", "carl", "dana", "erin", "frank", "gina", "hugo", "ivan", "jack", "kate", "liam", "mona",
         "nina", "oscar")
UIDS = {"root": 0, **{name: 20001 + index for index, name in enumerate(USERS)}}


class Stage:
    """Views, acts and session in one. ``call`` runs a command as a user."""

    def __init__(self, path: Path, tres: Sequence[str] = (), now_s: float = NOW) -> None:
        self.conf = SlurmConf(cluster_name="lab", values={"SlurmctldPort": "16817"})
        self.now_s = now_s
        self.jobs: dict[int, JobRecord] = {}
        self.nodes: dict[str, Any] = {}
        self.partitions: dict[str, Any] = {}
        self.resources: dict[str, Any] = {}
        self.boot_s = now_s
        self.ledger = Ledger.open(str(path))
        self.state = self.ledger.load()
        self.accounting: AssociationData = self.state.accounting
        self.ledger.write_and_wait(ensure_content(self.accounting, "lab", tres, now_s))
        self.queries = Queries(str(path))
        self.files: dict[str, bytes] = {}
        self.views = self.acts = self
        self.identity = Identity(0, 0, "root", "root", True)
        self.invocation = Invocation("", (), {}, "/work")
        self._stdin: list[bytes] = []
        self._said: list[str] = []
        self._complained: list[str] = []

    def close(self) -> None:
        self.queries.close()
        self.ledger.close()

    # views and acts
    async def ledger_query(self, kind: str, **filters: Any) -> Any:
        return await self.queries.ask(kind, **filters)

    async def change_accounting(self, caller: Identity, operations: Sequence[Mapping[str, Any]]) -> None:
        known = self.accounting.users.get(caller.user_name)
        if not caller.is_admin and (known is None or known.admin_level == "None"):
            directory_rights.check(caller.user_name, operations, self.accounting)
        await self.ledger.write(apply_operations(self.accounting, operations, self.now_s, actor=caller.user_name))

    async def change_resources(self, caller: Identity, operations: Sequence[Mapping[str, Any]]) -> None:
        Resources(SimpleNamespace(                           # type: ignore[arg-type]
            conf=self.conf, accounting=self.accounting, resources=self.resources, settings=SchedulerSettings(),
            journal=SimpleNamespace(add=lambda operation: None), now=self.now, admitted={},
            wake_later=lambda: None)).change(caller, operations)

    # session
    def now(self) -> float:
        return self.now_s

    async def read_file(self, path: str, limit: int = 1 << 26) -> bytes:
        if path not in self.files:
            raise FileNotFoundError(2, "No such file or directory", path)
        return self.files[path]

    async def write_file(self, path: str, data: bytes, mode: int = 0o666, exclusive: bool = False) -> None:
        self.files[path] = data

    async def read_line(self) -> bytes:
        return b""

    async def read_stdin(self) -> bytes:
        return self._stdin.pop(0) if self._stdin else b""

    async def write_stdout(self, text: str) -> None:
        self._said.append(text)

    async def write_stderr(self, text: str) -> None:
        self._complained.append(text)

    def run_async(self, question: Any) -> Any:
        """The answer of a coroutine."""
        return asyncio.run(question)

    def call(self, run: Any, argv: Sequence[str], user: str | None = None, stdin: str | None = None,
             env: Mapping[str, str] | None = None) -> Reply:
        """One command; everything it said, also before its reply."""
        name = user or "root"
        self.identity = Identity(UIDS[name], 100, name, "users", name == "root")
        self._stdin = [stdin.encode()] if stdin else []
        self._said, self._complained = [], []
        reply = asyncio.run(run(list(argv), {"TZ": "UTC", **(env or {})}, self))
        return Reply("".join(self._said) + reply.stdout, "".join(self._complained) + reply.stderr, reply.exit_code)
