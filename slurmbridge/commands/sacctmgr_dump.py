"""``sacctmgr dump``: the accounting data of a cluster as the text that ``sacctmgr load`` reads."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from slurmbridge.commands.sacctmgr_rows import names_text, sorted_flags, tres_text
from slurmbridge.commands.sacctmgr_talk import Talk
from slurmbridge.commands.sacctmgr_words import refuse_operator, split_word
from slurmbridge.views.associations import Tree, active_qos
from slurmbridge.views.records import AssociationRecord, QosRecord

HEADER = """\
# Written by slurmbridge in the format of Slurm's "sacctmgr dump"; "sacctmgr load file=..." reads it.
# QOS lines first, then one Cluster line, then each account below a "Parent - 'account'" line that comes after its own.
# Options follow the name, separated by colons, in any order; what is left out has its default.
# Account - 'cs':Description='Computer Science':Organization='x':Fairshare=399:MaxJobs=4:MaxTRESPerJob=node=5
# User - 'lipari':DefaultAccount='cs':Fairshare=1:MaxTRESPerJob=node=2:MaxWallDurationPerJob=60
"""

# field, name in the file, in the order of a line; TRES fields are dictionaries
_ASSOCIATION = (
    ("grp_tres_mins", "GrpTRESMins"), ("grp_tres_run_mins", "GrpTRESRunMins"), ("grp_tres", "GrpTRES"),
    ("grp_jobs", "GrpJobs"), ("grp_jobs_accrue", "GrpJobsAccrue"), ("grp_submit_jobs", "GrpSubmitJobs"),
    ("grp_wall_min", "GrpWall"), ("max_tres_mins_per_job", "MaxTRESMinsPerJob"),
    ("max_tres_run_mins", "MaxTRESRunMins"),
    ("max_tres_per_job", "MaxTRESPerJob"), ("max_tres_per_node", "MaxTRESPerNode"), ("max_jobs", "MaxJobs"),
    ("max_jobs_accrue", "MaxJobsAccrue"), ("max_submit_jobs", "MaxSubmitJobs"),
    ("max_wall_min", "MaxWallDurationPerJob"), ("min_prio_threshold", "MinPrioThresh"))
_QOS = (
    ("grp_jobs_accrue", "GrpJobsAccrue"), ("grp_jobs", "GrpJobs"), ("grp_submit_jobs", "GrpSubmitJobs"),
    ("grp_tres", "GrpTRES"), ("grp_tres_mins", "GrpTRESMins"), ("grp_tres_run_mins", "GrpTRESRunMins"),
    ("grp_wall_min", "GrpWall"), ("limit_factor", "LimitFactor"), ("max_jobs_per_account", "MaxJobsPA"),
    ("max_jobs", "MaxJobsPU"), ("max_jobs_accrue_per_account", "MaxJobsAccruePA"),
    ("max_jobs_accrue", "MaxJobsAccruePU"),
    ("max_submit_jobs_per_account", "MaxSubmitJobsPA"), ("max_submit_jobs", "MaxSubmitJobsPU"),
    ("max_tres_mins_per_job", "MaxTRESMinsPerJob"), ("max_tres_per_account", "MaxTRESPerAccount"),
    ("max_tres_per_job", "MaxTRESPerJob"), ("max_tres_per_node", "MaxTRESPerNode"),
    ("max_tres_per_user", "MaxTRESPerUser"), ("max_tres_run_mins_per_account", "MaxTRESRunMinsPerAccount"),
    ("max_tres_run_mins_per_user", "MaxTRESRunMinsPerUser"), ("max_wall_min", "MaxWallDurationPerJob"),
    ("min_prio_threshold", "MinPrioThresh"), ("min_tres_per_job", "MinTRESPerJob"))


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return tres_text(value)
    return f"{value:f}" if isinstance(value, float) else str(value)


def qos_line(qos: QosRecord) -> str:
    line = f"QOS - '{qos.name}':Description='{qos.description}'"
    if qos.flags:
        line += f":Flags='{','.join(sorted_flags(qos.flags))}'"
    if qos.grace_time_s:
        line += f":GraceTime={qos.grace_time_s}"
    for field, name in _QOS:
        value = qos.limit_factor if field == "limit_factor" else getattr(qos.limits, field)
        if value is not None and value != {}:
            line += f":{name}={_value(value)}"
    if qos.preempt:
        line += f":Preempt='{names_text(qos.preempt)}'"
    if qos.preempt_mode:
        line += f":PreemptMode='{qos.preempt_mode.lower()}'"
    if qos.preempt_exempt_time_s is not None:
        line += f":PreemptExemptTime={qos.preempt_exempt_time_s}"
    if qos.priority:
        line += f":Priority={qos.priority}"
    if qos.usage_factor != 1:
        line += f":UsageFactor={qos.usage_factor:f}"
    if qos.usage_threshold is not None:
        line += f":UsageThreshold={qos.usage_threshold:f}"
    return line


def limits_text(record: AssociationRecord) -> str:
    """The options of an association: what it sets itself."""
    text = f":DefaultQOS='{record.default_qos}'" if record.default_qos else ""
    text += f":Fairshare={record.shares}"
    for field, name in _ASSOCIATION:
        value = getattr(record.limits, field)
        if value is not None and value != {}:
            text += f":{name}={_value(value)}"
    if record.priority is not None:
        text += f":Priority={record.priority}"
    qos = record.qos or record.delta_qos
    return text + (f":QOS='{names_text(qos)}'" if qos else "")


def dump_lines(tree: Tree) -> Iterator[str]:
    """Cluster, parents, users and accounts; each account's line comes before its ``Parent`` line."""
    root = tree.root
    if root is None:
        return
    yield f"Cluster - '{tree.data.cluster}'{limits_text(root)}"
    for record in tree.in_order(root):
        children = [] if record.user else tree.children.get(record.id, [])
        if children:
            yield f"Parent - '{record.account}'"
        for child in children:
            yield _user_line(tree, child) if child.user else _account_line(tree, child)


