"""``sacctmgr list reservation``: the ledger's reservations, and how long each stood unused (sacctmgr(1))."""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from slurmbridge.commands.common import time_texts
from slurmbridge.commands.sacctmgr_fields import matches
from slurmbridge.commands.sacctmgr_lists import show
from slurmbridge.commands.sacctmgr_rows import tres_text
from slurmbridge.commands.sacctmgr_talk import Talk
from slurmbridge.commands.sacctmgr_words import name_list, refuse_operator, split_word
from slurmbridge.slurm import durations, hostlist
from slurmbridge.slurm.zones import Zone

HOUR_S = 3600


async def list_reservation(talk: Talk, argv: Sequence[str]) -> None:
    span: dict[str, int | None] = {"start": None, "end": None}
    formats: list[str] = []
    clusters: list[str] = []
    names: list[str] = []
    ids: list[int] = []
    nodes: set[str] | None = None
    now, zone = int(talk.session.now()), Zone.of(talk.env)
    for text in argv:
        word = split_word(text)
        if not refuse_operator(talk, word, False) or (word.value is None and word.named("where", 5)):
            continue
        if word.named("Clusters", 1):
            clusters += name_list(word.operand)
        elif word.named("End", 1) or matches(word.name, "Start", 5):
            try:
                time = durations.parse_time(word.operand, now, zone, past=True)
                span["end" if word.named("End", 1) else "start"] = time or None
            except durations.TimeSpecError as error:
                talk.complain(f"{error}\n")
        elif word.named("Format", 1):
            formats.append(word.operand)
        elif word.named("Ids", 1):
            ids += [int(part) for part in name_list(word.operand) if part.isdigit()]
        elif word.named("Names", 2):
            names += name_list(word.operand)
        elif word.named("Nodes", 2):
            nodes = set(hostlist.expand(word.operand))
        else:
            talk.complain(f" Unknown condition: {text}\n Use keyword 'set' to modify value\n")
    if nodes is not None and not clusters and not await talk.ask(
            "If requesting nodes you must also request the cluster.\n"
            f"Would you like to use the local cluster of '{talk.cluster}'?"):
        talk.exit_code = 1
    if talk.exit_code:
        return
    if not argv:
        today = zone.local(now)
        span["start"] = zone.epoch(today.year, today.month, today.day - 1, 0, 0, 0)
    if span["start"] and not span["end"]:
        span["end"] = now
    records = [record for record in await talk.session.views.ledger_query(
        "reservations", start_s=span["start"], end_s=span["end"], names=names or None, ids=ids or None)
        if (not clusters or talk.cluster in clusters)
        and (nodes is None or nodes & set(hostlist.expand(record["nodes"])))]
    text_of, warning = time_texts("sacctmgr", talk.env, now)
    talk.warn(warning)
    sizes = await talk.session.views.ledger_query("events", nodes=[""])
    first_hour = zone.hour_of(min((event["start_s"] for event in sizes), default=0))    # Slurm's roll-up begins there
    show(talk, formats or ["Cluster,Name%15,TRES%30,TimeStart,TimeEnd,Unused"], [
        {"cluster": talk.cluster, "name": record["name"], "id": str(record["id"]),
         "assoc_name": ",".join(str(number) for number in record["associations"]),
         "flags": ",".join(record["flags"]), "nodename": record["nodes"], "tres": tres_text(record["tres"]),
         "timestart": text_of(record["start_s"]), "timeend": text_of(record["end_s"]), "comment": record["comment"],
         "unused": repr(await _unused(talk, record, first_hour, zone, now))} for record in records])


async def _unused(talk: Talk, record: Mapping[str, Any], first_hour: int, zone: Zone, now: int) -> float:
    """As of the last full hour, since ``first_hour``."""
    end = min(record["end_s"], zone.hour_of(now))
    if max(record["start_s"], first_hour) >= end:
        return 0.0
    jobs = await talk.session.views.ledger_query(
        "jobs", start_s=record["start_s"], end_s=record["end_s"], suspensions=True)
    return unused_wall(record, [job for job in jobs if job.get("reservation_id") == record["id"]],
                       end, first_hour)


def unused_wall(record: Mapping[str, Any], jobs: Iterable[Mapping[str, Any]], end_s: int,
                first_hour: int = 0) -> float:
    """Seconds in which nothing of the reservation was used; a job that had half of it for an hour takes half an hour.

    Slurm adds up hour by hour, and begins each with whole seconds.
    """
    order = sorted(jobs, key=lambda job: (job["assoc_id"], job["eligible_s"] or 0, job["db_index"]))
    unused = 0.0
    hour = first_hour + max((record["start_s"] - first_hour) // HOUR_S, 0) * HOUR_S
    while hour < end_s:
        start, end = max(record["start_s"], hour), min(record["end_s"], hour + HOUR_S)
        unused = float(int(unused) + end - start)
        for job in order:
            unused = max(unused - _share(record, job, hour, start, end), 0.0)
        hour += HOUR_S
    return unused


def _share(record: Mapping[str, Any], job: Mapping[str, Any], hour: int, start: int, end: int) -> float:
    begin = job["start_s"] or job["end_s"] or 0
    seconds = min(job["end_s"] or end, end) - max(begin, start)
    if not begin or seconds <= 0:
        return 0.0
    first, last = max(begin, hour), min(job["end_s"] or hour + HOUR_S, hour + HOUR_S)
    paused = sum(max(min(to_s or last, last) - max(from_s, first), 0) for from_s, to_s in job.get("suspensions") or ())
    for name, count in record["tres"].items():
        had = (job.get("tres_alloc") or {}).get(name, 0)
        if count and had and (name != "cpu" or last - first > paused):
            return seconds * (had / count)
    return 0.0
