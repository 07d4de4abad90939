"""scontrol's commands about daemons: log levels, power, reboots, tokens, backup controllers, what runs on a node.

Arguments are judged as by scontrol 25.11; what a site without power saving, RebootProgram, jwt and backup controller
answers, is answered.
"""
from __future__ import annotations

import errno
import re
from collections.abc import Sequence

from slurmbridge.commands.scontrol_call import Call, starts
from slurmbridge.slurm import errors
from slurmbridge.slurm.debug_flags import FLAGS
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.slurm.hostlist import HostlistError, expand
from slurmbridge.views.records import NodeRecord

LEVELS = ("quiet", "fatal", "error", "info", "verbose", "debug", "debug2", "debug3", "debug4", "debug5")


async def set_debug(call: Call, words: Sequence[str]) -> None:
    """setdebug LEVEL [nodes=NODES]: of the controller's log; nodes keep none of their own."""
    if _count_is_wrong(call, words, 1, 2):
        return
    level = debug_level(words[1])
    if level is None:
        call.complain(f"invalid debug level: {words[1]}")
    elif len(words) == 3:
        if not words[2].lower().startswith("nodes="):
            call.complain(f"Invalid option: {words[1]}")
        elif not call.session.identity.is_admin:
            call.complain("Failed to change debug level on one or more nodes.")
    else:
        await _set(call, "slurm_set_debug_level", "SlurmctldDebug", LEVELS[level])


def debug_level(text: str) -> int | None:
    """0 (quiet) to 9 (debug5), by name or number; what is below 0 is as quiet."""
    if text.lower() in LEVELS:
        return LEVELS.index(text.lower())
    if not re.fullmatch(r"\s*[+-]?[0-9]+", text) or int(text) > len(LEVELS) - 1:
        return None
    return max(0, int(text))


async def set_debug_flags(call: Call, words: Sequence[str]) -> None:
    """setdebugflags {+|-}NAME…: kept and shown by ``show config``."""
    if len(words) < 2:
        call.complain(f"too few arguments for keyword:{words[0]}")
        return
    flags = [flag for flag in call.session.views.conf.values.get("DebugFlags", "").split(",") if flag]
    for word in words[1:]:
        if word.lower().startswith("nodes="):
            continue
        name = next((flag for flag in FLAGS if flag.lower() == word[1:].lower()), "")
        if word[:1] not in ("+", "-") or not name:
            if word[:1] in ("+", "-"):
                call.error(f"Invalid DebugFlag: {word[1:]}")
            call.complain(f"invalid debug flag: {word}")
            if word[:1] not in ("+", "-") and not call.quiet:
                call.err.append(f"Usage: {words[0]} {{+|-}}NAME [{{+|-}}NAME] [nodes=<NODES>]\n")
            return
        flags = [flag for flag in flags if flag.lower() != name.lower()] + [name] * (word[0] == "+")
    await _set(call, "slurm_set_debug_flags", "DebugFlags", ",".join(sorted(flags, key=FLAGS.index)))


async def sched_log_level(call: Call, words: Sequence[str]) -> None:
    """There is no log of the scheduler's own."""
    if _count_is_wrong(call, words, 1, 1):
        return
    if words[1].lower() not in ("enable", "disable") and words[1] not in ("0", "1"):
        call.complain(f"invalid schedlog level: {words[1]}")
        return
    code = errors.ESLURM_DISABLED if call.session.identity.is_admin else errno.EACCES
    call.complain(f"slurm_set_schedlog_level error:{errors.strerror(code)}")


async def dampening_factor(call: Call, words: Sequence[str]) -> None:
    if _count_is_wrong(call, words, 1, 1):
        return
    if not words[1].isdigit() or not int(words[1]) & 0xFFFF:
        call.complain(f"invalid dampening factor: {words[1]}")
        return
    await _set(call, "slurm_set_fs_dampeningfactor", "FairShareDampeningFactor", str(int(words[1]) & 0xFFFF))


async def _set(call: Call, what: str, key: str, value: str) -> None:
    try:
        await call.session.acts.set_conf(call.session.identity, key, value)
    except SlurmError as error:
        call.complain(f"{what} error:{error.text}")


def _count_is_wrong(call: Call, words: Sequence[str], least: int, most: int) -> bool:
    if least < len(words) <= most + 1:
        return False
    call.complain(f"too {'few' if len(words) <= least else 'many'} arguments for keyword:{words[0]}")
    return True


# ------------------------------------------------------------------------------------------------- power and reboots


async def power(call: Call, words: Sequence[str]) -> None:
    """power {up|down [asap|force]} NODES [reason=TEXT]: nodes here never change their power state."""
    rest = list(words[1:])
    if not 2 <= len(rest) <= 4:
        call.fail(f"too {'few' if len(rest) < 2 else 'many'} arguments for keyword:{words[0]}")
        return
    way = rest.pop(0)
    how = rest.pop(0) if rest[0].lower() in ("asap", "force") else ""
    if way.lower() not in ("up", "down"):
        call.complain(f"unexpected argument: '{way}'")
    elif how and way.lower() == "up":
        call.complain(f"The '{how}' argument is not valid for power up requests")
    elif not rest:
        call.complain("Mandatory argument {ALL|<NodeList>|<NodeSet>} missing")
    elif len(rest) > 1 and not rest[1].lower().startswith("reason="):
        call.complain(f"unexpected argument:'{rest[1]}'")
    else:
        call.fail(f"scontrol_power_nodes error:{errors.strerror(_why_no_transition(call, rest[0]))}")


