"""A controller that is killed leaves jobs running; its successor finds them, and what ended meanwhile, as it was."""
from __future__ import annotations

import os
import random
import signal
import time
from typing import Any

from end_to_end.killing import Controller, Crew, eventually, rows_of, wait_until_idle


def kill_controller(site) -> None:  # type: ignore[no-untyped-def]
    pid = int((site.state / "slurmbridge.pid").read_text())
    os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + 10
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < until:
        time.sleep(0.02)


def test_jobs_outlive_it_with_their_true_ends(make_kube) -> None:  # type: ignore[no-untyped-def]
    site = make_kube()
    go = site.work / "go"
    waits = f"while [ ! -e {go} ]; do sleep 0.2; done"
    ends = site.submit("-N2", "--mem=64", site.script(f"{waits}\nsrun -l hostname\nexit 5"))
    stays = site.submit("--mem=64", site.script("sleep 300"))
    for job in (ends, stays):
        site.wait_for(job, "RUNNING")
    pending = site.submit("-N3", "--exclusive", "--mem=64", site.script("true"))
    kill_controller(site)
    go.touch()
    output = site.work / f"slurm-{ends}.out"
    until = time.monotonic() + 30
    while output.read_text().count("slurm-") < 2:
        assert time.monotonic() < until
        time.sleep(0.1)
    site.up()
    site.wait_for(ends, "FAILED")
    assert site.accounting(ends) == ["FAILED|5:0"]
    steps = site.ok("sacct", "-n", "-P", "-j", str(ends), "-o", "jobid,state,exitcode,ntasks").splitlines()
    assert steps[1:] == [f"{ends}.batch|FAILED|5:0|1", f"{ends}.0|COMPLETED|0:0|2"]
    assert site.job_field(stays, "%T") == "RUNNING"
    site.ok("scancel", str(stays))
    site.wait_for(stays, "CANCELLED")
    site.wait_for(pending, "COMPLETED", timeout_s=60)
    assert len(site.accounting(pending)) == 1


class Submitting:
    """Gangs and single jobs, each with an exit code of its own; each rank writes a line to a file of its own."""

    def __init__(self, site: Any) -> None:
        self.site = site
        self.acknowledged: dict[int, tuple[int, int]] = {}        # job id -> (exit code, nodes)

    def work(self, number: int) -> bool:
        code, nodes = number % 7, 1 + number % 2
        script = self.site.script(f"srun sh -c 'echo x >> {self.site.work}/$SLURM_JOB_ID.$SLURM_PROCID'\n"
                                  f"sleep 0.{number % 10}\nexit {code}")
        done = self.site.run("sbatch", "--parsable", f"-N{nodes}", f"-n{nodes}", "--mem=32", script)
        if done.returncode:
            return False
        self.acknowledged[int(done.stdout)] = code, nodes
        return True

    def check(self, rows: dict[str, list[tuple[str, str]]]) -> None:
        for job, (code, nodes) in self.acknowledged.items():
            assert rows[str(job)] == [("FAILED" if code else "COMPLETED", f"{code}:0")], f"job {job}: {rows[str(job)]}"
            lines = [(self.site.work / f"{job}.{rank}").read_text() for rank in range(nodes)]
            assert lines == ["x\n"] * nodes, f"job {job} did not run exactly once"


def test_killed_at_random_instants_under_load(make_kube) -> None:  # type: ignore[no-untyped-def]
    """Every acknowledged job runs once and to its own end, whatever had been done of its start; nothing is left."""
    seed, kills = int(os.environ.get("SLURMBRIDGE_TEST_SEED", "20261130")), int(os.environ.get(
        "SLURMBRIDGE_TEST_KILLS", "6"))
    chance = random.Random(seed)
    site = make_kube(started=False)
    submitting = Submitting(site)
    with Controller(site) as controller, Crew(submitting.work, 2 * kills, threads=2) as crew:
        for _ in range(kills):
            time.sleep(chance.uniform(0.02, 1.5))
            controller.kill()
            controller.start()
            if chance.random() < 0.8:         # else it is killed somewhere in its start
                controller.wait()
        controller.kill()
        controller.start()
        controller.wait()
        crew.finish()
        wait_until_idle(site)
        submitting.check(rows_of(site))
        eventually(lambda: not site.pods(), f"pods of ended jobs are left (seed {seed})", 30)
