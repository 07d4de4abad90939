"""Compiles a whole Kubernetes from Go modules, once: the result is kept outside the checkout, in ``cache()``.

One binary holds the control plane, kubelet, kube-proxy and kubectl (kube.go.txt); containerd, its shim, ctr, CoreDNS
and kwok are installed beside it. About ten minutes on two cores the first time, nothing after that.
``python -m cluster.build`` (with ``tests`` on the path) builds and says what is missing.
"""
from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
VERSION = os.environ.get("SLURMBRIDGE_TEST_KUBERNETES", "1.36.3")
ETCD = "go.etcd.io/etcd/server/v3 v3.6.13"
TOOLS = {
    "containerd": "github.com/containerd/containerd/v2/cmd/containerd@v2.2.9",
    "containerd-shim-runc-v2": "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2@v2.2.9",
    "ctr": "github.com/containerd/containerd/v2/cmd/ctr@v2.2.9",
    "coredns": "github.com/coredns/coredns@v1.14.0",
    "kwok": "sigs.k8s.io/kwok/cmd/kwok@v0.7.0",
}
HELM = "helm.sh/helm/v3/cmd/helm@v3.19.5"
COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", "kubectl")
PROGRAMS = ("runc", "ip", "iptables", "nft", "nsenter", "openssl", "busybox")
GO_AT_LEAST = (1, 26)


def cache() -> Path:
    """``$XDG_CACHE_HOME/slurmbridge``, else ``~/.cache/slurmbridge``."""
    base = os.environ.get("XDG_CACHE_HOME") or ""
    return (Path(base) if base.startswith("/") else Path.home() / ".cache") / "slurmbridge"


def binaries() -> Path:
    """Where this version's components are."""
    return cache() / f"kubernetes-{VERSION}"


def tools() -> Path:
    return cache() / "tools"


def why_not() -> str:
    """What keeps this machine from having a cluster of its own; "" when nothing does."""
    if os.geteuid() != 0:
        return "root"
    lacking = [name for name in PROGRAMS if shutil.which(name, path=SEARCH) is None]
    if not Path("/usr/lib/cni/bridge").exists():
        lacking.append("containernetworking-plugins")
    if lacking:
        return ", ".join(lacking)
    return "" if is_built() else f"a build of Kubernetes {VERSION} (tests/setup_cluster.sh)"


SEARCH = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin:/sbin:/bin"


def is_built() -> bool:
    return all((binaries() / name).exists() for name in COMPONENTS) and all((tools() / name).exists() for name in TOOLS)


def why_no_helm() -> str:
    return "" if (tools() / "helm").exists() else "helm (tests/setup_cluster.sh builds it)"


def go_version() -> tuple[int, ...]:
    """(0,) without Go."""
    try:
        found = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return (0,)
    return tuple(map(int, re.findall(r"\d+", found)[:2]))


def build() -> None:
    """Does nothing where everything is there. Raises CalledProcessError or OSError; half a build leaves no trace."""
    cache().mkdir(parents=True, exist_ok=True)
    with open(cache() / "build.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if is_built() and not why_no_helm():
            return
        env = {**os.environ, "CGO_ENABLED": "0", "GOBIN": str(tools()), "GOFLAGS": "-buildvcs=false -trimpath"}
        tools().mkdir(exist_ok=True)
        if not (binaries() / COMPONENTS[-1]).exists():
            _kubernetes(env)
        for name, package in (TOOLS | {"helm": HELM}).items():
            if not (tools() / name).exists():
                subprocess.run(["go", "install", "-ldflags", "-s -w", package], env=env, check=True, cwd="/")


def _kubernetes(env: dict[str, str]) -> None:
    source = cache() / f"source-{VERSION}"
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir()
    shutil.copy(HERE / "kube.go.txt", source / "main.go")
    (source / "go.mod").write_text("module kube\n\ngo 1.26.0\n")
    (source / "go.mod").write_text(_module_file(source, env))
    subprocess.run(["go", "mod", "tidy"], cwd=source, env=env, check=True, stderr=subprocess.DEVNULL)
    flag = "-X k8s.io/component-base/version."
    flags = f"-s -w {flag}gitVersion=v{VERSION} {flag}gitMajor=1 {flag}gitMinor={VERSION.split('.')[1]}"
    binaries().mkdir(exist_ok=True)
    program = binaries() / "kube"
    subprocess.run(["go", "build", "-ldflags", flags, "-o", str(program), "."], cwd=source, env=env, check=True)
    for name in COMPONENTS:
        link = binaries() / name
        link.unlink(missing_ok=True)
        link.symlink_to("kube")
    shutil.rmtree(source)


def _module_file(source: Path, env: dict[str, str]) -> str:
    """k8s.io/kubernetes requires its sibling modules at v0.0.0: each is replaced by the release of the same number."""
    got = subprocess.run(["go", "mod", "download", "-json", f"k8s.io/kubernetes@v{VERSION}"], cwd=source, env=env,
                         check=True, capture_output=True, text=True)
    upstream = Path(json.loads(got.stdout)["GoMod"]).read_text()
    siblings = re.findall(r"^\s*(k8s\.io/\S+) => \./staging/", upstream, re.M)
    number = "v0." + VERSION.split(".", 1)[1]
    replaced = "".join(f"\t{name} => {name} {number}\n" for name in siblings)
    return (f"module kube\n\ngo 1.26.0\n\nrequire k8s.io/kubernetes v{VERSION}\n\nrequire {ETCD}\n\n"
            f"replace (\n{replaced})\n")


def main() -> int:
    if is_built() and not why_no_helm():
        return 0
    if go_version() < GO_AT_LEAST:
        print(f"Go {GO_AT_LEAST[0]}.{GO_AT_LEAST[1]} is not here: the tests on a real Kubernetes use "
              "SLURMBRIDGE_TEST_KUBECONFIG or are skipped", file=sys.stderr)
        return 0
    print(f"compiling Kubernetes {VERSION} for the tests (once, some ten minutes)", flush=True)
    try:
        build()
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"Kubernetes could not be built, its tests are skipped: {error}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
