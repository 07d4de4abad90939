"""The scratch state of one pass: what is free and which nodes may still be used, as jobs start one after another."""
from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from slurmbridge.scheduling.demand import MANY, Demands, lifted
from slurmbridge.scheduling.facts import BoolArray, IntArray, Partition, RunningJob
from slurmbridge.scheduling.limit_pass import LimitPass
from slurmbridge.scheduling.snapshot import REASON_INDEX, Snapshot, Start
from slurmbridge.scheduling.use import Use, charge

NONE, PRIORITY, RESOURCES, NOT_AVAIL, LIMITED = (REASON_INDEX[w] for w in (
    "None", "Priority", "Resources", "ReqNodeNotAvail", "AccountingPolicy"))


@dataclass(slots=True)
class PassState:
    """``available``: nodes that may take jobs, less those kept for jobs that wait; ``reasons``: per queue row."""

    snapshot: Snapshot
    use: Use
    available: BoolArray
    running: dict[int, RunningJob]
    demands: Demands
    licenses_used: dict[str, int]
    limits: LimitPass | None
    reasons: IntArray
    descriptions: dict[int, str]
    limit_reasons: dict[int, str]
    touched: BoolArray
    node_counts: dict[int, int] = field(default_factory=dict)        # row -> nodes it would get (NumNodes)
    ended: set[int] = field(default_factory=set)                      # job ids that started or were held in this pass
    preempted: set[int] = field(default_factory=set)                  # jobs that must end for others
    partitions: dict[tuple[int, int], Partition] = field(default_factory=dict)
    begun: Counter[int] = field(default_factory=Counter)              # job id -> tasks started in this pass

    def set_reason(self, row: int, code: int, description: str = "") -> None:
        """The reason of a job, whatever row (partition) gave it."""
        queue = self.snapshot.queue
        if queue.is_magnet(row):
            return
        for at in queue.rows(int(queue.job_id[row])):
            self.reasons[at] = code
            self.touched[at] = True
            self.limit_reasons.pop(at, None)
            if description:
                self.descriptions[at] = description
            else:
                self.descriptions.pop(at, None)

    def set_limit_reason(self, row: int, word: str) -> None:
        queue = self.snapshot.queue
        self.set_reason(row, LIMITED)
        for at in queue.rows(int(queue.job_id[row])) if not queue.is_magnet(row) else ():
            self.limit_reasons[at] = word

    def start(self, row: int, start: Start) -> RunningJob:
        """Takes what the job gets; the row counts one task less (the job is over when none is left)."""
        queue = self.snapshot.queue
        shape = queue.shapes[queue.shape[row]]
        end_s = self.snapshot.now_s + start.time_limit_s
        job = RunningJob(start.job_id, start.partition, start.shares, end_s, self.snapshot.now_s,
                         uid=int(queue.uid[row]), whole_node=shape.whole_node, oversubscribe=shape.oversubscribe,
                         subject=int(queue.subject[row]), licenses=start.licenses, priority=int(queue.priority[row]),
                         reservation=shape.reservation, qos=start.qos)
        charge(self.snapshot.cluster, self.use, job)
        for name, count in start.licenses:
            self.licenses_used[name] = self.licenses_used.get(name, 0) + count
        self.running[self._key(start.job_id)] = job
        self.begun[start.job_id] += 1
        if self.limits is not None:
            self.limits.job_begins(job)
        return job

    def all_begun(self, row: int) -> bool:
        """Whether the job (every task of an array) has started."""
        queue = self.snapshot.queue
        return self.begun[int(queue.job_id[row])] >= int(queue.tasks[row])

    def partition(self, row: int) -> Partition:
        """The row's partition, without the limits that the row's QOS lifts."""
        queue = self.snapshot.queue
        key = int(queue.partition[row]), int(queue.qos[row])
        found = self.partitions.get(key)
        if found is None:
            flags = self.snapshot.qos_flags.get(queue.qoses[key[1]], frozenset())
            found = self.partitions[key] = lifted(self.snapshot.cluster.partitions[queue.partitions[key[0]]], flags)
        return found

    def limits_word(self, row: int) -> str:
        """The word of the limit that holds the job back whatever nodes it gets; "" for none."""
        queue = self.snapshot.queue
        return "" if self.limits is None else self.limits.before_selection(
            int(queue.subject[row]), int(queue.time_limit_s[row]), time_waived=bool(queue.time_waived[row]))

    def max_nodes(self, row: int) -> tuple[int, str]:
        """Most nodes that limits let the job have, and the limit's word."""
        return self.limits.max_nodes(int(self.snapshot.queue.subject[row])) if self.limits is not None else (MANY, "")

    def max_switches(self, row: int) -> int:
        """--switches, until the job has waited for them as long as it may (0: any number)."""
        queue = self.snapshot.queue
        shape = queue.shapes[queue.shape[row]]
        return shape.switches if shape.switches and self.snapshot.now_s < queue.switch_wait_until_s[row] else 0

    def least_priority(self, row: int) -> int:
        """Jobs of lower priority are not promised nodes (MinPrioThreshold, bf_min_prio_reserve)."""
        own = self.limits.prio_threshold(int(self.snapshot.queue.subject[row])) if self.limits is not None else 0
        return own or self.snapshot.settings.bf_min_prio_reserve

    def never_promised(self, row: int) -> bool:
        """Its QOS has the flag NoReserve."""
        return self.limits is not None and self.limits.has_flag(int(self.snapshot.queue.subject[row]), "NoReserve")

    def _key(self, job_id: int) -> int:
        """Array tasks started in this pass have no number of their own yet."""
        key = job_id
        while key in self.running:
            key = key - (1 << 40) if key > 0 else key - 1
        return key

    def other_users(self, uid: int) -> BoolArray:
        """Nodes on which jobs of other users run (--exclusive=user, ExclusiveUser)."""
        mask = np.zeros(len(self.snapshot.cluster), dtype=np.bool_)
        for job in self.running.values():
            if job.uid != uid:
                mask[[self.snapshot.cluster.index[s.node] for s in job.shares]] = True
        return mask


def begin(snapshot: Snapshot) -> PassState:
    queue = snapshot.queue
    limits = LimitPass(snapshot.limits, snapshot.cluster.running.values()) if snapshot.limits is not None else None
    return PassState(snapshot, snapshot.cluster.use.copy(), snapshot.cluster.available.copy(),
                     dict(snapshot.cluster.running), Demands(snapshot.cluster), dict(snapshot.licenses_used), limits,
                     queue.reason.copy(), {}, {}, np.zeros(len(queue.live), dtype=np.bool_))
