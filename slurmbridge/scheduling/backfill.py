"""The backfill pass: every job, by order, gets the earliest start that delays none before it.

The semantics of sched/backfill: a job that fits now on nodes not promised to others starts; one that does not is
promised nodes from its expected start for its time limit, so that no later job can take them.
"""
from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from slurmbridge.scheduling import pick, reservations
from slurmbridge.scheduling.demand import Demand, ask, node_bounds
from slurmbridge.scheduling.eligible import partition_reasons
from slurmbridge.scheduling.facts import FOREVER_S, BoolArray, RunningJob
from slurmbridge.scheduling.features import Feature
from slurmbridge.scheduling.future import Future
from slurmbridge.scheduling.grounds import Grounds
from slurmbridge.scheduling.hetjobs import HetJobs
from slurmbridge.scheduling.licensing import granted
from slurmbridge.scheduling.mainpass import attracted_by, finish
from slurmbridge.scheduling.order import order
from slurmbridge.scheduling.planned_time import planned_limits_s
from slurmbridge.scheduling.preempt import Preemptor, candidates, closed_by_suspended
from slurmbridge.scheduling.quota import Quotas
from slurmbridge.scheduling.size import requested_tres
from slurmbridge.scheduling.snapshot import BACKFILL, Expected, Plan, Snapshot, Start
from slurmbridge.scheduling.state import NONE, RESOURCES, PassState, begin
from slurmbridge.scheduling.timeline import Timeline, bits, mask_of
from slurmbridge.scheduling.waits import LICENSES, say_why
from slurmbridge.scheduling.willrun import Answer, Window, with_features


def backfill_pass(snapshot: Snapshot) -> Plan:
    """Starts what fits without delaying others; expected starts and planned nodes of the rest."""
    state = begin(snapshot)
    plan = Plan(BACKFILL)
    run(state, plan)
    finish(state, plan)
    return plan


def run(state: PassState, plan: Plan) -> None:
    rows = order(state.snapshot, partition_reasons(state, min_time=True))
    _Backfill(state, plan).run([int(r) for r in rows])


@dataclass(slots=True)
class _Job:
    """One row as the pass looks at it. ``limit_s``: the time it is planned for; ``full_limit_s``: what it asked for."""

    row: int
    job_id: int
    partition: str
    demand: Demand
    uid: int
    features: tuple[Feature, ...]
    limit_s: int
    full_limit_s: int
    now_only: bool
    known_start_s: int                        # expected in another partition already (0: no)


