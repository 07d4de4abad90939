"""Both clients, and a server that follows a script."""
from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurmbridge.client import install, protocol

TIMEOUT_S = 10


class Peer:
    """One accepted connection, seen from the server."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        connection.settimeout(TIMEOUT_S)
        self._frames = protocol.Frames()
        self._ready: list[tuple[bytes, bytes]] = []

    def read(self) -> tuple[bytes, bytes]:
        """The next frame; (b"", b"") at the end of the connection."""
        while not self._ready:
            data = self.connection.recv(1 << 16)
            if not data:
                return b"", b""
            self._ready = self._frames.feed(data)
        return self._ready.pop(0)

    def request(self) -> dict:
        kind, payload = self.read()
        assert kind == b"R"
        return json.loads(payload)

    def send(self, kind: bytes, payload: bytes = b"") -> None:
        self.connection.sendall(protocol.pack(kind, payload))

    def exit(self, code: int) -> None:
        self.send(b"X", code.to_bytes(4, "big"))


class ScriptedServer:
    """Runs ``script(peer)`` for each connection, one after another, on a unix socket."""

    def __init__(self, path: Path, *scripts: Callable[[Peer], None]) -> None:
        self.address = f"unix://{path}"
        self.error: BaseException | None = None
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._listener.settimeout(TIMEOUT_S)
        self._thread = threading.Thread(target=self._serve, args=(scripts,), daemon=True)
        self._thread.start()

    def _serve(self, scripts: tuple[Callable[[Peer], None], ...]) -> None:
        try:
            for script in scripts:
                connection, _ = self._listener.accept()
                with connection:
                    script(Peer(connection))
        except BaseException as error:
            self.error = error

    def finish(self) -> None:
        """Raises what went wrong in a script."""
        self._thread.join(TIMEOUT_S)
        self._listener.close()
        if self.error is not None:
            raise self.error
        assert not self._thread.is_alive()


class Client:
    """Installed commands of one kind."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.folder = folder

    def start(self, server: str, command: str, *argv: str | bytes, env: dict | None = None,
              **options) -> subprocess.Popen:
        program = self.folder / command
        if not program.exists():
            shutil.copy(self.folder / "client", program)
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        base = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "SLURMBRIDGE_URL": server}
        return subprocess.Popen([program, *argv], env={**base, **(env or {})}, **options)

    def run(self, server: str, command: str, *argv: str | bytes, **options) -> tuple[bytes, bytes, int]:
        given = options.pop("input", None)
        if given is not None:
            options["stdin"] = subprocess.PIPE
        process = self.start(server, command, *argv, **options)
        out, err = process.communicate(given, timeout=TIMEOUT_S)
        return out, err, process.returncode


@pytest.fixture(scope="session")
def client_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One folder each with a program named ``client`` that goes by the name it is copied to."""
    folders = {}
    python = install.everybodys_python()
    compiled = install.build_client(tmp_path_factory.mktemp("c"), python)
    if compiled is not None:
        folders["c"] = compiled.parent
    folders["python"] = tmp_path_factory.mktemp("python")
    launcher = folders["python"] / "client"
    launcher.write_text(install.LAUNCHER.format(python=python, root=str(install.ROOT)))
    launcher.chmod(0o755)
    return folders


@pytest.fixture(params=["c", "python"])
def client(request: pytest.FixtureRequest, client_folders: dict[str, Path]) -> Client:
    if request.param not in client_folders:
        pytest.skip("no C compiler")
    return Client(request.param, client_folders[request.param])


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., ScriptedServer]]:
    """``serve(script, …)`` starts a server; its scripts must have come to their end with the test."""
    servers: list[ScriptedServer] = []

    def start(*scripts: Callable[[Peer], None]) -> ScriptedServer:
        servers.append(ScriptedServer(tmp_path / f"s{len(servers)}", *scripts))
        return servers[-1]

    yield start
    for server in servers:
        server.finish()
