"""What the controller does with verdicts: states and reasons of nodes, events, jobs, and what administrators do."""
from __future__ import annotations

from dataclasses import replace
from typing import Any

from controller.lab import ALICE, ROOT, Lab, in_lab

from slurmbridge.cluster.port import Event, LaunchOrder
from slurmbridge.health.policy import Policy, Windows
from slurmbridge.health.rules import DEFAULTS

ACTING = Policy(DEFAULTS, stage="act", windows=replace(Windows(), warm_up=0))
MACHINES: dict[str, dict[str, Any]] = {}


async def said(lab: Lab, node: str, **changes: Any) -> None:
    """What the engine sees of a node now; Ready unless it says otherwise."""
    conditions = {"Ready": "True", **changes.pop("conditions", {})}
    health = {"uid": f"uid-{node}", "boot_id": "1", "pods": {}, **changes, "conditions": [
        {"type": kind, "status": text.partition("/")[0], "reason": text.partition("/")[2]}
        for kind, text in conditions.items()]}
    lab.engine.happens(Event("node", None, lab.now, data={"name": node, "health": health}))
    await lab.settle()


async def gone(lab: Lab, node: str) -> None:
    lab.engine.happens(Event("node", None, lab.now, data={"name": node, "health": None}))
    await lab.settle()


def node_state(lab: Lab, name: str) -> tuple[str, str]:
    """(state, reason) as far as they are health's or an administrator's."""
    node = lab.views.nodes[name]
    words = [node.base_state, *sorted(node.flags & {"DRAIN", "FAIL", "NOT_RESPONDING"})]
    return "+".join(words), node.reason


async def events(lab: Lab, node: str) -> list[tuple[str, str, bool]]:
    """(state, reason, whether it is over) of the node's rows in sacctmgr show event."""
    await lab.settle()
    return [(row["state"], row["reason"], row["end_s"] is not None)
            for row in await lab.views.ledger_query("events") if row["node"] == node]


def test_no_job_starts_on_a_flagged_node() -> None:
    async def go(lab: Lab) -> None:
        await said(lab, "n1", conditions={"KernelReady": "False/ForkFailedOutOfPIDs"})
        assert node_state(lab, "n1") == (
            "IDLE+DRAIN", "kh:R:ForkFailedOutOfPIDs KernelReady=False/ForkFailedOutOfPIDs")
        wants = await lab.submit(node_list="n1")
        others = [await lab.submit(min_nodes=1, max_nodes=1, exclusive="exclusive") for _ in range(3)]
        await lab.settle()
        assert sorted(lab.job(job).nodes for job in others) == [(), ("n2",), ("n3",)]
        assert lab.shown(wants).startswith("PENDING ReqNodeNotAvail")
        await said(lab, "n1", conditions={"KernelReady": "True/KernelIsReady"})
        await lab.advance(290)
        assert lab.job(wants).state == "PENDING"
        await lab.advance(20)
        assert lab.job(wants).state == "RUNNING" and node_state(lab, "n1") == ("IDLE", "")
        assert await events(lab, "n1") == [
            ("DRAIN", "kh:R:ForkFailedOutOfPIDs KernelReady=False/ForkFailedOutOfPIDs", True)]
    in_lab(go)


def test_a_drain_of_somebody_else_stays() -> None:
    async def go(lab: Lab) -> None:
        await lab.acts.update_node(ROOT, ["n1"], {"state": "DRAIN", "reason": "ADMIN SHUTDOWN"})
        await said(lab, "n1", conditions={"KernelDeadlock": "True/DockerHung"})
        assert node_state(lab, "n1") == ("IDLE+DRAIN", "ADMIN SHUTDOWN")
        await said(lab, "n1", conditions={"KernelDeadlock": "False/KernelHasNoDeadlock"})
        await lab.advance(3600)
        assert node_state(lab, "n1") == ("IDLE+DRAIN", "ADMIN SHUTDOWN")
        await said(lab, "n1", conditions={"Ready": "Unknown/NodeStatusUnknown"})
        await lab.advance(301)
        assert node_state(lab, "n1") == ("DOWN+DRAIN+NOT_RESPONDING", "ADMIN SHUTDOWN")
        await said(lab, "n1")
        assert node_state(lab, "n1") == ("IDLE+DRAIN", "ADMIN SHUTDOWN")
        # ours first, then an administrator's
        await said(lab, "n2", conditions={"KernelDeadlock": "True/DockerHung"})
        await lab.acts.update_node(ROOT, ["n2"], {"state": "DRAIN", "reason": "mine now"})
        await said(lab, "n2", conditions={"KernelDeadlock": "False/KernelHasNoDeadlock"})
        await lab.advance(3600)
        assert node_state(lab, "n2") == ("IDLE+DRAIN", "mine now")
    in_lab(go)


