"""Keys of ``scontrol update JobId=…`` apart from sizes: what each changes and in which phase it may (scontrol(1)).

Times are epoch seconds or any form of ``durations.parse_time`` (the command resolves the caller's time zone).
"""
from __future__ import annotations

from dataclasses import replace

from slurmbridge.controller import holds, queueing, submission_checks
from slurmbridge.controller.access import is_operator, is_super_user
from slurmbridge.controller.job_update import JobUpdate, Key
from slurmbridge.controller.license_updates import licenses_changed
from slurmbridge.controller.submission import checked_dependencies
from slurmbridge.controller.update_sizes import SIZE_KEYS
from slurmbridge.slurm import durations, errors, states, words
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.slurm.jobspec import UNLIMITED_MIN

MAX_JOB_TEXT = 1024


def _text(field: str, *, on_record: bool, of_admin: bool = False) -> Key:
    def handler(update: JobUpdate, value: str) -> None:
        if of_admin and not is_super_user(update.caller, update.world):
            raise SlurmError(errors.ESLURM_ACCESS_DENIED)
        if len(value) > MAX_JOB_TEXT:
            raise SlurmError(errors.ESLURM_PATHNAME_TOO_LONG)
        if on_record:
            update.fields[field] = value
        update.change(**{field: value})
    return handler


def _mcs_label(update: JobUpdate, value: str) -> None:
    """Without a plugin for labels a job has none."""
    update.pending()


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


def _wckey(update: JobUpdate, value: str) -> None:
    if value == update.job.wckey:
        return
    update.pending()
    if len(value) > MAX_JOB_TEXT:
        raise SlurmError(errors.ESLURM_PATHNAME_TOO_LONG)
    wckey = update.submission.wckey_of(update.job, value)
    update.fields["wckey"] = wckey
    update.change(wckey=wckey)


def _qos(update: JobUpdate, value: str) -> None:
    if update.job.state not in (states.PENDING, states.RUNNING):
        raise SlurmError(errors.ESLURM_DISABLED)
    qos = update.submission.qos_of(update.job, value or None)
    if qos == update.job.qos and "," not in value + (update.job.request.qos or ""):
        return
    update.pending()
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
    sign, text = (value[0], value[1:]) if value[:1] in "+-" else ("", value)
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
            raise SlurmError(errors.ESLURM_ACCESS_DENIED)
    update.fields["time_limit_min"] = minutes
    if is_operator(update.caller, world):
        update.fields["time_waived"] = True
    update.change(time_limit_min=minutes)
    if job.state in (states.RUNNING, states.SUSPENDED):
        end = None if minutes == UNLIMITED_MIN else (job.start_s or 0) + job.pre_suspend_s + minutes * 60
        update.fields["end_s"] = end
        update.after.append(lambda: world.limit_changed(job))


def _end_time(update: JobUpdate, value: str) -> None:
    if update.job.state != states.RUNNING:
        raise SlurmError(errors.ESLURM_JOB_NOT_RUNNING)
    update.of_operator()
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
            update.fields.update(reason="BeginTime", reason_desc="", start_s=float(begin))
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
    update.of_operator()
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


def _licenses(update: JobUpdate, value: str) -> None:
    update.change(licenses=submission_checks.asked_licenses(value))
    submission_checks.check_licenses(update.request, update.world.settings.licenses_total)
    job = update.job
    if job.state in (states.RUNNING, states.SUSPENDED) and update.request.licenses != job.request.licenses:
        if update.request.licenses:
            update.of_operator()
        update.after.append(lambda: licenses_changed(update.world, job))


def _reservation(update: JobUpdate, value: str) -> None:
    if value == (update.job.request.reservation or ""):
        return
    update.pending()
    update.change(reservation=value or None)
    if value:
        update.world.reservation_book.check(replace(update.job, request=update.request))


def _nice(update: JobUpdate, value: str) -> None:
    nice = int(value) if value.lstrip("+-").isdigit() else 100 if not value else None
    if nice is None or abs(nice) > 0x7FFFFFFF:
        raise SlurmError(errors.ESLURM_INVALID_NICE)
    if nice < update.job.nice and nice < 0 and not is_operator(update.caller, update.world):
        raise SlurmError(errors.ESLURM_ACCESS_DENIED)
    update.fields["nice"] = nice
    update.change(nice=nice)


