"""Jobs for the ledger's tests."""
from __future__ import annotations

from slurmbridge.slurm.jobspec import JobRequest
from slurmbridge.views.records import JobRecord, NodeAllocation, StepRecord

SCRIPT = "#!/bin/bash\necho 'Grüße\udcff'\n"
ENVIRONMENT = ("PATH=/bin", "NAME=ä\udc80")


def make_job(job_id: int, db_index: int, script: str = SCRIPT) -> JobRecord:
    """A running job with most of its fields set."""
    request = JobRequest(
        name=f"job{job_id}", script=script, environment=ENVIRONMENT, account="phys", partitions=("batch",), uid=20001,
        user_name="alice", num_tasks=2, comment="with\nlines", constraint="ib&big", work_dir="/work",
        submit_line="sbatch job.sh", rlimits={"NOFILE": 1024})
    job = JobRecord(
        job_id, request, name=f"job{job_id}", user_name="alice", uid=20001, gid=100, account="phys", assoc_id=7,
        partition="batch", qos="normal", priority=4000, state="RUNNING", submit_s=1000.5, eligible_s=1000.5,
        start_s=1002.25, time_limit_min=60, num_nodes="2", num_cpus=4, tres_req={"cpu": 4, "mem": 4000, "node": 2},
        tres_alloc={"cpu": 4, "mem": 4000, "node": 2, "billing": 4}, nodes=("n1", "n2"), batch_host="n1",
        flags={"CONFIGURING", "COMPLETING"}, partition_priorities={"batch": 4000}, credential="secret",
        allocation=[NodeAllocation("n1", 2, 2000, {"gpu:a100": (0, 1)}, (0, 1), 1), NodeAllocation("n2", 2, 2000)],
        db_index=db_index)
    job.steps["batch"] = StepRecord(job_id, "batch", "batch", start_s=1002.5, nodes=("n1",), cpus=2, tres={"cpu": 2})
    return job
