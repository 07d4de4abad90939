"""scontrol update JobId=…: each key, what it changes, and in which phase it may be changed (scontrol(1)).

A change is checked and applied key by key on a copy of the request; sizes, shape, priority and queue row follow. Times
in values are epoch seconds or any form of ``durations.parse_time`` (the command resolves the caller's time zone).
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from slurmbridge.controller import holds, queueing
from slurmbridge.controller.access import is_operator, is_super_user
from slurmbridge.controller.submission import Submission, checked_dependencies
from slurmbridge.controller.world import World
from slurmbridge.scheduling.features import FeatureError
from slurmbridge.scheduling.features import parse as parse_features
from slurmbridge.slurm import durations, errors, hostlist, memory, states, tres, words
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.slurm.jobspec import UNLIMITED_MIN
from slurmbridge.slurm.zones import Zone
from slurmbridge.views.records import JobRecord
from slurmbridge.views.session import Identity

MAX_JOB_TEXT = 1024


class JobUpdate:
    """The changes of one ``scontrol update`` to one job. Nothing is changed when one of them is refused."""

    def __init__(self, world: World, submission: Submission, caller: Identity, job: JobRecord) -> None:
        self.world = world
        self.submission = submission
        self.caller = caller
        self.job = job
        self.request = job.request
        self.fields: dict[str, object] = {}
        self.resize = False
        self.after: list[Callable[[], None]] = []

    def run(self, changes: Mapping[str, str]) -> None:
        """Raises SlurmError."""
        if self.job.state in states.FINISHED and not set(changes) <= _ALWAYS:
            raise SlurmError(errors.ESLURM_JOB_FINISHED)
        for key, value in changes.items():
            handler = _KEYS.get(key)
            if handler is None:
                raise SlurmError(errors.ESLURM_NOT_SUPPORTED)
            handler(self, value)
        self._commit()

    def _commit(self) -> None:
        world, job = self.world, self.job
        name = self.fields.pop("name", None)
        job.request = self.request
        for field, value in self.fields.items():
            setattr(job, field, value)
        if name is not None:
            world.jobs.rename(job, str(name))
        if job.state == states.PENDING:
            if self.resize:
                queueing.size_requested(world, job)
            queueing.name_files(world, job)
            world.jobs.refile(job)
            queueing.refresh(world, job)
            if not job.priority_fixed and job.priority:
                world.priorities.initial(job, world.now())
                queueing.reprioritize(world, job)
        for act in self.after:
            act()
        world.journal.job(job)
        world.tell(job)
        world.wake()

    # --- helpers of the keys
    def pending(self) -> None:
        if self.job.state != states.PENDING:
            raise SlurmError(errors.ESLURM_JOB_NOT_PENDING)

    def change(self, **fields: object) -> None:
        self.request = replace(self.request, **fields)  # type: ignore[arg-type]

    def number(self, text: str, low: int = 0) -> int:
        try:
            value = int(text)
        except ValueError:
            raise SlurmError(errors.ESLURM_NOT_SUPPORTED, f"Invalid number {text!r}") from None
        if value < low:
            raise SlurmError(errors.ESLURM_NOT_SUPPORTED, f"Invalid number {text!r}")
        return value

    def time(self, text: str) -> int:
        if text.isdigit() and len(text) >= 9:
            return int(text)
        try:
            return durations.parse_time(text, self.world.now(), Zone.of({}))
        except durations.TimeSpecError:
            raise SlurmError(errors.ESLURM_INVALID_TIME_VALUE) from None

    def hosts(self, text: str) -> list[str]:
        try:
            names = hostlist.expand(text)
        except hostlist.HostlistError:
            raise SlurmError(errors.ESLURM_INVALID_NODE_NAME) from None
        if any(name not in self.world.nodes for name in names):
            raise SlurmError(errors.ESLURM_INVALID_NODE_NAME)
        return names


def _text(field: str, *, on_record: bool, of_admin: bool = False) -> Callable[[JobUpdate, str], None]:
    def handler(update: JobUpdate, value: str) -> None:
        if of_admin and not is_super_user(update.caller, update.world):
            raise SlurmError(errors.ESLURM_ACCESS_DENIED)
        if len(value) > MAX_JOB_TEXT:
            raise SlurmError(errors.ESLURM_PATHNAME_TOO_LONG)
        if on_record:
            update.fields[field] = value
        update.change(**{field: value or None})
    return handler


def _system_comment(update: JobUpdate, value: str) -> None:
    if not is_super_user(update.caller, update.world):
        raise SlurmError(errors.ESLURM_ACCESS_DENIED)
    update.fields["system_comment"] = value


def _name(update: JobUpdate, value: str) -> None:
    update.fields["name"] = value
    update.change(name=value)


def _account(update: JobUpdate, value: str) -> None:
    update.pending()
    account, assoc_id = update.submission.account_of(
        update.job.user_name, value.lower(), update.job.partition.partition(",")[0])
    update.fields.update(account=account, assoc_id=assoc_id)
    update.change(account=account)


def _qos(update: JobUpdate, value: str) -> None:
    if update.job.state not in (states.PENDING, states.RUNNING):
        raise SlurmError(errors.ESLURM_DISABLED)
    qos = update.submission.qos_of(update.job, value or None)
    update.fields["qos"] = qos
    update.change(qos=value or None)


def _partition(update: JobUpdate, value: str) -> None:
    update.pending()
    names = tuple(dict.fromkeys(name for name in value.split(",") if name))
    if not names or any(name not in update.world.partitions for name in names):
        raise SlurmError(errors.ESLURM_INVALID_PARTITION_NAME)
    update.fields.update(partition=",".join(names), partition_priorities={})
    update.change(partitions=names)
    update.resize = True


def _time_limit(update: JobUpdate, value: str) -> None:
    job, world = update.job, update.world
    if job.state in states.FINISHED:
        raise SlurmError(errors.ESLURM_JOB_FINISHED)
    sign, text = (value[0], value[1:]) if value[:1] in "+-" and value != "-1" else ("", value)
    minutes = durations.parse_minutes(text)
    if minutes is None:
        raise SlurmError(errors.ESLURM_INVALID_TIME_LIMIT)
    now = job.time_limit_min or 0
    if sign:
        if now == UNLIMITED_MIN:
            raise SlurmError(errors.ESLURM_INVALID_TIME_LIMIT)
        minutes = now + minutes if sign == "+" else now - minutes
        if minutes < 0:
            raise SlurmError(errors.ESLURM_INVALID_TIME_LIMIT)
    shorter = job.time_limit_min is not None and minutes < job.time_limit_min
    if not is_operator(update.caller, world):
        if job.state != states.PENDING and not shorter:
            raise SlurmError(errors.ESLURM_ACCESS_DENIED)
        partition = world.partitions.get(job.partition.partition(",")[0])
        most = partition.max_time_min if partition is not None else None
        if not shorter and most is not None and minutes > most:
            raise SlurmError(errors.ESLURM_INVALID_TIME_LIMIT)
    update.fields["time_limit_min"] = minutes
    update.change(time_limit_min=minutes)
    if job.state in (states.RUNNING, states.SUSPENDED):
        end = None if minutes == UNLIMITED_MIN else (job.start_s or 0) + job.pre_suspend_s + minutes * 60
        update.fields["end_s"] = end
        update.after.append(lambda: world.limit_changed(job))


def _end_time(update: JobUpdate, value: str) -> None:
    if not is_operator(update.caller, update.world):
        raise SlurmError(errors.ESLURM_ACCESS_DENIED)
    if update.job.state != states.RUNNING:
        raise SlurmError(errors.ESLURM_JOB_NOT_RUNNING)
    end = update.time(value)
    _time_limit(update, str(max(1, round((end - (update.job.start_s or 0)) / 60))))


def _time_min(update: JobUpdate, value: str) -> None:
    update.pending()
    minutes = durations.parse_minutes(value)
    limit = update.fields.get("time_limit_min", update.job.time_limit_min)
    if minutes is None or (isinstance(limit, int) and minutes > limit):
        raise SlurmError(errors.ESLURM_INVALID_TIME_MIN_LIMIT)
    update.fields["time_min_min"] = minutes
    update.change(time_min_min=minutes)


def _start_time(update: JobUpdate, value: str) -> None:
    update.pending()
    begin = update.time(value)
    update.change(begin_s=begin)
    if begin > update.world.now():
        update.fields["eligible_s"] = float(begin)
        if update.job.priority:
            update.fields.update(reason="BeginTime", start_s=float(begin))
    else:
        update.fields["eligible_s"] = None
        if update.job.reason == "BeginTime":
            update.fields.update(reason="None", start_s=None)
        update.after.append(lambda: queueing.becomes_eligible(update.world, update.job))


def _deadline(update: JobUpdate, value: str) -> None:
    update.pending()
    when = update.time(value)
    if when <= update.world.now():
        raise SlurmError(errors.ESLURM_INVALID_TIME_VALUE)
    update.fields["deadline_s"] = when
    update.change(deadline_s=when)


def _dependency(update: JobUpdate, value: str) -> None:
    update.pending()
    given = checked_dependencies(update.world, update.job, value)
    update.fields["dependency"] = str(given)
    update.change(dependency=value or None)
    if update.job.reason in ("Dependency", "DependencyNeverSatisfied"):
        update.fields["reason"] = "None"
    update.after.append(lambda: update.world.judge(update.job))


def _features(update: JobUpdate, value: str) -> None:
    update.pending()
    _check_features(update, value)
    update.change(constraint=value or None)
    update.resize = True


def _prefer(update: JobUpdate, value: str) -> None:
    update.pending()
    _check_features(update, value)
    update.change(prefer=value or None)


def _check_features(update: JobUpdate, value: str) -> None:
    try:
        names = {feature.name for feature in parse_features(value)}
    except FeatureError:
        raise SlurmError(errors.ESLURM_INVALID_FEATURE) from None
    if not names <= set(update.world.columns.features):
        raise SlurmError(errors.ESLURM_INVALID_FEATURE)


def _nodes(update: JobUpdate, value: str) -> None:
    update.pending()
    text = value.replace(" ", "")
    try:
        count = words.parse_node_count(text)
    except words.WordError:
        raise SlurmError(errors.ESLURM_INVALID_NODE_COUNT) from None
    low, high = count[0], count[1]
    update.change(min_nodes=low, max_nodes=high or None, nodes_given=True)
    update.resize = True


def _count(field: str, low: int = 1, **more: object) -> Callable[[JobUpdate, str], None]:
    def handler(update: JobUpdate, value: str) -> None:
        update.pending()
        update.change(**{field: update.number(value.partition("-")[0], low)}, **more)
        update.resize = True
    return handler


def _memory(field: str, other: str) -> Callable[[JobUpdate, str], None]:
    def handler(update: JobUpdate, value: str) -> None:
        update.pending()
        megabytes = memory.parse_mb(value)
        if megabytes is None:
            raise SlurmError(errors.ESLURM_INVALID_TASK_MEMORY)
        update.change(**{field: megabytes, other: None, "mem_per_tres": None})
        update.resize = True
    return handler


def _tmp_disk(update: JobUpdate, value: str) -> None:
    update.pending()
    megabytes = memory.parse_mb(value)
    if megabytes is None:
        raise SlurmError(errors.ESLURM_NOT_SUPPORTED)
    update.change(tmp_disk_mb=megabytes)
    update.resize = True


def _req_nodes(update: JobUpdate, value: str) -> None:
    update.pending()
    if value:
        update.hosts(value)
    update.change(node_list=value or None)
    update.resize = True


def _exc_nodes(update: JobUpdate, value: str) -> None:
    update.pending()
    if value:
        update.hosts(value)
    update.change(exclude=value or None)
    update.resize = True


def _gres(update: JobUpdate, value: str) -> None:
    update.pending()
    update.change(tres_per_node=tres.canonical_gres(value) if value else None)
    update.resize = True


def _tres(field: str) -> Callable[[JobUpdate, str], None]:
    def handler(update: JobUpdate, value: str) -> None:
        update.pending()
        update.change(**{field: value or None})
        update.resize = True
    return handler


def _licenses(update: JobUpdate, value: str) -> None:
    if value:
        raise SlurmError(errors.ESLURM_INVALID_LICENSES)
    update.change(licenses=None)


def _reservation(update: JobUpdate, value: str) -> None:
    update.pending()
    if value:
        raise SlurmError(errors.ESLURM_RESERVATION_INVALID)
    update.change(reservation=None)


def _nice(update: JobUpdate, value: str) -> None:
    nice = int(value) if value.lstrip("+-").isdigit() else 100 if not value else None
    if nice is None or abs(nice) > 0x7FFFFFFF:
        raise SlurmError(errors.ESLURM_INVALID_NICE)
    if nice < update.job.nice and nice < 0 and not is_operator(update.caller, update.world):
        raise SlurmError(errors.ESLURM_ACCESS_DENIED)
    update.fields["nice"] = nice
    update.change(nice=nice)


def _priority(update: JobUpdate, value: str) -> None:
    if value.upper() in ("-1", "INFINITE", "UNLIMITED"):
        update.after.append(lambda: holds.release(update.world, update.job, update.caller))
        return
    priority = update.number(value)
    if priority and not is_operator(update.caller, update.world) and (
            update.job.priority == 0 or priority > update.job.priority):
        raise SlurmError(errors.ESLURM_ACCESS_DENIED)
    update.pending()
    update.after.append(lambda: holds.set_priority(update.world, update.job, update.caller, priority))


def _site_factor(update: JobUpdate, value: str) -> None:
    if not is_operator(update.caller, update.world):
        raise SlurmError(errors.ESLURM_ACCESS_DENIED)
    update.fields["site_factor"] = int(value) if value.lstrip("+-").isdigit() else update.number(value)


def _requeue(update: JobUpdate, value: str) -> None:
    update.fields["requeue"] = update.number(value) != 0


def _throttle(update: JobUpdate, value: str) -> None:
    if not update.job.array_job_id:
        raise SlurmError(errors.ESLURM_NOT_SUPPORTED)
    update.fields["array_max_running"] = update.number(value)


def _oversubscribe(update: JobUpdate, value: str) -> None:
    update.pending()
    word = value.lower()
    if word in ("ok", "yes", "1"):
        update.change(oversubscribe=word != "ok", exclusive=None)
    elif word in ("no", "0", "exclusive"):
        update.change(oversubscribe=False, exclusive="exclusive")
    else:
        raise SlurmError(errors.ESLURM_NOT_SUPPORTED)
    update.resize = True


def _contiguous(update: JobUpdate, value: str) -> None:
    update.pending()
    update.change(contiguous=value.lower() in ("1", "yes", "y"))
    update.resize = True


def _begin_now(update: JobUpdate, value: str) -> None:
    if not is_operator(update.caller, update.world):
        raise SlurmError(errors.ESLURM_ACCESS_DENIED)
    update.fields["accrue_s"] = update.world.now()


def _file(field: str) -> Callable[[JobUpdate, str], None]:
    def handler(update: JobUpdate, value: str) -> None:
        update.pending()
        if len(value) >= 4096:
            raise SlurmError(errors.ESLURM_PATHNAME_TOO_LONG)
        update.change(**{field: value})
    return handler


def _mail_type(update: JobUpdate, value: str) -> None:
    parsed = words.parse_mail_type(value)
    if parsed is None:
        raise SlurmError(errors.ESLURM_NOT_SUPPORTED)
    update.change(mail_type=parsed)


_KEYS: dict[str, Callable[[JobUpdate, str], None]] = {
    "comment": _text("comment", on_record=True), "admincomment": _text("admin_comment", on_record=True, of_admin=True),
    "systemcomment": _system_comment, "extra": _text("extra", on_record=False),
    "wckey": _text("wckey", on_record=True), "mailuser": _text("mail_user", on_record=False), "mailtype": _mail_type,
    "container": _text("container", on_record=False), "burstbuffer": _text("burst_buffer", on_record=False),
    "clusterfeatures": _text("cluster_constraint", on_record=False),
    "name": _name, "jobname": _name, "account": _account, "qos": _qos, "partition": _partition,
    "timelimit": _time_limit, "timemin": _time_min, "endtime": _end_time, "starttime": _start_time,
    "eligibletime": _start_time, "begintime": _start_time, "deadline": _deadline, "dependency": _dependency,
    "features": _features, "prefer": _prefer, "numnodes": _nodes, "reqnodes": _nodes, "minnodes": _nodes,
    "numcpus": _count("num_tasks", num_tasks_given=True), "reqprocs": _count("num_tasks", num_tasks_given=True),
    "numtasks": _count("num_tasks", num_tasks_given=True), "mincpus": _count("num_tasks", num_tasks_given=True),
    "cpuspertask": _count("cpus_per_task"), "taskspernode": _count("ntasks_per_node"),
    "ntaskspernode": _count("ntasks_per_node"), "mincpusnode": _count("min_cpus_per_node"),
    "reqsockets": _count("sockets_per_node"), "reqcores": _count("cores_per_socket"),
    "reqthreads": _count("threads_per_core"), "corespec": _count("core_spec", 0),
    "threadspec": _count("thread_spec", 0),
    "minmemorynode": _memory("mem_per_node_mb", "mem_per_cpu_mb"),
    "minmemorycpu": _memory("mem_per_cpu_mb", "mem_per_node_mb"), "mintmpdisknode": _tmp_disk,
    "reqnodelist": _req_nodes, "nodelist": _req_nodes, "excnodelist": _exc_nodes, "gres": _gres,
    "tresperjob": _tres("tres_per_job"), "trespernode": _tres("tres_per_node"),
    "trespersocket": _tres("tres_per_socket"), "trespertask": _tres("tres_per_task"),
    "cpuspertres": _tres("cpus_per_tres"), "mempertres": _tres("mem_per_tres"), "licenses": _licenses,
    "reservationname": _reservation, "reservation": _reservation,
    "nice": _nice, "priority": _priority, "sitefactor": _site_factor, "requeue": _requeue,
    "arraytaskthrottle": _throttle, "oversubscribe": _oversubscribe, "shared": _oversubscribe,
    "contiguous": _contiguous, "resetaccruetime": _begin_now, "stdout": _file("std_out"),
    "stderr": _file("std_err"), "stdin": _file("std_in"),
    "workdir": _file("work_dir"), "switches": _count("switches", 0), "wait-for-switch": _count("switches_wait_s", 0),
    "delayboot": _count("delay_boot_s", 0)}
_ALWAYS = frozenset({"comment", "admincomment", "systemcomment", "extra", "name", "jobname", "wckey"})
"""May be changed when the job is over."""
