"""What an srun inside an allocation was asked for: its environment and command line, with srun's own checks.

The texts, and what is only a warning, are srun's (srun(1)).
"""
from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass

from slurmbridge.runtime.layout import Distribution
from slurmbridge.runtime.order import RunOrder
from slurmbridge.runtime.stepplan import StepRequest
from slurmbridge.slurm import hostlist, tres
from slurmbridge.slurm.getopt import Parser
from slurmbridge.slurm.option_env import ENVIRONMENT
from slurmbridge.slurm.option_values import Caller, ClientExit, Log, OptionSet
from slurmbridge.slurm.options import table_of
from slurmbridge.slurm.words import Distribution as Words

NO_MPI = frozenset({"", "none"})
MPI_LIST = "MPI plugin types are...\n\tnone\n"


@dataclass(slots=True)
class StepOptions:
    """One component of an srun command line: its options, its command and the step request they make."""

    opts: OptionSet
    argv: list[str]
    request: StepRequest
    num_nodes_text: str = ""

    @property
    def name(self) -> str:
        """The step's name: -J of the command line, else the command."""
        if self.opts.by_cli("job-name"):
            return str(self.opts["job_name"])
        return self.argv[0].rpartition("/")[2] if self.argv else ""


def read_options(env: MutableMapping[str, str], cwd: str, argv: Sequence[str], order: RunOrder, now_s: float,
                 log: Log) -> StepOptions:
    """Raises ClientExit: the client ends with its code, what it says is in ``log``."""
    caller = Caller(env, cwd, now_s, order.uid, order.settings)
    opts = OptionSet("srun", caller, log)
    for variable, key in ENVIRONMENT["srun"]:
        if variable in env:
            opts.process(key, env[variable], by_env=True)
    for early in (True, False):
        parser = Parser("srun", argv, table_of("srun"))
        while (item := parser.next()) is not None:
            if parser.error:
                if early:
                    continue
                log.raw(parser.error)
            opts.process(*item, by_env=False, early=early)
    opts.argv = list(parser.operands)
    if opts["mpi"] == "list":
        raise ClientExit(0, MPI_LIST)
    if (opts["mpi"] or "") not in NO_MPI:
        log.error(f"Couldn't find the specified plugin name for mpi/{opts['mpi']} looking at all files")
        log.error(f"cannot find mpi plugin for mpi/{opts['mpi']}")
        log.error(f"Invalid MPI type '{opts['mpi']}', --mpi=list for acceptable types")
        raise ClientExit(1)
    if not opts.argv and not opts["test_only"]:
        raise log.fatal("No command given to execute.")
    if ":" in opts.argv or opts["het_group"]:
        log.error("Heterogeneous steps (\":\", --het-group) are not supported by slurmbridge yet")
        raise ClientExit(1)
    _validate(opts, log)
    _verify(opts, log)
    return StepOptions(opts, opts.argv, _request(opts, order, log))


def _validate(opts: OptionSet, log: Log) -> None:
    """Options that exclude each other or follow from each other."""
    memory = ("mem", "mem-per-cpu", "mem-per-gpu")
    by_cli = [name for name in memory if opts.by_cli(name)]
    if len(by_cli) > 1:
        raise log.fatal("--mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.")
    if by_cli:
        for name in memory:
            if name not in by_cli:
                opts.reset(name)
    elif sum(opts.from_env(name) for name in memory) > 1:
        raise log.fatal("SLURM_MEM_PER_CPU, SLURM_MEM_PER_GPU, and SLURM_MEM_PER_NODE are mutually exclusive.")
    _settle_tres_per_task(opts, log)
    if opts["exact"] and opts["whole"]:
        log.error("--exact and --whole are mutually exclusive.")
        raise ClientExit(1)
    if opts.by_cli("exclusive") and opts.by_cli("overlap"):
        log.error("--exclusive and --overlap are mutually exclusive")
        raise ClientExit(1)
    if opts["relative"] is not None and (opts["exclude"] or opts["nodelist"]):
        log.error("-r,--relative not allowed with -w,--nodelist or -x,--exclude.")
        raise ClientExit(1)
    if opts["quiet"] and opts["verbose"]:
        log.error("don't specify both --verbose (-v) and --quiet (-Q)")
        raise ClientExit(1)
    if opts["pty"] is not None and (opts["error"] or opts["input"] or opts["output"]):
        log.error("--error/--input/--output are incompatible with --pty")
        raise ClientExit(1)


def _settle_tres_per_task(opts: OptionSet, log: Log) -> None:
    """-c and --tres-per-task=cpu:N say the same; the command line wins over the environment."""
    text = opts["tres_per_task"]
    listed = next((item.amount for item in tres.items(text, "cpu")), None) if text else None
    if listed is None:
        if opts["cpus_set"]:
            opts["tres_per_task"] = ",".join(part for part in (f"cpu={opts['cpus_per_task']}", text) if part)
        return
    if opts["cpus_set"] and listed != opts["cpus_per_task"]:
        if opts.by_cli("cpus-per-task") and opts.from_env("tres-per-task"):
            opts["tres_per_task"] = tres.replace_count(text, "cpu", opts["cpus_per_task"])
            return
        if opts.from_env("cpus-per-task") and opts.from_env("tres-per-task"):
            raise log.fatal("cpus-per-task set by two different environment variables SLURM_CPUS_PER_TASK="
                            f"{opts['cpus_per_task']} != SLURM_TRES_PER_TASK=cpu={listed}")
        if opts.by_cli("cpus-per-task") and opts.by_cli("tres-per-task"):
            raise log.fatal("You can not have --tres-per-task=cpu: and --cpus-per-task together")
    opts["cpus_per_task"], opts["cpus_set"] = listed, True


