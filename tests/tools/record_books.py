"""Records what a real Slurm's books answer: random histories, put into slurmdbd's tables, rolled up and asked about.

    .venv/bin/python tests/tools/record_books.py --lab /work/labs/x --netns lab-x --seeds 200-204 -o FILE.jsonl

The lab (``shared/slurm-lab``) must be up and seeded and is for this alone: its slurmctld is stopped and its tables are
overwritten. A preloaded ``time`` holds the clock of the commands and of slurmdbd's storage plugin at the history's
``now``. One line a history, in the form of ``tests/data/accounting_questions.jsonl.gz``.
"""

from __future__ import annotations

import argparse
import json
import os
import pwd
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import books
import books_questions

CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sys/time.h>
/* time() stands at BOOKS_NOW, where BOOKS_IN is set only for callers in objects of that name */
time_t time(time_t *at) {
    const char *now = getenv("BOOKS_NOW"), *in = getenv("BOOKS_IN"); struct timeval tv; time_t t;
    Dl_info who; int known = in && dladdr(__builtin_return_address(0), &who) && who.dli_fname;
    if (now && (!in || (known && strstr(who.dli_fname, in)))) t = atol(now);
    else { gettimeofday(&tv, NULL); t = tv.tv_sec; }
    if (at) *at = t;
    return t; }
