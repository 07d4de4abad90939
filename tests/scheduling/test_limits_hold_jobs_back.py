"""Association and QOS limits count the jobs that start in the same pass, and say so in Slurm's words."""
from __future__ import annotations

from dataclasses import replace

import pytest

from slurmbridge.scheduling.columns import ClusterColumns
from slurmbridge.scheduling.facts import FOREVER_S, NodeSpec, Partition
from slurmbridge.scheduling.limit_words import word
from slurmbridge.scheduling.limits import Group, LimitBook, Limits, Subject, Usage
from slurmbridge.scheduling.passes import backfill_pass, main_pass
from slurmbridge.scheduling.queue import QueueColumns, QueueRow
from slurmbridge.scheduling.shape import Shape
from slurmbridge.scheduling.snapshot import SchedulerSettings, Snapshot

NOW_S = 1_800_000_000
USER, ACCOUNT, ROOT, QOS, PARTITION_QOS = range(5)
ONE_CPU = Shape(num_tasks=1, mem_per_cpu_mb=100)


def book(*, user: Limits | None = None, account: Limits | None = None, qos: Limits | None = None,
         partition_qos: Limits | None = None, flags: frozenset[str] = frozenset(), safe: bool = False) -> LimitBook:
    none = Limits()
    groups = [Group("bob", "assoc", user or none), Group("phys", "assoc", account or none),
              Group("root", "assoc", none),
              Group("normal", "qos", qos or none, flags=flags), Group("part", "qos", partition_qos or none)]
    return LimitBook(groups, [Subject("bob", "phys", (USER, ACCOUNT, ROOT), QOS, PARTITION_QOS)], safe=safe)


def snapshot(limits: LimitBook, shape: Shape = ONE_CPU, *, jobs: int = 3, limit_s: int = 3600,
             settings: SchedulerSettings | None = None) -> Snapshot:
    nodes = [NodeSpec(f"n{i}", 2, 4, 1, 8, 8000, gres=(("gpu", "a", 2),)) for i in range(4)]
    queue = QueueColumns()
    for i in range(1, jobs + 1):
        queue.add(QueueRow(i, "all", 100 - i, NOW_S - 60, shape, limit_s, uid=1, subject=0))
    columns = ClusterColumns(nodes, [Partition("all", frozenset(node.name for node in nodes))])
    return Snapshot(NOW_S, columns, queue, settings or SchedulerSettings(), limits=limits)


def outcome(view: Snapshot) -> tuple[int, set[str]]:
    """(jobs started, words of the others); both passes must agree."""
    answers = []
    for run in (main_pass, backfill_pass):
        plan = run(view)
        answers.append((len(plan.starts), set(plan.limit_reasons.values())))
    assert answers[0] == answers[1]
    return answers[0]


EIGHT = replace(ONE_CPU, num_tasks=8, min_cpus=8)
TWO_NODES = replace(ONE_CPU, min_nodes=2, max_nodes=2, num_tasks=2, min_cpus=2)


