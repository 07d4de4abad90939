"""Node health on real node objects: conditions are patched in, kubelets killed, nodes deleted, devices taken away.

The numbers in the names are those of tests/data/health.yaml. Windows are seconds here that are minutes by default.
"""
from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

HEALTH = {
    "stage": "act",
    "windows": {"warm_up": 0, "healthy_delay": 2, "agent_restart": 4, "readmit": 2, "lost_jobs_after": 600},
    "rules": [{"type": "SiteFault", "bad": "True", "class": "H", "action": "jobs", "act_after_s": 2}]}


def until(true: Callable[[], object], timeout_s: float = 60) -> None:
    end = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < end
        time.sleep(0.2)


@pytest.fixture(scope="module")
def site(make_module_kube: Any) -> Any:
    return make_module_kube("SlurmdTimeout=5\n", health=HEALTH)


def condition(site: Any, node: str, kind: str, status: str, reason: str = "") -> None:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    site.access.kubectl("patch", "node", node, "--subresource=status", "-p", json.dumps({"status": {"conditions": [{
        "type": kind, "status": status, "reason": reason, "message": "said by a test", "lastHeartbeatTime": now,
        "lastTransitionTime": now}]}}))


@contextlib.contextmanager
def sick(site: Any, node: str, kind: str, status: str, reason: str = "") -> Iterator[None]:
    """The condition is there meanwhile, and taken away at the end whatever happened."""
    condition(site, node, kind, status, reason)
    try:
        yield
    finally:
        found = json.loads(site.access.kubectl("get", "node", node, "-o", "json"))["status"]["conditions"]
        index = [one["type"] for one in found].index(kind)
        site.access.kubectl("patch", "node", node, "--subresource=status", "--type=json", "-p", json.dumps([
            {"op": "test", "path": f"/status/conditions/{index}/type", "value": kind},
            {"op": "remove", "path": f"/status/conditions/{index}"}]))
        site.run("slurmbridge", "health", "--undo", node, "--state", site.state)


def state(site: Any, node: str) -> str:
    return site.ok("sinfo", "-h", "-N", "-n", node, "-o", "%T").strip()


def reasons(site: Any) -> str:
    return site.ok("sinfo", "-R", "-h", "-o", "%E|%N")


def first(site: Any) -> str:
    return next(name for name in site.ok("sinfo", "-h", "-N", "-o", "%N").split() if name.startswith("n"))


def test_9_no_job_starts_on_a_flagged_node_before_it_has_recovered(site: Any) -> None:
    node = first(site)
    with sick(site, node, "KernelDeadlock", "True", "DockerHung"):
        until(lambda: state(site, node) == "drained")
        assert f"kh:H:DockerHung KernelDeadlock=True/DockerHung|{node}" in reasons(site)
        shown = site.ok("scontrol", "show", "node", node)
        assert "Reason=kh:H:DockerHung KernelDeadlock=True/DockerHung [root@" in shown
        job = site.submit("--mem=64", "-w", node, site.script("true"))
        until(lambda: site.job_field(job, "%r").startswith("ReqNodeNotAvail"))
        text = site.ok("slurmbridge", "health", node, "--state", site.state)
        assert "KernelDeadlock=True/DockerHung: class H, said by condition" in text and "next: over once" in text
        assert not site.pods(job)
        condition(site, node, "KernelDeadlock", "False", "KernelHasNoDeadlock")
        site.wait_for(job, "COMPLETED", timeout_s=60)
    shown = site.ok("sacctmgr", "-n", "-P", "show", "event", f"nodes={node}", "format=state,reason,end")
    rows = [row.split("|") for row in shown.splitlines() if "kh:H:DockerHung" in row]
    assert [row[0] for row in rows] == ["DRAIN"] and rows[0][2] != "Unknown"


def test_12_polarity_is_of_the_type(site: Any) -> None:
    node = first(site)
    with sick(site, node, "KernelReady", "True", "KernelIsReady"):
        job = site.submit("--mem=64", "-w", node, site.script("true"))
        site.wait_for(job, "COMPLETED")
        assert state(site, node) == "idle"
        condition(site, node, "KernelReady", "False", "ForkFailedOutOfPIDs")
        until(lambda: state(site, node) == "drained")
        assert "KernelIsReady" not in reasons(site)


def test_14_a_type_that_no_rule_names_is_shown_and_ignored(site: Any) -> None:
    node = first(site)
    with sick(site, node, "OutOfDisk", "Unknown", "NodeStatusNeverUpdated"):
        until(lambda: "OutOfDisk=Unknown: no rule names it" in site.ok(
            "slurmbridge", "health", node, "--state", site.state))
        assert state(site, node) == "idle"


def test_3_a_rule_that_acts_requeues_the_job_elsewhere(site: Any) -> None:
    job = site.submit("--requeue", "--mem=64", site.script("sleep 600"))
    site.wait_for(job, "RUNNING")
    node = site.job_field(job, "%N")
    with sick(site, node, "SiteFault", "True", "Broken"):
        until(lambda: [row.partition("|")[0] for row in site.accounting(job)] == ["NODE_FAIL", "RUNNING"])
        assert site.job_field(job, "%N") != node
        assert site.ok("sacct", "-n", "-P", "-D", "-X", "-j", str(job), "-o", "failednode").split()[0] == node
        until(lambda: state(site, node) in ("down", "drained"))
    site.ok("scancel", str(job))


