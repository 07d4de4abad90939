"""Callers over HTTPS: tokens that the API server knows, relays of login nodes, jobs; and those who only try."""
from __future__ import annotations

import http.server
import json
import os
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from sites import BIN, Site

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="acts as several users: needs root")
DENIED = "Access/permission denied"
UNAUTHENTICATED = "Protocol authentication error"
TOKENS: dict[str, tuple[str, list[str]]] = {
    "t-alice": ("alice@corp", ["hpc"]), "t-bob": ("bob@corp", ["hpc"]), "t-out": ("bob@corp", ["sales"]),
    "t-root": ("root@corp", ["hpc"]), "t-boss": ("boss@corp", []), "t-nobody": ("zed@corp", ["hpc"]),
    "t-pod": ("system:serviceaccount:slurm:default", ["system:authenticated", "hpc"]),
    "t-relay": ("system:serviceaccount:slurm:login", []), "t-relay-root": ("system:serviceaccount:slurm:admin", [])}
IDENTITY = {
    "users": [{"name": r"boss@corp", "user": "root"}, {"name": r"(\w+)@corp", "group": "hpc", "user": r"\1"}],
    "relays": [{"name": "system:serviceaccount:slurm:login"},
               {"name": "system:serviceaccount:slurm:admin", "root": True}]}


class Reviewer(http.server.BaseHTTPRequestHandler):
    """An API server that can do one thing."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        known = TOKENS.get(asked["spec"]["token"])
        status: dict[str, Any] = {"authenticated": known is not None}
        if known:
            status["user"] = {"username": known[0], "groups": known[1]}
        body = json.dumps({"kind": "TokenReview", "status": status}).encode()
        self.send_response(201)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Place:
    """A site that serves HTTPS too."""

    def __init__(self, site: Site, port: int, probes: int) -> None:
        self.site, self.port, self.probes = site, port, probes
        self.ca = site.state / "tls" / "tls.crt"
        self.public = site.folder / "ca.crt"

    def env(self, token: str, **more: str) -> dict[str, str]:
        return {"SLURMBRIDGE_URL": f"https://localhost:{self.port}", "SLURMBRIDGE_CA": str(self.public),
                "SLURMBRIDGE_TOKEN": token, **more}

    def run(self, token: str, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        return self.site.run(*words, user="carl", env=self.env(token, **more))

    def raw(self, head: str) -> str:
        """The answer to a hand-made head."""
        context = ssl.create_default_context(cafile=str(self.public))
        with socket.create_connection(("localhost", self.port), 10) as plain, \
                context.wrap_socket(plain, server_hostname="localhost") as secure:
            secure.sendall(head.replace("\n", "\r\n").encode())
            data = b""
            while piece := secure.recv(4096):
                data += piece
                if data.startswith(b"HTTP/1.1 101"):
                    break
        return data.decode().splitlines()[0]

    def get(self, path: str) -> tuple[int, str]:
        with socket.create_connection(("127.0.0.1", self.probes), 10) as one:
            one.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            data = b"".join(iter(lambda: one.recv(65536), b"")).decode()
        return int(data.split()[1]), data.partition("\r\n\r\n")[2]


@pytest.fixture(scope="module")
def place(commands: Path, unix_users: tuple[str, ...]) -> Iterator[Place]:
    api = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Reviewer)
    threading.Thread(target=api.serve_forever, daemon=True).start()
    site = Site("local", "", None, (), {})
    kubeconfig = site.folder / "kubeconfig"
    kubeconfig.write_text(json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "x", "cluster": {"server": f"http://127.0.0.1:{api.server_port}"}}],
        "users": [{"name": "x", "user": {}}], "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}]}))
    port, probes = free_port(), free_port()
    config = site.folder / "slurmbridge.yaml"
    config.write_text(yaml.safe_dump({
        "https": {"listen": f"127.0.0.1:{port}"}, "probes": {"listen": f"127.0.0.1:{probes}"},
        "identity": IDENTITY, "kubernetes": {"kubeconfig": str(kubeconfig)}, "watch_files": True}))
    site.options = ["--config", str(config)]
    found = Place(site, port, probes)
    try:
        site.up()
        found.public.write_bytes(found.ca.read_bytes())
        yield found
    finally:
        site.remove()
        api.shutdown()


@pytest.fixture(scope="module")
def job(place: Place) -> tuple[int, str]:
    """(id, credential) of a job of alice's that runs all the time."""
    told = place.site.work / "told"
    number = place.site.submit("--mem=10", "--wrap", f"echo $SLURMBRIDGE_CREDENTIAL >{told}.new; mv {told}.new {told}; "
                               "sleep 300", user="alice")
    deadline = time.monotonic() + 60
    while not told.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return number, told.read_text().strip()


