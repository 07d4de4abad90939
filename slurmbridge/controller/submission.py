"""From a request to a queued job: Slurm's checks in Slurm's order, with Slurm's codes, and the defaults it fills in.

``Submission.create`` makes the records of one submission (a job, an array's pending record, or the components of a
heterogeneous job) or raises SlurmError and leaves nothing behind. Facts: sbatch(1), slurm.conf(5).
"""
from __future__ import annotations

import errno
import grp
import pwd
from collections.abc import Sequence
from itertools import pairwise

from slurmbridge.controller import dependencies, job_texts, shapes, submission_checks, submit_limits
from slurmbridge.controller.access import is_operator, is_super_user
from slurmbridge.controller.directory_checks import Directory
from slurmbridge.controller.partition_checks import PartitionChecks
from slurmbridge.controller.world import World
from slurmbridge.scheduling.features import FeatureError
from slurmbridge.scheduling.features import parse as parse_features
from slurmbridge.slurm import array, errors, hostlist
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.slurm.jobspec import JobRequest, with_changes
from slurmbridge.views.records import JobRecord, PartitionRecord
from slurmbridge.views.session import Identity, Invocation

_LENGTHS: dict[str, int] = {
    "account": 1024, "array": 4096, "burst_buffer": 8192, "comment": 1024, "cpu_bind": 131072, "cpus_per_tres": 1024,
    "dependency": 131072, "extra": 1024, "constraint": 1024, "cluster_constraint": 1024, "licenses": 1024,
    "mail_user": 1024, "mcs_label": 1024, "mem_bind": 131072, "mem_per_tres": 1024, "name": 1024, "network": 1024,
    "prefer": 1024, "qos": 1024, "reservation": 1024, "std_err": 4096, "std_in": 4096, "std_out": 4096,
    "tres_bind": 1024, "tres_freq": 1024, "tres_per_job": 1024, "tres_per_node": 1024, "tres_per_socket": 1024,
    "tres_per_task": 1024, "wckey": 1024, "work_dir": 4096}
MAX_SCRIPT = 4 << 20
MAX_SWITCH_WAIT_S = 300
MAX_SUBMIT_LINE = 1 << 20


