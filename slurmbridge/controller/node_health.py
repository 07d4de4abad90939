"""Health of nodes in the controller: what the engine sees goes to the monitor, verdicts come back as states and acts.

The judgement is ``slurmbridge.health``; this module keeps it durable, carries verdicts out on records, columns and
jobs, and lets administrators look, undo and set stages.
"""
from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal as signals
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from slurmbridge.accounting.operations import SaveMeta
from slurmbridge.controller import node_verdicts, nodes, queueing
from slurmbridge.controller.life import Cause
from slurmbridge.controller.node_updates import PartitionUpdates
from slurmbridge.controller.transitions import Phase, phase_of
from slurmbridge.controller.world import World
from slurmbridge.health import sight
from slurmbridge.health.acting import JobFacts, concerned
from slurmbridge.health.explain import explain, overview
from slurmbridge.health.monitor import Monitor
from slurmbridge.health.policy import STAGES, WARN, Policy
from slurmbridge.health.verdict import Act, Verdict
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.views.records import JobRecord, NodeRecord

log = logging.getLogger(__name__)
META = "health"
"""Key of the ledger's meta table: ``health`` for what concerns the cluster, ``health/NODE`` for each node."""
TICK_S = 1.0
_RUNS = (Phase.STARTING, Phase.RUNNING, Phase.SUSPENDED)


