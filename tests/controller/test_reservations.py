"""Reservations in a controller: made, used, changed, over, and there again after a restart."""
from __future__ import annotations

from typing import Any

import pytest
from lab import ALICE, BOB, ROOT, Lab, in_lab

from slurmbridge.slurm import errors
from slurmbridge.slurm.errors import SlurmError

HOUR_S = 3600


def asked(lab: Lab, **given: str) -> dict[str, str]:
    return {"name": "r0", "start": str(int(lab.now)), "duration": "60", "users": "root", "nodes": "n1", **given}


async def refused(act: Any) -> int:
    with pytest.raises(SlurmError) as caught:
        await act
    return caught.value.code


def test_only_its_users_run_in_it_and_nobody_else_on_its_nodes() -> None:
    async def story(lab: Lab) -> None:
        assert await lab.acts.create_reservation(ROOT, asked(lab, users="alice")) == "r0"
        inside = await lab.submit(by=ALICE, reservation="r0")
        outside = await lab.submit(by=BOB)
        await lab.advance(4)
        assert lab.job(inside).nodes == ("n1",)
        assert lab.job(outside).nodes == ("n2",)
        assert await refused(lab.submit(by=BOB, reservation="r0")) == errors.ESLURM_RESERVATION_ACCESS
        assert await refused(lab.submit(by=ALICE, reservation="r9")) == errors.ESLURM_RESERVATION_INVALID
        assert await refused(lab.acts.delete_reservation(ROOT, "r0")) == errors.ESLURM_RESERVATION_BUSY
    in_lab(story)


@pytest.mark.parametrize(("given", "code"), [
    ({"nodes": "n9"}, errors.ESLURM_INVALID_NODE_NAME),
    ({"nodes": "", "nodecnt": "9"}, errors.ESLURM_NODES_BUSY),
    ({"partition": "none"}, errors.ESLURM_INVALID_PARTITION_NAME),
    ({"flags": "DAILY,WEEKLY"}, errors.ESLURM_NOT_SUPPORTED),
    ({"flags": "REPLACE"}, errors.ESLURM_INVALID_NODE_NAME),
    ({"flags": "DAILY,TIME_FLOAT"}, errors.ESLURM_NOT_SUPPORTED),
    ({"accounts": "nobody"}, errors.ESLURM_INVALID_ACCOUNT),
    ({"users": ""}, errors.ESLURM_RESERVATION_EMPTY),
    ({"licenses": "matlab"}, errors.ESLURM_INVALID_LICENSES),
    ({"tres": "gres/gpu=1", "nodes": ""}, errors.ESLURM_INVALID_TRES),
    ({"start": "1000"}, errors.ESLURM_INVALID_TIME_VALUE),
    ({"name": "first"}, errors.ESLURM_RESERVATION_NAME_DUP),
    ({"nodes": "n3"}, errors.ESLURM_RESERVATION_OVERLAP),
])
def test_what_cannot_be_reserved(given: dict[str, str], code: int) -> None:
    async def story(lab: Lab) -> None:
        await lab.acts.create_reservation(ROOT, asked(lab, name="first", nodes="n3"))
        assert await refused(lab.acts.create_reservation(ROOT, asked(lab, **given))) == code
        assert await refused(lab.acts.create_reservation(ALICE, asked(lab))) == errors.ESLURM_ACCESS_DENIED
        assert list(lab.views.reservations) == ["first"]
    in_lab(story)


def test_nodes_and_cores_are_chosen_where_only_counts_are_given() -> None:
    async def story(lab: Lab) -> None:
        await lab.acts.create_reservation(ROOT, asked(lab, nodes="", nodecnt="2"))
        await lab.acts.create_reservation(ROOT, asked(lab, name="r1", nodes="", tres="cpu=2"))
        first, second = lab.views.reservations["r0"], lab.views.reservations["r1"]
        assert first.nodes == ("n1", "n2") and not first.cores and first.core_count == 8
        assert second.cores == {"n3": (0, 1)} and second.cpu_count == 2
        assert await lab.acts.create_reservation(ROOT, asked(lab, name="", nodes="n3", flags="OVERLAP")) == "root_3"
    in_lab(story)


def test_a_daily_one_comes_again_and_others_end_with_their_jobs() -> None:
    async def story(lab: Lab) -> None:
        await lab.acts.create_reservation(ROOT, asked(lab, flags="DAILY", duration="5"))
        await lab.acts.create_reservation(ROOT, asked(lab, name="once", nodes="n2", users="alice", duration="5"))
        start_s = lab.views.reservations["r0"].start_s
        running = await lab.run_for(10_000, by=ALICE, reservation="once", num_tasks=4)
        await lab.advance(4)
        assert lab.job(running).nodes == ("n2",)
        behind = await lab.submit(by=ALICE, reservation="once", num_tasks=4)
        await lab.advance(300)
        for _ in range(3):
            lab.controller.reservations.run()
            await lab.advance(2)
        assert lab.job(running).state == "TIMEOUT"
        assert (lab.views.reservations["r0"].start_s, lab.views.reservations["r0"].id) == (start_s + 24 * HOUR_S, 3)
        assert "once" not in lab.views.reservations
        held = lab.job(behind)
        assert (held.priority, held.reason, held.reason_desc) == (
            0, "ReservationDeleted", "Reservation once was deleted")
    in_lab(story)


