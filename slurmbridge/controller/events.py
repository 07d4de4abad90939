"""What the engine tells: news of runs and nodes become events of jobs, durable before the engine may forget them."""
from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import fields, replace

from slurmbridge.cluster.port import Event as News
from slurmbridge.cluster.port import RunId
from slurmbridge.controller import node_arrivals, steps
from slurmbridge.controller.life import Cause, JobLife
from slurmbridge.controller.node_health import NodeHealth
from slurmbridge.controller.transitions import Event, Phase, phase_of
from slurmbridge.controller.world import World
from slurmbridge.slurm import states
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.slurm.settings import NodeLine
from slurmbridge.views.records import JobRecord, StepRecord

log = logging.getLogger(__name__)
CLOCK_SLACK_S = 0.5
NODE_FAIL_STATUS = 1
"""The exit status of a run that was lost with its node, as slurmctld records it."""
_STEP_FIELDS = frozenset(field.name for field in fields(StepRecord))
_NODE_FIELDS = ("cpu_load", "free_mem_mb", "boot_s", "daemon_start_s", "os", "arch", "address", "host_name")


class EngineNews:
    """``run`` listens until cancelled; ``take`` is one piece of news. ``health`` is set once it is there."""

    health: NodeHealth

    def __init__(self, world: World, life: JobLife, ends_at: Callable[[JobRecord], float | None]) -> None:
        self._world = world
        self._life = life
        self._ends_at = ends_at
        self._told: dict[RunId, int] = {}
        self._acknowledging: set[asyncio.Task[None]] = set()
        self._held: dict[int, str] = {}                        # job id -> why its start waits, as its comment says
        self._leaving: dict[RunId, JobRecord] = {}             # their processes are gone, they are still completing

    async def run(self) -> None:
        async for news in self._world.engine.events():
            try:
                self.take(news)
            except Exception:
                log.exception("event %s", news)
            if news.run is not None:
                first = not self._told
                self._told[news.run] = news.sequence
                if first:
                    task = asyncio.get_running_loop().create_task(self._acknowledge())
                    self._acknowledging.add(task)
                    task.add_done_callback(self._acknowledging.discard)

    async def _acknowledge(self) -> None:
        """Once what was told is durable; news that arrive meanwhile are told together."""
        await asyncio.sleep(0)
        told, self._told = self._told, {}
        await self._world.journal.durable()
        for run, sequence in told.items():
            try:
                await self._world.engine.acknowledge(run, sequence)
            except Exception:
                log.exception("acknowledge %s", run)

    def take(self, news: News) -> None:
        if news.run is None:
            if news.kind == "node":
                self._node(news)
            return
        world = self._world
        job = world.jobs.get(news.run.job_id)
        if job is None or world.run_of(job) != news.run:
            return
        handler = getattr(self, "_" + news.kind, None)
        if handler is not None:
            handler(job, news)

    def _held_back(self, job: JobRecord, news: News) -> None:
        self._held[job.job_id] = job.system_comment = str(news.data["message"])
        self._world.tell(job)

    def _started(self, job: JobRecord, news: News) -> None:
        if self._held.pop(job.job_id, "") == job.system_comment:
            job.system_comment = ""
        self.health.launched(job.nodes)
        if self._life.apply(job, Event.STARTED):
            for step in steps.at_start(job, self._world.conf, news.at_s):
                job.steps[step.step_id] = step
                self._world.journal.step(job, step)

    def _step_started(self, job: JobRecord, news: News) -> None:
        step = job.steps.get(news.step_id)
        if step is None:
            step = job.steps[news.step_id] = StepRecord(job.job_id, news.step_id, news.step_id, start_s=news.at_s)
        _fill(step, news.data)
        if not step.tres:                     # of --external-launcher: it has all that the job has
            step.tres, step.cpus = dict(job.tres_alloc), sum(share.cpus for share in job.allocation)
        if news.step_id.isdigit():
            job.next_step = max(job.next_step, int(news.step_id) + 1)
        self._world.journal.step(job, step)
        self._world.journal.job(job)
        self._world.tell(job)

    def _step_ended(self, job: JobRecord, news: News) -> None:
        step = job.steps.get(news.step_id)
        if step is None:
            step = job.steps[news.step_id] = StepRecord(job.job_id, news.step_id, news.step_id, start_s=news.at_s)
        step.end_s = news.at_s
        step.exit_status = news.exit_status
        state = news.data.get("state")
        usage = news.data.get("usage", {name: value for name, value in news.data.items() if name not in _STEP_FIELDS})
        _fill(step, {name: value for name, value in news.data.items() if name != "usage"})
        if isinstance(usage, dict):
            step.usage.update(usage)
        step.state = str(state) if state else steps.state_of(step)
        if step.step_id.isdigit() or step.step_id == "interactive":
            job.derived_exit_status = max(job.derived_exit_status, step.exit_status, key=_severity)
        self._world.journal.step(job, step)
        self._world.journal.job(job)
        self._world.tell(job)
        if job.request.interactive_command == "srun" and step.step_id == "0":
            self._end_allocation(job)

    def _end_allocation(self, job: JobRecord) -> None:
        """An allocation that srun made for itself lasts as long as srun's step, in all its components."""
        parts = self._world.jobs.het_components(job)
        steps = [part.steps.get("0") for part in parts]
        if any(step is None or step.end_s is None for step in steps):
            return
        worst = max((step.exit_status for step in steps if step is not None), key=_severity)
        for part in parts:
            if phase_of(part) in (Phase.STARTING, Phase.RUNNING):
                self._life.apply(part, Event.EXITED, Cause(exit_status=worst))
                self._life.give_back(part)

    def _script_ended(self, job: JobRecord, news: News) -> None:
        self._batch_step_ended(job, news)
        self._ended(job, news, Event.EXITED)
        self._end_components(job, news)

    def _batch_step_ended(self, job: JobRecord, news: News) -> None:
        step = job.steps.get("batch")
        if step is None or step.end_s is not None:
            return
        usage = news.data.get("usage")
        step.end_s, step.exit_status = news.at_s, news.exit_status
        step.state = steps.state_of(step)
        if isinstance(usage, dict):
            step.usage.update(usage)
        self._world.journal.step(job, step)
        if job.state in states.FINISHED and not job.exit_status:
            job.script_status = news.exit_status
            self._world.journal.job(job)

    def _end_components(self, job: JobRecord, news: News) -> None:
        """A heterogeneous job is over when the script of its first component is."""
        if not job.het_job_id or job.het_offset:
            return
        for part in self._world.jobs.het_components(job):
            if part is not job and self._life.apply(part, Event.EXITED, Cause(exit_status=news.exit_status)):
                self._life.give_back(part)

    def _finished(self, job: JobRecord, news: News) -> None:
        self._batch_step_ended(job, news)
        extern = job.steps.get("extern")
        if extern is not None and extern.end_s is None:
            extern.end_s, extern.state = news.at_s, states.COMPLETED
            self._world.journal.step(job, extern)
        if phase_of(job) in (Phase.STARTING, Phase.RUNNING, Phase.SUSPENDED):
            self._ended(job, news, Event.FINISHED)
        assert news.run is not None
        if phase_of(job) in (Phase.STOPPING, Phase.REQUEUING) and news.run not in self._leaving:
            left_s = self._completing_s(job)
            if left_s > 0:
                self._leaving[news.run] = job
                asyncio.get_running_loop().call_later(left_s, self._gone, news.run)
            else:
                self._life.apply(job, Event.FINISHED)

    def _completing_s(self, job: JobRecord) -> float:
        """How long the job's end is still to be shown."""
        if not job.request.batch or job.end_s is None:
            return 0.0
        together = any(not set(job.nodes).isdisjoint(other.nodes) for other in self._leaving.values())
        pace = self._world.pace
        return job.end_s + pace.completing_s + (pace.next_s if together else 0.0) - self._world.now()

    def _gone(self, run: RunId) -> None:
        job = self._leaving.pop(run)
        if self._world.run_of(job) == run and phase_of(job) in (Phase.STOPPING, Phase.REQUEUING):
            self._life.apply(job, Event.FINISHED)

    def _ended(self, job: JobRecord, news: News, event: Event) -> None:
        reason = str(news.data.get("reason") or "") or self._time_over(job, news)
        cause = Cause(exit_status=news.exit_status, node=str(news.data.get("node") or ""), at_s=news.at_s)
        if reason == "TimeLimit":
            self._life.apply(job, Event.TIME_OUT, cause)
        elif reason == "DeadLine":
            self._life.apply(job, Event.DEADLINE, cause)
        elif reason in ("NodeFail", "NodeDown", "StepDaemonLost"):
            self.node_failed(job, cause)
        elif reason == "Cancelled":
            if phase_of(job) in (Phase.STARTING, Phase.RUNNING, Phase.SUSPENDED):    # else it was cancelled here
                self._life.apply(job, Event.CANCEL, Cause(uid=job.uid, at_s=news.at_s))
        else:
            cause.out_of_memory = reason == "OutOfMemory"
            self._life.apply(job, event, cause)

    def _time_over(self, job: JobRecord, news: News) -> str:
        """The step daemon ends a job at its limit by itself; its signal may be the first that is heard of it."""
        if not news.exit_status & 0x7F:
            return ""
        limit = self._ends_at(job)
        if limit is not None and news.at_s >= limit - CLOCK_SLACK_S:
            return "TimeLimit"
        return "DeadLine" if job.deadline_s and news.at_s >= job.deadline_s - CLOCK_SLACK_S else ""

    def _launch_failed(self, job: JobRecord, news: News) -> None:
        data = news.data
        if data.get("reason") == "NotStarted" and phase_of(job) is Phase.STARTING:
            self._life.launch_again(job)      # a restart came between the decision and its execution
            return
        log.warning("job %d: launch failed: %s", job.job_id, data)
        self.health.launch_failed(str(data.get("node") or ""))
        if phase_of(job) in (Phase.RUNNING, Phase.SUSPENDED):
            self._lose(job, Cause(uid=0, node=job.batch_host))
        for part in self._world.jobs.het_components(job):
            if part is not job:
                self._lose(part, Cause(uid=0, node=str(data.get("node") or "")))
        self._life.apply(job, Event.LAUNCH_FAILED, Cause(
            node=str(data.get("node") or ""), description=str(data.get("message") or data.get("reason") or ""),
            state=states.NODE_FAIL if data.get("node") else ""))

    def _request(self, job: JobRecord, news: News) -> None:
        """A process inside the job asks (scontrol requeue and kin go through the socket; only exits come here)."""
        act = str(news.data.get("act") or news.data.get("request") or "")
        with contextlib.suppress(SlurmError):
            if act == "requeue":
                self._life.apply(job, Event.REQUEUE, Cause(uid=job.uid))
            elif act in ("cancel", "kill"):
                self._life.apply(job, Event.CANCEL, Cause(uid=job.uid))

    def _node(self, news: News) -> None:
        """What the engine sees of a node; what it means for its state, health says."""
        world, data = self._world, news.data
        line, use = data.get("line"), data.get("foreign")
        changed = isinstance(line, NodeLine) and node_arrivals.found(world, line)
        node = world.nodes.get(str(data.get("name")))
        if node is None:
            return
        for name in _NODE_FIELDS:
            if name in data:
                setattr(node, name, data[name])
        if isinstance(use, dict) and use != node.foreign:
            node_arrivals.set_foreign(world, node.name, use)
            changed = True
        if "health" in data:
            health = data["health"]
            self.health.see(node.name, health if isinstance(health, Mapping) else None)
        if changed:
            world.wake()

    def fail_node(self, name: str) -> None:
        """Every job on the node loses it: requeued where it may be, else NODE_FAIL."""
        world = self._world
        node = world.nodes.get(name)
        for job_id in sorted(node.job_ids) if node is not None else ():
            job = world.jobs.active.get(job_id)
            if job is not None and not job.request.no_kill:
                self.node_failed(job, Cause(uid=0, node=name))

    def node_failed(self, job: JobRecord, cause: Cause) -> None:
        """With one component a heterogeneous job loses all."""
        for part in self._world.jobs.het_components(job):
            self._lose(part, replace(cause))

    def _lose(self, job: JobRecord, cause: Cause) -> None:
        if phase_of(job) not in (Phase.STARTING, Phase.RUNNING, Phase.SUSPENDED):
            return
        cause.exit_status = NODE_FAIL_STATUS
        if job.request.batch and job.requeue:
            cause.state, cause.cause = states.NODE_FAIL, "NODE FAILURE"
            self._life.apply(job, Event.REQUEUE, cause)
        else:
            self._life.apply(job, Event.NODE_FAILED, cause)


def _severity(status: int) -> tuple[int, int]:
    return status >> 8 & 0xFF, status & 0x7F


def _fill(step: StepRecord, data: dict[str, object]) -> None:
    for name, value in data.items():
        if name in _STEP_FIELDS and name not in ("job_id", "step_id", "usage"):
            setattr(step, name, tuple(value) if name == "nodes" else value)  # type: ignore[arg-type]
