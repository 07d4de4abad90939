"""sreport reservation Utilization: what of each reservation its jobs used. From the jobs themselves."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from slurmbridge.commands import sacct_select
from slurmbridge.commands import sreport_words as words
from slurmbridge.commands.sacct_options import Options
from slurmbridge.commands.sreport_fields import pick
from slurmbridge.commands.sreport_talk import Row, Talk
from slurmbridge.slurm import durations, hostlist

UNKNOWN_COLUMN, SYNTAX_ERROR = 1054, 1064
"""Error numbers of MariaDB (ER_BAD_FIELD_ERROR, ER_PARSE_ERROR)."""


async def utilization(talk: Talk, argv: Sequence[str]) -> None:
    found = words.read(talk, argv, words.RESERVATION)
    for word in found.get("ids") or ():
        if not word.isdigit():                # Slurm puts it into its query as it is
            talk.complain(f"sreport: error: Unknown error {UNKNOWN_COLUMN if word.isidentifier() else SYNTAX_ERROR}\n"
                          " Problem with reservation query.\n")
            return
    ids = [int(word) for word in found.get("ids") or ()]
    records = await talk.session.views.ledger_query(
        "reservations", start_s=found.start_s, end_s=found.end_s, names=found.get("names"), ids=ids or None) \
        if words.is_here(talk, found) else ()
    nodes = (found.get("nodes") or [""])[0]
    if nodes:
        wanted = _hosts(nodes)
        spans = await sacct_select.spans_with(talk.session.views, wanted, found.start_s, found.end_s, talk.now)
        if spans:                             # else Slurm looks at no nodes
            records = [record for record in records if wanted & _hosts(record["nodes"])
                       and any(first <= record["start_s"] < last for first, last in spans)]
    talk.heading("Reservation Utilization", found.start_s, found.end_s, "TRES", with_length=False)
    picked = pick(talk, "reservation", found.formats or ["cl", "name", "start", "end", "tresname", "al", "i"])
    rows: list[Row] = []
    for record in records:
        rows += await _rows(talk, record)
    talk.table([column for _, column in picked], rows)


async def _rows(talk: Talk, record: Mapping[str, Any]) -> list[Row]:
    length = record["end_s"] - record["start_s"]
    if length <= 0:
        return []
    used = await _used(talk, record)
    asked = None if talk.tres_text is None else {tres.name for tres in talk.tres}
    order = talk.data.tres
    rows: list[Row] = []
    for tres, count in sorted(record["tres"].items(), key=lambda item: order.get(item[0], 0)):
        if tres not in order or (asked is not None and tres not in asked):
            continue
        total, allocated = length * count, used.get(tres, 0)
        rows.append({
            "cluster": talk.cluster, "name": record["name"], "id": str(record["id"]), "count": str(count),
            "tres": tres, "start": talk.text_of(record["start_s"]), "end": talk.text_of(record["end_s"]),
            "allocated": talk.amount(allocated, total), "idle": talk.amount(max(total - allocated, 0), total),
            "nodes": record["nodes"], "associations": ",".join(str(number) for number in record["associations"]),
            "flags": ",".join(record["flags"]), "total_time": durations.format_seconds(length),
            "tres_time": durations.format_seconds(total)})
    return rows


async def _used(talk: Talk, record: Mapping[str, Any]) -> dict[str, int]:
    """TRES seconds of the reservation's jobs while it lasted, suspended or not; of each job the last run."""
    options = Options(talk.now, talk.zone)
    options.start_s, options.end_s = record["start_s"], record["end_s"]
    options.truncate, options.steps = True, False
    fetched = await sacct_select.fetch(talk.session, options)
    inside = replace(fetched, rows=[row for row in fetched.rows if row.get("reservation_id") == record["id"]])
    used: dict[str, int] = {}
    for job in sacct_select.choose(inside, options):
        end = min(job.end_s or record["end_s"], record["end_s"])
        elapsed = end - max(job.start_s, record["start_s"])
        if elapsed >= 1:
            for tres, count in job.tres_alloc.items():
                used[tres] = used.get(tres, 0) + count * elapsed
    return used


def _hosts(text: str) -> frozenset[str]:
    try:
        return frozenset(hostlist.expand(text))
    except hostlist.HostlistError:
        return frozenset()
