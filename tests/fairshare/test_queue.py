"""Priorities of a queue that changes: who is recomputed when, who keeps what he has, and how long it takes."""
from __future__ import annotations

import dataclasses
from typing import Any

import fairshare_cases as cases
import fairshare_lab as lab
import numpy as np
import pytest

from slurmbridge.controller.priorities import Priorities
from slurmbridge.fairshare.multifactor import NO_TIME_LIMIT_MIN, JobColumns, Lookups, Weights, age_factor, compute
from slurmbridge.slurm.jobspec import JobRequest
from slurmbridge.views.records import JobRecord


def job(number: int, **fields: Any) -> JobRecord:
    given = {"user_name": "fsa", "account": "qcd", "partition": "batch", "qos": "normal", "num_cpus": 4,
             "time_limit_min": 60, "submit_s": cases.NOW_S, "eligible_s": cases.NOW_S, "accrue_s": cases.NOW_S,
             "tres_req": {"cpu": 4, "mem": 4000, "node": 1}}
    return JobRecord(number, JobRequest(), **{**given, **fields})


def cluster(**settings: Any) -> Priorities:
    return Priorities(cases.conf(**settings), lab.accounting(), cases.partitions(), cases.nodes(),
                      last_ran_s=cases.NOW_S)


def queue(made: Priorities, *jobs: JobRecord) -> dict[int, JobRecord]:
    for one in jobs:
        made.initial(one, cases.NOW_S)
    return {one.job_id: one for one in jobs}


def factors(made: Priorities, now_s: float, job_ids: list[int] | None = None) -> list[dict[str, Any]]:
    """sprio's rows."""
    columns = made.priority_columns(now_s, job_ids)
    return [dict(zip(columns, row)) for row in zip(*columns.values())]


def test_priorities_grow_with_age_once_a_period() -> None:
    made = cluster()
    pending = queue(made, job(1), job(2, accrue_s=None), job(3, partition="debug,batch"))
    before = {number: one.priority for number, one in pending.items()}
    assert made.refreshed(pending, cases.NOW_S + 59) == {}
    changed = made.refreshed(pending, cases.NOW_S + 7 * 86400)
    assert set(changed) == {1, 3}
    assert pending[1].priority == before[1] + 1000
    assert pending[2].priority == before[2]
    assert pending[3].partition_priorities == changed[3][1]
    assert pending[3].partition_priorities["debug"] == pending[3].priority > pending[3].partition_priorities["batch"]


def test_held_and_fixed_jobs_keep_their_priority() -> None:
    made = cluster()
    held, fixed = job(1, priority=0), job(2, priority=77, priority_fixed=True)
    made.track(held)
    assert made.initial(fixed, cases.NOW_S) == 77
    made.refreshed({1: held, 2: fixed}, cases.NOW_S + 86400)
    assert (held.priority, fixed.priority) == (0, 77)
    rows = factors(made, cases.NOW_S + 86400)
    assert [(row["job_id"], row["direct_priority"], row["part"]) for row in rows] == [(2, 77, 0.0)]
    assert made.initial(held, cases.NOW_S) > 1
    assert len(factors(made, cases.NOW_S)) == 2


def test_the_queue_is_followed() -> None:
    made = cluster()
    first, second = job(1, priority=1), job(2)
    assert set(made.refreshed({1: first, 2: second}, cases.NOW_S)) == {1, 2}
    assert first.priority > 1 and second.priority == 0        # 2 is held
    made.job_started(first, cases.NOW_S)
    assert made.refreshed({2: second}, cases.NOW_S) == {}
    assert factors(made, cases.NOW_S) == []


def test_running_jobs_are_computed_only_on_request() -> None:
    for flags, shown in ((frozenset(), 0), (frozenset({"CALCULATE_RUNNING"}), 1)):
        made = cluster(flags=flags)
        pending = queue(made, job(1))
        pending[1].state, pending[1].start_s = "RUNNING", cases.NOW_S
        made.job_started(pending[1], cases.NOW_S)
        made.refreshed({}, cases.NOW_S + 60)
        assert len(factors(made, cases.NOW_S)) == shown


def test_incr_only_never_lowers() -> None:
    made = cluster(flags=frozenset({"INCR_ONLY"}))
    pending = queue(made, job(1), job(2, partition="debug,batch"))
    high = {number: (one.priority, dict(one.partition_priorities)) for number, one in pending.items()}
    made.partitions["batch"].priority_job_factor = 1
    made.reload(made.conf, made.partitions, made.nodes)
    assert made.recompute(cases.NOW_S) == []
    assert {number: (one.priority, one.partition_priorities) for number, one in pending.items()} == high


def test_a_changed_job_is_written_anew() -> None:
    made = cluster()
    pending = queue(made, job(1, partition="debug,batch"))
    pending[1].partition, pending[1].nice, pending[1].site_factor = "batch", 100, 30
    made.track(pending[1])
    before = pending[1].priority
    assert made.recompute(cases.NOW_S) == [pending[1]]
    assert pending[1].partition_priorities == {}
    row, = factors(made, cases.NOW_S)
    assert (row["nice"], row["site"], row["partition"]) == (100, 30, "batch")
    assert pending[1].priority < before