def test_an_administrator_who_resumes_a_node_is_believed() -> None:
    async def go(lab: Lab) -> None:
        await said(lab, "n1", conditions={"NetworkingReady": "False/InterfaceNotUp"})
        await lab.acts.update_node(ROOT, ["n1"], {"state": "RESUME"})
        assert node_state(lab, "n1") == ("IDLE", "")
        await said(lab, "n1", conditions={"NetworkingReady": "False/InterfaceNotUp"})      # the latch is still there
        await lab.advance(600)
        assert node_state(lab, "n1") == ("IDLE", "")
        await said(lab, "n2", unschedulable=True)
        await lab.acts.update_node(ROOT, ["n2"], {"state": "RESUME"})        # a cordon is somebody's order
        assert node_state(lab, "n2") == ("IDLE+DRAIN", "kh:M:cordoned spec.unschedulable=true")
        await said(lab, "n2")
        assert node_state(lab, "n2") == ("IDLE", "")
    in_lab(go)


def test_a_node_with_a_job_drains_and_opens_its_event_when_empty() -> None:
    async def go(lab: Lab) -> None:
        job = await lab.run_for(100, node_list="n1")
        await lab.settle()
        await said(lab, "n1", unschedulable=True)
        await lab.advance(50)
        assert lab.job(job).state == "RUNNING" and "DRAIN" in lab.views.nodes["n1"].flags
        assert await events(lab, "n1") == []
        await lab.advance(60)
        assert lab.job(job).state == "COMPLETED"
        assert await events(lab, "n1") == [("DRAIN", "kh:M:cordoned spec.unschedulable=true", False)]
    in_lab(go, health=ACTING)


def test_a_lost_node_is_down_and_its_job_goes_elsewhere() -> None:
    async def go(lab: Lab) -> None:
        job = await lab.submit(requeue=True, time_limit_min=60)
        other = await lab.submit(requeue=False, time_limit_min=60)
        await lab.settle()
        assert lab.job(job).nodes == lab.job(other).nodes == ("n1",)
        await said(lab, "n1", conditions={"Ready": "Unknown/NodeStatusUnknown"})
        assert node_state(lab, "n1") == ("IDLE+NOT_RESPONDING", "")
        await lab.advance(299)
        assert lab.views.nodes["n1"].base_state == "IDLE" and await events(lab, "n1") == []
        await lab.advance(2)
        assert node_state(lab, "n1") == ("DOWN+NOT_RESPONDING", "Not responding")
        assert lab.job(job).state == "RUNNING"
        await lab.advance(1400)
        assert lab.job(job).state == "RUNNING"
        await lab.advance(110)
        assert lab.shown(other) == "NODE_FAIL NodeDown" and lab.job(other).failed_node == "n1"
        assert lab.shown(job) == "PENDING BeginTime" and lab.job(job).restarts == 1
        assert await lab.rows(job) == [("NODE_FAIL", 256), ("PENDING", 0)]
        assert [row[0] for row in await events(lab, "n1")] == ["DOWN*"]
        await lab.advance(130)
        assert lab.job(job).nodes == ("n2",)
    in_lab(go)


def test_a_deleted_node_takes_its_job_along_in_every_stage() -> None:
    async def go(lab: Lab) -> None:
        await said(lab, "n1")
        job = await lab.submit(node_list="n1", requeue=False)
        await lab.settle()
        await gone(lab, "n1")
        assert lab.shown(job) == "NODE_FAIL NodeDown"
        assert node_state(lab, "n1") == ("DOWN", "kh:L0:deleted node object is gone")
        await said(lab, "n1")
        assert node_state(lab, "n1") == ("IDLE", "")
        await lab.advance(5)
        assert lab.views.nodes["n1"].job_ids == set()
    in_lab(go, health=replace(ACTING, stage="observe"))


