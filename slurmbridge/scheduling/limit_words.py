"""The Reason words of association and QOS limits on TRES, which Slurm spells differently per limit, owner and TRES."""
from __future__ import annotations

ORDER = ("cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages")
"""In which order Slurm looks at TRES; others follow by name."""
_NAMES = {"cpu": "Cpu", "mem": "Mem", "energy": "Energy", "node": "Node", "billing": "Billing", "gres": "GRES",
          "license": "License", "bb": "BB"}
_PATTERNS = {
    "grp_tres": "{owner}Grp{tres}",
    "grp_tres_mins": "{owner}Grp{tres}Minutes",
    "grp_tres_run_mins": "{owner}Grp{tres}RunMinutes",
    "max_tres_per_job": "{owner}Max{tres}PerJob",
    "max_tres_per_node": "{owner}Max{tres}PerNode",
    "max_tres_mins_per_job": "{owner}Max{tres}MinutesPerJob",
    "min_tres_per_job": "{owner}Min{tres}",
    "max_tres_per_user": "{owner}Max{tres}PerUser",
    "max_tres_per_account": "Max{tres}PerAccount",
    "max_tres_run_mins_per_user": "Max{tres}RunMinsPerUser",
    "max_tres_run_mins_per_account": "Max{tres}RunMinsPerAccount",
}
_IRREGULAR = {
    ("grp_tres", "cpu"): "{owner}GrpCpuLimit",
    ("grp_tres", "mem"): "{owner}GrpMemLimit",
    ("grp_tres", "node"): "{owner}GrpNodeLimit",
    ("grp_tres_mins", "cpu"): "{owner}GrpCPUMinutesLimit",
    ("grp_tres_run_mins", "cpu"): "{owner}GrpCPURunMinutesLimit",
    ("max_tres_per_job", "cpu"): "{owner}MaxCpuPerJobLimit",
    ("max_tres_per_job", "node"): "{owner}MaxNodePerJobLimit",
    ("max_tres_mins_per_job", "cpu"): "{owner}MaxCpuMinutesPerJobLimit",
    ("min_tres_per_job", "cpu"): "{owner}MinCpuNotSatisfied",
    ("max_tres_per_user", "cpu"): "{owner}MaxCpuPerUserLimit",
    ("max_tres_per_user", "node"): "{owner}MaxNodePerUserLimit",
}


def word(rule: str, owner: str, tres: str) -> str:
    """``rule``: a field of limits.Limits; ``owner``: "Assoc" or "QOS"; ``tres``: "cpu", "gres/gpu:a100", …"""
    irregular = _IRREGULAR.get((rule, tres))
    if irregular is not None:
        return irregular.format(owner=owner)
    name = _NAMES.get(tres.partition("/")[0], "Unknown")
    if name == "Mem" and owner == "QOS":
        name = "Memory"
    return _PATTERNS[rule].format(owner=owner, tres=name)


def position(tres: str) -> tuple[int, str]:
    """Sort key: Slurm's order of TRES."""
    return (ORDER.index(tres) if tres in ORDER else len(ORDER), tres)
