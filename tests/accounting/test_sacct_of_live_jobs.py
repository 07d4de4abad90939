"""sacct of jobs that this controller ran: from its records, through the ledger, to what Slurm prints of such jobs."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from accounting.stage import Stage
from accounting.test_sacct_as_recorded import DATA, _records

from slurmbridge.accounting import operations as ops
from slurmbridge.commands import sacct
from slurmbridge.runtime.gauges import statistics
from slurmbridge.slurm.jobspec import JobRequest
from slurmbridge.views.records import AssociationRecord, JobRecord, StepRecord

T0 = 1_795_974_074.0                           # 2026-11-29T17:41:14


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    opened = Stage(tmp_path / "ledger.db", now_s=T0 + 70)
    yield opened
    opened.close()


def _job(stage: Stage, job_id: int, **changes: object) -> JobRecord:
    request = JobRequest(
        name="timeout", script="#!/bin/sh\n", user_name="dana", uid=20004, gid=100, work_dir="/lab/jobs", std_out=None,
        submit_line="sbatch --parsable -t 5 -t 1 -J timeout -w n1 --wrap srun sleep 300")
    job = JobRecord(
        job_id, request, user_name="dana", group_name="users", uid=20004, gid=100, name="timeout", account="phys_astro",
        assoc_id=16, partition="batch", qos="normal", priority=733, state="PENDING", submit_s=T0, eligible_s=T0,
        time_limit_min=1, tres_req={"cpu": 1, "mem": 1000, "node": 1, "billing": 1},
        db_index=stage.ledger.next_db_index(T0 + job_id / 1000))
    return replace(job, **changes)             # type: ignore[arg-type]


def _started(job: JobRecord, **changes: object) -> JobRecord:
    return replace(job, state="RUNNING", start_s=T0 + 4, nodes=("n1",), scheduler="Backfill",
                   tres_alloc={"cpu": 1, "mem": 1000, "node": 1, "billing": 1}, **changes)  # type: ignore[arg-type]


def _write(stage: Stage, *jobs: JobRecord) -> None:
    stage.ledger.write_and_wait(
        [operation for job in jobs
         for operation in (ops.SaveJob(job), *(ops.SaveStep(job, step) for step in job.steps.values()))])


def _shown(stage: Stage, *words: str, user: str | None = None) -> list[str]:
    return stage.call(sacct.run, ["-n", "-P", *words], user=user).stdout.splitlines()


def test_a_job_that_timed_out(stage: Stage) -> None:
    job = _started(_job(stage, 496))
    job.state, job.end_s, job.derived_exit_status = "TIMEOUT", T0 + 64, 15
    def used(user_s: float, system_s: float, mem_kb: int, vmem_kb: int, read: int, written: int) -> dict[str, object]:
        counts = {"cpu": 16, "mem": mem_kb << 10, "vmem": vmem_kb << 10, "pages": 0, "fs/disk": read, "out": written}
        return {"user_cpu_s": user_s, "system_cpu_s": system_s, "cpu_khz": 2100,
                "stats": statistics({0: counts}, {0: "n1"})}
    job.steps = {
        "batch": StepRecord(496, "batch", "batch", "FAILED", T0 + 4, T0 + 64, 143 << 8, ("n1",), 1, 1, "",
                            {"cpu": 1, "mem": 1000, "node": 1}, submit_line="sbatch",
                            usage=used(0.0042, 0.0118, 10760, 247832, 31273, 6526), std_out="/lab/x"),
        "extern": StepRecord(496, "extern", "extern", "COMPLETED", T0 + 4, T0 + 64, 0, ("n1",), 1, 1, "",
                             {"cpu": 1, "mem": 1000, "node": 1, "billing": 1}),
        "0": StepRecord(496, "0", "sleep", "CANCELLED", T0 + 5.5, T0 + 64, 15, ("n1",), 1, 1, "Cyclic",
                        {"cpu": 1, "mem": 1000, "node": 1}, submit_line="srun sleep 300",
                        usage=used(0.0021, 0.0, 1644, 2940, 7809, 1))}
    _write(stage, job)
    wanted = [record for record in _records((DATA / "sacct/states.psv").read_text()) if record["JobID"][:3] == "496"]
    printed = stage.call(sacct.run, ["-j", "496", "-P", "-o", "all"]).stdout
    found = _records(printed)
    assert [record["JobID"] for record in found] == [record["JobID"] for record in wanted]
    for want, got in zip(wanted, found):
        for name, value in want.items():
            if name not in ("DBIndex", "SLUID"):
                assert got[name] == value, (want["JobID"], name)


def test_a_job_cancelled_by_root_before_it_started(stage: Stage) -> None:
    _write(stage, _job(stage, 7, state="CANCELLED", start_s=T0 + 10, end_s=T0 + 10, killed_by_uid=0))
    fields = "State,Start,End,Elapsed,NodeList,AllocCPUS,AllocNodes,NNodes,Planned,Flags,AllocTRES"
    assert _shown(stage, "-j", "7", "-o", fields) == [
        "CANCELLED by 0|None|2026-11-29T17:41:24|00:00:00|None assigned|0|0|1|00:00:10|StartReceived|"]


def test_pending_running_and_suspended_jobs(stage: Stage) -> None:
    array = _job(stage, 10, array_job_id=10, array_pending=0b11111000, array_max_running=2)
    held = _job(stage, 11, eligible_s=None, priority=0, reason="JobHeldUser")
    suspended = replace(_started(_job(stage, 12)), state="SUSPENDED")
    suspended.steps["batch"] = StepRecord(12, "batch", "batch", "RUNNING", T0 + 4, nodes=("n1",))
    task = _started(_job(stage, 13, array_job_id=10, array_task_id=2))
    _write(stage, array, held, suspended, task)
    stage.ledger.write_and_wait([ops.SaveSuspension(suspended.db_index, T0 + 10, T0 + 20),
                                 ops.SaveSuspension(suspended.db_index, T0 + 30)])
    fields = "JobID,State,ExitCode,Elapsed,Suspended,Start,End,Reason"
    assert _shown(stage, "-S", "2026-11-29", "-o", fields) == [
        "12|SUSPENDED|0:0|00:00:16|00:00:50|2026-11-29T17:41:18|Unknown|None",
        "12.batch|SUSPENDED|0:0|00:00:16|00:00:50|2026-11-29T17:41:18|Unknown|",
        "10_2|RUNNING|0:0|00:01:06|00:00:00|2026-11-29T17:41:18|Unknown|None",
        "10_[3-7%2]|PENDING|0:0|00:00:00|00:00:00|Unknown|Unknown|None"]
    assert _shown(stage, "-j", "11", "-o", "jobid,state,eligible,reason") == ["11|PENDING|Unknown|JobHeldUser"]
    assert _shown(stage, "-S", "2026-11-29", "-E", "now", "--array", "-X", "-s", "pd", "-o", "jobid") == [
        "12", "10_2", "10_3", "10_4", "10_5", "10_6", "10_7"]      # also those that were pending and have started


def test_every_run_of_a_requeued_job(stage: Stage) -> None:
    first = _started(_job(stage, 20), end_s=T0 + 8)
    first.state = "REQUEUED"
    again = _job(stage, 20, submit_s=T0 + 8, eligible_s=T0 + 8, restarts=1)
    _write(stage, first)
    _write(stage, again)
    assert _shown(stage, "-S", "2026-11-29", "-o", "jobid,state,restarts") == ["20|PENDING|1"]
    assert _shown(stage, "-D", "-S", "2026-11-29", "-o", "jobid,state,restarts") == ["20|REQUEUED|0", "20|PENDING|1"]


def test_heterogeneous_jobs(stage: Stage) -> None:
    parts = [_job(stage, 30 + offset, het_job_id=30, het_job_ids=(30, 31), het_offset=offset) for offset in (0, 1)]
    _write(stage, *parts)
    assert _shown(stage, "-j", "30", "-o", "jobid,jobidraw") == ["30+0|30", "30+1|31"]
    assert _shown(stage, "-j", "31", "-o", "jobid") == ["30+1"]
    assert _shown(stage, "-j", "31", "--whole-hetjob", "-o", "jobid") == ["30+0", "30+1"]
    assert _shown(stage, "-j", "30", "--whole-hetjob=no", "-o", "jobid") == ["30+0"]


def test_whose_jobs_are_shown(stage: Stage) -> None:
    dana = _job(stage, 40)
    erin = _job(stage, 41, user_name="erin", uid=20005, account="bio")
    _write(stage, dana, erin)
    window = ("-S", "2026-11-29", "-o", "jobid")
    assert _shown(stage, *window) == ["40", "41"]
    assert _shown(stage, *window, user="dana") == ["40"]
    assert _shown(stage, *window, "-a", user="dana") == ["40", "41"]
    assert _shown(stage, "-j", "41", "-o", "jobid", user="dana") == ["41"]
    stage.conf.values["PrivateData"] = "usage,jobs"
    assert _shown(stage, *window, "-a", user="dana") == ["40"]
    assert _shown(stage, "-j", "41", "-o", "jobid", user="dana") == []
    stage.accounting.associations[900] = AssociationRecord(900, "bio", parent_id=1)
    stage.accounting.accounts["bio"] = replace(next(iter(stage.accounting.accounts.values())), name="bio",
                                               coordinators=("dana",))
    assert _shown(stage, "-j", "41", "-o", "jobid", user="dana") == ["41"]


def test_scripts_are_kept_where_the_site_says_so(stage: Stage) -> None:
    job = _started(_job(stage, 50))
    _write(stage, job)
    stage.jobs[50] = job
    rule = "-" * 80
    assert _shown(stage, "-B", "-j", "50") == ["NONE"]
    stage.conf.values["AccountingStoreFlags"] = "job_script"
    assert stage.call(sacct.run, ["-B", "-j", "50"], user="dana").stdout == f"Batch Script for 50\n{rule}\n#!/bin/sh\n"
    assert _shown(stage, "-B", "-j", "50", user="alice") == []


def test_widths_and_orders_of_fields(stage: Stage) -> None:
    _write(stage, _job(stage, 60))
    assert stage.call(sacct.run, ["-j", "60", "-o", "jobid%-6,state%4"]).stdout == (
        "JobID  Stat \n------ ---- \n60     PEN+ \n")
    reply = stage.call(sacct.run, ["-j", "60", "-p", "--delimiter=;", "-b"])
    assert reply.stdout == "JobID;State;ExitCode;\n60;PENDING;0:0;\n"
    assert stage.call(sacct.run, ["-j", "60"], env={"SACCT_FORMAT": "jobid,user%2"}).stdout.splitlines()[2] == (
        "60           d+ ")
