"""Runs that only take time, on a clock that the test moves."""
from __future__ import annotations

import asyncio

import pytest

from slurmbridge.cluster.port import Event, LaunchOrder, RunId
from slurmbridge.cluster.simulated import SimulatedEngine
from slurmbridge.slurm.jobspec import JobRequest
from slurmbridge.views.records import JobRecord, NodeRecord


class World:
    def __init__(self) -> None:
        self.now_s = 1000.0
        self.sleepers: list[tuple[float, asyncio.Event]] = []
        self.engine = SimulatedEngine([NodeRecord(name="n1", cpus=4)], clock=lambda: self.now_s, sleep=self.sleep)

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.Event()
        self.sleepers.append((self.now_s + seconds, woken))
        await woken.wait()

    async def move(self, seconds: float) -> None:
        end = self.now_s + seconds
        while True:
            for _ in range(12):               # the engine's turn
                await asyncio.sleep(0)
            due = [at for at, woken in self.sleepers if not woken.is_set() and at <= end]
            if not due:
                break
            self.now_s = min(due)
            for at, woken in self.sleepers:
                if at <= self.now_s:
                    woken.set()
        self.now_s = end

    async def launch(self, number: int, script: str, limit_s: float | None) -> RunId:
        job = JobRecord(job_id=number, request=JobRequest(script=script))
        run = RunId(number, 0)
        end_by_s = None if limit_s is None else self.now_s + limit_s
        await self.engine.launch(LaunchOrder(run, job, "", "lab", "", 30, end_by_s))
        return run

    def news(self) -> list[tuple[str, int, float, int, object]]:
        found = []
        while not self.engine._events.empty():
            event: Event = self.engine._events.get_nowait()
            assert event.run is not None
            found.append((event.kind, event.run.job_id, event.at_s, event.exit_status, event.data.get("reason")))
        return found


@pytest.mark.parametrize(("script", "end_s", "status", "reason"), [
    ("#!/bin/sh\n", 1060, 15, "TimeLimit"), ("#!/bin/sh\n#SIMULATED seconds=20\n", 1020, 0, ""),
    ("#!/bin/sh\n#SIMULATED seconds=20.5 exit=3\n", 1020.5, 3 << 8, ""), ("#SIMULATED exit=3\n", 1060, 15, "TimeLimit"),
    ("#SIMULATED seconds=90\n", 1060, 15, "TimeLimit"), ("#SIMULATED seconds=x\n", 1060, 15, "TimeLimit")])
def test_a_run_ends_as_its_script_says(script, end_s, status, reason):
    async def play() -> None:
        world = World()
        await world.launch(1, script, 60)
        await world.move(200)
        assert world.news() == [("started", 1, 1000, 0, None), ("script_ended", 1, end_s, status, None),
                                ("finished", 1, end_s, status, reason)]
        await world.engine.close()
    asyncio.run(play())


def test_orders():
    async def play() -> None:
        world = World()
        cancelled = await world.launch(1, "", None)
        longer = await world.launch(2, "", 60)
        held = await world.launch(3, "#SIMULATED seconds=50\n", 60)
        world.news()
        await world.move(10)
        await world.engine.terminate(cancelled, cause="CANCELLED", grace_s=5)
        await world.engine.update(longer, end_by_s=1200)
        await world.engine.suspend(held)
        await world.move(100)
        assert world.news() == [("script_ended", 1, 1010, 15, None), ("finished", 1, 1010, 15, "Cancelled")]
        await world.engine.resume(held)
        await world.move(200)
        assert world.news()[1::2] == [("finished", 3, 1150, 0, ""), ("finished", 2, 1200, 15, "TimeLimit")]
        await world.engine.close()
    asyncio.run(play())


def test_a_restart_goes_on_by_start_times():
    async def play() -> None:
        world = World()
        jobs = [JobRecord(job_id=1, request=JobRequest(script="#SIMULATED seconds=30\n"), start_s=900.0),
                JobRecord(job_id=2, request=JobRequest(script=""), start_s=990.0, time_limit_min=1)]
        await world.engine.recover(jobs)
        await world.move(100)
        ended = [news for news in world.news() if news[0] == "finished"]
        assert ended == [("finished", 1, 930, 0, ""), ("finished", 2, 1050, 15, "TimeLimit")]
        await world.engine.close()
    asyncio.run(play())


def test_many_at_once():
    async def play() -> None:
        world = World()
        for number in range(1, 5001):
            await world.launch(number, f"#SIMULATED seconds={number % 50}\n", 60)
        await world.move(60)
        ended = [news for news in world.news() if news[0] == "finished"]
        assert len(ended) == 5000
        assert [news[2] for news in ended] == sorted(news[2] for news in ended)
        await world.engine.close()
    asyncio.run(play())
