"""When and where a job would start if it were the only one waiting (--test-only, job_start_data in slurmctld)."""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurmbridge.scheduling import pick, reservations
from slurmbridge.scheduling.demand import ask, node_bounds
from slurmbridge.scheduling.future import Future
from slurmbridge.scheduling.snapshot import Snapshot
from slurmbridge.scheduling.state import begin
from slurmbridge.scheduling.willrun import Window, with_features


@dataclass(frozen=True, slots=True)
class WillRun:
    """Earliest start (epoch), nodes in the cluster's order and CPUs, if the running jobs use up their limits."""

    start_s: int
    nodes: tuple[str, ...]
    cpus: int
    partition: str
    preempted: tuple[int, ...] = ()


def will_run(snapshot: Snapshot, row: int) -> WillRun | None:
    """Looks at the running jobs only, not at those that wait. ``row``: of the snapshot's queue. None: never."""
    queue, columns, settings = snapshot.queue, snapshot.cluster, snapshot.settings
    state = begin(snapshot)
    name = queue.partitions[queue.partition[row]]
    demand = state.demands.of(queue.shapes[queue.shape[row]])
    limit_s, start_s = int(queue.time_limit_s[row]), snapshot.now_s
    all_of_them = snapshot.reservations
    own = next(iter(reservations.named(all_of_them, demand.shape.reservation)), None)
    if own is not None and not own.flex:
        start_s = max(start_s, own.start_s)
    view, start_s = reservations.first_view(columns, all_of_them, demand, name, start_s, limit_s)
    bounds = node_bounds(demand.shape, columns.partitions[name])
    if view is None or bounds[1] < bounds[0]:
        return None
    nodes = columns.partition_nodes[name] & demand.allowed & columns.available
    if view.only is not None:
        nodes &= view.only
    if view.closed is not None:
        nodes &= ~view.closed
    nodes, _ = pick.configured(state, demand, nodes)
    if demand.required is not None and (demand.required & ~nodes).any():
        return None
    window = Window(snapshot.now_s, start_s, kill_wait_s=settings.kill_wait_s,
                    over_time_s=settings.over_time_limit_s, prefer_busy=settings.bf_busy_nodes,
                    linear_s=settings.bf_window_linear_s)
    question = ask(columns, demand, columns.partitions[name], settings, bounds)
    future = Future(state)
    for features in (demand.prefer, demand.features) if demand.prefer else (demand.features,):
        question.features = features
        answer = with_features(future, question, nodes, window, features)
        if answer is not None:
            chosen = tuple(columns.names[i] for i in np.flatnonzero(answer.selected.nodes))
            return WillRun(max(answer.start_s, start_s), chosen, answer.selected.cpus, name)
    return None
