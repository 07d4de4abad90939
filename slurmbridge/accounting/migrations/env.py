"""Alembic's entry: runs on the connection that ``accounting.migrate`` opened."""
from alembic import context

from slurmbridge.accounting.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
