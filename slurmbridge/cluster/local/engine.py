"""The local engine: all nodes are this machine, every run is real processes under step daemons.

It keeps nothing in memory that is not in the runs' journals: a controller that is killed and started again finds what
still runs, and what ended meanwhile with its true outcome.
"""
from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurmbridge.cluster import nodes as machine
from slurmbridge.cluster.daemons import ask
from slurmbridge.cluster.local import spool
from slurmbridge.cluster.local.link import SpawnerError, SpawnerLink, SpawnerLost
from slurmbridge.cluster.orders import run_order
from slurmbridge.cluster.port import Event, LaunchOrder, RunId
from slurmbridge.runtime import addresses, hosts
from slurmbridge.runtime.journal import JournalReader
from slurmbridge.runtime.spawner import JOURNAL_NAME, WAKE_NAME
from slurmbridge.views.records import JobRecord, NodeRecord

SCAN_INTERVAL_S = 2.0
"""How often journals are looked at without having been woken."""
_INTERNAL = frozenset({"launched", "daemon", "note"})


@dataclass(slots=True)
class _Run:
    reader: JournalReader
    credential: str = ""
    ordered: bool = False                     # a spawner may still read the order to launch it
    finished_sequence: int | None = None
    wanted: bool = True
    is_forgotten: bool = False                # acknowledged: its files go once no order is under way
    not_started: Event | None = None          # to be told once no order is under way: the same run is launched again


