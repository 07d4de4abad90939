"""The main pass: jobs start strictly by order; one that must wait keeps the nodes of its partition for itself.

The semantics of slurmctld's main scheduling loop. A job that waits for busy nodes closes its partition for the rest of
the pass (a job with a node list only its nodes), so that nothing of lower priority takes what it waits for.
"""
from __future__ import annotations

from dataclasses import replace

import numpy as np

from slurmbridge.scheduling import pick, reservations
from slurmbridge.scheduling.eligible import partition_reasons
from slurmbridge.scheduling.facts import FOREVER_S, BoolArray, IntArray
from slurmbridge.scheduling.order import order
from slurmbridge.scheduling.pick import Outcome
from slurmbridge.scheduling.preempt import Preemptor, candidates, closed_by_suspended
from slurmbridge.scheduling.queue import QueueColumns
from slurmbridge.scheduling.reservations import ReservationView
from slurmbridge.scheduling.shape import Shape
from slurmbridge.scheduling.size import requested_tres
from slurmbridge.scheduling.snapshot import MAIN, REASONS, Plan, Snapshot, Start
from slurmbridge.scheduling.state import NONE, NOT_AVAIL, PRIORITY, RESOURCES, PassState, begin
from slurmbridge.scheduling.waits import BAD, DEADLINE, WAITS_FOR_NODES, say_why


def main_pass(snapshot: Snapshot) -> Plan:
    """Starts what can start by strict order and says why the rest waits."""
    state = begin(snapshot)
    plan = Plan(MAIN)
    run(state, plan)
    finish(state, plan)
    return plan


def run(state: PassState, plan: Plan) -> None:
    rows = order(state.snapshot, partition_reasons(state, min_time=False))
    _Loop(state, plan).run(rows)


def attracted_by(queue: QueueColumns, row: int) -> str:
    """The reservation whose magnet this row is; "" for none."""
    shape = queue.shapes[queue.shape[row]]
    return shape.reservation or "" if shape.magnet else ""


def finish(state: PassState, plan: Plan) -> None:
    """Writes what the pass found into the plan."""
    rows = np.flatnonzero(state.touched)
    plan.reason_rows, plan.reason_codes = rows, state.reasons[rows]
    plan.descriptions, plan.limit_reasons = state.descriptions, state.limit_reasons
    queue = state.snapshot.queue
    plan.node_counts.update({int(queue.job_id[row]): count for row, count in state.node_counts.items()
                             if not queue.is_magnet(row)})


