"""What nodes that are all this machine have in common: its architecture, load and free memory."""
from __future__ import annotations

import os
import platform
from pathlib import Path

from slurmbridge.views.records import NodeRecord


def free_memory_mb() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemFree:"):
                return int(line.split()[1]) // 1024
    except OSError:
        pass
    return None


def describe(records: list[NodeRecord]) -> list[NodeRecord]:
    """Fills in what is this machine's: architecture, operating system, load, free memory."""
    system = f"{platform.system()} {platform.release()} {platform.version()}"
    load, free_mb = os.getloadavg()[0], free_memory_mb()
    for record in records:
        record.arch, record.os, record.cpu_load, record.free_mem_mb = platform.machine(), system, load, free_mb
    return records
