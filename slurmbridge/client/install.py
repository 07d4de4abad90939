"""Puts the users' commands into a folder: ``python -m slurmbridge.client.install .venv/bin``.

Where a C compiler is at hand, all commands are hard links of one small static program (``slurmbridge.c``); elsewhere
they are Python launchers, started by an interpreter that every user of the machine may execute. Doing it again
changes nothing and takes no time.
"""
from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

from slurmbridge.client.launcher import SLURM_VERSION

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
COMMANDS = ("sacct", "sacctmgr", "salloc", "sattach", "sbatch", "sbcast", "scancel", "scontrol", "sdiag", "sinfo",
            "sprio", "squeue", "sreport", "srun", "sshare", "sstat", "strigger")
LAUNCHER = """#!{python} -IS
import sys
sys.path.insert(0, {root!r})
from slurmbridge.client.launcher import main
main()
"""
OLDEST = (3, 11)


def provided(commands: Path = HERE.parent / "commands") -> list[str]:
    """The commands whose server side exists."""
    return [name for name in COMMANDS if (commands / f"{name}.py").exists()]


def others_may_execute(path: str) -> bool:
    """Whether a user who is neither its owner nor in its group can start this program."""
    place = Path(os.path.realpath(path))
    return bool(place.stat().st_mode & stat.S_IXOTH) and all(p.stat().st_mode & stat.S_IXOTH for p in place.parents)


def everybodys_python() -> str:
    """An interpreter of our version or newer that every user may start; this one where there is none."""
    own = os.path.realpath(sys.executable)
    names = ["python3", *(f"python3.{minor}" for minor in range(20, OLDEST[1] - 1, -1))]
    for path in [own, *(f"{folder}/{name}" for folder in ("/usr/bin", "/usr/local/bin") for name in names)]:
        if not os.path.exists(path) or not others_may_execute(path):
            continue
        check = [path, "-ISc", f"import sys, ssl, resource; sys.exit(sys.version_info < {OLDEST})"]
        if subprocess.run(check, capture_output=True).returncode == 0:
            return path
    return own


def build_client(folder: Path, *python: str, root: str = str(ROOT)) -> Path | None:
    """The compiled client; None without a working compiler. ``python``: the words that start one; ``root``: the folder
    of the package for it."""
    words = ",".join(f'"{word}"' for word in python)
    return _build(HERE / "slurmbridge.c", folder / "client",
                  [f'-DSLURM_VERSION="{SLURM_VERSION}"', f"-DPYTHON={words}", f'-DROOT="{root}"'])


def build_starter(folder: Path) -> Path | None:
    """What starts tasks, under the name that runtime/execution.py knows; None without a working compiler."""
    return _build(HERE.parent / "runtime" / "starter.c", folder / "starter-3", [])


def _build(source: Path, program: Path, flags: list[str]) -> Path | None:
    """Built when its source or its flags changed; it must answer ``-V`` with success."""
    compiler = os.environ.get("CC") or next(filter(None, map(shutil.which, ("cc", "gcc", "clang", "tcc"))), None)
    if compiler is None:
        return None
    key = hashlib.sha256(source.read_bytes() + repr((compiler, flags)).encode()).hexdigest()
    stamp = program.with_name(f"{program.name}.key")
    if program.exists() and stamp.exists() and stamp.read_text() == key:
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    new = program.with_name(f"{program.name}.{os.getpid()}")
    for static in (["-static"], []):
        done = subprocess.run([compiler, "-O2", *flags, *static, "-o", str(new), str(source)], capture_output=True)
        if done.returncode == 0 and subprocess.run([str(new), "-V"], capture_output=True).returncode == 0:
            new.chmod(0o755)
            new.rename(program)
            stamp.write_text(key)
            return program
    new.unlink(missing_ok=True)
    return None


def replace(target: Path, make) -> None:  # type: ignore[no-untyped-def]
    """Makes ``target`` anew by rename, so that a command that is being started finds the old or the new one."""
    new = target.with_name(f".{target.name}.{os.getpid()}")
    make(new)
    new.rename(target)


def client_link(client: Path):  # type: ignore[no-untyped-def]
    return lambda new: os.link(client, new)


def install(folder: Path) -> list[str]:
    """The names installed into ``folder``."""
    python = everybodys_python()
    programs = folder.parent / "libexec" / "slurmbridge"
    client = build_client(programs, python)
    build_starter(programs)
    launcher = LAUNCHER.format(python=python, root=str(ROOT))
    names = provided()
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        target = folder / name
        if client is not None:
            if not target.exists() or not target.samefile(client):
                replace(target, client_link(client))
        elif not target.is_file() or target.read_bytes() != launcher.encode():
            def write(new: Path) -> None:
                new.write_text(launcher)
                new.chmod(0o755)
            replace(target, write)
    for name in set(COMMANDS) - set(names):
        (folder / name).unlink(missing_ok=True)
    return names


if __name__ == "__main__":
    target_folder = Path(sys.argv[1])
    print(f"{len(install(target_folder))} commands in {target_folder}")
