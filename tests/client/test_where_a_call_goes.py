"""Which server answers, and what each command says when none does."""
from __future__ import annotations

import os
import pwd
import socket
import subprocess
import threading
import time

import pytest

from slurmbridge.client import install, launcher, transport

AWAY = "Unable to contact slurm controller (connect failure)"


def answer(text: bytes, seen: list | None = None):
    def script(peer):
        request = peer.request()
        if seen is not None:
            seen.append(request)
        peer.send(b"O", text)
        peer.exit(0)
    return script


INSIDE = {"SLURM_JOB_ID": "12", "SLURMBRIDGE_CREDENTIAL": "key"}
JOURNEYS = [
    (["srun", "true"], "daemon"), (["srun", "--jobid=12", "true"], "daemon"),
    (["srun", "--jobid=13", "true"], "controller"),
    (["srun", "--jobid", "13", "true"], "controller"), (["srun", "--jobi=13", "true"], "controller"),
    (["srun", "-N", "1", "-ln2", "--overlap", "--jobid=13", "true"], "controller"),
    (["srun", "--time", "5", "--jobid=13", "true"], "controller"), (["srun", "--job-name=13", "true"], "daemon"),
    (["srun", "--comment", "--jobid=13", "true"], "daemon"), (["srun", "echo", "--jobid=13"], "daemon"),
    (["srun", "--", "echo", "--jobid=13"], "daemon"), (["srun", "-J", "--jobid=13", "true"], "daemon"),
    (["srun", "-K1", "--pty", "--jobid=13", "sh"], "controller"), (["srun", "-k", "--jobid=13", "sh"], "controller"),
    (["sstat", "12"], "daemon"), (["sattach", "12.0"], "daemon"), (["sbcast", "a", "b"], "daemon"),
    (["squeue"], "controller"), (["sbatch", "x"], "controller"), (["scontrol", "show", "job"], "controller")]


@pytest.mark.parametrize("words, place", JOURNEYS, ids=[" ".join(words) for words, _ in JOURNEYS])
def test_commands_inside_a_job(client, serve, tmp_path, words, place):
    seen = []
    server = serve(answer(b"here\n", seen))
    gone = f"unix://{tmp_path}/gone"
    env = {**INSIDE, "SLURMBRIDGE_STEPD": server.address if place == "daemon" else gone}
    out, _, code = client.run(server.address if place == "controller" else gone, *words, env=env)
    assert (out, code) == (b"here\n", 0)
    assert seen[0]["credential"] == ("key" if place == "daemon" else "")


def test_own_array_task_is_not_another_job(client, serve, tmp_path):
    env = {**INSIDE, "SLURM_ARRAY_JOB_ID": "10", "SLURM_ARRAY_TASK_ID": "2",
           "SLURMBRIDGE_STEPD": serve(answer(b"d")).address}
    assert client.run("unix:///gone", "srun", "--jobid=10_2", "true", env=env)[0] == b"d"


def test_host_lists_inside_a_job_without_controller(client, serve, tmp_path):
    daemon = serve(answer(b"n1\n"))
    env = {**INSIDE, "SLURMBRIDGE_STEPD": daemon.address}
    assert client.run(f"unix://{tmp_path}/gone", "scontrol", "show", "hostnames", "n1", env=env) == (b"n1\n", b"", 0)


def test_default_address_is_in_the_state_directory(client, serve, tmp_path):
    folder = tmp_path / "slurmbridge"
    folder.mkdir()
    server = serve(answer(b"by default\n"))
    os.rename(tmp_path / "s0", folder / "slurmbridge.sock")
    assert client.run("", "squeue", env={"XDG_STATE_HOME": str(tmp_path)}) == (b"by default\n", b"", 0)
    assert server.error is None


def test_default_address_of_homes():
    assert transport.default_address({"HOME": "/h"}) == "unix:///h/.local/state/slurmbridge/slurmbridge.sock"
    assert transport.default_address({"HOME": "/h", "XDG_STATE_HOME": "rel"}) == "unix:///h/.local/state/slurmbridge/slurmbridge.sock"
    home = pwd.getpwuid(os.geteuid()).pw_dir
    assert transport.default_address({}) == f"unix://{home}/.local/state/slurmbridge/slurmbridge.sock"


