"""``sacctmgr list event``: times when nodes were not usable, and what the cluster consisted of (sacctmgr(1))."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slurmbridge.commands.common import time_texts, uid_of, user_name
from slurmbridge.commands.sacct_select import filter_cpus
from slurmbridge.commands.sacctmgr_fields import matches
from slurmbridge.commands.sacctmgr_lists import show
from slurmbridge.commands.sacctmgr_rows import Row, tres_text
from slurmbridge.commands.sacctmgr_talk import Talk
from slurmbridge.commands.sacctmgr_words import Word, name_list, number, refuse_operator, split_word
from slurmbridge.slurm import durations, hostlist
from slurmbridge.slurm.zones import Zone

_BASE = 0xF                                    # of a node's state: its first bits are a number, the others flags
_BASES = ("UNKNOWN", "DOWN", "IDLE", "ALLOCATED", "?", "MIXED", "FUTURE")
_FLAGS = (("DRAIN", 1 << 9, 3), ("FAIL", 1 << 13, 3), ("REBOOT^", 1 << 20, 7), ("REBOOT", 1 << 16, 3))
Event = Mapping[str, Any]


@dataclass(slots=True)
class _Asked:
    """Times in epoch seconds, 0 = not given; ``kinds``: Node, Cluster (none: both)."""

    start_s: int = 0
    end_s: int = 0
    all_time: bool = False
    only_open: bool = False
    all_clusters: bool = False
    kinds: set[str] = field(default_factory=set)
    nodes: list[str] | None = None
    clusters: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    states: list[int] = field(default_factory=list)
    uids: list[int] = field(default_factory=list)
    cpus: dict[str, int] = field(default_factory=dict)     # "least", "most"
    formats: list[str] = field(default_factory=list)


async def list_event(talk: Talk, argv: Sequence[str]) -> None:
    asked = _Asked()
    for text in argv:
        word = split_word(text)
        bare = word.value is None
        if not refuse_operator(talk, word, False) or (bare and word.named("where", 5)):
            continue
        if not _take(talk, asked, word, bare):
            return
    if talk.exit_code:
        return
    now, zone = int(talk.session.now()), Zone.of(talk.env)
    if not asked.start_s and not asked.all_time:
        asked.start_s = now if asked.states else _yesterday(now, zone)
    text_of, warning = time_texts("sacctmgr", talk.env, now)
    talk.warn(warning)
    found = await talk.session.views.ledger_query(
        "events", nodes=asked.nodes, start_s=asked.start_s or None,
        end_s=(asked.end_s or now) if asked.start_s else None, open=asked.only_open)
    chosen = [event for event in sorted(found, key=lambda event: (event["node"], event["start_s"]))
              if _is_wanted(asked, event, talk.data.tres)]
    if (asked.clusters and talk.cluster not in asked.clusters) or (
            asked.nodes is not None and asked.all_clusters and not asked.clusters):   # nodes only of a cluster
        chosen = []
    rows: list[Row] = []
    for event in chosen:
        end, uid = event["end_s"], event["reason_uid"]
        by = user_name(uid) if event["node"] and uid is not None else ""
        rows.append({
            "cluster": talk.cluster, "nodename": event["node"], "cluster_nodes": event["nodes"] or "",
            "timestart": text_of(event["start_s"]), "timeend": text_of(end) if end else "Unknown",
            "state": str(event["state"] or ""), "stateraw": str(event.get("state_raw", 0)),
            "reason": str(event["reason"] or ""), "user": f"{by}({uid})" if by else "",
            "event": "Node" if event["node"] else "Cluster", "eventraw": "2" if event["node"] else "1",
            "tres": tres_text(event["tres"] or {}),
            "duration": durations.format_seconds((end or now) - event["start_s"]),
            "cpus": str((event["tres"] or {}).get("cpu", 0))})
    show(talk, asked.formats or (["Cluster,TRES,Start,End,ClusterNodes"] if asked.kinds == {"Cluster"} else [
        "Cluster,NodeName,Start,End,State,Reason,User"]), rows)


def _take(talk: Talk, asked: _Asked, word: Word, bare: bool) -> bool:
    """False: sacctmgr ends at once."""
    if bare and word.named("all_clusters", 5):
        asked.all_clusters = True
    elif bare and word.named("all_time", 5):
        asked.all_time = True
    elif bare or (word.named("Events", 1) and not word.named("End", 2)):
        for name in name_list(word.operand):
            kind = next((kind for kind in ("Node", "Cluster") if matches(name, kind, 1)), None)
            if kind is None:
                talk.complain(f" Unknown event type: '{name}'  Valid events are Cluster and Node.\n")
            else:                              # a second kind, also one that follows from a condition, makes it both
                asked.kinds = {"Node", "Cluster"} if asked.kinds else {kind}
    elif word.named("Clusters", 2):
        asked.clusters += name_list(word.operand)
    elif word.named("CondFlags", 2):
        for name in word.operand.split(","):
            if name.lower() == "open":
                asked.only_open = True
            elif name:
                talk.log_error(f"Unknown condition flag {name}")
                talk.exit_code = 1
    elif word.named("End", 1):
        asked.end_s = _time(talk, word.operand)
    elif word.named("Format", 1):
        asked.formats.append(word.operand)
    elif word.named("MinCpus", 2) or word.named("MaxCpus", 2):
        count = number(talk, word.operand, "MinCpus" if word.named("MinCpus", 2) else "MaxCpus")
        if count is not None and count is not False:
            asked.cpus["least" if word.named("MinCpus", 2) else "most"] = count
    elif word.named("Nodes", 1):
        asked.nodes = list(hostlist.expand(word.operand))
    elif word.named("Reason", 1):
        asked.reasons += name_list(word.operand)
    elif word.named("Start", 4):
        asked.start_s = _time(talk, word.operand)
    elif word.named("States", 4):
        return _take_states(talk, asked, word.operand)
    elif word.named("User", 1):
        for name in name_list(word.operand):
            uid = uid_of(name)
            if uid is None:
                talk.log_error(f"Invalid user id: {name}")
                talk.exit_code = 1
            else:
                asked.uids.append(uid)
                asked.kinds = {"Node"}
    else:
        talk.complain(f" Unknown condition: {word.text}\n")
    return True


def _take_states(talk: Talk, asked: _Asked, text: str) -> bool:
    for name in name_list(text, lower=False):
        upper = name.upper()
        state = next((bit for flag, bit, least in _FLAGS if matches(name, flag, max(len(name), least))), None)
        if state is None:
            state = next((place for place, base in enumerate(_BASES) if base[:max(len(name), 3)] == upper), None)
        if state is None:
            talk.complain(f"Invalid state: {name}\nValid node states are: DRAIN FAIL {' '.join(_BASES)} \n"
                          "sacctmgr: fatal: unrecognized job state value\n")
            return False
        asked.states.append(state)
        asked.kinds = {"Node"}
    return True


def _time(talk: Talk, text: str) -> int:
    """0, which is no time at all, where it cannot be read; sacctmgr goes on."""
    try:
        return durations.parse_time(text, talk.session.now(), Zone.of(talk.env), past=True)
    except durations.TimeSpecError as error:
        talk.warn(f"{error}\n")
        return 0


def _is_wanted(asked: _Asked, event: Event, tres_ids: Mapping[str, int]) -> bool:
    if asked.kinds and ("Node" if event["node"] else "Cluster") not in asked.kinds:
        return False
    if asked.reasons and not any(part in str(event["reason"] or "").lower() for part in asked.reasons):
        return False
    if asked.uids and event["reason_uid"] not in asked.uids:
        return False
    raw = int(event.get("state_raw", 0))
    if asked.states and not any(raw & _BASE == state if state & _BASE else raw & state for state in asked.states):
        return False
    least, most = asked.cpus.get("least", 0), asked.cpus.get("most", 0)
    cpus = filter_cpus(event["tres"] or {}, tres_ids)
    return not least or (least <= cpus <= most if most else cpus == least)


def _yesterday(now: int, zone: Zone) -> int:
    """Midnight of the day before."""
    when = zone.local(now)
    return zone.epoch(when.year, when.month, when.day - 1, 0, 0, 0)
