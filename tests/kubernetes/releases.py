"""An installed chart for tests: its values, helm and kubectl, the login pod's commands."""
from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster import build, images

CHART = Path(__file__).resolve().parents[2] / "charts" / "slurmbridge"
CONF = """\
SlurmctldHost=slurmbridge
SlurmUser=slurm
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=requeue_delay=1
MpiDefault=pmi2
KillWait=3
FirstJobId=1
MinJobAge=600
PartitionName=main Nodes=ALL Default=YES MaxTime=UNLIMITED State=UP DefMemPerCPU=64
"""
USERS = {"alice": 1001, "bob": 1002}
VARIANTS = [
    (), ("ledger.postgresql.existingSecret=pg", "controller.replicas=2"), ("networkPolicy.enabled=false",),
    ("jobs.namespace=work", "jobs.createNamespace=true", "existingSlurmConf=mine", "existingAccounts=books"),
    ("login.image=site/login:1", "tls.existingSecret=given", "controller.priorityClassName=high")]
"""Values, as --set has them, under which the chart makes other objects."""


def wait_until(true: Callable[[], object], what: str, limit_s: float = 120) -> None:
    deadline = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.3)


class Release:
    """An installed chart. ``values`` are its values; ``home`` is /home on login and job pods. Controllers and login
    pods are on the first node, the only one that has their image."""

    def __init__(self, access: Any, folder: Path) -> None:
        self.access, self.folder = access, folder
        self.namespace = f"chart-{uuid.uuid4().hex[:6]}"
        self.home, volume = folder / "home", folder / "volume"
        for place in (self.home, volume):
            place.mkdir()
            place.chmod(0o777)
        folder.chmod(0o755)
        for user, uid in USERS.items():
            (self.home / user).mkdir()
            shutil.chown(self.home / user, uid, uid)
        self._volume(volume)
        home: dict[str, Any] = {"volumes": [{"name": "home", "hostPath": {"path": str(self.home)}}],
                                "volumeMounts": [{"name": "home", "mountPath": "/home"}]}
        place = {"kubernetes.io/hostname": access.own.nodes[0]}
        repository, _, tag = images.CONTROLLER.rpartition(":")
        self.values: dict[str, Any] = {
            "image": {"repository": repository, "tag": tag, "pullPolicy": "Never"}, "clusterName": "chart",
            "slurmConf": CONF, "users": [{"name": name, "uid": uid, "gid": uid} for name, uid in USERS.items()],
            "groups": [{"name": "hpc", "gid": 2000, "members": list(USERS)}],
            "identity": {"audiences": ["slurmbridge", "https://kubernetes.default.svc.cluster.local"],
                         "users": [{"name": "(alice|bob)", "user": r"\1"}]},
            "jobs": {"image": access.image, "runtimeImage": access.runtime_image,
                     "pod": {"volumes": home["volumes"]}, "container": {"volumeMounts": home["volumeMounts"]}},
            "controller": {"nodeSelector": place, "resources": {
                "requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}}},
            "ledger": {"size": "1Gi", "storageClassName": ""},
            "login": {**home, "nodeSelector": place}}

    def _volume(self, path: Path) -> None:
        """What a storage class would make."""
        self.access.kubectl("apply", "-f", "-", stdin=json.dumps({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": self.namespace},
            "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "",
                     "claimRef": {"namespace": self.namespace, "name": "state-hpc-controller-0"},
                     "hostPath": {"path": str(path)}}}))

    def helm(self, *words: str) -> str:
        done = subprocess.run([str(build.tools() / "helm"), "--kubeconfig", str(self.access.kubeconfig), *words],
                              capture_output=True, text=True, timeout=400)
        assert done.returncode == 0, f"helm {words}: {done.stderr}{done.stdout}"
        return done.stdout

    def put(self, verb: str, *more: str) -> str:
        """install or upgrade, with the values as they are now."""
        (self.folder / "values.yaml").write_text(yaml.safe_dump(self.values))
        return self.helm(verb, "hpc", str(CHART), "-n", self.namespace, "-f", str(self.folder / "values.yaml"),
                         "--wait", "--timeout", "150s", *more)

    def kubectl(self, *words: object, **options: Any) -> str:
        return self.access.kubectl("-n", self.namespace, *words, **options)

    def login(self, *words: str, user: str = "") -> str:
        """A command on the login pod, as root or a user."""
        inside = ["su", user, "-c", f"cd; {' '.join(words)}"] if user else list(words)
        return self.kubectl("exec", "deploy/hpc-login", "-c", "login", "--", *inside)

    def state(self, job: int) -> str:
        return self.login("squeue", "-h", "-t", "all", "-o", "%T", "-j", str(job)).strip()

    def login_until(self, command: str, wanted: str, limit_s: int = 60) -> None:
        """Until a command (of sh) on the login pod prints this; one kubectl for all that."""
        self.login("sh", "-c", f'for _ in $(seq {limit_s * 5}); do found=$({command}); [ "$found" = "{wanted}" ] && '
                   f'exit 0; sleep 0.2; done; echo "{command}: $found, not {wanted}" >&2; exit 1')

    def wait_for(self, job: int, state: str) -> None:
        self.login_until(f"squeue -h -t all -o %T -j {job}", state)

    def refused(self, *words: object, **options: Any) -> str:
        with pytest.raises(AssertionError) as caught:
            self.kubectl(*words, **options)
        return str(caught.value)


@contextlib.contextmanager
def installed(access: Any, more: Callable[[Release], None] = lambda release: None) -> Iterator[Release]:
    """``more`` may change the values and make what they name; nothing of it is left at the end."""
    lacking = build.why_no_helm()
    if lacking or access.own is None:
        pytest.skip(f"needs {lacking or 'the cluster of tests/cluster: its folders are the nodes'}")
    access.own.load(images.controller_image(access.own.folder), nodes=access.own.nodes[:1])
    folder = Path(tempfile.mkdtemp(prefix="sbc-", dir="/tmp"))
    found = Release(access, folder)
    try:
        access.kubectl("create", "namespace", found.namespace)
        more(found)
        found.put("install")
        yield found
    finally:
        subprocess.run([str(build.tools() / "helm"), "--kubeconfig", str(access.kubeconfig), "uninstall", "hpc", "-n",
                        found.namespace, "--ignore-not-found"], capture_output=True, timeout=120)
        access.kubectl("delete", "namespace", found.namespace, "--wait=false", "--ignore-not-found")
        access.kubectl("delete", "pv", found.namespace, "--wait=false", "--ignore-not-found")
        shutil.rmtree(folder, ignore_errors=True)
