"""The recipes of examples/ that start programs over several nodes, run as they are."""
from __future__ import annotations

import importlib.util
import re
import shutil
import socket
import sys
from pathlib import Path

import pytest
from sites import ROOT

EXAMPLES = ROOT / "examples"
HERE = Path(__file__).parent
HAS_TORCH = importlib.util.find_spec("torch") is not None


@pytest.fixture
def port() -> str:
    with socket.socket() as free:
        free.bind(("", 0))
        return str(free.getsockname()[1])


def run_example(programs, name, *files, options=(), env=None, **more):
    """An example's output, from a folder that holds it and what it names."""
    folder = programs.new_folder()
    for file in (name, *files):
        shutil.copy(EXAMPLES / file, folder)
    return programs.run(folder / name, "-o", "out", *options, folder=folder, env=env, **more)


@pytest.mark.parametrize("launcher", ["of torch", "stand-in"])
def test_torchrun_over_two_nodes(programs, port, launcher, tmp_path):
    if launcher == "of torch" and not HAS_TORCH:
        pytest.skip("PyTorch is not installed (the recipe is tested with a stand-in of its launcher)")
    path = programs.site.env["PATH"]
    if launcher == "stand-in":
        tools = programs.new_folder()
        shutil.copy(HERE / "torchrun", tools)
        path = f"{tools}:{path}"
    lines = run_example(programs, "torchrun.sh", "allreduce.py", env={"PORT": port, "PATH": path})
    said = [re.fullmatch(r"rank (\d) of 4 \(local ([01]) on (n[12])\): sum 6", line) for line in lines]
    assert all(said) and sorted(match[1] for match in said if match) == ["0", "1", "2", "3"], lines
    assert sorted((match[3], match[2]) for match in said if match) == [
        ("n1", "0"), ("n1", "1"), ("n2", "0"), ("n2", "1")]


def test_a_cluster_inside_the_job(programs, port):
    lines = run_example(programs, "workers.sh", "workers.py", env={"PORT": port})
    words = [line for line in lines if line.startswith(("workers", "sum"))]
    assert words == ["workers: n2 n3", "sum of squares: 2470 by n2 n3"], lines
    assert not [line for line in lines if "Traceback" in line]


def test_a_job_that_requeues_itself_before_its_limit(programs):
    lines = run_example(programs, "requeue.sh", "train.py", options=("--time=1", "--signal=USR1@58"),
                        env={"STEPS": "30"})
    job = programs.job
    runs = [line for line in lines if line.startswith("run ")]
    assert len(runs) > 1 and runs == [f"run {n + 1} of job {job}" for n in range(len(runs))]
    begins = re.findall(r"rank (\d) of 4, node ([01]), local ([01]), head n1:(\d+): from step (\d+)", "\n".join(lines))
    assert sorted(begin[0] for begin in begins) == sorted("0123" * len(runs))
    assert {int(begin[4]) == 0 for begin in begins[:4]} == {True} and all(int(begin[4]) > 3 for begin in begins[4:])
    assert sorted(line for line in lines if "done" in line) == [f"rank {n}: done at step 30" for n in range(4)]
    assert programs.site.ok("sacct", "-n", "-X", "-D", "-P", "-j", job, "-o", "State,Restarts").split() == [
        *(f"REQUEUED|{n}" for n in range(len(runs) - 1)), f"COMPLETED|{len(runs) - 1}"]


def test_submitit_checkpoints_and_requeues(programs):
    if importlib.util.find_spec("submitit") is None:
        pytest.skip("submitit is not installed")
    folder = programs.new_folder()
    done = programs.site.run(sys.executable, EXAMPLES / "checkpoint_submitit.py", folder / "log", "57", "60",
                             cwd=folder, timeout_s=90)
    assert done.returncode == 0, done
    said = re.search(r"60 steps in (\d+) runs", done.stdout)
    assert said and int(said[1]) > 1, done.stdout
