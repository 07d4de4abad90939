"""The small languages inside option arguments: signals, mail types, node counts, distributions, bindings, frequencies.

Each function takes the argument as written and returns its meaning with its canonical text. WordError carries the
lines that Slurm's client logs before it gives up (sbatch(1), srun(1)).
"""
from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from slurmbridge.slurm.memory import leading_int

MAX_INT = 0x7FFFFFFF
_MAX_COUNTED_NODES = 64 * 1024


class WordError(ValueError):
    """Not a word of this language; ``lines`` are logged as errors (without prefix), in order."""

    def __init__(self, *lines: str) -> None:
        self.lines = lines
        super().__init__(*lines)


def is_blank(text: str) -> bool:
    return not text.strip(" \t\n\v\f\r")


def quoted_list(text: str) -> list[str]:
    """slurm_parse_char_list: words between commas, no empty ones; a quote at the beginning ends at its like."""
    quote = text[:1] if text[:1] in ("'", '"') else ""
    inside = text[1:].partition(quote)[0] if quote else text
    return [word for word in inside.replace('"', "`").replace("'", "`").split(",") if word]


# -- signals ---------------------------------------------------------------------------------------------------------

_SIGNALS = {"HUP": 1, "INT": 2, "QUIT": 3, "ABRT": 6, "KILL": 9, "ALRM": 14, "TERM": 15, "CHLD": 17, "USR1": 10,
            "USR2": 12, "PIPE": 13, "URG": 23, "CONT": 18, "STOP": 19, "TSTP": 20, "TTIN": 21, "TTOU": 22, "XCPU": 24}
_SIGNAL_NAMES = {number: name for name, number in _SIGNALS.items()}


def signal_number(name: str) -> int:
    """Number of ``USR1``, ``SIGUSR1``, ``usr1`` or ``10``; 0: no such signal."""
    parsed = leading_int(name)
    if parsed:
        return parsed[0] if is_blank(parsed[1]) else 0
    word = name.strip(" \t\n\v\f\r").upper().removeprefix("SIG")
    return _SIGNALS.get(word, 0)


def signal_name(number: int) -> str:
    return _SIGNAL_NAMES.get(number) or str(number)


class WarnSignal(NamedTuple):
    """``--signal``: sent ``before_s`` before the end, to the batch shell only, also before a reservation's end."""

    number: int
    before_s: int
    batch: bool
    reservation: bool

    def __str__(self) -> str:
        flags = ("R" if self.reservation else "") + ("B" if self.batch else "")
        before = "" if self.before_s == 60 else f"@{self.before_s}"
        return f"{flags}{':' if flags else ''}{signal_name(self.number)}{before}"


def parse_warn_signal(text: str) -> WarnSignal | None:
    """``[[R][B]:]signal[@seconds]``; None where it is not one."""
    reservation = batch = False
    for letter in "RBR":
        if text[:1].upper() == letter:
            text = text[1:]
            reservation |= letter == "R"
            batch |= letter == "B"
    name, at, before = text.removeprefix(":").partition("@")
    number = signal_number(name) & 0xFFFF
    if number < 1:
        return None
    if not at:
        return WarnSignal(number, 60, batch, reservation)
    parsed = leading_int(before) or (0, before)
    if parsed[1] or not 0 <= parsed[0] <= 0xFFFF:
        return None
    return WarnSignal(number, parsed[0], batch, reservation)


# -- mail ------------------------------------------------------------------------------------------------------------

_MAIL_TYPES = ("ARRAY_TASKS", "INVALID_DEPEND", "BEGIN", "END", "FAIL", "REQUEUE", "STAGE_OUT",
               "TIME_LIMIT_50", "TIME_LIMIT_80", "TIME_LIMIT_90", "TIME_LIMIT")
_MAIL_ALL = ("INVALID_DEPEND", "BEGIN", "END", "FAIL", "REQUEUE", "STAGE_OUT")


def parse_mail_type(text: str) -> str | None:
    """Canonical list (``BEGIN,END``; ``NONE``); unknown words are passed over, None where nothing is left."""
    chosen: set[str] = set()
    for word in text.split(","):
        upper = word.upper()
        if upper == "NONE":
            return "NONE"
        if upper == "ALL":
            chosen.update(_MAIL_ALL)
        elif upper in _MAIL_TYPES:
            chosen.add(upper)
    return ",".join(name for name in _MAIL_TYPES if name in chosen) or None


# -- node counts -----------------------------------------------------------------------------------------------------

class NodeCount(NamedTuple):
    """``-N``: least and most nodes (0 = no upper bound), and the only sizes allowed where a list was given."""

    low: int
    high: int
    sizes: tuple[int, ...] = ()


def _node_number(text: str, whole: str) -> int:
    parsed = leading_int(text)
    if parsed is None:
        if is_blank(text):
            return -1
        raise WordError(f'"{whole}" is not a valid node count')
    number, rest = parsed
    for letter, factor in (("k", 1024), ("m", 1024 * 1024)):
        if rest[:1].lower() == letter:
            number, rest = number * factor, rest[1:]
    if not is_blank(rest):
        raise WordError(f'"{whole}" is not a valid node count')
    return number if 0 <= number <= MAX_INT else -1


