"""Plays one recorded submission on a site and collects all that came of it, with what differs from run to run masked.

A case is put to sbatch, salloc or srun in an empty directory (WORK in the recordings). It holds SETUP, which every
batch script sources first, ``t``, which most tasks run, and the case's own files; what these write under ``WORK/e`` is
what script and tasks found around them, everything else is output.
"""
from __future__ import annotations

import os
import pwd
import re
import resource
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from sites import BIN, Site

FIRST_JOB = 700001
NOFILE = 1000
"""The submitter's soft limit on open files."""
SETUP = r"""T=${SLURM_ARRAY_TASK_ID:+a$SLURM_ARRAY_TASK_ID.}; E=WORK/e/$T
cat /proc/$$/environ >${E}batch.env
{ echo "cwd=$PWD"; echo "umask=$(umask)"; echo "nofile=$(ulimit -n)"; echo "argv0=${0##*/}"
  for a; do echo "arg=$a"; done; } >${E}batch.info
case :$PATH: in :BIN:*) ;; *) export PATH=BIN:${PATH:-/usr/bin:/bin};; esac
run() { local l=$1; shift; "$@"; echo $? >$E$l.rc; echo "-- $l"; }
export SLURMBRIDGE_URL=URL
"""
TASK = r"""#!/bin/bash
# t LABEL [ACTION...]: says what the task finds, then acts
L=$1; shift; R=${SLURM_PROCID-none}
/bin/cat /proc/$$/environ >WORK/e/$L.$R.env
{ echo "cwd=$PWD"; echo "umask=$(umask)"; echo "nofile=$(ulimit -n)"
  for a; do echo "arg=$a"; done; } >WORK/e/$L.$R.info
for a; do case $a in
say) echo "$L: task $R of ${SLURM_NTASKS-none}, local ${SLURM_LOCALID-none} on ${SLURMD_NODENAME-none}";;
err) echo "$L: task $R complains" >&2;;
in) while read -r x; do echo "$L: task $R read $x"; done;;
sleep=*) /bin/sleep ${a#*=};;
exit=*) exit ${a#*=};;
only=*) a=${a#*=}; [ $R = ${a%:*} ] && exit ${a#*:};;
kill=*) kill -${a#*=} $$;;
nest=*) PATH=BIN:${PATH:-/usr/bin:/bin}; srun --overlap -n1 WORK/t ${a#*=} say
        echo "$L: nested srun ended with $?";;
esac; done; exit 0
"""
SEEN = re.compile(r"(SLURM|SBATCH_|SALLOC_|SRUN_|SLURMD_|PMI|CUDA_|GPU_DEVICE_ORDINAL|ROCR_VISIBLE|ZE_AFFINITY|OMPI_"
                  r"|PRTE_|HYDRA_|I_MPI_|(TMPDIR|HOSTNAME|ENVIRONMENT|HOME|USER|LOGNAME|SHELL|PATH)$)")
LEFT_OUT = re.compile(r"(SLURM_CONF|LANG)$|SLURMBRIDGE")
CHANCE_LINES = re.compile(r"salloc: (Job allocation \S+ has been revoked|Waiting for resource configuration)"
                          r"|srun: (Step created for|Job \S+ step creation)")
MASKED = {"SLURM_LAUNCH_NODE_IPADDR": "ADDR", "SLURM_SRUN_COMM_HOST": "ADDR", "SLURM_SRUN_COMM_PORT": "PORT",
          "SLURM_STEP_LAUNCHER_PORT": "PORT", "SLURM_TASK_PID": "PID", "SLURM_JOB_START_TIME": "TIME",
          "SLURM_SUBMIT_HOST": "HOST"}
OWN = {"FOO": "foo", "BAR": "two words", "QUUX": ""}
COLUMNS = ("JobID,JobName,Partition,Account,AllocCPUS,AllocNodes,NTasks,NNodes,State,ExitCode,DerivedExitCode,NodeList,"
           "ReqTRES,AllocTRES,Layout,SubmitLine,WorkDir,QOS")
