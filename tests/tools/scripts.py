"""Random batch scripts as people write them, put to slurmbridge and to a real Slurm 25.11: text, exit code, record.

    .venv/bin/python tests/tools/scripts.py --lab /tmp/lab-x --netns lab-x --url unix:///… [--seed 1] [--count 300]
        [--record FILE.jsonl]

The lab must be up and seeded, slurmbridge up on its slurm.conf with the same accounts (``differ.py --keep``).
``--record`` writes what Slurm said, as ``tests/data/submissions/scripts.jsonl.gz`` has it.
"""
from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(Path(__file__).parent)]

import verb_lines  # noqa: E402
from sites import BIN  # noqa: E402

from slurmbridge.slurm.options import OPTIONS  # noqa: E402

WORK = Path("/tmp/scripts-work")
ENVIRONMENT = [
    "SBATCH_PARTITION=gpu", "SBATCH_TIMELIMIT=10", "SBATCH_JOB_NAME=env", "SBATCH_QOS=low", "SBATCH_NODES=2",
    "SBATCH_MEM_PER_CPU=100", "SBATCH_MEM_PER_NODE=1G", "SBATCH_ACCOUNT=nosuch", "SBATCH_EXCLUSIVE=user",
    "SBATCH_CONSTRAINT=amd", "SBATCH_NO_REQUEUE=1", "SBATCH_OPEN_MODE=append", "SBATCH_GPUS=1",
    "SBATCH_ARRAY_INX=1-2", "SBATCH_COMMENT=c c", "SBATCH_SIGNAL=USR1", "SBATCH_OUTPUT=e-%j", "SBATCH_EXPORT=NONE",
    "SBATCH_CPUS_PER_TASK=2", "SLURM_CPUS_PER_TASK=3", "SBATCH_OVERCOMMIT=1", "SBATCH_HINT=nomultithread",
    "SBATCH_DISTRIBUTION=block", "SBATCH_IGNORE_PBS=1", "SBATCH_REQUEUE=1", "SBATCH_WCKEY=w",
    "SBATCH_RESERVATION=nosuch", "SBATCH_THREADS_PER_CORE=1", "SBATCH_GRES=gpu:1", "SBATCH_TIMELIMIT=x"]
GOOD = [
    "--nodes=2", "-N 2", "-N1", "-n 4", "--ntasks=3", "-c2", "--cpus-per-task 2", "--time=10", "-t 1:00:00",
    "--mem=1G", "--mem-per-cpu=500", "-p batch", "--partition=batch,debug", "-J test", '--job-name="my job"',
    "--output=o-%j.txt", "-o o.%x", "-e e-%A_%a", "--error e.txt", "--array=1-4%2", "-a 0-3", "--exclusive",
    "--gres=gpu:1 -p gpu", "--constraint=intel", '-C "intel&ib"', "--mail-type=END,FAIL", "--mail-user=a@b.c",
    "--account=phys_qcd", "-A eng_ml", "--qos=low", "--requeue", "--no-requeue", "--signal=B:USR1@60",
    "--open-mode=append", "--comment='a # b'", "--export=ALL,X=1", "--ntasks-per-node=2", "--begin=now+1hour",
    "--dependency=singleton", "-w n1", "-x n[2-3]", "--chdir=/tmp", "-D /", "--nice=10", "--licenses=x", "--tmp=10G",
    "--hint=nomultithread", "--distribution=cyclic", "--gpus=1 -p gpu", "--gpus-per-node=a100:2 --partition gpu",
    "--time-min=5 -t 10", "--use-min-nodes", "--spread-job", "--threads-per-core=1", "--deadline=now+2hours",
    "--switches=1@5", "--wckey=w", "--priority=5", "-s", "-O", "-k", "--get-user-env", "--parsable", "-Q",
    "--reservation=none", "--cpu-freq=high", "--propagate=NONE", "--contiguous", "--tasks-per-node=2", "--mincpus=2",
    "--cores-per-socket=2", "--ntasks-per-socket=1", "--ntasks-per-core=1"]
FOREIGN = [
    "#PBS -N pbsjob", "#PBS -l nodes=2:ppn=4,walltime=00:10:00", "#PBS -q gpu", "#PBS -o out.txt", "#PBS -j oe",
    "#PBS -l mem=2gb", "#PBS -A phys_qcd", "#PBS -m abe", "#PBS -V", "#PBS -l select=1:ncpus=2", "#PBS -t 1-3",
    "#BSUB -J lsf", "#BSUB -n 4", "#BSUB -W 10", "#BSUB -q batch", "#BSUB -o o.%J", "#BSUB -M 100", "#$ -N sge",
    "#OAR -l nodes=1", "#COBALT -n 2", "#MSUB -l nodes=1", "#PJM -L node=1", "#QSUB -q x"]
