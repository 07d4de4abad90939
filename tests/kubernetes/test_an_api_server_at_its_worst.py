"""A proxy between controller and API server refuses, loses answers, cuts watches and is away: every job runs once, to
its own end, and no pod of a partial gang is left."""
from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster.proxy import Asked, Proxy, Refusal
from end_to_end.killing import eventually

REFUSALS = (Refusal(429, retry_after_s=1), Refusal(500), Refusal(500, is_done=True), Refusal(503), Refusal(409),
            Refusal(0), Refusal(0, is_done=True))
EVERY = 4
"""The how manieth write is refused, one way after another."""


@pytest.fixture(scope="module")
def proxy(access: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    if access.own is None:
        pytest.skip("the proxy speaks with the cluster of tests/cluster only")
    with Proxy(access.kubeconfig, Path(tmp_path_factory.mktemp("proxy"))) as found:
        yield found


@pytest.fixture(scope="module")
def _site(make_module_kube: Any, proxy: Proxy) -> Any:
    return make_module_kube(kubeconfig=str(proxy.kubeconfig), health={"windows": {"warm_up": 0}})


@pytest.fixture
def site(_site: Any, proxy: Proxy) -> Iterator[Any]:
    yield _site
    proxy.fault = lambda asked: None
    _site.ok("scancel", "-u", "root")
    eventually(lambda: not _site.pods(), "pods are left", 60)


def counting(site: Any, code: int, *words: str) -> int:
    """A job each pod of which writes one line, and which ends with this code."""
    return int(site.submit("--mem=32", *words, site.script(
        f"srun sh -c 'echo x >> {site.work}/$SLURM_JOB_ID.$SLURM_PROCID'\nexit {code}")))


def test_gangs_run_once_whatever_their_requests_meet(site: Any, proxy: Proxy) -> None:
    writes, reads = itertools.count(), itertools.count()

    def fault(asked: Asked) -> Refusal | None:
        if asked.method == "GET":
            is_list = asked.path.endswith(("/nodes", "/pods", "/jobs")) and not asked.is_watch
            return Refusal(410) if is_list and next(reads) % EVERY == 1 else None
        turn, rest = divmod(next(writes), EVERY)
        return None if rest else REFUSALS[turn % len(REFUSALS)]
    proxy.seen.clear()
    proxy.fault = fault
    jobs = {counting(site, number + 1, "-N2", "-n2"): number + 1 for number in range(5)}
    cuts = itertools.cycle((proxy.cut_watches, proxy.expire_watches))
    end = time.monotonic() + 120
    while site.ok("squeue", "-h", "-t", "PD,R,CG,CF"):
        assert time.monotonic() < end, site.ok("squeue")
        next(cuts)()
        time.sleep(0.7)
    for job, code in jobs.items():
        assert site.accounting(job) == [f"FAILED|{code}:0"]
        assert [(site.work / f"{job}.{rank}").read_text() for rank in range(2)] == ["x\n", "x\n"]
    refused = {code for method, code in proxy.seen if code in (0, 409, 410, 429, 500, 503)}
    assert refused == {0, 409, 410, 429, 500, 503}, proxy.seen


def test_a_foreign_pod_that_takes_the_place_between_plan_and_bind(site: Any, proxy: Proxy) -> None:
    """The kubelet refuses what does not fit any more; the whole gang goes elsewhere once there is room."""
    taken = threading.Event()
    place: list[str] = []

    def fault(asked: Asked) -> Refusal | None:
        if asked.path.endswith("/binding") and not taken.is_set():
            taken.set()
            place.append(json.loads(asked.body)["target"]["name"])
            site.access.kubectl("apply", "-f", "-", stdin=json.dumps(foreign_pod(site, place[0])))
            eventually(lambda: any(pod["metadata"]["name"] == "foreign" and pod["status"]["phase"] == "Running"
                                   for pod in site.pods()), "the foreign pod", 30)
        return None
    proxy.fault = fault
    cpus = site.ok("sinfo", "-h", "-o", "%c").split()[0]
    job = counting(site, 5, "-N2", "-n2", "-c", cpus)
    site.wait_for(job, "FAILED", timeout_s=60)
    rows = [row.split("|") for row in site.accounting(job, "state,exitcode,nodelist")]
    assert rows[-1][:2] == ["FAILED", "5:0"]
    assert place[0] not in site.ok("scontrol", "show", "hostnames", rows[-1][2]).split()
    assert [(site.work / f"{job}.{rank}").read_text() for rank in range(2)] == ["x\n", "x\n"]
    assert site.ok("sinfo", "-h", "-N", "-n", place[0], "-o", "%T").strip() in ("idle", "mixed", "allocated")
    site.access.kubectl("-n", site.namespace, "delete", "pod", "foreign")


def foreign_pod(site: Any, node: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "foreign", "namespace": site.namespace}, "spec": {
        "nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [{
            "name": "c", "image": site.access.image, "command": ["sleep", "600"],
            "resources": {"requests": {"cpu": "1", "memory": "10Mi"}}}]}}


def test_an_api_server_that_is_away_while_gangs_start(site: Any, proxy: Proxy) -> None:
    """Cut off between the bindings of one gang: it is whole or gone afterwards, and runs once."""
    bound = threading.Event()

    def fault(asked: Asked) -> Refusal | None:
        if asked.path.endswith("/binding"):
            if bound.is_set():
                proxy.is_away = True
                return Refusal(0)
            bound.set()
        return None
    proxy.fault = fault
    job = counting(site, 6, "-N2", "-n2")
    eventually(lambda: proxy.is_away, "the bindings", 30)
    proxy.cut_watches()
    time.sleep(3)
    assert site.job_field(job, "%T") in ("CONFIGURING", "RUNNING", "PENDING")
    proxy.fault, proxy.is_away = (lambda asked: None), False
    site.wait_for(job, "FAILED", timeout_s=90)
    assert site.accounting(job)[-1] == "FAILED|6:0"
    assert [(site.work / f"{job}.{rank}").read_text() for rank in range(2)] == ["x\n", "x\n"]
