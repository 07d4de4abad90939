"""What commands talk to, by the unix socket or behind ``api.https``: one connection, one command (docs/protocol.md).

Everything runs on the controller's event loop: reading, dispatch and rendering take well under a millisecond for the
usual command, and a thread hop would cost more than it hides. A connection can only hold up itself: its output is
bounded by its own transport's buffer, its input by ``frames.LIMITS`` and its first frame by a time limit.
"""
from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import logging
import os
import socket
import stat
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from slurmbridge.accounting.errors import LedgerError
from slurmbridge.api import frames, job_scope
from slurmbridge.api.callers import Caller
from slurmbridge.api.identity import Identities
from slurmbridge.api.session import ClientSession
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.views.session import Acts, Invocation, Reply, Views

log = logging.getLogger(__name__)

COMMANDS = (
    "sbatch", "srun", "salloc", "squeue", "scancel", "scontrol", "sinfo", "sacct", "sprio", "sshare", "sacctmgr",
    "sreport", "sattach", "sbcast", "sstat")
FIRST_FRAME_S = 60.0
SECRETS = frozenset({"SLURMBRIDGE_TOKEN", "SLURMBRIDGE_CA"})
"""What a caller's own way here needs. Jobs have theirs: a user's token does not travel into ledger, Secret or pod."""
INPUT_AHEAD = 4 << 20
Command = Callable[[tuple[str, ...], Any, ClientSession], Awaitable[Reply]]


