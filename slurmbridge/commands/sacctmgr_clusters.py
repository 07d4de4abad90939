"""``sacctmgr add|modify|delete cluster``: slurmbridge has one cluster, whose defaults are the root association's."""
from __future__ import annotations

from collections.abc import Sequence

from slurmbridge.commands.sacctmgr_limits import as_left, set_association
from slurmbridge.commands.sacctmgr_modify import deny
from slurmbridge.commands.sacctmgr_rows import association_settings
from slurmbridge.commands.sacctmgr_talk import Talk
from slurmbridge.commands.sacctmgr_words import Settings, Word, name_list, refuse_operator, split_word, where_and_set
from slurmbridge.slurm import errors

_NOT_OF_A_ROOT = (("GrpTRESRunMins", (("GrpCPURunMins", 7), ("GrpTRESRunMins", 8))),
                  ("GrpTRESMins", (("GrpCPUMins", 7), ("GrpTRESMins", 8))), ("GrpWall", (("GrpWall", 4),)))
"""Limits and by which words they are set."""


async def add_cluster(talk: Talk, argv: Sequence[str]) -> None:
    names: list[str] = []
    settings: Settings = {}
    for text in argv:
        _take(talk, split_word(text), names, settings)
    if talk.exit_code:
        return
    if not names:
        talk.complain(" Need name of cluster to add.\n")
        return
    if not talk.is_super:
        talk.say(" Adding Cluster(s)\n" + "".join(f"  Name           = {name}\n" for name in names))
        talk.complain(f" Problem adding clusters: {errors.strerror(errors.ESLURM_ACCESS_DENIED)}\n")
        return
    others = []
    for name in names:
        if name == talk.cluster:
            talk.say(f" This cluster {name} already exists.  Not adding.\n")
        else:
            others.append(name)
    talk.exit_code = 1
    if others:
        talk.complain(f" Problem adding clusters: slurmbridge has the one cluster '{talk.cluster}'\n")


def _take(talk: Talk, word: Word, names: list[str], settings: Settings) -> None:
    allowed = False
    if word.value is None and (word.named("Where", 5) or word.named("Set", 3)):
        return
    if word.value is None or word.named("Names", 1) or word.named("Clusters", 3):
        names.extend(name_list(word.operand))
    elif word.named("Classification", 3) or word.named("Features", 2) or word.named("Federation", 3) or word.named(
            "FedState", 4):
        talk.complain(f" {word.name} is not offered by slurmbridge\n")
    elif limit := next((limit for limit, names in _NOT_OF_A_ROOT if any(word.named(*name) for name in names)), ""):
        talk.complain(f"{limit} is not a valid option for the root association of a cluster.\n")
    elif set_association(talk, word, settings):
        allowed = word.named("QosLevel", 1)
    else:
        allowed = True
        talk.complain(f" Unknown option: {as_left(word)}\n Use keyword 'where' to modify condition\n")
    refuse_operator(talk, word, allowed)


def _condition(talk: Talk, word: Word, names: list[str]) -> None:
    """Of the conditions only names are looked at: there is the one cluster."""
    if word.value is None or word.named("Names", 1) or word.named("Clusters", 3):
        names.extend(name_list(word.operand))
    elif not (word.named("Classification", 3) or word.named("Federations", 3) or word.named("Flags", 2)
              or word.named("RPCVersions", 1)):
        talk.complain(f" Unknown condition: {word.text}\n Use keyword 'set' to modify value\n")


async def modify_cluster(talk: Talk, argv: Sequence[str]) -> None:
    names: list[str] = []
    settings: Settings = {}
    for setting, word in where_and_set(argv):
        if setting:
            _take(talk, word, [], settings)
        elif refuse_operator(talk, word, False):
            _condition(talk, word, names)
    if talk.exit_code:
        return
    if not settings:
        talk.complain(" You didn't give me anything to set\n")
        return
    if not names and not await talk.ask("You didn't set any conditions with 'WHERE'.\n"
                                        "Are you sure you want to continue?"):
        talk.say("Aborted\n")
        return
    for name in filter(None, names):
        if name != talk.cluster:
            talk.complain(f" This cluster '{name}' doesn't exist.\n"
                          "        Contact your admin to add it to accounting.\n")
            return
    if not talk.is_operator:
        deny(talk)
        return
    if names == [""]:
        talk.say("  Nothing modified\n")
        talk.exit_code = 1
        return
    talk.say(" Setting\n  Default Limits:\n" + association_settings(settings))
    root = talk.tree().root
    if root is None:
        talk.say("  Nothing modified\n")
        talk.exit_code = 1
        return
    talk.say(f" Modified cluster defaults for associations...\n  C = {talk.cluster:<10} A = {root.account}\n")
    settings.pop("parent", None)
    await talk.commit([{"op": "modify_association", "id": root.id, "settings": settings}])


async def delete_cluster(talk: Talk, argv: Sequence[str]) -> None:
    names: list[str] = []
    for _, word in where_and_set(argv):
        _condition(talk, word, names)
    if talk.exit_code:
        return
    if not names:
        talk.complain(" No conditions given to remove, not executing.\n")
    elif not talk.is_super:
        deny(talk)
    elif talk.cluster in names:
        talk.complain(f" slurmbridge has the one cluster '{talk.cluster}'; it cannot be removed\n")
    else:
        talk.say(" Nothing deleted\n")
        talk.exit_code = 1
