"""Dependencies: what may be written, what scontrol shows, and when each kind is met, fails or waits."""
from __future__ import annotations

import pytest

from slurmbridge.controller.dependencies import (
    FAILED,
    UNFULFILLED,
    BadDependency,
    Judge,
    is_circular,
    parse,
    resolve,
)
from slurmbridge.slurm.jobspec import JobRequest
from slurmbridge.views.records import JobRecord


@pytest.mark.parametrize(("text", "shown"), [
    ("12", "afterany:12(unfulfilled)"), ("12,13", "afterany:12(unfulfilled),afterany:13(unfulfilled)"),
    ("afterok:12:13", "afterok:12(unfulfilled),afterok:13(unfulfilled)"),
    ("AFTEROK:12", "afterok:12(unfulfilled)"),
    ("afterok:12?afterany:13", "afterok:12(unfulfilled)?afterany:13(unfulfilled)"),
    ("after:12+5", "after:12+5(unfulfilled)"), ("afternotok:12_*", "afternotok:12_*(unfulfilled)"),
    ("aftercorr:12_3", "aftercorr:12_3(unfulfilled)"), ("singleton", "singleton(unfulfilled)"),
    ("afterok:12_[1-2]", "afterok:12_1(unfulfilled),afterok:12_2(unfulfilled)"),
    ("singleton,afterok:3", "singleton(unfulfilled),afterok:3(unfulfilled)"),
    ("afterok:5(fulfilled),afterok:6(unfulfilled)", "afterok:6(unfulfilled)"),
    ("afterok:12:12", "afterok:12(unfulfilled)"), ("", ""), ("0", "")])
def test_what_may_be_written(text: str, shown: str) -> None:
    assert str(parse(text)) == shown


@pytest.mark.parametrize("text", [
    "bogus:1", "afterok:", "afterok", "afterok:x", "afterok:0", "afterok:1,", "afterok:1?afterok:2,afterok:3",
    "after:1+0",
    "after:1+x", "afterok:1;2", "12?13", "afterok:1_[1", "afterok:1_[2-x]", "12,afterok"])
def test_what_may_not(text: str) -> None:
    with pytest.raises(BadDependency):
        parse(text)


def test_shown_text_reads_back() -> None:
    text = "afterok:1_*(unfulfilled)?after:2+7(failed)?singleton(unfulfilled)"
    assert str(parse(text)) == text


def job(job_id: int, state: str = "PENDING", *flags: str, array: int = 0, task: int | None = None,
        pending: int | None = None, start_s: float | None = None) -> JobRecord:
    return JobRecord(job_id, JobRequest(), state=state, flags=set(flags), array_job_id=array, array_task_id=task,
                     array_pending=pending, start_s=start_s)


def judge(*jobs: JobRecord, now: float = 1000.0, blocked: bool = False) -> Judge:
    by_id = {one.job_id: one for one in jobs}
    return Judge(by_id.get, lambda job_id: [one for one in jobs if one.array_job_id == job_id], lambda _: blocked, now)


@pytest.mark.parametrize(("kind", "state", "flags", "verdict"), [
    ("afterok", "PENDING", (), UNFULFILLED), ("afterok", "RUNNING", (), UNFULFILLED), ("afterok", "COMPLETED", (), ""),
    ("afterok", "COMPLETED", ("COMPLETING",), UNFULFILLED), ("afterok", "FAILED", (), FAILED),
    ("afterok", "CANCELLED", (), FAILED), ("afternotok", "FAILED", (), ""), ("afternotok", "COMPLETED", (), FAILED),
    ("afternotok", "PENDING", ("SPECIAL_EXIT",), ""), ("afterany", "CANCELLED", (), ""),
    ("afterany", "TIMEOUT", ("COMPLETING",), UNFULFILLED), ("after", "PENDING", (), UNFULFILLED),
    ("after", "RUNNING", (), ""),
    ("after", "RUNNING", ("CONFIGURING",), UNFULFILLED), ("after", "CANCELLED", (), "")])
