"""``MaxJobs=5``, ``GrpTRES=cpu=10``, ``Priority=9``: what a word sets of an association or a QOS."""
from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from slurmbridge.commands.sacctmgr_talk import Talk
from slurmbridge.commands.sacctmgr_words import (
    LONG_MAX,
    Settings,
    Word,
    name_list,
    number,
    qos_list,
    real,
    strip_quotes,
    tres,
)
from slurmbridge.slurm import durations
from slurmbridge.slurm.memory import leading_int
from slurmbridge.views.associations import active_qos
from slurmbridge.views.records import FAIRSHARE_PARENT

QOS_FLAGS = ("Deleted", "DenyOnLimit", "EnforceUsageThreshold", "PartitionMinNodes", "PartitionMaxNodes",
             "PartitionTimeLimit", "RequiresReservation", "OverPartQOS", "PartQOS", "NoReserve", "NoDecay", "Relative",
             "UsageFactorSafe")
PREEMPT_MODES = {"OFF": "", "CLUSTER": "", "CANCEL": "CANCEL", "REQUEUE": "REQUEUE", "SUSPEND": "SUSPEND",
                 "GANG": "GANG", "WITHIN": "WITHIN"}




class Setter(NamedTuple):
    names: tuple[tuple[str, int], ...]
    field: str
    kind: str                                 # number | wall | tres | one TRES ("cpu", "mem", "node")
    label: str


def _setters(text: str) -> tuple[Setter, ...]:
    found = []
    for line in text.split("\n")[1:-1]:
        names, field, kind, label = line.split(" ")
        pairs = tuple((name, int(letters)) for name, _, letters in (part.partition(":") for part in names.split(",")))
        found.append(Setter(pairs, field, kind, label))
    return tuple(found)


_ASSOCIATION = _setters("""
GrpCPUMins:7 grp_tres_mins cpu GrpCPUMins
GrpCPURunMins:7 grp_tres_run_mins cpu GrpCPURunMins
GrpCpus:7 grp_tres cpu GrpCpus
GrpJobs:4 grp_jobs number GrpJobs
GrpJobsAccrue:8 grp_jobs_accrue number GrpJobsAccrue
GrpMemory:4 grp_tres mem GrpMemory
GrpNodes:4 grp_tres node GrpNodes
GrpSubmitJobs:4 grp_submit_jobs number GrpSubmitJobs
GrpTRES:7 grp_tres tres GrpTRES
GrpTRESMins:8 grp_tres_mins tres GrpTRESMins
GrpTRESRunMins:8 grp_tres_run_mins tres GrpTRESRunMins
GrpWall:4 grp_wall_min wall GrpWall
MaxCPUMinsPerJob:7 max_tres_mins_per_job cpu MaxCPUMinsPerJob
MaxCPURunMins:7 max_tres_run_mins cpu MaxCPURunMins
MaxCpusPerJob:7 max_tres_per_job cpu MaxCpusPerJob
MaxJobs:4 max_jobs number MaxJobs
MaxJobsAccrue:8 max_jobs_accrue number MaxJobsAccrue
MaxNodesPerJob:4 max_tres_per_job node MaxNodes
MinPrioThresh:4 min_prio_threshold number MinPrioThresh
MaxSubmitJobs:4 max_submit_jobs number MaxSubmitJobs
MaxTRES:7,MaxTRESPJ:9,MaxTRESPerJob:11 max_tres_per_job tres MaxTRES
MaxTRESPerNode:11,MaxTRESPN:9 max_tres_per_node tres MaxTRESPerNode
MaxTRESMinsPerJob:8,MaxTRESMinsPJ:13 max_tres_mins_per_job tres MaxTRESMins
MaxTRESRunMins:8 max_tres_run_mins tres MaxTRESRunMins
MaxWallDurationPerJob:4 max_wall_min wall MaxWall
""")
_QOS = _setters("""
GrpCPUMins:7 grp_tres_mins cpu GrpCPUMins
GrpCPURunMins:7 grp_tres_run_mins cpu GrpCPURunMins
GrpCPUs:7 grp_tres cpu GrpCPUs
GrpJobs:4 grp_jobs number GrpJobs
GrpJobsAccrue:8 grp_jobs_accrue number GrpJobsAccrue
GrpMemory:4 grp_tres mem GrpMemory
GrpNodes:4 grp_tres node GrpNodes
GrpSubmitJobs:4 grp_submit_jobs number GrpSubmitJobs
GrpTRES:7 grp_tres tres GrpTRES
GrpTRESMins:8 grp_tres_mins tres GrpTRESMins
GrpTRESRunMins:8 grp_tres_run_mins tres GrpTRESRunMins
GrpWall:4 grp_wall_min wall GrpWall
LimitFactor:6 limit_factor real LimitFactor
MaxCPUMinsPerJob:7 max_tres_mins_per_job cpu MaxCPUMins
MaxCPUsPerJob:7 max_tres_per_job cpu MaxCPUs
MaxCPUsPerUser:11,MaxCPUsPU:9 max_tres_per_user cpu MaxCPUsPerUser
MaxJobsAccruePerAccount:17,MaxJobsAccruePA:15 max_jobs_accrue_per_account number MaxJobsAccruePA
MaxJobsAccruePerUser:17,MaxJobsAccruePU:15 max_jobs_accrue number MaxJobsAccruePU
MaxJobsPerAccount:11,MaxJobsPA:9 max_jobs_per_account number MaxJobsPA
MaxJobsPerUser:4,MaxJobsPU:4 max_jobs number MaxJobsPU
MaxNodesPerJob:4 max_tres_per_job node MaxNodesPerJob
MaxNodesPerUser:8,MaxNodesPU:8 max_tres_per_user node MaxNodesPerUser
MaxSubmitJobsPerAccount:17,MaxSubmitJobsPA:15 max_submit_jobs_per_account number MaxSubmitJobsPA
MaxSubmitJobsPerUser:4,MaxSubmitJobsPU:4 max_submit_jobs number MaxSubmitJobsPU
MaxTRESPerAccount:11,MaxTRESPA:9 max_tres_per_account tres MaxTRESPA
MaxTRES:7,MaxTRESPJ:9,MaxTRESPerJob:11 max_tres_per_job tres MaxTRES
MaxTRESPerNode:11,MaxTRESPN:9 max_tres_per_node tres MaxTRESPerNode
MaxTRESPerUser:11,MaxTRESPU:9 max_tres_per_user tres MaxTRESPU
MaxTRESMinsPerJob:8,MaxTRESMinsPJ:13 max_tres_mins_per_job tres MaxTRESMins
MaxTRESRunMinsPerAccount:24,MaxTRESRunMinsPerAcct:20,MaxTRESRunMinsPA:16 max_tres_run_mins_per_account tres PA
MaxTRESRunMinsPerUser:20,MaxTRESRunMinsPU:16 max_tres_run_mins_per_user tres PU
MaxWallDurationPerJob:4 max_wall_min wall MaxWall
MinCPUsPerJob:7 min_tres_per_job cpu MinCPUs
MinPrioThresh:4 min_prio_threshold number MinPrioThresh
MinTRESPerJob:7 min_tres_per_job tres MinTRES
UsageFactor:6 usage_factor real UsageFactor
UsageThreshold:6 usage_threshold real UsageThreshold
""")


