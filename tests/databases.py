"""A private PostgreSQL server for tests: a real one, in a folder of its own, reached through a socket there."""
from __future__ import annotations

import glob
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from typing import Any

import pytest


def _program(name: str) -> str | None:
    found = sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"))
    return found[-1] if found else shutil.which(name)


def free_port(address: str) -> int:
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


class PostgresServer:
    """Started when made; ``stop`` and ``start`` are a restart, ``remove`` ends it and takes its folder away.

    Skips the test where PostgreSQL is not installed. ``listen``: an address on which pods reach it too, at ``port``.
    """

    def __init__(self, listen: str = "") -> None:
        initdb, server = _program("initdb"), _program("postgres")
        if not initdb or not server:
            pytest.skip("PostgreSQL is not installed (tests/setup.sh installs it)")
        self.folder = tempfile.mkdtemp(prefix="slurmbridge-pg-")
        self.user = pwd.getpwuid(os.geteuid()).pw_name
        self._identity: dict[str, Any] = {}
        if os.geteuid() == 0:                  # the server refuses to run as root
            account = next(entry for entry in pwd.getpwall() if entry.pw_name in ("postgres", "nobody"))
            os.chown(self.folder, account.pw_uid, account.pw_gid)
            self._identity = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
            self.user = account.pw_name
        self._environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "HOME": self.folder}
        data = f"{self.folder}/data"
        self.port = free_port(listen) if listen else 5432
        self._words = [server, "-D", data, "-k", self.folder, "-c", f"listen_addresses={listen}", "-c",
                       "shared_buffers=16MB", "-c", f"port={self.port}"]
        self._process: subprocess.Popen[bytes] | None = None
        subprocess.run([initdb, "-D", data, "-A", "trust", "-U", self.user, "-E", "UTF8", "--no-sync"], check=True,
                       cwd=self.folder, env=self._environment, stdout=subprocess.DEVNULL, **self._identity)
        if listen:
            with open(f"{data}/pg_hba.conf", "a") as rules:
                rules.write("host all all 10.0.0.0/8 trust\n")
        try:
            self.start()
        except BaseException:
            self.remove()
            raise

    def start(self) -> None:
        """Returns when it answers."""
        import psycopg
        with open(f"{self.folder}/log", "ab") as log:
            self._process = subprocess.Popen(self._words, cwd=self.folder, env=self._environment, stderr=log,
                                             **self._identity)
        deadline = time.monotonic() + 60
        while True:
            try:
                self._admin().close()
                return
            except psycopg.OperationalError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def stop(self) -> None:
        """At once, as in a crash: what was committed is kept."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(60)
            self._process = None

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _admin(self) -> Any:
        import psycopg
        return psycopg.connect(host=self.folder, port=self.port, user=self.user, dbname="postgres", autocommit=True)

    def create(self, name: str) -> str:
        """The address of a new, empty database."""
        with self._admin() as admin:
            admin.execute(f'CREATE DATABASE "{name}"')
        return f"postgresql://{self.user}@/{name}?host={self.folder}"
