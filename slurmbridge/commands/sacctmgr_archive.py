"""``sacctmgr archive dump`` and ``load``: old records out of the ledger into files, and back (sacctmgr(1))."""
from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from slurmbridge.commands.sacctmgr_modify import DENIED
from slurmbridge.commands.sacctmgr_talk import COMMIT, Talk
from slurmbridge.commands.sacctmgr_words import name_list, refuse_operator, split_word, strip_quotes
from slurmbridge.slurm import errors
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.slurm.memory import leading_int
from slurmbridge.slurm.zones import Zone

_WARNING = ("This may result in loss of accounting database records (if Purge* options enabled).\n"
            "Are you sure you want to continue?")
_FLAGS = (("events", "event"), ("jobs", "job"), ("reservations", "resv"), ("steps", "step"), ("suspend", "suspend"),
          ("txn", "txn"), ("usage", "usage"))
_AGES = (("PurgeEventAfter", "event"), ("PurgeJobAfter", "job"), ("PurgeResvAfter", "resv"),
         ("PurgeStepAfter", "step"), ("PurgeSuspendAfter", "suspend"), ("PurgeTXNAfter", "txn"),
         ("PurgeUsageAfter", "usage"))


async def dump(talk: Talk, argv: Sequence[str]) -> None:
    if not talk.is_super:
        _denied(talk, "dumping")
        return
    keeps: set[str] = set()
    clusters: list[str] = []
    ages: dict[str, int] = {}
    directory = "/tmp"
    now, zone = int(talk.session.now()), Zone.of(talk.env)
    for text in argv:
        word = split_word(text)
        if not refuse_operator(talk, word, False) or (word.value is None and word.named("where", 5)):
            continue
        if word.value is None:
            kind = next((kind for name, kind in _FLAGS if word.named(name, 1)), None)
            if kind:
                keeps.add(kind)
            else:
                clusters += name_list(text)
            continue
        kind = next((kind for name, kind in _AGES if word.named(name, 10)), None) or next(
            (kind for name, kind in _AGES if word.named(name.replace("After", "Months"), 6)), None)
        if kind:
            cutoff = _cutoff(talk, word.operand, now, zone)
            if cutoff is not None:
                ages[kind] = cutoff
        elif word.named("Directory", 2):
            directory = strip_quotes(word.operand, lower=False)
        elif word.named("Clusters", 1):
            clusters += name_list(word.operand)
        else:
            talk.complain(f" Unknown condition: {text}\n")
    for kind in sorted(keeps - set(ages)):
        talk.complain(f" Problem dumping archive: no age is given for {kind} records (Purge{kind.title()}After=)\n")
    if "usage" in ages:
        talk.complain(" Problem dumping archive: rolled-up usage is kept for ever\n")
    if talk.exit_code:
        return
    if any(name != talk.cluster for name in clusters):
        _failed(talk, "dumping archive")
        return
    if not await talk.ask(_WARNING):
        talk.say(" Changes Discarded\n")
        return
    parts = [(kind, before_s, kind in keeps) for kind, before_s in ages.items()]
    try:
        await talk.session.acts.archive(talk.session.identity, parts, _full(talk, directory))
    except SlurmError as error:
        if error.code == errno.ENOENT:
            talk.complain(f" dump: Failed to stat {directory}: {os.strerror(errno.ENOENT)}\n"
                          " Note: For archive dump, the directory must be on the calling host.\n")
        else:
            talk.complain(f" Problem dumping archive: {error}\n")


def _denied(talk: Talk, doing: str, what: str = "") -> None:
    talk.log_error(DENIED)
    talk.complain(f" Problem {doing} archive{what}: {errors.strerror(errors.ESLURM_ACCESS_DENIED)}\n")


def _failed(talk: Talk, doing: str) -> None:
    talk.log_error("Error with request.")
    talk.complain(f" Problem {doing}: {errors.strerror(errors.SLURM_ERROR)}\n")


async def load(talk: Talk, argv: Sequence[str]) -> None:
    if not talk.is_super:
        _denied(talk, "loading", " file")
        return
    path = ""
    for text in argv:
        word = split_word(text)
        if not refuse_operator(talk, word, False):
            continue
        if word.value is None or word.named("File", 1):
            path = strip_quotes(word.operand, lower=False)
        else:
            talk.complain(f" Unknown option: {text}\n")
    if talk.exit_code:
        return
    if not path:
        _failed(talk, "loading archive file")
        return
    if not await talk.ask(COMMIT):
        talk.say(" Changes Discarded\n")
        return
    try:
        await talk.session.acts.load_archive(talk.session.identity, _full(talk, path))
    except SlurmError as error:
        if error.code == errno.ENOENT:
            talk.log_error("No archive file given to recover.")
            talk.complain(f" Problem loading archive file: {os.strerror(errno.ENOENT)}\n"
                          " Note: For archive load, the file must be accessible on the slurmdbd host.\n")
        else:
            talk.complain(f" Problem loading archive file: {error}\n")


def _full(talk: Talk, path: str) -> str:
    return path if path.startswith("/") else f"{talk.session.invocation.cwd}/{path}"


def _cutoff(talk: Talk, text: str, now: int, zone: Zone) -> int | None:
    """``12``, ``12months``, ``3days`` or ``48hours`` ago, at the beginning of that unit."""
    found = leading_int(text)
    if found is None or found[0] < 0:
        talk.log_error(f"Invalid purge string '{text}'")
        talk.exit_code = 1
        return None
    count, unit = found
    when = zone.local(now)
    if "months".startswith(unit.lower()):
        month = when.year * 12 + when.month - 1 - count
        return zone.epoch(month // 12, month % 12 + 1, 1, 0, 0, 0)
    if "hours".startswith(unit.lower()):
        return zone.epoch(when.year, when.month, when.day, when.hour, 0, 0) - count * 3600
    if "days".startswith(unit.lower()):
        return zone.epoch(when.year, when.month, when.day - count, 0, 0, 0)
    talk.log_error(f"Invalid purge unit '{unit}', valid options are hours, days, or months")
    talk.exit_code = 1
    return None
