"""sreport user Top: who used most."""
from __future__ import annotations

from collections.abc import Sequence

from slurmbridge.commands import sreport_words as words
from slurmbridge.commands.sreport_fields import pick, with_widths
from slurmbridge.commands.sreport_talk import Row, Talk, proper_name
from slurmbridge.commands.sreport_usage import (
    CPU,
    Line,
    amounts,
    by_association,
    by_usage,
    cluster_totals,
    usage_rows,
    used_widths,
)
from slurmbridge.views.associations import Tree


async def top(talk: Talk, argv: Sequence[str]) -> None:
    found = words.read(talk, argv, words.USER)
    usage = by_association(await usage_rows(talk, found))
    totals = await cluster_totals(talk, found)
    lines = _lines(talk, found, usage) if totals is not None else []
    asked = "tresname,used" if talk.tres_text is not None else "u,energy"
    if talk.tres_text is None and any(line.partition for line in lines):
        asked = f"pa,{asked}"
    picked = pick(talk, "user", found.formats or f"cl,l,pr,a,{asked}".split(","))
    count = "ALL" if talk.top_count is None else talk.top_count
    talk.heading(f"Top {count} Users", found.start_s, found.end_s, talk.usage_name)
    lines = by_usage(talk, lines, CPU)
    widths = used_widths(talk, [key for key, _ in picked], lines[0].seconds if lines else totals or {})
    lines = by_usage(talk, lines, talk.tres[0].id)
    if talk.top_count is not None:
        lines = lines[:max(talk.top_count, 1)]
    rows: list[Row] = [
        {"cluster": talk.cluster, "login": line.user, "proper": proper_name(line.user),
         "account": ", ".join(line.accounts), "partition": line.partition, **amounts(talk, line, tres, totals or {})}
        for line in lines for tres in talk.tres]
    talk.table(with_widths(picked, widths), rows)


def _lines(talk: Talk, found: words.Conditions, usage: dict[int, dict[str, dict[int, int]]]) -> list[Line]:
    """One for each user and account, or for each user (``group``)."""
    users, accounts = found.get("users"), found.get("accounts")
    tree = Tree(talk.data, with_deleted=True)
    records = sorted(
        (record for record in talk.data.associations.values() if record.user and record.id in usage),
        key=lambda record: (record.user, tree.lineage(record)))
    lines: list[Line] = []
    of_user: dict[str, Line] = {}
    for record in records:
        if (users and record.user not in users) or (accounts and record.account not in accounts):
            continue
        line = of_user.get(record.user) if "group" in found.flags else None
        if line is None:
            line = of_user[record.user] = Line(user=record.user, partition=record.partition)
            lines.append(line)
        if record.account not in line.accounts:
            line.accounts.append(record.account)
        line.add(usage[record.id][""])
    return lines
