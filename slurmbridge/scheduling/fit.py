"""How much of each node a job could use: CPUs, cores per socket and devices, over all candidate nodes at once.

The first half of the consumable-resources selection (select/cons_tres): node by node limits, before any choice between
nodes. Everything is an array over the candidates; a node with ``cpus`` 0 cannot serve the job.
"""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurmbridge.scheduling.demand import MANY, GresDemand, Question
from slurmbridge.scheduling.facts import BoolArray, IntArray
from slurmbridge.scheduling.use import Counts


@dataclass(slots=True)
class GresFit:
    """Devices of one request, per candidate: ``total`` usable now, ``most`` the job may take on a node
    (0: no bound)."""

    demand: GresDemand
    total: IntArray
    most: IntArray


@dataclass(slots=True)
class Fit:
    """``nodes``: candidate node numbers; the other arrays follow them. ``cores``: usable cores per socket; ``unit``:
    CPUs that are given out at once; ``threads``: CPUs per core that the job uses; ``product``: CPUs times devices;
    ``near``: devices near usable cores (breaks ties between equal weights)."""

    nodes: IntArray
    cpus: IntArray
    cores: IntArray
    threads: IntArray
    max_cpus: IntArray
    gres: list[GresFit]
    product: IntArray
    near: IntArray

    def subset(self, at: IntArray) -> Fit:
        """The fit of some of the candidates (positions)."""
        return Fit(self.nodes[at], self.cpus[at], self.cores[at], self.threads[at], self.max_cpus[at],
                   [GresFit(g.demand, g.total[at], g.most[at]) for g in self.gres], self.product[at], self.near[at])

    def position(self, size: int) -> IntArray:
        """Node number -> position among the candidates (-1: none)."""
        where = np.full(size, -1, dtype=np.int64)
        where[self.nodes] = np.arange(len(self.nodes))
        return where


def fit(question: Question, use: Counts, nodes: IntArray, *, ever: bool) -> Fit:
    """``ever``: as if nothing were in use."""
    columns, shape, demand = question.columns, question.shape, question.demand
    width = columns.cores_per_socket[nodes]
    tpc = columns.threads[nodes]
    free = columns.socket_cores[nodes] if ever else use.socket_free[nodes]
    per_core = shape.cpus_per_task * shape.ntasks_per_core if shape.ntasks_per_core else MANY
    usable = np.minimum(tpc, per_core) if shape.ntasks_per_core else np.full_like(tpc, MANY)
    if shape.threads_per_core:
        usable = np.minimum(usable, shape.threads_per_core)
    bad = (usable != MANY) & (usable > tpc)
    if shape.ntasks_per_socket:
        bad |= shape.ntasks_per_socket > tpc * width
    threads = np.minimum(tpc, usable)
    unit = _unit(question, tpc, width, usable)
    free, limit, refused = _partition_limits(question, use, nodes, free, tpc, width)
    max_cpus = free.sum(axis=1) * tpc
    if shape.cores_per_socket:
        free = np.where(free < shape.cores_per_socket, 0, free)
    bad |= refused | ((free > 0).sum(axis=1) < max(1, shape.sockets_per_node))
    cpus, kept, bad = _cores(question, free, threads, width, bad)
    cpus = np.where(bad, 0, np.minimum(cpus, limit))
    kept = np.where(bad[:, None], 0, kept)
    cpus = np.where(cpus < _least_cpus(question), 0, cpus)
    memory = columns.mem_mb[nodes] if ever else columns.mem_mb[nodes] - use.mem_alloc_mb[nodes]
    gres, cpus, near = _gres(question, use, nodes, cpus, kept, tpc, memory, ever)
    if question.settings.select_memory:
        cpus = _memory(question, cpus, memory, unit, tpc)
    devices = sum((g.total for g in gres if g.demand.request.name == "gpu"), np.zeros(len(nodes), dtype=np.int64))
    product = cpus * devices if any(g.request.name == "gpu" for g in demand.gres) else cpus
    return Fit(nodes, cpus, kept, threads, max_cpus, gres, product, near)


