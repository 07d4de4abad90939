"""The first ledger."""
import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def _named(name: str) -> None:
    op.create_table(name, sa.Column("name", sa.String, primary_key=True), sa.Column("data", sa.Text, nullable=False))


def _numbered(name: str) -> None:
    op.create_table(name, sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
                    sa.Column("data", sa.Text, nullable=False))


def upgrade() -> None:
    big = sa.BigInteger
    op.create_table("meta", sa.Column("key", sa.String, primary_key=True), sa.Column("value", sa.Text, nullable=False))
    op.create_table(
        "job",
        sa.Column("db_index", big, primary_key=True, autoincrement=False),
        sa.Column("job_id", big, nullable=False),
        sa.Column("array_job_id", big, nullable=False),
        sa.Column("array_task_id", big),
        sa.Column("het_job_id", big, nullable=False),
        sa.Column("het_offset", big, nullable=False),
        sa.Column("user_name", sa.Text, nullable=False),
        sa.Column("uid", big, nullable=False),
        sa.Column("gid", big, nullable=False),
        sa.Column("account", sa.Text, nullable=False),
        sa.Column("assoc_id", big, nullable=False),
        sa.Column("partition", sa.Text, nullable=False),
        sa.Column("qos", sa.Text, nullable=False),
        sa.Column("wckey", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("submit_s", big, nullable=False),
        sa.Column("eligible_s", big),
        sa.Column("start_s", big),
        sa.Column("end_s", big),
        sa.Column("data", sa.Text, nullable=False))
    op.create_index("job_by_id", "job", ["job_id"])
    op.create_index("job_by_end", "job", ["end_s"])
    for name, column in (("job_by_array", "array_job_id"), ("job_by_het", "het_job_id")):
        used = sa.text(f"{column} != 0")
        op.create_index(name, "job", [column], sqlite_where=used, postgresql_where=used)
    op.create_table(
        "step",
        sa.Column("db_index", big, primary_key=True, autoincrement=False),
        sa.Column("step_id", sa.String, primary_key=True),
        sa.Column("data", sa.Text, nullable=False))
    op.create_table(
        "suspension",
        sa.Column("db_index", big, primary_key=True, autoincrement=False),
        sa.Column("start_s", big, primary_key=True, autoincrement=False),
        sa.Column("end_s", big))
    op.create_table(
        "live",
        sa.Column("job_id", big, primary_key=True, autoincrement=False),
        sa.Column("db_index", big, nullable=False),
        sa.Column("script", sa.String),
        sa.Column("environment", sa.String),
        sa.Column("data", sa.Text, nullable=False))
    op.create_table(
        "body", sa.Column("hash", sa.String, primary_key=True), sa.Column("content", sa.LargeBinary, nullable=False))
    op.create_table(
        "event",
        sa.Column("node", sa.String, primary_key=True),
        sa.Column("start_s", big, primary_key=True, autoincrement=False),
        sa.Column("end_s", big),
        sa.Column("data", sa.Text, nullable=False))
    op.create_index("event_by_end", "event", ["end_s"])
    for name in ("node", "partition", "account", "directory_user"):
        _named(name)
    for name in ("association", "qos", "wckey"):
        _numbered(name)
    op.create_table(
        "tres", sa.Column("name", sa.String, primary_key=True), sa.Column("id", sa.Integer, nullable=False))
    op.create_table(
        "usage",
        sa.Column("kind", sa.String, primary_key=True),
        sa.Column("id", big, primary_key=True, autoincrement=False),
        sa.Column("data", sa.Text, nullable=False))
    op.create_table(
        "change",
        sa.Column("id", big, primary_key=True, autoincrement=False),
        sa.Column("time_s", big, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("where_text", sa.Text, nullable=False),
        sa.Column("info", sa.Text, nullable=False))
