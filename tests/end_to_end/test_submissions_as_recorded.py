"""What sbatch says and what scontrol shows of a submission: held against recordings of Slurm 25.11.7.

Each case is a random script with arguments and environment (all options, odd ones too), submitted held on the nodes and
partitions of ``tests/data/slurm.conf`` with the accounts below. Times and job ids are left out; everything else of
each record is compared, field by field.
"""
from __future__ import annotations

import gzip
import json
import os
import pwd
import re
import socket
from pathlib import Path
from typing import Any

import pytest
from sites import DATA, Site

from slurmbridge.client import protocol
from slurmbridge.client.exchange import read_file

MASKED = {"JobId", "ArrayJobId", "HetJobId", "HetJobIdSet", "SubmitTime", "LastSchedEval", "AllocNode:Sid",
          "AccrueTime", "SLUID", "EligibleTime", "StartTime", "EndTime", "Deadline", "SubmitLine",
          "PreemptEligibleTime", "UserId", "GroupId"}
ACCOUNTS = """add qos low
add qos scav
add qos high
add qos capped
add qos gpuq
modify qos normal set Priority=10
modify qos low set Priority=1 UsageFactor=0.5 PreemptMode=requeue
modify qos scav set Priority=0 UsageFactor=0 PreemptMode=cancel
modify qos high set Priority=100 UsageFactor=2 MaxWall=2-0 Preempt=low,scav
modify qos capped set Priority=10 MaxJobsPerUser=2 MaxSubmitJobsPerUser=4 MaxTRESPerUser=cpu=64 Flags=DenyOnLimit
modify qos gpuq set Priority=50 MaxTRESPerUser=gres/gpu=2 GrpTRES=gres/gpu=4 MinTRESPerJob=gres/gpu=1
add account phys
add account bio
add account eng
add account phys_qcd parent=phys
add account eng_ml parent=eng
add user alice account=phys_qcd qos=normal,low,scav,high,capped,gpuq defaultqos=normal
add user bob account=phys_qcd qos=normal,low,scav,high,capped,gpuq defaultqos=normal
add user alice account=eng_ml qos=normal,low,scav,high,capped,gpuq defaultqos=normal
modify user alice set defaultaccount=phys_qcd"""


class Caller:
    """The users' commands on one site, without a process for each: 1,300 calls in a few seconds."""

    def __init__(self, site: Site, folder: Path) -> None:
        self.path, self.folder = site.url.removeprefix("unix://"), folder
        self.env = {**site.env, "HOME": str(folder)}

    def run(self, *argv: str, user: str = "root", env: dict[str, str] | None = None,
            stdin: str = "") -> tuple[int, str, str]:
        texts = {protocol.OUTPUT: bytearray(), protocol.ERROR: bytearray()}
        variables = [f"{name}={value}" for name, value in {**self.env, "USER": user, **(env or {})}.items()]
        entry = pwd.getpwnam(user)
        os.setegid(entry.pw_gid)
        os.seteuid(entry.pw_uid)
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(self.path)
                connection.sendall(protocol.pack_request({
                    "v": 1, "command": argv[0], "argv": list(argv[1:]), "env": variables, "cwd": str(self.folder),
                    "umask": 0o22, "host": "localhost", "pid": 1, "sid": 1, "rlimits": {}, "tty_columns": None,
                    "stdin_tty": False, "credential": ""}))
                frames = protocol.Frames()
                while data := connection.recv(1 << 20):
                    for kind, payload in frames.feed(data):
                        if kind in texts:
                            texts[kind] += payload
                        elif kind == protocol.READ:
                            connection.sendall(protocol.pack_answer(*read_file(*protocol.unpack_read(payload))))
                        elif kind == protocol.WANT_INPUT:
                            connection.sendall(protocol.pack(protocol.INPUT, stdin.encode())
                                               + protocol.pack(protocol.INPUT))
                        elif kind == protocol.EXIT:
                            out, err = (bytes(text).decode() for text in texts.values())
                            return protocol.unpack_number(payload) & 0xFF, out, err
            raise AssertionError("the controller hung up")
        finally:
            os.seteuid(0)
            os.setegid(0)


