"""A served controller whose socket is talked to by programs that are not its client, or clients that die."""
from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sites import Site

HEADER = struct.Struct(">cI")
SOON_S = 3.0
"""How long a polite caller may wait for its answer, on a busy machine."""


@pytest.fixture(scope="module")
def place(commands: Path) -> Iterator[Site]:
    site = Site("simulated", "MaxJobCount=20000\n", None, (), {})
    try:
        site.up()
        yield site
    finally:
        site.remove()


def connect(site: Site) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(20)
    sock.connect(f"{site.state}/slurmbridge.sock")
    return sock


def frame(kind: bytes, payload: bytes) -> bytes:
    return HEADER.pack(kind, len(payload)) + payload


def request(*argv: str, **more: object) -> bytes:
    fields = {"v": 1, "command": argv[0], "argv": list(argv[1:]), "env": ["PATH=/bin"], "cwd": "/tmp", **more}
    return frame(b"R", json.dumps(fields).encode())


def answer(sock: socket.socket) -> bytes:
    found = b""
    with contextlib.suppress(ConnectionError):
        while data := sock.recv(1 << 16):
            found += data
    return found


def polite(site: Site) -> None:
    begun = time.monotonic()
    assert site.run("squeue", "-h", timeout_s=20).returncode == 0
    assert time.monotonic() - begun < SOON_S


@pytest.mark.parametrize("more", [{"uid": 0}, {"identity": {"uid": 0}}, {"credential": "x"}, {"groups": [0]},
                                  {"user": "root", "gid": 0, "is_admin": True}])
def test_who_calls_is_what_the_kernel_says(place: Site, unix_users: tuple[str, ...], more: dict[str, object]) -> None:
    """Identities claimed in the request mean nothing."""
    if os.geteuid() != 0:
        pytest.skip("acts as another user")
    reading, writing = os.pipe()
    uid = int(place.ok("id", "-u", "bob"))
    if os.fork() == 0:
        try:
            os.setgroups([])
            os.setresuid(uid, uid, uid)
            sock = connect(place)
            sock.sendall(request("scontrol", "update", "partition=main", "state=down", **more))
            os.write(writing, answer(sock))
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    os.wait()
    assert b"Invalid user id" in said
    assert "up" in place.ok("sinfo", "-h", "-o", "%a")


VALID = request("squeue", "-h")
GARBAGE = [
    b"\0" * 4096, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", VALID[:7], VALID[:-1], frame(b"R", b"{}"), frame(b"R", b"null"),
    frame(b"R", b"[" * 100_000), frame(b"R", b'{"v":1}'), HEADER.pack(b"R", 0xFFFFFFFF), HEADER.pack(b"?", 0),
    frame(b"R", b"\xff\xfe"), VALID + VALID, VALID + frame(b"D", b""), frame(b"D", b"\0\0\0\0"), frame(b"i", b"x"),
    request("squeue", env=[1, 2]), request("squeue", env={"A": "b"}), request("squeue", cwd=None),
    request("squeue", umask="x"), request("squeue", rlimits={"NOFILE": [1]}), request("squeue", rlimits=[1]),
    request("squeue", tty_columns="wide"), request("squeue", groups="root"), request("../../etc/passwd"),
    request("os.system"), request("sbatch", "--wrap", "id\0id"), request("sbatch", "--wrap", "\ud800"),
    request("sbatch", "/etc/hostname", cwd="\0"), request("slurmbridge", "import-usage", "/dev/zero", "x"),
    request("slurmbridge"), request("squeue", env=["=", "==", "A", "\0=\0"]), request("squeue", pid=1e400)]


@pytest.mark.parametrize("data", GARBAGE, ids=range(len(GARBAGE)))
def test_garbage_ends_its_own_connection_only(place: Site, data: bytes) -> None:
    with connect(place) as sock:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        said = answer(sock)
    assert b"Traceback" not in said and len(said) < 4096
    polite(place)


def test_random_frames(place: Site) -> None:
    chance = random.Random(25)
    for _ in range(150):
        data = bytearray(request("scontrol", "show", "job", "1"))
        for _ in range(chance.randrange(1, 6)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        with connect(place) as sock, contextlib.suppress(ConnectionError):
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            answer(sock)
    polite(place)


def test_five_hundred_idle_connections(place: Site) -> None:
    idle = [connect(place) for _ in range(500)]
    for sock in idle[::2]:
        sock.sendall(VALID[:5])
    polite(place)
    for sock in idle:
        sock.close()
    polite(place)


def test_a_large_queue_and_a_reader_that_sleeps(place: Site) -> None:
    job = place.submit("-H", "--array=0-1000", "--wrap", "id")
    sleepy = [connect(place) for _ in range(20)]
    for sock in sleepy:
        sock.sendall(request("squeue", "-r", "-o", "%i %300j %300o %300Z"))
    time.sleep(0.3)
    for _ in range(5):
        polite(place)
    assert answer(sleepy[0]).count(f"{job}_".encode()) == 1001
    for sock in sleepy:
        sock.close()
    place.ok("scancel", str(job))


def nobody_waits(place: Site) -> None:
    deadline = time.monotonic() + 30
    while place.ok("squeue", "-h", "-o", "%A"):
        assert time.monotonic() < deadline, place.ok("squeue")
        time.sleep(0.1)


@pytest.mark.parametrize("words", [
    ("srun", "-w", "nosuch,", "id"), ("srun", "-N8", "--exclusive", "sleep", "60"), ("salloc", "-N8", "sleep", "60"),
    ("sbatch", "--wait", "-N8", "--wrap", "sleep 60"), ("squeue", "-i", "1"), ("sbatch",), ("sinfo", "-i", "1"),
    ("scancel", "-i", "-u", "root")])
def test_clients_killed_at_any_point(place: Site, words: tuple[str, ...]) -> None:
    """Nothing of theirs keeps anybody waiting, and an allocation for nobody is given back."""
    place.ok("scancel", "-u", "root")
    nobody_waits(place)
    for delay_s in (0.0, 0.003, 0.006, 0.01, 0.05, 0.3):
        with subprocess.Popen(list(words), env=place.env, cwd=place.work, stdin=subprocess.PIPE,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as client:
            time.sleep(delay_s)
            client.send_signal(signal.SIGKILL)
    polite(place)
    if words[0] == "sbatch":
        place.ok("scancel", "-u", "root")
    nobody_waits(place)
