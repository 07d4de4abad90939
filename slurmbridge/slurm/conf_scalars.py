"""From slurm.conf's plain values to the typed fields of SlurmConf, with slurmctld's checks, corrections and defaults.

``apply`` reads ``conf.values`` and yields (key, what is wrong) for every value that slurmctld would refuse.
(slurm.conf(5); defaults of 25.11.)
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from slurmbridge.slurm import conf_values as values
from slurmbridge.slurm import tres
from slurmbridge.slurm.settings import PrioritySettings, SlurmConf

DEFAULT_TRES = ("cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages")
_RESET_PERIODS = frozenset({"NONE", "NOW", "DAILY", "WEEKLY", "MONTHLY", "QUARTERLY", "YEARLY"})
_SELECT_MODES = frozenset({"CR_SOCKET", "CR_SOCKET_MEMORY", "CR_CORE", "CR_CORE_MEMORY", "CR_MEMORY", "CR_CPU",
                           "CR_CPU_MEMORY"})
_SELECT_FLAGS = frozenset({"CR_ONE_TASK_PER_CORE", "CR_CORE_DEFAULT_DIST_BLOCK", "CR_LLN", "CR_PACK_NODES",
                           "LL_SHARED_GRES", "MULTIPLE_SHARING_GRES_PJ", "ENFORCE_BINDING_GRES",
                           "ONE_TASK_PER_SHARING_GRES"})
_PRIORITY_FLAGS = ("ACCRUE_ALWAYS", "SMALL_RELATIVE_TO_TIME", "CALCULATE_RUNNING", "DEPTH_OBLIVIOUS", "NO_FAIR_TREE",
                   "INCR_ONLY", "MAX_TRES_GRES", "MAX_TRES", "NO_NORMAL_ALL", "NO_NORMAL_ASSOC", "NO_NORMAL_PART",
                   "NO_NORMAL_QOS", "NO_NORMAL_TRES")
_NO_NORMAL = frozenset({"NO_NORMAL_ASSOC", "NO_NORMAL_PART", "NO_NORMAL_QOS", "NO_NORMAL_TRES"})
_ENFORCE = {"1": "associations", "2": "limits"}
_ENFORCE_IMPLIES = {"associations": (), "limits": ("associations",), "safe": ("associations", "limits"),
                    "wckeys": ("associations",), "qos": ("associations",), "nojobs": ("nosteps",), "nosteps": ()}
_PARTITION_STATES = ("DOWN", "UP", "DRAIN", "INACTIVE")
_STORE_FLAGS = ("job_comment", "job_env", "job_extra", "job_script", "no_stdio")

Problems = Iterator[tuple[str, str]]


def preempt_modes(key: str, text: str) -> list[str]:
    """The words of a PreemptMode as Slurm shows them (CLUSTER is OFF, ON is SUSPEND, GANG first). Raises ValueError."""
    words = [{"CLUSTER": "OFF", "ON": "SUSPEND"}.get(word.strip(), word.strip()) for word in text.upper().split(",")]
    modes = [word for word in words if word in ("OFF", "CANCEL", "REQUEUE", "SUSPEND")]
    extras = {word for word in words if word in ("GANG", "WITHIN", "PRIORITY")}
    if len(modes) + len([w for w in words if w in extras]) != len(words) or len(modes) > 1 \
            or ("GANG" in extras and len(extras) > 1):
        raise ValueError(f"{key}={text} invalid")
    return sorted(words, key=lambda word: word in modes)


def select_parameters(text: str) -> tuple[str, ...]:
    """The words of SelectTypeParameters, upper case, checked. Raises ValueError."""
    words = tuple(word.strip().upper() for word in text.split(",") if word.strip())
    for word in words:
        if word not in _SELECT_MODES and word not in _SELECT_FLAGS:
            raise ValueError(f"Bad SelectTypeParameter: {word}")
    modes = [word for word in words if word in _SELECT_MODES]
    if len(modes) > 1:
        raise ValueError(f"Bad SelectTypeParameter: {text}")
    if "CR_ONE_TASK_PER_CORE" in words and any(mode.startswith("CR_CPU") for mode in modes):
        raise ValueError("CR_ONE_TASK_PER_CORE is not compatible with CR_CPU*, please change to use CR_CORE* instead.")
    return words


def over_subscribe(text: str) -> str:
    """NO, EXCLUSIVE, YES:n or FORCE:n. Raises ValueError."""
    word, colon, count = text.upper().partition(":")
    if word in ("NO", "EXCLUSIVE") and not colon:
        return word
    if word in ("YES", "FORCE"):
        if not colon:
            return f"{word}:4"
        digits = count.lstrip("+")
        number = int(digits) if digits.isdigit() else 0
        if number > (1 if word == "YES" else 0):
            return f"{word}:{number}"
        return "NO"
    raise ValueError(f'Bad value "{text}" for OverSubscribe')


def enforced(text: str) -> frozenset[str]:
    """AccountingStorageEnforce with what its words imply. Raises ValueError."""
    found: set[str] = set()
    for word in text.lower().split(","):
        name = _ENFORCE.get(word.strip(), word.strip())
        if name == "all":
            found |= {"associations", "limits", "safe", "wckeys", "qos"}
        elif name in _ENFORCE_IMPLIES:
            found |= {name, *_ENFORCE_IMPLIES[name]}
        elif name:
            raise ValueError(f"AccountingStorageEnforce invalid: {text}")
    return frozenset(found)


def checked_partition(given: Mapping[str, str], note: Callable[[str], None]) -> dict[str, str]:
    """The values of a PartitionName line that have a canonical form, in that form. Raises ValueError."""
    done: dict[str, str] = {}
    for key in ("MaxTime", "DefaultTime"):
        if key in given:
            values.minutes(key, given[key])
    for key in ("OverSubscribe", "Shared"):
        if key in given:
            done[key] = over_subscribe(given[key])
            if done[key] == "NO" and given[key].upper() != "NO":
                note(f"Ignoring bad OverSubscribe value: {given[key]}")
    if "State" in given:
        state = next((word for word in _PARTITION_STATES if given["State"].upper().startswith(word)), "")
        if not state:
            raise ValueError(f'Bad value "{given["State"]}" for State')
        done["State"] = state
    if "PreemptMode" in given:
        words = preempt_modes("PreemptMode", given["PreemptMode"])
        if "GANG" in words:
            note("PreemptMode=GANG is a cluster-wide option and cannot be set at partition level, option ignored.")
        done["PreemptMode"] = ",".join(word for word in words if word != "GANG")
    if "SelectTypeParameters" in given:
        select_parameters(given["SelectTypeParameters"])
    if "TRESBillingWeights" in given:
        tres.parse_weights(given["TRESBillingWeights"])
    for first, second in (("AllowAccounts", "DenyAccounts"), ("AllowQos", "DenyQos")):
        if second in given and given.get(first, "ALL").upper() != "ALL":
            note(f"Both {first} and {second} are defined, {second} will be ignored")
    for first, second in (("DefMemPerNode", "DefMemPerCPU"), ("MaxMemPerNode", "MaxMemPerCPU")):
        if first in given and second in given:
            note(f"{second} ignored, since it's mutually exclusive with {first}")
    return done


def apply(conf: SlurmConf) -> Problems:
    """Fills the typed fields from ``conf.values``; yields (key, error) for what cannot be."""
    conf.cluster_name = conf.values.get("ClusterName", conf.cluster_name).lower()
    host = conf.values.get("SlurmctldHost", conf.values.get("ControlMachine", "localhost")).split("\n")[0]
    conf.control_host = host.partition("(")[0]
    yield from _numbers(conf)
    yield from _words(conf)
    yield from _memory(conf)
    yield from _priority(conf)
    yield from _preemption(conf)
    yield from _accounting(conf)


def _number(conf: SlurmConf, key: str, default: int) -> int:
    text = conf.values.get(key)
    return default if text is None else values.number(key, text, "u64")


def _numbers(conf: SlurmConf) -> Problems:
    for key, field in (
            ("KillWait", "kill_wait_s"), ("MinJobAge", "min_job_age_s"), ("MaxArraySize", "max_array_size"),
            ("MaxJobCount", "max_job_count"), ("FirstJobId", "first_job_id"), ("MaxJobId", "max_job_id"),
            ("CompleteWait", "complete_wait_s"), ("InactiveLimit", "inactive_limit_s"), ("WaitTime", "wait_time_s"),
            ("ReturnToService", "return_to_service"), ("BatchStartTimeout", "batch_start_timeout_s"),
            ("MaxStepCount", "max_step_count"), ("MaxTasksPerNode", "max_tasks_per_node"),
            ("VSizeFactor", "vsize_factor"), ("MaxBatchRequeue", "max_batch_requeue"),
            ("OverTimeLimit", "over_time_limit_min")):
        found = _number(conf, key, getattr(conf, field))
        setattr(conf, field, 0xFFFF if found == values.UNLIMITED else found)
    for key, field in (("JobRequeue", "job_requeue"), ("KillOnBadExit", "kill_on_bad_exit"),
                       ("JobFileAppend", "job_file_append")):
        setattr(conf, field, bool(_number(conf, key, int(getattr(conf, field)))))
    if "DisableRootJobs" in conf.values:
        conf.disable_root_jobs = values.boolean("DisableRootJobs", conf.values["DisableRootJobs"])
    if conf.min_job_age_s < 2:
        conf.notes.append((conf.path, 0, "MinJobAge must be at least 2"))
        conf.min_job_age_s = 2
    if conf.first_job_id == 0:
        yield "FirstJobId", "FirstJobId cannot be zero"
    if conf.first_job_id > conf.max_job_id:
        yield "FirstJobId", "FirstJobId > MaxJobId"
    if conf.max_job_count < 1:
        yield "MaxJobCount", f"MaxJobCount={conf.max_job_count}, No jobs permitted"
    if conf.max_step_count < 1:
        yield "MaxStepCount", f"MaxStepCount={conf.max_step_count}, No steps permitted"
    conf.max_job_count = min(conf.max_job_count, max(conf.max_job_id - conf.first_job_id + 1, 1))


def _words(conf: SlurmConf) -> Problems:
    given = conf.values
    for key, field in (
            ("SchedulerType", "scheduler_type"), ("SelectType", "select_type"), ("TaskPlugin", "task_plugin"),
            ("JobAcctGatherFrequency", "job_acct_gather_frequency"), ("MailProg", "mail_prog"),
            ("PropagateResourceLimits", "propagate_resource_limits"), ("TopologyParam", "topology_param"),
            ("PropagateResourceLimitsExcept", "propagate_resource_limits_except"),
            ("HealthCheckProgram", "health_check_program"), ("InteractiveStepOptions", "interactive_step_options")):
        if key in given:
            setattr(conf, field, given[key])
    if conf.propagate_resource_limits_except:
        conf.propagate_resource_limits = ""
    conf.gres_types = tuple(word.strip() for word in given.get("GresTypes", "").split(",") if word.strip())
    conf.scheduler_parameters = values.options(given.get("SchedulerParameters", ""))
    conf.preempt_parameters = values.options(given.get("PreemptParameters", ""))
    conf.dependency_parameters = tuple(values.options(given.get("DependencyParameters", "")))
    for key, field in (("RequeueExit", "requeue_exit"), ("RequeueExitHold", "requeue_exit_hold")):
        if key in given:
            try:
                setattr(conf, field, values.exit_codes(key, given[key]))
            except ValueError as error:
                yield key, str(error)
    if "EnforcePartLimits" in given:
        word = given["EnforcePartLimits"].upper()
        if word == "ALL":
            conf.enforce_part_limits = "ALL"
        elif word in ("YES", "UP", "TRUE", "1", "ANY"):
            conf.enforce_part_limits = "ANY"
        elif word in ("NO", "DOWN", "FALSE", "0"):
            conf.enforce_part_limits = "NO"
        else:
            yield "EnforcePartLimits", f"Bad EnforcePartLimits: {given['EnforcePartLimits']}"
    if "SelectTypeParameters" in given:
        try:
            select_parameters(given["SelectTypeParameters"])
            conf.select_type_parameters = tuple(
                word.strip() for word in given["SelectTypeParameters"].split(",") if word.strip())
        except ValueError as error:
            yield "SelectTypeParameters", str(error)
    elif "cons_tres" not in conf.select_type:
        conf.select_type_parameters = ()


def _memory(conf: SlurmConf) -> Problems:
    """DefMem*/MaxMem*: a node's figure excludes a CPU's; 0 and UNLIMITED are no figure."""
    for node_key, cpu_key, node_field, cpu_field in (
            ("DefMemPerNode", "DefMemPerCPU", "def_mem_per_node_mb", "def_mem_per_cpu_mb"),
            ("MaxMemPerNode", "MaxMemPerCPU", "max_mem_per_node_mb", "max_mem_per_cpu_mb")):
        if node_key in conf.values and cpu_key in conf.values:
            conf.notes.append((conf.path, 0, f"{cpu_key} ignored, since it's mutually exclusive with {node_key}"))
        if node_key in conf.values:
            setattr(conf, node_field, _figure(conf, node_key))
        elif cpu_key in conf.values:
            setattr(conf, cpu_field, _figure(conf, cpu_key))
    conf.def_cpu_per_gpu = _figure(conf, "DefCPUPerGPU")
    conf.def_mem_per_gpu_mb = _figure(conf, "DefMemPerGPU")
    yield from ()


def _figure(conf: SlurmConf, key: str) -> int | None:
    found = _number(conf, key, 0)
    return found if found > 0 else None


def _priority(conf: SlurmConf) -> Problems:
    given, settings = conf.values, PrioritySettings()
    settings.type = given.get("PriorityType", settings.type)
    for key, field in (("Age", "age"), ("Assoc", "assoc"), ("Fairshare", "fairshare"), ("JobSize", "jobsize"),
                       ("Partition", "partition"), ("QOS", "qos")):
        setattr(settings, f"weight_{field}", max(_number(conf, f"PriorityWeight{key}", 0), 0))
    settings.weight_tres_text = given.get("PriorityWeightTRES", "")
    for key, field in (("PriorityDecayHalfLife", "decay_half_life_s"), ("PriorityMaxAge", "max_age_s"),
                       ("PriorityCalcPeriod", "calc_period_s")):
        if key not in given:
            continue
        try:
            found = values.minutes(key, given[key])
        except ValueError as error:
            yield key, str(error)
            continue
        if key == "PriorityCalcPeriod" and found < 1:
            yield key, f'Bad value "{given[key]}" for {key}'
            continue
        setattr(settings, field, 0xFFFFFFFF if found == values.UNLIMITED else found * 60)
    try:
        settings.weight_tres = tres.parse_weights(settings.weight_tres_text)
    except ValueError as error:
        yield "PriorityWeightTRES", str(error)
    settings.favor_small = values.boolean("PriorityFavorSmall", given.get("PriorityFavorSmall", "NO"))
    settings.flags = priority_flags(given.get("PriorityFlags", ""))
    settings.site_factor_plugin = given.get("PrioritySiteFactorPlugin", "")
    settings.usage_reset_period = given.get("PriorityUsageResetPeriod", "NONE").upper()
    if settings.usage_reset_period not in _RESET_PERIODS:
        yield ("PriorityUsageResetPeriod",
               f'Bad value "{given["PriorityUsageResetPeriod"]}" for PriorityUsageResetPeriod')
    if settings.decay_half_life_s == 0 and "PriorityUsageResetPeriod" not in given:
        yield ("PriorityDecayHalfLife", "You have to either have PriorityDecayHalfLife != 0 or "
               "PriorityUsageResetPeriod set to something or the priority plugin will result in rolling over.")
    conf.priority = settings


def priority_flags(text: str) -> frozenset[str]:
    """PriorityFlags as Slurm takes them: names may stand anywhere in the text; the longer ones hide the shorter."""
    upper = text.upper()
    found = {flag for flag in _PRIORITY_FLAGS if flag in upper}
    if "MAX_TRES_GRES" in found:
        found.discard("MAX_TRES")
    if "DEPTH_OBLIVIOUS" in found:
        found.discard("NO_FAIR_TREE")
    if "NO_NORMAL_ALL" in found:
        found.discard("NO_NORMAL_ALL")
        found |= _NO_NORMAL
    return frozenset(found)


def _preemption(conf: SlurmConf) -> Problems:
    given = conf.values
    conf.preempt_type = given.get("PreemptType", "preempt/none")
    if "PreemptExemptTime" in given:
        try:
            conf.preempt_exempt_time_s = values.seconds("PreemptExemptTime", given["PreemptExemptTime"])
        except ValueError:
            yield "PreemptExemptTime", f"PreemptExemptTime={given['PreemptExemptTime']} invalid"
    if "PreemptMode" in given:
        try:
            words = preempt_modes("PreemptMode", given["PreemptMode"])
        except ValueError as error:
            yield "PreemptMode", str(error)
            return
        if words == ["SUSPEND"]:
            yield "PreemptMode", "PreemptMode=SUSPEND requires GANG too"
        conf.preempt_mode = ",".join(words)
    mode = set(conf.preempt_mode.split(",")) & {"CANCEL", "REQUEUE", "SUSPEND"}
    if (conf.preempt_type == "preempt/none") == bool(mode):
        yield "PreemptType", "PreemptType and PreemptMode values incompatible"


def _accounting(conf: SlurmConf) -> Problems:
    given = conf.values
    names = list(DEFAULT_TRES)
    for word in given.get("AccountingStorageTRES", "").lower().split(","):
        if word.strip() and word.strip() not in names:
            names.append(word.strip())
    if "gres/gpu" in names:
        names += [name for name in ("gres/gpumem", "gres/gpuutil") if name not in names]
    conf.accounting_storage_tres = tuple(names)
    flags = given.get("AccountingStoreFlags", "").lower()
    conf.accounting_store_flags = frozenset(flag for flag in _STORE_FLAGS if flag in flags)
    if "AccountingStorageEnforce" in given:
        try:
            conf.accounting_enforce = enforced(given["AccountingStorageEnforce"])
        except ValueError as error:
            yield "AccountingStorageEnforce", str(error)
