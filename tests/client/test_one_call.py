"""What both clients send and what they make of each frame: one table of situations for the C and the Python client."""
from __future__ import annotations

import errno
import json
import os
import resource
import signal
import stat
import time

import pytest


def test_request_tells_who_where_and_what(client, serve, tmp_path):
    seen = {}

    def script(peer):
        seen.update(peer.request())
        peer.exit(0)

    server = serve(script)
    raw = b"\xff caf\xc3\xa9 \xed\xa0\x80 \xf0\x9f\x90\x8d \"\\\n\x01"
    client.run(server.address, "sbatch", "-N2", raw, env={"ODD": "a=b\tc", "RAW": raw}, cwd=tmp_path,
               preexec_fn=lambda: os.umask(0o027), input=b"")
    assert seen["v"] == 1
    assert seen["command"] == "sbatch"
    assert [os.fsencode(word) for word in seen["argv"]] == [b"-N2", raw]
    assert "ODD=a=b\tc" in seen["env"]
    assert [os.fsencode(entry) for entry in seen["env"] if entry.startswith("RAW=")] == [b"RAW=" + raw]
    assert seen["cwd"] == str(tmp_path)
    assert seen["umask"] == 0o027
    assert seen["host"] == os.uname().nodename.split(".")[0]
    assert seen["sid"] == os.getsid(0)
    assert seen["pid"] > 0
    assert seen["tty_columns"] is None
    assert seen["stdin_tty"] is False
    assert seen["credential"] == ""
    limits = ("CPU", "FSIZE", "DATA", "STACK", "CORE", "RSS", "NPROC", "NOFILE", "MEMLOCK", "AS")
    assert seen["rlimits"] == {name: list(resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))) for name in limits}


@pytest.mark.parametrize("division", [1, 3, 1 << 16])
def test_output_arrives_whole_however_the_stream_is_cut(client, serve, division):
    def script(peer):
        peer.request()
        stream = b"".join(kind + len(data).to_bytes(4, "big") + data for kind, data in (
            (b"O", b"one\n"), (b"E", b"two\xff\n"), (b"O", b""), (b"O", b"three\n"), (b"X", b"\0\0\0\x07")))
        for start in range(0, len(stream), division):
            peer.connection.sendall(stream[start:start + division])

    assert client.run(serve(script).address, "squeue") == (b"one\nthree\n", b"two\xff\n", 7)


def test_much_output(client, serve):
    text = os.urandom(1 << 16) * 80

    def script(peer):
        peer.request()
        peer.send(b"O", text)
        peer.exit(0)

    assert client.run(serve(script).address, "squeue") == (text, b"", 0)


def test_output_that_cannot_be_written_is_an_error(client, serve):
    def script(peer):
        peer.request()
        peer.send(b"O", b"x")
        peer.exit(0)

    with open("/dev/full", "wb") as full:
        _, err, code = client.run(serve(script).address, "squeue", stdout=full)
    assert (err, code) == (b"squeue: error: write to standard output: No space left on device\n", 1)


def read_frame(limit: int, path: bytes) -> bytes:
    return limit.to_bytes(8, "big") + path


READS = [("there", 100, 0, b"content\xff\0"), ("empty", 100, 0, b""), ("there", 9, 0, b"content\xff\0"),
         ("there", 8, errno.EFBIG, b""), ("missing", 100, errno.ENOENT, b""), (".", 100, errno.EISDIR, b""),
         ("large", 1 << 24, 0, b"12345678" * (1 << 20)), ("na\u00efve", 100, 0, b"odd name")]


@pytest.mark.parametrize("name, limit, error, content", READS, ids=[f"{r[0]}-{r[1]}" for r in READS])
def test_files_are_read_for_the_server(client, serve, tmp_path, name, limit, error, content):
    files = {"there": b"content\xff\0", "empty": b"", "large": b"12345678" * (1 << 20), "na\u00efve": b"odd name"}
    for file, data in files.items():
        (tmp_path / file).write_bytes(data)
    seen = []

    def script(peer):
        peer.request()
        peer.send(b"F", read_frame(limit, name.encode()))
        seen.append(peer.read())
        peer.exit(0)

    client.run(serve(script).address, "sbatch", cwd=tmp_path)
    assert seen == [(b"D", error.to_bytes(4, "big") + content)]


def write_frame(path: bytes, data: bytes, mode: int = 0o666, exclusive: bool = False) -> bytes:
    return mode.to_bytes(4, "big") + bytes([exclusive]) + len(path).to_bytes(2, "big") + path + data


def ask_to_write(client, serve, folder, payload) -> int:
    seen = []

    def script(peer):
        peer.request()
        peer.send(b"W", payload)
        seen.append(peer.read())
        peer.exit(0)

    client.run(serve(script).address, "scontrol", cwd=folder, preexec_fn=lambda: os.umask(0o022))
    (kind, answer), = seen
    assert kind == b"D" and len(answer) == 4
    return int.from_bytes(answer, "big")


