"""Puts the same random command lines to slurmbridge and to a real Slurm 25.11, and prints where they differ.

    .venv/bin/python tests/tools/differ.py --lab /tmp/lab-x --netns lab-x [--seed 1] [--count 500] COMMAND…

The lab (``shared/slurm-lab``) must be up and seeded; slurmbridge starts on the lab's own slurm.conf with the local
engine. Exit code, standard output and standard error are compared, with times, job ids and blanks masked. A line a
difference: the words, then what each side said. ``--only N`` puts the N-th line of the seed alone.
"""

from __future__ import annotations

import argparse
import os
import pwd
import random
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(Path(__file__).parent)]

import lines  # noqa: E402
import verb_lines  # noqa: E402
from sites import BIN  # noqa: E402

WORK = Path("/tmp/differ-work")
LIMIT_S = 20
MUTATING = {"scancel", "scontrol", "sacctmgr", "sbatch", "srun", "salloc"}


class Side:
    """One of the two: runs commands, and knows by which ids its world's jobs go."""

    def __init__(self, prefix: list[str], env: dict[str, str]) -> None:
        self.prefix, self.env = prefix, env
        self.ids: dict[str, str] = {}

    def start(self, words: list[str], user: str, env: dict[str, str]) -> subprocess.Popen[bytes]:
        who = pwd.getpwnam(user)
        as_user = (
            [] if user == "root" else ["setpriv", f"--reuid={who.pw_uid}", f"--regid={who.pw_gid}", "--init-groups"]
        )
        return subprocess.Popen(
            [*self.prefix, *as_user, "timeout", "-k", "1", str(LIMIT_S), *self.fill(words)],
            cwd=WORK,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**self.env, "USER": user, "HOME": str(WORK), **env},
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


def new_world(side: Side) -> None:
    """Jobs in many states, always in the same order."""
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

    side.ids = {}
    submit("done", "--wrap", "true")
    submit("fail", "--wrap", "exit 3")
    submit("run", "-n", "2", "-t", "1:00:00", "--wrap", "srun sleep 3000 & sleep 3000")
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
    time.sleep(1)


ENVIRONMENT = {
    "squeue": {
        "SQUEUE_FORMAT": "%i %j",
        "SQUEUE_STATES": "all",
        "SQUEUE_USERS": "nosuch",
        "SQUEUE_SORT": "x",
        "SQUEUE_FORMAT2": "jobid,nosuch",
        "SQUEUE_PARTITION": "gpu",
        "SLURM_CLUSTERS": "nosuch",
        "SQUEUE_ALL": "1",
        "SLURM_TIME_FORMAT": "%s",
        "SQUEUE_ARRAY": "",
        "SQUEUE_LICENSES": "x",
        "SQUEUE_QOS": "nosuch",
    },
    "sinfo": {
        "SINFO_FORMAT": "%n %z",
        "SINFO_PARTITION": "gpu",
        "SINFO_SORT": "x",
        "SINFO_ALL": "1",
        "SLURM_CLUSTERS": "nosuch",
        "SLURM_TIME_FORMAT": "relative",
    },
    "sacct": {
        "SACCT_FORMAT": "jobid,nosuch",
        "SLURM_TIME_FORMAT": "%s",
        "SLURM_BITSTR_LEN": "3",
        "SLURM_CLUSTERS": "x",
    },
    "sprio": {"SPRIO_FORMAT": "%i", "SLURM_CLUSTERS": "nosuch"},
    "scancel": {"SCANCEL_ACCOUNT": "nosuch", "SCANCEL_STATE": "x", "SCANCEL_VERBOSE": "1", "SCANCEL_USER": "bob"},
    "sbatch": {
        "SBATCH_TIMELIMIT": "x",
        "SBATCH_PARTITION": "gpu",
        "SBATCH_QOS": "nosuch",
        "SLURM_CLUSTERS": "nosuch",
        "SBATCH_MEM_PER_CPU": "x",
        "SBATCH_EXCLUSIVE": "x",
        "SBATCH_NO_REQUEUE": "1",
    },
    "srun": {"SLURM_NTASKS": "x", "SLURM_TIMELIMIT": "x", "SLURM_NNODES": "2", "SRUN_EXPORT_ENV": "NONE"},
    "scontrol": {"SCONTROL_ALL": "1", "SLURM_CLUSTERS": "nosuch", "SLURM_TIME_FORMAT": "%s"},
}


