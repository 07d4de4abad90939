"""``scontrol show hostnames`` and ``hostlist`` inside a job, for when the controller is away.

Every recipe for torchrun begins with it, and a running job needs no controller; clients come here when theirs does not
answer (docs/protocol.md). Files of names are not read: that is the controller's.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence

from slurmbridge.slurm import errors
from slurmbridge.slurm.hostlist import HostlistError, parse

_AWAY = errors.strerror(errors.SLURMCTLD_COMMUNICATIONS_CONNECTION_ERROR)


def answer(argv: Sequence[str], env: Mapping[str, str]) -> tuple[str, str, int]:
    """(standard output, standard error, exit code) of ``scontrol argv``."""
    words = [word for word in argv if not word.startswith("-")]
    entity = words[1].lower() if len(words) > 1 and len(words[0]) > 1 and "show".startswith(words[0].lower()) else ""
    names = len(entity) >= 5 and "hostnames".startswith(entity)
    list_of = len(entity) >= 5 and "hostlist".startswith(entity)
    in_order = len(entity) >= 9 and "hostlistsorted".startswith(entity)
    text = words[2] if len(words) > 2 else env.get("SLURM_NODELIST") if names else None
    if not (names or list_of or in_order) or (text or "").startswith("/"):
        return "", f"scontrol: error: {_AWAY}\n", 1
    if text is None:
        return "", "scontrol: error: host list is empty\n" if names else "invalid encode argument\n", int(not names)
    try:
        hosts = parse(text)
    except HostlistError as error:
        detail = f"scontrol: error: {error}\n" if str(error) else ""
        return "", f"{detail}Invalid hostlist: {text}\n", int(not names)
    if names:
        return "".join(f"{name}\n" for name in hosts), "", 0
    if in_order:
        hosts.sort()
    return hosts.ranged() + "\n", "", 0
