"""Container images without a registry: docker-save tars of one layer, written by hand."""
from __future__ import annotations

import compileall
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
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


def layer_of(folder: Path, *, keeps_times: bool = False) -> bytes:
    """Everything below a folder, owned by root, times cleared: equal folders give equal layers. ``keeps_times``: Python
    takes bytecode only beside a source of the time that is written in it."""
    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mtime = int(entry.mtime) if keeps_times else 0
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


CONTROLLER = "localhost/slurmbridge:test"
_PACKAGES = """
    numpy numpy.libs sqlalchemy alembic mako markupsafe pydantic pydantic_core annotated_types
    typing_inspection typing_extensions.py yaml _yaml typer click rich shellingham markdown_it
    mdurl pygments kubernetes certifi urllib3 six.py dateutil websocket requests
    charset_normalizer idna requests_oauthlib oauthlib durationpy aiohttp aiohappyeyeballs aiosignal attr
    attrs frozenlist multidict propcache yarl msgspec greenlet psycopg psycopg_binary
    psycopg_binary.libs google annotated_doc""".split()
"""What of the checkout's site-packages a controller imports; names that are not there are of other versions."""
_OURS = ("slurmbridge", "schedulers")
_UNUSED = shutil.ignore_patterns(
    "test", "tests", "*.opt-?.pyc", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3", "config-3*",
    "site-packages", "*.a", "*.py[ix]", "_tkinter*", "_test*")

_UNUSED_HERE = shutil.ignore_patterns("test", "tests", "*.a", "*.py[ix]")


def _link(source: str, target: str) -> None:
    """A copy that writes nothing, where that can be."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def controller_image(folder: Path) -> Path:
    """What the Containerfile's controller image has, by hand: this Python with its libraries, the packages that the
    controller needs, this checkout, and busybox for a system."""
    root, tree, path = Path(__file__).resolve().parents[2], folder / "controller", folder / "controller.tar"
    if path.exists() and all(one.stat().st_mtime < path.stat().st_mtime for part in _OURS
                             for one in (root / part).rglob("*.py")):
        return path
    shutil.rmtree(tree, ignore_errors=True)
    library, packages = Path(sysconfig.get_path("stdlib")), Path(sysconfig.get_path("purelib"))
    version = library.name
    site = tree / "usr/local/lib" / version / "site-packages"
    shutil.copytree(library, tree / "usr/local/lib" / version, ignore=_UNUSED, symlinks=True,
                    copy_function=_link)
    site.mkdir()
    for name in _PACKAGES:
        if (packages / name).is_dir():
            shutil.copytree(packages / name, site / name, ignore=_UNUSED_HERE, copy_function=_link)
        elif (packages / name).exists():
            shutil.copy(packages / name, site / name)
    for info in packages.glob("psycopg*.dist-info"):       # it asks for its own version
        shutil.copytree(info, site / info.name)
    source = tree / "opt/slurmbridge"
    for part in _OURS:
        compileall.compile_dir(str(root / part), quiet=2)
        shutil.copytree(root / part, source / part, copy_function=_link)
    (site / "slurmbridge.pth").write_text("/opt/slurmbridge\n/opt/slurmbridge/schedulers\n")
    _entry_points(root, site)
    binaries = tree / "usr/local/bin"
    binaries.mkdir(parents=True)
    shutil.copy(Path(getattr(sys, "_base_executable", sys.executable)).resolve(), binaries / "python3")
    (binaries / "slurmbridge").write_text("#!/usr/local/bin/python3\nfrom slurmbridge.admin import main\nmain()\n")
    (binaries / "slurmbridge").chmod(0o755)
    subprocess.run([sys.executable, str(root / "images" / "commands.py"), str(source / "bin")], check=True)
    for command in (source / "bin").iterdir():
        (binaries / command.name).symlink_to(f"/opt/slurmbridge/bin/{command.name}")
    _system(tree)
    _libraries(tree)
    write_image(path, CONTROLLER, layer_of(tree, keeps_times=True), {
        "Entrypoint": ["/usr/local/bin/slurmbridge", "up", "--foreground"],
        "Env": ["PATH=/usr/local/bin:/bin", "PYTHONDONTWRITEBYTECODE=1"]})
    shutil.rmtree(tree)
    return path


def _entry_points(root: Path, site: Path) -> None:
    """How the scheduler plugins are found, as pip would write it."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    info = site / f"slurmbridge-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: slurmbridge\nVersion: {project['version']}\n")
    (info / "entry_points.txt").write_text("".join(
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
        for group, entries in project["entry-points"].items()))


def _system(tree: Path) -> None:
    for name, mode in (("bin", 0o755), ("etc", 0o755), ("tmp", 0o1777), ("root", 0o700), ("var/lib", 0o755)):
        (tree / name).mkdir(parents=True, exist_ok=True)
        (tree / name).chmod(mode)
    shutil.copy("/bin/busybox", tree / "bin" / "busybox")
    (tree / "bin" / "busybox").chmod(0o4755)               # su
    for applet in subprocess.run(["/bin/busybox", "--list"], capture_output=True, text=True, check=True).stdout.split():
        if applet != "busybox":
            (tree / "bin" / applet).symlink_to("busybox")
    (tree / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (tree / "etc" / "group").write_text("root:x:0:\n")


def _libraries(tree: Path) -> None:
    """Shared objects of everything that is there, where the loader looks by itself."""
    programs = [path for path in tree.rglob("*") if path.is_file() and not path.is_symlink() and (
        ".so" in path.name or path.name in ("python3", "bash"))]
    listed = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True).stdout
    for found in sorted(set(re.findall(r"(/\S+) \(0x", listed))):
        standard = found.startswith(("/lib", "/usr/lib"))
        place = tree / (found.lstrip("/") if standard else f"usr/lib/{Path(found).name}")
        if not found.startswith(str(tree)) and not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(found, place)
            subprocess.run(["strip", "--strip-unneeded", str(place)], capture_output=True)


BASH = "localhost/bash:1"


def bash_image(folder: Path) -> Path:
    """Busybox, and the bash that batch scripts usually begin with."""
    tree = folder / "bash"
    shutil.rmtree(tree, ignore_errors=True)
    _system(tree)
    shutil.copy("/bin/bash", tree / "bin" / "bash")
    _libraries(tree)
    path = folder / "bash.tar"
    write_image(path, BASH, layer_of(tree), {"Cmd": ["/bin/bash"], "Env": ["PATH=/bin"]})
    return path