def test_files_are_written_whole_with_the_callers_umask(client, serve, tmp_path):
    assert ask_to_write(client, serve, tmp_path, write_frame(b"new", b"data\xff", 0o764)) == 0
    assert (tmp_path / "new").read_bytes() == b"data\xff"
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o744
    assert not [name for name in os.listdir(tmp_path) if name.endswith("~")]


def test_written_file_replaces_what_a_link_points_to(client, serve, tmp_path):
    (tmp_path / "real").write_bytes(b"old and longer")
    (tmp_path / "link").symlink_to("real")
    assert ask_to_write(client, serve, tmp_path, write_frame(b"link", b"new")) == 0
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_write_that_must_not_replace(client, serve, tmp_path):
    (tmp_path / "there").write_bytes(b"old")
    assert ask_to_write(client, serve, tmp_path, write_frame(b"there", b"new", exclusive=True)) == errno.EEXIST
    assert (tmp_path / "there").read_bytes() == b"old"
    assert ask_to_write(client, serve, tmp_path, write_frame(b"fresh", b"new", exclusive=True)) == 0
    assert ask_to_write(client, serve, tmp_path, write_frame(b"no/such/folder", b"new")) == errno.ENOENT
    assert ask_to_write(client, serve, tmp_path, write_frame(b"/dev/full", b"new")) == errno.ENOSPC


@pytest.mark.parametrize("size", [0, 5, 300_000])
def test_standard_input_is_sent_when_asked_for(client, serve, size):
    data = os.urandom(size)
    seen = bytearray()

    def script(peer):
        peer.request()
        peer.send(b"I", b"1")
        while True:
            kind, payload = peer.read()
            assert kind == b"i"
            if not payload:
                break
            seen.extend(payload)
        peer.exit(0)

    _, err, code = client.run(serve(script).address, "srun", "cat", input=data)
    assert (bytes(seen), err, code) == (data, b"", 0)


def test_standard_input_is_left_alone_when_not_asked_for(client, serve, tmp_path):
    def script(peer):
        peer.request()
        peer.exit(0)

    file = tmp_path / "lines"
    file.write_bytes(b"first\nsecond\n")
    with open(file, "rb", buffering=0) as lines:
        client.run(serve(script).address, "squeue", stdin=lines)
        assert lines.read() == b"first\nsecond\n"


@pytest.mark.parametrize("closed", [0, 1, 2])
def test_closed_standard_streams_are_not_the_connection(client, serve, closed):
    seen = []

    def script(peer):
        peer.request()
        peer.send(b"I", b"1")
        peer.send(b"O", b"out")
        peer.send(b"E", b"err")
        seen.append(peer.read())
        peer.exit(4)

    out, err, code = client.run(serve(script).address, "srun", "cat", preexec_fn=lambda: os.close(closed))
    assert (out, err, code) == (b"" if closed == 1 else b"out", b"" if closed == 2 else b"err", 4)
    assert seen == [(b"i", b"")]


def test_input_and_output_at_once_do_not_lock(client, serve):
    data = os.urandom(1 << 20)

    def script(peer):
        peer.request()
        peer.send(b"I", b"1")
        while True:
            _, payload = peer.read()
            if not payload:
                break
            peer.send(b"O", payload * 3)
        peer.exit(0)

    out, _, code = client.run(serve(script).address, "srun", "cat", input=data)
    assert (len(out), code) == (3 * len(data), 0)


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)


def test_signals_are_forwarded_once_asked_for(client, serve):
    seen = []

    def script(peer):
        peer.request()
        peer.send(b"T")
        peer.send(b"O", b"ready\n")
        for _ in SIGNALS:
            seen.append(peer.read())
        peer.exit(3)

    process = client.start(serve(script).address, "srun", "sleep")
    assert process.stdout.readline() == b"ready\n"
    for number in SIGNALS:
        process.send_signal(number)
        time.sleep(0.02)
    process.communicate(timeout=10)
    assert process.returncode == 3
    assert seen == [(b"S", int(number).to_bytes(4, "big")) for number in SIGNALS]


def test_signals_kill_a_client_that_was_not_asked(client, serve):
    def script(peer):
        peer.request()
        peer.send(b"O", b"ready\n")
        assert peer.read() == (b"", b"")

    process = client.start(serve(script).address, "squeue", "-i1")
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=10) == (b"", b"")
    assert process.returncode == -signal.SIGINT


LETHAL = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


@pytest.mark.parametrize("number", LETHAL)
def test_last_words_when_a_signal_ends_the_client(client, serve, number):
    def script(peer):
        peer.request()
        peer.send(b"N", b"\7revoked\n")
        peer.send(b"O", b"ready\n")
        assert peer.read() == (b"", b"")

    process = client.start(serve(script).address, "salloc", "true")
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(number)
    assert process.communicate(timeout=10) == (b"", b"revoked\n")
    assert process.returncode == 7


