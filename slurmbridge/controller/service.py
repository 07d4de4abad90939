"""The controller: builds the world from configuration and ledger, runs its tasks, and stops cleanly.

Clock, engine and ledger are given from outside. ``start`` returns when commands may be served; ``stopped`` is set when
the controller wants to end (told to, or its ledger failed); ``close`` lets everything go and leaves jobs running.
"""
from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from slurmbridge.accounting.directory import apply_operations, ensure_content
from slurmbridge.accounting.errors import LedgerTaken
from slurmbridge.accounting.ledger import Ledger
from slurmbridge.accounting.operations import AddChange, SaveEvent, SaveMeta, SaveUsage
from slurmbridge.cluster.port import Engine
from slurmbridge.controller import access, cluster_columns, directory_rights, job_texts, queueing, recovery, resources
from slurmbridge.controller.accrue import Accrual
from slurmbridge.controller.acts import ControllerActs
from slurmbridge.controller.books import Books
from slurmbridge.controller.events import EngineNews
from slurmbridge.controller.evictions import Evictions
from slurmbridge.controller.inventory import make_nodes, make_partitions
from slurmbridge.controller.jobs import JobStore
from slurmbridge.controller.journal import Journal
from slurmbridge.controller.launching import Launching
from slurmbridge.controller.life import Cause, JobLife
from slurmbridge.controller.limit_book import LimitBooks
from slurmbridge.controller.node_health import NodeHealth
from slurmbridge.controller.node_updates import NodeUpdates, PartitionUpdates
from slurmbridge.controller.nodes import show_to_scheduler
from slurmbridge.controller.passes import Passes
from slurmbridge.controller.priorities import Priorities
from slurmbridge.controller.reconfigure import reconfigure
from slurmbridge.controller.refunds import RunBook
from slurmbridge.controller.reservation_updates import ReservationUpdates
from slurmbridge.controller.reservations import META_KEY, Reservations
from slurmbridge.controller.resources import Resources
from slurmbridge.controller.submission import Submission
from slurmbridge.controller.timers import Timers
from slurmbridge.controller.transitions import Event
from slurmbridge.controller.views import ControllerViews
from slurmbridge.controller.world import Pace, World
from slurmbridge.health.policy import Policy
from slurmbridge.health.rules import DEFAULTS
from slurmbridge.scheduling.queue import QueueColumns
from slurmbridge.slurm import errors, node_states
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.slurm.settings import SlurmConf
from slurmbridge.views.records import JobRecord, NodeRecord
from slurmbridge.views.session import Identity

log = logging.getLogger(__name__)
_LOG_LEVELS = {"quiet": logging.CRITICAL, "fatal": logging.CRITICAL, "error": logging.ERROR, "info": logging.INFO,
               "verbose": logging.INFO}
"""SlurmctldDebug's words but debug and above."""
TICK_S = 0.25
DOWN_GRACE_S = 2.0
META_EVERY_S = 5.0