def _verify(opts: OptionSet, log: Log) -> None:
    """srun's arithmetic on tasks and nodes."""
    is_arbitrary = _layout(opts).startswith("arbitrary")
    _read_node_list(opts, log)
    if is_arbitrary and opts["nodelist"]:
        hosts = hostlist.expand(opts["nodelist"])
        if opts.from_env("ntasks") or not opts["ntasks_set"]:
            opts["ntasks"], opts["ntasks_set"] = len(hosts), True
        if opts.from_env("nodes") or not opts["nodes_set"]:
            opts["min_nodes"] = opts["max_nodes"] = len(set(hosts))
            opts["nodes_set"] = True
    if opts["max_nodes"] and opts["min_nodes"] > opts["max_nodes"]:
        log.error(f"invalid number of nodes (-N {opts['min_nodes']}-{opts['max_nodes']})")
        raise ClientExit(1)
    listed = _unique(opts["nodelist"])
    if listed and not opts["nodes_set"]:
        opts["min_nodes"], opts["nodes_set"] = len(listed), True
    per_node = opts["ntasks_per_node"]
    fixed = opts["min_nodes"] == opts["max_nodes"] or not opts["max_nodes"]
    if opts["nodes_set"] and fixed and per_node is None and not opts["ntasks_set"]:
        opts["ntasks"] = opts["min_nodes"]
    elif opts["nodes_set"] and opts["ntasks_set"]:
        _fit_nodes_to_tasks(opts, listed, log)
        _check_tasks_per_node(opts, log)
    if opts["ntasks_per_node"] is not None and not opts["ntasks_set"]:
        opts["ntasks"], opts["ntasks_set"] = opts["min_nodes"] * opts["ntasks_per_node"], True


def _read_node_list(opts: OptionSet, log: Log) -> None:
    path = opts["nodefile"] or (opts["nodelist"] if "/" in (opts["nodelist"] or "") else None)
    if path is None:
        return
    try:
        with open(path if path.startswith("/") else f"{opts.caller.cwd}/{path}", encoding="utf-8") as file:
            words = [word for line in file for word in line.partition("#")[0].replace(",", " ").split()]
    except (OSError, ValueError):
        log.error("Invalid --nodefile node file")
        raise ClientExit(255) from None
    opts["nodelist"] = ",".join(words)


def _fit_nodes_to_tasks(opts: OptionSet, listed: list[str], log: Log) -> None:
    if opts["ntasks"] < opts["max_nodes"]:
        opts["max_nodes"] = opts["ntasks"]
    if opts["ntasks"] >= opts["min_nodes"]:
        return
    log.warning(f"can't run {opts['ntasks']} processes on {opts['min_nodes']} nodes, "
                f"setting nnodes to {opts['ntasks']}")
    opts.process("N", str(opts["ntasks"]), by_env=False)
    if len(listed) > opts["min_nodes"]:
        opts["nodelist"] = ",".join(listed[:opts["min_nodes"]])


def _check_tasks_per_node(opts: OptionSet, log: Log) -> None:
    per_node = opts["ntasks_per_node"]
    if per_node is None:
        return
    if opts.from_env("ntasks") and not opts.from_env("nodes"):
        opts.reset("n")
    elif opts["max_nodes"] and opts["ntasks"] > opts["max_nodes"] * per_node:
        log.warning(f"can't honor --ntasks-per-node set to {per_node} which doesn't match the requested tasks "
                    f"{opts['ntasks']} with the maximum number of requested nodes {opts['max_nodes']}. "
                    "Ignoring --ntasks-per-node.")
        opts.reset("ntasks-per-node")