def test_one_job(kind: str, state: str, flags: tuple[str, ...], verdict: str) -> None:
    assert judge(job(5, state, *flags)).test(job(9), parse(f"{kind}:5"))[1] == verdict


@pytest.mark.parametrize("kind", ["afterok", "afternotok", "afterany", "after"])
def test_a_job_that_is_gone_is_no_obstacle(kind: str) -> None:
    assert judge().test(job(9), parse(f"{kind}:5"))[1] == ""


@pytest.mark.parametrize(("now", "verdict"), [(1059.0, UNFULFILLED), (1060.0, "")])
def test_after_with_minutes(now: float, verdict: str) -> None:
    assert judge(job(5, "RUNNING", start_s=1000.0), now=now).test(job(9), parse("after:5+1"))[1] == verdict


def array(*states: str) -> list[JobRecord]:
    return [job(20 + number, state, array=20, task=number) for number, state in enumerate(states)]


@pytest.mark.parametrize(("states", "verdict"), [
    (("COMPLETED", "RUNNING"), UNFULFILLED), (("COMPLETED", "COMPLETED"), ""), (("FAILED", "COMPLETED"), FAILED)])
def test_afterok_of_an_array_means_all_its_tasks(states: tuple[str, ...], verdict: str) -> None:
    assert judge(*array(*states)).test(job(9), parse("afterok:20_*"))[1] == verdict


def test_aftercorr_looks_at_the_same_task() -> None:
    those = judge(*array("COMPLETED", "FAILED", "RUNNING"))
    verdicts = [those.test(job(40 + task, array=40, task=task), parse("aftercorr:20_*"))[1] for task in range(3)]
    assert verdicts == ["", FAILED, UNFULFILLED]


def test_any_of_needs_one() -> None:
    those = judge(job(1, "FAILED"), job(2, "RUNNING"), job(3, "COMPLETED"))
    assert those.test(job(9), parse("afterok:1?afterok:2"))[1] == UNFULFILLED
    assert those.test(job(9), parse("afterok:1?afterok:3"))[1] == ""
    assert judge(job(1, "FAILED")).test(job(9), parse("afterok:1?afternotok:1"))[1] == ""
    assert judge(job(1, "FAILED"), job(2, "FAILED")).test(job(9), parse("afterok:1?afterok:2"))[1] == FAILED


def test_all_of_fails_with_one() -> None:
    after, verdict = judge(job(1, "FAILED"), job(2, "RUNNING")).test(job(9), parse("afterok:1,afterok:2"))
    assert (str(after), verdict) == ("afterok:1(failed),afterok:2(unfulfilled)", FAILED)


def test_a_pending_task_stands_for_itself() -> None:
    meta = job(20, array=20, pending=0b110)
    assert judge(meta).test(job(9), parse("afterok:20_1"))[1] == UNFULFILLED
    assert judge(meta).test(job(9), parse("afterok:20_0"))[1] == ""


def test_references_at_submission() -> None:
    jobs = {5: job(5), 20: job(20, array=20, pending=0b11)}
    find, arrays = jobs.get, lambda job_id: [jobs[20]] if job_id == 20 else []
    assert str(resolve(parse("afterok:20"), 9, find, arrays)) == "afterok:20_*(unfulfilled)"
    assert str(resolve(parse("afterany:77"), 9, find, arrays)) == "afterany:77(unfulfilled)"
    for text in ("afterok:77", "afternotok:77", "afterok:9", "afterok:20_7"):
        with pytest.raises(BadDependency):
            resolve(parse(text), 9, find, arrays)


def test_circles_are_found_over_others() -> None:
    jobs = {1: job(1), 2: job(2), 3: job(3)}
    jobs[2].dependency, jobs[3].dependency = "afterok:1(unfulfilled)", "afterany:2(unfulfilled)"
    assert is_circular(parse("afterok:3").tests, 1, jobs.get)
    assert not is_circular(parse("afterok:2").tests, 9, jobs.get)