class NodeHealth:
    """``lose`` ends a job as one that lost a node, requeued where it may be."""

    def __init__(self, world: World, policy: Policy, meta: Mapping[str, str], partitions: PartitionUpdates,
                 lose: Callable[[JobRecord, Cause], None]) -> None:
        self._world, self._partitions, self._lose = world, partitions, lose
        kept = json.loads(meta.get(META) or "{}")
        policy = replace(policy, stages={**policy.stages, **kept.get("stages", {})})
        self._stages: dict[str, str] = dict(kept.get("stages", {}))
        self.monitor = Monitor(policy, world.now())
        self.monitor.load(kept, {key.removeprefix(f"{META}/"): json.loads(text) for key, text in meta.items()
                                 if key.startswith(f"{META}/") and text})
        self._saved = {key: text for key, text in meta.items() if key.split("/")[0] == META}
        self._warned: set[tuple[int, int, tuple[str, str]]] = set()
        self._verdicts: dict[str, Verdict] = {}
        self._ticked_s = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        for node in world.nodes.values():
            node_verdicts.recognise(node)
            if node.name in self.monitor.nodes:
                self._place(node)
                self._apply(node)

    # ---- what is told -----------------------------------------------------------------------------------------------

    def see(self, name: str, data: Mapping[str, Any] | None) -> None:
        """``data`` as ``cluster.port.Event`` describes; None: the node object is gone."""
        node, now = self._world.nodes.get(name), self._world.now()
        if node is None:
            return
        self._place(node)
        if data is None:
            self.monitor.gone(name, now)
        else:
            self.monitor.see(sight.read(name, data), now)
        self._apply(node)

    def _place(self, node: NodeRecord) -> None:
        place = self.monitor.places.get(node.name)
        kind = ",".join(f"{name}:{count}" for name, count in sorted(node.gres.items())) or f"cpu:{node.cpus}"
        if place is None or (place.partitions, place.kind) != (node.partitions, kind):
            self.monitor.place(node.name, node.partitions, kind)

    def launch_failed(self, name: str) -> None:
        node = self._world.nodes.get(name)
        if node is not None:
            self._place(node)
            self.monitor.launch_failed(name, self._world.now())
            self._apply(node)

    def launched(self, names: Iterable[str]) -> None:
        for name in names:
            if self.monitor.launched(name):
                self._save_node(name)

    def released(self, names: Iterable[str]) -> None:
        """A job left these nodes: devices that are missing stay closed, a drained one that is empty is down now."""
        for name in names:
            node = self._world.nodes.get(name)
            if node is None:
                continue
            if node.flags & {"DRAIN", "FAIL"} and not node.job_ids:
                self._world.node_changed(node)
            if name in self._verdicts:
                self._apply(node)

    def tick(self) -> None:
        now = self._world.now()
        if now - self._ticked_s < TICK_S and now >= self._ticked_s:
            return
        self._ticked_s = now
        for name in {*self.monitor.tick(now), *(name for name, one in self._verdicts.items() if one.acts or one.state)}:
            node = self._world.nodes.get(name)
            if node is not None:
                self._apply(node)
        for line in self.monitor.alerts:
            log.warning("health: %s", line)
        self.monitor.alerts.clear()
        self._close_partitions()
        self._save_rest()

    def _close_partitions(self) -> None:
        """Whose nodes do not come up: INACTIVE until an administrator says UP; not while a job runs there."""
        for name in list(self.monitor.to_close):
            record = self._world.partitions.get(name)
            if record is None or record.state != "UP":
                self.monitor.to_close.discard(name)
            elif not any(job.partition == name for job in self._world.jobs.active.values()):
                self.monitor.to_close.discard(name)
                self._partitions.update(name, {"state": "INACTIVE"}, create=False)

    # ---- verdicts are carried out -----------------------------------------------------------------------------------

    def _apply(self, node: NodeRecord) -> None:
        world, now = self._world, self._world.now()
        seen = self.monitor.sights.get(node.name)
        pods = seen.pods if seen is not None else {}
        is_busy = bool(node.job_ids) or pods is None or any(state != sight.OVER for state in pods.values())
        verdict = self.monitor.verdict(node.name, now, is_busy=is_busy)
        if verdict != Verdict(node.name):
            self._verdicts[node.name] = verdict
        else:
            self._verdicts.pop(node.name, None)
        changed = node_verdicts.put(node, verdict, now, (world.conf.slurm_user, world.conf.slurm_uid))
        if changed:
            log.info("node %s: %s %s", node.name, verdict.state or "usable", verdict.reason)
            world.node_changed(node)
        if node_verdicts.show(world, node, verdict) or changed:
            nodes.show_to_scheduler(node, world.columns)
            world.admitted.clear()
            world.nodes_returned |= nodes.is_available(node)
            queueing.nodes_changed(world)
            world.wake()
        for act in verdict.acts:
            self._act(node, act, pods)
        self._save_node(node.name)

    def _act(self, node: NodeRecord, act: Act, pods: Mapping[int, str] | None) -> None:
        world = self._world
        jobs = [job for job_id in sorted(node.job_ids) if (job := world.jobs.active.get(job_id)) is not None
                and phase_of(job) in _RUNS]
        facts = [JobFacts(job.job_id, job.partition, any(
            one.gres for one in job.allocation if one.node == node.name), job.start_s or 0.0) for job in jobs]
        for job_id in concerned(act, facts, pods, self.monitor.policy):
            job = world.jobs.active[job_id]
            if job.request.no_kill and len(job.nodes) > 1:
                continue
            if act.action == WARN:
                self._warn(job, act)
            else:
                log.warning("job %d loses node %s: %s", job_id, node.name, act.reason)
                job.system_comment = act.reason
                self._lose(job, Cause(uid=0, node=node.name))

    def _warn(self, job: JobRecord, act: Act) -> None:
        """The signal of --signal, once a run and cause: a checkpoint is still possible."""
        key = (job.job_id, job.restarts, act.cause)
        number = job.request.signal_number
        if number is None or key in self._warned:
            return
        self._warned.add(key)
        run, batch = self._world.run_of(job), job.request.signal_batch

        async def send() -> None:
            with contextlib.suppress(SlurmError, OSError):
                await self._world.engine.signal(run, signals.Signals(number), steps=not batch, batch=batch)
        task = asyncio.get_running_loop().create_task(send())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ---- what is durable --------------------------------------------------------------------------------------------

    def _save(self, key: str, plain: Mapping[str, Any] | None) -> None:
        text = json.dumps(plain, sort_keys=True) if plain else ""
        if self._saved.get(key, "") != text:
            self._saved[key] = text
            self._world.journal.add(SaveMeta(key, text))

    def _save_node(self, name: str) -> None:
        memory = self.monitor.nodes.get(name)
        if memory is not None:
            self._save(f"{META}/{name}", memory.dump())

    def _save_rest(self) -> None:
        plain = {key: value for key, value in {**self.monitor.dump(), "stages": self._stages}.items() if value}
        self._save(META, plain)

    # ---- administrators ---------------------------------------------------------------------------------------------

    def explain(self, name: str) -> str:
        """Raises KeyError for a node that is not there."""
        node, now = self._world.nodes[name], self._world.now()
        return explain(self.monitor, name, now, self._verdicts.get(name, Verdict(name)),
                       foreign=node.reason if node.reason and not node.set_by_health else "")

    def overview(self) -> str:
        return overview(self.monitor, self._verdicts, self._world.now())

    def undo(self, names: Iterable[str] | None) -> list[str]:
        """Lifts what was set on these nodes (None: on all), until the same is said of them anew. Names of those that
        it concerned."""
        found = []
        for name in sorted(self._verdicts if names is None else names):
            if self.monitor.clear(name, self._world.now()):
                found.append(name)
                self._apply(self._world.nodes[name])
        if names is None:
            self.monitor.reset(self._world.now())
        return found

    def configure(self, policy: Policy) -> None:
        """The changed ``health:`` section. Stages that were set by command stand over its own."""
        self._world.max_node_fail_requeue = policy.max_node_fail_requeue
        self.monitor.configure(replace(policy, stages={**policy.stages, **self._stages}), self._world.now())
        for name in list(self.monitor.nodes):
            if name in self._world.nodes:
                self._apply(self._world.nodes[name])

    def set_stage(self, partition: str, stage: str) -> None:
        """Raises ValueError, one line."""
        if stage not in STAGES:
            raise ValueError(f"stage {stage!r} is none of {', '.join(STAGES)}")
        if partition not in self._world.partitions:
            raise ValueError(f"no partition {partition!r}")
        self._stages[partition] = stage
        monitor = self.monitor
        monitor.policy = replace(monitor.policy, stages={**monitor.policy.stages, partition: stage})
        for name in list(monitor.nodes):
            node = self._world.nodes.get(name)
            if node is not None and partition in node.partitions:
                self._apply(node)
        self._save_rest()

    def taken_over(self, node: NodeRecord, state: str) -> None:
        """scontrol update NodeName: the state is the administrator's now; RESUME is a word that the node is well."""
        if state in ("RESUME", "IDLE", "UNDRAIN"):
            self.monitor.clear(node.name, self._world.now())
        node_verdicts.taken_over(node)
        if node.name in self.monitor.nodes:
            self._apply(node)
