"""What another Slurm's accounting exports, read as ledger operations.

``read_history`` takes the output of ``sacct -D -P`` (jobs, each followed by its steps; separated by tab or ``|``, times
as epoch seconds or ISO, sizes with or without units), ``read_events`` that of ``sacctmgr -P show event``. A job's
suspensions are in no field of sacct: ``suspended`` has them as ``DBIndex|Start|End`` lines (End 0: it still is).
Raises HistoryError with the line that cannot be read.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slurmbridge.accounting import codec
from slurmbridge.accounting.operations import SaveEvent, SaveRun, SaveSuspension
from slurmbridge.accounting.rows import Row, clean
from slurmbridge.slurm import array, durations, exitcodes, hostlist, memory
from slurmbridge.slurm.jobspec import UNLIMITED_MIN
from slurmbridge.slurm.tres import normal_name
from slurmbridge.slurm.zones import Zone

_NOTHING = ("", "Unknown", "None", "None assigned", "0")
_MAX_ARRAY = 4_000_001
_STATS = {
    "in_ave": "TRESUsageInAve", "in_max": "TRESUsageInMax", "in_min": "TRESUsageInMin", "in_tot": "TRESUsageInTot",
    "out_ave": "TRESUsageOutAve", "out_max": "TRESUsageOutMax", "out_min": "TRESUsageOutMin",
    "out_tot": "TRESUsageOutTot"}
_STAT_NODES = {
    "in_max_node": "TRESUsageInMaxNode", "in_min_node": "TRESUsageInMinNode", "out_max_node": "TRESUsageOutMaxNode",
    "out_min_node": "TRESUsageOutMinNode"}
_STAT_TASKS = {
    "in_max_task": "TRESUsageInMaxTask", "in_min_task": "TRESUsageInMinTask", "out_max_task": "TRESUsageOutMaxTask",
    "out_min_task": "TRESUsageOutMinTask"}
_FREQUENCIES = {                               # of a step; ReqCPUFreq is what older Slurms call the highest
    "req_cpu_freq": "ReqCPUFreq", "req_cpu_freq_max": "ReqCPUFreqMax", "req_cpu_freq_min": "ReqCPUFreqMin",
    "req_cpu_freq_gov": "ReqCPUFreqGov"}
_TEXTS = {                                     # key of a row's data -> field of sacct
    "qos_req": "QOSREQ", "reservation_name": "Reservation", "reservation": "ReqReservation", "reason": "Reason",
    "constraints": "Constraints", "comment": "Comment", "admin_comment": "AdminComment",
    "system_comment": "SystemComment", "extra": "Extra", "failed_node": "FailedNode", "licenses": "Licenses",
    "work_dir": "WorkDir", "submit_line": "SubmitLine", "std_in": "StdIn", "std_out": "StdOut", "std_err": "StdErr",
    "mcs_label": "McsLabel", "container": "Container", "group": "Group"}


class HistoryError(ValueError):
    """``str(error)`` names the line and what is wrong with it."""


@dataclass(slots=True)
class _Run:
    """One job line and the lines of its steps."""

    values: dict[str, str]
    steps: list[dict[str, str]] = field(default_factory=list)


def read_history(text: str, zone: Zone, next_index: Callable[[float], int], *, suspended: str = "",
                 ids: Mapping[tuple[str, str], int] | None = None) -> Iterator[SaveRun | SaveSuspension]:
    """Operations for ``Ledger.write``.

    ``next_index``: the ledger's next_db_index. ``ids``: (account, user) -> association id. Runs that come with a
    DBIndex are told apart by it, others by JobIDRaw and Submit; the later line of one run counts.
    """
    runs: dict[object, _Run] = {}
    current: _Run | None = None
    for number, values in lines(text):
        if "." in values.get("JobID", ""):
            if current is None:
                raise HistoryError(f"line {number}: a step without its job")
            current.steps.append(values)
            continue
        current = _Run(values)
        runs[values.get("DBIndex") or (values.get("JobIDRaw"), values.get("Submit"))] = current
    spans = _spans(suspended)
    reader = Reader(zone, ids or {})
    for run in sorted(runs.values(), key=lambda run: reader.time(run.values.get("Submit", "")) or 0):
        try:
            submit = reader.time(run.values.get("Submit", "")) or 0
            db_index = next_index(submit)
            yield SaveRun(reader.job(db_index, run.values),
                          tuple(reader.step(db_index, values) for values in run.steps))
        except (ValueError, KeyError) as error:
            raise HistoryError(f"job {run.values.get('JobID', '?')}: {error}") from error
        for start_s, end_s in spans.get(run.values.get("DBIndex", ""), ()):
            yield SaveSuspension(db_index, start_s, end_s or None)


def read_events(text: str, zone: Zone) -> Iterator[SaveEvent]:
    """Operations for ``Ledger.write``."""
    reader = Reader(zone, {})
    for number, values in lines(text):
        try:
            user = values.get("User", "")
            uid = user.rpartition("(")[2].rstrip(")")
            yield SaveEvent(
                values.get("NodeName", ""), reader.time(values.get("Start") or values.get("TimeStart", "")) or 0,
                reader.time(values.get("End") or values.get("TimeEnd", "")), values.get("State", ""),
                values.get("Reason", ""), int(uid) if uid.isdigit() else None, counts(values.get("TRES", "")),
                values.get("Cluster Nodes") or values.get("ClusterNodes", ""), _number(values.get("StateRaw", "")))
        except ValueError as error:
            raise HistoryError(f"line {number}: {error}") from error


def lines(text: str) -> Iterator[tuple[int, dict[str, str]]]:
    """(line number, field name -> value). Submit lines, of events reasons, may have line ends and separators."""
    lines = text.split("\n")
    separator = "\t" if "\t" in lines[0] else "|"
    names = lines[0].split(separator)
    ended = not names[-1]                      # -p: a separator at the end
    if ended:
        names.pop()
    free = next((names.index(name) for name in ("SubmitLine", "Reason") if name in names), None)
    waiting: list[str] = []
    for number, line in enumerate(lines[1:], 2):
        if not line and not waiting:
            continue
        waiting.append(line)
        values = "\n".join(waiting).split(separator)
        if ended and not values[-1]:
            values.pop()
        if len(values) < len(names) and free is not None:
            continue
        if len(values) > len(names) and free is not None:
            more = len(values) - len(names)
            values[free:free + more + 1] = [separator.join(values[free:free + more + 1])]
        if len(values) != len(names):
            raise HistoryError(f"line {number}: {len(values)} fields instead of {len(names)}")
        waiting.clear()
        yield number, dict(zip(names, values))
    if any(waiting):
        raise HistoryError(f"line {len(lines)}: the last record is cut off")


def _spans(text: str) -> dict[str, list[tuple[int, int]]]:
    spans: dict[str, list[tuple[int, int]]] = {}
    for number, values in lines(text) if text else ():
        try:
            spans.setdefault(values["DBIndex"], []).append((int(values["Start"]), int(values["End"])))
        except (ValueError, KeyError) as error:
            raise HistoryError(f"suspensions, line {number}: {error}") from error
    return spans


class Reader:
    """Times and job rows as this zone's clocks and these association ids make them."""

    def __init__(self, zone: Zone, ids: Mapping[tuple[str, str], int]) -> None:
        self._zone = zone
        self._ids = ids

    def time(self, text: str) -> int | None:
        if text in _NOTHING:
            return None
        return int(text) if text.isdigit() else durations.parse_time(text, 0, self._zone)

    def job(self, db_index: int, values: Mapping[str, str]) -> Row:
        """A row of table ``job``."""
        data = self._job_data(values)
        array_job, array_task, het_job, het_offset = _identity(values["JobID"], data)
        state, _, by_uid = values.get("State", "").partition(" by ")
        if by_uid:
            data["killed_by_uid"] = int(by_uid)
        account, user = values.get("Account", ""), values.get("User", "")
        return (
            db_index, int(values["JobIDRaw"]), array_job, array_task, het_job, het_offset, clean(user),
            _number(values.get("UID", "")), _number(values.get("GID", "")), clean(account),
            _number(values.get("AssocID", "")) or self._ids.get((account, user), 0), clean(values.get("Partition", "")),
            clean(values.get("QOS", "")), clean(values.get("WCKey", "")), clean(values.get("JobName", "")),
            state, self.time(values.get("Submit", "")) or 0, self.time(values.get("Eligible", "")),
            self.time(values.get("Start", "")), self.time(values.get("End", "")), codec.dumps(data))

    def _job_data(self, values: Mapping[str, str]) -> dict[str, Any]:
        required = counts(values.get("ReqTRES", ""))
        if values.get("ReqMem", "0").rstrip("KMGTP") != "0" and values["ReqMem"] and "mem" not in required:
            required["mem"] = _scaled("mem", values["ReqMem"])
        data: dict[str, Any] = {key: values[name] for key, name in _TEXTS.items() if values.get(name)}
        data |= {
            "nodes": _hosts(values.get("NodeList", "")), "alloc_nodes": _number(values.get("AllocNodes", "")),
            "tres_req": required, "tres_alloc": counts(values.get("AllocTRES", "")),
            "req_cpus": _number(values.get("ReqCPUS", "")), "priority": _number(values.get("Priority") or "-1"),
            "exit_status": exitcodes.from_text(values.get("ExitCode") or "0:0"),
            "derived": exitcodes.from_text(values.get("DerivedExitCode") or "0:0"),
            "restarts": _number(values.get("Restarts", "")), "reservation_id": _number(values.get("ReservationId", "")),
            "segment_size": _number(values.get("SegmentSize", "")),
            "suspended_s": durations.parse_seconds(values.get("Suspended") or "0") or 0,
            "time_limit_min": _limit(values)}
        kept = {key: value for key, value in data.items() if value not in (None, "", 0, [], {}) or key == "suspended_s"}
        if "Flags" in values:
            kept["job_flags"] = [flag for flag in values["Flags"].split(",") if flag]
        if "ConsumedEnergyRaw" in values:
            kept["energy"] = int(values["ConsumedEnergyRaw"] or -1)
        return kept

    def step(self, db_index: int, values: Mapping[str, str]) -> Row:
        """A row of table ``step``."""
        job_id, _, step_id = values.get("JobIDRaw", values["JobID"]).partition(".")
        state, _, by_uid = values.get("State", "").partition(" by ")
        usage: dict[str, Any] = {
            "user_cpu_s": _cpu_seconds(values.get("UserCPU", "")),
            "system_cpu_s": _cpu_seconds(values.get("SystemCPU", "")),
            "num_nodes": _number(values.get("AllocNodes", "")), "cpu_khz": _khz(values.get("AveCPUFreq", "")),
            "energy": _number(values.get("ConsumedEnergyRaw", "0") or "-1"), "stats": _stats(values),
            "suspended_s": durations.parse_seconds(values.get("Suspended") or "0") or 0}
        usage |= {key: values[name] for key, name in _FREQUENCIES.items() if values.get(name)}
        step = {
            "job_id": int(job_id), "step_id": step_id, "name": values.get("JobName", ""), "state": state,
            "start_s": self.time(values.get("Start", "")) or 0, "end_s": self.time(values.get("End", "")),
            "nodes": _hosts(values.get("NodeList", "")), "num_tasks": _number(values.get("NTasks", "")),
            "layout": values.get("Layout", ""), "tres": counts(values.get("AllocTRES", "")),
            "submit_line": values.get("SubmitLine", ""), "container": values.get("Container", ""), "usage": usage,
            "std_in": values.get("StdIn", ""), "std_out": values.get("StdOut", ""), "std_err": values.get("StdErr", ""),
            "time_limit_min": _limit(values)}
        if by_uid:
            step["killed_by_uid"] = int(by_uid)
        if "ExitCode" in values:
            step["exit_status"] = exitcodes.from_text(values["ExitCode"]) if values["ExitCode"] else None
        return db_index, clean(step_id), codec.dumps(step)


