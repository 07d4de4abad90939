"""srun's reading of its environment and command line, inside an allocation or outside (srun(1)).

One OptionSet a component (``srun a : b``, ``--het-group=0,2``). Needs no controller, so that the step launcher inside
a pod and the server use the same code.
"""
from __future__ import annotations

import re

from slurmbridge.slurm import bindings, hostlist
from slurmbridge.slurm import option_checks as checks
from slurmbridge.slurm.asking import Asking
from slurmbridge.slurm.getopt import Parser
from slurmbridge.slurm.mpi import mpi_types
from slurmbridge.slurm.option_reading import print_options, read_environment, read_options
from slurmbridge.slurm.option_sizes import nodes_of_list, plausible, tasks_per_core
from slurmbridge.slurm.option_values import Caller, ClientExit, Log, OptionSet
from slurmbridge.slurm.options import table_of
from slurmbridge.slurm.words import WordError

MAX_HET_COMPONENTS = 128


def read_srun(caller: Caller, argv: list[str], log: Log, error_exit: int = 1) -> Asking[list[OptionSet]]:
    """``argv`` without the command's name; each result's ``argv`` is the command to run. Raises ClientExit."""
    opts = OptionSet("srun", caller, log)
    result: list[OptionSet] = []
    args, program, group = argv, "srun", 0
    first_mpi = None
    while True:
        groups, explicit = _het_groups(opts, args, group, error_exit)
        end = 0
        for number in groups:
            opts.reset_all(first=not result)
            opts["stepmgr"] = False
            opts["het_group"] = str(number) if explicit or number > 0 else None
            read_environment(opts, number)
            opts.submit_line = " ".join([program, *args])
            end = read_options(opts, program, args)
            if opts["wait_for_children"] and "cgroup" not in caller.conf.get("ProctrackType", "proctrack/cgroup"):
                raise log.fatal("--wait-for-children only compatible with proctrack/cgroup plugin")
            if not result:
                _forget_job_size(opts, args[end:])
            _take_command(opts, args, end, len(result), first_mpi, error_exit)
            first_mpi = first_mpi or opts["mpi"]
            yield from _multi_prog(opts, error_exit)
            opts.parsed = opts.shown()
            yield from _verify(opts, error_exit)
            if opts["verbose"]:
                print_options(opts)
            result.append(opts.copy())
        if len(result) > 1:                   # the first component's --het-group goes on to the second, as in Slurm
            opts["het_group"] = None
        rest = args[end:]
        if ":" not in rest:
            _settle_components(result, log)
            return result
        args, program, group = rest[rest.index(":") + 1:], ":", group + 1


def _forget_job_size(opts: OptionSet, rest: list[str]) -> None:
    """Components within one job get nodes of their own, not as many as the job has."""
    env = opts.caller.env
    if ":" in rest and "SLURM_JOB_ID" in env and "SLURM_HET_SIZE" not in env:
        env.pop("SLURM_JOB_NUM_NODES", None)
        if opts.from_env("nodes"):
            opts["nodes_set"], opts["min_nodes"], opts["max_nodes"] = False, 1, 0


def _settle_components(components: list[OptionSet], log: Log) -> None:
    """A component without a command runs that of the next one that has one; no group may come twice."""
    waiting: list[OptionSet] = []
    groups: set[int] = set()
    for opts in components:
        if opts.argv:
            for other in waiting:
                other.argv = list(opts.argv)
            waiting = []
        else:
            waiting.append(opts)
        number = int(opts["het_group"] or 0)
        if number in groups:
            raise log.fatal("Duplicate het groups in single srun not supported")
        groups.add(number)


def _het_groups(opts: OptionSet, args: list[str], default: int, error_exit: int) -> tuple[list[int], bool]:
    """The components that --het-group names, else the next one. Mistakes in other options are told later."""
    parser = Parser("srun", args, table_of("srun"))
    while (item := parser.next()) is not None:
        if item[0] != "?":
            opts.process(item[0], item[1], by_env=False, early=True)
    text = opts["het_group"]
    if text is None:
        return [default], False
    try:
        listed = re.sub(r"\b0-(?=,|\]|$)", "0", text)          # an end that is not there is 0
        words = hostlist.expand(listed if text.startswith("[") else f"[{listed}]")
        numbers = sorted({int(word) for word in words})
        if not numbers or numbers[-1] >= MAX_HET_COMPONENTS:
            raise ValueError
    except ValueError as wrong:
        if isinstance(wrong, hostlist.HostlistError) and str(wrong):
            opts.log.error(str(wrong))
        opts.log.error(f"Invalid --het-group value: {text}")
        raise ClientExit(error_exit) from None
    return numbers, True


