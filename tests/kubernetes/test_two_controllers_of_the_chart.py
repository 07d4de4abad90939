"""Two controllers of one PostgreSQL ledger on a real cluster: a leader that freezes is followed and shut out."""
from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster import build, images, node
from databases import PostgresServer
from test_helm_chart import Release, wait_until


@pytest.fixture
def two(access: Any) -> Iterator[Release]:
    lacking = build.why_no_helm()
    if lacking or access.own is None:
        pytest.skip(f"needs {lacking or 'the cluster of tests/cluster'}")
    access.own.load(images.controller_image(access.own.folder))
    server = PostgresServer(listen=access.own.host)
    folder = Path(tempfile.mkdtemp(prefix="sbc-", dir="/tmp"))
    found = Release(access, folder)
    try:
        url = f"postgresql://{server.user}@{access.own.host}:{server.port}/postgres"
        access.kubectl("create", "namespace", found.namespace)
        found.kubectl("apply", "-f", "-", stdin=json.dumps({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "pg"},
            "data": {"url": base64.b64encode(url.encode()).decode()}}))
        found.values["ledger"] = {"postgresql": {"existingSecret": "pg"}}
        found.values["controller"] |= {"replicas": 2, "leaseSeconds": 8}
        found.helm("version")
        found.put("install")
        yield found
    finally:
        subprocess.run([str(build.tools() / "helm"), "--kubeconfig", str(access.kubeconfig), "uninstall", "hpc", "-n",
                        found.namespace, "--ignore-not-found"], capture_output=True, timeout=120)
        access.kubectl("delete", "namespace", found.namespace, "--wait=false", "--ignore-not-found")
        access.kubectl("delete", "pv", found.namespace, "--wait=false", "--ignore-not-found")
        server.remove()
        shutil.rmtree(folder, ignore_errors=True)


def leader(release: Release) -> str:
    """The leading pod's name, "" while nobody leads."""
    holder = json.loads(release.kubectl("get", "lease", "hpc", "-o", "json"))["spec"].get("holderIdentity") or ""
    return str(holder).rpartition("_")[0]


def process_of(release: Release, pod: str) -> int:
    """The controller's process as this machine sees it."""
    own = release.access.own
    found = json.loads(release.kubectl("get", "pod", pod, "-o", "json"))
    address = found["status"]["podIP"]
    for pid in node.cgroup_pids(f"{own.bridge}-{found['spec']['nodeName']}"):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        if b"up" in words and f"SLURMBRIDGE_POD_IP={address}".encode() in environ:
            return pid
    raise AssertionError(f"no process of {pod}")


def submit(release: Release, script: str) -> int:
    """Tried until a leader answers."""
    said: list[str] = []

    def try_once() -> bool:
        try:
            said.append(release.login("sbatch", "--parsable", "--mem=64", "--wrap", f"'{script}'", user="alice"))
            return True
        except AssertionError:
            return False
    wait_until(try_once, "a leader")
    return int(said[-1])


def test_a_frozen_leader_is_followed_and_shut_out(two: Release) -> None:
    job = submit(two, "while [ ! -e done ]; do sleep 1; done; exit 4")
    two.wait_for(job, "RUNNING")
    old = leader(two)
    pid = process_of(two, old)
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: leader(two) not in ("", old), "another leader")
        second = submit(two, "exit 0")
        two.wait_for(second, "COMPLETED")
        assert two.state(job) == "RUNNING"
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the end of the one that was frozen")
    (two.home / "alice" / "done").touch()
    two.wait_for(job, "FAILED")
    rows = two.login("sacct", "-a", "-D", "-n", "-X", "-P", "-o", "jobid,state,exitcode").splitlines()
    assert rows == [f"{job}|FAILED|4:0", f"{second}|COMPLETED|0:0"]
