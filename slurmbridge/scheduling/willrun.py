"""When and where a job will be able to start: now, or after which of the running jobs have ended.

Running jobs are taken to end at their time limits. They are removed in the order of their ends, in windows that double
in width, and the job is tested after each window (select/cons_tres will-run).
"""
from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from slurmbridge.scheduling import features as feature_grammar
from slurmbridge.scheduling.demand import Demand, Question
from slurmbridge.scheduling.facts import FOREVER_S, BoolArray
from slurmbridge.scheduling.features import COUNTED, Feature
from slurmbridge.scheduling.future import End, Future, by_time, end_of
from slurmbridge.scheduling.select import Selected, can_share, can_with
from slurmbridge.scheduling.timeline import bits

YEAR_S = 365 * 24 * 3600


@dataclass(slots=True)
class Answer:
    """Earliest start (epoch) and the nodes."""

    start_s: int
    selected: Selected


@dataclass(slots=True)
class Window:
    """``start_s``: not before (jobs ending by then are gone); ``end_s``: jobs ending later are not removed (0: no
    bound); ``now_only``: do not look into the future."""

    now_s: int
    start_s: int
    end_s: int = 0
    now_only: bool = False
    kill_wait_s: int = 30
    over_time_s: int = 0
    prefer_busy: bool = False
    linear_s: int = 0                         # windows grow by so much instead of doubling


def will_run(future: Future, question: Question, nodes: BoolArray, window: Window) -> Answer | None:
    """Tests the nodes now, then after each window of ended jobs."""
    completing, packed = future.columns.completing, bits(nodes)
    if window.start_s <= window.now_s:
        found = _test(future, question, by_time(0), nodes, packed, prefer_busy=False, avoid=completing)
        if found is not None:
            return Answer(window.now_s, found)
        if window.now_only:
            return None
    if window.start_s > window.now_s or completing.any() or future.ended_by(window.start_s):
        found = _test(future, question, by_time(window.start_s), nodes, packed, prefer_busy=False, avoid=None)
        if found is not None:
            return Answer(window.now_s, found)
    return _after_ends(future, question, nodes, packed, window)


def _test(future: Future, question: Question, until: End, nodes: BoolArray, packed: int, *, prefer_busy: bool,
          avoid: BoolArray | None) -> Selected | None:
    if not future.may_fit(question, packed, until[0]):
        return None
    if future.shared:
        return can_share(question, nodes, future.use_at(until), prefer_busy=prefer_busy, avoid=avoid)
    fitted = future.fitting(question, until, nodes)
    if fitted is None:
        return None
    return can_with(question, fitted, future.at(until), prefer_busy=prefer_busy, avoid=avoid)


def _after_ends(future: Future, question: Question, nodes: BoolArray, packed: int, window: Window) -> Answer | None:
    """Removes jobs by their ends. The windows are aligned to 30 s of the first end and double after each failure.

    Of jobs that end in the same second some may go with one window and some with the next, as in Slurm: a window ends
    where the job after the one that was removed last ends too late, and a job on other nodes in between hides that."""
    ends = future.end_s
    first = int(np.searchsorted(ends, window.start_s, side="right"))
    last = int(np.searchsorted(ends, window.end_s, side="right")) if window.end_s else len(ends)
    relevant = future.overlapping(nodes)
    candidates = first + np.flatnonzero(relevant[first:last])
    if not len(candidates):
        return None
    following = np.append(ends, FOREVER_S * 2)[candidates + 1]
    width_s, at = 30, 0
    aligned_s = int(ends[candidates[0]])
    aligned_s += 30 - aligned_s % 30
    while at < len(candidates):
        stop = max(at, int(np.searchsorted(following, aligned_s + width_s, side="right")))
        stop = min(stop, len(candidates) - 1)
        job = int(candidates[stop])
        found = _test(future, question, end_of(future.jobs[job]), nodes, packed, prefer_busy=window.prefer_busy,
                      avoid=None)
        if found is not None:
            holds = future.overlapping(found.nodes)
            held = candidates[:stop + 1][holds[candidates[:stop + 1]]]
            return Answer(_end_of(future, int(held[-1]) if len(held) else job, window), found)
        while width_s <= YEAR_S:
            width_s = width_s + window.linear_s if window.linear_s else width_s * 2
            if following[stop] <= aligned_s + width_s:
                break
        at = stop + 1
    return None


def _end_of(future: Future, job: int, window: Window) -> int:
    """A job past its limit will be killed soon."""
    end_s = int(future.end_s[job])
    if end_s > window.now_s:
        return end_s
    return max(window.now_s + 1, end_s + window.kill_wait_s + window.over_time_s)


def with_features(future: Future, question: Question, nodes: BoolArray, window: Window,
                  features: tuple[Feature, ...]) -> Answer | None:
    """As ``will_run``, for each alternative of a bracket expression (the earliest counts) or for each counted group."""
    demand = question.demand
    if any(f.count for f in features) or any(f.op == COUNTED for f in features):
        return _counted(future, question, nodes, window, features)
    _, grouped = demand.feature_nodes(future.columns, features)
    if grouped:
        best: Answer | None = None
        for single in feature_grammar.single(features):
            usable = nodes & _nodes(future, demand, single)
            if int(usable.sum()) < question.min_nodes:
                continue
            answer = will_run(future, question, usable, window)
            if answer is not None and (best is None or answer.start_s < best.start_s):
                best = answer
        return best
    if features:
        usable = nodes & _nodes(future, demand, features)
        return will_run(future, question, usable, window) if int(usable.sum()) >= question.min_nodes else None
    alone = will_run(future, replace(question, share=False), nodes, window)
    if (alone is not None and alone.start_s <= window.now_s) or question.whole:
        return alone
    return will_run(future, question, nodes, window)


def _nodes(future: Future, demand: Demand, features: tuple[Feature, ...]) -> BoolArray:
    return demand.feature_nodes(future.columns, features)[0]


def _counted(future: Future, question: Question, nodes: BoolArray, window: Window,
             features: tuple[Feature, ...]) -> Answer | None:
    """Each group on nodes of its own, then the rest of the job; it starts when the last of them can."""
    taken = np.zeros_like(nodes)
    start_s = cpus = 0
    for single in feature_grammar.single(features):
        least = max(1, single[-1].count)
        usable = nodes & ~taken & _nodes(future, question.demand, tuple(replace(f, count=0) for f in single))
        if int(usable.sum()) < least:
            return None
        answer = will_run(future, replace(question, min_nodes=least, req_nodes=least, required=None), usable, window)
        if answer is None:
            return None
        taken |= answer.selected.nodes
        start_s, cpus = max(start_s, answer.start_s), cpus + answer.selected.cpus
    count = int(taken.sum())
    if count < question.req_nodes:
        if count > question.min_nodes:
            return None                       # Slurm then wants fewer than no more nodes, and finds none
        rest = replace(question, min_nodes=max(0, question.min_nodes - count), max_nodes=question.max_nodes - count,
                       req_nodes=question.req_nodes - count, required=None)
        answer = will_run(future, rest, nodes & ~taken, window)
        if answer is None:
            return None
        taken |= answer.selected.nodes
        cpus += answer.selected.cpus
    return Answer(start_s, Selected(taken, cpus))
