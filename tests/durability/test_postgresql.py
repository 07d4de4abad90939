"""The ledger on a real PostgreSQL: controller and database are killed, and what was acknowledged holds."""
from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest
from databases import PostgresServer
from end_to_end.killing import Controller, Crew, eventually, processes_of, rows_of, wait_until_idle
from sites import MakeSite, Site

JOBS = 60


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    yield server
    server.remove()


@pytest.fixture
def site(server: PostgresServer, make_site: MakeSite) -> Site:
    site = make_site(engine="local", conf="MinJobAge=3600\n", started=False)
    config = site.folder / "slurmbridge.yaml"
    config.write_text(f"database: {server.create('ledger')}\n")
    site.options = ["--config", str(config)]
    return site


def test_controller_killed_and_database_crashed(site: Site, server: PostgresServer) -> None:
    chance = random.Random(7)
    acknowledged: dict[int, int] = {}

    def work(number: int) -> bool:
        script = f"echo x >> {site.work}/{number}; sleep 0.0{number % 9}; exit {number % 5}"
        done = site.run("sbatch", "--parsable", "-n1", "--mem=1", "-o", "/dev/null", "--wrap", script)
        if done.returncode:
            return False
        assert int(done.stdout) not in acknowledged, "a job id was given twice"
        acknowledged[int(done.stdout)] = number
        return True

    with Controller(site) as controller, Crew(work, JOBS, threads=2) as crew:
        for _ in range(3):
            time.sleep(chance.uniform(0.1, 0.5))
            server.stop()                     # under a running controller: it waits, and goes on
            time.sleep(0.3)
            server.start()
            time.sleep(chance.uniform(0.1, 0.5))
            controller.kill()                 # together: the next one finds the other's crash
            server.stop()
            server.start()
            controller.start()
            controller.wait()
        crew.finish()
        wait_until_idle(site)
        rows = rows_of(site)
        for job, number in acknowledged.items():
            assert rows[str(job)] == [("FAILED", f"{number % 5}:0") if number % 5 else ("COMPLETED", "0:0")], job
            assert (site.work / str(number)).read_text() == "x\n", f"job {job} did not run exactly once"
        assert not processes_of(site)


def test_no_database_at_the_start(site: Site, server: PostgresServer) -> None:
    site.up()
    site.submit("-H", "--wrap", "true")
    site.down()
    server.stop()
    done = site.run("slurmbridge", "up", "--state", site.state, "--slurm-conf", site.slurm_conf, *site.options)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
    assert "cannot be opened" in done.stderr
    server.start()
    site.up()
    assert site.job_field(1, "%T") == "PENDING"
    eventually(lambda: site.submit("-H", "--wrap", "true") == 2, "ids go on")


def test_down_while_the_database_is_away(site: Site, server: PostgresServer) -> None:
    site.up()
    job = site.submit("--wrap", "sleep 1000")
    eventually(lambda: site.job_field(job, "%T") == "RUNNING" and bool(processes_of(site)), "it runs")
    server.stop()
    done = site.run("slurmbridge", "down", "--state", site.state)
    assert done.returncode == 1
    assert f"it lacks the end of job {job}" in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
    assert not processes_of(site)
    server.start()
    site.down()                               # there is nothing left to end or to say


def test_down_after_a_kill_while_the_database_is_away(site: Site, server: PostgresServer) -> None:
    with Controller(site) as controller:
        job = site.submit("--no-requeue", "--wrap", "sleep 1000")
        eventually(lambda: site.job_field(job, "%T") == "RUNNING" and bool(processes_of(site)), "it runs")
        controller.kill()
        server.stop()
        done = site.run("slurmbridge", "down", "--state", site.state)
        assert done.returncode == 1
        assert "cannot be opened" in done.stderr and "does not say so yet" in done.stderr, done.stderr
        assert not processes_of(site)
        server.start()
        controller.start()                    # finds a run that is gone
        controller.wait()
        wait_until_idle(site)
        assert rows_of(site)[str(job)] == [("NODE_FAIL", "1:0")]