def _user_line(tree: Tree, record: AssociationRecord) -> str:
    data = tree.data
    line = f"User - '{record.user}'" + (f":Partition='{record.partition}'" if record.partition else "")
    user = data.users.get(record.user)
    if user is not None:
        line += f":DefaultAccount='{user.default_account}'"
        if user.default_wckey:
            line += f":DefaultWCKey='{user.default_wckey}'"
        if user.admin_level != "None":
            line += f":AdminLevel='{user.admin_level}'"
        if user.coordinator_of:
            line += f":Coordinator='{','.join(sorted(user.coordinator_of))}'"
        wckeys = [name for name, owner in data.wckeys.values() if owner == record.user and name and name[0] != "*"]
        if wckeys:
            line += f":WCKeys='{','.join(wckeys)}'"
    return line + (f":Comment='{record.comment}'" if record.comment else "") + limits_text(record)


def _account_line(tree: Tree, record: AssociationRecord) -> str:
    line = f"Account - '{record.account}'"
    account = tree.data.accounts.get(record.account)
    if account is not None:
        line += f":Description='{account.description}':Organization='{account.organization}'"
    return line + limits_text(record)


async def dump(talk: Talk, argv: Sequence[str]) -> None:
    cluster = file_name = ""
    for text in argv:
        word = split_word(text)
        if not refuse_operator(talk, word, False):
            continue
        if word.value is None or word.named("Cluster", 1):
            if cluster:
                talk.complain(f" Can only do one cluster at a time.  Already doing {cluster}\n")
                continue
            cluster = word.operand
        elif word.named("File", 1):
            if file_name:
                talk.complain(f" File name already set to {file_name}\n")
                continue
            file_name = word.operand
        else:
            talk.complain(f" Unknown option: {word.text}\n")
    if not cluster:
        talk.complain(" We need a cluster to dump.\n")
        return
    if cluster.lower() != talk.cluster.lower():
        talk.complain(f" Cluster {cluster} doesn't exist.\n")
        return
    if not file_name:
        file_name = f"./{talk.cluster}.cfg"
        talk.say(f" No filename given, using {file_name}.\n")
    if not talk.is_super:
        talk.complain(" Your user does not have sufficient privileges to dump clusters.\n")
        return
    tree = talk.tree()
    qos_lines = [qos_line(qos) for qos in active_qos(talk.data)]
    lines = list(dump_lines(tree))
    path = file_name if file_name.startswith("/") else f"{talk.session.invocation.cwd}/{file_name}"
    try:
        await talk.session.write_file(path, (HEADER + "".join(f"{line}\n" for line in (*qos_lines, *lines))).encode(
            "utf-8", "surrogateescape"))
    except OSError as error:
        talk.complain(f"Can't open file {file_name}, {error.strerror}\n")
        return
    if not talk.quiet:
        talk.warn("sacctmgr: " + "".join(f"{line}\n" for line in (*qos_lines, lines[0])))
        talk.warn("".join(f"sacctmgr: {line}\n" for line in lines[1:]))
