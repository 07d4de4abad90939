"""Allocations for commands that stay with their caller: waiting for the start, and the environment they bring."""
from __future__ import annotations

import asyncio
from collections.abc import Sequence

from slurmbridge.slurm import errors, states
from slurmbridge.slurm.hostlist import compress
from slurmbridge.slurm.jobspec import JobRequest
from slurmbridge.views.records import JobRecord
from slurmbridge.views.session import Reply, Session

QUEUED_AFTER_S = 0.2
"""Slurm's controller answers at once when it can start the job; ours decides a moment later."""

DECIDED_AFTER_S = 5.0
"""A busy machine may take longer to decide, or to start the job."""


async def wait_for_start(session: Session, job_id: int, request: JobRequest, error_exit: int) -> JobRecord | Reply:
    """The started job; a Reply where it ended before, or did not start within --immediate."""
    command = session.invocation.command
    started = asyncio.ensure_future(session.acts.wait_job_start(job_id))
    at_once = request.immediate_s == 1
    try:
        patience = 1.0 if at_once else QUEUED_AFTER_S
        if request.het_offset is not None and request.immediate_s is None:
            patience = 0.0                    # heterogeneous jobs are never started at once
        done, _ = await asyncio.wait([started], timeout=patience)
        latest_s = session.now() + DECIDED_AFTER_S
        while not done and patience and not at_once and session.now() < latest_s and _is_undecided(session, job_id):
            done, _ = await asyncio.wait([started], timeout=QUEUED_AFTER_S)
        if not done and at_once:
            return _not_at_once(session, job_id, request)
        if not done and not request.quiet:
            await session.write_stderr(_queued(session, job_id))
        if not done:
            await session.last_words("" if request.quiet else _given_up(session, job_id))
        if not done and request.immediate_s is not None:
            late, _ = await asyncio.wait([started], timeout=request.immediate_s - patience)
            if not late:
                text = "Connection timed out" if command == "salloc" else errors.strerror(errors.ESLURM_NODES_BUSY)
                return Reply(stderr=f"{command}: error: Unable to allocate resources: {text}\n"
                                    + _revoked(session, job_id, request), exit_code=1)
        job = await started
        if not done:
            await session.last_words(None)
        if job.state in states.FINISHED:
            if job.state == states.CANCELLED:
                return Reply(stderr=f"{command}: error: Job allocation {job_id} has been revoked\n", exit_code=1)
            return Reply(stderr=f"{command}: error: Unable to allocate resources: {job.reason}\n", exit_code=error_exit)
        if not done and not request.quiet:
            await session.write_stderr(f"{command}: job {job_id} has been allocated resources\n")
        return job
    finally:
        started.cancel()


def _is_undecided(session: Session, job_id: int) -> bool:
    """Whether nobody has found yet that the job must wait."""
    job = session.views.jobs.get(job_id)
    return job is not None and job.reason == "None" and job.state not in states.FINISHED


def _given_up(session: Session, job_id: int) -> str:
    """What is said by who is ended by a signal while the job waits."""
    if session.invocation.command == "salloc":
        return f"salloc: Job allocation {job_id} has been revoked.\nsalloc: Job aborted due to signal\n"
    job = session.views.jobs.get(job_id)
    ended = "".join(f"srun: Force Terminated JobId={one}\n" for one in (job and job.het_job_ids) or (job_id,))
    return f"{ended}srun: Job allocation {job_id} has been revoked\n"


def _queued(session: Session, job_id: int) -> str:
    """What is said of a job that does not start at once."""
    command, job = session.invocation.command, session.views.jobs.get(job_id)
    code = 0 if job is None else errors.ESLURM_JOB_HELD if job.priority == 0 else _obstacle(job)
    return ((f"{command}: {errors.strerror(code)}\n" if code else "")
            + (f"salloc: Pending job allocation {job_id}\n" if command == "salloc" else "")
            + f"{command}: job {job_id} queued and waiting for resources\n")


def _not_at_once(session: Session, job_id: int, request: JobRequest) -> Reply:
    """--immediate, and the job waits."""
    job = session.views.jobs.get(job_id)
    code = errors.ESLURM_NODES_BUSY if job is None else errors.ESLURM_DEPENDENCY if (
        job.priority == 0 or job.reason in ("Dependency", "BeginTime")) else _obstacle(job) or errors.ESLURM_NODES_BUSY
    is_salloc, is_busy = session.invocation.command == "salloc", code == errors.ESLURM_NODES_BUSY
    what = "Job submit/allocate failed" if is_salloc and not is_busy else "Unable to allocate resources"
    return Reply(stderr=f"{session.invocation.command}: error: {what}: {errors.strerror(code)}\n"
                        + ("" if is_busy else _revoked(session, job_id, request)), exit_code=1)


def _revoked(session: Session, job_id: int, request: JobRequest) -> str:
    """salloc hears of the end of what it gives up."""
    if session.invocation.command != "salloc" or request.quiet:
        return ""
    return f"salloc: Job allocation {job_id} has been revoked.\n"


def _obstacle(job: JobRecord) -> int:
    """Why the job cannot start, other than for want of free nodes: one of Slurm's error numbers, else 0."""
    if job.reason.startswith("ReqNodeNotAvail"):
        return errors.ESLURM_NODE_NOT_AVAIL
    return errors.ESLURM_REQUESTED_PART_CONFIG_UNAVAILABLE if job.reason.startswith("Partition") else 0


def per_node_text(counts: list[int]) -> str:
    """``4(x2),2``."""
    parts: list[tuple[int, int]] = []
    for count in counts:
        if parts and parts[-1][0] == count:
            parts[-1] = (count, parts[-1][1] + 1)
        else:
            parts.append((count, 1))
    return ",".join(f"{count}(x{times})" if times > 1 else str(count) for count, times in parts)


