"""scontrol update and create: ``key=value`` words checked as scontrol checks them, then handed to the acts.

Acts get canonical lower-case keys and texts; times of day become epoch seconds in the caller's zone. (scontrol(1).)
"""
from __future__ import annotations

import re
from collections.abc import Sequence

from slurmbridge.commands import scontrol_reservation
from slurmbridge.commands.common import holds_task, uid_of
from slurmbridge.commands.scontrol_acts import on_jobs, written_id
from slurmbridge.commands.scontrol_call import U16, U32, U64, Call, Refused, Void, number_text, starts
from slurmbridge.commands.scontrol_partition import create_partition, update_partition
from slurmbridge.commands.scontrol_update_conf import CONF_KEYS, update_conf, update_step
from slurmbridge.commands.scontrol_update_node import update_node
from slurmbridge.slurm import durations, errors
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.slurm.jobspec import UNLIMITED_MIN
from slurmbridge.views.records import JobRecord

NICE_MOST = 0x80000000 - 3
_TOO_LARGE = {"u16": U16, "u32": U32, "u64": U64}


async def update(call: Call, argv: Sequence[str]) -> None:
    """``argv``: from the word update on. Which entity is meant is told by the key that names it."""
    if len(argv) < 2:
        call.fail(f"too few arguments for {argv[0]} keyword")
        return
    words = argv[1:]
    tags = _tags(words)
    try:
        if any(starts(tag, "JobId", 3) or starts(tag, "JobName", 3) for tag in tags):
            await _update_job(call, words)
        elif any(starts(tag, "ReservationName", 3) for tag in tags):
            await scontrol_reservation.update(call, words)
        elif any(starts(tag, "NodeName", 3) for tag in tags):
            await update_node(call, words)
        elif any(starts(tag, "PartitionName", 3) for tag in tags):
            await update_partition(call, words)
        elif any(starts(tag, "StepId", 4) for tag in tags):
            update_step(call, words)
        elif any(starts(tag, name, least) for tag in tags for name, least in CONF_KEYS):
            await update_conf(call, words)
        else:
            call.fail('No valid entity in update command\nInput line must include "NodeName", "PartitionName", '
                      '"Reservation", "JobId", or "SlurmctldDebug"')
    except Void:
        pass
    except Refused:
        call.exit_code = 1


def _tags(words: Sequence[str]) -> list[str]:
    """The keys of the words; a word without ``=`` takes the next as its value."""
    tags: list[str] = []
    index = 0
    while index < len(words):
        key, equals, _ = words[index].partition("=")
        tags.append(key[:-1] if equals and key[-1:] in ("+", "-") else key)
        index += 1 if equals else 2
    return tags


async def create(call: Call, argv: Sequence[str]) -> None:
    """create partition and reservation; nodes are refused."""
    if len(argv) < 2:
        call.fail(f"too few arguments for {argv[0]} keyword")
        return
    for word in argv[1:]:
        tag = word.partition("=")[0]
        if starts(tag, "NodeName", 3):
            call.fail("Error creating node(s): " + errors.strerror(errors.ESLURM_NOT_SUPPORTED))
            return
        if starts(tag, "PartitionName", 3):
            try:
                await create_partition(call, argv[1:])
            except Refused:
                call.exit_code = 1
            return
        if starts(tag, "ReservationName", 3):
            try:
                await scontrol_reservation.create(call, argv[1:])
            except Refused:
                call.exit_code = 1
            return
    call.error(f"Invalid creation entity: {argv[1]}")


