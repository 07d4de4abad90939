"""What srun's own options put into the environment of its step (srun(1), OUTPUT ENVIRONMENT VARIABLES)."""
from __future__ import annotations

from slurmbridge.runtime.steptypes import StepRequest
from slurmbridge.slurm import bindings
from slurmbridge.slurm.mpi import mpi_type
from slurmbridge.slurm.option_values import OptionSet

DEFAULT_LOG_LEVEL = 3


def option_variables(opts: OptionSet, request: StepRequest, umask: int) -> dict[str, str]:
    """Variables that the options of one srun set; absent ones are left as srun found them."""
    env = opts.caller.env
    mpi = opts["mpi"] or opts.caller.conf.get("MpiDefault")
    found: dict[str, object] = {
        "SLURM_NTASKS_PER_NODE": opts["ntasks_per_node"],
        "SLURM_NTASKS_PER_SOCKET": opts["ntasks_per_socket"],
        "SLURM_NTASKS_PER_CORE": opts["ntasks_per_core"],
        "SLURM_NTASKS_PER_TRES": opts["ntasks_per_tres"] or opts["ntasks_per_gpu"],
        "SLURM_THREADS_PER_CORE": opts["threads_per_core"],
        "SLURM_CPUS_PER_TASK": opts["cpus_per_task"] if opts["cpus_set"] else None,
        "SLURM_TRES_PER_TASK": opts["tres_per_task"],
        "SLURM_DISTRIBUTION": _distribution(opts, request),
        "SLURM_DIST_PLANESIZE": request.distribution.plane_size or None,
        "SLURM_OVERCOMMIT": 1 if opts["overcommit"] else None,
        "SLURM_LABELIO": 1 if opts["label"] else None,
        "SLURM_NETWORK": opts["network"],
        "SLURM_MPI_TYPE": None if mpi_type(mpi, None) == "none" else mpi,
        "SLURM_JOB_NAME": opts["job_name"] or (opts.argv[0].rpartition("/")[2] if opts.argv else None),
        "SLURMD_DEBUG": 2,
        "SRUN_DEBUG": env.get("SRUN_DEBUG", str(DEFAULT_LOG_LEVEL + opts["verbose"] - opts["quiet"])),
        "SLURM_UMASK": env.get("SLURM_UMASK", f"{umask:04o}"),
        "SLURM_SUBMIT_DIR": env.get("SLURM_SUBMIT_DIR", opts.caller.cwd),
        "SLURM_PRIO_PROCESS": env.get("SLURM_PRIO_PROCESS", "0"),
        "SLURM_CPU_FREQ_REQ": opts["cpu_freq"],
        "SLURM_GPUS": opts["gpus"],
        "SLURM_GPUS_PER_NODE": opts["gpus_per_node"],
        "SLURM_GPUS_PER_SOCKET": opts["gpus_per_socket"],
        "SLURM_GPU_FREQ": opts["gpu_freq"],
        "SLURMD_TRES_FREQ": f"gpu:{opts['gpu_freq']}" if opts["gpu_freq"] else None,
        "SLURM_MEM_PER_GPU": opts["mem_per_gpu"],
        "SLURM_CPUS_PER_GPU": opts["cpus_per_gpu"] or None,
        "SLURM_TRES_BIND": opts["tres_bind"],
        "SLURMD_TRES_BIND": opts["tres_bind"],
    }
    bound = _UNBOUND if opts["external_launcher"] else _cpu_bind(opts) | _mem_bind(opts)
    return {name: str(value) for name, value in found.items() if value is not None} | bound


_UNBOUND = {f"SLURM_{what}_BIND{part}": value for what in ("CPU", "MEM") for part, value in (
    ("", "quiet,none"), ("_LIST", ""), ("_TYPE", "none"), ("_VERBOSE", "quiet"))}
"""Of a step of --external-launcher: what it starts binds itself."""


_HINT_UNITS = {"compute_bound": "cores", "memory_bound": "cores", "multithread": "threads", "nomultithread": "threads"}


def _cpu_bind(opts: OptionSet) -> dict[str, str]:
    """SLURM_CPU_BIND and its parts, when something binds: --cpu-bind, or tasks per core or socket."""
    bind = bindings.parse_cpu_bind(opts["cpu_bind"]) if opts["cpu_bind"] else bindings.CpuBind()
    unit = bind.unit or hinted_unit(opts)
    kind = f"{bind.kind}:" if bind.values else bind.kind
    if not (unit or kind or bind.verbose):
        return {}
    verbose = "verbose" if bind.verbose else "quiet"
    kinds = ",".join(part for part in (unit, kind) if part)
    return {"SLURM_CPU_BIND": f"{verbose},{kinds}{bind.values}" if kinds else verbose,
            "SLURM_CPU_BIND_LIST": bind.values, "SLURM_CPU_BIND_TYPE": kinds, "SLURM_CPU_BIND_VERBOSE": verbose}


def hinted_unit(opts: OptionSet) -> str:
    """What tasks are bound to where --cpu-bind does not say: by a hint, -B, or tasks per core or socket."""
    unit = _HINT_UNITS.get(opts["hint"] or "", "")
    if opts.is_set("extra-node-info"):        # -B: the smallest of what it names
        return "threads" if opts["threads_per_core"] else "cores" if opts["cores_per_socket"] else "sockets"
    if not unit and opts["ntasks_per_core"]:
        return "cores" if opts["ntasks_per_core"] == 1 else "threads"
    return "sockets" if not unit and opts["ntasks_per_socket"] else unit


def _mem_bind(opts: OptionSet) -> dict[str, str]:
    bind: bindings.MemBind | None = opts["mem_bind"]
    if bind is None:
        return {}
    verbose = "verbose" if bind.verbose else "quiet"
    kind = f"{bind.kind}:" if bind.values else bind.kind
    kinds = ",".join(part for part in ("prefer" if bind.prefer else "", kind) if part)
    return {"SLURM_MEM_BIND": f"{verbose},{kinds}{bind.values}" if kinds else verbose,
            "SLURM_MEM_BIND_LIST": bind.values, "SLURM_MEM_BIND_TYPE": kinds, "SLURM_MEM_BIND_VERBOSE": verbose}


def _distribution(opts: OptionSet, request: StepRequest) -> str | None:
    """None where srun left the layout to the step manager."""
    words = opts["distribution"]
    layout = words.layout if words else ""
    if not layout and request.whole_memory:
        return None
    text = layout or request.distribution.base
    pack = words.pack if words else ""
    return ",".join(part for part in (text, {"pack": "Pack", "nopack": "NoPack"}.get(pack, "")) if part)


def step_umask(env: dict[str, str], umask: int) -> int:
    """The tasks' umask: of the outermost srun (SLURM_UMASK), else srun's own."""
    text = env.get("SLURM_UMASK", "")
    return int(text, 8) & 0o777 if text and all("0" <= char <= "7" for char in text) else umask