class _Backfill:
    def __init__(self, state: PassState, plan: Plan) -> None:
        snapshot = state.snapshot
        self.state, self.plan, self.settings, self.now_s = state, plan, snapshot.settings, snapshot.now_s
        resolution_s = self.settings.bf_resolution_s
        self.window_end_s = (self.now_s + self.settings.bf_window_s) // resolution_s * resolution_s
        self.timeline = Timeline(self.now_s // resolution_s * resolution_s, self.window_end_s,
                                 snapshot.cluster.available, resolution_s)
        self.future = Future(state)
        self.grounds = Grounds(state, self.future)
        self.quotas = Quotas(snapshot)
        self.het: HetJobs[_Job] = HetJobs(snapshot.queue, self.now_s)
        self.planned = np.zeros(len(snapshot.cluster), dtype=np.bool_)
        self.tested = 0
        self.start_s: dict[int, int] = {}
        self.space = self.settings.bf_node_space_size or 2 * self.settings.bf_max_job_test + 1

    def run(self, rows: list[int]) -> None:
        queue = self.state.snapshot.queue
        for row in rows:
            if self.tested >= self.settings.bf_max_job_test or self.timeline.records >= self.space:
                break
            if int(queue.job_id[row]) in self.state.ended:
                continue
            self.plan.last_depth += 1
            if not self._consider(row):
                break
        self._start_het_jobs()
        self.plan.planned_nodes = self.planned
        self.plan.tested = self.tested

    def _consider(self, row: int) -> bool:
        """False: the pass is over (bf_max_job_start)."""
        state, queue, settings = self.state, self.state.snapshot.queue, self.settings
        job_id = int(queue.job_id[row])
        magnet = queue.is_magnet(row) and not settings.bf_allow_magnetic_slot
        if not self._limits_allow(row):
            return True
        if job_id in self.het and state.reasons[row] == NONE:
            state.set_reason(row, RESOURCES)
        now_only = magnet or queue.priority[row] < state.least_priority(row) or (
            self.now_s - int(queue.submit_s[row]) < settings.bf_min_age_reserve_s) or (
            settings.bf_one_resv_per_job and job_id in self.start_s)
        limits = planned_limits_s(self.state, row)
        if limits is None:
            return True
        name = queue.partitions[queue.partition[row]]
        shapes = reservations.one_each(queue.shapes[queue.shape[row]], state.snapshot.reservations)
        tries = [(demand, features, only) for demand in map(state.demands.of, shapes) for features, only in (
            *([(demand.prefer, True)] if demand.prefer else []), (demand.features, now_only))]
        for demand, features, only in tries:
            job = _Job(row, job_id, name, demand, int(queue.uid[row]), features, *limits, only,
                       self.start_s.get(job_id, 0))
            if not self._tasks(job):
                return False
            if job_id in state.ended:
                break
        return True

    def _limits_allow(self, row: int) -> bool:
        """Sets the reason where a limit holds the job back whatever nodes it gets."""
        state = self.state
        if state.limits is None or self.settings.assoc_limit_stop:
            return True
        word = state.limits_word(row)
        if word:
            state.set_limit_reason(row, word)
        return not word

    def _tasks(self, job: _Job) -> bool:
        """The job, or as many tasks of an array as can start or be promised nodes."""
        queue, state = self.state.snapshot.queue, self.state
        tasks = int(queue.tasks[job.row])
        promised = 0
        counted = False
        for _ in range(tasks - state.begun[job.job_id]):
            magnet = self.state.snapshot.queue.is_magnet(job.row) and not self.settings.bf_allow_magnetic_slot
            if not magnet and not self.quotas.allows(job.row, job.uid, job.partition):
                return True
            outcome, counted = self._one(job, counted or magnet)
            if outcome == "started":
                if self.settings.bf_max_job_start and len(self.plan.starts) >= self.settings.bf_max_job_start:
                    return False
                counted = False
                if state.all_begun(job.row):
                    state.ended.add(job.job_id)
                    return True
                if not self._limits_allow(job.row):
                    return True
            elif job.job_id in state.ended:
                return True
            elif outcome == "promised":
                promised += 1
                if promised >= self.settings.bf_max_job_array_resv or self.timeline.records >= self.space:
                    return True
            else:
                return True
        return True

    def _one(self, job: _Job, counted: bool) -> tuple[str, bool]:
        """Finds the earliest start: "started", "promised" or "" (neither). Second: whether the test was counted."""
        state, settings, columns = self.state, self.settings, self.state.snapshot.cluster
        partition = state.partition(job.row)
        if not self._licensed(job):
            return "", counted
        limit_nodes, word = state.max_nodes(job.row)
        bounds = node_bounds(job.demand.shape, partition, limit_nodes)
        if limit_nodes < bounds[0]:
            state.set_limit_reason(job.row, word)
        if bounds[1] < bounds[0]:
            return "", counted
        question = ask(columns, job.demand, partition, settings, bounds, state.max_switches(job.row))
        question.features = job.features
        base, base_bits, fitting = self.grounds.of(job.demand, job.partition, job.features)
        suspended = closed_by_suspended(state.snapshot, self._preemptor(job))
        if suspended is not None:
            base = base & ~suspended
            base_bits = bits(base)
        required = bits(job.demand.required) if job.demand.required is not None else 0
        later_s = max(self.now_s, self.het.start_of_others_s(job.job_id) if job.job_id in self.het else 0)
        while True:
            start_s, later_s = later_s, 0
            view, start_s = reservations.first_view(columns, state.snapshot.reservations, job.demand, job.partition,
                                                    start_s, job.limit_s)
            if view is None:
                return "", counted
            if self.window_end_s < start_s:
                return "", counted
            end_s = job.limit_s + max(start_s, self.now_s)
            nodes = base
            if view.only is not None:
                nodes = nodes & view.only
            if view.closed is not None:
                nodes = nodes & ~view.closed
            nodes, held_until_s, delayed = self.grounds.without_owners(
                job.demand, job.partition, job.uid, nodes, bounds[0], start_s)
            if delayed:
                later_s = held_until_s
                if job.now_only or not later_s:
                    return "", counted
                continue
            open_nodes, later_s = self.timeline.open_for(base_bits if nodes is base else bits(nodes), start_s, end_s,
                                                         later_s)
            if view.overlap:
                change_s = reservations.next_change_s(state.snapshot.reservations, start_s, settings.bf_resolution_s)
                if change_s and change_s + 1 < self.window_end_s and (later_s == 0 or change_s + 1 < later_s):
                    later_s = change_s + 1
            left = open_nodes & fitting
            later_s = later_s or held_until_s
            if required & open_nodes != required or left.bit_count() < bounds[0]:
                if job.now_only or not later_s:
                    return "", counted
                continue
            if not counted:
                self.tested += 1
                counted = True
            usable = mask_of(left, len(columns))
            victims = self._victims(job) if start_s <= self.now_s else []
            if not victims and not self.future.may_fit(question, left, later_s or 2 * FOREVER_S):
                if job.now_only or not later_s:
                    return "", counted
                continue
            window = Window(self.now_s, start_s, later_s, job.now_only, settings.kill_wait_s,
                            settings.over_time_limit_s, settings.bf_busy_nodes, settings.bf_window_linear_s)
            answer = with_features(self.future, question, usable, window, job.features)
            if victims and (answer is None or answer.start_s > self.now_s):
                outcome = self._preempt(job, ~usable, victims)
                if outcome is not None:
                    return outcome, counted
                sooner = with_features(self.future.without(victims), question, usable, window, job.features)
                if sooner is not None and sooner.start_s > self.now_s:
                    answer = sooner           # it is promised what it will get with those that it may preempt gone
            if answer is None:
                if job.now_only or not later_s:
                    return "", counted
                continue
            answer.start_s = max(answer.start_s, start_s)
            verdict, later_s = self._settle(job, answer, usable, start_s, later_s)
            if verdict != "later":
                return verdict, counted

    def _settle(self, job: _Job, answer: Answer, usable: BoolArray, start_s: int, later_s: int) -> tuple[str, int]:
        """Starts the job or promises it the nodes; ("later", when): to be tried from then on."""
        nodes, columns = answer.selected.nodes, self.state.snapshot.cluster
        tested = answer.start_s > self.now_s
        if tested and self.timeline.overlaps(nodes, *self.timeline.slot_times(answer.start_s, job.limit_s)):
            bump = self.settings.bf_resolution_s if start_s == answer.start_s else 0
            return "later", answer.start_s + bump
        if answer.start_s <= self.now_s and bool((nodes & columns.completing).any()):
            answer.start_s = self.now_s + 1
            later_s = 0
        elif job.job_id in self.het:
            self.het.can_start(job.job_id, job, answer.start_s)
        elif answer.start_s <= self.now_s:
            code = self._start(job, ~usable)
            if code == pick.SUCCESS:
                return "started", 0
            if code in (pick.RESERVED, pick.POLICY):
                return "", 0
            later_s = 0
        if answer.start_s > self.now_s and job.now_only:
            self._expect(job, answer, promised=False)
            return "", 0
        if later_s and answer.start_s > later_s:
            return "later", later_s
        begin_s, end_s = self.timeline.slot_times(answer.start_s, job.limit_s)
        if answer.start_s > self.now_s + self.settings.bf_window_s:
            self._expect(job, answer, promised=False)
            return "", 0
        if not tested and self.timeline.overlaps(nodes, begin_s, end_s):
            return "later", max(answer.start_s, start_s + self.settings.bf_resolution_s)
        return self._promise(job, answer, begin_s, end_s), 0

    def _victims(self, job: _Job) -> list[RunningJob]:
        state = self.state
        if state.snapshot.preemption is None or job.job_id in self.het:
            return []
        return candidates(state.snapshot, state.running, self._preemptor(job), state.preempted)

    def _preemptor(self, job: _Job) -> Preemptor:
        priority = int(self.state.snapshot.queue.priority[job.row])
        return Preemptor(job.job_id, self._qos(job), job.partition, priority)

    def _qos(self, job: _Job) -> str:
        queue = self.state.snapshot.queue
        return queue.qoses[int(queue.qos[job.row])]

    def _preempt(self, job: _Job, exclude: BoolArray, victims: list[RunningJob]) -> str | None:
        """Makes room now and promises the job what it will get. None: the victims are not enough."""
        state, columns = self.state, self.state.snapshot.cluster
        view = reservations.view(columns, state.snapshot.reservations, job.demand, job.partition, self.now_s,
                                 job.limit_s)
        outcome = pick.try_now(state, job.demand, state.partition(job.row), job.uid, features=job.features, view=view,
                               limit_nodes=state.max_nodes(job.row)[0], max_switches=state.max_switches(job.row),
                               exclude=exclude, victims=victims)
        if outcome.code != pick.SUCCESS or outcome.selected is None or not outcome.preempted:
            return None
        queue = state.snapshot.queue
        if state.limits is not None:
            word = state.limits.after_selection(int(queue.subject[job.row]), outcome.selected.shares, job.limit_s,
                                                job.partition, job.demand.shape.licenses)
            if word:
                state.set_limit_reason(job.row, word)
                return ""
        self.plan.starts.append(Start(job.job_id, job.partition, outcome.selected.shares, self.plan.decided_by,
                                      job.full_limit_s, outcome.preempted, self._qos(job),
                                      attracted_by(queue, job.row), outcome.licenses))
        state.preempted.update(outcome.preempted)
        state.ended.add(job.job_id)
        state.set_reason(job.row, RESOURCES)
        return self._promise(job, Answer(self.now_s, outcome.selected),
                             *self.timeline.slot_times(self.now_s, job.limit_s))

    def _start(self, job: _Job, exclude: BoolArray) -> str:
        """Starts the job on nodes outside ``exclude``, as the main pass would."""
        state, plan = self.state, self.plan
        columns, queue = state.snapshot.cluster, state.snapshot.queue
        subject = int(queue.subject[job.row])
        view = reservations.view(columns, state.snapshot.reservations, job.demand, job.partition, self.now_s,
                                 job.limit_s)
        outcome = pick.try_now(state, job.demand, state.partition(job.row), job.uid, features=job.features,
                               view=view, limit_nodes=state.max_nodes(job.row)[0],
                               max_switches=state.max_switches(job.row), exclude=exclude)
        if outcome.possible:
            state.node_counts[job.row] = outcome.possible
        if outcome.code != pick.SUCCESS or outcome.selected is None:
            say_why(state, job.row, outcome, view)
            return outcome.code
        if state.limits is not None:
            word = state.limits.after_selection(subject, outcome.selected.shares, job.limit_s, job.partition,
                                                job.demand.shape.licenses)
            if word:
                state.set_limit_reason(job.row, word)
                return pick.POLICY
        limit_s = self._longest_s(job, outcome.selected.nodes)
        start = Start(job.job_id, job.partition, outcome.selected.shares, plan.decided_by, limit_s,
                      qos=self._qos(job), attracted_by=attracted_by(queue, job.row), licenses=outcome.licenses)
        plan.starts.append(start)
        self.future.add(state.start(job.row, start))
        return pick.SUCCESS

    def _start_het_jobs(self) -> None:
        """Starts heterogeneous jobs, their components on nodes of their own; what was not promised to them too."""
        plan, most = self.plan, self.settings.bf_max_job_start
        for jobs in self.het.ready():
            if most and len(plan.starts) >= most:
                return
            before = len(plan.starts)
            used = np.zeros(len(self.state.snapshot.cluster), dtype=np.bool_)
            for job in jobs:
                if self._start(job, used) != pick.SUCCESS:
                    del plan.starts[before:]
                    break
                used[[self.state.snapshot.cluster.index[share.node] for share in plan.starts[-1].shares]] = True
            else:
                for job in jobs:
                    plan.expected.pop(job.job_id, None)

    def _longest_s(self, job: _Job, nodes: BoolArray) -> int:
        """With --time-min: as much of the time limit as leaves promised nodes alone."""
        if job.limit_s >= job.full_limit_s or self.state.never_promised(job.row):
            return job.full_limit_s
        conflict_s = self.timeline.first_conflict_s(nodes, self.now_s + job.full_limit_s, self.now_s)
        if not conflict_s:
            return job.full_limit_s
        return max(job.limit_s, min(job.full_limit_s, (conflict_s - self.now_s) // 60 * 60))

    def _promise(self, job: _Job, answer: Answer, begin_s: int, end_s: int) -> str:
        state, columns = self.state, self.state.snapshot.cluster
        nodes = [columns.names[i] for i in np.flatnonzero(answer.selected.nodes)]
        if state.limits is not None and not self.settings.assoc_limit_stop:
            sized = replace(job.demand.shape, min_nodes=len(nodes), min_cpus=answer.selected.cpus)
            tres = requested_tres(sized, columns, job.partition)
            word = state.limits.planned(int(state.snapshot.queue.subject[job.row]), tres, nodes, job.limit_s,
                                        job.partition)
            if word:
                state.set_limit_reason(job.row, word)
                return ""
        if self.state.never_promised(job.row) or not self.quotas.may_reserve(job.partition):
            return ""
        self.quotas.reserve(job.partition)
        self.timeline.reserve(answer.selected.nodes, begin_s, end_s)
        self._expect(job, answer, promised=True)
        return "promised"

    def _expect(self, job: _Job, answer: Answer, *, promised: bool) -> None:
        """Keeps the earliest start over the job's partitions and tasks, and the nodes of the last task."""
        if job.known_start_s and job.known_start_s <= answer.start_s:
            return
        known = self.plan.expected.get(job.job_id)
        start_s = answer.start_s if known is None else min(known.start_s, answer.start_s)
        nodes = known.nodes if known is not None else ()
        if promised:
            self.planned |= answer.selected.nodes
            names = self.state.snapshot.cluster.names
            nodes = tuple(names[i] for i in np.flatnonzero(answer.selected.nodes))
        self.start_s[job.job_id] = start_s
        self.plan.expected[job.job_id] = Expected(job.job_id, job.partition, start_s, nodes)

    def _licensed(self, job: _Job) -> bool:
        used, total = self.state.licenses_used, self.settings.licenses_total
        shape = job.demand.shape
        enough = granted(shape.licenses, choice=shape.license_choice,
                         free=lambda name: total.get(name, 0) - used.get(name, 0)) is not None
        if not enough:
            self.state.set_reason(job.row, LICENSES)
        return enough