PING = b"is DOWN\n" + b"*" * 41 + b"\n** RESTORE SLURMCTLD DAEMON TO SERVICE **\n" + b"*" * 41 + b"\n"
SILENCE = [
    (["squeue"], f"slurm_load_jobs error: {AWAY}", 1), (["squeue", "-s"], f"slurm_get_job_steps error: {AWAY}", 1),
    (["sbatch", "x"], f"sbatch: error: Batch job submission failed: {AWAY}", 1),
    (["srun", "true"], f"srun: error: Unable to allocate resources: {AWAY}", 1),
    (["srun", "--jobid=5", "true"], f"srun: error: Unable to confirm allocation for job 5: {AWAY}\n"
                                    "srun: Check SLURM_JOB_ID environment variable. Expired or invalid job 5", 1),
    (["salloc"], f"salloc: error: Job submit/allocate failed: {AWAY}", 1),
    (["scancel", "-v", "5", "6"],
     "\n".join(f"scancel: error: Kill job error on job id {i}: {AWAY}" for i in "56"), 8),
    (["scancel", "--me"], f"slurm_load_jobs error: {AWAY}", 1), (["sinfo", "-N"], f"slurm_load_partitions: {AWAY}", 1),
    (["sprio"], f"Couldn't get priority factors from controller: {AWAY}", 255),
    (["sshare"], f"Couldn't get shares from controller: {AWAY}", 255),
    (["sdiag"], f"slurm_get_statistics: {AWAY}", 255),
    (["sacct"], "sacct: error: Problem talking to the database: Connection refused", 1),
    (["sacctmgr", "show", "user"], "sacctmgr: error: Problem talking to the database: Connection refused", 1),
    (["scontrol", "show", "job", "5"], f"slurm_load_jobs error: {AWAY}", 1),
    (["scontrol", "-o", "show", "Nodes"], f"slurm_load_node error: {AWAY}", 1),
    (["scontrol", "show", "config"], f"slurm_load_ctl_conf error:{AWAY}", 1),
    (["scontrol", "hold", "5"], f"scontrol: error: {AWAY}", 1)]


@pytest.mark.parametrize("words, text, code", SILENCE, ids=[" ".join(words) for words, _, _ in SILENCE])
def test_what_is_said_when_nobody_is_there(client, tmp_path, words, text, code):
    assert client.run(f"unix://{tmp_path}/gone", *words) == (b"", text.encode() + b"\n", code)


def test_ping_of_nobody(client, tmp_path):
    out, err, code = client.run(f"unix://{tmp_path}/gone", "scontrol", "ping")
    assert out.startswith(b"Slurmctld(primary) at ") and out.endswith(PING)
    assert (err, code) == (b"", 1)


def test_address_of_no_known_kind(client):
    assert client.run("http://x", "squeue") == (
        b"", b"slurm_load_jobs error: SLURMBRIDGE_URL is neither unix:// nor https://: http://x\n", 1)
    assert client.run("unix://" + "/x" * 99, "squeue") == (b"", f"slurm_load_jobs error: {AWAY}\n".encode(), 1)


def test_controller_that_is_being_restarted(client, tmp_path):
    path = str(tmp_path / "sock")
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(path)
    dead.close()                                    # a socket without a server, as a killed controller leaves it

    def restart():
        time.sleep(0.3)
        os.unlink(path)
        time.sleep(0.1)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen()
        connection, _ = listener.accept()
        connection.recv(1 << 20)
        connection.sendall(b"X\0\0\0\4\0\0\0\0")
        connection.close()
        listener.close()

    thread = threading.Thread(target=restart)
    thread.start()
    assert client.run(f"unix://{path}", "squeue") == (b"", b"", 0)
    thread.join(10)


def test_step_daemon_by_tcp(client):
    listener = socket.create_server(("127.0.0.1", 0))

    def serve_one():
        connection, _ = listener.accept()
        connection.recv(1 << 20)
        connection.sendall(b"O\0\0\0\3tcpX\0\0\0\4\0\0\0\5")
        connection.close()

    thread = threading.Thread(target=serve_one)
    thread.start()
    env = {**INSIDE, "SLURMBRIDGE_STEPD": f"tcp://127.0.0.1:{listener.getsockname()[1]}"}
    assert client.run("unix:///gone", "srun", "true", env=env) == (b"tcp", b"", 5)
    thread.join(10)
    listener.close()


IMPORTS = """
import sys
sys.path.insert(0, {root!r})
from slurmbridge.client import launcher
try:
    launcher.converse("squeue", [], ["SLURMBRIDGE_URL={address}"])
finally:
    print(*sorted(sys.modules))
"""
SLOW = {"json", "socket", "struct", "re", "enum", "signal", "typing", "subprocess", "asyncio", "ssl", "contextlib",
        "dataclasses", "collections", "functools", "argparse", "logging", "pathlib", "threading", "inspect"}


def test_a_call_imports_nothing_but_the_clients_own_and_quick_modules(serve):
    server = serve(answer(b""))
    program = IMPORTS.format(root=str(install.ROOT), address=server.address)
    done = subprocess.run([install.everybodys_python(), "-IS", "-c", program], capture_output=True, text=True)
    loaded = set(done.stdout.split())
    assert "slurmbridge.client.exchange" in loaded, done.stderr
    own = {name for name in loaded if name.startswith("slurmbridge")}
    assert own == {"slurmbridge", *(f"slurmbridge.client{part}" for part in (
        "", ".launcher", ".protocol", ".transport", ".exchange"))}
    assert not loaded & SLOW


def test_both_clients_know_the_same_options_of_srun():
    source = (install.HERE / "slurmbridge.c").read_text()
    block = source.split("SRUN_LONG_FLAGS[] =")[1].split(";")[0]
    assert block.replace('"', " ").split() == list(launcher.SRUN_LONG_FLAGS)