def line_of(command: str, rng: random.Random) -> tuple[list[str], str, dict[str, str]]:
    maker = {
        "scontrol": verb_lines.scontrol_line,
        "sacctmgr": verb_lines.sacctmgr_line,
        "sreport": verb_lines.sreport_line,
    }.get(command)
    if maker:
        words = maker(rng)
    elif command in ("sbatch", "srun", "salloc"):
        words = verb_lines.submission_line(command, rng)
    else:
        words = lines.option_line(command, rng)
    user = rng.choice(["root", "root", "alice"])
    env = {}
    if command in ENVIRONMENT and rng.random() < 0.1:
        name = rng.choice(list(ENVIRONMENT[command]))
        env[name] = ENVIRONMENT[command][name]
    return words, user, env


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commands", nargs="+")
    parser.add_argument("--lab", required=True, type=Path)
    parser.add_argument("--netns", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--only", type=int)
    parser.add_argument(
        "--state", type=Path, default=Path("/tmp/differ-state"), help="slurmbridge's; reused when it serves"
    )
    parser.add_argument("--keep", action="store_true", help="leave slurmbridge running")
    args = parser.parse_args()
    WORK.mkdir(exist_ok=True)
    WORK.chmod(0o777)
    lab_env = {
        "PATH": f"{os.environ.get('LAB_PREFIX', '/opt/slurm2511')}/bin:/usr/bin:/bin",
        "SLURM_CONF": f"{args.lab}/etc/slurm.conf",
        "LANG": "C.UTF-8",
        "MUNGE_SOCKET": f"{args.lab}/run/munge.socket.2",
        "LD_PRELOAD": f"{args.lab}/bin/nodelay.so",
        "LAB_FAST": "1",
        "TZ": "UTC",
    }
    our_env = {
        "PATH": f"{BIN}:/usr/bin:/bin",
        "SLURMBRIDGE_URL": f"unix://{args.state}/slurmbridge.sock",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
    }
    lab, ours = Side(["nsenter", f"--net=/run/netns/{args.netns}"], lab_env), Side([], our_env)
    if not (args.state / "slurmbridge.sock").exists():
        up = subprocess.run(
            [BIN / "slurmbridge", "up", "--state", args.state, "--slurm-conf", args.lab / "etc/slurm.conf"],
            capture_output=True,
            text=True,
            check=False,
        )
        if up.returncode:
            sys.exit(up.stderr)
        seed(args.lab, args.state, our_env)
    try:
        compare(args, lab, ours)
    finally:
        if not args.keep:
            subprocess.run([BIN / "slurmbridge", "down", "--state", args.state], check=False, capture_output=True)
            shutil.rmtree(args.state, ignore_errors=True)


def seed(lab: Path, state: Path, env: dict[str, str]) -> None:
    """The lab's accounts, users and QOSes, by the lab's own script on our commands."""
    folder = state / "seeding"
    folder.mkdir()
    (folder / "lab.env").write_text(f"LAB={lab}\n")
    shutil.copy(lab / "seed.sh", folder)
    subprocess.run(["bash", folder / "seed.sh"], env={**env, "HOME": "/root"}, check=True, capture_output=True)


def _first_difference(one: object, other: object) -> str:
    """The first line that the other has not in this place, and how many lines there are."""
    if not isinstance(one, str) or not isinstance(other, str):
        return str(one)
    mine, theirs = one.split("\n"), other.split("\n")
    at = next((n for n, line in enumerate(mine) if n >= len(theirs) or line != theirs[n]), len(mine) - 1)
    return f"[{at}/{len(mine)}] {mine[at]!r:.300}"


def _unordered(said: tuple[int, str, str]) -> tuple[int, list[str], str]:
    """sinfo asks for its partitions by threads: rows that its order does not tell apart come as they come."""
    return said[0], sorted(said[1].splitlines()), said[2]


def compare(args: argparse.Namespace, lab: Side, ours: Side) -> None:
    rng = random.Random(args.seed)
    differing = done = 0
    since_new = None
    began = time.monotonic()
    for number in range(args.count):
        command = rng.choice(args.commands)
        words, user, env = line_of(command, random.Random(rng.random()))
        if args.only is not None and number != args.only:
            continue
        if since_new is None or (since_new >= 50 and command in MUTATING):
            for side in (lab, ours):
                new_world(side)
            since_new = 0
        since_new += 1
        done += 1
        pair = [side.start(words, user, env) for side in (lab, ours)]
        want, got = [side.said(process) for side, process in zip((lab, ours), pair)]
        if want == got or (command == "sinfo" and _unordered(want) == _unordered(got)):
            continue
        differing += 1
        print(f"\n#{number} {user} {' '.join(f'{k}={shlex.quote(v)}' for k, v in env.items())} {shlex.join(words)}")
        for name, one, other in zip(("rc", "out", "err"), want, got):
            if one != other:
                print(f"  {name} lab : {_first_difference(one, other)}\n  {name} ours: {_first_difference(other, one)}")
        sys.stdout.flush()
    print(f"\n{differing} of {done} lines differ, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
