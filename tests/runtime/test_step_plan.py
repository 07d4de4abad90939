"""Where steps run, without running any: nodes, CPUs, memory and GPUs of an allocation."""
from __future__ import annotations

import pytest

from slurmbridge.runtime.binding import bound_gpus
from slurmbridge.runtime.layout import Distribution, LayoutError, lay_out, lay_out_arbitrary, task_capacity
from slurmbridge.runtime.layout import tasks_per_node_text as text
from slurmbridge.runtime.stepplan import plan
from slurmbridge.runtime.steptypes import NodeUse, StepRefused, StepRequest, occupy
from slurmbridge.slurm import errors
from slurmbridge.slurm.multiprog import MultiProgError, programs

BUSY, TOO_MANY = errors.ESLURM_NODES_BUSY, errors.ESLURM_TOO_MANY_REQUESTED_CPUS
MEMORY = errors.ESLURM_INVALID_TASK_MEMORY
NOT_AVAILABLE, GRES = errors.ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE, errors.ESLURM_INVALID_GRES


@pytest.mark.parametrize(("tasks", "cpus", "per_task", "distribution", "expected"), [
    (7, (5, 1, 1), 1, Distribution("block"), "5,1(x2)"),          # recorded
    (40, (32, 8), 1, Distribution("block"), "32,8"),              # recorded
    (5, (3, 3), 1, Distribution("block"), "3,2"),
    (6, (5, 1), 1, Distribution("cyclic"), "5,1"),
    (4, (2, 2), 2, Distribution("block"), "2(x2)"),               # more than fit: shared evenly
    (4, (4, 4), 1, Distribution("block", pack=True), "3,1"),
    (6, (4, 1, 1), 1, Distribution("plane", 2), "4,1(x2)"),
    (3, (8, 8, 8, 8), 1, Distribution("block"), "1(x3),0")])
def test_tasks_on_nodes(tasks, cpus, per_task, distribution, expected):
    found = lay_out(tasks, task_capacity(cpus, per_task), distribution)
    assert text([len(ids) for ids in found]) == expected
    assert sorted(task for ids in found for task in ids) == list(range(tasks))


@pytest.mark.parametrize(("distribution", "expected"), [
    (Distribution("block"), [[0, 1, 2], [3, 4, 5]]), (Distribution("cyclic"), [[0, 2, 4], [1, 3, 5]]),
    (Distribution("plane", 2), [[0, 1, 4, 5], [2, 3]])])
def test_task_numbers_by_distribution(distribution, expected):
    assert lay_out(6, [4, 4], distribution) == expected


def test_arbitrary_needs_a_name_a_task():
    assert lay_out_arbitrary(["a", "b"], ["b", "a", "b"], 3) == [[1], [0, 2]]
    with pytest.raises(LayoutError, match="Asked for 2 tasks have 3 in the nodelist"):
        lay_out_arbitrary(["a", "b"], ["b", "a", "b"], 2)


def nodes(*cpus: int, gpus: int = 0) -> list[NodeUse]:
    return [NodeUse(f"n{index}", count, count * 1000, {"gpu:a100": tuple(range(gpus))} if gpus else {})
            for index, count in enumerate(cpus, 1)]


def picked(request: StepRequest, on: list[NodeUse], next_node: int = 0) -> dict[str, tuple[int, ...]]:
    return {share.name: share.tasks for share in plan(request, on, next_node).shares}


@pytest.mark.parametrize(("request_", "expected"), [
    (StepRequest(2, 2, 2, 2), {"n1": (0,), "n2": (1,)}),
    (StepRequest(4, 2, 2, 4), {"n1": (0, 1), "n2": (2, 3)}),
    (StepRequest(1, 1, 1, 1, relative=1), {"n2": (0,)}),
    (StepRequest(1, 1, 1, 1, node_list=("n2",)), {"n2": (0,)}),
    (StepRequest(1, 1, 1, 1, exclude=("n1",)), {"n2": (0,)}),
    (StepRequest(None, 2, 2, 0, cpus_per_task=2), {"n1": (0, 1), "n2": (2, 3)}),
    (StepRequest(1, 1, 2, 6), {"n1": (0,), "n2": ()}),
    (StepRequest(9, 2, 2, 9), TOO_MANY), (StepRequest(1, 1, 1, 5), TOO_MANY), (StepRequest(0, 1, 1, 0),
                                                                                 errors.ESLURM_BAD_TASK_COUNT),
    (StepRequest(1, 2, 1, 1), errors.ESLURM_INVALID_NODE_COUNT),
    (StepRequest(1, 1, 1, 1, node_list=("n9",)), NOT_AVAILABLE),
    (StepRequest(1, 1, 1, 1, node_list=("n1",), exclude=("n1",)), NOT_AVAILABLE),
    (StepRequest(1, 1, 1, 1, mem_per_node_mb=9000, job_mem_per_node=True), MEMORY),
    (StepRequest(2, 2, 2, 2, mem_per_node_mb=9000), BUSY),        # as Slurm: it waits for ever
    (StepRequest(1, 1, 1, 1, gres_per_node=(("gpu", 1),)), GRES),
    (StepRequest(1, 1, 1, 1, feature="x"), errors.ESLURM_INVALID_FEATURE)])
