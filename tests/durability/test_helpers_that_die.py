"""The spawner or a step daemon is killed: what runs goes on or is lost as with a lost node; nothing stays behind."""
from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from end_to_end.killing import (
    Controller,
    Crew,
    daemons_of,
    eventually,
    kill_hard,
    processes_of,
    rows_of,
    spawner_pid,
    wait_until_idle,
)
from sites import MakeSite, Site

CONF = "MinJobAge=3600\nSchedulerParameters=requeue_delay=0,bf_interval=1,sched_interval=1\n"


@pytest.fixture
def lively_site(make_site: MakeSite) -> Site:
    return make_site(engine="local", conf=CONF)


def daemon_pids(site: Site, job: int, restart: int = 0) -> list[int]:
    journal = (site.state / "run" / f"{job}.{restart}" / "journal").read_text()
    return [entry["pid"] for entry in map(json.loads, journal.splitlines()) if entry["kind"] == "daemon"]


def submit_gang(site: Site, mark: Path, *options: str) -> int:
    """Two nodes; it escapes its session on both, and would sleep for long."""
    script = f"echo x >> {mark}; srun /bin/sh -c 'setsid sleep 300 & sleep 300' & setsid sleep 300 & wait"
    job = site.submit("-N2", "-n2", "--mem=1", "-o", "/dev/null", *options, "--wrap", script)
    eventually(lambda: sum(line.startswith("sleep") for line in processes_of(site)) == 5, "the gang does not start")
    return job


@pytest.mark.parametrize("index", [0, 1])
def test_a_step_daemon_of_a_gang_is_killed(lively_site: Site, index: int) -> None:
    site = lively_site
    job = submit_gang(site, site.work / "mark", "--no-requeue")
    kill_hard(daemon_pids(site, job)[index])
    site.wait_for(job, "NODE_FAIL")
    eventually(lambda: not processes_of(site), "processes of a lost job stay")
    assert rows_of(site)[str(job)] == [("NODE_FAIL", "1:0")]
    assert site.job_field(job, "%r") == "NodeDown"


def test_a_lost_job_that_may_be_requeued_runs_again(lively_site: Site) -> None:
    site = lively_site
    mark = site.work / "mark"
    script = f"echo $SLURM_RESTART_COUNT. >> {mark}; test $SLURM_RESTART_COUNT && exit 3; sleep 300"
    job = site.submit("--mem=1", "-o", "/dev/null", "--requeue", "--wrap", script)
    eventually(mark.exists, "it does not start")
    kill_hard(daemon_pids(site, job)[0])
    site.wait_for(job, "FAILED")
    assert rows_of(site)[str(job)] == [("NODE_FAIL", "1:0"), ("FAILED", "3:0")]
    assert mark.read_text() == ".\n1.\n"


def test_spawner_and_step_daemon_are_killed_while_there_is_no_controller(make_site: MakeSite) -> None:
    site = make_site(engine="local", conf=CONF, started=False)
    with Controller(site) as controller:
        job = submit_gang(site, site.work / "mark", "--no-requeue")
        pids = daemon_pids(site, job)
        controller.kill()
        kill_hard(spawner_pid(site))
        kill_hard(pids[0])
        controller.start()
        controller.wait()
        site.wait_for(job, "NODE_FAIL")
        eventually(lambda: not processes_of(site), "processes of a lost job stay")
        assert rows_of(site)[str(job)] == [("NODE_FAIL", "1:0")]


