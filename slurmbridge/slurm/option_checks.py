"""Checks that sbatch, salloc and srun share once all options are known: what excludes what, what implies what."""
from __future__ import annotations

from slurmbridge.slurm import bindings, hostlist, tres
from slurmbridge.slurm.asking import Asking
from slurmbridge.slurm.hostfile import is_file_name, read_hostfile
from slurmbridge.slurm.option_values import EXIT_MINUS_ONE, ClientExit, OptionSet
from slurmbridge.slurm.words import Distribution, WordError

_ENV_PREFIX = {"sbatch": "SBATCH", "salloc": "SALLOC", "srun": "SLURM"}
_NOT_PER_TASK = ("mem", "energy", "node", "billing", "fs", "vmem", "pages", "bb")


def check_shared(opts: OptionSet, allow_core_spec: bool) -> Asking[None]:
    """In Slurm's order. Raises ClientExit."""
    _ntasks_per_gpu(opts)
    _specialized_cores(opts, allow_core_spec)
    _threads_per_core(opts)
    _memory(opts)
    if opts.by_cli("exclusive") and opts.by_cli("oversubscribe"):
        raise opts.log.fatal("--exclusive and --oversubscribe options are mutually exclusive")
    _tres_per_task(opts)
    _cpus_per_gpu(opts)
    yield from _node_list(opts)
    if is_arbitrary(opts) and opts["nodes_set"] and not opts.from_env("nodes"):
        opts.log.error("--nodes is incompatible with --distribution=arbitrary")
        raise ClientExit(1)
    _gres_flags(opts)


def is_arbitrary(opts: OptionSet) -> bool:
    return opts["distribution"] is not None and opts["distribution"].layout == "arbitrary"


def verbose_info(opts: OptionSet, text: str) -> None:
    if opts["verbose"]:
        opts.log.info(text)


def _ntasks_per_gpu(opts: OptionSet) -> None:
    per_tres, per_gpu = opts.by_cli("ntasks-per-tres"), opts.by_cli("ntasks-per-gpu")
    tres_env, gpu_env = opts.from_env("ntasks-per-tres"), opts.from_env("ntasks-per-gpu")
    if not (per_tres or per_gpu or tres_env or gpu_env):
        return
    gpu_value, tres_value = _shown(opts["ntasks_per_gpu"]), _shown(opts["ntasks_per_tres"])
    if per_gpu and per_tres:
        if gpu_value != tres_value:
            raise opts.log.fatal(f"Inconsistent values set to --ntasks-per-gpu={gpu_value} and "
                                 f"--ntasks-per-tres={tres_value} ")
    elif per_gpu and tres_env:
        verbose_info(opts, "Ignoring SLURM_NTASKS_PER_TRES since --ntasks-per-gpu given as command line option")
        opts.reset("ntasks-per-tres")
    elif per_tres and gpu_env:
        verbose_info(opts, "Ignoring SLURM_NTASKS_PER_GPU since --ntasks-per-tres given as command line option")
        opts.reset("ntasks-per-gpu")
    elif gpu_env and tres_env and gpu_value != tres_value:
        raise opts.log.fatal(f"Inconsistent values set by environment variables SLURM_NTASKS_PER_GPU={gpu_value} and "
                             f"SLURM_NTASKS_PER_TRES={tres_value} ")
    excluded = "is mutually exclusive with --ntasks-per-gpu and SLURM_NTASKS_PER_GPU"
    if opts.by_cli("tres-per-task"):
        raise opts.log.fatal(f"--tres-per-task {excluded}")
    if opts.from_env("tres-per-task") and "gres/gpu" in (opts["tres_per_task"] or ""):
        raise opts.log.fatal(f"SLURM_TRES_PER_TASK {excluded}")
    for name in ("gpus-per-task", "gpus-per-socket", "ntasks-per-node"):
        if opts.by_cli(name):
            raise opts.log.fatal(f"--{name} {excluded}")
        if opts.from_env(name):
            raise opts.log.fatal(f"SLURM_{name.upper().replace('-', '_')} {excluded}")


def _shown(value: int | None) -> int:
    """A number as C prints it; unset ones are NO_VAL."""
    return -2 if value is None else value


