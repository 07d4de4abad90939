"""Runs job scripts to their ends on a site with real processes."""
from __future__ import annotations

import os
import random
from pathlib import Path

from sites import Site

USER = "nobody" if os.getuid() == 0 else None
"""Who submits: Open MPI's mpirun refuses root."""


class Programs:
    """Runs a job script to its end, and shows what came of it."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.count = 0

    def new_folder(self) -> Path:
        """One that the job's user may write."""
        self.count += 1
        folder = self.site.work / f"job{self.count}"
        folder.mkdir()
        folder.chmod(0o777)
        return folder

    def run(self, script: str | Path, *options: str, tasks_per_node: int = 2, folder: Path | None = None,
            env: dict[str, str] | None = None, code: int = 0) -> list[str]:
        """The lines of the job's output, ``out`` in its folder. ``script``: a file with its options, or the text
        (without its first line) of a job on two nodes."""
        folder = folder or self.new_folder()
        if isinstance(script, str):
            text, script = script, folder / "job.sh"
            script.write_text(f"#!/bin/bash\n{text}\n")
            options = ("-N2", f"--ntasks-per-node={tasks_per_node}", "-t2", "-o", "out", *options)
        done = self.site.run("sbatch", "-W", *options, script, cwd=folder, user=USER, env=env, timeout_s=100)
        self.job = int(done.stdout.split()[-1]) if done.stdout else 0
        out = folder / "out"
        lines = out.read_text().splitlines() if out.exists() else []
        assert done.returncode == code, (done, lines)
        return lines


def site_with_own_ids(conf: str = "", env: dict[str, str] | None = None) -> Site:
    """MPICH names its shared memory after the job, so that equal ids on one machine would meet there."""
    return Site("local", f"FirstJobId={random.randrange(10_000, 9_000_000)}\n{conf}", None, [], env or {})
