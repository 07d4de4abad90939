"""The two schedulers that the benchmarks compare: how each is started, called, weighed and stopped."""
from __future__ import annotations

import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
BIN = HERE.parent / ".venv/bin"


class Side:
    """One scheduler under test. ``env``: what its commands need."""

    def __init__(self, name: str, env: dict[str, str]) -> None:
        self.name, self.env = name, env

    def call(self, *argv: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(argv, env=self.env, text=True, capture_output=True, stdin=subprocess.DEVNULL, cwd="/tmp",
                              timeout=900)
        if check and done.returncode:
            sys.exit(f"{self.name}: {' '.join(argv)}: {done.stderr.strip()[-300:]}")
        return done

    def controller_pid(self) -> int:
        raise NotImplementedError

    def resident_mb(self) -> float:
        found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{self.controller_pid()}/status").read_text())
        return int(found[1]) / 1024 if found else 0.0

    def cpu_s(self) -> float:
        """What the controller's process has used so far: of other work on the machine it tells nothing."""
        fields = Path(f"/proc/{self.controller_pid()}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        raise NotImplementedError


class Bridge(Side):
    """slurmbridge with a configuration of its own (default: benchmarks/slurm.conf)."""

    def __init__(self, engine: str = "local", conf: str = "") -> None:
        self.dir = Path(tempfile.mkdtemp(prefix="bench-"))
        self.dir.chmod(0o755)
        for name in ("slurm.conf", "gres.conf"):
            shutil.copy(HERE / name, self.dir)
        if conf:
            (self.dir / "slurm.conf").write_text(conf)
        super().__init__("slurmbridge", {"PATH": f"{BIN}:/usr/bin:/bin", "HOME": str(self.dir), "LANG": "C.UTF-8"})
        up = self.call("slurmbridge", "up", "--state", str(self.dir / "state"), "--slurm-conf",
                       str(self.dir / "slurm.conf"), "--engine", engine)
        self.url = next(word for word in up.stdout.split() if word.startswith("unix://"))
        self.env["SLURMBRIDGE_URL"] = self.url

    def controller_pid(self) -> int:
        return int((self.dir / "state/slurmbridge.pid").read_text())

    def stop(self) -> None:
        self.call("slurmbridge", "down", "--state", str(self.dir / "state"), check=False)
        shutil.rmtree(self.dir, ignore_errors=True)

    def frame(self, command: str, *argv: str) -> bytes:
        """The request that the client would send (docs/protocol.md)."""
        body = json.dumps({
            "v": 1, "command": command, "argv": argv, "env": ["PATH=/usr/bin:/bin", "HOME=/tmp"], "cwd": "/tmp",
            "umask": 18, "host": "bench", "pid": 1, "sid": 1, "rlimits": {}, "tty_columns": None, "stdin_tty": False,
            "credential": ""}).encode()
        return b"R" + struct.pack(">I", len(body)) + body

    def ask(self, frame: bytes) -> None:
        """One command without starting a process: what a service that speaks the protocol gets."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self.url.removeprefix("unix://"))
            connection.sendall(frame)
            stream = connection.makefile("rb")
            while head := stream.read(5):
                payload = stream.read(struct.unpack(">I", head[1:])[0])
                if head[:1] == b"X":
                    if payload != b"\0\0\0\0":
                        sys.exit("a command through the socket was refused")
                    return
        sys.exit("the controller closed the connection")


class Lab(Side):
    """Real Slurm, by the lab's script."""

    def __init__(self, lab: Path) -> None:
        self.lab = lab
        environment = {**os.environ, "LAB_FAST": "0", "LAB": tempfile.mkdtemp(prefix="benchlab-")}
        os.chmod(environment["LAB"], 0o755)
        self.outer = environment
        for act in ("up", "seed"):
            done = subprocess.run([lab / "lab", act], env=environment, text=True, capture_output=True)
            if done.returncode:
                self.stop()
                sys.exit(f"lab {act}: {done.stderr[-300:]}")
        inner = subprocess.run([lab / "lab", "run", "env"], env=environment, text=True, capture_output=True,
                               check=True).stdout
        super().__init__("slurm", dict(line.split("=", 1) for line in inner.splitlines() if "=" in line))
        self.version = self.call("sbatch", "-V").stdout.strip()
        self._wait_for_nodes()

    def _wait_for_nodes(self) -> None:
        """Until jobs start: right after its own start slurmctld takes nodes for booting."""
        for _ in range(120):
            idle = self.call("sinfo", "-h", "-N", "-p", "all", "-t", "idle", "-o", "%n").stdout.split()
            if len(idle) >= 8 and self.call("srun", "-n1", "-t1", "true", check=False).returncode == 0:
                return
            time.sleep(0.5)
        self.stop()
        sys.exit("the lab's nodes do not get ready")

    def controller_pid(self) -> int:
        return int((Path(self.outer["LAB"]) / "run/slurmctld.pid").read_text())

    def cycles_ms(self) -> dict[str, float]:
        """sdiag's last main and backfill cycle, and how many jobs the latter tried."""
        text = self.call("sdiag").stdout
        main = re.search(r"Last cycle:\s+(\d+)", text)
        backfill = re.search(r"Backfilling stats.*?Last cycle:\s+(\d+).*?Last depth cycle \(try sched\):\s+(\d+)", text,
                             re.DOTALL)
        return {"main": int(main[1]) / 1000 if main else 0.0,
                "backfill": int(backfill[1]) / 1000 if backfill else 0.0,
                "tried": float(backfill[2]) if backfill else 0.0}

    def stop(self) -> None:
        subprocess.run([self.lab / "lab", "down", "--wipe"], env=self.outer, capture_output=True)
        shutil.rmtree(self.outer["LAB"], ignore_errors=True)