def test_28_a_cordoned_node_drains_and_its_job_runs_on(site: Any) -> None:
    job = site.submit("--mem=64", site.script(f"while [ ! -e {site.work}/go ]; do sleep 0.2; done"))
    site.wait_for(job, "RUNNING")
    node = site.job_field(job, "%N")
    site.access.kubectl("cordon", node)
    try:
        until(lambda: state(site, node) == "draining")
        assert [pod for pod in site.pods(job) if not pod["metadata"].get("deletionTimestamp")]
        (site.work / "go").touch()
        site.wait_for(job, "COMPLETED")
        until(lambda: state(site, node) == "drained")
    finally:
        site.access.kubectl("uncordon", node)
    until(lambda: state(site, node) == "idle")


def test_25_and_33_what_others_have_set_stays(site: Any) -> None:
    node = first(site)
    site.ok("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=ADMIN SHUTDOWN")
    try:
        with sick(site, node, "KernelReady", "False", "ForkFailedOutOfPIDs"):
            until(lambda: "ForkFailedOutOfPIDs" in site.ok("slurmbridge", "health", node, "--state", site.state))
            assert f"ADMIN SHUTDOWN|{node}" in reasons(site)
            condition(site, node, "KernelReady", "True", "KernelIsReady")
            until(lambda: "KernelReady: good" in site.ok("slurmbridge", "health", node, "--state", site.state))
            assert state(site, node) == "drained" and f"ADMIN SHUTDOWN|{node}" in reasons(site)
    finally:
        site.ok("scontrol", "update", f"NodeName={node}", "State=RESUME")
    until(lambda: state(site, node) == "idle")


def made(site: Any, name: str, gpus: int, allocatable: int) -> None:
    """A node object without a kubelet behind it, with devices as a plugin would report them."""
    size = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    if name not in site.access.kubectl("get", "nodes", "-o", "name"):
        site.access.kubectl("create", "-f", "-", stdin=json.dumps({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}))
    site.access.kubectl("patch", "node", name, "--subresource=status", "-p", json.dumps({"status": {
        "capacity": {**size, "nvidia.com/gpu": str(gpus)}, "allocatable": {**size, "nvidia.com/gpu": str(allocatable)},
        "conditions": [{"type": "Ready", "status": "True"}]}}))


def test_30_34_and_29_devices_that_go_and_machines_that_are_replaced(site: Any) -> None:
    made(site, "extra-9", 8, 7)
    try:
        until(lambda: "kh:C:devices missing gpu=short" in site.ok("scontrol", "show", "node", "extra-9"))
        assert "Gres=gpu:8" in site.ok("scontrol", "show", "node", "extra-9")
        text = site.ok("slurmbridge", "health", "extra-9", "--state", site.state)
        assert "1 gpu not handed out" in text
        job = site.submit("--mem=64", "--gres=gpu:8", "-w", "extra-9", site.script("true"))
        until(lambda: site.job_field(job, "%r") in ("Resources", "Priority"))
        site.ok("scancel", str(job))
        made(site, "extra-9", 8, 8)
        until(lambda: "not handed out" not in site.ok("slurmbridge", "health", "extra-9", "--state", site.state))
        condition(site, "extra-9", "ReadonlyFilesystem", "True", "FilesystemIsReadOnly")
        until(lambda: state(site, "extra-9").startswith(("drained", "down")))
        site.access.kubectl("delete", "node", "extra-9")
        until(lambda: "kh:L0:deleted node object is gone|extra-9" in reasons(site))
        assert state(site, "extra-9").startswith("down")
        made(site, "extra-9", 8, 8)           # another uid: what was said of the old machine is over
        until(lambda: state(site, "extra-9") == "idle")
    finally:
        site.access.kubectl("delete", "node", "extra-9", "--ignore-not-found")


def test_16_and_19_a_kubelet_that_restarts_and_one_that_does_not_come_back(site: Any) -> None:
    own = site.access.own
    if own is None:
        pytest.skip("a given cluster's kubelets are not ours to kill")
    job = site.submit("--requeue", "--mem=64", site.script("sleep 600"))
    site.wait_for(job, "RUNNING")
    node = site.job_field(job, "%N")
    own.processes.kill(f"kubelet-{node}")
    own.processes.start(f"kubelet-{node}")
    until(lambda: state(site, node) == "mixed")
    assert site.accounting(job) == ["RUNNING|0:0"]
    own.processes.kill(f"kubelet-{node}")
    try:
        until(lambda: state(site, node) == "down*")
        assert f"Not responding|{node}" in reasons(site)
        assert site.accounting(job) == ["RUNNING|0:0"]         # its pods may well run on
        site.access.kubectl("taint", "node", node, "node.kubernetes.io/out-of-service=gone:NoExecute")
        until(lambda: [row.partition("|")[0] for row in site.accounting(job)] == ["NODE_FAIL", "RUNNING"])
        assert site.job_field(job, "%N") != node
    finally:
        own.processes.start(f"kubelet-{node}")
        site.run("sleep", "0.1")
        with contextlib.suppress(AssertionError):
            site.access.kubectl("taint", "node", node, "node.kubernetes.io/out-of-service-")
    until(lambda: state(site, node) == "idle", 90)
    site.ok("scancel", str(job))
