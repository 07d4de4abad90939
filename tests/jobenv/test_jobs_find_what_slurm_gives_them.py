"""Environment, directory, limits, output and accounting rows of jobs and their steps, as recorded with Slurm 25.11:
batch scripts, arrays, heterogeneous jobs, salloc, srun, requeues (tests/data/jobenv)."""
from __future__ import annotations

import json
from typing import Any

import pytest
from played import Played, differences
from sites import DATA, Site

CASES = [json.loads(line) for name in ("cases.jsonl", "input_variables.jsonl", "wider.jsonl", "steps.jsonl")
         for line in (DATA / "jobenv" / name).read_text().splitlines()]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['seed']}-{case['kind']}")
def test_a_submission_goes_as_recorded(case: dict[str, Any], seeded: Site) -> None:
    found = differences(case["slurm"], Played(seeded, case).run())
    assert not found, "\n".join(found)
