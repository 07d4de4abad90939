"""Shares and priorities of the live cluster: the fair-share room's pure code put to the controller's records.

The controller tells it what changed and asks, before a scheduling pass, what came of it. Of everything else it keeps
columns, so that a pass over 100,000 pending jobs costs milliseconds. Only the controller's task calls it.

    priorities = Priorities(conf, accounting, partitions, nodes, last_ran_s=…, last_reset_s=…)
    job.priority = priorities.initial(job, now_s)         # submission and release; sets job.partition_priorities too
    priorities.track(job)                                 # a pending job changed (nice, size, partition, begin time…)
    priorities.refreshed(pending, now_s)                  # before a pass -> {job_id: (priority, by partition)} changed
    priorities.job_started(job, now_s)                    # it holds resources (also for each one after a restart)
    priorities.job_ended(job, now_s)                      # its run is over, start_s and tres_alloc still there
    priorities.job_over(job, now_s)                       # it is neither pending nor running any more
    priorities.reload(conf, partitions, nodes)            # slurm.conf, partitions or nodes changed
    priorities.set_usage(rows)                            # slurmbridge import usage

``refreshed`` does by itself what slurmctld does every PriorityCalcPeriod: resets and decays usage, adds that of running
jobs, ranks all users and recomputes all priorities. Changes of accounts, users, shares and QOS are seen by
``AssociationData.generation``. ``last_ran_s`` and ``last_reset_s`` must outlive a restart.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from slurmbridge.controller.accrual import UsageBook
from slurmbridge.fairshare import tree as trees
from slurmbridge.fairshare.billing import billable, parse_weights
from slurmbridge.fairshare.jobtable import JobShape, JobTable, PriorityNews
from slurmbridge.fairshare.multifactor import NO_TIME_LIMIT_MIN, Factors, Ints, Lookups, Weights, compute, normalised
from slurmbridge.slurm import states
from slurmbridge.slurm.jobspec import UNLIMITED_MIN
from slurmbridge.slurm.settings import SlurmConf
from slurmbridge.views.records import AssociationData, JobRecord, NodeRecord, PartitionRecord

MOST_REMEMBERED = 20_000


class Priorities:
    """See the module docstring. Raises ValueError for unreadable TRES weights or associations without a root."""

    def __init__(self, conf: SlurmConf, accounting: AssociationData, partitions: Mapping[str, PartitionRecord],
                 nodes: Mapping[str, NodeRecord], *, last_ran_s: float | None = None,
                 last_reset_s: float | None = None) -> None:
        self.accounting = accounting
        self.usage = UsageBook(conf, accounting, self.billing_of, last_ran_s, last_reset_s)
        self.computed_s: float = last_ran_s or 0.0
        self._jobs: dict[int, JobRecord] = {}
        self._active: dict[int, JobRecord] = {}
        self._tree: trees.Tree | None = None
        self._standing: trees.Standing | None = None
        self._generation = -1
        self._qos_index: dict[str, int] = {}
        self._first: dict[tuple[Any, ...], list[tuple[int, int]]] = {}    # what equal new jobs got, until shares change
        self._table = JobTable(0)
        self.reload(conf, partitions, nodes)

    # --- what the cluster is
    def reload(self, conf: SlurmConf, partitions: Mapping[str, PartitionRecord],
               nodes: Mapping[str, NodeRecord]) -> None:
        """The configuration, the partitions or the nodes changed. Priorities are as before until ``recompute``."""
        self.conf = conf
        self.usage.configure(conf)
        self.weights = Weights.of(conf.priority, self.accounting.tres)
        self.partitions, self.nodes = partitions, nodes
        self.usage.partition_qos = {name: part.qos for name, part in partitions.items() if part.qos}
        tres_ids = self.accounting.tres
        self._billing = {name: parse_weights(part.tres_billing_weights, tres_ids) for name, part in partitions.items()}
        self._partition_index = {name: index for index, name in enumerate(partitions)}
        totals = [self.partition_tres(name) for name in partitions]
        names = list(self.weights.tres)
        factors = np.array([part.priority_job_factor for part in partitions.values()], np.int64)
        self._partition_factor = factors.astype(np.float64) if self.weights.raw("PART") else normalised(factors, 1)
        self._partition_tres = np.array([[total.get(name, 0) for name in names] for total in totals],
                                        np.float64).reshape(len(totals), len(names))
        limits = [UNLIMITED_MIN if part.max_time_min is None else part.max_time_min for part in partitions.values()]
        self._partition_limit = np.array(limits, np.int64)
        self._cpus = sum(self._node_cpus(node) for node in nodes.values())
        self._table = JobTable(len(names))
        self._generation = -1
        for job in self._jobs.values():
            self.track(job)

    def _node_cpus(self, node: NodeRecord) -> int:
        line = self.conf.nodes.get(node.name)
        if line is None:
            return node.cpus
        reserved = line.core_spec_count * node.threads_per_core
        return node.cpus - (reserved or _list_length(line.cpu_spec_list))

    def partition_tres(self, name: str) -> dict[str, int]:
        """TRES totals of a partition by its configured nodes ("mem" in MB)."""
        total: dict[str, int] = {"cpu": 0, "mem": 0, "node": 0}
        for node_name in self.partitions[name].nodes:
            node = self.nodes.get(node_name)
            if node is None:
                continue
            total["cpu"] += self._node_cpus(node)
            total["mem"] += node.real_memory_mb
            total["node"] += 1
            for gres, count in node.gres.items():
                kind, colon, _ = gres.partition(":")
                for key in {f"gres/{kind}", f"gres/{gres}"} if colon else {f"gres/{kind}"}:
                    total[key] = total.get(key, 0) + count
        total["billing"] = int(billable(total, self._billing.get(name), self.conf.priority.flags))
        return total

    def billing(self, tres: Mapping[str, int], partition: str, total_cpus: int | None = None) -> float:
        """Unrounded billing of an allocation or a request in a partition."""
        return billable(tres, self._billing.get(partition), self.conf.priority.flags, total_cpus)

    def billing_of(self, job: JobRecord) -> float:
        """Unrounded billing of what a job has."""
        return job.billable or self.billing(job.tres_alloc, job.partition)

    # --- the queue
    def track(self, job: JobRecord) -> JobShape | None:
        """A pending job is new or changed. Returns what its priority is made of, None where it has no partition."""
        self._sync()
        known = [name for name in (job.partition or "").split(",") if name in self._partition_index]
        self._jobs[job.job_id] = job
        if not known:
            self._table.drop(job.job_id)
            return None
        by_tier = sorted(known, key=lambda name: -self.partitions[name].priority_tier)
        tres = job.tres_alloc or job.tres_req
        limit = job.time_limit_min
        shape = JobShape(
            job_id=job.job_id, association_id=self._association_id(job),
            partitions=[self._partition_index[name] for name in by_tier], leading=by_tier.index(known[0]),
            qos=self._qos_index.get(job.qos, -1), accrue_s=int(job.accrue_s or 0), cpus=job.num_cpus,
            min_nodes=job.tres_req.get("node", job.min_nodes),
            time_limit_min=NO_TIME_LIMIT_MIN if limit is None else limit, nice=job.nice, site=job.site_factor,
            tres=[tres.get(name, 0) for name in self.weights.tres])
        self._table.put(shape)
        return shape

    def qos_difference(self, one: str, other: str) -> int:
        """How much less (negative) or more a job's priority is under another QOS."""
        self._sync()
        factors = [float(self._qos_factor[self._qos_index[name]]) if name in self._qos_index else 0.0
                   for name in (one, other)]
        return int((factors[1] - factors[0]) * float(self.weights.qos))

    def forget(self, job_id: int) -> None:
        """The job is not pending any more, or gone."""
        self._jobs.pop(job_id, None)
        self._table.drop(job_id)

    def initial(self, job: JobRecord, now_s: float) -> int:
        """The priority of one job now. Tracks it, sets ``priority`` and ``partition_priorities`` and returns the
        priority (a fixed one stays)."""
        self._enter((job,), now_s)
        return job.priority

    def _enter(self, jobs: Iterable[JobRecord], now_s: float) -> None:
        """Tracks the jobs and gives all but fixed ones their first priority."""
        self._current()
        for job in jobs:
            shape = self.track(job)
            if shape is None or (job.priority_fixed and job.priority):
                continue
            key = shape.content(int(now_s))
            known = self._first.get(key)
            rows = self._table.rows(job.job_id)
            if known is not None:
                self._put(self._table.repeat(rows, known), True)
                continue
            numbers = np.array(rows, np.int64)
            self._write(numbers, self._factors(numbers, now_s), True)
            if len(self._first) >= MOST_REMEMBERED:
                self._first.clear()
            self._first[key] = self._table.priorities(rows)

    def recompute(self, now_s: float) -> list[JobRecord]:
        """All priorities at ``now_s``; held and fixed jobs keep theirs. Returns the jobs whose priority changed."""
        self._sync()
        rows = self._table.live_rows()
        self.computed_s = now_s
        return self._write(rows, self._factors(rows, now_s), False)

    def refreshed(self, pending: Mapping[int, JobRecord], now_s: float,
                  refiled: Iterable[int] | None = None) -> dict[int, tuple[int, dict[str, int]]]:
        """Follows which jobs are pending and recomputes all of them when PriorityCalcPeriod is over.

        ``refiled``: the jobs that may have become pending or ceased to be since the last call (None: any). Returns
        {job id: (priority, priority by partition)} of the jobs whose priority changed; the records have it.
        """
        ids = self._jobs.keys() | pending.keys() if refiled is None else refiled
        changed: dict[int, JobRecord] = {}
        for job_id in ids:
            if job_id in pending:
                if job_id not in self._jobs:
                    changed[job_id] = pending[job_id]
            elif job_id not in self._active:
                self.forget(job_id)
        for job in changed.values():
            if not job.priority:
                self.track(job)               # held
        self._enter([job for job in changed.values() if job.priority], now_s)
        if self.last_ran_s is None or now_s - self.last_ran_s >= self.conf.priority.calc_period_s:
            changed.update((job.job_id, job) for job in self.period(now_s))
        return {job_id: (job.priority, job.partition_priorities) for job_id, job in changed.items()}

    def period(self, now_s: float) -> list[JobRecord]:
        """Usage, shares and all priorities anew, whatever the time. Returns the jobs whose priority changed."""
        self.usage.run(self._active.values(), now_s)
        self._standing = None
        return self.recompute(now_s)

    @property
    def last_ran_s(self) -> float | None:
        """When usage was last brought up to date."""
        return self.usage.last_ran_s

    @property
    def last_reset_s(self) -> float | None:
        """When usage was last set to zero (or first counted)."""
        return self.usage.last_reset_s

    # --- runs
    def job_started(self, job: JobRecord, now_s: float) -> None:
        """The job holds resources: it accrues usage from ``start_s`` on."""
        self._active[job.job_id] = job
        if "CALCULATE_RUNNING" in self.weights.flags:
            self.track(job)
        else:
            self.forget(job.job_id)

    def job_ended(self, job: JobRecord, now_s: float, *, refund: bool = False) -> None:
        """A run is over: adds what it used since the last period, or takes all of it back. A second call for the same
        run does nothing."""
        if self._active.pop(job.job_id, None) is not None:
            self.usage.end(job, now_s)
            if refund:
                self.usage.refund(job)
        if self.usage.runs is not None:
            self.usage.runs.runs.pop(job.job_id, None)

    def job_over(self, job: JobRecord, now_s: float) -> None:
        """The job is over for good."""
        self.job_ended(job, now_s)
        self.forget(job.job_id)

    def set_usage(self, rows: Iterable[tuple[str, str, float]]) -> None:
        """(account, user, raw usage) replaces the usage of these user associations; the accounts above follow.
        Raises KeyError(account, user) before anything changed."""
        self.usage.replace(rows)
        self._standing = None

    def _write(self, rows: Ints, factors: Factors, fresh: bool) -> list[JobRecord]:
        return self._put(self._table.news(rows, factors, fresh), fresh)

    def _put(self, news: Iterable[PriorityNews], fresh: bool) -> list[JobRecord]:
        """Puts new priorities into the records. ``fresh``: whatever they had; else held and fixed jobs keep theirs."""
        only_up = "INCR_ONLY" in self.weights.flags and not fresh
        names = list(self._partition_index)
        changed: dict[int, JobRecord] = {}
        for job_id, partition, priority, job_priority in news:
            job = self._jobs[job_id]
            if not fresh and (not job.priority or job.priority_fixed):
                continue
            if partition < 0:
                if job.partition_priorities:
                    job.partition_priorities.clear()
            elif not only_up or job.partition_priorities.get(names[partition], 0) < priority:
                job.partition_priorities[names[partition]] = priority
                changed[job_id] = job
            if job_priority and job_priority != job.priority and (not only_up or job.priority < job_priority):
                job.priority = job_priority
                changed[job_id] = job
        return list(changed.values())

    # --- the associations
    def _sync(self) -> None:
        """Follows changes of associations and QOS."""
        data = self.accounting
        if self._tree is not None and self._generation == data.generation:
            return
        live = [a for a in data.associations.values() if not a.deleted]
        tree = trees.build_tree(
            trees.Association(a.id, a.parent_id, a.account, a.user, a.partition, a.shares, a.priority) for a in live)
        if self._tree is not None:
            self.usage.moved(self._tree, tree)
        self._tree, self._standing, self._generation = tree, None, data.generation
        self._by_id = np.argsort(tree.ids)
        self._by_name = {(a.account, a.user, a.partition): a.id for a in live}
        qos = [q for q in data.qos.values() if not q.deleted]
        moved = {q.name: index for index, q in enumerate(qos)}
        priorities = np.array([q.priority for q in qos], np.int64)
        self._qos_factor = priorities.astype(np.float64) if self.weights.raw("QOS") else normalised(priorities)
        if moved != self._qos_index:
            self._qos_index = moved
            for job in list(self._jobs.values()):
                self.track(job)

    def _association_id(self, job: JobRecord) -> int:
        if job.assoc_id:
            return job.assoc_id
        return self._by_name.get((job.account, job.user_name, job.partition)) or self._by_name.get(
            (job.account, job.user_name, ""), 0)

    def _current(self) -> tuple[trees.Tree, trees.Standing]:
        self._sync()
        tree = self._tree
        assert tree is not None
        if self._standing is None:
            self._first.clear()
            flags = self.weights.flags
            usage = self.usage.totals(tree)
            if "DEPTH_OBLIVIOUS" in flags or "NO_FAIR_TREE" in flags:
                dampening = int(self.conf.values.get("FairShareDampeningFactor") or 1)
                self._standing = trees.classic(tree, usage, dampening=dampening,
                                               depth_oblivious="DEPTH_OBLIVIOUS" in flags)
            else:
                self._standing = trees.fair_tree(tree, usage)
        return tree, self._standing

    def _factors(self, rows: Ints, now_s: float) -> Factors:
        tree, standing = self._current()
        ids, order = self._table.association_ids(rows), self._by_id
        place = np.minimum(np.searchsorted(tree.ids, ids, sorter=order), len(order) - 1)
        at = np.where(tree.ids[order[place]] == ids, order[place], -1)
        assoc = tree.priority.astype(np.float64) if self.weights.raw("ASSOC") else tree.priority_norm
        lookups = Lookups(len(self.nodes), self._cpus, standing.fair_share, assoc, self._partition_factor,
                          self._partition_limit, self._partition_tres, self._qos_factor)
        return compute(self._table.columns(rows, at), lookups, self.weights, now_s)

    # --- what commands show (views.session.Views)
    def shares(self) -> list[dict[str, Any]]:
        """sshare's rows in tree order, documented at ``Views.shares``."""
        tree, standing = self._current()
        running = self.usage.run_seconds(self._active.values())
        rows = []
        for row, association_id in enumerate(tree.ids.tolist()):
            association = self.accounting.associations[association_id]
            inherits = bool(tree.from_parent[row])
            rows.append({
                "assoc": association, "depth": int(tree.depth[row]),
                "raw_shares": None if not row else association.shares,
                "norm_shares": float(standing.norm_shares[row]), "raw_usage": float(association.usage_raw),
                "norm_usage": _number(standing.norm_usage[row]),
                "effective_usage": float(standing.effective_usage[row]),
                "fair_share": _number(standing.fair_share[row]),
                "level_fs": None if inherits else _number(standing.level_fs[row]),
                "tres_run_s": running.get(association_id, {})})
        return rows

    def priority_columns(self, now_s: float, job_ids: Sequence[int] | None = None) -> dict[str, list[Any]]:
        """sprio's rows by column, documented at ``Views.priority_columns``; factors are those of the last period."""
        self._sync()
        wanted = sorted(self._jobs) if job_ids is None else sorted(set(job_ids) & self._jobs.keys())
        jobs, rows = [], []
        for job in map(self._jobs.__getitem__, wanted):
            if self._is_shown(job, now_s):
                own = self._table.rows(job.job_id)
                jobs += [job] * len(own)
                rows += own
        numbers = np.array(rows, np.int64)
        factors = self._factors(numbers, self.computed_s)
        names = list(self._partition_index)
        direct = [job.priority if job.priority_fixed else 0 for job in jobs]
        computed = np.array(direct, np.int64) == 0
        columns: dict[str, list[Any]] = {
            "job_id": [job.job_id for job in jobs],
            "partition": [names[index] for index in self._table.partitions_of(numbers)],
            "user": [job.user_name for job in jobs], "uid": [job.uid for job in jobs],
            "account": [job.account for job in jobs], "qos_name": [job.qos for job in jobs],
            "direct_priority": direct, "site": [job.site_factor for job in jobs], "nice": [job.nice for job in jobs]}
        for name, column in (
                ("age", factors.age), ("assoc", factors.assoc), ("fairshare", factors.fairshare),
                ("jobsize", factors.jobsize), ("part", factors.partition), ("qos", factors.qos)):
            columns[name] = np.where(computed, column, 0.0).tolist()
        costs = list(map(tuple, np.where(computed[:, None], factors.tres, 0.0).tolist()))
        tres = list(self.weights.tres)
        by_cost = {row: {name: cost for name, cost in zip(tres, row) if cost} for row in set(costs)}
        columns["tres"] = list(map(by_cost.__getitem__, costs))
        return columns

    def _is_shown(self, job: JobRecord, now_s: float) -> bool:
        flags = self.weights.flags
        if job.state != states.PENDING and "CALCULATE_RUNNING" not in flags:
            return False
        begins = job.submit_s if "ACCRUE_ALWAYS" in flags else job.eligible_s
        return bool(begins) and int(begins or 0) <= now_s and job.priority != 0


def _number(value: np.floating[Any]) -> float | None:
    return None if np.isnan(value) else float(value)


def _list_length(text: str) -> int:
    """How many numbers "0-3,8" names."""
    total = 0
    for part in filter(None, text.split(",")):
        first, dash, last = part.partition("-")
        total += int(last) - int(first) + 1 if dash else 1
    return total