def parse_node_count(text: str) -> NodeCount:
    """``4``, ``2-4``, ``1k``, ``2,4,8``, ``2-16:2``. Raises WordError."""
    if "," in text or ":" in text:
        count = _node_list(text)
    elif "-" in text:
        low_text, _, high_text = text.partition("-")
        low = _node_number(low_text, low_text)
        count = NodeCount(1 if low < 0 else low, _node_number(high_text, high_text))
    else:
        number = _node_number(text, text)
        if number < 0:
            raise WordError(f'"{text}" is not a valid node count')
        count = NodeCount(number, number)
    if count.high != 0 and count.high < count.low:
        raise WordError(f"Maximum node count {count.high} is less than minimum node count {count.low}")
    return count


def _node_list(text: str) -> NodeCount:
    for token in (t for t in text.replace("-", ",").replace(":", ",").split(",") if t):
        parsed = leading_int(token)
        if parsed is None or parsed[1] or parsed[0] >= _MAX_COUNTED_NODES:
            raise WordError(f'"{token}" is not a valid node count')
    try:
        if ":" in text:
            bounds, _, step_text = text.partition(":")
            low_text, _, high_text = bounds.partition("-")
            low, high, step = int(low_text), int(high_text), int(step_text)
            sizes: Collection[int] = range(low, high, step)      # Slurm leaves the end itself out
        else:
            sizes = {n for part in text.split(",") if part for n in _span(part)}
        ordered = tuple(sorted(sizes))
        return NodeCount(ordered[0], ordered[-1], ordered)
    except (ValueError, IndexError):
        raise WordError(f'"{text}" is not a valid node count') from None


def _span(part: str) -> range:
    low, dash, high = part.partition("-")
    return range(int(low), int(high if dash else low) + 1)


# -- distribution ----------------------------------------------------------------------------------------------------

_LAYOUTS = {"cyclic": "cyclic", "block": "block", "arbitrary": "arbitrary", "hostfile": "arbitrary"}
_LAYOUTS |= {f"{a}:{b}": f"{a}:{b}" for a in ("cyclic", "block") for b in ("cyclic", "block", "fcyclic")}
_LAYOUTS |= {f"{a}:{b}:{c}": f"{a}:{b}:{c}" for a in ("cyclic", "block")
             for b in ("cyclic", "block", "fcyclic") for c in ("cyclic", "block", "fcyclic")}


class Distribution(NamedTuple):
    """``-m``: layout ("" = default), pack flag ("", "pack", "nopack"), plane size or None."""

    layout: str
    pack: str = ""
    plane_size: int | None = None

    def __str__(self) -> str:
        return ",".join(part for part in (self.layout, self.pack) if part)


def parse_distribution(text: str, plane_size_env: str | None = None) -> Distribution:
    """``block:cyclic,Pack``, ``plane=4``, ``*:block``. Raises WordError."""
    if text[:5].lower() == "plane":
        size = text.partition("=")[2] if "=" in text else plane_size_env
        parsed = leading_int(size) if size else None
        if parsed is None or parsed[1] or not 0 < parsed[0] <= MAX_INT:
            raise WordError("Invalid plane size or size not specified")
        return Distribution("plane", "", parsed[0])
    if not text or text[0] == ",":
        raise WordError()
    base, _, flags = text.partition(",")
    levels = [level for level in base.split(":") if level]
    if not 1 <= len(levels) <= 3:
        raise WordError()
    defaults = ["block", "cyclic", levels[1] if len(levels) > 1 and levels[1] != "*" else "cyclic"]
    joined = ":".join(defaults[i] if level == "*" else level for i, level in enumerate(levels)).lower()
    if joined in ("pack", "nopack"):
        layout, pack = "", joined
    elif joined in _LAYOUTS:
        layout, pack = _LAYOUTS[joined], ""
    else:
        raise WordError()
    if flags:
        if flags.lower() not in ("pack", "nopack") or not (layout or pack):
            raise WordError()
        pack = flags.lower()
    return Distribution(layout, pack)


# -- sockets:cores:threads -------------------------------------------------------------------------------------------

def parse_socket_core_thread(text: str) -> tuple[int | None, int | None, int | None]:
    """``-B 2:8:1``, ``*`` or nothing for "any". Raises WordError (the client exits 1)."""
    parts = [*text.split(":", 3), "", ""][:3]
    names = ("first arg of -B", "second arg of -B", "third arg of -B")
    values = [_least(part[:47], name) for part, name in zip(parts, names, strict=True)]
    return values[0], values[1], values[2]


def _least(text: str, name: str) -> int | None:
    if not text or text[0] == "*":
        return None
    low, rest = _scaled(text)
    if (rest and rest[0] != "-") or low < 0:
        raise WordError(f'Invalid numeric value "{text}" for {name}.')
    if low > MAX_INT:
        raise WordError(f"Numeric argument ({low}) too large for {name}.")
    if rest:
        high, rest = _scaled(rest[1:])
        if (rest and rest[0] != "-") or high <= 0:
            raise WordError(f'Invalid numeric value "{text}" for {name}.')
        if high > MAX_INT:
            raise WordError(f"Numeric argument ({high}) too large for {name}.")
        if low == 1 and high == MAX_INT:
            return None
    return low