BODY = [
    "echo hello", "srun hostname", "module load gcc", "", "# a comment", "cd $SLURM_SUBMIT_DIR",
    "export OMP_NUM_THREADS=2", "set -e", ":", "  # indented", "trap 'x' USR1", "exit 0"]


UNWANTED = {"help", "usage", "version", "wait", "test-only", "autocomplete", "export-file", "uid", "gid", "external",
            "bbf", "hold", "clusters", "cluster", "verbose", "container", "wrap", "nodefile", "mem-bind", "hint"}
"""What would wait, or print a help text, or the machine's own names."""


def option(rng: Random) -> str:
    """One option as written: right ones, and those of verb_lines with their odd values."""
    if rng.random() < 0.75:
        return rng.choice(GOOD)
    table = [o for o in OPTIONS if o.name and "B" in o.commands and o.name not in UNWANTED]
    one = rng.choice(table)
    values = verb_lines._OPTION_VALUES.get(one.name) or ["1", "x", "", "2", "a b"]
    value = rng.choice([text for text in values if "{" not in text] or ["1"])
    name = one.name if rng.random() < 0.9 else one.name[:rng.randint(2, len(one.name))]
    if not one.argument:
        return f"--{name}"
    return f"--{name}{rng.choice(['=', '=', ' ', '  '])}{value}"


def directive(rng: Random) -> str:
    text = " ".join(option(rng) for _ in range(rng.choice([1, 1, 1, 1, 2, 3])))
    form = rng.random()
    if form < 0.62:
        return f"#SBATCH {text}"
    return rng.choice([
        f"#SBATCH\t{text}", f"#SBATCH   {text}  ", f"#SBATCH {text} # note", f"#SBATCH {text}# note", f"#SBATCH{text}",
        f"##SBATCH {text}", f"# SBATCH {text}", f" #SBATCH {text}", f"#sbatch {text}",
        f"#SBATCH {text.replace('--', '–', 1)}",
        f"#SBATCH {text.replace('-', '—', 1)}", f"#SBATCH {text};", f"#SBATCH {text}\r", f"#SBATCH '{text}'",
        f"#SBATCH {text.replace('=', ' = ', 1)}", f"#SBATCH {text} #SBATCH -n 2", "#SBATCH", "#SBATCH ", "#SBATCH #",
        f"#SBATCH\\ {text}", f"#SBATCH:{text}", f"#SBATCH {text} \\", f"#SBATCH {text.lstrip('-')}", "#SBATCH hetjob",
        f'#SBATCH "{text}', f"#SBATCH --comment=$USER {text}", f"#SBATCH {text} extra"])


def case(seed: int) -> dict[str, Any]:
    rng = Random(seed)
    lines = [rng.choice(["#!/bin/bash"] * 12 + [
        "#!/bin/sh", "#! /bin/bash", "#!/usr/bin/env python3", "#!/bin/bash -l", "", "echo first", "# no shebang",
        "\ufeff#!/bin/bash", "#!/bin/bash\r"])]
    for _ in range(rng.choice([0, 1, 1, 2, 2, 3, 4, 5])):
        lines.append(directive(rng))
    if rng.random() < 0.15:
        lines.insert(rng.randint(1, len(lines)), rng.choice(["", "# text", "\t", "date"]))
    if rng.random() < 0.15:
        prefix = rng.choice(["#PBS", "#BSUB", "#"])
        lines += rng.sample([line for line in FOREIGN if line.startswith(prefix)], k=rng.choice([1, 2, 3]))
    lines += [rng.choice(BODY) for _ in range(rng.choice([1, 2, 3]))]
    if rng.random() < 0.2:
        lines.append(directive(rng))
    script = "\n".join(lines) + rng.choice(["\n"] * 5 + [""])
    args = [word for _ in range(rng.choice([0, 0, 0, 1, 2])) for word in option(rng).split(" ")]
    variables = rng.sample(ENVIRONMENT, k=rng.choice([1, 2])) if rng.random() < 0.25 else []
    env = dict(text.split("=", 1) for text in variables)
    how = rng.choice(["file"] * 6 + ["stdin", "stdin", "wrap"])
    return {"seed": seed, "script": script, "args": [a.strip("'\"") for a in args], "env": env, "how": how,
            "user": rng.choice(["alice", "alice", "alice", "root"])}