def allocation_variables(job: JobRecord, session: Session) -> dict[str, str]:
    """What salloc sets for its command (salloc(1), OUTPUT ENVIRONMENT VARIABLES)."""
    names = compress(job.nodes)
    found = {
        "SLURM_JOB_ID": str(job.job_id), "SLURM_JOBID": str(job.job_id), "SLURM_JOB_NAME": job.name,
        "SLURM_JOB_NUM_NODES": str(len(job.nodes)), "SLURM_NNODES": str(len(job.nodes)),
        "SLURM_JOB_NODELIST": names, "SLURM_NODELIST": names, "SLURM_JOB_PARTITION": job.partition,
        "SLURM_JOB_CPUS_PER_NODE": per_node_text([share.cpus for share in job.allocation]),
        "SLURM_TASKS_PER_NODE": per_node_text([share.tasks for share in job.allocation]),
        "SLURM_JOB_ACCOUNT": job.account, "SLURM_JOB_QOS": job.qos,
        "SLURM_CLUSTER_NAME": session.views.accounting.cluster,
        "SLURM_SUBMIT_DIR": session.invocation.cwd, "SLURM_SUBMIT_HOST": session.invocation.host,
        "OMPI_MCA_plm_slurm_args": "--external-launcher", "PRTE_MCA_plm_slurm_args": "--external-launcher",
        "HYDRA_BOOTSTRAP": "slurm", "HYDRA_LAUNCHER_EXTRA_ARGS": "--external-launcher",
        "I_MPI_HYDRA_BOOTSTRAP": "slurm", "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": "--external-launcher"}
    if job.request.num_tasks_given and job.request.num_tasks:
        found["SLURM_NTASKS"] = found["SLURM_NPROCS"] = str(job.request.num_tasks)
    if job.request.mem_per_cpu_mb is not None:
        found["SLURM_MEM_PER_CPU"] = str(job.request.mem_per_cpu_mb)
    if job.request.mem_per_node_mb is not None:
        found["SLURM_MEM_PER_NODE"] = str(job.request.mem_per_node_mb)
    gpus = [str(index) for name, indices in (job.allocation[0].gres.items() if job.allocation else ())
            if name.partition(":")[0] == "gpu" for index in indices]
    if gpus:
        found["SLURM_JOB_GPUS"] = ",".join(gpus)
    return {name: value for name, value in found.items() if value}


def salloc_variables(jobs: Sequence[JobRecord], session: Session) -> dict[str, str]:
    """What salloc adds for its command: of a heterogeneous job, each component's under names of its own."""
    if len(jobs) == 1:
        return _salloc_own(jobs[0], session)
    found = {name: value for name, value in allocation_variables(jobs[0], session).items() if name in _OF_ALL}
    found |= {"SLURM_HET_SIZE": str(len(jobs)), "SLURM_PACK_SIZE": str(len(jobs))}
    for number, job in enumerate(jobs):
        own = _salloc_own(job, session)
        for name in own.keys() - _OF_ALL | {"SLURM_JOB_ID"}:
            found |= {f"{name}_HET_GROUP_{number}": own[name], f"{name}_PACK_GROUP_{number}": own[name]}
    tasks = [found.get(f"SLURM_NTASKS_HET_GROUP_{number}", "") for number in range(len(jobs))]
    if all(tasks):
        found["SLURM_NTASKS"] = found["SLURM_NPROCS"] = str(sum(map(int, tasks)))
    return found


def _salloc_own(job: JobRecord, session: Session) -> dict[str, str]:
    """salloc does not tell its command the job's devices."""
    found = {**allocation_variables(job, session), **_option_variables(job)}
    found.pop("SLURM_JOB_GPUS", None)
    return found


_OF_ALL = frozenset({
    "SLURM_JOB_ID", "SLURM_CLUSTER_NAME", "SLURM_SUBMIT_DIR", "SLURM_SUBMIT_HOST", "OMPI_MCA_plm_slurm_args",
    "PRTE_MCA_plm_slurm_args", "HYDRA_BOOTSTRAP", "HYDRA_LAUNCHER_EXTRA_ARGS", "I_MPI_HYDRA_BOOTSTRAP",
    "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS"})


def _option_variables(job: JobRecord) -> dict[str, str]:
    """Options of the allocation that its sruns take from their environment."""
    request = job.request
    tasks = request.num_tasks if request.num_tasks_given else None
    if request.ntasks_per_node:
        tasks = max(request.num_tasks or 0, len(job.nodes)) if request.num_tasks_given \
            else request.ntasks_per_node * len(job.nodes)
    found: dict[str, object] = {
        "SLURM_JOB_RESERVATION": request.reservation, "SLURM_ACCTG_FREQ": request.acctg_freq,
        "SLURM_NETWORK": request.network, "SLURM_OVERCOMMIT": 1 if request.overcommit else None,
        "SLURM_NTASKS": tasks, "SLURM_NPROCS": tasks, "SLURM_CPUS_PER_TASK": request.cpus_per_task,
        "SLURM_TRES_PER_TASK": request.tres_per_task, "SLURM_NTASKS_PER_NODE": request.ntasks_per_node,
        "SLURM_DISTRIBUTION": request.distribution, "SLURM_DIST_PLANESIZE": request.plane_size,
        "SLURM_THREADS_PER_CORE": request.threads_per_core, "SLURM_JOB_SEGMENT_SIZE": request.segment_size}
    return {name: str(value) for name, value in found.items() if value}
