"""scontrol update NodeName=…: each key checked as scontrol checks it. (scontrol(1).)"""
from __future__ import annotations

from collections.abc import Sequence

from slurmbridge.commands.scontrol_call import U32, Call, Refused, number_text, starts
from slurmbridge.slurm import errors
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.slurm.hostlist import HostlistError, expand

BINDINGS = ("off", "none", "board", "boards", "socket", "sockets", "ldom", "ldoms", "core", "cores", "thread",
             "threads")
_NODE_KEYS = (("NodeAddr", 5), ("NodeHostName", 5), ("NodeName", 1), ("ActiveFeatures", 3), ("CertToken", 1),
              ("CpuBind", 7), ("Extra", 1), ("Features", 1), ("AvailableFeatures", 3), ("Gres", 1), ("InstanceId", 9),
              ("InstanceType", 9), ("Weight", 1), ("Comment", 2), ("Reason", 1), ("ResumeAfter", 1), ("State", 1),
              ("Topology", 4))
_NODE_STATES = (("NoResp", 3), ("CANCEL_REBOOT", 3), ("DRAIN", 3), ("FAIL", 3), ("FUTURE", 3), ("RESUME", 3),
                ("POWER_DOWN_ASAP", 12), ("POWER_DOWN_FORCE", 12), ("POWER_DOWN", 7), ("POWER_UP", 7), ("UNDRAIN", 3),
                ("UNKNOWN", 3), ("DOWN", 3), ("IDLE", 3), ("ALLOCATED", 3), ("MIXED", 3))


async def update_node(call: Call, words: Sequence[str]) -> None:
    """Raises Refused after a line about what is wrong."""
    changes: dict[str, str] = {}
    names = ""
    for word in words:
        tag, equals, value = word.partition("=")
        if not equals:
            call.error(f"Invalid input: {word}  Request aborted")
            raise Refused
        key = next((name.lower() for name, least in _NODE_KEYS if starts(tag, name, least)), "")
        if not key:
            call.fail(f"Update of this parameter is not supported: {word}\nRequest aborted")
            raise Refused
        if key == "nodename":
            names = value
        elif key == "state":
            changes[key] = _node_state(call, value, word)
        elif key == "cpubind" and value and value.lower() not in BINDINGS:
            call.error(f"Invalid input {word}")
            raise Refused
        elif key == "certtoken":
            continue                          # there are no certificates to renew
        elif key in ("weight", "resumeafter") and (key, value) != ("resumeafter", "-1"):
            number = number_text(value, U32)
            if number is None:
                call.error(f"Invalid value {word} for {'Weight' if key == 'weight' else 'ResumeAfter'}")
                raise Refused
            changes[key] = number
        else:
            changes[key] = value.removeprefix('"').removesuffix('"') if key == "reason" else value
    if changes.get("state") in ("DOWN", "DRAIN", "FAIL") and not changes.get("reason"):
        call.fail("You must specify a reason when DOWNING or DRAINING a node. Request denied")
        return
    if "resumeafter" in changes and changes.get("state") not in ("DOWN", "DRAIN"):
        call.fail("You can only specify a resume time when DOWNING or DRAINING a node. Request denied")
        return
    if not changes:
        call.fail("No changes specified")
        return
    try:
        if not call.session.identity.is_admin:
            raise SlurmError(errors.ESLURM_ACCESS_DENIED)
        await call.session.acts.update_node(call.session.identity, _node_names(call, names), changes)
    except SlurmError as error:
        call.refused("slurm_update error", error)


def _node_state(call: Call, value: str, word: str) -> str:
    for name, least in _NODE_STATES:
        if starts(value, name, least):
            return name.upper()
    call.fail(f"Invalid input: {word}\nRequest aborted\nValid states are: NoResp DRAIN FAIL FUTURE RESUME POWER_DOWN "
              "POWER_UP UNDRAIN\nNot all states are valid given a node's prior state")
    raise Refused


def _node_names(call: Call, text: str) -> list[str]:
    if text.upper() == "ALL":
        return list(call.session.views.nodes)
    try:
        return expand(text)
    except HostlistError:
        raise SlurmError(errors.ESLURM_INVALID_NODE_NAME) from None
