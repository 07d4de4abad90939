"""Queues recorded on real Slurm: the same jobs start on the same nodes, the rest waits for the same reason."""
from __future__ import annotations

import functools

import pytest
from scheduling.replay import CASES, Replay, origin_s, replay

from slurmbridge.slurm.hostlist import compress

BY_SEED = {f"{case['seed']}-{case['repeat']}" if "repeat" in case else str(case["seed"]): case for case in CASES}
HALF_RESUMED = {"108"}
"""A recording in which a pass ran while only some of the nodes were back: eight repeats all went as 108-1."""


@functools.cache
def replayed(seed: str) -> Replay:
    return replay(BY_SEED[seed])


@pytest.mark.parametrize("seed", sorted(BY_SEED))
def test_submissions_are_refused_in_the_same_words(seed: str) -> None:
    got = replayed(seed)
    refused = {n: job["refused"] for n, job in enumerate(BY_SEED[seed]["jobs"], 1) if "refused" in job}
    assert got.refusals.keys() == refused.keys()
    for number, text in refused.items():
        assert text.endswith(got.refusals[number].text)
        assert got.refusals[number].message in text


@pytest.mark.parametrize("seed", sorted(BY_SEED.keys() - HALF_RESUMED))
def test_the_same_jobs_start_on_the_same_nodes(seed: str) -> None:
    got = replayed(seed)
    jobs = {n: job for n, job in enumerate(BY_SEED[seed]["jobs"], 1) if job.get("state") == "RUNNING"}
    assert {n: got.nodes(n) for n in got.starts} == {n: job["nodes"] for n, job in jobs.items()}
    assert {n: str(sum(s.cpus for s in start.shares)) for n, start in got.starts.items()} == {
        n: job["num_cpus"] for n, job in jobs.items()}


@pytest.mark.parametrize("seed", sorted(BY_SEED.keys() - HALF_RESUMED))
def test_waiting_jobs_show_the_same_reason_and_size(seed: str) -> None:
    got = replayed(seed)
    jobs = {n: job for n, job in enumerate(BY_SEED[seed]["jobs"], 1) if job.get("state") == "PENDING"}
    assert {n: got.reason(n) for n in jobs} == {n: job["reason"] for n, job in jobs.items()}
    waiting = [n for n in jobs if n not in got.held]
    assert {n: got.size(n) for n in waiting} == {n: (jobs[n]["num_nodes"], jobs[n]["num_cpus"]) for n in waiting}


@pytest.mark.parametrize("seed", sorted(BY_SEED.keys() - HALF_RESUMED))
def test_waiting_jobs_expect_the_same_start_and_nodes(seed: str) -> None:
    got, began_s = replayed(seed), origin_s(BY_SEED[seed])
    jobs = {n: job for n, job in enumerate(BY_SEED[seed]["jobs"], 1) if job.get("state") == "PENDING"}
    expected = {n: (got.expected[n].start_s - began_s, compress(got.expected[n].nodes)) if n in got.expected
                else (None, "") for n in jobs}
    assert expected == {n: (job["start_s"], job["sched_nodes"]) for n, job in jobs.items()}
