"""A cluster of one folder: control plane and nodes of this machine, up in seconds, and down to nothing.

    python -m cluster.kubernetes up|down|hollow|load|kill|start|ps --dir FOLDER [...]     (in tests/)
"""
from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import json
import os
import shutil
import signal
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cluster import images, node
from cluster.build import binaries, tools
from cluster.processes import Processes, wait_until

USERS = ("alice", "bob", "carol")
OCTETS = range(60, 150)
API_PORT = 6443


def sh(*words: object) -> None:
    subprocess.run([str(word) for word in words], check=True, capture_output=True)


class Cluster:
    """``up`` first. Tokens: ``admin`` (system:masters), ``alice``, ``bob``, ``carol`` (no rights)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.processes = Processes(self.folder)
        octet = self.folder / "octet"
        self.octet = int(octet.read_text()) if octet.exists() else 0

    @property
    def bridge(self) -> str:
        return f"sb{self.octet}"

    @property
    def host(self) -> str:
        """This machine as the nodes see it."""
        return f"10.{self.octet}.0.1"

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "admin.kubeconfig"

    @property
    def nodes(self) -> list[str]:
        return [name.removeprefix("kubelet-") for name in self.processes.commands if name.startswith("kubelet-")]

    # ---- talking to it ----------------------------------------------------------------------------------------------

    def call(self, path: str, body: object = None, method: str | None = None, *, token: str = "admin",
             content: str = "application/json") -> Any:
        """JSON in, JSON out. Raises urllib.error.HTTPError."""
        context = ssl._create_unverified_context()
        request = urllib.request.Request(
            f"https://{self.host}:{API_PORT}{path}", method=method,
            headers={"Authorization": f"Bearer {token}", "Content-Type": content},
            data=None if body is None else json.dumps(body).encode())
        with urllib.request.urlopen(request, context=context, timeout=30) as answer:
            text = answer.read()
        return json.loads(text) if text[:1] in (b"{", b"[") else text

    def write_kubeconfig(self, name: str, token: str) -> Path:
        path = self.folder / f"{name}.kubeconfig"
        path.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {
                "server": f"https://{self.host}:{API_PORT}",
                "certificate-authority": str(self.folder / "certs" / "apiserver.crt")}}],
            "users": [{"name": "test", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}]}, indent=1))
        return path

    def kubectl(self, *words: object) -> str:
        """Raises CalledProcessError with its output."""
        return subprocess.run([str(binaries() / "kubectl"), "--kubeconfig", str(self.kubeconfig), *map(str, words)],
                              check=True, capture_output=True, text=True).stdout

    # ---- up ---------------------------------------------------------------------------------------------------------

    def up(self, count: int = 3, *, gates: Mapping[str, bool] | None = None, api: Sequence[str] = (),
           controllers: Sequence[str] = ()) -> None:
        """``count`` nodes n1…; ``gates``: feature gates of all parts. Raises TimeoutError; call ``down`` then."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._take_octet()
        gates = dict(gates or {})
        gate = [f"--feature-gates={','.join(f'{k}={str(v).lower()}' for k, v in gates.items())}"] if gates else []
        names = [f"n{number}" for number in range(1, count + 1)]
        sh("mount", "--make-rshared", "/")
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        sh("ip", "addr", "add", f"{self.host}/24", "dev", self.bridge)
        sh("ip", "link", "set", self.bridge, "up")
        self._control_plane(names, gate, api, controllers)
        tars = images.base_images(self.folder)
        with concurrent.futures.ThreadPoolExecutor(max(len(names), 1)) as pool:
            list(pool.map(lambda pair: self._node(*pair, names, gates), enumerate(names, 1)))
        self.load(*tars)
        wait_until(lambda: sum(condition["status"] == "True" for one in self.call("/api/v1/nodes")["items"]
                               for condition in one["status"].get("conditions", ())
                               if condition["type"] == "Ready") == count, "the nodes")
        wait_until(lambda: self.call("/api/v1/namespaces/default/serviceaccounts/default"), "the service account")

    def _take_octet(self) -> None:
        """A network of its own, so that clusters of several checkouts can be up together."""
        for octet in OCTETS:
            self.octet = octet
            if Path(f"/sys/class/net/{self.bridge}").exists():
                continue
            (self.folder / "octet").write_text(str(octet))
            with contextlib.suppress(subprocess.CalledProcessError):
                sh("ip", "link", "add", self.bridge, "type", "bridge")
                return
        raise OSError("no free network for a test cluster")

    def _control_plane(self, names: list[str], gate: list[str], api: Sequence[str], controllers: Sequence[str]) -> None:
        start, folder, host = self.processes.start, self.folder, self.host
        sh("openssl", "genrsa", "-out", folder / "sa.key", "2048")
        sh("openssl", "rsa", "-in", folder / "sa.key", "-pubout", "-out", folder / "sa.pub")
        self._certificate()
        tokens = ["admin,admin,0,system:masters", *(f"tok-{n},system:node:{n},{n},system:nodes" for n in names),
                  *(f"{user},{user},{user}," for user in USERS)]
        (folder / "tokens.csv").write_text("\n".join(tokens) + "\n")
        admin = self.write_kubeconfig("admin", "admin")
        etcd = f"http://127.0.0.{self.octet}"
        start("etcd", [binaries() / "etcd", "--data-dir", folder / "etcd", "--listen-client-urls", f"{etcd}:2379",
                       "--advertise-client-urls", f"{etcd}:2379", "--listen-peer-urls", f"{etcd}:2380",
                       "--initial-advertise-peer-urls", f"{etcd}:2380", "--initial-cluster", f"default={etcd}:2380",
                       "--quota-backend-bytes", 8 << 30, "--unsafe-no-fsync"])
        start("apiserver", [
            binaries() / "kube-apiserver", f"--etcd-servers={etcd}:2379", f"--secure-port={API_PORT}",
            f"--bind-address={host}", f"--advertise-address={host}",
            f"--tls-cert-file={folder}/certs/apiserver.crt", f"--tls-private-key-file={folder}/certs/apiserver.key",
            f"--service-account-key-file={folder}/sa.pub", f"--service-account-signing-key-file={folder}/sa.key",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            "--service-cluster-ip-range=10.96.0.0/16", f"--token-auth-file={folder}/tokens.csv",
            "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
            "--kubelet-preferred-address-types=InternalIP", *gate, *api])
        wait_until(lambda: self.call("/readyz") == b"ok", "the API server")
        start("controller-manager", [
            binaries() / "kube-controller-manager", f"--kubeconfig={admin}", "--leader-elect=false",
            f"--bind-address={host}", f"--service-account-private-key-file={folder}/sa.key",
            "--use-service-account-credentials=true", f"--root-ca-file={folder}/certs/apiserver.crt",
            "--kube-api-qps=500", "--kube-api-burst=1000", *gate, *controllers])
        start("scheduler", [binaries() / "kube-scheduler", f"--kubeconfig={admin}", "--leader-elect=false",
                            f"--bind-address={host}", "--kube-api-qps=5000", "--kube-api-burst=5000", *gate])
        (folder / "Corefile").write_text(
            f".:53 {{\n bind {host}\n errors\n kubernetes cluster.local in-addr.arpa {{\n  kubeconfig {admin} test\n"
            "  pods insecure\n  ttl 1\n }\n cache 1\n}\n")
        start("coredns", [tools() / "coredns", "-conf", folder / "Corefile"])

    def _certificate(self) -> None:
        certs = self.folder / "certs"
        certs.mkdir(exist_ok=True)
        names = ("DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,"
                 f"DNS:kubernetes.default.svc.cluster.local,IP:{self.host},IP:10.96.0.1")
        sh("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=slurmbridge-test",
           "-addext", f"subjectAltName={names}", "-keyout", certs / "apiserver.key", "-out", certs / "apiserver.crt")

    def _node(self, number: int, name: str, names: list[str], gates: Mapping[str, bool]) -> None:
        folder, netns, address = self.folder / name, f"{self.bridge}-{name}", f"10.{self.octet}.0.{10 + number}"
        self._network(number, name, len(names))
        (folder / "cni").mkdir(parents=True)
        (folder / "cni" / "10-pods.conflist").write_text(node.cni_config(folder, self._pods(number)))
        config = folder / "containerd.toml"
        config.write_text(node.containerd_config(folder))
        self.processes.start(f"containerd-{name}", [tools() / "containerd", "-c", config], netns)
        kubeconfig = self.write_kubeconfig(name, f"tok-{name}")
        node.make_cgroups(netns)
        kubelet, proxy = folder / "kubelet.json", folder / "proxy.json"
        kubelet.write_text(node.kubelet_config(folder, netns, self.host, dict(gates)))
        proxy.write_text(node.proxy_config(self.kubeconfig, name, f"10.{self.octet + 100}.0.0/16"))
        wait_until((folder / "containerd.sock").exists, f"containerd on {name}")    # a kubelet without one exits
        self.processes.start(f"kubelet-{name}", [
            binaries() / "kubelet", "--config", kubelet, "--kubeconfig", kubeconfig, "--root-dir", folder / "kubelet",
            f"--hostname-override={name}", f"--node-ip={address}"], netns)
        self.processes.start(f"proxy-{name}", [binaries() / "kube-proxy", "--config", proxy], netns)

    def _pods(self, number: int) -> str:
        return f"10.{self.octet + 100}.{number}.0/24"

    def _network(self, number: int, name: str, count: int) -> None:
        netns, host = f"{self.bridge}-{name}", f"10.{self.octet}.0"
        sh("ip", "netns", "add", netns)
        sh("ip", "link", "add", f"{self.bridge}{name}", "type", "veth", "peer", "name", "eth0", "netns", netns)
        sh("ip", "link", "set", f"{self.bridge}{name}", "master", self.bridge, "up")
        sh("ip", "-n", netns, "addr", "add", f"{host}.{10 + number}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            sh("ip", "-n", netns, "link", "set", device, "up")
        sh("ip", "-n", netns, "route", "add", "default", "via", f"{host}.1")
        sh("ip", "route", "replace", self._pods(number), "via", f"{host}.{10 + number}")
        for other in range(1, count + 1):
            if other != number:
                sh("ip", "-n", netns, "route", "add", self._pods(other), "via", f"{host}.{10 + other}")
        sh("nsenter", f"--net=/run/netns/{netns}", "sysctl", "-qw", "net.ipv4.ip_forward=1")

    # ---- in use -----------------------------------------------------------------------------------------------------

    def load(self, *tars: Path, nodes: Sequence[str] = ()) -> None:
        """Imports images (docker-save or OCI tars) on these nodes, else on every one; once each."""
        def at(name: str) -> None:
            for tar in tars:
                mark = self.folder / name / f"loaded-{tar.stem}-{tar.stat().st_mtime_ns}"
                if not mark.exists():
                    sh(tools() / "ctr", "-a", self.folder / name / "containerd.sock", "-n", "k8s.io", "images",
                       "import", tar)
                    mark.touch()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            list(pool.map(at, nodes or self.nodes))

    def hollow(self, count: int, *, cpu: int = 64, memory: str = "512Gi", gpus: int = 8) -> None:
        """Adds nodes that only pretend: kwok keeps their heartbeats and moves their pods on."""
        first = sum(one["metadata"]["name"].startswith("hollow-") for one in self.call("/api/v1/nodes")["items"])
        size = {"cpu": str(cpu), "memory": memory, "pods": "110"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})

        def create(number: int) -> None:
            name = f"hollow-{number}"
            self.call("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {
                "name": name, "annotations": {"kwok.x-k8s.io/node": "fake"},
                "labels": {"type": "hollow", "kubernetes.io/hostname": name, "rack": f"r{number // 32}",
                           "topology.kubernetes.io/zone": f"z{number % 3}"}},
                "status": {"allocatable": size, "capacity": size}})
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            list(pool.map(create, range(first, first + count)))
        if self.processes.pid("kwok") is None:
            self.processes.start("kwok", [tools() / "kwok", "--kubeconfig", self.kubeconfig,
                                          "--config", Path(__file__).with_name("kwok.yaml"),
                                          "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake"])

    def processes_of(self, name: str, pod_uid: str) -> set[int]:
        """What the pod's containers on a node run now, whatever the API server believes."""
        found = set()
        for pid in node.cgroup_pids(f"{self.bridge}-{name}"):
            with contextlib.suppress(OSError):
                if f"pod{pod_uid}" in Path(f"/proc/{pid}/cgroup").read_text():
                    found.add(pid)
        return found

    def is_up(self) -> bool:
        with contextlib.suppress(OSError):
            return self.processes.all_live() and self.call("/readyz") == b"ok"
        return False

    # ---- down -------------------------------------------------------------------------------------------------------

    def down(self) -> None:
        """Also of a cluster that was killed half-way, by what its folder, its network and its cgroups say."""
        if not self.folder.exists():
            return
        for name in reversed(list(self.processes.commands)):
            if not name.startswith(("containerd", "etcd", "apiserver")):
                self.processes.kill(name)
        folders = [path.name for path in self.folder.iterdir() if (path / "containerd.toml").exists()]
        names = [f"{self.bridge}-{name}" for name in folders] if self.octet else []
        for _ in range(100):
            pids = {pid for name in names for pid in node.cgroup_pids(name)}
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if not pids:
                break
            time.sleep(0.05)
        self.processes.kill_all()
        mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
        for mount in sorted((one for one in mounts if one.startswith(f"{self.folder}/")), reverse=True):
            subprocess.run(["umount", "-l", mount], capture_output=True)
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
            node.remove_cgroups(name)
        if self.octet:
            subprocess.run(["ip", "link", "del", self.bridge], capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.processes = Processes(self.folder)
        self.octet = 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["up", "down", "hollow", "load", "kill", "start", "ps"])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--count", type=int, default=3, help="of nodes")
    given = parser.parse_intermixed_args()
    cluster = Cluster(given.dir)
    if given.verb == "up":
        cluster.up(given.count)
        print(cluster.kubeconfig)
    elif given.verb == "down":
        cluster.down()
    elif given.verb == "hollow":
        cluster.hollow(given.count)
    elif given.verb == "load":
        cluster.load(*map(Path, given.words))
    elif given.verb == "ps":
        for name in cluster.processes.commands:
            print(f"{name:24} {cluster.processes.pid(name) or 'down'}")
    else:
        for name in given.words:
            (cluster.processes.kill if given.verb == "kill" else cluster.processes.start)(name)


if __name__ == "__main__":
    main()
