"""The words of sacctmgr: ``name=value``, ``name+=value``, lists, numbers, TRES, QOS, and the limits that they set.

Each ``set_…`` function puts what one word says into a settings mapping (see ``views/directory.py``) and tells whether
it knew the word. Numbers below zero clear a limit. Sources: sacctmgr(1).
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from slurmbridge.commands.sacctmgr_fields import matches
from slurmbridge.commands.sacctmgr_talk import Talk
from slurmbridge.slurm import durations
from slurmbridge.slurm.memory import leading_int
from slurmbridge.views.associations import active_qos
from slurmbridge.views.records import FAIRSHARE_PARENT

Settings = dict[str, Any]
QOS_FLAGS = ("Deleted", "DenyOnLimit", "EnforceUsageThreshold", "PartitionMinNodes", "PartitionMaxNodes",
             "PartitionTimeLimit", "RequiresReservation", "OverPartQOS", "PartQOS", "NoReserve", "NoDecay", "Relative",
             "UsageFactorSafe")
PREEMPT_MODES = {"OFF": "", "CLUSTER": "", "CANCEL": "CANCEL", "REQUEUE": "REQUEUE", "SUSPEND": "SUSPEND",
                 "GANG": "GANG", "WITHIN": "WITHIN"}


class Word(NamedTuple):
    """One argument: its name, ``+`` or ``-`` before the ``=`` (or ""), its value (None without ``=``)."""

    text: str
    name: str
    operator: str
    value: str | None

    def named(self, name: str, at_least: int) -> bool:
        return matches(self.name, name, at_least)

    @property
    def operand(self) -> str:
        """The value, or the whole word without ``=``."""
        return self.text if self.value is None else self.value


def split_word(text: str) -> Word:
    name, equals, value = text.partition("=")
    if not equals or not name:
        return Word(text, text if not equals else "", "", None if not equals else value)
    if name[-1] in "+-":
        return Word(text, name[:-1], name[-1], value)
    return Word(text, name, "", value)


def refuse_operator(talk: Talk, word: Word, allowed: bool) -> bool:
    """Says so where ``+=`` or ``-=`` makes no sense. True: all is well."""
    if word.operator and not allowed:
        talk.complain(f" Invalid operator '{word.operator}=' in {word.text}\n")
        return False
    return True


def strip_quotes(text: str, lower: bool = True) -> str:
    """A value without its outer quotes and blanks; quotes within become ` ."""
    quote = text[:1] if text[:1] in ("'", '"') else ""
    rest = text[1:] if quote else text
    rest = rest.lstrip(" \t\n\v\f\r")
    if quote and quote in rest:
        rest = rest[:rest.index(quote)]
    rest = rest.replace('"', "`").replace("'", "`")
    return (rest.lower() if lower else rest).rstrip(" \t\n\v\f\r")


def name_list(text: str, lower: bool = True) -> list[str]:
    """``a,b,'c d'``: names in order, each once (the last place counts)."""
    quote = text[:1] if text[:1] in ("'", '"') else ""
    rest = text[1:] if quote else text
    if quote and quote in rest:
        rest = rest[:rest.index(quote)]
    rest = rest.replace('"', "`").replace("'", "`")
    found: dict[str, None] = {}
    for name in (rest.lower() if lower else rest).split(","):
        if name:
            found.pop(name, None)
            found[name] = None
    return list(found)


def number(talk: Talk, text: str, what: str) -> int | bool | None:
    """A whole number; None clears (below zero); False: none (said so)."""
    meat = strip_quotes(text)
    parsed = leading_int(meat)
    if (parsed and parsed[1]) or (parsed is None and meat):
        talk.log_error(f"Invalid value for {what} ({meat})")
        return False
    value = parsed[0] if parsed else 0
    return None if value < 0 else value


def real(talk: Talk, text: str, what: str) -> float | bool | None:
    """A number; None clears; False: none (said so)."""
    meat = strip_quotes(text)
    try:
        value = float(meat)
    except ValueError:
        talk.log_error(f"{what} value ({meat}) is not a valid number")
        return False
    return None if value < 0 else value


def tres(talk: Talk, text: str) -> dict[str, int | None] | None:
    """``cpu=4,mem=2G,gres/gpu=-1``: counts, None for those taken out. None: bad (said so)."""
    found: dict[str, int | None] = {}
    for entry in strip_quotes(text, lower=False).split(","):
        if not entry:
            continue
        name, equals, amount = entry.partition("=")
        known = next((own for own in talk.data.tres if own.lower() == name.lower()), None)
        if not equals or (known is None and name.isdigit()):
            known = next((own for own, number_of in talk.data.tres.items() if str(number_of) == name), None)
        if not equals or not amount:
            talk.log_error(f"slurmdb_format_tres_str: no TRES id found for {entry}")
            return None
        if known is None:
            talk.log_error(f"slurmdb_format_tres_str: no TRES known by type {name}")
            return None
        parsed = leading_int(amount)
        if parsed is None:
            talk.log_error(f"slurmdb_format_tres_str: no value found for {entry}")
            return None
        found[known] = None if parsed[0] < 0 else _scaled(known, *parsed)
    return found


def _scaled(name: str, count: int, unit: str) -> int:
    """Counts with K, M, G …: memory and burst buffers in megabytes, others plain."""
    powers = {"k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
    power = powers.get(unit[:1].lower())
    if power is None:
        return count
    if name == "mem" or name.startswith("bb/"):
        return int(count * 1024.0 ** (power - 2))
    return count * 1024 ** power


def qos_list(talk: Talk, text: str, operator: str) -> list[str] | None:
    """QOS names, with ``+`` or ``-`` where they change a list; empty for an empty value. None: bad (said so)."""
    words = name_list(text)
    known = {qos.name for qos in active_qos(talk.data)}
    found = []
    for word in words:
        sign, name = (word[0], word[1:]) if word[0] in "+-" else (operator, word)
        if name not in known and name not in talk.coming_qos:
            valid = ",".join(qos.name for qos in active_qos(talk.data))
            talk.log_error(f"You gave a bad qos '{name}'. Valid QOS's are {valid}")
            return None
        found.append(sign + name)
    return found


# ------------------------------------------------------------------------------------------- limits of associations
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
        count = number(talk, text, setter.label)
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
