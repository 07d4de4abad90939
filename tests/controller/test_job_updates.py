"""scontrol update: what a key changes in a pending and in a running job, and who may."""
from __future__ import annotations

from typing import Any

import pytest
from lab import ALICE, BOB, ROOT, Lab, in_lab

from slurmbridge.controller.update_keys import KEYS
from slurmbridge.slurm import errors
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.slurm.jobspec import UNLIMITED_MIN
from slurmbridge.views.session import Identity

PENDING: list[tuple[dict[str, str], dict[str, Any]]] = [
    ({"timelimit": "5"}, {"time_limit_min": 5}), ({"timelimit": "UNLIMITED"}, {"time_limit_min": UNLIMITED_MIN}),
    ({"timelimit": "+5"}, {"time_limit_min": 15}), ({"timemin": "3"}, {"time_min_min": 3}),
    ({"name": "new"}, {"name": "new"}), ({"comment": "why"}, {"comment": "why"}),
    ({"partition": "gpu,main"}, {"partition": "gpu,main"}), ({"nice": "50"}, {"nice": 50}),
    ({"priority": "9"}, {"priority": 9, "priority_fixed": True}), ({"requeue": "0"}, {"requeue": False}),
    ({"numcpus": "3"}, {"num_cpus": 3, "num_tasks": 1, "tres_req": {"cpu": 3, "mem": 300, "node": 1, "billing": 3}}),
    ({"numnodes": "2-3"}, {"num_nodes": "2-3", "min_nodes": 2, "max_nodes": 3}),
    ({"cpuspertask": "2"}, {"num_cpus": 2, "min_cpus_node": 2}),
    ({"minmemorynode": "700"}, {"mem_per_node_mb": 700, "mem_per_cpu_mb": None}),
    ({"minmemorycpu": "50"}, {"mem_per_cpu_mb": 50}), ({"oversubscribe": "no"}, {"oversubscribe": "NO"}),
    ({"starttime": "1900000000"}, {"reason": "JobHeldUser", "eligible_s": 1900000000.0}),
    ({"stdout": "x-%j"}, {"std_out": "/tmp/x-%"}),
    ({"dependency": "singleton"}, {"dependency": "singleton(unfulfilled)"}),
    ({"dependency": ""}, {"dependency": ""}), ({"deadline": "1900000000"}, {"deadline_s": 1900000000}),
    ({"wckey": "w"}, {"wckey": "w"}), ({"sitefactor": "-3"}, {"site_factor": -3})]


def test_a_pending_job_changes_and_stays_changed() -> None:
    async def story(lab: Lab) -> None:
        expected: dict[int, dict[str, Any]] = {}
        for changes, shown in PENDING:
            job_id = await lab.submit(hold="priority" not in changes, begin_s=int(lab.now) + 1000)
            await lab.acts.update_job(ROOT, str(job_id), changes)
            expected[job_id] = {name: value.replace("%", str(job_id)) if isinstance(value, str) else value
                                for name, value in shown.items()}

        def found() -> dict[int, dict[str, Any]]:
            return {job_id: {name: getattr(lab.job(job_id), name) for name in shown}
                    for job_id, shown in expected.items()}
        assert found() == expected
        await lab.restart()
        assert found() == expected
    in_lab(story)


REQUESTS: list[tuple[dict[str, str], str, Any]] = [
    ({"features": "new"}, "constraint", "new"), ({"reqnodelist": "n[1-2]"}, "node_list", "n[1-2]"),
    ({"excnodelist": "n1"}, "exclude", "n1"), ({"gres": "gpu:1"}, "tres_per_node", "gres/gpu:1"),
    ({"switches": "2@2"}, "switches_wait_s", 120), ({"switches": "2@60"}, "switches_wait_s", 300),
    ({"mailtype": "END"}, "mail_type", "END"), ({"contiguous": "yes"}, "contiguous", True)]


def test_the_request_follows() -> None:
    async def story(lab: Lab) -> None:
        for changes, field, value in REQUESTS:
            job_id = await lab.submit(hold=True)
            await lab.acts.update_job(ROOT, str(job_id), changes)
            assert getattr(lab.job(job_id).request, field) == value, changes
    in_lab(story)


