"""One conversation with sreport: its flags, what it says, and how it writes amounts of time."""
from __future__ import annotations

import pwd
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from slurmbridge.commands.common import Stop, time_texts
from slurmbridge.commands.conversation import Conversation
from slurmbridge.slurm.zones import Zone
from slurmbridge.views.session import Session

RULE = "-" * 80 + "\n"
Counts = Mapping[int, int]
Row = Mapping[str, str | None]


class Unit(NamedTuple):
    """A word of -t. ``divisor`` None: no amount; ``percent``: with its share of the total."""

    word: str
    letters: int
    label: str
    divisor: int | None
    percent: bool = False


UNITS = (
    Unit("SecPer", 6, "Seconds/Percentage of Total", 1, True),
    Unit("MinPer", 6, "Minutes/Percentage of Total", 60, True),
    Unit("HourPer", 6, "Hours/Percentage of Total", 3600, True),
    Unit("Seconds", 1, "Seconds", 1), Unit("Minutes", 1, "Minutes", 60), Unit("Hours", 1, "Hours", 3600),
    Unit("Percent", 1, "Percentage of Total", None, True))


class Tres(NamedTuple):
    """A TRES as reports name it."""

    id: int
    name: str


def begins(text: str, name: str, letters: int) -> bool:
    """Whether ``text`` is the beginning of ``name`` in any case, with so many letters at least."""
    return len(text) >= letters and name.lower().startswith(text.lower())


def amount(seconds: int, total: int, unit: Unit) -> str:
    """TRES seconds in a unit, and as a share of the total where it asks for that."""
    share = f"{seconds / (total or 1) * 100:.2f}%"
    if unit.divisor is None:
        return share
    text = str(seconds) if unit.divisor == 1 else f"{seconds / unit.divisor:.0f}"
    return f"{text}({share})" if unit.percent else text


def usage_width(seconds: int, unit: Unit) -> int:
    """Columns of usage grow with the largest amount in seconds, whatever the unit."""
    return max(8, len(str(seconds))) + (9 if unit.percent and unit.divisor is not None else 0)


class Talk(Conversation):
    """Flags of the command line and what was said so far."""

    def __init__(self, session: Session, env: Mapping[str, str]) -> None:
        super().__init__(session)
        self.env = env
        self.now = int(session.now())
        self.zone = Zone.of(env)
        self.quiet = 0                        # 1: -Q, -1: -v
        self.unit = UNITS[4]
        self.sort_by_name = False
        self.all_clusters = False
        self.clusters = ""                    # -M
        self.tres_text: str | None = None     # -T
        self.tres: list[Tres] = []
        self.wants_node = False
        self.top_count: int | None = 10
        self.flat_view = self.account_as_parent = self.tree = False   # once said, they hold for the conversation
        self.text_of, warning = time_texts("sreport", env, self.now)
        self.warn(warning)

    @property
    def cluster(self) -> str:
        return self.session.views.conf.cluster_name

    @property
    def usage_name(self) -> str:
        return "CPU" if self.tres_text is None else "TRES"

    # --- speaking
    def fatal(self, text: str) -> Stop:
        """Ends the program."""
        self._err.append(f"sreport: fatal: {text}\n")
        self.exit_code = 1
        return Stop(self.reply())

    def sees_wckeys(self) -> bool:
        """Only operators; others are told so."""
        record = self.data.users.get(self.session.identity.user_name)
        if self.session.identity.is_admin or (record is not None and record.admin_level != "None"):
            return True
        self.warn("sreport: error: Your user doesn't have privilege to perform this action\n")
        return False

    # --- what all reports print
    def heading(self, title: str, start_s: int, end_s: int, usage_name: str, *, with_length: bool = True) -> None:
        """The lines above a report."""
        if not self.header:
            return
        length = f" ({end_s - start_s} secs)" if with_length else ""
        what = "" if self.unit.divisor is None else f"{usage_name} "
        self.say(f"{RULE}{title} {self.text_of(start_s)} - {self.text_of(end_s - 1)}{length}\n"
                 f"Usage reported in {what}{self.unit.label}\n{RULE}")

    def amount(self, seconds: int, total: int) -> str:
        return amount(seconds, total, self.unit)


def proper_name(user: str) -> str:
    """The first part of the account's GECOS field; "" where there is none."""
    try:
        return pwd.getpwnam(user).pw_gecos.partition(",")[0]
    except KeyError:
        return ""


def set_tres(talk: Talk) -> None:
    """Finds the TRES of -T. Raises Stop."""
    known = [Tres(number, name) for name, number in sorted(talk.data.tres.items(), key=lambda item: item[1])]
    talk.tres = [known[0]]
    if talk.tres_text is None:
        return
    talk.tres = []
    for word in talk.tres_text.split(","):
        if word.lower() == "all":
            talk.tres = known
            break
        found = next((tres for tres in known if _is_tres(tres.name, word)), None) if word else None
        if found is None:
            continue
        if word.lower() == "node":
            if talk.unit.percent:
                raise talk.fatal("TRES node usage is no longer reported in percent format reports.  Please use TRES "
                                 "CPU instead.")
            talk.wants_node = True
        talk.tres.append(found)
    if not talk.tres:
        raise talk.fatal("No valid TRES given")


def _is_tres(name: str, word: str) -> bool:
    """The type may be shortened, the name not."""
    kind, slash, rest = name.partition("/")
    wanted, wanted_slash, wanted_rest = word.partition("/")
    if kind in ("fs", "bb", "gres", "ic", "license"):
        return kind.startswith(wanted.lower()) and bool(wanted_slash) and rest.lower() == wanted_rest.lower()
    return not slash and not wanted_slash and kind.startswith(wanted.lower())


def set_unit(talk: Talk, word: str) -> None:
    for unit in UNITS:
        if begins(word, unit.word, unit.letters):
            talk.unit = unit
            return
    talk.warn(f"unknown time format {word}")


def set_sort(talk: Talk, word: str) -> None:
    if begins(word, "Name", 1):
        talk.sort_by_name = True
    elif begins(word, "Time", 6):
        talk.sort_by_name = False
    else:
        talk.warn(f"unknown timesort format {word}")


def sorted_like_libc(items: Sequence[Any], compare: Callable[[Any, Any], int]) -> list[Any]:
    """glibc's merge sort: for a comparison that is no order (an amount that is missing), the outcome depends on it."""
    if len(items) < 2:
        return list(items)
    half = len(items) // 2
    left, right = sorted_like_libc(items[:half], compare), sorted_like_libc(items[half:], compare)
    merged = []
    at = 0
    for item in left:
        while at < len(right) and compare(item, right[at]) > 0:
            merged.append(right[at])
            at += 1
        merged.append(item)
    return merged + right[at:]
