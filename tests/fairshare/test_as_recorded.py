"""sshare and sprio print what real Slurm 25.11.7 printed, to the digit: 86 trees, nine configurations, 85 calls."""
from __future__ import annotations

import asyncio
import pwd
from typing import Any

import fairshare_cases as cases
import fairshare_lab as lab
import pytest

from slurmbridge.commands import common, sprio, sshare
from slurmbridge.views.session import Reply

CASES = cases.load() + cases.load(cases.WITH_FLAGS)
ALL_FLAGS = {"NO_NORMAL_ALL": ("NO_NORMAL_ASSOC", "NO_NORMAL_PART", "NO_NORMAL_QOS", "NO_NORMAL_TRES")}
SSHARE = "Account,User,RawShares,NormShares,RawUsage,NormUsage,EffectvUsage,FairShare,LevelFS"
SPRIO = {
    "JobID": "i", "User": "u", "Account": "o", "Partition": "r", "QOS": "n", "Priority": "Y", "Site": "S", "Age": "A",
    "Assoc": "B", "FairShare": "F", "JobSize": "J", "Part": "P", "Qos": "Q", "Nice": "N", "TRES": "T"}
SPRIO_NORMALIZED = {
    "JobID": "i", "PrioNorm": "y", "Age": "a", "Assoc": "b", "FairShare": "f", "JobSize": "j", "Part": "p", "Qos": "q",
    "TRES": "t"}


def call(module: Any, made: lab.Cluster, *argv: str, env: dict[str, str] | None = None, user: str = "root",
         uid: int = 0) -> Reply:
    return asyncio.run(module.run(argv, env or {}, lab.session(made, user, uid)))


def table(text: str, names: list[str]) -> list[dict[str, str]]:
    return [dict(zip(names, line.split("|"))) for line in text.splitlines()]


def submitted(case: dict[str, Any]) -> lab.Cluster:
    settings = dict(case.get("settings", {}))
    if "flags" in settings:
        settings["flags"] = frozenset(flag for word in settings["flags"] for flag in ALL_FLAGS.get(word, (word,)))
    made = lab.Cluster(cases.priorities(case, **settings), cases.NOW_S)
    for answer, given in zip(case["slurm"]["submitted"], case["jobs"]):
        if "id" not in answer:
            continue
        job = made.jobs[answer["id"]] = cases.job(answer["id"], given)
        made.priorities.initial(job, cases.NOW_S)
    return made


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["seed"]))
def test_random_tree(case: dict[str, Any]) -> None:
    made = submitted(case)
    shares = call(sshare, made, "-aPn", "-o", SSHARE).stdout
    assert table(shares, SSHARE.split(",")) == case["slurm"]["sshare"]

    for columns, recorded in ((SPRIO, "sprio_weighted"), (SPRIO_NORMALIZED, "sprio_normalized")):
        text = call(sprio, made, "-h", "-o", "|".join(f"%{letter}" for letter in columns.values())).stdout
        assert table(text, list(columns)) == case["slurm"][recorded]


@pytest.mark.parametrize("name", lab.VARIANTS)
def test_configuration(name: str) -> None:
    recorded, made = lab.VARIANTS[name], lab.cluster(name)
    shares = call(sshare, made, "-aPn", "-o", SSHARE + ",GrpTRESRaw").stdout.splitlines()
    if name == "oblivious":                   # recorded before slurmctld had normalized the users' usage
        shares = [line for line in shares if line.split("|")[1] in ("", "root")]
        assert shares[0] == recorded["sshare"][0]
    else:
        assert shares == recorded["sshare"]
        weighted = "|".join(f"%{letter}" for letter in SPRIO.values())
        assert call(sprio, made, "-h", "-o", weighted).stdout.splitlines() == recorded["weighted"]
        normalized = call(sprio, made, "-hn", "-o", "%i|%r|%y|%a|%b|%f|%j|%p|%q|%t").stdout.splitlines()
        assert normalized == recorded["norm"]
        squeue = {line.split("|")[0].split("_")[0]: int(line.split("|")[1]) for line in recorded["squeue"]}
        assert {str(job.job_id): job.priority for job in made.jobs.values()} == squeue


def test_depth_oblivious_after_two_periods_with_a_half_life_of_an_hour() -> None:
    made = lab.cluster("oblivious")
    priorities = made.priorities
    priorities.conf.priority.decay_half_life_s = 3600
    priorities.reload(priorities.conf, priorities.partitions, priorities.nodes)
    priorities.period(made.now_s + 60)
    priorities.period(made.now_s + 120)
    shown = call(sshare, made, "-aPn", "-o", "Account,User,RawUsage,NormUsage,EffectvUsage,FairShare,GrpTRESRaw").stdout
    assert shown.splitlines() == lab.DATA["settled"]


@pytest.fixture
def users(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lab's users, who need not exist here."""
    uids = {job.user_name: job.uid for job in lab.jobs(lab.DATA["jobs_commands"])} | {"root": 0, "fsd": 30004}
    for module in (sprio, common):
        monkeypatch.setattr(module, "uid_of", lambda text, known=False: uids.get(
            text, int(text) if text.isdigit() else None))
    monkeypatch.setattr(sshare, "user_name", lambda uid: pwd.getpwuid(uid).pw_name if uid == 0 else "nobody")


def _shown(record: dict[str, Any]) -> str:
    return " ".join([*(f"{k}={v}" for k, v in record["env"].items()), *record["argv"]])


@pytest.mark.usefixtures("users")
@pytest.mark.parametrize("record", lab.DATA["commands"], ids=_shown)
def test_command_line(record: dict[str, Any]) -> None:
    made = lab.cluster(recorded="jobs_commands", partition_tiers={"debug": 5})
    module = {"sshare": sshare, "sprio": sprio}[record["argv"][0]]
    user = record.get("user", "root")
    got = call(module, made, *record["argv"][1:], env=record["env"], user=user, uid=0 if user == "root" else 30002)
    assert got.stdout == record["stdout"]
    assert got.stderr == record["stderr"]
    assert got.exit_code == record["rc"]
