"""Which MPI types srun --mpi may be on this machine."""
from __future__ import annotations

import glob
import os
import re

LIBRARY_VARIABLE = "SLURMBRIDGE_LIBPMIX"
_PMIX_PLACES = ("/usr/lib/*/libpmix.so.2", "/usr/lib64/libpmix.so.2", "/usr/lib/libpmix.so.2",
                "/usr/local/lib/libpmix.so.2", "/usr/lib/*/pmix*/lib/libpmix.so.2", "/opt/pmix/lib/libpmix.so.2")
_READ_BYTES = 4 << 20
_PMIX = re.compile(r"pmix(_v[3-9])?")


def pmix_library() -> str | None:
    """The PMIx library that serves tasks: that of the environment, or the system's; None where there is none."""
    given = os.environ.get(LIBRARY_VARIABLE)
    if given:
        return given
    return next((found for place in _PMIX_PLACES for found in sorted(glob.glob(place))), None)


def mpi_types() -> tuple[str, ...]:
    """What ``srun --mpi=list`` shows."""
    return ("none", "pmi2", "pmix") if pmix_library() else ("none", "pmi2")


def needed_by(program: str) -> str | None:
    """The type that an executable needs by the MPI library it is linked with: Open MPI ``pmix``, MPICH ``pmi2``.

    None for everything else: scripts, programs that load their library later, files that cannot be read.
    """
    try:
        with open(program, "rb") as file:
            start = file.read(_READ_BYTES)
    except OSError:
        return None
    if not start.startswith(b"\x7fELF"):
        return None
    return "pmix" if b"\0libmpi.so.40\0" in start else "pmi2" if b"\0libmpi.so.12\0" in start else None


def mpi_type(chosen: str | None, default: str | None) -> str:
    """``none`` where nothing is to be done for MPI (``openmpi`` has long meant the same); ``pmix`` for all versions."""
    name = chosen or default or "none"
    if name == "openmpi":
        return "none"
    return "pmix" if _PMIX.fullmatch(name) else name