@pytest.mark.parametrize(("where", "limits", "shape", "started", "reason"), [
    ("user", Limits(max_jobs=2), ONE_CPU, 2, "AssocMaxJobsLimit"),
    ("user", Limits(grp_jobs=1), ONE_CPU, 1, "AssocGrpJobsLimit"),
    ("account", Limits(grp_jobs=1), ONE_CPU, 1, "AssocGrpJobsLimit"),
    ("account", Limits(max_jobs=1), ONE_CPU, 3, None),                     # per-job limits: only on the nearest level
    ("account", Limits(grp_tres={"cpu": 16}), EIGHT, 2, "AssocGrpCpuLimit"),
    ("account", Limits(grp_tres={"mem": 250}), ONE_CPU, 2, "AssocGrpMemLimit"),
    ("user", Limits(max_tres_per_job={"cpu": 4}), EIGHT, 0, "AssocMaxCpuPerJobLimit"),
    ("user", Limits(max_tres_per_node={"cpu": 4}), EIGHT, 0, "AssocMaxCpuPerNode"),
    ("user", Limits(max_tres_per_job={"node": 1}), TWO_NODES, 0, "AssocMaxNodePerJobLimit"),
    ("user", Limits(max_wall_s=1800), ONE_CPU, 0, "AssocMaxWallDurationPerJobLimit"),
    ("account", Limits(grp_tres_run_mins={"cpu": 500}), EIGHT, 1, "AssocGrpCPURunMinutesLimit"),
    ("user", Limits(max_tres_mins_per_job={"cpu": 100}), EIGHT, 0, "AssocMaxCpuMinutesPerJobLimit"),
    ("qos", Limits(grp_jobs=2), ONE_CPU, 2, "QOSGrpJobsLimit"),
    ("qos", Limits(max_jobs_per_user=1), ONE_CPU, 1, "QOSMaxJobsPerUserLimit"),
    ("qos", Limits(max_jobs_per_account=1), ONE_CPU, 1, "MaxJobsPerAccount"),
    ("qos", Limits(max_tres_per_user={"cpu": 16}), EIGHT, 2, "QOSMaxCpuPerUserLimit"),
    ("qos", Limits(max_tres_per_account={"cpu": 8}), EIGHT, 1, "MaxCpuPerAccount"),
    ("qos", Limits(min_tres_per_job={"cpu": 2}), ONE_CPU, 0, "QOSMinCpuNotSatisfied"),
    ("qos", Limits(grp_tres={"mem": 250}), ONE_CPU, 2, "QOSGrpMemLimit"),
    ("qos", Limits(max_tres_run_mins_per_user={"cpu": 60}), ONE_CPU, 1, "MaxCpuRunMinsPerUser"),
    ("partition_qos", Limits(grp_jobs=1), ONE_CPU, 1, "QOSGrpJobsLimit"),
])
def test_a_limit_lets_so_many_start(where: str, limits: Limits, shape: Shape, started: int, reason: str | None) -> None:
    assert outcome(snapshot(book(**{where: limits}), shape)) == (started, {reason} if reason else set())


def test_a_node_shared_by_jobs_of_a_group_counts_once() -> None:
    assert outcome(snapshot(book(account=Limits(grp_tres={"node": 1})), jobs=8)) == (8, set())
    assert outcome(snapshot(book(account=Limits(grp_tres={"node": 1})), EIGHT)) == (1, {"AssocGrpNodeLimit"})


def test_the_qos_masks_the_same_limit_of_associations() -> None:
    limits = book(qos=Limits(grp_jobs=3), user=Limits(grp_jobs=1))
    assert outcome(snapshot(limits)) == (3, set())


@pytest.mark.parametrize(("flags", "started"), [(frozenset(), 1), (frozenset({"OverPartQOS"}), 2)])
def test_the_partition_qos_comes_first_unless_the_job_qos_goes_over_it(flags: frozenset[str], started: int) -> None:
    limits = book(qos=Limits(max_jobs_per_user=2), partition_qos=Limits(max_jobs_per_user=1), flags=flags)
    assert outcome(snapshot(limits))[0] == started


def test_usage_before_the_pass_counts() -> None:
    limits = book(account=Limits(grp_tres={"cpu": 10}, grp_tres_mins={"cpu": 100}))
    limits.groups[ACCOUNT].usage = Usage(tres={"cpu": 9}, jobs=1)
    assert outcome(snapshot(limits)) == (1, {"AssocGrpCpuLimit"})
    limits.groups[ACCOUNT].usage = Usage(tres_used_secs={"cpu": 6000.0})
    assert outcome(snapshot(limits)) == (0, {"AssocGrpCPUMinutesLimit"})


@pytest.mark.parametrize(("safe", "started"), [(False, 3), (True, 1)])
def test_safe_counts_what_jobs_may_still_use(safe: bool, started: int) -> None:
    limits = book(account=Limits(grp_tres_mins={"cpu": 100}), safe=safe)
    assert outcome(snapshot(limits))[0] == started


def test_a_limited_job_closes_its_partition_only_with_assoc_limit_stop() -> None:
    view = snapshot(book(qos=Limits(min_tres_per_job={"cpu": 2})), jobs=1)
    view.queue.add(QueueRow(9, "all", 1, NOW_S, ONE_CPU, 3600))
    assert [start.job_id for start in main_pass(view).starts] == [9]
    view.settings = SchedulerSettings(assoc_limit_stop=True)
    assert not main_pass(view).starts


