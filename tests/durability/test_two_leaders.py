"""Two controllers of one ledger: who leads by the lease, and how one that was frozen is shut out."""
from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from databases import PostgresServer

from slurmbridge.accounting.errors import LedgerError, LedgerInUse, LedgerTaken
from slurmbridge.accounting.ledger import Ledger
from slurmbridge.accounting.operations import SaveMeta
from slurmbridge.cluster.kubernetes.api import ApiError
from slurmbridge.cluster.kubernetes.lease import Lease


def opened(url: str, lock: Path) -> Ledger:
    ledger = Ledger.open(url, str(lock), take_over=True)
    ledger.load()
    return ledger


def check_old_leader_is_shut_out(url: str, folder: Path) -> None:
    old = opened(url, folder / "a")
    old.write_and_wait([SaveMeta("who", "old")])
    new = opened(url, folder / "b")
    with pytest.raises((LedgerTaken, LedgerInUse)):
        old.write_and_wait([SaveMeta("who", "old again")])
    new.write_and_wait([SaveMeta("x", "1")])
    with pytest.raises(LedgerError):
        old.write_and_wait([SaveMeta("who", "old again")])
    old.close()
    new.close()
    last = Ledger.open(url, str(folder / "a"), take_over=True)
    assert last.load().meta["who"] == "old"
    last.write_and_wait([SaveMeta("who", "last")])
    last.close()


def test_a_frozen_leader_writes_nothing_more(tmp_path: Path) -> None:
    check_old_leader_is_shut_out(f"sqlite:///{tmp_path}/ledger.db", tmp_path)


def test_a_frozen_leader_writes_nothing_more_on_postgresql(tmp_path: Path) -> None:
    """Its session, which holds the controllers' lock, is ended by the one that follows."""
    server = PostgresServer()
    try:
        check_old_leader_is_shut_out(f"postgresql://{server.user}@/postgres?host={server.folder}", tmp_path)
    finally:
        server.remove()


def test_without_a_lease_a_second_controller_is_refused(tmp_path: Path) -> None:
    first = opened(f"sqlite:///{tmp_path}/ledger.db", tmp_path / "a")
    with pytest.raises(LedgerInUse):
        Ledger.open(f"sqlite:///{tmp_path}/ledger.db", str(tmp_path / "a"))
    first.write_and_wait([SaveMeta("x", "1")])
    first.close()


class Cluster:
    """An API server with one Lease and a clock."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.is_away = False

    async def once(self, method: str, path: str, body: Any = None, **_: Any) -> bytes:
        if self.is_away:
            raise ApiError(0, "Unreachable", "away")
        if method == "GET":
            if self.lease is None:
                raise ApiError(404, "NotFound", "")
            return json.dumps(self.lease).encode()
        if method == "POST" and self.lease is not None:
            raise ApiError(409, "AlreadyExists", "")
        if method == "PUT" and self.lease and body["metadata"]["resourceVersion"] != self.lease["metadata"][
                "resourceVersion"]:
            raise ApiError(409, "Conflict", "")
        self.version += 1
        self.lease = json.loads(json.dumps(body))
        assert self.lease is not None
        self.lease["metadata"]["resourceVersion"] = str(self.version)
        return b"{}"

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        await asyncio.sleep(0)

    def candidate(self, name: str) -> Lease:
        return Lease(self, "slurm", "x", name, 15.0, clock=lambda: self.now_s, sleep=self.sleep)  # type: ignore[arg-type]


def test_one_leads_the_other_waits_until_it_is_stale() -> None:
    async def scene() -> None:
        cluster = Cluster()
        first, second = cluster.candidate("a"), cluster.candidate("b")
        assert await first._try()
        for _ in range(6):                    # the holder renews now and then: its lease never gets old
            assert not await second._try()
            cluster.now_s += 10
            assert await first._try()
        assert not await second._try()
        cluster.now_s += 14
        assert not await second._try()
        cluster.now_s += 2
        assert await second._try()
        assert not await first._try()
        assert cluster.lease is not None and cluster.lease["spec"]["leaseTransitions"] == 1
    asyncio.run(scene())


def test_a_holder_that_cannot_renew_stops_before_another_may_begin() -> None:
    async def scene() -> None:
        cluster = Cluster()
        first = cluster.candidate("a")
        await first.acquire()
        second = cluster.candidate("b")
        assert not await second._try()
        cluster.is_away = True
        began_s = cluster.now_s
        await asyncio.wait_for(first.lost.wait(), 10)
        assert cluster.now_s - began_s < 15
        cluster.is_away = False
        assert not await second._try()
        await first.release()
    asyncio.run(scene())


def test_a_lease_that_is_given_back_is_free_at_once() -> None:
    async def scene() -> None:
        cluster = Cluster()
        first, second = cluster.candidate("a"), cluster.candidate("b")
        await first.acquire()
        assert not await second._try()
        await first.release()
        assert await second._try()
    asyncio.run(scene())


def test_two_that_want_it_at_once() -> None:
    async def scene() -> None:
        cluster = Cluster()
        won = await asyncio.gather(*(cluster.candidate(name)._try() for name in "abcdef"))
        assert sum(won) == 1
    asyncio.run(scene())
