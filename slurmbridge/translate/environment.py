"""The environment that a batch job starts with: ``--export``, ``--export-file``, and what sbatch adds of its own."""
from __future__ import annotations

from collections.abc import Mapping, MutableMapping

from slurmbridge.slurm.asking import Asking
from slurmbridge.slurm.option_texts import split_tokens
from slurmbridge.slurm.option_values import ClientExit, OptionSet
from slurmbridge.translate.call import Call

PROPAGATED = ("CPU", "FSIZE", "DATA", "STACK", "CORE", "RSS", "NPROC", "NOFILE", "MEMLOCK", "AS")
"""The resource limits Slurm knows, in its order."""
_NOT_FROM_FILE = ("DISPLAY", "ENVIRONMENT", "HOSTNAME")
_MAX_NAME, _MAX_VALUE = 255, 256 * 1024 - 1


def propagated_limits(opts: OptionSet, call: Call, error_exit: int) -> dict[str, int]:
    """Soft limits by name as --propagate (or PropagateResourceLimits) selects them. Raises ClientExit."""
    names = selected_limits(opts["propagate"]) if opts["propagate"] else None
    if isinstance(names, str):
        opts.log.error(f"Bad rlimit name: {names}")
        opts.log.error(f"--propagate={opts['propagate']} is not valid.")
        raise ClientExit(error_exit)
    if names is None:
        conf = call.conf
        if conf.propagate_resource_limits_except:
            excluded = selected_limits(conf.propagate_resource_limits_except)
            names = [n for n in PROPAGATED if n not in excluded]
        else:
            chosen = selected_limits(conf.propagate_resource_limits or "ALL")
            names = [] if isinstance(chosen, str) else chosen
    return {name: call.rlimits[name][0] for name in names if name in call.rlimits}


def selected_limits(text: str) -> list[str] | str:
    """Names of a ``--propagate`` value; the bad one where one is."""
    if text == "ALL":
        return list(PROPAGATED)
    if text == "NONE":
        return []
    words = [word.removeprefix("RLIMIT_") for word in text.replace(",", " ").split()]
    return next((word for word in words if word not in PROPAGATED), [n for n in PROPAGATED if n in words])


def submit_variables(call: Call, env: MutableMapping[str, str], umask: int) -> None:
    """What sbatch puts into its own environment before it copies it."""
    env["SLURM_PRIO_PROCESS"] = env.get("SLURM_PRIO_PROCESS", "0")
    env["SLURM_SUBMIT_DIR"] = call.cwd
    env["SLURM_SUBMIT_HOST"] = call.host
    env.setdefault("SLURM_UMASK", f"0{umask >> 6 & 7}{umask >> 3 & 7}{umask & 7}")


def umask_of(env: Mapping[str, str], default: int) -> int:
    """SLURM_UMASK as slurmd reads it: octal, as far as it is."""
    digits = ""
    for char in env.get("SLURM_UMASK", ""):
        if char not in "01234567":
            break
        digits += char
    return int(digits, 8) & 0o7777 if digits else default


def job_environment(opts: OptionSet) -> Asking[dict[str, str]]:
    """The environment as ``--export`` selects it. Sets get_user_env. Raises ClientExit."""
    env, result = opts.caller.env, dict[str, str]()
    if opts["export_file"]:
        result = yield from _from_file(opts, opts["export_file"])
    export = opts["export"]
    if export is None or export.upper() == "ALL":
        result.update(_clean(env))
    elif export.upper() in ("NIL", "NONE"):
        result.update(_slurm_only(env))
    else:
        for token in _tokens(opts, export):
            if token.upper() == "ALL":
                result.update(_clean(env))
            elif "=" in token:
                name, _, value = token.partition("=")
                result[name] = value
            elif token in env:
                result[token] = env[token]
        result.update(_slurm_only(env))
    if export is not None and export.upper() not in ("ALL", "NIL"):
        opts["get_user_env"] = True
    if opts["get_user_env"]:
        result["SLURM_GET_USER_ENV"] = "1"
    result.pop("SLURM_UMASK", None)           # slurmd uses it up
    return result


def _clean(env: Mapping[str, str]) -> dict[str, str]:
    """Slurm drops what does not fit its buffers."""
    return {name: value for name, value in env.items() if len(name) <= _MAX_NAME and len(value) <= _MAX_VALUE}


def _slurm_only(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(("SLURM", "_SLURM_SPANK_OPTION_"))}


def _tokens(opts: OptionSet, text: str) -> list[str]:
    tokens, rest = split_tokens(text)
    if rest:
        opts.log.error(f"Improperly formed environment variable ({rest})")
    return tokens


def _from_file(opts: OptionSet, path: str) -> Asking[dict[str, str]]:
    """NAME=value entries, each ended by a NUL byte. ``path`` may be the number of an open file descriptor."""
    is_descriptor = path.isdigit() and int(path) > 2      # of sbatch's own: its client reads it
    data = yield f"/proc/self/fd/{path}" if is_descriptor else path
    if isinstance(data, OSError):
        opts.log.error(f"Could not open user environment file {path}")
        raise ClientExit(1)
    result: dict[str, str] = {}
    for entry in data.decode("utf-8", "surrogateescape").split("\0")[:-1]:
        if not entry:
            break
        name, equals, value = entry.partition("=")
        if equals and name not in _NOT_FROM_FILE:
            result[name] = value
            if name == "SLURM_SUBMIT_DIR":
                opts.caller.env.pop(name, None)
    return result


def option_variables(opts: OptionSet, group: int | None) -> dict[str, str]:
    """What the job's environment tells of GPUs and tasks, so that its steps inherit it."""
    ending = "" if group is None else f"_HET_GROUP_{group}"
    pairs = (("CPUS_PER_GPU", opts["cpus_per_gpu"] or None), ("GPUS", opts["gpus"]), ("GPU_FREQ", opts["gpu_freq"]),
             ("GPUS_PER_NODE", opts["gpus_per_node"]), ("GPUS_PER_SOCKET", opts["gpus_per_socket"]),
             ("MEM_PER_GPU", opts["mem_per_gpu"]), ("TRES_PER_TASK", opts["tres_per_task"]),
             ("TRES_BIND", opts["tres_bind"]))
    return {f"SLURM_{name}{ending}": str(value) for name, value in pairs if value is not None}


def launcher_variables(env: Mapping[str, str], mpi_params: str) -> dict[str, str]:
    """So that mpirun inside the job starts its daemons through srun."""
    result = {"OMPI_MCA_plm_slurm_args": "--external-launcher", "PRTE_MCA_plm_slurm_args": "--external-launcher"}
    for variable, extra in (("HYDRA_BOOTSTRAP", "HYDRA_LAUNCHER_EXTRA_ARGS"),
                            ("I_MPI_HYDRA_BOOTSTRAP", "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS")):
        chosen = env.get(variable)
        if chosen == "slurm" or (chosen is None and "disable_slurm_hydra_bootstrap" not in mpi_params):
            result |= {variable: "slurm", extra: "--external-launcher"}
    return result