def _unit(question: Question, tpc: IntArray, width: IntArray, usable: IntArray) -> IntArray:
    """CPUs that are allocated together: a core's threads (CR_Core), a socket's (CR_Socket) or one (CR_CPU)."""
    if question.settings.select_unit == "socket":
        unit = width * tpc
    else:
        unit = tpc if question.settings.select_unit == "core" else np.ones_like(tpc)
    lower: IntArray = np.minimum(unit, usable)
    return lower


def _partition_limits(question: Question, use: Counts, nodes: IntArray, free: IntArray, tpc: IntArray, width: IntArray,
                      ) -> tuple[IntArray, IntArray, BoolArray]:
    """Free cores, most CPUs and refused nodes under whole sockets, MaxCPUsPerSocket and MaxCPUsPerNode."""
    partition = question.partition
    if question.settings.select_unit == "socket":
        free = np.where(free == width[:, None], free, 0)
    limit = np.full(len(nodes), MANY, dtype=np.int64)
    refused = np.zeros(len(nodes), dtype=np.bool_)
    used = use.limited.get(partition.name)
    taken = used[nodes] * tpc[:, None] if used is not None else np.zeros_like(free)
    if partition.max_cpus_per_socket:
        most = partition.max_cpus_per_socket // tpc[:, None]
        free = np.where(taken >= partition.max_cpus_per_socket, 0, np.minimum(free, most))
    if partition.max_cpus_per_node:
        in_use = taken.sum(axis=1)
        over = free.sum(axis=1) * tpc + in_use > partition.max_cpus_per_node
        refused = over & (question.whole | (in_use >= partition.max_cpus_per_node))
        limit = np.where(over, partition.max_cpus_per_node - in_use, limit)
        refused |= over & (limit == 1) & (question.shape.cpus_per_task > 1)
    return free, limit, refused


