"""``sacctmgr list wckey``, which has conditions and columns of its own (sacctmgr(1))."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from slurmbridge.commands.common import wckey_asked
from slurmbridge.commands.sacctmgr_books import take_time
from slurmbridge.commands.sacctmgr_fields import matches
from slurmbridge.commands.sacctmgr_modify import deny
from slurmbridge.commands.sacctmgr_rows import Row
from slurmbridge.commands.sacctmgr_talk import Talk
from slurmbridge.commands.sacctmgr_words import name_list, numbers, refuse_operator, split_word
from slurmbridge.slurm.columns import ColumnField, split_names
from slurmbridge.slurm.memory import leading_int


def _get(key: str) -> Callable[[Row], str | None]:
    return lambda row: row.get(key)


_COLUMNS = (
    (("WCKeys", "Names"), 1, ColumnField("WCKey", 10, _get("name"))),
    (("Clusters",), 2, ColumnField("Cluster", 10, _get("cluster"))),
    (("IDs",), 1, ColumnField("ID", 6, _get("id"), "number")), (("Users",), 1, ColumnField("User", 10, _get("user"))))


async def list_wckey(talk: Talk, argv: Sequence[str]) -> None:
    """For operators."""
    formats: list[str] = []
    names: list[str] = []
    users: list[str] = []
    clusters: list[str] = []
    ids: list[int] = []
    for text in argv:
        word = split_word(text)
        bare = word.value is None
        if not refuse_operator(talk, word, False) or (bare and (
                word.named("where", 5) or word.named("WithDeleted", 5))):
            continue
        if bare or word.named("WCKeys", 3) or word.named("Names", 3):
            names += name_list(word.operand)
        elif word.named("Ids", 1):
            ids += numbers(talk, word.operand, "WCKeyID")
        elif word.named("Clusters", 3):
            clusters += name_list(word.operand)
        elif word.named("End", 1) or word.named("Start", 1):
            take_time(talk, word.operand)
        elif word.named("Format", 1):
            formats.append(word.operand)
        elif word.named("Users", 1):
            users += name_list(word.operand)
        else:
            talk.complain(f" Unknown condition: {word.text}\n")
    if talk.exit_code:
        return
    columns = _chosen(talk, formats or ["Name,Cluster,User"])
    if talk.exit_code:
        return
    if not talk.is_operator:
        deny(talk)
        return
    rows: list[Row] = [
        {"name": name, "cluster": talk.cluster, "user": user, "id": str(number_of)}
        for number_of, (name, user) in sorted(talk.data.wckeys.items(), key=lambda item: (item[1], item[0]))
        if (not clusters or talk.cluster in clusters) and wckey_asked(names, name)
        and (not users or user in users) and (not ids or number_of in ids)]
    talk.table(columns, rows)


def _chosen(talk: Talk, formats: Sequence[str]) -> list[ColumnField[Row]]:
    """All words that are no column are said."""
    chosen: list[ColumnField[Row]] = []
    words = [word for text in formats for word in split_names(text) or [""]]
    for word in dict.fromkeys(word.lower() for word in words):
        name, _, width_text = word.partition("%")
        found = next((column for known, letters, column in _COLUMNS if name and any(
            matches(name, one, letters) for one in known)), None)
        if found is None:
            talk.complain(f"Unknown field '{name}'\n")
        else:
            width = leading_int(width_text)
            chosen.append(replace(found, width=width[0]) if width and width[0] else found)
    return chosen
