"""Imports everything a step daemon may ever need: after it has become the user, the library may be out of reach."""
from __future__ import annotations

import encodings.idna
import importlib
import pkgutil

import slurmbridge.runtime
import slurmbridge.slurm

LIBRARY = (
    "asyncio.base_events", "asyncio.selector_events", "asyncio.unix_events", "asyncio.streams", "asyncio.timeouts",
    "ctypes", "datetime", "encodings.ascii", "encodings.utf_8", "encodings.latin_1", "fcntl", "grp", "hmac", "json",
    "linecache", "logging", "pty", "pwd", "resource", "select", "selectors", "shlex", "socket", "stat", "string",
    "termios", "textwrap", "traceback", "tty", "_strptime", "locale",
)


def everything() -> None:
    assert encodings.idna
    for name in LIBRARY:
        importlib.import_module(name)
    for package in (slurmbridge.runtime, slurmbridge.slurm):
        for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    "warm".encode("idna")
