"""Random queues put to a real Slurm: queues.py record LAB OUT.jsonl KIND FIRST_SEED COUNT [REPEATS], run where the lab
can be reached (lab run python3 …); queues.py compare FILE.jsonl… plays them with slurmbridge, without a lab.

A KIND (``KINDS``) is a configuration and a mix of options. A queue is recorded as those of shared/oracle/sched.jsonl:
all nodes drained, 6-28 jobs submitted by root as alice, one resume, a look 7.5 s later. With REPEATS each queue is
recorded so often; "answers" counts what came out differently, "chance" names the jobs that did.
"""
from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

PASSES = "bf_interval=2,bf_window=1440,bf_continue,sched_interval=2,bf_resolution=60"
SETTLE_S = 7.5
PARTITIONS = ("batch", "batch", "batch", "debug", "gpu", "long", "all")


@dataclass(frozen=True)
class Kind:
    """``conf``: lines that replace those of the same key or partition; ``substitute``: texts of slurm.conf; ``wide``:
    the share of jobs with options beyond those of the first recordings; ``extra``: options that the kind is about."""

    conf: tuple[str, ...] = ()
    substitute: tuple[tuple[str, str], ...] = ()
    parameters: str = PASSES
    gres: str | None = None
    topology: str | None = None
    partitions: tuple[str, ...] = PARTITIONS
    wide: float = 0.0
    extra: tuple[tuple[str, ...], ...] = ()


def _select(word: str, *more: str) -> Kind:
    return Kind(conf=(f"SelectTypeParameters={word}", *more), wide=0.25)


THREADS = (("CoresPerSocket=16 ThreadsPerCore=1", "CoresPerSocket=8 ThreadsPerCore=2"),)
TREE = "SwitchName=s0 Nodes=n[1-2]\nSwitchName=s1 Nodes=n[3-4]\nSwitchName=s2 Nodes=n[5-6]\n" \
       "SwitchName=s3 Nodes=g[1-2]\nSwitchName=top Switches=s[0-3]\n"
DEEP = "SwitchName=s0 Nodes=n[1,4]\nSwitchName=s1 Nodes=n[2-3]\nSwitchName=s2 Nodes=n[5-6],g2\n" \
       "SwitchName=s3 Nodes=g1\nSwitchName=t0 Switches=s[0-1]\n" \
       "SwitchName=t1 Switches=s[2-3]\nSwitchName=top Switches=t[0-1]\n"
APART = "SwitchName=s0 Nodes=n[1-3]\nSwitchName=s1 Nodes=n[4-6]\nSwitchName=s2 Nodes=g[1-2]\n" \
        "SwitchName=left Switches=s0\nSwitchName=right Switches=s[1-2]\n"
