"""What a submission is refused for, with Slurm's code, and what an accepted one looks like."""
from __future__ import annotations

import errno
from typing import Any

import pytest
from lab import ALICE, ROOT, Lab, in_lab

from slurmbridge.slurm import errors
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.slurm.jobspec import UNLIMITED_MIN

NOT_AVAILABLE = errors.ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE


REFUSED: list[tuple[dict[str, Any], int, tuple[str, ...]]] = [
    ({"partitions": ("nosuch",)}, errors.ESLURM_INVALID_PARTITION_NAME, ("invalid partition specified: nosuch",)),
    ({"partitions": ("main", "nosuch")}, errors.ESLURM_INVALID_PARTITION_NAME,
     ("invalid partition specified: nosuch",)),
    ({"partitions": ("root",)}, errors.ESLURM_ACCESS_DENIED, ()),
    ({"partitions": ("shut",)}, errors.ESLURM_PARTITION_NOT_AVAIL, ()),
    ({"node_list": "n9"}, errors.ESLURM_INVALID_NODE_NAME, ()),
    ({"exclude": "n[1-"}, errors.ESLURM_INVALID_NODE_NAME, ()),
    ({"node_list": "n1", "exclude": "n1"}, errors.ESLURM_INVALID_NODE_NAME, ()),
    ({"constraint": "nosuch"}, errors.ESLURM_INVALID_FEATURE, ()),
    ({"constraint": "(old"}, errors.ESLURM_INVALID_FEATURE, ()),
    ({"prefer": "nosuch"}, errors.ESLURM_INVALID_PREFER, ()),
    ({"licenses": "foo"}, errors.ESLURM_INVALID_LICENSES, ()),
    ({"reservation": "nosuch"}, errors.ESLURM_RESERVATION_INVALID, ()),
    ({"array": "0-100"}, errors.ESLURM_INVALID_ARRAY, ()),
    ({"array": "x"}, errors.ESLURM_INVALID_ARRAY, ()),
    ({"array": "1", "script": None}, errors.ESLURM_INVALID_ARRAY, ()),
    ({"array": "0-60"}, errno.EAGAIN, ()),
    ({"dependency": "afterok:"}, errors.ESLURM_DEPENDENCY, ()),
    ({"dependency": "afterok:77"}, errors.ESLURM_DEPENDENCY, ()),
    ({"dependency": "expand:77"}, errors.ESLURM_NOT_SUPPORTED, ()),
    ({"nice": -1}, errors.ESLURM_INVALID_NICE, ()),
    ({"admin_comment": "x"}, errors.ESLURM_ACCESS_DENIED, ()),
    ({"reboot": True}, errors.ESLURM_ACCESS_DENIED, ("rebooting of nodes is only allowed for admins",)),
    ({"uid": 0}, errors.ESLURM_USER_ID_MISSING, ()),
    ({"wckey": "*x"}, errors.ESLURM_INVALID_WCKEY, ()),
    ({"name": "n" * 1024}, errors.ESLURM_PATHNAME_TOO_LONG, ()),
    ({"script": "#!/bin/sh\n" + "#" * (4 << 20)}, errors.ESLURM_PATHNAME_TOO_LONG, ()),
    ({"time_min_min": 61}, errors.ESLURM_INVALID_TIME_MIN_LIMIT, ()),
    ({"time_min_min": 30, "time_limit_min": 20}, errors.ESLURM_INVALID_TIME_MIN_LIMIT, ()),
    ({"deadline_s": 1}, errors.ESLURM_INVALID_TIME_LIMIT, ()),
    ({"mem_per_node_mb": 5000}, NOT_AVAILABLE, ("Memory specification can not be satisfied",)),
    ({"constraint": "new"}, NOT_AVAILABLE, ()),
    ({"tres_per_node": "gres/gpu:3", "partitions": ("gpu",)}, NOT_AVAILABLE, ())]


def test_what_is_refused() -> None:
    async def story(lab: Lab) -> None:
        for fields, code, details in REFUSED:
            before = lab.controller.world.jobs.next_id
            with pytest.raises(SlurmError) as refused:
                await lab.submit(by=ALICE, **fields)
            assert (refused.value.code, refused.value.details) == (code, details), fields
            kept = [job.state for job in lab.views.jobs.values() if job.job_id >= before]
            assert kept == (["FAILED"] if code == NOT_AVAILABLE else []), fields
    in_lab(story)


def test_jobs_larger_than_their_partition_wait() -> None:
    async def story(lab: Lab) -> None:
        cpus, nodes = await lab.submit(num_tasks=13), await lab.submit(min_nodes=4, nodes_given=True)
        await lab.settle()
        assert (lab.shown(cpus), lab.shown(nodes)) == ("PENDING PartitionConfig", "PENDING PartitionNodeLimit")
    in_lab(story)


@pytest.mark.parametrize(("enforce", "code"), [
    ("NO", 0), ("ANY", errors.ESLURM_INVALID_TIME_LIMIT), ("ALL", errors.ESLURM_INVALID_TIME_LIMIT)])
