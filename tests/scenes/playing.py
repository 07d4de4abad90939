"""Plays recorded scenes (tests/data/scenes): acts of administrators and users one after another, and looks at all jobs.

A scene's ``acts``: {"do": command, "as": user, "rc", "stderr", "stdout"}, {"wait": seconds} and {"read": true, "jobs":
records, "squeue": lines}. Jobs are called JOB1, JOB2, … in the order of submission, times are TIME. ``conf``: more
lines of slurm.conf. ``first``: "Main" where this pass saw the jobs first and where they are depends on that; which of
Slurm's two passes it is, is chance. Recorded by tests/tools/record_scenes.py with Slurm 25.11.
"""
from __future__ import annotations

import gzip
import json
import os
import pwd
import re
import socket
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from scenes.own_time import OwnTimeSite
from sites import DATA, Site

from slurmbridge.client import protocol

Scene = dict[str, Any]
Run = Callable[..., tuple[int, str, str]]
"""``run(*words, user=None)``: (exit code, standard output, standard error)."""

CONF = ("FirstJobId=700001\n"
        "SchedulerParameters=bf_interval=2,bf_window=1440,bf_continue,sched_interval=2,bf_resolution=60\n")
REST_S = 5.0
"""So long the site is at rest before the first act."""
FIELDS = ("JobState Reason NumNodes NumCPUs QOS Account Partition Dependency Restarts ArrayTaskId ExitCode Reservation "
          "ReqTRES AllocTRES TimeLimit").split()
KILLED = {"0:15", "143:0"}
"""Exit codes of a script that was ended with its ``sleep``: which of the two goes first is chance."""
USERS = {name: 20001 + number for number, name in enumerate(
    "alice bob carl dana erin frank gina hugo ivan jack kate liam mona nina oscar".split())}
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
add account phys parent=root fairshare=40
add account bio parent=root fairshare=40
add account eng parent=root fairshare=20
add account phys_qcd parent=phys fairshare=3
add account phys_astro parent=phys fairshare=1
add account bio_seq parent=bio fairshare=parent
add account bio_img parent=bio fairshare=2
add account eng_cfd parent=eng fairshare=1
add account eng_ml parent=eng fairshare=4
add account eng_llm parent=eng_ml fairshare=2
add user alice account=phys_qcd fairshare=5
add user bob account=phys_qcd fairshare=parent
add user carl account=phys_qcd fairshare=1
add user dana account=phys_astro fairshare=10
add user erin account=phys_astro fairshare=10
add user frank account=bio_seq fairshare=2
add user gina account=bio_seq fairshare=3
add user hugo account=bio_img fairshare=1
add user ivan account=bio_img fairshare=0
add user jack account=eng_cfd fairshare=1
add user kate account=eng_cfd fairshare=1
add user liam account=eng_ml fairshare=3
add user mona account=eng_ml fairshare=1
add user nina account=eng_llm fairshare=1
add user oscar account=eng_llm fairshare=2
add user alice account=eng_ml fairshare=2
modify user alice set defaultaccount=phys_qcd
modify user gina where account=bio_seq set priority=50
modify account eng_cfd set priority=20
modify account bio_img set GrpTRES=cpu=96 MaxJobs=50 MaxWall=1-0"""
"""As the lab's seed.sh makes them."""


def all_scenes() -> list[Scene]:
    """What is recorded in tests/data/scenes."""
    found = []
    for path in sorted((DATA / "scenes").glob("*.jsonl*")):
        text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        found += [json.loads(line) for line in text.splitlines()]
    return found


def scene_name(scene: Scene) -> str:
    name = str(scene["seed"])
    return name if name.startswith(scene["kind"]) else f"{scene['kind']}-{name}"


def needs_processes(scene: Scene) -> bool:
    """Whether a script of the scene does more than sleep, test and exit."""
    words = {word for act in scene["acts"] for text in act.get("do", ()) for word in re.split(r"[\s;']+", text)}
    return not words.isdisjoint({"trap", "srun", "&"})


def make_users() -> bool:
    """The unix users of scenes; False where they are not there and cannot be made."""
    if os.geteuid() != 0:
        return False
    for name, uid in USERS.items():
        try:
            pwd.getpwnam(name)
        except KeyError:
            subprocess.run(["useradd", "-M", "-N", "-d", "/tmp", "-s", "/bin/bash", "-u", str(uid), name], check=False)
            pwd.getpwnam(name)
    return True


def merged(text: str, more: str) -> str:
    """slurm.conf with more lines, which replace those of the same key; ``-KEY`` only takes them away."""
    lines = more.splitlines()
    keys = tuple(one.partition("=")[0].lstrip("-") + "=" for one in lines
                 if not one.startswith(("PartitionName", "NodeName")))
    added = [one for one in lines if not one.startswith("-")]
    return "\n".join([*(line for line in text.splitlines() if not line.startswith(keys)), *added]) + "\n"


def record(line: str) -> dict[str, str]:
    return dict(re.findall(r"(\S+?)=(.*?)(?= \S+?=|$)", line))


def seed(run: Run) -> None:
    """The accounts, users and QOS of the lab."""
    for line in ACCOUNTS.splitlines():
        words = line.split()
        if words[:2] == ["add", "user"]:
            words += ["qos=normal,low,scav,high,capped,gpuq", "defaultqos=normal"]
        code, out, err = run("sacctmgr", "-i", *words)
        assert code == 0, (line, out, err)


