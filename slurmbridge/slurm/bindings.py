"""Bindings and hints: ``--mem-bind``, ``--cpu-bind``, ``--gpu-bind``, ``--gpu-freq``, ``--hint`` (srun(1))."""
from __future__ import annotations

from typing import NamedTuple

from slurmbridge.slurm.memory import leading_int
from slurmbridge.slurm.words import WordError

_HEX = frozenset("0123456789abcdefABCDEF")


class HelpWanted(Exception):
    """``--mem-bind=help`` and its like: ``str(error)`` goes to standard output."""


class MemBind(NamedTuple):
    """``kind`` is "", none, rank, local, map_mem or mask_mem; ``values`` the expanded list of the last two."""

    verbose: bool = False
    prefer: bool = False
    kind: str = ""
    values: str = ""

    def __str__(self) -> str:
        words = ",".join(word for word, on in (("verbose", self.verbose), ("prefer", self.prefer)) if on)
        kinds = ",".join(part for part in (words, self.kind) if part)
        return f"{kinds}:{self.values}" if self.values and kinds else kinds


class CpuBind(NamedTuple):
    """``unit`` is "", threads, cores, sockets or ldoms; ``kind`` "", none, map_cpu, mask_cpu, rank_ldom, … ."""

    verbose: bool = False
    unit: str = ""
    kind: str = ""
    values: str = ""
    one_thread: bool = False
    notes: tuple[str, ...] = ()               # lines the client logs as information

    def __str__(self) -> str:
        words = ("verbose" if self.verbose else "", self.unit, self.kind, "one_thread" if self.one_thread else "")
        text = ",".join(word for word in words if word)
        return f"{text}:{self.values}" if self.values else text


def split_bind(text: str) -> list[str]:
    """At commas that do not stand inside a list of numbers."""
    result, start = [], 0
    for index, char in enumerate(text):
        if char == "," and not _is_value(text, index + 1):
            result.append(text[start:index])
            start = index + 1
    return [*result, text[start:]]


def _is_value(text: str, start: int) -> bool:
    if text[start:start + 1].isdigit():
        return True
    while start < len(text) and text[start] in _HEX:
        start += 1
    return start == len(text) or text[start] == ","


def expand_list(text: str, kind: str) -> str:
    """``0*2,1`` -> ``0,0,1``; masks lose their 0x. Raises WordError."""
    mask = kind.startswith("mask")
    digits = _HEX if mask else frozenset("0123456789")
    result: list[str] = []
    for token in (t for t in text.split(",") if t):
        value, star, times = (token.removeprefix("0x") if mask else token).partition("*")
        count = 1
        if star:
            wrong = next((c for c in times if c not in "0123456789"), "")
            if wrong:
                raise WordError(f"Failed to validate number: *{times}, the offending character is {wrong}")
            count = int(times) if times else 0
            if count <= 0:
                raise WordError(f"Invalid {kind} multiplier: {times}")
        wrong = next((c for c in value if c not in digits), "")
        if wrong:
            raise WordError(f"Failed to validate number: {value}, the offending character is {wrong}")
        result += [value] * min(count, 65536)
    if not result:
        raise WordError(f"Failed to expand list: '{text}'")
    return ",".join(result)


def _listed(token: str, kind: str, option: str) -> str:
    values = token.replace("=", ":").split(":")[1] if ":" in token or "=" in token else ""
    if not values:
        raise WordError(f'missing list for "--{option}={kind}:<list>"')
    return expand_list(values, kind)


_MEM_HELP = """--mem-bind takes a comma separated list of:
    q, quiet | v, verbose   say nothing (default) or report each binding
    p, prefer               prefer the first node of a mask
    no, none                no binding (default)
    rank | local            bind by task rank, or to the processor's own memory
    map_mem:LIST            one NUMA node number a task
    mask_mem:LIST           one NUMA node mask a task
    help                    this text
"""


def parse_mem_bind(text: str, before: MemBind = MemBind()) -> MemBind:    # noqa: B008 (immutable)
    """``--mem-bind``, added to what was given before. Raises WordError, HelpWanted."""
    bind = before._replace(values="")
    for token in split_bind(text):
        word = token.lower()
        if word == "help":
            raise HelpWanted(_MEM_HELP)
        if word in ("p", "prefer"):
            bind = bind._replace(prefer=True)
        elif word in ("q", "quiet"):
            bind = bind._replace(verbose=False)
        elif word in ("v", "verbose"):
            bind = bind._replace(verbose=True)
        elif word in ("no", "none", "rank", "local"):
            bind = bind._replace(kind="none" if word == "no" else word, values="")
        elif word.startswith(("map_mem", "mapmem")):
            bind = bind._replace(kind="map_mem", values=_listed(token, "map_mem", "mem-bind"))
        elif word.startswith(("mask_mem", "maskmem")):
            bind = bind._replace(kind="mask_mem", values=_listed(token, "mask_mem", "mem-bind"))
        else:
            raise WordError(f'unrecognized --mem-bind argument "{token}"')
    return bind


_UNITS = {name + ending: name + "s" for name in ("socket", "core", "thread", "ldom") for ending in ("", "s")}


