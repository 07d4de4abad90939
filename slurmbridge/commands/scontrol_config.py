"""``scontrol show config``: what slurm.conf says, what 25.11's defaults are, and the state of the controller."""
from __future__ import annotations

import pwd
from collections.abc import Callable, Iterator

from slurmbridge.commands.scontrol_job import Style, yes
from slurmbridge.slurm.conf_shown import SHOWN
from slurmbridge.slurm.durations import INFINITE, format_seconds
from slurmbridge.slurm.settings import SlurmConf
from slurmbridge.slurm.version import SLURM_VERSION
from slurmbridge.views.session import Views

NULL = "(null)"
_UNITS = frozenset({"sec", "min", "usec", "percent", "nodes/min"})
_FLAG_ORDER = ("ACCRUE_ALWAYS", "SMALL_RELATIVE_TO_TIME", "CALCULATE_RUNNING", "DEPTH_OBLIVIOUS", "NO_FAIR_TREE",
               "INCR_ONLY", "MAX_TRES", "MAX_TRES_GRES", "NO_NORMAL_ASSOC", "NO_NORMAL_PART", "NO_NORMAL_QOS",
               "NO_NORMAL_TRES")
_SELECT_ORDER = {word: index for index, word in enumerate((
    "CR_ONE_TASK_PER_CORE", "CR_CORE_DEFAULT_DIST_BLOCK", "CR_LLN", "CR_PACK_NODES", "LL_SHARED_GRES",
    "MULTIPLE_SHARING_GRES_PJ", "ENFORCE_BINDING_GRES", "ONE_TASK_PER_SHARING_GRES"))}
_LEVELS = ("quiet", "fatal", "error", "info", "verbose", "debug", "debug2", "debug3", "debug4", "debug5")
_PROLOG_FLAGS = ("Alloc", "Contain", "RunInJob", "DeferBatch", "NoHold", "ForceRequeueOnFail", "Serial", "X11")
_PRIVATE = ("accounts", "events", "jobs", "nodes", "partitions", "reservations", "usage", "users")
_ENFORCE = ("associations", "limits", "nojobs", "nosteps", "qos", "safe", "wckeys")

Lines = Iterator[tuple[str, str]]


def ping_text(views: Views) -> str:
    """``Slurmctld(primary) at HOST is UP``: it is this process that answers."""
    return f"Slurmctld(primary) at {views.conf.control_host} is UP\n"


def config_text(views: Views, style: Style) -> str:
    """The whole of ``scontrol show config``."""
    text = f"Configuration data as of {style.time(style.now_s)}\n"
    for label, how, default in SHOWN:
        for name, value in _lines(label, how, default, views, style):
            text += f"{name:<23} = {value}\n"
    return text + "\n" + ping_text(views)


def _lines(label: str, how: str, default: str, views: Views, style: Style) -> Lines:
    conf = views.conf
    if how == "*":
        yield from _SPECIAL[label](views, style)
        return
    given = _given(conf, label)
    value = default if given is None else given
    if how in _UNITS:
        value = "INFINITE" if value.upper() in ("INFINITE", "UNLIMITED") else f"{_number(value)} {how}"
    elif how == "number":
        value = _number(value)
    elif how == "switch":
        value = "yes" if yes(value) else "no"
    elif how == "plugin":
        value = NULL if "none" in value.lower() else value
    elif how == "level":
        value = _LEVELS[int(value)] if value.isdigit() and int(value) < len(_LEVELS) else value.lower()
    elif how == "user":
        value = _user(value)
    yield label, value


def _given(conf: SlurmConf, label: str) -> str | None:
    found = conf.values.get(label)
    if found is None:
        found = conf.values.get(_OTHER_NAMES.get(label, ""))
    return found or None


_OTHER_NAMES = {"UsePam": "UsePAM", "BcastParameters": "SbcastParameters", "NamespaceType": "JobContainerType",
                "AcctGatherInterconnectType": "AcctGatherInfinibandType", "CredType": "CryptoType"}


def _number(text: str) -> str:
    digits = text.strip().lstrip("+")
    return str(int(digits, 0)) if digits.lower().startswith("0x") else digits.lstrip("0") or "0"


def _user(text: str) -> str:
    try:
        known = pwd.getpwuid(int(text)) if text.isdigit() else pwd.getpwnam(text)
    except KeyError:
        return f"{text}({text if text.isdigit() else 0})"
    return f"{known.pw_name}({known.pw_uid})"


def _one(label: str, get: Callable[[Views], str]) -> Callable[[Views, Style], Lines]:
    def lines(views: Views, style: Style) -> Lines:
        yield label, get(views)
    return lines


def _words(conf: SlurmConf, label: str, known: tuple[str, ...], none: str) -> str:
    given = conf.values.get(label, "").lower()
    return ",".join(word for word in known if word.lower() in given) or none