async def delete(call: Call, argv: Sequence[str]) -> None:
    """delete partition and reservation."""
    words = argv[1:]
    if not words:
        call.fail(f"too few arguments for {argv[0]} keyword")
        return
    tag, equals, value = words[0].partition("=")
    if (len(words) == 1 and not equals) or len(words) > 2:
        call.error("Proper format is 'delete <ENTITY>=<ID>' or 'delete <ENTITY> <ID>'")
        return
    if len(words) == 2:
        tag, value = words
    if starts(tag, "PartitionName", 3):
        try:
            await call.session.acts.delete_partition(call.session.identity, value)
        except SlurmError as error:
            call.refused(f"delete_partition {words[0]}", error)
    elif starts(tag, "NodeName", 3):
        _delete_node(call, words[0], value)
    elif starts(tag, "ReservationName", 3):
        await scontrol_reservation.delete(call, words[0], value)
    else:
        call.fail(f"Invalid deletion entity: {words[0]}")


def _delete_node(call: Call, word: str, text: str) -> None:
    """Nodes belong to slurm.conf or the engine: none is taken away by scontrol."""
    code = errors.ESLURM_USER_ID_MISSING
    if call.session.identity.is_admin:
        known = text in call.session.views.nodes
        code = errors.ESLURM_INVALID_NODE_STATE if known else errors.ESLURM_INVALID_NODE_NAME
        call.error(f"failed to delete nodes {text}")
    call.fail(f"delete_node {word}: {errors.strerror(code)}")


# ------------------------------------------------------------------------------------------------------------ jobs

# (names, letters that must be typed, canonical key, kind of value), in scontrol's order: the first match counts
_JOB_KEYS: tuple[tuple[tuple[str, ...], int, str, str], ...] = (
    (("JobId",), 3, "jobid", "id"), (("AdminComment",), 6, "admincomment", "text"),
    (("SiteFactor",), 5, "sitefactor", "nice"), (("ArrayTaskThrottle",), 10, "arraytaskthrottle", "throttle"),
    (("Comment",), 3, "comment", "text"), (("Clusters",), 8, "clusters", "text"),
    (("ClusterFeatures",), 8, "clusterfeatures", "text"), (("DelayBoot",), 5, "delayboot", "seconds"),
    (("Extra",), 3, "extra", "text"), (("TimeLimit",), 5, "timelimit", "limit"),
    (("TimeMin",), 5, "timemin", "minutes"), (("Priority",), 2, "priority", "u32"), (("Nice",), 2, "nice", "nice"),
    (("CPUsPerTask",), 9, "cpuspertask", "u16"), (("CpusPerTres",), 9, "cpuspertres", "text"),
    (("NumCPUs",), 6, "numcpus", "range"), (("NumTasks", "ReqProcs"), 8, "numtasks", "u32"),
    (("Requeue",), 4, "requeue", "u16"), (("ReqNodes", "NumNodes"), 8, "numnodes", "nodes"),
    (("ReqSockets",), 4, "reqsockets", "u16"), (("ReqCores",), 4, "reqcores", "u16"),
    (("TasksPerNode",), 2, "taskspernode", "u16"), (("ReqThreads",), 4, "reqthreads", "u16"),
    (("MinCPUsNode",), 4, "mincpusnode", "u16"), (("MinMemoryNode",), 10, "minmemorynode", "u64"),
    (("MinMemoryCPU",), 10, "minmemorycpu", "u64"), (("MinTmpDiskNode",), 5, "mintmpdisknode", "u32"),
    (("Partition",), 2, "partition", "text"), (("QOS",), 2, "qos", "text"),
    (("ReservationName",), 3, "reservationname", "text"), (("Name",), 2, "name", "text"),
    (("JobName",), 4, "name", "text"), (("WCKey",), 1, "wckey", "text"), (("StdErr",), 6, "stderr", "text"),
    (("StdIn",), 5, "stdin", "text"), (("StdOut",), 6, "stdout", "text"), (("Switches",), 5, "switches", "switches"),
    (("wait-for-switch",), 5, "wait-for-switch", "u32"), (("OverSubscribe", "Shared"), 2, "oversubscribe", "yes"),
    (("Contiguous",), 3, "contiguous", "yes"), (("CoreSpec",), 4, "corespec", "spec"),
    (("MemPerTres",), 5, "mempertres", "text"), (("ThreadSpec",), 4, "threadspec", "spec"),
    (("TresBind",), 5, "tresbind", "text"), (("TresFreq",), 5, "tresfreq", "text"),
    (("TresPerJob",), 8, "tresperjob", "text"), (("TresPerNode",), 8, "trespernode", "more"),
    (("TresPerSocket",), 8, "trespersocket", "text"), (("TresPerTask",), 8, "trespertask", "text"),
    (("ExcNodeList",), 3, "excnodelist", "text"), (("NodeList", "ReqNodeList"), 8, "reqnodelist", "text"),
    (("Features",), 1, "features", "text"), (("Prefer",), 3, "prefer", "text"), (("Gres",), 2, "gres", "more"),
    (("Account",), 1, "account", "text"), (("BurstBuffer",), 1, "burstbuffer", "text"),
    (("Dependency",), 1, "dependency", "text"), (("Licenses",), 1, "licenses", "text"),
    (("EligibleTime", "StartTime"), 2, "starttime", "start"), (("EndTime",), 2, "endtime", "time"),
    (("Reboot",), 3, "reboot", "yes"), (("UserID",), 3, "userid", "user"), (("Deadline",), 3, "deadline", "time"),
    (("WorkDir",), 2, "workdir", "text"), (("MailType",), 5, "mailtype", "mail"),
    (("MailUser",), 5, "mailuser", "text"),
    (("MCSLabel",), 4, "mcslabel", "text"))
