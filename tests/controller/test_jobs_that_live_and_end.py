"""Jobs from submission to the end of their record, as one controller with simulated nodes leads them."""
from __future__ import annotations

import asyncio

import pytest
from lab import ALICE, BOB, INVOCATION, ROOT, Lab, in_lab

from slurmbridge.cluster.port import Event, LaunchOrder
from slurmbridge.slurm import errors
from slurmbridge.slurm.errors import SlurmError


async def refused(code: int, act) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(SlurmError) as error:
        await act
    assert error.value.code == code, error.value


def test_a_job_runs_and_ends_with_its_exit_code() -> None:
    async def story(lab: Lab) -> None:
        good, bad = await lab.run_for(30, num_tasks=2), await lab.run_for(40, exit_code=3)
        await lab.settle()
        assert lab.shown(good) == "RUNNING None"
        assert lab.job(good).nodes == ("n1",)
        assert lab.job(good).tres_alloc == {"cpu": 2, "mem": 200, "node": 1, "billing": 2}
        assert lab.views.nodes["n1"].cpus_alloc == 3
        await lab.advance(41)
        assert (lab.shown(good), lab.shown(bad)) == ("COMPLETED None", "FAILED NonZeroExitCode")
        assert lab.job(bad).exit_status == 3 << 8
        assert lab.views.nodes["n1"].cpus_alloc == 0 and not lab.views.nodes["n1"].job_ids
        assert await lab.rows(bad) == [("FAILED", 3 << 8)]
        await lab.advance(301)
        assert good not in lab.views.jobs
        assert await lab.rows(good) == [("COMPLETED", 0)]
    in_lab(story)


def test_time_limit_ends_a_job() -> None:
    async def story(lab: Lab) -> None:
        job_id = await lab.submit(time_limit_min=2)
        await lab.settle()
        await lab.advance(119)
        assert lab.shown(job_id) == "RUNNING None"
        await lab.advance(2)
        assert lab.job(job_id).state == "TIMEOUT"
        await lab.advance(2)
        assert lab.shown(job_id) == "TIMEOUT TimeLimit"
        assert await lab.rows(job_id) == [("TIMEOUT", 0)]
    in_lab(story)


def test_over_time_limit_gives_more_time() -> None:
    async def story(lab: Lab) -> None:
        job_id = await lab.submit(time_limit_min=2)
        await lab.settle()
        await lab.advance(150)
        assert lab.shown(job_id) == "RUNNING None"
        await lab.advance(31)
        assert lab.job(job_id).state == "TIMEOUT"
    in_lab(story, "OverTimeLimit=1\n")


def test_the_signal_is_for_the_time_limit_without_over_time_limit() -> None:
    async def story(lab: Lab) -> None:
        orders, launch = [], lab.engine.launch

        async def launched(order: LaunchOrder) -> None:
            orders.append(order)
            await launch(order)
        lab.engine.launch = launched
        await lab.submit(time_limit_min=2, signal_number=10, signal_before_s=30)
        await lab.settle()
        assert [(one.warn_before_s, one.end_by_s - one.job.start_s) for one in orders] == [(90, 180)]
    in_lab(story, "OverTimeLimit=1\n")


def test_begin_time_and_deadline() -> None:
    async def story(lab: Lab) -> None:
        later = await lab.submit(begin_s=int(lab.now) + 100)
        too_late = await lab.submit(hold=True, deadline_s=int(lab.now) + 3600, time_limit_min=5)
        await lab.settle()
        assert lab.shown(later) == "PENDING BeginTime" and lab.job(later).eligible_s == lab.now + 100
        await lab.advance(99)
        assert lab.shown(later) == "PENDING BeginTime"
        await lab.advance(2)
        assert lab.shown(later) == "RUNNING None"
        await lab.advance(3600)
        assert lab.shown(too_late) == "DEADLINE DeadLine"
    in_lab(story)


def test_cancelling_says_who() -> None:
    async def story(lab: Lab) -> None:
        waiting, running = await lab.submit(by=ALICE, hold=True), await lab.submit(by=ALICE)
        await lab.settle()
        await refused(errors.ESLURM_ACCESS_DENIED, lab.acts.signal(BOB, running))
        await lab.acts.signal(ALICE, waiting)
        await lab.acts.signal(ROOT, running)
        assert lab.job(running).state == "CANCELLED"
        await lab.advance(2)
        assert (lab.shown(waiting), lab.shown(running)) == ("CANCELLED JobHeldUser", "CANCELLED None")
        assert (lab.job(waiting).killed_by_uid, lab.job(running).killed_by_uid) == (ALICE.uid, 0)
        await refused(errors.ESLURM_ALREADY_DONE, lab.acts.signal(ALICE, running))
        await refused(errors.ESLURM_INVALID_JOB_ID, lab.acts.signal(ALICE, 999))
    in_lab(story)


