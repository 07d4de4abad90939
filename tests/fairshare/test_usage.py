"""Billing, accrual, decay, resets, and what happens to usage when associations move."""
from __future__ import annotations

import time
from typing import Any

import fairshare_cases as cases
import fairshare_lab as lab
import pytest

from slurmbridge.controller.priorities import Priorities
from slurmbridge.fairshare import usage
from slurmbridge.fairshare.billing import billable, parse_weights
from slurmbridge.slurm.jobspec import UNLIMITED_MIN, JobRequest
from slurmbridge.views.records import JobRecord

GPU = "CPU=0.5,Mem=0.1G,GRES/gpu=10"
TRES = {"cpu": 8, "mem": 4096, "node": 2, "billing": 99, "gres/gpu": 3, "gres/gpu:a100": 3, "license/matlab": 5}


@pytest.mark.parametrize(("weights", "flags", "bill"), [
    ("", (), 8), ("CPU=1.0,Mem=0.25G", (), 9), ("Mem=1", (), 4096), ("Mem=1M", (), 4096), ("Mem=2G", (), 8),
    (GPU, (), 0.5 * 8 + 0.1 / 1024 * 4096 + 30), (GPU, ("MAX_TRES",), 30), (GPU, ("MAX_TRES_GRES",), 4 + 30),
    ("CPU=1,Node=7,License/matlab=2", ("MAX_TRES",), 14 + 10), ("CPU=1,Billing=100", (), 8),
    ("GRES/gpu:a100=1.5", (), 4.5)])
def test_billing(weights: str, flags: tuple[str, ...], bill: float) -> None:
    assert billable(TRES, parse_weights(weights), frozenset(flags)) == pytest.approx(bill, rel=1e-15)


def test_weights_are_added_in_the_order_of_tres_numbers() -> None:
    numbers = {"gres/gpu": 1001, "gres/gpu:a100": 1002}
    assert list(parse_weights("GRES/gpu:a100=1,GRES/gpu=1,Node=1,CPU=1", numbers)) == [
        "cpu", "node", "gres/gpu", "gres/gpu:a100"]


def cluster(**settings: Any) -> Priorities:
    data = lab.accounting()
    for record in data.associations.values():
        record.usage_raw, record.grp_used_wall_s, record.usage_tres_raw = 0.0, 0.0, {}
    return Priorities(cases.conf(**{"decay_half_life_s": 0, **settings}), data, cases.partitions(), cases.nodes(),
                      last_ran_s=cases.NOW_S)


def association(made: Priorities, account: str, user: str = "") -> Any:
    return next(a for a in made.accounting.associations.values() if (a.account, a.user) == (account, user))


def running(made: Priorities, start_s: float, *, qos: str = "normal", number: int = 1) -> JobRecord:
    job = JobRecord(number, JobRequest(), user_name="fsk", account="ml", assoc_id=association(made, "ml", "fsk").id,
                    partition="gpu", qos=qos, state="RUNNING", start_s=start_s, time_limit_min=10,
                    tres_alloc={"cpu": 3, "mem": 3000, "node": 1, "billing": 11, "gres/gpu": 1})
    made.job_started(job, start_s)
    return job


BILL = 0.5 * 3 + 0.1 / 1024 * 3000 + 10


@pytest.mark.parametrize(("qos", "factor"), [("normal", 1.0), ("high", 2.0), ("scav", 0.0)])
def test_a_running_job_adds_unrounded_billing_up_to_the_root(qos: str, factor: float) -> None:
    made = cluster()
    made.accounting.qos[qos].usage_factor = factor
    job = running(made, cases.NOW_S + 10.7, qos=qos)
    made.period(cases.NOW_S + 60.2)           # from second 10 to second 60
    made.period(cases.NOW_S + 120)
    job.state, job.end_s = "COMPLETED", cases.NOW_S + 130
    made.job_ended(job, cases.NOW_S + 133)
    made.job_ended(job, cases.NOW_S + 133)    # told twice: nothing more
    made.period(cases.NOW_S + 180)
    for record in (association(made, "ml", "fsk"), association(made, "ml"), association(made, "root"),
                   made.accounting.qos[qos]):
        assert record.usage_raw == pytest.approx(120 * BILL * factor, rel=1e-12)
        assert record.grp_used_wall_s == 120 * factor
        assert record.usage_tres_raw.get("gres/gpu", 0) == 120 * factor
    assert association(made, "ml", "fsj").usage_raw == 0


