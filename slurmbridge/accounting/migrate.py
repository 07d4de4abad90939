"""Brings a ledger of any age to this release's tables, and costs one small query when there is nothing to do."""
from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, inspect, text

from slurmbridge.accounting import schema
from slurmbridge.accounting.errors import LedgerError

_SCRIPTS = Path(__file__).parent / "migrations"


def ensure_current(engine: Engine) -> bool:
    """Creates or upgrades the tables. Returns whether the ledger was empty before.

    Raises LedgerError where the ledger was written by a newer release.
    """
    with engine.begin() as connection:
        revision = current_revision(connection)
        if revision == schema.REVISION:
            return False
        if revision is None:
            schema.metadata.create_all(connection)
            connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)"))
            connection.execute(text("INSERT INTO alembic_version VALUES (:revision)"), {"revision": schema.REVISION})
            return True
    upgrade(engine, revision)
    return False


def ensure_known(engine: Engine) -> None:
    """Raises LedgerError where the ledger was written by a newer release; nothing is changed."""
    with engine.connect() as connection:
        revision = current_revision(connection)
    if revision not in (None, schema.REVISION):
        _check_known(revision)


def current_revision(connection: Connection) -> str | None:
    """The migration this ledger is at; None for a database without ledger tables."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


def upgrade(engine: Engine, revision: str | None) -> None:
    """Runs the migrations from ``revision`` (None: the first) on."""
    from alembic import command  # 0.2 s to import: only when a migration is due
    config = _check_known(revision)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def _check_known(revision: str | None) -> Any:
    """Alembic's configuration. Raises LedgerError for a revision that this release does not have."""
    from alembic.config import Config
    from alembic.script import ScriptDirectory
    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS))
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if revision is not None and revision not in known:
        raise LedgerError(
            f"ledger is of a newer release (its tables are at {revision}, this release knows {schema.REVISION})")
    return config