def parse_cpu_bind(text: str) -> CpuBind:
    """``--cpu-bind`` of srun. Raises WordError, HelpWanted."""
    bind = CpuBind()
    notes: list[str] = []
    for token in split_bind(text):
        word = token.lower()
        if word == "help":
            raise HelpWanted(_CPU_HELP)
        if word in ("q", "quiet"):
            bind = bind._replace(verbose=False)
        elif word in ("v", "verbose"):
            bind = bind._replace(verbose=True)
        elif word == "one_thread":
            bind = bind._replace(one_thread=True)
        elif word in ("no", "none"):
            bind = bind._replace(kind="none", values="")
        elif word == "rank":
            notes.append("Ignoring --cpu-bind=rank. Rank binding is obsolete.")
        elif word == "rank_ldom":
            bind = bind._replace(kind="rank_ldom", values="")
        elif word in _UNITS:
            bind = bind._replace(unit=_UNITS[word])
        else:
            kind = next((k for k in ("map_cpu", "mask_cpu", "map_ldom", "mask_ldom")
                         if word.startswith((k, k.replace("_", "")))), "")
            if not kind:
                raise WordError(f'unrecognized --cpu-bind argument "{token}"')
            bind = bind._replace(kind=kind, values=_listed(token, kind, "cpu-bind"))
    return bind._replace(notes=tuple(notes))


_CPU_HELP = """--cpu-bind takes a comma separated list of:
    q, quiet | v, verbose   say nothing (default) or report each binding
    no, none                no binding (default)
    map_cpu:LIST            one CPU number a task
    mask_cpu:LIST           one CPU mask a task
    rank_ldom               by task rank, to the CPUs of a NUMA node
    map_ldom:LIST           one NUMA node number a task
    mask_ldom:LIST          one NUMA node mask a task
    sockets | cores | threads | ldoms    the unit of generated masks
    help                    this text
"""

_HINT_HELP = """--hint takes a comma separated list of:
    compute_bound           all cores of every socket
    memory_bound            one core of every socket
    multithread | nomultithread    use or leave the further threads of a core
    help                    this text
"""
ANY = None
MULTITHREAD_TASKS_PER_CORE = 0xFFFF


def parse_hint(text: str) -> dict[str, int | None]:
    """What a hint sets: some of sockets_per_node, cores_per_socket, threads_per_core, ntasks_per_core.

    Raises WordError, HelpWanted.
    """
    result: dict[str, int | None] = {}
    start = 0
    tokens = []
    for index, char in enumerate(text):
        if char == "," and not text[index + 1:index + 2].isdigit():
            tokens.append(text[start:index])
            start = index + 1
    for token in [*tokens, text[start:]]:
        word = token.lower()
        if word == "help":
            raise HelpWanted(_HINT_HELP)
        if word == "compute_bound":
            result |= {"sockets_per_node": ANY, "cores_per_socket": ANY, "threads_per_core": 1}
        elif word == "memory_bound":
            result |= {"cores_per_socket": 1, "threads_per_core": 1}
        elif word == "multithread":
            result |= {"threads_per_core": ANY, "ntasks_per_core": MULTITHREAD_TASKS_PER_CORE}
        elif word == "nomultithread":
            result["threads_per_core"] = 1
        else:
            raise WordError(f'unrecognized --hint argument "{token}", see --hint=help')
    return result


_SHARED_GRES = ("mps", "shard")


def check_tres_bind(text: str) -> None:
    """``gres/gpu:closest+gres/nic:none``. Raises WordError (its lines come before the client's own)."""
    for part in (p for p in text.split("+") if p):
        name, colon, how = part.partition(":")
        if not colon or not name.startswith("gres/"):
            raise WordError()
        word = how[8:].lower() if how[:8].lower() == "verbose," else how.lower()
        if name[5:] in _SHARED_GRES:
            good = word.startswith("none") or (word.startswith("per_task:") and _is_count(word[9:]))
        else:
            good = _is_gres_bind(word)
        if not good:
            raise WordError()


def _is_gres_bind(word: str) -> bool:
    if word.startswith(("closest", "none")):
        return True
    if word.startswith(("map_gpu:", "map:")):
        return _is_number_list(word[8:], frozenset("0123456789"))
    if word.startswith(("mask_gpu:", "mask:")):
        return _is_number_list(word[9:], _HEX)
    return ((word.startswith("per_task:") and _is_count(word[9:]))
            or (word.startswith("single:") and _is_count(word[7:])))


def _is_count(text: str) -> bool:
    parsed = leading_int(text)
    return parsed is None or parsed[0] >= 0


def _is_number_list(text: str, digits: frozenset[str]) -> bool:
    for token in (t for t in text.split(",") if t):
        body = token.removeprefix("0x") if digits is _HEX else token
        wrong = next((c for c in body if c not in digits and c != "*"), "")
        if wrong:
            raise WordError(f"Failed to validate {body}, offending character is {wrong}")
        _, star, times = body.partition("*")
        if star and not (times and times.isdigit()):
            return False
    return True


def check_gpu_freq(text: str) -> None:
    """``medium,memory=high,verbose``, ``450``. Raises WordError."""
    tokens = [token for token in text.split(",") if token]
    if not text:
        raise WordError()
    for token in tokens:
        name, equals, value = token.partition("=")
        if equals:
            if name != "memory" or not _is_gpu_speed(value):
                raise WordError()
        elif not _is_gpu_speed(token) and token != "verbose":
            raise WordError()


def _is_gpu_speed(text: str) -> bool:
    return (text.isascii() and text.isdigit()) or text in ("low", "medium", "high", "highm1")