def _identity(text: str, data: dict[str, Any]) -> tuple[int, int | None, int, int]:
    """(array job, array task, het job, offset) of ``12``, ``12_3``, ``12_[4-7%2]`` or ``12+1``."""
    job, underscore, task = text.partition("_")
    if underscore:
        if not task.startswith("["):
            return int(job), int(task), 0, 0
        tasks, most = array.parse(task.strip("[]"), _MAX_ARRAY)
        data["array_pending"] = hex(sum(1 << number for number in tasks))
        if most:
            data["array_max_running"] = most
        return int(job), None, 0, 0
    job, plus, offset = text.partition("+")
    return (0, None, int(job), int(offset)) if plus else (0, None, 0, 0)


def _number(text: str) -> int:
    found = memory.leading_int(text)
    return found[0] if found else 0


def counts(text: str) -> dict[str, int]:
    """``cpu=4,mem=62.50G,gres/gpu:a100=2``, memory in MB."""
    found: dict[str, int] = {}
    for entry in text.split(","):
        name, equals, value = entry.partition("=")
        if equals:
            found[normal_name(name)] = _scaled(normal_name(name), value)
    return found


def _scaled(name: str, text: str) -> int:
    """A count with a unit perhaps; of memory in MB."""
    number = text.rstrip("KMGTP")
    power = "_KMGTP".index(text[len(number):]) if len(text) > len(number) else 0
    in_mb = name == "mem" or name.startswith("bb/")
    return round(float(number) * 1024.0 ** (power - 2 if in_mb and power else power))


