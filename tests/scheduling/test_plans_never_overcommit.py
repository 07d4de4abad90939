"""Whatever the cluster and the queue: no core, memory or device is given twice, jobs start whole, promises are kept."""
from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmbridge.scheduling.columns import ClusterColumns
from slurmbridge.scheduling.facts import NodeShare, NodeSpec, Partition, RunningJob, takes_request
from slurmbridge.scheduling.order import order
from slurmbridge.scheduling.passes import Refusal, admit, backfill_pass, main_pass, plan
from slurmbridge.scheduling.queue import QueueColumns, QueueRow
from slurmbridge.scheduling.shape import Shape
from slurmbridge.scheduling.size import Defaults, shape_of
from slurmbridge.scheduling.snapshot import Plan, SchedulerSettings, Snapshot
from slurmbridge.slurm.jobspec import JobRequest

NOW_S = 1_800_000_000
MINUTE_S = 60
DEFAULTS = Defaults(mem_per_cpu_mb=1000)
SHARING = (("NO", 1), ("YES", 2), ("FORCE", 1), ("FORCE", 2), ("FORCE", 3))


@dataclass
class World:
    columns: ClusterColumns
    queue: QueueColumns
    now_s: int = NOW_S

    def snapshot(self) -> Snapshot:
        return Snapshot(self.now_s, self.columns, self.queue, SchedulerSettings())

    def apply(self, answer: Plan) -> None:
        self.queue.apply_reasons(answer.reason_rows, answer.reason_codes)
        for start in answer.starts:
            row = self.queue.rows(start.job_id)[0]
            shape = self.queue.shapes[self.queue.shape[row]]
            self.columns.apply_start(RunningJob(
                start.job_id, start.partition, start.shares, self.now_s + start.time_limit_s, self.now_s,
                uid=int(self.queue.uid[row]), whole_node=shape.whole_node, oversubscribe=shape.oversubscribe))
        for job_id in {start.job_id for start in answer.starts} | set(answer.held):
            self.queue.remove(job_id)

    def let_jobs_end(self, seconds: int) -> None:
        self.now_s += seconds
        for job in [job for job in self.columns.running.values() if job.end_s <= self.now_s]:
            self.columns.apply_end(job.job_id)


@st.composite
def nodes(draw: st.DrawFn) -> list[NodeSpec]:
    out = []
    for i in range(draw(st.integers(1, 7))):
        sockets, cores, threads = draw(st.sampled_from([(1, 4, 1), (2, 4, 1), (2, 8, 1), (2, 4, 2)]))
        gres = draw(st.sampled_from([(), (("gpu", "a", 2),), (("gpu", "a", 1), ("gpu", "b", 3))]))
        out.append(NodeSpec(f"n{i}", sockets, cores, threads, sockets * cores * threads, 16000,
                            features=draw(st.sampled_from([(), ("x",), ("x", "y")])), gres=gres,
                            weight=draw(st.sampled_from([1, 1, 5]))))
    return out


@st.composite
def requests(draw: st.DrawFn) -> JobRequest:
    request = JobRequest()
    if draw(st.booleans()):
        request.min_nodes = draw(st.integers(1, 3))
        request.max_nodes, request.nodes_given = request.min_nodes + draw(st.integers(0, 2)), True
    if draw(st.booleans()):
        request.num_tasks, request.num_tasks_given = draw(st.integers(request.min_nodes or 1, 12)), True
    request.cpus_per_task = draw(st.sampled_from([None, 1, 2, 3]))
    memory = draw(st.sampled_from([None, ("mem_per_node_mb", 3000), ("mem_per_node_mb", 0), ("mem_per_cpu_mb", 2000)]))
    if memory is not None:
        setattr(request, *memory)
    gpus = draw(st.sampled_from([None, None, ("tres_per_node", "gres/gpu:1"), ("tres_per_node", "gres/gpu:b:2"),
                                 ("tres_per_job", "gres/gpu:2"), ("tres_per_task", "gres/gpu:1")]))
    if gpus is not None:
        setattr(request, *gpus)
    request.exclusive = draw(st.sampled_from([None, None, None, "exclusive", "user"]))
    request.oversubscribe = request.exclusive is None and draw(st.booleans())
    request.constraint = draw(st.sampled_from([None, None, "x", "x&y", "[x|y]"]))
    return request


