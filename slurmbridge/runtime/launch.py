"""What the keepers of a step are asked to start, and what the journal says about the step."""
from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from slurmbridge.runtime import environment, stepenv, stepfiles
from slurmbridge.runtime.binding import bound_gpus, gpu_line
from slurmbridge.runtime.cpubind import Binding, NodeShape, bind
from slurmbridge.runtime.environment import StepFacts
from slurmbridge.runtime.gauges import FROM_GPUS, IN, clock_rate, gather_interval_s, statistics
from slurmbridge.runtime.order import NodeShare
from slurmbridge.runtime.ports import ports_text
from slurmbridge.runtime.stepoptions import StepOptions
from slurmbridge.runtime.steptypes import StepPlan, StepShare
from slurmbridge.runtime.tree import DEFAULT_WIDTH, Group, Node, branches
from slurmbridge.slurm.bindings import CpuBind, parse_cpu_bind

if TYPE_CHECKING:
    from slurmbridge.runtime.step import RunningStep

_LEVELS = {"block": "Block", "cyclic": "Cyclic", "fcyclic": "FCyclic"}


def step_request(running: RunningStep, step: StepOptions) -> dict[str, Any]:
    """What an ``L`` frame says for all nodes of the step; ``groups`` are added to it."""
    opts, order, place = step.opts, running.order, running.place
    facts = StepFacts(
        step_id=running.step_id.partition("+")[0], nodes=place.nodes, counts=place.counts, job=place.job,
        bridge=environment.bridge_variables(running.daemon.order),
        owns_allocation=running.call.owns_allocation, preserve=bool(opts["preserve_env"]))
    own = {name: value for name, value in running.call.env.items() if not name.startswith("SLURM_RLIMIT_")}
    own |= stepenv.option_variables(opts, step.request, running.call.own_umask)
    if len(running.siblings) > 1 and place.job:                # each component's is among its numbered variables
        own.pop("SLURM_TRES_PER_TASK", None)
        own |= {name: running.call.env[name] for name in ("SLURM_TRES_PER_TASK",) if name in running.call.env}
    if opts["mpi"] == "none":
        own.pop("SLURM_MPI_TYPE", None)
    if opts["prolog"] and opts["prolog"].lower() != "none":
        own["SLURM_SCRIPT_CONTEXT"] = "prolog_srun"
    if running.plan.ports:
        own["SLURM_STEP_RESV_PORTS"] = ports_text(running.plan.ports)
    shared = environment.step_environment(order, environment.export_filter(own, opts["export"]), facts)
    append = opts["open_mode"] == "append" or (
        opts["open_mode"] is None and order.settings.get("JobFileAppend", "0") == "1")
    return {
        "credential": order.credential, "step": running.step_name,
        "width": tree_width(opts["treewidth"], order.settings),
        "cwd": opts["chdir"], "umask": running.call.umask, "append": append, "unbuffered": bool(opts["unbuffered"]),
        "label_width": running.label_width,
        "rlimits": propagated_limits(opts["propagate"], running.call.request.get("rlimits") or {}, order.settings),
        "gather_s": gather_interval_s(opts["acctg_freq"] or order.settings.get("JobAcctGatherFrequency")),
        "env": shared, "prologs": hooks("Prolog", opts["task_prolog"], order.settings),
        "epilogs": hooks("Epilog", opts["task_epilog"], order.settings), "first_task": place.first_task,
    }


def tree_width(chosen: int | None, settings: dict[str, str]) -> int:
    """Branches of each keeper: --treewidth, else TreeWidth."""
    text = settings.get("TreeWidth", "")
    return chosen or (int(text) if text.isdigit() else 0) or DEFAULT_WIDTH