def _apply(talk: Talk, setter: Setter, word: Word, settings: Settings) -> bool:
    """Puts the word's value into the settings. False: it is none (said so)."""
    text = word.value or ""
    if setter.kind == "number":
        value = number(talk, text, setter.label)
        if value is False:
            return False
        settings[setter.field] = value
        return True
    if setter.kind == "real":
        measure = real(talk, text, setter.label)
        if measure is False:
            return False
        settings[setter.field] = measure
        return True
    if setter.kind == "wall":
        minutes = durations.parse_minutes(text)
        if minutes is None:
            talk.complain(f" Bad {setter.label} time format: {word.text}\n")
            return False
        settings[setter.field] = None if minutes == durations.INFINITE else minutes
        return True
    if setter.kind == "tres":
        counts = tres(talk, text)
        if counts is None:
            talk.exit_code = 1
            return False
    else:
        count = number(talk, text, setter.label, LONG_MAX)
        if count is False:
            return False
        counts = {setter.kind: count}
    settings.setdefault(setter.field, {}).update(counts)
    return True


def set_limit(talk: Talk, table: tuple[Setter, ...], word: Word, settings: Settings) -> bool | None:
    """None: no such word in the table."""
    for setter in table:
        if any(word.named(name, letters) for name, letters in setter.names):
            return _apply(talk, setter, word, settings)
    return None


def as_left(word: Word) -> str:
    """The word's text after an association did not take it: Slurm has put what should be a number into lower case."""
    numbers = [name for setter in _ASSOCIATION if setter.kind not in ("wall", "tres") for name in setter.names]
    if word.value and any(word.named(*name) for name in (*numbers, ("FairShare", 1), ("Shares", 1), ("Priority", 2))):
        return word.text.removesuffix(word.value) + word.value.lower()
    return word.text