def _storage_port(views: Views) -> str:
    values = views.conf.values
    kind = values.get("AccountingStorageType", "")
    default = "6819" if kind.endswith("slurmdbd") else "0"
    return _number(values.get("AccountingStoragePort", default))


def _memory(key: str, cpu: str, node: str) -> Callable[[Views, Style], Lines]:
    def lines(views: Views, style: Style) -> Lines:
        per_cpu, per_node = getattr(views.conf, cpu), getattr(views.conf, node)
        if per_cpu is not None:
            yield f"{key}PerCPU", str(per_cpu)
        else:
            yield f"{key}PerNode", "UNLIMITED" if per_node is None else str(per_node)
    return lines


def _numbered(key: str) -> Callable[[Views, Style], Lines]:
    def lines(views: Views, style: Style) -> Lines:
        for index, value in enumerate(views.conf.values.get(key, "").split("\n")):
            if value:
                yield f"{key}[{index}]", value
    return lines


def _hosts(views: Views, style: Style) -> Lines:
    given = views.conf.values.get("SlurmctldHost") or views.conf.values.get("ControlMachine") or views.conf.control_host
    for index, value in enumerate(given.split("\n")):
        yield f"SlurmctldHost[{index}]", value


def _job_defaults(views: Views) -> str:
    parts = [f"{name}={count}" for name, count in (("DefCpuPerGPU", views.conf.def_cpu_per_gpu),
                                                   ("DefMemPerGPU", views.conf.def_mem_per_gpu_mb)) if count]
    return ",".join(parts) or NULL


def _job_count(views: Views) -> str:
    return str(views.conf.max_job_count)


def _max_dbd_messages(views: Views) -> str:
    """0 in the file: four for every node and two for every job."""
    given = views.conf.values.get("MaxDBDMsgs")
    if given and _number(given) != "0":
        return _number(given)
    return str(max(10000, views.conf.max_job_count * 2 + len(views.nodes) * 4))


def _next_job_id(views: Views) -> str:
    last = max(views.jobs, default=views.conf.first_job_id - 1)
    return str(last + 1)


def _over_time_limit(views: Views) -> str:
    minutes = views.conf.over_time_limit_min
    return "UNLIMITED" if minutes == 0xFFFF else f"{minutes} min"


def _exempt(views: Views) -> str:
    seconds = views.conf.preempt_exempt_time_s
    return "NONE" if seconds < 0 else format_seconds(seconds)


def _span(seconds: int) -> str:
    return "UNLIMITED" if seconds == INFINITE else format_seconds(seconds)


def _priority(views: Views, style: Style) -> Lines:
    priority = views.conf.priority
    if priority.type == "priority/basic":
        yield "PriorityType", priority.type
        return
    yield "PriorityDecayHalfLife", _span(priority.decay_half_life_s)
    yield "PriorityCalcPeriod", _span(priority.calc_period_s)
    yield "PriorityFavorSmall", "yes" if priority.favor_small else "no"
    yield "PriorityFlags", _priority_flags(priority.flags)
    yield "PriorityMaxAge", _span(priority.max_age_s)
    yield "PriorityType", priority.type
    yield "PriorityUsageResetPeriod", priority.usage_reset_period
    for label, weight in (("Age", priority.weight_age), ("Assoc", priority.weight_assoc),
                          ("FairShare", priority.weight_fairshare), ("JobSize", priority.weight_jobsize),
                          ("Partition", priority.weight_partition), ("QOS", priority.weight_qos)):
        yield f"PriorityWeight{label}", str(weight)
    yield "PriorityWeightTRES", priority.weight_tres_text or NULL


def _priority_flags(flags: frozenset[str]) -> str:
    no_normal = [flag for flag in _FLAG_ORDER if flag.startswith("NO_NORMAL")]
    shown = [flag for flag in _FLAG_ORDER if flag in flags and flag not in no_normal]
    if flags.issuperset(no_normal):
        return ",".join([*shown, "NO_NORMAL_ALL"])
    return ",".join([*shown, *(flag for flag in no_normal if flag in flags)])


def _private(views: Views) -> str:
    given = views.conf.values.get("PrivateData", "").lower()
    if "all" in given:
        return ",".join(_PRIVATE)
    return ",".join(word for word in _PRIVATE if word.rstrip("s") in given) or "none"


def _prolog_flags(views: Views) -> str:
    given = {word.strip().lower() for word in views.conf.values.get("PrologFlags", "").split(",")}
    if given & {"x11", "runinjob"}:
        given.add("contain")
    if given & {"contain", "nohold", "forcerequeueonfail"}:
        given.add("alloc")
    return ",".join(flag for flag in _PROLOG_FLAGS if flag.lower() in given) or NULL


def _timeouts(views: Views, style: Style) -> Lines:
    values = views.conf.values
    both = values.get("PrologEpilogTimeout", "65534")
    prolog, epilog = values.get("PrologTimeout", both), values.get("EpilogTimeout", both)
    if prolog == epilog:
        yield "PrologEpilogTimeout", _number(prolog)
    else:
        yield "EpilogTimeout", _number(epilog)
        yield "PrologTimeout", _number(prolog)


