"""Cores shared between jobs: which cores count as free for a job that shares, one possibility after another.

A job that shares is tried on idle cores first, then on cores that only other tiers use, then in the rows of its own
partition; cores of partitions that it may not push aside are never its (the steps of select/cons_tres' job test). Jobs
that share and jobs that do not are never on one node.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np

from slurmbridge.scheduling.demand import Question
from slurmbridge.scheduling.facts import BoolArray
from slurmbridge.scheduling.use import Use

T = TypeVar("T")


def search(question: Question, use: Use, test: Callable[[Use], T | None]) -> T | None:
    """``test`` with what is idle and, for a job that shares cores, with what it may share; its first answer."""
    found = test(use)
    shared = use.shared
    if found is not None or shared is None or not question.shares_cores:
        return found
    mine = question.partition
    partitions = question.columns.partitions
    by_tier = sorted(shared.rows, key=lambda name: -partitions[name].tier)
    closed = (use.core_busy.reshape(-1) & (shared.users == 0)) | _untouchable(question, use)
    if test(_with_cores(question, use, closed)) is None:
        return None
    busy = closed.copy()
    for name in by_tier:
        if partitions[name].tier == mine.tier:
            busy |= shared.rows[name].busy()
    found = test(_with_cores(question, use, busy))
    if found is not None:
        for name in by_tier:
            if partitions[name].tier < mine.tier:
                busy |= shared.rows[name].busy()
                better = test(_with_cores(question, use, busy))
                if better is None:
                    break
                found = better
        return found
    rows = shared.rows[mine.name].in_order(fullest_first=question.settings.preempt_type != "preempt/qos")
    for row in rows:
        found = test(_with_cores(question, use, closed | row))
        if found is not None:
            return found
    return None


def _untouchable(question: Question, use: Use) -> BoolArray:
    """With preempt/partition_prio: cores of partitions of higher tiers, or whose jobs are never preempted."""
    assert use.shared is not None
    taken = np.zeros(use.core_busy.size, dtype=np.bool_)
    if question.settings.preempt_type != "preempt/partition_prio":
        return taken
    for name, rows in use.shared.rows.items():
        other = question.columns.partitions[name]
        spared = (other.preempt_mode or question.settings.preempt_mode).upper() == "OFF"
        own_rows = name == question.partition.name and rows.count > 1
        if (other.tier > question.partition.tier or spared) and not own_rows:
            taken |= rows.busy()
    return taken


def _with_cores(question: Question, use: Use, busy: BoolArray) -> Use:
    """``use`` with these cells taken and no others. Only what a test reads is copied."""
    columns, name = question.columns, question.partition.name
    assert use.shared is not None
    core_busy = busy.reshape(use.core_busy.shape)
    limited = dict(use.limited)
    if name in limited:
        limited[name] = columns.per_socket(use.shared.rows[name].busy().reshape(core_busy.shape) & core_busy)
    return replace(use, core_busy=core_busy, socket_free=columns.per_socket(~core_busy), limited=limited)


def closed_nodes(question: Question, use: Use) -> BoolArray:
    """Nodes where jobs run that the job may not be beside: sharing and not sharing do not mix."""
    shared = use.shared
    assert shared is not None
    if question.shares_cores:
        return shared.apart > 0
    closed = np.zeros(len(question.columns), dtype=np.bool_)
    for name, rows in shared.rows.items():
        if rows.count > 1 and name != question.partition.name:
            closed |= rows.busy().reshape(use.core_busy.shape).any(axis=1)
    return closed & (shared.sharing > 0)
