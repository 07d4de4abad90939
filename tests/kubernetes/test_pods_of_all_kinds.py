"""The runtime works in images that have nothing, for users who may nothing, delivered either way."""
from __future__ import annotations

import json

import pytest


@pytest.mark.parametrize("delivery", ["image", "init"])
def test_restricted_pods_of_a_plain_user(make_kube, unix_users: tuple[str, ...],  # type: ignore[no-untyped-def]
                                         delivery: str) -> None:
    site = make_kube(runtime_delivery=delivery, defaults={"container": {"securityContext": {
        "readOnlyRootFilesystem": True}}})
    site.access.kubectl("label", "namespace", site.namespace, "pod-security.kubernetes.io/enforce=restricted")
    job = site.submit("-N2", "--mem=64", site.script("id -u; srun -l id -g; sleep 2"), user=unix_users[0])
    site.wait_for(job, "RUNNING")
    for pod in site.pods(job):
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        assert ("image" if delivery == "image" else "emptyDir") in volumes["runtime"]
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    site.wait_for(job, "COMPLETED")
    assert site.accounting(job) == ["COMPLETED|0:0"]


def test_the_probe_finds_what_the_cluster_can(kube) -> None:  # type: ignore[no-untyped-def]
    """Image volumes are on from Kubernetes 1.36."""
    version = json.loads(kube.access.kubectl("version", "-o", "json"))["serverVersion"]
    job = kube.submit("--mem=64", kube.script("sleep 30"))
    kube.wait_for(job, "RUNNING")
    volumes = {volume["name"]: volume for volume in kube.pods(job)[0]["spec"]["volumes"]}
    assert ("image" in volumes["runtime"]) == (int(version["minor"].rstrip("+")) >= 36)
    kube.ok("scancel", str(job))
