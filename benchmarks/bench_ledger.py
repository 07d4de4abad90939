"""How many job submissions a second the ledger makes durable: ``.venv/bin/python benchmarks/bench_ledger.py [URL]``."""
from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
import time

from slurmbridge.accounting.ledger import Ledger
from slurmbridge.accounting.operations import SaveJob
from slurmbridge.slurm.jobspec import JobRequest
from slurmbridge.views.records import JobRecord

ENVIRONMENT = tuple(f"VAR{number}=" + f"some value of a variable {number}" * 3 for number in range(60))


def _job(ledger: Ledger, number: int) -> JobRecord:
    request = JobRequest(
        name=f"job{number}", script=f"#!/bin/bash\nsleep {number % 50}\n", environment=(*ENVIRONMENT, f"X={number}"),
        uid=1000, account="phys", num_tasks=4, std_out="slurm-%j.out", submit_line="sbatch -n4 x.sh",
        work_dir="/home/x")
    return JobRecord(
        number, request, name=f"job{number}", user_name="alice", uid=1000, account="phys", assoc_id=4,
        partition="batch", qos="normal", priority=1234 + number, submit_s=time.time(), num_tasks=4, num_cpus=4,
        tres_req={"cpu": 4, "mem": 4000, "node": 1, "billing": 4}, time_limit_min=60,
        db_index=ledger.next_db_index(time.time()))


async def _submit(ledger: Ledger, numbers: range) -> None:
    for number in numbers:
        await ledger.write([SaveJob(_job(ledger, number))])


async def _measure(ledger: Ledger) -> None:
    for submitters, jobs in ((1, 300), (8, 250), (64, 100)):
        began, commits = time.perf_counter(), ledger.commits
        parts = [range(part * jobs + 1, (part + 1) * jobs + 1) for part in range(submitters)]
        await asyncio.gather(*(_submit(ledger, part) for part in parts))
        took = time.perf_counter() - began
        print(f"{submitters:3} submitters: {submitters * jobs / took:7.0f} jobs/s acknowledged, "
              f"{ledger.commits - commits} commits")


def main() -> None:
    folder = tempfile.mkdtemp(prefix="bench-ledger-")
    try:
        ledger = Ledger.open(sys.argv[1] if len(sys.argv) > 1 else f"{folder}/ledger.db")
        ledger.load()
        asyncio.run(_measure(ledger))
        ledger.close()
    finally:
        shutil.rmtree(folder)


main()
