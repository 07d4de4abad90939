#!/usr/bin/env python3
"""How long scheduling passes take on a large cluster: 10,000 nodes, 100,000 pending jobs by default.

The cluster is full of running jobs of many sizes; the queue has a few hundred different shapes in four partitions, as
user sites do. Passes are applied until little is left to start, as in a controller that has run for a while; then they
are timed. Targets: a main pass under 150 ms, a backfill pass that tries 500 jobs under 1.5 s.
"""
from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from slurmbridge.scheduling.columns import ClusterColumns
from slurmbridge.scheduling.facts import NodeShare, NodeSpec, Partition, RunningJob
from slurmbridge.scheduling.passes import backfill_pass, main_pass
from slurmbridge.scheduling.queue import QueueColumns, QueueRow
from slurmbridge.scheduling.shape import GresRequest, Shape
from slurmbridge.scheduling.snapshot import Plan, Snapshot

NOW_S = 1_700_000_000
HOUR_S = 3600
SHAPES = 300


def cluster(count: int, rng: random.Random) -> ClusterColumns:
    """Three quarters CPU nodes (2 x 32 cores), a quarter with 8 GPUs; 97 % of the nodes hold jobs."""
    nodes = []
    for i in range(count):
        gpus = (("gpu", "a100", 8),) if i % 4 == 3 else ()
        nodes.append(NodeSpec(f"n{i}", 2, 32, 1, 64, 256_000, weight=20 if gpus else 10, gres=gpus,
                              features=("amd", "ib") if i % 2 else ("intel", "ib")))
    names = [node.name for node in nodes]
    columns = ClusterColumns(nodes, [
        Partition("batch", frozenset(names), max_time_s=48 * HOUR_S),
        Partition("cpu", frozenset(n for i, n in enumerate(names) if i % 4 != 3), max_time_s=48 * HOUR_S),
        Partition("gpu", frozenset(names[3::4]), max_time_s=48 * HOUR_S, tier=2),
        Partition("short", frozenset(names[:count // 10]), max_time_s=2 * HOUR_S, tier=3)])
    _fill(columns, nodes, rng)
    return columns


def _fill(columns: ClusterColumns, nodes: list[NodeSpec], rng: random.Random) -> None:
    at = job_id = 0
    while at < len(nodes):
        size = rng.choice((1, 1, 1, 1, 2, 4, 8, 32))
        part = nodes[at:at + size]
        at += size
        if rng.random() < 0.03:
            continue
        cores = rng.choice((16, 32, 48, 64))
        job_id += 1
        shares = tuple(NodeShare(node.name, cores, cores * 3000, tuple(range(cores)),
                                 (("gpu", "a100", tuple(range(8))),) if node.gres else (), cores) for node in part)
        columns.apply_start(RunningJob(job_id, "batch", shares, NOW_S + rng.randrange(60, 24 * HOUR_S), NOW_S - 600))


def queue(count: int, rng: random.Random) -> QueueColumns:
    shapes = [_shape(rng) for _ in range(SHAPES)]
    columns = QueueColumns(count)
    for i in range(count):
        shape = shapes[min(int(rng.expovariate(1 / 40)), SHAPES - 1)]
        name = "gpu" if shape.gres else rng.choice(("batch", "batch", "cpu", "short"))
        limit_s = rng.choice((30, 60, 120)) * 60 if name == "short" else rng.choice((30, 60, 240, 1440)) * 60
        columns.add(QueueRow(1_000_000 + i, name, rng.randrange(1, 1_000_000), NOW_S - rng.randrange(100_000), shape,
                             limit_s, uid=rng.randrange(1000, 1300), tier={"gpu": 2, "short": 3}.get(name, 1)))
    return columns


def _shape(rng: random.Random) -> Shape:
    nodes = rng.choice((1, 1, 1, 2, 4, 16, 64))
    tasks = nodes * rng.choice((1, 4, 16, 32, 64))
    cpus = rng.choice((1, 1, 2))
    gres = (GresRequest("gpu", per_node=rng.choice((1, 2, 4, 8))),) if rng.random() < 0.3 else ()
    return Shape(min_nodes=nodes, max_nodes=nodes, nodes_given=True, num_tasks=tasks, tasks_given=True,
                 cpus_per_task=cpus, cpus_per_task_given=cpus > 1, min_cpus=tasks * cpus, min_cpus_per_node=cpus,
                 mem_per_cpu_mb=2000, gres=gres, constraint=rng.choice((None, None, None, "amd", "intel|amd", "ib")))


@dataclass(frozen=True, slots=True)
class Figure:
    """The best of several passes, by the clock and by CPU time."""

    name: str
    best_s: float
    cpu_s: float
    plan: Plan


def timed(name: str, snapshot: Snapshot, run: Callable[[Snapshot], Plan], repeat: int) -> Figure:
    best = cpu = float("inf")
    plan = Plan("")
    for _ in range(repeat):
        began, began_cpu = time.perf_counter(), time.process_time()
        plan = run(snapshot)
        best, cpu = min(best, time.perf_counter() - began), min(cpu, time.process_time() - began_cpu)
    return Figure(name, best, cpu, plan)


def settle(snapshot: Snapshot, rounds: int) -> None:
    """Starts what fits, until a round starts next to nothing."""
    for _ in range(rounds):
        started = 0
        for run in (main_pass, backfill_pass):
            plan = run(snapshot)
            snapshot.queue.apply_reasons(plan.reason_rows, plan.reason_codes)
            for start in plan.starts:
                snapshot.queue.remove(start.job_id)
                snapshot.cluster.apply_start(RunningJob(start.job_id, start.partition, start.shares,
                                                        NOW_S + start.time_limit_s, NOW_S))
                started += 1
        if started < 10:
            return


def measure(nodes: int, jobs: int, repeat: int, rounds: int) -> list[Figure]:
    """A main and a backfill pass over such a queue on such a cluster, after ``rounds`` passes that start what fits."""
    rng = random.Random(7)
    snapshot = Snapshot(NOW_S, cluster(nodes, rng), queue(jobs, rng))
    settle(snapshot, rounds)
    return [timed("main pass", snapshot, main_pass, repeat), timed("backfill pass", snapshot, backfill_pass, repeat)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=8, help="passes before the timed ones")
    given = parser.parse_args()
    for figure, target_ms in zip(measure(given.nodes, given.jobs, given.repeat, given.rounds), (150, 1500)):
        print(f"{figure.name:<13}: {figure.best_s * 1000:8.1f} ms, {figure.cpu_s * 1000:.1f} ms of CPU (target "
              f"{target_ms}), {figure.plan.tested} tried, {len(figure.plan.starts)} started, "
              f"{len(figure.plan.expected)} expected", flush=True)


if __name__ == "__main__":
    main()