_MAIL_WORDS = frozenset({"ARRAY_TASKS", "BEGIN", "END", "FAIL", "INVALID_DEPEND", "REQUEUE", "STAGE_OUT", "ALL", "NONE",
                         "TIME_LIMIT_90", "TIME_LIMIT_80", "TIME_LIMIT_50", "TIME_LIMIT"})
_LABELS = {"numtasks": "NumTasks", "requeue": "Requeue", "priority": "Priority", "reboot": "reboot",
           "oversubscribe": "OverSubscribe"}


class _JobUpdate:
    """The changes one command line asks of a job."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.changes: dict[str, str] = {}
        self.job: str | None = None                     # an empty text names no job, and that is no mistake
        self.uid: int | None = None
        self.resizes = False
        self.changes_nothing = False          # a key was given that leaves the job as it is: it is asked all the same

    def refuse(self, text: str) -> Refused:
        """``scontrol: error: text``, then no update."""
        self.call.error(text)
        return Refused()

    def word(self, tag: str, value: str, sign: str, shown: str) -> None:
        """One ``tag[+-]=value``. Raises Refused."""
        for names, least, key, kind in _JOB_KEYS:
            name = next((name for name in names if starts(tag, name, least)), "")
            if name:
                self.key(name, key, kind, value, sign, shown)
                break
        else:
            self.call.fail(f"Update of this parameter is not supported: {shown}\nRequest aborted")
            raise Refused

    def key(self, name: str, key: str, kind: str, value: str, sign: str, shown: str) -> None:
        if key == "admincomment" and sign:
            raise self.refuse("Invalid syntax, AdminComment can not be added/subtracted from.")
        if kind == "limit":
            self.changes[key] = self.time_limit(value, sign)
            return
        found = self.value(name, key, kind, value)
        self.changes_nothing = self.changes_nothing or (found is None and key == "endtime")
        if sign:
            raise self.refuse(f"Option {shown} does not accept [+|-]= syntax")
        if found is None:
            return
        if kind == "id":
            self.job = value
        elif kind == "user":
            self.uid = int(found)
        elif kind == "more" and key in self.changes:
            self.changes[key] += f",{found}"
        else:
            self.changes[key] = found
            self.resizes = self.resizes or key in ("numnodes", "reqnodelist")

    def value(self, name: str, key: str, kind: str, value: str) -> str | None:
        """The checked value; None for a time that is none (said so, and passed over). Raises Refused."""
        call = self.call
        if kind in _TOO_LARGE:
            return self.number(name, key, value, kind)
        if kind == "nice":
            number = _leading(value)
            if abs(number) > NICE_MOST:
                raise self.refuse(f"{name} value out of range (+/- {NICE_MOST}). Value ignored")
            return str(number)
        elif kind == "throttle":
            if not 0 <= _leading(value) <= 0x7FFFFFFF:
                raise self.refuse("Invalid ArrayTaskThrottle value")
            return str(_leading(value))
        elif kind in ("seconds", "minutes"):
            found = durations.parse_seconds(value) if kind == "seconds" else durations.parse_minutes(value)
            if found is None:
                raise self.refuse(f"Invalid {name} value")
            return str(found) if kind == "seconds" else value
        elif kind == "range":
            match = re.fullmatch(r"\s*\+?([0-9]+)(?:-([0-9]+))?", value)
            if not match:
                call.error(f'Invalid numeric value "{value}" for {name}.')
            elif int(match[1]) > 0x7FFFFFFF:
                call.error(f"Numeric argument ({value}) too large for {name}.")
            if not match or not 0 < int(match[1]) <= 0x7FFFFFFF or int(match[2] or match[1]) < int(match[1]):
                raise self.refuse(f"Invalid {name} value: {value}")
            return value.strip()
        elif kind == "nodes":
            value = value.lstrip()
            if value.upper() != "ALL" and not re.fullmatch(r"\+?[0-9]{1,10}[kKmM]?(-[0-9]{1,10}[kKmM]?)?", value):
                call.err.append(f'scontrol: error: "{value}" is not a valid node count\n')
                raise Void
            low, dash, high = value.partition("-")
            if dash and low.isdigit() and high.isdigit() and int(high) < int(low):
                call.err.append(f"scontrol: error: Maximum node count {int(high)} is less than minimum node count "
                                f"{int(low)}\n")
                raise Void
        elif kind == "yes":
            return self.yes(name, key, value)
        elif kind == "spec":
            return value if value in ("-1", "*") else self.number(name, key, value, "u16")
        elif kind in ("start", "time"):
            return self.time(value, kind)
        elif kind == "user":
            uid = uid_of(value)
            if uid is None:
                call.fail(f"Invalid UserID: {value}\nRequest aborted")
                raise Refused
            return str(uid)
        elif kind == "mail" and not all(word.upper() in _MAIL_WORDS for word in value.split(",")):
            call.fail(f"Invalid MailType: {value}")
            raise Refused
        return value

    def yes(self, name: str, key: str, value: str) -> str:
        if starts(value, "YES", 1):
            return "yes"
        if starts(value, "NO", 1):
            return "no"
        return "yes" if self.number(name, key, value, "u16") != "0" else "no"

    def number(self, name: str, key: str, value: str, kind: str) -> str:
        """In decimal; nothing at all is 0. Raises Refused."""
        number = number_text(value, _TOO_LARGE[kind])
        if number is None:
            raise self.refuse(f"Invalid {_LABELS.get(key, name)} value: {value}")
        return number

    def time(self, value: str, kind: str) -> str | None:
        """Epoch seconds, never below now for a start; None, and a line, for what is no time."""
        now = self.call.session.now()
        try:
            found = durations.parse_time(value, now, self.call.zone)
        except durations.TimeSpecError as error:
            self.call.err.append(f"{error}\n")
            return None
        return str(max(found, int(now)) if kind == "start" else found)

    def time_limit(self, value: str, sign: str) -> str:
        """Absolute minutes, or against the job's limit now. Raises Refused."""
        if value[:1] in ("+", "-"):
            if sign:
                raise self.refuse("Invalid syntax, variations of +=- are not accepted.")
            sign, value = value[0], value[1:]
        minutes = durations.parse_minutes(value)
        if minutes is None:
            raise self.refuse("Invalid TimeLimit value")
        if not sign:
            return "UNLIMITED" if minutes == durations.INFINITE else str(minutes)
        if self.job is None:
            raise self.refuse("JobId must precede TimeLimit increment or decrement")
        now = self.limit_now()
        if now == UNLIMITED_MIN:
            raise self.refuse("Cannot increment/decrement TimeLimit when set to UNLIMITED.")
        if sign == "-" and minutes > now:
            raise self.refuse(f"TimeLimit decrement larger than current time limit ({minutes} > {now})")
        return str(now + minutes if sign == "+" else now - minutes)

    def records(self, other: str) -> list[JobRecord]:
        """The records of the job that was named; says what is wrong with it. Raises Refused."""
        if self.job is None:
            raise self.refuse("No job ID specified")
        match = re.fullmatch(r"([0-9]*)(?:_([0-9]+))?", self.job)
        if not match:
            raise self.refuse(f"Invalid job ID {self.job}")
        views = self.call.session.views
        job_id, task = int(match[1][:18] or 0), int(match[2]) if match[2] else None
        found = [job for job in views.jobs.values() if job_id and job_id in (job.job_id, job.array_job_id)]
        if not found:
            raise self.refuse(f"Could not load state information for job {self.job}: Invalid job id specified")
        if len(found) > 1 and task is None:
            raise self.refuse(f"{other} not supported for job arrays")
        return [job for job in found if task is None or holds_task(job, task)] or found

    def limit_now(self) -> int:
        job = self.records("TimeLimit increment/decrement")[0]
        if job.time_limit_min is not None:
            return job.time_limit_min
        partition = self.call.session.views.partitions.get(job.partition.split(",")[0])
        return UNLIMITED_MIN if partition is None or partition.max_time_min is None else partition.max_time_min


