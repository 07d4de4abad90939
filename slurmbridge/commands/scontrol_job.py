"""``scontrol show job``: one record as its lines, every field of 25.11 in its place. (scontrol(1), SHOW JOB.)"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from slurmbridge.commands.common import array_tasks_text, group_name, user_name
from slurmbridge.slurm import array, memory, states, tres
from slurmbridge.slurm.durations import format_minutes, format_seconds
from slurmbridge.slurm.hostlist import compress
from slurmbridge.slurm.jobspec import UNLIMITED_MIN, JobRequest
from slurmbridge.slurm.memory import with_unit
from slurmbridge.views.records import JobRecord, NodeAllocation
from slurmbridge.views.session import Views

_STARTED = states.FINISHED | {states.RUNNING, states.SUSPENDED}
_DEFAULT_SWITCH_WAIT_S = 300


@dataclass(frozen=True, slots=True)
class Style:
    """How records are written: -o, -d, and the caller's times."""

    now_s: float
    show_time: Callable[[float], str]
    one_line: bool = False
    details: bool = False
    array_text_length: int = array.DEFAULT_TEXT_LENGTH

    def time(self, epoch_s: float | None) -> str:
        return self.show_time(epoch_s or 0)

    def record(self, lines: list[str]) -> str:
        """One record's text with its end."""
        text = (" " if self.one_line else "\n   ").join(lines).strip(" \t\n\v\f\r")
        return text + ("\n" if self.one_line else "\n\n")


def null(text: object) -> str:
    """``(null)`` for what is not set, as C prints it."""
    return "(null)" if text is None or text == "" else str(text)


def yes(text: str) -> bool:
    """Whether a switch of slurm.conf is on."""
    return text.lower() in ("yes", "up", "true", "1")


def exit_code(status: int) -> str:
    """``code:signal`` of a wait status."""
    signal = status & 0x7F
    return f"0:{signal}" if signal and signal != 0x7F else f"{status >> 8 & 0xFF}:0"


def run_time_s(job: JobRecord, now_s: float) -> float:
    """Seconds it has run, without the time it was suspended."""
    if job.state == states.PENDING or not job.start_s:
        return 0
    if job.state == states.SUSPENDED:
        return job.pre_suspend_s
    end = now_s if job.state == states.RUNNING or not job.end_s else job.end_s
    if job.suspend_s:
        return end - job.suspend_s + job.pre_suspend_s
    return end - job.start_s


def start_end_s(job: JobRecord, now_s: float, limit_min: int | None) -> tuple[float, float]:
    """(start, end): what was, or what is expected with this time limit; 0 = unknown."""
    if job.state in _STARTED:
        return job.start_s or 0, job.end_s or _limit_end_s(job)
    start = max(job.start_s, now_s) if job.start_s else 0
    begin = job.request.begin_s or 0
    if not start and begin > now_s:
        start = begin
    if not start or limit_min is None:
        return start, 0
    return start, max(job.end_s or 0, start + limit_min * 60)


def _limit_end_s(job: JobRecord) -> float:
    if job.time_limit_min is None or not job.start_s:
        return 0
    return job.start_s + job.pre_suspend_s + job.time_limit_min * 60