def test_the_spawner_is_killed_again_and_again(lively_site: Site) -> None:
    """Every job runs once, whatever became of the order to start it."""
    site = lively_site
    jobs: dict[int, int] = {}

    def work(number: int) -> bool:
        script = f"echo x >> {site.work}/{number}; sleep 0.0{number % 9}; exit {number % 5}"
        jobs[site.submit("-n1", "--mem=1", "-o", "/dev/null", "--wrap", script)] = number
        return True
    with Crew(work, 80, threads=2) as crew:
        for _ in range(8):
            time.sleep(0.15)
            old = spawner_pid(site)
            kill_hard(old)
            eventually(lambda old=old: (site.state / "run" / "spawner.lock").read_text().strip() not in ("", str(old)),
                       "no new spawner")
        crew.finish()
    wait_until_idle(site, 60)
    rows = rows_of(site)
    for job, number in jobs.items():
        # a job that was lost between its start and its first line is started again, as after a lost node
        assert rows[str(job)][-1] == (("FAILED", f"{number % 5}:0") if number % 5 else ("COMPLETED", "0:0"))
        assert (site.work / str(number)).read_text() == "x\n", f"job {job}: {rows[str(job)]}"
    assert not processes_of(site)


def test_down_and_up(make_site: MakeSite) -> None:
    """``down`` leaves no process and no lock; ``up`` goes on with history, ids and what was pending."""
    site = make_site(engine="local", conf=CONF)
    done = site.submit("-o", "/dev/null", "--wrap", "exit 4")
    site.wait_for(done, "FAILED")
    runs = site.submit("-o", "/dev/null", "--wrap", "trap '' TERM; setsid sleep 300 & sleep 300")
    waits = site.submit("-H", "-o", "/dev/null", "--wrap", "true")
    site.wait_for(runs, "RUNNING")
    site.down()
    assert daemons_of(site) == [] and processes_of(site) == []
    assert locks_below(site.state) == []
    site.up()
    assert rows_of(site)[str(done)] == [("FAILED", "4:0")]
    assert [state for state, _ in rows_of(site)[str(runs)]] == ["CANCELLED"]
    assert site.job_field(waits, "%T") == "PENDING"
    assert site.submit("--wrap", "true", "-o", "/dev/null") == waits + 1


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_down_after_the_controller_was_killed(make_site: MakeSite, end: int) -> None:
    site = make_site(engine="local", conf=CONF)
    runs = site.submit("-o", "/dev/null", "--wrap", "sleep 300")
    site.wait_for(runs, "RUNNING")
    pid = int((site.state / "slurmbridge.pid").read_text())
    os.kill(pid, end)
    eventually(lambda: not Path(f"/proc/{pid}").exists(), "the controller does not end")
    assert processes_of(site), "jobs go on without a controller"
    site.down()
    assert daemons_of(site) == [] and processes_of(site) == []
    site.up()
    assert [state for state, _ in rows_of(site)[str(runs)]] == ["CANCELLED"]


def locks_below(folder: Path) -> list[str]:
    """Locked files of a directory, as the kernel lists them."""
    inodes = {path.stat().st_ino: str(path) for path in folder.rglob("*")}
    return [inodes[int(line.split()[-3].rsplit(":", 1)[1])] for line in Path("/proc/locks").read_text().splitlines()
            if int(line.split()[-3].rsplit(":", 1)[1]) in inodes]


def test_what_is_over_is_forgotten(make_site: MakeSite) -> None:
    """MinJobAge: the live record, its script and its spool go; the books keep their row."""
    import sqlite3
    site = make_site(engine="local", conf="MinJobAge=2\n")
    jobs = [site.submit("-o", "/dev/null", "--wrap", f"exit {number}") for number in range(4)]
    for job in jobs:
        eventually(lambda job=job: site.job_field(job, "%T") in ("COMPLETED", "FAILED", ""), "it does not end")
    eventually(lambda: not site.ok("squeue", "-h", "-t", "all"), "ended jobs stay in squeue")

    def left() -> list[int]:
        with sqlite3.connect(site.state / "ledger.db") as database:
            return [database.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("live", "body")]
    eventually(lambda: left() == [0, 0], "live records or scripts stay")
    assert not [path for path in (site.state / "run").iterdir() if path.name[0].isdigit()]
    assert {name: len(rows) for name, rows in rows_of(site).items()} == {str(job): 1 for job in jobs}
    site.down()
    site.up()
    assert site.submit("-H", "--wrap", "true") == jobs[-1] + 1
