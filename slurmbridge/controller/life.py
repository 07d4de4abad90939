"""Carries a job through its life: looks the event up in the transition table, changes the record, does what follows.

The only writer of ``state`` and ``flags``. Memory changes at once and completely; the journal makes it durable; what
must not happen before it is durable (starting processes) is handed to ``pending_launches``.
"""
from __future__ import annotations

import secrets
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from slurmbridge.controller import dependents, magnets, nodes, queueing, shapes, wckeys
from slurmbridge.controller.preemption_rules import exempt_until_s
from slurmbridge.controller.transitions import BY_EXIT, KEEP, Event, Phase, Refusal, phase_of, rule_for, state_by_exit
from slurmbridge.controller.world import World
from slurmbridge.scheduling import licensing
from slurmbridge.scheduling.snapshot import Start
from slurmbridge.slurm import errors, states
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.slurm.hostlist import expand
from slurmbridge.slurm.jobspec import UNLIMITED_MIN
from slurmbridge.views.records import JobRecord

AVOIDED = 16
"""So many of the nodes that failed a job are remembered."""
MOST_DELAYS = 16
"""A job that lost its node again and again waits at most so many times the delay."""
REQUEUE_DELAY_S = 120
"""Slurm's credential lifetime: a requeued job does not start again before (slurm.conf(5), requeue_delay)."""


@dataclass(slots=True)
class Cause:
    """What an event brings along. ``cause`` is what the step daemon writes into the job's stderr."""

    uid: int | None = None                    # who asked; None: the system
    exit_status: int = 0
    reason: str = "None"
    description: str = ""
    cause: str = "CANCELLED"
    signal_first: int | None = None
    start: Start | None = None
    hold: bool = False                        # requeue: held
    special_exit: bool = False
    preempted: bool = False
    node: str = ""
    out_of_memory: bool = False
    grace_s: float | None = None
    at_s: float | None = None                 # when it happened, if that was before it was heard of
    state: str = ""                           # what the closed run is recorded as (REQUEUED, PREEMPTED, NODE_FAIL)