EVEN = (("Weight=100", "Weight=1"), ("Weight=90", "Weight=1"), ("Weight=20", "Weight=1"), ("Weight=10", "Weight=1"))
SWITCHES = (("--switches=1",), ("--switches=1@0",), ("--switches=2",), ("--switches=1@10:00",))
BATCH = "PartitionName=batch Nodes=n[1-6] Default=YES MaxTime=7-0 DefaultTime=1:00:00 DefMemPerCPU=1000 "
ALL = "PartitionName=all Nodes=ALL MaxTime=UNLIMITED DefMemPerCPU=1000 "
SHARE = (("--oversubscribe",), ("--exclusive",), ("--exclusive=user",), ("-s", "-n", "16"))
KINDS: dict[str, Kind] = {
    "plain": Kind(),
    "wide": Kind(wide=0.6),
    "threads": Kind(substitute=THREADS, wide=0.4, extra=(
        ("--threads-per-core=1",), ("--hint=nomultithread",), ("--ntasks-per-core=1",), ("--ntasks-per-core=2",),
        ("-B", "1:4:2"), ("--hint=compute_bound",), ("--hint=memory_bound",))),
    "cpu": _select("CR_CPU"), "cpu_memory": _select("CR_CPU_Memory"), "core": _select("CR_Core"),
    "socket": _select("CR_Socket"), "socket_memory": _select("CR_Socket_Memory"),
    "lln": _select("CR_Core_Memory,CR_LLN"), "pack": _select("CR_Core_Memory,CR_PACK_NODES"),
    "block": _select("CR_Core_Memory,CR_CORE_DEFAULT_DIST_BLOCK"),
    "one_task": Kind(conf=("SelectTypeParameters=CR_Core_Memory,CR_ONE_TASK_PER_CORE",), substitute=THREADS, wide=0.3),
    "cpu_threads": Kind(conf=("SelectTypeParameters=CR_CPU_Memory",), substitute=THREADS, wide=0.3),
    "exclusive": Kind(conf=(BATCH + "OverSubscribe=EXCLUSIVE",), wide=0.3),
    "force": Kind(conf=(BATCH + "OverSubscribe=FORCE:2",), wide=0.2, extra=SHARE),
    "yes": Kind(conf=(BATCH + "OverSubscribe=YES:2", ALL + "OverSubscribe=YES"), wide=0.2, extra=SHARE),
    "limits": Kind(conf=(BATCH + "MaxNodes=3 MinNodes=2", ALL + "MaxCPUsPerNode=24 LLN=YES",
                         "PartitionName=long Nodes=n[3-6] MaxTime=30-0 DefMemPerCPU=1000 MaxCPUsPerSocket=8",
                         "PartitionName=gpu Nodes=g[1-2] MaxTime=2-0 DefMemPerCPU=1000 DefCpuPerGPU=6 "
                         "DefMemPerGPU=20000"), wide=0.3),
    "owners": Kind(conf=(BATCH + "ExclusiveUser=YES",), wide=0.2, extra=SHARE),
    "units": Kind(conf=(BATCH + "SelectTypeParameters=CR_Socket_Memory",), wide=0.2),
    "tree": Kind(conf=("TopologyPlugin=topology/tree",), topology=TREE, extra=SWITCHES),
    "deep": Kind(conf=("TopologyPlugin=topology/tree",), topology=DEEP, substitute=EVEN, wide=0.1, extra=SWITCHES),
    "apart": Kind(conf=("TopologyPlugin=topology/tree",), topology=APART, substitute=EVEN, extra=SWITCHES),
    "optional": Kind(conf=("TopologyPlugin=topology/tree", "TopologyParam=TopoOptional"), topology=TREE,
                     extra=SWITCHES),
    "spec": Kind(conf=("AllowSpecResourcesUsage=YES",),
                 substitute=(("RealMemory=128000", "RealMemory=128000 CoreSpecCount=2 MemSpecLimit=8000"),),
                 extra=(("--core-spec=4",), ("-S", "0"), ("--core-spec=1",), ("--thread-spec=2",)), wide=0.1),
    "near": Kind(gres="NodeName=g1 Name=gpu Type=a100 File=LAB/dev/gpu[0-1] Cores=0-31\n"
                      "NodeName=g1 Name=gpu Type=a100 File=LAB/dev/gpu[2-3] Cores=32-63\n"
                      "NodeName=g2 Name=gpu Type=v100 File=LAB/dev/gpu[0-1] Cores=0-15\n",
                 partitions=("gpu", "gpu", "all"), wide=0.4,
                 extra=(("--gres-flags=enforce-binding",), ("--gres-flags=disable-binding",), ("-G", "2"),
                        ("--gpus-per-socket=1", "--sockets-per-node=2"), ("--gpus-per-task=1", "-n", "2"))),
    "types": Kind(substitute=(("Gres=gpu:a100:4", "Gres=gpu:a100:2,gpu:v100:2,fpga:3"),
                              ("GresTypes=gpu", "GresTypes=gpu,fpga")),
                  gres="NodeName=g1 Name=gpu Type=a100 File=LAB/dev/gpu[0-1]\n"
                       "NodeName=g1 Name=gpu Type=v100 File=LAB/dev/gpu[2-3]\n"
                       "NodeName=g1 Name=fpga Count=3\n"
                       "NodeName=g2 Name=gpu Type=v100 File=LAB/dev/gpu[0-1]\n",
                  partitions=("gpu", "gpu", "all"), wide=0.4,
                  extra=(("--gres=fpga:2",), ("--gres=gpu:1,fpga:1",), ("-G", "a100:1,v100:1"), ("-G", "3"),
                         ("--gpus-per-node=v100:2",), ("--gres=gpu:3",))),
    "busy": Kind(parameters=PASSES + ",bf_busy_nodes", wide=0.2),
    "short": Kind(parameters=PASSES.replace("1440", "60"), wide=0.2),
    "coarse": Kind(parameters=PASSES.replace("bf_resolution=60", "bf_resolution=600"), wide=0.2),
    "few": Kind(parameters=PASSES + ",bf_max_job_part=3,bf_max_job_start=2,bf_max_job_user=8", wide=0.2),
    "threshold": Kind(parameters=PASSES + ",bf_min_prio_reserve=5000", wide=0.2),
    "one_each": Kind(parameters=PASSES + ",bf_one_resv_per_job,bf_job_part_count_reserve=2", wide=0.2),
    "serial_last": Kind(parameters=PASSES + ",pack_serial_at_end", wide=0.2),
    "depth": Kind(parameters=PASSES + ",default_queue_depth=4,partition_job_depth=2", wide=0.2),
    "main_only": Kind(conf=("SchedulerType=sched/builtin",), wide=0.2),
}


