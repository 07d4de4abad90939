"""Records scenes (tests/data/scenes) with a real Slurm: record_scenes.py LAB SCRIPT OUT.jsonl [NAME…], run where the
lab can be reached (lab run python3 …).

SCRIPT has one scene after another; each begins with "== NAME". Lines: "conf KEY=VALUE" (more of slurm.conf), "dbd
KEY=VALUE" (more of slurmdbd.conf), "wait SECONDS" (for what the next look shows), "stay SECONDS"
(what the look before showed stays), "read [FIELD…]" (a look at all jobs, with more fields of scontrol),
"[as USER] COMMAND…"; of "USER sbatch …" the rest is submitted by root for that user with an explicit priority, later
ones lower, unless one is given. Each scene begins on a fresh lab with the database as it was seeded.
"""
from __future__ import annotations

import json
import os
import pwd
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

KEEP = ("JobState Reason NumNodes NumCPUs QOS Account Partition Dependency Restarts ArrayTaskId ExitCode Reservation "
        "ReqTRES AllocTRES TimeLimit").split()
USERS = ("alice", "bob", "dana", "liam", "gina", "ivan")
ACCOUNTS = {"alice": "phys_qcd", "bob": "phys_qcd", "dana": "phys_astro", "liam": "eng_ml",
            "gina": "bio_seq", "ivan": "bio_img"}
SCHEDULER = "SchedulerParameters=bf_interval=2,bf_window=1440,bf_continue,sched_interval=2,bf_resolution=60"
FIRST_PRIORITY, STEP = 9000, 100


def scripts(text: str) -> list[tuple[str, list[str]]]:
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("== "):
            found.append((line[3:].strip(), []))
        elif line and not line.startswith("#"):
            found[-1][1].append(line)
    return found


def merged(text: str, more: list[str]) -> str:
    """slurm.conf with more lines, which replace those of the same key ("-KEY" takes one away)."""
    keys = tuple(one.partition("=")[0].removeprefix("-") + "=" for one in more
                 if not one.startswith(("PartitionName", "NodeName")))
    kept = [line for line in text.splitlines() if not line.startswith(keys)] if keys else text.splitlines()
    return "\n".join([*kept, *(one for one in more if not one.startswith("-"))]) + "\n"


class Lab:
    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self.env = dict(os.environ)
        self.sql = ["mariadb", "--no-defaults", f"--socket={folder}/run/mysql.sock", "-uroot"]

    def shell(self, text: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["bash", "-c", f"cd {self.folder}; . ./lab.env; {text}"], text=True, env=self.env,
                              capture_output=True, stdin=subprocess.DEVNULL, timeout=120, **options)

    def run(self, *words: str, user: str | None = None) -> subprocess.CompletedProcess[str]:
        entry = pwd.getpwnam(user) if user else None
        identity = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []} if entry else {}
        return subprocess.run(list(words), text=True, capture_output=True, env=self.env, cwd="/tmp",
                              stdin=subprocess.DEVNULL, timeout=120, **identity)  # type: ignore[call-overload]

    def fresh(self, conf: list[str], dbd: list[str]) -> None:
        """No jobs, the seeded database, this configuration."""
        self.run("scancel", "-f", *(name for user in USERS for name in ("-u", user)))
        for user in USERS:
            self.run("scancel", "-f", "-u", user)
        end = time.time() + 20
        while self.run("squeue", "-h", "-a").stdout.strip() and time.time() < end:
            time.sleep(0.2)
        dump, plain = self.folder / "seeded.sql", self.folder / "etc/slurm.conf.plain"
        plain_dbd = self.folder / "etc/slurmdbd.conf.plain"
        if not plain.exists():
            plain.write_text("FirstJobId=700001\n" + re.sub(
                r"SchedulerParameters=.*", SCHEDULER, (self.folder / "etc/slurm.conf").read_text()))
            plain_dbd.write_text((self.folder / "etc/slurmdbd.conf").read_text())
            self.shell(f"mariadb-dump --no-defaults --socket=run/mysql.sock -uroot slurm_acct_db > {dump}")
        (self.folder / "etc/slurm.conf").write_text(merged(plain.read_text(), conf))
        path = self.folder / "etc/slurmdbd.conf"
        path.write_text(plain_dbd.read_text() + "".join(line + "\n" for line in dbd))
        done = self.shell(
            "bash ./ctld.sh stop; p=$(cat run/slurmdbd.pid); kill $p; while kill -0 $p 2>/dev/null && "
            "! grep -q Z /proc/$p/stat; do sleep .02; done; rm -f run/slurmdbd.pid; "
            f"{' '.join(self.sql)} slurm_acct_db < {dump} && rm -rf state/ctld && mkdir -p state/ctld && "
            "$DBD && waitfor 30 sacctmgr -n show cluster && $CTLD -i && "
            "waitfor 30 sh -c 'scontrol ping | grep -q \" is UP\"' && "
            "waitfor 30 sh -c '[ $(sinfo -h -N -p all -t idle -o %N | wc -l) = 8 ]'")
        if done.returncode:
            raise SystemExit(f"fresh: {done.stderr[-500:]}")
        time.sleep(0.5)