def _request(opts: OptionSet, order: RunOrder, log: Log) -> StepRequest:
    """The step request, with the allocation's size where srun was not told."""
    total = len(order.nodes)
    excluded = tuple(hostlist.expand(opts["exclude"])) if opts["exclude"] else ()
    usable = total - sum(node.name in excluded for node in order.nodes)
    if not usable:
        log.error("Hostlist is empty!  Can't run job.")
        raise ClientExit(1)
    if opts["relative"] is not None and opts["relative"] >= total:
        log.error(f"--relative value invalid, must be smaller than the number of nodes: {opts['relative']} >= {total}")
        raise ClientExit(1)
    if not opts["nodes_set"]:
        opts["min_nodes"] = min(opts["ntasks"], usable) if opts["ntasks_set"] else usable
        if opts["ntasks_set"] or opts["ntasks_per_node"] is None:
            opts["ntasks"] = max(opts["ntasks"], 1)
        opts["nodes_set"] = True
    if opts["min_nodes"] > total:
        log.error(f"Minimum node count > allocated node count ({opts['min_nodes']} > {total})")
        raise ClientExit(1)
    max_nodes = min(opts["max_nodes"] or opts["min_nodes"], usable)
    num_tasks = _tasks(opts)
    exact = bool(opts["exact"] or opts["cpus_set"] or opts["cpus_per_gpu"])
    if opts["overcommit"] or num_tasks is None:
        cpu_count = 0
    else:
        cpu_count = num_tasks * (opts["cpus_per_task"] if opts["cpus_set"] else 1)
    mem_per_cpu, mem_per_node = opts["mem_per_cpu"], opts["mem"]
    return StepRequest(
        num_tasks=num_tasks, min_nodes=opts["min_nodes"], max_nodes=max(max_nodes, opts["min_nodes"]),
        cpu_count=cpu_count, cpus_per_task=opts["cpus_per_task"] if opts["cpus_set"] else 0, whole=not exact,
        overlap=bool(opts["overlap"]), overcommit=bool(opts["overcommit"]), mem_per_cpu_mb=mem_per_cpu or None,
        mem_per_node_mb=mem_per_node or None, node_list=_node_names(opts), exclude=excluded, relative=opts["relative"],
        feature=opts["constraint"] or "", distribution=_distribution(opts, num_tasks, mem_per_cpu, mem_per_node),
        ntasks_per_node=opts["ntasks_per_node"] or 0, gres_per_node=_gres_per_node(opts),
        gres_per_step=_gpu_counts(opts["gpus"]) if opts.by_cli("gpus") else (),
        gres_per_task=_gpus_per_task(opts), job_mem_per_node=order.mem_per_node_mb is not None,
        max_tasks_per_node=int(order.settings.get("MaxTasksPerNode", "512") or 512))


def _tasks(opts: OptionSet) -> int | None:
    """None: as many as fit, when only -c was given."""
    if opts["ntasks_set"] and not (opts["ntasks_per_node"] is not None and not opts.is_set("ntasks")):
        return int(opts["ntasks"])
    if opts["ntasks_per_node"] is not None:
        return int(max(opts["min_nodes"] * opts["ntasks_per_node"], opts["min_nodes"]))
    if opts["cpus_set"] and not opts["ntasks_set"]:
        return None
    return int(max(opts["ntasks"], opts["min_nodes"]))


def _layout(opts: OptionSet) -> str:
    words: Words | None = opts["distribution"]
    return words.layout if words else ""


def _distribution(opts: OptionSet, num_tasks: int | None, mem_per_cpu: int | None, mem: int | None) -> Distribution:
    words: Words | None = opts["distribution"]
    pack = {"pack": True, "nopack": False}.get(words.pack) if words else None
    base = _layout(opts).partition(":")[0]
    if base == "plane":
        return Distribution("plane", (words.plane_size if words else 0) or 0, pack)
    if base:
        return Distribution(base, 0, pack)
    all_memory = mem_per_cpu == 0 or mem == 0
    few = num_tasks is not None and num_tasks <= opts["min_nodes"]
    return Distribution("cyclic" if few and not all_memory else "block", 0, pack)


def _unique(text: str | None) -> list[str]:
    return list(dict.fromkeys(hostlist.expand(text))) if text else []


def _node_names(opts: OptionSet) -> tuple[str, ...]:
    if not opts["nodelist"]:
        return ()
    return tuple(hostlist.expand(opts["nodelist"])) if _layout(opts).startswith("arbitrary") \
        else tuple(_unique(opts["nodelist"]))


def _gres_per_node(opts: OptionSet) -> tuple[tuple[str, int], ...] | None:
    """None: the job's own."""
    text = opts["gres"] or opts.caller.env.get("SLURM_STEP_GRES")
    if text and text.lower() == "none":
        return ()
    found = [(item.name + (f":{item.type}" if item.type else ""), item.amount)
             for item in tres.items(text, "gres")] if text else []
    if opts.by_cli("gpus-per-node"):
        found += _gpu_counts(opts["gpus_per_node"])
    return tuple(found) or None


def _gpu_counts(text: str | None) -> tuple[tuple[str, int], ...]:
    """``2``, ``a100:2``, ``a100:1,v100:1``."""
    found = []
    for part in (text or "").split(","):
        kind, _, count = part.rpartition(":")
        if count.isdigit():
            found.append((f"gpu:{kind}" if kind else "gpu", int(count)))
        elif part:
            found.append((f"gpu:{part}", 1))
    return tuple(found)


def _gpus_per_task(opts: OptionSet) -> tuple[tuple[str, int], ...]:
    found = list(_gpu_counts(opts["gpus_per_task"])) if opts.by_cli("gpus-per-task") else []
    text = opts["tres_per_task"] if opts.by_cli("tres-per-task") else None
    found += [(item.name + (f":{item.type}" if item.type else ""), item.amount)
              for item in tres.items(text, "gres")] if text else []
    return tuple(found)
