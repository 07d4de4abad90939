"""One node of the test cluster: a network namespace with its own containerd, kubelet and kube-proxy."""
from __future__ import annotations

import json
import os
from pathlib import Path

CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "pids", "devices", "freezer", "blkio", "systemd")
CGROUPS = Path("/sys/fs/cgroup")


def containerd_config(folder: Path) -> str:
    """``restrict_oom_score_adj``: a machine without CAP_SYS_RESOURCE may not lower a score."""
    return f'''version = 3
root = "{folder}/containerd"
state = "{folder}/run"
disabled_plugins = ["io.containerd.nri.v1.nri", "io.containerd.tracing.processor.v1.otlp", \
"io.containerd.internal.v1.tracing"]
[grpc]
  address = "{folder}/containerd.sock"
[ttrpc]
  address = "{folder}/containerd.sock.ttrpc"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "localhost/pause:1"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["/usr/lib/cni"]
    conf_dir = "{folder}/cni"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      SystemdCgroup = false
'''


def cni_config(folder: Path, subnet: str) -> str:
    return json.dumps({"cniVersion": "1.0.0", "name": "pods", "plugins": [
        {"type": "bridge", "bridge": "cni0", "isGateway": True, "hairpinMode": True, "ipam": {
            "type": "host-local", "dataDir": str(folder / "ipam"), "ranges": [[{"subnet": subnet}]],
            "routes": [{"dst": "0.0.0.0/0"}]}},
        {"type": "portmap", "capabilities": {"portMappings": True}}]})


def kubelet_config(folder: Path, cgroup: str, dns: str, gates: dict[str, bool]) -> str:
    """``cgroupRoot`` of its own: kubelets of one machine would remove each other's pods as orphans."""
    return json.dumps({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "failCgroupV1": False,
        "cgroupDriver": "cgroupfs", "cgroupRoot": f"/{cgroup}", "failSwapOn": False,
        "containerRuntimeEndpoint": f"unix://{folder}/containerd.sock",
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"}, "oomScoreAdj": 0, "maxOpenFiles": 20000, "maxPods": 250,
        "clusterDNS": [dns], "clusterDomain": "cluster.local", "registerNode": True,
        "syncFrequency": "5s", "podLogsDir": str(folder / "pods-log"), "nodeStatusUpdateFrequency": "2s",
        "nodeLeaseDurationSeconds": 10, "serializeImagePulls": False, "registryPullQPS": 0,
        "eventRecordQPS": 0, "kubeAPIQPS": 500, "kubeAPIBurst": 1000,
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "featureGates": gates})


def proxy_config(kubeconfig: Path, name: str, pods: str) -> str:
    return json.dumps({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": "nftables",
        "clientConnection": {"kubeconfig": str(kubeconfig)}, "hostnameOverride": name, "clusterCIDR": pods,
        "conntrack": {"maxPerCore": 0}})


def make_cgroups(name: str) -> None:
    """The kubelet's own root in every hierarchy (v1) or the one (v2); cpusets must not be empty."""
    if (CGROUPS / "cgroup.controllers").exists():
        (CGROUPS / name).mkdir(exist_ok=True)
        wanted = " ".join(f"+{word}" for word in (CGROUPS / "cgroup.controllers").read_text().split())
        for folder in (CGROUPS, CGROUPS / name):
            (folder / "cgroup.subtree_control").write_text(wanted)
        return
    for controller in CONTROLLERS:
        if (CGROUPS / controller).is_dir():
            (CGROUPS / controller / name).mkdir(exist_ok=True)
    for file in ("cpuset.cpus", "cpuset.mems"):
        if (CGROUPS / "cpuset" / name / file).exists():
            (CGROUPS / "cpuset" / name / file).write_text((CGROUPS / "cpuset" / file).read_text())


def cgroup_folders(name: str) -> list[Path]:
    return [folder for folder in (*CGROUPS.glob(f"*/{name}"), CGROUPS / name) if folder.is_dir()]


def cgroup_pids(name: str) -> set[int]:
    """Every process of the node's containers."""
    found: set[int] = set()
    for root in cgroup_folders(name):
        for folder, _, files in os.walk(root):
            if "cgroup.procs" in files:
                try:
                    found |= set(map(int, Path(folder, "cgroup.procs").read_text().split()))
                except OSError:
                    continue
    return found


def remove_cgroups(name: str) -> None:
    for root in cgroup_folders(name):
        for folder, _, _ in os.walk(root, topdown=False):
            try:
                os.rmdir(folder)
            except OSError:
                continue