class _Loop:
    def __init__(self, state: PassState, plan: Plan) -> None:
        self.state = state
        self.plan = plan
        self.queue = state.snapshot.queue
        self.settings = state.snapshot.settings
        self.blocked: set[int] = set()        # partition numbers of the queue
        self.blocked_reservations: set[str] = set()
        self.tested_per_partition: dict[int, int] = {}
        self.refused: set[tuple[int, int]] = set()      # (shape, partition) that found its nodes not available

    def run(self, rows: IntArray) -> None:
        queue = self.queue
        partitions, shapes, jobs = queue.partition, queue.shape, queue.job_id
        reserved = [shape.reservation is not None for shape in queue.shapes]
        at = 0
        while at < len(rows):
            row = int(rows[at])
            at += 1
            if int(jobs[row]) in self.state.ended:
                continue
            if self.settings.sched_max_job_start and len(self.plan.starts) >= self.settings.sched_max_job_start:
                break
            partition = int(partitions[row])
            if partition in self.blocked and not reserved[shapes[row]]:
                rows = self._skip_partition(rows[at - 1:], partition, np.array(reserved, dtype=np.bool_))
                at = 0
                continue
            if self._too_deep(partition, row):
                continue
            if not self.state.snapshot.full_queue and self.plan.tested > self.settings.default_queue_depth:
                break
            self.plan.tested += 1
            self._consider(row, partition)

    def _skip_partition(self, rows: IntArray, partition: int, reserved: BoolArray) -> IntArray:
        """Of a blocked partition's rows: what showed nothing or Resources shows Priority, other reasons stay."""
        queue, state = self.queue, self.state
        mine = (queue.partition[rows] == partition) & ~reserved[queue.shape[rows]]
        skipped = rows[mine]
        shown = state.reasons[skipped]
        change = skipped[(shown == RESOURCES) | (shown == NONE)]
        state.reasons[change] = PRIORITY
        state.touched[change] = True
        for row in change.tolist() if state.descriptions else ():
            state.descriptions.pop(row, None)
        rest: IntArray = rows[~mine]
        return rest

    def _too_deep(self, partition: int, row: int) -> bool:
        depth = self.settings.partition_job_depth
        if not depth:
            return False
        self.tested_per_partition[partition] = self.tested_per_partition.get(partition, 0) + 1
        if self.tested_per_partition[partition] <= depth:
            return False
        if self.state.reasons[row] == NONE:
            self.state.set_reason(row, PRIORITY)
        return True

    def _consider(self, row: int, partition_number: int) -> None:
        state, queue = self.state, self.queue
        if int(queue.job_id[row]) in queue.het:
            self._block(row, partition_number)          # backfill alone starts heterogeneous jobs
            return
        columns = state.snapshot.cluster
        shape = queue.shapes[queue.shape[row]]
        if shape.reservation is not None and shape.reservation in self.blocked_reservations:
            state.set_reason(row, PRIORITY)
            return
        limit_s = self._time_limit_s(row)
        if limit_s is None:
            return
        demand = state.demands.of(shape)
        if state.limits is not None and not self._limits_allow(row):
            return
        if state.reasons[row] == NOT_AVAIL and demand.required is not None and (
                demand.required & ~state.available).any():
            return
        name = queue.partitions[partition_number]
        members = columns.partition_nodes[name]
        if shape.min_nodes > int((state.available & members).sum()):
            state.set_reason(row, RESOURCES, WAITS_FOR_NODES)
            self._block(row, partition_number)
            return
        while True:
            outcome, view = self._try(row, shape, name, limit_s)
            if outcome.code != pick.SUCCESS or not self._begin(row, outcome, name, limit_s):
                break
            if state.all_begun(row) or (state.limits is not None and not self._limits_allow(row)):
                return
        if outcome.code != pick.SUCCESS:
            self._waits(row, partition_number, outcome, view)

    def _try(self, row: int, shape: Shape, name: str, limit_s: int) -> tuple[Outcome, ReservationView]:
        state = self.state
        columns = state.snapshot.cluster
        demand = state.demands.of(shape)
        limit_nodes = state.max_nodes(row)[0]
        key = (int(self.queue.shape[row]), int(self.queue.partition[row]))
        if key in self.refused:
            return Outcome(pick.NOT_AVAIL), reservations.OPEN
        uid = int(self.queue.uid[row])
        outcome, seen = Outcome(pick.BUSY), reservations.OPEN
        job_id = int(self.queue.job_id[row])
        qos = self.queue.qoses[self.queue.qos[row]]
        job = Preemptor(job_id, qos, name, int(self.queue.priority[row]))
        victims = candidates(state.snapshot, state.running, job, state.preempted)
        closed = closed_by_suspended(state.snapshot, job)
        for seen in reservations.views(columns, state.snapshot.reservations, demand, name, state.snapshot.now_s,
                                       limit_s):
            for features in ((demand.prefer, demand.features) if demand.prefer else (demand.features,)):
                outcome = pick.try_now(state, demand, state.partition(row), uid, features=features, view=seen,
                                       limit_nodes=limit_nodes, max_switches=state.max_switches(row), victims=victims,
                                       exclude=closed)
                if outcome.code == pick.SUCCESS:
                    break
            if outcome.code == pick.SUCCESS:
                break
        if outcome.code == pick.NOT_AVAIL and demand.required is None and state.limits is None:
            self.refused.add(key)
        if outcome.possible:
            state.node_counts[row] = outcome.possible
        return outcome, seen

    def _begin(self, row: int, outcome: Outcome, name: str, limit_s: int) -> bool:
        """False: limits hold the job back after all."""
        state = self.state
        assert outcome.selected is not None
        job_id = int(self.queue.job_id[row])
        if state.limits is not None:
            shape = self.queue.shapes[self.queue.shape[row]]
            word = state.limits.after_selection(int(self.queue.subject[row]), outcome.selected.shares, limit_s, name,
                                                shape.licenses)
            if word:
                self._limited(row, word)
                return False
        start = Start(job_id, name, outcome.selected.shares, self.plan.decided_by, limit_s, outcome.preempted,
                      self.queue.qoses[self.queue.qos[row]], attracted_by(self.queue, row), outcome.licenses)
        self.plan.starts.append(start)
        if outcome.preempted:
            state.preempted.update(outcome.preempted)
            state.ended.add(job_id)
            state.set_reason(row, RESOURCES)
            self._block(row, int(self.queue.partition[row]))
            return False
        state.start(row, start)
        if state.all_begun(row):
            state.ended.add(job_id)
        return True

    def _limits_allow(self, row: int) -> bool:
        state = self.state
        assert state.limits is not None
        word = state.limits_word(row)
        if word:
            self._limited(row, word)
        return not word

    def _limited(self, row: int, word: str) -> None:
        """A limit holds the job back; with assoc_limit_stop it also closes the partition."""
        self.state.set_limit_reason(row, word)
        if self.settings.assoc_limit_stop:
            self._block(row, int(self.queue.partition[row]))

    def _time_limit_s(self, row: int) -> int | None:
        """Time limit, shortened to a deadline; None: the deadline has passed."""
        queue = self.queue
        limit_s = int(queue.time_limit_s[row])
        deadline_s = int(queue.deadline_s[row])
        if not deadline_s:
            return limit_s
        left_s = (deadline_s - self.state.snapshot.now_s) // 60 * 60
        least_s = int(queue.time_min_s[row]) or limit_s
        if left_s < least_s < FOREVER_S:
            self.state.set_reason(row, DEADLINE)
            return None
        return min(limit_s, left_s)

    def _waits(self, row: int, partition: int, outcome: Outcome, view: ReservationView) -> None:
        """Says why and keeps nodes for the job."""
        state, queue = self.state, self.queue
        shape = queue.shapes[queue.shape[row]]
        demand = state.demands.of(shape)
        if outcome.code == pick.POLICY:
            self._limited(row, state.max_nodes(row)[1])
            return
        closes = outcome.code == pick.BUSY
        if closes and (word := self._limit_besides(row, shape, queue.partitions[partition])):
            self._limited(row, word)
            return
        never = outcome.code in (pick.NEVER, pick.NO_SWITCH)
        if never and shape.reservation is None and sum(
                not queue.is_magnet(one) for one in queue.rows(int(queue.job_id[row]))) == 1:
            state.set_reason(row, BAD)
            state.ended.add(int(queue.job_id[row]))
            self.plan.held[int(queue.job_id[row])] = REASONS[BAD]
        else:
            say_why(state, row, outcome, view)
        if outcome.code == pick.RESERVED and view.own is not None:
            state.available &= ~reservations.nodes_of(state.snapshot.cluster, view.own)
        if demand.required is not None and int(demand.required.sum()) >= shape.min_nodes:
            closes = False
            state.available &= ~demand.required
        if closes:
            self._block(row, partition)

    def _limit_besides(self, row: int, shape: Shape, partition: str) -> str:
        """The word of the limit that what the job asks for breaks, beside that it waits for nodes; "" for none. Once
        a job has been tried that gets whole nodes, all their CPUs are what it asks for."""
        state = self.state
        if state.limits is None:
            return ""
        columns, demand = state.snapshot.cluster, state.demands.of(shape)
        if demand.whole and state.reasons[row] != NONE:
            members = columns.partition_nodes[partition] & demand.feature_nodes(columns, demand.features)[0]
            cpus = int(columns.cpus[np.flatnonzero(members)[:shape.min_nodes]].sum())
            shape = replace(shape, min_cpus=max(shape.min_cpus, cpus))
        return state.limits.planned(int(self.queue.subject[row]), requested_tres(shape, columns, partition), (),
                                    int(self.queue.time_limit_s[row]), partition)

    def _block(self, row: int, partition: int) -> None:
        state, queue = self.state, self.queue
        shape = queue.shapes[queue.shape[row]]
        if queue.priority[row] < state.least_priority(row):
            return
        waited_s = state.snapshot.now_s - int(queue.submit_s[row])
        if self.settings.bf_min_age_reserve_s and waited_s < self.settings.bf_min_age_reserve_s:
            return
        if shape.reservation is not None:
            self.blocked_reservations.add(shape.reservation)
            return
        self.blocked.add(partition)
        state.available &= ~state.snapshot.cluster.partition_nodes[queue.partitions[partition]]

