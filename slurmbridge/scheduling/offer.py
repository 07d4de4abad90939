"""How many tasks and CPUs a node would carry as part of a job's node set, and its devices (--gpus and kin).

Between the node's own limits (``fit``) and the choice of nodes (``choose``): here the job's task layout and the devices
that it counts over all its nodes come in.
"""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurmbridge.scheduling.demand import MANY, Question
from slurmbridge.scheduling.facts import BoolArray, IntArray
from slurmbridge.scheduling.fit import Fit, GresFit


@dataclass(slots=True)
class Offer:
    """Per position: CPUs, the least CPUs its devices need, the most tasks, cores asked for (0: all),
    devices per request."""

    cpus: IntArray
    least_cpus: IntArray
    tasks: IntArray
    cores: IntArray
    devices: list[IntArray]


def task_bounds(question: Question, at: IntArray, fit: Fit) -> tuple[IntArray, IntArray]:
    """Least and most tasks per position, by --ntasks-per-* and the node range."""
    shape = question.shape
    columns = question.columns
    ones = np.ones(len(at), dtype=np.int64)
    nodes = fit.nodes[at]
    per_gres = max((r.ntasks_per_gres for r in shape.gres), default=0)
    if shape.ntasks_per_node:
        return ones * shape.ntasks_per_node, ones * shape.ntasks_per_node
    if shape.ntasks_per_board:
        return ones * shape.ntasks_per_board, ones * shape.ntasks_per_board
    if shape.ntasks_per_socket:
        return ones * shape.ntasks_per_socket, shape.ntasks_per_socket * columns.sockets[nodes]
    if shape.ntasks_per_core:
        return ones * shape.ntasks_per_core, shape.ntasks_per_core * columns.socket_cores[nodes].sum(axis=1)
    if per_gres:
        if question.job_min_nodes and question.job_min_nodes == shape.max_nodes:
            each = question.num_tasks // question.job_min_nodes
            return ones * each, ones * each
        return ones * per_gres, ones * question.num_tasks
    if shape.max_nodes == 1:
        return ones * (question.num_tasks or 1), ones * (question.num_tasks or MANY)
    one_each = question.num_tasks == question.job_min_nodes == shape.max_nodes
    return ones, ones if question.num_tasks == 1 or one_each else ones * MANY


def offer(question: Question, fit: Fit, at: IntArray, rem_nodes: int, so_far: list[int], first_pass: bool) -> Offer:
    """``so_far``: devices per request that nodes chosen before bring in; ``rem_nodes``: nodes still to be found."""
    shape = question.shape
    least, most = task_bounds(question, at, fit)
    cpus = fit.cpus[at]
    if not shape.overcommit:
        carried = cpus // shape.cpus_per_task
        most = np.where(carried < least, 0, np.minimum(most, carried))
    if question.num_tasks:
        most = np.minimum(most, question.num_tasks)
    zero = np.zeros(len(at), dtype=np.int64)
    out = Offer(cpus.copy(), zero, most, zero.copy(), [])
    if fit.gres:
        _offer_gres(question, fit, at, max(rem_nodes, 1), so_far, first_pass, least, out)
    out.cpus[out.tasks <= 0] = 0
    if question.settings.one_task_per_core and not shape.ntasks_per_core and not question.demand.min_gres_cpus_node:
        out.cpus = np.where(out.cpus > 0, fit.cores[at].sum(axis=1), 0)
    return out


