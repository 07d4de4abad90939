"""One line of squeue: a job, or a job in one of its partitions, or pending array tasks together or one by one."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from slurmbridge.commands.common import array_tasks_text
from slurmbridge.slurm import array
from slurmbridge.slurm.jobspec import UNLIMITED_MIN, JobRequest
from slurmbridge.slurm.memory import leading_int
from slurmbridge.slurm.states import COMPLETING, PENDING, RUNNING, STAGE_OUT, SUSPENDED
from slurmbridge.views.records import JobRecord, PartitionRecord

_LONGEST = (1 << 63) - 1
ID_ROOM = 31
"""Bytes of an array's id that squeue shows when SLURM_BITSTR_LEN is not set."""
FLAG_STATES = ("COMPLETING", "CONFIGURING", "EXPEDITING", "RESIZING", "RESV_DEL_HOLD", "REQUEUED", "REQUEUE_FED",
               "REQUEUE_HOLD", "REVOKED", "SIGNALING", "SPECIAL_EXIT", "STAGE_OUT", "STOPPED")
STATE_FLAGS = frozenset(FLAG_STATES)
_NOTHING = JobRequest(batch=False, work_dir="")
_IN_QUEUE = frozenset({PENDING, RUNNING, SUSPENDED})
_USUAL = frozenset({PENDING, RUNNING})


@dataclass(slots=True)
class Row:
    """``array_text``: pending tasks shown together; ``task_id``: the one task that this is."""

    job: JobRecord
    partition: str
    priority: int
    tier: int = 0                             # PriorityTier of ``partition``; only -P sorts by it
    array_text: str | None = None
    array_bits: int = 0
    task_id: int | None = None
    reason: str = ""                          # "" = the job's own


@dataclass(frozen=True, slots=True)
class WantedJob:
    """One word of -j or -s."""

    job_id: int
    task_id: int | None = None
    step: int | None = None


@dataclass(frozen=True, slots=True)
class ArrayTexts:
    """How pending tasks are written. ``length``: SLURM_BITSTR_LEN; ``whole``: it was set, so ids are never cut."""

    length: int
    whole: bool

    @classmethod
    def of(cls, env: Mapping[str, str]) -> ArrayTexts:
        return cls(array.text_length(env.get("SLURM_BITSTR_LEN")), "SLURM_BITSTR_LEN" in env)

    def bits(self, bits: int) -> str:
        """Tasks without the limit on how many run at once."""
        text = array.ranges(tasks_of(bits))
        return text[:self.length - 1] if self.length else text


def tasks_of(bits: int) -> list[int]:
    """The numbers of the bits that are set."""
    return [task for task in range(bits.bit_length()) if bits >> task & 1]


def creation_order(jobs: Sequence[JobRecord]) -> Sequence[JobRecord]:
    """Jobs as slurmctld keeps them, which decides between lines that sort as equal.

    ``jobs`` come by id. When a task starts, it takes its array's place, and what is left of the array goes to the end.
    """
    arrays: dict[int, list[int]] = {}
    for job in jobs:
        if job.array_job_id and job.job_id != job.array_job_id:
            arrays.setdefault(job.array_job_id, [job.array_job_id]).append(job.job_id)
    if not arrays:
        return jobs
    places: dict[int, int] = {}
    for own, ids in arrays.items():
        places.update(zip(ids[1:], ids, strict=False))
        places[own] = ids[-1]
    return sorted(jobs, key=lambda job: places.get(job.job_id, job.job_id))


def start_of(job: JobRecord, now_s: float) -> float:
    """When it started, or may start (never in the past); 0 when nothing is known."""
    if job.state != PENDING:
        return job.start_s or 0
    if job.start_s:
        return max(job.start_s, now_s)
    begin = max(job.request.begin_s or 0, job.eligible_s or 0)
    return begin if begin > now_s else 0


def end_of(job: JobRecord, now_s: float) -> float:
    """When it ended or will by its time limit; 0 when nothing is known."""
    start, limit = start_of(job, now_s), job.time_limit_min
    if (job.state != PENDING and job.end_s) or job.state not in _IN_QUEUE or not start or limit is None:
        return job.end_s or 0
    return max(job.end_s or 0, start + limit * 60)


def time_used(job: JobRecord, now_s: float) -> int:
    """Seconds it ran so far, without the time it was suspended."""
    if not job.start_s or job.state == PENDING:
        return 0
    if job.state == SUSPENDED:
        return int(job.pre_suspend_s)
    end = now_s if job.state == RUNNING or not job.end_s else job.end_s
    if job.suspend_s:
        return int(end) - int(job.suspend_s) + int(job.pre_suspend_s)
    return int(end) - int(job.start_s)


def time_left(job: JobRecord, now_s: float) -> int | None:
    """Seconds to the time limit; None without a limit."""
    if job.time_limit_min is None or job.time_limit_min == UNLIMITED_MIN:
        return None
    return job.time_limit_min * 60 - time_used(job, now_s)


def state_word(job: JobRecord) -> str:
    """The one word squeue shows."""
    return job.shown_state if job.flags else job.state


def in_queue(job: JobRecord) -> bool:
    """Whether squeue shows it when no states are named."""
    return job.state in _IN_QUEUE or COMPLETING in job.flags or STAGE_OUT in job.flags


def is_in_state(job: JobRecord, state: str) -> bool:
    """-t: a flag matches whatever the base state is, a base state only without flags."""
    if state in STATE_FLAGS:
        return state in job.flags
    return job.state == state and not job.flags & STATE_FLAGS