def _leading(text: str) -> int:
    match = re.match(r"[ \t]*([+-]?[0-9]{1,18})", text)
    return int(match[1]) if match else 0


async def _update_job(call: Call, words: Sequence[str]) -> None:
    update = _JobUpdate(call)
    index = 0
    while index < len(words):
        word = words[index]
        tag, equals, value = word.partition("=")
        sign = ""
        if equals:
            if tag[-1:] in ("+", "-"):
                sign, tag = tag[-1], tag[:-1]
        elif starts(word, "Nice", 2):
            update.changes["nice"] = "100"
            index += 1
            continue
        elif starts(word, "ResetAccrueTime", 3):
            update.changes["resetaccruetime"] = ""
            index += 1
            continue
        elif index + 1 < len(words):
            index += 1
            value = words[index]
        else:
            call.fail(f"Invalid input: {word}\nRequest aborted")
            raise Refused
        update.word(tag, value, sign, words[index])
        index += 1
    if not update.changes and not update.changes_nothing:
        call.fail("No changes specified")
        return
    if update.job is None and "name" in update.changes:
        update.job = _ids_by_name(call, update.changes["name"], update.uid)
    if update.job is None:
        raise update.refuse("No job ID specified")
    if update.resizes:
        update.records("Job resizing")
    caller, acts = call.session.identity, call.session.acts
    await on_jobs(call, update.job, lambda job: acts.update_job(caller, job, update.changes),
                  tells_success=False)


def _ids_by_name(call: Call, name: str, uid: int | None) -> str:
    """Raises Refused where no job has the name."""
    jobs = call.session.views.jobs
    if not jobs:
        call.error(f"JobName {name} not found")
        raise Refused
    found = [written_id(job) for job in jobs.values() if job.name == name and uid in (None, job.uid)]
    if not found:
        whose = "" if uid is None else f"user ID {uid} and "
        call.error(f"No jobs with {whose}name '{name}'")
        raise Refused
    return ",".join(found)
