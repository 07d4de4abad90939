"""Whoever waits for the disk after the ledger has failed is told so, and does not wait for ever."""
from __future__ import annotations

import asyncio

import pytest

from slurmbridge.accounting.errors import LedgerError
from slurmbridge.accounting.operations import ForgetJob, Operation
from slurmbridge.controller.journal import Journal


def test_waiters_before_and_after_the_failure() -> None:
    async def scene() -> None:
        given: list[asyncio.Future[None]] = []

        def write(operations: list[Operation], *, alone: bool = False) -> asyncio.Future[None]:
            given.append(asyncio.get_running_loop().create_future())
            return given[-1]
        failures: list[BaseException] = []
        journal = Journal(write, failures.append)
        journal.add(ForgetJob(1))
        before = asyncio.ensure_future(journal.durable())
        while not given:
            await asyncio.sleep(0)
        given[0].set_exception(LedgerError("gone"))
        with pytest.raises(LedgerError, match="gone"):
            await before
        for wait in (journal.durable, journal.acknowledged):
            with pytest.raises(LedgerError, match="gone"):
                await asyncio.wait_for(wait(), 10)
        assert len(failures) == 1
    asyncio.run(scene())