def _specialized_cores(opts: OptionSet, allowed: bool) -> None:
    if not opts.is_set("thread-spec") and not opts.is_set("core-spec"):
        return
    cli = opts.by_cli("core-spec") + opts.by_cli("thread-spec")
    if cli > 1:
        raise opts.log.fatal("-S/--core-spec and --thred-spec options are mutually exclusive")
    if not cli and opts.from_env("core-spec") and opts.from_env("thread-spec"):
        raise opts.log.fatal("Both --core-spec and --thread-spec set using environment variables. Those options are "
                             "mutually exclusive.")
    if not allowed:
        name = "--thread-spec" if opts["spec_is_threads"] else "-S"
        opts.log.error(f"Ignoring {name} since it's not allowed by configuration (AllowSpecResourcesUsage = No)")


def _threads_per_core(opts: OptionSet) -> None:
    if not opts.is_set("threads-per-core"):
        return
    if not opts.is_set("cpu-bind"):
        verbose_info(opts, "Setting --cpu-bind=threads as a default of --threads-per-core use")
        if opts.command == "srun":
            opts["cpu_bind"] = "threads"
    elif opts.command == "srun" and (opts["cpu_bind"] or "").lower() in ("v", "verbose"):
        verbose_info(opts, "Setting --cpu-bind=threads,verbose as a default of --threads-per-core use")
        opts["cpu_bind"] = "threads,verbose"
    elif opts["verbose"] > 1:
        opts.log.info("Not setting --cpu-bind=threads because of --threads-per-core since --cpu-bind already set by "
                      "cli option or environment variable")


_MEMORY = ("mem", "mem-per-cpu", "mem-per-gpu")


def _memory(opts: OptionSet) -> None:
    given = [name for name in _MEMORY if opts.by_cli(name)]
    if len(given) > 1:
        raise opts.log.fatal("--mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.")
    if given:
        for name in _MEMORY:
            if name != given[0]:
                opts.reset(name)
    elif sum(opts.from_env(name) for name in _MEMORY) > 1:
        raise opts.log.fatal("SLURM_MEM_PER_CPU, SLURM_MEM_PER_GPU, and SLURM_MEM_PER_NODE are mutually exclusive.")


def _tres_per_task(opts: OptionSet) -> None:
    lower = (opts["tres_per_task"] or "").lower()
    for name in _NOT_PER_TASK:
        if lower.startswith(name) or f",{name}" in lower:
            raise opts.log.fatal(f"Invalid TRES for --tres-per-task: {name}")
    for kind in ("license", "gres"):
        opts["tres_per_task"] = tres.canonical_kind(opts["tres_per_task"], kind)
    _gpus_per_task(opts)
    _merge_per_task(opts, opts["cpus_set"], opts["cpus_per_task"], "SLURM_CPUS_PER_TASK", "cpus-per-task", "cpu")
    cpus = next(iter(_items(opts, "cpu")), None)
    if cpus:
        opts["cpus_per_task"], opts["cpus_set"] = cpus.amount, True
    _bind_per_task(opts)


def _items(opts: OptionSet, kind: str) -> list[tres.Item]:
    found: list[tres.Item] = []
    try:
        found.extend(tres.items(opts["tres_per_task"], kind))
    except tres.TresError as wrong:
        if str(wrong):
            opts.log.error(str(wrong))
    return found


def _gpus_per_task(opts: OptionSet) -> None:
    text = opts["gpus_per_task"] or ""
    while text:
        separator = ":" if ":" in text else "=" if "=" in text else ""
        if separator:
            name, _, number = text.partition(separator)
            text = text.partition(",")[2]
            key = f"gres/gpu:{name}"
        else:
            number, text, key = text, "", "gres/gpu"
        _merge_per_task(opts, True, _leading(number), "SLURM_GPUS_PER_TASK", "gpus-per-task", key)
    opts["gpus_per_task"] = ",".join(
        f"{item.type}:{item.amount}" if item.type else str(item.amount) for item in _items(opts, "gres")) or None


def _leading(text: str) -> int:
    from slurmbridge.slurm.memory import leading_int
    return (leading_int(text) or (0, ""))[0]