def _priority(update: JobUpdate, value: str) -> None:
    priority = update.number(value)
    if priority and update.job.priority == 0:
        raise SlurmError(errors.ESLURM_JOB_HELD)
    if priority > update.job.priority and not is_operator(update.caller, update.world):
        raise SlurmError(errors.ESLURM_ACCESS_DENIED)
    update.after.append(lambda: holds.set_priority(update.world, update.job, update.caller, priority))


def _site_factor(update: JobUpdate, value: str) -> None:
    if not is_operator(update.caller, update.world):
        raise SlurmError(errors.ESLURM_ACCESS_DENIED)
    update.fields["site_factor"] = int(value) if value.lstrip("+-").isdigit() else update.number(value)


def _requeue(update: JobUpdate, value: str) -> None:
    update.fields["requeue"] = update.number(value) != 0


def _throttle(update: JobUpdate, value: str) -> None:
    if update.job.state in states.FINISHED:
        raise SlurmError(errors.ESLURM_JOB_FINISHED)
    update.fields["array_max_running"] = update.number(value)


def _begin_now(update: JobUpdate, value: str) -> None:
    update.pending()
    if update.job.accrue_s is not None:
        update.fields["accrue_s"] = update.world.now()


def _file(field: str) -> Key:
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


def _reboot(update: JobUpdate, value: str) -> None:
    if not is_super_user(update.caller, update.world):
        raise SlurmError(errors.ESLURM_ACCESS_DENIED)
    update.change(reboot=value.lower() in ("1", "yes", "y"))


def _never(code: int) -> Key:
    """What only a site with burst buffers or a federation can change."""
    def handler(update: JobUpdate, value: str) -> None:
        raise SlurmError(code)
    return handler


KEYS: dict[str, Key] = {
    **SIZE_KEYS,
    "reboot": _reboot, "mcslabel": _mcs_label,
    "comment": _text("comment", on_record=True),
    "admincomment": _text("admin_comment", on_record=True, of_admin=True), "systemcomment": _system_comment,
    "extra": _text("extra", on_record=False), "wckey": _wckey,
    "mailuser": _text("mail_user", on_record=False), "mailtype": _mail_type,
    "container": _text("container", on_record=False), "burstbuffer": _never(errors.ESLURM_NOT_SUPPORTED),
    "clusterfeatures": _never(-1), "clusters": _never(-1), "name": _name,
    "account": _account, "qos": _qos, "partition": _partition, "timelimit": _time_limit, "timemin": _time_min,
    "endtime": _end_time, "starttime": _start_time,
    "deadline": _deadline, "dependency": _dependency, "licenses": _licenses, "reservationname": _reservation,
    "nice": _nice, "priority": _priority, "sitefactor": _site_factor,
    "requeue": _requeue, "arraytaskthrottle": _throttle, "resetaccruetime": _begin_now, "stdout": _file("std_out"),
    "stderr": _file("std_err"), "stdin": _file("std_in"), "workdir": _file("work_dir"),}

_TRES = "cpuspertres tresperjob trespernode gres trespersocket trespertask mempertres"
_ORDER = f"""
burstbuffer arraytaskthrottle ?admincomment mcslabel ?partition ?account ?qos resetaccruetime excnodelist reqnodelist
?reservationname {" ".join("?" + key for key in _TRES.split())} ?licenses switches wait-for-switch admincomment
systemcomment comment extra qos account partition reservationname numcpus mincpusnode cpuspertask numnodes numtasks
timelimit timemin endtime deadline delayboot requeue priority nice minmemorynode minmemorycpu mintmpdisknode reqsockets
reqcores reqthreads oversubscribe contiguous corespec threadspec features prefer clusterfeatures clusters {_TRES} name
workdir stderr stdin stdout wckey taskspernode dependency starttime licenses ~reboot tresbind tresfreq container
mailtype mailuser ~sitefactor"""
ORDER: tuple[tuple[str, str], ...] = tuple(
    (word[0] if word[0] in "?~" else "", word.lstrip("?~")) for word in _ORDER.split())
"""slurmctld's order of keys, for ``JobUpdate.run`` (observed in 25.11)."""