"""
HISTORY = (
    "JobID,JobIDRaw,JobName,User,UID,GID,Group,Account,Partition,QOS,QOSREQ,WCKey,Reservation,ReservationId,ReqReservation,State,"
    "ExitCode,DerivedExitCode,Submit,Eligible,Start,End,Suspended,Timelimit,TimelimitRaw,Priority,ReqCPUS,ReqMem,ReqTRES,AllocTRES,"
    "AllocNodes,NodeList,NTasks,Layout,Flags,Restarts,Reason,Constraints,Comment,AdminComment,SystemComment,Extra,FailedNode,"
    "Licenses,McsLabel,Container,SegmentSize,WorkDir,SubmitLine,StdIn,StdOut,StdErr,UserCPU,SystemCPU,AveCPUFreq,ReqCPUFreqMin,"
    "ReqCPUFreqMax,ReqCPUFreqGov,ConsumedEnergyRaw,TRESUsageInAve,TRESUsageInMax,TRESUsageInMaxNode,TRESUsageInMaxTask,"
    "TRESUsageInMin,TRESUsageInMinNode,TRESUsageInMinTask,TRESUsageInTot,TRESUsageOutAve,TRESUsageOutMax,TRESUsageOutMaxNode,"
    "TRESUsageOutMaxTask,TRESUsageOutMin,TRESUsageOutMinNode,TRESUsageOutMinTask,TRESUsageOutTot,DBIndex"
)
EVENTS = "format=Cluster,NodeName,ClusterNodes,Event,Start,End,State,StateRaw,TRES,Reason,User"
RESERVATIONS = "format=Cluster,Name,ID,Associations,Flags,NodeNames,TRES,Start,End"
DAEMON_FILES = ("slurm.conf", "slurmdbd.conf")


class Lab:
    """The lab's slurmdbd with a clock that stands."""

    def __init__(self, place: Path, netns: str, prefix: Path) -> None:
        self.place, self.prefix, self.now = place, prefix, 0
        self.enter = ["nsenter", f"--net=/run/netns/{netns}"]
        self.zone = "UTC"
        source, self.clock = place / "clock.c", place / "bin/clock.so"
        source.write_text(CLOCK)
        subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-o", self.clock, source, "-ldl"], check=True)

    def env(self, **more: str) -> dict[str, str]:
        return {
            "PATH": f"{self.prefix}/bin:/usr/bin:/bin",
            "SLURM_CONF": f"{self.place}/etc/slurm.conf",
            "LANG": "C.UTF-8",
            "MUNGE_SOCKET": f"{self.place}/run/munge.socket.2",
            "TZ": self.zone,
            "HOME": "/root",
            "LD_PRELOAD": f"{self.place}/bin/nodelay.so {self.clock}",
            "LAB_FAST": "1",
            "BOOKS_NOW": str(self.now),
            **more,
        }

    def sql(self, text: str) -> list[list[str]]:
        done = subprocess.run(
            [
                "mariadb",
                "--no-defaults",
                f"--socket={self.place}/run/mysql.sock",
                "-uroot",
                "-N",
                "--default-character-set=utf8mb4",
                "slurm_acct_db",
            ],
            input=text.encode(),
            capture_output=True,
            check=False,
        )
        if done.returncode:
            sys.exit(done.stderr.decode())
        return [line.split("\t") for line in done.stdout.decode().splitlines()]

    def ask(self, words: Iterable[str], user: str | None = None, **env: str) -> tuple[int, str, str]:
        who = (
            []
            if user is None
            else ["setpriv", f"--reuid={user}", f"--regid={pwd.getpwnam(user).pw_gid}", "--init-groups"]
        )
        done = subprocess.run(
            [*self.enter, *who, "timeout", "20", *words],
            env=self.env(**env),
            capture_output=True,
            stdin=subprocess.DEVNULL,
            cwd="/tmp",
            check=False,
        )
        return (
            done.returncode,
            done.stdout.decode(errors="backslashreplace"),
            done.stderr.decode(errors="backslashreplace"),
        )

    def stop(self, name: str) -> None:
        try:
            number = int((self.place / f"run/{name}.pid").read_text())
            os.kill(number, signal.SIGTERM)
        except (OSError, ValueError):
            return
        for _ in range(300):
            try:
                if "State:\tZ" in Path(f"/proc/{number}/status").read_text():
                    return
            except OSError:
                return
            time.sleep(0.05)
        sys.exit(f"{name} {number} does not end")

    def start_slurmdbd(self) -> None:
        """Returns once it has rolled up to ``now``."""
        subprocess.run(
            [*self.enter, str(self.prefix / "sbin/slurmdbd")], env=self.env(BOOKS_IN="accounting_storage"), check=True
        )
        for _ in range(600):
            done = self.sql("select hourly_rollup from lab_last_ran_table")
            if (
                done
                and int(done[0][0]) >= self.now // 3600 * 3600 - 3600
                and self.ask(["sacctmgr", "-n", "show", "cluster"])[0] == 0
            ):
                time.sleep(1)
                return
            time.sleep(0.1)
        sys.exit(f"slurmdbd has not rolled up: {done}")

    def track_wckeys(self, wanted: bool) -> None:
        for name in DAEMON_FILES:
            file = self.place / "etc" / name
            lines = [line for line in file.read_text().splitlines() if not line.lower().startswith("trackwckey")]
            file.write_text("\n".join([*lines, *["TrackWCKey=yes"] * wanted, ""]))


def value_of(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, int | float):
        return str(value)
    return "'" + str(value).replace("\\", "\\\\").replace("'", "''") + "'"


def load(lab: Lab, history: books.Books, uids: dict[str, int]) -> None:
    statements = [
        f"delete from lab_{name}_table;"
        for name in ("job", "step", "suspend", "event", "resv", "last_ran", "wckey", "job_env", "job_script")
    ]
    statements += [
        f"delete from lab_{kind}usage_{span}_table;"
        for kind in ("", "assoc_", "qos_", "wckey_")
        for span in ("hour", "day", "month")
    ]
    statements += ["delete from acct_coord_table;"]
    names = ("proja", "projb", "", "*", "*proja")
    statements += [
        f"insert into lab_wckey_table (creation_time,mod_time,id_wckey,wckey_name,user,is_def) values "
        f"(1,1,{1 + 5 * place + index},{value_of(name)},{value_of(user)},{int(name == '')});"
        for place, user in enumerate(uids)
        for index, name in enumerate(names)
    ]
    for table, rows in history.tables.items():
        for row in rows:
            row = {"id_array_job": 0, "id_wckey": 0, **row} if table == "job" else row
            statements.append(
                f"insert into lab_{table}_table ({','.join(f'`{key}`' for key in row)}) "
                f"values ({','.join(map(value_of, row.values()))});"
            )
    lab.sql("set names utf8mb4; start transaction;\n" + "\n".join(statements) + "\ncommit;\n")