def node_requests(running: RunningStep, plan: StepPlan, argvs: list[list[str]], names: stepfiles.Names,
                  shared: dict[str, str]) -> list[Node]:
    """What each node of the step gets. ``shared``: the environment of step_request."""
    order, place = running.order, running.place
    requests = []
    for index, share in enumerate(plan.shares):
        node = order.nodes[share.node_index]
        ranks = [place.first_task + rank for rank in share.tasks]
        bound = _binding(running, node, share)
        requests.append({
            "node": share.name, "index": share.node_index, "address": node.address, "first_node": index == 0,
            "mem_mb": share.mem_mb,
            "env": environment.step_node_variables(node, share.cpus, place.first_node + index, ranks,
                                                   share_gpus(share))
            | (bound.variables() if bound else {}),
            "binding": bound and {"kind": bound.kind, "values": bound.values, "verbose": bound.verbose,
                                  "binds": bound.binds, "masks": [sorted(mask) for mask in bound.masks]},
            "pmi": running.world and running.world.facts(share.name, len(ranks)),
            "tasks": [_task(running, share, index, local, rank, argvs[rank], names, shared)
                      for local, rank in enumerate(share.tasks)],
        })
    return requests


def _binding(running: RunningStep, node: NodeShare, share: StepShare) -> Binding | None:
    """None where nothing binds tasks. Raises OutsideStep."""
    if "affinity" not in running.order.settings.get("TaskPlugin", ""):
        return None
    opts = running.opts
    wanted = parse_cpu_bind(opts["cpu_bind"]) if opts["cpu_bind"] else CpuBind()
    shape = NodeShape(share.cpu_ids, node.threads_per_core, node.cores_per_socket * node.threads_per_core,
                      len(share.cpu_ids) >= (node.node_cpus or node.cpus))
    per_task = opts["cpus_per_task"] if opts["cpus_set"] else 1
    return bind(wanted, wanted.unit or stepenv.hinted_unit(opts), shape, len(share.tasks), per_task)


KEEPERS_VARIABLE = "SLURMBRIDGE_KEEPERS"
"""How many keepers share the virtual nodes of one machine; as many as it has CPUs without it."""


def groups(nodes: Sequence[Node]) -> list[Group]:
    """Who is kept together: virtual nodes of one machine in a few keepers. Others alone, and with PMIx all: its library
    serves one node in a process."""
    if any(not node["address"].startswith("unix:") or (node["pmi"] or {}).get("kind") == "pmix" for node in nodes):
        return [[node] for node in nodes]
    return branches(nodes, int(os.environ.get(KEEPERS_VARIABLE, 0)) or os.cpu_count() or 1)


def _task(running: RunningStep, share: StepShare, index: int, local: int, rank: int, argv: list[str],
          names: stepfiles.Names, shared: dict[str, str]) -> dict[str, Any]:
    gpus = bound_gpus(running.opts["tres_bind"], share_gpus(share), local)
    shown_rank = running.place.first_task + rank
    variables = environment.task_variables(shown_rank, local, gpus)
    if local == 0 and "TMPDIR" not in shared:
        variables["TMPDIR"] = "/tmp"
    streams = {word: stepfiles.stream_of(running.files[number], names, share.name, index, shown_rank, rank)
               for number, word in enumerate(("stdin", "stdout", "stderr"))}
    return {"rank": rank, "local": local, "argv": argv, "env": variables, "gpus": gpus,
            "said": gpu_line(running.opts["tres_bind"], share_gpus(share), gpus),
            "pty": running.opts["pty"] is not None and rank == 0, **streams}


def hooks(which: str, own: str | None, settings: dict[str, str]) -> list[str]:
    """The programs around each task: the cluster's TaskProlog first, TaskEpilog last; the user's next to the task."""
    cluster = settings.get(f"Task{which}", "")
    both = [cluster, own or ""] if which == "Prolog" else [own or "", cluster]
    return [program for program in both if program and program.lower() not in ("none", "(null)")]


def share_gpus(share: StepShare) -> list[int]:
    return sorted(device for name, devices in share.gres.items() if name.partition(":")[0] == "gpu"
                  for device in devices)