class Played:
    """One scene on one site."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.names: dict[str, str] = {}

    def mask(self, text: str) -> str:
        text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", "TIME", text)
        for number, name in self.names.items():
            text = re.sub(rf"(?<![0-9]){number}(?![0-9])", name, text)
        return text

    def act(self, act: dict[str, Any]) -> Iterator[str]:
        """Does it; what differs from the recording."""
        numbers = {name: job for job, name in self.names.items()}
        words = [re.sub(r"JOB\d+", lambda m: numbers.get(m.group(), m.group()), word) for word in act["do"]]
        code, out, err = self.run(*words, user=act.get("as"))
        if words[0] == "sbatch" and out.strip().isdigit():
            self.names[out.strip()] = f"JOB{len(self.names) + 1}"
        told = " ".join(words)
        if (code == 0) != (act["rc"] == 0):
            yield f"{told}: exit code {code} for {act['rc']}, {err!r} for {act['stderr']!r}"
        elif words[0] != "sacctmgr" and self.mask(err).strip() != act["stderr"].strip():
            yield f"{told}: {self.mask(err)!r} for {act['stderr']!r}"
        if words[0] != "sbatch" and "stdout" in act:
            yield from self._output(told, self.mask(out), act["stdout"])

    @staticmethod
    def _output(told: str, out: str, want: str) -> Iterator[str]:
        if not told.startswith("scontrol show reservation"):
            if out.split() != want.split():
                yield f"{told}: {out!r} for {want!r}"
            return
        have, wanted = ([record(line) for line in text.splitlines() if line.strip()] for text in (out, want))
        if len(have) != len(wanted):
            yield f"{told}: {out!r} for {want!r}"
        for one, other in zip(have, wanted):
            yield from (f"{told}: {key} {one.get(key)!r} for {other.get(key)!r}" for key in {**one, **other}
                        if one.get(key) != other.get(key))

    def look(self, act: dict[str, Any]) -> Iterator[str]:
        """What differs in the records of jobs and in squeue."""
        rows = {}
        for line in self.run("scontrol", "show", "job", "-o")[1].splitlines():
            row = record(line)
            name = self.names.get(row.get("ArrayJobId") or row.get("HetJobId") or row.get("JobId", ""))
            if name:
                key = (name, row.get("ArrayTaskId", ""), row.get("HetJobOffset", ""))
                rows[key] = {key: self.mask(value) for key, value in row.items()}
        for want in act["jobs"]:
            have = rows.pop((want["job"], want.get("ArrayTaskId", ""), want.get("HetJobOffset", "")), {})
            for key in dict.fromkeys((*FIELDS, *want)):
                if have.get(key) != want.get(key) and not (
                        key == "job" or (key == "NodeList" and want["JobState"] != "RUNNING")
                        or {have.get(key), want.get(key)} == KILLED):
                    yield f"{want['job']} {want.get('ArrayTaskId', '')}: {key} {have.get(key)!r} for {want.get(key)!r}"
        yield from (f"one record too many: {' '.join(key)}" for key in rows)
        lines = self.run("squeue", "-h", "-a", "-o", "%i|%T|%r|%D|%C|%q|%E")[1].splitlines()
        queue = sorted(line for line in (self.mask(line.strip()) for line in lines) if line.startswith("JOB"))
        wanted = [line for line in act["squeue"] if line.startswith("JOB")]
        if queue != wanted:
            yield f"squeue {sorted({*queue} - {*wanted})} for {sorted({*wanted} - {*queue})}"


def scene_conf(scene: Scene) -> str:
    """The lines that the scene adds to slurm.conf."""
    return CONF + str(scene.get("conf", ""))


def call(site: Site, *argv: str) -> tuple[int, str, str]:
    """(exit code, standard output, standard error) of a command of root's, straight to the controller's socket."""
    texts = {protocol.OUTPUT: bytearray(), protocol.ERROR: bytearray()}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(site.url.removeprefix("unix://"))
        connection.sendall(protocol.pack_request({
            "v": 1, "command": argv[0], "argv": list(argv[1:]), "env": [f"{k}={v}" for k, v in site.env.items()],
            "cwd": "/tmp", "umask": 0o22, "host": "localhost", "pid": 1, "sid": 1, "rlimits": {}, "tty_columns": None,
            "stdin_tty": False, "credential": ""}))
        frames = protocol.Frames()
        while data := connection.recv(1 << 20):
            for kind, payload in frames.feed(data):
                if kind in texts:
                    texts[kind] += payload
                elif kind == protocol.EXIT:
                    out, err = (bytes(text).decode() for text in texts.values())
                    return protocol.unpack_number(payload) & 0xFF, out, err
    raise AssertionError("the controller hung up")


def play_in_own_time(scene: Scene) -> list[str]:
    """What differs from the recording, act by act."""
    differences: list[str] = []
    with OwnTimeSite(lambda text: merged(text, scene_conf(scene)), seeded()) as site:
        if scene.get("first") == "Main":
            site.main_pass_first()
        site.wait(REST_S)
        played = Played(site.run)
        for number, act in enumerate(scene["acts"]):
            if "wait" in act:
                site.wait(act["wait"])
            else:
                found = played.look(act) if act.get("read") else played.act(act)
                differences += [f"act {number}: {one}" for one in found]
    return differences


@cache
def seeded() -> bytes:
    """A ledger in which the lab's accounts, users and QOS are."""
    with OwnTimeSite(lambda text: merged(text, CONF)) as site:
        seed(site.run)
    return site.ledger
