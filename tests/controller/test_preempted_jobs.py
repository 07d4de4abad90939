"""Jobs that others preempt, when the controller is killed in between."""
from __future__ import annotations

from lab import Lab, in_lab

PARTITIONS = """\
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
PartitionName=low Nodes=n1 PriorityTier=1 DefMemPerCPU=100 GraceTime=30
PartitionName=high Nodes=n1 PriorityTier=2 DefMemPerCPU=100
"""


async def warned_and_waiting(lab: Lab) -> tuple[int, int]:
    victim = await lab.submit(partitions=("low",), num_tasks=4)
    await lab.settle()
    preemptor = await lab.submit(partitions=("high",), num_tasks=4)
    await lab.settle()
    await lab.advance(1)
    assert lab.job(victim).preempt_s is not None
    return victim, preemptor


def test_grace_time_goes_by_on_the_controllers_clock() -> None:
    async def story(lab: Lab) -> None:
        victim, preemptor = await warned_and_waiting(lab)
        await lab.advance(20)
        assert lab.shown(victim) == "RUNNING None"
        await lab.advance(11)
        assert lab.job(victim).state == "PREEMPTED"
        assert lab.job(preemptor).state == "RUNNING"
    in_lab(story, PARTITIONS)


def test_grace_time_is_over_when_it_was_to_be_though_the_controller_restarted() -> None:
    async def story(lab: Lab) -> None:
        victim, preemptor = await warned_and_waiting(lab)
        warned_s = lab.job(victim).preempt_s
        await lab.restart()
        await lab.advance(20)
        assert lab.shown(victim) == "RUNNING None" and lab.job(victim).preempt_s == warned_s
        await lab.advance(11)
        assert lab.job(victim).state == "PREEMPTED"
        assert lab.job(preemptor).state == "RUNNING"
    in_lab(story, PARTITIONS)


def test_grace_time_that_ended_while_the_controller_was_away() -> None:
    async def story(lab: Lab) -> None:
        victim, preemptor = await warned_and_waiting(lab)
        await lab.controller.close()
        lab.now += 60
        await lab._open()
        await lab.advance(1)
        assert lab.job(victim).state == "PREEMPTED"
        assert lab.job(preemptor).state == "RUNNING"
    in_lab(story, PARTITIONS)


def test_an_exempt_job_is_still_exempt_after_a_restart() -> None:
    async def story(lab: Lab) -> None:
        spared = await lab.submit(partitions=("low",), num_tasks=4)
        await lab.settle()
        await lab.restart()
        preemptor = await lab.submit(partitions=("high",), num_tasks=4)
        await lab.advance(20)
        assert (lab.job(spared).state, lab.job(preemptor).state) == ("RUNNING", "PENDING")
        await lab.advance(100)
        await lab.restart()                               # a pass follows
        await lab.advance(1)
        assert (lab.job(spared).state, lab.job(preemptor).state) == ("PREEMPTED", "RUNNING")
    in_lab(story, PARTITIONS.replace(" GraceTime=30", "") + "PreemptExemptTime=00:01:40\n")
