"""The words after a report's name: ``start=…``, ``Accounts=…``, ``format=…``, bare names and flags (sreport(1))."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from slurmbridge.commands.common import uid_of
from slurmbridge.commands.sreport_talk import Talk, begins
from slurmbridge.slurm import durations, hostlist
from slurmbridge.slurm.zones import Zone

HOUR_S = 3600
KEYWORD_HINT = "Use keyword set to modify value\n"


@dataclass(frozen=True, slots=True)
class Grammar:
    """What a report understands. Keys and flags are ``Name:letters`` in the order in which Slurm tries them; a key's
    ``=…`` says which list it fills. ``bare``: the list that other words without ``=`` go to."""

    keys: str
    bare: str
    flags: str = ""
    strips_equals: bool = True                # ``start==…`` too
    hint: str = KEYWORD_HINT


@dataclass(slots=True)
class Conditions:
    lists: dict[str, list[str]] = field(default_factory=dict)
    flags: set[str] = field(default_factory=set)
    formats: list[str] = field(default_factory=list)
    start_s: int = 0
    end_s: int = 0

    def get(self, name: str) -> list[str] | None:
        """The list, None where it was not given."""
        return self.lists.get(name)


CLUSTER = Grammar("Clusters:1 End:1 Format:1 Start:1", "clusters", "all_clusters:1")
ASSOCIATION = Grammar("Users:1 Accounts:2 Acct:4=accounts Clusters:1 End:1 Format:1 QosLevel:1=qos Start:1", "users",
                      "all_clusters:1 Tree:4")
WCKEY = Grammar("WCKeys:3 Clusters:3 End:1 Format:1 Start:1 User:1=users", "wckeys", "all_clusters:1 withdeleted:5",
                hint="")
JOB = Grammar("Clusters:1 Accounts:2 Acct:4=accounts Associations:2 End:1 Format:2 Gid:2 grouping:2 Jobs:1 Nodes:1 "
              "Partitions:2 Start:1 Users:1 Wckeys:2", "clusters",
              "all_clusters:1 AcctAsParent:2 PrintJobCount:2 FlatView:2", strips_equals=False)
RESERVATION = Grammar("Names:1 Clusters:1 End:1 Flags:2 Format:2 Ids:1 Nodes:1 Start:1", "names", "all_clusters:1")
USER = Grammar("Users:1 Accounts:2 Acct:4=accounts Clusters:1 End:1 Format:1 Start:1 TopCount:1", "users",
               "all_clusters:1 group:1", strips_equals=False)


def _table(text: str) -> list[tuple[str, int, str]]:
    found = []
    for word in text.split():
        name, _, rest = word.partition(":")
        letters, _, target = rest.partition("=")
        found.append((name, int(letters), target or name.lower()))
    return found


def read(talk: Talk, argv: Sequence[str], grammar: Grammar, preset: Mapping[str, Sequence[str]] | None = None
         ) -> Conditions:
    """What was asked, with the window in full hours. Mistakes are said, and the rest counts."""
    found = Conditions({name: list(values) for name, values in (preset or {}).items()})
    if talk.clusters:
        add_names(found.lists.setdefault("clusters", []), talk.clusters)
    keys, flags = _table(grammar.keys), _table(grammar.flags)
    for text in argv:
        name, equals, value = text.partition("=")
        if grammar.strips_equals:
            value = value.removeprefix("=")
        target = ""
        if not equals:
            target = next((key for known, letters, key in flags if begins(name, known, letters)), "")
            if target:
                found.flags.add(target)
                continue
            target, value = grammar.bare, text
        else:
            target = next((key for known, letters, key in keys if begins(name, known, letters)), "")
        if not target:
            talk.complain(f" Unknown condition: {text}\n{grammar.hint}")
        elif not _take(talk, found, target, value):
            break
    found.start_s, found.end_s = full_hours(talk.zone, talk.now, found.start_s, found.end_s)
    return found


def _take(talk: Talk, found: Conditions, target: str, value: str) -> bool:
    """False: no more words are read."""
    if target in ("start", "end"):
        time = _time(talk, value)
        if target == "start":
            found.start_s = time
        else:
            found.end_s = min(time, talk.now)
    elif target == "format":
        add_names(found.formats, value)
    elif target == "topcount":
        _top_count(talk, value)
    elif target == "qos":
        _add_qos(talk, found, value)
    elif target == "jobs":
        words = value.split(",")[:-1]         # the last one is never looked at
        found.lists.setdefault("jobs", []).extend(word.strip() for word in words if word.strip())
    elif target == "nodes":
        if "nodes" in found.lists:
            talk.complain(f"sreport: error: You already specified nodes '{found.lists['nodes'][0]}'  combine your "
                          "request into 1 nodes=.\n")
            return False
        found.lists["nodes"] = [value]
    elif target == "grouping" and begins("i", value[:1], 1):
        found.flags.add("individual")
    elif target == "users" and "uids" in found.lists:
        _add_uids(talk, found, value)
    else:
        add_names(found.lists.setdefault(target, []), value)
    return True


def _time(talk: Talk, text: str) -> int:
    try:
        return durations.parse_time(text, talk.now, talk.zone, past=True)
    except durations.TimeSpecError as error:
        talk.warn(f"{error}\n")
        return 0


def _top_count(talk: Talk, text: str) -> None:
    digits = text.strip("'\"").lstrip(" ")
    sign = digits[:1] if digits[:1] in ("+", "-") else ""
    number = ""
    for letter in digits[len(sign):]:
        if not letter.isdigit():
            break
        number += letter
    if not number and digits:
        talk.complain(f"sreport: error: Invalid value for TopCount ({digits})\n")
        return
    value = int(sign + (number or "0"))
    talk.top_count = None if value < 0 else value


def _add_qos(talk: Talk, found: Conditions, value: str) -> None:
    names: list[str] = []
    add_names(names, value)
    known = {qos.name for qos in talk.data.qos.values()}
    for name in names:
        if name.lstrip("+-") not in known:
            valid = ",".join(qos.name for qos in sorted(talk.data.qos.values(), key=lambda qos: qos.id))
            talk.complain(f"sreport: error: You gave a bad qos '{name}'. Valid QOS's are {valid}\n")
            return
    found.lists.setdefault("qos", []).extend(names)


def _add_uids(talk: Talk, found: Conditions, value: str) -> None:
    names: list[str] = []
    add_names(names, value)
    uids = []
    for name in filter(None, names):
        uid = uid_of(name)
        if uid is None:
            talk.warn(f"sreport: error: Invalid user id: {name}\n")
            return
        uids.append(str(uid))
    if not uids:
        talk.exit_code = 1                    # and nothing is said
    found.lists["uids"].extend(uids)


def add_names(names: list[str], text: str) -> None:
    """The names of a list, in lower case and once each; ``n[1-3]`` are three."""
    quote = text[:1] if text[:1] in ("'", '"') else ""
    if quote:
        text = text[1:].partition(quote)[0]
    text = text.replace('"', "`").replace("'", "`")
    words = [text]
    if "[" in text:
        try:
            words = hostlist.expand(text)
        except hostlist.HostlistError:
            words = [text]
    elif "," in text:
        words = [word for word in text.split(",") if word]
    for word in words:
        name = word.lower()
        if name in names:
            names.remove(name)
        names.append(name)


def full_hours(zone: Zone, now: int, start_s: int, end_s: int) -> tuple[int, int]:
    """The window that a report covers: whole hours, at least one; by default yesterday, to the hour that began at
    midnight."""
    when = zone.local(end_s or now)
    minute = when.minute + (when.second != 0)
    hour = (when.hour if end_s else 0) + (minute != 0)
    end = zone.epoch(when.year, when.month, when.day, hour, 0, 0)
    when = zone.local(start_s or now)
    start = zone.epoch(when.year, when.month, when.day, when.hour, 0, 0) if start_s else zone.epoch(
        when.year, when.month, when.day - 1, 0, 0, 0)
    return start, end if end - start >= HOUR_S else start + HOUR_S


def is_here(talk: Talk, found: Conditions) -> bool:
    """Whether this cluster is among those asked for."""
    wanted = found.get("clusters")
    return not wanted or talk.cluster.lower() in wanted


def is_one_cluster(talk: Talk, found: Conditions) -> bool:
    """Whether nodes can be asked for: only of one cluster, that of this one where none is named."""
    wanted = found.get("clusters")
    return len(wanted) == 1 if wanted else not (talk.all_clusters or "all_clusters" in found.flags)
