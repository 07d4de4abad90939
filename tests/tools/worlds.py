"""Jobs and nodes in many states, made by the same commands on a real Slurm and on slurmbridge; questions to them."""

from __future__ import annotations

import pwd
import re
import shlex
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

LIMIT_S = 20


class Side:
    """One of the two: runs commands, and knows by which ids its world's jobs go."""

    def __init__(self, prefix: list[str], env: dict[str, str], work: Path) -> None:
        """``work``: the directory of all commands, for every user to write."""
        self.prefix, self.env, self.work = prefix, env, work
        self.ids: dict[str, str] = {}

    def start(self, words: list[str], user: str, env: dict[str, str]) -> subprocess.Popen[bytes]:
        who = pwd.getpwnam(user)
        as_user = (
            [] if user == "root" else ["setpriv", f"--reuid={who.pw_uid}", f"--regid={who.pw_gid}", "--init-groups"]
        )
        return subprocess.Popen(
            [*self.prefix, *as_user, "timeout", "-k", "1", str(LIMIT_S), *self.fill(words)],
            cwd=self.work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**self.env, "USER": user, "HOME": str(self.work), **env},
        )

    def fill(self, words: list[str]) -> list[str]:
        return [re.sub(r"\{(\w+)\}", lambda m: self.ids.get(m[1], "1"), word) for word in words]

    def run(self, *words: str, user: str = "root") -> str:
        process = self.start(list(words), user, {})
        out, err = process.communicate()
        return (out + err).decode(errors="replace").strip()

    def said(self, process: subprocess.Popen[bytes]) -> tuple[int, str, str]:
        out, err = process.communicate()
        return process.returncode, self.mask(out), self.mask(err)

    def mask(self, data: bytes) -> str:
        text = data.decode(errors="backslashreplace")
        for name, number in self.ids.items():
            text = re.sub(rf"(?<![0-9:.]){number}(?![0-9])", name.upper(), text)
        if "done" in self.ids:
            text = re.sub(r"(?<![0-9:.])7\d{5}(?![0-9])", lambda m: f"J{int(m[0]) - int(self.ids['done'])}", text)
        text = text.replace(str(self.work), "WORK")
        text = re.sub(r".*DBD_FINI\n", "", text)      # a connection that slurmdbd closed after an error
        text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", "TIME", text)
        text = re.sub(
            r"\b\d\d/\d\d/\d\d\b|\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun) \w{3} +\d+ \d\d:\d\d(:\d\d)?( \d{4})?", "TIME", text
        )
        text = re.sub(r"(\d+-)?(\d+:)+\d\d(\.\d+)?", "SPAN", text)
        text = re.sub(r"\b(1[78]\d{8})\b", "EPOCH", text)
        text = re.sub(r"records=\d+", "records=N", text)
        text = re.sub(r"(?<=[Jj]ob )\d{3,}|(?<=JobId=)\d{3,}|(?<=allocation )\d{3,}", "N", text)
        text = re.sub(r"s[0-9A-Z]{13}\b", "SLUID", text)
        text = text.replace("salloc: Waiting for resource configuration\n", "")       # said where a prolog is slow
        text = re.sub(r"(?<=on nodes )\S+|(?<=Nodes )\S+(?= are ready)", "NODES", text)
        return re.sub(r"[ -]*\n", "\n", re.sub(r" +", " ", re.sub(r"-{3,}", "---", text)))


def new_world(side: Side, readers: bool) -> None:
    """Jobs in many states, always in the same order. ``readers``: more of them, and nodes in many states."""
    for line in side.run("squeue", "-h", "-a", "-t", "all", "-o", "%A").split():
        side.run("scancel", "-Q", line)
    for name in side.run("scontrol", "show", "reservation", "-o").splitlines():
        if match := re.match(r"ReservationName=(\S+)", name):
            side.run("scontrol", "delete", f"ReservationName={match[1]}")
    side.run("scontrol", "update", "NodeName=ALL", "State=RESUME")
    for name in ("fz1", "fz2", "fz 3"):
        side.run("sacctmgr", "-iQ", "delete", "account", name)
    for name in ("fzu", "nosuch"):
        side.run("sacctmgr", "-iQ", "delete", "user", name)
    side.run("sacctmgr", "-iQ", "modify", "account", "root", "set", "RawUsage=0")
    deadline = time.monotonic() + 20
    while side.run("squeue", "-h", "-a", "-o", "%i") and time.monotonic() < deadline:
        time.sleep(0.2)

    def submit(name: str, *words: str) -> None:
        out = side.run("sbatch", "--parsable", "-J", name, "-q", "scav", "-o", "/dev/null", *words, user="alice")
        side.ids[name] = out.split(";")[0].splitlines()[0]
        if not side.ids[name].isdigit():
            raise SystemExit(f"{name}: {out}")

    side.ids = {}
    submit("done", "-w", "n1", "--wrap", "true")
    submit("fail", "-w", "n1", "--wrap", "exit 3")
    submit("run", "-w", "n1", "-n", "2", "-t", "1:00:00", "--wrap", "srun sleep 3000 & sleep 3000")
    submit("held", "-H", "-p", "gpu", "--gres=gpu:1", "--wrap", "true")
    submit("arr", "-H", "-a", "1-6%2", "--wrap", "true")
    submit("dep", "-d", f"afterok:{side.ids['run']}", "--wrap", "true")
    submit("het", "-H", "-N1", ":", "-N2", "--wrap", "true")
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        states = dict(row.split() for row in side.run("squeue", "-h", "-a", "-t", "all", "-o", "%i %T").splitlines())
        if (
            states.get(side.ids["done"]) == "COMPLETED"
            and states.get(side.ids["fail"]) == "FAILED"
            and states.get(side.ids["run"]) == "RUNNING"
        ):
            break
        time.sleep(0.2)
    if readers:
        _more_states(side, submit)
    time.sleep(1)


