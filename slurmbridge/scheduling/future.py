"""What will be free when: the counts of the cluster after the jobs that end by some time are gone.

Built once per backfill pass from the running jobs and kept up to date as the pass starts jobs. Counts of a time are
made from sums over all shares and remembered, and so is what each node could then offer to a shape.
"""
from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from slurmbridge.scheduling.columns import ClusterColumns
from slurmbridge.scheduling.demand import Question
from slurmbridge.scheduling.earliest import Earliest
from slurmbridge.scheduling.facts import FOREVER_S, BoolArray, IntArray, RunningJob
from slurmbridge.scheduling.fit import Fit, fit
from slurmbridge.scheduling.select import shareable
from slurmbridge.scheduling.state import PassState
from slurmbridge.scheduling.timeline import bits
from slurmbridge.scheduling.use import Counts, Use, cores_per_socket, count_job, release

_KEPT = 256
_KEPT_USES = 32
Row = tuple[int, int, int, int]
End = tuple[int, int]
"""(end, job id): jobs that end in the same second are gone one after another."""


def by_time(until_s: int) -> End:
    """All jobs that end by then."""
    return until_s, FOREVER_S


@dataclass(slots=True)
class _Entry:
    """Counts of a time, and how many of the pass's starts they include; fits by question key."""

    counts: Counts
    seen: int
    fits: dict[tuple[object, ...], tuple[int, BoolArray, Fit]] = field(default_factory=dict)


class _Uses:
    """The use after the first n ends, made of that after fewer; forgotten when the pass starts another job."""

    def __init__(self) -> None:
        self._made: dict[int, Use] = {}
        self._starts = 0

    def at(self, now: Use, columns: ClusterColumns, jobs: list[RunningJob], gone: int, starts: int) -> Use:
        if starts != self._starts:
            self._made.clear()
            self._starts = starts
        found = self._made.get(gone)
        if found is None:
            before = max((count for count in self._made if count < gone), default=0)
            found = self._made.get(before, now).copy()
            for job in jobs[before:gone]:
                release(columns, found, job)
            while len(self._made) >= _KEPT_USES:
                self._made.pop(next(iter(self._made)))
            self._made[gone] = found
        return found


