"""submitit, unmodified: functions run as jobs, their results and errors come back, arrays and cancelling too."""
from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator

import pytest
from sites import Site

submitit = pytest.importorskip("submitit")
cloudpickle = pytest.importorskip("cloudpickle")
cloudpickle.register_pickle_by_value(sys.modules[__name__])       # the jobs cannot import this file


@pytest.fixture
def executor(client_site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    for name, value in client_site.env.items():
        monkeypatch.setenv(name, value)
    made = submitit.AutoExecutor(folder=client_site.work / "submitit", cluster="slurm")
    made.update_parameters(timeout_min=2, slurm_partition="batch", mem_gb=1, cpus_per_task=1)
    submitit.SlurmJob.watcher.clear()
    yield made


def place() -> tuple[int, str]:
    environment = submitit.JobEnvironment()
    return environment.global_rank, os.environ["SLURMD_NODENAME"]


def fail() -> None:
    raise ValueError("no such luck")


def test_a_function_gives_its_result(executor) -> None:  # type: ignore[no-untyped-def]
    job = executor.submit(pow, 3, 4)
    assert job.result() == 81
    until = time.monotonic() + 60             # its result is there before its end
    while (state := job.get_info(mode="force")["State"]) != "COMPLETED":
        assert state in ("RUNNING", "COMPLETING") and time.monotonic() < until
        time.sleep(0.1)


def test_tasks_on_two_nodes(executor) -> None:  # type: ignore[no-untyped-def]
    executor.update_parameters(nodes=2, tasks_per_node=2)
    ranks, nodes = zip(*executor.submit(place).results(), strict=True)
    assert ranks == (0, 1, 2, 3) and len(set(nodes)) == 2


def test_an_error_is_raised_here(executor) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(submitit.core.utils.FailedJobError, match="no such luck"):
        executor.submit(fail).result()


def test_an_array(executor) -> None:  # type: ignore[no-untyped-def]
    executor.update_parameters(slurm_array_parallelism=2)
    jobs = executor.map_array(lambda a, b: a * b, [1, 2, 3], [10, 20, 30])
    assert [job.result() for job in jobs] == [10, 40, 90]
    assert {job.job_id.partition("_")[2] for job in jobs} == {"0", "1", "2"}


def test_a_cancelled_job_is_seen_as_such(executor) -> None:  # type: ignore[no-untyped-def]
    job = executor.submit(time.sleep, 60)
    job.cancel(check=True)
    deadline = time.monotonic() + 20
    while not (state := job.get_info(mode="force").get("State", "")).startswith("CANCELLED"):
        assert time.monotonic() < deadline, state
        time.sleep(0.2)
    assert job.done(force_check=True)
