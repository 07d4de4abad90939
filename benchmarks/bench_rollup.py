"""Usage over many job records: ``.venv/bin/python benchmarks/bench_rollup.py [JOBS [URL]]`` (default: 1000000, SQLite).

A month of jobs by 400 users in 60 accounts, then one hour with 50,000 jobs: how long that hour's roll-up takes, a
month's report by account, one over an odd window (from hours), and rolling up everything anew.
"""
from __future__ import annotations

import itertools
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from slurmbridge.accounting import database, schema
from slurmbridge.accounting.ledger import Ledger
from slurmbridge.accounting.operations import SaveEvent, SaveMeta
from slurmbridge.accounting.queries import Queries
from slurmbridge.accounting.rolling import ROLLED, Roller, Settings
from slurmbridge.slurm.zones import Zone

MONTH, HOURS, USERS, ACCOUNTS = 1_785_542_400, 744, 400, 60           # August 2026
TRES = {"cpu": 1, "mem": 2, "energy": 3, "node": 4, "billing": 5, "gres/gpu": 1001}
END = MONTH + HOURS * 3600
LAST_HOUR_JOBS = 50_000


def job(number: int, end: int, luck: random.Random) -> dict[str, Any]:
    cpus, length = luck.choice((1, 2, 4, 8, 32)), int(luck.expovariate(1 / 4000)) + 1
    start, user = end - length, luck.randrange(USERS)
    data = {
        "tres_alloc": {"cpu": cpus, "mem": cpus * 2000, "node": 1, "billing": cpus}, "req_cpus": cpus,
        "nodes": [f"n{number % 1000}"], "tres_req": {"cpu": cpus, "mem": cpus * 2000, "node": 1, "billing": cpus},
        "work_dir": f"/home/u{user}", "submit_line": "sbatch job.sh", "priority": 1000 + number % 100}
    return {
        "db_index": number, "job_id": number, "array_job_id": 0, "array_task_id": None, "het_job_id": 0,
        "het_offset": 0, "user_name": f"u{user}", "uid": 1000 + user, "gid": 100, "account": f"a{user % ACCOUNTS}",
        "assoc_id": 100 + user, "partition": luck.choice(("batch", "long")), "qos": luck.choice(("normal", "high")),
        "wckey": "", "name": "job", "state": "COMPLETED", "submit_s": start - 600, "eligible_s": start - 600,
        "start_s": start, "end_s": end, "data": json.dumps(data, separators=(",", ":"))}


def jobs(count: int) -> Iterator[dict[str, Any]]:
    luck = random.Random(1)
    for number in range(1, count + 1):
        yield job(number, MONTH + HOURS * 3600 * number // count, luck)
    for number in range(count + 1, count + LAST_HOUR_JOBS + 1):
        yield job(number, END + 3600 * (number - count) // LAST_HOUR_JOBS - 1, luck)


def fill(url: str, count: int) -> None:
    """The quickest way there is: the database is not what is measured here."""
    engine = database.make_engine(database.normal_url(url))
    names = [column.name for column in schema.job.columns]
    quoted = ",".join(f'"{name}"' for name in names)
    rows = (tuple(row[name] for name in names) for row in jobs(count))
    connection = engine.raw_connection()
    cursor = connection.cursor()
    if engine.dialect.name == "sqlite":
        cursor.execute("PRAGMA synchronous=OFF")
        while batch := list(itertools.islice(rows, 20_000)):
            cursor.executemany(f"INSERT INTO job ({quoted}) VALUES ({','.join('?' * len(names))})", batch)
        connection.commit()
    else:
        with cursor.copy(f"COPY job ({quoted}) FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
        connection.commit()
        cursor.execute("ANALYZE job")
        connection.commit()
    connection.close()
    engine.dispose()


def timed(what: str, work: Any) -> Any:
    began, cpu = time.perf_counter(), time.process_time()
    found = work()
    print(f"{what:58} {time.perf_counter() - began:8.2f} s ({time.process_time() - cpu:.2f} s of CPU here)", flush=True)
    return found


def by_account(queries: Queries, start: int, end: int) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in queries.answer("usage", start_s=start, end_s=end):
        account = f"a{(row['assoc_id'] - 100) % ACCOUNTS}"
        found[account] = found.get(account, 0) + row["seconds"] * (row["tres_id"] == 1)
    return found


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    folder = tempfile.mkdtemp(prefix="bench-rollup-")
    url = sys.argv[2] if len(sys.argv) > 2 else f"{folder}/ledger.db"
    try:
        ledger = Ledger.open(url)
        ledger.load()
        size = {"cpu": 100_000, "mem": 400_000_000, "billing": 100_000, "node": 1000}
        ledger.write_and_wait([SaveEvent("", MONTH, tres=size)])
        timed(f"{count + LAST_HOUR_JOBS} job records written", lambda: fill(url, count))
        roller, queries = Roller(url, ledger.write_and_wait), Queries(url)
        settings = Settings(Zone("UTC"), TRES, lambda number: "normal")
        timed(f"{HOURS} hours rolled up", lambda: roller.catch_up(settings, END))
        timed(f"a new hour of {LAST_HOUR_JOBS} jobs rolled up", lambda: roller.catch_up(settings, END + 3600))
        found = timed("a month's report by account", lambda: by_account(queries, MONTH, END))
        odd = timed("the same but for its first hour", lambda: by_account(queries, MONTH + 3600, END))
        assert sum(found.values()) > sum(odd.values()) > 0
        ledger.write_and_wait([SaveMeta(ROLLED, str(END - 86400))])
        timed("a day rolled up again", lambda: roller.catch_up(settings, END + 3600))
        roller.close()
        queries.close()
        ledger.close()
    finally:
        shutil.rmtree(folder)


main()
