"""Ports that steps reserve for their MPI library (srun(1), --resv-ports; slurm.conf(5), MpiParams).

Slurm's controller keeps the range for all jobs. Here each job's step daemon does so for its own steps, and jobs begin
at different places of the range: two jobs of one machine may meet only where the range is small.
"""
from __future__ import annotations

import re

from slurmbridge.runtime.steptypes import StepRefused
from slurmbridge.slurm import errors

STRIDE = 61
"""Between the places where one job and the next begin."""


class PortBook:
    def __init__(self, mpi_params: str, job_id: int) -> None:
        found = re.search(r"ports=(\d+)-(\d+)", mpi_params or "")
        self._ports = range(int(found[1]), int(found[2]) + 1) if found else range(0)
        self._start = job_id * STRIDE
        self._used: set[int] = set()

    def take(self, wanted: int | None, most_tasks: int) -> tuple[int, ...]:
        """``wanted``: --resv-ports, None without; ``most_tasks``: of the step on one node. Raises StepRefused."""
        if wanted is None and not self._ports:
            return ()
        count = most_tasks + 1 if wanted is None else wanted
        if count > len(self._ports):
            raise StepRefused(errors.ESLURM_PORTS_INVALID, takes_number=True)
        size = len(self._ports)
        free = [port for port in (self._ports[(self._start + offset) % size] for offset in range(size))
                if port not in self._used]
        if count > len(free):
            raise StepRefused(errors.ESLURM_PORTS_BUSY, takes_number=True)
        taken = tuple(sorted(free[:count]))
        self._used.update(taken)
        return taken

    def give_back(self, ports: tuple[int, ...]) -> None:
        self._used.difference_update(ports)


def ports_text(ports: tuple[int, ...]) -> str:
    """``12000-12002,12005``, as in SLURM_STEP_RESV_PORTS."""
    runs: list[list[int]] = []
    for port in ports:
        if runs and runs[-1][1] == port - 1:
            runs[-1][1] = port
        else:
            runs.append([port, port])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
