"""A long backfill pass is computed beside the event loop; what changed meanwhile is not overruled by it."""
from __future__ import annotations

import asyncio
import os

import numpy as np
import pytest

from slurmbridge.controller import aside
from slurmbridge.controller.late_plans import noted, prune
from slurmbridge.scheduling.columns import ClusterColumns
from slurmbridge.scheduling.facts import NodeShare, NodeSpec, Partition, RunningJob
from slurmbridge.scheduling.passes import backfill_pass
from slurmbridge.scheduling.queue import QueueColumns, QueueRow
from slurmbridge.scheduling.shape import Shape
from slurmbridge.scheduling.snapshot import Snapshot

NOW_S = 1_700_000_000


class Limits:
    enforced = False


class World:
    """What ``prune`` needs of the controller's."""

    def __init__(self) -> None:
        names = ["n1", "n2"]
        self.columns = ClusterColumns([NodeSpec(name, 1, 4, 1, 4, 4000) for name in names],
                                      [Partition("batch", frozenset(names))])
        self.queue, self.limits = QueueColumns(), Limits()
        for job_id in (1, 2):
            self.add(job_id)

    def add(self, job_id: int, **more: int) -> None:
        shape = Shape(min_nodes=1, max_nodes=1, nodes_given=True, num_tasks=4, tasks_given=True, min_cpus=4,
                      mem_per_cpu_mb=10)
        self.queue.add(QueueRow(job_id, "batch", 100 - job_id, NOW_S - 10, shape, 600, **more))

    def run(self, job_id: int, node: str) -> None:
        self.columns.apply_start(RunningJob(job_id, "batch", (NodeShare(node, 4, 40, (0, 1, 2, 3), (), 4),),
                                            NOW_S + 600, NOW_S))


def change_nothing(world: World) -> None:
    pass


def cancel(world: World) -> None:
    world.queue.remove(1)


def update(world: World) -> None:
    world.queue.remove(1)
    world.add(1, time_min_s=60)


def other_takes_the_row(world: World) -> None:
    world.queue.remove(1)
    world.add(9)


def hold(world: World) -> None:
    world.queue.set_eligible(1, False)


def node_is_taken(world: World) -> None:
    world.run(5, "n1")


def node_goes_down(world: World) -> None:
    world.columns.set_node_state("n1", available=False)


def limit_may_be_full(world: World) -> None:
    world.limits.enforced = True
    world.run(5, "n1")


@pytest.mark.parametrize(("change", "starts"), [
    (change_nothing, [1, 2]), (cancel, [2]), (update, [2]), (other_takes_the_row, [2]), (hold, [2]),
    (node_is_taken, [2]), (node_goes_down, [2]), (limit_may_be_full, [])])
def test_what_still_holds_of_a_plan(change, starts):
    world = World()
    snapshot = Snapshot(NOW_S, world.columns, world.queue)
    late, running = noted(backfill_pass(snapshot), snapshot), dict(world.columns.running)
    assert [start.job_id for start in late.plan.starts] == [1, 2]
    change(world)
    plan = prune(late, world, running)
    assert [start.job_id for start in plan.starts] == starts
    assert set(world.queue.job_id[plan.reason_rows].tolist()) <= {1, 2}


def test_work_in_a_child_sees_its_moment_and_leaves_nothing_behind():
    async def scenario():
        values = np.arange(500_000)
        task = asyncio.create_task(aside.compute(lambda: (os.getpid(), values * 2)))
        await asyncio.sleep(0)
        values[:] = 0
        return await task
    pid, answer = asyncio.run(scenario())
    assert pid != os.getpid() and answer[-1] == 999_998
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize("work", [lambda: 1 / 0, lambda: os._exit(3), lambda: lambda: None])
def test_work_that_fails_in_the_child(work):
    with pytest.raises(aside.AsideError):
        asyncio.run(aside.compute(work))


def test_cancelled_work_ends_its_child():
    async def scenario():
        task = asyncio.create_task(aside.compute(lambda: os.read(os.pipe()[0], 1)))
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.wait_for(asyncio.gather(task, return_exceptions=True), 5)
        return task.cancelled()
    assert asyncio.run(scenario())