def propagated_limits(propagate: str | None, limits: dict[str, list[int]], settings: dict[str, str]) -> dict[str, int]:
    """Soft limits of srun that its tasks get (--propagate, PropagateResourceLimits[Except])."""
    chosen = propagate or settings.get("PropagateResourceLimits") or "ALL"
    names = {name.strip().upper().removeprefix("RLIMIT_") for name in chosen.split(",")}
    excepted = {name.strip().upper() for name in settings.get("PropagateResourceLimitsExcept", "").split(",")}
    if "NONE" in names:
        return {}
    everything = "ALL" in names
    return {name: int(pair[0]) for name, pair in limits.items()
            if name in names or (everything and (propagate or name not in excepted))}


def step_record(running: RunningStep, step: StepOptions, plan: StepPlan, started_s: float) -> dict[str, Any]:
    """The fields of views.records.StepRecord of a step that begins."""
    opts = step.opts
    request = step.request
    tres = {"cpu": sum(share.cpus for share in plan.shares), "mem": sum(share.mem_mb for share in plan.shares),
            "node": len(plan.shares)}
    if request.overcommit and not request.whole:               # what was asked for, whatever there is
        tres["cpu"] = plan.num_tasks * request.cpus_per_task
        tres["mem"] = tres["cpu"] * request.mem_per_cpu_mb if request.mem_per_cpu_mb else tres["mem"]
    for share in plan.shares:
        for name, devices in share.gres.items():
            for key in {f"gres/{name.partition(':')[0]}", f"gres/{name}"}:
                tres[key] = tres.get(key, 0) + len(devices)
    if step.request.is_launcher:
        layout, submit_line = "", ""
    else:
        layout, submit_line = layout_name(step), " ".join(["srun", *map(str, running.call.request.get("argv", ()))])
    return {
        "step_id": running.step_id, "name": step.name, "start_s": started_s,
        "nodes": [share.name for share in plan.shares], "num_tasks": plan.num_tasks, "cpus": tres["cpu"],
        "layout": layout, "tres": {} if step.request.is_launcher else tres, "submit_line": submit_line,
        "command": " ".join(step.argv), "cwd": opts["chdir"], "std_in": opts["input"] or "",
        "std_out": opts["output"] or "", "std_err": opts["error"] or "", "container": opts["container"] or "",
        "time_limit_min": opts["time_limit"],
    }


def layout_name(step: StepOptions) -> str:
    """sacct's Layout: ``Block``, ``BCyclic``, ``Plane,Pack``."""
    words = step.opts["distribution"]
    text = (words.layout if words else "") or step.request.distribution.base
    first, *others = text.split(":")
    if first == "arbitrary":
        name = "arbitrary task distribution"
    elif others:
        name = first[0].upper() + "".join(_LEVELS[level] for level in others)
    else:
        name = first.capitalize()
    pack = {"pack": ",Pack", "nopack": ",NoPack"}.get(words.pack if words else "", "")
    return name + pack


def total_usage(usage: dict[int, dict[str, float]], node_of: dict[int, str],
                orphans: dict[str, float]) -> dict[str, Any]:
    """Of all tasks (by rank) with what each used (gauges.Meter.ended): CPU seconds, and sacct's statistics.

    ``orphans``: of processes that outlived their tasks; their CPU time counts.
    """
    if not usage:
        return {}
    total: dict[str, Any] = {name: orphans.get(name, 0) + sum(one.get(name, 0) for one in usage.values())
                             for name in ("user_cpu_s", "system_cpu_s")}
    seen = {rank: {name: int(one[name]) for name in _COUNTED if name in one} for rank, one in usage.items()}
    stats = statistics({rank: counts for rank, counts in seen.items() if counts}, node_of)
    return total | {"num_tasks": len(usage)} | ({"cpu_khz": clock_rate(), "stats": stats} if stats else {})


_COUNTED = (*IN, *FROM_GPUS, "out")
