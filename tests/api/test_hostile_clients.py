"""The command socket with peers that are slow, rude, or gone: only they notice."""
from __future__ import annotations

import asyncio
import json
import os
import struct
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from slurmbridge.api import frames
from slurmbridge.api.identity import Identities
from slurmbridge.api.server import CommandServer, read_invocation, take_socket_path
from slurmbridge.slurm import errors
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.views.session import Reply


async def echo(argv: Sequence[str], env: Any, session: Any) -> Reply:
    what = argv[0] if argv else ""
    if what == "file":
        try:
            return Reply((await session.read_file(argv[1])).decode())
        except OSError as error:
            return Reply(stderr=f"{error.strerror}\n", exit_code=2)
    if what == "stdin":
        return Reply((await session.read_stdin()).decode())
    if what == "flood":
        for _ in range(400):
            await session.write_stdout("x" * 65536)
        return Reply()
    if what == "wait":
        STARTED.append(argv[1])
        try:
            await session.sleep(60)
        finally:
            ENDED.append(argv[1])
    if what == "write":
        await session.write_file(argv[1], b"content", 0o600, True)
        return Reply("written\n")
    if what == "run":
        return Reply(exit_code=await session.run_local(["true"], {"A": "b"}) >> 8)
    if what == "hand":
        await session.hand_over("unix:///elsewhere", "secret", {"A": "b"}, ["x"])
    if what == "bug":
        raise ZeroDivisionError
    if what == "slurm":
        raise SlurmError(errors.ESLURM_INVALID_JOB_ID)
    return Reply(f"{session.identity.uid} {' '.join(argv)} {env.get('A')}\n", "warn\n", 7)


STARTED: list[str] = []
ENDED: list[str] = []


def request(*argv: str, **more: Any) -> bytes:
    fields = {"v": 1, "command": "echo", "argv": list(argv), "env": ["A=b", "A=second", "novalue"], "cwd": "/", **more}
    return frames.pack_json(b"R", fields)


class Peer:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def frame(self) -> tuple[bytes, bytes]:
        kind, length = struct.unpack(">cI", await self.reader.readexactly(5))
        return kind, await self.reader.readexactly(length)

    async def all(self) -> list[tuple[bytes, bytes]]:
        found = []
        while True:
            try:
                found.append(await self.frame())
            except (asyncio.IncompleteReadError, ConnectionError):
                return found


def served(test: Callable[[Callable[[], Awaitable[Peer]]], Awaitable[None]]) -> None:
    async def go() -> None:
        with tempfile.TemporaryDirectory(prefix="sb-") as folder:
            path = f"{folder}/s"
            server = CommandServer(None, None, Identities(()), lambda: 0.0, {"echo": echo})  # type: ignore[arg-type]
            await server.listen(path)

            async def connect() -> Peer:
                return Peer(*await asyncio.open_unix_connection(path, limit=1 << 16))
            try:
                await asyncio.wait_for(test(connect), 20)
            finally:
                await server.close()
    asyncio.run(go())


def test_one_command_on_one_connection() -> None:
    async def story(connect: Callable[[], Awaitable[Peer]]) -> None:
        peer = await connect()
        peer.writer.write(request("hello", "\udc80"))
        assert await peer.all() == [
            (b"O", f"{os.getuid()} hello ".encode() + b"\x80 b\n"), (b"E", b"warn\n"), (b"X", struct.pack(">I", 7))]
    served(story)


@pytest.mark.parametrize(("act", "question", "answer", "expected"), [
    (("file", "/f"), b"F", struct.pack(">I", 0) + b"data", [(b"O", b"data"), (b"X", b"\0\0\0\0")]),
    (("file", "/f"), b"F", struct.pack(">I", 2), [(b"E", b"No such file or directory\n"), (b"X", b"\0\0\0\2")]),
    (("write", "/f"), b"W", struct.pack(">I", 0), [(b"O", b"written\n"), (b"X", b"\0\0\0\0")]),
    (("run",), b"C", struct.pack(">I", 3 << 8), [(b"X", b"\0\0\0\3")])])
def test_questions_to_the_client(act: tuple[str, ...], question: bytes, answer: bytes, expected: Any) -> None:
    async def story(connect: Callable[[], Awaitable[Peer]]) -> None:
        peer = await connect()
        peer.writer.write(request(*act))
        kind, payload = await peer.frame()
        assert kind == question
        if kind == b"F":
            assert payload == struct.pack(">Q", 64 << 20) + b"/f"
        if kind == b"W":
            assert payload == struct.pack(">IBH", 0o600, 1, 2) + b"/fcontent"
        peer.writer.write(frames.pack(b"D", answer))
        assert await peer.all() == expected
    served(story)