def test_last_words_that_were_taken_back(client, serve):
    def script(peer):
        peer.request()
        peer.send(b"N", b"\7revoked\n")
        peer.send(b"N")
        peer.send(b"O", b"ready\n")
        assert peer.read() == (b"", b"")

    process = client.start(serve(script).address, "salloc", "true")
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=10) == (b"", b"")
    assert process.returncode == -signal.SIGTERM


RUNS = [(["sh", "-c", "echo $A; exit 5"], 5 << 8, b"1\n"), (["sh", "-c", "kill -9 $$"], 9, b""),
        (["/no/such/program"], 1 << 8, b""), (["sh", "-c", "printf '%s' \"$B\""], 0, b"\xff two")]


@pytest.mark.parametrize("argv, status, out", RUNS, ids=[str(i) for i in range(len(RUNS))])
def test_a_command_runs_on_the_callers_terminal(client, serve, argv, status, out):
    seen = []

    def script(peer):
        peer.request()
        env = ["A=1", "B=\udcff two", f"PATH={os.environ['PATH']}"]
        peer.send(b"C", json.dumps({"argv": argv, "env": env}).encode())
        seen.append(peer.read())
        peer.send(b"O", b"")
        peer.exit(2)

    got_out, err, code = client.run(serve(script).address, "salloc")
    assert seen == [(b"D", status.to_bytes(4, "big"))]
    assert (got_out, code) == (out, 2)
    assert err == (b'salloc: error: _fork_command: Unable to find command "/no/such/program"\n'
                   if status == 1 << 8 else b"")


def test_a_command_outlives_a_lost_server(client, serve):

    def script(peer):
        peer.request()
        argv = ["sh", "-c", "sleep 0.2; echo done; exit 4"]
        peer.send(b"C", json.dumps({"argv": argv, "env": ["PATH=/usr/bin:/bin"]}).encode())

    assert client.run(serve(script).address, "salloc") == (b"done\n", b"", 4)


def test_the_call_goes_on_elsewhere(client, serve):
    second = {}

    def other(peer):
        second.update(peer.request())
        peer.send(b"O", b"from the step daemon\n")
        peer.exit(9)

    there = serve(other)

    def script(peer):
        peer.request()
        peer.send(b"O", b"queued\n")
        peer.send(b"G", json.dumps({"address": there.address, "credential": "s\u00e9cret", "argv": ["-n2", "\udcfe"],
                                    "env": ["K=a=b", "E="]}).encode())

    assert client.run(serve(script).address, "srun", "x") == (b"queued\nfrom the step daemon\n", b"", 9)
    assert (second["command"], second["argv"], second["env"]) == ("srun", ["-n2", "\udcfe"], ["K=a=b", "E="])
    assert second["credential"] == "s\u00e9cret"


def test_unknown_frame_ends_the_call(client, serve):
    def script(peer):
        peer.request()
        peer.send(b"?", b"")
        peer.read()

    assert client.run(serve(script).address, "sbatch") == (
        b"", b"sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received\n", 1)


def test_server_that_vanishes(client, serve):
    def script(peer):
        peer.request()
        peer.send(b"O", b"half ")

    assert client.run(serve(script).address, "squeue") == (
        b"half ", b"slurm_load_jobs error: Zero Bytes were transmitted or received\n", 1)


def test_raw_terminal_and_its_size(client, serve):
    import fcntl
    import pty
    import struct
    import termios
    seen = []

    def script(peer):
        seen.append(peer.request())
        peer.send(b"T")
        peer.send(b"I", b"r")
        seen.append(peer.read())
        peer.send(b"O", b"ready")
        seen.append(peer.read())
        seen.append(peer.read())
        peer.exit(0)

    server = serve(script)
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 132, 0, 0))
    before = termios.tcgetattr(slave)
    process = client.start(server.address, "srun", "--pty", "sh", stdin=slave, stdout=slave, stderr=slave,
                           start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
    assert os.read(master, 100) == b"ready"
    os.write(master, b"\x03")                       # ^C is a byte like any other now
    time.sleep(0.1)
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 100, 0, 0))
    assert process.wait(10) == 0
    assert (seen[0]["tty_columns"], seen[0]["stdin_tty"]) == (132, True)
    assert seen[1:] == [(b"Z", struct.pack(">HH", 40, 132)), (b"i", b"\x03"), (b"Z", struct.pack(">HH", 50, 100))]
    assert termios.tcgetattr(slave) == before
    os.close(master)
    os.close(slave)


def test_version_needs_no_server(client):
    for option in ("-V", "--version"):
        assert client.run("unix:///nonexistent", "sinfo", option) == (b"slurm 25.11.7\n", b"", 0)
