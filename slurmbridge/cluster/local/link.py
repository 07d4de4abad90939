"""The engine's connection to its spawner: starts one when none serves, finds it again, replaces one that died."""
from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from slurmbridge.runtime.spawner import LOCK_NAME, SOCKET_NAME

START_TIMEOUT_S = 20.0


class SpawnerError(RuntimeError):
    """The spawner cannot be had, or refused a request."""


class SpawnerLost(SpawnerError):
    """The spawner went away before it answered: it may have done what it was asked for, or not."""


class SpawnerLink:
    """Requests and answers; one connection. ``on_lost`` is called when a spawner that served is gone."""

    def __init__(self, run: Path, reach: Path, on_lost: Callable[[], None]) -> None:
        self._run, self._reach, self._on_lost = run, reach, on_lost
        self._writer: asyncio.StreamWriter | None = None
        self._listening: asyncio.Task[None] | None = None
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._next_id = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = asyncio.Lock()
        self._closed = False

    async def connect(self) -> None:
        """Connects, starting a spawner when there is none. Raises SpawnerError."""
        async with self._lock:
            if self._writer is not None:
                return
            path = str(self._reach / SOCKET_NAME)
            deadline = asyncio.get_running_loop().time() + START_TIMEOUT_S
            while True:
                with contextlib.suppress(OSError):
                    reader, writer = await asyncio.open_unix_connection(path, limit=1 << 20)
                    # answered once no order of an earlier controller can be carried out any more
                    writer.write(json.dumps({"id": 0, "op": "hello"}).encode() + b"\n")
                    if await reader.readline():
                        break
                    writer.close()
                if asyncio.get_running_loop().time() > deadline:
                    raise SpawnerError(f"the spawner does not start; see {self._run / 'spawner.log'}")
                if self._process is None or self._process.poll() is not None:
                    self._start()
                await asyncio.sleep(0.03)
            self._writer = writer
            self._listening = asyncio.create_task(self._listen(reader))

    def _start(self) -> None:
        """Detached: its own session, no descriptor of ours. A second one on the same directory ends by itself."""
        with open(self._run / "spawner.log", "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "slurmbridge.runtime.spawner", str(self._run), str(self._reach)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, close_fds=True)

    async def request(self, op: str, **fields: Any) -> dict[str, Any]:
        """The spawner's answer. Raises SpawnerLost when it goes away meanwhile, SpawnerError when it refuses."""
        await self.connect()
        assert self._writer is not None
        self._next_id += 1
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[self._next_id] = future
        self._writer.write(json.dumps({"id": self._next_id, "op": op, **fields}).encode() + b"\n")
        answer = await future
        if not answer.get("ok"):
            raise SpawnerError(str(answer.get("error")))
        return answer

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError, ValueError):
            while line := await reader.readline():
                answer = json.loads(line)
                future = self._waiting.pop(answer.get("id"), None)
                if future is not None and not future.done():
                    future.set_result(answer)
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(SpawnerLost("the spawner is gone"))
        self._waiting.clear()
        if not self._closed:
            self._on_lost()

    def close(self) -> None:
        self._closed = True
        if self._writer is not None:
            self._writer.close()
        if self._listening is not None:
            self._listening.cancel()

    async def stop(self) -> None:
        """Ends the spawner and every step daemon it has."""
        self._closed = True
        pid = self.recorded_pid()
        if self._writer is None and pid is None:
            return
        with contextlib.suppress(SpawnerError, TimeoutError):
            await asyncio.wait_for(self.request("stop"), 10)
        if self._listening is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._listening), 10)
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self._process.wait, 5)
            if self._process.poll() is None:
                os.kill(self._process.pid, signal.SIGKILL)
        self.close()

    def recorded_pid(self) -> int | None:
        """The pid in the lock file of a spawner that is alive."""
        try:
            pid = int((self._run / LOCK_NAME).read_text())
            return pid if b"slurmbridge.runtime.spawner" in Path(f"/proc/{pid}/cmdline").read_bytes() else None
        except (OSError, ValueError):
            return None