def test_jobs_without_a_time_limit_break_any_wall_limit() -> None:
    view = snapshot(book(qos=Limits(max_wall_s=3600)), limit_s=FOREVER_S)
    assert outcome(view) == (0, {"QOSMaxWallDurationPerJobLimit"})


@pytest.mark.parametrize(("rule", "owner", "tres", "expected"), [
    ("grp_tres", "Assoc", "gres/gpu:a100", "AssocGrpGRES"), ("grp_tres", "QOS", "license/x", "QOSGrpLicense"),
    ("grp_tres_mins", "QOS", "mem", "QOSGrpMemoryMinutes"), ("grp_tres_mins", "Assoc", "mem", "AssocGrpMemMinutes"),
    ("grp_tres_run_mins", "Assoc", "mem", "AssocGrpMemRunMinutes"),
    ("grp_tres_run_mins", "QOS", "mem", "QOSGrpMemoryRunMinutes"),
    ("max_tres_per_node", "QOS", "mem", "QOSMaxMemoryPerNode"),
    ("max_tres_per_node", "Assoc", "mem", "AssocMaxMemPerNode"),
    ("max_tres_per_user", "QOS", "gres/gpu", "QOSMaxGRESPerUser"),
    ("max_tres_per_user", "QOS", "node", "QOSMaxNodePerUserLimit"),
    ("max_tres_per_account", "QOS", "mem", "MaxMemoryPerAccount"),
    ("max_tres_run_mins_per_account", "QOS", "gres/gpu", "MaxGRESRunMinsPerAccount"),
    ("max_tres_mins_per_job", "QOS", "cpu", "QOSMaxCpuMinutesPerJobLimit"),
    ("min_tres_per_job", "QOS", "gres/gpu", "QOSMinGRES"),
    ("max_tres_per_job", "Assoc", "fs/disk", "AssocMaxUnknownPerJob"),
])
def test_words(rule: str, owner: str, tres: str, expected: str) -> None:
    assert word(rule, owner, tres) == expected


def test_jobs_below_the_threshold_of_their_qos_or_association_are_promised_nothing() -> None:
    full = replace(EIGHT, min_nodes=4, max_nodes=4, num_tasks=32, min_cpus=32)
    for threshold, promised in ((None, True), (90, True), (99, False)):
        answer = backfill_pass(snapshot(book(qos=Limits(min_prio_threshold=threshold)), full, jobs=2))
        assert len(answer.starts) == 1
        assert (answer.planned_nodes is not None and bool(answer.planned_nodes.any())) == promised


def test_a_qos_with_noreserve_is_promised_nothing() -> None:
    full = replace(EIGHT, min_nodes=4, max_nodes=4, num_tasks=32, min_cpus=32)
    answer = backfill_pass(snapshot(book(flags=frozenset({"NoReserve"})), full, jobs=2))
    assert len(answer.starts) == 1 and not answer.expected


def test_a_fair_share_below_the_threshold_of_the_qos_holds_the_jobs() -> None:
    limits = book()
    limits.below_threshold = frozenset({0})
    assert outcome(snapshot(limits)) == (0, {"QOSUsageThreshold"})


@pytest.mark.parametrize(("factor", "flags", "started"), [(1.0, (), 2), (2.0, ("UsageFactorSafe",), 1), (2.0, (), 1)])
def test_the_usage_factor_weighs_what_running_jobs_may_still_use(factor: float, flags: tuple[str, ...],
                                                                 started: int) -> None:
    limits = book(account=Limits(grp_tres_run_mins={"cpu": 130}), flags=frozenset(flags))
    limits.groups[QOS].usage_factor = factor
    assert outcome(snapshot(limits, jobs=3))[0] == started


def test_a_limit_factor_raises_the_limits_of_associations() -> None:
    limits = book(account=Limits(grp_tres={"cpu": 8}))
    limits.groups[QOS].limit_factor = 2.0
    assert outcome(snapshot(limits, EIGHT)) == (2, {"AssocGrpCpuLimit"})
