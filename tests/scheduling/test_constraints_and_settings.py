"""Feature expressions choose nodes as sbatch(1) says; SchedulerParameters become settings; --test-only looks ahead."""
from __future__ import annotations

from dataclasses import replace

import pytest
from scheduling import lab

from slurmbridge.scheduling import licensing
from slurmbridge.scheduling.config import settings_of
from slurmbridge.scheduling.facts import NodeShare, RunningJob
from slurmbridge.scheduling.passes import Admission, Refusal, admit, main_pass, will_run
from slurmbridge.scheduling.queue import QueueColumns, QueueRow
from slurmbridge.scheduling.shape import Shape
from slurmbridge.scheduling.snapshot import Snapshot
from slurmbridge.slurm.settings import SlurmConf

NOW_S = 1_800_000_000
ONE = Shape(min_nodes=1, max_nodes=1, nodes_given=True, num_tasks=1, mem_per_cpu_mb=1000)


def snapshot(shape: Shape, partition: str = "all") -> Snapshot:
    queue = QueueColumns()
    queue.add(QueueRow(1, partition, 1, NOW_S, shape, 600, uid=1))
    return Snapshot(NOW_S, lab.cluster(), queue, lab.SETTINGS)


@pytest.mark.parametrize(("constraint", "nodes", "chosen"), [
    ("rome", 1, ["n5"]), ("intel&v100", 1, ["g2"]), ("milan|v100", 1, ["g2"]), ("[intel|rome]", 2, ["n1", "n2"]),
    ("rome", 2, ["n5", "n6"]), ("[rome*1&v100*1]", 2, ["g2", "n5"]), ("amd&(milan|rome)", 1, ["n5"]),
])
def test_constraints(constraint: str, nodes: int, chosen: list[str]) -> None:
    shape = replace(ONE, min_nodes=nodes, max_nodes=nodes, num_tasks=nodes, min_cpus=nodes, constraint=constraint)
    starts = main_pass(snapshot(shape)).starts
    assert [share.node for share in starts[0].shares] == chosen


@pytest.mark.parametrize(("changes", "partition", "error"), [
    ({"constraint": "nosuch"}, "all", "ESLURM_INVALID_FEATURE"),
    ({"node_list": ("nosuch",)}, "all", "ESLURM_INVALID_NODE_NAME"),
    ({"mem_per_cpu_mb": None, "mem_per_node_mb": 10**7}, "batch", "ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE"),
    ({"constraint": "v100", "min_nodes": 2, "max_nodes": 2, "num_tasks": 2, "min_cpus": 2}, "all",
     "ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE"),
])
def test_requests_that_can_never_run_are_refused(changes: dict, partition: str, error: str) -> None:
    shape = replace(ONE, **changes)
    verdict = admit(snapshot(ONE), shape, partition)
    assert isinstance(verdict, Refusal)
    assert verdict.error == error


def test_a_job_of_too_many_nodes_waits_where_limits_are_not_enforced() -> None:
    many = replace(ONE, min_nodes=9, max_nodes=9, num_tasks=9, min_cpus=9)
    assert isinstance(admit(snapshot(ONE), many, "all"), Admission)
    enforcing = snapshot(ONE)
    enforcing.settings = replace(lab.SETTINGS, enforce_part_limits="ALL")
    assert isinstance(admit(enforcing, many, "all"), Refusal)


def test_will_run_says_when_the_nodes_become_free() -> None:
    view = snapshot(replace(ONE, min_cpus=32, num_tasks=32, node_list=("n1",)), "batch")
    assert will_run(view, 0).start_s == NOW_S
    view.cluster.apply_start(RunningJob(7, "batch", (NodeShare("n1", 1, 1000, (0,)),), NOW_S + 900, NOW_S - 60))
    answer = will_run(view, 0)
    assert (answer.start_s, answer.nodes, answer.cpus) == (NOW_S + 900, ("n1",), 32)
    assert will_run(snapshot(replace(ONE, min_cpus=33, num_tasks=33, node_list=("n1",)), "batch"), 0) is None


def test_settings_of_slurm_conf() -> None:
    conf = SlurmConf(scheduler_parameters={"bf_window": "2880", "bf_resolution": "300", "bf_continue": "",
                                           "bf_max_job_test": "no number", "assoc_limit_stop": ""},
                     select_type_parameters=("CR_Core_Memory", "CR_LLN"), preempt_type="preempt/qos",
                     preempt_mode="requeue", kill_wait_s=5, values={"Licenses": "matlab:10,ansys"})
    made = settings_of(conf)
    assert (made.bf_window_s, made.bf_resolution_s, made.bf_max_job_test) == (2880 * 60, 300, 500)
    assert made.bf_continue
    assert made.assoc_limit_stop
    assert (made.select_unit, made.select_memory, made.lln) == ("core", True, True)
    assert (made.preempt_type, made.preempt_mode, made.kill_wait_s) == ("preempt/qos", "REQUEUE", 5)
    assert made.licenses_total == {"matlab": 10, "ansys": 1}
    assert settings_of(SlurmConf(select_type_parameters=("CR_CPU",))).select_unit == "cpu"
    assert not settings_of(SlurmConf(select_type_parameters=("CR_Core",))).select_memory
    assert licensing.counts("(null)") == {}
