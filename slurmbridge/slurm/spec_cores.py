"""Cores of a node that the system keeps for itself (CoreSpecCount and CPUSpecList, slurm.conf(5))."""
from __future__ import annotations

from slurmbridge.slurm import array
from slurmbridge.slurm.hostlist import HostlistError, expand


def specialized(count: int, cpu_list: str, sockets: int, cores_per_socket: int, threads: int) -> tuple[int, ...]:
    """Core numbers: those of the listed CPUs, else ``count`` of them, the last core of each socket in turn."""
    if cpu_list:
        try:
            cpus = [int(word) for word in expand(f"[{cpu_list}]")]
        except (HostlistError, ValueError):
            return ()
        return tuple(sorted({cpu // max(threads, 1) for cpu in cpus if cpu < sockets * cores_per_socket * threads}))
    order = [socket * cores_per_socket + core for core in range(cores_per_socket - 1, -1, -1)
             for socket in range(sockets - 1, -1, -1)]
    return tuple(sorted(order[:count]))


def cpu_list(cores: tuple[int, ...], threads: int) -> str:
    """As CPUSpecList shows them."""
    return array.ranges([core * threads + thread for core in cores for thread in range(threads)])