def test_new_shares_and_qos_priorities_are_seen() -> None:
    made = cluster()
    pending = queue(made, job(1), job(2, user_name="fsc"))
    data = made.accounting
    data.qos["normal"].priority = 50
    next(a for a in data.associations.values() if a.user == "fsa").shares = 0
    data.generation += 1
    changed = {one.job_id: one.priority for one in made.recompute(cases.NOW_S)}
    rows = {row["job_id"]: row for row in factors(made, cases.NOW_S)}
    assert set(changed) == {1, 2} and rows[1]["qos"] == 3000
    row = rows[1]
    parts = [row[name] for name in ("age", "assoc", "fairshare", "jobsize", "part", "qos")]
    assert pending[1].priority == int(sum(parts) + row["site"] - row["nice"] + sum(row["tres"].values()))


def test_sprio_has_no_rows_for_jobs_that_are_not_eligible() -> None:
    made = cluster()
    queue(made, job(1, eligible_s=None), job(2, eligible_s=cases.NOW_S + 10), job(3))
    assert [row["job_id"] for row in factors(made, cases.NOW_S)] == [3]
    assert [row["job_id"] for row in factors(made, cases.NOW_S + 10)] == [2, 3]
    made.conf.priority.flags = frozenset({"ACCRUE_ALWAYS"})
    made.reload(made.conf, made.partitions, made.nodes)
    assert [row["job_id"] for row in factors(made, cases.NOW_S)] == [1, 2, 3]
    assert [row["job_id"] for row in factors(made, cases.NOW_S, [1, 9])] == [1]


def test_rows_by_falling_tier_and_priority_by_the_first_given() -> None:
    made = cluster()
    made.partitions["debug"].priority_tier = 5
    one = queue(made, job(1, partition="batch,debug,all"))[1]
    assert [row["partition"] for row in factors(made, cases.NOW_S)] == ["debug", "batch", "all"]
    assert one.priority == one.partition_priorities["batch"]


def test_size_counts_the_nodes_asked_for_not_those_it_will_need() -> None:
    made = cluster()
    asked, needs = job(1), job(2, min_nodes=3)
    assert made.initial(asked, cases.NOW_S) == made.initial(needs, cases.NOW_S)


def test_priorities_stay_between_one_and_32_bits() -> None:
    made = cluster()
    assert made.initial(job(1, nice=10**9), cases.NOW_S) == 1
    assert made.initial(job(2, site_factor=10**10), cases.NOW_S) == 0xFFFFFFFF


@pytest.mark.parametrize(("accrue", "factor"), [(0, 0), (1000, 0), (900, 0.1), (1, 0.999), (-500, 0)])
def test_age(accrue: int, factor: float) -> None:
    assert age_factor(np.array([accrue]), 1000, 1000)[0] == factor


def test_many_jobs_at_once_get_what_each_gets_alone() -> None:
    rows, random = 200, np.random.default_rng(1)
    numbers = random.integers(1, 64, (9, rows))
    columns = JobColumns(numbers[0], numbers[1] % 4, numbers[2] % 3, numbers[3], numbers[4], numbers[5],
                         np.full(rows, NO_TIME_LIMIT_MIN), numbers[6], numbers[7], random.random((rows, 3)) * 10,
                         numbers[8] > 40)
    lookups = Lookups(100, 6400, random.random(64), random.random(64), random.random(4), np.full(4, 600),
                      np.full((4, 3), 640.0), random.random(3))
    weights = Weights(1000, 10, 10000, 500, 2000, 3000, {"cpu": 400.0, "mem": 200.0, "gres/gpu": 900.0})
    together = compute(columns, lookups, weights, 1000).priority.tolist()
    alone = [compute(_one_row(columns, row), lookups, weights, 1000).priority.tolist() for row in range(rows)]
    assert [[priority] for priority in together] == alone
    assert len(set(together)) > rows // 2


def _one_row(columns: JobColumns, row: int) -> JobColumns:
    return JobColumns(*(getattr(columns, field.name)[row:row + 1] for field in dataclasses.fields(JobColumns)))


def test_equal_jobs_get_equal_priorities_until_shares_change() -> None:
    made = cluster()
    variants = [{}, {"num_cpus": 8}, {"partition": "debug,batch"}, {"partition": "batch,debug"}, {"qos": "high"},
                {"time_limit_min": 5}, {"nice": 100}, {"tres_req": {"cpu": 4, "mem": 64000, "node": 2}},
                {"accrue_s": None}, {"accrue_s": cases.NOW_S - 86400}, {"account": "other"}, {"site_factor": 7}]
    pending = queue(made, *(job(1 + at, **variants[at % len(variants)]) for at in range(3 * len(variants))))
    shown = {number: (one.priority, dict(one.partition_priorities)) for number, one in pending.items()}
    assert len({repr(each) for each in shown.values()}) > 5
    for number in range(1, 1 + len(variants)):
        assert shown[number] == shown[number + len(variants)] == shown[number + 2 * len(variants)]
    assert made.recompute(cases.NOW_S) == []
    made.set_usage([("qcd", "fsa", 1e12)])
    late, other = job(100), job(101, user_name="fsb")
    for one in (late, other):
        made.initial(one, cases.NOW_S)
    assert late.priority != shown[1][0]
    assert made.recompute(cases.NOW_S) and late.priority == pending[1].priority