class Controller:
    """One cluster's controller. Raises LedgerError, ConfError or OSError from ``start``."""

    def __init__(self, conf: SlurmConf, engine: Engine, ledger: Ledger, clock: Callable[[], float],
                 queries: Any, controller_url: str = "", health: Policy | None = None,
                 pace: Pace | None = None) -> None:
        now = clock()
        self._state = ledger.load()
        state = self._state
        self.ledger = ledger
        self.stopped = asyncio.Event()
        self.failure: BaseException | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._initial_operations = ensure_content(
            state.accounting, conf.cluster_name, conf.accounting_storage_tres, now)
        nodes = make_nodes(conf, now)
        partitions = make_partitions(conf, nodes)
        jobs = JobStore(max(conf.first_job_id, state.next_job_id), conf.max_job_id)
        self.journal = Journal(ledger.write, self._ledger_failed)
        columns, settings = cluster_columns.make_columns(conf, nodes, partitions)
        self.world = world = World(
            conf=conf, clock=clock, engine=engine, ledger=ledger, journal=self.journal, jobs=jobs, nodes=nodes,
            partitions=partitions, accounting=state.accounting, columns=columns, queue=QueueColumns(),
            settings=settings, controller_url=controller_url, boot_s=now, pace=pace or Pace())
        recovery.restore_settings(world, state.nodes, state.partitions)
        for record in world.partitions.values():
            cluster_columns.partition_changed(world, record)
        for node in nodes.values():
            show_to_scheduler(node, columns)
        self.meta = meta = state.meta
        world.priorities = Priorities(
            conf, state.accounting, world.partitions, nodes,
            last_ran_s=float(meta["priority_last_ran"]) if "priority_last_ran" in meta else None,
            last_reset_s=float(meta["priority_last_reset"]) if "priority_last_reset" in meta else None)
        world.limits = LimitBooks(conf, state.accounting, world.partitions, jobs.active.values, clock)
        world.accrual = Accrual(world)
        world.limits.billing = world.priorities.billing
        world.limits.tres_total = lambda name: (
            world.priorities.partition_tres(name) if name else self._cluster_tres())
        world.limits.fair_shares = lambda: {
            row["assoc"].id: row["fair_share"] for row in world.priorities.shares() if row["fair_share"] is not None}
        world.limits.accrued_until_s = lambda: world.priorities.last_ran_s
        self.reservations = world.reservation_book = Reservations(world, lambda job: queueing.refresh(world, job))
        self.reservations.load(meta.get(META_KEY))
        self.resources = Resources(world)
        self.resources.load(meta.get(resources.META_KEY))
        self.life = JobLife(world)
        self.submission = Submission(world)
        evictions = Evictions(world, self.life)
        self.timers = Timers(world, self.life, evictions)
        self.reservations.arm = self.timers.arm
        self.journal.prepare = self.reservations.note
        self.news = EngineNews(world, self.life, self.timers.ends_at)
        self.launching = Launching(world, self.life, self.timers.ends_at)
        self.passes = Passes(world, self.life, evictions)
        self.node_updates = NodeUpdates(world, self.news.fail_node)
        self.partition_updates = PartitionUpdates(world)
        policy = health or Policy(DEFAULTS)
        world.max_node_fail_requeue = policy.max_node_fail_requeue
        world.priorities.usage.runs = RunBook() if policy.refunds_runs else None
        self.health = self.news.health = NodeHealth(world, policy, meta, self.partition_updates,
                                                    self.news.node_failed)
        world.nodes_released, world.node_taken_over = self.health.released, self.health.taken_over
        self.life.on_work = self.launching.work
        self.life.on_change = self.timers.arm
        world.wake, world.wake_later = self.passes.wake, self.passes.wake_later
        world.split = lambda job, task: queueing.split(world, job, task)
        world.judge = lambda job: self.life.judge_dependents([job])
        world.limit_changed = self.launching.limit_changed
        world.refresh_priorities = self.passes.update_priorities
        world.node_changed = self._node_changed
        world.usage_ended = self._usage_ended
        self._node_events: dict[str, float] = dict(state.open_events)
        self._last_events: dict[str, tuple[str, str, int | None]] = dict(state.last_events)
        self.books = Books(world, meta, self._node_events, self._last_events, queries.ask)
        world.roll_up = self.books.catch_up
        self.views = ControllerViews(world, queries)
        self.acts = ControllerActs(world, self.life, self.submission, self.node_updates, self.partition_updates,
                                   ReservationUpdates(world, self.reservations), self)
        self._last_meta = now
        self._saved_ran: float | None = None
        self._saved_usage = 0.0

    # --- life of the controller
    async def start(self) -> None:
        """Puts back what was, adopts what runs, and begins to work."""
        world = self.world
        for operation in self._initial_operations:
            self.journal.add(operation)
        holding = recovery.restore_jobs(world, self._state.jobs)
        await self.journal.durable()
        for job in world.jobs.values():
            self.timers.arm(job)
        spawn = asyncio.get_running_loop().create_task
        self._tasks = [spawn(self.launching.run())]
        await recovery.recover(world, self.life, holding)
        await self._take_inventory()
        self._cluster_event()
        self._tasks += [spawn(self.news.run()), spawn(self.passes.run()), spawn(self._tick())]
        for task in self._tasks:
            task.add_done_callback(self._task_ended)
        self._state = None  # type: ignore[assignment]
        self.ledger.endure(self._ledger_troubled)
        world.wake()

    async def _take_inventory(self) -> None:
        """What the engine knows better than slurm.conf."""
        for found in await self.world.engine.inventory():
            node = self.world.nodes.get(found.name)
            if node is None:
                continue
            for name in ("arch", "os", "boot_s", "daemon_start_s", "cpu_load", "free_mem_mb"):
                value = getattr(found, name)
                if value:
                    setattr(node, name, value)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and not (self.passes.stopped and task.exception() is None):
            self.failure = task.exception() or RuntimeError("a task of the controller ended")
            log.error("controller task failed", exc_info=self.failure)
            self.stopped.set()

    async def _tick(self) -> None:
        world = self.world
        while True:
            await asyncio.sleep(TICK_S)
            try:
                self.timers.run()
                self.health.tick()
                if world.reservations:
                    self.reservations.run()
                self._save_meta()
                self.books.tick()
            except Exception:
                log.exception("timers")

    def _save_meta(self) -> None:
        """Usage and the times a restart goes on from."""
        now = self.world.now()
        if now - self._last_meta < META_EVERY_S and now >= self._last_meta:
            return
        self._last_meta = now
        self._save_period()

    def _save_period(self) -> None:
        """What the last decay period made of all usage, together with its time: both are old or both are new."""
        world, now = self.world, self.world.now()
        last_ran = world.priorities.last_ran_s
        if last_ran is not None and self._saved_ran != last_ran:
            self._saved_ran = last_ran
            self.journal.add(SaveMeta("priority_last_ran", repr(last_ran)))
            last_reset = world.priorities.last_reset_s
            if last_reset is not None:
                self.journal.add(SaveMeta("priority_last_reset", repr(last_reset)))
            if world.jobs.active or now - self._saved_usage > 300:
                self._saved_usage = now
                self._save_usage()

    def _usage_ended(self, job: JobRecord) -> None:
        """The usage that a run added is durable with its end."""
        world = self.world
        self._save_period()
        qos = [world.accounting.qos.get(name) for name in {job.qos, getattr(
            world.partitions.get(job.partition), "qos", "")}]
        self.journal.add(SaveUsage(tuple(world.limits.chain(job.assoc_id)), tuple(one for one in qos if one)))
        self.books.run_ended(job)

    def _save_usage(self) -> None:
        accounting = self.world.accounting
        self.journal.add(SaveUsage(tuple(accounting.associations.values()), tuple(accounting.qos.values())))

    def _ledger_failed(self, error: BaseException) -> None:
        """Memory is ahead of what is written: the controller must not answer any more."""
        if self.failure is None:
            self.failure = error
            log.critical("%s", error)
        self.stopped.set()

    def _ledger_troubled(self, text: str) -> None:
        """Nothing new is accepted or started until the ledger can be written again; what runs goes on."""
        if text:
            log.error("%s; it is tried again until it works", text)
        else:
            log.info("the ledger can be written again")
        self.journal.set_trouble(text)
        self.launching.work()
        self.world.wake()

    def depose(self, text: str) -> None:
        """Another controller leads, or may: nothing more is written, told or started here."""
        self._ledger_failed(LedgerTaken(text))

    def request_stop(self) -> None:
        self.stopped.set()

    async def close(self, *, end_runs: bool = False) -> None:
        """Ends the tasks, writes what is left and lets go of the engine; ``end_runs`` first ends what it started."""
        if end_runs and self.failure is None:
            await self._end_runs()
        self.passes.stopped = True
        for task in self._tasks:
            task.remove_done_callback(self._task_ended)
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.failure is None:
            self._save_period()
            self._save_usage()
            with contextlib.suppress(Exception):
                await self.journal.acknowledged()
        await self.world.engine.close()
        self.books.close()
        self.ledger.close()

    async def _end_runs(self) -> None:
        """slurmbridge down: running jobs are cancelled; what is pending waits for the next start."""
        self.passes.stopped = True
        active = self.world.jobs.active
        for job in list(active.values()):
            grace_s = min(DOWN_GRACE_S, float(self.world.conf.kill_wait_s))
            with contextlib.suppress(SlurmError):
                self.life.apply(job, Event.CANCEL, Cause(uid=0, grace_s=grace_s))
        end = asyncio.get_running_loop().time() + DOWN_GRACE_S + 8
        while active and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(0.02)
        try:
            async with asyncio.timeout(30):
                await self.world.engine.shutdown()
        except Exception:
            log.exception("engine shutdown")

    # --- what acts and views ask of the controller as a whole
    def change_accounting(self, caller: Identity, operations: Sequence[Mapping[str, Any]]) -> None:
        """Raises SlurmError."""
        world = self.world
        if not access.is_operator(caller, world):
            directory_rights.check(caller.user_name, operations, world.accounting)
        used = {job.assoc_id for job in world.jobs.values()}
        for change in apply_operations(world.accounting, operations, world.now(), actor=caller.user_name, used=used):
            self.journal.add(change)
        world.limits.changed()
        world.wake_later()

    def import_usage(self, rows: Sequence[tuple[str, str, float]]) -> None:
        """Raises SlurmError for an association that does not exist."""
        try:
            self.world.priorities.set_usage(rows)
        except KeyError as error:
            raise SlurmError(errors.ESLURM_INVALID_ASSOC, f"no such association: {error}") from None
        self._save_usage()
        self.journal.add(AddChange(self.world.now(), "Import Usage", "root", "", f"{len(rows)} associations"))

    def reconfigure(self) -> None:
        """slurm.conf is read again. Raises SlurmError."""
        reconfigure(self.world, self.partition_updates.delete)
        self.resources.count()
        self.passes.configure()
        self.launching.configure()

    def set_conf(self, key: str, value: str) -> None:
        """Until slurm.conf is read again. SlurmctldDebug is the level of the controller's log."""
        self.world.conf.values[key] = value
        if key == "SlurmctldDebug":
            logging.getLogger().setLevel(_LOG_LEVELS.get(value, logging.DEBUG))

    def _node_changed(self, node: NodeRecord) -> None:
        """Lines of ``sacctmgr show event``."""
        now = float(int(self.world.now()))
        state, number = event_state(node)
        said = (state, node.reason, node.reason_uid)
        if state and node.name in self._node_events and self._last_events.get(node.name) == said:
            return
        start = self._node_events.pop(node.name, None)
        if start is not None:
            self.journal.add(SaveEvent(node.name, start, now, *self._last_events.get(node.name, ("", "", None)),
                                       tres=self._node_tres(node)))
        if state:
            while start is not None and now <= start:
                now += 1
            self._node_events[node.name] = now
            self._last_events[node.name] = said
            self.journal.add(SaveEvent(node.name, now, None, state, node.reason, node.reason_uid,
                                       tres=self._node_tres(node), state_raw=number))

    @staticmethod
    def _node_tres(node: NodeRecord) -> dict[str, int]:
        tres = {"cpu": node.cpus, "mem": node.real_memory_mb}
        for name, count in node.gres.items():
            kind = name.partition(":")[0]
            tres[f"gres/{kind}"] = tres.get(f"gres/{kind}", 0) + count
            if ":" in name:
                tres[f"gres/{name}"] = tres.get(f"gres/{name}", 0) + count
        return tres

    def _cluster_tres(self) -> dict[str, int]:
        world = self.world
        total: dict[str, int] = {**dict.fromkeys(world.accounting.tres, 0), "node": len(world.nodes)}
        for node in world.nodes.values():
            for name, count in self._node_tres(node).items():
                total[name] = total.get(name, 0) + count
        total["billing"] = total.get("cpu", 0)
        return total

    def _cluster_event(self) -> None:
        """The cluster's size, when it changed since the last start."""
        world, now = self.world, float(int(self.world.now()))
        total = self._cluster_tres()
        start = self._node_events.pop("", None)
        nodes = job_texts.hostlist(world, tuple(world.nodes))
        text = repr(sorted(total.items())) + nodes
        if start is not None and self._state.meta.get("cluster_tres") == text:
            self._node_events[""] = start
            return
        if start is not None:
            self.journal.add(SaveEvent(
                "", start, max(now, start + 1), "", "Cluster Registered TRES", tres=total, nodes=nodes))
            now = max(now, start + 1)
        self._node_events[""] = now
        self.journal.add(SaveEvent("", now, None, "", "Cluster Registered TRES", tres=total, nodes=nodes))
        self.journal.add(SaveMeta("cluster_tres", text))


def event_state(node: NodeRecord) -> tuple[str, int]:
    """What the node cannot be used for, as sacctmgr's events say it and as Slurm's number; ("", 0) for a usable one."""
    is_down = node.base_state in ("DOWN", "UNKNOWN", "FUTURE", "ERROR")
    busy = any(job_id not in node.paused for job_id in node.job_ids)         # a suspended job keeps no node from DRAIN
    if not is_down and (not {"DRAIN", "FAIL"} & node.flags or busy):         # draining: no event yet
        return "", 0
    number = node_states.number(node.base_state, node.flags)
    return node_states.shown(number, compact=True), number
