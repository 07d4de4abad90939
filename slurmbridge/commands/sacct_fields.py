"""sacct's fields: names and widths in --helpformat's order, and the text of each for a job and for a step."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from slurmbridge.commands.common import group_name, uid_of, user_name
from slurmbridge.commands.sacct_rows import NEVER, Counts, Job, Step
from slurmbridge.slurm import durations, exitcodes, hostlist, memory, patterns
from slurmbridge.slurm.columns import ColumnField
from slurmbridge.slurm.jobspec import UNLIMITED_MIN
from slurmbridge.slurm.sluid import sluid_text

Line = Job | Step
Text = str | None


@dataclass(frozen=True)
class Field(ColumnField[Line]):
    """``of_job``: what ``value`` asks for a job's line; None: always unset there."""

    of_job: Callable[[Job], Text] | None = None


_OWN_STEPS = ("batch", "extern", "interactive")   # those that Slurm makes itself
_NOT_METERED = ("RUNNING", "SUSPENDED", "REQUEUED", "PREEMPTED")
_UINT32, _UINT64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
_BYTES_PER_MB = 1 << 20


@dataclass(frozen=True, slots=True)
class Style:
    """How values are written for this caller."""

    now: int
    times: Callable[[float], str]
    cluster: str
    qos_ids: Mapping[str, int]
    units: str = ""                            # --units
    keep: bool = False                         # --noconvert
    use_local_uid: bool = False
    expand_patterns: bool = False

    def unit(self, number: float, base: str = "", *, exact: bool = True, divisor: int = 1024) -> str:
        return memory.with_unit(number, base, exact=exact, divisor=divisor, wanted=self.units, keep=self.keep)

    def small(self, count: int | None) -> Text:
        """Bytes as megabytes, small ones with two digits."""
        if count is None:
            return None
        megabytes = count / _BYTES_PER_MB
        if megabytes > 1:
            return self.unit(megabytes, "M")
        return f"{megabytes:.2f}M" if megabytes > 0 else "0"


def cpu_time(microseconds: int) -> str:
    """``MM:SS.mmm`` below an hour where there are milliseconds, else as an elapsed time."""
    seconds, rest = divmod(microseconds, 1_000_000)
    if rest // 1000 and seconds < 3600:
        return f"{seconds // 60:02d}:{seconds % 60:02d}.{rest // 1000:03d}"
    return durations.format_seconds(seconds)


def tres_text(counts: Counts, style: Style) -> str:
    """``cpu=2,mem=4G,node=1``, by name."""
    return ",".join(sorted(f"{name}={_tres_count(name, count, style)}" for name, count in counts.items()))


def _tres_count(name: str, count: int, style: Style) -> str:
    if name == "mem" or name.endswith("/gpumem") or name.startswith("bb"):
        return style.unit(count, "M")
    return str(count)


