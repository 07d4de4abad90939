"""Time limits, begin times, deadlines, requeueing, suspension and CompleteWait as recorded with Slurm 25.11
(tests/data/scenes/times.jsonl, recorded from scripts/times.txt)."""
from __future__ import annotations

import json
from typing import Any

import pytest
from scenes.test_limits_preemption_and_reservations_as_recorded import play, users
from sites import DATA

__all__ = ["users"]
SCENES = [json.loads(line) for line in (DATA / "scenes" / "times.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene["seed"])
def test_a_scene_goes_as_recorded(scene: dict[str, Any], make_site: Any, users: None) -> None:
    play(scene, make_site)