class Connection(asyncio.Protocol):
    """One client. Frames in, one command's task, frames out. ``caller``: known already; None: the socket's peer."""

    def __init__(self, server: CommandServer, caller: Caller | None = None) -> None:
        self._server = server
        self._caller = caller
        self._parser = frames.Parser()
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._answer: asyncio.Future[bytes] | None = None
        self._asking = asyncio.Lock()
        self._input = bytearray()
        self._input_open = False
        self._input_ended = asyncio.Event()
        self._input_grew = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._timer: asyncio.TimerHandle | None = None
        self.closed = asyncio.Event()

    # --- asyncio.Protocol
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._server.connections.add(self)
        self._timer = asyncio.get_running_loop().call_later(FIRST_FRAME_S, self.drop)

    def data_received(self, data: bytes) -> None:
        try:
            for kind, payload in self._parser.feed(data):
                self._take(kind, payload)
        except (frames.ProtocolError, ValueError, KeyError, TypeError) as error:
            log.info("connection dropped: %s", error)
            self.drop()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        self.closed.set()
        self._writable.set()
        if self._timer is not None:
            self._timer.cancel()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError("the caller has gone"))
        self._input_ended.set()
        self._input_grew.set()
        if self._task is not None and not self._task.done():
            self._task.cancel()

    def drop(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # --- frames in
    def _take(self, kind: bytes, payload: bytes) -> None:
        if kind == b"R":
            if self._task is not None:
                raise frames.ProtocolError("second request")
            if self._timer is not None:
                self._timer.cancel()
            assert self._transport is not None
            caller = self._caller or Caller(self._server.identities.of_socket(
                self._transport.get_extra_info("socket")))
            invocation = read_invocation(payload)
            self._task = asyncio.get_running_loop().create_task(self._serve(caller, invocation))
        elif kind == b"D":
            if self._answer is None or self._answer.done():
                raise frames.ProtocolError("answer without question")
            self._answer.set_result(payload)
        elif kind == b"i":
            if not self._input_open:
                raise frames.ProtocolError("input was not asked for")
            if not payload:
                self._input_ended.set()
                self._input_grew.set()
                return
            self._input += payload
            self._input_grew.set()
            if len(self._input) > frames.MAX_ANSWER:
                raise frames.ProtocolError("too much input")

    # --- what the session uses
    async def send(self, data: bytes) -> None:
        if self.closed.is_set() or self._transport is None:
            raise ConnectionError("the caller has gone")
        self._transport.write(data)
        if not self._writable.is_set():
            await self._writable.wait()
            if self.closed.is_set():
                raise ConnectionError("the caller has gone")

    async def ask(self, data: bytes) -> tuple[int, bytes]:
        async with self._asking:
            self._answer = asyncio.get_running_loop().create_future()
            await self.send(data)
            return frames.unpack_answer(await self._answer)

    async def read_input(self) -> bytes:
        self._input_open = True
        await self.send(frames.pack(b"I", b"1"))
        await self._input_ended.wait()
        if self.closed.is_set():
            raise ConnectionError("the caller has gone")
        return bytes(self._input)

    async def read_line(self) -> bytes:
        if not self._input_open:
            self._input_open = True
            await self.send(frames.pack(b"I", b"1"))
        while (end := self._input.find(b"\n") + 1) == 0 and not self._input_ended.is_set():
            self._input_grew.clear()
            await self._input_grew.wait()
            if self.closed.is_set():
                raise ConnectionError("the caller has gone")
        line = bytes(self._input[:end or len(self._input)])
        del self._input[:len(line)]
        return line

    # --- the command
    async def _serve(self, caller: Caller, invocation: Invocation) -> None:
        server = self._server
        views, acts = server.side_of(caller)
        session = ClientSession(self, caller.identity, invocation, views, acts, server.now)
        try:
            if caller.job is not None and invocation.command not in job_scope.COMMANDS:
                reply = Reply(stderr=f"{invocation.command}: error: Access/permission denied\n", exit_code=1)
            else:
                reply = await server.run(session)
            if session.handed_over:
                return
            await session.answer(reply)
        except ConnectionError:
            pass
        finally:
            if self._transport is not None and not self.closed.is_set():
                self._transport.close()


def read_invocation(payload: bytes) -> Invocation:
    """The ``R`` frame. Raises ValueError, KeyError or TypeError for what is not one.

    Its texts are UTF-8, with other bytes as surrogate escapes; any other surrogate could not be written down again.
    """
    text = payload.decode()
    request = json.loads(text)
    if "\\ud" in text or "\\uD" in text:
        "\0".join(_texts(request)).encode(errors="surrogateescape")
    if request.get("v") != 1:
        raise ValueError("protocol version")
    env: dict[str, str] = {}
    for entry in request["env"]:
        name, separator, value = entry.partition("=")
        if separator and name and name not in env and name not in SECRETS:
            env[name] = value
    return Invocation(
        command=str(request["command"]),
        argv=tuple(str(word) for word in request["argv"]),
        env=env,
        cwd=str(request["cwd"]),
        umask=int(request.get("umask", 0o022)) & 0o777,
        host=str(request.get("host", "")),
        pid=int(request.get("pid", 0)),
        sid=int(request.get("sid", 0)),
        rlimits={str(name): (int(soft), int(hard)) for name, (soft, hard) in (request.get("rlimits") or {}).items()},
        tty_columns=request.get("tty_columns"),
        stdin_is_tty=bool(request.get("stdin_tty", False)),
        groups=tuple(int(gid) for gid in request.get("groups") or ()))


def _texts(value: object) -> Iterator[str]:
    """All strings in a JSON value, names included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


class CommandServer:
    """Listens on a unix socket and runs commands. ``extra`` adds commands to those of ``slurmbridge.commands``."""

    def __init__(self, views: Views, acts: Acts, identities: Identities, now: Callable[[], float],
                 extra: dict[str, Command] | None = None) -> None:
        self.views = views
        self.acts = acts
        self.identities = identities
        self.now = now
        self.connections: set[Connection] = set()
        self._commands: dict[str, Command] = dict(extra or {})
        self._server: asyncio.AbstractServer | None = None
        self._path = ""

    def side_of(self, caller: Caller) -> tuple[Views, Acts]:
        """What this caller may see and do."""
        if caller.job is None:
            return self.views, self.acts
        views = job_scope.JobViews(self.views, caller)
        return views, job_scope.JobActs(self.acts, views)  # type: ignore[return-value]

    def preload(self) -> None:
        """Imports every command now, so that nobody's first call waits for it. One that cannot be imported is logged
        and answers that it is not there; the others serve."""
        for name in COMMANDS:
            try:
                self._commands[name] = importlib.import_module(f"slurmbridge.commands.{name}").run
            except Exception:
                log.exception("command %s", name)

    async def listen(self, path: str) -> None:
        """Raises OSError where the socket is somebody else's."""
        take_socket_path(path)
        self._server = await asyncio.get_running_loop().create_unix_server(
            lambda: Connection(self), path, backlog=1024)
        os.chmod(path, 0o777)
        self._path = path

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            with contextlib.suppress(OSError):
                os.unlink(self._path)
        for connection in list(self.connections):
            connection.drop()

    async def run(self, session: ClientSession) -> Reply:
        """One command's reply; an error of ours becomes one line on its stderr."""
        name = session.invocation.command
        command = self._commands.get(name)
        if command is None:
            return Reply(stderr=f"{name}: error: this command is not provided by slurmbridge\n", exit_code=1)
        try:
            return await command(session.invocation.argv, session.invocation.env, session)
        except SlurmError as error:
            return Reply(stderr=f"{name}: error: {error}\n", exit_code=1)
        except LedgerError as error:
            log.error("%s: %s", name, error)
            return Reply(stderr=f"{name}: error: Problem talking to the database: {error}\n", exit_code=1)
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception as error:
            log.exception("%s %s", name, session.invocation.argv)
            return Reply(stderr=f"{name}: error: slurmbridge: internal error ({type(error).__name__}), "
                                "see the controller's log\n", exit_code=1)


def take_socket_path(path: str) -> None:
    """Removes a socket that nobody serves any more. Raises OSError (EADDRINUSE, EEXIST) where somebody does."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise FileExistsError(17, "exists and is not a socket", path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(2)
        try:
            probe.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            return
        except OSError:
            pass
    raise OSError(98, "another controller serves this socket", path)
