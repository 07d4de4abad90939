"""Every trouble with the ledger is one exception with one line."""
from __future__ import annotations

import asyncio
import contextlib
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from accounting.conftest import OpenLedger
from accounting.jobs import make_job
from alembic.migration import MigrationContext
from sqlalchemy import MetaData, create_engine

from slurmbridge.accounting import codec, schema
from slurmbridge.accounting import operations as ops
from slurmbridge.accounting.database import make_engine, normal_url
from slurmbridge.accounting.errors import LedgerError
from slurmbridge.accounting.ledger import Ledger
from slurmbridge.accounting.migrate import upgrade
from slurmbridge.slurm.jobspec import JobRequest


def _refusal(action: Callable[[], object]) -> str:
    with pytest.raises(LedgerError) as caught:
        action()
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_a_second_controller(open_ledger: OpenLedger, ledger_url: str) -> None:
    open_ledger().load()
    assert "another controller uses this" in _refusal(lambda: Ledger.open(ledger_url))


def test_a_second_controller_with_another_lock_file(postgres: Callable[[str], str], tmp_path: Path) -> None:
    url = postgres("two_controllers")
    first = Ledger.open(url, str(tmp_path / "one"))
    first.load()
    assert "advisory lock" in _refusal(lambda: Ledger.open(url, str(tmp_path / "two")))
    first.close()
    Ledger.open(url, str(tmp_path / "two")).close()


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").write_bytes(b"no database" * 1000)
    text = _refusal(lambda: Ledger.open(f"{tmp_path}/ledger.db"))
    assert "not a database" in text and str(tmp_path) in text


def test_a_database_with_a_broken_page(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    ledger = Ledger.open(str(path))
    ledger.load()
    ledger.write_and_wait([ops.SaveJob(make_job(number, number, f"script {number}")) for number in range(1, 200)])
    ledger.close()
    content = bytearray(path.read_bytes())
    for page in range(3, len(content) // 4096):
        content[page * 4096:page * 4096 + 64] = b"\xff" * 64
    path.write_bytes(content)

    def open_and_load() -> None:
        broken = Ledger.open(str(path))
        try:
            broken.load()
        finally:
            broken.close()
    assert "malformed" in _refusal(open_and_load)


def test_a_ledger_of_a_newer_release(open_ledger: OpenLedger, ledger_url: str) -> None:
    open_ledger().close()
    engine = make_engine(normal_url(ledger_url))
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    assert "newer" in _refusal(lambda: Ledger.open(ledger_url))


def test_a_record_of_a_newer_release() -> None:
    text = codec.encode(JobRequest()).replace(f'"_v":{codec.FORMAT_VERSION}', '"_v":999')
    with pytest.raises(ValueError, match="999"):
        codec.decode(JobRequest, text)


def test_a_place_that_is_not_there() -> None:
    assert "/proc/none" in _refusal(lambda: Ledger.open("/proc/none/ledger.db"))
    assert "cannot be" in _refusal(lambda: Ledger.open("postgresql://nobody@/none?host=/nonexistent"))
    _refusal(lambda: Ledger.open("oracle9://x"))


def test_a_full_disk(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    ledger = Ledger.open(str(path))
    ledger.load()
    ledger.write_and_wait([ops.SaveJob(make_job(1, ledger.next_db_index(1.0)))])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.with_suffix(".db-wal").stat().st_size + 8192, hard))
    try:
        big = make_job(2, ledger.next_db_index(2.0), "x" * 1_000_000)

        async def write() -> None:
            await ledger.write([ops.SaveJob(big)])
        text = _refusal(lambda: asyncio.run(write()))
        assert "cannot be written" in text
        assert text == _refusal(lambda: ledger.write_and_wait([ops.SaveMeta("a", "b")])), "it must not go on after that"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        ledger.close()
    again = Ledger.open(str(path))
    assert set(again.load().jobs) == {1}
    again.close()


def test_another_program_holds_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slurmbridge.accounting.writer.PATIENCE_S", 0.05)
    path = tmp_path / "ledger.db"
    ledger = Ledger.open(str(path))
    ledger.load()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    text = _refusal(lambda: ledger.write_and_wait([ops.SaveMeta("a", "b")]))
    assert "locked" in text
    other.close()
    ledger.close()


def test_migrations_make_the_tables_that_the_code_uses(tmp_path: Path) -> None:
    def shape(path: str) -> dict[str, object]:
        found = MetaData()
        found.reflect(create_engine(f"sqlite:///{path}"))
        return {table.name: ([(c.name, str(c.type), c.primary_key, c.nullable) for c in table.columns],
                             sorted((i.name, [c.name for c in i.columns]) for i in table.indexes))
                for table in found.sorted_tables if table.name != "alembic_version"}

    by_code, by_steps = f"{tmp_path}/code.db", f"{tmp_path}/steps.db"
    schema.metadata.create_all(create_engine(f"sqlite:///{by_code}"))
    engine = make_engine(normal_url(by_steps))
    upgrade(engine, None)
    assert shape(by_code) == shape(by_steps)
    with engine.connect() as connection:
        assert MigrationContext.configure(connection).get_current_revision() == schema.REVISION


def test_a_start_that_is_current_does_not_load_alembic(tmp_path: Path) -> None:
    Ledger.open(f"{tmp_path}/ledger.db").close()
    code = ("import sys; from slurmbridge.accounting.ledger import Ledger; "
            f"Ledger.open({str(tmp_path)!r} + '/ledger.db').load(); print('alembic' in sys.modules)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                          cwd=Path(__file__).parents[2])
    assert done.stdout == "False\n"


def test_a_lone_write_while_another_program_holds_the_file(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    ledger = Ledger.open(str(path))
    ledger.load()

    async def write() -> None:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            written = ledger.write([ops.SaveMeta("a", "b")], alone=True)
            assert not written.done(), "the caller does not wait for the lock"
        await written
    asyncio.run(write())
    assert ledger.commits == 2
    ledger.close()
