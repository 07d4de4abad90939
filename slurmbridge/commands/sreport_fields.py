"""The columns of sreport's reports. Which of them a name means is tried in this order."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from slurmbridge.commands.sreport_talk import Row, Talk, begins
from slurmbridge.slurm.columns import ColumnField
from slurmbridge.slurm.memory import leading_int

# key, header (_ = blank), width, width with percentages, kind (t text, n number, d date), names:letters
_CLUSTER = """
account Account 15 15 t Accounts:2
allocated Allocated 12 20 t allocated:2
cluster Cluster 9 9 t Cluster:2
down Down 10 18 t down:1
idle Idle 12 20 t idle:1
login Login 9 9 t Login:1
over Over_Comm 9 18 t overcommitted:1
planned Planned 9 18 t planned:2,reserved:3
planned_down PLND_Down 10 18 t PlannedDown:2,PLNDDown:2
proper Proper_Name 15 15 t Proper:2
qos QOS 12 12 t QOS:1
qos_id QOS_ID 8 8 n QOSID:4
reported Reported 12 20 t reported:3
count TRES_Count 10 10 n TresCount:5,cpucount:2,count:2
tres TRES_Name 14 14 t TresName:5
used Used 10 18 t Used:1
wckey WCKey 15 15 t WCKey:2
energy Energy 10 18 t Energy:1
"""
_JOB = """
account Account 9 9 t Account:1,Acct:4
cluster Cluster 9 9 t Cluster:2
duration Duration 12 12 t Duration:1
job_count Job_Count 9 9 n JobCount:2
node_count Node_Count 9 9 n NodeCount:2
count TRES_Count 10 10 n TresCount:5,CpuCount:2,count:2
user User 9 9 t User:1
wckey Wckey 9 9 t Wckey:1
"""
_RESERVATION = """
allocated Allocated 20 29 t allocated:2
associations Associations 15 15 t Associations:2
cluster Cluster 9 9 t Cluster:2
end End 19 19 d End:2
flags Flags 20 20 t Flags:2
idle Idle 20 29 t Idle:1
name Name 9 9 t Name:2
nodes Nodes 15 15 t Nodes:2
id Id 8 8 n ReservationId:2
start Start 19 19 d Start:2
total_time TotalTime 9 9 n TotalTime:2
count TRES_count 10 10 n TresCount:5,CpuCount:2,count:2
tres TRES_Name 14 14 t TresName:5
tres_time TRES_Time 9 9 n TresTime:2,CpuTime:5
"""
_USER = """
account Account 15 15 t Accounts:1
cluster Cluster 9 9 t Cluster:1
energy Energy 10 18 t Energy:1
login Login 9 9 t Login:1
partition Partition 15 15 t Partition:2
proper Proper_Name 15 15 t Proper:2
tres TRES_Name 14 14 t TresName:5
used Used 10 18 t Used:1
"""
_KINDS = {"t": "text", "n": "number", "d": "time"}


def _parsed(text: str) -> list[tuple[str, str, int, int, str, list[tuple[str, int]]]]:
    found = []
    for line in text.strip().splitlines():
        key, header, width, wide, kind, names = line.split(" ")
        pairs = [(name, int(letters)) for name, _, letters in (word.partition(":") for word in names.split(","))]
        found.append((key, header.replace("_", " "), int(width), int(wide), _KINDS[kind], pairs))
    return found


_TABLES = {name: _parsed(text) for name, text in (
    ("cluster", _CLUSTER), ("job", _JOB), ("reservation", _RESERVATION), ("user", _USER))}
Picked = list[tuple[str, ColumnField[Row]]]


def pick(talk: Talk, table: str, words: Sequence[str]) -> Picked:
    """(key, column) of each word; unknown ones are said and left out."""
    wide = talk.unit.percent and talk.unit.divisor is not None
    found: Picked = []
    for word in words:
        name, percent, width_text = word.partition("%")
        for key, header, width, wide_width, kind, names in _TABLES[table]:
            if any(begins(name, known, letters) for known, letters in names):
                length = wide_width if wide else width
                if talk.tree and key in ("account", "wckey") and table == "cluster":
                    length = -20 if key == "account" else 20
                number = leading_int(width_text) if percent else None
                found.append((key, ColumnField(
                    header, number[0] if number and number[0] else length, _getter(key), kind)))
                break
        else:
            talk.complain(f" Unknown field '{name}'\n")
    return found


def _getter(key: str) -> Callable[[Row], str | None]:
    return lambda row: row.get(key)


def with_widths(picked: Picked, widths: dict[str, int]) -> list[ColumnField[Row]]:
    """The columns, those of these keys with other widths."""
    return [replace(column, width=widths.get(key, column.width)) for key, column in picked]
