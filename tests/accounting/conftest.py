"""A private PostgreSQL, and ledgers on it and on SQLite for tests that must hold for both."""
from __future__ import annotations

import glob
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurmbridge.accounting.ledger import Ledger

OpenLedger = Callable[[], Ledger]


def _program(name: str) -> str | None:
    found = sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"))
    return found[-1] if found else shutil.which(name)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Callable[[str], str]]:
    """``postgres(name)``: the address of a new, empty database. The server listens on a socket in its own folder."""
    initdb, server = _program("initdb"), _program("postgres")
    if not initdb or not server:
        pytest.skip("PostgreSQL is not installed (tests/setup.sh installs it)")
    import psycopg
    folder = tempfile.mkdtemp(prefix="slurmbridge-pg-")
    as_user = {}
    user = pwd.getpwuid(os.geteuid()).pw_name
    if os.geteuid() == 0:                      # the server refuses to run as root
        account = next(entry for entry in pwd.getpwall() if entry.pw_name in ("postgres", "nobody"))
        os.chown(folder, account.pw_uid, account.pw_gid)
        as_user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        user = account.pw_name
    data = f"{folder}/data"
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "HOME": folder}
    subprocess.run([initdb, "-D", data, "-A", "trust", "-U", user, "-E", "UTF8", "--no-sync"], check=True, cwd=folder,
                   env=environment, stdout=subprocess.DEVNULL, **as_user)  # type: ignore[call-overload]
    with open(f"{folder}/log", "wb") as log:
        process = subprocess.Popen(
            [server, "-D", data, "-k", folder, "-c", "listen_addresses=", "-c", "shared_buffers=16MB"], cwd=folder,
            env=environment, stderr=log, **as_user)  # type: ignore[call-overload]
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                admin = psycopg.connect(host=folder, user=user, dbname="postgres", autocommit=True)
                break
            except psycopg.OperationalError:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

        def create(name: str) -> str:
            admin.execute(f'CREATE DATABASE "{name}"')  # type: ignore[call-overload]
            return f"postgresql://{user}@/{name}?host={folder}"

        yield create
        admin.close()
    finally:
        process.send_signal(signal.SIGQUIT)   # at once: nothing of it is kept
        process.wait(60)
        shutil.rmtree(folder, ignore_errors=True)


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
