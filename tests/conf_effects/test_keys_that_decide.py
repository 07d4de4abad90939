"""slurm.conf keys by their effect: each row says what a key makes of jobs that would fare differently without it."""
from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from slurmbridge.slurm import errors
from slurmbridge.slurm.errors import SlurmError
from tests.controller.lab import ALICE, BOB, ROOT, Lab


async def decided(lab: Lab, job: int) -> int:
    """The job, once the scheduler has looked at it and what it decided was done."""
    for _ in range(200):
        await lab.settle()
        if lab.shown(job) not in ("PENDING None", "CONFIGURING None"):
            break
    return job


IN = {"partitions": ("p",)}
P = "PartitionName=p Nodes=n[1-3] DefMemPerCPU=100 "


def in_lab(conf: str, test: Callable[[Lab], Awaitable[None]]) -> None:
    async def go() -> None:
        async with Lab(conf) as lab:
            await test(lab)
    asyncio.run(go())


@pytest.mark.parametrize(("conf", "fields", "code"), [
    ("MaxArraySize=10\n", {"array": "0-10"}, errors.ESLURM_INVALID_ARRAY),
    ("MaxJobCount=2\n", {"array": "0-2"}, errno.EAGAIN),
    ("DisableRootJobs=yes\n", {"by": ROOT}, errors.ESLURM_USER_ID_MISSING),
    (P + "RootOnly=yes\n", IN, errors.ESLURM_ACCESS_DENIED),
    (P + "State=DRAIN\n", IN, errors.ESLURM_PARTITION_NOT_AVAIL),
    (P + "State=INACTIVE\n", IN, errors.ESLURM_PARTITION_NOT_AVAIL),
    (P + "ReqResv=yes\n", IN, errors.ESLURM_ACCESS_DENIED),
    (P + "AllowGroups=nosuchgroup\nEnforcePartLimits=ALL\n", IN, errors.ESLURM_JOB_MISSING_REQUIRED_PARTITION_GROUP),
    (P + "MaxNodes=1\nEnforcePartLimits=ALL\n", {**IN, "min_nodes": 2, "max_nodes": 2},
     errors.ESLURM_INVALID_NODE_COUNT),
    (P + "MaxTime=5\nEnforcePartLimits=ALL\n", {**IN, "time_limit_min": 6}, errors.ESLURM_INVALID_TIME_LIMIT),
    (P + "MaxTime=5\nEnforcePartLimits=ANY\n", {**IN, "time_limit_min": 6}, errors.ESLURM_INVALID_TIME_LIMIT),
    ("Licenses=foo:2\n", {"licenses": "foo:3"}, errors.ESLURM_INVALID_LICENSES),
    (P + "MaxMemPerNode=500\nEnforcePartLimits=ALL\n", {**IN, "mem_per_node_mb": 501},
     errors.ESLURM_INVALID_TASK_MEMORY),
    ("MaxMemPerNode=500\nEnforcePartLimits=ANY\n", {"mem_per_cpu_mb": 251, "cpus_per_task": 2},
     errors.ESLURM_INVALID_TASK_MEMORY),
    ("Licenses=foo:2\n", {"licenses": "foo:1,bar"}, errors.ESLURM_INVALID_LICENSES)])
def test_keys_that_refuse(conf: str, fields: dict[str, Any], code: int) -> None:
    async def story(lab: Lab) -> None:
        with pytest.raises(SlurmError) as refused:
            await lab.submit(**{"by": ALICE, **fields})
        assert refused.value.code == code, refused.value
    in_lab(conf, story)


@pytest.mark.parametrize(("conf", "fields", "shown"), [
    (P + "State=DOWN\n", IN, "PENDING PartitionDown"),
    (P + "State=UP\n", IN, "RUNNING None"),
    (P + "MaxNodes=1\n", {**IN, "min_nodes": 2, "max_nodes": 2}, "PENDING PartitionNodeLimit"),
    (P + "MinNodes=2\n", {**IN, "min_nodes": 1, "max_nodes": 1}, "PENDING PartitionNodeLimit"),
    (P + "MaxTime=5\n", {**IN, "time_limit_min": 6}, "PENDING PartitionTimeLimit"),
    ("DownNodes=n[1-3] State=DOWN Reason=x\n", {}, "PENDING"),
    ("NodeSet=olds Feature=old\nPartitionName=p Nodes=olds\n", {**IN, "min_nodes": 3}, "RUNNING None"),
    ("NodeSet=two Nodes=n[1-2]\nPartitionName=p Nodes=two\n", {**IN, "min_nodes": 2}, "RUNNING None"),
    ("Licenses=foo:2\n", {"licenses": "foo:2"}, "RUNNING None"),
    ("Licenses=foo:2,bar\n", {"licenses": "foo=1;bar"}, "RUNNING None"),
])
def test_keys_that_say_whether_a_job_starts(conf: str, fields: dict[str, Any], shown: str) -> None:
    async def story(lab: Lab) -> None:
        job = await decided(lab, await lab.submit(by=ALICE, **fields))
        assert lab.shown(job).startswith(shown)
    in_lab(conf, story)


