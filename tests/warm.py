"""Runs ``slurmbridge`` in processes that have its modules already: hundreds of tests start a controller, and most of
what a start costs is to import them.

A server of the test process forks for each call; it ends with the test process.
"""
from __future__ import annotations

import array
import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import slurmbridge.admin

_server: tuple[int, str, int] | None = None
"""Process of the tests, the server's socket, and what it lives as long as."""


def run(argv: Sequence[str], env: Mapping[str, str], cwd: Path, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """As ``subprocess.run(argv, env=env, cwd=cwd, stdin=DEVNULL, capture_output=True, text=True)``."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        with Process(argv, env, cwd, out, err) as process:
            code = process.wait(timeout_s)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="surrogateescape"))
        return subprocess.CompletedProcess(list(argv), code, *texts)


class Process:
    """``slurmbridge`` with standard output and error in open files of ours; its input is empty."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path, out: IO[Any], err: IO[Any]) -> None:
        self._call = socket.socket(socket.AF_UNIX)
        self._call.connect(_address())
        request = json.dumps({"argv": list(argv), "env": dict(env), "cwd": str(cwd)}).encode()
        with open(os.devnull, "rb") as null:
            files = array.array("i", [null.fileno(), out.fileno(), err.fileno()])
            self._call.sendmsg([len(request).to_bytes(4, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
            self._call.sendall(request)
        self.pid = int.from_bytes(self._call.recv(4, socket.MSG_WAITALL), "big")

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self._call.close()

    def wait(self, timeout_s: float | None = None) -> int:
        """Its exit code, 255 where a signal ended it. Raises TimeoutError."""
        self._call.settimeout(timeout_s)
        return self._call.recv(1)[0]


def _address() -> str:
    global _server
    if _server is None or _server[0] != os.getpid():
        reading, writing = os.pipe()
        path = tempfile.mktemp(prefix="sbw-", dir="/tmp")
        # its output is nobody's, so that who waits for the end of a test's output does not wait for it
        with subprocess.Popen([sys.executable, __file__, path, str(reading)], pass_fds=(reading,),
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as server:
            assert server.stdout is not None
            assert server.stdout.readline() == b"ready\n", "the server of warm processes did not start"
        os.close(reading)
        _server = os.getpid(), path, writing
    return _server[1]


def serve(path: str, lifeline: int) -> None:
    """Until nobody holds the other end of ``lifeline``."""
    import slurmbridge.api.daemon  # noqa: F401
    from slurmbridge.api.server import COMMANDS
    engines = [f"cluster.{name}.engine" for name in ("local", "simulated", "kubernetes")]
    for name in (*engines, *(f"commands.{name}" for name in COMMANDS)):
        importlib.import_module(f"slurmbridge.{name}")
    gc.collect()
    gc.freeze()                               # what is here is nobody's garbage: calls need not look at it
    if os.fork():
        os._exit(0)                           # whoever started it has waited for it
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen(64)
        os.write(1, b"ready\n")
        os.dup2(0, 1)
        while lifeline not in (ready := select.select([listening, lifeline], [], [])[0]):
            if listening in ready:
                call, _ = listening.accept()
                with call:
                    if os.fork() == 0:
                        listening.close()
                        os.close(lifeline)
                        _answer(call)
    Path(path).unlink()


def _answer(call: socket.socket) -> None:
    """One call: a process that waits for the one which does it. Never returns."""
    code = 1
    try:
        length, ancillary, *_ = call.recvmsg(4, socket.CMSG_SPACE(12))
        files = array.array("i", ancillary[0][2])
        with call.makefile("rb") as stream:
            request = json.loads(stream.read(int.from_bytes(length, "big")))
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        doing = os.fork()
        if doing == 0:
            call.close()
            for number, file in enumerate(files):
                os.dup2(file, number)
                os.close(file)
            _do(request)
        call.sendall(doing.to_bytes(4, "big"))
        code = max(os.waitstatus_to_exitcode(os.waitpid(doing, 0)[1]), -1)
    finally:
        with contextlib.suppress(OSError):             # nobody waits any more
            call.sendall(bytes([code & 0xFF]))
        os._exit(0)


def _do(request: Any) -> None:
    """Never returns."""
    code: object = 1
    try:
        os.environ.clear()
        os.environ.update(request["env"])
        time.tzset()
        os.chdir(request["cwd"])
        sys.argv = request["argv"]
        slurmbridge.admin.main()
        code = 0
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