@dataclass(slots=True)
class JobLife:
    """``apply`` is the way to change a job's state."""

    world: World
    pending_launches: list[JobRecord] = field(default_factory=list)
    pending_kills: list[tuple[JobRecord, Cause]] = field(default_factory=list)
    pending_controls: list[tuple[str, JobRecord]] = field(default_factory=list)
    on_work: Callable[[], None] = lambda: None              # one of the lists above got something
    on_change: Callable[[JobRecord], None] = lambda job: None

    def apply(self, job: JobRecord, event: Event, cause: Cause | None = None) -> bool:
        """False: the event means nothing to the job any more. Raises SlurmError for an act it does not allow."""
        cause = cause or Cause()
        phase = phase_of(job)
        try:
            rule = rule_for(phase, event)
        except Refusal as refusal:
            raise SlurmError(getattr(errors, refusal.code)) from None
        if rule is None:
            return False
        if rule.state == BY_EXIT:
            job.state, job.reason = state_by_exit(cause.exit_status, cause.out_of_memory)
        elif rule.state != KEEP:
            job.state = rule.state
        job.flags |= rule.add
        job.flags -= rule.remove
        for action in rule.actions:
            getattr(self, "_do_" + action)(job, cause, event)
        world = self.world
        if job.job_id in world.jobs:
            world.jobs.refile(job)
            world.journal.job(job)
            self.on_change(job)
            self._let_next_task_in(job)
        world.tell(job)
        return True

    def _let_next_task_in(self, job: JobRecord) -> None:
        """An array with a limit on how many tasks run at once is full when one starts and goes on when one ends."""
        if not job.array_job_id or not job.array_max_running:
            return
        world = self.world
        for rest in world.jobs.waiting_tasks(job.array_job_id):
            before = rest.reason, rest.eligible_s
            queueing.refresh(world, rest)
            if (rest.reason, rest.eligible_s) != before:
                world.journal.job(rest)
                if states.COMPLETING not in job.flags:         # else a pass follows once its nodes are free
                    world.wake()

    # --- start
    def _do_allocate(self, job: JobRecord, cause: Cause, event: Event) -> None:
        world, start, now = self.world, cause.start, self.world.now()
        assert start is not None
        queueing.leave(world, job)
        job.partition = start.partition
        if start.partition in job.partition_priorities:
            job.priority = job.partition_priorities[start.partition]
        job.qos = start.qos or job.qos
        job.scheduler = start.decided_by
        job.last_sched_eval_s = now
        job.reason, job.reason_desc = "None", ""
        job.start_s = now
        if job.eligible_s is None or job.eligible_s > now:
            job.eligible_s = now
        limit_min = start.time_limit_s // 60
        if job.time_limit_min != UNLIMITED_MIN or start.time_limit_s < (1 << 39):
            job.time_limit_min = limit_min if start.time_limit_s < (1 << 39) else UNLIMITED_MIN
        job.end_s = None if job.time_limit_min == UNLIMITED_MIN else now + (job.time_limit_min or 0) * 60
        job.allocation = nodes.allocations_of(start.shares)
        job.nodes = tuple(share.node for share in start.shares)
        job.batch_host = job.nodes[0] if job.nodes else ""
        job.licenses_alloc = licensing.text(start.licenses)
        job.sched_nodes = ""
        job.exit_status = job.script_status = 0
        job.tres_kept = {}
        job.steps = {}
        job.next_step = 0
        shapes.size_allocated(world, job)
        nodes.occupy(job, world.nodes)
        world.columns.apply_start(nodes.running_job(job, world.limits.subject(job), exempt_until_s(world, job)))
        world.limits.job_started(job)
        world.priorities.job_started(job, now)
        wckeys.make_known(world, job)

    def _do_launch(self, job: JobRecord, cause: Cause, event: Event) -> None:
        job.credential = secrets.token_urlsafe(24)
        self.pending_launches.append(job)
        self._work()

    def give_back(self, job: JobRecord) -> None:
        """Ends what is left of an allocation whose command ended by itself."""
        self.pending_kills.append((job, Cause(cause="")))
        self._work()

    def control(self, what: str, job: JobRecord) -> None:
        """``suspend`` or ``resume`` at the engine, once what was decided is durable."""
        self.pending_controls.append((what, job))
        self._work()

    def launch_failed(self, job: JobRecord, message: str) -> None:
        """The engine did not take the order."""
        self.apply(job, Event.LAUNCH_FAILED, Cause(description=message))

    def never_launched(self, job: JobRecord) -> None:
        """The job was ended between the decision to start it and the order."""
        if phase_of(job) in (Phase.STOPPING, Phase.REQUEUING):
            self.apply(job, Event.FINISHED)

    def launch_again(self, job: JobRecord) -> None:
        self.pending_launches.append(job)
        self._work()

    def _do_running(self, job: JobRecord, cause: Cause, event: Event) -> None:
        job.reason = "None"
        self.judge_dependents()

    # --- end
    def _do_end(self, job: JobRecord, cause: Cause, event: Event) -> None:
        """A started job is over; its processes may still be there."""
        now = self._moment(job, cause)
        self._count_suspension(job, now)
        job.end_s = now
        if event in (Event.EXITED, Event.FINISHED):
            job.exit_status = cause.exit_status
        elif event is Event.CANCEL:
            job.killed_by_uid = cause.uid
            job.reason = "None"
            if job.het_offset and not any(name.isdigit() for name in job.steps):   # nothing there tells
                job.script_status = signal.SIGTERM
        elif event is Event.TIME_OUT:
            job.reason = "TimeLimit"
        elif event is Event.DEADLINE:
            job.reason = "DeadLine"
        elif event is Event.NODE_FAILED:
            job.reason, job.failed_node = "NodeDown", cause.node
            job.killed_by_uid = cause.uid if cause.uid is not None else job.killed_by_uid
            job.exit_status = cause.exit_status
        elif event is Event.PREEMPT:
            job.preempt_s = now
            job.reason = "None"
        if event is Event.EXITED and job.state == states.FAILED and job.exit_status & 0x7F:
            job.reason = "RaisedSignal"
        job.reason_desc = cause.description
        self._show_completing(job)
        self._usage_ends(job, now, is_lost=event is Event.NODE_FAILED)
        self._over(job)                       # who waits for its nodes is looked at once they are free

    def _do_end_unstarted(self, job: JobRecord, cause: Cause, event: Event) -> None:
        world, now = self.world, self.world.now()
        first = job.partition.partition(",")[0]
        if not shapes.shape_of(world, job, first).num_tasks:
            job.num_tasks = 0                 # left open, and never settled by an allocation
        queueing.leave(world, job)
        job.partition = first
        job.start_s = job.end_s = now
        if event is Event.CANCEL:
            job.killed_by_uid = cause.uid
            job.reason = job.reason if cause.reason == "None" else cause.reason
        else:
            job.reason = "DeadLine" if event is Event.DEADLINE else cause.reason
        job.num_nodes = job.num_nodes.partition("-")[0]
        if job.sched_nodes and job.oversubscribe in ("NO", "EXCLUSIVE"):
            job.num_cpus = sum(world.nodes[name].cpus for name in expand(job.sched_nodes) if name in world.nodes)
        job.sched_nodes = ""
        self._over(job)
        world.wake()

    def _do_end_requeued(self, job: JobRecord, cause: Cause, event: Event) -> None:
        """Cancelled between the end of one run and the start of the next: the new run never started."""
        self._close_steps(job)
        allocation, leaving_run = job.allocation, job.restarts - 1 if job.leaving_run is None else job.leaving_run
        self._new_run(job)
        job.allocation, job.leaving_run = allocation, leaving_run
        job.end_s = job.start_s = self.world.now()
        job.killed_by_uid = cause.uid
        job.reason = cause.reason if event is Event.CANCEL else "DeadLine"
        self._over(job)
        self.world.wake()

    def _over(self, job: JobRecord) -> None:
        """Whoever waits for this job's end is judged anew, before the record can disappear."""
        world = self.world
        world.priorities.job_over(job, world.now())
        world.limits.job_left_queue(job)
        self.judge_dependents()

    def _do_terminate(self, job: JobRecord, cause: Cause, event: Event) -> None:
        words = {Event.TIME_OUT: "TIME LIMIT", Event.DEADLINE: "DEADLINE", Event.NODE_FAILED: "NODE FAILURE",
                 Event.PREEMPT: "PREEMPTION", Event.REQUEUE: "JOB REQUEUE"}
        cause.cause = "PREEMPTION" if cause.preempted else words.get(event, cause.cause)
        self.pending_kills.append((job, cause))
        self._work()

    def _do_release(self, job: JobRecord, cause: Cause, event: Event) -> None:
        """Every process is gone: the allocation is free."""
        world = self.world
        now = world.now()
        if job.job_id in world.columns.running:
            world.columns.apply_end(job.job_id)
            world.limits.job_ended(job)
        nodes.vacate(job, world.nodes, now)
        world.nodes_released([one.node for one in job.allocation])
        self._show_completing(job)
        if job.leaving_run is not None:
            job.allocation, job.leaving_run = [], None
        self._close_steps(job)
        if job.dependency or world.jobs.dependent:
            self.judge_dependents()
        world.wake()

    def _show_completing(self, job: JobRecord) -> None:
        """Nodes are COMPLETING while a job on them is."""
        world = self.world
        nodes.mark_completing(job, world.nodes, world.jobs)
        nodes.ends_soon(job, world.columns, world.now())
        for one in job.allocation:
            node = world.nodes.get(one.node)
            if node is not None:
                nodes.show_to_scheduler(node, world.columns)

    def _close_steps(self, job: JobRecord) -> None:
        for step in job.steps.values():
            if step.end_s is None:
                step.end_s = self.world.now()
                step.state = states.COMPLETED if step.step_id == "extern" else states.CANCELLED
                self.world.journal.step(job, step)

    def _do_requeue_by_exit_code(self, job: JobRecord, cause: Cause, event: Event) -> None:
        """RequeueExit and RequeueExitHold (slurm.conf(5))."""
        world = self.world
        code = job.exit_status >> 8 & 0xFF
        if not job.request.batch or not job.requeue or job.exit_status & 0x7F or event is Event.REQUEUE:
            return
        hold = code in world.conf.requeue_exit_hold
        if code and (hold or code in world.conf.requeue_exit):
            cause.special_exit = hold
            world.jobs.refile(job)
            world.journal.close_run(as_requeued(job, states.REQUEUED))
            self.apply(job, Event.REQUEUE, cause)

    # --- requeue
    def _do_close_run(self, job: JobRecord, cause: Cause, event: Event) -> None:
        """Ends the accounting row of this run, as REQUEUED, PREEMPTED or NODE_FAIL."""
        world, now = self.world, self._moment(job, cause)
        self._count_suspension(job, now)
        job.end_s = now
        self._show_completing(job)
        state = cause.state or (states.PREEMPTED if cause.preempted else states.REQUEUED)
        self._usage_ends(job, now, is_lost=state == states.NODE_FAIL)
        if state == states.NODE_FAIL:
            job.exit_status, job.failed_node = cause.exit_status, cause.node
            job.node_failures += 1
        if cause.node:
            job.avoid_nodes = (*(name for name in job.avoid_nodes if name != cause.node), cause.node)[-AVOIDED:]
        world.journal.close_run(as_requeued(job, state))

    def _do_count_restart(self, job: JobRecord, cause: Cause, event: Event) -> None:
        job.restarts += 1
        job.reason, job.reason_desc = "None", ""
        if cause.special_exit or cause.hold:
            job.priority = 0
            job.priority_fixed = False
            job.reason = "JobHeldUser"
            if cause.uid is not None:         # somebody asked for it
                job.reason_desc = f"job requeued in {'held' if cause.hold else 'special exit'} state"
            if cause.special_exit:
                job.flags.add(states.SPECIAL_EXIT)

    def _do_wait_again(self, job: JobRecord, cause: Cause, event: Event) -> None:
        """The job waits like a new one, not before the delay is over."""
        world, now = self.world, self.world.now()
        alone_lost = bool(job.failed_node) and len(job.nodes) == 1
        had = job.tres_alloc if event is Event.REQUEUE or alone_lost else {}
        if job.failed_node:
            job.exit_status = 0
        self._new_run(job)
        job.tres_kept = had
        delay = int(world.conf.scheduler_parameters.get("requeue_delay") or REQUEUE_DELAY_S)
        delay *= min(1 << max(job.node_failures - 1, 0), MOST_DELAYS)
        begin = now + delay + 1
        if (job.request.begin_s or 0) <= now:
            job.eligible_s = begin
        job.submit_s = now if now > job.submit_s else job.submit_s + 1
        if job.node_failures > world.max_node_fail_requeue and event is not Event.LAUNCH_FAILED:
            self._hold_failed(job, "node failure limit exceeded requeued held")
        if job.priority != 0:
            job.reason = "BeginTime"
            job.start_s = job.eligible_s
        elif job.reason == "None":
            job.reason = queueing.held_reason(job)
        queueing.enter(world, job)
        world.limits.job_entered_queue(job)

    def _new_run(self, job: JobRecord) -> None:
        """Forgets the run; its accounting row stays. Steps go with it."""
        world = self.world
        job.db_index = world.new_db_index()
        likely_nodes = len(job.nodes)
        job.start_s = job.end_s = job.suspend_s = job.preempt_s = job.accrue_s = None
        job.pre_suspend_s = 0.0
        job.nodes, job.allocation, job.batch_host, job.sched_nodes, job.licenses_alloc = (), [], "", "", ""
        job.tres_alloc, job.tres_kept, job.billable = {}, {}, 0.0
        job.killed_by_uid, job.failed_node, job.reason_before = None, "", ""
        job.steps, job.next_step = {}, 0
        if asked := job.request.licenses:
            job.request = replace(job.request, licenses=licensing.text(
                tuple(licensing.counts(asked).items()), choice=licensing.is_choice(asked)))
        magnets.release(job)
        if job.request.partitions and len(job.request.partitions) > 1:
            job.partition = ",".join(job.request.partitions)
        job.qos = max(queueing.qos_names(world, job), key=lambda name: (
            world.accounting.qos[name].priority if name in world.accounting.qos else 0))
        shapes.size_requested(world, job, likely_nodes)

    def _do_after_launch_failure(self, job: JobRecord, cause: Cause, event: Event) -> None:
        """The failed node is avoided; without one to blame the job is held, as Slurm does after a failed prolog, and
        so is one that failed more than MaxBatchRequeue times."""
        job.restarts += 1
        job.launch_failures += 1
        job.failed_node = cause.node
        if not cause.node:
            job.system_comment = cause.description
        if not job.request.batch or not job.requeue:
            job.reason, job.reason_desc = "JobLaunchFailure", cause.description
            self.apply(job, Event.ABANDON_NODE if cause.node else Event.ABANDON, Cause(reason="JobLaunchFailure"))
            return
        if job.launch_failures >= self.world.conf.max_batch_requeue:
            self._hold_failed(job, "launch failure limit exceeded requeued held")
        elif cause.node:
            return
        else:
            job.reason, job.reason_desc = "JobHeldUser", "launch failed requeued held"
        job.priority = 0
        queueing.refresh(self.world, job)

    def _hold_failed(self, job: JobRecord, why: str) -> None:
        """It failed too often through no fault of its own; a release lets it try as often again."""
        job.launch_failures = job.node_failures = 0
        job.avoid_nodes = ()
        job.flags.add(states.REQUEUE_HOLD)
        job.priority = 0
        job.reason, job.reason_desc = "JobHoldMaxRequeue", why

    # --- suspension
    def _do_suspend(self, job: JobRecord, cause: Cause, event: Event) -> None:
        job.suspend_s = self.world.now()
        if cause.preempted:
            job.preempt_s = job.suspend_s
        if job.job_id in self.world.columns.running and (cause.preempted or self.world.engine.suspended_frees_cores):
            self.world.columns.suspend(job.job_id, returns=cause.preempted)
            nodes.pause(job, self.world.nodes)
            self.world.wake()
        self.control("suspend", job)

    def _do_resume(self, job: JobRecord, cause: Cause, event: Event) -> None:
        self._count_suspension(job, self.world.now())
        if job.job_id in self.world.columns.running:
            self.world.columns.resume(job.job_id)
            nodes.resume(job, self.world.nodes)
        job.preempt_s = None
        if job.time_limit_min is not None and job.time_limit_min != UNLIMITED_MIN:
            job.end_s = (job.start_s or 0) + job.pre_suspend_s + job.time_limit_min * 60
        self.control("resume", job)

    def _count_suspension(self, job: JobRecord, now: float) -> None:
        if job.suspend_s is not None and job.state != states.SUSPENDED:
            job.pre_suspend_s += now - job.suspend_s
            job.suspend_s = None

    # --- the end of the record
    def _do_forget(self, job: JobRecord, cause: Cause, event: Event) -> None:
        self.world.jobs.forget(job)
        self.world.journal.forget(job)

    # --- others
    def _moment(self, job: JobRecord, cause: Cause) -> float:
        """When a run ended: what the engine says, unless its clock is not ours."""
        now = self.world.now()
        return cause.at_s if cause.at_s is not None and (job.start_s or now) <= cause.at_s <= now else now

    def _usage_ends(self, job: JobRecord, now: float, *, is_lost: bool) -> None:
        """``is_lost``: the run ended with its node."""
        refund = is_lost and self.world.priorities.usage.runs is not None
        if refund:
            job.system_comment = f"{job.system_comment}{'; ' if job.system_comment else ''}its usage is not charged"
        self.world.priorities.job_ended(job, now, refund=refund)
        self.world.usage_ended(job)

    def _work(self) -> None:
        self.on_work()

    def judge_dependents(self, only: Iterable[JobRecord] | None = None) -> None:
        """Tests the dependencies of pending jobs again; jobs that can never run are marked or cancelled."""
        dependents.judge(self.world, self._cancel_never_to_run, only)

    def _cancel_never_to_run(self, job: JobRecord) -> None:
        self.apply(job, Event.CANCEL, Cause(uid=0, reason="DependencyNeverSatisfied"))


def as_requeued(job: JobRecord, state: str) -> JobRecord:
    """A copy of the record for the row of the run that ended."""
    return replace(job, state=state, flags=set())