def test_hold_and_release_by_user_and_administrator() -> None:
    async def story(lab: Lab) -> None:
        job_id = await lab.submit(by=ALICE, begin_s=int(lab.now) + 50)
        await lab.acts.hold(ALICE, str(job_id))
        assert lab.shown(job_id) == "PENDING JobHeldUser" and lab.job(job_id).priority == 0
        await lab.acts.release(ALICE, str(job_id))
        assert lab.shown(job_id) == "PENDING BeginTime" and lab.job(job_id).priority
        await lab.acts.hold(ROOT, str(job_id))
        assert lab.shown(job_id) == "PENDING JobHeldAdmin"
        await refused(errors.ESLURM_ACCESS_DENIED, lab.acts.release(ALICE, str(job_id)))
        await refused(errors.ESLURM_USER_ID_MISSING, lab.acts.hold(BOB, str(job_id)))
        await lab.acts.release(ROOT, str(job_id))
        await lab.advance(51)
        assert lab.shown(job_id) == "RUNNING None"
        await lab.acts.hold(ALICE, str(job_id))                # a job that runs is held for its next run
        assert lab.shown(job_id) == "RUNNING JobHeldUser"
    in_lab(story)


def test_requeue_makes_a_second_row() -> None:
    async def story(lab: Lab) -> None:
        job_id = await lab.run_for(300)
        await lab.settle()
        await lab.acts.requeue(ROOT, str(job_id))
        await lab.advance(2)
        job = lab.job(job_id)
        assert lab.shown(job_id) == "PENDING BeginTime" and job.restarts == 1 and not job.allocation
        assert await lab.rows(job_id) == [("REQUEUED", 0), ("PENDING", 0)]
        await refused(errors.ESLURM_JOB_PENDING, lab.acts.requeue(ROOT, str(job_id)))
        await lab.advance(125)
        assert lab.shown(job_id) == "RUNNING None"
        await lab.acts.requeue(ROOT, str(job_id), hold=True)
        await lab.advance(2)
        assert lab.shown(job_id) == "PENDING JobHeldUser"
        await lab.acts.release(ROOT, str(job_id))
        await lab.advance(125)
        assert lab.shown(job_id) == "RUNNING None"
        await lab.advance(301)
        assert [state for state, _ in await lab.rows(job_id)] == ["REQUEUED", "REQUEUED", "COMPLETED"]
        await lab.acts.requeue(ROOT, str(job_id))
        assert lab.shown(job_id) == "PENDING BeginTime"
    in_lab(story)


@pytest.mark.parametrize("is_killed", [False, True], ids=["controller lives", "controller is killed meanwhile"])
def test_a_job_that_is_cancelled_while_its_requeued_run_still_ends(is_killed: bool) -> None:
    async def story(lab: Lab) -> None:
        job_id = await lab.run_for(300, num_tasks=2)
        await lab.settle()
        await asyncio.gather(lab.acts.requeue(ROOT, str(job_id)), lab.acts.signal(ROOT, job_id))
        if is_killed:
            await lab.restart()
        await lab.advance(2)
        job = lab.job(job_id)
        assert lab.shown(job_id).startswith("CANCELLED") and not job.flags and not job.nodes and not job.allocation
        assert lab.views.nodes["n1"].cpus_alloc == 0 and not lab.views.nodes["n1"].job_ids
        assert [state for state, _ in await lab.rows(job_id)] == ["REQUEUED", "CANCELLED"]
        other = await lab.submit(num_tasks=12)                 # all nodes are free
        await lab.settle()
        assert lab.shown(other) == "RUNNING None"
    in_lab(story)


@pytest.mark.parametrize(("code", "shown", "rows"), [
    (101, "PENDING BeginTime", ["REQUEUED", "PENDING"]), (102, "SPECIAL_EXIT JobHeldUser", ["REQUEUED", "PENDING"]),
    (1, "FAILED NonZeroExitCode", ["FAILED"])])
def test_exit_codes_that_requeue(code: int, shown: str, rows: list[str]) -> None:
    async def story(lab: Lab) -> None:
        job_id = await lab.run_for(5, exit_code=code)
        await lab.settle()
        await lab.advance(6)
        assert lab.shown(job_id) == shown
        found = await lab.rows(job_id)
        assert [state for state, _ in found] == rows and found[0][1] == code << 8
    in_lab(story)


