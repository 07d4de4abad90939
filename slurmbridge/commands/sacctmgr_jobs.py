"""``sacctmgr modify job`` and ``show runawayjobs``: what the ledger says of runs, put right (sacctmgr(1))."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slurmbridge.commands.common import JobName, Stop, parse_job_name, time_texts, uid_of
from slurmbridge.commands.sacctmgr_fields import matches
from slurmbridge.commands.sacctmgr_lists import show
from slurmbridge.commands.sacctmgr_talk import COMMIT, Talk
from slurmbridge.commands.sacctmgr_words import Word, name_list, number, refuse_operator, split_word, strip_quotes, tres
from slurmbridge.slurm import durations, errors, states
from slurmbridge.slurm.errors import SlurmError, strerror
from slurmbridge.slurm.zones import Zone

_NO_CONDITIONS = "You didn't set any conditions with 'WHERE'.\nAre you sure you want to continue?"
_FIX = ("\nWould you like to fix these runaway jobs?\n"
        "(This sets the end time for each job to the latest of the job's start, eligible, and submit times, and sets "
        "the state to completed.\n"
        "Once corrected, this triggers the SlurmDBD to recalculate the usage from before the earliest submit time of "
        "all the runaway jobs. Warning: This could take a long time and sreport may not return data until the "
        "recalculation is completed.)\n\n")
_TEXTS = (("Comment", 7, "comment"), ("DerivedExitString", 12, "comment"), ("DerivedES", 9, "comment"),
          ("Extra", 5, "extra"), ("AdminComment", 12, "admin_comment"), ("SystemComment", 13, "system_comment"))
Row = Mapping[str, Any]


async def modify_job(talk: Talk, argv: Sequence[str]) -> None:
    where: dict[str, Any] = {}
    names: list[JobName] = []
    change: dict[str, Any] = {}
    setting = False
    for text in argv:
        word = split_word(text)
        if word.value is None and (word.named("where", 5) or word.named("set", 3)):
            setting = word.named("set", 3)
        elif setting:
            _set(talk, word, change)
        elif refuse_operator(talk, word, False):
            _condition(talk, word, where, names)
    if talk.exit_code:
        return
    if not change:
        talk.complain(" You didn't give me anything to set\n")
        return
    if not where and not names and not await talk.ask(_NO_CONDITIONS):
        talk.say("Aborted\n")
        return
    rows = await _rows(talk, where, names)
    talk.say(" Modified jobs...\n")
    refusal = _refusal(talk, rows, change)
    if refusal is not None:
        talk.complain(f" Error with request: {strerror(refusal)}\n")
        return
    text_of, _ = time_texts("sacctmgr", talk.env, talk.session.now())
    talk.say("".join(f"  {row['job_id']} submitted at {text_of(row['submit_s'])}\n" for row in rows))
    await _commit(talk, COMMIT, [(row["db_index"], change) for row in rows], " Changes Discarded\n")


def _condition(talk: Talk, word: Word, where: dict[str, Any], names: list[JobName]) -> None:
    if word.value is None or word.named("JobID", 1):
        parts = [part for part in word.operand.split(",") if part]
        bad = next((part for part in parts if not part[0].isdigit()), None)
        if bad is not None:
            raise Stop.fatal("sacctmgr", f"Bad job/step specified: {bad}")
        found = [parse_job_name(part) for part in parts]
        if not found or None in found:
            talk.complain(f"Invalid job id(s) {word.operand} specified\n")
        names += [name for name in found if name is not None]
    elif word.named("Accounts", 1) or word.named("Accts", 1):
        where["accounts"] = name_list(word.operand)
    elif word.named("Cluster", 1):
        if talk.cluster not in name_list(word.operand):
            where["job_ids"] = []
    elif word.named("EndTime", 1) or word.named("StartTime", 1):
        try:
            where["end_s" if word.named("EndTime", 1) else "start_s"] = durations.parse_time(
                word.operand, talk.session.now(), Zone.of(talk.env), past=True)
        except durations.TimeSpecError as error:
            talk.complain(f"{error}\n")
    elif word.named("WCkeys", 1):
        where["wckeys"] = name_list(word.operand)
    elif word.named("Users", 1):
        uids = [uid_of(name) for name in name_list(word.operand, lower=False)]
        if None in uids:
            talk.complain(f"sacctmgr: error: Invalid user id: {word.operand}\n")
        where["uids"] = uids
    else:
        talk.complain(f" Unknown condition: {word.text}\n Use keyword 'set' to modify value\n")


def _set(talk: Talk, word: Word, change: dict[str, Any]) -> None:
    key = next((key for name, letters, key in _TEXTS if matches(word.name, name, letters)), None)
    if word.value is None:
        talk.complain(f" Bad format on {word.text}: End your option with an '=' sign\n")
    elif word.named("DerivedExitCode", 12) or word.named("DerivedEC", 9):
        value = number(talk, word.operand, "DerivedExitCode")
        if value is not False and value is not None:
            change["derived"] = value
    elif key:
        change[key] = strip_quotes(word.operand, lower=False)
    elif word.named("TRES", 1):
        counts = tres(talk, word.operand)
        if counts is None:
            talk.exit_code = 1
        else:
            change["tres_alloc"] = {name: count for name, count in counts.items() if count is not None}
    elif word.named("NewWCKey", 1):
        change["wckey"] = strip_quotes(word.operand)
    else:
        talk.say(f" Unknown option: {word.text}\n Use keyword 'where' to modify condition\n")
        talk.exit_code = 1


async def _rows(talk: Talk, where: dict[str, Any], names: Sequence[JobName]) -> list[Row]:
    """The last run of each job that was meant."""
    if names:
        where = {**where, "job_ids": [name.job_id for name in names]}
    latest: dict[int, Row] = {}
    for row in await talk.session.views.ledger_query("jobs", **where):
        if names and not any(_is_meant(row, name) for name in names):
            continue
        if row["job_id"] not in latest or row["submit_s"] >= latest[row["job_id"]]["submit_s"]:
            latest[row["job_id"]] = row
    return [latest[job_id] for job_id in sorted(latest)]


def _is_meant(row: Row, name: JobName) -> bool:
    if name.tasks is not None:
        return row["array_job_id"] == name.job_id and row["array_task_id"] in name.tasks
    if name.het_offset is not None:
        return bool(row["het_job_id"] == name.job_id and row["het_offset"] == name.het_offset)
    return name.job_id in (row["job_id"], row["array_job_id"], row["het_job_id"])


def _refusal(talk: Talk, rows: Sequence[Row], change: Mapping[str, Any]) -> int | None:
    """Users change comments and wckeys of their own jobs."""
    if not rows:
        return errors.SLURM_NO_CHANGE_IN_DATA
    user = talk.data.users.get(talk.session.identity.user_name)
    if talk.session.identity.is_admin or (user is not None and user.admin_level != "None"):
        return None
    own = all(row["uid"] == talk.session.identity.uid for row in rows)
    return None if own and not {"admin_comment", "system_comment"} & set(change) else errors.ESLURM_ACCESS_DENIED


async def _commit(talk: Talk, question: str, changes: Sequence[tuple[int, Mapping[str, Any]]], discarded: str) -> None:
    if not await talk.ask(question):
        talk.say(discarded)
        return
    try:
        await talk.session.acts.change_runs(talk.session.identity, changes)
    except SlurmError as error:
        talk.complain(f" Error committing changes: {error}\n")


async def list_runaway(talk: Talk, argv: Sequence[str]) -> None:
    """Jobs that the ledger has as not ended while the controller knows nothing of them; it can end them."""
    formats: list[str] = []
    clusters: list[str] = []
    state = states.COMPLETED
    setting: bool | None = None               # None: conditions, but "set" and "where" still mean what they say
    for text in argv:
        word = split_word(text)
        if setting is not False and word.value is None and word.named("where", 5):
            setting = False
        elif setting is not False and word.value is None and word.named("set", 3):
            setting = True
        elif not setting:                     # from the first condition on all words are conditions
            setting = False
            if word.value is None or word.named("Cluster", 1):
                clusters += name_list(word.operand)
            elif word.named("Format", 1):
                formats.append(word.operand)
            else:
                talk.complain(f" Unknown condition: {text}\n")
        elif word.value is None:
            talk.log_error(f"Bad format on {text}: End your option with an '=' sign")
            talk.exit_code = 1
        elif word.named("EndState", 1):
            state = word.operand.upper()
            if state not in (states.COMPLETED, states.FAILED):
                talk.complain(f"sacctmgr: fatal: Unknown or unsupported state specified ({word.operand}). "
                              "Only Completed or Failed are accepted.\n")
                return
        else:
            talk.log_error(f"Unknown option: {text}")
            talk.exit_code = 1
    if len(set(clusters)) > 1:
        talk.log_error("You can only fix runaway jobs on one cluster at a time.")
        talk.exit_code = 1
        return
    if not talk.is_operator:
        talk.log_error("You must have an AdminLevel>=Operator to fix runaway jobs")
        talk.exit_code = 1
        return
    if clusters and clusters[0] != talk.cluster:
        talk.say(f"Runaway Jobs: No runaway jobs found on cluster {clusters[0]}\n")
        return
    live = {job.db_index for job in talk.session.views.jobs.values()}
    found = await talk.session.views.ledger_query("jobs", start_s=1 << 60)
    lost = sorted((row for row in found if row["db_index"] not in live), key=lambda row: row["submit_s"])
    if not lost:
        talk.say(f"Runaway Jobs: No runaway jobs found on cluster {talk.cluster}\n")
        return
    text_of, _ = time_texts("sacctmgr", talk.env, talk.session.now())
    talk.say("NOTE: Runaway jobs are jobs that don't exist in the controller but have a start time and no end time "
             "in the database\n")
    show(talk, formats or ["ID%-12,Name,Part,Cluster,State%10,TimeSubmit,TimeStart,TimeEnd"], [
        {"id": str(row["job_id"]), "name": row["name"], "part": row["partition"], "cluster": talk.cluster,
         "state": row["state"], "timesubmit": text_of(row["submit_s"]), "timeend": "Unknown",
         "timeeligible": text_of(row["eligible_s"] or 0), "timestart": text_of(row["start_s"] or 0)} for row in lost])
    await _commit(talk, _FIX, [
        (row["db_index"], {"state": state, "end_s": max(row["start_s"] or 0, row["eligible_s"] or 0, row["submit_s"])})
        for row in lost], "Changes Discarded\n")
