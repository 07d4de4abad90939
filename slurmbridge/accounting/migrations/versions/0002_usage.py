"""Reservations, and usage by hour, day and month."""
import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def _number(name: str) -> sa.Column:
    return sa.Column(name, sa.BigInteger, primary_key=True, autoincrement=False)


def _span() -> tuple[sa.Column, sa.Column]:
    return sa.Column("span", sa.String(1), primary_key=True), _number("time_s")


def _tres() -> sa.Column:
    return sa.Column("tres_id", sa.Integer, primary_key=True, autoincrement=False)


def upgrade() -> None:
    op.create_table(
        "reservation", _number("id"), _number("start_s"),
        sa.Column("end_s", sa.BigInteger, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("data", sa.Text, nullable=False))
    op.create_table(
        "usage_key", _number("id"),
        sa.Column("assoc_id", sa.BigInteger, nullable=False),
        sa.Column("qos", sa.Text, nullable=False),
        sa.Column("partition", sa.Text),
        sa.Column("wckey", sa.Text))
    op.create_table(
        "job_usage", *_span(), _number("key_id"), _tres(),
        sa.Column("seconds", sa.BigInteger, nullable=False), sqlite_with_rowid=False)
    op.create_table(
        "cluster_usage", *_span(), _tres(),
        *(sa.Column(name, sa.BigInteger, nullable=False)
          for name in ("count", "allocated", "down", "planned_down", "idle", "planned", "over")),
        sqlite_with_rowid=False)
