"""scontrol update PartitionName=… and create: each key checked as scontrol checks it. (scontrol(1).)"""
from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from slurmbridge.commands.scontrol_call import U16, U32, U64, Call, number_text, starts
from slurmbridge.commands.scontrol_update_node import BINDINGS
from slurmbridge.slurm import conf_scalars, durations
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.slurm.hostlist import HostlistError, compress, expand
from slurmbridge.slurm.words import WordError, parse_node_count

_UNLIMITED = ("UNLIMITED", "INFINITE")
_STATES = ("INACTIVE", "DOWN", "UP", "DRAIN")


class _Bad(ValueError):
    """What ``scontrol: error:`` says, one line a part."""


class _Passed(_Bad):
    """The same, and the other keys are updated. The last argument is scontrol's exit code."""


Check = Callable[[str, str, str], str]


def _number(limit: int) -> Check:
    def check(key: str, value: str, word: str) -> str:
        found = number_text(value, limit)
        if found is None:
            raise _Bad(f"Invalid {key} value: {value}")
        return found
    return check


def _limit(limit: int) -> Check:
    number = _number(limit)
    return lambda key, value, word: "UNLIMITED" if value.upper() in _UNLIMITED else number(key, value, word)


def _minutes(key: str, value: str, word: str) -> str:
    found = durations.parse_minutes(value)
    if found is None or found < 0:
        raise _Bad(f"Invalid input {word}")
    return "UNLIMITED" if found == durations.INFINITE else value


def _yes(key: str, value: str, word: str) -> str:
    for answer in ("NO", "YES"):
        if starts(value, answer, 1):
            return answer
    raise _Bad(f"Invalid input: {word}", f"Acceptable {key} values are YES and NO")


def _over_subscribe(key: str, value: str, word: str) -> str:
    mode, colon, count = value.partition(":")
    for name in ("NO", "EXCLUSIVE", "YES", "FORCE"):
        if starts(mode, name, 1):
            if name in ("NO", "EXCLUSIVE"):
                return name
            return f"{name}:{int(count) if count.isdigit() else 0}" if colon else f"{name}:4"
    raise _Bad(f"Invalid input: {word}",
               "Acceptable OverSubscribe values are NO, EXCLUSIVE, YES:#, and FORCE:#")


def _state(key: str, value: str, word: str) -> str:
    for state in _STATES:
        if starts(value, state, 1):
            return state
    raise _Bad(f"Invalid input: {word}", "Acceptable State values are UP, DOWN, DRAIN and INACTIVE")


def _preempt_mode(key: str, value: str, word: str) -> str:
    try:
        words = conf_scalars.preempt_modes(key, value)
    except ValueError:
        raise _Bad(f"Invalid input: {word}") from None
    if "GANG" in words:
        raise _Bad("PreemptMode=GANG is a cluster-wide option and cannot be set at partition level")
    return ",".join(words)


def _nodes_count(key: str, value: str, word: str) -> str:
    if value.upper() in _UNLIMITED:
        return "UNLIMITED"
    match = re.fullmatch(r"\s*\+?([0-9]+)(?:-[0-9]+)?", value or "1")
    if not match:
        raise _Passed(f'Invalid numeric value "{value}" for {key}.', 1)
    if int(match[1]) > 0x7FFFFFFF:
        raise _Passed(f"Numeric argument ({value}) too large for {key}.", 1)
    return match[1]


def _min_nodes(key: str, value: str, word: str) -> str:
    try:
        return str(parse_node_count(value).low)
    except WordError as error:
        raise _Passed(str(error), 0) from None


def _binding(key: str, value: str, word: str) -> str:
    if value and value.lower() not in BINDINGS:
        raise _Bad(f"Invalid input {word}")
    return value


def _text(key: str, value: str, word: str) -> str:
    return value


