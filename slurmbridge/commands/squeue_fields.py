"""Everything that squeue can show of a job: the letters of ``-o`` and the names of ``-O`` (squeue(1)).

Each field's text is a function of a ``Row``; what the caller's invocation changes about it (time zone, units) is in
``Shown``. Absent texts are printed as C prints a null pointer, because scripts look for ``(null)``.
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter

from slurmbridge.commands.common import user_name
from slurmbridge.commands.scontrol_job import first_amount, qos_text
from slurmbridge.commands.squeue_rows import (
    ID_ROOM,
    Row,
    end_of,
    id_text,
    reason_of,
    start_of,
    state_word,
    time_left,
    time_used,
)
from slurmbridge.slurm import array, exitcodes, hostlist
from slurmbridge.slurm.durations import format_short
from slurmbridge.slurm.format import ListField, cut_bytes
from slurmbridge.slurm.jobspec import UNLIMITED_MIN
from slurmbridge.slurm.memory import with_unit
from slurmbridge.slurm.states import COMPACT, COMPLETING, DEADLINE, FAILED, OUT_OF_MEMORY, PENDING, STAGE_OUT, TIMEOUT
from slurmbridge.slurm.tres import format_counts
from slurmbridge.views.records import JobRecord, Tres

HIGHEST = 0xFFFFFFFF
NO_NUMBER = 0xFFFFFFFE
ANY_TASKS_PER_CORE = 0xFFFF
HIDDEN = frozenset({"Gres", "PackJobId", "PackJobIdSet", "PackJobOffset", "Shared", "Tres", "tres-per-node"})
"""Older names: accepted, but not listed by --helpFormat."""
WHOLE_HEADERS = frozenset({"NodeList", "Nodes", "ReasonList", "SchedNodes"})
"""Fields whose header, too, runs over its width."""
_NAMES_REASON = frozenset({PENDING, TIMEOUT, OUT_OF_MEMORY, DEADLINE, FAILED})


@dataclass(frozen=True, slots=True)
class Shown:
    """What the invocation says about how values are written."""

    now_s: float
    time: Callable[[float], str]
    keep_units: bool                          # --noconvert
    expand: bool                              # --expand-patterns
    whole_ids: bool                           # SLURM_BITSTR_LEN is set: ids of arrays are never cut
    cluster: str
    tres_order: Mapping[str, int]
    longest_min: Mapping[str, int | None]     # MaxTime of each partition


@functools.lru_cache(maxsize=1024)
def sorted_nodes(text: str) -> str:
    """A node list as squeue prints it: sorted, each node once."""
    try:
        return hostlist.compress(hostlist.expand(text), unique=True)
    except hostlist.HostlistError:
        return text


@functools.lru_cache(maxsize=4096)
def joined(nodes: tuple[str, ...]) -> str:
    return hostlist.compress(nodes, unique=True)


def compact_state(row: Row) -> str:
    job = row.job
    return COMPACT[job.shown_state if job.flags else job.state]


def is_about_reason(job: JobRecord) -> bool:
    """Whether NODELIST(REASON) shows the reason."""
    if not job.flags:
        return job.state in _NAMES_REASON
    return COMPLETING not in job.flags and (job.state in _NAMES_REASON or STAGE_OUT in job.flags)


@functools.lru_cache(maxsize=1024)
def _least(nodes: str) -> int:
    return int(nodes.split("-")[0])


def node_count(job: JobRecord) -> int:
    return len(job.nodes) or _least(job.num_nodes)


def job_fields(shown: Shown) -> tuple[ListField[Row], ...]:
    """All fields, in the order of --helpFormat; the first of two that share a letter or a name counts."""
    now_s = shown.now_s
    time_texts: dict[float, str] = {}

    def time(value: float | None) -> str:
        if not value:
            return "N/A"
        text = time_texts.get(value)
        if text is None:
            text = time_texts[value] = shown.time(value)
        return text

    def units(value: float | None, unit: str = "") -> str:
        return with_unit(value or 0, unit, keep=shown.keep_units)

    def star(value: int | None) -> str:
        return "*" if value is None else units(value)

    def tres(counts: Tres) -> str:
        return format_counts(counts, shown.tres_order)

    def job_id(row: Row, width: int) -> str:
        text = id_text(row)
        if row.array_text is not None:
            if shown.whole_ids:
                return text
            text = text[:ID_ROOM]
        return text[:width] if width > 0 else text

    def reason_list(row: Row, width: int) -> str:
        if not is_about_reason(row.job):
            return joined(row.job.nodes)
        text = f"({row.reason or row.job.reason_desc or row.job.reason})"
        return cut_bytes(text, width) if width > 0 else text

    def longest(job: JobRecord) -> int:
        if job.time_limit_min is not None:
            return job.time_limit_min
        minutes = shown.longest_min.get(job.partition.partition(",")[0])
        return UNLIMITED_MIN if minutes is None else minutes

    def limit(row: Row) -> str:
        minutes = longest(row.job)
        return "UNLIMITED" if minutes == UNLIMITED_MIN else format_short(minutes * 60)

    def left(row: Row) -> str:
        seconds = time_left(row.job, now_s)
        if seconds is None:
            minutes = longest(row.job)
            return "UNLIMITED" if minutes == UNLIMITED_MIN else format_short(minutes * 60 - time_used(row.job, now_s))
        return format_short(seconds)

    def end(row: Row) -> str:
        value = end_of(row.job, now_s)
        return "NONE" if row.job.time_limit_min == UNLIMITED_MIN and value > now_s else time(value)

    def pending(row: Row) -> str:
        start, submit = start_of(row.job, now_s), int(row.job.submit_s)
        return str(int(start if start and start < now_s else now_s) - submit)

    def memory(row: Row) -> str:
        if row.job.request.mem_per_tres:
            return units(first_amount(row.job.request.mem_per_tres), "M")
        return units(row.job.mem_per_cpu_mb if row.job.mem_per_cpu_mb is not None else row.job.mem_per_node_mb, "M")

    def file(pattern: Callable[[JobRecord], str | None], path: Callable[[JobRecord], str],
             default: Callable[[JobRecord], str | None]) -> Callable[[Row], str | None]:
        def value(row: Row) -> str | None:
            given = pattern(row.job) or (default(row.job) if row.job.request.batch else None)
            return path(row.job) if shown.expand and given is not None else given
        return value

    def output(job: JobRecord) -> str:
        return "slurm-%A_%a.out" if job.array_job_id else "slurm-%j.out"

    def core_spec(row: Row) -> str:
        request = row.job.request
        if request.thread_spec is not None:
            return f"{request.thread_spec} Threads"
        return "N/A" if request.core_spec is None else str(request.core_spec)

    def het(value: Callable[[JobRecord], str]) -> Callable[[Row], str]:
        return lambda row: value(row.job) if row.job.het_job_id else "N/A"

    def count(value: Callable[[JobRecord], int | None], absent: str = "N/A") -> Callable[[Row], str]:
        def text(row: Row) -> str:
            number = value(row.job)
            return absent if number is None else str(number)
        return text

    def tasks_per_core(job: JobRecord) -> int | None:
        return None if job.request.ntasks_per_core == ANY_TASKS_PER_CORE else job.request.ntasks_per_core

    def plain(name: str, letter: str, header: str, value: Callable[[Row], str], *keys: str) -> ListField[Row]:
        return ListField(name, letter, header, value, key=attrgetter(*keys) if keys else None)

    def null(name: str, letter: str, header: str, value: Callable[[JobRecord], str | None], *keys: str,
             ) -> ListField[Row]:
        return ListField(name, letter, header, lambda row: value(row.job) or None, nullable=True,
                         key=attrgetter(*keys) if keys else None)

    def absent(name: str, header: str, value: Callable[[JobRecord], str | None]) -> ListField[Row]:
        return ListField(name, "", header, lambda row: value(row.job) or "N/A")

    def when(name: str, letter: str, header: str, value: Callable[[JobRecord], float | None]) -> ListField[Row]:
        return ListField(name, letter, header, lambda row: time(value(row.job)))

    def never(name: str, header: str) -> ListField[Row]:
        return ListField(name, "", header, lambda row: "NA")          # federations are not offered

    tres_per_node = functools.partial(ListField, header="TRES_PER_NODE",
                                      value=lambda row: row.job.request.tres_per_node or "N/A")
    tres_alloc = functools.partial(ListField, header="TRES_ALLOC", value=lambda row: tres(
        row.job.tres_alloc or row.job.tres_kept or row.job.tres_req) or "N/A")
    sharing = functools.partial(ListField, letter="h", header="OVER_SUBSCRIBE", value=lambda row: row.job.oversubscribe)
    het_id, het_set = het(lambda job: str(job.het_job_id)), het(lambda job: array.ranges(job.het_job_ids))
    het_offset = het(lambda job: str(job.het_offset))
    cpus_per_task = count(lambda job: job.cpus_per_task)

    return (
        null("Account", "a", "ACCOUNT", lambda job: job.account, "job.account"),
        when("AccrueTime", "", "ACCRUE_TIME", lambda job: job.accrue_s),
        null("admin_comment", "", "ADMIN_COMMENT", lambda job: job.admin_comment),
        null("AllocNodes", "", "ALLOC_NODES", lambda job: job.alloc_node),
        plain("AllocSID", "", "ALLOC_SID", lambda row: str(row.job.alloc_sid)),
        plain("ArrayJobId", "F", "ARRAY_JOB_ID", lambda row: str(row.job.array_job_id or row.job.job_id)),
        plain("ArrayTaskId", "K", "ARRAY_TASK_ID", lambda row: row.array_text if row.array_text is not None else
              "N/A" if row.task_id is None else str(row.task_id)),
        plain("AssocId", "", "ASSOC_ID", lambda row: str(row.job.assoc_id)),
        plain("BatchFlag", "", "BATCH_FLAG", lambda row: str(int(row.job.request.batch))),
        plain("BatchHost", "B", "EXEC_HOST", lambda row: (
            row.job.batch_host if row.job.request.batch else row.job.alloc_node) or "n/a"),
        plain("BoardsPerNode", "", "BOARDS_PER_NODE", lambda row: "0"),
        ListField("BurstBuffer", "", "BURST_BUFFER", lambda row: row.job.request.burst_buffer, nullable=True),
        null("BurstBufferState", "", "BURST_BUFFER_STATE", lambda job: None),
        plain("Cluster", "", "CLUSTER", lambda row: shown.cluster),
        null("ClusterFeature", "", "CLUSTER_FEATURES", lambda job: job.request.cluster_constraint),
        null("Command", "o", "COMMAND", lambda job: job.request.command),
        ListField("Comment", "k", "COMMENT", lambda row: row.job.comment or (row.job.request.comment and None),
                  nullable=True),
        null("Container", "", "CONTAINER", lambda job: job.request.container),
        null("ContainerId", "", "CONTAINERID", lambda job: job.request.container_id),
        plain("Contiguous", "O", "CONTIGUOUS", lambda row: str(int(row.job.request.contiguous))),
        plain("Cores", "I", "CORES_PER_SOCKET", lambda row: star(row.job.request.cores_per_socket)),
        plain("CoreSpec", "X", "CORE_SPEC", core_spec),
        plain("CPUsPerTask", "", "CPUS_PER_TASK", cpus_per_task),
        plain("cpus-per-task", "", "CPUS_PER_TASK", cpus_per_task),
        absent("cpus-per-tres", "CPUS_PER_TRES", lambda job: job.request.cpus_per_tres),
        plain("CronJob", "", "CRON_JOB", lambda row: "No"),
        when("Deadline", "", "DEADLINE", lambda job: job.deadline_s),
        plain("DelayBoot", "", "DELAY_BOOT", lambda row: format_short(row.job.request.delay_boot_s or 0)),
        null("Dependency", "E", "DEPENDENCY", lambda job: job.dependency),
        plain("DerivedEC", "", "DERIVED_EC", lambda row: exitcodes.text(row.job.derived_exit_status)),
        when("EligibleTime", "", "ELIGIBLE_TIME", lambda job: job.eligible_s),
        plain("EndTime", "e", "END_TIME", end),
        ListField("ExcNodes", "x", "EXC_NODES", lambda row: sorted_nodes(row.job.request.exclude or ""), cut=False),
        plain("exit_code", "", "EXIT_CODE", lambda row: exitcodes.text(row.job.exit_status or row.job.script_status)),
        null("Feature", "f", "FEATURES", lambda job: job.request.constraint),
        tres_per_node("Gres", "b"),
        plain("GroupId", "G", "GROUP", lambda row: str(row.job.gid)),
        plain("GroupName", "g", "GROUP", lambda row: row.job.group_name),
        plain("HetJobId", "", "HET_JOB_ID", het_id),
        plain("HetJobIdSet", "", "HET_JOB_ID_SET", het_set),
        plain("HetJobOffset", "", "HET_JOB_OFFSET", het_offset),
        ListField("JobArrayId", "i", "JOBID", id_text, cut=False, sized=job_id),
        plain("JobId", "A", "JOBID", lambda row: str(row.job.job_id)),
        when("LastSchedEval", "", "LAST_SCHED_EVAL", lambda job: job.last_sched_eval_s),
        null("Licenses", "W", "LICENSES", lambda job: job.request.licenses),
        null("LicensesAlloc", "", "LICENSES_ALLOC", lambda job: job.licenses_alloc),
        plain("MaxCPUs", "", "MAX_CPUS", lambda row: str(row.job.num_cpus)),
        plain("MaxNodes", "", "MAX_NODES", lambda row: str(row.job.max_nodes or node_count(row.job))),
        absent("mem-per-tres", "MEM_PER_TRES", lambda job: job.request.mem_per_tres),
        null("MCSLabel", "", "MCSLABEL", lambda job: job.request.mcs_label),
        plain("MinCPUs", "c", "MIN_CPUS", lambda row: units(row.job.min_cpus_node)),
        plain("MinMemory", "m", "MIN_MEMORY", memory),
        plain("MinTime", "", "TIME_MIN", lambda row: format_short((row.job.time_min_min or 0) * 60)),
        plain("MinTmpDisk", "d", "MIN_TMP_DISK", lambda row: units(row.job.request.tmp_disk_mb, "M")),
        null("Name", "j", "NAME", lambda job: job.name, "job.name"),
        null("Network", "", "NETWORK", lambda job: job.request.network),
        plain("Nice", "y", "NICE", lambda row: str(row.job.nice)),
        ListField("NodeList", "N", "NODELIST", lambda row: joined(row.job.nodes), cut=False),
        plain("NTPerCore", "", "NTASKS_PER_CORE", count(tasks_per_core)),
        plain("NTPerNode", "", "NTASKS_PER_NODE", count(lambda job: job.request.ntasks_per_node, "0")),
        plain("NTPerSocket", "", "NTASKS_PER_SOCKET", count(lambda job: job.request.ntasks_per_socket)),
        plain("NTPerBoard", "", "NTASKS_PER_BOARD", count(lambda job: job.request.ntasks_per_board, "0")),
        plain("NumCPUs", "C", "CPUS", lambda row: str(row.job.num_cpus)),
        plain("NumNodes", "D", "NODES", lambda row: str(node_count(row.job))),
        plain("NumTasks", "", "TASKS", lambda row: str(row.job.num_tasks or NO_NUMBER)),
        never("Origin", "ORIGIN"),
        never("OriginRaw", "ORIGIN_RAW"),
        sharing("OverSubscribe"),
        plain("PackJobId", "", "HET_JOB_ID", het_id),
        plain("PackJobIdSet", "", "HET_JOB_ID_SET", het_set),
        plain("PackJobOffset", "", "HET_JOB_OFFSET", het_offset),
        ListField("Partition", "P", "PARTITION", lambda row: row.partition or None, nullable=True,
                  key=attrgetter("partition")),
        plain("PendingTime", "", "PENDING_TIME", pending),
        when("PreemptTime", "", "PREEMPT_TIME", lambda job: job.preempt_s),
        null("Prefer", "", "PREFER", lambda job: job.request.prefer),
        plain("Priority", "p", "PRIORITY", lambda row: f"{row.priority / HIGHEST:16.14f}"),
        plain("PriorityLong", "Q", "PRIORITY", lambda row: str(row.priority)),
        plain("Profile", "", "PROFILE", lambda row: row.job.request.profile or "NotSet"),
        plain("QOS", "q", "QOS", lambda row: qos_text(row.job)),
        plain("Reason", "r", "REASON", reason_of),
        ListField("ReasonList", "R", "NODELIST(REASON)", lambda row: reason_list(row, 0), cut=False, sized=reason_list),
        plain("Reboot", "", "REBOOT", lambda row: str(int(row.job.request.reboot))),
        ListField("ReqNodes", "n", "REQ_NODES", lambda row: sorted_nodes(row.job.request.node_list or ""), cut=False),
        plain("ReqSwitch", "", "REQ_SWITCH", lambda row: str(row.job.request.switches or 0)),
        plain("Requeue", "", "REQUEUE", lambda row: str(int(row.job.requeue))),
        null("Reservation", "v", "RESERVATION", lambda job: job.request.reservation),
        plain("ResizeTime", "", "RESIZE_TIME", lambda row: "N/A"),
        plain("RestartCnt", "", "RESTART_COUNT", lambda row: str(row.job.restarts)),
        ListField("SchedNodes", "Y", "SCHEDNODES", lambda row: row.job.sched_nodes or None, cut=False, nullable=True),
        plain("SCT", "z", "S:C:T", lambda row: ":".join(star(value) for value in (
            row.job.request.sockets_per_node, row.job.request.cores_per_socket, row.job.request.threads_per_core))),
        plain("SegmentSize", "", "SEGMENT_SIZE", lambda row: str(row.job.request.segment_size or "N/A")),
        never("SiblingsActive", "ACTIVE_SIBLINGS"),
        never("SiblingsActiveRaw", "ACTIVE_SIBLINGS_RAW"),
        never("SiblingsViable", "VIABLE_SIBLINGS"),
        never("SiblingsViableRaw", "VIALBLE_SIBLINGS_RAW"),           # so spelt by Slurm
        sharing("Shared"),
        plain("SLUID", "s", "SLUID", lambda row: row.job.sluid),
        plain("Sockets", "H", "SOCKETS_PER_NODE", lambda row: star(row.job.request.sockets_per_node)),
        plain("SPerBoard", "", "SOCKETS_PER_BOARD", lambda row: "0"),
        plain("StartTime", "S", "START_TIME", lambda row: time(start_of(row.job, now_s))),
        plain("State", "T", "STATE", lambda row: state_word(row.job)),
        plain("StateCompact", "t", "ST", compact_state),
        ListField("StdErr", "", "STDERR", file(lambda job: job.request.std_err, lambda job: job.std_err,
                                               lambda job: None), nullable=True),
        ListField("StdIn", "", "STDIN", file(lambda job: job.request.std_in, lambda job: job.std_in,
                                             lambda job: "/dev/null"), nullable=True),
        ListField("StdOut", "", "STDOUT", file(lambda job: job.request.std_out, lambda job: job.std_out, output),
                  nullable=True),
        when("SubmitTime", "V", "SUBMIT_TIME", lambda job: job.submit_s),
        null("system_comment", "", "SYSTEM_COMMENT", lambda job: job.system_comment),
        plain("Threads", "J", "THREADS_PER_CORE", lambda row: star(row.job.request.threads_per_core)),
        ListField("TimeLeft", "L", "TIME_LEFT", left, cut=False),
        ListField("TimeLimit", "l", "TIME_LIMIT", limit, cut=False,
                  key=attrgetter("job.time_limit_min", "job.partition")),
        ListField("TimeUsed", "M", "TIME", lambda row: format_short(time_used(row.job, now_s)), cut=False,
                  key=lambda row: time_used(row.job, now_s)),
        tres_alloc("Tres", ""),
        tres_alloc("tres-alloc", ""),
        absent("tres-bind", "TRES_BIND", lambda job: job.request.tres_bind),
        absent("tres-freq", "TRES_FREQ", lambda job: job.request.tres_freq),
        absent("tres-per-job", "TRES_PER_JOB", lambda job: job.request.tres_per_job),
        tres_per_node("tres-per-node", ""),
        absent("tres-per-socket", "TRES_PER_SOCKET", lambda job: job.request.tres_per_socket),
        absent("tres-per-task", "TRES_PER_TASK", lambda job: job.request.tres_per_task),
        plain("UserId", "U", "UID", lambda row: str(row.job.uid)),
        plain("UserName", "u", "USER", lambda row: row.job.user_name or user_name(row.job.uid),
              "job.user_name", "job.uid"),
        plain("Wait4Switch", "", "WAIT4SWITCH", lambda row: format_short(row.job.request.switches_wait_s or 0)),
        null("WCKey", "w", "WCKEY", lambda job: job.wckey),
        null("WorkDir", "Z", "WORK_DIR", lambda job: job.request.work_dir),
    )