def _scaled(text: str) -> tuple[int, str]:
    number, rest = leading_int(text) or (0, text)
    if rest[:1].lower() == "k":
        return number * 1024, rest[1:]
    if rest[:1].lower() == "m":
        return number * 1048576, rest[1:]
    return number, rest


# -- cpu frequency ---------------------------------------------------------------------------------------------------

_GOVERNORS = (("co", "Conservative"), ("perf", "Performance"), ("pow", "PowerSave"), ("user", "UserSpace"),
              ("onde", "OnDemand"), ("sche", "SchedUtil"))
_FREQUENCIES = (("lo", "Low"), ("him1", "Highm1"), ("highm1", "Highm1"), ("hi", "High"), ("med", "Medium"))
_FREQUENCY_RANK = {"Low": 1, "Medium": 2, "High": 3, "Highm1": 4}
DEFAULT_GOVERNORS = ("OnDemand", "Performance", "UserSpace")


class CpuFrequency(NamedTuple):
    """``--cpu-freq``: texts as shown by scontrol (kHz or Low, Medium, High, Highm1), "" where not given."""

    low: str
    high: str
    governor: str

    def __str__(self) -> str:
        if self.low and self.high and self.governor:
            return f"{self.low}-{self.high}:{self.governor}"
        if self.low and self.high:
            return f"{self.low}-{self.high}"
        return self.high or self.governor


def governor_name(text: str) -> str:
    return next((name for start, name in _GOVERNORS if text.lower().startswith(start)), "")


def _frequency(text: str) -> str:
    for start, name in _FREQUENCIES:
        if text.lower().startswith(start):
            return name
    parsed = leading_int(text)
    if text and (parsed is None or parsed[1]):
        raise WordError(f'unrecognized --cpu-freq argument "{text}"')
    number = (parsed[0] if parsed else 0) & 0xFFFFFFFF
    if not number:
        raise WordError()
    return str(number)


def parse_cpu_frequency(text: str, default: str = "", allowed: Collection[str] = DEFAULT_GOVERNORS) -> CpuFrequency:
    """``p1[-p2][:p3]``. ``default``: CpuFreqDef, ``allowed``: CpuFreqGovernors of slurm.conf. Raises WordError."""
    head, colon, third = text.partition(":")
    first, dash, second = head.partition("-")
    low = high = ""
    governor = governor_name(first)
    if governor:
        if colon:
            raise WordError(f"governor cannot be specified twice {first}{{-}}:{third} in --cpu-freq")
    else:
        high = _frequency(first)
    if dash:
        if not colon and not default:
            raise WordError("You must explicitly choose a governor when defining a range. Please specify only one "
                            "value for the desired frequency (p1) or choose a specific governor (p3).")
        low, high = high, _frequency(second)
        if low and _rank(high) < _rank(low):
            raise WordError(f"min cpu-frec ({first}) must be < max cpu-freq ({second})")
    if colon:
        chosen = governor_name(third)
        if not chosen:
            raise WordError(f"illegal governor: {third} on --cpu-freq")
        if not dash and chosen != "UserSpace":
            raise WordError(f"gov on cpu-frec ({third}) illegal without max")
        if dash and chosen == "UserSpace":
            raise WordError(f"{third} governor does not support a range. Please specify only one value for the "
                            "desired frequency (p1) or choose a different governor.")
        governor = chosen
    elif dash and not governor:
        governor = default
    if not governor and not dash and not colon:
        governor = "UserSpace"
    if governor and governor not in allowed:
        raise WordError(f"governor of {text} is not allowed in slurm.conf")
    return CpuFrequency(low, high, governor)


def _rank(frequency: str) -> int:
    return 0x80000000 + _FREQUENCY_RANK[frequency] if frequency in _FREQUENCY_RANK else int(frequency)


# -- profiles and accounting frequency -------------------------------------------------------------------------------

def parse_profile(text: str) -> str | None:
    """``None``, or a list of Energy, Lustre, Network, Task. None: not a profile."""
    lower = text.lower()
    if "none" in lower:
        return "None"
    everything = "all" in lower
    kinds = [name for name in ("Energy", "Lustre", "Network", "Task") if everything or name.lower() in lower]
    return ",".join(kinds) or None


def check_accounting_frequency(text: str) -> None:
    """``task=30,energy=60`` or ``30``. Raises WordError with a line for each bad entry."""
    bad = []
    for token in (t for t in text.split(",") if t):
        numbers = [leading_int(token)]
        lower = token.lower()
        for kind in ("energy=", "task=", "filesystem=", "network="):
            if kind in lower:
                numbers.append(leading_int(token[lower.index(kind) + len(kind):]))
        if not any(n is not None and n[0] != -1 for n in numbers):
            bad.append(f"Invalid --acctg-freq specification: {token}")
    if bad:
        raise WordError(*bad)