MASKED = {"JobId", "ArrayJobId", "HetJobId", "HetJobIdSet", "SubmitTime", "LastSchedEval", "AllocNode:Sid",
          "AccrueTime", "SLUID", "EligibleTime", "StartTime", "EndTime", "Deadline", "PreemptEligibleTime",
          "ArrayTaskId"}


class Side:
    def __init__(self, prefix: list[str], env: dict[str, str]) -> None:
        self.prefix, self.env = prefix, env

    def run(self, words: list[str], user: str, env: dict[str, str], data: str = "") -> tuple[int, str, str]:
        as_user = [] if user == "root" else ["setpriv", "--reuid=alice", "--regid=100", "--init-groups"]
        done = subprocess.run(
            [*self.prefix, *as_user, "timeout", "20", *words], cwd=WORK, capture_output=True, check=False,
            input=data.encode(), env={**self.env, "USER": user, "HOME": str(WORK), **env})
        return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")

    def submit(self, one: dict[str, Any]) -> dict[str, Any]:
        """Exit code, texts and records of one case, job ids masked."""
        words = ["sbatch", "-H", *one["args"]]
        data = ""
        if one["how"] == "wrap":
            words.append(f"--wrap={one['script']}")
        elif one["how"] == "stdin":
            data = one["script"]
        else:
            words.append("job.sh")
        code, out, err = self.run(words, one["user"], one["env"], data)
        found = re.search(r"\d+", out)
        records: list[str] = []
        if found:
            shown = self.run(["scontrol", "show", "job", "-o", found[0]], "root", {})[1]
            records = [part.strip() for part in re.split(r"^(?=JobId=)", shown, flags=re.M) if part.strip()]
            self.run(["scancel", found[0]], "root", {})
        number = found[0] if found else "-"
        return {"rc": code, "stdout": re.sub(rf"\b{number}\b", "ID", out), "stderr": err, "job": records}


def fields(line: str) -> dict[str, str]:
    found = re.search(r"JobId=(\d+)", line)
    number = found[1] if found else "-"
    return {key: re.sub(rf"(?<!\d)0*{number}(?!\d)", "ID", value.strip()) for key, value in re.findall(
        r"(\S+?)=(.*?)(?= [A-Z][\w/:]*=|$)", line, flags=re.S) if key not in MASKED}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lab", required=True, type=Path)
    parser.add_argument("--netns", required=True)
    parser.add_argument("--url", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--record", type=Path)
    args = parser.parse_args()
    WORK.mkdir(exist_ok=True)
    WORK.chmod(0o777)
    lab = Side(["nsenter", f"--net=/run/netns/{args.netns}"], {
        "PATH": f"{os.environ.get('LAB_PREFIX', '/opt/slurm2511')}/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "TZ": "UTC",
        "SLURM_CONF": f"{args.lab}/etc/slurm.conf", "MUNGE_SOCKET": f"{args.lab}/run/munge.socket.2"})
    ours = Side([], {"PATH": f"{BIN}:/usr/bin:/bin", "SLURMBRIDGE_URL": args.url, "LANG": "C.UTF-8", "TZ": "UTC"})
    differing = 0
    recorded = args.record.open("a") if args.record else None
    for seed in range(args.seed, args.seed + args.count):
        one = case(seed)
        (WORK / "job.sh").write_text(one["script"])
        want, got = lab.submit(one), ours.submit(one)
        if recorded:
            recorded.write(json.dumps({**one, **want}).replace(str(WORK), "WORK") + "\n")
        wrong = [f"{key}: lab {want[key]!r:.400}\n        our {got[key]!r:.400}" for key in ("rc", "stdout", "stderr")
                 if want[key] != got[key]]
        if not wrong:
            for mine, theirs in zip(map(fields, got["job"]), map(fields, want["job"])):
                wrong += [f"{key}: lab {theirs.get(key)!r} our {mine.get(key)!r}" for key in {**theirs, **mine}
                          if theirs.get(key) != mine.get(key)]
        if wrong:
            differing += 1
            print(f"\n#{seed} {one['user']} {one['how']} {one['args']} {one['env']}\n{one['script']!r}", *wrong,
                  sep="\n    ")
            sys.stdout.flush()
    print(f"\n{differing} of {args.count} scripts differ")


if __name__ == "__main__":
    main()