def test_nodes_of_a_step(request_, expected):
    if isinstance(expected, int):
        with pytest.raises(StepRefused) as refused:
            plan(request_, nodes(4, 4))
        assert refused.value.code == expected
    elif () in expected.values():                                # a node that would have no task
        with pytest.raises(StepRefused):
            plan(request_, nodes(4, 4))
    else:
        assert picked(request_, nodes(4, 4)) == expected


def test_steps_next_to_each_other():
    on = nodes(4, 4)
    whole = plan(StepRequest(2, 2, 2, 2), on)
    occupy(on, whole)
    assert [(node.cpus_used, node.mem_used_mb) for node in on] == [(4, 0), (4, 0)]
    for late in (StepRequest(1, 1, 1, 1), StepRequest(1, 1, 1, 1, whole=False)):
        with pytest.raises(StepRefused) as refused:
            plan(late, on)
        assert refused.value.retry
    assert picked(StepRequest(1, 1, 1, 1, overlap=True), on) == {"n1": (0,)}
    occupy(on, whole, -1)
    assert [(node.cpus_used, node.steps) for node in on] == [(0, 0), (0, 0)]


def test_exact_steps_share_a_node_until_it_is_full():
    on = nodes(4)
    request = StepRequest(1, 1, 1, 1, whole=False, mem_per_cpu_mb=1000)
    for _ in range(4):
        occupy(on, plan(request, on))
    assert (on[0].cpus_used, on[0].mem_used_mb) == (4, 4000)
    with pytest.raises(StepRefused) as refused:
        plan(request, on)
    assert refused.value.code == BUSY


def test_overlap_needs_memory_all_the_same():
    on = nodes(2)
    occupy(on, plan(StepRequest(1, 1, 1, 1, mem_per_cpu_mb=1000), on))
    with pytest.raises(StepRefused) as refused:                  # recorded: a nested srun --overlap
        plan(StepRequest(1, 1, 1, 1, overlap=True, mem_per_cpu_mb=1000), on)
    assert (refused.value.code, refused.value.takes_number) == (MEMORY, True)


def test_round_robin_over_nodes():
    on = nodes(4, 4, 4)
    request, order, at = StepRequest(1, 1, 1, 1), [], 0
    for _ in range(4):
        found = plan(request, on, at)
        order.append(found.shares[0].name)
        at = found.next_node
    assert order == ["n1", "n2", "n3", "n1"]


@pytest.mark.parametrize(("options", "expected"), [
    ({}, [(0, 1, 2, 3)] * 2), ({"gres_per_node": ()}, [(), ()]), ({"gres_per_node": (("gpu", 2),)}, [(0, 1)] * 2),
    ({"gres_per_step": (("gpu", 3),)}, [(0, 1), (0,)]), ({"gres_per_task": (("gpu:a100", 1),)}, [(0, 1), (0,)])])
def test_gpus_of_a_step(options, expected):
    found = plan(StepRequest(3, 2, 2, 3, **options), nodes(4, 4, gpus=4))
    assert [share.gres.get("gpu:a100", ()) for share in found.shares] == expected


@pytest.mark.parametrize(("bind", "expected"), [
    (None, [[4, 5, 6, 7]] * 2), ("gres/gpu:per_task:1", [[4], [5]]), ("gres/gpu:per_task:2", [[4, 5], [6, 7]]),
    ("gres/gpu:single:1", [[4], [5]]), ("gres/gpu:single:2", [[4], [4]]), ("gres/gpu:map:3,0", [[7], [4]]),
    ("gres/gpu:mask:0x3,0xc", [[4, 5], [6, 7]]), ("gres/nic:per_task:1", [[4, 5, 6, 7]] * 2)])
def test_gpus_of_a_task(bind, expected):
    assert [bound_gpus(bind, [4, 5, 6, 7], local) for local in (0, 1)] == expected


@pytest.mark.parametrize(("config", "message"), [
    ("0 a", "Configuration file mp invalid, no record for task id 1"),
    ("0\n1 b", "Line 1 of configuration file mp invalid"),
    ("0-x a", "Line 1 of configuration file mp invalid"), ("0 a\n0-1 b", "Line 2 of configuration file mp invalid"),
    ("# only\n\n", "Configuration file mp invalid, no record for task id 0")])
def test_bad_multi_prog_files(config, message):
    with pytest.raises(MultiProgError) as wrong:
        programs("mp", config, 2, ())
    assert wrong.value.lines[-1] == message


def test_multi_prog_words():
    config = "0 a 'b %t' c\\ d %t:%o\\\n more\n1,2 x%t\n"
    assert programs("mp", config, 3, ("z",)) == [["a", "b %t", "c d", "0:0", "more", "z"], ["x1", "z"], ["x2", "z"]]