async def cancel_reboot(call: Call, words: Sequence[str]) -> None:
    if len(words) != 2:
        call.fail(f"{'missing argument' if len(words) < 2 else 'too many arguments'} for keyword:{words[0]}")
        return
    call.fail(f"slurm_update error: {errors.strerror(_why_no_transition(call, words[1]))}")


def _why_no_transition(call: Call, nodes: str) -> int:
    if not call.session.identity.is_admin:
        return errors.ESLURM_USER_ID_MISSING
    return errors.ESLURM_INVALID_NODE_STATE_TRANSITION if _known(call, nodes) else errors.ESLURM_INVALID_NODE_NAME


def _known(call: Call, nodes: str) -> list[NodeRecord]:
    """The nodes of a list, none where it names one that is not there."""
    found = call.session.views.nodes
    try:
        names = list(found) if nodes.upper() == "ALL" else expand(nodes)
    except HostlistError:
        return []
    return [found[name] for name in names] if all(name in found for name in names) else []


async def reboot(call: Call, words: Sequence[str]) -> None:
    """reboot [ASAP] [nextstate={RESUME|DOWN}] [reason=TEXT] NODES: no node is, with or without RebootProgram."""
    nodes = 0
    for word in words[1:]:
        name, equals, value = word.lower().partition("=")
        if not equals and name == "asap":
            continue
        if not equals or name not in ("reason", "nextstate"):
            nodes += 1
        elif not value:
            call.complain(f"missing {'reason' if name == 'reason' else 'state'}")
            return
        elif name == "nextstate" and not (starts(value, "DOWN", 1) or starts(value, "RESUME", 1)):
            call.complain(f"Invalid state: {word.partition('=')[2]}\n Valid states: DOWN, RESUME")
            return
    if nodes > 1:
        call.fail(f"too many arguments for keyword:{words[0]}")
    elif not nodes:
        call.exit_code = 1
        call.err.append("Missing node list. Specify ALL|<NodeList>")
    elif not call.session.views.conf.values.get("RebootProgram"):
        call.error("RebootProgram isn't defined")
        call.fail("scontrol_reboot_nodes error:Unspecified error")
    else:
        call.fail(f"scontrol_reboot_nodes error:{errors.strerror(errors.ESLURM_NOT_SUPPORTED)}")


# ------------------------------------------------------------------------------------------ tokens, controllers, nodes


async def token(call: Call, words: Sequence[str]) -> None:
    """As where AuthAltTypes has no jwt."""
    for word in words[1:]:
        name, equals, value = word.partition("=")
        if not equals or name.lower() not in ("lifespan", "username"):
            call.fail(f"Invalid option: `{word}`")
            return
        if name.lower() == "lifespan" and not value.isdigit() and value.lower() not in ("infinite", "unlimited"):
            call.error(f'Invalid numeric value "{value}" for lifespan.')
            return
    call.error("slurm_fetch_token: error with request: Required plugin type not loaded or initialized")


async def take_over(call: Call, words: Sequence[str]) -> None:
    """There is no backup controller."""
    if len(words) > 2:
        call.fail(f"{words[0]}: too many arguments")
    elif len(words) == 2:
        digits = re.match(r"\s*-?[0-9]{1,9}", words[1])
        call.fail(f"{words[0]}: invalid backup controller index ({int(digits[0]) if digits else 0})")
    else:
        call.complain("slurm_takeover error: Unable to contact slurm controller (connect failure)")


async def addresses(call: Call, words: Sequence[str]) -> None:
    """getaddrs NODES."""
    if len(words) != 2:
        call.fail(f"one argument required for keyword:{words[0]}")
        return
    try:
        names = expand(words[1])
    except HostlistError:
        return
    nodes = call.session.views.nodes
    call.print("".join(f"{name}: {nodes[name].address}:{nodes[name].port}\n" for name in names if name in nodes))


async def list_running(call: Call, words: Sequence[str]) -> None:
    """listjobs and liststeps [NODE]: by default of the node that scontrol runs on."""
    if len(words) > 2:
        call.fail(f"too many arguments for keyword:{words[0]}")
        return
    node = words[1] if len(words) > 1 else call.env.get("SLURMD_NODENAME", "")
    jobs = [job for job in call.session.views.jobs.values()
            if job.state in ("RUNNING", "SUSPENDED") and node in job.nodes]
    if not jobs:
        call.fail("No slurmstepd's found on this node")
    elif starts(words[0], "listjobs", 1):
        call.print("JOBID\n" + "".join(f"{job.job_id:<8d}\n" for job in jobs))
    else:
        call.print("JOBID    STEPID  \n" + "".join(
            f"{job.job_id:<8d} {step:<8s}\n" for job in jobs for step, record in job.steps.items()
            if record.end_s is None and node in (record.nodes or job.nodes)))
