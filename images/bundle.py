"""Assembles the runtime that is mounted into every job's pod at ``/slurmbridge``: ``python images/bundle.py FOLDER``.

It needs nothing of the user's image: an interpreter with its own loader and C library, those modules that a step
daemon can ever load (``preload`` knows them), compiled, and the users' commands as one static program. Run by the
Containerfile and by the tests; takes the Python that runs it apart, and needs ``ldd`` and a C compiler.

    lib/ld.so  lib/*.so*  lib/pythonX.Y/     libexec/python3     bin/srun …     app/start_*.py  app/slurmbridge/
    self -> .       (an interpreter does not find its library right below /)
"""
from __future__ import annotations

import os
import py_compile
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACE = "/slurmbridge"
"""Where pods have it."""
START = """\
import sys
sys.path.insert(0, __file__.rpartition("/")[0])
from slurmbridge.runtime import {module}
sys.exit({module}.main(sys.argv[1:]))
"""
LIST_MODULES = """\
import sys
sys.path.insert(0, {root!r})
from slurmbridge.runtime import deliver, pod, preload
preload.everything()
import ssl, slurmbridge.client.launcher, slurmbridge.client.https
for module in list(sys.modules.values()):
    name = getattr(getattr(module, "__spec__", None), "origin", None)
    if name and name.startswith("/"):
        print(name)
"""


def loaded_files() -> list[Path]:
    """Source and extension files of everything that a step daemon loads."""
    base = getattr(sys, "_base_executable", sys.executable)
    listed = subprocess.run([base, "-IBS", "-c", LIST_MODULES.format(root=str(ROOT))], capture_output=True, text=True,
                            check=True).stdout
    return sorted({Path(line) for line in listed.splitlines()})


def libraries(program: Path) -> dict[str, Path]:
    """Shared objects that a program or extension needs, by the name that it asks for; the loader among them."""
    found = {}
    for line in subprocess.run(["ldd", str(program)], capture_output=True, text=True).stdout.splitlines():
        arrow = re.match(r"\s*(\S+) => (/\S+)", line)
        loader = re.match(r"\s*(/\S*ld-\S+)", line)
        if arrow:
            found[arrow[1]] = Path(arrow[2])
        elif loader:
            found["ld.so"] = Path(loader[1])
    return found


def assemble(target: Path) -> None:
    """``target`` is made anew. Raises CalledProcessError or OSError."""
    shutil.rmtree(target, ignore_errors=True)
    library = Path(sysconfig.get_path("stdlib"))
    inside = target / "lib" / library.name
    needed: dict[str, Path] = {}
    interpreter = Path(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))
    _copy(interpreter, target / "libexec" / "python3")
    needed |= libraries(interpreter)
    for path in [*loaded_files(), library / "os.py"]:
        if path.is_relative_to(ROOT / "slurmbridge"):
            place = target / "app" / path.relative_to(ROOT)
        elif path.is_relative_to(library):
            place = inside / path.relative_to(library)
        else:
            raise OSError(f"{path} is neither ours nor the library's")
        if path.suffix == ".py":
            _compile(path, place)
        else:
            _copy(path, place)
            needed |= libraries(path)
    (inside / "lib-dynload").mkdir(exist_ok=True)
    for name, path in needed.items():
        _copy(path, target / "lib" / name)
    if shutil.which("strip"):
        subprocess.run(["strip", "--strip-unneeded", *map(str, (target / "lib").glob("*.so*"))], check=False)
    for module in ("pod", "deliver"):
        (target / "app" / f"start_{module}.py").write_text(START.format(module=module))
    _commands(target / "bin")
    (target / "self").symlink_to(".")


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(0o755 if os.access(source, os.X_OK) else 0o644)


def _compile(source: Path, target: Path) -> None:
    """The source for tracebacks, and bytecode that is taken without asking the clock: image layers have none."""
    _copy(source, target)
    cached = target.parent / "__pycache__" / f"{target.stem}.{sys.implementation.cache_tag}.pyc"
    py_compile.compile(str(source), str(cached), dfile=str(target.name), doraise=True,
                       invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)


def _commands(folder: Path) -> None:
    sys.path.insert(0, str(ROOT))
    from slurmbridge.client import install
    client = install.build_client(folder.parent / "client", f"{PLACE}/lib/ld.so", "--library-path", f"{PLACE}/lib",
                                  f"{PLACE}/libexec/python3", root=f"{PLACE}/app")
    if client is None:
        raise OSError("a C compiler is needed for the commands inside jobs")
    starter = install.build_starter(folder.parent / "libexec" / "slurmbridge")
    if starter is not None:
        starter.with_name(f"{starter.name}.key").unlink(missing_ok=True)
    folder.mkdir()
    for name in install.provided():
        os.link(client, folder / name)
    shutil.rmtree(client.parent)


if __name__ == "__main__":
    assemble(Path(sys.argv[1]).absolute())
