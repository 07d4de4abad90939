"""AccountingStorageEnforce and TrackWCKey at submission, and how many submitted jobs limits count."""
from __future__ import annotations

import pytest
from lab import ALICE, BOB, ROOT, Lab, in_lab

from slurmbridge.slurm import errors
from slurmbridge.slurm.errors import SlurmError

WCKEYS = "TrackWCKey=yes\nAccountingStorageEnforce=associations,wckeys\n"


async def with_alice(lab: Lab) -> None:
    await lab.acts.change_accounting(ROOT, [
        {"op": "add_account", "name": "phys"}, {"op": "add_association", "account": "phys"},
        {"op": "add_user", "name": "alice"},
        {"op": "add_association", "account": "phys", "user": "alice", "is_default": True}])


def test_only_wckeys_of_the_user_are_taken_where_they_are_enforced() -> None:
    async def story(lab: Lab) -> None:
        await with_alice(lab)
        assert lab.job(await lab.submit(by=ALICE)).wckey == "*"
        with pytest.raises(SlurmError) as refused:
            await lab.submit(by=ALICE, wckey="proj")
        assert refused.value.code == errors.ESLURM_INVALID_WCKEY
        await lab.acts.change_accounting(ROOT, [
            {"op": "add_wckey", "name": "proj", "user": "alice", "is_default": True}])
        assert lab.job(await lab.submit(by=ALICE)).wckey == "*proj"
        held = await lab.submit(by=ALICE, wckey="PROJ", hold=True)
        assert lab.job(held).wckey == "proj"
        with pytest.raises(SlurmError) as refused:
            await lab.acts.update_job(ROOT, str(held), {"wckey": "other"})
        assert refused.value.code == errors.ESLURM_INVALID_WCKEY
        assert lab.job(held).wckey == "proj"
    in_lab(story, WCKEYS)


def test_any_wckey_is_taken_where_they_are_only_tracked() -> None:
    async def story(lab: Lab) -> None:
        await with_alice(lab)
        assert lab.job(await lab.submit(by=ALICE, wckey="any")).wckey == "any"
        assert lab.job(await lab.submit(by=BOB)).wckey == "*"
        running = await lab.submit(by=ALICE)
        await lab.settle()
        await lab.advance(4)                  # jobs that start make their wckeys known
        assert sorted(name for name, user in lab.controller.world.accounting.wckeys.values() if user == "alice") == [
            "", "*", "any"]
        with pytest.raises(SlurmError) as refused:
            await lab.acts.update_job(ROOT, str(running), {"wckey": "any"})
        assert refused.value.code == errors.ESLURM_JOB_NOT_PENDING
    in_lab(story, "TrackWCKey=yes\n")


def test_unknown_accounts_and_qos_where_nothing_is_enforced() -> None:
    async def story(lab: Lab) -> None:
        await with_alice(lab)
        job = lab.job(await lab.submit(by=ALICE, account="nosuch", qos="nosuch"))
        assert (job.account, job.qos) == ("phys", "")
        await lab.settle()
        assert job.state == "RUNNING"
    in_lab(story)


def test_each_task_of_an_array_that_ends_makes_room_for_another_job() -> None:
    async def story(lab: Lab) -> None:
        await with_alice(lab)
        await lab.run_for(10, by=ALICE, array="0-2")
        await lab.settle()
        submitted = lab.controller.world.limits.submitted
        assert submitted["qos", "normal", "user", "alice"] == 3
        cancelled = next(job for job in lab.views.jobs.values() if job.array_task_id == 0)
        await lab.acts.signal(ROOT, cancelled.job_id)
        assert submitted["qos", "normal", "user", "alice"] == 2
        await lab.advance(11)
        assert ("qos", "normal", "user", "alice") not in submitted
    in_lab(story)


def test_this_clusters_part_of_a_remote_license_is_what_jobs_get() -> None:
    async def story(lab: Lab) -> None:
        await lab.acts.change_resources(ROOT, [
            {"op": "add", "name": "matlab", "server": "flex", "count": 10, "allowed": 30}])
        with pytest.raises(SlurmError) as refused:
            await lab.submit(licenses="matlab@flex:4")
        assert refused.value.code == errors.ESLURM_INVALID_LICENSES
        jobs = [await lab.submit(licenses="matlab@flex:2") for _ in range(2)]
        await lab.advance(4)
        assert [lab.shown(job) for job in jobs] == ["RUNNING None", "PENDING Licenses"]
        await lab.restart()
        assert lab.views.resources["matlab@flex"].total == 3
        await lab.acts.change_resources(ROOT, [{"op": "modify", "key": "matlab@flex", "allowed": 50}])
        await lab.advance(4)
        assert lab.shown(jobs[1]) == "RUNNING None"
        with pytest.raises(SlurmError) as refused:
            await lab.acts.change_resources(ALICE, [{"op": "delete", "key": "matlab@flex"}])
        assert refused.value.code == errors.ESLURM_ACCESS_DENIED
    in_lab(story)


def test_limits_of_a_relative_qos_are_parts_of_the_cluster() -> None:
    async def story(lab: Lab) -> None:
        await with_alice(lab)
        await lab.acts.change_accounting(ROOT, [
            {"op": "add_qos", "name": "half", "settings": {
                "flags": ["Relative", "DenyOnLimit"], "max_tres_per_job": {"cpu": 30}, "grp_tres": {"cpu": 200}}},
            {"op": "modify_association", "id": next(
                one.id for one in lab.controller.world.accounting.associations.values() if one.user == "alice"),
             "settings": {"qos": ["normal", "half"]}}])
        assert lab.job(await lab.submit(by=ALICE, qos="half", num_tasks=6)).qos == "half"
        with pytest.raises(SlurmError) as refused:           # 30 % of the cluster's 20 CPUs are 6
            await lab.submit(by=ALICE, qos="half", num_tasks=7)
        assert refused.value.code == errors.ESLURM_ACCOUNTING_POLICY
    in_lab(story, "AccountingStorageEnforce=associations,limits,qos\n")
