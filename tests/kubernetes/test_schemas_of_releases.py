"""Everything that the engine and the chart make is known, field by field, to the API servers of five releases."""
from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from cluster import build
from releases import CHART, VARIANTS
from schemas import VERSIONS, complaints
from slurmbridge_schedulers.gang import GangBinder

from slurmbridge.cluster.kubernetes.fences import policy
from slurmbridge.cluster.kubernetes.lease import Lease, publish
from slurmbridge.cluster.kubernetes.plugin import PodPlace
from slurmbridge.slurm.jobspec import JobRequest
from slurmbridge.translate import manifest

SHARES = [manifest.NodeShare("n1", 4, 1000, {"gpu:h100": 2}), manifest.NodeShare("n2", 2, 500)]
SITES = [manifest.Site(), manifest.Site(
    runtime_delivery="init", shm_mb=64, groups=(7, 8), cluster="hpc",
    pod_patch={"tolerations": [{"key": "gpu", "operator": "Exists"}], "priorityClassName": "high", "volumes": [
        {"name": "home", "nfs": {"server": "nas", "path": "/home"}}]},
    container_patch={"volumeMounts": [{"name": "home", "mountPath": "/home"}]})]
REQUESTS = [JobRequest(uid=1001, gid=1001, user_name="alice", name="train"), JobRequest(
    uid=1001, gid=1001, user_name="alice", account="a", comment="x", pyxis={
        "container-image": "nvcr.io#nvidia/pytorch:1", "container-mounts": "/data:/data:ro",
        "container-workdir": "/work"})]


class Recorder:
    """An API that takes everything."""

    def __init__(self) -> None:
        self.bodies: list[Mapping[str, Any]] = []

    async def request(self, method: str, path: str, body: Any = None, **_: Any) -> bytes:
        self.bodies.append(body)
        return b"{}"


def written() -> list[Mapping[str, Any]]:
    """What is written beside a job's own objects."""
    api: Any = Recorder()
    asyncio.run(GangBinder(api, "slurm").bind([PodPlace("slurm-7-0", "u", "n1")]))
    asyncio.run(publish(api, "slurm", "hpc", "10.0.0.1", 6817))
    return [*api.bodies, Lease(api, "slurm", "hpc", "a")._body(None), policy("slurm", 1001)]


@pytest.mark.parametrize("version", VERSIONS)
def test_objects_of_jobs(version: str) -> None:
    made: list[Mapping[str, Any]] = [manifest.service(SITES[0]), *written()]
    for site in SITES:
        for request in REQUESTS:
            job = manifest.job(request, 7, SHARES, 1, site, 3600.0)
            pod = {"apiVersion": "v1", "kind": "Pod", "spec": job["spec"]["template"]["spec"]}
            made += [job, pod, manifest.secret(request, 7, 1, site, {"order": b"x"}), *manifest.endpoint_slices(
                7, 1, ["10.0.0.1", "10.0.0.2"], site, "uid", job["metadata"]["labels"])]
    assert [line for one in made for line in complaints(one, version)] == []


@pytest.mark.parametrize("version", VERSIONS)
def test_objects_of_the_chart(version: str) -> None:
    if build.why_no_helm():
        pytest.skip(build.why_no_helm())
    for sets in VARIANTS:
        words = [word for one in sets for word in ("--set", one)]
        text = subprocess.run([str(build.tools() / "helm"), "template", "hpc", str(CHART), "-n", "slurm",
                               "--kube-version", version, *words], capture_output=True, text=True, check=True).stdout
        kinds = [one for one in yaml.safe_load_all(text) if one]
        assert len(kinds) > 10
        assert [line for one in kinds for line in complaints(one, version)] == []


@pytest.mark.parametrize(("change", "said"), [
    ({"spec": {"completions": "2"}}, "Job.spec.completions: '2' is no integer"),
    ({"spec": {"template": {}, "nonsense": 1}}, "Job.spec.nonsense: not known"),
    ({"spec": {}}, "Job.spec: lacks template"),
    ({"spec": {"template": {"spec": {"containers": [{"image": "x"}]}}}},
     "Job.spec.template.spec.containers[0]: lacks name"),
    ({"metadata": {"labels": {"a": 1}}}, "Job.metadata.labels[a]: 1 is no string")])
def test_what_does_not_fit_is_told(change: dict[str, Any], said: str) -> None:
    assert said in complaints({"apiVersion": "batch/v1", "kind": "Job", **change}, VERSIONS[0])


def test_a_field_that_came_later_is_not_known_before() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{
        "name": "c", "env": [{"name": "A", "valueFrom": {"fileKeyRef": {
            "key": "a", "path": "p", "volumeName": "v"}}}]}]}}
    lines = {version: complaints(pod, version) for version in VERSIONS}
    assert [bool(lines[version]) for version in VERSIONS] == [True, False, False, False, False]
