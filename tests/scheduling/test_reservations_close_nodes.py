"""What a job may use while reservations last: nodes, cores, and the time of its own one."""
from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from slurmbridge.scheduling.columns import ClusterColumns
from slurmbridge.scheduling.facts import NodeSpec, Partition
from slurmbridge.scheduling.order import order
from slurmbridge.scheduling.passes import backfill_pass, main_pass
from slurmbridge.scheduling.queue import QueueColumns, QueueRow
from slurmbridge.scheduling.reserve import Wanted, choose_nodes
from slurmbridge.scheduling.shape import Shape
from slurmbridge.scheduling.snapshot import Preemption, Reservation, SchedulerSettings, Snapshot
from slurmbridge.slurm.hostlist import compress

NOW_S = 1_800_000_000
HOUR_S = 3600
ONE = Shape(num_tasks=1, mem_per_cpu_mb=100)
WHOLE = replace(ONE, whole_node="exclusive")
THREE = replace(WHOLE, min_nodes=3, max_nodes=3, num_tasks=3, min_cpus=3)
ACTIVE = Reservation("r0", frozenset({"n1", "n2"}), NOW_S - 60, NOW_S + HOUR_S, id=1)


def columns() -> ClusterColumns:
    nodes = [NodeSpec(f"n{i}", 2, 4, 1, 8, 8000, weight=i) for i in range(1, 5)]
    return ClusterColumns(nodes, [Partition("all", frozenset(n.name for n in nodes)),
                                  Partition("small", frozenset({"n1", "n2"}))])


def view(shape: Shape, *reservations: Reservation, limit_s: int = 600, partition: str = "all") -> Snapshot:
    queue = QueueColumns()
    queue.add(QueueRow(1, partition, 10, NOW_S - 60, shape, limit_s, uid=1))
    return Snapshot(NOW_S, columns(), queue, SchedulerSettings(), reservations=reservations)


def result(snapshot: Snapshot) -> tuple[str, str]:
    """(nodes, "") of a start or ("", reason); both passes must agree about starts."""
    plan = main_pass(snapshot)
    nodes = compress(share.node for start in plan.starts for share in start.shares)
    assert nodes == compress(share.node for start in backfill_pass(snapshot).starts for share in start.shares)
    reasons = plan.reasons(snapshot.queue)
    return nodes, "" if nodes else plan.descriptions.get(snapshot.queue.rows(1)[0], reasons.get(1, ""))


NOT_AVAIL = "ReqNodeNotAvail, May be reserved for other job"
MAINT = "ReqNodeNotAvail, Reserved for maintenance"


@pytest.mark.parametrize(("shape", "reservation", "limit_s", "expected"), [
    (ONE, ACTIVE, 600, ("n3", "")),
    (THREE, ACTIVE, 600, ("", NOT_AVAIL)),
    (ONE, replace(ACTIVE, start_s=NOW_S + 300), 600, ("n3", "")),
    (ONE, replace(ACTIVE, start_s=NOW_S + 700), 600, ("n1", "")),
    (ONE, replace(ACTIVE, end_s=NOW_S - 1), 600, ("n1", "")),
    (replace(ONE, node_list=("n1",)), ACTIVE, 600, ("", NOT_AVAIL)),
    (ONE, replace(ACTIVE, all_nodes=True), 600, ("", MAINT)),
    (ONE, replace(ACTIVE, maint=True, nodes=frozenset({"n1", "n2", "n3", "n4"})), 600, ("", MAINT)),
    (ONE, replace(ACTIVE, part_nodes="all"), 600, ("", MAINT)),
    (replace(ONE, reservation_signal_s=60), replace(ACTIVE, max_start_delay_s=300), 600, ("n1", "")),
    (replace(WHOLE, reservation="r0"), ACTIVE, 600, ("n1", "")),
    (replace(THREE, reservation="r0"), replace(ACTIVE, flex=True), 600, ("n[1-3]", "")),
    (replace(ONE, reservation="r0"), replace(ACTIVE, start_s=NOW_S + 300), 600, ("", "Reservation")),
    (replace(ONE, reservation="gone"), ACTIVE, 600, ("", "Reservation")),
])
def test_a_job_gets_what_reservations_leave_it(shape: Shape, reservation: Reservation, limit_s: int,
                                               expected: tuple[str, str]) -> None:
    assert result(view(shape, reservation, limit_s=limit_s)) == expected


