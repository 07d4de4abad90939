"""Signals and ends of jobs and steps, as recorded with Slurm 25.11 (tests/data/jobenv/ends.jsonl): what each form of
scancel reaches, what is written into the job's output, states and exit codes, and that nothing is left."""
from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sites import DATA, Site

SCENES = [json.loads(line) for line in (DATA / "jobenv" / "ends.jsonl").read_text().splitlines()]
AT_ONCE = 6
LIMIT_S = 60
USER = "alice"
BY_CHANCE = re.compile(r"(Terminated|User defined signal 1|Killed)$|srun: (got SIGCONT|forcing job termination)"
                       r"|srun: error: N: tasks? [\d,-]+: Terminated")
"""Lines that depend on whether a process is asked first, or sees the end first."""
UNENDED = {"PENDING", "RUNNING", "COMPLETING", "SUSPENDED", "CONFIGURING"}


class Scene:
    """One job: submitted, let run until it is ready, acted upon, waited for."""

    def __init__(self, site: Site, scene: dict[str, Any]) -> None:
        self.site, self.scene = site, scene
        self.work = Path(tempfile.mkdtemp(prefix="en", dir="/tmp"))
        self.names: dict[str, str] = {}

    def play(self) -> dict[str, Any]:
        try:
            return self._play()
        finally:
            shutil.rmtree(self.work, ignore_errors=True)

    def _play(self) -> dict[str, Any]:
        self.work.chmod(0o777)
        script = self.work / "s"
        script.write_text(self.scene["script"])
        script.chmod(0o755)
        args = self.scene["args"] if "-o" in self.scene["args"] else ["-o", "out", *self.scene["args"]]
        job = self.site.ok("sbatch", "--parsable", *args, "s", user=USER, cwd=self.work,
                           env={"HOME": str(self.work)}).strip()
        self._until(lambda: len(list(self.work.glob("ready.*"))) >= self.scene["ready"])
        time.sleep(0.3)                       # traps of those that are ready are set
        said = [self._act(line.replace("JOB", job)) for line in self.scene["acts"] if not line.startswith("sleep")
                or time.sleep(float(line.split()[1]))]
        self._until(lambda: not UNENDED & set(self.site.ok("squeue", "-h", "-t", "all", "-j", job, "-o", "%T").split()))
        rows = [row.split("|", 1) for row in self.site.ok(
            "sacct", "-P", "-n", "-D", "-j", job, "-o", "JobIDRaw,JobID,State,ExitCode,DerivedExitCode").splitlines()]
        self.names = {raw.partition(".")[0]: f"J{rest.partition('|')[0].partition('.')[0].partition('_')[2]}"
                      for raw, rest in rows} | {job: "JOB"}
        return {"said": [[code, self._mask(text)] for code, text in said],
                "rows": [self._mask(rest) for _, rest in rows],
                "files": {path.name: self._lines(path) for path in sorted(self.work.glob("out*"))}}

    def _until(self, condition: Any) -> None:
        until = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < until, self.scene["name"]
            time.sleep(0.1)

    def _act(self, line: str) -> tuple[int, str]:
        words = line.removeprefix("root ").split()
        done = self.site.run(*words, user=None if line.startswith("root ") else USER, cwd=self.work)
        return done.returncode, done.stdout + done.stderr

    def _lines(self, path: Path) -> list[str]:
        found = [re.sub(r"(error: )[ng]\d:", r"\1N:", re.sub(r"\bON [ng]\d", "ON N", line))
                 for line in self._mask(path.read_text(errors="replace")).splitlines()]
        return sorted(line for line in found if not BY_CHANCE.match(line))

    def _mask(self, text: str) -> str:
        for number, name in self.names.items():
            text = re.sub(rf"(?<!\d){number}(?!\d)", name, text)
        text = re.sub(r"\S*/slurm_script\b", "slurm_script", text.replace(str(self.work), "WORK"))
        text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?", "TIME", text)
        return re.sub(r"(line \d+: +)\d+ ", r"\1PID ", text)


@pytest.fixture(scope="module")
def played(seeded: Site) -> Iterator[dict[str, Any]]:
    """All scenes, several at a time: they are of separate jobs."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        futures = {scene["name"]: pool.submit(Scene(seeded, scene).play) for scene in SCENES}
    yield futures


@pytest.mark.skipif(os.getuid() != 0, reason="jobs of several users need root")
@pytest.mark.parametrize("scene", SCENES, ids=[scene["name"] for scene in SCENES])
def test_a_job_ends_as_recorded(scene: dict[str, Any], played: dict[str, Any]) -> None:
    assert played[scene["name"]].result() == {part: scene[part] for part in ("said", "rows", "files")}