def _cores(question: Question, free: IntArray, threads: IntArray, width: IntArray, bad: BoolArray,
           ) -> tuple[IntArray, IntArray, BoolArray]:
    """CPUs for whole tasks, the cores per socket that carry them, and the nodes that cannot."""
    shape = question.shape
    cpt = shape.cpus_per_task
    room = free * threads[:, None]
    cpus = room.sum(axis=1)
    tasks = np.minimum(room, shape.ntasks_per_socket).sum(axis=1) if shape.ntasks_per_socket else cpus
    bad = bad | (cpus < shape.min_cpus_per_node)
    if shape.ntasks_per_node and question.share and not any(r.cpus_per_gres for r in shape.gres):
        tasks = np.minimum(tasks, shape.ntasks_per_node)
    task_cores = -(-cpt // np.maximum(threads, 1))
    spread = (shape.ntasks_per_core == 1) & (cpt > threads)
    if not shape.gres:
        if cpt < 2:
            cpus = tasks
        else:
            fitting = np.minimum(tasks, cpus // cpt)
            apart = cpus // np.maximum(task_cores * threads, 1)
            tasks = np.where(spread, tasks, fitting)
            cpus = np.where(spread, apart, fitting) * cpt
    if shape.auto_min_cpus:
        cpus = np.maximum(cpus, shape.min_cpus_per_node)
    if shape.ntasks_per_node and not shape.overcommit:
        bad |= tasks < shape.ntasks_per_node
    bad |= (tasks == 0) | (cpus < shape.min_cpus_per_node)
    per_socket = shape.ntasks_per_socket * cpt if shape.ntasks_per_socket else width * threads
    most = np.maximum(1, -(-per_socket // np.maximum(threads, 1)))
    offered = np.minimum(free, most[:, None])
    needed = np.where(spread, cpus // cpt * task_cores, -(-cpus // np.maximum(threads, 1)))
    before = np.cumsum(offered, axis=1) - offered
    kept = np.clip(needed[:, None] - before, 0, offered)
    count = kept.sum(axis=1)
    whole_tasks, rest = count // np.maximum(task_cores, 1), count % np.maximum(task_cores, 1)
    carried = np.where(spread, whole_tasks * cpt + np.minimum(rest * threads, cpt), count * threads)
    return np.minimum(cpus, carried), kept, bad


def _least_cpus(question: Question) -> int:
    """CPUs that at least one node's worth of tasks takes."""
    shape = question.shape
    if shape.ntasks_per_node:
        tasks = shape.ntasks_per_node
    elif not shape.overcommit and shape.max_nodes == 1 and question.num_tasks:
        tasks = question.num_tasks
    else:
        tasks = 1
    return tasks * shape.cpus_per_task


def free_devices(question: Question, use: Counts, nodes: IntArray, demand: GresDemand, ever: bool) -> IntArray:
    """Devices per candidate of the kinds that satisfy the request."""
    out = np.zeros(len(nodes), dtype=np.int64)
    for k in demand.kinds:
        out += question.columns.gres_total[k][nodes] if ever else use.gres_free[k][nodes]
    return out


def _gres(question: Question, use: Counts, nodes: IntArray, cpus: IntArray, kept: IntArray, tpc: IntArray,
          memory: IntArray, ever: bool) -> tuple[list[GresFit], IntArray, IntArray]:
    """Devices the job could use next to the usable cores; clears ``cpus`` where there are too few."""
    shape = question.shape
    near = np.zeros(len(nodes), dtype=np.int64)
    out: list[GresFit] = []
    core_cpus = kept.sum(axis=1) * tpc
    for demand in question.demand.gres:
        r = demand.request
        total = free_devices(question, use, nodes, demand, ever)
        cpus = np.where((total == 0) | (total < max(r.per_node, r.per_task)), 0, cpus)
        least = total if question.whole else np.full_like(total, max(r.per_node, 1))
        if r.per_socket:
            least = np.maximum(least, r.per_socket * (shape.sockets_per_node or 1))
        least = np.maximum(least, r.per_task * shape.ntasks_per_node)
        each = r.cpus_per_gres or r.ntasks_per_gres * shape.cpus_per_task
        most = np.zeros_like(total)
        if each:
            room = cpus // each
            cpus = np.where((room == 0) | (room < max(r.per_node, r.per_task, r.per_socket)), 0, cpus)
        if r.mem_per_gres_mb and question.settings.select_memory:
            most = np.maximum(memory, 0) // r.mem_per_gres_mb
            cpus = np.where(most == 0, 0, cpus)
        if not question.whole:
            most = _bounded(most, r.per_node or r.per_job)
        if each and (not r.ntasks_per_gres or not question.whole):
            room = core_cpus // each
            cpus = np.where(room == 0, 0, cpus)
            most = np.where((most == 0) | (most > room), room, most)
        if r.mem_per_gres_mb and question.settings.select_memory:
            total = np.minimum(total, np.maximum(memory, 0) // r.mem_per_gres_mb)
        cpus = np.where((total < least) | ((most != 0) & (most < least)), 0, cpus)
        if r.name == "gpu":
            near = np.minimum(near + np.where((most != 0) & (most < total), most, total), 255)
        out.append(GresFit(demand, total, most))
    return out, cpus, near


def _bounded(most: IntArray, bound: int) -> IntArray:
    if not bound:
        return most
    return np.where((most == 0) | (most > bound), bound, most)


def _memory(question: Question, cpus: IntArray, memory: IntArray, unit: IntArray, tpc: IntArray) -> IntArray:
    """Takes CPUs away until their memory fits (--mem-per-cpu), or the node when --mem does not."""
    shape = question.shape
    if shape.mem_per_cpu_mb is not None and shape.mem_per_cpu_mb > 0:
        need = shape.mem_per_cpu_mb
        if question.whole:
            cpus = np.where(need * cpus > memory, 0, cpus)
        elif question.settings.select_unit != "cpu" and shape.ntasks_per_core == 1 and shape.cpus_per_task == 1:
            cpus = np.minimum(cpus, np.maximum(memory, 0) // (need * tpc))
        else:
            excess = np.maximum(need * cpus - memory, 0)
            cpus = np.maximum(cpus - unit * -(-excess // (need * unit)), 0)
        if shape.cpus_per_task > 1:
            cpus = cpus - cpus % shape.cpus_per_task
        return np.where(cpus < shape.ntasks_per_node, 0, cpus)
    return np.where((shape.mem_per_node_mb or 0) > memory, 0, cpus)
