#!/usr/bin/env python3
"""slurmbridge and real Slurm side by side on one machine, as ratios (above 1: slurmbridge is faster or smaller).

Both run at the same time, each with 8 virtual nodes, multifactor priorities, backfill and accounting
(benchmarks/slurm.conf and the lab's equal of it), and are measured in turn, several rounds, so that what else the
machine does meets both; the median counts. Jobs are submitted to a full cluster and wait for resources, as on a real
one. Without ``--lab`` only slurmbridge is measured. Times are of whole processes, as users meet them.
"""
from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import bench_plan
from sides import Bridge, Lab, Side

JOB = ["-n1", "--mem=1", "-o", "/dev/null", "-t", "1", "--wrap", "true"]
TURNOVER_LIMIT_S = 60
NODES = 8
Figures = dict[str, list[float]]


def rate(count: int, act: Callable[[], object], workers: int = 1) -> float:
    """``act`` so many times by so many threads: times per second."""
    def work() -> None:
        for _ in range(count // workers):
            act()
    threads = [threading.Thread(target=work) for _ in range(workers)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return count // workers * workers / (time.perf_counter() - began)


def turnover(side: Side, count: int) -> float:
    """`true` jobs per second, from the first submission to the last one gone from squeue."""
    began = time.perf_counter()
    for _ in range(count):
        side.call("sbatch", *JOB)
    while side.call("squeue", "-h", "-t", "PD,R,CG", "-o", "%i").stdout.strip():
        if time.perf_counter() - began > TURNOVER_LIMIT_S:
            print(f"{side.name}: not over after {TURNOVER_LIMIT_S} s", file=sys.stderr)
            break
        time.sleep(0.05)
    return count / (time.perf_counter() - began)


def took_ms(side: Side, *argv: str) -> float:
    began = time.perf_counter()
    side.call(*argv)
    return (time.perf_counter() - began) * 1000


def fill_cluster(side: Side) -> None:
    """Jobs of one node each hold all of them."""
    for _ in range(NODES):
        side.call("sbatch", "-p", "all", "-N1", "--exclusive", "-t", "600", "-o", "/dev/null", "--wrap", "sleep 36000")
    for _ in range(300):
        if len(side.call("squeue", "-h", "-t", "R", "-o", "%i").stdout.split()) == NODES:
            return
        time.sleep(0.1)
    sys.exit(f"{side.name}: the blocking jobs do not start")


def pending(side: Side) -> int:
    return len(side.call("squeue", "-h", "-t", "PD", "-o", "%i").stdout.split())


class Comparison:
    """Figures by name, per side, one a round."""

    def __init__(self, sides: list[Side], rounds: int) -> None:
        self.sides, self.rounds = sides, rounds
        self.figures: dict[str, Figures] = {side.name: {} for side in sides}

    def add(self, side: Side, key: str, value: float) -> None:
        self.figures[side.name].setdefault(key, []).append(value)

    def each(self, key: str, measure: Callable[[Side], float], rounds: int = 0) -> None:
        print(f"measuring {key} …", file=sys.stderr, flush=True)
        for _ in range(rounds or self.rounds):
            for side in self.sides:
                self.add(side, key, measure(side))

    def of(self, side: str, key: str) -> float | None:
        values = self.figures.get(side, {}).get(key)
        return statistics.median(values) if values else None

    def row(self, key: str, name: str, unit: str, *, higher: bool = False, theirs: str = "") -> None:
        ours, other = self.of("slurmbridge", key), self.of("slurm", theirs or key)
        if ours is None:
            return
        text = f"{name:<46} {ours:>9.1f} {unit:<5}"
        if other:
            text += f" {other:>9.1f} {unit:<5} {(ours / other if higher else other / ours):>6.2f}x"
        print(text, flush=True)


QUERIES = {"squeue": ["squeue"], "squeue -j": ["squeue", "-j", "LAST"], "sacct -a -X": ["sacct", "-a", "-X"],
           "sacct -j": ["sacct", "-j", "LAST"], "sprio -l": ["sprio", "-l"], "sinfo": ["sinfo"]}


def measure(comparison: Comparison, options: argparse.Namespace) -> None:
    bridge = next(side for side in comparison.sides if isinstance(side, Bridge))
    comparison.each("srun true", lambda side: took_ms(side, "srun", "-n1", "--mem=1", "-t1", "true"), 5)
    comparison.each("turn-over", lambda side: turnover(side, options.jobs // 5))
    for side in comparison.sides:
        fill_cluster(side)
    comparison.each("serial", lambda side: rate(options.jobs, lambda: side.call("sbatch", *JOB)))
    comparison.each("parallel", lambda side: rate(options.jobs * 2, lambda: side.call("sbatch", *JOB), 8))
    frame = bridge.frame("sbatch", *JOB)
    for _ in range(comparison.rounds):
        comparison.add(bridge, "socket 1", rate(options.jobs * 2, lambda: bridge.ask(frame)))
        comparison.add(bridge, "socket 8", rate(options.jobs * 4, lambda: bridge.ask(frame), 8))
    last: dict[str, str] = {}
    for side in comparison.sides:
        rate(max(0, options.pending - pending(side)), lambda side=side: side.call("sbatch", *JOB), 8)  # type: ignore[misc]
        last[side.name] = side.call("squeue", "-h", "-t", "PD", "-o", "%i").stdout.split()[0]
    time.sleep(3)
    for key, argv in QUERIES.items():
        comparison.each(key, lambda side, argv=argv: took_ms(  # type: ignore[misc]
            side, *(last[side.name] if word == "LAST" else word for word in argv)), 7)
    for side in comparison.sides:
        comparison.add(side, "resident", side.resident_mb())


def report(comparison: Comparison, options: argparse.Namespace) -> None:
    theirs = "Slurm" if "slurm" in comparison.figures else ""
    print(f"{'':<46} {'slurmbridge':>15} {theirs:>15} {'ratio' if theirs else '':>7}")
    comparison.row("serial", "submissions, one after another (commands)", "/s", higher=True)
    comparison.row("parallel", "submissions, 8 submitters (commands)", "/s", higher=True)
    comparison.row("socket 1", "submissions, 1 client (socket; Slurm: command)", "/s", higher=True, theirs="serial")
    comparison.row("socket 8", "submissions, 8 clients (socket; Slurm: command)", "/s", higher=True, theirs="parallel")
    comparison.row("turn-over", "`true` jobs from start to finish", "/s", higher=True)
    comparison.row("srun true", "srun true", "ms")
    for key in QUERIES:
        comparison.row(key, f"{key}, {options.pending} pending", "ms")
    comparison.row("resident", f"controller's memory, {options.pending} pending", "MB")


def passes(comparison: Comparison, lab: Lab | None) -> None:
    """Main and backfill passes: ours on clusters of three sizes, Slurm's as sdiag tells of its 8 nodes."""
    theirs = lab.cycles_ms() if lab else None
    for nodes, jobs in ((8, 5000), (8, 100_000), (1000, 5000), (1000, 100_000), (10_000, 5000), (10_000, 100_000)):
        for figure in bench_plan.measure(nodes, jobs, 3, 4):
            key = f"{figure.name}, {jobs} pending, {nodes} nodes ({figure.plan.tested} tried)"
            comparison.figures["slurmbridge"][key] = [figure.best_s * 1000]
            word = figure.name.split()[0]
            if theirs and nodes == 8 and jobs == 5000:
                comparison.figures["slurm"][key] = [theirs[word]]
            comparison.row(key, key, "ms")
    if theirs:
        print(f"(Slurm's last backfill cycle tried {theirs['tried']:.0f} jobs)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lab", type=Path, help="folder with the lab script of a real Slurm")
    parser.add_argument("--pending", type=int, default=5000)
    parser.add_argument("--jobs", type=int, default=200, help="submissions in each round of a measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-passes", action="store_true", help="commands and rates only")
    options = parser.parse_args()
    sides: list[Side] = []
    lab = None
    try:
        if options.lab:
            lab = Lab(options.lab)
            sides.append(lab)
            print(f"comparing with {lab.version}", flush=True)
        sides.append(Bridge("local"))
        comparison = Comparison(sides, options.rounds)
        measure(comparison, options)
        report(comparison, options)
        cycles = lab if lab else None
        if not options.no_passes:
            passes(comparison, cycles)
    finally:
        for side in sides:
            side.stop()


if __name__ == "__main__":
    main()