UNENDED = ("RUNNING", "PENDING", "CONFIGURING", "COMPLETING", "SUSPENDED")
REQUEUED_AFTER_S = 3.0
"""A job that only waits after that long was requeued: it would not start again for two minutes."""


class Played:
    """One case on one site; nothing else may run there. ``run`` gives what is to be compared with the recording."""

    def __init__(self, site: Site, case: dict[str, Any]) -> None:
        self.site, self.case = site, case
        self.work = Path(tempfile.mkdtemp(prefix="je", dir="/tmp"))
        self.names: dict[str, str] = {}       # job number -> what stands for it
        entry = pwd.getpwnam(case["user"])
        self.uid, self.gid = entry.pw_uid, entry.pw_gid
        self.env = {"PATH": f"{BIN}:/usr/bin:/bin", "HOME": str(self.work), "USER": case["user"],
                    "LOGNAME": case["user"], "SHELL": "/bin/sh", "LANG": "C.UTF-8", **OWN,
                    **{name: self._put(value) for name, value in case["env"].items()}}

    def run(self) -> dict[str, Any]:
        try:
            self._write_files()
            before = self._newest()
            done = subprocess.run([self.case["command"], *map(self._put, self.case["args"])], env={
                "SLURMBRIDGE_URL": self.site.url, **self.env}, capture_output=True, cwd=self.work, timeout=40,
                stdin=subprocess.DEVNULL, preexec_fn=self._become_user, text=True, errors="replace")
            newest = self._newest()
            rows, pending = self._wait(self._job_of(done.stdout + done.stderr) or (newest if newest != before else ""))
            return self._collect(done, rows, pending)
        finally:
            shutil.rmtree(self.work, ignore_errors=True)

    # ---- before -----------------------------------------------------------------------------------------------------

    def _put(self, text: str) -> str:
        text = re.sub(r"\bWORK\b", str(self.work), re.sub(r"\bBIN\b", str(BIN), text))
        return re.sub(r"\bURL\b", self.site.url, text)

    def _write_files(self) -> None:
        os.chmod(self.work, 0o777)
        (self.work / "e").mkdir()
        os.chmod(self.work / "e", 0o777)
        files = {"SETUP": SETUP, "t": TASK, **self.case["files"]}
        if self.case["script"] is not None:
            files["job.sh"] = self.case["script"]
        for name, text in files.items():
            path = self.work / name
            path.parent.mkdir(exist_ok=True)
            os.chmod(path.parent, 0o777)
            path.write_text(self._put(text))
            path.chmod(0o755)

    def _become_user(self) -> None:
        for which, soft in ((resource.RLIMIT_NOFILE, NOFILE), (resource.RLIMIT_CORE, 0)):
            resource.setrlimit(which, (soft, resource.getrlimit(which)[1]))
        os.umask(int(self.case["umask"], 8))
        os.setgroups([self.gid])
        os.setgid(self.gid)
        os.setuid(self.uid)

    # ---- meanwhile --------------------------------------------------------------------------------------------------

    def _newest(self) -> str:
        """A refused job is not told to anybody, but it has a number."""
        return max(self.site.ok("squeue", "-h", "-t", "all", "-o", "%F").split(), key=int, default="")

    def _job_of(self, said: str) -> str:
        numbers = re.findall(r"\bjob (?:allocation )?(\d+)", said)
        for env in self._dumps().values():
            numbers += [env[name] for name in ("SLURM_ARRAY_JOB_ID", "SLURM_JOB_ID") if name in env]
        return next((number for number in numbers if number.isdigit() and int(number) >= FIRST_JOB), "")

    def _wait(self, job: str) -> tuple[list[list[str]], Any]:
        """sacct's rows once all is over. A requeued job is cancelled as soon as only it is left."""
        if not job:
            return [], None
        pending = None
        begun = time.monotonic()
        while True:
            states = [line.split("|") for line in self.site.ok(
                "squeue", "-h", "-t", "all", "-j", job, "-o", "%T|%r").splitlines()]
            if not any(state in UNENDED for state, _ in states):
                break
            assert time.monotonic() - begun < 45, states
            waiting = {reason for state, reason in states if state == "PENDING"}
            if pending is None and {state for state, _ in states} <= {"PENDING"} and (
                    time.monotonic() - begun > REQUEUED_AFTER_S):
                pending = sorted(waiting)
                self.site.ok("scancel", job)
            time.sleep(0.1)
        rows: list[list[str]] = []
        for _ in range(40):
            before, rows = rows, [line.split("\x1f") for line in self.site.ok(
                "sacct", "-P", "-n", "-D", "--delimiter=\x1f", "-j", job, "-o", "JobIDRaw," + COLUMNS).splitlines()]
            if rows == before and not any(row[9].startswith(UNENDED) for row in rows):
                break
            time.sleep(0.15)
        self._name_jobs(job, rows)
        while left := self.site.ok("squeue", "-h", "-o", "%i %T").strip():
            assert time.monotonic() - begun < 60, left
            time.sleep(0.05)
        return [row[1:] for row in rows], pending

    def _name_jobs(self, job: str, rows: list[list[str]]) -> None:
        for row in rows:
            raw, shown = row[0].partition(".")[0], row[1].partition(".")[0]
            if "_" in shown and raw != job:
                self.names[raw] = "JOBa" + shown.partition("_")[2]
            elif "+" in shown and raw != job:
                self.names[raw] = "HETID" + shown.partition("+")[2]
        self.names[job] = "ARRID" if self.case["kind"] == "array" else "JOBID"

    # ---- after ------------------------------------------------------------------------------------------------------

    def _dumps(self) -> dict[str, dict[str, str]]:
        found = {}
        for path in sorted((self.work / "e").glob("*.env")):
            entries = path.read_bytes().decode(errors="replace").split("\0")
            found[path.name[:-4]] = dict(entry.split("=", 1) for entry in entries if "=" in entry)
        return found

    def _mask(self, text: str) -> str:
        text = text.replace(str(self.work), "WORK").replace(str(BIN), "BIN")
        for number, name in self.names.items():
            text = re.sub(rf"(?<!\d){number}(?!\d)", name, text)
        text = re.sub(r"(?<!\d)7\d{5}(?!\d)", "OTHERJOB", text)
        text = re.sub(r"\S*/slurm_script\b", "slurm_script", text)
        text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?", "TIME", text)
        text = re.sub(r"(line \d+: +)\d+ ", r"\1PID ", text)
        host = re.escape(socket.gethostname().partition(".")[0])
        return re.sub(rf"\b{host}\b", "HOST", text.replace("127.0.0.1", "ADDR"))

    def _environment(self, env: dict[str, str]) -> dict[str, str]:
        asked = (self.case["script"] or "") + " ".join(self.case["args"])
        named = set(self.env) | set(re.findall(r"\b([A-Z]\w*)=", asked + "".join(self.case["files"].values())))
        found = {}
        for name, value in env.items():
            if not (SEEN.match(name) or name in named) or LEFT_OUT.match(name):
                continue
            if name in MASKED and value:
                value = MASKED[name]
            elif name == "SLURM_DISTRIBUTION" and "SLURM_STEP_ID" in env and self.case["kind"] == "het":
                value = "CHANCE"
            elif name.startswith("SLURM_RLIMIT_"):
                value = "LIMIT"
            elif name == "SLURM_JOB_END_TIME" and env.get("SLURM_JOB_START_TIME", "").isdigit() and value.isdigit():
                value = f"START+{int(value) - int(env['SLURM_JOB_START_TIME'])}"
            elif name == "PATH" and value != self.env["PATH"]:
                value = "BIN:OTHER" if value.startswith(f"{BIN}:") else "OTHER"
            elif name in ("PATH", "HOME", "SHELL"):
                value = "SUBMITTER" if value == self.env[name] else "OTHER"
            else:
                value = self._mask(value)
            found[name] = value
        return found

    def _lines(self, text: str) -> list[str]:
        """A line a task, sorted between what the script itself prints; all over where steps overlap."""
        lines: list[str] = []
        for line in self._mask(text).splitlines():
            joined = re.match(r"srun: error: (\S+): tasks? ([\d,-]+)(: .*)", line)
            if joined:
                for part in joined[2].split(","):
                    first, _, last = part.partition("-")
                    lines += [f"srun: error: {joined[1]}: task {task}{joined[3]}"
                              for task in range(int(first), int(last or first) + 1)]
            elif not CHANCE_LINES.match(line):
                lines.append(line)
        result: list[str] = []
        part: list[str] = []
        for line in lines:
            if self.case["ordered"] and re.match(r"begin$|-- s\d+$|end$", line):
                result += [*sorted(part), line]
                part = []
            else:
                part.append(line)
        return result + sorted(part)

    def _collect(self, done: subprocess.CompletedProcess[str], rows: list[list[str]], pending: Any) -> dict[str, Any]:
        own = {"SETUP", "t", "job.sh", "core", *self.case["files"]}
        files = {}
        for path in sorted(self.work.rglob("*")):
            name = str(path.relative_to(self.work))
            if path.is_file() and not name.startswith("e/") and name not in own:
                files[self._mask(name)] = self._lines(path.read_bytes().decode(errors="replace"))
        notes = {path.name: path.read_text(errors="replace") for path in (self.work / "e").iterdir()}
        return {
            "rc": done.returncode, "stdout": self._lines(done.stdout), "stderr": self._lines(done.stderr),
            "pending": pending, "files": files,
            "env": {name: self._environment(env) for name, env in self._dumps().items()},
            "info": {name[:-5]: [_limit(self._mask(line)) for line in text.splitlines()]
                     for name, text in notes.items() if name.endswith(".info")},
            "codes": {name[:-3]: int(text.strip() or -1) for name, text in notes.items() if name.endswith(".rc")},
            "sacct": [[self._mask(value) for value in row] for row in rows]}


