"""``sacctmgr add|modify|delete|show resource``: licenses of a server, shared among clusters (sacctmgr(1))."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slurmbridge.commands.sacctmgr_lists import show
from slurmbridge.commands.sacctmgr_modify import DENIED, deny
from slurmbridge.commands.sacctmgr_rows import Row
from slurmbridge.commands.sacctmgr_talk import COMMIT, Talk
from slurmbridge.commands.sacctmgr_words import (
    Word,
    name_list,
    number,
    numbers,
    refuse_operator,
    split_word,
    strip_quotes,
    where_and_set,
)
from slurmbridge.slurm import errors
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.views.records import ResourceRecord

_COLUMNS = "Name,Server,Type,Count,LastConsumed,Allocated,ServerType"


@dataclass(slots=True)
class _Asked:
    """``values``: fields of ResourceRecord; ``where``: those that conditions compare."""

    names: list[str] = field(default_factory=list)
    clusters: list[str] = field(default_factory=list)
    where: dict[str, list[str]] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    kind: str = "Unknown"
    formats: list[str] = field(default_factory=list)
    with_clusters: bool = False
    given: bool = False

    def set(self, talk: Talk, word: Word) -> None:
        text = word.operand
        if word.value is None or word.named("Names", 1) or word.named("Resources", 1):
            self.names += name_list(text)
        elif word.named("Clusters", 1):
            self._clusters(talk, text)
        elif word.named("Count", 3) or word.named("LastConsumed", 8):
            self._number(talk, text, "count" if word.named("Count", 3) else "last_consumed")
        elif word.named("Description", 1):
            self.values["description"] = strip_quotes(text)
        elif word.named("Flags", 2):
            self._flags(talk, text)
        elif word.named("ServerType", 7):
            self.values["server_type"] = strip_quotes(text)
        elif word.named("Server", 2):
            self.values["server"] = strip_quotes(text)
        elif word.named("Allowed", 1) or word.named("PercentAllowed", 1):
            self._number(talk, text, "allowed")
        elif word.named("Type", 1):
            if text.lower() not in ("", "license") and not "license".startswith(text.lower()):
                talk.complain(f" Unknown resource type: '{text}'  Valid resources is License.\n")
            self.kind = "License"
        else:
            talk.say(f" Unknown option: {word.text}\n Use keyword 'where' to modify condition\n")
            talk.exit_code = 1

    def condition(self, talk: Talk, word: Word) -> None:
        text = word.operand
        if word.value is None and word.named("WithClusters", 5):
            self.with_clusters = True
            return
        if word.value is None and (word.named("WithDeleted", 5) or word.named("where", 5)):
            return
        if word.named("Format", 1) and word.value is not None:
            self.formats.append(text)
            return
        self.given = True
        if word.value is None or word.named("Names", 1):
            self.where.setdefault("name", []).extend(name_list(text))
        elif word.named("Clusters", 1):
            self._clusters(talk, text)
        elif word.named("Descriptions", 1):
            self.where.setdefault("description", []).extend(name_list(text))
        elif word.named("Ids", 1):
            self.where.setdefault("id", []).extend(map(str, numbers(talk, text, "RES ID")))
        elif word.named("Allowed", 1) or word.named("PercentAllowed", 1):
            self.where.setdefault("allowed", []).extend(name_list(text))
        elif word.named("ServerType", 7):
            self.where.setdefault("server_type", []).extend(name_list(text))
        elif word.named("Server", 2):
            self.where.setdefault("server", []).extend(name_list(text))
        else:
            talk.complain(f" Unknown condition: {word.text}\n Use keyword 'set' to modify SLURM_PRINT_VALUE\n")

    def _clusters(self, talk: Talk, text: str) -> None:
        self.clusters += name_list(text)
        for name in self.clusters:
            if name != talk.cluster:
                talk.complain(f" This cluster '{name}' doesn't exist.\n"
                              "        Contact your admin to add it to accounting.\n")
                return

    def _number(self, talk: Talk, text: str, key: str) -> None:
        value = number(talk, text, key)
        if value is not False:
            self.values[key] = value or 0

    def _flags(self, talk: Talk, text: str) -> None:
        words = name_list(text)
        if any(not word or not "absolute".startswith(word.lower().lstrip("+-")) for word in words):
            talk.complain(f" Unknown Server Resource flag used in:\n  '{text}'\n"
                          " Valid Server Resource flags are\n 'Absolute'\n")
            return
        self.values["flags"] = ("Absolute",) if words and not words[0].startswith("-") else ()

    def chosen(self, talk: Talk) -> list[tuple[int, ResourceRecord]]:
        """(id, record) in the order in which Slurm lists them: by name within the order of the servers' names."""
        found = [(place + 1, record) for place, record in enumerate(talk.session.views.resources.values())
                 if (not self.clusters or record.allowed is not None)
                 and all(str(place + 1 if key == "id" else getattr(record, key)) in texts
                         for key, texts in self.where.items())]
        return sorted(found)


def _read(talk: Talk, argv: Sequence[str]) -> _Asked:
    """``where`` conditions and what comes after ``set``."""
    asked = _Asked()
    for setting, word in where_and_set(argv):
        if setting:
            asked.set(talk, word)
        elif refuse_operator(talk, word, False):
            asked.condition(talk, word)
    return asked


