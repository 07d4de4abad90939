"""Random histories of a cluster's books: rows of slurmdbd's tables (jobs, steps, suspensions, node events,
reservations) over some days, with seconds beside the borders of hours and days.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

Row = dict[str, Any]

NO_VAL = 4294967294
INFINITE = 4294967295
# where a history may lie: its zone, and the local day on which it ends
PLACES = {
    "plain": [
        ("UTC", "2026-08-15"),
        ("Europe/Berlin", "2026-05-20"),
        ("Asia/Kolkata", "2026-09-09"),
        ("America/New_York", "2026-06-24"),
    ],
    "month": [
        ("UTC", "2026-05-02"),
        ("Europe/Berlin", "2026-03-02"),
        ("America/New_York", "2026-01-02"),
        ("Asia/Kathmandu", "2026-07-02"),
    ],
    "dst": [
        ("Europe/Berlin", "2026-03-30"),
        ("Europe/Berlin", "2026-10-26"),
        ("America/New_York", "2026-03-09"),
        ("America/New_York", "2026-11-02"),
        ("Australia/Lord_Howe", "2026-04-06"),
        ("Africa/Cairo", "2026-04-25"),
    ],
}
NODES = {
    **{f"n{i}": (32, 128000, 63, {}) for i in range(1, 5)},
    **{f"n{i}": (64, 256000, 126, {}) for i in (5, 6)},
    "g1": (48, 192000, 101, {1001: 4, 1002: 4}),
    "g2": (48, 192000, 101, {1001: 2, 1003: 2}),
}
JOB_STATES = [3, 3, 3, 3, 4, 4, 5, 5, 6, 7, 8, 9, 10, 11]
NAMES = ["train", "qcd", "mesh", "blast-6", "x y", "ünï", "wrap", "", "a|b", "interactive", "x" * 70]
REASONS = [0, 0, 1, 2, 3, 8, 9, 11, 14, 22, 25, 73, 75]


@dataclass
class Books:
    """Rows of the tables by their columns, and where and when."""

    number: int
    kind: str
    zone: str
    now: int
    start: int
    track_wckey: bool
    tables: dict[str, list[Row]] = field(
        default_factory=lambda: {name: [] for name in ("job", "step", "suspend", "event", "resv")}
    )


class _Writer:
    """Makes one history: ``assocs`` are (id, account, user), ``uids`` user to uid."""

    def __init__(self, books: Books, rng: Random, assocs: list[tuple[int, str, str]], uids: dict[str, int]) -> None:
        self.books, self.rng, self.uids = books, rng, uids
        self.assocs = [one for one in assocs if one[2] and one[2] != "root"]
        self.every_assoc = [number for number, _, _ in assocs]
        self.next_id = rng.choice([1, 101, 7000])
        self.inx = (1 << 62) + rng.randrange(1 << 40)
        self.resv_ids: list[tuple[int, int, int, str]] = []

    def moment(self, early: int | None = None, late: int | None = None) -> int:
        """Often on the border of an hour or of a day, or a second beside it."""
        rng, books = self.rng, self.books
        early, late = books.start if early is None else early, books.now if late is None else late
        at = rng.randint(min(early, late), max(early, late))
        chance = rng.random()
        if chance < 0.15:
            at = at // 3600 * 3600 + rng.choice([0, 0, -1, 1])
        elif chance < 0.22:
            day = datetime.fromtimestamp(at, ZoneInfo(books.zone)).replace(hour=0, minute=0, second=0, microsecond=0)
            at = int(day.timestamp()) + rng.choice([0, -1, 1])
        return at

    def events(self) -> None:
        rng, books = self.rng, self.books
        rows = books.tables["event"]
        rows.append(
            {
                "time_start": books.start,
                "time_end": 0,
                "node_name": "",
                "cluster_nodes": "g[1-2],n[1-6]",
                "reason": "Cluster Registered TRES",
                "reason_uid": NO_VAL,
                "state": 0,
                "tres": _total(list(NODES)),
            }
        )
        for _ in range(rng.choice([0, 0, 1, 2])):  # nodes leave and come back
            at = self.moment(books.start + 1)
            if at <= rows[-1]["time_start"]:
                continue
            left = rng.sample(list(NODES), rng.randint(5, 8))
            rows[-1]["time_end"] = at
            rows.append({**rows[-1], "time_start": at, "time_end": 0, "tres": _total(left)})
        for _ in range(rng.choice([0, 0, 1, 1, 2])):
            at = self.moment()
            end = 0 if rng.random() < 0.15 else at + rng.choice([60, 1800, 3600, 40000, 200000])
            rows.append(
                {
                    "time_start": at,
                    "time_end": end if end < books.now else 0,
                    "node_name": "",
                    "cluster_nodes": "",
                    "reason": "slurmctld disconnect",
                    "reason_uid": NO_VAL,
                    "state": 1,
                    "tres": rows[0]["tres"],
                }
            )
        said = [
            (1, "psu died", 0),
            (514, "bad disk", 20001),
            (2049, "Not responding", 0),
            (4098, "idle power save", 0),
            (8194, "fail", 0),
            (6, "Set to State=FUTURE", 0),
            (32769, "in maint", 0),
            (32770, "maint", NO_VAL),
            (515, "draining, with a | in it", 0),
            (66050, "reboot", 0),
            (262146, "powering down", 0),
            (16386, "powering up", 0),
            (2097154, "planned", 0),
            (517, "", 4000000),
            (2561, "both", 0),
        ]
        for _ in range(rng.randint(0, 14)):
            node = rng.choice(list(NODES))
            cpus, memory, billing, gres = NODES[node]
            state, reason, uid = rng.choice(said)
            at = self.moment(books.start - 86400)
            end = at + rng.choice([1, 59, 600, 3599, 3600, 7200, 90000, 300000])
            rows.append(
                {
                    "time_start": at,
                    "time_end": 0 if end > books.now or rng.random() < 0.1 else end,
                    "node_name": node,
                    "cluster_nodes": "",
                    "reason": reason,
                    "reason_uid": uid,
                    "state": state,
                    "tres": _tres({1: cpus, 2: memory, 5: billing, **gres}),
                }
            )
        taken = set()
        books.tables["event"] = [
            row for row in rows if (key := (row["node_name"], row["time_start"])) not in taken and not taken.add(key)
        ]  # the table's key

    def reservations(self) -> None:
        rng, books = self.rng, self.books
        for number in range(1, rng.choice([0, 0, 1, 2, 3, 4, 6]) + 1):
            nodes = rng.sample(list(NODES), rng.randint(1, 3))
            at = self.moment(books.start - 40000)
            end = at + rng.choice([600, 3600, 5400, 36000, 86400, 250000])
            name = rng.choice(["maint", "course", "res", "Maint"]) + rng.choice(["", str(number)])
            flags = rng.choice(
                [
                    1 << 15,
                    1 << 15,
                    (1 << 15) | 8,
                    (1 << 15) | 1,
                    (1 << 15) | 9,
                    8,
                    0,
                    (1 << 15) | 4,
                    (1 << 15) | (1 << 17),
                    (1 << 15) | (1 << 19),
                ]
            )
            users = rng.sample(self.every_assoc, rng.choice([0, 1, 1, 2, 5]))
            row = {
                "id_resv": number,
                "assoclist": ",".join(str(one) for one in sorted(users)),
                "flags": flags,
                "nodelist": _hostlist(nodes),
                "node_inx": _places(nodes),
                "resv_name": name,
                "time_start": at,
                "time_end": end,
                "time_force": 0,
                "tres": _tres({1: sum(NODES[node][0] for node in nodes)}),
            }
            books.tables["resv"].append(row)
            self.resv_ids.append((number, at, end, name))
            if rng.random() < 0.25 and end - at > 1000:  # changed while it ran
                mid = rng.randint(at + 1, end - 1)
                row["time_end"] = mid
                books.tables["resv"].append(
                    {**row, "time_start": mid, "time_end": end, "tres": _tres({1: rng.choice([8, 32, 100])})}
                )

    def job(self, **more: Any) -> list[Row]:
        """One record; a requeued job has several of one id."""
        rng, books = self.rng, self.books
        number, account, user = rng.choice(self.assocs)
        nodes = rng.sample(list(NODES), rng.choice([1, 1, 1, 1, 2, 3]))
        cpus = rng.choice([1, 1, 2, 4, 8, 16, 24, 32, 48, 64]) * rng.choice([1, 1, len(nodes)])
        memory = rng.choice([0, 100, 1024, 4000, 8000, 20000, 123456])
        tres = {1: cpus, 2: memory, 4: len(nodes), 5: max(1, cpus + memory // 5000)}
        if rng.random() < 0.2:
            kind, count = rng.choice([1002, 1003]), rng.randint(1, 4)
            tres |= {1001: count, kind: count}
        elif rng.random() < 0.04:
            tres[1001] = 1
        submit = self.moment(books.start - rng.choice([0, 0, 100000]))
        records: list[Row] = []
        restarts = rng.choice([0] * 12 + [1, 2])
        here = self.next_id
        self.next_id += 1
        wckey, wckey_id = (
            rng.choice([("", 3), ("proja", 1), ("*", 4), ("*proja", 5), ("projb", 2)]) if books.track_wckey else ("", 0)
        )
        position = [*self.uids].index(user)
        common = {
            "account": account,
            "id_assoc": number,
            "id_job": here,
            "id_user": self.uids[user],
            "id_group": rng.choice([100, 1000]),
            "job_name": rng.choice(NAMES),
            "cpus_req": cpus,
            "mem_req": rng.choice([memory // len(nodes), (1 << 63) | max(1, memory // cpus)]),
            "tres_req": _tres(tres),
            "partition": rng.choice(["batch", "gpu", "debug", "long", "all", "batch,all"]),
            "id_qos": rng.randint(1, 6),
            "qos_req": rng.choice([None, "", "high", "normal"]),
            "wckey": wckey,
            "id_wckey": wckey_id + 5 * position if books.track_wckey else 0,
            "timelimit": rng.choice([1, 5, 60, 720, 1440, 10000, INFINITE, NO_VAL]),
            "priority": rng.choice([0, 1, 733, 2241, 4294901757]),
            "constraints": rng.choice(["", "", "ib", "skylake&ib", "[rome|skylake]", "intel*2"]),
            "licenses": rng.choice(["", "", "matlab:2", "a:1,b:3"]),
            "work_dir": rng.choice([f"/data/{user}", "/home/x y", ""]),
            "submit_line": rng.choice([f"sbatch -A {account} job.sh", "srun -n4 'a b'", None]),
            "array_task_pending": 0,
            "id_array_task": NO_VAL,
            "het_job_id": 0,
            "het_job_offset": NO_VAL,
            "env_vars": None,
            **more,
        }
        common.pop("env_vars")
        for turn in range(restarts + 1):
            last = turn == restarts
            row = self._times(common, submit, nodes, tres, turn, last)
            records.append(row)
            if not row["time_end"] or row["time_end"] >= books.now:
                break
            submit = max(row["time_end"], row["time_submit"] + 1)
            if rng.random() < 0.5:
                submit += rng.randint(0, 120)
        return records

    def _times(self, common: Row, submit: int, nodes: list[str], tres: dict[int, int], turn: int, last: bool) -> Row:
        rng, now = self.rng, self.books.now
        eligible = submit + rng.choice([0, 0, 0, 1, 120, 40000])
        start = eligible + rng.choice([0, 0, 1, 17, 600, 5000, 50000, 200000])
        end = start + rng.choice([0, 1, 10, 59, 600, 3599, 3600, 7200, 40000, 90000, 180000])
        state = rng.choice(JOB_STATES) if last else rng.choice([5, 7, 8, 4])
        if rng.random() < 0.1:
            state, start = rng.choice([(4, 0), (4, 0), (10, 0), (5, end)])  # ended before it began
        if rng.random() < 0.05:
            eligible = rng.choice([0, submit + 400000, INFINITE])
            start = 0
            state = 4
        if start > now:
            state = 0
        elif end > now:
            state = rng.choice([1, 1, 1, 2]) if start else 0
        row = {
            **common,
            "job_db_inx": self._inx(),
            "mod_time": now,
            "time_submit": submit,
            "time_eligible": eligible,
            "time_start": start if state else 0,
            "time_end": 0 if state in (0, 1, 2) else end,
            "time_suspended": 0,
            "restart_cnt": turn,
            "state": state if last or state in (0, 1, 2) else rng.choice([state, 0x400]),
            "kill_requid": rng.choice([NO_VAL, 0, common["id_user"]]) if state == 4 else NO_VAL,
            "exit_code": {
                5: rng.choice([256, 512, 9, 32256]),
                4: rng.choice([0, 15, 9]),
                7: 1,
                11: rng.choice([0, 125, 9]),
            }.get(state, 0),
            "derived_ec": rng.choice([0, 0, 0, 256, 512, 15]),
            "flags": rng.choice([0, 0x12, 0x14, 0x18, 0x10, 0x38, 1]),
            "state_reason_prev": rng.choice(REASONS),
            "nodes_alloc": 0,
            "nodelist": "None assigned",
            "node_inx": "",
            "tres_alloc": "",
            "failed_node": "",
            "id_resv": 0,
            "resv_req": None,
        }
        if row["time_start"]:
            row |= {
                "nodes_alloc": len(nodes),
                "nodelist": _hostlist(nodes),
                "node_inx": _places(nodes),
                "tres_alloc": _tres({**tres, **({3: rng.choice([5, 40000, 1667415])} if rng.random() < 0.25 else {})}),
            }
            if state == 7:
                row["failed_node"] = nodes[0]
            if self.resv_ids and rng.random() < 0.3:
                number, begin, _, name = rng.choice(self.resv_ids)
                if row["time_start"] >= begin - 10:
                    row |= {"id_resv": number, "resv_req": rng.choice([name, f"{name},other", None])}
            self._suspensions(row)
        self.books.tables["job"].append(row)
        if row["time_start"]:
            self._steps(row, nodes, tres)
        return row

    def _inx(self) -> int:
        self.inx += self.rng.randint(1, 1 << 30)
        return self.inx

    def _suspensions(self, row: Row) -> None:
        rng = self.rng
        end = row["time_end"] or self.books.now
        if row["state"] != 2 and (rng.random() < 0.9 or end - row["time_start"] < 100):
            return
        at, gone = row["time_start"], 0
        for _ in range(rng.choice([1, 1, 2, 3])):
            if at >= end:
                break
            begin = rng.randint(at, end)
            at = rng.randint(begin, end) + 1
            self.books.tables["suspend"].append(
                {"job_db_inx": row["job_db_inx"], "id_assoc": row["id_assoc"], "time_start": begin, "time_end": at}
            )
            gone += at - begin
        if row["state"] == 2:
            begin = max(at, rng.randint(min(at, end), end))
            gone = begin - gone  # of a job that is suspended: since when, less all before
            self.books.tables["suspend"].append(
                {"job_db_inx": row["job_db_inx"], "id_assoc": row["id_assoc"], "time_start": begin, "time_end": 0}
            )
        row["time_suspended"] = gone

    def _steps(self, job: Row, nodes: list[str], tres: dict[int, int]) -> None:
        rng = self.rng
        kinds = [(-5, "batch")] * (rng.random() < 0.7) + [(-4, "extern")] * (rng.random() < 0.4)
        kinds += [(-6, "interactive")] * (not kinds and rng.random() < 0.5)
        kinds += [
            (number, rng.choice(["hostname", "mpi.x", "a b", "bash"])) for number in range(rng.choice([0, 0, 1, 2]))
        ]
        for number, name in kinds:
            begin = job["time_start"] + (0 if number < 0 else rng.randint(0, 5))
            end = job["time_end"] and max(begin, job["time_end"] - (0 if number < 0 else rng.choice([0, 0, 30])))
            state = job["state"] if job["state"] in (1, 2) else rng.choice([3, 3, 3, 5, 4, 7, 11])
            count = 1 if number == -5 else len(nodes)
            tasks = 1 if number == -5 else rng.choice([1, 2, 4, count])
            row = {
                "job_db_inx": job["job_db_inx"],
                "id_step": number,
                "step_name": name,
                "state": state,
                "exit_code": {5: 512, 4: 15}.get(state, 0),
                "kill_requid": NO_VAL,
                "nodes_alloc": count,
                "nodelist": _hostlist(nodes[:count]),
                "node_inx": _places(nodes[:count]),
                "task_cnt": tasks,
                "task_dist": rng.choice([0, 0, 1, 2, 3, 0x11]) if number >= 0 else 0,
                "time_start": begin,
                "time_end": end or 0,
                "time_suspended": job["time_suspended"],
                "user_sec": rng.choice([0, 1, 59, 173, 5488, 90000]),
                "sys_sec": rng.choice([0, 9, 106]),
                "user_usec": 0,
                "sys_usec": 0,
                "act_cpufreq": rng.choice([0, 1429, 2800000]),
                "consumed_energy": rng.choice([0, 0, 5000, 1667415, NO_VAL << 32]) if rng.random() < 0.95 else 0,
                "tres_alloc": _tres({key: value for key, value in tres.items() if key != 5 or number == -4}),
                "submit_line": rng.choice(["srun -n4 mpi.x", None]) if number >= 0 else None,
                "req_cpufreq": rng.choice([0, NO_VAL, 2400000, 0x80000002]),
                "req_cpufreq_min": 0,
                "req_cpufreq_gov": 0,
            }
            if row["user_sec"] + row["sys_sec"] < 3600:  # longer ones are exported in whole seconds
                row |= {"user_usec": rng.choice([0, 383000, 999000]), "sys_usec": rng.choice([0, 27000])}
            if row["consumed_energy"] > 1 << 62:
                row["consumed_energy"] = 0
            if rng.random() < 0.6 and state not in (1, 2):
                row |= _usage(rng, tasks, count)
            self.books.tables["step"].append(row)


def _usage(rng: Random, tasks: int, nodes: int) -> Row:
    """What a step's tasks used, by the ids of TRES (cpu in milliseconds)."""

    def one(*ids: int) -> str:
        return ",".join(f"{i}={rng.choice([0, 1, 999, 1024, 5242880, 123456789, 98765432100])}" for i in ids)

    who = lambda most, *ids: ",".join(f"{i}={rng.randrange(most)}" for i in ids)  # noqa: E731
    inside, outside = (1, 2, 6, 7, 8), (3, 6)
    row: Row = {}
    for name in ("in_ave", "in_max", "in_min", "in_tot"):
        row[f"tres_usage_{name}"] = one(*inside)
    for name in ("out_ave", "out_max", "out_min", "out_tot"):
        row[f"tres_usage_{name}"] = one(*outside)
    for way, ids in (("in", inside), ("out", outside)):
        for end in ("max", "min"):
            row[f"tres_usage_{way}_{end}_taskid"] = who(max(1, tasks), *ids)
            row[f"tres_usage_{way}_{end}_nodeid"] = who(max(1, nodes), *ids)
    return row