def _merge_per_task(opts: OptionSet, is_set: bool, count: int, variable: str, option: str, key: str) -> None:
    """--cpus-per-task and --gpus-per-task are other words for --tres-per-task; both must agree."""
    text = opts["tres_per_task"]
    at = (text or "").lower().find(key.lower())
    if text is None or at < 0:
        if is_set:
            opts["tres_per_task"] = tres.replace_count(text, key, count)
        return
    if opts.by_cli(option) and opts.by_cli("tres-per-task"):
        raise opts.log.fatal(f"You can not have --tres-per-task={key}= and --{option} please use one or the other")
    if opts.by_cli(option) and opts.from_env("tres-per-task"):
        opts["tres_per_task"] = tres.replace_count(text, key, count)
        verbose_info(opts, f"Updating SLURM_TRES_PER_TASK to {opts['tres_per_task']} as --{option} takes precedence "
                           "over the environment variables.")
        return
    number = _leading(text[at + len(key) + 1:])
    if number <= 0:
        raise opts.log.fatal(f"Invalid --tres-per-task={key}={number}")
    both_env = opts.from_env(option) and opts.from_env("tres-per-task")
    if both_env and option == "cpus-per-task" and number != opts["cpus_per_task"]:
        raise opts.log.fatal(f"{option} set by two different environment variables {variable}={count} != "
                             f"SLURM_TRES_PER_TASK=cpu={number}")
    if opts.from_env(option) and opts.by_cli("tres-per-task"):
        verbose_info(opts, f"Ignoring {variable} since --tres-per-task={key}= was given as a command line option.")


def _bind_per_task(opts: OptionSet) -> None:
    """GRES per task are bound to their task unless the user said how."""
    parts = [opts["tres_bind"]] if opts["tres_bind"] else []
    gpus = 0
    for item in _items(opts, "gres"):
        if item.name and any(item.name in part for part in parts):
            continue
        if item.name == "gpu":
            gpus += item.amount
        else:
            parts.append(f"gres/{item.name}:per_task:{item.amount}")
    if gpus:
        parts.append(f"gres/gpu:per_task:{gpus}")
    opts["tres_bind"] = "+".join(parts) or None


def _cpus_per_gpu(opts: OptionSet) -> None:
    names = ["cpus-per-task"] + (["tres-per-task"] if "cpu" in (opts["tres_per_task"] or "").lower() else [])
    cli = any(opts.by_cli(name) for name in names)
    env = any(opts.from_env(name) for name in names)
    gpu_cli, gpu_env = opts.by_cli("cpus-per-gpu"), opts.from_env("cpus-per-gpu")
    if (cli and gpu_cli) or (env and gpu_env):
        raise opts.log.fatal("--cpus-per-task, --tres-per-task=cpu:#, and --cpus-per-gpu are mutually exclusive")
    if cli and gpu_env:
        verbose_info(opts, f"Ignoring {_ENV_PREFIX[opts.command]}_CPUS_PER_GPU since --cpus-per-task or "
                           "--tres-per-task=cpu:# given as command line option")
        opts.reset("cpus-per-gpu")
    elif gpu_cli and env:
        verbose_info(opts, "Ignoring cpus_per_task from the environment since --cpus-per-gpu was given as a command "
                           "line option")
        opts.reset("c")
        opts["tres_per_task"] = tres.replace_count(opts["tres_per_task"], "cpu", 0)


def hosts_wanted(opts: OptionSet) -> int | None:
    """How many names an arbitrary layout needs of a host file."""
    if opts["ntasks_set"]:
        return int(opts["ntasks"])
    if opts["nodes_set"]:
        return int(opts["max_nodes"] or opts["min_nodes"])
    return None


def resolve_file(opts: OptionSet, text: str) -> Asking[str]:
    """A host list, or the names in the file that it is (a name with a "/"). Raises ClientExit."""
    if not is_file_name(text):
        return text
    names = yield from read_hostfile(opts, text, hosts_wanted(opts) if is_arbitrary(opts) else None)
    if names is None:
        raise ClientExit(1)
    return names


def _node_list(opts: OptionSet) -> Asking[None]:
    if opts["nodefile"] is not None:
        names = yield from read_hostfile(opts, opts["nodefile"], None)
        if names is None:
            opts.log.error("Invalid --nodefile node file")
            raise ClientExit(EXIT_MINUS_ONE)
        opts["nodelist"] = names
    if opts["nodelist"]:
        opts["nodelist"] = yield from resolve_file(opts, opts["nodelist"])
        return
    path = opts.caller.env.get("SLURM_HOSTFILE")
    if path:
        before = opts["distribution"] or Distribution("")
        opts["distribution"] = before._replace(layout="arbitrary", plane_size=None)
        names = yield from read_hostfile(opts, path if "/" in path else "./" + path, hosts_wanted(opts))
        if names is None:
            opts.log.error("Failure getting NodeNames from hostfile")
            raise ClientExit(1)
        opts["nodelist"] = names