def test_node_failure_requeues_or_fails() -> None:
    async def story(lab: Lab) -> None:
        again, never = await lab.submit(num_tasks=1), await lab.submit(num_tasks=1, requeue=False)
        await lab.settle()
        assert lab.job(again).nodes == lab.job(never).nodes == ("n1",)
        await lab.acts.update_node(ROOT, ["n1"], {"state": "DOWN", "reason": "smoke"})
        await lab.advance(2)
        assert lab.shown(again) == "PENDING BeginTime" and lab.shown(never) == "NODE_FAIL NodeDown"
        assert [state for state, _ in await lab.rows(again)] == ["NODE_FAIL", "PENDING"]
        await lab.advance(125)
        assert lab.job(again).nodes == ("n2",)
    in_lab(story)


def test_suspended_time_does_not_count() -> None:
    async def story(lab: Lab) -> None:
        job_id = await lab.submit(time_limit_min=2)
        await lab.settle()
        await refused(errors.ESLURM_ACCESS_DENIED, lab.acts.suspend(ALICE, str(job_id)))
        await lab.acts.suspend(ROOT, str(job_id))
        await lab.settle()
        await lab.advance(1000)
        assert lab.shown(job_id) == "SUSPENDED None"
        await lab.acts.resume(ROOT, str(job_id))
        await lab.settle()
        await lab.advance(110)
        assert lab.shown(job_id) == "RUNNING None" and lab.job(job_id).pre_suspend_s == 1000
        await lab.advance(12)
        assert lab.job(job_id).state == "TIMEOUT"
    in_lab(story)


def test_array_throttle_and_ids() -> None:
    async def story(lab: Lab) -> None:
        array_id = await lab.run_for(10, array="0-4%2")
        await lab.settle()
        tasks = lab.views.array_tasks(array_id)
        assert [(job.array_task_id, job.state) for job in tasks] == [(None, "PENDING"), (0, "RUNNING"), (1, "RUNNING")]
        await lab.advance(11)
        await lab.advance(11)
        await lab.advance(11)
        ended = lab.views.array_tasks(array_id)
        assert [(job.array_task_id, job.state) for job in ended] == [(task, "COMPLETED") for task in range(5)]
        assert [job.job_id for job in ended] == [array_id + 1, array_id + 2, array_id + 3, array_id + 4, array_id]
    in_lab(story)


def test_cancelling_some_tasks() -> None:
    async def story(lab: Lab) -> None:
        array_id = await lab.submit(array="0-3", hold=True)
        await lab.acts.signal(ROOT, array_id, task_ids=[1, 3])
        assert [job.array_pending for job in lab.views.array_tasks(array_id)] == [0b101]         # no record is left
        await refused(errors.ESLURM_INVALID_JOB_ID, lab.acts.signal(ROOT, array_id, task_ids=[77]))
        await refused(errors.ESLURM_INVALID_JOB_ID, lab.acts.signal(ROOT, array_id, task_ids=[1]))
        await lab.acts.signal(ROOT, array_id, task_ids=[0, 2])
        assert [job.state for job in lab.views.array_tasks(array_id)] == ["CANCELLED"]
    in_lab(story)


def test_dependent_jobs_follow_or_never_run() -> None:
    async def story(lab: Lab) -> None:
        first = await lab.run_for(10, exit_code=1)
        ok = await lab.submit(dependency=f"afterok:{first}")
        killed = await lab.submit(dependency=f"afterok:{first}", kill_on_invalid_dep=True)
        not_ok = await lab.submit(dependency=f"afternotok:{first}")
        any_way = await lab.submit(dependency=f"afterany:{first}")
        await lab.settle()
        assert lab.shown(ok) == "PENDING Dependency" and lab.job(ok).dependency == f"afterok:{first}(unfulfilled)"
        await lab.advance(11)
        assert lab.shown(ok) == "PENDING DependencyNeverSatisfied"
        assert lab.job(ok).dependency == f"afterok:{first}(failed)"
        assert lab.shown(killed) == "CANCELLED DependencyNeverSatisfied"
        assert lab.shown(not_ok) == lab.shown(any_way) == "RUNNING None"
        await refused(errors.ESLURM_DEPENDENCY, lab.submit(dependency="afterok:999"))
        await refused(errors.ESLURM_DEPENDENCY, lab.submit(dependency="bogus:1"))
    in_lab(story)