def _tres(amounts: dict[int, int]) -> str:
    return ",".join(f"{key}={amounts[key]}" for key in sorted(amounts) if amounts[key] or key != 2)


def _total(nodes: list[str]) -> str:
    amounts: dict[int, int] = {4: len(nodes)}
    for node in nodes:
        cpus, memory, billing, gres = NODES[node]
        for key, value in {1: cpus, 2: memory, 5: billing, **gres}.items():
            amounts[key] = amounts.get(key, 0) + value
    return _tres({**dict.fromkeys((3, 6, 7, 8, 1004, 1005), 0), **amounts})


def _hostlist(nodes: list[str]) -> str:
    """As Slurm's ranged string, nodes in order."""
    parts = []
    for letter in "gn":
        numbers = sorted(int(node[1:]) for node in nodes if node[0] == letter)
        ranges: list[list[int]] = []
        for number in numbers:
            if ranges and ranges[-1][1] == number - 1:
                ranges[-1][1] = number
            else:
                ranges.append([number, number])
        text = ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in ranges)
        if numbers:
            parts.append(f"{letter}{text}" if len(numbers) == 1 else f"{letter}[{text}]")
    return ",".join(parts)


def _places(nodes: list[str]) -> str:
    """The bits of the nodes among all of the cluster, in the order of their names."""
    return ",".join(str(sorted(NODES).index(node)) for node in sorted(nodes))