# (name, letters that must be typed, check), in scontrol's order: the first match counts
_KEYS: tuple[tuple[str, int, Check], ...] = (
    ("PartitionName", 2, _text), ("MaxTime", 4, _minutes), ("CpuBind", 7, _binding), ("DefaultTime", 8, _minutes),
    ("MaxCPUsPerNode", 4, _limit(U32)), ("MaxCPUsPerSocket", 4, _limit(U32)), ("MaxNodes", 4, _nodes_count),
    ("MinNodes", 2, _min_nodes), ("Default", 7, _yes), ("DisableRootJobs", 1, _yes), ("ExclusiveUser", 1, _yes),
    ("ExclusiveTopo", 1, _yes), ("Hidden", 1, _yes), ("LLN", 1, _yes), ("RootOnly", 3, _yes), ("ReqResv", 3, _yes),
    ("OverSubscribe", 5, _over_subscribe), ("Shared", 2, _over_subscribe), ("OverTimeLimit", 5, _limit(U16)),
    ("PowerDownOnIdle", 1, _yes), ("PreemptMode", 3, _preempt_mode), ("Priority", 3, _number(U16)),
    ("PriorityJobFactor", 3, _number(U16)), ("PriorityTier", 3, _number(U16)), ("State", 2, _state),
    ("Nodes", 1, _text), ("AllowGroups", 6, _text), ("AllowAccounts", 6, _text), ("AllowQos", 6, _text),
    ("DenyAccounts", 5, _text), ("DenyQos", 5, _text), ("AllocNodes", 6, _text), ("Alternate", 3, _text),
    ("GraceTime", 5, _number(U32)), ("DefMemPerCPU", 10, _number(U64)), ("DefMemPerNode", 10, _number(U64)),
    ("MaxMemPerCPU", 10, _number(U64)), ("MaxMemPerNode", 10, _number(U64)), ("QoS", 3, _text),
    ("JobDefaults", 4, _text), ("Topology", 4, _text), ("TresBillingWeights", 1, _text))


def _read(call: Call, words: Sequence[str]) -> tuple[str, dict[str, str], bool] | None:
    """(partition, changes, whether any were given, those that were passed over too); None after an error."""
    name = ""
    changes: dict[str, str] = {}
    passed = False
    for word in words:
        tag, equals, value = word.partition("=")
        if not equals:
            call.error(f"Invalid input: {word}  Request aborted")
            return None
        sign = tag[-1:] if tag[-1:] in ("+", "-") else ""
        tag = tag.removesuffix(sign) if sign else tag
        known = next(((name, check) for name, least, check in _KEYS if starts(tag, name, least)), None)
        if known is None:
            call.error(f"Update of this parameter is not supported: {word}\n")
            call.error("Request aborted")
            return None
        key, check = known
        try:
            found = check(key, value, word)
        except _Passed as error:
            text, code = error.args
            call.err.append(f"scontrol: error: {text}\n")
            call.exit_code = max(call.exit_code, code)
            passed = True
            continue
        except _Bad as error:
            for line in error.args:
                call.error(line)
            return None
        if key == "PartitionName":
            name = value
        elif key == "Nodes" and sign:
            changes["nodes"] = f"{sign}{found}"
        elif key == "Priority":
            changes["priorityjobfactor"] = changes["prioritytier"] = found
        elif key == "JobDefaults":
            changes.update(_job_defaults(found))
        else:
            changes["oversubscribe" if key == "Shared" else key.lower()] = found
    return name, changes, bool(changes) or passed


def _job_defaults(text: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in text.split(",") if part)
    return {key.strip().lower(): value for key, _, value in pairs}


def _with_nodes(call: Call, name: str, changes: dict[str, str]) -> None:
    """``nodes+=…`` and ``nodes-=…`` against what the partition has now."""
    text = changes.get("nodes", "")
    partition = call.session.views.partitions.get(name)
    if text[:1] not in ("+", "-") or partition is None:
        return
    try:
        given = expand(text[1:])
    except HostlistError:
        changes["nodes"] = text[1:]
        return
    now = list(partition.nodes)
    kept = [*now, *given] if text[0] == "+" else [node for node in now if node not in given]
    changes["nodes"] = compress(kept, unique=True)


async def update_partition(call: Call, words: Sequence[str]) -> None:
    """scontrol update PartitionName=…."""
    read = _read(call, words)
    if read is None:
        return
    name, changes, given = read
    if not name:
        call.error("PartitionName must be given.")
    elif not given:
        call.error("No changes specified")
    else:
        _with_nodes(call, name, changes)
        try:
            await call.session.acts.update_partition(call.session.identity, name, changes)
        except SlurmError as error:
            call.refused("slurm_update error", error)


async def create_partition(call: Call, words: Sequence[str]) -> None:
    """scontrol create PartitionName=…."""
    read = _read(call, words)
    if read is None:
        return
    name, changes, _ = read
    if not name:
        call.error("PartitionName must be given.")
    elif name.lower() == "default":
        call.error('PartitionName cannot be "DEFAULT".')
    else:
        changes.setdefault("minnodes", "1")
        try:
            await call.session.acts.update_partition(call.session.identity, name, changes, create=True)
        except SlurmError as error:
            call.refused("Error creating the partition", error)