def test_stages_decide_and_one_command_undoes() -> None:
    async def go(lab: Lab) -> None:
        bad = {"GPUMissing": "True/GPUMissing"}
        job = await lab.submit(partitions=("gpu",), tres_per_node="gres/gpu:1")
        cpu = await lab.submit(partitions=("gpu",))
        await lab.settle()
        assert lab.job(job).nodes == lab.job(cpu).nodes == ("g1",)
        await lab.acts.health(ROOT, "stage", ["gpu", "observe"])
        await lab.acts.health(ROOT, "stage", ["root", "observe"])
        await said(lab, "g1", conditions=bad)
        assert node_state(lab, "g1") == ("IDLE", "")
        assert "the stage of its partitions is observe" in await lab.acts.health(ALICE, "show", ["g1"])
        await lab.acts.health(ROOT, "stage", ["gpu", "drain-only"])
        assert node_state(lab, "g1")[0] == "IDLE+DRAIN"
        await lab.advance(660)
        assert lab.job(job).state == "RUNNING"
        text = await lab.acts.health(ALICE, "show", ["g1"])
        assert "GPUMissing=True/GPUMissing: class H, said by condition, since 00:11:00 ago; now bad" in text
        assert "gpu-jobs of partitions in stage act: due now" in text
        await lab.acts.health(ROOT, "stage", ["gpu", "act"])
        await lab.settle()
        assert lab.shown(job).startswith("PENDING") and lab.job(cpu).state == "RUNNING"
        assert await lab.acts.health(ROOT, "undo", []) == "lifted: g1\n"
        assert node_state(lab, "g1") == ("IDLE", "")
        await lab.restart()
        await said(lab, "g1", conditions=bad)
        assert node_state(lab, "g1") == ("IDLE", "")
    in_lab(go, health=replace(ACTING, stage="drain-only"))


def test_what_was_seen_outlives_a_restart() -> None:
    async def go(lab: Lab) -> None:
        await said(lab, "n1", conditions={"KernelDeadlock": "True/DockerHung"})
        await said(lab, "n2", conditions={"Ready": "Unknown/NodeStatusUnknown"})
        await lab.advance(400)
        await lab.restart()
        assert node_state(lab, "n1")[0] == "IDLE+DRAIN"        # before the engine has said a word
        await said(lab, "n1", conditions={"KernelDeadlock": "True/DockerHung"})
        await said(lab, "n2", conditions={"Ready": "Unknown/NodeStatusUnknown"})
        assert node_state(lab, "n2") == ("DOWN+NOT_RESPONDING", "Not responding")
        assert "since 00:06:40 ago" in await lab.acts.health(ROOT, "show", ["n1"])
        assert len(await events(lab, "n1")) == 1
    in_lab(go)


def test_missing_devices_are_not_handed_out() -> None:
    async def go(lab: Lab) -> None:
        await said(lab, "g1", capacity={"gpu:a100": 2}, allocatable={"gpu:a100": 1})
        two = await lab.submit(partitions=("gpu",), tres_per_node="gres/gpu:2")
        one = await lab.run_for(60, partitions=("gpu",), tres_per_node="gres/gpu:1")
        cpu = await lab.submit(partitions=("gpu",))
        await lab.settle()
        assert [lab.job(job).state for job in (two, one, cpu)] == ["PENDING", "RUNNING", "RUNNING"]
        await lab.advance(61)                 # what the ended job had does not make two of one
        assert lab.job(one).state == "COMPLETED" and lab.job(two).state == "PENDING"
        await said(lab, "g1", capacity={"gpu:a100": 2}, allocatable={"gpu:a100": 2})
        await lab.advance(200)
        assert lab.job(two).state == "PENDING"
        await lab.advance(120)
        assert lab.job(two).state == "RUNNING"
    in_lab(go)


def test_pressure_and_coverage_close_a_node_without_a_state() -> None:
    async def go(lab: Lab) -> None:
        for name in ("n1", "n2", "n3"):
            await said(lab, name, conditions={"MemoryPressure": "True/KubeletHasInsufficientMemory"} if name == "n1"
                       else {}, created_s=lab.now - 86400)
        await said(lab, "g1", created_s=lab.now - 86400)
        jobs = [await lab.submit(exclusive="exclusive") for _ in range(3)]
        watched = await lab.submit(partitions=("gpu",))
        await lab.settle()
        assert [lab.job(job).nodes for job in jobs] == [("n2",), ("n3",), ()]
        assert node_state(lab, "n1") == ("IDLE", "")
        assert lab.job(watched).state == "PENDING"
        await said(lab, "g1", created_s=lab.now - 86400, conditions={"AcceleratedHardwareReady": "True/GPUIsReady"})
        assert lab.job(watched).state == "RUNNING"
    in_lab(go, health=replace(ACTING, requires={"gpu": ("AcceleratedHardwareReady",)}))


def test_launches_that_fail_drain_the_node_and_the_job_avoids_it() -> None:
    async def go(lab: Lab) -> None:
        launch = lab.engine.launch

        async def refused(order: LaunchOrder) -> None:
            if "n1" in order.job.nodes:
                lab.engine.happens(Event("launch_failed", order.run, lab.now, sequence=1, data={
                    "node": "n1", "reason": "NotBound", "message": "refused"}))
            else:
                await launch(order)
        lab.engine.launch = refused           # type: ignore[method-assign]
        await said(lab, "n1")
        first = await lab.submit(requeue=True)
        await lab.settle()
        assert lab.job(first).state == "PENDING" and lab.job(first).avoid_nodes == ("n1",)
        assert node_state(lab, "n1") == ("IDLE", "")
        await lab.advance(130)
        assert lab.job(first).nodes == ("n2",)
        for _ in range(2):
            await lab.submit(node_list="n1", requeue=True)
            await lab.settle()
        assert node_state(lab, "n1") == ("IDLE+DRAIN", "kh:R:launch failures")
    in_lab(go)


