"""sreport cluster …: Utilization and who used what."""
from __future__ import annotations

from collections.abc import Mapping, Sequence

from slurmbridge.commands import sreport_words as words
from slurmbridge.commands.common import wckey_asked
from slurmbridge.commands.sreport_fields import pick, with_widths
from slurmbridge.commands.sreport_talk import Row, Talk, proper_name, usage_width
from slurmbridge.commands.sreport_usage import (
    CPU,
    ENERGY,
    TOTAL,
    Line,
    amounts,
    by_association,
    by_usage,
    chosen,
    cluster_rows,
    cluster_totals,
    in_tree_order,
    summed_up,
    usage_rows,
    used_widths,
)
from slurmbridge.views.associations import Tree

PARTS = (*TOTAL, "over")


async def utilization(talk: Talk, argv: Sequence[str]) -> None:
    """How the cluster's time was spent."""
    if talk.wants_node:
        raise talk.fatal("TRES node usage is no longer reported in the Cluster Utilization report.  Please use TRES "
                         "CPU instead.")
    found = words.read(talk, argv, words.CLUSTER)
    times = {row["tres_id"]: row for row in await cluster_rows(talk, found)}
    talk.heading("Cluster Utilization", found.start_s, found.end_s, talk.usage_name, with_length=False)
    tres_column = "TresName," if talk.tres_text is not None else ""
    formats = found.formats or f"cl,{tres_column}al,d,plnddown,i,res,rep".lower().split(",")
    picked = pick(talk, "cluster", formats)
    shown = [(tres, times[tres.id]) for tres in talk.tres if tres.id in times]
    largest = {name: max((time[name] for _, time in shown), default=0) for name in PARTS}
    largest["reported"] = max((sum(time[name] for name in TOTAL) for _, time in shown), default=0)
    largest["energy"] = largest["allocated"]
    averaged = any(tres.id == ENERGY for tres, _ in shown)       # Slurm forgets to, where it is not a line of its own
    energy = times.get(ENERGY, {}).get("count" if averaged else "count_sum", 0)
    rows: list[Row] = []
    for tres, time in shown:
        reported = sum(time[name] for name in TOTAL)
        whole = (found.end_s - found.start_s) * time["count"]
        if tres.id == ENERGY and not time["count"]:
            whole = reported
        rows.append({
            "cluster": talk.cluster, "tres": tres.name, "count": str(time["count"]),
            **{name: talk.amount(time[name], reported) for name in PARTS},
            "reported": talk.amount(reported, whole), "energy": talk.amount(energy, energy)})
    talk.table(with_widths(picked, {name: usage_width(value, talk.unit) for name, value in largest.items()}), rows)


async def account_by_user(talk: Talk, argv: Sequence[str]) -> None:
    await _by_association(talk, argv, "Cluster/Account/User", "login,proper", by_qos=False)


async def account_by_qos(talk: Talk, argv: Sequence[str]) -> None:
    await _by_association(talk, argv, "Cluster/Account/QOS", "qos", by_qos=True)


async def _by_association(talk: Talk, argv: Sequence[str], title: str, who: str, *, by_qos: bool) -> None:
    """``by_qos``: of accounts only; Slurm then takes the QOS for a proper name."""
    found = words.read(talk, argv, words.ASSOCIATION, {"users": [""]} if by_qos else None)
    if "tree" in found.flags:
        talk.tree = True
    split_qos = by_qos or found.get("qos") is not None
    amounts_asked = "tresname,used" if talk.tres_text is not None else "used,energy"
    picked = pick(talk, "cluster", found.formats or f"cluster,ac,{who},{amounts_asked}".split(","))
    tree = Tree(talk.data, with_deleted=True)
    usage = summed_up(tree, by_association(await usage_rows(talk, found), found.get("qos"), split_qos))
    totals = await cluster_totals(talk, found)
    lines: list[Line] = []
    if totals is not None:
        records = chosen(talk, tree, found, sub_accounts=True)
        for record in in_tree_order(tree, records, talk.cluster):
            lines += [Line(record.account, record.user, qos, seconds=seconds, association=record)
                      for qos, seconds in sorted(usage.get(record.id, {}).items())]
    talk.heading(f"{title} Utilization", found.start_s, found.end_s, talk.usage_name)
    widths = used_widths(talk, [key for key, _ in picked], lines[0].seconds if lines else totals or {})
    depths: dict[str, int] = {}
    ids = {name: str(qos.id) for name, qos in talk.data.qos.items()}
    rows: list[Row] = []
    for line in lines:
        shown: dict[str, str | None] = {
            "cluster": talk.cluster, "login": line.user, "account": line.account, "qos": line.qos,
            "qos_id": ids.get(line.qos, "0"),
            "proper": line.qos if by_qos else proper_name(line.user) if line.user else None}
        if talk.tree:
            shown["account"] = _indented(tree, line, depths)
        rows += [{**shown, **amounts(talk, line, tres, totals or {})} for tres in talk.tres]
    talk.table(with_widths(picked, widths), rows)