def test_singletons_run_one_after_another() -> None:
    async def story(lab: Lab) -> None:
        jobs = [await lab.run_for(10, name="one", dependency="singleton") for _ in range(3)]
        other = await lab.run_for(10, name="two", dependency="singleton")
        await lab.settle()
        assert [lab.job(one).state for one in (*jobs, other)] == ["RUNNING", "PENDING", "PENDING", "RUNNING"]
        await lab.advance(11)
        assert [lab.job(one).state for one in jobs] == ["COMPLETED", "RUNNING", "PENDING"]
    in_lab(story)


def test_a_restart_finds_everything_again() -> None:
    async def story(lab: Lab) -> None:
        running = await lab.run_for(100, num_tasks=3)
        held = await lab.submit(hold=True, comment="why not")
        array_id = await lab.submit(array="0-2%1")
        dependent = await lab.submit(dependency=f"afterok:{running}")
        await lab.acts.update_node(ROOT, ["n3"], {"state": "DRAIN", "reason": "fan"})
        await lab.acts.update_partition(ROOT, "gpu", {"maxtime": "30"})
        await lab.settle()
        before = {job_id: (lab.shown(job_id), lab.job(job_id).nodes) for job_id in lab.views.jobs}
        await lab.restart()
        assert {job_id: (lab.shown(job_id), lab.job(job_id).nodes) for job_id in lab.views.jobs} == before
        assert lab.job(held).comment == "why not" and lab.job(held).priority == 0
        assert lab.job(array_id).array_pending == 0b110 and lab.views.nodes["n1"].cpus_alloc == 4
        assert lab.views.nodes["n3"].flags == {"DRAIN"} and lab.views.nodes["n3"].reason == "fan"
        assert lab.views.partitions["gpu"].max_time_min == 30
        assert await lab.submit(hold=True) > max(before)
        await lab.advance(101)
        assert lab.shown(running) == "COMPLETED None"
        assert lab.shown(dependent) == "RUNNING None"
    in_lab(story)


def test_what_ended_while_the_controller_was_away() -> None:
    async def story(lab: Lab) -> None:
        job_id = await lab.run_for(20, exit_code=4)
        await lab.settle()
        await lab.controller.close()
        lab.now += 60
        await lab._open()
        await lab.settle()
        assert lab.shown(job_id) == "FAILED NonZeroExitCode"
        assert await lab.rows(job_id) == [("FAILED", 4 << 8)]
    in_lab(story)


def test_usage_accrues_while_jobs_run() -> None:
    async def story(lab: Lab) -> None:
        await lab.acts.change_accounting(ROOT, [
            {"op": "add_account", "name": "phys"}, {"op": "add_association", "account": "phys"},
            {"op": "add_user", "name": "alice"},
            {"op": "add_association", "account": "phys", "user": "alice", "is_default": True}])
        await lab.run_for(100, by=ALICE, num_tasks=2)
        await lab.settle()
        await lab.advance(101)
        lab.views.shares()
        records = lab.views.accounting.associations.values()
        usage = {record.user or record.account: record.usage_raw for record in records}
        assert usage["alice"] == pytest.approx(2 * 100, rel=0.02) and usage["phys"] == usage["alice"]
    in_lab(story)


def test_a_job_that_cannot_be_launched_again_and_again_is_held() -> None:
    async def story(lab: Lab) -> None:
        async def fails(order: LaunchOrder) -> None:
            lab.engine._events.put_nowait(Event("launch_failed", order.run, lab.now, data={"node": "n1"}, sequence=1))

        lab.engine.launch = fails  # type: ignore[method-assign]
        job_id = await lab.submit()
        await lab.settle()
        assert lab.shown(job_id) == "PENDING BeginTime"
        await lab.advance(130)
        assert lab.shown(job_id) == "REQUEUE_HOLD JobHoldMaxRequeue"
        assert lab.job(job_id).reason_desc == "launch failure limit exceeded requeued held"
        assert (lab.job(job_id).priority, lab.job(job_id).restarts) == (0, 2)
        await lab.advance(1000)
        assert lab.shown(job_id) == "REQUEUE_HOLD JobHoldMaxRequeue"
    in_lab(story, "MaxBatchRequeue=2\n")


def test_a_partition_takes_jobs_from_its_allocating_nodes_only() -> None:
    async def story(lab: Lab) -> None:
        job_id = await lab.submit(partitions=("here",))
        assert lab.job(job_id).partition == "here"
        await refused(errors.ESLURM_ACCESS_DENIED, lab.submit(partitions=("there",)))
    in_lab(story, f"PartitionName=here Nodes=n1 AllocNodes=login[1-2],{INVOCATION.host}\n"
                  "PartitionName=there Nodes=n1 AllocNodes=login[1-2]\n")