class LocalEngine:
    """``nodes`` are known by their names; ``state`` is the controller's directory. Call ``recover`` first."""

    name = "local"
    suspended_frees_cores = True

    def __init__(self, nodes: Sequence[NodeRecord], state: Path, *, controller_url: str = "") -> None:
        self._nodes = {node.name: node for node in nodes}
        self._controller_url = controller_url
        self._run = spool.run_directory(state)
        self._reach = spool.reach_directory(self._run)
        self._link = SpawnerLink(self._run, self._reach, self._spawner_lost)
        self._runs: dict[RunId, _Run] = {}
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._wake_socket: socket.socket | None = None
        self._scanner: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def stale_s(self) -> float:
        return 0.0

    async def inventory(self) -> Sequence[NodeRecord]:
        return machine.describe(list(self._nodes.values()))

    # ---- start and recovery -----------------------------------------------------------------------------------------

    async def recover(self, runs: Sequence[JobRecord]) -> None:
        """Raises SpawnerError when no spawner can be started, OSError when the state directory is not usable."""
        self._listen_for_wakes()
        hosts.write(str(self._run), self._nodes)
        await self._link.connect()
        wanted = {RunId(job.job_id, job.restarts) for job in runs}
        recorded = spool.recorded_runs(self._run, self._reach)
        for run, reader in recorded.items():
            self._runs[run] = _Run(reader, wanted=run in wanted)
            self._read(run)
            if run not in wanted:
                await self._drop(run)
        for run in wanted - recorded.keys():
            self._put(Event("launch_failed", run, time.time(),
                            data={"node": "", "reason": "NotStarted", "message": "the run was never started"}))
        if self._scanner is None:
            self._scanner = asyncio.create_task(self._scan())

    async def _drop(self, run: RunId) -> None:
        """Ends a run that nobody wants; it is forgotten once it has ended."""
        if run not in self._runs:
            return                            # it has ended already
        with contextlib.suppress(SpawnerError):
            await self._link.request("kill", run=spool.run_name(run))

    def _listen_for_wakes(self) -> None:
        if self._wake_socket is not None:
            return
        path = self._reach / WAKE_NAME
        path.unlink(missing_ok=True)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        sock.bind(str(path))
        path.chmod(0o622)
        self._wake_socket = sock
        asyncio.get_running_loop().add_reader(sock, self._woken)

    def _spawner_lost(self) -> None:
        async def start_again() -> None:
            with contextlib.suppress(SpawnerError):
                await self._link.connect()
        task = asyncio.create_task(start_again())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ---- events -----------------------------------------------------------------------------------------------------

    def _woken(self) -> None:
        assert self._wake_socket is not None
        names = set()
        for _ in range(256):
            try:
                names.add(self._wake_socket.recv(256))
            except OSError:
                break
        for name in names:
            run = spool.parse_run_name(name.decode(errors="replace"))
            if run in self._runs:
                assert run is not None
                self._read(run)

    async def _scan(self) -> None:
        while True:
            await asyncio.sleep(SCAN_INTERVAL_S)
            for run, record in list(self._runs.items()):
                if record.finished_sequence is None:
                    self._read(run)

    def _read(self, run: RunId) -> None:
        record = self._runs[run]
        try:
            entries = record.reader.read_new()
        except OSError:
            return
        for sequence, entry in entries:
            kind = entry.pop("kind")
            if kind == "launched":
                record.credential = str(entry.get("credential", ""))
            if kind in _INTERNAL:
                continue
            if kind in ("finished", "launch_failed"):
                record.finished_sequence = sequence
            event = _event(run, kind, entry, sequence)
            if kind == "launch_failed" and event.data.get("reason") == "NotStarted":
                record.is_forgotten, record.not_started = True, event
            elif record.wanted:
                self._put(event)
        self._settle(run, record)
        if record.finished_sequence is not None and not record.wanted:
            self._forget(run)

    def _put(self, event: Event) -> None:
        self._events.put_nowait(event)

    async def events(self) -> AsyncIterator[Event]:
        while True:
            yield await self._events.get()

    async def acknowledge(self, run: RunId, sequence: int) -> None:
        record = self._runs.get(run)
        if record is not None and record.finished_sequence is not None and sequence >= record.finished_sequence:
            record.is_forgotten = True
            self._settle(run, record)

    def _forget(self, run: RunId) -> None:
        self._runs.pop(run, None)
        with contextlib.suppress(OSError):
            spool.forget(self._run, self._reach, run)

    # ---- orders -----------------------------------------------------------------------------------------------------

    async def launch(self, order: LaunchOrder) -> None:
        if order.run in self._runs:
            return
        journal = self._run / spool.run_name(order.run) / JOURNAL_NAME
        record = self._runs[order.run] = _Run(JournalReader(str(journal)), order.credential, ordered=True)
        try:
            made = run_order(order, self._nodes, self._controller_url)
            made.het_heads = [[await self.step_address(RunId(job.job_id, job.restarts)), job.credential]
                              for job in order.het_jobs]
            plain = made.to_json()
            await self._request_surely("launch", order=plain)
        except (SpawnerError, ValueError) as error:
            if journal.exists():              # a spawner that could not answer any more has launched it
                return
            self._runs.pop(order.run, None)
            self._put(Event("launch_failed", order.run, time.time(),
                            data={"node": order.job.batch_host, "reason": "LaunchFailed", "message": str(error)}))
        finally:
            record.ordered = False
            self._settle(order.run, record)

    def _settle(self, run: RunId, record: _Run) -> None:
        """The journal is what keeps a run from being launched again: it goes when no order to do so is under way."""
        if record.is_forgotten and not record.ordered and self._runs.get(run) is record:
            self._forget(run)
            if record.not_started is not None and record.wanted:
                self._put(record.not_started)

    async def _request_surely(self, op: str, **fields: Any) -> None:
        """Asks the next spawner when one dies meanwhile: what was done already is not done twice."""
        while True:
            try:
                await self._link.request(op, **fields)
                return
            except SpawnerLost:
                await asyncio.sleep(0.05)

    async def step_address(self, run: RunId) -> str:
        return addresses.unix_address(str(self._reach / spool.run_name(run) / "n0"))

    async def _order(self, run: RunId, op: str, **fields: Any) -> dict[str, Any] | None:
        """The step daemon's answer; None when it is gone (its events tell how)."""
        record = self._runs.get(run)
        if record is None:
            return None
        if not record.credential:
            self._read(run)
        return await ask(await self.step_address(run), record.credential, op, **fields)

    async def signal(self, run: RunId, signal: int, *, steps: bool = True, batch: bool = False,
                     step_id: str | None = None, quiet: bool = False) -> None:
        await self._order(run, "signal", signal=signal, steps=steps, batch=batch, step=step_id, quiet=quiet)

    async def terminate(self, run: RunId, *, cause: str, grace_s: float, signal_first: int | None = None,
                        uid: int = 0) -> None:
        if run not in self._runs:
            self._put(Event("finished", run, time.time(), data={"reason": "NotStarted"}))
            return
        answer = await self._order(
            run, "terminate", cause=cause, grace_s=grace_s, signal_first=signal_first, uid=uid)
        if answer is None and run in self._runs:
            self._read(run)                   # a daemon that is gone has said why, or its spawner does; else it hangs
            record = self._runs.get(run)
            if record is not None and record.finished_sequence is None:
                with contextlib.suppress(SpawnerError):
                    await self._link.request("kill", run=spool.run_name(run))

    async def suspend(self, run: RunId) -> None:
        await self._order(run, "suspend")

    async def resume(self, run: RunId) -> None:
        await self._order(run, "resume")

    async def look(self, run: RunId) -> Mapping[str, Mapping[str, Any]]:
        answer = await self._order(run, "look")
        return (answer or {}).get("steps") or {}

    async def notify(self, run: RunId, text: str) -> None:
        await self._order(run, "notify", text=text)

    async def update(self, run: RunId, *, end_by_s: float | None) -> None:
        await self._order(run, "update", end_by_s=end_by_s)

    # ---- the end ----------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        if self._scanner is not None:
            self._scanner.cancel()
            self._scanner = None
        if self._wake_socket is not None:
            asyncio.get_running_loop().remove_reader(self._wake_socket)
            self._wake_socket.close()
            self._wake_socket = None
        self._link.close()

    async def shutdown(self) -> None:
        running = [run for run, record in self._runs.items() if record.finished_sequence is None]
        await asyncio.gather(*(self._order(run, "terminate", cause="SHUTDOWN", grace_s=0) for run in running))
        deadline = time.monotonic() + 5
        while running and time.monotonic() < deadline:
            for run in running:
                if run in self._runs:
                    self._read(run)
            running = [run for run in running if run in self._runs and self._runs[run].finished_sequence is None]
            await asyncio.sleep(0.02)
        await self._link.stop()
        with contextlib.suppress(OSError):
            os.unlink(self._reach / WAKE_NAME)
        await self.close()


def _event(run: RunId, kind: str, entry: dict[str, Any], sequence: int) -> Event:
    return Event(kind, run, float(entry.pop("at_s", 0.0)), step_id=str(entry.pop("step_id", "")),
                 exit_status=int(entry.pop("exit_status", 0)), data=entry, sequence=sequence)
