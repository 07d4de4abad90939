"""``squeue -s``: the steps that run, and the fields that can be shown of them."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from slurmbridge.commands.common import user_name
from slurmbridge.commands.squeue_fields import Shown, joined
from slurmbridge.commands.squeue_rows import WantedJob
from slurmbridge.commands.squeue_sort import FOREVER, first_host, letters_of
from slurmbridge.slurm.durations import format_short
from slurmbridge.slurm.format import ListField
from slurmbridge.slurm.jobspec import UNLIMITED_MIN
from slurmbridge.slurm.memory import leading_int
from slurmbridge.views.records import JobRecord, StepRecord

FORMAT = "%.15i %.8j %.9P %.8u %.9M %N"
DEFAULT_SORT = "P,i"
_NUMBERS = {"interactive": 0xFFFFFFFA, "batch": 0xFFFFFFFB, "extern": 0xFFFFFFFC}
HIDDEN = frozenset({"Gres", "tres-per-node"})
LEFT_HEADERS = frozenset({"StartTime"})
"""Fields whose header is at the left also where their values are not."""


@dataclass(frozen=True, slots=True)
class StepRow:
    job: JobRecord
    step: StepRecord


def step_number(step_id: str) -> int:
    """The number that Slurm keeps a step under; the named ones have large ones."""
    return _NUMBERS[step_id] if step_id in _NUMBERS else int(step_id.split("+")[0])


def running_steps(jobs: Iterable[JobRecord]) -> Iterator[StepRow]:
    """Every step of these jobs that has not ended."""
    for job in jobs:
        for step in job.steps.values():
            if step.end_s is None and step.state != "PENDING":
                yield StepRow(job, step)


def is_wanted(row: StepRow, wanted: Sequence[WantedJob]) -> bool:
    """-j and -s: the job, or the array's task, and the step where one is named."""
    job = row.job
    for entry in wanted:
        if entry.step is not None and entry.step != step_number(row.step.step_id):
            continue
        if entry.task_id is None:
            if entry.job_id in (job.job_id, job.array_job_id):
                return True
        elif entry.job_id == job.array_job_id and entry.task_id == job.array_task_id:
            return True
    return False


def parse_wanted_steps(text: str) -> tuple[list[WantedJob], str]:
    """-s's list, and what is wrong with it (the rest of an error line)."""
    wanted: list[WantedJob] = []
    for word in filter(None, text.split(",")):
        parts = [part for part in word.split(".") if part]
        if not parts:
            break
        number, rest = leading_int(parts[0]) or (0, "")
        task = (leading_int(rest[1:]) or (0, ""))[0] if rest.startswith("_") else None
        if len(parts) < 2:
            return wanted, f"Invalid job_step id: {parts[0]}.??"
        step = (leading_int(parts[1]) or (0, ""))[0]
        if number <= 0 or step < 0:
            return wanted, f"Invalid job_step id: {parts[0]}.{parts[1]}"
        wanted.append(WantedJob(number, task, step))
    return wanted, ""


def sort_steps(rows: list[StepRow], text: str | None, now_s: float) -> str:
    """In place; what is to be said on standard error. Letters that mean nothing for steps are passed over."""
    keys = {
        "i": lambda row: (row.job.job_id, step_number(row.step.step_id)),
        "N": lambda row: first_host(row.step.nodes), "P": lambda row: row.job.partition,
        "l": lambda row: FOREVER if row.step.time_limit_min is None else row.step.time_limit_min,
        "S": lambda row: int(row.step.start_s), "M": lambda row: int(now_s) - int(row.step.start_s),
        "u": lambda row: user_name(row.job.uid), "U": lambda row: row.job.uid}
    notes = ""
    for letter, reverse in letters_of(DEFAULT_SORT if text is None else text):
        if letter in keys:
            rows.sort(key=keys[letter], reverse=reverse)
        elif letter == "b":
            notes += "squeue: Invalid sort specification: b\n"
    return notes