@st.composite
def worlds(draw: st.DrawFn, kinds: tuple[tuple[str, int], ...] = (("NO", 1),)) -> World:
    """``kinds``: OverSubscribe of partitions."""
    specs = draw(nodes())
    names = [node.name for node in specs]
    columns = ClusterColumns(specs, [
        Partition("all", frozenset(names), over_subscribe=(kind := draw(st.sampled_from(kinds)))[0], max_share=kind[1]),
        Partition("part", frozenset(names[:max(1, len(names) // 2)]), tier=2,
                  over_subscribe=(kind := draw(st.sampled_from(kinds)))[0], max_share=kind[1])])
    world = World(columns, QueueColumns())
    for i, request in enumerate(draw(st.lists(requests(), min_size=5, max_size=14)), 1):
        shape = shape_of(request, DEFAULTS)
        partition = draw(st.sampled_from(["all", "all", "part"]))
        uid = draw(st.integers(1, 2))
        if isinstance(admit(world.snapshot(), shape, partition, uid=uid), Refusal):
            continue
        world.queue.add(QueueRow(i, partition, draw(st.integers(1, 9)), NOW_S - 60 + i, shape,
                                 draw(st.sampled_from([5, 10, 60, 600])) * MINUTE_S, uid=uid,
                                 tier=columns.partitions[partition].tier))
    return world


def shares_cores(columns: ClusterColumns, job: RunningJob) -> bool:
    return takes_request(columns.partitions[job.partition], oversubscribe=job.oversubscribe)


def check_nothing_twice(columns: ClusterColumns) -> None:
    """Recounts from the shares alone."""
    held: dict[str, list[tuple[RunningJob, NodeShare]]] = {}
    for job in columns.running.values():
        assert len({share.node for share in job.shares}) == len(job.shares)
        for share in job.shares:
            held.setdefault(share.node, []).append((job, share))
    for name, holders in held.items():
        i = columns.index[name]
        cores = Counter(core for _, share in holders for core in share.cores)
        by_partition = Counter((job.partition, core) for job, share in holders for core in share.cores)
        assert all(count <= columns.partitions[partition].max_share for (partition, _), count in by_partition.items())
        alone = {core for job, share in holders for core in share.cores if not shares_cores(columns, job)}
        assert all(cores[core] == 1 for core in alone)
        assert {core for core, busy in enumerate(columns.use.core_busy[i, :columns.cores[i]]) if busy} == set(cores)
        assert set(cores) <= set(range(int(columns.cores[i])))
        assert all(share.cpus <= len(share.cores) * columns.threads[i] for _, share in holders)
        assert sum(share.mem_mb for _, share in holders) <= columns.mem_mb[i]
        devices = Counter((kind, device) for _, share in holders for kind, _, indices in share.gres
                          for device in indices)
        assert all(count == 1 for count in devices.values())
        total = sum(int(column[i]) for column in columns.gres_total)
        assert all(0 <= device < total for _, device in devices)
        if any(job.whole_node == "exclusive" and not columns.partitions[job.partition].forced for job, _ in holders):
            assert len(holders) == 1
        owners = {job.uid for job, _ in holders if job.whole_node == "user"}
        assert not owners or {job.uid for job, _ in holders} == owners


def check_whole(shape: Shape, shares: tuple[NodeShare, ...], columns: ClusterColumns) -> None:
    assert max(shape.min_nodes, 1) <= len(shares) <= (shape.max_nodes or len(columns))
    assert sum(share.cpus for share in shares) >= shape.min_cpus
    if shape.num_tasks:
        assert sum(share.tasks for share in shares) >= shape.num_tasks
    for request in shape.gres:
        found = [sum(len(indices) for name, kind, indices in share.gres
                     if name == request.name and request.type in (None, kind)) for share in shares]
        assert all(count >= request.per_node for count in found)
        assert sum(found) >= max(request.per_job, request.per_task * shape.num_tasks)


def check_promises(world: World, answer: Plan) -> None:
    """No start of a job that comes later in the queue reaches into the time of a promised node."""
    rank = {int(world.queue.job_id[row]): i for i, row in enumerate(
        order(world.snapshot(), np.flatnonzero(world.queue.live)))}
    for promise in answer.expected.values():
        for start in answer.starts:
            if rank[start.job_id] > rank[promise.job_id] and {s.node for s in start.shares} & set(promise.nodes):
                assert world.now_s + start.time_limit_s <= promise.start_s


@settings(max_examples=40, deadline=None)
@given(worlds(SHARING))
def test_cores_are_shared_by_as_many_jobs_as_the_partition_says_and_nothing_else_is(world: World) -> None:
    """Memory and devices are never shared; jobs that share no core are alone on theirs."""
    for _ in range(4):
        for run in (main_pass, backfill_pass):
            world.apply(run(world.snapshot()))
            check_nothing_twice(world.columns)
        world.let_jobs_end(5 * MINUTE_S)


@settings(max_examples=60, deadline=None)
@given(worlds(), st.sampled_from(["separate", "together"]))
def test_plans_give_nothing_twice_and_keep_promises(world: World, way: str) -> None:
    for _ in range(4):
        for run in (main_pass, backfill_pass) if way == "separate" else (plan,):
            answer = run(world.snapshot())
            for start in answer.starts:
                row = world.queue.rows(start.job_id)[0]
                check_whole(world.queue.shapes[world.queue.shape[row]], start.shares, world.columns)
            check_promises(world, answer)
            world.apply(answer)
            check_nothing_twice(world.columns)
        world.let_jobs_end(5 * MINUTE_S)


@settings(max_examples=40, deadline=None)
@given(st.one_of(worlds(), worlds(SHARING)))
def test_ended_jobs_leave_the_cluster_as_it_was(world: World) -> None:
    before = world.columns.use.copy()
    world.apply(plan(world.snapshot()))
    for job_id in list(world.columns.running):
        world.columns.apply_end(job_id)
    after = world.columns.use
    assert (after.core_busy == before.core_busy).all()
    assert (after.socket_free == before.socket_free).all()
    assert (after.mem_alloc_mb == before.mem_alloc_mb).all()
    assert all((a == b).all() for a, b in zip(after.gres_busy, before.gres_busy))
    assert not after.whole.any()


@settings(max_examples=40, deadline=None)
@given(worlds())
def test_a_pass_changes_nothing_that_the_controller_owns(world: World) -> None:
    use, reasons = world.columns.use.copy(), world.queue.reason.copy()
    first, second = plan(world.snapshot()), plan(world.snapshot())
    assert first.starts == second.starts
    assert first.expected == second.expected
    assert (world.columns.use.core_busy == use.core_busy).all()
    assert (world.queue.reason == reasons).all()
    assert not world.columns.running