def _take_command(opts: OptionSet, args: list[str], end: int, component: int, first_mpi: str | None,
                  error_exit: int) -> None:
    env = opts.caller.env
    for field, variable in (("container", "SLURM_CONTAINER"), ("container_id", "SLURM_CONTAINER_ID")):
        if opts[field]:
            env.setdefault(variable, opts[field])
    if opts["network"]:
        env["SLURM_NETWORK"] = opts["network"]
    if opts["dependency"]:
        env["SLURM_JOB_DEPENDENCY"] = opts["dependency"]
    rest = args[end:]
    opts.argv = rest[:rest.index(":")] if ":" in rest else rest
    default_mpi = opts.caller.conf.get("MpiDefault", "none")
    if component and first_mpi is None and opts["mpi"] not in (None, default_mpi):
        opts.log.error("--mpi is only supported in the first heterogeneous component")
        raise ClientExit(error_exit)
    if opts["mpi"] == "list":
        raise ClientExit(0, "MPI plugin types are...\n" + "".join(f"\t{name}\n" for name in mpi_types()))
    if not rest and not opts["test_only"]:
        raise opts.log.fatal("No command given to execute.")


def _verify(opts: OptionSet, error_exit: int) -> Asking[None]:
    """Checks and derived numbers. Raises ClientExit."""
    log, caller = opts.log, opts.caller
    in_job = "SLURM_JOB_ID" in caller.env
    if opts["interactive"] and checks.is_arbitrary(opts):
        opts["distribution"] = opts["distribution"]._replace(layout="")
    if checks.is_arbitrary(opts):
        opts["ntasks_set"] = opts["ntasks_set"] and not opts.from_env("ntasks")
        opts["nodes_set"] = opts["nodes_set"] and not opts.from_env("nodes")
    if opts.from_env("gpus-per-node") and opts.by_cli("gpus") and in_job:
        opts.reset("gpus-per-node")
    yield from checks.check_shared(opts, caller.conf.get("AllowSpecResourcesUsage", "NO").upper() in (
        "YES", "1", "TRUE", "UP"))
    packed = _pack(opts)
    verified = _exclusions(opts)
    yield from _burst_buffer(opts, error_exit)
    verified &= _cpu_bind(opts)
    checks.apply_hint(opts, error_exit)
    if opts["cpus_set"] and opts["min_cpus"] < opts["cpus_per_task"]:
        opts["min_cpus"] = opts["cpus_per_task"]
    if opts["exclude"]:
        opts["exclude"] = yield from checks.resolve_file(opts, opts["exclude"])
    if opts.by_cli("exclusive") and opts.by_cli("overlap"):
        log.error("--exclusive and --overlap are mutually exclusive")
        verified = False
    checks.arbitrary_counts(opts)
    verified &= plausible(opts)
    verified &= tasks_per_core(opts)
    _derive(opts, packed, in_job)
    if opts["deadline"] and opts["begin"] and opts["deadline"] < opts["begin"]:
        log.error("Incompatible begin and deadline time specification")
        raise ClientExit(error_exit)
    opts["job_name"] = opts["job_name"] or (opts.argv[0].rpartition("/")[2] if opts.argv else None)
    if opts["pty"] is not None:
        opts["unbuffered"] = True
        if opts["error"] or opts["input"] or opts["output"]:
            log.error("--error/--input/--output are incompatible with --pty")
            raise ClientExit(error_exit)
    if not verified:
        raise ClientExit(error_exit)


def _multi_prog(opts: OptionSet, error_exit: int) -> Asking[None]:
    """Checks the file, which may ask for more tasks where their number was not given."""
    if not opts["multi_prog"] or not opts.argv:
        return
    from slurmbridge.slurm.multiprog import MultiProgError, checked_tasks  # few need it
    name = opts.argv[0]
    data = yield name if name.startswith("/") else f"{opts.caller.cwd}/{name}"
    if isinstance(data, OSError):
        opts.log.error(f"Could not open multi_prog config file {name}")
        raise ClientExit(error_exit)
    try:
        tasks = checked_tasks(name, data.decode("utf-8", "surrogateescape"), opts["ntasks"],
                              is_fixed=bool(opts["ntasks_set"]))
    except MultiProgError as error:
        for line in error.lines:
            opts.log.error(line)
        raise ClientExit(error_exit) from None
    if tasks > opts["ntasks"]:
        opts["ntasks"], opts["ntasks_set"] = tasks, True


def _pack(opts: OptionSet) -> bool:
    """-m pack takes the environment's node count as an upper bound only. Whether it did."""
    layout = opts["distribution"]
    if layout is None or layout.pack != "pack" or not opts.from_env("nodes"):
        return False
    opts["min_nodes"] = 1
    checks.verbose_info(opts, "Resetting -N set by environment variable because of -mpack")
    return True