def queue(name: str, seed: int) -> list[dict[str, Any]]:
    """The queue's jobs: arguments of sbatch and an explicit priority each."""
    rng, kind = random.Random(f"{name} {seed}"), KINDS[name]
    count = rng.randint(6, 28)
    priorities = rng.sample(range(1000, 9000), count)
    return [{"args": _args(rng, kind), "priority": priority} for priority in priorities]


def _args(rng: random.Random, kind: Kind) -> list[str]:
    partition = rng.choice(kind.partitions)
    args = ["-p", partition]
    pick, chance = rng.choice, rng.random
    if chance() < 0.45:
        args += ["-n", pick("1 2 8 16 24 32 40 48 64".split())]
    else:
        args += ["-N", pick("1 1 1 2 2 2 3 4 1-2 1-3 2-4".split())]
        form = chance()
        if form < 0.3:
            args += ["--exclusive"]
        elif form < 0.75:
            args += ["--ntasks-per-node", pick("1 4 16 32".split())]
        else:
            args += ["-n", pick("4 8 8 16".split())]
    if chance() < 0.25:
        args += ["-c", pick("2 4".split())]
    if chance() < 0.28:
        args += [pick("--mem=4G --mem=60G --mem=100G --mem-per-cpu=2G --mem-per-cpu=4G".split())]
    if chance() < (0.8 if partition == "gpu" else 0.35 if partition == "all" else 0):
        args += [pick("--gres=gpu:1 --gres=gpu:2 --gres=gpu:4 --gres=gpu:a100:2 --gres=gpu:v100:1".split())]
    if chance() < 0.15:
        args += ["-C", pick("[skylake|rome];amd;ib;intel;intel&ib;skylake|rome".split(";"))]
    if chance() < 0.15:
        args += pick([["-w", "n1"], ["-w", "n3"], ["-w", "n[1-2]"], ["-x", "n1"], ["-x", "n5"], ["-x", "n[1-3]"]])
    if chance() < kind.wide:
        args += pick(WIDE)
    if kind.extra and chance() < 0.4:
        args += pick(kind.extra)
    return [*args, "-t", pick("5 10 20 30 60 120 240 600".split())]