def _limit(line: str) -> str:
    if not line.startswith("nofile="):
        return line
    value = line[7:]
    if value == str(NOFILE):
        return "nofile=SUBMITTER"
    return line if value.isdigit() and int(value) < NOFILE else "nofile=OTHER"


def unpacked(packed: dict[str, dict[str, Any]]) -> dict[str, dict[str, str]]:
    """Recorded environments are kept as differences from one another."""
    def one(name: str) -> dict[str, str]:
        entry = packed[name]
        env = dict(one(entry["like"])) if entry["like"] else {}
        for gone in entry["unset"]:
            env.pop(gone, None)
        return {**env, **entry["set"]}
    return {name: one(name) for name in packed}


def differences(want: dict[str, Any], got: dict[str, Any]) -> list[str]:
    """One line for each thing that differs."""
    found = [f"{part}: {got[part]} for {want[part]}" for part in ("rc", "stdout", "stderr", "pending")
             if got[part] != want[part]]
    for part in ("info", "codes", "files"):
        found += [f"{part} {name}: {got[part].get(name)} for {want[part].get(name)}"
                  for name in sorted({*want[part], *got[part]}) if got[part].get(name) != want[part].get(name)]
    recorded = unpacked(want["env"])
    for place in sorted({*recorded, *got["env"]}):
        a, b = recorded.get(place, {}), got["env"].get(place, {})
        found += [f"{place}: {name}={b.get(name)!r} for {a.get(name)!r}" for name in sorted({*a, *b})
                  if a.get(name) != b.get(name)]
    found += [f"sacct: {row} for {recorded_row}" for row, recorded_row in
              zip([*got["sacct"], *[None] * len(want["sacct"])], want["sacct"]) if row != recorded_row]
    return found + [f"sacct: {row} too many" for row in got["sacct"][len(want["sacct"]):]]
