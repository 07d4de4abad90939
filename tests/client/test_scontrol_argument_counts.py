"""Commands of scontrol that are refused here count their arguments as Slurm's does (recorded from 25.11)."""
from __future__ import annotations

import json
from pathlib import Path

import pytest

from slurmbridge.commands.scontrol_refused import refusal

DATA = Path(__file__).parents[1] / "data" / "scontrol_argument_counts.jsonl"
CASES = [json.loads(line) for line in DATA.read_text().splitlines()]


@pytest.mark.parametrize("case", CASES, ids=lambda case: "_".join(case["words"]))
def test_a_wrong_number_of_arguments(case: dict) -> None:
    assert refusal(case["words"]) == case["err"]


def test_right_counts_are_refused_as_not_supported() -> None:
    assert refusal(["listpids", "1"]) == "listpids: Requested operation not supported on this system"
