"""``sacctmgr add|modify|delete federation``: none is made of the one cluster; mistakes are told as Slurm does."""
from __future__ import annotations

from collections.abc import Sequence

from slurmbridge.commands.sacctmgr_talk import Talk
from slurmbridge.commands.sacctmgr_words import Word, name_list, where_and_set

REFUSED = " Federations are not offered by slurmbridge.\n"


class _Asked:
    """What the words name and set."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.clusters: list[str] = []

    def set(self, talk: Talk, word: Word, is_name: bool) -> None:
        """``is_name``: a bare word is the federation's name."""
        if (word.value is None and is_name) or (word.value is not None and word.named("Names", 1)):
            self.names += name_list(word.operand)
        elif word.named("Clusters", 1):
            self.clusters += [name.lstrip("+-") for name in name_list(word.operand)]
        elif word.named("Flags", 2):
            talk.complain(f" Unknown federation flag used in:\n '{word.operand}'\n Valid federation flags are\n"
                          "  '(null)'\n")
        else:
            talk.complain(f" Unknown option: {word.text}\n Use keyword 'where' to modify condition\n")

    def condition(self, talk: Talk, word: Word) -> None:
        if word.value is None or word.named("Names", 1) or word.named("Federations", 3):
            self.names += name_list(word.operand)
        elif not word.named("Clusters", 3) and not word.named("Format", 2):
            talk.complain(f" Unknown condition: {word.text}\n Use keyword 'set' to modify value\n")

    def refuse(self, talk: Talk) -> None:
        """A cluster that is not there, or what cannot be had."""
        for name in self.clusters:
            if name != talk.cluster:
                talk.complain(f" The cluster {name} doesn't exist. Please add first.\n")
                return
        talk.complain(REFUSED)


async def add_federation(talk: Talk, argv: Sequence[str]) -> None:
    asked = _Asked()
    for _, word in where_and_set(argv):
        asked.set(talk, word, True)
    if talk.exit_code:
        return
    if not asked.names:
        talk.complain(" Need name of federation to add.\n")
        return
    asked.refuse(talk)


async def modify_federation(talk: Talk, argv: Sequence[str]) -> None:
    asked, sets = _Asked(), False
    for setting, word in where_and_set(argv):
        sets = sets or setting
        if setting:
            asked.set(talk, word, False)
        else:
            asked.condition(talk, word)
    if talk.exit_code:
        return
    if not sets:
        talk.complain(" You didn't give me anything to set\n")
        return
    asked.refuse(talk)


async def delete_federation(talk: Talk, argv: Sequence[str]) -> None:
    asked = _Asked()
    for _, word in where_and_set(argv):
        asked.condition(talk, word)
    if talk.exit_code:
        return
    if not asked.names:
        talk.complain(" No conditions given to remove, not executing.\n")
        return
    talk.say(" Nothing deleted\n")
    talk.exit_code = 1