def test_a_token_is_its_user_whoever_starts_the_command(place: Place) -> None:
    done = place.run("t-alice", "sbatch", "--parsable", "--mem=10", "--wrap", "id -un; env")
    assert done.returncode == 0, done.stderr
    job = int(done.stdout)
    place.site.wait_for(job, "COMPLETED")
    text = (place.site.work / f"slurm-{job}.out").read_text()
    assert text.startswith("alice\n")
    assert "t-alice" not in text              # the token stays with who has it
    assert place.run("t-bob", "squeue", "-h", "-t", "all", "-j", str(job), "-o", "%u").stdout == "alice\n"


@pytest.mark.parametrize("token", ["", "wrong", "t-out", "t-nobody", "t-pod", "t-root", "t-relay",
                                   "slurmbridge-job.1.x", "slurmbridge-job..", "slurmbridge-job.99999999.",
                                   "slurmbridge-job.x.y"])
def test_who_is_nobody_here(place: Place, token: str) -> None:
    """No token, a wrong one, not in the group, unknown, a pod's account, root by a pattern, no job's credential."""
    done = place.run(token, "squeue")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"slurm_load_jobs error: {UNAUTHENTICATED}\n"


def test_an_administrator_needs_a_rule_of_his_own(place: Place) -> None:
    assert place.run("t-boss", "scontrol", "update", "nodename=n1", "weight=1").returncode == 0
    assert place.run("t-alice", "scontrol", "update", "nodename=n1", "weight=1").returncode == 1


@pytest.mark.parametrize("words", [
    ("scancel", "JOB"), ("scontrol", "hold", "JOB"), ("scontrol", "requeue", "JOB"),
    ("scontrol", "update", "jobid=JOB", "timelimit=1"), ("srun", "--jobid=JOB", "--overlap", "id"),
    ("sacctmgr", "-i", "add", "account", "mine")])
def test_another_users_job_is_anothers(place: Place, job: tuple[int, str], words: tuple[str, ...]) -> None:
    done = place.run("t-bob", *(word.replace("JOB", str(job[0])) for word in words))
    assert done.returncode != 0
    assert place.site.job_field(job[0], "%T %l") == "RUNNING 1:00:00"


def test_another_users_script_is_anothers(place: Place, job: tuple[int, str]) -> None:
    assert DENIED in place.run("t-bob", "scontrol", "write", "batch_script", str(job[0]), "-").stderr
    assert "told" in place.run("t-alice", "scontrol", "write", "batch_script", str(job[0]), "-").stdout


# ---- a job's credential -------------------------------------------------------------------------------------------


def as_job(place: Place, job: tuple[int, str], *words: str, number: int | None = None) -> Any:
    """Without SLURMBRIDGE_TOKEN the client shows what the job has."""
    return place.site.run(*words, user="carl", env=place.env(
        "", SLURM_JOB_ID=str(number or job[0]), SLURMBRIDGE_CREDENTIAL=job[1]))


def test_a_jobs_credential_sees_and_steers_its_job(place: Place, job: tuple[int, str]) -> None:
    other = place.site.submit("--mem=10", "--wrap", "sleep 300", user="alice")
    assert as_job(place, job, "squeue", "-h", "-o", "%i").stdout == f"{job[0]}\n"
    assert f"JobId={job[0]} " in as_job(place, job, "scontrol", "show", "job", str(job[0])).stdout
    assert as_job(place, job, "scontrol", "update", f"jobid={job[0]}", "comment=mine").returncode == 0
    assert as_job(place, job, "sacct", "-n", "-X", "-P", "-o", "jobid").stdout == f"{job[0]}\n"
    assert as_job(place, job, "scontrol", "show", "hostnames", "n[1-2]").stdout == "n1\nn2\n"
    for words in (("scancel", str(other)), ("scontrol", "hold", str(other)), ("scontrol", "requeue", str(other)),
                  ("scontrol", "update", f"jobid={other}", "comment=x"), ("sbatch", "--wrap", "id"),
                  ("scontrol", "update", "nodename=n1", "state=drain", "reason=x"), ("scontrol", "reconfigure"),
                  ("sacctmgr", "show", "user"), ("sreport", "cluster", "utilization"), ("sshare",),
                  ("scontrol", "show", "job", str(other)), ("scancel", "-u", "alice", str(other))):
        done = as_job(place, job, *words)
        assert done.returncode != 0, words
    assert as_job(place, job, "squeue", "-h", "-j", str(other)).stdout == ""
    assert as_job(place, job, "sacct", "-n", "-j", str(other)).stdout == ""
    assert as_job(place, job, "scontrol", "-o", "show", "assoc_mgr").stdout.count("UserName=") == 0
    assert place.site.job_field(other, "%T %k") == "RUNNING (null)"
    place.site.ok("scancel", str(other))


