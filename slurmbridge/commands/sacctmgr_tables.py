"""The tables that ``sacctmgr load`` prints of what a file adds."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from slurmbridge.commands.sacctmgr_fields import columns
from slurmbridge.commands.sacctmgr_file import QosLine
from slurmbridge.commands.sacctmgr_rows import Row, association_row, qos_row
from slurmbridge.commands.sacctmgr_talk import Talk
from slurmbridge.slurm.columns import ColumnPrinter
from slurmbridge.views.associations import Tree
from slurmbridge.views.directory import Draft
from slurmbridge.views.records import AssociationData, AssociationRecord, QosRecord

QOS_FORMAT = ("Name%20,Prio,GraceT,Preempt,PreemptE,PreemptM,Flags%40,UsageThres,UsageFactor,GrpTRES,GrpTRESMins,"
              "GrpTRESRunMins,GrpJ,GrpS,GrpW,MaxTRES,MaxTRESPerN,MaxTRESMins,MaxW,MaxTRESPerUser,MaxJobsPerUser,"
              "MaxSubmitJobsPerUser,MaxTRESPerAcct,MaxTRESRunMinsPerAcct%22,MaxTRESRunMinsPerUser%22,MaxJobsPerAcct,"
              "MaxSubmitJobsPerAcct,MinTRES")
LIMITS_FORMAT = ("Share,GrpTRESM,GrpTRESR,GrpTRES,GrpJ,GrpJobsA,GrpMEM,GrpN,GrpS,GrpW,MaxTRESM,MaxTRES,MaxTRESPerN,"
                 "MaxJ,MaxS,MaxN,MaxW,QOS,DefaultQOS")


def header(talk: Talk, formats: Sequence[str]) -> str:
    return _printer(tuple(formats), talk.parsable, talk.header).header_text()


def table_row(talk: Talk, formats: Sequence[str], row: Row) -> str:
    """These tables end every field, also with -P."""
    return _printer(tuple(formats), "p" if talk.parsable else "", False).rows([row])


@lru_cache(maxsize=64)
def _printer(formats: tuple[str, ...], parsable: str, has_header: bool) -> ColumnPrinter[Mapping[str, str | None]]:
    return ColumnPrinter(columns(formats), parsable=parsable, header=has_header)


def association_preview(data: AssociationData, record: AssociationRecord, settings: Mapping[str, Any], *,
                        account: str = "", parent: str = "") -> Row:
    """The row of an association as its line gives it, without what it inherits."""
    row = association_row(Tree(AssociationData(data.cluster, {record.id: record}, data.qos, tres=data.tres)), record,
                          own_only=True)
    row["pname"] = parent
    if "shares" not in settings:
        row["fairshare"] = None
    if account:
        row["acct"], row["qos"] = account, row["qos"] if "qos" not in settings else ",".join(sorted(settings["qos"]))
    return row


def qos_preview(data: AssociationData, line: QosLine) -> Row:
    draft = Draft(AssociationData(data.cluster, qos=dict(data.qos)), 0.0)
    draft.data.qos.pop(line.name, None)
    draft.apply({"op": "add_qos", "name": line.name, "settings": {**line.settings, "preempt": []}})
    record: QosRecord = draft.data.qos[line.name]
    row = qos_row(replace(record))
    if "usage_factor" not in line.settings:
        row["uf"] = None
    if "priority" not in line.settings:
        row["prio"] = None
    if "grace_time_s" not in line.settings:
        row["grace"] = None
    return row