class JobLines:
    """The lines of one job record."""

    def __init__(self, job: JobRecord, views: Views, style: Style, task_id: int | None = None) -> None:
        self.job, self.request, self.views, self.style = job, job.request, views, style
        self.task_id = task_id                # one task asked for of a pending array
        self.order = tres.order_key(views.conf.accounting_storage_tres)

    def lines(self) -> list[str]:
        found = [*self._identity(), *self._state(), *self._times(), *self._place(), *self._size(), *self._needs(),
                 *self._texts(), *self._options(), *self._requests()]
        return found

    # ---------------------------------------------------------------------------------------------- who and what

    def _identity(self) -> Iterator[str]:
        job = self.job
        first = f"JobId={job.job_id} "
        if job.array_job_id:
            first += f"ArrayJobId={job.array_job_id} ArrayTaskId={self._tasks()} "
            if job.array_max_running:
                first += f"ArrayTaskThrottle={job.array_max_running} "
        elif job.het_job_id:
            first += f"HetJobId={job.het_job_id} HetJobOffset={job.het_offset} "
        yield f"{first}JobName={job.name}"
        if self.style.details and job.sluid:
            yield f"SLUID={job.sluid}"
        if job.het_job_ids:
            yield f"HetJobIdSet={array.ranges(job.het_job_ids)}"
        yield (f"UserId={job.user_name or user_name(job.uid)}({job.uid}) "
               f"GroupId={job.group_name or group_name(job.gid)}({job.gid}) "
               f"MCS_label={'N/A' if self.request.mcs_label is None else self.request.mcs_label}")
        wckey = f" WCKey={null(job.wckey)}" if self._tracks_wckey() else ""
        yield f"Priority={job.shown_priority} Nice={job.nice} Account={null(job.account)} QOS={qos_text(job)}{wckey}"

    def _tasks(self) -> str:
        if self.task_id is not None:
            return str(self.task_id)
        if self.job.array_task_id is not None:
            return str(self.job.array_task_id)
        return array_tasks_text(self.job, self.style.array_text_length)

    def _tracks_wckey(self) -> bool:
        return self.views.conf.tracks_wckeys

    def _state(self) -> Iterator[str]:
        job = self.job
        reason = "_".join(job.reason_desc.split()) if job.reason_desc else job.reason
        failed = f"FailedNode={job.failed_node} " if job.failed_node else ""
        yield f"JobState={job.shown_state} Reason={reason} {failed}Dependency={null(job.dependency)}"
        yield (f"Requeue={int(job.requeue)} Restarts={job.restarts} BatchFlag={int(self.request.batch)} "
               f"Reboot={int(self.request.reboot)} ExitCode={exit_code(job.exit_status or job.script_status)}")
        if self.style.details:
            yield f"DerivedExitCode={exit_code(job.derived_exit_status)}"

    def _times(self) -> Iterator[str]:
        job, style = self.job, self.style
        limit = self._time_limit_min()
        least = "N/A" if not job.time_min_min else format_minutes(job.time_min_min)
        yield (f"RunTime={format_seconds(int(run_time_s(job, style.now_s)))} "
               f"TimeLimit={'Partition_Limit' if limit is None else format_minutes(limit)} TimeMin={least}")
        yield f"SubmitTime={style.time(job.submit_s)} EligibleTime={style.time(job.eligible_s)}"
        yield f"AccrueTime={style.time(job.accrue_s)}"
        start, end = start_end_s(job, style.now_s, limit)
        ends = "Unknown" if limit == UNLIMITED_MIN and end > style.now_s else style.time(end)
        deadline = style.time(job.deadline_s) if job.deadline_s else "N/A"
        yield f"StartTime={style.time(start)} EndTime={ends} Deadline={deadline}"
        eligible = self._preemptable_s()
        if eligible:
            yield (f"PreemptEligibleTime={style.time(eligible)} "
                   f"PreemptTime={style.time(job.preempt_s) if job.preempt_s else 'None'}")
        suspended = style.time(job.suspend_s) if job.suspend_s else "None"
        yield (f"SuspendTime={suspended} SecsPreSuspend={int(job.pre_suspend_s)} "
               f"LastSchedEval={style.time(job.last_sched_eval_s)} Scheduler={job.scheduler}")

    def _time_limit_min(self) -> int | None:
        if self.job.time_limit_min is not None:
            return self.job.time_limit_min
        partition = self.views.partitions.get(self.job.partition.split(",")[0])
        if partition is None:
            return None
        return UNLIMITED_MIN if partition.max_time_min is None else partition.max_time_min

    def _preemptable_s(self) -> float:
        """When a started job may be preempted; 0 where preemption is off."""
        job, conf = self.job, self.views.conf
        qos = self.views.accounting.qos.get(job.qos)
        mode = (qos.preempt_mode if qos else "") or conf.preempt_mode
        if job.state not in _STARTED or not job.start_s or "OFF" in (conf.preempt_mode, mode):
            return 0
        exempt = qos.preempt_exempt_time_s if qos and qos.preempt_exempt_time_s is not None else None
        return max(job.start_s, job.suspend_s or 0) + (conf.preempt_exempt_time_s if exempt is None else exempt)

    # --------------------------------------------------------------------------------------------- where and size

    def _place(self) -> Iterator[str]:
        job, request = self.job, self.request
        yield f"Partition={null(job.partition)} AllocNode:Sid={null(job.alloc_node)}:{job.alloc_sid}"
        yield f"ReqNodeList={null(request.node_list)} ExcNodeList={null(request.exclude)}"
        planned = f" SchedNodeList={job.sched_nodes}" if job.sched_nodes else ""
        yield f"NodeList={compress(job.nodes, sort=True)}{planned}"
        hosts = [f"BatchFeatures={request.batch_features}"] if request.batch_features else []
        hosts += [f"BatchHost={job.batch_host}"] if job.batch_host else []
        if hosts:
            yield " ".join(hosts)
        if request.stepmgr and not job.het_job_id:
            yield "StepMgrEnabled=Yes"

    def _size(self) -> Iterator[str]:
        job, request = self.job, self.request
        yield (f"NumNodes={self._nodes()} NumCPUs={job.num_cpus} "
               f"NumTasks={job.num_tasks or 'N/A'} "
               f"CPUs/Task={'N/A' if job.cpus_per_task is None else job.cpus_per_task} "
               f"ReqB:S:C:T=0:0:{_star(request.cores_per_socket)}:{_star(request.threads_per_core)}")
        yield f"ReqTRES={null(tres.format_counts(job.tres_req, self.order))}"
        yield f"AllocTRES={null(tres.format_counts(job.tres_alloc or job.tres_kept, self.order))}"
        yield (f"Socks/Node={_star(request.sockets_per_node)} NtasksPerN:B:S:C={request.ntasks_per_node or 0}:"
               f"{request.ntasks_per_board or 0}:{_star(request.ntasks_per_socket)}:{_star(request.ntasks_per_core)} "
               f"{self._core_spec()}")
        if self.style.details and job.allocation:
            yield from self._allocation()

    def _nodes(self) -> str:
        counts = self.request.node_counts
        if len(counts) > 1 and self.job.state == states.PENDING:
            return array.ranges(counts)
        return self.job.num_nodes

    def _core_spec(self) -> str:
        request = self.request
        if yes(self.views.conf.values.get("AllowSpecResourcesUsage", "no")):
            if request.core_spec is not None:
                return f"CoreSpec={request.core_spec}"
            if request.thread_spec is not None:
                return f"ThreadSpec={request.thread_spec}"
        return "CoreSpec=*"

    def _allocation(self) -> Iterator[str]:
        """-d: what the job has on each node; nodes with the same share one line."""
        total: dict[str, int] = {}
        for share in self.job.allocation:
            for name, indices in share.gres.items():
                total[name] = total.get(name, 0) + len(indices)
        yield f"JOB_GRES={null(','.join(f'{name}:{count}' for name, count in total.items()))}"
        groups: list[tuple[tuple[str, int, str], list[str]]] = []
        finished = self.job.state in states.FINISHED
        none = "(null)" if total else ""
        for share in self.job.allocation:
            key = (self._cpu_ids(share), share.mem_mb, "" if finished else gres_detail(share) or none)
            if not groups or groups[-1][0] != key:
                groups.append((key, []))
            groups[-1][1].append(share.node)
        indent = "" if self.style.one_line else "  "
        for (cpu_ids, memory_mb, gres), nodes in groups:
            yield f"{indent}Nodes={compress(nodes)} CPU_IDs={cpu_ids} Mem={memory_mb} GRES={gres}"

    def _cpu_ids(self, share: NodeAllocation) -> str:
        node = self.views.nodes.get(share.node)
        threads = node.threads_per_core if node else 1
        return array.ranges([core * threads + thread for core in share.cores for thread in range(threads)])

    def _needs(self) -> Iterator[str]:
        job, request = self.job, self.request
        if request.mem_per_tres:
            kind, memory_mb = "TRES", first_amount(request.mem_per_tres)
        elif job.mem_per_cpu_mb is not None:
            kind, memory_mb = "CPU", job.mem_per_cpu_mb
        else:
            kind, memory_mb = "Node", job.mem_per_node_mb or 0
        yield (f"MinCPUsNode={job.min_cpus_node} MinMemory{kind}={with_unit(memory_mb, 'M')} "
               f"MinTmpDiskNode={with_unit(request.tmp_disk_mb or 0, 'M')}")
        yield f"Features={null(request.constraint)} DelayBoot={format_seconds(request.delay_boot_s or 0)}"
        if request.cluster_constraint:
            yield f"ClusterFeatures={request.cluster_constraint}"
        if request.prefer and job.state == states.PENDING:
            yield f"Prefer={request.prefer}"
        if request.reservation:
            yield f"Reservation={request.reservation}"
        yield (f"OverSubscribe={job.oversubscribe} Contiguous={int(request.contiguous)} "
               f"Licenses={null(request.licenses)} LicensesAlloc={null(job.licenses_alloc)} "
               f"Network={null(request.network)}")

    # ------------------------------------------------------------------------------------------ texts and options

    def _texts(self) -> Iterator[str]:
        job, request = self.job, self.request
        yield f"Command={null(request.command)}"
        yield f"SubmitLine={null(request.submit_line)}"
        yield f"WorkDir={request.work_dir}"
        for label, text, given in (
                ("AdminComment", job.admin_comment, request.admin_comment),
                ("SystemComment", job.system_comment, None), ("Comment", job.comment, request.comment),
                ("Extra", request.extra, request.extra)):
            if text or given == "":
                yield f"{label}={text}"
        if request.batch:
            yield f"StdErr={job.std_err}"
            yield f"StdIn={job.std_in}"
            yield f"StdOut={job.std_out}"

    def _options(self) -> Iterator[str]:
        request = self.request
        if request.segment_size:
            yield f"SegmentSize={request.segment_size}"
        if request.switches:
            wait = self._switch_wait_s()
            yield f"Switches={request.switches}@{format_seconds(wait)}"
        if request.burst_buffer is not None:
            yield f"BurstBuffer={request.burst_buffer}"
        frequency = cpu_frequency(request)
        if frequency:
            yield frequency
        words = list(_flag_words(request))
        if words:
            yield " ".join(words)
        if request.oom_kill_step is not None:
            yield f"OOMKillStep={int(request.oom_kill_step)}"

    def _switch_wait_s(self) -> int:
        given = self.request.switches_wait_s
        if given is not None:
            return given
        text = self.views.conf.scheduler_parameters.get("max_switch_wait", "")
        return int(text) if text.isdigit() else _DEFAULT_SWITCH_WAIT_S

    def _requests(self) -> Iterator[str]:
        job, request = self.job, self.request
        for label, text in (
                ("CpusPerTres", request.cpus_per_tres), ("MemPerTres", request.mem_per_tres),
                ("TresBind", request.tres_bind), ("TresFreq", request.tres_freq), ("TresPerJob", request.tres_per_job),
                ("TresPerNode", request.tres_per_node), ("TresPerSocket", request.tres_per_socket),
                ("TresPerTask", request.tres_per_task)):
            if text:
                yield f"{label}={text}"
        if request.mail_type and request.mail_type != "NONE":
            yield f"MailUser={request.mail_user or job.user_name} MailType={request.mail_type}"
        if request.ntasks_per_tres:
            yield f"NtasksPerTRES={request.ntasks_per_tres}"
        if request.container or request.container_id:
            yield f"Container={null(request.container)} ContainerID={null(request.container_id)}"