def record(lab: Lab, number: int, count: int) -> dict[str, Any]:
    uids = {
        name: 20001 + index
        for index, name in enumerate(
            "alice bob carl dana erin frank gina hugo ivan jack kate liam mona nina oscar".split()
        )
    }
    assocs = [
        (int(row[0]), row[1], row[2])
        for row in lab.sql("select id_assoc, acct, user from lab_assoc_table where deleted=0 order by id_assoc")
    ]
    history = books.new_books(number, assocs, uids)
    lab.stop("slurmdbd")
    load(lab, history, uids)
    lab.track_wckeys(history.track_wckey)
    lab.now, lab.zone = history.now, history.zone
    lab.start_slurmdbd()
    jobs = ",".join(
        sorted(
            {str(row["id_array_job"] if row.get("id_array_job") else row["id_job"]) for row in history.tables["job"]},
            key=int,
        )
    )
    epoch = {"SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}

    def told(*words: str, **env: str) -> str:
        code, out, err = lab.ask(words, **env)
        if code:
            sys.exit(f"{words}: {err}")
        return out

    wide = {"start": history.start - 400000, "end": history.now + 400000}
    times = [f"{key}={time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(at))}" for key, at in wide.items()]
    case: dict[str, Any] = {
        "id": number,
        "kind": history.kind,
        "tz": history.zone,
        "now": history.now,
        "start": history.start,
        "track_wckey": history.track_wckey,
        "history": told("sacct", "-a", "-D", "-P", "--delimiter=\t", "--noconvert", "-j", jobs, "-o", HISTORY, **epoch),
        "events": told("sacctmgr", "-P", "show", "event", *times, EVENTS, **epoch),
        "reservations": told("sacctmgr", "-P", "show", "reservation", *times, RESERVATIONS, **epoch),
    }
    dump = lab.place / "dump.cfg"
    dump.unlink(missing_ok=True)
    told("sacctmgr", "dump", "lab", f"file={dump}")
    case["dump"] = "\n".join(line for line in dump.read_text().splitlines() if line and not line.startswith("#"))
    case["assoc_ids"] = "ID|Account|User\n" + "".join(f"{one[0]}|{one[1]}|{one[2]}\n" for one in assocs)
    case["tres"] = told("sacctmgr", "-P", "show", "tres", "format=Type,Name,ID")
    case["suspend"] = "DBIndex|Start|End\n" + "".join(
        f"{row['job_db_inx']}|{row['time_start']}|{row['time_end']}\n" for row in history.tables["suspend"]
    )
    asker = books_questions.Asker(history, random.Random(number + 1_000_000))
    lines = [asker.line() for _ in range(count)]
    case["answers"] = [[words, user, env, *lab.ask(words, user, **env)] for words, user, env in lines]
    return case


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lab", required=True, type=Path)
    parser.add_argument("--netns", required=True)
    parser.add_argument("--prefix", type=Path, default=Path("/opt/slurm2511"))
    parser.add_argument("--seeds", required=True, help="first-last")
    parser.add_argument("--count", type=int, default=120, help="questions a history")
    parser.add_argument("-o", "--output", required=True, type=Path)
    args = parser.parse_args()
    lab = Lab(args.lab, args.netns, args.prefix)
    lab.stop("slurmctld")
    first, _, last = args.seeds.partition("-")
    with args.output.open("a") as output:
        for number in range(int(first), int(last or first) + 1):
            began = time.monotonic()
            case = record(lab, number, args.count)
            output.write(json.dumps(case) + "\n")
            output.flush()
            rows = case["history"].count("\n")
            print(f"{number} {case['kind']} {case['tz']}: {rows} rows, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
