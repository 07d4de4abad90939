"""Keys of ``scontrol update JobId=…`` that change what a job asks for: nodes, tasks, memory, features, devices."""
from __future__ import annotations

import re

from slurmbridge.controller.job_update import JobUpdate, Key
from slurmbridge.scheduling.features import FeatureError
from slurmbridge.scheduling.features import parse as parse_features
from slurmbridge.slurm import durations, errors, memory, tres, words
from slurmbridge.slurm.errors import SlurmError

MAX_SWITCH_WAIT_S = 300


def _features(update: JobUpdate, value: str) -> None:
    update.pending()
    _check_features(update, value)
    update.change(constraint=value or None)
    update.resize = True


def _prefer(update: JobUpdate, value: str) -> None:
    update.pending()
    _check_features(update, value, errors.ESLURM_INVALID_PREFER)
    update.change(prefer=value or None)


def _check_features(update: JobUpdate, value: str, code: int = errors.ESLURM_INVALID_FEATURE) -> None:
    try:
        names = {feature.name for feature in parse_features(value)}
    except FeatureError:
        raise SlurmError(code) from None
    if not names <= set(update.world.columns.features):
        raise SlurmError(code)


def _nodes(update: JobUpdate, value: str) -> None:
    update.pending()
    text = value.replace(" ", "")
    try:
        count = words.parse_node_count(text)
    except words.WordError:
        raise SlurmError(errors.ESLURM_INVALID_NODE_COUNT) from None
    low, high = count[0], count[1]
    if low < 1:
        raise SlurmError(errors.ESLURM_INVALID_NODE_COUNT)
    update.change(min_nodes=low, max_nodes=high or None, nodes_given=True)
    update.resize = True


def _count(field: str, low: int = 1, *, of_operator: bool = False, **more: object) -> Key:
    def handler(update: JobUpdate, value: str) -> None:
        update.pending()
        if of_operator:
            update.of_operator()
        update.change(**{field: update.number(value.partition("-")[0], low)}, **more)
        update.resize = True
    return handler


def _cpus(update: JobUpdate, value: str) -> None:
    """``4`` or ``4-8``: the least is what is asked for; tasks and nodes stay."""
    update.pending()
    update.change(min_cpus=update.number(value.partition("-")[0], 1), min_cpus_exact=True)
    update.resize = True


def _cpus_per_node(update: JobUpdate, value: str) -> None:
    """Raises the CPUs of the job too, unless their number is given as well."""
    update.pending()
    count = update.number(value)
    request = update.request
    if count and request.min_cpus == update.job.request.min_cpus:
        nodes = update.request.min_nodes or update.job.min_nodes or 1
        update.change(min_cpus=count * nodes, min_cpus_exact=True)
    update.change(min_cpus_per_node=count)
    update.resize = True


def _tasks(update: JobUpdate, value: str) -> None:
    update.pending()
    count = update.number(value)
    if count < 1:
        if update.open_tasks():
            return
        raise SlurmError(errors.ESLURM_INVALID_CPU_COUNT)
    update.change(num_tasks=count, num_tasks_given=True, min_cpus=None, min_cpus_exact=False)
    update.resize = True


def _cpus_per_task(update: JobUpdate, value: str) -> None:
    if value.strip() == "0":
        raise SlurmError(errors.ESLURM_INVALID_CPU_COUNT)
    _count("cpus_per_task")(update, value)


def _memory(field: str, other: str) -> Key:
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
    least = update.job.min_nodes or 1             # a list of more nodes than that is what may be chosen from
    update.change(node_list=value or None, min_nodes=update.request.min_nodes or least)
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


def _tres(field: str) -> Key:
    def handler(update: JobUpdate, value: str) -> None:
        update.pending()
        update.change(**{field: value or None})
        update.resize = True
    return handler


def _oversubscribe(update: JobUpdate, value: str) -> None:
    update.pending()
    update.of_operator()
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
    update.of_operator()
    update.change(contiguous=value.lower() in ("1", "yes", "y"))
    update.resize = True


def _switches(update: JobUpdate, value: str) -> None:
    """``2`` or ``2@minutes`` (any form of a time limit), no longer than max_switch_wait."""
    update.pending()
    count, _, wait = value.partition("@")
    digits = re.match(r"\d*", count.strip())
    most = int(update.world.conf.scheduler_parameters.get("max_switch_wait") or MAX_SWITCH_WAIT_S)
    minutes = durations.parse_minutes(wait) if wait else None
    update.change(switches=int(digits[0] or 0) if digits else 0, switches_wait_s=(
        update.request.switches_wait_s or 0) if not wait else most if minutes is None else min(most, minutes * 60))


def _spec(field: str) -> Key:
    def handler(update: JobUpdate, value: str) -> None:
        update.pending()
        if update.world.conf.values.get("AllowSpecResourcesUsage", "no").lower() not in ("yes", "up", "true", "1"):
            raise SlurmError(errors.ESLURM_ACCESS_DENIED)
        update.change(**{field: None if value in ("-1", "*") else update.number(value)})
        update.resize = True
    return handler


SIZE_KEYS: dict[str, Key] = {
    "tresbind": _tres("tres_bind"), "tresfreq": _tres("tres_freq"),
    "features": _features, "prefer": _prefer, "numnodes": _nodes,
    "numcpus": _cpus, "numtasks": _tasks,
    "cpuspertask": _cpus_per_task, "taskspernode": _count("ntasks_per_node", of_operator=True),
    "mincpusnode": _cpus_per_node,
    "reqsockets": _count("sockets_per_node", 0), "reqcores": _count("cores_per_socket", 0),
    "reqthreads": _count("threads_per_core", 0), "corespec": _spec("core_spec"),
    "threadspec": _spec("thread_spec"), "minmemorynode": _memory("mem_per_node_mb", "mem_per_cpu_mb"),
    "minmemorycpu": _memory("mem_per_cpu_mb", "mem_per_node_mb"), "mintmpdisknode": _tmp_disk,
    "reqnodelist": _req_nodes, "excnodelist": _exc_nodes, "gres": _gres,
    "tresperjob": _tres("tres_per_job"), "trespernode": _tres("tres_per_node"),
    "trespersocket": _tres("tres_per_socket"), "trespertask": _tres("tres_per_task"),
    "cpuspertres": _tres("cpus_per_tres"), "mempertres": _tres("mem_per_tres"), "oversubscribe": _oversubscribe,
    "contiguous": _contiguous, "switches": _switches,
    "wait-for-switch": _count("switches_wait_s", 0), "delayboot": _count("delay_boot_s", 0),}
