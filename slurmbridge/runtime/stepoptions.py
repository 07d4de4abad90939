"""What an srun inside an allocation was asked for, as a request for a step (srun(1))."""
from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass

from slurmbridge.runtime.layout import Distribution
from slurmbridge.runtime.order import RunOrder
from slurmbridge.runtime.steptypes import StepRequest
from slurmbridge.slurm import errors, hostlist, tres
from slurmbridge.slurm.asking import run
from slurmbridge.slurm.mpi import mpi_type, mpi_types
from slurmbridge.slurm.option_values import Caller, ClientExit, Log, OptionSet
from slurmbridge.slurm.options import PYXIS
from slurmbridge.slurm.pyxis import IMAGE, NAME, needs_image, without_effect
from slurmbridge.slurm.srun_options import read_srun
from slurmbridge.slurm.words import Distribution as Words

MAX_FILE = 16 << 20
PYXIS_NAMES = tuple(option.name for option in PYXIS)


@dataclass(slots=True)
class StepOptions:
    """One component of an srun command line: its options, its command and the step request they make."""

    opts: OptionSet
    argv: list[str]
    request: StepRequest

    @property
    def name(self) -> str:
        """The step's name: -J of the command line, else the command."""
        if self.opts.by_cli("job-name"):
            return str(self.opts["job_name"])
        return self.argv[0].rpartition("/")[2] if self.argv else ""


def read_components(env: MutableMapping[str, str], cwd: str, argv: Sequence[str], order: RunOrder, now_s: float,
                    log: Log, *, owns_allocation: bool = False, error_exit: int = 1) -> list[OptionSet]:
    """``owns_allocation``: srun made the job itself, so the job's variables in ``env`` are not its input.

    ``env`` may be changed. Raises ClientExit: the client ends with its code, what it says is in ``log``.
    """
    hidden = {name: env.pop(name) for name in _ALLOCATION_INPUT if name in env} if owns_allocation else {}
    caller = Caller(env, cwd, now_s, order.uid, order.settings)
    try:
        return run(read_srun(caller, list(argv), log, error_exit), _read_file)
    finally:
        env.update(hidden)


def step_options(opts: OptionSet, order: RunOrder, log: Log, *, owns_allocation: bool = False,
                 before: Sequence[str] | None = None) -> StepOptions:
    """The step of one component on the nodes of ``order``. ``before``: nodes of earlier components of the same job.

    Raises ClientExit.
    """
    _refuse_unsupported(opts, order, log)
    if owns_allocation:                       # what the allocation was made for is the step's anyway
        opts["constraint"] = opts["time_limit"] = None
    if before is not None:
        _leave_out(opts, order, before, log)
    return StepOptions(opts, opts.argv, _request(opts, order, log, owns_allocation))


_ALLOCATION_INPUT = ("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_JOB_NUM_NODES", "SLURM_JOB_NODELIST")


