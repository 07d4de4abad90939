"""The controller's bookkeeping beside the jobs: usage rolled up every hour, and other Slurms' records taken in.

The roll-up reads the ledger over a connection of its own, in a thread; the event loop only starts it.
"""
from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from slurmbridge.accounting import archive
from slurmbridge.accounting import operations as ops
from slurmbridge.accounting.corrections import Change, corrected
from slurmbridge.accounting.history import HistoryError, read_events, read_history
from slurmbridge.accounting.reimport import known_again
from slurmbridge.accounting.reservation_history import order_of, read_reservations
from slurmbridge.accounting.rolling import ROLLED, Roller, Settings, default_qos_of
from slurmbridge.accounting.rollup import HOUR_S
from slurmbridge.controller import access
from slurmbridge.controller.world import World
from slurmbridge.slurm import errors, states
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.slurm.zones import Zone
from slurmbridge.views.records import JobRecord
from slurmbridge.views.session import Identity

log = logging.getLogger(__name__)
SETTLING_S, RETRY_S = 30.0, 60.0
"""How long after an hour's end its last records are waited for; a report does not wait."""
ORDER = "association_order"
FIRST_CONFIGURED_TRES = 1001
BATCH = 2000
USERS_OWN = frozenset({"comment", "extra", "derived", "wckey", "tres_alloc"})


class Books:
    """``open_events`` and ``last_events`` are the controller's: which event of each node goes on, and what it said."""

    def __init__(self, world: World, meta: Mapping[str, str], open_events: dict[str, float],
                 last_events: dict[str, tuple[str, str, int | None]], queries: Callable[..., Awaitable[Any]]) -> None:
        self._world = world
        self._queries = queries
        self._zone = Zone.of(os.environ)
        self._roller = Roller(world.ledger.url, world.ledger.write_and_wait)
        self._open_events, self._last_events = open_events, last_events
        self._ranks = _ranks(meta.get(ORDER))
        self._rolled = float(meta.get(ROLLED, "0"))
        self._busy = asyncio.Lock()
        self._failed_at = 0.0
        self._late: asyncio.Future[None] | None = None
        self._hourly: asyncio.Future[None] | None = None

    def close(self) -> None:
        self._roller.close()

    # --- the roll-up
    def tick(self) -> None:
        """To be called often: rolls up when an hour is over."""
        now = self._world.now()
        if now >= self._rolled + HOUR_S + SETTLING_S and not self._busy.locked() and now - self._failed_at > RETRY_S:
            self._hourly = asyncio.ensure_future(self._try())

    async def _try(self) -> None:
        try:
            await self.catch_up()
        except Exception:
            self._failed_at = self._world.now()
            log.exception("usage could not be rolled up; it is tried again")

    async def catch_up(self) -> None:
        """All full hours are rolled up when this returns. Raises LedgerError."""
        async with self._busy:
            now = self._world.now()
            if now < self._rolled + HOUR_S:
                return
            data, conf = self._world.accounting, self._world.conf
            settings = Settings(self._zone, dict(data.tres), default_qos_of(data), conf.tracks_wckeys, self._ranks)
            await asyncio.to_thread(self._roller.catch_up, settings, now)
            self._rolled = self._zone.hour_of(int(now))

    def run_ended(self, job: JobRecord) -> None:
        """An end that became known after its hour was rolled up (the controller was away) is counted all the same."""
        if job.end_s is not None and job.end_s < self._rolled:
            self._late = asyncio.ensure_future(self.changed_since(job.start_s or job.end_s))

    async def changed_since(self, time_s: float) -> None:
        """What was rolled up after this time is worked out again."""
        if time_s >= self._rolled:
            return
        async with self._busy:
            self._rolled = float(self._zone.hour_of(int(time_s)))
            self._world.journal.add(ops.SaveMeta(ROLLED, str(int(self._rolled))))
            await self._world.journal.durable()

    # --- imports
    async def take_over(self, kind: str, text: str, more: str, zone: Zone) -> str:
        """``kind``: history (more: suspensions), events or reservations (more: ids of associations). What was done, as
        a line for the administrator. Raises SlurmError, nothing taken over."""
        ids = {(record.account, record.user): record.id for record in self._world.accounting.associations.values()
               if not record.partition and not record.deleted}
        readers: dict[str, Callable[[], Sequence[ops.Operation]]] = {
            "events": lambda: list(read_events(text, zone)),
            "reservations": lambda: list(read_reservations(text, zone, ids, associations=more)),
            "history": lambda: list(known_again(self._world.ledger.url, list(read_history(
                text, zone, self._world.ledger.next_db_index, suspended=more, ids=ids))))}
        try:
            operations = list(await asyncio.to_thread(readers[kind]))
        except HistoryError as error:
            raise SlurmError(error.number, str(error)) from None
        if kind == "events":
            operations = self._joined(operations)
        if kind == "reservations" and more:
            order = order_of(more, ids)
            self._ranks = {number: place for place, number in enumerate(order)}
            operations.append(ops.SaveMeta(ORDER, json.dumps(order)))
        operations = [*self._new_tres(operations), *operations]
        for start in range(0, len(operations), BATCH):
            await self._world.ledger.write(operations[start:start + BATCH])
        for operation in operations:
            if isinstance(operation, ops.SaveRun):
                self._world.jobs.next_id = max(self._world.jobs.next_id, operation.job[1] + 1)
        await self.changed_since(min((_since(operation) for operation in operations), default=self._rolled))
        if kind == "history":
            await self.catch_up()
        counted = sum(isinstance(one, ops.SaveRun | ops.SaveEvent | ops.SaveReservation) for one in operations)
        return f"{counted} {'runs of jobs' if kind == 'history' else kind} imported\n"

    # --- corrections
    async def change_runs(self, caller: Identity, changes: Sequence[Change]) -> None:
        """What is written of these runs, and of those that the controller still has itself. Raises SlurmError."""
        world = self._world
        if not access.is_operator(caller, world):
            owners = {row["db_index"]: row["uid"] for row in await self._queries("jobs", uids=[caller.uid])}
            if any(number not in owners or set(change) - USERS_OWN for number, change in changes):
                raise SlurmError(errors.ESLURM_ACCESS_DENIED)
        live = {job.db_index: job for job in world.jobs.values()}
        for number, change in changes:
            if number in live:
                _correct(live[number], change)
                world.journal.job(live[number])
        await world.journal.durable()
        operations, since = await asyncio.to_thread(corrected, world.ledger.url, changes)
        await world.ledger.write(operations)
        await self.changed_since(since)

    # --- archives
    async def archive(self, parts: Sequence[tuple[str, int, bool]], directory: str) -> None:
        """Records of these kinds from before these times go, into files where so wanted. Raises SlurmError."""
        world = self._world
        await self.catch_up()
        wanted = [archive.Part(*part) for part in parts]
        async with self._busy:
            try:
                await asyncio.to_thread(archive.dump, world.ledger.url, world.ledger.write_and_wait, wanted,
                                        Path(directory), world.conf.cluster_name, self._zone)
            except archive.ArchiveError as error:
                raise SlurmError(error.number, str(error)) from None

    async def load_archive(self, path: str) -> None:
        """Archived records are back; their usage was there all the time. Raises SlurmError, nothing loaded."""
        try:
            batches = await asyncio.to_thread(lambda: list(archive.load(Path(path))))
        except archive.ArchiveError as error:
            raise SlurmError(error.number, str(error)) from None
        for operations in batches:
            await self._world.ledger.write(operations)

    def _new_tres(self, operations: Sequence[ops.Operation]) -> list[ops.Operation]:
        """TRES that the records name and that were not known here."""
        tres = self._world.accounting.tres
        named = dict.fromkeys(name for operation in operations for name in _tres_of(operation))
        found: list[ops.Operation] = []
        for name in named:
            if name not in tres:
                tres[name] = max(FIRST_CONFIGURED_TRES - 1, *tres.values()) + 1
                found.append(ops.SaveTres(name, tres[name]))
        if found:
            self._world.accounting.generation += 1
        return found

    def _joined(self, operations: Sequence[ops.Operation]) -> list[ops.Operation]:
        """Their events before ours. The cluster's own that had not ended is the one that goes on, where it is of the
        same size or ours has not lasted a second; an outage that had not ended goes on until the node's next change."""
        result: list[ops.Operation] = []
        for event in operations:
            if isinstance(event, ops.SaveEvent) and event.end_s is None:
                own = self._open_events.get(event.node)
                if event.node and own is None:
                    self._open_events[event.node] = event.start_s
                    self._last_events[event.node] = (event.state, event.reason, event.reason_uid)
                elif not event.node and not event.state_raw and own is not None and event.start_s < own:
                    is_same = self._is_same_size(event.tres)
                    if is_same or own >= int(self._world.now()):
                        result.append(ops.DropEvent("", own))
                        if not is_same:        # it registers with its size at the next start
                            result.append(ops.SaveMeta("cluster_tres", ""))
                        self._open_events[""] = event.start_s
                    else:
                        event = ops.SaveEvent("", event.start_s, own, event.state, event.reason, event.reason_uid,
                                              event.tres, event.nodes)
            result.append(event)
        return result

    def _is_same_size(self, tres: Mapping[str, int]) -> bool:
        nodes = self._world.nodes.values()
        return (tres.get("cpu"), tres.get("node")) == (sum(node.cpus for node in nodes), len(nodes))


