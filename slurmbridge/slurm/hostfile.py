"""Host files: ``-F FILE``, ``-w ./hosts``, SLURM_HOSTFILE (srun(1) --nodefile, --distribution=arbitrary)."""
from __future__ import annotations

from slurmbridge.slurm import hostlist
from slurmbridge.slurm.asking import Asking
from slurmbridge.slurm.memory import leading_int
from slurmbridge.slurm.option_values import OptionSet

MAX_HOSTS = 65536
"""Slurm's limit for the nodes of a cluster."""


def is_file_name(text: str) -> bool:
    return "/" in text


def read_hostfile(opts: OptionSet, path: str, wanted: int | None) -> Asking[str | None]:
    """Names in the file as one host list, each repeated as ``name*3`` says; None after logging why not.

    With ``wanted`` the file must have at least that many names, and no more are taken.
    """
    data = yield path
    if isinstance(data, OSError):
        opts.log.error(f"slurm_allocate_resources error opening file {path}, {data.strerror or data}")
        return None
    names = hostlist.Hostlist()
    for number, line in enumerate(data.decode("utf-8", "surrogateescape").split("\n"), 1):
        text = _without_comment(line)
        if not text:
            continue
        if not text[0].isalnum():
            opts.log.error(f"Invalid hostfile {path} contents on line {number}")
            return None
        for word in (w for w in text.split(",") if w):
            if wanted is not None and len(names) == wanted:
                break
            _push(names, word, wanted)
        if wanted is not None and len(names) == wanted:
            break
    if not len(names):
        opts.log.error("Hostlist is empty!")
        return None
    if wanted is not None and len(names) < wanted:
        opts.log.error("Too few NodeNames in Slurm Hostfile")
        return None
    return names.ranged()


def _push(names: hostlist.Hostlist, word: str, wanted: int | None) -> None:
    """``name`` once or, as ``name*3``, that many times."""
    name, star, times = word.partition("*")
    count = (leading_int(times) or (0, ""))[0] if star else 0
    if not count:
        names.push_host(word)
        return
    room = MAX_HOSTS if wanted is None else wanted
    for _ in range(min(count, room - len(names))):
        names.push_host(name)


def _without_comment(line: str) -> str:
    at = line.find("#")
    while at > 0 and line[at - 1] == "\\":
        line = line[:at - 1] + line[at:]
        at = line.find("#", at)
    return line if at < 0 else line[:at]
