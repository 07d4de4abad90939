"""Choosing nodes for one job in one partition, with the verdict when there are none (slurmctld's node_scheduler).

Features with alternatives or counts are tried in turn; a job that does not fit now is tested against the nodes that are
available and against all nodes, so that "busy", "not available" and "never" are told apart.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from slurmbridge.scheduling import features as feature_grammar
from slurmbridge.scheduling.demand import MANY, Demand, Question, ask, node_bounds
from slurmbridge.scheduling.facts import NO_USER, BoolArray, Partition, RunningJob
from slurmbridge.scheduling.features import Feature
from slurmbridge.scheduling.licensing import Licenses, granted
from slurmbridge.scheduling.preempt import make_room
from slurmbridge.scheduling.reservations import OPEN, ReservationView, with_busy
from slurmbridge.scheduling.select import Selected, can_now, could_ever
from slurmbridge.scheduling.state import PassState
from slurmbridge.scheduling.use import Use
from slurmbridge.scheduling.walk import Unreachable

SUCCESS, BUSY, NOT_AVAIL, NEVER, NO_SWITCH, PART_CONFIG, RESERVED, LICENSES, POLICY = (
    "success", "busy", "not available", "never", "no switch", "partition", "reserved", "licenses", "policy")


@dataclass(slots=True)
class Outcome:
    """``code``; the selection on success; ``possible``: nodes that the job would get from an idle cluster;
    ``message``: what sbatch says before its refusal."""

    code: str
    selected: Selected | None = None
    possible: int = 0
    message: str = ""
    preempted: tuple[int, ...] = ()           # jobs that must end before the selection is free
    licenses: Licenses = ()                   # what it gets of them


def try_now(state: PassState, demand: Demand, partition: Partition, uid: int, *, features: tuple[Feature, ...],
            exclude: BoolArray | None = None, limit_nodes: int = MANY, max_switches: int = 0, test_only: bool = False,
            view: ReservationView = OPEN, victims: Sequence[RunningJob] = ()) -> Outcome:
    """Whether the job can start now. ``exclude``: nodes planned for others; ``test_only``: no shares are worked out;
    ``victims``: jobs that it may preempt."""
    columns = state.snapshot.cluster
    base, grouped = demand.feature_nodes(columns, features)
    base = base & columns.partition_nodes[partition.name]
    if not view.usable:
        return Outcome(RESERVED)
    if view.only is not None:
        base &= view.only
    if view.busy or view.devices:
        state = replace(state, use=with_busy(columns, state.use, view.busy, view.devices))
    if exclude is not None:
        base &= ~exclude
    base, message = configured(state, demand, base)
    if not base.any():
        return Outcome(NEVER, message=message)
    if demand.required is not None and (demand.required & ~base).any():
        return Outcome(NEVER)
    shape = demand.shape
    if demand.required is not None and shape.max_nodes and int(demand.required.sum()) > shape.max_nodes:
        return Outcome(NEVER)
    bounds = node_bounds(shape, partition, limit_nodes)
    if bounds[1] < bounds[0]:
        return Outcome(POLICY if limit_nodes < bounds[0] else PART_CONFIG)
    question = ask(columns, demand, partition, state.snapshot.settings, bounds, max_switches)
    question.features = features
    search = _Search(state, uid, view.closed, test_only, view.overlap, victims, view.licenses)
    groups = feature_grammar.counted_groups(
        features, feature_grammar.lookup_in(columns.features, len(columns))) if features else []
    if groups:
        return search.counted(question, base, groups)
    if grouped:
        lookup = feature_grammar.lookup_in(columns.features, len(columns))
        return search.best(question, [base & mask for mask in feature_grammar.alternatives(features, lookup)])
    return search.best(question, [base])


def configured(state: PassState, demand: Demand, base: BoolArray) -> tuple[BoolArray, str]:
    """Nodes whose configuration can serve the job at all, and Slurm's words when none can."""
    columns, shape = state.snapshot.cluster, demand.shape
    cpus = columns.cpus
    if shape.ntasks_per_core:
        cpus = np.minimum(cpus, columns.cores * shape.ntasks_per_core * shape.cpus_per_task)
    memory = shape.mem_per_cpu_mb or shape.mem_per_node_mb or 0
    tests = (
        ("CPU count per node can not be satisfied", shape.min_cpus_per_node <= cpus),
        ("Memory specification can not be satisfied", memory <= columns.mem_mb + columns.mem_spec_mb),
        ("Temporary disk specification can not be satisfied", shape.tmp_disk_mb <= columns.tmp_disk_mb),
        ("Socket, core and/or thread specification can not be satisfied",
         (shape.sockets_per_node <= columns.sockets) & (shape.cores_per_socket <= columns.cores_per_socket)
         & (shape.threads_per_core <= columns.threads)),
    )
    message = ""
    left = base
    for text, passes in tests:
        if not passes.all():
            if not message and (left & ~passes).any():
                message = text
            left = left & passes
    return left, "" if left.any() else message


def _ever(question: Question, nodes: BoolArray, use: Use) -> tuple[Selected | None, str]:
    """What the job would get of idle nodes, and the verdict where it gets nothing."""
    try:
        return could_ever(question, nodes, use), NEVER
    except Unreachable:
        return None, NO_SWITCH


