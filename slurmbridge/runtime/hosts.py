"""Virtual nodes by name: processes of jobs see an /etc/hosts in which every node is this machine.

So that ``MASTER_ADDR=$(scontrol show hostnames | head -1)`` and its like find the head node. It takes a mount
namespace, thus a spawner that runs as root and may make one; elsewhere the names stay unknown.
"""
from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable

FILE_NAME = "hosts"
SYSTEM_FILE = "/etc/hosts"
ADDRESS = "127.0.0.1"
CLONE_NEWNS = 0x20000
MS_BIND, MS_REC, MS_SLAVE = 0x1000, 0x4000, 0x80000


def write(directory: str, names: Iterable[str], system_file: str = SYSTEM_FILE) -> None:
    """The machine's own file with the nodes that it does not know, as ``directory``/hosts. Raises OSError."""
    try:
        with open(system_file, encoding="utf-8", errors="surrogateescape") as file:
            known = file.read()
    except FileNotFoundError:
        known = ""
    words = {word for line in known.splitlines() for word in line.partition("#")[0].split()[1:]}
    path = os.path.join(directory, FILE_NAME)
    with open(path + ".new", "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(known if known.endswith("\n") or not known else known + "\n")
        file.writelines(f"{ADDRESS} {name}\n" for name in names if name not in words)
    os.chmod(path + ".new", 0o644)
    os.replace(path + ".new", path)


def enter(directory: str) -> None:
    """From now on this process and its children read ``directory``/hosts as the machine's file, where that may be."""
    path = os.path.join(directory, FILE_NAME)
    if os.geteuid() != 0 or not os.path.exists(path) or not os.path.exists(SYSTEM_FILE):
        return
    libc = ctypes.CDLL(None)
    if libc.unshare(CLONE_NEWNS) == 0 and libc.mount(None, b"/", None, MS_REC | MS_SLAVE, None) == 0:
        libc.mount(os.fsencode(path), SYSTEM_FILE.encode(), None, MS_BIND, None)
