"""One hour's usage: each second once, and what gives way to what. Expectations from Slurm 25.11's own roll-ups."""
from __future__ import annotations

import random

import pytest

from slurmbridge.accounting.rollup import HOUR_S, Outage, Reservation, Run, Size, roll_hour

H = 1_000_000 * HOUR_S
CPU, MEM, ENERGY = 1, 2, 3
LAB = [Size(0, 0, {CPU: 10, MEM: 100})]
KEY = (7, "normal", "batch", None)


def run(start: int, end: int, cpus: int = 1, *, number: int = 1, key: tuple = KEY, eligible: int | None = None,
        **more: object) -> Run:
    """Times in seconds from the hour; -H: not started, end 0: goes on."""
    tres = {CPU: cpus, MEM: cpus * 5, **more.pop("tres", {})}     # type: ignore[dict-item]
    return Run(number, key, (H + start if eligible is None else H + eligible), H + start,
               H + end if end else 0, cpus, 0, more.pop("reservation_id", 0), tres,    # type: ignore[arg-type]
               **more)                                            # type: ignore[arg-type]


def hour(runs=(), outages=(), reservations=(), sizes=LAB):  # type: ignore[no-untyped-def]
    return roll_hour(H, runs, outages, sizes, reservations, lambda number: "normal")


def cpu(usage) -> tuple[int, ...]:  # type: ignore[no-untyped-def]
    time = usage.cluster[CPU]
    return time.allocated, time.down, time.planned_down, time.planned, time.idle, time.over


@pytest.mark.parametrize(("what", "wanted"), [
    ({"runs": [run(0, 3600, 4)]}, (14400, 0, 0, 0, 21600, 0)),
    ({"runs": [run(-7200, 600, 4)]}, (2400, 0, 0, 0, 33600, 0)),
    ({"runs": [run(3000, 9000, 4)]}, (2400, 0, 0, 0, 33600, 0)),
    ({"runs": [run(3600, 9000, 4)]}, (0, 0, 0, 0, 36000, 0)),                        # begins with the next hour
    ({"runs": [run(1800, 0, 2)]}, (3600, 0, 0, 0, 32400, 0)),                        # still runs
    ({"runs": [run(1800, 0, 2, eligible=600)]}, (3600, 0, 0, 2400, 30000, 0)),       # planned while it waited
    ({"runs": [run(-H, 0, 2, eligible=600)]}, (0, 0, 0, 6000, 30000, 0)),            # waits on
    ({"runs": [run(0, 3600, 10), run(-H, 0, 5, eligible=0, number=2)]}, (36000, 0, 0, 0, 0, 18000)),
    ({"runs": [run(0, 3600, 4, suspended=((H + 100, H + 700),))]}, (12000, 0, 0, 0, 24000, 0)),
    ({"outages": [Outage("n1", H + 600, 0, {CPU: 4})]}, (0, 12000, 0, 0, 24000, 0)),
    ({"outages": [Outage("n1", H + 600, H + 1200, {CPU: 4}, planned=True)]}, (0, 0, 2400, 0, 33600, 0)),
    ({"runs": [run(0, 3600, 8)], "outages": [Outage("n1", 0, 0, {CPU: 4})]}, (28800, 7200, 0, 0, 0, 0)),
    ({"sizes": [Size(H + 600, 0, {CPU: 10})]}, (0, 0, 0, 0, 30000, 0)),              # registered late
    ({"sizes": [Size(0, H + 1800, {CPU: 10}), Size(H + 1800, 0, {CPU: 20})]}, (0, 0, 0, 0, 54000, 0)),
    ({"sizes": [*LAB, Size(H + 600, H + 1200, {CPU: 10}, away=True)]}, (0, 6000, 0, 0, 30000, 0)),
    ({"sizes": [*LAB, Size(H + 600, H + 1200, {CPU: 10}, away=True)], "runs": [run(0, 3600, 4)]},
     (14400, 3600, 0, 0, 18000, 0)),
    ({"reservations": [Reservation(1, H + 600, H + 1200, {CPU: 4})]}, (2400, 0, 0, 0, 33600, 0)),
    ({"reservations": [Reservation(1, H + 600, H + 1200, {CPU: 4}, is_maintenance=True)]}, (0, 0, 2400, 0, 33600, 0)),
    ({"reservations": [Reservation(1, H, H + 3600, {CPU: 4})], "runs": [run(0, 3600, 2, reservation_id=1)]},
     (14400, 0, 0, 0, 21600, 0)),
    ({"reservations": [Reservation(1, H, H + 3600, {CPU: 4}, ignores_jobs=True)],
      "runs": [run(0, 3600, 2, reservation_id=1)]}, (7200, 0, 0, 0, 28800, 0)),
    ({"reservations": [Reservation(1, H, H + 3600, {CPU: 4}, frozenset({"n1"}))],
      "outages": [Outage("n1", H, H + 600, {CPU: 4})]}, (12000, 2400, 0, 0, 21600, 0)),
])
def test_the_clusters_hour(what: dict, wanted: tuple[int, ...]) -> None:
    assert cpu(hour(**what)) == wanted


def test_unused_reserved_time_is_shared() -> None:
    held = Reservation(1, H, H + 3600, {CPU: 4}, associations=(7, 8, -9))
    usage = hour([run(0, 1800, 4, reservation_id=1)], reservations=[held]).usage
    assert usage[KEY][CPU] == 7200
    assert usage[7, "normal", None, None] == {CPU: 2400} == usage[8, "normal", None, None]
    assert len(usage) == 3


def test_energy_counts_whole_in_each_hour_and_memory_runs_on_while_suspended() -> None:
    found = hour([run(-10, 7200, 2, tres={ENERGY: 500}, suspended=((H, H + 3600),))]).usage[KEY]
    assert found == {MEM: 36000, ENERGY: 500}


def test_nothing_before_the_cluster_is_known() -> None:
    found = hour([run(0, 3600)], sizes=[])
    assert found.cluster == {} and found.usage[KEY][CPU] == 3600


def test_each_second_is_counted_once() -> None:
    """Jobs that never exceed the cluster: what associations were charged over hours is what the jobs ran, exactly."""
    luck = random.Random(5)
    runs = []
    for number in range(1, 300):
        start, length = luck.randrange(0, 20 * HOUR_S), luck.randrange(1, 9 * HOUR_S)
        key = (luck.randrange(3), "normal", "batch", None)
        runs.append(run(start, start + length, luck.randrange(1, 4), number=number, key=key,
                        eligible=start - luck.randrange(5000)))
    charged: dict[int, int] = {}
    for number in range(-2, 31):
        at = H + number * HOUR_S
        found = roll_hour(at, [one for one in runs if one.eligible_s < at + HOUR_S and one.end_s >= at], [],
                          [Size(0, 0, {CPU: 1000, MEM: 5000})], [], lambda number: "")
        for key, counts in found.usage.items():
            charged[key[0]] = charged.get(key[0], 0) + counts[CPU]
        time = found.cluster[CPU]
        assert time.allocated == sum(counts[CPU] for counts in found.usage.values())
        assert time.allocated + time.planned + time.idle == 1000 * HOUR_S
    wanted: dict[int, int] = {}
    for one in runs:
        wanted[one.key[0]] = wanted.get(one.key[0], 0) + one.tres[CPU] * (one.end_s - one.start_s)
    assert charged == wanted
