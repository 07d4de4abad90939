"""Commands of scontrol about daemons count their arguments as Slurm's does (recorded from 25.11)."""
from __future__ import annotations

import json
from pathlib import Path

import pytest

from slurmbridge.commands.scontrol_refused import refusal
from tests.conf.test_scontrol_shows_and_acts import asked

DATA = Path(__file__).parents[1] / "data" / "scontrol_argument_counts.jsonl"
CASES = [json.loads(line) for line in DATA.read_text().splitlines()]


@pytest.mark.parametrize("case", CASES, ids=lambda case: "_".join(case["words"]))
def test_a_wrong_number_of_arguments(case: dict) -> None:
    _, reply = asked(*case["words"])
    assert (reply.stderr.removesuffix("\n"), reply.exit_code) == (case["err"], 1)


def test_right_counts_are_refused_as_not_supported() -> None:
    assert refusal(["listpids", "1"]) == "listpids: Requested operation not supported on this system"