class Future:
    """Jobs by end time, as arrays: job ``i`` ends at ``end_s[i]``; shares refer to jobs by number."""

    def __init__(self, state: PassState) -> None:
        self.state = state
        self.columns = state.snapshot.cluster
        self.jobs: list[RunningJob] = []
        self.starts: list[RunningJob] = []
        self._entries: dict[End, _Entry] = {}
        self._earliest: Earliest | None = None
        self._able: dict[tuple[int, int], int] = {}
        self._uses = _Uses()
        self._emptied: dict[tuple[tuple[int, ...], int], Future] = {}
        self._build(list(state.running.values()))

    def _build(self, jobs: list[RunningJob]) -> None:
        """Sorts the jobs by end and lays their shares out as arrays."""
        jobs = sorted((j for j in jobs if not j.suspended), key=end_of)
        self.jobs = jobs
        self.end_s: IntArray = np.array([j.end_s for j in jobs], dtype=np.int64)
        rows = [self._rows(i, job) for i, job in enumerate(jobs)]
        self.shares, self.cells, self.devices = (_table([row for found in rows for row in found[kind]])
                                                 for kind in range(3))
        self.special = [job for job in jobs if _special(self.columns, job)]

    @property
    def shared(self) -> bool:
        """Whether cores are shared: then every moment is worked out job by job."""
        return self.state.use.shared is not None

    def use_at(self, until: End) -> Use:
        """What is in use once all jobs up to this end are gone, core by core."""
        gone = bisect_right(self.jobs, until, key=end_of)
        return self._uses.at(self.state.use, self.columns, self.jobs, gone, len(self.starts))

    def _rows(self, at: int, job: RunningJob) -> tuple[list[Row], list[Row], list[Row]]:
        """(job, node, MB), (job, node, socket, cores) and (job, node, kind, devices) of each share."""
        shares: list[Row] = []
        cells: list[Row] = []
        devices: list[Row] = []
        for share in job.shares:
            node = self.columns.index[share.node]
            shares.append((at, node, share.mem_mb, 0))
            cells += [(at, node, socket, count) for socket, count in cores_per_socket(self.columns, share).items()]
            devices += [(at, node, self.columns.kind(name, kind), len(found)) for name, kind, found in share.gres]
        return shares, cells, devices

    def add(self, job: RunningJob) -> None:
        """A job that the pass starts takes its place among the others."""
        self.starts.append(job)
        at = bisect_left(self.jobs, end_of(job), key=end_of)
        self.jobs.insert(at, job)
        self.end_s = np.insert(self.end_s, at, job.end_s)
        found = self._rows(at, job)
        self.shares, self.cells, self.devices = (_put(table, at, rows) for table, rows in zip(
            (self.shares, self.cells, self.devices), found))
        if _special(self.columns, job):
            self.special.append(job)

    def without(self, victims: Sequence[RunningJob]) -> Future:
        """The future of a job for which these are preempted."""
        key = tuple(victim.job_id for victim in victims), len(self.starts)
        found = self._emptied.get(key)
        if found is None:
            use, gone = self.state.use.copy(), set(key[0])
            for victim in victims:
                release(self.columns, use, victim)
            rest = {number: job for number, job in self.state.running.items() if job.job_id not in gone}
            found = self._emptied[key] = Future(replace(self.state, use=use, running=rest))
        return found

    def overlapping(self, nodes: BoolArray) -> BoolArray:
        """Jobs that hold any of the nodes."""
        out = np.zeros(len(self.jobs), dtype=np.bool_)
        out[self.shares[0, nodes[self.shares[1]]]] = True
        return out

    def at(self, until: End) -> Counts:
        """Counts once all jobs up to this end are gone."""
        return self._entry(until).counts

    def fitting(self, question: Question, until: End, nodes: BoolArray) -> Fit | None:
        """What the candidates offer then, without those that are closed to the job; None when a required node is."""
        entry = self._entry(until)
        key = (id(question.demand), question.whole, question.share, question.partition.name, question.min_cpus,
               question.num_tasks, question.job_min_nodes)
        known = entry.fits.get(key)
        if known is None or known[0] != len(self.starts):
            everywhere = self.columns.partition_nodes[question.partition.name] & question.demand.allowed
            open_nodes = shareable(question, everywhere, entry.counts, ignore_required=True)
            assert open_nodes is not None
            made = fit(question, entry.counts, np.flatnonzero(open_nodes), ever=False)
            made = made.subset(np.flatnonzero(made.cpus))
            known = entry.fits[key] = (len(self.starts), open_nodes, made)
        _, open_nodes, made = known
        if question.required is not None and (question.required & ~(open_nodes & nodes)).any():
            return None
        return made.subset(np.flatnonzero(nodes[made.nodes]))

    def may_fit(self, question: Question, nodes: int, until_s: int) -> bool:
        """False: too few of the nodes could serve the job once all jobs that end by ``until_s`` are gone, so that no
        test is needed."""
        if any(f.count for f in question.features):
            return True
        if self.shared:
            return True
        if self._earliest is None:
            self._earliest = Earliest(self.columns, self.state.use, self.end_s, self.shares, self.cells, self.devices)
        from_s = self._earliest.of(question)
        able = self._able.get((id(from_s), until_s))
        if able is None:
            able = self._able[id(from_s), until_s] = bits(from_s <= until_s)
        return (able & nodes).bit_count() >= question.min_nodes

    def ended_by(self, until_s: int) -> bool:
        """Whether any job should have ended by then."""
        return bool(len(self.end_s)) and int(self.end_s[0]) <= until_s

    def _entry(self, until: End) -> _Entry:
        """The remembered counts of that moment, with the jobs started since taken out of them."""
        gone = bisect_right(self.jobs, until, key=end_of)
        key = end_of(self.jobs[gone - 1]) if gone else (0, 0)
        entry = self._entries.pop(key, None)
        if entry is None:
            entry = _Entry(self._counts(gone), len(self.starts))
            while len(self._entries) >= _KEPT:
                self._entries.pop(next(iter(self._entries)))
        self._entries[key] = entry
        for job in self.starts[entry.seen:]:
            if end_of(job) > until:
                count_job(self.columns, entry.counts, job, 1)
        entry.seen = len(self.starts)
        return entry

    def _counts(self, gone: int) -> Counts:
        """The current counts less the first ``gone`` jobs."""
        counts = self.state.use.counts()
        if not gone:
            return counts
        nodes, sockets = counts.socket_free.shape
        shares, cells, devices = (table[:, :int(np.searchsorted(table[0], gone))]
                                  for table in (self.shares, self.cells, self.devices))
        counts.socket_free += _sums(cells[1] * sockets + cells[2], cells[3], nodes * sockets).reshape(nodes, sockets)
        counts.mem_alloc_mb -= _sums(shares[1], shares[2], nodes)
        counts.jobs -= np.bincount(shares[1], minlength=nodes)
        for kind in range(len(counts.gres_free)):
            mine = devices[:, devices[2] == kind]
            counts.gres_free[kind] += _sums(mine[1], mine[3], nodes)
        until = end_of(self.jobs[gone - 1])
        for job in self.special:
            if end_of(job) <= until:
                _forget_special(self.columns, counts, job)
        return counts


def end_of(job: RunningJob) -> End:
    return job.end_s, job.job_id


def _table(rows: list[Row]) -> IntArray:
    """Rows as columns; the first holds the job's number."""
    return np.array(rows, dtype=np.int64).reshape(-1, 4).T.copy()


def _put(table: IntArray, at: int, rows: list[Row]) -> IntArray:
    """Inserts a job's rows as number ``at``; later jobs move up by one."""
    where = int(np.searchsorted(table[0], at))
    after = table[:, where:].copy()
    after[0] += 1
    return np.concatenate([table[:, :where], _table(rows), after], axis=1)


def _sums(where: IntArray, what: IntArray, size: int) -> IntArray:
    return np.bincount(where, weights=what, minlength=size).astype(np.int64)


def _special(columns: ClusterColumns, job: RunningJob) -> bool:
    """Jobs that hold more than cores, memory and devices."""
    partition = columns.partitions.get(job.partition)
    return partition is not None and (partition.over_subscribe == "EXCLUSIVE" or job.whole_node is not None
                                      or partition.exclusive_user
                                      or bool(partition.max_cpus_per_node or partition.max_cpus_per_socket))


def _forget_special(columns: ClusterColumns, counts: Counts, job: RunningJob) -> None:
    """Takes the job out of whole-node, owner and per-partition counts; the sums have been taken already."""
    before = counts.counts()
    count_job(columns, counts, job, -1)
    counts.socket_free, counts.mem_alloc_mb = before.socket_free, before.mem_alloc_mb
    counts.gres_free, counts.jobs = before.gres_free, before.jobs
