"""NodeRecords for engines whose nodes exist only on paper: from slurm.conf, or shaped after this machine."""
from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path

from slurmbridge.slurm.settings import SlurmConf
from slurmbridge.views.records import NodeRecord

MB = 1 << 20


def nodes_from_conf(conf: SlurmConf, now_s: float | None = None) -> list[NodeRecord]:
    """One record a NodeName, in file order, with its configured state (partitions are the controller's to fill in)."""
    now = time.time() if now_s is None else now_s
    records = []
    for line in conf.nodes.values():
        state, *flags = line.state.upper().replace("DRAINED", "DRAIN").replace("DRAINING", "DRAIN").split("+")
        record = NodeRecord(
            name=line.name, cpus=line.cpus, boards=line.boards, sockets=line.sockets,
            cores_per_socket=line.cores_per_socket, threads_per_core=line.threads_per_core,
            real_memory_mb=line.real_memory_mb, tmp_disk_mb=line.tmp_disk_mb, weight=line.weight,
            features=line.features, gres=dict(line.gres), gres_text=line.gres_text,
            address=line.address or line.name, host_name=line.host_name or line.name, port=line.port,
            reason=line.reason, boot_s=boot_time_s(), daemon_start_s=now, last_busy_s=now)
        if state in ("DOWN", "FUTURE"):
            record.base_state = state
        elif state in ("DRAIN", "FAIL"):
            record.flags.add(state)
        record.flags |= set(flags)
        records.append(record)
    return describe(records)


def nodes_of_this_machine(names: Sequence[str]) -> list[NodeRecord]:
    """Virtual nodes, each with the processors and memory of this machine."""
    cpus, memory_mb = machine_shape()
    now = time.time()
    return describe([
        NodeRecord(name=name, cpus=cpus, sockets=1, cores_per_socket=cpus, real_memory_mb=memory_mb, address=name,
                   host_name=name, boot_s=boot_time_s(), daemon_start_s=now, last_busy_s=now) for name in names])


def machine_shape() -> tuple[int, int]:
    """(usable processors, memory in MB)."""
    cpus = len(os.sched_getaffinity(0))
    return cpus, max(1, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // MB)


def boot_time_s() -> float:
    try:
        for line in Path("/proc/stat").read_text().splitlines():
            if line.startswith("btime "):
                return float(line.split()[1])
    except OSError:
        pass
    return 0.0


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