class Submission:
    """Makes records; the caller files them and makes them durable."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._directory = Directory(world.accounting, world.conf, world.partitions)
        self._checks = PartitionChecks(world)

    # --- entry
    def create(self, caller: Identity, invocation: Invocation, requests: Sequence[JobRequest], *,
               test_only: bool = False) -> list[JobRecord]:
        """The new records, filed in no index yet. Raises SlurmError."""
        world = self._world
        prepared = []
        for offset, request in enumerate(submission_checks.without_others_nodes(requests)):
            try:
                prepared.append(self._prepare(caller, request))
            except SlurmError as error:
                if len(requests) < 2:
                    raise
                raise SlurmError(error.code, details=tuple(f"{offset}: {line}" for line in error.details)) from None
            if offset and request.licenses:
                raise SlurmError(errors.ESLURM_INVALID_LICENSES,
                                 details=(f"{offset}: license request allowed only on leader job",))
        tasks = sum(max(1, bitmap.bit_count()) for _, bitmap, _ in prepared)
        if world.jobs.count + tasks > world.conf.max_job_count and not test_only:
            raise SlurmError(errno.EAGAIN)
        het = len(requests) > 1
        records: list[JobRecord] = []
        first_id = world.jobs.next_id
        for offset, (request, bitmap, throttle) in enumerate(prepared):
            records.append(self._record(caller, invocation, request, bitmap, throttle, first_id + offset,
                                        het_offset=offset if het else None))
        if het:
            ids = tuple(record.job_id for record in records)
            for record in records:
                record.het_job_id, record.het_job_ids = first_id, ids
        for _ in records:                     # --test-only takes a number too
            world.jobs.new_id()
        return records

    # --- what does not depend on partitions (validate_job_create_req)
    def _prepare(self, caller: Identity, request: JobRequest) -> tuple[JobRequest, int, int]:
        world = self._world
        if request.uid != caller.uid and not is_super_user(caller, world):
            raise SlurmError(errors.ESLURM_USER_ID_MISSING)
        if request.uid == 0 and world.conf.disable_root_jobs:
            raise SlurmError(errors.ESLURM_USER_ID_MISSING)
        changes: dict[str, object] = {}
        if not is_operator(caller, world):
            if request.priority:
                changes["priority"] = None
            if request.nice is not None and request.nice < 0:
                raise SlurmError(errors.ESLURM_INVALID_NICE)
        if not is_super_user(caller, world):
            if request.admin_comment:
                raise SlurmError(errors.ESLURM_ACCESS_DENIED)
            if request.reboot:
                raise SlurmError(errors.ESLURM_ACCESS_DENIED,
                                 details=("rebooting of nodes is only allowed for admins",))
        if (request.distribution or "").startswith("arbitrary") and request.num_tasks is None:
            raise SlurmError(errors.ESLURM_BAD_TASK_COUNT, details=("task count required for arbitrary distribution",))
        self._check_features(request.constraint, errors.ESLURM_INVALID_FEATURE)
        self._check_features(request.prefer, errors.ESLURM_INVALID_PREFER)
        self._check_lengths(request)
        bitmap, throttle = self._array(request)
        if request.account and request.account != request.account.lower():
            changes["account"] = request.account.lower()
        if request.wckey:
            changes["wckey"] = request.wckey.lower()
            if request.wckey.startswith("*"):
                raise SlurmError(errors.ESLURM_INVALID_WCKEY)
        if world.conf.values.get("AllowSpecResourcesUsage", "no").lower() not in ("yes", "up", "true", "1"):
            changes.update(core_spec=None, thread_spec=None)
        if request.constraint and "," in request.constraint:
            changes["constraint"] = request.constraint.replace(",", "&")
        if request.reboot:
            changes.update(exclusive="exclusive", oversubscribe=False)
        if request.node_list and request.min_nodes is None:
            changes["min_nodes"] = len(self._checks.nodes(request.node_list))
        return with_changes(request, **changes) if changes else request, bitmap, throttle

    def _check_features(self, text: str | None, code: int) -> None:
        if not text:
            return
        try:
            features = parse_features(text)
        except FeatureError:
            raise SlurmError(code) from None
        known = self._world.columns.features
        if any(feature.name not in known for feature in features):
            raise SlurmError(code)

    def _check_lengths(self, request: JobRequest) -> None:
        parameters = self._world.conf.scheduler_parameters
        for name, limit in _LENGTHS.items():
            value = getattr(request, name)
            if value is not None and len(value) >= limit:
                raise SlurmError(errors.ESLURM_PATHNAME_TOO_LONG)
        script_limit = int(parameters.get("max_script_size") or MAX_SCRIPT)
        line_limit = int(parameters.get("max_submit_line_size") or MAX_SUBMIT_LINE)
        if request.script is not None and len(request.script) >= script_limit:
            raise SlurmError(errors.ESLURM_PATHNAME_TOO_LONG)
        if len(request.submit_line) >= line_limit or sum(map(len, request.partitions)) >= 1024:
            raise SlurmError(errors.ESLURM_PATHNAME_TOO_LONG)

    def _array(self, request: JobRequest) -> tuple[int, int]:
        """(bitmap of tasks, most at once); (0, 0): no array."""
        if not request.array:
            return 0, 0
        conf = self._world.conf
        if not request.script or conf.max_array_size == 0:
            raise SlurmError(errors.ESLURM_INVALID_ARRAY)
        try:
            tasks, throttle = array.parse(request.array, conf.max_array_size)
        except array.ArraySpecError:
            raise SlurmError(errors.ESLURM_INVALID_ARRAY) from None
        most = conf.scheduler_parameters.get("max_array_tasks")
        if most and len(tasks) > int(most):
            raise SlurmError(errors.ESLURM_INVALID_ARRAY)
        return sum(1 << task for task in tasks), throttle

    # --- with partitions (_job_create)
    def _record(self, caller: Identity, invocation: Invocation, request: JobRequest, bitmap: int, throttle: int,
                job_id: int, het_offset: int | None) -> JobRecord:
        world, now = self._world, self._world.now()
        conf = world.conf
        if request.node_list:
            self._checks.nodes(request.node_list)
        if request.max_nodes == 0:
            raise SlurmError(errors.ESLURM_INVALID_NODE_COUNT)
        partitions = self._checks.partitions(request)
        user_name = caller.user_name if request.uid == caller.uid else _user_name(request.uid)
        group_name = caller.group_name if request.gid == caller.gid else _group_name(request.gid)
        wckey = self._directory.wckey(request.wckey, user_name)
        association = self._directory.association(user_name, request.account, partitions[0].name)
        if association is not None:
            account = association.account
        else:
            account = request.account or ""
        qos = self._directory.qos(request.qos, association, request.reservation)
        self._checks.check(caller, request, partitions, account, qos, invocation.host)
        time_limit = self._checks.time_limit(request, partitions[0], now)
        if request.signal_reservation and conf.preempt_mode == "OFF":
            raise SlurmError(errors.ESLURM_PREEMPTION_REQUIRED)
        self._check_sampling(request, partitions[0])
        if request.x11:
            raise SlurmError(errors.ESLURM_X11_NOT_AVAIL)
        submission_checks.check_licenses(request, self._world.settings.licenses_total)
        submission_checks.check_container(request, self._world.engine.name)
        submission_checks.check_gres(request, conf.gres_types, conf.accounting_storage_tres)
        request = world.shared.request(with_changes(
            request, user_name=user_name, group_name=group_name, switches_wait_s=self._switch_wait(request),
            partitions=tuple([partition.name for partition in partitions]),
            node_list=_unique_hosts(request.node_list)))
        job = JobRecord(
            job_id, request, array_job_id=job_id if bitmap else 0, array_pending=bitmap or None,
            array_max_running=throttle, user_name=user_name, group_name=group_name,
            uid=request.uid, gid=request.gid, name=request.name or "", account=account,
            assoc_id=association.id if association is not None else 0,
            partition=",".join(request.partitions), qos=qos, wckey=wckey, nice=request.nice or 0,
            submit_s=now, time_limit_min=time_limit, time_min_min=request.time_min_min, deadline_s=request.deadline_s,
            last_sched_eval_s=now, alloc_node=invocation.host, alloc_sid=invocation.sid,
            requeue=conf.job_requeue if request.requeue is None else request.requeue, comment=request.comment or "",
            admin_comment=request.admin_comment or "", het_offset=het_offset or 0)
        if bitmap:
            tasks = [task for task in range(bitmap.bit_length()) if bitmap >> task & 1]
            steps = {second - first for first, second in pairwise(tasks)}
            job.array_task_min, job.array_task_max, job.array_task_count = tasks[0], tasks[-1], len(tasks)
            job.array_task_step = steps.pop() if len(steps) == 1 else 1
        if job.deadline_s and job.time_limit_min is None and job.time_min_min is None:
            job.time_min_min = 1
        shapes.size_requested(world, job)
        self._check_excluded(request)
        word = submit_limits.violated(job, world.limits, world.accounting, partitions)
        if word is not None:
            raise SlurmError(errors.ESLURM_ACCOUNTING_POLICY, details=(word,))
        exclude = _unique_hosts(request.exclude)
        if exclude != request.exclude:
            job.request = request = world.shared.request(with_changes(request, exclude=exclude))
        self._dependency(job, request)
        submission_checks.check_batch_features(request)
        if request.reservation:
            world.reservation_book.check(job)
        self._priority(job, request, now)
        job_texts.name_files(world, job)
        return job

    def _check_sampling(self, request: JobRequest, partition: PartitionRecord) -> None:
        """--acctg-freq: where memory is limited, tasks are sampled at least as often as slurm.conf says."""
        conf = self._world.conf
        memory = (request.mem_per_node_mb, request.mem_per_cpu_mb, partition.def_mem_per_cpu_mb,
                  partition.def_mem_per_node_mb, conf.def_mem_per_cpu_mb, conf.def_mem_per_node_mb)
        given, most = task_frequency(request.acctg_freq), task_frequency(conf.job_acct_gather_frequency)
        if given is None or most == 0 or not next((one for one in memory if one is not None), 0):
            return
        if given == 0 or (most is not None and given > most):
            raise SlurmError(errors.ESLURMD_INVALID_ACCT_FREQ)

    def _switch_wait(self, request: JobRequest) -> int | None:
        """--switches=N@T: as long as SchedulerParameters=max_switch_wait allows."""
        if request.switches is None:
            return request.switches_wait_s
        most = int(self._world.conf.scheduler_parameters.get("max_switch_wait") or MAX_SWITCH_WAIT_S)
        return most if request.switches_wait_s is None else min(most, request.switches_wait_s)

    def _check_excluded(self, request: JobRequest) -> None:
        if not request.exclude:
            return
        excluded = self._checks.nodes(request.exclude)
        if request.node_list:
            wanted = self._checks.nodes(request.node_list)
            if len(wanted) <= (request.min_nodes or 1) and set(wanted) & set(excluded):
                raise SlurmError(errors.ESLURM_INVALID_NODE_NAME)

    def _dependency(self, job: JobRecord, request: JobRequest) -> None:
        if not request.dependency:
            return
        world = self._world
        job.dependency = str(checked_dependencies(world, job, request.dependency))

    def _priority(self, job: JobRecord, request: JobRequest, now: float) -> None:
        """Hold, begin time, dependency and priority of a new job."""
        begin = float(request.begin_s or 0)
        job.eligible_s = begin if begin > now else None
        if request.hold or request.priority == 0:
            job.priority, job.reason = 0, "JobHeldUser"
            return
        if request.priority is not None:
            job.priority, job.priority_fixed = request.priority, True
        else:
            job.priority = 1
        if job.dependency:
            job.reason = "Dependency"
        elif job.eligible_s is not None:
            job.reason = "BeginTime"

    def account_of(self, user_name: str, account: str | None, partition: str) -> tuple[str, int]:
        """(account, association id) for a changed job. Raises SlurmError."""
        record = self._directory.association(user_name, account, partition)
        return (record.account, record.id) if record is not None else (account or "", 0)

    def qos_of(self, job: JobRecord, wanted: str | None) -> str:
        """The QOS of a changed job. Raises SlurmError."""
        record = self._world.accounting.associations.get(job.assoc_id)
        return self._directory.qos(wanted, record, job.request.reservation)

    def wckey_of(self, job: JobRecord, wanted: str) -> str:
        """The wckey that this job of the user's would get."""
        return self._directory.wckey(wanted, job.user_name)


def checked_dependencies(world: World, job: JobRecord, text: str) -> dependencies.Dependencies:
    """What ``--dependency`` means for this job. Raises SlurmError."""
    try:
        given = dependencies.parse(text, world.conf.max_array_size)
        if any(test.kind == "expand" for test in given.tests):
            raise SlurmError(errors.ESLURM_NOT_SUPPORTED)
        given = dependencies.resolve(given, job.array_job_id or job.job_id, world.find, world.jobs.array)
    except dependencies.BadDependency:
        raise SlurmError(errors.ESLURM_DEPENDENCY) from None
    if dependencies.is_circular(given.tests, job.array_job_id or job.job_id, world.find):
        raise SlurmError(errors.ESLURM_CIRCULAR_DEPENDENCY)
    return given


def task_frequency(text: str | None) -> int | None:
    """Seconds of ``5`` or ``task=5,energy=30``; None: not given."""
    for part in (text or "").split(","):
        name, _, value = part.rpartition("=")
        if name in ("", "task") and value.isdigit():
            return int(value)
    return None


def _unique_hosts(text: str | None) -> str | None:
    return hostlist.compress(hostlist.expand(text), unique=True) if text else text


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


