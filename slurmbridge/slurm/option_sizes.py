"""Nodes, tasks and CPUs: the sanity checks of the clients and the numbers they derive from each other."""
from __future__ import annotations

from slurmbridge.slurm.option_checks import arbitrary_counts, node_names, verbose_info
from slurmbridge.slurm.option_values import ClientExit, OptionSet


def settle_sizes(opts: OptionSet, error_exit: int) -> bool:
    """sbatch and salloc. False after an error that is told together with others; raises ClientExit."""
    nodes_of_list(opts)
    if opts["cpus_set"] and opts["min_cpus"] < opts["cpus_per_task"]:
        opts["min_cpus"] = opts["cpus_per_task"]
    verified = plausible(opts)
    _plane(opts, error_exit)
    if ((opts["nodes_set"] or opts["extra_set"]) and opts["max_nodes"] in (0, opts["min_nodes"])
            and opts["ntasks_per_node"] is None and not opts["ntasks_set"]):
        opts["ntasks"] = max(opts["min_nodes"], 1) if opts.command == "sbatch" else opts["min_nodes"]
        for field in ("sockets_per_node", "cores_per_socket", "threads_per_core"):
            if opts[field] is not None:
                opts["ntasks"] *= opts[field]
                opts["ntasks_set"] = True
        if opts["ntasks_set"]:
            verbose_info(opts, f"Number of tasks implicitly set to {opts['ntasks']}"
                               f"{'.' if opts.command == 'sbatch' else ''}")
    elif opts["nodes_set"] and opts["ntasks_set"]:
        opts["max_nodes"] = min(opts["max_nodes"], opts["ntasks"])
        if opts["ntasks"] < opts["min_nodes"]:
            opts.log.warning(f"can't run {opts['ntasks']} processes on {opts['min_nodes']} nodes, setting nnodes to "
                             f"{opts['ntasks']}")
            opts["min_nodes"] = opts["max_nodes"] = opts["ntasks"]
    arbitrary_counts(opts)
    return verified & tasks_per_core(opts)


def plausible(opts: OptionSet) -> bool:
    """Counts that cannot be. Logs, and returns False where there is one."""
    good = True
    if opts["ntasks"] < 0 or (opts["ntasks"] == 0 and opts.command != "sbatch"):
        opts.log.error(f"invalid number of tasks (-n {opts['ntasks']})")
        good = False
    if opts["cpus_set"] and opts["cpus_per_task"] <= 0:
        opts.log.error(f"invalid number of cpus per task (-c {opts['cpus_per_task']})")
        good = False
    low, high = opts["min_nodes"], opts["max_nodes"]
    if low < 0 or high < 0 or (high and low > high):
        opts.log.error(f"invalid number of nodes (-N {low}-{high})")
        good = False
    return good


def nodes_of_list(opts: OptionSet) -> None:
    """-w without -N asks for as many nodes as it names."""
    text = opts["nodelist"]
    if text and not opts["nodes_set"] and "{" not in text:
        names = node_names(opts, text)
        names.unique()
        opts["min_nodes"], opts["nodes_set"] = len(names), True


def _plane(opts: OptionSet, error_exit: int) -> None:
    layout = opts["distribution"]
    if layout is None or layout.layout != "plane" or not layout.plane_size:
        return
    nodes, tasks, size = opts["min_nodes"], opts["ntasks"], layout.plane_size
    few = tasks // size < nodes or (opts.command == "sbatch" and nodes <= 0)
    if few and (nodes - 1) * size >= tasks:
        opts.log.error("Too few processes for the requested {plane,node} distribution")
        raise ClientExit(error_exit)


def tasks_per_core(opts: OptionSet) -> bool:
    per_core, threads = opts["ntasks_per_core"], opts["threads_per_core"]
    if per_core is not None and threads is not None and threads < per_core:
        opts.log.error(f"--ntasks-per-core ({per_core}) can not be bigger than --threads-per-core ({threads})")
        return False
    return True
