"""Dependencies, arrays, limits, preemption, reservations, times, nodes and partitions as recorded with Slurm 25.11
(tests/data/scenes): each command's exit code and error, and at each look every job's record and squeue line.

They are played on a controller whose time is its own, so that each takes as long as it is to compute. Those whose
scripts do more than sleep and exit, and a few of each kind, are played with real processes as well, where looks are
repeated until they agree or the recorded wait is over. ``tests/tools/play_scenes.py FILE`` plays other recordings.
"""
from __future__ import annotations

import time
from typing import Any

import pytest
from scenes.playing import (
    Played,
    Scene,
    all_scenes,
    call,
    make_users,
    merged,
    needs_processes,
    play_in_own_time,
    scene_conf,
    scene_name,
    seed,
)

SCENES = all_scenes()
REAL = {"deps-25", "deps-32", "limits-12", "limits-91", "preempt-18", "resv-23", "enforce-all", "times-suspended"}
MORE_S = 20.0
"""So much later than recorded a look with real processes may agree, on a machine that is busy."""


@pytest.fixture(scope="module")
def users() -> None:
    if not make_users():
        pytest.skip("submits for several unix users")


@pytest.mark.parametrize("scene", [one for one in SCENES if not needs_processes(one)], ids=scene_name)
def test_a_scene_goes_as_recorded(scene: Scene, users: None) -> None:
    differences = play_in_own_time(scene)
    assert not differences, "\n".join(differences)


@pytest.mark.parametrize("scene", [one for one in SCENES if needs_processes(one) or scene_name(one) in REAL],
                         ids=scene_name)
def test_a_scene_goes_as_recorded_with_real_processes(scene: Scene, make_site: Any, users: None) -> None:
    site = make_site(engine="local", started=False, enforce=True)
    site.slurm_conf.write_text(merged(site.slurm_conf.read_text(), scene_conf(scene)))
    site.up()

    def run(*words: str, user: str | None = None) -> tuple[int, str, str]:
        if user is None:
            return call(site, *words)
        done = site.run(*words, user=user, cwd="/tmp")
        return done.returncode, done.stdout, done.stderr

    seed(run)
    played = Played(run)
    until = time.monotonic()
    for act in scene["acts"]:
        if act.get("stay"):
            time.sleep(act["wait"])
        if "wait" in act:
            until = time.monotonic() + act["wait"] + MORE_S
        elif act.get("read"):
            while found := list(played.look(act)):
                assert time.monotonic() < until, "\n".join(found)
                time.sleep(0.2)
        else:
            found = list(played.act(act))
            assert not found, "\n".join(found)
