"""Tasks and their CPUs under task/affinity, as recorded in Slurm 25.11.7 on a node of two CPUs (cpu_bind.jsonl)."""
from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from slurmbridge.runtime.cpubind import NodeShape, OutsideStep, bind
from slurmbridge.slurm.bindings import CpuBind, parse_cpu_bind
from slurmbridge.views.records import NodeAllocation

RECORDED = [json.loads(line) for line in (
    Path(__file__).parent.parent / "data" / "cpu_bind.jsonl").read_text().splitlines()]
TWO = NodeShape((0, 1))


@pytest.mark.parametrize("case", RECORDED, ids=[f"{case['tasks']} {case['options']}" for case in RECORDED])
def test_as_recorded(case):
    wanted = parse_cpu_bind(case["options"]) if case["options"] else CpuBind()
    bound = bind(wanted, wanted.unit, TWO, case["tasks"], 1)
    how = "" if wanted.kind == "none" else " set"
    for local, mask in enumerate(case["masks"]):
        assert bound.line("n1", local, local, 77, True) == (
            f"cpu-bind={case['kind']} - n1, task {local:2d} {local:2d} [77]: mask {mask}{how}\n")
    if "bind" in case:
        assert bound.variables()["SLURM_CPU_BIND"] == case["bind"]


@pytest.mark.parametrize(("options", "shape", "text"), [
    ("map_cpu:5", TWO, "CPU binding outside of job step allocation, allocated CPUs are: 0x3."),
    ("mask_cpu:3", NodeShape((0,)), "CPU binding outside of job step allocation, allocated CPUs are: 0x1."),
    ("v,map_ldom:0", NodeShape((0,), is_whole=False), "Entire node must be allocated for verbose,map_ldom,one_thread")])
def test_what_the_step_does_not_have_is_refused(options, shape, text):
    with pytest.raises(OutsideStep) as refused:
        bind(parse_cpu_bind(options), "", shape, 2, 1)
    assert str(refused.value) == text


ALLOWED = "grep Cpus_allowed_list /proc/self/status"


def affine(rig, script: str, plugin: str = "task/affinity"):
    share = NodeAllocation("n1", 1, 1000, cores=(0,))
    return rig.do(script, order={"settings": {"TaskPlugin": plugin}}, record={"allocation": [share]})


@pytest.mark.skipif(0 not in os.sched_getaffinity(0), reason="CPU 0 is not ours")
def test_a_task_runs_on_its_cpu(rig):
    job = affine(rig, f"srun -n1 --cpu-bind=v {ALLOWED}; srun -n1 --cpu-bind=map_cpu:1 true; echo rc $?")
    lines = job.lines()
    assert "Cpus_allowed_list:\t0" in lines
    assert sum(line.startswith("cpu-bind=MASK - n1, task  0  0 [") for line in lines) == 1
    assert lines[-5:] == [
        "srun: error: CPU binding outside of job step allocation, allocated CPUs are: 0x1.",
        f"srun: error: Task launch for StepId={job.run.job_id}.1 failed on node n1: Unable to satisfy cpu bind request",
        "srun: error: Application launch failed: Unable to satisfy cpu bind request", "srun: Job step aborted",
        "rc 192"]


def test_nothing_binds_without_the_plugin(rig):
    job = affine(rig, f"srun -n1 --cpu-bind=v,map_cpu:0 {ALLOWED}; {ALLOWED}", "task/none")
    step, own = job.lines()
    assert step == own
