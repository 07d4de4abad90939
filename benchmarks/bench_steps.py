#!/usr/bin/env python3
"""Steps: fan-out of one srun, many sruns at once, an array of `true`; beside a real Slurm with ``--lab DIR``.

Both sides run at the same time and are measured in turn. Fan-out is measured on 64 virtual nodes of slurmbridge's
alone, in CPU time of all its processes where a cpuacct group (cgroup v1) tells it, since other work on the machine then
changes little, and beside what cannot be less: the compiled starter alone, which forks and executes 256 times `true`.
"""
from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from side_by_side import Comparison
from sides import BIN, Bridge, Lab, Side

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from slurmbridge.runtime import execution, processes

LIMIT_S = 600
WIDE = """ClusterName=wide
SlurmctldHost=localhost
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
NodeName=v[1-64] CPUs=4 RealMemory=4000
PartitionName=all Nodes=ALL Default=YES DefMemPerCPU=100
"""
TASKS = (16, 64, 256)


def script_times(side: Side, body: str, *argv: str) -> list[list[float]]:
    """Runs a batch script, whose output lines are numbers."""
    with tempfile.TemporaryDirectory(prefix="bench-steps-") as name:
        folder = Path(name)
        folder.chmod(0o777)
        (folder / "script").write_text(f"#!/bin/bash\n{body}")
        side.call("sbatch", "-W", "-D", name, "-o", f"{name}/out", "-e", "/dev/null", *argv, f"{name}/script")
        return [[float(word) for word in line.split()] for line in (folder / "out").read_text().splitlines()]


def timed_ms(side: Side, act: str, *argv: str) -> float:
    return script_times(side, f"begin=$(date +%s%N)\n{act}\necho $(( $(date +%s%N) - begin ))\n", *argv)[0][0] / 1e6


def array_rate(side: Side, tasks: int) -> float:
    """Tasks a second, from the submission of an array of `true` until it is gone from squeue."""
    began = time.perf_counter()
    side.call("sbatch", "-n1", "--mem=1", "-t1", "-o", "/dev/null", "-a", f"1-{tasks}", "--wrap", "true")
    while side.call("squeue", "-h", "-o", "%i").stdout.strip() and time.perf_counter() - began < LIMIT_S:
        time.sleep(0.2)
    return tasks / (time.perf_counter() - began)


def beside(sides: list[Side], rounds: int, sruns: int, tasks: int) -> None:
    comparison = Comparison(sides, rounds)
    comparison.each("fan", lambda side: timed_ms(side, "srun -n64 true", "-N6", "-n64", "-t5"))
    many = f"for i in $(seq {sruns}); do srun -n1 --exact --mem=1 true & done; wait"
    comparison.each("many", lambda side: timed_ms(side, many, "-N1", "-n16", "-t10"))
    comparison.each("array", lambda side: array_rate(side, tasks), 1)
    comparison.row("fan", "srun -N6 -n64 true, in a job", "ms")
    comparison.row("many", f"{sruns} sruns at once on 16 CPUs, in a job", "ms")
    comparison.row("array", f"array of {tasks} `true`, from start to finish", "/s", higher=True)


@contextlib.contextmanager
def cpu_group() -> Iterator[Path | None]:
    """A file with the CPU time (ns) of this process and all that it starts from now on; None without cpuacct."""
    group = Path(f"/sys/fs/cgroup/cpuacct/bench-steps-{os.getpid()}")
    try:
        group.mkdir()
        (group / "cgroup.procs").write_text(str(os.getpid()))
    except OSError:
        yield None
        return
    try:
        yield group / "cpuacct.usage"
    finally:
        (group.parent / "cgroup.procs").write_text(str(os.getpid()))
        with contextlib.suppress(OSError):
            group.rmdir()


def starter_alone(usage: Path | None, count: int) -> tuple[float, float]:
    """(CPU ms, ms) of the starter that forks and executes so many times `true`, and of waiting for them."""
    with open("/dev/null", "r+b") as null:
        fds = [os.dup(null.fileno()) for _ in range(3)]
    env = execution.encoded({f"SLURM_VARIABLE_{number}": "of usual length" for number in range(100)}
                            | {"PATH": "/usr/bin:/bin"})
    one = execution.Command("true", ["true"], env, "/tmp", *fds)
    before_ns, began = int(usage.read_text()) if usage else 0, time.perf_counter()
    for pid in execution.start_all([one] * count):
        os.waitpid(pid, 0)
    took_s = time.perf_counter() - began
    for fd in fds:
        os.close(fd)
    return (int(usage.read_text()) - before_ns) / 1e6 if usage else 0.0, took_s * 1000


def fan_out(rounds: int) -> None:
    with cpu_group() as usage:
        processes.become_subreaper()
        execution.find_starter()
        if not execution.kept_descriptors():
            sys.exit("the starter is not built: make install")
        floors = [starter_alone(usage, TASKS[-1]) for _ in range(rounds)]
        bridge = Bridge("local", WIDE)
        read = f"$(cat {usage})" if usage else "0"
        body = "srun -n64 true\n" + f"for round in $(seq {rounds}); do for n in {' '.join(map(str, TASKS))}; do\n" \
            f"cpu={read}; begin=$(date +%s%N); srun -n$n -N$((n < 64 ? n : 64)) true\n" \
            f"end=$(date +%s%N); echo $n $(( {read} - cpu )) $(( end - begin ))\ndone; done\n"
        try:
            rows = script_times(bridge, body, "-N64", "-n256")
        finally:
            bridge.stop()
    print(f"{'fan-out on 64 virtual nodes':<46} {'CPU':>12} {'clock':>12}")
    for name, pairs in [*((f"srun -n{n} true", [(row[1] / 1e6, row[2] / 1e6) for row in rows if row[0] == n])
                          for n in TASKS), (f"{TASKS[-1]} times fork and exec of true alone", floors)]:
        cpu_ms, clock_ms = (statistics.median(column) for column in zip(*pairs))
        print(f"{name:<46} {cpu_ms:>9.1f} ms {clock_ms:>9.1f} ms", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lab", type=Path, help="folder with the lab script of a real Slurm")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sruns", type=int, default=200)
    parser.add_argument("--tasks", type=int, default=1000)
    options = parser.parse_args()
    print(f"{BIN}; load {os.getloadavg()[0]:.1f}")
    fan_out(options.rounds)
    sides: list[Side] = []
    try:
        if options.lab:
            sides.append(Lab(options.lab))
        sides.append(Bridge("local"))
        beside(sides, options.rounds, options.sruns, options.tasks)
    finally:
        for side in sides:
            side.stop()
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