@pytest.mark.parametrize(("conf", "first", "second", "together"), [
    ("", {}, {}, True),
    (P, IN, {**IN, "by": BOB}, True),
    (P + "ExclusiveUser=yes\n", IN, {**IN, "by": BOB}, False),
    (P + "ExclusiveUser=yes\n", IN, IN, True),
    (P + "OverSubscribe=EXCLUSIVE\n", IN, IN, False),
    (P + "LLN=yes\n", IN, IN, False),
    ("SelectTypeParameters=CR_Core_Memory,CR_LLN\n", {}, {}, False),
    ("SelectTypeParameters=CR_Core\n", {"mem_per_node_mb": 3000}, {"mem_per_node_mb": 3000}, True),
    (P + "MaxCPUsPerNode=2\n", {**IN, "num_tasks": 2}, {**IN, "num_tasks": 1}, False),
    ("PartitionName=p Nodes=n[1-3] DefMemPerNode=2500\n", IN, IN, False),
    (P + "DefMemPerCPU=100\n", IN, IN, True)])
def test_keys_that_say_who_shares_a_node(conf: str, first: dict[str, Any], second: dict[str, Any],
                                         together: bool) -> None:
    async def story(lab: Lab) -> None:
        one = await decided(lab, await lab.submit(**{"by": ALICE, "min_nodes": 1, "max_nodes": 1, **first}))
        two = await decided(lab, await lab.submit(**{"by": ALICE, "min_nodes": 1, "max_nodes": 1, **second}))
        assert lab.shown(one) == lab.shown(two) == "RUNNING None"
        assert (lab.job(one).nodes == lab.job(two).nodes) == together
    in_lab(conf, story)


FULL = {"min_nodes": 3, "exclusive": "exclusive"}


@pytest.mark.parametrize(("conf", "low", "high"), [
    ("PartitionName=a Nodes=n[1-3] PriorityTier=1\nPartitionName=b Nodes=n[1-3] PriorityTier=2\n", "a", "b"),
    ("PriorityType=priority/multifactor\nPriorityWeightPartition=1000\n"
     "PartitionName=a Nodes=n[1-3] PriorityJobFactor=1\n"
     "PartitionName=b Nodes=n[1-3] PriorityJobFactor=10\n", "a", "b")])
def test_keys_that_say_who_is_first(conf: str, low: str, high: str) -> None:
    async def story(lab: Lab) -> None:
        running = await lab.run_for(60, **FULL)
        await lab.settle()
        later = await lab.submit(partitions=(low,), **FULL)
        sooner = await lab.submit(partitions=(high,), **FULL)
        await lab.settle()
        assert lab.shown(running) == "RUNNING None"
        await lab.advance(61)
        await lab.advance(5)
        assert (lab.job(sooner).state, lab.job(later).state) == ("RUNNING", "PENDING")
    in_lab(conf, story)


@pytest.mark.parametrize(("conf", "code", "shown", "restarts"), [
    ("RequeueExit=7\n", 7, "PENDING", 1), ("RequeueExit=5-9\n", 7, "PENDING", 1), ("RequeueExit=8\n", 7, "FAILED", 0),
    ("RequeueExitHold=7\n", 7, "SPECIAL_EXIT", 1), ("", 101, "PENDING", 1)])
def test_exit_codes_that_requeue(conf: str, code: int, shown: str, restarts: int) -> None:
    async def story(lab: Lab) -> None:
        job = await lab.run_for(1, exit_code=code)
        await lab.settle()
        await lab.advance(2)
        await lab.advance(1)
        assert lab.job(job).shown_state == shown
        assert lab.job(job).restarts == restarts
    in_lab(conf, story)


def test_keys_with_numbers() -> None:
    async def story(lab: Lab) -> None:
        job = await lab.run_for(1, partitions=("p",))
        assert job == 1000
        await lab.settle()
        assert lab.job(job).time_limit_min == 7
        assert lab.job(job).requeue == 0
        await lab.advance(2)
        assert lab.job(job).state == "COMPLETED"
        await lab.advance(30)
        assert job in lab.views.jobs
        await lab.advance(20)
        assert job not in lab.views.jobs
    in_lab(f"FirstJobId=1000\nMinJobAge=40\nJobRequeue=0\n{P}DefaultTime=7 MaxTime=9\n", story)


@pytest.mark.parametrize(("conf", "state"), [("", "TIMEOUT"), ("OverTimeLimit=2\n", "RUNNING")])
def test_jobs_beyond_their_limit(conf: str, state: str) -> None:
    async def story(lab: Lab) -> None:
        job = await lab.submit(time_limit_min=1)
        await lab.settle()
        await lab.advance(62)
        await lab.advance(5)
        assert lab.job(job).state == state
    in_lab(conf, story)


@pytest.mark.parametrize(("conf", "state"), [
    ("", "PENDING"), ("DependencyParameters=kill_invalid_depend\n", "CANCELLED"),
    ("SchedulerParameters=kill_invalid_depend\n", "PENDING")])
def test_dependencies_that_never_come_true(conf: str, state: str) -> None:
    async def story(lab: Lab) -> None:
        failing = await lab.run_for(1, exit_code=1)
        waiting = await lab.submit(dependency=f"afterok:{failing}")
        await lab.settle()
        await lab.advance(2)
        await lab.advance(40)
        assert lab.job(waiting).state == state
    in_lab(conf, story)
