"""``sacctmgr add|modify|delete qos`` (sacctmgr(1), SPECIFICATIONS FOR QOS)."""
from __future__ import annotations

from collections.abc import Sequence

from slurmbridge.commands.sacctmgr_limits import PREEMPT_MODES, set_qos
from slurmbridge.commands.sacctmgr_modify import deny, described
from slurmbridge.commands.sacctmgr_rows import qos_settings
from slurmbridge.commands.sacctmgr_talk import Talk
from slurmbridge.commands.sacctmgr_words import (
    Settings,
    Word,
    name_list,
    number,
    refuse_operator,
    split_word,
    where_and_set,
)
from slurmbridge.slurm import errors
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.views.associations import active_qos
from slurmbridge.views.records import QosRecord


class QosWhere:
    """Conditions on QOS."""

    def __init__(self) -> None:
        self.names: list[str] | None = None
        self.ids: list[int] | None = None
        self.descriptions: list[str] | None = None
        self.preempt_modes: list[str] | None = None
        self.with_deleted = False
        self.formats: list[str] = []
        self.given = False

    def take(self, talk: Talk, word: Word) -> None:
        bare = word.value is None
        if bare and word.named("WithDeleted", 5):
            self.with_deleted = True
            return
        if word.named("Format", 1) and not bare:
            self.formats.append(word.operand)
            return
        if bare or word.named("Names", 1) or word.named("QOSLevel", 1):
            self.names = (self.names or []) + name_list(word.operand)
        elif word.named("Clusters", 1):
            pass                              # there is one
        elif word.named("Descriptions", 1):
            self.descriptions = (self.descriptions or []) + name_list(word.operand)
        elif word.named("Ids", 1):
            self._ids(talk, word)
        elif word.named("PreemptMode", 8):
            modes = [PREEMPT_MODES.get(name.upper()) for name in name_list(word.operand)]
            if None in modes:
                bad = next(name for name in name_list(word.operand) if name.upper() not in PREEMPT_MODES)
                talk.log_error(f"Unknown preempt_mode given '{bad}'")
                talk.complain(f" Bad Preempt Mode given: {word.text}\n")
                return
            self.preempt_modes = (self.preempt_modes or []) + [mode or "" for mode in modes]
        else:
            talk.complain(f" Unknown condition: {word.text}\n Use keyword 'set' to modify SLURM_PRINT_VALUE\n")
            return
        self.given = True

    def _ids(self, talk: Talk, word: Word) -> None:
        self.ids = self.ids or []
        for part in name_list(word.operand):
            value = number(talk, part, "QOS ID")
            if value is False or value is None:
                talk.exit_code = 1
            else:
                self.ids.append(value)

    def narrows(self) -> bool:
        """Whether any condition has a value."""
        return any((self.names, self.ids, self.descriptions, self.preempt_modes))

    def matching(self, talk: Talk, by_name: bool = False) -> list[QosRecord]:
        """By id (``by_name``: by name, where names are asked for). Without conditions all."""
        records = list(talk.data.qos.values()) if self.with_deleted else active_qos(talk.data)
        records = sorted(records, key=lambda qos: (qos.name if by_name and self.names else "", qos.id))
        return [qos for qos in records
                if (not self.names or qos.name in self.names) and (not self.ids or qos.id in self.ids)
                and (not self.descriptions or qos.description in self.descriptions)
                and (not self.preempt_modes or qos.preempt_mode in self.preempt_modes)]


def qos_conditions(talk: Talk, argv: Sequence[str]) -> QosWhere:
    where = QosWhere()
    for text in argv:
        word = split_word(text)
        structure = word.named("Set", 3) or (word.value is None and word.named("where", 5))
        if refuse_operator(talk, word, False) and not structure:
            where.take(talk, word)
    return where


def _take_setting(talk: Talk, word: Word, settings: Settings, names: list[str] | None) -> None:
    allowed = False
    if word.value is None and word.named("set", 3):
        return
    if word.value is None or word.named("Name", 1):
        if names is not None:
            names.extend(name for name in name_list(word.operand) if name not in names)
    elif set_qos(talk, word, settings):
        allowed = word.named("Flags", 2) or (word.named("Preempt", 7) and not word.named("PreemptMode", 8))
    else:
        allowed = True
    refuse_operator(talk, word, allowed)