WIDE: Sequence[tuple[str, ...]] = (
    ("--contiguous",), ("--spread-job",), ("--use-min-nodes",), ("-O",), ("--mincpus=4",), ("--mincpus=20",),
    ("--ntasks-per-socket=2",), ("--ntasks-per-socket=8",), ("--ntasks-per-core=1",), ("--sockets-per-node=2",),
    ("--cores-per-socket=8",), ("-B", "2:8"), ("-B", "1:16"), ("-m", "block"), ("-m", "cyclic"), ("-m", "block:block"),
    ("-m", "plane=4"), ("--time-min=2",), ("--mem=0",), ("--array=0-2",), ("--array=1-6%2",), ("-G", "1"), ("-G", "2"),
    ("-G", "4"), ("-G", "v100:1"), ("--gpus-per-node=1",), ("--gpus-per-task=1",), ("--gpus-per-task=1", "-n", "2"),
    ("-G", "2", "--cpus-per-gpu=4"), ("-G", "1", "--mem-per-gpu=10G"), ("-G", "2", "--ntasks-per-gpu=2"),
    ("-C", "[intel*1&amd*1]"), ("-C", "intel*2"), ("-C", "(intel|amd)&ib"), ("-C", "[intel|amd]"),
    ("--prefer=amd",), ("--prefer=skylake",), ("-N", "1,2,4"), ("-N", "2,3"), ("--exclusive=user",),
    ("-p", "batch,long"), ("-p", "debug,batch,all"), ("--nice=50",), ("--cpus-per-task=8",), ("-n", "100"),
    ("-N", "3", "-n", "70"),
    ("--tmp=1",), ("-x", "n[2-3]"), ("-w", "n[1-4]", "-N", "2"), ("-w", "g1"), ("--gres=gpu:a100:1,gpu:v100:1",),
    ("--threads-per-core=1",), ("--deadline=now+3hours",), ("-N", "2", "-G", "3"), ("-N", "2", "--gpus-per-node=2"))


@dataclass
class Recorder:
    """A running, seeded lab."""

    folder: Path
    env: dict[str, str] = field(default_factory=lambda: {**os.environ, "TZ": "UTC"})

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(list(words), text=True, capture_output=True, env=self.env, cwd="/tmp",
                              stdin=subprocess.DEVNULL, timeout=120)

    def until(self, words: list[str], seconds: float = 90) -> None:
        """Waits until the command prints nothing."""
        end = time.time() + seconds
        while time.time() < end:
            found = self.run(*words)
            if not found.stdout.strip() and not found.returncode:
                return
            time.sleep(0.3)
        raise SystemExit(f"{words}: still {self.run(*words).stdout}")

    def clear(self) -> None:
        self.run("scancel", "-f", "-u", "alice")
        self.until(["squeue", "-h", "-a"])

    def configure(self, case: dict[str, Any]) -> None:
        """slurm.conf as it was when the lab came up, with the case's lines; all daemons read it anew."""
        self.clear()
        etc = self.folder / "etc"
        plain, gres = etc / "slurm.conf.plain", etc / "gres.conf.plain"
        if not plain.exists():
            plain.write_text((etc / "slurm.conf").read_text())
            gres.write_text((etc / "gres.conf").read_text())
        text = plain.read_text()
        for old, new in case["substitute"]:
            if old not in text:
                raise SystemExit(f"{old} is not in slurm.conf")
            text = text.replace(old, new)
        keys = tuple(line.partition("=")[0] + "=" for line in case["conf"] if not line.startswith("PartitionName"))
        partitions = tuple(line.split()[0] + " " for line in case["conf"] if line.startswith("PartitionName"))
        kept = [line for line in text.splitlines()
                if not line.startswith(keys) and not (partitions and line.startswith(partitions))]
        (etc / "slurm.conf").write_text("\n".join([*kept, *case["conf"]]) + "\n")
        (etc / "gres.conf").write_text((case["gres"] or gres.read_text()).replace("LAB/", f"{self.folder}/"))
        (etc / "topology.conf").write_text(case.get("topology", ""))
        self.run("bash", str(self.folder / "ctld.sh"), "stop")
        for file in (self.folder / "run").glob("slurmd.*.pid"):          # they and slurmctld remember devices' cores
            os.kill(int(file.read_text()), 15)
        for file in (self.folder / "state" / "ctld").glob("node_state*"):
            file.unlink()
        time.sleep(2)
        self.run("bash", str(self.folder / "ctld.sh"), "start", "--clean-jobs")
        pid = int((self.folder / "run" / "slurmctld.pid").read_text())
        os.setpriority(os.PRIO_PROCESS, pid, -15)         # passes are when they are due, however busy the machine is
        for thread in os.listdir(f"/proc/{pid}/task"):
            os.setpriority(os.PRIO_PROCESS, int(thread), -15)
        for name in NODE_NAMES:
            self.run("bash", "-c", f"cd {self.folder}; . ./lab.env; $SLURMD -N {name} -d $STEPD")
        time.sleep(1)
        self.run("scontrol", "update", f"NodeName={NODES}", "State=RESUME")
        self.until(["sinfo", "-h", "-N", "-t", "unk,down,no_respond,comp,drain", "-o", "%N"])

    def record(self, case: dict[str, Any]) -> tuple[list[dict[str, Any]], int]:
        """What becomes of each job, and the epoch second of the resume."""
        from scheduling.queue_site import fields, shown, words_of
        self.clear()
        self.run("scontrol", "update", f"NodeName={NODES}", "State=DRAIN", "Reason=case")
        out: list[dict[str, Any]] = []
        numbers = []
        for job in case["jobs"]:
            done = self.run(*words_of(job))
            numbers.append(done.stdout.strip())
            out.append({"refused": done.stderr.strip()} if done.returncode else {})
        resumed_s = int(time.time())
        self.run("scontrol", "update", f"NodeName={NODES}", "State=RESUME")
        time.sleep(SETTLE_S)
        text = self.run("scontrol", "show", "job", "-o").stdout
        records = {fields(line)["JobId"]: fields(line) for line in text.splitlines() if "JobId=" in line}
        for i, number in enumerate(numbers):
            if number:
                out[i] = shown(case["jobs"][i], records[number], resumed_s) | {
                    "scheduler": records[number].get("Scheduler", "")}
        return out, resumed_s


