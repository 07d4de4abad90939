"""NumNodes, NumCPUs, NumTasks, MinCPUsNode and ReqTRES as real Slurm showed them for held jobs; AllocTRES of shares."""
from __future__ import annotations

import json
from pathlib import Path

import pytest
from scheduling import lab

from slurmbridge.scheduling.facts import NodeShare
from slurmbridge.scheduling.size import (
    SizeError,
    allocated_tres,
    defaults_of,
    parse_gres,
    pending_size,
    requested_tres,
    shape_of,
)
from slurmbridge.slurm.jobspec import JobRequest

CASES = [json.loads(line) for line in (
    Path(__file__).parent.parent / "data/scheduling/sizes.jsonl").read_text().splitlines()]
PARTITIONS = {partition.name: partition for partition in lab.PARTITIONS}


def request_of(fields: dict) -> JobRequest:
    return JobRequest(**{name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()})


@pytest.mark.parametrize("case", CASES, ids=[str(case["seed"]) for case in CASES])
def test_pending_jobs_show_the_recorded_size(case: dict) -> None:
    shape = shape_of(request_of(case["request"]), defaults_of(PARTITIONS[case["partition"]]))
    columns = lab.cluster()
    size = pending_size(shape, columns, case["partition"])
    assert {"NumNodes": size.nodes_text, "NumCPUs": str(size.cpus), "NumTasks": str(size.tasks),
            "MinCPUsNode": str(size.min_cpus_per_node),
            "ReqTRES": requested_tres(shape, columns, case["partition"])} == case["want"]


def test_a_pass_that_looked_at_the_job_decides_its_node_count() -> None:
    request = JobRequest(num_tasks=64, num_tasks_given=True)
    shape = shape_of(request, defaults_of(PARTITIONS["batch"]))
    assert pending_size(shape, lab.cluster(), "batch", 2).nodes_text == "2"


def test_allocated_tres_count_devices_by_name_and_by_type() -> None:
    shares = (NodeShare("g1", 4, 4000, (0, 1, 2, 3), (("gpu", "a100", (0, 1)),)),
              NodeShare("g2", 2, 2000, (0, 1), (("gpu", "v100", (1,)),)))
    assert allocated_tres(shares, (("matlab", 2),)) == {
        "cpu": 6, "mem": 6000, "node": 2, "gres/gpu": 3, "gres/gpu:a100": 2, "gres/gpu:v100": 1, "license/matlab": 2}


@pytest.mark.parametrize(("text", "kinds"), [
    ("gres/gpu:a100:2,gres/gpu:v100:1", [("gpu", "a100", 2), ("gpu", "v100", 1)]),
    ("gres/gpu", [("gpu", None, 1)]), ("gpu:3", [("gpu", None, 3)]), ("gres/shard=2K", [("shard", None, 2048)]),
])
def test_gres_texts(text: str, kinds: list[tuple[str, str | None, int]]) -> None:
    found = parse_gres(JobRequest(tres_per_node=text))
    assert [(r.name, r.type, r.per_node) for r in found] == kinds


def test_malformed_gres_has_slurms_errno() -> None:
    with pytest.raises(SizeError, match="ESLURM_INVALID_GRES"):
        parse_gres(JobRequest(tres_per_node="gres/gpu::"))
