"""Two controllers of one PostgreSQL ledger on a real cluster: a leader that freezes or is deleted is followed, jobs run
on, and nothing is done twice."""
from __future__ import annotations

import base64
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from databases import PostgresServer
from releases import Release, installed, wait_until


@pytest.fixture(scope="module")
def two(chart_access: Any) -> Iterator[Release]:
    access = chart_access
    if access.own is None:
        pytest.skip("needs the cluster of tests/cluster: a server on this machine is reached from its pods")
    server = PostgresServer(listen=access.own.host)

    def more(release: Release) -> None:
        url = f"postgresql://{server.user}@{access.own.host}:{server.port}/postgres"
        release.kubectl("apply", "-f", "-", stdin=json.dumps({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "pg"},
            "data": {"url": base64.b64encode(url.encode()).decode()}}))
        release.values["ledger"] = {"postgresql": {"existingSecret": "pg"}}
        release.values["controller"] |= {"replicas": 2, "leaseSeconds": 5}
    try:
        with installed(access, more) as found:
            yield found
    finally:
        server.remove()


def leader(release: Release) -> str:
    """The leading pod's name, "" while nobody leads."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{release.namespace}/leases/hpc"
    holder = release.access.own.call(path)["spec"].get("holderIdentity") or ""
    return str(holder).rpartition("_")[0]


def process_of(release: Release, pod: str) -> int:
    """The controller's process as this machine sees it."""
    own = release.access.own
    [found] = [one for one in release.access.objects("pods", release.namespace) if one["metadata"]["name"] == pod]
    for pid in own.processes_of(found["spec"]["nodeName"], found["metadata"]["uid"]):
        if b"up" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
            return int(pid)
    raise AssertionError(f"no process of {pod}")


def submit(release: Release, script: str, *words: str) -> int:
    return int(release.login("sbatch", "--parsable", "--mem=64", *words, "--wrap", f"'{script}'", user="alice"))


def waiting(release: Release, name: str, code: int) -> int:
    """A running gang that ends with this code once a file of this name is there."""
    job = submit(release, f"echo run >> {name}.runs; while [ ! -e {name} ]; do sleep 0.2; done; exit {code}", "-N2")
    release.wait_for(job, "RUNNING")
    return job


def check_end(release: Release, name: str, job: int, code: int) -> None:
    home = release.home / "alice"
    (home / name).touch()
    release.wait_for(job, "FAILED")
    assert release.login("sacct", "-D", "-n", "-X", "-P", "-j", str(job), "-o", "state,exitcode").splitlines() == [
        f"FAILED|{code}:0"]
    assert (home / f"{name}.runs").read_text() == "run\n"


def test_a_leader_that_is_deleted_is_followed_and_jobs_run_on(two: Release) -> None:
    job = waiting(two, "deleted", 3)
    before = {pod["metadata"]["uid"] for pod in two.access.objects(
        "pods", two.namespace, f"slurmbridge.io/job-id={job}")}
    old = leader(two)
    two.kubectl("delete", "pod", old, "--grace-period=0", "--force")
    wait_until(lambda: leader(two) not in ("", old), "another leader")
    second = submit(two, "exit 0")            # the relay waits for the one that follows
    two.wait_for(second, "COMPLETED")
    assert two.state(job) == "RUNNING"
    assert before == {pod["metadata"]["uid"] for pod in two.access.objects(
        "pods", two.namespace, f"slurmbridge.io/job-id={job}")}
    check_end(two, "deleted", job, 3)


def test_a_frozen_leader_is_followed_and_shut_out(two: Release) -> None:
    job = waiting(two, "frozen", 4)
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
    check_end(two, "frozen", job, 4)
    rows = two.login("sacct", "-a", "-D", "-n", "-X", "-P", "-o", "jobid").splitlines()
    assert len(rows) == len(set(rows)), "a job has two records"