NODES = "n[1-6],g[1-2]"
NODE_NAMES = ("n1", "n2", "n3", "n4", "n5", "n6", "g1", "g2")


def new_case(name: str, seed: int) -> dict[str, Any]:
    kind = KINDS[name]
    case: dict[str, Any] = {"kind": name, "seed": seed,
                            "conf": [f"SchedulerParameters={kind.parameters}", *kind.conf],
                            "substitute": [list(pair) for pair in kind.substitute], "gres": kind.gres}
    if kind.topology is not None:
        case["topology"] = kind.topology
    return {**case, "jobs": queue(name, seed)}


def record(lab: str, out: str, name: str, first: int, count: int, repeats: int = 1) -> None:
    recorder = Recorder(Path(lab))
    recorder.configure(new_case(name, first))
    for seed in range(first, first + count):
        for repeat in range(repeats):
            case = new_case(name, seed)
            answers, case["resumed_s"] = recorder.record(case)
            case["repeat"] = repeat
            case["jobs"] = [job | answer for job, answer in zip(case["jobs"], answers)]
            with open(out, "a", encoding="utf-8") as file:
                file.write(json.dumps(case) + "\n")
    recorder.clear()


def compare(paths: Sequence[str]) -> None:
    from scheduling.queue_site import differences, played
    cases = [json.loads(line) for path in paths for line in Path(path).read_text().splitlines()]
    good: dict[str, list[int]] = {}
    for case in cases:
        try:
            found = differences(case, played(case))
        except Exception as error:
            found = [f"{type(error).__name__}: {error}"]
        good.setdefault(case["kind"], []).append(not found)
        if found:
            print(f"{case['kind']} {case['seed']}.{case.get('repeat', 0)}: {len(found)} of {len(case['jobs'])} jobs")
            for line in found[:8]:
                print("   ", line)
    for name, results in good.items():
        print(f"{name}: {sum(results)} of {len(results)}")


if __name__ == "__main__":
    if sys.argv[1] == "record":
        record(sys.argv[2], sys.argv[3], sys.argv[4], *map(int, sys.argv[5:]))
    else:
        compare(sys.argv[2:])