def _seen(side: Side) -> set[tuple[str, ...]]:
    """(name, state, reason) of all jobs."""
    rows = side.run("squeue", "-ha", "-t", "all", "-o", "%j|%T|%r").splitlines()
    return {tuple(row.split("|")) for row in rows}


def _more_states(side: Side, submit: Callable[..., None]) -> None:
    submit("susp", "-w", "n2", "--wrap", "sleep 3000")
    submit("again", "-w", "n1", "--wrap", "exit 101")
    submit("special", "-w", "n1", "--wrap", "exit 102")
    submit("killed", "-w", "n2", "--wrap", "sleep 3000")
    deadline = time.monotonic() + 60
    ran = {("again", "PENDING", "BeginTime"), ("special", "SPECIAL_EXIT", "JobHeldUser"), ("killed", "RUNNING", "None")}
    while not ran <= _seen(side) and time.monotonic() < deadline:
        time.sleep(0.2)
    side.run("scontrol", "update", f"JobId={side.ids['again']}", "StartTime=now+10hours")
    submit("never", "-d", f"afterok:{side.ids['fail']}", "--wrap", "true")
    submit("later", "--begin=now+10hours", "--wrap", "true")
    submit("resources", "-w", "n1", "-N1", "-n", "32", "--wrap", "true")
    submit("behind", "-w", "n1", "-N1", "-n", "32", "-t", "10", "--wrap", "true")
    submit("hetrun", "-w", "n3", ":", "-w", "n4", "-n", "2", "--wrap", "sleep 3000")
    submit(
        "rich",
        *shlex.split(
            "-H -p gpu,all --comment 'a b' --nice=50 -C intel --prefer=ib --tmp=100 --mincpus=2 --ntasks-per-node=1 "
            "-N1-2 -c2 --exclusive --deadline=2031-01-01 -e /tmp/x.%j -i /dev/null --switches=1@10:00 --signal=USR1@60 "
            "--wckey=k1 --time-min=5 -t 90 --requeue -m block --mem=2G -x n4 --gpus-per-node=1 --mem-bind=local"
        ),
        "--wrap",
        "true",
    )
    submit("killedwaiting", "-H", "--wrap", "true")
    side.run("scancel", side.ids["killedwaiting"])
    running = {("susp", "RUNNING", "None"), ("hetrun", "RUNNING", "None")}
    while not running <= _seen(side) and time.monotonic() < deadline:
        time.sleep(0.2)
    time.sleep(1.5)                           # what is submitted last is last also by the second
    submit("throttled", "-a", "3,5-9:2%1", "-w", "n3", "--wrap", "sleep 3000")
    while ("throttled", "PENDING", "JobArrayTaskLimit") not in _seen(side) and time.monotonic() < deadline:
        time.sleep(0.2)
    side.run("scontrol", "suspend", side.ids["susp"])
    side.run("scancel", side.ids["killed"])
    for name, state in (("n[2,6]", "DRAIN"), ("n5", "FAIL")):
        side.run("scontrol", "update", f"NodeName={name}", f"State={state}", f"Reason=broken {state}")
    side.run("scontrol", "update", "NodeName=n6", "Comment=a comment", "Extra=an extra", "Weight=7")
    side.run("scontrol", "update", "NodeName=n5", "ActiveFeatures=amd")
    side.run("scontrol", "create", *"reservation=r1 Nodes=n4 StartTime=now Duration=10:00:00 Users=root".split())
    side.run("scontrol", "update", "NodeName=n6", "ActiveFeatures=ib,rome")
    time.sleep(4)
