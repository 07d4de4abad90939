"""Steps that nobody asked for: the batch script's and the container's (sacct's .batch and .extern), and step states."""
from __future__ import annotations

from slurmbridge.controller.transitions import OUT_OF_MEMORY_SIGNAL
from slurmbridge.slurm import states
from slurmbridge.slurm.settings import SlurmConf
from slurmbridge.views.records import JobRecord, StepRecord, Tres


def at_start(job: JobRecord, conf: SlurmConf, now_s: float) -> list[StepRecord]:
    """The steps that begin with the job itself."""
    found = []
    if "contain" in conf.values.get("PrologFlags", "").lower():
        found.append(StepRecord(
            job.job_id, "extern", "extern", start_s=now_s, nodes=job.nodes, num_tasks=len(job.nodes),
            cpus=sum(share.cpus for share in job.allocation), tres=dict(job.tres_alloc)))
    if job.request.batch and not job.het_offset and job.allocation:
        first = job.allocation[0]
        found.append(StepRecord(
            job.job_id, "batch", "batch", start_s=now_s, nodes=(first.node,), cpus=first.cpus, tres=_first_node(job),
            command=job.request.command or "", cwd=job.request.work_dir,
            std_in=job.std_in, std_out=job.std_out, std_err=job.std_err, container=job.request.container or ""))
    return found


def _first_node(job: JobRecord) -> Tres:
    """What the batch script has: its node's share of the allocation."""
    share = job.allocation[0]
    tres: Tres = {"cpu": share.cpus, "mem": share.mem_mb, "node": 1}
    for name, indices in sorted(share.gres.items()):
        kind, colon, _ = name.partition(":")
        tres[f"gres/{kind}"] = tres.get(f"gres/{kind}", 0) + len(indices)
        if colon:
            tres[f"gres/{name}"] = tres.get(f"gres/{name}", 0) + len(indices)
    return tres


def state_of(step: StepRecord) -> str:
    """The state of an ended step, from its wait status."""
    signal = step.exit_status & 0x7F
    if signal == OUT_OF_MEMORY_SIGNAL:
        return states.OUT_OF_MEMORY
    if signal:
        return states.CANCELLED
    return states.FAILED if step.exit_status else states.COMPLETED
