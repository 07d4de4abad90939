"""The columns that ``sacctmgr list`` can print: one table for all entities, matched by prefix in its order.

A row is a mapping from a column's key to its text (None: no value). Two names may share a key (``MaxJobs`` of an
association is ``MaxJobsPU`` of a QOS).
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from slurmbridge.slurm.columns import ColumnField, UnknownField, split_names

Row = Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Field:
    key: str
    header: str
    width: int
    kind: str
    names: tuple[tuple[str, int], ...]        # (name, letters that must be typed)


# key, header (_ = blank), width (negative: left), kind (text, number, date, float), names:letters
_TABLE = """
acct Account 10 t Account:3,Acct:4
actionraw ActionRaw 10 n ActionRaw:7
action Action 20 t Action:4
actor Actor 10 t Actor:4
admin Admin 9 t AdminLevel:2
allowed Allowed 8 n Allowed:2
assoc_name Assocs 10 t Associations:2
tres TRES 20 t TRES:2
class Class 9 t Classification:3
cluster_nodes Cluster_Nodes 20 t ClusterNodes:8
cluster Cluster 10 t Clusters:2
coords Coord_Accounts 20 t Coordinators:3
comment Comment 20 t Comment:3
chost ControlHost 15 t ControlHost:8
cport ControlPort 12 n ControlPort:8
count Count 6 n Count:3
callowed #_Allowed 10 n CountAllowed:6
callowed #_Used 10 n CountUsed:6
cpus CPU_Cnt 7 t CPUCount:2
dacct Def_Acct 10 t DefaultAccount:8
dqos Def_QOS 9 t DefaultQOS:8
dwckey Def_WCKey 10 t DefaultWCKey:8
desc Descr 20 t Description:3
duration Duration 13 t Duration:2
eventraw EventRaw 8 n EventRaw:6
event Event 7 t Event:2
extra Extra 20 t Extra:2
features Features 20 t Features:3
federation Federation 10 t Federation:3
fedstate FedState 12 t FedState:4
fedstateraw FedStateRaw 11 n FedStateRaw:9
flags Flags 20 t Flags:2
grace GraceTime 10 t GraceTime:3
grpc GrpCPUs 8 n GrpCPUs:6
grpcm GrpCPUMins 11 n GrpCPUMins:7
grpcrm GrpCPURunMins 13 n GrpCPURunMins:7
grpt GrpTRES 13 t GrpTRES:7
grptm GrpTRESMins 13 t GrpTRESMins:7
grptrm GrpTRESRunMins 13 t GrpTRESRunMins:7
grpj GrpJobs 7 n GrpJobs:4
grpja GrpJobsAccrue 13 n GrpJobsAccrue:8
grpmem GrpMem 7 n GrpMemory:4
grpn GrpNodes 8 n GrpNodes:4
grps GrpSubmit 9 n GrpSubmitJobs:4
grpw GrpWall 11 t GrpWall:4
id ID 6 n ID:2
info Info 20 t Info:3
instance_id InstanceId 20 t InstanceId:9
instance_type InstanceType 20 t InstanceType:9
lineage Lineage -20 t Lineage:1
servertype ServerType 10 t servertype:10
maxcm MaxCPUMins 11 n MaxCPUMinsPerJob:7
maxcrm MaxCPURunMinsPU 15 n MaxCPURunMinsPerUser:7,MaxCPURunMinsPU:7
maxc MaxCPUs 8 n MaxCPUsPerJob:7
maxcu MaxCPUsPU 9 n MaxCPUsPerUser:11,MaxCPUsPU:9
maxt MaxTRES 13 t MaxTRES:7,MaxTRESPJ:9,MaxTRESPerJob:11
maxtn MaxTRESPerNode 14 t MaxTRESPerNode:11,MaxTRESPN:9
maxtm MaxTRESMins 13 t MaxTRESMinsPerJob:8,MaxTRESMinsPJ:13
maxtrma MaxTRESRunMinsPA 16 t MaxTRESRunMinsPerAccount:18,MaxTRESRunMinsPerAcct:18,MaxTRESRunMinsPA:15
maxtrm MaxTRESRunMinsPU 16 t MaxTRESRunMinsPerUser:8,MaxTRESRunMinsPU:8
maxta MaxTRESPA 13 t MaxTRESPerAccount:11,MaxTRESPerAcct:11,MaxTRESPA:9
maxtu MaxTRESPU 13 t MaxTRESPerUser:11,MaxTRESPU:9
maxj MaxJobs 7 n MaxJobs:4
maxja MaxJobsAccrue 13 n MaxJobsAccrue:4
maxjaa MaxJobsAccruePA 15 n MaxJobsAccruePerAccount:17,MaxJobsAccruePerAcct:17,MaxJobsAccruePA:15
maxjau MaxJobsAccruePU 15 n MaxJobsAccruePerUser:17,MaxJobsAccruePU:15
maxjpa MaxJobsPA 9 n MaxJobsPerAccount:11,MaxJobsPerAcct:11,MaxJobsPA:9
maxj MaxJobsPU 9 n MaxJobsPerUser:11,MaxJobsPU:9
maxn MaxNodes 8 n MaxNodesPerJob:4
maxnu MaxNodesPU 10 n MaxNodesPerUser:12,MaxNodesPU:10
minpt MinPrioThres 12 n MinPrioThreshold:4
maxs MaxSubmit 9 n MaxSubmitJobs:4
maxsa MaxSubmitPA 11 n MaxSubmitJobsPerAccount:17,MaxSubmitJobsPerAcct:17,MaxSubmitJobsPA:15,MaxSubmitPA:11
maxs MaxSubmitPU 11 n MaxSubmitJobsPerUser:10,MaxSubmitJobsPU:10,MaxSubmitPU:6
maxw MaxWall 11 t MaxWallDurationPerJob:4
minc MinCPUs 8 n MinCPUsPerJob:7
mint MinTRES 13 t MinTRESPerJob:7
name Name 10 t Name:2
nodecnt NodeCount 9 n NodeCount:5
nodeinx NodeInx 9 t NodeInx:5
nodename NodeName -15 t NodeNames:5
org Org 20 t Organization:1
pid ParentID 8 n ParentID:7
pname ParentName 10 t ParentName:7
part Partition 10 t Partition:4
preem PreemptMode 11 t PreemptMode:8
pree Preempt 10 t Preempt:7
prxmpt PreemptExemptTime 19 t PreemptExemptTime:8
prio Priority 10 n Priority:3
problem Problem 40 t Problem:1
qos QOS 20 t QOSLevel:3
qos_raw QOS_RAW 10 t QOSRAWLevel:4
reason Reason 30 t Reason:1
rpc_version RPC 5 n RPC:1
server Server 10 t Server:3
fairshare Share 9 n Share:1,FairShare:2
stateraw StateRaw 8 n StateRaw:6
state State 6 t State:1
ts Time 19 d TimeStamp:2
timeeligible TimeEligible 19 d TimeEligible:6,Eligible:2
timeend TimeEnd 19 d TimeEnd:6,End:2
timestart TimeStart 19 d TimeStart:7,Start:3
timesubmit TimeSubmit 19 d TimeSubmit:6,Submit:2
tres TRES 20 t TRES:2
type Type 8 t Type:2
unused UnusedWall 10 f UnusedWall:2
uf UsageFactor 11 f UsageFactor:6
ut UsageThres 10 f UsageThreshold:6
lf LimitFactor 11 f LimitFactor:6
allocated Allocated 9 n Allocated:7
last_consumed LastConsumed 12 n LastConsumed:8
user User 10 t User:1
wckeys WCKeys 20 t WCKeys:2
where Where 20 t Where:2
"""
_KINDS = {"t": "text", "n": "number", "d": "time", "f": "float"}


def _fields() -> tuple[Field, ...]:
    found = []
    for line in _TABLE.split("\n")[1:-1]:
        key, header, width, kind, names = line.split(" ")
        pairs = tuple((name, int(letters)) for name, _, letters in (word.partition(":") for word in names.split(",")))
        shown = header if header == "QOS_RAW" else header.replace("_", " ")
        found.append(Field(key, shown, int(width), _KINDS[kind], pairs))
    return tuple(found)


FIELDS = _fields()


def matches(word: str, name: str, at_least: int) -> bool:
    """Whether the word is ``name``, shortened to not less than ``at_least`` letters, in any case."""
    return len(word) >= min(at_least, len(name)) and name.lower().startswith(word.lower())


def columns(formats: Sequence[str], tree: bool = False) -> list[ColumnField[Row]]:
    """The columns of ``format=`` words (commas allowed within). Raises UnknownField with the name as typed."""
    words: dict[str, None] = {}                # a word that comes again moves back
    for text in formats:
        if not split_names(text):
            raise UnknownField("")
        for word in split_names(text):
            words.pop(word.lower(), None)
            words[word.lower()] = None
    return [_column(word, tree) for word in words]


def _column(word: str, tree: bool) -> ColumnField[Row]:
    name, percent, width_text = word.partition("%")
    for field in FIELDS if name else ():
        if any(matches(name, known, letters) for known, letters in field.names):
            width = -20 if tree and field.key == "acct" else field.width
            if percent:
                width = _leading_int(width_text) or width
            return ColumnField(field.header, width, partial(_value, key=field.key), kind=field.kind)
    raise UnknownField(name)


def _value(row: Row, key: str) -> str | None:
    return row.get(key)


def _leading_int(text: str) -> int:
    digits = text.lstrip(" ")
    sign = -1 if digits[:1] == "-" else 1
    digits = digits[1:] if digits[:1] in ("+", "-") else digits
    end = next((i for i, char in enumerate(digits) if not "0" <= char <= "9"), len(digits))
    return sign * min(int(digits[:end][:6] or "0"), 1 << 16)