REFUSED: list[tuple[Identity, dict[str, str], int]] = [
    (BOB, {"comment": "x"}, errors.ESLURM_USER_ID_MISSING), (ALICE, {"admincomment": "x"}, errors.ESLURM_ACCESS_DENIED),
    (ALICE, {"priority": "99999999"}, errors.ESLURM_ACCESS_DENIED),
    (ALICE, {"nice": "-5"}, errors.ESLURM_ACCESS_DENIED),
    (ALICE, {"timelimit": "61"}, errors.ESLURM_ACCESS_DENIED),
    (ALICE, {"reboot": "1"}, errors.ESLURM_ACCESS_DENIED),
    (ALICE, {"oversubscribe": "yes"}, errors.ESLURM_ACCESS_DENIED),
    (ALICE, {"contiguous": "1"}, errors.ESLURM_ACCESS_DENIED), (ROOT, {"corespec": "1"}, errors.ESLURM_ACCESS_DENIED),
    (ROOT, {"tresbind": "x"}, errors.ESLURM_INVALID_TRES),
    (ROOT, {"mempertres": "gres/gpu:9"}, errors.ESLURM_INVALID_GRES),
    (ROOT, {"numnodes": "1000"}, errors.ESLURM_REQUESTED_PART_CONFIG_UNAVAILABLE),
    (ROOT, {"partition": "nosuch"}, errors.ESLURM_INVALID_PARTITION_NAME),
    (ROOT, {"features": "nosuch"}, errors.ESLURM_INVALID_FEATURE), (ROOT, {"reqnodelist": "x"}, 2018),
    (ROOT, {"licenses": "a"}, errors.ESLURM_INVALID_LICENSES), (ROOT, {"dependency": "bogus:1"}, 2038),
    (ROOT, {"nosuch": "1"}, errors.ESLURM_NOT_SUPPORTED),
    (ROOT, {"arraytaskthrottle": "1"}, errors.ESLURM_NOT_SUPPORTED),
    (ROOT, {"name": "a", "partition": "nosuch"}, errors.ESLURM_INVALID_PARTITION_NAME)]


def test_what_is_refused_changes_nothing() -> None:
    async def story(lab: Lab) -> None:
        job_id = await lab.submit(by=ALICE, begin_s=int(lab.now) + 1000)
        for who, changes, code in REFUSED:
            with pytest.raises(SlurmError) as refused:
                await lab.acts.update_job(who, str(job_id), changes)
            assert refused.value.code == code, changes
            assert (lab.job(job_id).name, lab.job(job_id).partition) == ("job", "main")
    in_lab(story)


PARTLY: list[tuple[dict[str, str], int, dict[str, Any]]] = [
    ({"comment": "c", "timelimit": "61", "name": "n"}, errors.ESLURM_ACCESS_DENIED, {"comment": "c", "name": "job"}),
    ({"partition": "gpu", "timelimit": "61"}, errors.ESLURM_ACCESS_DENIED, {"partition": "gpu"}),
    ({"partition": "gpu", "excnodelist": "x", "comment": "d"}, errors.ESLURM_INVALID_NODE_NAME,
     {"partition": "main", "comment": ""}),
    ({"comment": "d", "admincomment": "a"}, errors.ESLURM_ACCESS_DENIED, {"comment": ""}),
    ({"sitefactor": "3", "reboot": "1", "mailuser": "u", "starttime": "1900000000"}, errors.ESLURM_ACCESS_DENIED,
     {"site_factor": 0, "eligible_s": 1900000000.0}),
    ({"numcpus": "3", "features": "nosuch"}, errors.ESLURM_INVALID_FEATURE, {"num_cpus": 3, "tres_req": {
        "cpu": 1, "mem": 100, "node": 1, "billing": 1}})]
"""What a user asks for, the refusal, and what the job has then: keys that slurmctld takes before the refused one."""


def test_what_came_before_a_refused_key_stays() -> None:
    async def story(lab: Lab) -> None:
        for changes, code, left in PARTLY:
            job_id = await lab.submit(by=ALICE, begin_s=int(lab.now) + 1000)
            with pytest.raises(SlurmError) as refused:
                await lab.acts.update_job(ALICE, str(job_id), changes)
            assert refused.value.code == code, changes
            assert {name: getattr(lab.job(job_id), name) for name in left} == left, changes
    in_lab(story)


AT_ANY_TIME = {
    "comment", "admincomment", "systemcomment", "extra", "name", "wckey", "timelimit", "endtime", "qos",
    "nice", "requeue", "sitefactor", "container", "burstbuffer", "clusterfeatures", "clusters", "mailuser",
    "mailtype", "licenses", "mcslabel", "resetaccruetime", "arraytaskthrottle", "reboot",
    "priority"}


def test_keys_of_waiting_jobs_only() -> None:
    async def story(lab: Lab) -> None:
        job_id = await lab.submit()
        await lab.settle()
        for key in sorted(KEYS.keys() - AT_ANY_TIME):
            with pytest.raises(SlurmError) as refused:
                await lab.acts.update_job(ROOT, str(job_id), {key: "1"})
            assert refused.value.code in (errors.ESLURM_JOB_NOT_PENDING, errors.ESLURM_INVALID_TIME_VALUE), key
    in_lab(story)


def test_a_running_jobs_limit_moves_its_end() -> None:
    async def story(lab: Lab) -> None:
        job_id = await lab.submit(by=ALICE, time_limit_min=5)
        await lab.settle()
        with pytest.raises(SlurmError):
            await lab.acts.update_job(ALICE, str(job_id), {"timelimit": "6"})
        await lab.acts.update_job(ROOT, str(job_id), {"timelimit": "10"})
        await lab.advance(5 * 60 + 1)
        assert lab.shown(job_id) == "RUNNING None"
        await lab.acts.update_job(ALICE, str(job_id), {"timelimit": "6"})
        await lab.advance(61)
        assert lab.job(job_id).state == "TIMEOUT"
    in_lab(story)
