"""Nodes as the cluster has them: they come and go, are cordoned, shared with others, and lost."""
from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest


def until(true: Callable[[], object], timeout_s: float = 30) -> None:
    end = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < end
        time.sleep(0.2)


def names(kube) -> list[str]:  # type: ignore[no-untyped-def]
    return str(kube.ok("sinfo", "-h", "-N", "-o", "%N")).split()


def state(kube, node: str) -> str:  # type: ignore[no-untyped-def]
    return str(kube.ok("sinfo", "-h", "-N", "-n", node, "-o", "%T")).strip()


def test_labels_are_features_and_allocatable_is_what_jobs_get(kube) -> None:  # type: ignore[no-untyped-def]
    for node in kube.access.objects("nodes"):
        name = node["metadata"]["name"]
        shown = kube.ok("scontrol", "show", "node", name)
        assert f"CPUTot={int(node['status']['allocatable']['cpu'])} " in shown
        assert f"kubernetes.io/arch={node['metadata']['labels']['kubernetes.io/arch']}" in shown


def test_a_cordoned_node_takes_no_job_until_it_is_uncordoned(kube) -> None:  # type: ignore[no-untyped-def]
    node = names(kube)[0]
    kube.access.kubectl("cordon", node)
    try:
        until(lambda: state(kube, node) == "drained")
        assert "kh:M:cordoned" in kube.ok("sinfo", "-R", "-h")
        job = kube.submit("--mem=64", "-w", node, kube.script("true"))
        until(lambda: kube.job_field(job, "%r").startswith("ReqNodeNotAvail"))
    finally:
        kube.access.kubectl("uncordon", node)
    kube.wait_for(job, "COMPLETED")
    assert state(kube, node) == "idle"


def test_what_foreign_pods_request_is_not_there_for_jobs(kube) -> None:  # type: ignore[no-untyped-def]
    node = names(kube)[-1]
    cpus = int(kube.ok("sinfo", "-h", "-n", node, "-o", "%c"))
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "other", "namespace": kube.namespace}, "spec": {
        "nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [{
            "name": "c", "image": kube.access.image, "command": ["sleep", "600"],
            "resources": {"requests": {"cpu": "500m", "memory": "10Mi"}}}]}}
    kube.access.kubectl("apply", "-f", "-", stdin=json.dumps(pod))
    time.sleep(1)
    job = kube.submit("--mem=64", "-c", cpus, "-w", node, kube.script("true"))
    small = kube.submit("--mem=64", "-w", node, kube.script("true"))
    kube.wait_for(small, "COMPLETED")
    assert kube.job_field(job, "%T %r") in ("PENDING Resources", "PENDING Priority")
    kube.access.kubectl("-n", kube.namespace, "delete", "pod", "other")
    kube.wait_for(job, "COMPLETED")


def test_a_node_that_comes_and_goes(kube) -> None:  # type: ignore[no-untyped-def]
    """With a device resource, as a plugin would register it; nothing ever runs there."""
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "extra-1", "labels": {
        "pool": "extra", "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}}}
    size = {"cpu": "16", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": "8"}
    kube.access.kubectl("create", "-f", "-", stdin=json.dumps(node))
    try:
        kube.access.kubectl("patch", "node", "extra-1", "--subresource=status", "-p", json.dumps({"status": {
            "capacity": size, "allocatable": size, "conditions": [{"type": "Ready", "status": "True"}]}}))
        until(lambda: "extra-1" in names(kube))
        until(lambda: "Gres=gpu:h100:8" in kube.ok("scontrol", "show", "node", "extra-1"))
        assert "pool=extra" in kube.ok("scontrol", "show", "node", "extra-1")
        assert "gpu:h100" in kube.ok("sinfo", "-h", "-o", "%G")
    finally:
        kube.access.kubectl("delete", "node", "extra-1")
    until(lambda: state(kube, "extra-1").startswith("down"))


def test_a_node_whose_kubelet_is_gone(make_kube) -> None:  # type: ignore[no-untyped-def]
    """Its gang is requeued to other nodes; what it ran is gone before it takes a job again."""
    site = make_kube("SlurmdTimeout=5\n", health={"windows": {"lost_jobs_after": 10, "warm_up": 0}})
    own = site.access.own
    if own is None:
        pytest.skip("a given cluster's kubelets are not ours to kill")
    job = site.submit("-N2", "--requeue", "--mem=64", site.script("srun sleep 600"))
    site.wait_for(job, "RUNNING")
    _, lost = site.ok("scontrol", "show", "hostnames", site.job_field(job, "%N")).split()
    [pod] = [pod for pod in site.pods(job) if pod["spec"]["nodeName"] == lost]
    assert own.processes_of(lost, pod["metadata"]["uid"])
    own.processes.kill(f"kubelet-{lost}")
    try:
        until(lambda: state(site, lost).startswith("down"), 60)
        until(lambda: [row.partition("|")[0] for row in site.accounting(job)] == ["NODE_FAIL", "RUNNING"], 60)
        assert lost not in site.ok("scontrol", "show", "hostnames", site.job_field(job, "%N")).split()
        assert own.processes_of(lost, pod["metadata"]["uid"])
    finally:
        own.processes.start(f"kubelet-{lost}")
    until(lambda: state(site, lost) == "idle", 60)    # the pod's object may be there for a moment more
    assert not own.processes_of(lost, pod["metadata"]["uid"])
    site.ok("scancel", str(job))