def set_association(talk: Talk, word: Word, settings: Settings) -> bool:
    """One word of an association's limits; ``qos`` alone takes ``+=`` and ``-=`` (the caller checks)."""
    text = word.value or ""
    if word.named("Comment", 2):
        settings["comment"] = strip_quotes(text)
        return True
    if word.named("DefaultQOS", 8):
        return _set_default_qos(talk, text, settings)
    if word.named("FairShare", 1) or word.named("Shares", 1):
        if text.lower().startswith("parent"):
            settings["shares"] = FAIRSHARE_PARENT
            return True
        shares = number(talk, text, "FairShare")
        if shares is False:
            return False
        settings["shares"] = shares
        return True
    done = set_limit(talk, _ASSOCIATION, word, settings)
    if done is not None:
        return done
    if word.named("Parent", 2):
        settings["parent"] = strip_quotes(text)
        return True
    if word.named("Priority", 2):
        value = number(talk, text, "Priority")
        if value is False:
            return False
        settings["priority"] = value
        return True
    if word.named("QosLevel", 1):
        names = qos_list(talk, text, word.operator)
        if names is None:
            return False
        settings["qos"] = settings.get("qos", []) + names
        return True
    return False


def _set_default_qos(talk: Talk, text: str, settings: Settings) -> bool:
    parsed = leading_int(text)
    if parsed and parsed[0] == -1:
        settings["default_qos"] = None
        return True
    name = strip_quotes(text)
    if name not in {qos.name for qos in active_qos(talk.data)}:
        talk.complain(f"You gave a bad default qos '{text}'.  Use 'list qos' to get complete list.\n")
        return True
    settings["default_qos"] = name
    return True


def set_qos(talk: Talk, word: Word, settings: Settings) -> bool:
    """One word of a QOS. False: unknown or bad (said so)."""
    text = word.value or ""
    if word.named("Description", 1):
        settings.setdefault("description", strip_quotes(text))
        return True
    if word.named("Flags", 2):
        return _set_qos_flags(talk, word, settings)
    if word.named("GraceTime", 3):
        seconds = number(talk, text, "GraceTime")
        if seconds is not False:
            settings["grace_time_s"] = seconds
        return seconds is not False
    done = set_limit(talk, _QOS, word, settings)
    if done is not None:
        return done
    for name, letters, handler in _QOS_WORDS:
        if word.named(name, letters):
            return handler(talk, word, settings)
    talk.say(f" Unknown option: {word.text}\n Use keyword 'where' to modify condition\n")
    talk.exit_code = 1
    return False


def _set_qos_flags(talk: Talk, word: Word, settings: Settings) -> bool:
    text = word.value or ""
    parsed = leading_int(text)
    if parsed and parsed[0] == -1:
        settings["flags"] = []
        return True
    found = []
    for name in name_list(text):
        known = next((flag for flag in QOS_FLAGS if flag.lower() == name.lstrip("+-")), None)
        if known is None:
            talk.say(f" Unknown QOS flag used in:\n  '{text}'\n Valid QOS flags are\n  '{','.join(QOS_FLAGS)}'\n")
            talk.exit_code = 1
            return False
        found.append(word.operator + known)
    settings["flags"] = found
    return True


def _set_preempt_mode(talk: Talk, word: Word, settings: Settings) -> bool:
    mode = PREEMPT_MODES.get((word.value or "").upper())
    if mode is None:
        talk.complain(f" Bad Preempt Mode given: {word.text}\n")
        return False
    settings["preempt_mode"] = mode
    return True


def _set_preempt(talk: Talk, word: Word, settings: Settings) -> bool:
    names = qos_list(talk, word.value or "", word.operator)
    if names is None:
        talk.exit_code = 1
        return False
    settings["preempt"] = settings.get("preempt", []) + names
    return True


def _set_preempt_exempt_time(talk: Talk, word: Word, settings: Settings) -> bool:
    seconds = durations.parse_seconds(word.value or "")
    if seconds is None:
        talk.complain(f" Bad PreemptExemptTime format: {word.text}\n")
        return False
    settings["preempt_exempt_time_s"] = None if seconds == durations.INFINITE else seconds
    return True


def _set_priority(talk: Talk, word: Word, settings: Settings) -> bool:
    value = number(talk, word.value or "", "Priority")
    if value is not False:
        settings["priority"] = value
    return value is not False


def _set_raw_usage(talk: Talk, word: Word, settings: Settings) -> bool:
    value = real(talk, word.value or "", "RawUsage")
    if value is False or value is None:
        talk.complain(f" Bad RawUsage value: {word.value}\n")
        return False
    settings["raw_usage"] = value
    return True


_QOS_WORDS: tuple[tuple[str, int, Callable[[Talk, Word, Settings], bool]], ...] = (
    ("PreemptMode", 8, _set_preempt_mode), ("Preempt", 7, _set_preempt),
    ("PreemptExemptTime", 8, _set_preempt_exempt_time), ("Priority", 3, _set_priority), ("RawUsage", 7, _set_raw_usage))
