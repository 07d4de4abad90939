"""Replays a recorded queue: jobs submitted while all nodes were drained, one resume, then passes for some seconds."""
from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from scheduling import lab

from slurmbridge.scheduling.columns import ClusterColumns
from slurmbridge.scheduling.facts import RunningJob
from slurmbridge.scheduling.passes import Refusal, admit, backfill_pass, main_pass
from slurmbridge.scheduling.queue import QueueColumns, QueueRow
from slurmbridge.scheduling.size import pending_size
from slurmbridge.scheduling.snapshot import BACKFILL, REASONS, Expected, Plan, Snapshot, Start
from slurmbridge.slurm.hostlist import compress

DATA = Path(__file__).parent.parent / "data/scheduling"
CASES = [json.loads(line) for name in ("queues.jsonl", "queues_again.jsonl")
         for line in (DATA / name).read_text().splitlines()]
"""``repeat``: the same queue once more, where Slurm itself gave another answer than the first time."""
MINUTE = 1_800_000_000
UID = 1


@dataclass
class Replay:
    """What came of the queue; jobs are numbered from 1 as in the recording."""

    now_s: int
    cluster: ClusterColumns = field(default_factory=lab.cluster)
    queue: QueueColumns = field(default_factory=QueueColumns)
    refusals: dict[int, Refusal] = field(default_factory=dict)
    starts: dict[int, Start] = field(default_factory=dict)
    expected: dict[int, Expected] = field(default_factory=dict)
    held: dict[int, str] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)
    node_counts: dict[int, int] = field(default_factory=dict)

    def submit(self, number: int, job: dict) -> None:
        made = lab.submission(job["args"])
        verdict = admit(self.snapshot(), made.shape(), made.partition, uid=UID, time_limit_s=made.time_limit_s)
        if isinstance(verdict, Refusal):
            self.refusals[number] = verdict
            return
        self.queue.add(QueueRow(number, made.partition, job.get("priority", 1), self.now_s - 60 + number, made.shape(),
                                made.time_limit_s, uid=UID, reason=verdict.reason))
        self.texts[number] = verdict.description
        if verdict.node_count:
            self.node_counts[number] = verdict.node_count

    def snapshot(self) -> Snapshot:
        return Snapshot(self.now_s, self.cluster, self.queue, lab.SETTINGS)

    def apply(self, plan: Plan) -> None:
        for row in plan.reason_rows.tolist():
            self.texts[int(self.queue.job_id[row])] = plan.descriptions.get(row, "")
        self.queue.apply_reasons(plan.reason_rows, plan.reason_codes)
        self.node_counts.update(plan.node_counts)
        if plan.decided_by == BACKFILL:
            self.expected = dict(plan.expected)
        for start in plan.starts:
            shape = self.queue.shapes[self.queue.shape[self.queue.rows(start.job_id)[0]]]
            self.cluster.apply_start(RunningJob(
                start.job_id, start.partition, start.shares, self.now_s + start.time_limit_s, self.now_s, uid=UID,
                whole_node=shape.whole_node))
            self.starts[start.job_id] = start
            self.queue.remove(start.job_id)
        for number, word in plan.held.items():
            self.held[number] = word
            self.queue.remove(number)

    def reason(self, number: int) -> str:
        if number in self.held:
            return self.held[number]
        return (self.texts.get(number) or REASONS[self.queue.reason[self.queue.rows(number)[0]]]).replace(" ", "_")

    def nodes(self, number: int) -> str:
        return compress([share.node for share in self.starts[number].shares])

    def size(self, number: int) -> tuple[str, str]:
        """(NumNodes, NumCPUs)."""
        row = self.queue.rows(number)[0]
        size = pending_size(self.queue.shapes[self.queue.shape[row]], self.cluster,
                            self.queue.partitions[self.queue.partition[row]], self.node_counts.get(number, 0))
        return size.nodes_text, str(size.cpus)


def replay(case: dict) -> Replay:
    """Passes are run when the recording says that they started jobs: backfill's was the first in most recordings, and
    where the main loop's was, backfill's often came a second later, so that jobs end a second apart."""
    jobs = case["jobs"]
    running = [job for job in jobs if job.get("state") == "RUNNING"]
    out = Replay(MINUTE + _second(jobs))
    for name in out.cluster.names:
        out.cluster.set_node_state(name, available=False, up=True)
    for number, job in enumerate(jobs, 1):
        out.submit(number, job)
    for name in out.cluster.names:
        out.cluster.set_node_state(name, available=True)
    begun_s = out.now_s
    seen = sorted({(job["start_s"], job["scheduler"]) for job in running},
                  key=lambda pair: (pair[0], pair[1] != "Main"))
    for start_s, scheduler in seen:
        out.now_s = begun_s + start_s
        out.apply((main_pass if scheduler == "Main" else backfill_pass)(out.snapshot()))
    for _ in range(3):
        out.apply(main_pass(out.snapshot()))
        out.apply(backfill_pass(out.snapshot()))
        out.now_s += 2
    return out


def origin_s(case: dict) -> int:
    """The moment that the recording's ``start_s`` count from."""
    return MINUTE + _second(case["jobs"])


def _second(jobs: list[dict]) -> int:
    """The second of the minute in which the recording began: promises of backfill are on whole minutes."""
    starts = {job["start_s"] for job in jobs if job.get("state") == "RUNNING"}
    found: Counter[int] = Counter()
    for job in jobs:
        if job.get("state") == "PENDING" and job["start_s"] and all((job["start_s"] - s) % 60 for s in starts):
            found[-job["start_s"] % 60] += 1
    return found.most_common(1)[0][0] if found else 0