def _select(views: Views, style: Style) -> Lines:
    given = [word.upper() for word in views.conf.select_type_parameters]
    if given:
        yield "SelectTypeParameters", ",".join(sorted(given, key=lambda word: _SELECT_ORDER.get(word, -1)))


def _suspend_time(views: Views) -> str:
    given = views.conf.values.get("SuspendTime", "INFINITE")
    return "INFINITE" if given.upper() in ("INFINITE", "-1", "NONE") else f"{_number(given)} sec"


def _suspend_timeout(views: Views) -> str:
    seconds = _number(views.conf.values.get("SuspendTimeout", "30"))
    return "NONE" if seconds == "0" else f"{seconds} sec"


def _multiple_slurmd(views: Views) -> bool:
    hosts = [node.host_name for node in views.nodes.values()]
    return len(hosts) != len(set(hosts))


def _name_of_next(views: Views, style: Style) -> Lines:
    if _multiple_slurmd(views):
        yield "MULTIPLE_SLURMD", "yes"
    yield "NamespaceType", _given(views.conf, "NamespaceType") or NULL


_SPECIAL: dict[str, Callable[[Views, Style], Lines]] = {
    "AccountingStorageEnforce": _one("AccountingStorageEnforce", lambda v: ",".join(
        word for word in _ENFORCE if word in v.conf.accounting_enforce) or "none"),
    "AccountingStoragePort": _one("AccountingStoragePort", _storage_port),
    "AccountingStorageTRES": _one("AccountingStorageTRES", lambda v: ",".join(v.conf.accounting_storage_tres)),
    "AccountingStoreFlags": _one("AccountingStoreFlags", lambda v: _words(
        v.conf, "AccountingStoreFlags", ("job_comment", "job_env", "job_extra", "job_script", "no_stdio"), NULL)),
    "BOOT_TIME": lambda views, style: iter([("BOOT_TIME", style.time(views.boot_s))]),
    "ClusterName": _one("ClusterName", lambda v: v.conf.cluster_name),
    "DefMem": _memory("DefMem", "def_mem_per_cpu_mb", "def_mem_per_node_mb"),
    "EnforcePartLimits": _one("EnforcePartLimits", lambda v: v.conf.enforce_part_limits),
    "Epilog[]": _numbered("Epilog"), "EpilogSlurmctld[]": _numbered("EpilogSlurmctld"),
    "HASH_VAL": _one("HASH_VAL", lambda v: "Match"),
    "JobCompPass": _one("JobCompPass", lambda v: v.conf.values.get("JobCompPassScript", NULL)),
    "JobDefaults": _one("JobDefaults", _job_defaults),
    "MaxDBDMsgs": _one("MaxDBDMsgs", _max_dbd_messages), "MaxJobCount": _one("MaxJobCount", _job_count),
    "MaxMem": _memory("MaxMem", "max_mem_per_cpu_mb", "max_mem_per_node_mb"),
    "MaxNodeCount": _one("MaxNodeCount", lambda v: _number(v.conf.values.get("MaxNodeCount", str(len(v.nodes))))),
    "MinJobAge": _one("MinJobAge", lambda v: f"{v.conf.min_job_age_s} sec"),
    "NEXT_JOB_ID": _one("NEXT_JOB_ID", _next_job_id), "OverTimeLimit": _one("OverTimeLimit", _over_time_limit),
    "PreemptMode": _one("PreemptMode", lambda v: v.conf.preempt_mode),
    "PreemptExemptTime": _one("PreemptExemptTime", _exempt), "Priority": _priority,
    "PrivateData": _one("PrivateData", _private), "Prolog[]": _numbered("Prolog"),
    "PrologSlurmctld[]": _numbered("PrologSlurmctld"), "PrologEpilogTimeout": _timeouts,
    "PrologFlags": _one("PrologFlags", _prolog_flags),
    "PropagateResourceLimits": _one(
        "PropagateResourceLimits", lambda v: v.conf.propagate_resource_limits or NULL),
    "SelectTypeParameters": _select, "SlurmctldHost[]": _hosts,
    "SLURM_CONF": _one("SLURM_CONF", lambda v: v.conf.path),
    "SLURM_VERSION": _one("SLURM_VERSION", lambda v: SLURM_VERSION),
    "SuspendTime": _one("SuspendTime", _suspend_time), "SuspendTimeout": _one("SuspendTimeout", _suspend_timeout),
    "TaskPluginParam": _one("TaskPluginParam", lambda v: v.conf.values.get("TaskPluginParam", "(null type)")),
    "TrackWCKey": _one("TrackWCKey", lambda v: "yes" if v.conf.tracks_wckeys else "no"),
    "NamespaceType": _name_of_next,
}
