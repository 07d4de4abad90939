"""Pyxis' options where jobs are processes of this machine: refused, unless nothing would come of them anyway."""
from __future__ import annotations

import pytest


@pytest.mark.parametrize("option", ["--container-image=ubuntu", "--container-name=mine"])
@pytest.mark.parametrize("command", [("sbatch", "--wrap=true"), ("srun", "true"), ("salloc", "true")])
def test_a_job_with_an_image_is_refused(programs, option, command):
    done = programs.site.run(command[0], option, *command[1:])
    assert done.returncode == 1
    name = option.partition("=")[0]
    assert f"{name}: this cluster runs jobs as processes of its own machine, without containers" in done.stderr
    assert "Container runtime not configured or invalid" in done.stderr


def test_a_step_with_an_image_is_refused(programs):
    lines = programs.run("srun -N1 -n1 --container-image=ubuntu:24.04 echo ran; echo rc $?")
    assert lines == ["srun: error: --container-image: steps run in the container of their job, and this job has none",
                     "rc 1"]


def test_mounts_without_an_image_do_nothing(programs):
    lines = programs.run("srun -n1 -N1 --container-mounts=/data --container-writable echo ran; echo rc $?",
                         "--container-mounts=/data:/x")
    because = "because neither --container-image nor --container-name is set"
    assert lines == [f"srun: error: pyxis: ignoring --{name} {because}" for name in (
        "container-mounts", "container-writable")] + ["ran", "rc 0"]
