"""The cluster itself fails, or somebody works on it with kubectl, while jobs run: no job is lost, run twice, or ends
otherwise than it did."""
from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import pytest

OUTAGE_S = float(os.environ.get("SLURMBRIDGE_TEST_OUTAGE_S", "0"))
"""How long the control plane is away at least; 600 by hand."""


def until(true: Callable[[], object], timeout_s: float = 90) -> None:
    end = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < end
        time.sleep(0.2)


@pytest.fixture(scope="module")
def site(make_module_kube: Any) -> Any:
    made = make_module_kube(health={"windows": {"warm_up": 0, "orphans": 5}})
    if made.access.own is None:
        pytest.skip("a given cluster's processes are not ours to kill")
    return made


def waiting(site: Any, name: str, *words: str) -> int:
    """A running job that ends with exit code 7 once ``released`` says so."""
    job = int(site.submit("--mem=64", *words, site.script(
        f"echo run >> {site.work}/{name}.runs\nwhile [ ! -e {site.work}/{name} ]; do sleep 0.2; done\nexit 7")))
    site.wait_for(job, "RUNNING", timeout_s=60)
    return job


def released(site: Any, name: str) -> None:
    (site.work / name).touch()


def runs(site: Any, name: str) -> int:
    return len((site.work / f"{name}.runs").read_text().split())


@pytest.mark.parametrize("process", ["apiserver", "etcd"])
def test_the_control_plane_is_away_while_a_job_ends(site: Any, process: str) -> None:
    own = site.access.own
    job, going_on = waiting(site, f"{process}-1"), waiting(site, f"{process}-2")
    own.processes.kill(process)
    try:
        released(site, f"{process}-1")
        queued = site.submit("--mem=64", site.script("exit 3"))       # is taken, and starts when it can
        time.sleep(OUTAGE_S)
        assert site.job_field(going_on, "%T") == "RUNNING"
    finally:
        own.processes.start(process)
    site.wait_for(job, "FAILED", timeout_s=90)
    site.wait_for(queued, "FAILED", timeout_s=90)
    assert site.job_field(going_on, "%T") == "RUNNING"
    released(site, f"{process}-2")
    site.wait_for(going_on, "FAILED", timeout_s=90)
    assert [site.accounting(one) for one in (job, queued, going_on)] == [["FAILED|7:0"], ["FAILED|3:0"], ["FAILED|7:0"]]
    assert (runs(site, f"{process}-1"), runs(site, f"{process}-2")) == (1, 1)


def test_a_containerd_that_is_killed_and_comes_back(site: Any) -> None:
    job = waiting(site, "runtime")
    node = site.job_field(job, "%N")
    site.access.own.processes.kill(f"containerd-{node}")
    site.access.own.processes.start(f"containerd-{node}")
    released(site, "runtime")
    site.wait_for(job, "FAILED", timeout_s=90)
    assert site.accounting(job) == ["FAILED|7:0"] and runs(site, "runtime") == 1


def test_kubectl_drain_requeues_the_job_elsewhere(site: Any) -> None:
    job = waiting(site, "drained", "--requeue")
    node = site.job_field(job, "%N")
    try:
        site.access.kubectl("drain", node, "--ignore-daemonsets", "--force", "--delete-emptydir-data", "--timeout=60s",
                            f"--pod-selector=slurmbridge.io/job-id={job}")
        until(lambda: [row.partition("|")[0] for row in site.accounting(job)] == ["NODE_FAIL", "RUNNING"])
        assert site.job_field(job, "%N") != node
    finally:
        site.access.kubectl("uncordon", node)
    released(site, "drained")
    site.wait_for(job, "FAILED", timeout_s=60)
    assert runs(site, "drained") == 2


def test_a_deleted_secret_disturbs_nothing(site: Any) -> None:
    job = waiting(site, "secret")
    site.access.kubectl("-n", site.namespace, "delete", "secret", f"slurm-{job}-0")
    released(site, "secret")
    site.wait_for(job, "FAILED", timeout_s=60)
    assert site.accounting(job) == ["FAILED|7:0"]


def test_a_node_object_that_is_deleted_under_a_running_job(site: Any) -> None:
    """The job goes elsewhere at once; the machine takes work again once what it ran is gone."""
    own = site.access.own
    job = waiting(site, "node", "--requeue")
    node = site.job_field(job, "%N")
    [pod] = [one for one in site.pods(job) if one["status"]["phase"] == "Running"]
    own.processes.kill(f"kubelet-{node}")
    try:
        site.access.kubectl("delete", "node", node)
        until(lambda: [row.partition("|")[0] for row in site.accounting(job)] == ["NODE_FAIL", "RUNNING"])
        assert site.job_field(job, "%N") != node
        assert own.processes_of(node, pod["metadata"]["uid"])
    finally:
        own.processes.start(f"kubelet-{node}")
    until(lambda: site.ok("sinfo", "-h", "-N", "-n", node, "-o", "%T").strip() == "idle")
    assert not own.processes_of(node, pod["metadata"]["uid"])
    released(site, "node")
    site.wait_for(job, "FAILED", timeout_s=60)
