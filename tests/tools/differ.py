"""Puts the same random command lines to slurmbridge and to a real Slurm 25.11, and prints where they differ.

    .venv/bin/python tests/tools/differ.py --lab /tmp/lab-x --netns lab-x [--seed 1] [--count 500] COMMAND…

The lab (``shared/slurm-lab``) must be up and seeded; slurmbridge starts on the lab's own slurm.conf with the local
engine. Exit code, standard output and standard error are compared, with times, job ids and blanks masked. A line a
difference: the words, then what each side said. ``--only N`` puts the N-th line of the seed alone. The command
``show`` is what sacctmgr lists; without commands that change something the jobs stay as they are.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(Path(__file__).parent)]

import lines  # noqa: E402
import verb_lines  # noqa: E402
from sites import BIN  # noqa: E402
from worlds import Side, new_world  # noqa: E402

MUTATING = {"scancel", "scontrol", "sacctmgr", "sbatch", "srun", "salloc"}


ENVIRONMENT: dict[str, dict[str, str | list[str]]] = {
    "squeue": {
        "SQUEUE_FORMAT": ["%i %j", "%.5x|%Q", "%all", "", "x%", "%z %Z"],
        "SQUEUE_STATES": ["all", "", "R", "nosuch", "pd,cd"],
        "SQUEUE_USERS": ["nosuch", "alice", "", "bob,alice"],
        "SQUEUE_SORT": ["x", "", "-i", "u,-t", "b"],
        "SQUEUE_FORMAT2": ["jobid,nosuch", "jobid:5,name", "", ":", "all"],
        "SQUEUE_PARTITION": ["gpu", "", "nosuch,batch"],
        "SLURM_CLUSTERS": ["nosuch", "lab", ""],
        "SQUEUE_ALL": ["1", ""],
        "SLURM_TIME_FORMAT": ["%s", "relative", "", "standard", "%y-%m", "x"],
        "SLURM_BITSTR_LEN": ["3", "0", "-1", "x", "1000"],
        "SQUEUE_ARRAY": ["", "1"],
        "SQUEUE_LICENSES": ["x", ""],
        "SQUEUE_QOS": ["nosuch", "scav", ""],
        "SQUEUE_ACCOUNT": ["nosuch", "phys_qcd", ""],
        "SQUEUE_NAMES": ["nosuch", "run,arr", ""],
        "SQUEUE_PRIORITY": ["", "1"],
        "SQUEUE_LOCAL": [""],
        "SQUEUE_SIBLING": [""],
        "SQUEUE_FEDERATION": [""],
    },
    "sinfo": {
        "SINFO_FORMAT": ["%n %z", "%all", "", "%5.5n|%.9P", "%b %f %E"],
        "SINFO_PARTITION": ["gpu", "", "nosuch,batch"],
        "SINFO_SORT": ["x", "", "N", "-P,t", "#P"],
        "SINFO_ALL": ["1"],
        "SINFO_FUTURE": [""],
        "SINFO_LOCAL": [""],
        "SINFO_FEDERATION": [""],
        "SLURM_CLUSTERS": ["nosuch", "lab"],
        "SLURM_TIME_FORMAT": ["relative", "%s", ""],
    },
    "sacct": {
        "SACCT_FORMAT": ["jobid,nosuch", "jobid%5,state%3", "", "all", ","],
        "SLURM_TIME_FORMAT": ["%s", "relative", ""],
        "SLURM_BITSTR_LEN": ["3", "0", "x"],
        "SLURM_CLUSTERS": ["x", "lab"],
        "SACCT_FEDERATION": [""],
        "SACCT_LOCAL": [""],
    },
    "sprio": {"SPRIO_FORMAT": ["%i", "%.9Y|%u", "", "x"], "SLURM_CLUSTERS": ["nosuch", "lab"], "SPRIO_SIBLING": [""]},
    "sreport": {"SLURM_CLUSTERS": ["nosuch", "lab"], "SREPORT_CLUSTER": ["x", ""], "SREPORT_TRES": ["cpu", "x", "all"]},
    "sshare": {"SLURM_CLUSTERS": ["nosuch", "lab"], "SLURM_TIME_FORMAT": ["%s"]},
    "sacctmgr": {"SLURM_TIME_FORMAT": ["%s", "relative"], "SLURM_CLUSTERS": ["nosuch"]},
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
        "show": verb_lines.sacctmgr_show_line,
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
    command = words[0]
    if command in ENVIRONMENT and rng.random() < 0.15:
        for name in rng.sample(list(ENVIRONMENT[command]), rng.choice([1, 1, 2])):
            values = ENVIRONMENT[command][name]
            env[name] = values if isinstance(values, str) else rng.choice(values)
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
    parser.add_argument("--fields", action="store_true", help="every field in all sizes, no random lines")
    parser.add_argument("--record", type=Path, help="put the lab's answers into this file of questions (JSON lines)")
    parser.add_argument("--keep", action="store_true", help="leave slurmbridge running")
    args = parser.parse_args()
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
    work = Path(f"/tmp/differ-{os.getpid()}")
    work.mkdir()
    work.chmod(0o777)
    lab, ours = Side(["nsenter", f"--net=/run/netns/{args.netns}"], lab_env, work), Side([], our_env, work)
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
        shutil.rmtree(work, ignore_errors=True)


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
    readers = MUTATING.isdisjoint(args.commands)
    since_new = None
    began = time.monotonic()
    asked: list[tuple[list[str], str, dict[str, str]]] = []
    if args.record:
        asked = [(one["words"], one["user"], one["env"]) for one in map(json.loads, args.record.open())]
    elif args.fields:
        asked = [(words, "root", {}) for command in args.commands for words in lines.every_field(command)]
    recorded: list[dict[str, Any]] = []
    for number in range(len(asked) or args.count):
        if asked:
            words, user, env = asked[number]
            command = words[0]
        else:
            command = rng.choice(args.commands)
            words, user, env = line_of(command, random.Random(rng.random()))
            command = words[0]
        if args.only is not None and number != args.only:
            continue
        if since_new is None or (since_new >= 50 and not readers):
            for side in (lab, ours):
                new_world(side, readers)
            since_new = 0
        since_new += 1
        done += 1
        pair = [side.start(words, user, env) for side in (lab, ours)]
        want, got = [side.said(process) for side, process in zip((lab, ours), pair)]
        recorded.append({"words": words, "user": user, "env": env, **dict(zip(("rc", "out", "err"), want))})
        if want == got or (command == "sinfo" and _unordered(want) == _unordered(got)):
            continue
        differing += 1
        print(f"\n#{number} {user} {' '.join(f'{k}={shlex.quote(v)}' for k, v in env.items())} {shlex.join(words)}")
        for name, one, other in zip(("rc", "out", "err"), want, got):
            if one != other:
                print(f"  {name} lab : {_first_difference(one, other)}\n  {name} ours: {_first_difference(other, one)}")
        sys.stdout.flush()
    if args.record:
        args.record.write_text("".join(json.dumps(one) + "\n" for one in recorded))
    print(f"\n{differing} of {done} lines differ, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
