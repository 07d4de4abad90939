"""Random queues recorded with Slurm 25.11 (tests/tools/queues.py), played through the whole controller: the same jobs
are refused in the same words, start on the same nodes and wait for the same reasons with the same expected starts."""
from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from scheduling.queue_site import DATA, differences, played

CASES = [json.loads(line) for line in gzip.decompress(
    (DATA / "scheduling" / "queues_2511.jsonl.gz").read_bytes()).splitlines()]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['kind']}-{case['seed']}")
def test_a_queue_comes_out_as_recorded(case: dict[str, Any]) -> None:
    assert differences(case, played(case)) == []