async def add_qos(talk: Talk, argv: Sequence[str]) -> None:
    names: list[str] = []
    settings: Settings = {}
    for _, word in where_and_set(argv):
        _take_setting(talk, word, settings, names)
    if any(flag.startswith("-") for flag in settings.get("flags", ())):
        settings.pop("flags")
    if talk.exit_code:
        return
    if not names:
        talk.complain(" Need name of qos to add.\n")
        return
    known = {qos.name for qos in active_qos(talk.data)}
    new = [name for name in names if name not in known]
    if not new:
        talk.say(" Nothing new added.\n")
        talk.exit_code = 1
        return
    talk.say(" Adding QOS(s)\n" + "".join(f"  {name}\n" for name in new) + " Settings\n"
             f"  Description    = {settings.get('description', new[-1])}\n" + qos_settings(settings))
    if not talk.is_super:
        talk.complain(f" Problem adding QOS: {errors.strerror(errors.ESLURM_ACCESS_DENIED)}\n")
        return
    if "" in new:
        talk.complain(f" Problem adding QOS: {errors.strerror(errors.SLURM_ERROR)}\n")
        return
    settings.pop("raw_usage", None)
    operations = [{"op": "add_qos", "name": name, "settings": {"description": name, **settings}} for name in new]
    try:
        talk.draft().apply_all(operations)
    except SlurmError as error:
        talk.log_error(error.text)
        talk.complain(f" Problem adding QOS: {error.text}\n")
        return
    await talk.commit(operations)


async def modify_qos(talk: Talk, argv: Sequence[str]) -> None:
    where, settings = QosWhere(), Settings()
    for setting, word in where_and_set(argv):
        if setting:
            _take_setting(talk, word, settings, None)
        elif refuse_operator(talk, word, False):
            where.take(talk, word)
    if talk.exit_code:
        return
    if not settings:
        talk.complain(" You didn't give me anything to set\n")
        return
    if not where.given and not await talk.ask("You didn't set any conditions with 'WHERE'.\n"
                                              "Are you sure you want to continue?"):
        talk.say("Aborted\n")
        return
    if "raw_usage" in settings:
        await _reset_usage(talk, where, settings["raw_usage"])
        return
    if not talk.is_super:
        deny(talk)
        return
    names = [qos.name for qos in where.matching(talk, by_name=True)]
    operations = [{"op": "modify_qos", "name": name, "settings": settings} for name in names]
    try:
        talk.draft().apply_all(operations)
    except SlurmError as error:
        talk.log_error(error.text)
        talk.complain(f" Error with request: {error.text}\n")
        return
    if not names:
        talk.say("  Nothing modified\n")
        talk.exit_code = 1
        return
    talk.say(" Modified qos...\n" + "".join(f"  {name}\n" for name in names))
    await talk.commit(operations)


async def _reset_usage(talk: Talk, where: QosWhere, usage: float) -> None:
    talk.say(f"No cluster specified, resetting on local cluster {talk.cluster}\n")
    if not talk.is_super:
        deny(talk)
        return
    known = {qos.name for qos in where.matching(talk)}
    for name in where.names or ():
        if name not in known:
            talk.log_error(f"Failed to find QOS {name}")
            talk.exit_code = 1
            return
    if usage:
        talk.complain(" Bad RawUsage value: only 0 is offered by slurmbridge\n")
        return
    await talk.commit([{"op": "reset_usage", "qos": sorted(known)}], "Would you like to update usage?")


async def delete_qos(talk: Talk, argv: Sequence[str]) -> None:
    where = qos_conditions(talk, argv)
    if not where.given:
        talk.complain(" No conditions given to remove, not executing.\n")
        return
    if talk.exit_code:
        return
    if not talk.is_super:
        deny(talk)
        return
    names = [qos.name for qos in where.matching(talk, by_name=True)] if where.narrows() else []
    if not names:
        talk.say("  Nothing deleted\n")
        talk.exit_code = 1
        return
    tree = talk.tree()
    lines = "".join(f"  DefQOS = {record.default_qos:<10} {described(talk.cluster, record)}\n"
                    for record in tree.in_order() if record.default_qos in names)
    if lines:
        talk.complain(f" Associations listed below have these as their Default QOS.\n{lines}"
                      " Please either remove the qos' listed above from list and resubmit,\n"
                      " or change the default qos to remove the qos.\n Changes Discarded\n")
        return
    busy = [job for job in talk.session.views.jobs.values()
            if job.qos in names and job.state in ("PENDING", "RUNNING", "SUSPENDED")]
    if busy:
        talk.complain(f" Error with request: {errors.strerror(errors.ESLURM_JOBS_RUNNING_ON_ASSOC)}\n" + "".join(
            f" JobID = {job.job_id:<10} QOS = {job.qos}\n" for job in busy))
        return
    talk.say(" Deleting QOS(s)...\n" + "".join(f"  {name}\n" for name in names))
    await talk.commit([{"op": "delete_qos", "name": name} for name in names])
