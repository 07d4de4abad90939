"""Container images without a registry: docker-save tars of one layer, written by hand."""
from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path

BUSYBOX, PAUSE = "localhost/busybox:1", "localhost/pause:1"


def write_image(path: Path, reference: str, layer: bytes, config: Mapping[str, object]) -> None:
    """``layer``: a tar of the root file system. ``config``: Cmd, Env, Entrypoint … of the image."""
    diff = hashlib.sha256(layer).hexdigest()
    text = json.dumps({"architecture": "amd64", "os": "linux", "config": dict(config), "history": [{}],
                       "rootfs": {"type": "layers", "diff_ids": [f"sha256:{diff}"]}}).encode()
    name = hashlib.sha256(text).hexdigest()
    manifest = [{"Config": f"{name}.json", "RepoTags": [reference], "Layers": [f"{diff}.tar"]}]
    with tarfile.open(path, "w") as tar:
        _add(tar, f"{name}.json", text)
        _add(tar, f"{diff}.tar", layer)
        _add(tar, "manifest.json", json.dumps(manifest).encode())


def _add(tar: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    tar.addfile(entry, io.BytesIO(data))


def layer_of(folder: Path) -> bytes:
    """Everything below a folder, owned by root, times cleared: equal folders give equal layers."""
    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mtime = 0
        return entry
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for path in sorted(folder.iterdir()):
            tar.add(path, path.name, filter=plain)
    return raw.getvalue()


def busybox_layer(applets: Iterable[str]) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for name, mode in (("bin", 0o755), ("tmp", 0o1777), ("etc", 0o755), ("var", 0o755), ("root", 0o700)):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            tar.addfile(entry)
        _add(tar, "bin/busybox", Path("/bin/busybox").read_bytes(), 0o755)
        for applet in applets:
            entry = tarfile.TarInfo(f"bin/{applet}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(entry)
    return raw.getvalue()


def base_images(folder: Path) -> list[Path]:
    """Busybox, and the image that every pod's sandbox runs."""
    listed = subprocess.run(["/bin/busybox", "--list"], capture_output=True, text=True, check=True).stdout.split()
    applets = [name for name in listed if name != "busybox"]
    found = [folder / "busybox.tar", folder / "pause.tar"]
    write_image(found[0], BUSYBOX, busybox_layer(applets), {"Cmd": ["/bin/sh"], "Env": ["PATH=/bin"]})
    write_image(found[1], PAUSE, busybox_layer(["sleep"]), {"Cmd": ["/bin/sleep", "1000000000"], "Env": ["PATH=/bin"]})
    return found


RUNTIME = "localhost/slurmbridge-runtime:test"


def runtime_image(folder: Path) -> Path:
    """What the Containerfile's runtime image has, assembled by hand from this checkout and its Python."""
    root, tree = Path(__file__).resolve().parents[2], folder / "runtime"
    subprocess.run([sys.executable, str(root / "images" / "bundle.py"), str(tree)], check=True)
    path = folder / "runtime.tar"
    write_image(path, RUNTIME, layer_of(tree), {"Cmd": ["/lib/ld.so"]})
    return path