def test_updates_change_all_or_nothing_and_outlive_a_restart() -> None:
    async def story(lab: Lab) -> None:
        await lab.acts.create_reservation(ROOT, asked(lab, users="alice,bob"))
        await lab.acts.update_reservation(ROOT, "r0", {"duration": "+30", "nodes": "+n2", "users": "-bob",
                                                       "flags": "FLEX", "comment": "longer"})
        record = lab.views.reservations["r0"]
        assert (record.nodes, record.users, record.end_s - record.start_s, record.comment) == (
            ("n1", "n2"), ("alice",), 90 * 60, "longer")
        assert "FLEX" in record.flags
        assert await refused(lab.acts.update_reservation(ROOT, "r0", {"flags": "NO_FLEX", "features": "old"})) == (
            errors.ESLURM_NOT_SUPPORTED)
        assert await refused(lab.acts.update_reservation(ROOT, "r9", {})) == errors.ESLURM_RESERVATION_INVALID
        before = lab.views.reservations["r0"]
        await lab.restart()
        assert lab.views.reservations["r0"] == before
        await lab.acts.delete_reservation(ROOT, "r0")
        await lab.restart()
        assert not lab.views.reservations
        assert await lab.acts.create_reservation(ROOT, asked(lab, name="")) == "root_2"
    in_lab(story)


@pytest.mark.parametrize(("flags", "state", "nodes"), [
    ("", "DRAIN", ("n2",)), ("REPLACE_DOWN", "DRAIN", ("n2",)), ("STATIC", "DRAIN", ("n1",)),
    ("REPLACE", "", ("n2",)), ("REPLACE_DOWN", "", ("n1",))])
def test_lost_nodes_are_replaced(flags: str, state: str, nodes: tuple[str, ...]) -> None:
    async def story(lab: Lab) -> None:
        await lab.acts.create_reservation(ROOT, asked(lab, nodes="", nodecnt="1", users="alice", flags=flags))
        if state:
            await lab.acts.update_node(ROOT, ["n1"], {"state": state, "reason": "test"})
        else:
            await lab.run_for(1000, by=ALICE, reservation="r0")
        await lab.advance(1)
        lab.controller.reservations.run()
        assert lab.views.reservations["r0"].nodes == nodes
    in_lab(story)


GPUS = "AccountingStorageTRES=gres/gpu,gres/gpu:a100\n"


def test_a_magnet_draws_jobs_that_may_use_it_and_end_in_time() -> None:
    async def story(lab: Lab) -> None:
        await lab.acts.create_reservation(ROOT, asked(lab, nodes="n3", users="alice", flags="MAGNETIC"))
        drawn = await lab.submit(by=ALICE)
        stranger = await lab.submit(by=BOB)
        await lab.advance(4)
        assert (lab.job(drawn).nodes, lab.job(drawn).request.reservation) == (("n3",), "r0")
        assert (lab.job(stranger).nodes, lab.job(stranger).request.reservation) == (("n1",), None)
        too_long = await lab.submit(by=ALICE, time_limit_min=60)
        await lab.advance(4)
        assert (lab.job(too_long).nodes, lab.job(too_long).request.reservation) == (("n1",), None)
        await lab.acts.requeue(ROOT, str(drawn), hold=True)
        await lab.advance(4)
        assert lab.job(drawn).request.reservation is None
        await lab.acts.update_reservation(ROOT, "r0", {"flags": "NO_MAGNETIC"})
        after = await lab.submit(by=ALICE)
        await lab.advance(4)
        assert lab.job(after).nodes == ("n1",)
    in_lab(story)


def test_a_job_that_a_magnet_has_no_room_for_runs_elsewhere_and_says_why_it_waits_there() -> None:
    async def story(lab: Lab) -> None:
        await lab.acts.create_reservation(ROOT, asked(lab, nodes="n3", users="alice", flags="MAGNETIC"))
        jobs = [await lab.submit(by=ALICE, exclusive="exclusive") for _ in range(4)]
        await lab.advance(4)
        assert sorted(lab.job(one).nodes for one in jobs) == [(), ("n1",), ("n2",), ("n3",)]
        assert [lab.job(one).reason for one in jobs if not lab.job(one).nodes] == ["Resources"]
    in_lab(story)


def test_devices_of_a_reservation_are_for_its_jobs_alone() -> None:
    async def story(lab: Lab) -> None:
        await lab.acts.create_reservation(
            ROOT, asked(lab, nodes="", users="alice", partition="gpu", tres="cpu=2,gres/gpu:a100=1"))
        record = lab.views.reservations["r0"]
        assert (record.nodes, record.tres) == (("g1",), {"cpu": 2, "gres/gpu:a100": 1, "gres/gpu": 1})
        one = {"partitions": ("gpu",), "tres_per_node": "gres/gpu:1"}
        strangers = [await lab.submit(by=BOB, **one) for _ in range(2)]
        await lab.advance(4)
        assert [lab.job(job).nodes for job in strangers] == [("g1",), ()]
        inside = [await lab.submit(by=ALICE, reservation="r0", **one) for _ in range(2)]
        await lab.advance(4)
        assert [lab.job(job).nodes for job in inside] == [("g1",), ()]
        assert lab.job(inside[0]).allocation[0].gres != lab.job(strangers[0]).allocation[0].gres
        await lab.restart()
        assert lab.views.reservations["r0"].gres == record.gres
    in_lab(story, GPUS)


def test_a_user_deletes_a_reservation_where_that_is_allowed() -> None:
    async def story(lab: Lab) -> None:
        await lab.acts.create_reservation(ROOT, asked(lab, users="alice"))
        assert await refused(lab.acts.delete_reservation(ALICE, "r0")) == errors.ESLURM_USER_ID_MISSING
        await lab.acts.update_reservation(ROOT, "r0", {"flags": "USER_DELETE"})
        assert await refused(lab.acts.delete_reservation(BOB, "r0")) == errors.ESLURM_USER_ID_MISSING
        await lab.acts.delete_reservation(ALICE, "r0")
        assert not lab.views.reservations
    in_lab(story)