def _correct(job: JobRecord, change: Mapping[str, Any]) -> None:
    """As the ledger will have it, so that the next change of the job does not undo it."""
    for name, value in change.items():
        if name == "extra":
            job.request.extra = value
        elif name == "derived":
            job.derived_exit_status = value
        elif name == "tres_alloc" and job.state in states.FINISHED:
            job.tres_alloc = {**job.tres_alloc, **value}
        elif name in ("comment", "admin_comment", "system_comment", "wckey"):
            setattr(job, name, value)


def _ranks(text: str | None) -> dict[int, int]:
    return {number: place for place, number in enumerate(json.loads(text))} if text else {}


def _since(operation: ops.Operation) -> float:
    """The earliest time whose usage the operation changes."""
    if isinstance(operation, ops.SaveRun):
        return float(operation.job[17] or operation.job[16])      # eligible, or submitted
    if isinstance(operation, ops.SaveEvent | ops.SaveReservation):
        return operation.start_s
    return float("inf")


def _tres_of(operation: ops.Operation) -> Mapping[str, Any]:
    if isinstance(operation, ops.SaveEvent | ops.SaveReservation):
        return operation.tres
    if isinstance(operation, ops.SaveRun):
        data: dict[str, Any] = json.loads(operation.job[-1])
        return data.get("tres_alloc") or {}
    return {}