@pytest.fixture
def caller(make_site, unix_users: tuple[str, ...],  # type: ignore[no-untyped-def]
           monkeypatch: pytest.MonkeyPatch) -> Caller:
    if os.geteuid():
        pytest.skip("acts as several users")
    site = make_site(enforce=True)
    folder = site.work
    (folder / "nodes.txt").write_text("n1\nn2,n3\n")
    (folder / "sub").mkdir()
    monkeypatch.chdir(folder)
    caller = Caller(site, folder)
    for line in ACCOUNTS.splitlines():
        code, out, err = caller.run("sacctmgr", "-i", *line.split())
        assert code == 0, (line, out, err)
    return caller


def fields(line: str, job_id: str, others: dict[str, str]) -> dict[str, str]:
    def value(key: str, text: str) -> str:
        text = text.strip()
        if key in ("StdOut", "StdErr", "StdIn"):
            return re.sub(rf"(?<!\d)0*{job_id}(?!\d)", "ID", text)
        if key == "Dependency":
            for name, number in others.items():
                text = re.sub(rf"(?<![\d_]){number}(?!\d)", name, text)
        return text
    return {key: value(key, text) for key, text in re.findall(r"(\S+?)=(.*?)(?= \S+?=|$)", line)
            if key not in MASKED and not key.startswith("-")}


def differences(case: dict[str, Any], caller: Caller, others: dict[str, str]) -> list[str]:
    def put(text: str) -> str:
        return re.sub(r"\{(J\d)\}", lambda found: others[found[1]], text).replace("WORK", str(caller.folder))

    script = caller.folder / "job.sh"
    script.write_text(put(case["script"]))
    code, out, err = caller.run("sbatch", "-H", *map(put, case["args"]), str(script), user=case["user"],
                                env=case["env"])
    err = re.sub(r"(sbatch: )?Job \d+ to start at \S+", "Job N to start at T", err).strip()
    found = re.search(r"\d+", out)
    shown = []
    if found is not None:
        shown = caller.run("scontrol", "show", "job", "-o", found[0])[1].splitlines()
        caller.run("scancel", found[0])
    if (code, err.replace(str(caller.folder), "WORK")) != (case["rc"], case["stderr"]):
        return [f"{code} {err!r} for {case['rc']} {case['stderr']!r}"]
    wrong = [] if len(shown) == len(case["job"] or []) else [f"{len(shown)} records for {len(case['job'] or [])}"]
    for line, wanted_line in zip(shown, case["job"] or [], strict=False):
        ids = [re.search(r"JobId=(\d+)", text) for text in (line, wanted_line)]
        got, wanted = (fields(text.replace(str(caller.folder), "WORK"), number[1] if number else "", names)
                       for text, number, names in zip((line, wanted_line), ids, (others, case["others"]), strict=True))
        wrong += [f"{key} is {got.get(key)!r} for {wanted.get(key)!r}" for key in {**wanted, **got}
                  if got.get(key) != wanted.get(key)]
    return wrong


def test_submissions_are_answered_as_slurm_answers_them(caller: Caller) -> None:
    def held(user: str, *words: str) -> str:
        return caller.run("sbatch", "--parsable", "-H", *words, "--wrap", "true", user=user)[1].strip()

    others = {"J1": held("alice"), "J2": held("alice", "-a0-3"), "J3": held("bob"), "J4": held("alice")}
    caller.run("scancel", others["J4"])
    wrong = []
    with gzip.open(DATA / "submissions" / "sbatch.jsonl.gz", "rt") as lines:
        for case in map(json.loads, lines):
            for text in differences(case, caller, others):
                wrong.append(f"seed {case['seed']}: {text}\n  {case['script']!r} {case['args']} {case['env']}")
    assert not wrong, f"{len(wrong)} differences\n" + "\n".join(wrong[:20])


