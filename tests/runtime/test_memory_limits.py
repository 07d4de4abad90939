"""Memory limits by cgroup: what is killed, what is said, how it is counted."""
from __future__ import annotations

import os
import re

import pytest
from local_runs import until

from slurmbridge.runtime import cgroups
from slurmbridge.runtime.outcome import exit_message
from slurmbridge.views.records import NodeAllocation

EAT = "python3 -c 'x = bytearray(%d << 20); x[::4096] = b\"x\" * len(x[::4096])'"
OOM = cgroups.OUT_OF_MEMORY_STATUS


def limited(rig, script, mem_mb=100, nodes=1, **options):
    if os.getuid() != 0 or cgroups.hierarchy() is None:
        pytest.skip("no memory cgroup may be written here")
    return rig.do(script, nodes=nodes, order={"settings": {"TaskPlugin": "task/cgroup,task/affinity"}},
                  record={"allocation": [NodeAllocation(f"n{i + 1}", 2, mem_mb) for i in range(nodes)],
                          "mem_per_cpu_mb": None}, **options)


def test_a_script_that_takes_too_much(rig):
    job = limited(rig, f"echo begin\n{EAT % 300}\nexit 0")
    assert job.lines()[0] == "begin"
    assert re.fullmatch(rf"\[\S+\] error: Detected 1 oom_kill event in StepId={job.run.job_id}\.batch\. "
                        r"Some of the step tasks have been OOM Killed\.", job.lines()[-1])
    assert job.status == OOM and job.of("script_ended")[0].exit_status == OOM


def test_one_that_keeps_within_its_limit(rig):
    job = limited(rig, f"{EAT % 50} && srun -n1 {EAT % 50} && echo good")
    assert (job.lines(), job.status) == (["good"], 0)


def test_a_step_with_less_memory_than_the_job(rig):
    job = limited(rig, f"srun -n1 -N1 --mem=40 {EAT % 100}; echo rc $?; {EAT % 100} && echo good", mem_mb=400)
    said = job.lines()
    assert said[-2:] == ["rc 253", "good"] and job.status == 0
    assert any(re.fullmatch(rf"\[\S+\] error: Detected 1 oom_kill event in StepId={job.run.job_id}\.0\. .*", line)
               for line in said)
    assert "srun: error: n1: task 0: Out Of Memory" in said
    assert job.of("step_ended")[0].exit_status == OOM




def test_only_the_node_that_ran_out_is_counted(rig):
    job = limited(rig, f"cat >eat.sh <<'END'\n{EAT % 300}\nEND\n"
                       "srun -N2 -n2 bash -c 'if [ $SLURM_PROCID = 1 ]; then bash eat.sh; fi'\necho rc $?", nodes=2)
    assert "srun: error: n2: task 1: Out Of Memory" in job.lines() and job.lines()[-1] == "rc 253"


def test_nothing_is_left_of_the_groups(rig):
    job = limited(rig, "srun true")
    tree = cgroups.hierarchy()
    assert tree is not None
    root = os.path.join(tree.root, "slurmbridge")
    until(lambda: not any(name.startswith(job.run and f"{job.run.job_id}.0.") for _, names, _ in os.walk(root)
                          for name in names), "groups of an ended run")


def test_no_limit_where_the_site_has_none(rig):
    job = rig.do(f"{EAT % 300} && echo good", record={"allocation": [NodeAllocation("n1", 2, 100)]})
    assert job.lines() == ["good"]


@pytest.mark.parametrize(("files", "version"), [
    ({"memory.limit_in_bytes": ""}, 1), ({"cgroup.controllers": "cpuset cpu memory pids\n"}, 2),
    ({"cgroup.controllers": "cpu\n"}, None), ({}, None)])
def test_which_hierarchy_there_is(tmp_path, files, version):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    found = cgroups.hierarchy((str(tmp_path / "none"), str(tmp_path)))
    assert (found.version if found else None) == version


def test_version_2_files(tmp_path):
    (tmp_path / "memory.events").write_text("low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n")
    tree = cgroups.Hierarchy(str(tmp_path), 2)
    tree.limit(str(tmp_path), 1 << 20)
    tree.pass_on(str(tmp_path))
    assert {name: (tmp_path / name).read_text() for name in ("memory.max", "memory.swap.max", "cgroup.subtree_control")
            } == {"memory.max": "1048576", "memory.swap.max": "0", "cgroup.subtree_control": "+memory"}
    assert cgroups.StepGroup(tree, str(tmp_path)).complaint("7.0") == (
        "Detected 2 oom_kill events in StepId=7.0. Some of the step tasks have been OOM Killed.")


def test_message_of_a_task_out_of_memory():
    assert exit_message("n1", [0, 1], OOM) == "n1: tasks 0-1: Out Of Memory"
