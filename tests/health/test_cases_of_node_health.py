"""The 45 cases of real bugs and complaints that the health policy answers, as timed sequences (tests/data/health.yaml).

Those that concern what the controller or the engine does with a verdict are in test_the_controller_and_health.py and
tests/kubernetes; ``elsewhere`` names the test, and this module checks that it is there.
"""
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from health.sequence import Play, cases, seconds

TESTS = Path(__file__).parents[1]
CASES = cases()


@pytest.mark.parametrize("case", [one for one in CASES if "timeline" in one],
                         ids=lambda one: f"{one['case']}-{one['title'].replace(' ', '_')[:40]}")
def test_case(case: dict[str, Any]) -> None:
    play = Play(case)
    for step in case["timeline"]:
        play.until(seconds(step["at"]))
        play.apply(step)
        play._look()
        play.check(step)


def test_every_case_is_there() -> None:
    assert {int(str(one["case"]).rstrip("abc")) for one in CASES if isinstance(one["case"], int)} >= set(range(1, 46))


@pytest.mark.parametrize("case", [one for one in CASES if "elsewhere" in one], ids=lambda one: str(one["case"]))
def test_a_case_that_is_tested_elsewhere_is_tested_there(case: dict[str, Any]) -> None:
    for place in case["elsewhere"]:
        file, _, name = place.partition("::")
        assert f"def {name}(" in (TESTS / file).read_text()