def _indented(tree: Tree, line: Line, depths: dict[str, int]) -> str:
    """An account one blank deeper than the one above it, where that was printed; its users one deeper still."""
    record = line.association
    parent = tree.parent(record) if record else None
    above = line.account if line.user else parent.account if parent else ""
    name = f"|{line.account}" if line.user else line.account
    if name not in depths or line.user:
        depths[name] = depths[above] + 1 if above in depths else 0
    return " " * depths[name] + line.account


async def user_by_account(talk: Talk, argv: Sequence[str]) -> None:
    found = words.read(talk, argv, words.ASSOCIATION)
    if "tree" in found.flags:
        talk.tree = True
    tree = Tree(talk.data, with_deleted=True)
    qos = found.get("qos")
    usage = summed_up(tree, by_association(await usage_rows(talk, found), qos))
    lines: dict[tuple[str, str], Line] = {}
    for record in in_tree_order(tree, chosen(talk, tree, found, sub_accounts=False), talk.cluster):
        if record.user and record.id in usage:
            line = lines.setdefault((record.user, record.account), Line(record.account, record.user))
            line.add(usage[record.id][""])
    await _print_users(talk, found, "Cluster/User/Account", "login,proper,ac", list(lines.values()), energy=True)


def _sees_wckeys(talk: Talk, report: str) -> bool:
    if talk.sees_wckeys():
        return True
    talk.complain(f"slurmdb_report_cluster_{report}: Problem with get query.\n")
    return False


async def user_by_wckey(talk: Talk, argv: Sequence[str]) -> None:
    found = words.read(talk, argv, words.WCKEY)
    if not _sees_wckeys(talk, "user_by_wckey"):
        return
    lines = await _wckey_lines(talk, found)
    await _print_users(talk, found, "Cluster/User/WCKey", "login,proper,wckey", lines, energy=False)


async def _print_users(talk: Talk, found: words.Conditions, title: str, who: str, lines: Sequence[Line], *,
                       energy: bool) -> None:
    amounts_asked = "tresname,used" if talk.tres_text is not None else "used,energy" if energy else "used"
    picked = pick(talk, "cluster", found.formats or f"cluster,{who},{amounts_asked}".split(","))
    totals = await cluster_totals(talk, found)
    ordered = by_usage(talk, lines, CPU) if totals is not None else []
    talk.heading(f"{title} Utilization", found.start_s, found.end_s, talk.usage_name)
    widths = used_widths(talk, [key for key, _ in picked], ordered[0].seconds if ordered else totals or {})
    rows: list[Row] = [
        {"cluster": talk.cluster, "login": line.user, "proper": proper_name(line.user), "account": line.account,
         "wckey": line.account, **amounts(talk, line, tres, totals or {})}
        for line in ordered for tres in talk.tres]
    talk.table(with_widths(picked, widths), rows)


async def wckey_by_user(talk: Talk, argv: Sequence[str]) -> None:
    found = words.read(talk, argv, words.WCKEY)
    amounts_asked = "tresname,used" if talk.tres_text is not None else "used"
    picked = pick(talk, "cluster", found.formats or f"cluster,wckey,login,proper,{amounts_asked}".split(","))
    if not _sees_wckeys(talk, "wckey_by_user"):
        return
    lines = await _wckey_lines(talk, found)
    totals = await cluster_totals(talk, found)
    shown: dict[str, list[Line]] = {}
    for line in lines if totals is not None else ():
        group = shown.setdefault(line.account, [Line(line.account)])
        group[0].add(line.seconds)
        group.append(line)
    ordered = [line for group in shown.values() for line in group]
    talk.heading("Cluster/WCKey/User Utilization", found.start_s, found.end_s, talk.usage_name)
    widths = used_widths(talk, [key for key, _ in picked], ordered[0].seconds if ordered else totals or {})
    rows: list[Row] = [
        {"cluster": talk.cluster, "login": line.user, "proper": proper_name(line.user) if line.user else None,
         "wckey": line.account, **_without_energy(amounts(talk, line, tres, totals or {}))}
        for line in ordered for tres in talk.tres]
    talk.table(with_widths(picked, widths), rows)


def _without_energy(values: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in values.items() if key != "energy"}


async def _wckey_lines(talk: Talk, found: words.Conditions) -> list[Line]:
    """Usage of each wckey and user, by name; none where wckeys are not tracked."""
    names, users = found.get("wckeys"), found.get("users")
    lines: dict[tuple[str, str], Line] = {}
    for row in await usage_rows(talk, found):
        record = talk.data.associations.get(row["assoc_id"])
        if row["wckey"] is None or record is None or not record.user:
            continue
        if not wckey_asked(names, row["wckey"]) or (users and record.user not in users):
            continue
        line = lines.setdefault((row["wckey"], record.user), Line(row["wckey"], record.user))
        line.add({row["tres_id"]: row["seconds"]})
    return [lines[key] for key in sorted(lines)]