def _hosts(text: str) -> Sequence[str]:
    return [] if text in _NOTHING or text.startswith("(") else hostlist.expand(text)


def _limit(values: Mapping[str, str]) -> int | None:
    text = values.get("TimelimitRaw") or values.get("Timelimit") or ""
    if text == "Partition_Limit":
        return None
    if text == "UNLIMITED":
        return UNLIMITED_MIN
    return int(text) if text.isdigit() else durations.parse_minutes(text) if text else -1


def _cpu_seconds(text: str) -> float:
    """``01:09.096``, ``01:31:28`` or ``1-02:03:04``."""
    whole, point, fraction = text.partition(".")
    if point:
        minutes, _, seconds = whole.partition(":")
        return int(minutes) * 60 + int(seconds) + int(fraction.ljust(3, "0")) / 1000
    return float(durations.parse_seconds(whole) or 0) if whole else 0.0


def _khz(text: str) -> float:
    number = text.rstrip("KMGTP")
    return float(number) * {"": 0.001, "K": 1, "M": 1e3, "G": 1e6}.get(text[len(number):], 1) if number else 0


def _stats(values: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    stats: dict[str, dict[str, Any]] = {}
    for key, name in _STATS.items():
        if values.get(name):
            stats[key] = {tres: _usage_count(tres, count) for tres, count in _pairs(values[name])}
    for key, name in _STAT_NODES.items():
        if values.get(name):
            stats[key] = dict(_pairs(values[name]))
    for key, name in _STAT_TASKS.items():
        if values.get(name):
            stats[key] = {tres: _number(count) for tres, count in _pairs(values[name])}
    return stats


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for entry in text.split(","):
        name, _, value = entry.partition("=")
        yield normal_name(name), value


def _usage_count(tres: str, text: str) -> int:
    """cpu in milliseconds, anything else as counted (``10860K`` is bytes)."""
    if tres == "cpu":
        return (durations.parse_seconds(text) or 0) * 1000
    return _scaled(tres + "/", text)
