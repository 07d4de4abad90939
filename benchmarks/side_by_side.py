#!/usr/bin/env python3
"""slurmbridge and real Slurm side by side: the same commands, one after the other, on one machine, as ratios.

Without ``--lab`` only slurmbridge is measured. Both sides run the configuration in benchmarks/slurm.conf (the lab its
own equivalent of it: 8 virtual nodes, multifactor priorities, backfill, accounting on).
"""
from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
BIN = HERE.parent / ".venv/bin"


class Side:
    """One scheduler under test: how to call its commands, and its controller's process."""

    def __init__(self, name: str, env: dict[str, str]) -> None:
        self.name, self.env = name, env

    def call(self, *argv: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(argv, env=self.env, text=True, capture_output=True, stdin=subprocess.DEVNULL, cwd="/tmp", timeout=300)
        if check and done.returncode:
            sys.exit(f"{self.name}: {' '.join(argv)}: {done.stderr.strip()[-300:]}")
        return done

    def controller_rss_mb(self) -> float | None:
        return None

    def stop(self) -> None:
        raise NotImplementedError


class Bridge(Side):
    def __init__(self, engine: str) -> None:
        self.dir = Path(tempfile.mkdtemp(prefix="bench-"))
        self.dir.chmod(0o755)
        for name in ("slurm.conf", "gres.conf"):
            shutil.copy(HERE / name, self.dir)
        super().__init__("slurmbridge", {"PATH": f"{BIN}:/usr/bin:/bin", "HOME": str(self.dir), "LANG": "C.UTF-8"})
        up = self.call("slurmbridge", "up", "--state", str(self.dir / "state"), "--slurm-conf", str(self.dir / "slurm.conf"), "--engine", engine)
        self.url = next(word for word in up.stdout.split() if word.startswith("unix://"))
        self.env["SLURMBRIDGE_URL"] = self.url

    def controller_rss_mb(self) -> float | None:
        status = self.call("slurmbridge", "status", "--state", str(self.dir / "state")).stdout
        pid = re.search(r"pid (\d+)", status)
        if not pid:
            return None
        found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid[1]}/status").read_text())
        return int(found[1]) / 1024 if found else None

    def stop(self) -> None:
        self.call("slurmbridge", "down", "--state", str(self.dir / "state"), check=False)
        shutil.rmtree(self.dir, ignore_errors=True)


class Lab(Side):
    def __init__(self, lab: Path) -> None:
        self.lab = lab
        environment = {**os.environ, "LAB_FAST": "0", "LAB": tempfile.mkdtemp(prefix="benchlab-")}
        os.chmod(environment["LAB"], 0o755)
        self.outer = environment
        for act in (["up"], ["seed"]):
            done = subprocess.run([lab / "lab", *act], env=environment, text=True, capture_output=True)
            if done.returncode:
                sys.exit(f"lab {act[0]}: {done.stderr[-300:]}")
        inner = subprocess.run([lab / "lab", "run", "env"], env=environment, text=True, capture_output=True, check=True).stdout
        super().__init__("slurm", dict(line.split("=", 1) for line in inner.splitlines() if "=" in line))
        self.version = self.call("sbatch", "-V").stdout.strip()

    def controller_rss_mb(self) -> float | None:
        pid = (Path(self.outer["LAB"]) / "run/slurmctld.pid").read_text().strip()
        found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
        return int(found[1]) / 1024 if found else None

    def stop(self) -> None:
        subprocess.run([self.lab / "lab", "down", "--wipe"], env=self.outer, capture_output=True)
        shutil.rmtree(self.outer["LAB"], ignore_errors=True)


