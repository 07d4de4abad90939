"""Tasks, cores, memory and devices on the chosen nodes: the allocation itself.

The last step of the selection (select/cons_tres dist_tasks): one task per node first, then round and round; cores of a
node alternate between its sockets unless a block distribution is asked; the lowest free devices.
"""
from __future__ import annotations

import numpy as np

from slurmbridge.scheduling.choose import Choice
from slurmbridge.scheduling.cores import balanced, pick_block, pick_cyclic
from slurmbridge.scheduling.demand import MANY, Question
from slurmbridge.scheduling.facts import IntArray, NodeShare
from slurmbridge.scheduling.fit import Fit
from slurmbridge.scheduling.use import Use


def task_count(question: Question, nodes: int, total_cpus: int) -> int:
    """Tasks that the allocation is laid out for."""
    shape = question.shape
    ncpus = nodes * max(1, shape.ntasks_per_node)
    ncpus = max(ncpus, question.min_cpus, nodes * shape.min_cpus_per_node, _gres_cpus(question, nodes),
                _gres_tasks(question, nodes))
    if shape.overcommit and question.num_tasks:
        ncpus = min(total_cpus, question.num_tasks)
    if shape.ntasks_per_node:
        return shape.ntasks_per_node * nodes
    return max(1, question.num_tasks or ncpus // shape.cpus_per_task)


def _gres_cpus(question: Question, nodes: int) -> int:
    sockets = question.shape.sockets_per_node or 1
    return max((r.cpus_per_gres * (r.per_job or r.per_node * nodes or r.per_socket * nodes * sockets
                                   or r.per_task * question.num_tasks) for r in question.shape.gres), default=0)


def _gres_tasks(question: Question, nodes: int) -> int:
    sockets = question.shape.sockets_per_node or 1
    return max((r.ntasks_per_gres * (r.per_job or r.per_node * nodes or r.per_socket * nodes * sockets)
                for r in question.shape.gres if r.name == "gpu"), default=0)


def distribute(question: Question, fit: Fit, choice: Choice) -> tuple[IntArray, IntArray] | None:
    """(tasks, CPUs) per chosen node; None when the tasks do not fit."""
    shape = question.shape
    cpt = shape.cpus_per_task
    at = choice.at
    room = np.array([choice.cpus[p] for p in at.tolist()], dtype=np.int64)
    if question.whole:
        columns = question.columns
        room = columns.socket_cores[fit.nodes[at]].sum(axis=1) * fit.threads[at]
    wanted = task_count(question, len(at), int(room.sum()))
    tasks = np.ones(len(at), dtype=np.int64)
    if not question.whole:
        tasks[min(wanted, len(at)):] = 0
    if shape.overcommit and not any(r.per_task for r in shape.gres) and not question.whole:
        return tasks, np.minimum(room, tasks * cpt)
    plane = max(1, shape.plane_size) if shape.distribution and shape.distribution.startswith("plane") else 0
    if plane and not question.whole:
        tasks[:] = 0
    step = np.full(len(at), plane or 1) if plane or question.whole else np.maximum(fit.threads[at] // cpt, 1)
    capacity = room // cpt - tasks
    hard = any(r.per_task for r in shape.gres)
    if fit.gres and not question.whole:
        limit = np.array([_task_limit(question, choice, p) for p in at.tolist()], dtype=np.int64)
        left = _rounds(tasks, np.minimum(capacity, limit - tasks), step, wanted)
        if left and hard:
            return None
        capacity = room // cpt - tasks
    if shape.ntasks_per_node and not question.whole:
        capacity = np.minimum(capacity, shape.ntasks_per_node - tasks)
    if _rounds(tasks, capacity, step, wanted):
        return None
    if question.whole:
        return tasks, room
    least = np.array([choice.offers[p][0] for p in at.tolist()], dtype=np.int64)
    return tasks, np.maximum(np.minimum(room, tasks * cpt), np.minimum(room, least))


def _task_limit(question: Question, choice: Choice, position: int) -> int:
    """Most tasks that a node's devices (or the choice) allow."""
    _, most, _, devices = choice.offers[position]
    per_task = [count // r.per_task for count, r in zip(devices, question.shape.gres) if r.per_task]
    limit = min(per_task) if per_task else most
    if question.shape.ntasks_per_node:
        limit = min(limit, question.shape.ntasks_per_node)
    return limit


def _rounds(tasks: IntArray, capacity: IntArray, step: IntArray, wanted: int) -> int:
    """Adds ``step`` tasks a round to every node with room until ``wanted`` run; returns those left over."""
    capacity = np.maximum(capacity, 0)
    left = wanted - int(tasks.sum())
    while left > 0 and capacity.any():
        share = np.minimum(step, capacity)
        active = share > 0
        whole_rounds = int(min(np.min(capacity[active] // step[active]), left // int(share.sum())))
        if whole_rounds:
            share = share * whole_rounds
        elif left < int(share.sum()):
            share = np.clip(left - (np.cumsum(share) - share), 0, share)
        tasks += share
        capacity = capacity - share
        left -= int(share.sum())
    return max(left, 0)


def allocate(question: Question, fit: Fit, choice: Choice, use: Use) -> tuple[NodeShare, ...] | None:
    """The shares of the chosen nodes; None when tasks, memory or devices do not come out."""
    laid = distribute(question, fit, choice)
    if laid is None:
        return None
    tasks, cpus = laid
    cores = [_cores(question, fit, choice, position, int(cpus[k]), use)
             for k, position in enumerate(choice.at.tolist())]
    devices = _devices(question, fit, choice, tasks, cores, use)
    if devices is None:
        return None
    shares = []
    for k, position in enumerate(choice.at.tolist()):
        node = int(fit.nodes[position])
        picked = cores[k]
        if picked is None:
            return None
        tpc = int(question.columns.threads[node])
        given = int(question.columns.job_cpus[node]) if question.whole else (
            len(picked) * tpc if question.settings.select_unit != "cpu" else int(cpus[k]))
        memory = _memory(question, node, _memory_cpus(question, given, tpc, len(picked)), devices[k], use)
        if memory is None:
            return None
        shares.append(NodeShare(question.columns.names[node], given, memory, tuple(picked), devices[k], int(tasks[k])))
    return tuple(shares)


def _cores(question: Question, fit: Fit, choice: Choice, position: int, cpus: int, use: Use) -> list[int] | None:
    node = int(fit.nodes[position])
    width, count = int(question.columns.cores_per_socket[node]), int(question.columns.cores[node])
    free = np.flatnonzero(~use.core_busy[node, :count])
    if question.whole:
        return [int(c) for c in free]
    keep = fit.cores[position].tolist()
    wanted = choice.offers[position][2]
    if wanted:
        keep = balanced(keep, wanted)
    sockets = [[int(c) for c in free[free // width == s][:keep[s]]] for s in range(int(question.columns.sockets[node]))]
    layout = question.shape.distribution or ""
    block = layout.startswith("plane") or (":" in layout and layout.split(":")[1].split(",")[0] == "block")
    pick = pick_block if block or question.settings.select_unit == "cpu" else pick_cyclic
    picked = pick(question, sockets, cpus, int(fit.threads[position]))
    if picked is not None and question.settings.select_unit == "socket":
        used = {c // width for c in picked}
        picked = [c for s in sorted(used) for c in range(s * width, (s + 1) * width)]
    return picked


def _memory_cpus(question: Question, given: int, tpc: int, cores: int) -> int:
    """CPUs that --mem-per-cpu counts: with --threads-per-core only the threads asked for."""
    threads = question.shape.threads_per_core
    return cores * threads if threads and threads < tpc else given


def _memory(question: Question, node: int, cpus: int, devices: tuple[tuple[str, str, tuple[int, ...]], ...],
            use: Use) -> int | None:
    """Memory of the share; None when the node has too little."""
    shape = question.shape
    if not question.settings.select_memory:
        return 0
    whole = int(question.columns.mem_mb[node])
    free = whole - int(use.mem_alloc_mb[node])
    if memory_by_gres(question):
        need = sum(r.mem_per_gres_mb * sum(len(found) for name, kind, found in devices
                                           if name == r.name and r.type in (None, kind)) for r in shape.gres)
    elif shape.mem_per_cpu_mb:
        need = shape.mem_per_cpu_mb * cpus
    elif shape.mem_per_node_mb:
        need = shape.mem_per_node_mb
    else:
        need = whole
    return need if need <= free else None


def memory_by_gres(question: Question) -> bool:
    """--mem-per-gpu decides about memory, because no other memory was asked for."""
    shape = question.shape
    return shape.mem_per_cpu_mb is None and shape.mem_per_node_mb is None and any(r.mem_per_gres_mb for r in shape.gres)


Devices = tuple[tuple[str, str, tuple[int, ...]], ...]


def _devices(question: Question, fit: Fit, choice: Choice, tasks: IntArray, cores: list[list[int] | None],
             use: Use) -> list[Devices] | None:
    """Devices per chosen node: the lowest free ones; --gpus are spread so that every node has at least one,
    --gpus-per-socket counts the sockets of the node's ``cores``."""
    columns = question.columns
    nodes = fit.nodes[choice.at].tolist()
    picked: list[dict[int, list[int]]] = [{} for _ in nodes]

    def take(k: int, kinds: tuple[int, ...], count: int) -> int:
        found = 0
        for kind in sorted(kinds, key=lambda kind: int(columns.gres_base[kind][nodes[k]])):
            mine = picked[k].setdefault(kind, [])
            for device in np.flatnonzero(~use.gres_busy[kind][nodes[k]]).tolist():
                if found < count and device not in mine:
                    mine.append(device)
                    found += 1
        return found

    if question.whole:
        for k in range(len(nodes)):
            take(k, tuple(range(len(columns.gres_kinds))), MANY)
    else:
        for g, gres in enumerate(fit.gres):
            r = gres.demand.request
            total = 0
            for k, position in enumerate(choice.at.tolist()):
                limit = choice.offers[position][3][g]
                if r.per_node:
                    count = r.per_node
                elif r.per_socket:
                    width = int(columns.cores_per_socket[nodes[k]])
                    count = r.per_socket * len({core // width for core in cores[k] or ()})
                elif r.per_task:
                    count = r.per_task * int(tasks[k])
                else:
                    count = max(1, min(r.per_job - total - (len(nodes) - k - 1), limit))
                got = take(k, gres.demand.kinds, count)
                total += got
                if got < count and (r.per_node or r.per_task):
                    return None
            for k in range(len(nodes)):
                if r.per_job and not (r.per_node or r.per_task) and total < r.per_job:
                    total += take(k, gres.demand.kinds, r.per_job - total)
            if total < r.per_job:
                return None
    return [_named(question, nodes[k], picked[k]) for k in range(len(nodes))]


def _named(question: Question, node: int, picked: dict[int, list[int]]) -> Devices:
    columns = question.columns
    out = []
    for kind, devices in sorted(picked.items()):
        if devices:
            base = int(columns.gres_base[kind][node])
            out.append((columns.gres_kinds[kind].name, columns.gres_kinds[kind].type, tuple(base + d for d in devices)))
    return tuple(out)
