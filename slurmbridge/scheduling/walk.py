"""The progress of filling a job with nodes: what is still wanted, and what one more node brings in.

Every way of choosing nodes (runs, least loaded, spread, …) walks over nodes and takes them through here, so that CPUs,
tasks and devices are counted in one place.
"""
from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from slurmbridge.scheduling.demand import Question
from slurmbridge.scheduling.facts import IntArray
from slurmbridge.scheduling.fit import Fit
from slurmbridge.scheduling.offer import Offer, offer

Details = tuple[int, int, int, list[int]]
"""Of a chosen node: least CPUs for its devices, most tasks, cores to keep (0: all), devices per request."""


class Impossible(Exception):
    """No other subset of the nodes can do better (a required node lacks resources, …)."""


class Unreachable(Impossible):
    """No switch reaches enough nodes."""


@dataclass(slots=True)
class Walk:
    """Progress of one attempt. ``rem_*``: still wanted; ``so_far``: devices per request found."""

    question: Question
    fit: Fit
    weight: IntArray
    first_pass: bool
    min_nodes: int
    max_nodes: int
    req_nodes: int
    rem_cpus: int = 0
    rem_nodes: int = 0
    min_rem_nodes: int = 0
    rem_max_cpus: int = 0
    max_tasks: int = 0
    per_job: bool = False
    so_far: list[int] = field(default_factory=list)
    chosen: dict[int, int] = field(default_factory=dict)             # position -> CPUs
    details: dict[int, Details] = field(default_factory=dict)

    def begin(self) -> None:
        question, demand = self.question, self.question.demand
        self.so_far = [0] * len(self.fit.gres)
        self.per_job = any(g.demand.request.per_job for g in self.fit.gres)
        self.rem_cpus = question.min_cpus
        self.min_rem_nodes = self.min_nodes
        self.rem_nodes = (min if self.per_job else max)(self.min_nodes, self.req_nodes)
        self.rem_max_cpus = max(question.min_cpus, demand.min_gres_cpus_node * self.rem_nodes,
                                demand.min_gres_cpus_job)
        shape = question.shape
        self.max_tasks = self.rem_max_cpus
        if not shape.overcommit and shape.cpus_per_task > 1:
            self.max_tasks = (shape.ntasks_per_node * self.max_nodes if shape.ntasks_per_node
                              else self.max_tasks // shape.cpus_per_task)

    def offer(self, at: IntArray) -> Offer:
        return offer(self.question, self.fit, at, self.min_rem_nodes, self.so_far, self.first_pass)

    def gres_met(self) -> bool:
        return all(g.demand.request.per_job <= found for g, found in zip(self.fit.gres, self.so_far))

    def satisfied(self) -> bool:
        return self.rem_nodes <= 0 and self.rem_cpus <= 0 and self.gres_met()

    def sufficient_gres(self, devices: list[int]) -> bool:
        return all(found >= g.demand.request.per_job or found + more >= g.demand.request.per_job
                   for g, found, more in zip(self.fit.gres, self.so_far, devices))

    def take(self, position: int, cpus: int, least: int, tasks: int, cores: int, devices: list[int]) -> bool:
        """Adds a node with as many of its CPUs as the job still needs. False: its devices do not fit the job."""
        shape = self.question.shape
        if not self.question.whole:
            reserved = max(self.min_rem_nodes - 1, 0) * int(self.fit.threads[position])
            if self.question.settings.select_unit == "socket":
                reserved *= int(self.question.columns.cores_per_socket[self.fit.nodes[position]])
            if cpus > self.rem_max_cpus - reserved:
                cpus = max(self.rem_max_cpus - reserved, shape.min_cpus_per_node,
                           least or self.question.demand.min_gres_cpus_node)
        if self.per_job and cpus:
            fitting = self._take_devices(cpus, tasks, devices)
            if fitting is None:
                return False
            cpus, tasks = fitting
        self.chosen[position] = cpus
        self.details[position] = (least, tasks, cores, devices)
        self.rem_cpus -= cpus
        self.rem_max_cpus -= cpus
        self.rem_nodes -= 1
        self.min_rem_nodes -= 1
        self.max_nodes -= 1
        return True

    def _take_devices(self, cpus: int, tasks: int, devices: list[int]) -> tuple[int, int] | None:
        """CPUs and tasks of the node once its share of the job's devices is settled (``devices`` is updated)."""
        shape = self.question.shape
        kept = max(self.min_rem_nodes - 1, 0)
        left = self.max_tasks - kept
        if not shape.overcommit:
            used = min(left, cpus // shape.cpus_per_task)
            if used < left:
                kept += left - used
                left = used
        left = max(left, 1)
        limit = left
        if shape.distribution and shape.distribution.startswith("plane") and not shape.overcommit:
            limit = min(limit, shape.plane_size or 1)
        if limit < tasks:
            for g, gres in enumerate(self.fit.gres):
                r = gres.demand.request
                if r.per_task and not r.per_node:
                    devices[g] = min(devices[g], limit * r.per_task)
                elif r.ntasks_per_gres and not r.per_node:
                    limit = limit // r.ntasks_per_gres * r.ntasks_per_gres
                    devices[g] = min(devices[g], limit // r.ntasks_per_gres)
            tasks = limit
        used = min(limit, tasks)
        least = max(shape.cpus_per_task * (1 if shape.overcommit else used), shape.min_cpus_per_node)
        if not used or cpus < least:
            return None
        gres_cpus = 0
        for g, gres in enumerate(self.fit.gres):
            r = gres.demand.request
            if not r.per_job:
                continue
            count = devices[g]
            if r.cpus_per_gres:
                count = min(cpus // r.cpus_per_gres, count)
                gres_cpus = max(gres_cpus, count * r.cpus_per_gres)
            floor = count if r.per_task or r.ntasks_per_gres else max(r.per_node, 1)
            if r.per_job > self.so_far[g]:
                count = min(r.per_job - self.so_far[g], count)
            devices[g] = max(count, floor)
            self.so_far[g] += devices[g]
        if gres_cpus and least < gres_cpus < cpus:
            cpus = gres_cpus
        self.max_tasks = left - used + kept
        return cpus, tasks

    def take_offer(self, position: int, given: Offer, k: int) -> bool:
        return self.take(position, int(given.cpus[k]), int(given.least_cpus[k]), int(given.tasks[k]),
                         int(given.cores[k]), [int(d[k]) for d in given.devices])

    def take_required(self, required: IntArray) -> bool:
        """True: the required nodes are enough. Raises Impossible when one of them cannot serve."""
        for position in required:
            if self.max_nodes <= 0:
                break
            given = self.offer(np.array([position]))
            if given.cpus[0] == 0 or not self.take_offer(int(position), given, 0):
                raise Impossible
        if self.satisfied():
            return True
        if self.max_nodes <= 0:
            raise Impossible
        return False

    def finished(self) -> bool:
        """After all sets: are the nodes found enough, if fewer than wanted?"""
        short = self.rem_nodes + self.min_nodes - self.req_nodes if self.req_nodes > self.min_nodes else self.rem_nodes
        return self.rem_cpus <= 0 and self.gres_met() and short <= 0