def rate(count: int, act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return count / (time.perf_counter() - began)


HELD = ["sbatch", "-H", "-o", "/dev/null", "-t", "1", "--wrap", "true"]


def serial_submissions(side: Side, count: int) -> float:
    return rate(count, lambda: [side.call(*HELD) for _ in range(count)])


def parallel_submissions(side: Side, count: int, submitters: int) -> float:
    def work() -> None:
        for _ in range(count // submitters):
            side.call(*HELD)

    def all_of_them() -> None:
        threads = [threading.Thread(target=work) for _ in range(submitters)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return rate(count // submitters * submitters, all_of_them)


def socket_submissions(side: Bridge, count: int, submitters: int) -> float:
    """The same request without starting a process: what a service that speaks the protocol gets (docs/protocol.md)."""
    path = side.url.removeprefix("unix://")
    body = json.dumps({"v": 1, "command": "sbatch", "argv": HELD[1:], "env": ["PATH=/usr/bin:/bin", "HOME=/tmp"], "cwd": "/tmp", "umask": 18,
                       "host": "bench", "pid": 1, "sid": 1, "rlimits": {}, "tty_columns": None, "stdin_tty": False, "credential": ""}).encode()
    frame = b"R" + struct.pack(">I", len(body)) + body

    def submit() -> None:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)
            connection.sendall(frame)
            stream = connection.makefile("rb")
            while head := stream.read(5):
                payload = stream.read(struct.unpack(">I", head[1:])[0])
                if head[:1] == b"X":
                    if payload != b"\0\0\0\0":
                        sys.exit("a submission through the socket was refused")
                    return

    def work() -> None:
        for _ in range(count // submitters):
            submit()

    def all_of_them() -> None:
        threads = [threading.Thread(target=work) for _ in range(submitters)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return rate(count // submitters * submitters, all_of_them)


def turnover(side: Side, count: int) -> float:
    """`true` jobs per second, from the first submission to the last one gone from squeue."""
    def act() -> None:
        for _ in range(count):
            side.call("sbatch", "-n1", "--mem=1", "-t", "1", "-o", "/dev/null", "--wrap", "true")
        while side.call("squeue", "-h", "-t", "PD,R,CG", "-o", "%i").stdout.strip():
            time.sleep(0.02)
    return rate(count, act)


def median_ms(side: Side, *argv: str, repeat: int = 7) -> float:
    def once() -> float:
        began = time.perf_counter()
        side.call(*argv)
        return (time.perf_counter() - began) * 1000
    return statistics.median(once() for _ in range(repeat))


def row(name: str, ours: float, theirs: float | None, unit: str, higher_is_better: bool) -> None:
    text = f"{name:<44} {ours:>10.1f} {unit:<6}"
    if theirs is not None:
        text += f" {theirs:>10.1f} {unit:<6} {(ours / theirs if higher_is_better else theirs / ours):>7.2f}x"
    print(text, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lab", type=Path, help="folder with the lab script of a real Slurm")
    parser.add_argument("--pending", type=int, default=5000)
    parser.add_argument("--jobs", type=int, default=200, help="submissions and jobs in each measurement")
    options = parser.parse_args()

    def measure(side: Side) -> dict[str, float]:
        print(f"measuring {side.name} …", file=sys.stderr, flush=True)
        out = {"serial": serial_submissions(side, options.jobs), "parallel": parallel_submissions(side, options.jobs * 2, 8)}
        side.call("scancel", "-u", "root", check=False)
        out["turnover"] = turnover(side, min(options.jobs, 100))
        out["srun_ms"] = median_ms(side, "srun", "-n1", "--mem=1", "-t1", "true")
        have = len(side.call("squeue", "-h", "-t", "PD", "-o", "%i").stdout.split())
        if isinstance(side, Bridge):
            out["socket1"] = socket_submissions(side, options.jobs * 2, 1)
            out["socket8"] = socket_submissions(side, options.jobs * 4, 8)
            have += options.jobs * 6
        parallel_submissions(side, max(0, options.pending - have), 8)
        last = side.call("squeue", "-h", "-o", "%i").stdout.split()[0]
        for name, argv in {"squeue": ["squeue"], "squeue_j": ["squeue", "-j", last], "sacct": ["sacct", "-a", "-X"], "sacct_j": ["sacct", "-j", last],
                           "sprio": ["sprio", "-l"], "sinfo": ["sinfo"]}.items():
            out[name] = median_ms(side, *argv)
        out["rss"] = side.controller_rss_mb() or 0.0
        side.stop()
        return out

    theirs = measure(Lab(options.lab)) if options.lab else {}
    ours = measure(Bridge("local"))
    print(f"{'':<44} {'slurmbridge':>17} {'Slurm' if theirs else '':>17} {'ratio' if theirs else '':>8}")
    for key, name, unit, higher in (
        ("serial", "submissions, one after another (commands)", "/s", True), ("parallel", "submissions, 8 submitters (commands)", "/s", True),
        ("turnover", "`true` jobs from start to finish", "/s", True), ("srun_ms", "srun true", "ms", False),
        ("squeue", f"squeue, {options.pending} pending", "ms", False), ("squeue_j", "squeue -j", "ms", False), ("sacct", "sacct -a -X", "ms", False),
        ("sacct_j", "sacct -j", "ms", False), ("sprio", "sprio -l", "ms", False), ("sinfo", "sinfo", "ms", False), ("rss", "controller's resident memory", "MB", False),
    ):
        row(name, ours[key], theirs.get(key), unit, higher)
    row("submissions, 1 client (socket)", ours["socket1"], theirs.get("serial"), "/s", True)
    row("submissions, 8 clients (socket)", ours["socket8"], theirs.get("parallel"), "/s", True)


if __name__ == "__main__":
    main()
