"""``scontrol show step``: the running steps of jobs. (scontrol(1), SHOW STEP.)"""
from __future__ import annotations

from collections.abc import Iterator

from slurmbridge.commands.common import holds_task, parse_job_name
from slurmbridge.commands.scontrol_call import Call
from slurmbridge.commands.scontrol_job import Style, cpu_frequency, null
from slurmbridge.slurm import states, tres
from slurmbridge.slurm.durations import format_minutes
from slurmbridge.slurm.hostlist import compress
from slurmbridge.slurm.jobspec import UNLIMITED_MIN
from slurmbridge.slurm.memory import with_unit
from slurmbridge.views.records import JobRecord, StepRecord

_SPECIAL = frozenset({"batch", "extern", "interactive"})


def step_name(job: JobRecord, step: StepRecord) -> str:
    """``434.0``, ``435_1.batch``; a component of a heterogeneous job by its own number."""
    if job.array_job_id and job.array_task_id is not None:
        return f"{job.array_job_id}_{job.array_task_id}.{step.step_id}"
    return f"{job.job_id}.{step.step_id}"


def step_text(job: JobRecord, step: StepRecord, style: Style) -> str:
    """The step as ``scontrol show step`` prints it."""
    text = (" " if style.one_line else "\n   ").join(_lines(job, step, style))
    return text + ("\n" if style.one_line else "\n\n")


def _lines(job: JobRecord, step: StepRecord, style: Style) -> Iterator[str]:
    limit = UNLIMITED_MIN if step.time_limit_min is None else step.time_limit_min
    yield (f"StepId={step_name(job, step)} UserId={job.uid} StartTime={style.time(step.start_s)} "
           f"TimeLimit={format_minutes(limit)}")
    if style.details and job.sluid:
        yield f"SLUID={job.sluid}"
    yield f"State={step.state} Partition={null(job.partition)} NodeList={compress(step.nodes, sort=True)}"
    cpus = 0 if step.step_id in _SPECIAL else step.cpus
    yield (f"Nodes={with_unit(len(step.nodes), '')} CPUs={cpus} Tasks={step.num_tasks} Name={null(step.name)} "
           "Network=(null)")
    yield f"TRES={_tres(step)}"
    yield "ResvPorts=(null)"
    special = step.step_id in _SPECIAL
    frequency = "" if special else cpu_frequency(job.request)
    yield (frequency or "CPUFreqReq=Default") + (f" Dist={step.layout}" if step.layout and not special else "")
    yield f"SrunHost:Pid={'(null)' if special else null(job.batch_host or job.alloc_node)}:0"
    if not special:
        request = job.request
        for label, text in (
                ("CpusPerTres", request.cpus_per_tres), ("MemPerTres", request.mem_per_tres),
                ("TresBind", request.tres_bind), ("TresFreq", request.tres_freq),
                ("TresPerNode", request.tres_per_node), ("TresPerSocket", request.tres_per_socket),
                ("TresPerTask", request.tres_per_task)):
            if text:
                yield f"{label}={text}"
    if step.container:
        yield f"Container={step.container} ContainerID=(null)"
    for label, text in (("StdIn", step.std_in), ("StdErr", step.std_err), ("StdOut", step.std_out)):
        if text and not special:
            yield f"{label}={text}"


def _tres(step: StepRecord) -> str:
    if step.step_id in _SPECIAL or not step.tres:
        return "(null)"
    counts = {name: count for name, count in step.tres.items() if name != "billing"}
    return ",".join(sorted(tres.format_counts({name: count}) for name, count in counts.items() if count))


def running_steps(job: JobRecord) -> Iterator[StepRecord]:
    """Steps that are not over, of a job that is not."""
    if job.state in states.FINISHED and states.COMPLETING not in job.flags:
        return
    yield from (step for step in job.steps.values() if step.end_s is None)


def show(call: Call, text: str | None) -> None:
    """``show step [JOB[.STEP]]``."""
    views = call.session.views
    if text is None:
        found = [(job, step) for job in views.jobs.values() for step in running_steps(job)]
        if not found and not call.quiet:
            call.print("No job steps in the system\n")
        for job, step in found:
            call.print(step_text(job, step, call.style))
        return
    name = parse_job_name(text)
    if name is None:
        call.error(f"scontrol_print_step: slurm_get_job_steps({text}) failed: JobID can not be zero")
        return
    jobs = [job for job in views.jobs.values()
            if name.job_id in (job.job_id, job.array_job_id or job.job_id)
            and (name.tasks is None or holds_task(job, name.tasks[0]))]
    if not jobs:
        if call.quiet:
            call.exit_code = 1
        else:
            call.error(f"scontrol_print_step: slurm_get_job_steps({text}) failed: Invalid job id specified")
        return
    steps = [(job, step) for job in jobs for step in running_steps(job) if name.step in ("", step.step_id)]
    for job, step in steps:
        call.print(step_text(job, step, call.style))
    if not steps:
        task = f"_{name.tasks[0]}" if name.tasks else ""
        call.missing(f"Job step {name.job_id}{task}.{name.step} not found")