def new_books(number: int, assocs: list[tuple[int, str, str]], uids: dict[str, int]) -> Books:
    """The history of a seed."""
    rng = Random(number)
    kind = rng.choice(["plain", "plain", "month", "dst"])
    zone, day = rng.choice(PLACES[kind])
    noon = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(zone)).timestamp()
    now = int(noon) + rng.choice([0, 3600, 5025, 30000, 80000, rng.randint(0, 86399)])
    days = rng.choice([1, 3, 3, 4, 9, 40])
    books = Books(number, kind, zone, now, now - days * 86400 - rng.randint(-3000, 80000), rng.random() < 0.5)
    writer = _Writer(books, rng, assocs, uids)
    writer.events()
    writer.reservations()
    for _ in range(rng.choice([10, 30, 50, 80])):
        writer.job()
    for _ in range(rng.choice([0, 1, 2])):
        _array(writer, rng)
    for _ in range(rng.choice([0, 1, 2])):
        _het(writer, rng)
    return books


def _array(writer: _Writer, rng: Random) -> None:
    """Tasks that left their array, and what has not left it yet."""
    leader = writer.next_id + rng.randint(1, 4)
    for task in range(rng.randint(1, 4)):
        writer.job(id_array_job=leader, id_array_task=task)
    writer.next_id = max(writer.next_id, leader)
    before = len(writer.books.tables["job"])
    writer.job(id_array_job=leader, array_task_str="0xF0", array_task_pending=4, array_max_tasks=2)
    rows = writer.books.tables["job"][before:]
    for row in rows:
        row["id_job"] = leader
    row = rows[-1]
    inx = {one["job_db_inx"] for one in rows}
    writer.books.tables["job"] = [
        one for one in writer.books.tables["job"] if one is row or one["job_db_inx"] not in inx
    ]
    for name in ("step", "suspend"):
        writer.books.tables[name] = [one for one in writer.books.tables[name] if one["job_db_inx"] not in inx]
    row |= {
        "state": 0,
        "time_start": 0,
        "time_end": 0,
        "restart_cnt": 0,
        "nodelist": "None assigned",
        "nodes_alloc": 0,
        "tres_alloc": "",
        "exit_code": 0,
        "kill_requid": NO_VAL,
        "failed_node": "",
        "id_resv": 0,
        "time_suspended": 0,
    }
    if rng.random() < 0.4:
        row |= {
            "state": 4,
            "time_end": rng.randint(row["time_submit"], max(row["time_submit"], writer.books.now)),
            "kill_requid": 0,
        }


def _het(writer: _Writer, rng: Random) -> None:
    leader = writer.next_id
    for offset in range(rng.randint(2, 3)):
        writer.job(het_job_id=leader, het_job_offset=offset)