def qos_text(job: JobRecord) -> str:
    """The QOS as it was asked for (in any case, or several of them) while the job waits."""
    asked = job.request.qos or ""
    waits = job.state == states.PENDING and job.qos in asked.lower().split(",")
    return asked if waits else job.qos


def _star(value: int | None) -> str:
    return "*" if value in (None, 0xFFFF) else str(value)


def first_amount(mem_per_tres: str) -> int:
    """MB of the first entry of ``gres/gpu:4096,…``."""
    count = mem_per_tres.split(",")[0].rpartition(":")[2].rpartition("=")[2]
    return memory.parse_mb(count) or 0


def gres_detail(share: NodeAllocation) -> str:
    """``gpu:v100:1(IDX:0)`` of one node."""
    return ",".join(f"{name}:{len(indices)}(IDX:{array.ranges(indices)})" for name, indices in share.gres.items())


def cpu_frequency(request: JobRequest) -> str:
    """``CPU_min_freq=… CPU_max_freq=… Governor=…``, of what was asked for."""
    labels = ("CPU_min_freq", "CPU_max_freq", "Governor")
    return " ".join(f"{label}={text}" for label, text in zip(labels, request.cpu_freq) if text)


_GRES_FLAGS = (("allow-task-sharing", "GresAllowTaskSharing=Yes"), ("disable-binding", "GresEnforceBind=No"),
               ("enforce-binding", "GresEnforceBind=Yes"), ("multiple-tasks-per-sharing", "GresOneTaskPerSharing=No"),
               ("one-task-per-sharing", "GresOneTaskPerSharing=Yes"))


def _flag_words(request: JobRequest) -> Iterator[str]:
    given = {word.strip().lower() for word in (request.gres_flags or "").split(",")}
    for flag, text in _GRES_FLAGS:
        if flag in given:
            yield text
    if request.kill_on_invalid_dep is not None:
        yield f"KillOnInvalidDependent={'Yes' if request.kill_on_invalid_dep else 'No'}"
    if request.spread_job:
        yield "SpreadJob=Yes"


def job_text(job: JobRecord, views: Views, style: Style, task_id: int | None = None) -> str:
    """The record as ``scontrol show job`` prints it."""
    return style.record(JobLines(job, views, style, task_id).lines())
