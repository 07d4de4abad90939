"""A private PostgreSQL, and ledgers on it and on SQLite for tests that must hold for both."""
from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from databases import PostgresServer

from slurmbridge.accounting.ledger import Ledger

OpenLedger = Callable[[], Ledger]


@pytest.fixture(scope="session")
def postgres() -> Iterator[Callable[[str], str]]:
    """``postgres(name)``: the address of a new, empty database."""
    server = PostgresServer()
    yield server.create
    server.remove()


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a ledger that is not there yet, once with each database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/ledger.db"
    create = request.getfixturevalue("postgres")
    return str(create(f"test_{time.monotonic_ns()}"))


@pytest.fixture
def open_ledger(ledger_url: str) -> Iterator[OpenLedger]:
    """Opens the ledger (after closing the one it opened before)."""
    opened: list[Ledger] = []

    def open_again() -> Ledger:
        for ledger in opened:
            ledger.close()
        opened[:] = [Ledger.open(ledger_url)]
        return opened[0]

    yield open_again
    for ledger in opened:
        ledger.close()