@dataclass(slots=True)
class _Search:
    """The inputs that every test of one job shares."""

    state: PassState
    uid: int
    closed: BoolArray | None                  # nodes reserved for others
    test_only: bool
    overlap: bool
    victims: Sequence[RunningJob] = ()
    kept_licenses: tuple[tuple[str, int], ...] = ()      # for reservations of others

    def available(self) -> BoolArray:
        return self.state.available if self.closed is None else self.state.available & ~self.closed

    def open_nodes(self, question: Question) -> BoolArray:
        """Nodes that no exclusive job or other owner holds."""
        use = self.state.use
        usable: BoolArray = ~use.whole
        if question.demand.whole_user or question.partition.exclusive_user:
            usable &= ~self.state.other_users(self.uid)
            return usable
        usable &= (use.owner == NO_USER) | (use.owner == self.uid)
        return usable

    def best(self, question: Question, sets: list[BoolArray]) -> Outcome:
        """The first alternative that can run now, or why none can."""
        state, settings = self.state, question.settings
        available = self.available()
        required = question.required
        if required is not None:
            if int(required.sum()) > question.max_nodes:
                return Outcome(PART_CONFIG)
            if (required & ~available).any():
                return Outcome(NOT_AVAIL)
        preempting = settings.preempt_type != "preempt/none" and settings.preempt_mode != "OFF"
        licenses, short = question.shape.licenses, {}
        if licenses and not self.test_only:
            free = self._free_licenses(question)
            found_licenses = granted(licenses, choice=question.shape.license_choice, free=lambda name: free[name])
            if found_licenses is None:
                if question.shape.license_choice or not (settings.reclaim_licenses and self.victims):
                    return Outcome(LICENSES)
                short = {name: count - free[name] for name, count in licenses if count > free[name]}
            else:
                licenses = found_licenses
        ever = runnable = busy = False
        never = NEVER
        possible = 0
        for total in sets:
            if not total.any() or (required is not None and (required & ~total).any()):
                continue
            mine = total & available
            usable = mine & ~state.snapshot.cluster.completing
            if not preempting:
                usable &= self.open_nodes(question) if question.share else state.use.jobs == 0
            busy = busy or bool((mine & ~usable).any())
            tried = (required if required is not None else usable) & self.open_nodes(question)
            if required is not None:
                tried = tried | (usable & self.open_nodes(question))
            found = can_now(question, tried, state.use, with_shares=not self.test_only)
            if found is not None and found.count <= question.max_nodes and not short:
                return Outcome(SUCCESS, found, found.count, licenses=licenses)
            room = make_room(question, mine, state.use, self.uid, self.victims, short) if self.victims else None
            if room is not None:
                return Outcome(SUCCESS, room[0], room[0].count, preempted=room[1], licenses=licenses)
            if (ever and runnable) or int(total.sum()) < question.min_nodes:
                continue
            if not runnable and int(usable.sum()) >= question.min_nodes:
                there, never = _ever(question, total & available, state.use)
                if there is not None:
                    ever, runnable, possible = True, there.count <= question.max_nodes, there.count
            if not ever:
                there, never = _ever(question, total, state.use)
                if there is not None:
                    ever, possible = True, there.count
        if short:
            return Outcome(LICENSES)
        if not ever:
            return Outcome(RESERVED if self.overlap and never == NEVER else never)
        return Outcome(NOT_AVAIL if not runnable and not busy else BUSY, possible=possible)

    def _free_licenses(self, question: Question) -> dict[str, int]:
        """How many there are for the job of each that it names."""
        totals, used, kept = question.settings.licenses_total, self.state.licenses_used, dict(self.kept_licenses)
        return {name: totals.get(name, 0) - used.get(name, 0) - kept.get(name, 0)
                for name, _ in question.shape.licenses}

    def counted(self, question: Question, base: BoolArray, groups: list[tuple[int, BoolArray, bool]]) -> Outcome:
        """``-C a*2`` and ``[a*2&b*1]``: the nodes of each group first, then the rest with those required."""
        picked = np.zeros_like(base) if question.required is None else question.required.copy()
        in_list = False
        shape = question.shape
        for count, mask, counted_list in groups:
            in_list |= counted_list
            nodes = base & mask
            if in_list:
                nodes &= ~picked
            tasks = count * shape.ntasks_per_node if shape.ntasks_per_node else question.num_tasks
            part = replace(question, min_nodes=count, req_nodes=count, min_cpus=count, job_min_nodes=count,
                           num_tasks=tasks, required=None)
            found = replace(self, test_only=True).best(part, [nodes])
            if found.code != SUCCESS or found.selected is None:
                return replace(found, possible=0)
            picked |= found.selected.nodes
        count = int(picked.sum())
        least = max(question.min_nodes, count)
        wanted = max(least, groups[-1][0])    # of -N 1-3 no more than the groups and the least number need
        if wanted > question.max_nodes:
            return Outcome(NEVER)
        whole = replace(question, required=picked if count else None, min_cpus=max(question.min_cpus, count),
                        min_nodes=least, job_min_nodes=least, req_nodes=wanted)
        return self.best(whole, [base])