def _read_file(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(MAX_FILE)


def _refuse_unsupported(opts: OptionSet, order: RunOrder, log: Log) -> None:
    """What a step cannot be given here is refused, not left out."""
    mpi = mpi_type(opts["mpi"], opts.caller.conf.get("MpiDefault"))
    if mpi not in mpi_types():
        mpi = opts["mpi"] or opts.caller.conf["MpiDefault"]
        if mpi.startswith("pmix"):
            log.error("mpi/pmix: there is no PMIx library (libpmix.so.2) here; mpirun of Open MPI needs none")
        log.error(f"Couldn't find the specified plugin name for mpi/{mpi} looking at all files")
        log.error(f"cannot find mpi plugin for mpi/{mpi}")
        log.error(f"Invalid MPI type '{mpi}', --mpi=list for acceptable types")
        raise ClientExit(1)
    for field, option in (("no_allocate", "--no-allocate"), ("test_only", "--test-only"),
                          ("debugger_test", "--debugger-test"), ("send_libs", "--send-libs with --bcast")):
        if opts.values.get(field) not in (None, False, "") and (field != "send_libs" or opts["bcast"] is not None):
            log.error(f"{option} is not supported for steps by slurmbridge")
            raise ClientExit(1)
    _check_container({name: opts[name] for name in PYXIS_NAMES if opts.is_set(name)}, order, log)
    if opts["begin"]:
        log.error("--begin is ignored because nodes are already allocated.")
    if opts.is_set("core-spec"):
        log.error("Ignoring --core-spec value for a job step within an existing job. "
                  "Set specialized cores at job allocation time.")
    if opts["x11"] is not None:
        log.error("Ignoring --x11 option for a job step within an existing job. "
                  "Set x11 options at job allocation time.")


def _check_container(given: dict[str, str], order: RunOrder, log: Log) -> None:
    """A step runs in its job's container, where the job has one."""
    for line in without_effect(given):
        log.error(line)
    if needs_image(given) and given.get(IMAGE) != order.request.pyxis.get(IMAGE, ""):
        log.error(f"--{IMAGE if IMAGE in given else NAME}: steps run in the container of their job, "
                  f"and this job has {order.request.pyxis.get(IMAGE) or 'none'}")
        raise ClientExit(1)


def _leave_out(opts: OptionSet, order: RunOrder, before: Sequence[str], log: Log) -> None:
    """Components of one job get nodes of their own, and no more of them than their tasks need."""
    if not opts["nodes_set"]:
        opts["nodes_set"], opts["min_nodes"], room = True, 0, 0
        for node in order.nodes:
            fit = node.cpus // (opts["cpus_per_task"] or 1)
            room += min(fit, opts["ntasks_per_node"] or fit)
            opts["min_nodes"] += 1
            if room >= opts["ntasks"]:
                break
    if not before:
        return
    listed = set(hostlist.expand(opts["nodelist"])) if opts["nodelist"] else set()
    excluded = list(dict.fromkeys([*before, *(hostlist.expand(opts["exclude"]) if opts["exclude"] else ())]))
    opts["exclude"] = hostlist.compress(excluded, sort=True)
    if len(order.nodes) - len(excluded) < opts["min_nodes"]:
        log.error(f"Allocation failure of {opts['min_nodes']} nodes: job size of {len(order.nodes)}, already allocated "
                  f"{len(excluded)} nodes to previous components.")
        raise ClientExit(1)
    if listed.intersection(excluded):
        log.error(f"Requested nodelist {opts['nodelist']} overlaps with excluded {opts['exclude']}.")
        log.error("Job not submitted.")
        raise ClientExit(1)


def _request(opts: OptionSet, order: RunOrder, log: Log, owns_allocation: bool) -> StepRequest:
    """The step request, with the allocation's size where srun was not told."""
    total = len(order.nodes)
    excluded = tuple(hostlist.expand(opts["exclude"])) if opts["exclude"] else ()
    for name in excluded:
        if opts["nodelist"] and name in hostlist.expand(opts["nodelist"]):
            log.error(f"Requested node {name} is also in the excluded list.")
            log.error("Job not submitted.")
            raise ClientExit(1)
    usable = total - sum(node.name in excluded for node in order.nodes)
    if not usable:
        log.error("Hostlist is empty!  Can't run job.")
        raise ClientExit(1)
    if opts["relative"] is not None and opts["relative"] + opts["min_nodes"] > total:
        source = "--nodes" if opts.by_cli("nodes") else "SLURM_JOB_NUM_NODES"
        log.error(f"--relative and {source} option incompatible with count of allocated nodes "
                  f"({opts['relative']}+{opts['min_nodes']}>{total})")
        raise ClientExit(1)
    named = len(hostlist.expand(opts["alloc_nodelist"])) if opts["alloc_nodelist"] and opts["nodes_set"] else total
    if named < opts["min_nodes"] <= total and not owns_allocation:
        log.error(f"Only allocated {named} nodes asked for {opts['min_nodes']}")
        raise ClientExit(1)
    if not opts["nodes_set"]:
        opts["min_nodes"] = min(opts["ntasks"], usable) if opts["ntasks_set"] else usable
        if opts["ntasks_set"] or opts["ntasks_per_node"] is None:
            opts["ntasks"] = max(opts["ntasks"], 1)
        opts["nodes_set"] = True
    if opts["min_nodes"] > total:
        log.error(f"Only allocated {usable} nodes asked for {opts['min_nodes']}")
        if excluded:
            log.error("Are required nodes explicitly excluded?")
        raise ClientExit(1)
    if not opts["external_launcher"] and gpu_types_mixed(opts):
        log.error(errors.strerror(errors.ESLURM_INVALID_GRES_TYPE))
        raise ClientExit(1)
    max_nodes = min(opts["max_nodes"] or opts["min_nodes"], usable)
    listed = _node_names(opts)
    if opts["ntasks_set"] and opts["min_nodes"] == opts["ntasks"] < len(set(listed)) and not _is_arbitrary(opts):
        listed = listed[:opts["min_nodes"]]   # as many nodes as tasks
    per_step, per_task = _gpu_counts(opts["gpus"]), _gpus_per_task(opts)
    num_tasks = _tasks(opts)
    if (per_gpu := opts["ntasks_per_tres"] or opts["ntasks_per_gpu"]) and not opts["external_launcher"]:
        num_tasks, per_step = _tasks_per_gpu(opts, per_gpu, num_tasks or 1, per_step)
    if sum(count for _, count in per_task) * (num_tasks or 1) > sum(count for _, count in per_step):
        per_step = ()                         # the larger of --gpus and --gpus-per-task counts
    exact = bool(opts["exact"] or (opts["cpus_set"] and not opts["overcommit"]) or opts["cpus_per_gpu"])
    if opts["overcommit"] or num_tasks is None:
        cpu_count = 0
    else:
        cpu_count = num_tasks * (opts["cpus_per_task"] if opts["cpus_set"] else 1)
    mem_per_cpu, mem_per_node = opts["mem_per_cpu"], opts["mem"]
    if owns_allocation and mem_per_cpu is None and mem_per_node is None:
        mem_per_cpu = mem_per_node = 0
    if opts["external_launcher"]:
        return StepRequest(
            num_tasks=opts["min_nodes"], min_nodes=opts["min_nodes"], max_nodes=max(max_nodes, opts["min_nodes"]),
            overlap=True, overcommit=bool(opts["overcommit"]), node_list=listed, exclude=excluded,
            relative=opts["relative"], feature=opts["constraint"] or "", is_launcher=True,
            distribution=_distribution(opts, num_tasks, False), resv_ports=opts["resv_ports"])
    whole_memory = mem_per_cpu == 0 or mem_per_node == 0
    return StepRequest(
        num_tasks=num_tasks, min_nodes=opts["min_nodes"], max_nodes=max(max_nodes, opts["min_nodes"]),
        cpu_count=cpu_count, cpus_per_task=opts["cpus_per_task"] if opts["cpus_set"] else 0, whole=not exact,
        overlap=bool(opts["overlap"]), overcommit=bool(opts["overcommit"]),
        mem_per_cpu_mb=mem_per_cpu or None,
        mem_per_node_mb=mem_per_node or None, node_list=listed, exclude=excluded, relative=opts["relative"],
        feature=opts["constraint"] or "", distribution=_distribution(opts, num_tasks, whole_memory),
        whole_memory=whole_memory, resv_ports=opts["resv_ports"],
        ntasks_per_node=opts["ntasks_per_node"] or 0, cpus_per_gpu=opts["cpus_per_gpu"] or 0,
        gres_per_node=_gres_per_node(opts), gres_per_step=per_step,
        gres_per_task=per_task, job_mem_per_node=order.mem_per_node_mb is not None,
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


def _tasks_per_gpu(opts: OptionSet, per_gpu: int, num_tasks: int, per_step: tuple[tuple[str, int], ...],
                   ) -> tuple[int, tuple[tuple[str, int], ...]]:
    """--ntasks-per-gpu: (tasks, GPUs of the step). Tasks follow from the GPUs that are asked for, else GPUs from the
    tasks; each GPU is for as many tasks."""
    if opts["tres_bind"] is None:
        opts["tres_bind"] = f"gres/gpu:single:{per_gpu}"
    per_node = sum(count for name, count in _gres_per_node(opts) or () if name.partition(":")[0] == "gpu")
    gpus = sum(count for _, count in per_step) or per_node * int(opts["min_nodes"])
    if not gpus:
        return num_tasks, (("gpu", num_tasks // per_gpu),)
    opts["ntasks"], opts["ntasks_set"] = gpus * per_gpu, True
    return gpus * per_gpu, per_step


def _is_arbitrary(opts: OptionSet) -> bool:
    return _layout(opts).startswith("arbitrary")


def _layout(opts: OptionSet) -> str:
    words: Words | None = opts["distribution"]
    return words.layout if words else ""


def _distribution(opts: OptionSet, num_tasks: int | None, whole_memory: bool) -> Distribution:
    words: Words | None = opts["distribution"]
    pack = {"pack": True, "nopack": False}.get(words.pack) if words else None
    base = _layout(opts).partition(":")[0]
    if base == "plane":
        return Distribution("plane", (words.plane_size if words else 0) or 0, pack)
    if base:
        return Distribution(base, 0, pack)
    few = num_tasks is not None and num_tasks <= opts["min_nodes"]
    return Distribution("cyclic" if few and not whole_memory else "block", 0, pack)


def _unique(text: str | None) -> list[str]:
    return list(dict.fromkeys(hostlist.expand(text))) if text else []


def _node_names(opts: OptionSet) -> tuple[str, ...]:
    if not opts["nodelist"]:
        return ()
    return tuple(hostlist.expand(opts["nodelist"])) if _is_arbitrary(opts) \
        else tuple(_unique(opts["nodelist"]))


def _gres_per_node(opts: OptionSet) -> tuple[tuple[str, int], ...] | None:
    """None: the job's own."""
    text = opts["gres"] or opts.caller.env.get("SLURM_STEP_GRES")
    if text and text.lower() == "none":
        return ()
    found = [(item.name + (f":{item.type}" if item.type else ""), item.amount)
             for item in tres.items(text, "gres")] if text else []
    most: dict[str, int] = {}
    for name, count in [*found, *_gpu_counts(opts["gpus_per_node"])]:
        most[name] = max(most.get(name, 0), count)
    return tuple(most.items()) or None


def gpu_types_mixed(opts: OptionSet) -> bool:
    """GPUs both with and without a type: of no step."""
    asked = [*(_gres_per_node(opts) or ()), *_gpu_counts(opts["gpus"]), *_gpu_counts(opts["gpus_per_socket"]),
             *_gpus_per_task(opts)]
    return len({":" in name for name, _ in asked if name.partition(":")[0] == "gpu"}) > 1


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
    text = opts["tres_per_task"]              # --gpus-per-task is in it
    return tuple((item.name + (f":{item.type}" if item.type else ""), item.amount)
                 for item in tres.items(text, "gres")) if text else ()
