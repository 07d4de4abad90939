"""Plays a talk: shell commands of users and administrators, one after another, in an empty directory (WORK).

The same player records a talk on a real Slurm and plays it on ours, so that what it masks is masked on both sides.
Jobs are called J0, J1, … by their numbers from the first free one on, in commands as in answers; times are TIME, the
machine is HOST, processes are PID. In commands ``await_state JOB STATE…`` waits until all of ``squeue -r``'s rows of
the job are in one of these states (in all of them, in this order, where they differ), ``await_line FILE TEXT`` until
a file has a line, ``rows JOB FIELDS`` gives sacct's rows once they do not change any more.
"""
from __future__ import annotations

import os
import pwd
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HELPERS = r"""
await_state() { # JOB STATE...
    local job=$1 n seen; shift
    for ((n = 0; n < 300; n++)); do
        seen=$(squeue -h -a -r -t all -j "$job" -o %T 2>/dev/null | sort -u)
        [ -n "$seen" ] && [[ " $* " == *" ${seen//$'\n'/ } "* ]] && return
        sleep 0.1
    done
    echo "job $job: $seen"
}
await_line() { # FILE TEXT
    local n
    for ((n = 0; n < 300; n++)); do grep -qsF -- "$2" "$1" && return; sleep 0.1; done
    echo "$1: $(cat "$1")"
}
rows() { # JOB FIELDS
    local before=x now n
    for ((n = 0; n < 50; n++)); do
        now=$(sacct -n -P -D -j "$1" -o "$2")
        [ "$now" == "$before" ] && break
        before=$now; sleep 0.3
    done
    echo "$now"
}
"""
PERSONAL = ("HOME", "USER", "LOGNAME", "SHELL")


class Player:
    """``env``: how the commands are found and find their controller (PATH included)."""

    def __init__(self, env: Mapping[str, str], users: Mapping[str, str] | None = None) -> None:
        self.env = dict(env)
        self.users = dict(users or {})        # unix users that stand for the recorded ones
        self.work = Path(tempfile.mkdtemp(prefix="talk", dir="/tmp"))
        self.work.chmod(0o777)
        config = subprocess.run(["scontrol", "show", "config"], env=self.env, text=True, capture_output=True).stdout
        self.base, self.first = (int(re.findall(rf"^{name}\s*= (\d+)", config, re.MULTILINE)[0])
                                 for name in ("FirstJobId", "NEXT_JOB_ID"))

    def close(self) -> None:
        shutil.rmtree(self.work, ignore_errors=True)

    def put(self, text: str) -> str:
        text = re.sub(r"(?<![A-Za-z0-9_])J(\d+)(?![0-9A-Za-z])", lambda match: str(self.first + int(match[1])), text)
        return re.sub(r"\bWORK\b", str(self.work), text)

    def mask(self, text: str) -> str:
        def name(match: re.Match[str]) -> str:
            offset = int(match[0]) - self.first
            return f"J{offset}" if 0 <= offset < 5000 else match[0]
        text = re.sub(r"(?<![\d.])\d{5,7}(?!\d)", name, text)
        text = text.replace(str(self.work), "WORK")
        text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?", "TIME", text)
        text = re.sub(r"\S*/slurm_script\b", "slurm_script", text)
        text = re.sub(r"(line \d+: +)\d+ ", r"\1PID ", text)
        text = re.sub(rf"\b({re.escape(socket.gethostname().partition('.')[0])}|localhost)\b", "HOST", text)
        return re.sub(r"Sid=HOST:\d+", "Sid=HOST:PID", text)

    def act(self, act: Mapping[str, Any]) -> dict[str, Any]:
        """What came of a command: ``rc``, ``out``, ``err``."""
        user = self.users.get(act["as"], act["as"])
        entry = pwd.getpwnam(user)
        env = {**self.env, "HOME": str(self.work), "USER": user, "LOGNAME": user, "SHELL": "/bin/sh"}
        identity: dict[str, Any] = {}
        if os.geteuid() == 0:
            identity = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": [entry.pw_gid]}
        done = subprocess.run(["bash", "-c", HELPERS + self.put(act["do"])], env=env, cwd=self.work, text=True,
                              capture_output=True, stdin=subprocess.DEVNULL, timeout=90, errors="replace", **identity)
        return {"rc": done.returncode, "out": self.lines(done.stdout, act), "err": self.lines(done.stderr, act)}

    def lines(self, text: str, act: Mapping[str, Any]) -> list[str]:
        lines = [line.rstrip() for line in self.mask(text).splitlines() if not self.is_of_another(line)]
        return sorted(lines) if act.get("sort") else lines

    def is_of_another(self, line: str) -> bool:
        """A row of a job that was there before."""
        number = re.match(r"\s*(\d{6,7})[+_.|\s]", line)
        return number is not None and self.base <= int(number[1]) < self.first


def play(player: Player, talk: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The talk's acts with what came of each."""
    return [{**act, **player.act(act)} for act in talk["acts"]]