def _offer_gres(question: Question, fit: Fit, at: IntArray, rem_nodes: int, so_far: list[int], first_pass: bool,
                least: IntArray, out: Offer) -> None:
    """Lowers ``out`` to what the devices of each request allow."""
    shape = question.shape
    threads = fit.threads[at]
    cores = fit.cores[at].sum(axis=1)
    increment = least.copy()
    per_gres_cpus = False
    asked = np.full(len(at), MANY, dtype=np.int64)
    order = sorted(range(len(fit.gres)), key=lambda g: not fit.gres[g].demand.request.per_socket)
    totals: dict[int, IntArray] = {}
    for g in order:
        gres = fit.gres[g]
        r = gres.demand.request
        each = _cpus_each(question, gres, first_pass)
        per_gres_cpus |= r.cpus_per_gres > 0
        total = gres.total[at].copy()
        bound = _wanted(question, gres, at, rem_nodes, so_far[g], least, out)
        sockets = shape.sockets_per_node or 1
        out.tasks[(bound > 0) & ((r.per_node > bound) | (r.per_socket * sockets > bound))] = 0
        if r.per_node and r.per_task:
            fitting = r.per_node // r.per_task
            out.tasks[(fitting == 0) | (fitting > out.tasks) | (fitting < least)] = 0
        count = total.copy()
        if each:
            room = out.cpus // each
            bound = np.where(bound > 0, np.minimum(bound, room), room)
            count = np.minimum(count, bound)
        count = np.where(bound > 0, np.minimum(count, bound), count)
        if r.per_node:
            count = np.minimum(count, r.per_node)
        out.tasks[(count == 0) | (r.per_node > count) | (r.per_task > count)] = 0
        if each:
            given = each * count
            short = (given < least * shape.cpus_per_task) | (given < shape.min_cpus_per_node)
            fewer = np.minimum(out.tasks, given // shape.cpus_per_task)
            out.tasks = np.where(out.tasks > 0, np.where(short, least, fewer), 0)
        count = _tasks_per_device(r.per_task, r.per_node, r.ntasks_per_gres, count, out)
        least[:] = least // increment * increment
        out.tasks = out.tasks // increment * increment
        limited = out.tasks < MANY // 2
        if each:
            total = np.where(~limited, np.minimum(out.cpus // each, total), total)
        need = _cores_needed(question, least, threads, cores, out, limited)
        if each:
            wanted = np.full_like(count, r.per_node) if r.per_node else np.maximum(
                out.tasks * r.per_task if r.per_task else count, 1)
            out.tasks = np.where(limited, np.minimum(out.tasks, wanted * each), out.tasks)
            need = np.where(limited, np.maximum(need, -(-wanted * each // threads)), need)
        out.tasks[limited & (need > cores)] = 0
        trimmed = limited & (cores > need)
        out.cores = np.where(trimmed, np.where(out.cores > 0, np.minimum(out.cores, need), need), out.cores)
        cores = np.where(trimmed, need, cores)
        out.cpus = np.where(trimmed, np.minimum(out.cpus, need * threads), out.cpus)
        if each:
            total = np.where(limited, np.minimum(out.cpus // each, total), total)
            out.tasks[(r.per_node > total) | (r.per_task > total)] = 0
        totals[g] = np.where(limited, np.minimum(count, total), total)
        if r.cpus_per_gres:
            asked = np.where(limited, np.minimum(asked, need), asked)
    out.devices = [totals[g] for g in range(len(fit.gres))]
    asked = np.where((asked == MANY) | (out.tasks == 0), 0, asked)
    if not per_gres_cpus and (shape.cpus_per_task > 1 or not question.settings.one_task_per_core):
        carried = np.minimum(out.tasks, MANY // 4096) * shape.cpus_per_task
        out.cpus = np.minimum(out.cpus, np.maximum(carried, asked * threads))
    out.least_cpus = asked * threads


def _cpus_each(question: Question, gres: GresFit, first_pass: bool) -> int:
    """CPUs per device: as asked, by --ntasks-per-gpu, or (first try only) an even split of the job's tasks."""
    r = gres.demand.request
    cpt = question.shape.cpus_per_task
    if r.cpus_per_gres:
        return r.cpus_per_gres
    if r.ntasks_per_gres:
        return r.ntasks_per_gres * cpt
    if not first_pass or not question.num_tasks or not r.per_job:
        return 0
    if question.num_tasks >= r.per_job and question.num_tasks % r.per_job == 0:
        return question.num_tasks // r.per_job * cpt
    if r.per_job % question.num_tasks == 0 and cpt % (r.per_job // question.num_tasks) == 0:
        return cpt // (r.per_job // question.num_tasks)
    return 0


def _wanted(question: Question, gres: GresFit, at: IntArray, rem_nodes: int, so_far: int, least: IntArray,
            out: Offer) -> IntArray:
    """Most devices to take on each position (0: no bound); nodes that cannot give the tasks their devices drop out."""
    r = gres.demand.request
    wanted = np.zeros(len(at), dtype=np.int64)
    if r.per_job:
        if so_far < r.per_job:
            wanted += r.per_job - so_far - (rem_nodes - 1)
        else:
            sockets = question.shape.sockets_per_node or 1
            wanted += r.per_node or max(1, r.per_task, r.per_socket * sockets)
    if r.per_task:
        known = out.tasks < MANY
        out.tasks[known & (r.per_task * least > wanted)] = 0
        wanted = np.where(known, np.minimum(wanted, r.per_task * out.tasks), wanted)
    most = gres.most[at]
    return np.where(most > 0, np.where((wanted > 0) & (wanted < most), wanted, most), 0)


def _tasks_per_device(per_task: int, per_node: int, per_gres: int, count: IntArray, out: Offer) -> IntArray:
    """Bounds tasks by devices and devices by tasks."""
    if per_task:
        out.tasks = np.minimum(out.tasks, count // per_task)
        if not per_node:
            count = np.minimum(out.tasks * per_task, count)
    if per_gres:
        tasks = count * per_gres
        surplus = np.maximum(-(-(tasks - out.tasks) // per_gres), 0)
        tasks -= surplus * per_gres
        if not per_node:
            count = count - surplus
        out.tasks = np.minimum(out.tasks, tasks)
    return count


def _cores_needed(question: Question, least: IntArray, threads: IntArray, cores: IntArray, out: Offer,
                  limited: BoolArray) -> IntArray:
    """Cores for the most tasks that fit; lowers ``out.tasks`` to them."""
    shape = question.shape
    each = np.full_like(threads, shape.cpus_per_task)
    if shape.ntasks_per_core == 1:
        each = -(-each // threads) * threads
    fitting = cores * threads // each
    tasks = np.where(limited & (out.tasks > fitting), np.where(fitting < least, 0, fitting), out.tasks)
    out.tasks = tasks
    return np.where(limited, -(-tasks * each // threads), 0)
