"""What is acknowledged is there after any end of the process, whole; with SQLite and with PostgreSQL."""
from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from accounting.conftest import OpenLedger
from accounting.jobs import SCRIPT, make_job
from sqlalchemy import select

from slurmbridge.accounting import database, schema
from slurmbridge.accounting import operations as ops
from slurmbridge.accounting.ledger import Ledger, LoadedState
from slurmbridge.accounting.queries import Queries
from slurmbridge.views.records import AccountRecord, AssociationRecord, Limits, QosRecord, StepRecord, UserRecord


def _count(url: str, name: str) -> int:
    engine = database.make_engine(database.normal_url(url), read_only=True)
    with engine.connect() as connection:
        return len(connection.execute(select(schema.metadata.tables[name])).all())


def test_a_restart_reads_back_what_was_written(open_ledger: OpenLedger) -> None:
    ledger = open_ledger()
    assert ledger.is_new and ledger.load().jobs == {}
    job = make_job(1, ledger.next_db_index(1000.0))
    array = replace(make_job(2, ledger.next_db_index(1001.0)), array_job_id=2, array_pending=(1 << 5000) | 5,
                    state="PENDING", start_s=None, steps={}, flags=set())
    association = AssociationRecord(
        3, "phys", "alice", parent_id=2, limits=Limits(grp_tres={"cpu": 64}, max_jobs=0), qos=("normal", "high"),
        usage_raw=12.5, usage_tres_raw={"cpu": 3.0}, grp_used_wall_s=7.0, lft=4, rgt=5)
    qos = QosRecord(2, "high", priority=100, usage_factor=2.0, usage_raw=1.5, grp_used_wall_s=2.5)
    ledger.write_and_wait([
        ops.SaveJob(job), ops.SaveStep(job, job.steps["batch"]), ops.SaveJob(array),
        ops.SaveSuspension(job.db_index, 1010.0), ops.SaveEvent("n1", 1000.0, state="DOWN", reason="power"),
        ops.SaveNode("n1", {"state": "DRAIN", "reason": "fan"}), ops.SavePartition("batch", {"State": "DOWN"}),
        ops.SaveMeta("decay", "1000.25"), ops.SaveAssociation(association), ops.SaveQos(qos),
        ops.SaveUsage([association], [qos]), ops.SaveAccount(AccountRecord("phys", "Physics")),
        ops.SaveUser(UserRecord("alice", "phys", admin_level="Operator")), ops.SaveTres("gres/gpu", 1001),
        ops.SaveWckey(1, ("proj", "alice"))])
    ledger = open_ledger()
    found: LoadedState = ledger.load()
    assert not ledger.is_new
    assert found.jobs == {1: job, 2: array}
    assert found.jobs[1].request.environment is found.jobs[2].request.environment
    assert found.open_suspensions == {job.db_index: 1010}
    assert found.open_events == {"n1": 1000}
    assert found.nodes == {"n1": {"state": "DRAIN", "reason": "fan"}}
    assert found.partitions == {"batch": {"State": "DOWN"}}
    assert found.meta["decay"] == "1000.25"
    assert found.accounting.associations == {3: association}
    assert found.accounting.qos == {"high": qos}
    assert found.accounting.accounts["phys"].description == "Physics"
    assert found.accounting.users["alice"].admin_level == "Operator"
    assert found.accounting.tres == {"gres/gpu": 1001}
    assert found.accounting.wckeys == {1: ("proj", "alice")}
    assert ledger.next_db_index(0.0) > array.db_index


def test_a_big_text_is_written_once_and_goes_with_its_last_job(open_ledger: OpenLedger, ledger_url: str) -> None:
    ledger = open_ledger()
    ledger.load()
    jobs = [make_job(number, ledger.next_db_index(1000.0)) for number in (1, 2)]
    ledger.write_and_wait([ops.SaveJob(job) for job in jobs])
    assert _count(ledger_url, "body") == 2     # a script and an environment
    ledger = open_ledger()
    ledger.load()
    ledger.write_and_wait([ops.ForgetJob(1)])
    assert _count(ledger_url, "body") == 2
    ledger.write_and_wait([ops.ForgetJob(2)])
    assert _count(ledger_url, "body") == 0
    assert open_ledger().load().jobs == {}


def test_a_forgotten_job_stays_in_the_books(open_ledger: OpenLedger, ledger_url: str) -> None:
    ledger = open_ledger()
    ledger.load()
    job = make_job(1, ledger.next_db_index(1000.0))
    job.state, job.end_s, job.killed_by_uid = "CANCELLED", 1100.0, 0
    ledger.write_and_wait([ops.SaveJob(job), ops.SaveStep(job, job.steps["batch"])])
    ledger.write_and_wait([ops.ForgetJob(1)])
    queries = Queries(ledger_url)
    (row,) = queries.answer("jobs", job_ids=[1], steps=True)
    queries.close()
    assert (row["state"], row["end_s"], row["killed_by_uid"], row["name"]) == ("CANCELLED", 1100, 0, "job1")
    assert row["steps"][0]["step_id"] == "batch"