def test_scripts_as_people_write_them(caller: Caller) -> None:
    """450 scripts of tests/tools/scripts.py, as files, on standard input and by --wrap: blanks and dashes astray,
    comments, other systems' directives, SBATCH_ variables."""
    wrong = []
    with gzip.open(DATA / "submissions" / "scripts.jsonl.gz", "rt") as lines:
        for case in map(json.loads, lines):
            words = {"wrap": [f"--wrap={case['script']}"], "stdin": [], "file": ["job.sh"]}[case["how"]]
            (caller.folder / "job.sh").write_text(case["script"])
            code, out, err = caller.run("sbatch", "-H", *case["args"], *words, user=case["user"], env=case["env"],
                                        stdin=case["script"] if case["how"] == "stdin" else "")
            found = re.search(r"\d+", out)
            number = found[0] if found else "-"
            came = [code, out.replace(number, "ID"), err.replace(str(caller.folder), "WORK")]
            wanted = [case["rc"], case["stdout"], case["stderr"]]
            shown = caller.run("scontrol", "show", "job", "-o", number)[1] if found else ""
            for line, wanted_line in zip(re.split(r"^(?=JobId=)", shown, flags=re.M)[1:], case["job"], strict=True):
                line = re.sub(r" SubmitLine=.*? WorkDir=", " WorkDir=", line, flags=re.S)
                ids = [re.search(r"JobId=(\d+)", text) for text in (line, wanted_line)]
                got, should = (fields(text.replace(str(caller.folder), "WORK").strip(), one[1] if one else "", {})
                               for text, one in zip((line, wanted_line), ids, strict=True))
                came += [f"{key}={got.get(key)}" for key in {**should, **got} if got.get(key) != should.get(key)]
                wanted += [f"{key}={should.get(key)}" for key in {**should, **got} if got.get(key) != should.get(key)]
            if came != wanted:
                wrong.append(f"seed {case['seed']}: {came} for {wanted}\n  {case['script']!r} {case['args']}")
            caller.run("scancel", number)
    assert not wrong, f"{len(wrong)} differences\n" + "\n".join(wrong[:20])


def test_updates_of_waiting_jobs_are_answered_as_slurm_answers_them(caller: Caller) -> None:
    """hold, release, requeue, top, notify, scancel and ``scontrol update`` with every key, by the owner, by others and
    by root; and, for held jobs, the record after it."""
    def submitted(user: str, *words: str) -> str:
        return caller.run("sbatch", "--parsable", "--wrap", "true", *words, user=user)[1].strip()

    others = {"J1": submitted("alice", "-H"), "J2": submitted("alice", "-H", "-a0-3"), "J3": submitted("bob", "-H"),
              "J4": submitted("alice", "-H")}
    caller.run("scancel", others["J4"])
    wrong = []
    with gzip.open(DATA / "submissions" / "updates.jsonl.gz", "rt") as lines:
        for case in map(json.loads, lines):
            words = [re.sub(r"\{(J\d)\}", lambda found: others[found[1]], word) for word in case["submit"]]
            numbers = {**others, "ID": submitted("alice", *words, *(["--wrap", "true"] if ":" in words else []))}
            for user, argv, code, text in case["steps"]:
                def put(part: str, numbers: dict[str, str] = numbers) -> str:
                    return re.sub(r"\{(J\d|ID)\}", lambda found: numbers[found[1]], part)
                got, _, err = caller.run(*map(put, argv), user=user)
                if (got, err) != (code, put(text)):
                    wrong.append(f"seed {case['seed']} {user} {argv}: {got} {err!r} for {code} {text!r}")
            if "job" in case:
                shown = caller.run("scontrol", "show", "job", "-o", numbers["ID"])[1].strip()
                wanted = case["job"].replace("WORK", str(caller.folder))
                for name, number in others.items():
                    wanted = wanted.replace(f"{{{name}}}", number)
                after, should = fields(shown, numbers["ID"], {}), fields(
                    wanted.replace("{ID}", numbers["ID"]), numbers["ID"], {})
                wrong += [f"seed {case['seed']} {case['steps']}: {key} is {after.get(key)!r} for {should.get(key)!r}"
                          for key in {**should, **after} if after.get(key) != should.get(key)]
            caller.run("scancel", numbers["ID"])
    assert not wrong, f"{len(wrong)} differences\n" + "\n".join(wrong[:20])