def _usage_text(counts: Counts, style: Style) -> str:
    parts = []
    for name, count in counts.items():
        if name == "cpu":
            text = durations.format_seconds(count // 1000)
        elif name == "gres/gpuutil":
            text = str(count)
        else:
            text = style.unit(count)
        parts.append(f"{name}={text}")
    return ",".join(sorted(parts))


def _plain_text(values: Mapping[str, object]) -> str:
    return ",".join(sorted(f"{name}={value}" for name, value in values.items()))


def build(style: Style) -> tuple[Field, ...]:
    """All fields."""
    return tuple(_FieldMaker(style).fields())


class _FieldMaker:
    def __init__(self, style: Style) -> None:
        self.style = style

    def fields(self) -> list[Field]:
        style = self.style
        unit, times = style.unit, style.times

        def field(name: str, width: int, job: Callable[[Job], Text] | None, step: Callable[[Step], Text] | None = None,
                  kind: str = "text") -> Field:
            def value(line: Line) -> Text:
                if isinstance(line, Job):
                    return job(line) if job else None
                return step(line) if step else None
            return Field(name, width, value, kind, of_job=job)

        def plain(name: str, width: int, key: str) -> Field:
            return field(name, width, lambda job: job.row.get(key) or "")

        def number(name: str, width: int, job: Callable[[Job], int | None] | None,
                   step: Callable[[Step], int | None] | None = None) -> Field:
            return field(name, width, job and (lambda line: _digits(job(line))),
                         step and (lambda line: _digits(step(line))), "number")

        def span(name: str, width: int, job: Callable[[Job], int] | None,
                 step: Callable[[Step], int] | None = None) -> Field:
            return field(name, width, job and (lambda line: _seconds(job(line))),
                         step and (lambda line: _seconds(step(line))), "number")

        def date(name: str, job: Callable[[Job], int], step: Callable[[Step], int]) -> Field:
            return field(name, 19, lambda line: times(job(line)), lambda line: times(step(line)), "time")

        def count(name: str, width: int, counts: str, tres: str) -> Field:
            def text(step: Step) -> Text:
                value = getattr(step.stats, counts).get(tres)
                if value is None:
                    return None
                if tres == "fs/disk":
                    return style.small(value)
                return durations.format_seconds(value // 1000) if tres == "cpu" else unit(value)
            return field(name, width, None, text)

        def where(name: str, width: int, counts: str, tres: str) -> Field:
            return field(name, width, None, lambda step: getattr(step.stats, counts).get(tres))

        def task(name: str, width: int, counts: str, tres: str) -> Field:
            return number(name, width, None, lambda step: getattr(step.stats, counts).get(tres))

        def usage(name: str, width: int, counts: str) -> Field:
            return field(name, width, None, lambda step: _usage_text(getattr(step.stats, counts), style))

        def usage_at(name: str, width: int, counts: str) -> Field:
            return field(name, width, None, lambda step: _plain_text(getattr(step.stats, counts)))

        def frequency(name: str, width: int, which: str) -> Field:
            return field(name, width, lambda _job: "Unknown", lambda step: _step_frequency(step, which))

        return [
            field("Account", 10, lambda job: job.row["account"], lambda step: step.job.row["account"]),
            plain("AdminComment", 15, "admin_comment"),
            number("AllocCPUS", 10, lambda job: job.cpus, lambda step: step.cpus),
            field("AllocNodes", 10, lambda job: self._nodes(job.alloc_nodes or job.tres_alloc.get("node", 0)),
                  lambda step: self._nodes(step.num_nodes or step.tres_alloc.get("node", 0))),
            field("AllocTRES", 10, lambda job: tres_text(job.tres_alloc, style),
                  lambda step: tres_text(step.tres_alloc, style)),
            number("AssocID", 7, lambda job: job.row["assoc_id"], lambda step: step.job.row["assoc_id"]),
            count("AveCPU", 10, "in_ave", "cpu"),
            field("AveCPUFreq", 10, None, lambda step: unit(
                (step.row.get("usage") or {}).get("cpu_khz", 0), "K", exact=False, divisor=1000)),
            count("AveDiskRead", 14, "in_ave", "fs/disk"), count("AveDiskWrite", 14, "out_ave", "fs/disk"),
            count("AvePages", 10, "in_ave", "pages"), count("AveRSS", 10, "in_ave", "mem"),
            count("AveVMSize", 10, "in_ave", "vmem"),
            field("BlockID", 16, lambda _job: ""),
            field("Cluster", 10, lambda _job: style.cluster, lambda _step: style.cluster),
            plain("Comment", 14, "comment"), plain("Constraints", 19, "constraints"),
            field("ConsumedEnergy", 14, lambda job: self._energy(_job_energy(job)),
                  lambda step: self._energy(_step_energy(step))),
            number("ConsumedEnergyRaw", 17, _job_energy, _step_energy),
            field("Container", 19, lambda job: job.row.get("container", ""),
                  lambda step: step.row.get("container", "")),
            span("CPUTime", 10, lambda job: job.elapsed_s * job.cpus, lambda step: step.elapsed_s * step.cpus),
            number("CPUTimeRAW", 10, lambda job: job.elapsed_s * job.cpus, lambda step: step.elapsed_s * step.cpus),
            number("DBIndex", -21, lambda job: job.row["db_index"], lambda step: step.job.row["db_index"]),
            field("DerivedExitCode", 15, lambda job: exitcodes.text(job.row.get("derived", 0))),
            span("Elapsed", 10, lambda job: job.elapsed_s, lambda step: step.elapsed_s),
            number("ElapsedRaw", 10, lambda job: job.elapsed_s, lambda step: step.elapsed_s),
            date("Eligible", lambda job: job.eligible_s, lambda step: step.start_s),
            date("End", lambda job: job.end_s, lambda step: step.end_s),
            field("ExitCode", 8, lambda job: exitcodes.text(job.row.get("exit_status", 0)),
                  _step_exit),
            plain("Extra", 14, "extra"), plain("FailedNode", 8, "failed_node"),
            field("Flags", 19, lambda job: ",".join(flag for flag in _FLAG_ORDER if flag in job.flags)),
            number("GID", 6, lambda job: job.row["gid"]),
            field("Group", 9, lambda job: job.row.get("group") or group_name(job.row["gid"])),
            field("JobID", -12, lambda job: job.id_text, lambda step: f"{step.job.id_text}.{step.step_id}"),
            field("JobIDRaw", -12, lambda job: str(job.job_id), lambda step: f"{step.job.job_id}.{step.step_id}"),
            field("JobName", 10, lambda job: job.row["name"], lambda step: step.row.get("name", "")),
            field("Layout", 9, None, lambda step: step.row.get("layout") or "Unknown"),
            plain("Licenses", 10, "licenses"),
            count("MaxDiskRead", 12, "in_max", "fs/disk"), where("MaxDiskReadNode", 15, "in_max_node", "fs/disk"),
            task("MaxDiskReadTask", 15, "in_max_task", "fs/disk"),
            count("MaxDiskWrite", 12, "out_max", "fs/disk"), where("MaxDiskWriteNode", 16, "out_max_node", "fs/disk"),
            task("MaxDiskWriteTask", 16, "out_max_task", "fs/disk"),
            count("MaxPages", 8, "in_max", "pages"), where("MaxPagesNode", 12, "in_max_node", "pages"),
            task("MaxPagesTask", 14, "in_max_task", "pages"),
            count("MaxRSS", 10, "in_max", "mem"), where("MaxRSSNode", 10, "in_max_node", "mem"),
            task("MaxRSSTask", 10, "in_max_task", "mem"),
            count("MaxVMSize", 10, "in_max", "vmem"), where("MaxVMSizeNode", 14, "in_max_node", "vmem"),
            task("MaxVMSizeTask", 14, "in_max_task", "vmem"),
            plain("McsLabel", 12, "mcs_label"),
            count("MinCPU", 10, "in_min", "cpu"), where("MinCPUNode", 10, "in_min_node", "cpu"),
            task("MinCPUTask", 10, "in_min_task", "cpu"),
            number("NCPUS", 10, lambda job: job.cpus, lambda step: step.cpus),
            number("NNodes", 8, lambda job: job.alloc_nodes or (job.tres_alloc or job.tres_req).get("node", 0),
                   lambda step: step.num_nodes or step.tres_alloc.get("node", 0)),
            field("NodeList", 15, lambda job: hostlist.compress(job.nodes) if job.nodes else "None assigned",
                  lambda step: hostlist.compress(step.nodes)),
            number("NTasks", 8, None, lambda step: step.row.get("num_tasks", 1)),
            field("Partition", 10, lambda job: job.row["partition"]),
            span("Planned", 10, lambda job: _planned(job, style.now)),
            span("PlannedCPU", 10, lambda job: _planned_cpu(job, style.now) & _UINT64),
            number("PlannedCPURAW", 13, lambda job: _planned_cpu(job, style.now) & _UINT32),
            number("Priority", 10, _priority),
            field("QOS", 10, lambda job: job.row["qos"]),
            number("QOSRAW", 6, lambda job: style.qos_ids.get(job.row["qos"], 0)),
            plain("QOSREQ", 10, "qos_req"),
            field("Reason", 22, lambda job: job.row.get("reason") or "None"),
            frequency("ReqCPUFreq", 10, "max"), frequency("ReqCPUFreqGov", 13, "gov"),
            frequency("ReqCPUFreqMax", 13, "max"), frequency("ReqCPUFreqMin", 13, "min"),
            number("ReqCPUS", 8, lambda job: job.req_cpus, lambda step: step.cpus),
            field("ReqMem", 10, lambda job: unit(job.tres_req.get("mem", 0), "M")),
            field("ReqNodes", 8, lambda job: unit(job.tres_req.get("node", 0)),
                  lambda step: unit(step.num_nodes or step.tres_alloc.get("node", 0))),
            field("ReqTRES", 10, lambda job: tres_text(job.tres_req, style)),
            plain("Reservation", 20, "reservation_name"),
            number("ReservationId", 8, lambda job: job.row.get("reservation_id")),
            plain("ReqReservation", 20, "reservation"),
            number("Restarts", 8, lambda job: job.row.get("restarts", 0)),
            number("SegmentSize", 11, lambda job: job.row.get("segment_size") or None),
            field("SLUID", 14, _sluid, lambda step: _sluid(step.job), "number"),
            date("Start", lambda job: job.start_s, lambda step: step.start_s),
            field("State", 10, _state, _state),
            self._file("StdErr", "std_err"), self._file("StdIn", "std_in"), self._file("StdOut", "std_out"),
            date("Submit", lambda job: job.submit_s, lambda step: step.start_s),
            field("SubmitLine", 20, lambda job: job.row.get("submit_line", ""),
                  lambda step: "" if step.step_id in _OWN_STEPS else step.row.get("submit_line", "")),
            span("Suspended", 10, lambda job: job.suspended_s, lambda step: step.suspended_s),
            plain("SystemComment", 15, "system_comment"),
            field("SystemCPU", 10, lambda job: cpu_time(job.system_us), lambda step: cpu_time(step.system_us)),
            field("Timelimit", 10, lambda job: _limit(job.row.get("time_limit_min"), durations.format_minutes),
                  lambda step: _step_limit(step, durations.format_minutes)),
            field("TimelimitRaw", 10, lambda job: _limit(job.row.get("time_limit_min"), str),
                  lambda step: _step_limit(step, str)),
            field("TotalCPU", 10, lambda job: cpu_time(job.user_us + job.system_us),
                  lambda step: cpu_time(step.user_us + step.system_us)),
            usage("TRESUsageInAve", 14, "in_ave"), usage("TRESUsageInMax", 14, "in_max"),
            usage_at("TRESUsageInMaxNode", 18, "in_max_node"), usage_at("TRESUsageInMaxTask", 18, "in_max_task"),
            usage("TRESUsageInMin", 14, "in_min"), usage_at("TRESUsageInMinNode", 18, "in_min_node"),
            usage_at("TRESUsageInMinTask", 18, "in_min_task"), usage("TRESUsageInTot", 14, "in_tot"),
            usage("TRESUsageOutAve", 15, "out_ave"), usage("TRESUsageOutMax", 15, "out_max"),
            usage_at("TRESUsageOutMaxNode", 19, "out_max_node"), usage_at("TRESUsageOutMaxTask", 19, "out_max_task"),
            usage("TRESUsageOutMin", 15, "out_min"), usage_at("TRESUsageOutMinNode", 19, "out_min_node"),
            usage_at("TRESUsageOutMinTask", 19, "out_min_task"), usage("TRESUsageOutTot", 15, "out_tot"),
            number("UID", 6, self._uid),
            field("User", 9, lambda job: job.row["user_name"] or user_name(job.row["uid"])),
            field("UserCPU", 10, lambda job: cpu_time(job.user_us), lambda step: cpu_time(step.user_us)),
            field("WCKey", 10, lambda job: job.row["wckey"]),
            number("WCKeyID", 10, lambda _job: 0),
            plain("WorkDir", 20, "work_dir"),
        ]

    def _nodes(self, number: int) -> str:
        return memory.with_unit(number, "", keep=self.style.keep)

    def _energy(self, joules: int | None) -> Text:
        return None if joules is None else self.style.unit(joules, exact=False, divisor=1000)

    def _uid(self, job: Job) -> int:
        if self.style.use_local_uid:
            local = uid_of(job.row["user_name"])
            if local is not None:
                return local
        return int(job.row["uid"])

    def _file(self, name: str, key: str) -> Field:
        def value(line: Line) -> Text:
            if isinstance(line, Job):
                return self._job_file(line, key)
            return "" if line.step_id in _OWN_STEPS else self._step_file(line, str(line.row.get(key) or ""))
        return Field(name, 20, value, of_job=lambda job: self._job_file(job, key))

    def _step_file(self, step: Step, path: str) -> str:
        if path and self.style.expand_patterns:
            number = step.step_id.partition("+")[0]
            path = patterns.expand(
                path, job_id=step.job.job_id, work_dir=str(step.row.get("cwd") or ""),
                array_job_id=step.job.array_job_id, array_task_id=step.job.array_task_id,
                step=int(number) if number.isdigit() else number, node_name=step.nodes[0] if step.nodes else "",
                user_name=step.job.row["user_name"], job_name=step.job.row["name"])
        if path and not path.startswith("/"):
            path = f"{step.row.get('cwd') or ''}/{path}"
        return path

    def _job_file(self, job: Job, key: str) -> str:
        path = str(job.row.get(key) or "")
        if not path and job.row.get("batch"):
            default = "slurm-%A_%a.out" if job.array_job_id else "slurm-%j.out"
            path = {"std_in": "/dev/null", "std_out": default}.get(key, "")
        if path and self.style.expand_patterns:
            path = patterns.expand(
                path, job_id=job.job_id, work_dir=job.row.get("work_dir"), array_job_id=job.array_job_id,
                array_task_id=job.array_task_id, node_name=job.nodes[0] if job.nodes else "None",
                user_name=job.row["user_name"], job_name=job.row["name"], restarts=job.row.get("restarts", 0))
        return path


_FLAG_ORDER = ("SchedNotSet", "SchedSubmit", "SchedMain", "SchedBackfill", "StartReceived")


def _digits(value: int | None) -> Text:
    return None if value is None else str(value)


def _seconds(value: int) -> str:
    if value == _UINT32:
        return "UNLIMITED"
    if value > _UINT64 >> 1:
        return "INVALID"
    return durations.format_seconds(value)


def _job_energy(job: Job) -> int | None:
    """Not known while it runs, unless another Slurm knew."""
    known = job.row.get("energy")
    by_itself = job.state == "REQUEUED" and int(job.row.get("exit_status", 0)) >> 8
    if known == -1 or (known is None and job.state in _NOT_METERED and not by_itself):
        return None
    return job.tres_alloc.get("energy", known or 0)


def _step_energy(step: Step) -> int | None:
    """None: another Slurm did not know it."""
    known = int((step.row.get("usage") or {}).get("energy", 0))
    return None if known < 0 else known


def _priority(job: Job) -> int | None:
    priority = int(job.row.get("priority", 0))
    return None if priority < 0 else priority


def _step_exit(step: Step) -> str:
    status = step.row.get("exit_status", 0)
    return "" if status is None else exitcodes.text(status)


def _step_frequency(step: Step, which: str) -> str:
    """``which``: min, max or gov."""
    usage = step.row.get("usage") or {}
    given = usage.get(f"req_cpu_freq_{which}", usage.get("req_cpu_freq"))
    if given is not None:
        return str(given)
    return "0" if step.step_id in _OWN_STEPS else "Unknown"


def _state(line: Line) -> str:
    if line.state == "CANCELLED" and line.requested_by is not None:
        return f"{line.state} by {line.requested_by}"
    return line.state


def _sluid(job: Job) -> str:
    return job.row.get("sluid") or sluid_text(job.row["db_index"])


def _planned(job: Job, now: int) -> int:
    if not job.eligible_s:
        return 0
    if job.start_s == NEVER and job.end_s:
        return job.end_s - job.eligible_s & _UINT64
    return (job.start_s or now) - job.eligible_s & _UINT64


def _planned_cpu(job: Job, now: int) -> int:
    """Slurm reckons with NO_VAL as the start of a job that never started; so do we."""
    if not job.eligible_s:
        return 0
    return ((job.start_s or now) - job.eligible_s) * job.req_cpus


def _limit(minutes: int | None, text: Callable[[int], str]) -> str:
    if minutes is None:
        return "Partition_Limit"
    if minutes >= UNLIMITED_MIN:
        return "UNLIMITED"
    return text(minutes) if minutes > 0 else ""


def _step_limit(step: Step, text: Callable[[int], str]) -> str:
    minutes = step.row.get("time_limit_min")
    return text(minutes) if minutes is not None and 0 < minutes < UNLIMITED_MIN else ""
