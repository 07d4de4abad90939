#!/usr/bin/env python3
"""A running controller with a long queue on a large simulated cluster: what one more job costs then.

Shows submissions per second as the queue grows, how long single commands take between them while passes go on, and
memory per waiting job.
"""
from __future__ import annotations

import argparse
import random
import statistics
import threading
import time

from sides import HERE, Bridge

NODES = "NodeName=n[1-{count}] CPUs=64 Sockets=2 CoresPerSocket=32 ThreadsPerCore=1 RealMemory=256000 Feature=ib"
PARTITIONS = ("batch Nodes=ALL Default=YES MaxTime=7-0 DefaultTime=1:00:00",
              "short Nodes=ALL MaxTime=2:00:00 PriorityTier=2")


def configuration(nodes: int) -> str:
    """benchmarks/slurm.conf with as many equal nodes."""
    lines = [line for line in (HERE / "slurm.conf").read_text().splitlines()
             if not line.startswith(("NodeName=", "PartitionName=", "GresTypes", "AccountingStorageTRES"))]
    lines.append(NODES.format(count=nodes))
    lines += [f"PartitionName={partition}" for partition in PARTITIONS]
    return "\n".join(lines).replace("MaxJobCount=200000", "MaxJobCount=1000000").replace(
        ",GRES/gpu=900", "") + "\n"


def frames(bridge: Bridge, rng: random.Random) -> list[bytes]:
    """A few hundred different jobs."""
    return [bridge.frame(
        "sbatch", "-o", "/dev/null", "-t", str(rng.choice((10, 30, 60, 120))), "-p", rng.choice(("batch", "short")),
        "-N", str(rng.choice((1, 1, 1, 2, 4, 16))), f"--ntasks-per-node={rng.choice((1, 4, 16, 64))}",
        f"--mem-per-cpu={rng.choice((500, 1000, 2000))}", "--wrap", "sleep 86400") for _ in range(300)]


def fill(bridge: Bridge, count: int, jobs: list[bytes], workers: int = 8) -> float:
    """Submissions per second."""
    def work(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(count // workers):
            bridge.ask(rng.choice(jobs))
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(workers)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return count / (time.perf_counter() - began)


def latency_ms(bridge: Bridge, frame: bytes, repeat: int = 40) -> tuple[float, float]:
    """(median, worst) of single calls some time apart."""
    took = []
    for _ in range(repeat):
        began = time.perf_counter()
        bridge.ask(frame)
        took.append((time.perf_counter() - began) * 1000)
        time.sleep(0.05)
    return statistics.median(took), max(took)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--pending", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    bridge = Bridge("simulated", configuration(options.nodes))
    try:
        empty_mb = bridge.resident_mb()
        print(f"{options.nodes} nodes: {empty_mb:.0f} MB", flush=True)
        bridge.ask(bridge.frame("sbatch", "-o", "/dev/null", "-N", str(options.nodes), "--exclusive", "-t", "600",
                                "--wrap", "sleep 86400"))
        time.sleep(3)
        jobs = frames(bridge, random.Random(3))
        step = options.pending // options.steps
        for number in range(1, options.steps + 1):
            used_s = bridge.cpu_s()
            per_s = fill(bridge, step, jobs)
            cpu_ms = (bridge.cpu_s() - used_s) * 1000 / step
            used_mb = bridge.resident_mb()
            submit, look = latency_ms(bridge, jobs[0]), latency_ms(bridge, bridge.frame("squeue", "-h", "-j", "1"))
            print(f"{number * step:>8} pending: {per_s:6.0f} submissions/s ({cpu_ms:.2f} ms CPU each, with passes); "
                  f"sbatch {submit[0]:.1f} ms (worst {submit[1]:.0f}), squeue -j {look[0]:.1f} ms (worst "
                  f"{look[1]:.0f}); {used_mb:.0f} MB, {(used_mb - empty_mb) * 1024 / (number * step):.1f} KB a job",
                  flush=True)
    finally:
        bridge.stop()


if __name__ == "__main__":
    main()
