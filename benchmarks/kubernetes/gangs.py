"""Gangs on hollow nodes: plain Indexed Jobs through kube-scheduler beside ``sbatch`` here, in one run.

    python benchmarks/kubernetes/gangs.py [--nodes 1000] [--jobs 500] [--pods 4] [--rounds 2]

Each round runs both, one after the other, on a cluster of its own without a real node (kwok moves the pods on).
Printed: seconds until all pods run, gangs/s and pods/s, CPU seconds of each component, API writes a job.
"""
from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from cluster.kubernetes import Cluster  # noqa: E402
from cluster.processes import wait_until  # noqa: E402

BIN = Path(sys.prefix) / "bin"
PARTS = ("apiserver", "etcd", "controller-manager", "scheduler", "kwok")
CONF = """\
ClusterName=bench
SlurmctldHost=localhost
SlurmUser=root
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=default_queue_depth=10000,bf_max_job_test=10000
MaxJobCount=100000
PartitionName=main Nodes=ALL Default=YES MaxTime=UNLIMITED State=UP DefMemPerCPU=64
"""


class Running:
    """Counts pods that have come to run in a namespace, by a watch."""

    def __init__(self, cluster: Cluster, namespace: str, wanted: int) -> None:
        self.names: set[str] = set()
        self.done = threading.Event()
        kubectl = [str(word) for word in (cluster_kubectl(), "--kubeconfig", cluster.kubeconfig, "-n", namespace, "get",
                                          "pods", "-w", "--no-headers", "-o", "custom-columns=N:.metadata.name,"
                                          "P:.status.phase")]
        self.process = subprocess.Popen(kubectl, stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self._read, args=(wanted,), daemon=True).start()

    def _read(self, wanted: int) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            name, _, phase = line.partition(" ")
            if "Running" in phase:
                self.names.add(name)
                if len(self.names) >= wanted:
                    self.at_s = time.monotonic()
                    self.done.set()

    def wait(self, limit_s: float) -> float:
        if not self.done.wait(limit_s):
            raise TimeoutError(f"{len(self.names)} pods run after {limit_s:.0f} s")
        self.process.kill()
        self.process.wait()
        return self.at_s


def cluster_kubectl() -> Path:
    from cluster import build
    return build.binaries() / "kubectl"


def cpu_s(pid: int | None) -> float:
    if pid is None:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def writes(cluster: Cluster) -> dict[str, int]:
    """Requests that changed something, by who asked is not told: by verb and resource."""
    found: dict[str, int] = {}
    for line in cluster.call("/metrics").decode().splitlines():
        match = re.match(r"apiserver_request_total\{(.*)\} (\S+)", line)
        if match:
            labels = dict(re.findall(r'(\w+)="([^"]*)"', match[1]))
            if labels["verb"] in ("POST", "PUT", "PATCH", "DELETE", "APPLY") and labels["resource"] != "leases":
                key = f"{labels['verb']} {labels['resource']}/{labels['subresource']}".rstrip("/")
                found[key] = found.get(key, 0) + int(float(match[2]))
    return found


def measured(cluster: Cluster, namespace: str, jobs: int, pods: int, submit: Callable[[], None],
             controller: int | None = None) -> dict[str, Any]:
    pids = {name: cluster.processes.pid(name) for name in PARTS} | {"slurmbridge": controller}
    before, wrote = {name: cpu_s(pid) for name, pid in pids.items()}, writes(cluster)
    running = Running(cluster, namespace, jobs * pods)
    began = time.monotonic()
    submit()
    submitted = time.monotonic()
    took = running.wait(600) - began
    after, wrote_after = {name: cpu_s(pid) for name, pid in pids.items()}, writes(cluster)
    changes = {key: round((count - wrote.get(key, 0)) / jobs, 1) for key, count in wrote_after.items()
               if count - wrote.get(key, 0) >= jobs / 10}
    return {"seconds": round(took, 1), "submitted_s": round(submitted - began, 1), "gangs/s": round(jobs / took, 1),
            "pods/s": round(jobs * pods / took, 1),
            "cpu_s": {name: round(after[name] - before[name], 1) for name in pids if after[name] - before[name] > 0.05},
            "writes/job": round(sum(changes.values()), 1), "writes": changes}


def plain(cluster: Cluster, jobs: int, pods: int) -> dict[str, Any]:
    namespace = "stock"
    cluster.call("/api/v1/namespaces", {"metadata": {"name": namespace}})

    def job(number: int) -> dict[str, Any]:
        container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1", "memory": "64Mi"}}}
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": f"j{number}"}, "spec": {
            "completionMode": "Indexed", "parallelism": pods, "completions": pods, "backoffLimit": 0,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}}

    def submit() -> None:
        path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: cluster.call(path, job(number)), range(jobs)))
    try:
        return measured(cluster, namespace, jobs, pods, submit)
    finally:
        clear(cluster, namespace)


def ours(cluster: Cluster, jobs: int, pods: int) -> dict[str, Any]:
    namespace = "slurm"
    with tempfile.TemporaryDirectory(prefix="sbb-") as folder:
        place = Path(folder)
        (place / "slurm.conf").write_text(CONF)
        (place / "job.sh").write_text("#!/bin/sh\nsleep 600\n")
        (place / "slurmbridge.yaml").write_text(json.dumps({"engine": "kubernetes", "kubernetes": {
            "kubeconfig": str(cluster.kubeconfig), "namespace": namespace, "image": "x", "writes_per_s": 100000}}))
        env = {"PATH": f"{BIN}:/usr/bin:/bin", "HOME": folder, "SLURMBRIDGE_URL": f"unix://{place}/st/slurmbridge.sock"}

        def run(*words: str) -> None:
            subprocess.run(words, env=env, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        run("slurmbridge", "up", "--state", f"{place}/st", "--slurm-conf", f"{place}/slurm.conf",
            "--config", f"{place}/slurmbridge.yaml")
        pid = int((place / "st" / "slurmbridge.pid").read_text())

        def submit() -> None:
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(lambda _: run("sbatch", f"-N{pods}", "--mem=64", "-o", "/dev/null", "job.sh"),
                              range(jobs)))
        try:
            return measured(cluster, namespace, jobs, pods, submit, pid)
        finally:
            os.kill(pid, 9)
            clear(cluster, namespace)


def all_ready(cluster: Cluster) -> bool:
    return all(any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"].get("conditions", ()))
               for node in cluster.call("/api/v1/nodes")["items"])


def clear(cluster: Cluster, namespace: str) -> None:
    """Until nothing is left: a clean-up under way would slow down the next run."""
    cluster.kubectl("delete", "namespace", namespace, "--timeout=300s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, count in (("nodes", 1000), ("jobs", 500), ("pods", 4), ("rounds", 2)):
        parser.add_argument(f"--{name}", type=int, default=count)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="sbb-cluster-") as folder:
        cluster = Cluster(Path(folder))
        try:
            cluster.up(0, controllers=["--node-monitor-grace-period=1h"])     # nobody sends heartbeats
            cluster.hollow(given.nodes, gpus=0)
            wait_until(lambda: all_ready(cluster), "the hollow nodes")
            for _ in range(given.rounds):
                for name, work in (("stock", plain), ("slurmbridge", ours)):
                    print(json.dumps({"what": name, **work(cluster, given.jobs, given.pods)}), flush=True)
        finally:
            cluster.down()


if __name__ == "__main__":
    main()