def test_parts_of_nodes_are_closed_core_by_core() -> None:
    part = replace(ACTIVE, nodes=frozenset({"n1"}), cores=(("n1", (0, 1, 2, 3, 4, 5)),))
    two, eight = replace(ONE, num_tasks=2, min_cpus=2), replace(ONE, num_tasks=8, min_cpus=8, max_nodes=1)
    outside = main_pass(view(two, part)).starts[0].shares
    assert [(share.node, share.cores) for share in outside] == [("n1", (6, 7))]
    assert result(view(eight, part))[0] == "n2"
    inside = main_pass(view(replace(two, reservation="r0"), part)).starts[0].shares
    assert set(inside[0].cores) <= {0, 1, 2, 3, 4, 5}
    assert result(view(WHOLE, part))[0] == "n2"


def test_of_several_reservations_the_first_that_can_serves_the_job() -> None:
    other = replace(ACTIVE, name="r1", id=2, nodes=frozenset({"n3"}))
    busy = replace(ACTIVE, nodes=frozenset({"n1"}))
    shape = replace(WHOLE, reservation="r1,r0")
    snapshot = view(shape, busy, other)
    assert result(snapshot)[0] == "n1"
    snapshot.cluster.set_node_state("n1", available=False)
    assert result(snapshot)[0] == "n3"


def test_a_new_reservation_takes_nodes_and_cores_as_a_job_would() -> None:
    cluster = columns()
    nodes = cluster.partition_nodes["all"]
    settings, partition = SchedulerSettings(), cluster.partitions["all"]
    whole = choose_nodes(cluster, settings, partition, nodes, Wanted(2, 0, NOW_S))
    assert whole is not None and [share.node for share in whole] == ["n1", "n2"]
    cores = choose_nodes(cluster, settings, partition, nodes, Wanted(0, 10, NOW_S))
    assert cores is not None and sum(len(share.cores) for share in cores) == 10
    assert len(cores) == 4                                                # as many nodes as there are
    assert choose_nodes(cluster, settings, partition, nodes, Wanted(5, 0, NOW_S)) is None


def test_preemptors_go_first_but_the_order_of_the_others_follows_the_sort() -> None:
    queue = QueueColumns()
    for job_id, (priority, qos) in enumerate([(50, "low"), (10, "high"), (40, "normal"), (60, "low")], 1):
        queue.add(QueueRow(job_id, "all", priority, NOW_S, ONE, 600, qos=qos))
    rules = Preemption(victims={"high": frozenset({"low"})})
    settings = SchedulerSettings(preempt_type="preempt/qos", preempt_mode="REQUEUE")
    snapshot = Snapshot(NOW_S, columns(), queue, settings, preemption=rules)
    rows = [queue.rows(job_id)[0] for job_id in (1, 2, 3, 4)]
    got = [int(queue.job_id[row]) for row in order(snapshot, np.array(rows))]
    assert got.index(2) < got.index(1) and sorted(got) == [1, 2, 3, 4]
    # halves (1, 2) and (3, 4) are sorted, then merged: 2 before 1; 4 before 3; 4 or 3 against 2 by priority or QOS
    assert got == [2, 4, 1, 3]
    plain = Snapshot(NOW_S, columns(), queue, settings)
    assert [int(queue.job_id[row]) for row in order(plain, np.array(rows))] == [4, 1, 3, 2]