def test_a_run_of_one_second_as_recorded() -> None:
    """On real Slurm (-n3 --gres=gpu:v100:1, QOS with UsageFactor 2, half-life 7 days): RawUsage 23, 99 MB-minutes."""
    made = cluster(decay_half_life_s=7 * 86400)
    made.accounting.qos["high"].usage_factor = 2.0
    job = running(made, cases.NOW_S + 1, qos="high")
    job.state, job.end_s = "FAILED", cases.NOW_S + 2
    made.job_over(job, cases.NOW_S + 2)
    user = association(made, "ml", "fsk")
    assert (int(user.usage_raw), int(user.usage_tres_raw["mem"] / 60)) == (23, 99)


def test_decay_comes_before_what_is_new_and_new_usage_decays_over_its_interval() -> None:
    made = cluster(decay_half_life_s=3600)
    made.set_usage([("ml", "fsk", 1000.0), ("qcd", "fsa", 500.0)])
    running(made, cases.NOW_S)
    made.period(cases.NOW_S + 60)
    left = (1 - 0.693 / 3600) ** 60
    assert association(made, "ml", "fsk").usage_raw == pytest.approx(1000 * left + 60 * left * BILL, rel=1e-12)
    assert association(made, "qcd", "fsa").usage_raw == pytest.approx(500 * left, rel=1e-12)


def test_qos_with_nodecay_keeps_its_usage() -> None:
    made = cluster(decay_half_life_s=3600)
    made.accounting.qos["normal"].flags = ("NoDecay",)
    running(made, cases.NOW_S)
    made.period(cases.NOW_S + 60)
    made.period(cases.NOW_S + 120)
    assert made.accounting.qos["normal"].usage_raw == pytest.approx(120 * BILL)
    assert association(made, "ml", "fsk").usage_raw < 120 * BILL


def test_the_qos_of_a_partition_is_charged_too_but_not_twice() -> None:
    made = cluster()
    made.partitions["gpu"].qos = "gpuq"
    made.reload(made.conf, made.partitions, made.nodes)
    running(made, cases.NOW_S)
    running(made, cases.NOW_S, qos="gpuq", number=2)
    made.period(cases.NOW_S + 60)
    assert made.accounting.qos["normal"].usage_raw == pytest.approx(60 * BILL)
    assert made.accounting.qos["gpuq"].usage_raw == pytest.approx(120 * BILL)


def test_tres_usage_is_kept_only_where_limits_are_enforced() -> None:
    made = cluster()
    made.conf.accounting_enforce = frozenset({"associations"})
    made.reload(made.conf, made.partitions, made.nodes)
    running(made, cases.NOW_S)
    made.period(cases.NOW_S + 60)
    assert association(made, "ml").usage_raw and not association(made, "ml").usage_tres_raw
    assert made.shares()[0]["tres_run_s"] == {}


def test_run_seconds_shrink_as_the_job_runs() -> None:
    made = cluster()
    made.accounting.qos["high"].usage_factor = 2.0
    running(made, cases.NOW_S, qos="high")
    limits = [next(s for s in made.shares() if s["assoc"].account == "ml")["tres_run_s"]["cpu"]]
    for seconds in (60, 599, 660):
        made.period(cases.NOW_S + seconds)
        limits.append(next(s for s in made.shares() if s["assoc"].account == "ml")["tres_run_s"]["cpu"])
    assert limits == [3600, 3 * 2 * 540, 3 * 2, 0]
    assert usage.run_seconds_left(0, UNLIMITED_MIN, 0, 1.0) == UNLIMITED_MIN * 60