def step_fields(shown: Shown) -> tuple[ListField[StepRow], ...]:
    """All fields, in the order of --helpFormat."""
    def nothing(name: str, letter: str, header: str) -> ListField[StepRow]:
        return ListField(name, letter, header, lambda row: None, nullable=True)

    def step_id(row: StepRow) -> str:
        job = row.job
        if job.array_task_id is not None:
            return f"{job.array_job_id}_{job.array_task_id}.{row.step.step_id}"
        return f"{job.job_id}.{row.step.step_id}"

    def limit(row: StepRow, width: int) -> str:
        minutes = row.step.time_limit_min
        if minutes is None or minutes == UNLIMITED_MIN:
            return "UNLIMITED"[:width] if width > 0 else "UNLIMITED"
        return format_short(minutes * 60)

    def file(name: str, value: Callable[[StepRecord], str]) -> ListField[StepRow]:
        """What srun was given; the batch step's files are the job's."""
        return ListField(name, "", name.upper(), lambda row: "" if row.step.step_id == "batch" else value(row.step))

    def used(row: StepRow) -> str:
        return format_short(int(shown.now_s) - int(row.step.start_s))

    return (
        ListField("ArrayJobId", "", "ARRAY_JOB_ID", lambda row: str(row.job.array_job_id)),
        ListField("ArrayTaskId", "", "ARRAY_TASK_ID", lambda row: (
            "N/A" if row.job.array_task_id is None else str(row.job.array_task_id))),
        ListField("Cluster", "", "CLUSTER", lambda row: shown.cluster),
        ListField("Container", "", "CONTAINER", lambda row: row.step.container or None, nullable=True),
        nothing("ContainerId", "", "CONTAINERID"),
        ListField("CPUFreq", "", "CPU_FREQ", lambda row: (
            "0-0:0" if row.step.step_id in _NUMBERS else "Unknown-Unknown:Unknown")),
        nothing("cpus-per-tres", "", "CPUS_PER_TRES"),
        nothing("Gres", "", "TRES_PER_JOB"),
        ListField("JobId", "", "JOB_ID", lambda row: str(row.job.job_id)),
        nothing("mem-per-tres", "", "MEM_PER_TRES"),
        nothing("Network", "", "NETWORK"),
        ListField("Nodes", "N", "NODELIST", lambda row: joined(row.step.nodes), cut=False),
        ListField("NumCPUs", "", "NUM_CPUS", lambda row: "0" if row.step.step_id in _NUMBERS else str(row.step.cpus)),
        ListField("NumTasks", "A", "TASKS", lambda row: str(
            len(row.step.nodes) if row.step.step_id == "extern" else row.step.num_tasks)),
        ListField("Partition", "P", "PARTITION", lambda row: row.job.partition),
        nothing("ResvPorts", "", "RESERVED_PORTS"),
        ListField("StartTime", "S", "START_TIME", lambda row: shown.time(row.step.start_s)),
        file("StdErr", lambda step: step.std_err), file("StdIn", lambda step: step.std_in),
        file("StdOut", lambda step: step.std_out),
        ListField("StepId", "i", "STEPID", step_id),
        ListField("StepName", "j", "NAME", lambda row: row.step.name),
        ListField("StepState", "", "STATE", lambda row: row.step.state),
        ListField("TimeLimit", "l", "TIME_LIMIT", lambda row: limit(row, 0), cut=False, sized=limit),
        ListField("TimeUsed", "M", "TIME", used, cut=False),
        nothing("tres-bind", "", "TRES_BIND"),
        nothing("tres-freq", "", "TRES_FREQ"),
        nothing("tres-per-job", "", "TRES_PER_STEP"),
        nothing("tres-per-node", "b", "TRES_PER_JOB"),
        nothing("tres-per-socket", "", "TRES_PER_SOCKET"),
        nothing("tres-per-step", "", "TRES_PER_STEP"),
        ListField("tres-per-task", "", "TRES_PER_TASK", lambda row: (
            None if row.step.step_id in _NUMBERS else row.job.request.tres_per_task), nullable=True),
        ListField("UserId", "U", "UID", lambda row: str(row.job.uid)),
        ListField("UserName", "u", "USER", lambda row: row.job.user_name or user_name(row.job.uid)),
    )
