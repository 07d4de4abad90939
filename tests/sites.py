"""A running controller for tests: starts it on a state directory of its own, and calls the users' commands on it."""
from __future__ import annotations

import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import warm

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "data"
BIN = Path(sys.prefix) / "bin"
TIMEOUT_S = 60


class Site:
    """A running controller. ``url`` is its address, ``folder`` its own directory (state, slurm.conf, scratch)."""

    def __init__(self, engine: str, conf: str, conf_file: Path | None, options: Sequence[str],
                 env: Mapping[str, str], enforce: bool = False) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="sbt-", dir="/tmp"))     # short: socket paths have 107 bytes
        self.folder.chmod(0o755)
        self.state = self.folder / "state"
        self.work = self.folder / "work"
        self.work.mkdir()
        self.work.chmod(0o777)
        self.engine = engine
        self.options = list(options)
        self.is_up = False
        self.slurm_conf = self.folder / "slurm.conf"
        if conf_file is None:
            shutil.copy(DATA / "gres.conf", self.folder)
        lines = (conf_file or DATA / "slurm.conf").read_text().splitlines(keepends=True)
        kept = [line for line in lines if enforce or not line.startswith("AccountingStorageEnforce")]
        self.slurm_conf.write_text("".join(kept) + conf)
        self.url = f"unix://{self.state}/slurmbridge.sock"
        self.env = {"PATH": f"{BIN}:/usr/bin:/bin", "HOME": str(self.folder), "LANG": "C.UTF-8", "TZ": "UTC",
                    "SLURMBRIDGE_URL": self.url, **env}

    def up(self) -> None:
        """Starts the controller; on an existing state this is a restart."""
        done = self.run("slurmbridge", "up", "--state", self.state, "--slurm-conf", self.slurm_conf,
                        "--engine", self.engine, *self.options)
        assert done.returncode == 0, f"slurmbridge up: {done.stderr}{done.stdout}"
        assert self.url in done.stdout
        self.is_up = True

    def down(self) -> None:
        """Stops the controller and everything it started."""
        done = self.run("slurmbridge", "down", "--state", self.state)
        assert done.returncode == 0, f"slurmbridge down: {done.stderr}{done.stdout}"
        self.is_up = False

    def remove(self) -> None:
        """Stops it where it runs, and takes its folder away."""
        try:
            if self.is_up:
                self.down()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, *words: str | Path, user: str | None = None, env: Mapping[str, str] | None = None,
            cwd: str | Path | None = None, stdin: str | None = None, timeout_s: float = TIMEOUT_S,
            ) -> subprocess.CompletedProcess[str]:
        """Runs a command of this site, as another unix user when ``user`` is given."""
        if words[0] == "slurmbridge" and user is None and stdin is None:
            return warm.run([*map(str, words)], {**self.env, **(env or {})}, Path(cwd or self.work), timeout_s)
        identity: dict[str, object] = {}
        if user is not None:
            entry = pwd.getpwnam(user)
            identity = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
        given = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}
        return subprocess.run([str(word) for word in words], env={**self.env, **(env or {})}, cwd=cwd or self.work,
                              text=True, errors="surrogateescape", capture_output=True, timeout=timeout_s,
                              **given, **identity)  # type: ignore[call-overload]

    def ok(self, *words: str | Path, **options) -> str:  # type: ignore[no-untyped-def]
        """The standard output of a command that must succeed."""
        done = self.run(*words, **options)
        assert done.returncode == 0, f"{words}: rc {done.returncode}: {done.stderr}{done.stdout}"
        return done.stdout

    def submit(self, *words: str | Path, **options) -> int:  # type: ignore[no-untyped-def]
        """``sbatch --parsable`` with these words; the job id."""
        return int(self.ok("sbatch", "--parsable", *words, **options).split(";")[0])

    def job_field(self, job: int | str, letters: str) -> str:
        """One row of ``squeue -o`` for this job, "" when it is not known any more."""
        return self.run("squeue", "-h", "-a", "-t", "all", "-j", str(job), "-o", letters).stdout.strip()

    def wait_for(self, job: int | str, *states: str, timeout_s: float = 30) -> str:
        """Until the job (squeue's state word) is in one of these; fails when that takes too long."""
        deadline = time.monotonic() + timeout_s
        while True:
            state = self.job_field(job, "%T")
            if state and set(state.split()) <= set(states):
                return state
            assert time.monotonic() < deadline, f"job {job} is {state!r} after {timeout_s} s, not {states}"
            time.sleep(0.05)


MakeSite = Callable[..., Site]
"""The fixture ``make_site``."""