def wanted_bits(job: JobRecord, wanted: Sequence[WantedJob]) -> int:
    """Which pending tasks of a record -j asks for: 0 = not this record, -1 = all of it."""
    own, bits = job.array_job_id or 0, job.array_pending or 0
    for entry in wanted:
        if entry.task_id is None:
            if entry.job_id in (job.job_id, own, job.het_job_id) and entry.job_id:
                return -1
        elif entry.job_id == own and own:
            if job.array_task_id == entry.task_id:
                return -1
            if bits >> entry.task_id & 1:
                picked = 0
                for other in wanted:
                    if other.job_id == own and other.task_id is not None:
                        picked |= 1 << other.task_id
                return bits & picked
    return 0


def make_row(job: JobRecord, picked: int, texts: ArrayTexts, *, plain: bool = False) -> Row:
    """``picked``: -1 = the whole record, else the bits of its pending tasks that were asked for.

    ``plain``: the tasks in full, without the limit on how many run at once.
    """
    priority = job.priority if job.state in _USUAL else job.shown_priority
    row = Row(job, job.partition, priority, 0, None, 0, job.array_task_id)
    if not job.array_pending:
        return row
    row.array_bits = job.array_pending
    if picked < 0:
        row.array_text = array.ranges(tasks_of(row.array_bits)) if plain else array_tasks_text(job, texts.length)
        return row
    row.array_bits = picked
    tasks = tasks_of(picked)
    if len(tasks) == 1:
        row.task_id = tasks[0]
    else:
        row.array_text = array.ranges(tasks)
    return row


def state_alone(job: JobRecord) -> JobRecord:
    """All that --only-job-state is told of a job."""
    return JobRecord(job.job_id, _NOTHING, array_job_id=job.array_job_id, array_task_id=job.array_task_id,
                     array_pending=job.array_pending, het_job_id=job.het_job_id, het_offset=job.het_offset,
                     state=job.state, flags=job.flags, num_nodes="0", num_cpus=0, num_tasks=0, min_cpus_node=0,
                     oversubscribe="NO", user_name="root", group_name="root", time_limit_min=0)


def per_partition(row: Row, partitions: Mapping[str, PartitionRecord], shown: Callable[[str], bool]) -> list[Row]:
    """-P: one line for each partition that the job may run in."""
    job = row.job
    priorities = job.partition_priorities if job.state == PENDING else {}
    rows = []
    for name in list(priorities) or job.partition.split(","):
        if not shown(name):
            continue
        tier = partitions[name].priority_tier if name in partitions else 1
        rows.append(Row(job, name, priorities.get(name) or row.priority, tier, row.array_text, row.array_bits,
                        row.task_id))
    return rows


def combine_pending(rows: list[Row], texts: ArrayTexts) -> list[Row]:
    """Pending tasks that became records of their own go back into their array's line, if they still look like it."""
    lines = {(row.job.array_job_id, row.job.name, row.partition): row for row in rows
             if row.array_text is not None and row.job.state == PENDING}
    if not lines:
        return rows
    kept, grown = [], set()
    for row in rows:
        job = row.job
        line = None
        if job.array_job_id and row.task_id is not None and row.array_text is None and job.state == PENDING:
            line = lines.get((job.array_job_id, job.name, row.partition))
        if line is None or row.task_id is None:
            kept.append(row)
            continue
        line.array_bits |= 1 << row.task_id
        grown.add(id(line))
        own, other = reason_of(line), job.reason
        if line.job.reason != other and other not in own:
            line.reason = f"{own},{other}"
    for line in lines.values():
        if id(line) in grown:
            line.array_text = texts.bits(line.array_bits)
    return kept


def one_by_one(rows: list[Row]) -> list[Row]:
    """-r: a line for each pending task."""
    result = []
    for row in rows:
        if row.array_text is None:
            result.append(row)
            continue
        result += [Row(row.job, row.partition, row.priority, row.tier, None, row.array_bits, task, row.reason)
                   for task in tasks_of(row.array_bits)]
    return result


def reason_of(row: Row) -> str:
    """Why it waits or how it ended, in Slurm's words."""
    return row.reason or row.job.reason_desc or row.job.reason


def id_text(row: Row) -> str:
    """``12``, ``12_3``, ``12_[4-9%2]``, ``12+1``."""
    job = row.job
    if not job.array_job_id and not job.het_job_id:
        return str(job.job_id)
    if row.array_text is not None:
        return f"{job.array_job_id}_[{row.array_text}]"
    if row.task_id is not None:
        return f"{job.array_job_id}_{row.task_id}"
    if job.het_job_id:
        return f"{job.het_job_id}+{job.het_offset}"
    return str(job.job_id)


def parse_wanted(text: str) -> tuple[list[WantedJob], str]:
    """-j's list, and the first word that is no job id ("" = all are). What follows the number is passed over."""
    wanted: list[WantedJob] = []
    for word in filter(None, text.split(",")):
        number, rest = leading_int(word) or (0, word)
        number = (min(number, _LONGEST) + 0x80000000) % 0x100000000 - 0x80000000      # what an int makes of a long
        task = None
        if rest.startswith("_"):
            task = (leading_int(rest[1:]) or (0, ""))[0]
        if number <= 0:
            return wanted, word
        wanted.append(WantedJob(number, task))
    return wanted, ""