def test_a_job_takes_the_node_that_failed_it_where_there_is_no_other() -> None:
    async def go(lab: Lab) -> None:
        for name in ("n1", "n2", "n3"):
            await said(lab, name)
        job = await lab.submit(requeue=True)
        await lab.settle()
        await gone(lab, "n1")
        await said(lab, "n1", uid="another")
        await lab.acts.update_node(ROOT, ["n2", "n3"], {"state": "DRAIN", "reason": "away"})
        await lab.advance(130)
        assert lab.job(job).nodes == ("n1",) and lab.job(job).restarts == 1
    in_lab(go)


def test_a_job_that_loses_node_after_node_waits_longer_and_is_held() -> None:
    async def go(lab: Lab) -> None:
        for name in ("n1", "n2", "n3"):
            await said(lab, name)
        job = await lab.submit(requeue=True)
        waits = []
        for _ in range(3):
            await lab.settle()
            node = lab.job(job).nodes[0]
            await gone(lab, node)
            await lab.advance(2)
            waits.append(round((lab.job(job).eligible_s or 0) - lab.now))
            await said(lab, node)
            if lab.job(job).reason != "BeginTime":
                break
            await lab.advance(waits[-1] + 1)
        assert waits[:2] == [119, 239] or waits[:2] == [121, 241], waits
        assert lab.shown(job) == "REQUEUE_HOLD JobHoldMaxRequeue" and lab.job(job).priority == 0
        await lab.acts.release(ROOT, str(job))         # its delay remains, as in Slurm
        await lab.advance(1000)
        assert lab.job(job).state == "RUNNING"
    in_lab(go, health=replace(ACTING, max_node_fail_requeue=2))


def test_a_job_of_fifty_named_nodes_outlives_another_node() -> None:
    async def go(lab: Lab) -> None:
        for number in range(1, 52):
            await said(lab, f"m{number}")
        running = await lab.submit(partitions=("many",), node_list="m[1-50]", min_nodes=50)
        waiting = await lab.submit(partitions=("many",), node_list="m[1-50]", min_nodes=50, exclusive="exclusive")
        await lab.settle()
        await gone(lab, "m51")
        await lab.restart()
        await gone(lab, "m51")
        assert lab.job(running).state == "RUNNING" and len(lab.job(running).nodes) == 50
        assert lab.shown(waiting) == "PENDING Resources" and lab.job(running).restarts == 0
    in_lab(go, "NodeName=m[1-51] CPUs=2 RealMemory=1000\nPartitionName=many Nodes=m[1-51]\n", health=ACTING)


def test_nodes_that_do_not_come_up_close_their_partition() -> None:
    async def go(lab: Lab) -> None:
        for number in range(1, 11):
            await said(lab, f"m{number}", conditions={"Ready": "Unknown/NodeStatusNeverUpdated"})
        await lab.advance(601)
        assert lab.views.partitions["many"].state == "INACTIVE"
        assert lab.views.partitions["main"].state == "UP"
    in_lab(go, "NodeName=m[1-10] CPUs=2 RealMemory=1000\nPartitionName=many Nodes=m[1-10]\n")


def test_usage_of_a_run_that_is_lost_is_charged_or_taken_back() -> None:
    for refunds in (False, True):
        async def go(lab: Lab, refunds: bool = refunds) -> None:
            for name in ("n1", "n2"):
                await said(lab, name)
            lab.controller.passes.update_priorities()          # usage is counted from here on
            job = await lab.submit(requeue=False, time_limit_min=60, node_list="n1")
            await lab.submit(requeue=False, time_limit_min=60, node_list="n2")
            await lab.settle()
            for _ in range(4):
                await lab.advance(300)
                lab.controller.passes.update_priorities()
            if refunds:
                await lab.restart()
                await said(lab, "n1")
            record = lab.controller.world.accounting.associations[lab.job(job).assoc_id]
            before = record.usage_raw
            await gone(lab, "n1")
            assert lab.shown(job) == "NODE_FAIL NodeDown"
            assert ("not charged" in lab.job(job).system_comment) is refunds
            share = record.usage_raw / before
            assert 0.45 < share < 0.55 if refunds else share >= 1, share
        in_lab(go, health=replace(ACTING, refunds_runs=refunds))
