"""500 jobs while the controller is killed 30 times: what was acknowledged ends once, with its true state."""
from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

from end_to_end.killing import Controller, Crew, processes_of, rows_of, wait_until_idle
from sites import Site

JOBS, KILLS = 500, 30
PLAIN, ARRAY, GANG, CANCELLED = "plain", "array", "gang", "cancelled"


def kind_of(number: int) -> str:
    return {3: ARRAY, 7: GANG, 11: CANCELLED}.get(number % 25, PLAIN)


def exit_code_of(number: int) -> int:
    """Every seventh job fails, with a code of its own."""
    return number % 100 + 1 if number % 7 == 0 else 0


class Submitting:
    """Submits numbered jobs; remembers what was acknowledged, and what was acknowledged as cancelled."""

    def __init__(self, site: Site, marks: Path) -> None:
        self.site, self.marks = site, marks
        self.acknowledged: dict[int, int] = {}         # job id -> number

    def work(self, number: int) -> bool:
        kind, mark, code = kind_of(number), self.marks / str(number), exit_code_of(number)
        words = ["-n1"]
        script = f"echo x >> {mark}; sleep 0.0{number % 5}; exit {code}"
        if kind == ARRAY:
            words = ["-n1", "--array=0-2%2"]
            script = f"echo x >> {mark}.$SLURM_ARRAY_TASK_ID; exit $SLURM_ARRAY_TASK_ID"
        elif kind == GANG:
            words = ["-N2", "-n2"]
            script = f"srun /bin/sh -c 'echo x >> {mark}.$SLURM_PROCID; exit {code}'"
        elif kind == CANCELLED:
            script = f"echo x >> {mark}; sleep 60"
        done = self.site.run("sbatch", "--parsable", *words, "--mem=1", "-t", "5", "-o", "/dev/null",
                             "--job-name", f"k{number}", "--wrap", script)
        if done.returncode:
            return False
        job_id = int(done.stdout)
        assert job_id not in self.acknowledged, "a job id was given twice"
        self.acknowledged[job_id] = number
        if kind == CANCELLED:
            while self.site.run("scancel", str(job_id)).returncode:
                time.sleep(0.05)
        return True

    def check(self, rows: dict[str, list[tuple[str, str]]]) -> None:
        for job_id, number in self.acknowledged.items():
            what = f"job {job_id} (number {number})"
            kind, mark, code = kind_of(number), self.marks / str(number), exit_code_of(number)
            if kind == CANCELLED:
                assert [state for state, _ in rows[str(job_id)]] == ["CANCELLED"], f"{what}: {rows[str(job_id)]}"
                # it may have been ended before it began, or between opening the file and writing to it
                assert not mark.exists() or mark.read_text() in ("", "x\n"), f"{what} ran more than once"
                continue
            parts = {str(job_id): ("", code)}
            if kind == ARRAY:
                parts = {f"{job_id}_{task}": (f".{task}", task) for task in range(3)}
            for name, (suffix, status) in parts.items():
                expected = ("FAILED", f"{status}:0") if status else ("COMPLETED", "0:0")
                assert rows[name] == [expected], f"{what}: {name} is {rows[name]}, not {expected}"
                for rank in (".0", ".1") if kind == GANG else ("",):
                    text = Path(f"{mark}{suffix}{rank}").read_text()
                    assert text == "x\n", f"{what}: {name}{rank} did not run exactly once"


def test_every_acknowledged_job_ends_once_with_its_own_exit_code(make_site: Callable[..., Site]) -> None:
    seed = int(os.environ.get("SLURMBRIDGE_TEST_SEED", "20261130"))
    chance = random.Random(seed)
    site = make_site(engine="local", conf="MinJobAge=3600\n", started=False)
    marks = site.work / "marks"
    marks.mkdir()
    submitting = Submitting(site, marks)
    with Controller(site) as controller, Crew(submitting.work, JOBS) as crew:
        for _ in range(KILLS):
            time.sleep(chance.uniform(0.02, 0.6))
            controller.kill()
            controller.start()
            if chance.random() < 0.75:        # else it is killed somewhere in its start
                controller.wait()
        controller.kill()
        controller.start()
        controller.wait()
        crew.finish()
        wait_until_idle(site)
        submitting.check(rows_of(site))
        assert not processes_of(site), f"processes of finished jobs were left behind (seed {seed})"
        assert not list((site.state / "run").glob("[0-9]*")), "spools were left behind"