def test_writes_wait_for_the_disk_together(open_ledger: OpenLedger, ledger_url: str) -> None:
    ledger = open_ledger()
    ledger.load()
    queries = Queries(ledger_url)

    async def submit(number: int) -> None:
        job = make_job(number, ledger.next_db_index(1000.0))
        await ledger.write([ops.SaveJob(job)])
        assert queries.answer("jobs", job_ids=[number]), "acknowledged, but not there"

    async def all_at_once() -> None:
        await asyncio.gather(*(submit(number) for number in range(1, 201)))

    before = ledger.commits
    asyncio.run(all_at_once())
    queries.close()
    assert ledger.commits - before < 100


def test_a_lone_write_is_on_disk_at_once(open_ledger: OpenLedger, ledger_url: str,
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slurmbridge.accounting.writer.QUICK_S", float("inf"))         # whatever the disk is
    ledger = open_ledger()
    ledger.load()
    queries = Queries(ledger_url)
    is_sqlite = database.sqlite_path(database.normal_url(ledger_url)) is not None

    async def submit() -> None:
        for number in range(1, 20):
            written = ledger.write([ops.SaveJob(make_job(number, ledger.next_db_index(1000.0)))], alone=True)
            if number == 1:
                assert written.done() == is_sqlite
            await written
            assert queries.answer("jobs", job_ids=[number])
    asyncio.run(submit())
    queries.close()


def test_a_lone_write_behind_others_keeps_their_order(open_ledger: OpenLedger) -> None:
    ledger = open_ledger()
    ledger.load()

    async def change() -> None:
        for number in range(100):
            ledger.write([ops.SaveMeta("who", f"first {number}")])
            await ledger.write([ops.SaveMeta("who", f"last {number}")], alone=True)
    asyncio.run(change())
    assert open_ledger().load().meta["who"] == "last 99"


WRITER = """
import asyncio, sys
sys.path[:0] = {paths!r}
from accounting.jobs import make_job
from slurmbridge.accounting import operations as ops
from slurmbridge.accounting.ledger import Ledger

async def submit(ledger, number):
    job = make_job(number, ledger.next_db_index(1000.0 + number), script=f"#!/bin/sh\\necho {{number % 7}}\\n")
    await ledger.write([ops.SaveJob(job), ops.SaveStep(job, job.steps["batch"]), ops.SaveMeta(f"seen{{number}}", "1")],
                       alone=number % 3 == 0)
    print(number, flush=True)

async def main():
    ledger = Ledger.open({url!r})
    first = max(ledger.load().jobs, default=0) + 1
    for start in range(first, first + 100000, 8):
        await asyncio.gather(*(submit(ledger, number) for number in range(start, start + 8)))

asyncio.run(main())
"""


@pytest.mark.parametrize("rounds", [8])
def test_a_writer_killed_at_any_instant(open_ledger: OpenLedger, ledger_url: str, rounds: int) -> None:
    paths = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1])]
    chance = random.Random(7)
    acknowledged: set[int] = set()
    for _ in range(rounds):
        writer = subprocess.Popen([sys.executable, "-c", WRITER.format(paths=paths, url=ledger_url)],
                                  stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        first = writer.stdout.readline()
        time.sleep(chance.uniform(0, 0.25))
        os.kill(writer.pid, signal.SIGKILL)
        lines = first + writer.stdout.read()
        acknowledged.update(int(line) for line in lines.split("\n")[:-1])
        writer.wait()
        assert first
    ledger = _open_when_free(open_ledger)
    found = ledger.load()
    assert acknowledged <= set(found.jobs), "an acknowledged job is lost"
    queries = Queries(ledger_url)
    rows = queries.answer("jobs", steps=True)
    queries.close()
    assert sorted(row["job_id"] for row in rows) == sorted(found.jobs)
    for row in rows:
        job = found.jobs[row["job_id"]]
        assert row["db_index"] == job.db_index
        assert [step["step_id"] for step in row["steps"]] == ["batch"] == list(job.steps)
        assert job.request.script == f"#!/bin/sh\necho {job.job_id % 7}\n"
        assert found.meta[f"seen{job.job_id}"] == "1"
    assert _count(ledger_url, "body") == 1 + len({job.request.script for job in found.jobs.values()})


def _open_when_free(open_ledger: OpenLedger) -> Ledger:
    """PostgreSQL needs a moment to see that a killed client is gone, and keeps its advisory lock until then."""
    deadline = time.monotonic() + 10
    while True:
        try:
            return open_ledger()
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def test_text_that_is_no_utf8_comes_back(open_ledger: OpenLedger) -> None:
    ledger = open_ledger()
    ledger.load()
    job = make_job(1, ledger.next_db_index(1.0))
    job.name, job.comment = "nul\0 and \udcff", "\udc80"
    step = StepRecord(1, "0", "\udcfe", nodes=("n1",))
    job.steps["0"] = step
    ledger.write_and_wait([ops.SaveJob(job), ops.SaveStep(job, job.steps["batch"]), ops.SaveStep(job, step)])
    found = open_ledger().load().jobs[1]
    assert found == job and found.request.script == SCRIPT