def test_usage_follows_an_account_to_its_new_parent() -> None:
    made = cluster()
    made.set_usage([("ml", "fsk", 1000.0), ("cfd", "fsi", 30.0), ("qcd", "fsa", 500.0)])
    made.shares()
    ml, eng, phys = (association(made, name) for name in ("ml", "eng", "phys"))
    eng.usage_raw += 7                        # of a user who has been removed
    association(made, "root").usage_raw += 7
    ml.parent_id = phys.id
    made.accounting.generation += 1
    made.shares()
    assert [association(made, n).usage_raw for n in ("root", "phys", "eng", "ml")] == [1537, 1500, 37, 1000]


def test_usage_of_a_removed_user_stays_with_the_account() -> None:
    made = cluster()
    made.set_usage([("ml", "fsk", 1000.0), ("ml", "fsj", 10.0)])
    association(made, "ml", "fsk").deleted = True
    made.accounting.generation += 1
    assert next(s for s in made.shares() if s["assoc"].account == "ml")["raw_usage"] == 1010


def test_imported_usage_replaces_and_an_unknown_user_changes_nothing() -> None:
    made = cluster()
    made.set_usage([("ml", "fsk", 1000.0)])
    made.set_usage([("ml", "fsk", 400.0)])
    assert association(made, "root").usage_raw == 400
    with pytest.raises(KeyError):
        made.set_usage([("ml", "fsk", 1.0), ("ml", "nobody", 5.0)])
    assert association(made, "root").usage_raw == 400


def stamp(text: str) -> float:
    return time.mktime(time.strptime(text, "%Y-%m-%d %H:%M"))


@pytest.fixture(params=["UTC", "Europe/Zurich"])
def _zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("_zone")
@pytest.mark.parametrize(("period", "last", "now", "due"), [
    ("DAILY", "2026-01-14 09:30", "2026-01-14 12:00", "2026-01-15 00:00"),
    ("DAILY", "2026-01-14 09:30", "2026-01-17 12:00", "2026-01-17 00:00"),
    ("WEEKLY", "2026-01-14 09:30", "2026-01-14 12:00", "2026-01-18 00:00"),     # a Wednesday -> Sunday
    ("WEEKLY", "2026-01-18 00:00", "2026-01-18 12:00", "2026-01-25 00:00"),
    ("MONTHLY", "2026-12-14 09:30", "2026-12-15 00:00", "2027-01-01 00:00"),
    ("QUARTERLY", "2026-03-31 09:30", "2026-03-31 10:00", "2026-04-01 00:00"),
    ("QUARTERLY", "2026-11-02 09:30", "2026-11-03 10:00", "2027-01-01 00:00"),
    ("YEARLY", "2026-11-02 09:30", "2026-11-03 10:00", "2027-01-01 00:00")])
def test_next_reset(period: str, last: str, now: str, due: str) -> None:
    assert usage.next_reset_s(period, stamp(last), stamp(now)) == stamp(due)


@pytest.mark.parametrize("period", ["NONE", "NOW"])
def test_no_reset_to_come(period: str) -> None:
    assert usage.next_reset_s(period, 0, 1e9) is None


def test_reset_now_happens_once_and_daily_at_midnight() -> None:
    made = cluster(usage_reset_period="NOW")
    made.set_usage([("ml", "fsk", 1000.0)])
    made.period(cases.NOW_S + 60)
    assert association(made, "root").usage_raw == 0
    made.set_usage([("ml", "fsk", 50.0)])
    made.period(cases.NOW_S + 120)
    assert association(made, "root").usage_raw == 50
    made.conf.priority.usage_reset_period = "DAILY"
    made.reload(made.conf, made.partitions, made.nodes)
    made.period(cases.NOW_S + 180)
    assert association(made, "root").usage_raw == 50
    made.period(cases.NOW_S + 2 * 86400)
    assert association(made, "root").usage_raw == 0
    assert made.last_reset_s is not None and made.last_reset_s > cases.NOW_S + 120
