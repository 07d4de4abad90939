"""A job that may preempt names the running jobs that must end for it, no more than needed, and waits for them."""
from __future__ import annotations

from dataclasses import replace

import pytest

from slurmbridge.scheduling.columns import ClusterColumns
from slurmbridge.scheduling.facts import NodeShare, NodeSpec, Partition, RunningJob
from slurmbridge.scheduling.passes import main_pass, plan
from slurmbridge.scheduling.queue import QueueColumns, QueueRow
from slurmbridge.scheduling.shape import Shape
from slurmbridge.scheduling.snapshot import Preemption, SchedulerSettings, Snapshot

NOW_S = 1_800_000_000
HALF = Shape(num_tasks=4, min_cpus=4, mem_per_cpu_mb=100)
RULES = Preemption(victims={"high": frozenset({"low", "normal"})}, qos_priority={"low": 0, "normal": 10, "high": 100})


def running(job_id: int, node: str, cores: range, qos: str = "low", **more: object) -> RunningJob:
    share = NodeShare(node, len(cores), 100 * len(cores), tuple(cores), (), len(cores))
    return RunningJob(job_id, "all", (share,), NOW_S + 3600, NOW_S - 60, uid=1, qos=qos, **more)  # type: ignore[arg-type]


def snapshot(jobs: list[RunningJob], shape: Shape = HALF, *, qos: str = "high", rules: Preemption | None = RULES,
             **settings: str) -> Snapshot:
    columns = ClusterColumns([NodeSpec(f"n{i}", 2, 4, 1, 8, 8000) for i in (1, 2)],
                             [Partition("all", frozenset({"n1", "n2"})),
                              Partition("vip", frozenset({"n1", "n2"}), tier=5)])
    for job in jobs:
        columns.apply_start(job)
    queue = QueueColumns()
    partition = "vip" if settings.get("preempt_type") == "preempt/partition_prio" else "all"
    tier = columns.partitions[partition].tier
    queue.add(QueueRow(100, partition, 50, NOW_S - 10, shape, 600, uid=2, qos=qos, tier=tier))
    queue.add(QueueRow(101, "all", 10, NOW_S - 5, HALF, 600, uid=2))
    made = SchedulerSettings(**{"preempt_type": "preempt/qos", "preempt_mode": "REQUEUE", **settings})
    return Snapshot(NOW_S, columns, queue, made, preemption=rules)


FULL = [running(1, "n1", range(4)), running(2, "n1", range(4, 8), "normal"), running(3, "n2", range(8), "normal")]


def preempted(view: Snapshot) -> tuple[int, ...]:
    starts = main_pass(view).starts
    return starts[0].preempted if starts else ()


def test_the_least_important_job_goes_and_no_other() -> None:
    answer = main_pass(snapshot(FULL))
    assert [(start.job_id, start.preempted) for start in answer.starts] == [(100, (1,))]
    assert answer.reasons(snapshot(FULL).queue)[100] == "Resources"


def test_jobs_that_turn_out_not_to_be_in_the_way_stay() -> None:
    whole = replace(HALF, num_tasks=8, min_cpus=8, min_nodes=1, max_nodes=1)
    assert preempted(snapshot([running(1, "n1", range(4)), *FULL[2:]], replace(whole, node_list=("n2",)))) == (3,)


@pytest.mark.parametrize("change", [
    {"qos": "low"}, {"rules": None}, {"rules": replace(RULES, in_progress=frozenset({100}))},
    {"preempt_mode": "OFF"}, {"preempt_type": "preempt/none"},
    {"rules": replace(RULES, qos_mode={"low": "OFF", "normal": "OFF"})},
])
def test_nobody_is_preempted(change: dict) -> None:
    assert preempted(snapshot(FULL, **change)) == ()


def test_exempt_jobs_stay_for_their_time() -> None:
    jobs = [replace(FULL[0], preempt_exempt_until_s=NOW_S + 60), *FULL[1:]]
    assert preempted(snapshot(jobs)) == (2,)


def test_higher_tiers_preempt_lower_ones() -> None:
    assert len(preempted(snapshot(FULL, preempt_type="preempt/partition_prio"))) == 1
    assert preempted(snapshot([FULL[0]], preempt_type="preempt/partition_prio")) == ()


def test_a_job_with_room_preempts_nobody() -> None:
    answer = main_pass(snapshot(FULL[:2]))
    assert [(start.job_id, start.preempted) for start in answer.starts] == [(100, ()), (101, ())]


def test_both_passes_together_name_the_victims_once() -> None:
    starts = [start for start in plan(snapshot(FULL)).starts if start.job_id == 100]
    assert [start.preempted for start in starts] == [(1,)]
