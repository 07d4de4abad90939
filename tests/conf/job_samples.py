"""Job records rebuilt from what ``scontrol show job`` printed of them, to print them again."""
from __future__ import annotations

import re
from datetime import UTC, datetime

from slurmbridge.slurm.durations import parse_minutes
from slurmbridge.slurm.hostlist import expand
from slurmbridge.slurm.jobspec import UNLIMITED_MIN, JobRequest
from slurmbridge.slurm.memory import parse_mb
from slurmbridge.views.records import JobRecord

_WHOLE_LINE = {"Command", "SubmitLine", "WorkDir", "Comment", "AdminComment", "StdErr", "StdIn", "StdOut"}


def fields_of(text: str) -> dict[str, str]:
    """Every field of one record in the long form."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith(("     Nodes=", "   SLUID=", "   JOB_GRES=", "   DerivedExitCode=")):
            continue                              # what -d adds
        line = line.strip()
        key = line.split("=", 1)[0]
        if key in _WHOLE_LINE:
            found[key] = line.split("=", 1)[1]
        elif key == "JobId":
            head, name = line.split(" JobName=", 1)
            found.update(pair.split("=", 1) for pair in head.split())
            found["JobName"] = name
        else:
            found.update(pair.split("=", 1) for pair in line.split(" "))
    return found


def _time(text: str) -> float | None:
    if text in ("Unknown", "None", "N/A"):
        return None
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def _some(text: str | None) -> str | None:
    return None if text in (None, "(null)") else text


def _number(text: str) -> int | None:
    return None if text in ("*", "N/A") else int(text)


def _status(text: str) -> int:
    code, signal = text.split(":")
    return int(code) << 8 | int(signal)


def _minutes(text: str) -> int | None:
    if text == "N/A":
        return None
    return UNLIMITED_MIN if text == "UNLIMITED" else parse_minutes(text)


def _tasks(text: str) -> tuple[int | None, int | None]:
    """(one task, bitmap of pending tasks)."""
    if text.isdigit():
        return int(text), None
    bits = 0
    for part in text.split("%")[0].split(","):
        span, _, step = part.partition(":")
        low, _, high = span.partition("-")
        for task in range(int(low), int(high or low) + 1, int(step or 1)):
            bits |= 1 << task
    return None, bits


def record_of(text: str) -> JobRecord:
    """The record and its request, as far as the text tells them."""
    f = fields_of(text)
    cores, threads = f["ReqB:S:C:T"].split(":")[2:]
    per_node, per_board, per_socket, per_core = f["NtasksPerN:B:S:C"].split(":")
    user, uid = re.fullmatch(r"(.*)\((\d+)\)", f["UserId"]).groups()
    group, gid = re.fullmatch(r"(.*)\((\d+)\)", f["GroupId"]).groups()
    memory = next(key for key in f if key.startswith("MinMemory"))
    task, bits = _tasks(f["ArrayTaskId"]) if "ArrayTaskId" in f else (None, None)
    switches, _, wait = f.get("Switches", "").partition("@")
    host, sid = f["AllocNode:Sid"].rsplit(":", 1)
    request = JobRequest(
        batch=f["BatchFlag"] != "0", command=_some(f["Command"]), submit_line=f["SubmitLine"], work_dir=f["WorkDir"],
        cores_per_socket=_number(cores), threads_per_core=_number(threads), sockets_per_node=_number(f["Socks/Node"]),
        ntasks_per_node=int(per_node) or None, ntasks_per_board=int(per_board) or None,
        ntasks_per_socket=_number(per_socket), ntasks_per_core=_number(per_core), node_list=_some(f["ReqNodeList"]),
        exclude=_some(f["ExcNodeList"]), tmp_disk_mb=parse_mb(f["MinTmpDiskNode"]), constraint=_some(f["Features"]),
        contiguous=f["Contiguous"] == "1", licenses=_some(f["Licenses"]), network=_some(f["Network"]),
        switches=int(switches) if switches else None, switches_wait_s=300 if wait else None,
        burst_buffer=f.get("BurstBuffer"),
        cpu_freq=(f.get("CPU_min_freq", ""), f.get("CPU_max_freq", ""), f.get("Governor", "")),
        kill_on_invalid_dep={"Yes": True, "No": False}.get(f.get("KillOnInvalidDependent", "")),
        spread_job="SpreadJob" in f, cpus_per_tres=f.get("CpusPerTres"), tres_bind=f.get("TresBind"),
        tres_per_job=f.get("TresPerJob"), tres_per_node=f.get("TresPerNode"), tres_per_task=f.get("TresPerTask"),
        mem_per_tres=f.get("MemPerTres"), ntasks_per_tres=int(f["NtasksPerTRES"]) if "NtasksPerTRES" in f else None,
        mail_user=f.get("MailUser"), mail_type=f.get("MailType"))
    start, state = _time(f["StartTime"]), f["JobState"]
    return JobRecord(
        int(f["JobId"]), request, array_job_id=int(f.get("ArrayJobId", 0)), array_task_id=task, array_pending=bits,
        array_max_running=int(f.get("ArrayTaskThrottle", 0)), het_job_id=int(f.get("HetJobId", 0)),
        het_offset=int(f.get("HetJobOffset", 0)), het_job_ids=_range(f.get("HetJobIdSet")),
        user_name=user, uid=int(uid),
        group_name=group, gid=int(gid), name=f["JobName"], account=f["Account"], partition=f["Partition"], qos=f["QOS"],
        priority=int(f["Priority"]), nice=int(f["Nice"]), reason=f["Reason"] if state == "PENDING" else "",
        reason_desc=f["Reason"], state=state, scheduler=f["Scheduler"], last_sched_eval_s=_time(f["LastSchedEval"]),
        submit_s=_time(f["SubmitTime"]) or 0, eligible_s=_time(f["EligibleTime"]), accrue_s=_time(f["AccrueTime"]),
        start_s=start, end_s=_time(f["EndTime"]), suspend_s=_time(f["SuspendTime"]),
        pre_suspend_s=float(f["SecsPreSuspend"]), time_limit_min=_minutes(f["TimeLimit"]),
        time_min_min=_minutes(f["TimeMin"]), num_nodes=f["NumNodes"], num_cpus=int(f["NumCPUs"]),
        num_tasks=_number(f["NumTasks"]), cpus_per_task=_number(f["CPUs/Task"]), min_cpus_node=int(f["MinCPUsNode"]),
        mem_per_cpu_mb=parse_mb(f[memory]) if memory.endswith("CPU") else None,
        mem_per_node_mb=parse_mb(f[memory]) if memory.endswith("Node") else None,
        tres_req=_tres(f["ReqTRES"]), tres_alloc=_tres(f["AllocTRES"]), deadline_s=_time(f["Deadline"]),
        oversubscribe=f["OverSubscribe"], nodes=tuple(expand(f["NodeList"])) if f["NodeList"] else (),
        batch_host=f.get("BatchHost", ""), sched_nodes=f.get("SchedNodeList", ""), alloc_node=host, alloc_sid=int(sid),
        exit_status=_status(f["ExitCode"]), restarts=int(f["Restarts"]), requeue=f["Requeue"] == "1",
        dependency=_some(f["Dependency"]) or "", comment=f.get("Comment", ""), std_in=f.get("StdIn", ""),
        std_out=f.get("StdOut", ""), std_err=f.get("StdErr", ""), failed_node=f.get("FailedNode", ""))


def _tres(text: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    for entry in (_some(text) or "").split(","):
        name, _, count = entry.partition("=")
        if name == "mem":
            factor = {"M": 1, "G": 1024, "T": 1024 * 1024}[count[-1]]
            counts[name] = round(float(count[:-1]) * factor)
        elif name:
            counts[name] = int(count)
    return counts


def _range(text: str | None) -> tuple[int, ...]:
    if not text:
        return ()
    low, _, high = text.partition("-")
    return tuple(range(int(low), int(high or low) + 1))