def test_partition_limits_as_enforced(enforce: str, code: int) -> None:
    async def story(lab: Lab) -> None:
        if code:
            with pytest.raises(SlurmError) as refused:
                await lab.submit(time_limit_min=61)
            assert refused.value.code == code
        else:
            job_id = await lab.submit(time_limit_min=61)
            await lab.settle()
            assert lab.shown(job_id) == "PENDING PartitionTimeLimit"
    in_lab(story, f"EnforcePartLimits={enforce}\n")


ACCEPTED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"time_limit_min": 10, "partition": "main", "num_cpus": 1, "mem_per_cpu_mb": 100, "std_in": "/dev/null",
          "std_out": "/tmp/slurm-%.out", "std_err": "", "requeue": True, "reason": "JobHeldUser", "priority": 0}),
    ({"partitions": ("gpu",)}, {"time_limit_min": None}),
    ({"partitions": ("closed",)}, {"partition": "main"}),
    ({"partitions": ("main", "gpu", "main")}, {"partition": "main,gpu"}),
    ({"time_limit_min": UNLIMITED_MIN}, {"time_limit_min": UNLIMITED_MIN}),
    ({"num_tasks": 3, "cpus_per_task": 2}, {"num_cpus": 6, "num_tasks": 3, "cpus_per_task": 2, "min_cpus_node": 2}),
    ({"mem_per_node_mb": 500, "min_nodes": 2, "nodes_given": True},
     {"mem_per_node_mb": 500, "mem_per_cpu_mb": None,
      "tres_req": {"cpu": 2, "mem": 1000, "node": 2, "billing": 2}}),
    ({"exclusive": "exclusive"}, {"oversubscribe": "NO"}), ({"exclusive": "user"}, {"oversubscribe": "USER"}),
    ({"oversubscribe": True}, {"oversubscribe": "YES"}),
    ({"array": "2-8:3%1"}, {"array_pending": 0b100100100, "array_max_running": 1, "array_task_min": 2,
                            "array_task_max": 8, "array_task_step": 3, "std_out": "/tmp/slurm-%_4294967294.out"}),
    ({"std_out": "%x-%j-%u.txt", "name": "a b"}, {"std_out": "/tmp/a b-%-alice.txt"}),
    ({"switches": 2, "switches_wait_s": 900}, {}),
    ({"account": "Phys"}, {"account": "phys"}),
    ({"priority": 500}, {"priority": 0, "priority_fixed": False})]


def test_what_an_accepted_job_looks_like() -> None:
    async def story(lab: Lab) -> None:
        for fields, shown in ACCEPTED:
            job = lab.job(await lab.submit(by=ALICE, hold=True, **fields))
            expected = {name: value.replace("%", str(job.job_id)) if isinstance(value, str) else value
                        for name, value in shown.items()}
            assert {name: getattr(job, name) for name in shown} == expected, fields
            if "switches" in fields:
                assert job.request.switches_wait_s == 300
    in_lab(story)


def test_administrators_set_priorities_and_others_users() -> None:
    async def story(lab: Lab) -> None:
        job = lab.job(await lab.submit(by=ROOT, priority=77, uid=0, nice=-5, begin_s=int(lab.now) + 60))
        assert (job.priority, job.priority_fixed, job.nice) == (77, True, -5)
    in_lab(story)


def test_components_of_a_heterogeneous_job_start_together() -> None:
    async def story(lab: Lab) -> None:
        from lab import INVOCATION

        from slurmbridge.slurm.jobspec import JobRequest
        parts = [JobRequest(name="het", script="#!/bin/sh\n", environment=("A=1",), work_dir="/tmp", user_name="root",
                            num_tasks=4, num_tasks_given=True, partitions=(name,)) for name in ("main", "gpu")]
        await lab.acts.update_node(ROOT, ["g1"], {"state": "DRAIN", "reason": "x"})
        result = await lab.acts.submit(ROOT, INVOCATION, parts)
        await lab.settle()
        jobs = [lab.job(result.job_id + offset) for offset in (0, 1)]
        assert [job.state for job in jobs] == ["PENDING", "PENDING"]
        assert [job.het_job_ids for job in jobs] == [(1, 2), (1, 2)] and [job.het_offset for job in jobs] == [0, 1]
        await lab.acts.update_node(ROOT, ["g1"], {"state": "RESUME"})
        await lab.settle()
        assert [job.state for job in jobs] == ["RUNNING", "RUNNING"]
        await lab.acts.signal(ROOT, 1)
        await lab.advance(2)
        assert [job.state for job in jobs] == ["CANCELLED", "CANCELLED"]
    in_lab(story)


def test_submissions_that_were_acknowledged_survive() -> None:
    async def story(lab: Lab) -> None:
        import asyncio
        ids = await asyncio.gather(*(lab.submit(hold=True, name=f"j{number}") for number in range(40)))
        assert sorted(ids) == list(range(1, 41))
        commits = lab.controller.ledger.commits
        assert commits < 30, "submissions that come together share a commit"
        from slurmbridge.accounting.ledger import Ledger
        state = Ledger.open(str(lab.folder.name) + "/ledger.db", str(lab.folder.name) + "/other.lock").load()
        assert set(state.jobs) == set(ids)
    in_lab(story)
