"""A controller with real processes on virtual nodes, for programs as researchers run them."""
from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sites import ROOT, Site

USER = "nobody" if os.getuid() == 0 else None
"""Who submits: Open MPI's mpirun refuses root."""


class Programs:
    """Runs a job script to its end, and shows what came of it."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.count = 0

    def run(self, script: str | Path, *options: str, nodes: int = 2, tasks_per_node: int = 2,
            env: dict[str, str] | None = None, code: int = 0) -> list[str]:
        """The lines of the job's output. ``script``: a file, or the text without its first line."""
        self.count += 1
        folder = self.site.work / f"job{self.count}"
        folder.mkdir()
        folder.chmod(0o777)
        if isinstance(script, str):
            text, script = script, folder / "job.sh"
            script.write_text(f"#!/bin/bash\n{text}\n")
        done = self.site.run("sbatch", "-W", f"-N{nodes}", f"--ntasks-per-node={tasks_per_node}", "-t2", "-o", "out",
                             *options, script, cwd=folder, user=USER, env=env, timeout_s=100)
        self.folder = folder
        self.job = int(done.stdout.split()[-1]) if done.stdout else 0
        out = folder / "out"
        lines = out.read_text().splitlines() if out.exists() else []
        assert done.returncode == code, (done, lines)
        return lines


@pytest.fixture(scope="module")
def programs() -> Iterator[Programs]:
    # MPICH names its shared memory after the job, so that equal ids on one machine would meet there
    made = Site("local", f"FirstJobId={random.randrange(10_000, 9_000_000)}\n", None, [], {})
    made.up()
    yield Programs(made)
    made.remove()


@pytest.fixture(scope="module")
def python() -> str:
    """This environment's interpreter, where the job's user may execute it."""
    return str(Path(sys.prefix) / "bin" / "python")


EXAMPLES = ROOT / "examples"
