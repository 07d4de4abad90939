"""Sites on a real Kubernetes: this machine's own (tests/cluster), or the one of SLURMBRIDGE_TEST_KUBECONFIG.

``kube`` is a site whose jobs have the test's folder mounted; ``make_kube`` makes one of its own for tests that break
something. All run in one process: they share nodes that are small. Tests of the chart have a cluster of their own
(``chart_access``), and may run beside them.
"""
from __future__ import annotations

import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml
from cluster import build, images
from cluster.kubernetes import Cluster
from cluster.shared import cluster
from sites import DATA, Site

GIVEN = os.environ.get("SLURMBRIDGE_TEST_KUBECONFIG", "")


@pytest.hookimpl(tryfirst=True)       # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(item.path).parent == Path(__file__).parent:
            item.add_marker(pytest.mark.xdist_group(
                "chart" if "chart_access" in getattr(item, "fixturenames", ()) else "kubernetes"))


class Access:
    """Where the cluster is. ``own``: the one of this machine, whose processes a test may kill; None for a given one."""

    def __init__(self, kubeconfig: Path, kubectl: str, own: Cluster | None = None) -> None:
        self.kubeconfig, self._kubectl, self.own = kubeconfig, kubectl, own
        self.image = os.environ.get("SLURMBRIDGE_TEST_IMAGE", images.BUSYBOX)
        self.runtime_image = os.environ.get("SLURMBRIDGE_TEST_RUNTIME_IMAGE", images.RUNTIME)

    def kubectl(self, *words: object, stdin: str | None = None) -> str:
        done = subprocess.run([self._kubectl, "--kubeconfig", str(self.kubeconfig), *map(str, words)], text=True,
                              input=stdin, capture_output=True, timeout=120)
        assert done.returncode == 0, f"kubectl {words}: {done.stderr}"
        return done.stdout

    def objects(self, kind: str, namespace: str = "", selector: str = "") -> list[dict[str, Any]]:
        """``kind``: nodes or pods, as the API server's paths have them."""
        if self.own is not None:              # kubectl's start costs half a second
            space = f"namespaces/{namespace}/" if namespace else ""
            return list(self.own.call(f"/api/v1/{space}{kind}?labelSelector={quote(selector)}")["items"])
        words = ["get", kind, "-o", "json", *(["-n", namespace] if namespace else []),
                 *(["-l", selector] if selector else [])]
        return list(json.loads(self.kubectl(*words))["items"])


def _accessed(nodes: int, part: str) -> Iterator[Access]:
    if GIVEN:
        yield Access(Path(GIVEN), shutil.which("kubectl") or "kubectl")
        return
    lacking = build.why_not()
    if lacking:
        pytest.skip(f"needs {lacking}; or SLURMBRIDGE_TEST_KUBECONFIG")
    with cluster(nodes, part) as found:
        yield Access(found.kubeconfig, str(build.binaries() / "kubectl"), found)


@pytest.fixture(scope="session")
def access() -> Iterator[Access]:
    yield from _accessed(3, "")


@pytest.fixture(scope="session")
def chart_access() -> Iterator[Access]:
    yield from _accessed(2, "c")


class KubeSite(Site):
    """A site in a namespace of its own. ``settings`` are keys of the ``kubernetes:`` section, and
    ``health``: the section of that name."""

    def __init__(self, access: Access, conf: str = "", **settings: Any) -> None:
        super().__init__("kubernetes", conf, DATA / "kubernetes.conf", (), {})
        self.access = access
        self.namespace = f"slurm-{uuid.uuid4().hex[:8]}"
        self.slurm_conf.write_text(self.slurm_conf.read_text().replace("CLUSTER", self.namespace))
        path = str(self.work)
        self.health: dict[str, Any] = settings.pop("health", {})
        self.settings: dict[str, Any] = {
            "kubeconfig": str(access.kubeconfig), "namespace": self.namespace, "image": access.image,
            "runtime_image": access.runtime_image,
            "defaults": {"pod": {"volumes": [{"name": "work", "hostPath": {"path": path}}]},
                         "container": {"volumeMounts": [{"name": "work", "mountPath": path}]}}, **settings}
        self.config = self.folder / "slurmbridge.yaml"
        self.write_config()
        self.options = ["--config", str(self.config)]

    def write_config(self) -> None:
        self.config.write_text(yaml.safe_dump({
            "engine": "kubernetes", "kubernetes": self.settings, "health": self.health}))

    def script(self, text: str) -> Path:
        path = self.work / f"{uuid.uuid4().hex[:8]}.sh"
        path.write_text(f"#!/bin/sh\n{text}\n")
        return path

    def pods(self, job: int | None = None) -> list[dict[str, Any]]:
        selector = f"slurmbridge.io/job-id={job}" if job is not None else ""
        return self.access.objects("pods", self.namespace, selector)

    def accounting(self, job: int, fields: str = "state,exitcode") -> list[str]:
        """sacct's row of the job itself."""
        out = self.ok("sacct", "-n", "-P", "-D", "-X", "-j", str(job), "-o", fields)
        return out.splitlines()

    def remove(self) -> None:
        try:
            super().remove()
        finally:
            self.access.kubectl("delete", "namespace", self.namespace, "--wait=false", "--ignore-not-found")


@pytest.fixture(scope="session")
def kube(access: Access, commands: Path) -> Iterator[KubeSite]:
    site = KubeSite(access)
    try:
        site.up()
        yield site
    finally:
        site.remove()


def _made(access: Access) -> Iterator[Any]:
    sites: list[KubeSite] = []

    def make(conf: str = "", *, started: bool = True, **settings: Any) -> KubeSite:
        site = KubeSite(access, conf, **settings)
        sites.append(site)
        if started:
            site.up()
        return site
    yield make
    for site in sites:
        site.remove()


@pytest.fixture
def make_kube(access: Access, commands: Path) -> Iterator[Any]:
    yield from _made(access)


@pytest.fixture(scope="module")
def make_module_kube(access: Access, commands: Path) -> Iterator[Any]:
    """The same for sites that all tests of a file use."""
    yield from _made(access)
