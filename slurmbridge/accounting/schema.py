"""The ledger's tables. One definition for SQLite and PostgreSQL; ``migrations/`` leads every older ledger here.

A job's accounting row (``job``, one per run) has columns for what queries select and join by and a JSON text for what
they only print. ``live`` has what a restarted controller needs of a job and goes when the job is forgotten. Texts of
many kilobytes (scripts, environments) are kept once each in ``body``, by hash. Times are whole epoch seconds.
"""
from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, MetaData, String, Table, Text

REVISION = "0002"
"""The newest migration; what ``alembic_version`` says in a current ledger."""

metadata = MetaData()

meta = Table("meta", metadata, Column("key", String, primary_key=True), Column("value", Text, nullable=False))

job = Table(
    "job", metadata,
    Column("db_index", BigInteger, primary_key=True, autoincrement=False),
    Column("job_id", BigInteger, nullable=False),
    Column("array_job_id", BigInteger, nullable=False),
    Column("array_task_id", BigInteger),
    Column("het_job_id", BigInteger, nullable=False),
    Column("het_offset", BigInteger, nullable=False),
    Column("user_name", Text, nullable=False),
    Column("uid", BigInteger, nullable=False),
    Column("gid", BigInteger, nullable=False),
    Column("account", Text, nullable=False),
    Column("assoc_id", BigInteger, nullable=False),
    Column("partition", Text, nullable=False),
    Column("qos", Text, nullable=False),
    Column("wckey", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("submit_s", BigInteger, nullable=False),
    Column("eligible_s", BigInteger),
    Column("start_s", BigInteger),
    Column("end_s", BigInteger),
    Column("data", Text, nullable=False),
    Index("job_by_id", "job_id"),
    Index("job_by_end", "end_s"),
)
for _name, _column in (("job_by_array", job.c.array_job_id), ("job_by_het", job.c.het_job_id)):
    Index(_name, _column, sqlite_where=_column != 0, postgresql_where=_column != 0)

step = Table(
    "step", metadata,
    Column("db_index", BigInteger, primary_key=True, autoincrement=False),
    Column("step_id", String, primary_key=True),
    Column("data", Text, nullable=False),
)

suspension = Table(
    "suspension", metadata,
    Column("db_index", BigInteger, primary_key=True, autoincrement=False),
    Column("start_s", BigInteger, primary_key=True, autoincrement=False),
    Column("end_s", BigInteger),
)

live = Table(
    "live", metadata,
    Column("job_id", BigInteger, primary_key=True, autoincrement=False),
    Column("db_index", BigInteger, nullable=False),
    Column("script", String),
    Column("environment", String),
    Column("data", Text, nullable=False),
)

body = Table("body", metadata, Column("hash", String, primary_key=True), Column("content", LargeBinary, nullable=False))

event = Table(
    "event", metadata,
    Column("node", String, primary_key=True),
    Column("start_s", BigInteger, primary_key=True, autoincrement=False),
    Column("end_s", BigInteger),
    Column("data", Text, nullable=False),
    Index("event_by_end", "end_s"),
)

node = Table("node", metadata, Column("name", String, primary_key=True), Column("data", Text, nullable=False))
partition = Table("partition", metadata, Column("name", String, primary_key=True), Column("data", Text, nullable=False))

association = Table(
    "association", metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False), Column("data", Text, nullable=False))
qos = Table(
    "qos", metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False), Column("data", Text, nullable=False))
account = Table("account", metadata, Column("name", String, primary_key=True), Column("data", Text, nullable=False))
user = Table("directory_user", metadata, Column("name", String, primary_key=True), Column("data", Text, nullable=False))
tres = Table("tres", metadata, Column("name", String, primary_key=True), Column("id", Integer, nullable=False))
wckey = Table(
    "wckey", metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False), Column("data", Text, nullable=False))

usage = Table(
    "usage", metadata,
    Column("kind", String, primary_key=True),                 # "association" | "qos"
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("data", Text, nullable=False),
)

change = Table(
    "change", metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("time_s", BigInteger, nullable=False),
    Column("action", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("where_text", Text, nullable=False),
    Column("info", Text, nullable=False),
)

reservation = Table(
    "reservation", metadata,                                   # a changed reservation has a row for each of its times
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("start_s", BigInteger, primary_key=True, autoincrement=False),
    Column("end_s", BigInteger, nullable=False),
    Column("name", Text, nullable=False),
    Column("data", Text, nullable=False),
)

usage_key = Table(
    "usage_key", metadata,                                     # whose usage it is; rollup.Key
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("assoc_id", BigInteger, nullable=False),
    Column("qos", Text, nullable=False),
    Column("partition", Text),                                 # null: reserved and not used
    Column("wckey", Text),                                     # null: not tracked
)
job_usage = Table(
    "job_usage", metadata,
    Column("span", String(1), primary_key=True),               # h, d or m
    Column("time_s", BigInteger, primary_key=True, autoincrement=False),
    Column("key_id", BigInteger, primary_key=True, autoincrement=False),
    Column("tres_id", Integer, primary_key=True, autoincrement=False),
    Column("seconds", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
cluster_usage = Table(
    "cluster_usage", metadata,
    Column("span", String(1), primary_key=True),
    Column("time_s", BigInteger, primary_key=True, autoincrement=False),
    Column("tres_id", Integer, primary_key=True, autoincrement=False),
    *(Column(name, BigInteger, nullable=False)
      for name in ("count", "allocated", "down", "planned_down", "idle", "planned", "over")),
    sqlite_with_rowid=False,
)