def test_a_task_of_an_array_steers_itself_alone(place: Place) -> None:
    told = place.site.work / "array"
    array = place.site.submit("-a1-2", "--mem=10", "--wrap",
                              f"echo $SLURM_JOB_ID $SLURMBRIDGE_CREDENTIAL >{told}$SLURM_ARRAY_TASK_ID; sleep 300",
                              user="alice")
    for task in (1, 2):
        place.site.wait_for(f"{array}_{task}", "RUNNING")
    deadline = time.monotonic() + 60
    while not (Path(f"{told}2").exists() and Path(f"{told}2").read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    number, credential = Path(f"{told}2").read_text().split()     # the last task has the array's own number
    mine = (int(number), credential)
    assert as_job(place, mine, "squeue", "-h", "-o", "%i").stdout == f"{array}_2\n"
    assert as_job(place, mine, "scancel", f"{array}_1").returncode != 0
    as_job(place, mine, "scancel", number)
    place.site.wait_for(f"{array}_2", "CANCELLED")
    assert place.site.job_field(f"{array}_1", "%T") == "RUNNING"
    place.site.ok("scancel", str(array))


def test_a_credential_dies_with_its_run(place: Place) -> None:
    told = place.site.work / "short"
    number = place.site.submit("--mem=10", "--wrap", f"echo $SLURMBRIDGE_CREDENTIAL >{told}; sleep 300", user="alice")
    place.site.wait_for(number, "RUNNING")
    deadline = time.monotonic() + 60
    while not (told.exists() and told.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    old = (number, told.read_text().strip())
    watching = subprocess.Popen([BIN / "squeue", "-h", "-i1", "-o", "%i"], stdout=subprocess.PIPE, text=True, env={
        **place.site.env, **place.env("", SLURM_JOB_ID=str(number), SLURMBRIDGE_CREDENTIAL=old[1])})
    assert watching.stdout is not None
    while (line := watching.stdout.readline()) and line.strip() != str(number):
        continue
    assert as_job(place, old, "squeue", number=1 + number).returncode == 1      # with another job's number
    place.site.ok("scontrol", "requeue", str(number))
    assert UNAUTHENTICATED in as_job(place, old, "squeue").stderr
    place.site.ok("scancel", str(number))
    place.site.wait_for(number, "CANCELLED")
    assert UNAUTHENTICATED in as_job(place, old, "squeue").stderr
    seen = [watching.stdout.readline() for _ in range(6)]
    watching.kill()
    watching.wait()
    assert str(number) not in "".join(seen[2:])


# ---- relays -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def relay(place: Place) -> Iterator[Any]:
    """A login node: ``relay(token)`` is the address of a relay with this token."""
    started: list[subprocess.Popen[str]] = []

    def start(token: str) -> str:
        folder = place.site.folder / f"relay-{token}"
        if folder.exists():
            return f"unix://{folder}/s"
        folder.mkdir()
        (folder / "token").write_text(token)
        (folder / "token").chmod(0o600)
        process = subprocess.Popen(
            [BIN / "slurmbridge", "relay", "--socket", folder / "s", "--url", f"https://localhost:{place.port}",
             "--token", folder / "token", "--ca", place.public], stdout=subprocess.PIPE, text=True, env=place.site.env)
        assert process.stdout is not None and process.stdout.readline().startswith("unix://")
        started.append(process)
        return f"unix://{folder}/s"
    yield start
    for process in started:
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


def test_a_relay_vouches_for_who_is_at_its_socket(place: Place, relay: Any) -> None:
    there = {"SLURMBRIDGE_URL": relay("t-relay")}
    job = place.site.submit("--mem=10", "--wrap", "id -un", user="bob", env=there)
    place.site.wait_for(job, "COMPLETED")
    assert (place.site.work / f"slurm-{job}.out").read_text() == "bob\n"
    big = "x" * 300_000
    job = place.site.submit("--mem=10", user="alice", env=there, stdin=f"#!/bin/sh\n# {big}\nexit 3\n")
    place.site.wait_for(job, "FAILED")
    assert place.site.run("squeue", env=there).returncode == 1     # root is no root here
    there = {"SLURMBRIDGE_URL": relay("t-relay-root")}
    assert place.site.run("scontrol", "update", "nodename=n1", "weight=1", env=there).returncode == 0
    assert place.site.run("scontrol", "update", "nodename=n1", "weight=1", env=there, user="bob").returncode == 1


def test_interactive_jobs_pass_a_relay(place: Place, relay: Any) -> None:
    done = place.site.run("srun", "--mem=10", "cat", user="alice", env={"SLURMBRIDGE_URL": relay("t-relay")},
                          stdin="through\n")
    assert done.stdout == "through\n", done.stderr


PEER = "Slurmbridge-Peer: uid=0 gid=0\n"
UPGRADE = "GET /command HTTP/1.1\nHost: x\nUpgrade: slurmbridge\nConnection: Upgrade\n"


@pytest.mark.parametrize(("head", "status"), [
    (UPGRADE + "Authorization: Bearer t-bob\n" + PEER, "403"),
    (UPGRADE + "Authorization: Bearer t-pod\n" + PEER, "403"),
    (UPGRADE + "Authorization: Bearer t-relay\n" + PEER, "403"),
    (UPGRADE + "Authorization: Bearer t-relay\nSlurmbridge-Peer: uid=-1 gid=0\n", "403"),
    (UPGRADE + "Authorization: Bearer t-relay\nSlurmbridge-Peer: alice\n", "403"),
    (UPGRADE + "Authorization: Bearer t-relay\n" + PEER + PEER, "400"),
    (UPGRADE + "Authorization: Bearer t-bob\nAuthorization: Bearer t-boss\n", "400"),
    (UPGRADE + "Authorization: Basic dDpi\n", "401"),
    (UPGRADE, "401"),
    (UPGRADE + "X-Remote-User: root\n", "401"),
    ("GET /command HTTP/1.1\nAuthorization: Bearer t-bob\n", "426"),
    ("POST /command HTTP/1.1\nUpgrade: slurmbridge\nAuthorization: Bearer t-bob\n", "405"),
    ("GET / HTTP/1.1\nAuthorization: Bearer t-bob\n", "404"),
    ("GET /command HTTP/2\n", "400"),
    ("GARBAGE\n", "400"),
    ("GET /command HTTP/1.1\nX: " + "x" * 40_000 + "\n", "431"),
    (UPGRADE + "Authorization: Bearer t-bob\n", "101")])
def test_hand_made_heads(place: Place, head: str, status: str) -> None:
    assert place.raw(head + "\n").startswith(f"HTTP/1.1 {status} ")


# ---- probes, and files that change ----------------------------------------------------------------------------------


def test_probes_and_metrics(place: Place) -> None:
    assert place.get("/livez") == (200, "ok\n")
    assert place.get("/readyz") == (200, "ok\n")
    assert place.get("/other")[0] == 404
    code, text = place.get("/metrics")
    assert code == 200
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert values["slurmbridge_ready"] == values["slurmbridge_leader"] == "1"
    assert int(values['slurmbridge_nodes{state="IDLE"}']) >= 1


def wait_for_metric(place: Place, line: str) -> None:
    deadline = time.monotonic() + 60
    while line not in place.get("/metrics")[1]:
        assert time.monotonic() < deadline, f"no {line} in {place.get('/metrics')[1]}"
        time.sleep(0.1)


def test_a_changed_file_is_taken_over_or_refused(place: Place) -> None:
    conf, yaml_file = place.site.slurm_conf, place.site.folder / "slurmbridge.yaml"
    good, good_yaml = conf.read_text(), yaml_file.read_text()
    conf.write_text(good + "PartitionName=extra Nodes=n1 State=UP\n")
    deadline = time.monotonic() + 60
    while "extra" not in place.site.ok("sinfo", "-h", "-o", "%P"):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    conf.write_text(good.replace("ClusterName=", "ClusterName=not"))
    wait_for_metric(place, 'slurmbridge_config_refused{file="slurm.conf"} 1')
    assert "extra" in place.site.ok("sinfo", "-h", "-o", "%P")
    conf.write_text(good)
    wait_for_metric(place, "slurmbridge_config_refused 0")
    assert "extra" not in place.site.ok("sinfo", "-h", "-o", "%P")
    yaml_file.write_text(good_yaml.replace("listen: 127.0.0.1:", "listen: 127.0.0.2:"))
    wait_for_metric(place, 'slurmbridge_config_refused{file="slurmbridge.yaml"} 1')
    yaml_file.write_text(good_yaml.replace("boss@corp", "chief@corp"))
    wait_for_metric(place, "slurmbridge_config_refused 0")
    assert place.run("t-boss", "squeue").returncode == 1
    yaml_file.write_text(good_yaml + "health: {stage: act, node_fail_usage: refund_run}\n")
    wait_for_metric(place, 'slurmbridge_config_refused{file="slurmbridge.yaml"} 1')
    assert "stages: drain-only" in place.site.ok("slurmbridge", "health", "--state", place.site.state)
    yaml_file.write_text(good_yaml + "health: {stage: act}\n")
    wait_for_metric(place, "slurmbridge_config_refused 0")
    assert "stages: act" in place.site.ok("slurmbridge", "health", "--state", place.site.state)
    yaml_file.write_text(good_yaml)