def test_standard_input_comes_when_asked_for() -> None:
    async def story(connect: Callable[[], Awaitable[Peer]]) -> None:
        peer = await connect()
        peer.writer.write(request("stdin"))
        assert await peer.frame() == (b"I", b"1")
        for part in (b"one ", b"two", b""):
            peer.writer.write(frames.pack(b"i", part))
        assert (await peer.all())[0] == (b"O", b"one two")
    served(story)


def test_handing_over_ends_the_connection_without_an_exit_code() -> None:
    async def story(connect: Callable[[], Awaitable[Peer]]) -> None:
        peer = await connect()
        peer.writer.write(request("hand"))
        (kind, payload), = await peer.all()
        assert kind == b"G"
        assert json.loads(payload) == {"address": "unix:///elsewhere", "credential": "secret", "argv": ["x"],
                                       "env": ["A=b"]}
    served(story)


@pytest.mark.parametrize("garbage", [
    b"GET / HTTP/1.1\r\n\r\n", frames.pack(b"R", b"no json"), frames.pack(b"R", b"[]"), frames.pack(b"R", b'{"v":2}'),
    frames.pack(b"D", b"\0\0\0\0"), frames.pack(b"i", b"x"), struct.pack(">cI", b"R", 1 << 31), request() + request(),
    frames.pack_json(b"R", {"v": 1, "command": "echo", "argv": 5, "env": [], "cwd": "/"}), b"\0" * 100])
def test_what_is_not_the_protocol_ends_the_connection(garbage: bytes) -> None:
    async def story(connect: Callable[[], Awaitable[Peer]]) -> None:
        rude, polite = await connect(), await connect()
        rude.writer.write(garbage)
        found = await rude.all()
        assert len([kind for kind, _ in found if kind == b"X"]) <= 1
        polite.writer.write(request("hello"))
        assert (await polite.all())[-1] == (b"X", struct.pack(">I", 7))
    served(story)


def test_a_client_that_does_not_read_holds_up_nobody() -> None:
    async def story(connect: Callable[[], Awaitable[Peer]]) -> None:
        sleepy = await connect()
        sleepy.writer.write(request("flood"))
        half = await connect()
        half.writer.write(request("hello")[:9])
        for _ in range(20):
            peer = await connect()
            peer.writer.write(request("hello"))
            assert (await peer.all())[-1] == (b"X", struct.pack(">I", 7))
        found = await sleepy.all()
        assert sum(len(payload) for kind, payload in found if kind == b"O") == 400 * 65536
    served(story)


def test_a_client_that_goes_away_ends_its_command() -> None:
    async def story(connect: Callable[[], Awaitable[Peer]]) -> None:
        STARTED.clear()
        ENDED.clear()
        peer = await connect()
        peer.writer.write(request("wait", "w1"))
        while not STARTED:
            await asyncio.sleep(0.01)
        peer.writer.close()
        while not ENDED:
            await asyncio.sleep(0.01)
        assert ENDED == ["w1"]
    served(story)


def test_errors_are_one_line() -> None:
    async def story(connect: Callable[[], Awaitable[Peer]]) -> None:
        bug = b"echo: error: slurmbridge: internal error (ZeroDivisionError), see the controller's log\n"
        for words, line in ((("bug",), bug), (("slurm",), b"echo: error: Invalid job id specified\n")):
            peer = await connect()
            peer.writer.write(request(*words))
            assert await peer.all() == [(b"E", line), (b"X", struct.pack(">I", 1))]
        peer = await connect()
        peer.writer.write(request("x", command="nosuch"))
        assert (await peer.all())[-1] == (b"X", struct.pack(">I", 1))
    served(story)


def test_an_invocation_is_read_with_its_limits() -> None:
    call = read_invocation(json.dumps({
        "v": 1, "command": "c", "argv": ["a"], "env": ["A=1=2", "B="], "cwd": "/x", "umask": 0o7077,
        "rlimits": {"NOFILE": [1, 2]}, "tty_columns": 80, "stdin_tty": True, "groups": [5]}).encode())
    assert (call.env, call.umask, call.rlimits, call.tty_columns, call.stdin_is_tty, call.groups) == (
        {"A": "1=2", "B": ""}, 0o077, {"NOFILE": (1, 2)}, 80, True, (5,))


def test_sockets_that_may_be_taken(tmp_path: Path) -> None:
    take_socket_path(str(tmp_path / "none"))
    plain = tmp_path / "file"
    plain.write_text("x")
    with pytest.raises(OSError, match="not a socket"):
        take_socket_path(str(plain))

    async def story() -> None:
        path = str(tmp_path / "s")
        server = await asyncio.start_unix_server(lambda reader, writer: None, path)
        with pytest.raises(OSError, match="another controller"):
            take_socket_path(path)
        server.close()
        await server.wait_closed()
        Path(path).unlink(missing_ok=True)
        import socket
        dead = socket.socket(socket.AF_UNIX)
        dead.bind(path)
        dead.close()
        take_socket_path(path)
        assert not Path(path).exists()
    asyncio.run(story())