def node_names(opts: OptionSet, text: str) -> hostlist.Hostlist:
    """The -w list. Raises ClientExit."""
    try:
        return hostlist.parse(text)
    except hostlist.HostlistError as wrong:
        if str(wrong):
            opts.log.error(str(wrong))
        raise opts.log.fatal("Invalid node list specified") from None


def arbitrary_counts(opts: OptionSet) -> None:
    """An arbitrary layout has the tasks and nodes that its list names."""
    text = opts["nodelist"] or ""
    if not is_arbitrary(opts) or (opts["nodes_set"] and opts["ntasks_set"]) or "{" in text:
        return
    names = node_names(opts, text)
    if not opts["ntasks_set"]:
        opts["ntasks_set"], opts["ntasks"] = True, len(names)
    if not opts["nodes_set"]:
        opts["nodes_set"] = True
        names.unique()
        opts["min_nodes"] = opts["max_nodes"] = len(names)


def _gres_flags(opts: OptionSet) -> None:
    parameters = opts.caller.conf.get("SelectTypeParameters", "").upper()
    flags = set(opts["gres_flags"])
    if "disable-binding" not in flags and "ENFORCE_BINDING_GRES" in parameters:
        flags.add("enforce-binding")
    if "one-task-per-sharing" in flags:
        if not any(item.name in ("mps", "shard") for item in _items(opts, "gres")):
            raise opts.log.fatal("--gres-flags=one-task-per-sharing requested, but that shared gres needs to appear "
                                 "in --tres-per-task as well.")
    elif "multiple-tasks-per-sharing" not in flags and "ONE_TASK_PER_SHARING_GRES" in parameters:
        flags.add("one-task-per-sharing")
    opts["gres_flags"] = frozenset(flags)


_HINT_RIVALS = ("ntasks-per-core", "cores-per-socket", "sockets-per-node", "threads-per-core", "extra-node-info")


def apply_hint(opts: OptionSet, error_exit: int) -> None:
    """--hint, unless something more exact was said. Raises ClientExit."""
    if not opts["hint"]:
        return
    bound = opts.command == "srun" and opts["cpu_bind"] not in (None, "v", "verbose")
    rivals_cli = any(opts.by_cli(name) for name in _HINT_RIVALS) or (bound and opts.by_cli("cpu-bind"))
    env_names = ("ntasks-per-core", "threads-per-core", "extra-node-info")
    if opts.by_cli("hint"):
        if rivals_cli:
            verbose_info(opts, "Following options are mutually exclusive with --hint: --ntasks-per-core, "
                               "--cores-per-socket, --threads-per-core, --sockets-per-node, -B and --cpu-bind (other "
                               "than --cpu-bind=verbose). Ignoring --hint.")
            opts.reset("hint")
            return
        for key in ("ntasks-per-core", "threads-per-core", "cores-per-socket", "sockets-per-node", "B"):
            opts.reset(key)
        if bound:
            opts.reset("cpu-bind")
    elif rivals_cli:
        opts.reset("hint")
        return
    elif opts.from_env("hint") and (any(opts.from_env(name) for name in env_names)
                                    or (bound and opts.from_env("cpu-bind"))):
        verbose_info(opts, "Following options are mutually exclusive with --hint: --ntasks-per-core, "
                           "--cores-per-socket, --threads-per-core, --sockets-per-node, -B and --cpu-bind, but more "
                           "than one set by environment variables. Ignoring SLURM_HINT.")
        opts.reset("hint")
        return
    try:
        for field, value in bindings.parse_hint(opts["hint"]).items():
            opts[field] = value
    except bindings.HelpWanted as wanted:
        raise ClientExit(error_exit, str(wanted)) from None
    except WordError as wrong:
        for line in wrong.lines:
            opts.log.error(line)
        raise ClientExit(error_exit) from None
    if opts.command != "srun":
        opts.caller.env["SLURM_HINT"] = opts["hint"]