class Recorder:
    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.names: dict[str, str] = {}
        self.priority = FIRST_PRIORITY

    def mask(self, text: str) -> str:
        text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", "TIME", text)
        for number, name in self.names.items():
            text = re.sub(rf"(?<![0-9]){number}(?![0-9])", name, text)
        return text

    def act(self, line: str) -> dict[str, Any]:
        words = shlex.split(line)
        if words[0] == "wait":
            time.sleep(float(words[1]))
            return {"wait": float(words[1]) if "." in words[1] else int(words[1])}
        if words[0] == "stay":
            time.sleep(float(words[1]))
            return {"wait": float(words[1]), "stay": True}
        if words[0] == "read":
            return self.read(words[1:])
        user = None
        if words[0] == "as":
            user, words = words[1], words[2:]
        elif words[0] in USERS:
            words = ["sbatch", "--parsable", f"--uid={words[0]}", *words[2:]]
            if not any(word.startswith("--priority") for word in words):
                words.insert(3, f"--priority={self.priority}")
                self.priority -= STEP
            if "-A" not in words:
                words[4:4] = ["-A", ACCOUNTS[words[2].partition("=")[2]]]
            if not any(word.startswith(("--wrap", "/")) for word in words):
                words += ["--wrap", "sleep 3000"]
            words[4:4] = ["-o", "/dev/null", "-D", "/tmp"]
        elif words[0] == "sacctmgr":
            words.insert(1, "-iQ")
        numbers = {name: job for job, name in self.names.items()}
        argv = [re.sub(r"JOB\d+", lambda m: numbers.get(m.group(), m.group()), word) for word in words]
        done = self.lab.run(*argv, user=user)
        if argv[0] == "sbatch" and done.stdout.strip().isdigit():
            self.names[done.stdout.strip()] = f"JOB{len(self.names) + 1}"
        act: dict[str, Any] = {"do": words, "rc": done.returncode, "stderr": self.mask(done.stderr)}
        if user:
            act["as"] = user
        if "show" in words or words[0] in ("squeue", "sprio", "sshare", "sinfo"):
            act["stdout"] = self.mask(done.stdout)
        return act

    def read(self, more: list[str]) -> dict[str, Any]:
        rows = []
        for line in self.lab.run("scontrol", "show", "job", "-o").stdout.splitlines():
            row = dict(re.findall(r"(\S+?)=(.*?)(?= \S+?=|$)", line))
            name = self.names.get(row.get("ArrayJobId") or row.get("HetJobId") or row.get("JobId", ""))
            if name:
                fields = [*KEEP, "HetJobOffset", *more, *(["NodeList"] if row["JobState"] == "RUNNING" else [])]
                rows.append({"job": name, **{key: self.mask(row[key]) for key in fields if key in row}})
        rows.sort(key=lambda row: (int(row["job"][3:]), row.get("ArrayTaskId", ""), row.get("HetJobOffset", "")))
        lines = self.lab.run("squeue", "-h", "-a", "-o", "%i|%T|%r|%D|%C|%q|%E").stdout.splitlines()
        queue = sorted(self.mask(line.strip()) for line in lines)
        return {"read": True, "jobs": rows, "squeue": queue}


def main(folder: str, script: str, out: str, *only: str) -> None:
    lab = Lab(folder)
    known = {json.loads(line)["seed"] for line in Path(out).read_text().splitlines()} if Path(out).exists() else set()
    for name, lines in scripts(Path(script).read_text()):
        if (only and name not in only) or (not only and name in known):
            continue
        conf = [line[5:] for line in lines if line.startswith("conf ")]
        dbd = [line[4:] for line in lines if line.startswith("dbd ")]
        lab.fresh(conf, dbd)
        recorder = Recorder(lab)
        acts = [recorder.act(line) for line in lines if not line.startswith(("conf ", "dbd "))]
        scene: dict[str, Any] = {"kind": name.partition("-")[0], "seed": name, "acts": acts}
        if conf:
            scene["conf"] = "".join(line + "\n" for line in conf)
        kept = [line for line in (Path(out).read_text().splitlines() if Path(out).exists() else [])
                if json.loads(line)["seed"] != name]
        Path(out).write_text("\n".join([*kept, json.dumps(scene)]) + "\n")
        print(name, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