def _exclusions(opts: OptionSet) -> bool:
    rules = (
        (opts["quiet"] and opts["verbose"], "don't specify both --verbose (-v) and --quiet (-Q)"),
        (opts["exact"] and opts["whole"], "--exact and --whole are mutually exclusive."),
        (opts["no_allocate"] and not opts["nodelist"], "must specify a node list with -Z, --no-allocate."),
        (opts["no_allocate"] and opts["exclude"], "can not specify --exclude list with -Z, --no-allocate."),
        (opts["no_allocate"] and opts["relative"] is not None, "do not specify -r,--relative with -Z,--no-allocate."),
        (opts["relative"] is not None and (opts["exclude"] or opts["nodelist"]),
         "-r,--relative not allowed with -w,--nodelist or -x,--exclude."))
    good = True
    for broken, text in rules:
        if broken:
            opts.log.error(text)
            good = False
    return good


def _burst_buffer(opts: OptionSet, error_exit: int) -> Asking[None]:
    path = opts["burst_buffer_file"]
    if not path:
        return
    if opts["burst_buffer"]:
        opts.log.error("Cannot specify both --burst-buffer and --bbf")
        raise ClientExit(error_exit)
    data = yield path if path.startswith("/") else f"{opts.caller.cwd}/{path}"
    if isinstance(data, OSError):
        opts.log.error("Invalid --bbf specification")
        raise ClientExit(error_exit)
    opts["burst_buffer"], opts["burst_buffer_file"] = data.decode("utf-8", "surrogateescape"), None


def _cpu_bind(opts: OptionSet) -> bool:
    if opts["cpu_bind"] is None:
        return True
    try:
        bind = bindings.parse_cpu_bind(opts["cpu_bind"])
    except bindings.HelpWanted as wanted:
        raise ClientExit(1, str(wanted)) from None
    except WordError as wrong:
        for line in wrong.lines:
            opts.log.error(line)
        raise opts.log.fatal("Failed to parse --cpu-bind= values.") from None
    for note in bind.notes:
        opts.log.info(note)
    return True


def _derive(opts: OptionSet, packed: bool, in_job: bool) -> None:
    """Tasks from nodes, nodes from tasks, as srun does it (not quite as sbatch does)."""
    log = opts.log
    nodes_of_list(opts)
    per_node = opts["ntasks_per_node"]
    if ((opts["nodes_set"] or opts["extra_set"]) and opts["max_nodes"] in (0, opts["min_nodes"])
            and per_node is None and not opts["ntasks_set"]):
        opts["ntasks"] = opts["min_nodes"]
        shape = [opts[f] for f in ("sockets_per_node", "cores_per_socket", "threads_per_core")]
        if all(value is not None for value in shape):
            opts["ntasks"] *= shape[0] * shape[1] * shape[2]
            opts["ntasks_set"] = True
            checks.verbose_info(opts, f"Number of tasks implicitly set to {opts['ntasks']}")
    elif opts["nodes_set"] and opts["ntasks_set"]:
        opts["max_nodes"] = min(opts["max_nodes"], opts["ntasks"])
        if 0 < opts["ntasks"] < opts["min_nodes"]:
            log.warning(f"can't run {opts['ntasks']} processes on {opts['min_nodes']} nodes, setting nnodes to "
                        f"{opts['ntasks']}")
            opts.process("N", str(opts["ntasks"]), by_env=False)
            _shorten_node_list(opts)
        if per_node is not None and opts.from_env("ntasks") and not opts.from_env("nodes"):
            opts.reset("n")
        elif per_node is not None:
            _honour_tasks_per_node(opts, packed, in_job)
    if opts["ntasks_per_node"] is not None and not opts["ntasks_set"]:
        opts["ntasks"] = opts["min_nodes"] * opts["ntasks_per_node"]
        opts["ntasks_set"] = True


def _shorten_node_list(opts: OptionSet) -> None:
    """No more nodes than tasks: the last names of -w go."""
    if not opts["nodelist"] or "{" in opts["nodelist"]:
        return
    names = checks.node_names(opts, opts["nodelist"])
    names.unique()
    if len(names) > opts["min_nodes"]:
        opts["nodelist"] = hostlist.compress(list(names)[:opts["min_nodes"]])


def _honour_tasks_per_node(opts: OptionSet, packed: bool, in_job: bool) -> None:
    per_node, tasks, most = opts["ntasks_per_node"], opts["ntasks"], opts["max_nodes"]
    if most and tasks > most * per_node and not packed and in_job:
        opts.log.warning(f"can't honor --ntasks-per-node set to {per_node} which doesn't match the requested tasks "
                         f"{tasks} with the maximum number of requested nodes {most}. Ignoring --ntasks-per-node.")
    elif opts["min_nodes"] and tasks != opts["min_nodes"] * per_node and tasks > per_node and packed:
        opts.log.warning(f"can't honor --ntasks-per-node set to {per_node} which doesn't match the requested tasks "
                         f"{tasks} and -mpack, which forces min number of nodes to 1")
    else:
        return
    opts.reset("ntasks-per-node")