async def add_resource(talk: Talk, argv: Sequence[str]) -> None:
    asked = _Asked()
    for _, word in where_and_set(argv):
        asked.set(talk, word)
    if talk.exit_code:
        return
    if not asked.names:
        talk.complain(" Need name of resource to add.\n")
        return
    server = asked.values.setdefault("server", "slurmdb")
    known = talk.session.views.resources
    said, operations = "", []
    for name in asked.names:
        before = known.get(f"{name}@{server}")
        if before is None and "count" not in asked.values:
            talk.complain(f" Need to designate a resource count to initially add '{name}'.\n")
            return
        if before is not None and (before.allowed is not None or not asked.clusters):
            continue
        said += f"  {name}@{server}\n" if before is None or asked.clusters else ""
        part = asked.values.get("allowed", 0) if asked.clusters else None
        said += "".join(f"   Cluster - {cluster}\t{part}\n" for cluster in asked.clusters)
        values = {"description": name, **asked.values, "allowed": part}
        operations.append({"op": "add", "name": name, **values} if before is None else {
            "op": "modify", "key": before.key, "allowed": part})
    if not operations:
        talk.say(" Nothing new added.\n")
        return
    shown = [("Name", asked.names[-1]), ("Server", server),
             ("Description", asked.values.get("description", asked.names[-1])),
             ("ServerType", asked.values.get("server_type", "")), ("Count", asked.values.get("count", "")),
             ("LastConsumed", asked.values.get("last_consumed", "")),
             ("Flags", ",".join(asked.values.get("flags", ()))), ("Type", asked.kind)]
    talk.say(f" Adding Resource(s)\n{said} Settings\n"
             + "".join(f"  {key:<14} = {value}\n" for key, value in shown if value != ""))
    problem = await _commit(talk, operations)
    if problem:
        talk.complain(f" Problem adding system resource: {problem}\n")


async def _commit(talk: Talk, operations: Sequence[Mapping[str, Any]]) -> str:
    """The error's text; "" for none."""
    if not talk.is_super:
        return errors.strerror(errors.ESLURM_ACCESS_DENIED)
    if not await talk.ask(COMMIT):
        talk.say(" Changes Discarded\n")
        return ""
    try:
        await talk.session.acts.change_resources(talk.session.identity, operations)
    except SlurmError as error:
        return error.text
    return ""


async def modify_resource(talk: Talk, argv: Sequence[str]) -> None:
    asked = _read(talk, argv)
    if talk.exit_code:
        return
    if not asked.values:
        talk.complain(" You didn't give me anything to set\n")
        return
    if not asked.given and not await talk.ask("You didn't set any conditions with 'WHERE'.\n"
                                              "Are you sure you want to continue?"):
        talk.say("Aborted\n")
        return
    if not talk.is_super:
        deny(talk, DENIED)
        return
    own = set(asked.values) - {"allowed"}
    lines, operations = [], []
    for _, record in asked.chosen(talk):
        values = {key: value for key, value in asked.values.items() if key != "allowed" or record.allowed is not None}
        if not values:
            continue
        lines += [f"  {record.key}\n"] if own else []
        lines += [f"  Cluster - {talk.cluster}\t- {record.key}\n"] if record.allowed is not None else []
        operations.append({"op": "modify", "key": record.key, **values})
    await _carry_out(talk, operations, " Modified server resource ...\n" + "".join(lines), "  Nothing modified\n")


async def delete_resource(talk: Talk, argv: Sequence[str]) -> None:
    asked = _read(talk, argv)
    if talk.exit_code:
        return
    if not asked.given:
        talk.complain(" No conditions given to remove, not executing.\n")
        return
    if not talk.is_super:
        deny(talk, DENIED)
        return
    lines, operations = [], []
    for _, record in asked.chosen(talk):
        if asked.clusters:
            lines.append(f"  Cluster - {talk.cluster}\t- {record.key}\n")
            operations.append({"op": "modify", "key": record.key, "allowed": None})
        else:
            lines.append(f"  {record.key}\n")
            lines += [f"  Cluster - {talk.cluster}\t- {record.key}\n"] if record.allowed is not None else []
            operations.append({"op": "delete", "key": record.key})
    await _carry_out(talk, operations, " Deleting resource(s)...\n" + "".join(lines), "  Nothing deleted\n")


async def _carry_out(talk: Talk, operations: Sequence[Mapping[str, Any]], said: str, nothing: str) -> None:
    if not operations:
        talk.say(nothing)
        talk.exit_code = 1
        return
    talk.say(said)
    problem = await _commit(talk, operations)
    if problem:
        talk.complain(f" Error with request: {problem}\n")


async def list_resource(talk: Talk, argv: Sequence[str]) -> None:
    asked = _Asked()
    for text in argv:
        word = split_word(text)
        if refuse_operator(talk, word, False):
            asked.condition(talk, word)
    if talk.exit_code:
        return
    with_clusters = asked.with_clusters or bool(asked.clusters)
    rows: list[Row] = []
    for number_of, record in asked.chosen(talk):
        if with_clusters and record.allowed is None:
            continue
        rows.append({"name": record.name, "server": record.server, "type": "License", "count": str(record.count),
                     "last_consumed": str(record.last_consumed), "allocated": str(record.allowed or 0),
                     "servertype": record.server_type, "cluster": talk.cluster, "allowed": str(record.allowed or 0),
                     "flags": ",".join(record.flags), "desc": record.description, "id": str(number_of)})
    show(talk, asked.formats or [f"{_COLUMNS},Cluster,Allowed,Flags" if with_clusters else f"{_COLUMNS},Flags"], rows)
