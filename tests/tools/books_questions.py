"""Random questions about a history of books: lines of sacct, sreport and sacctmgr, right ones, odd ones, wrong ones."""

from __future__ import annotations

from datetime import datetime
from random import Random
from zoneinfo import ZoneInfo

from books import NO_VAL, Books
from lines import SA_FIELDS, SA_MORE

OWN_NUMBERS = {"AssocID", "DBIndex", "SLUID", "WCKeyID", "ALL", "nosuch"}  # that no export carries
_USERS = ["alice", "bob", "dana,frank", "liam,mona", "20001", "nosuch", "", "root", "alice,nosuch", "0"]
_ACCOUNTS = ["bio", "phys_qcd", "bio_seq,eng_ml", "eng", "root", "nosuch", "PHYS_QCD", "", "eng_llm,nosuch"]
_UNITS = [
    "seconds",
    "minutes",
    "hours",
    "percent",
    "secper",
    "minper",
    "hourper",
    "s",
    "m",
    "h",
    "p",
    "Sec",
    "fortnights",
    "",
    "hour",
    "secp",
    "minpercent",
    "hper",
    "ours",
]
_TRES = [
    "cpu",
    "cpu,mem",
    "gres/gpu",
    "cpu,mem,gres/gpu,billing",
    "ALL",
    "all",
    "node",
    "energy",
    "gres/gpu:a100,gres/gpu",
    "gres",
    "billing",
    "nonsense",
    "",
    "cpu,nonsense",
    "1,2",
    "mem,cpu",
    "gres/gpu:v100",
    "fs/disk",
    "CPU",
    "cpu,cpu",
]
_REPORTS: dict[tuple[str, ...], list[str]] = {
    (
        "cluster",
        "Utilization",
    ): "Cluster TresCount TresName Allocated Down PlannedDown PLNDDown Idle Reserved Planned Reported "
    "OverCommitted TresTime nonsense".split(),
    (
        "cluster",
        "AccountUtilizationByUser",
    ): "Accounts Cluster TresCount Login Proper TresName Used Energy nonsense".split(),
    ("cluster", "UserUtilizationByAccount"): "Accounts Cluster Login Proper TresName Used Energy".split(),
    ("cluster", "AccountUtilizationByQOS"): "Accounts Cluster QOS TresName Used Login Energy".split(),
    ("cluster", "UserUtilizationByWckey"): "WCKey Cluster Login Proper TresName Used nonsense".split(),
    ("cluster", "WCKeyUtilizationByUser"): "WCKey Cluster Login Proper TresName Used".split(),
    ("job", "SizesByAccount"): "Account Cluster TresCount nonsense".split(),
    ("job", "SizesByWckey"): "WCKey Cluster Account".split(),
    ("job", "SizesByAccountAndWckey"): "Account Cluster".split(),
    ("job", "SizesByWckeyAndAccount"): ["Cluster"],
    (
        "reservation",
        "Utilization",
    ): "Allocated Cluster End Flags Idle Name Nodes ReservationId Start TotalTime TresCount "
    "TresName TresTime Used nonsense".split(),
    ("user", "Top"): "Accounts Cluster Login Proper TresName Used Energy nonsense".split(),
}


class Asker:
    """Questions about a history."""

    def __init__(self, books: Books, rng: Random) -> None:
        self.books, self.rng = books, rng
        self.zone = ZoneInfo(books.zone)

    def time(self) -> str:
        """A moment of the history in one of the forms that are read, seldom a wrong one."""
        rng, books = self.rng, self.books
        at = datetime.fromtimestamp(rng.randint(books.start - 9000, books.now + 9000), self.zone)
        if rng.random() < 0.4:
            at = at.replace(hour=0, minute=0, second=0)
        elif rng.random() < 0.3:
            at = at.replace(minute=0, second=0)
        form = rng.choice(
            ["%Y-%m-%d"] * 4
            + ["%Y-%m-%dT%H:%M:%S"] * 4
            + [
                "%Y-%m-%dT%H:%M",
                "%m/%d/%y-%H:%M:%S",
                "%m/%d",
                "%m%d%y",
                "%H:%M",
                "%I:%M%p",
                "%d.%m.%y",
                "%Y-%m-%d %H:%M:%S",
                "%m/%d/%y",
                "%s",
                "%m.%d.%y",
            ]
        )
        if rng.random() < 0.2:
            return rng.choice(
                [
                    "now",
                    "today",
                    "midnight",
                    "noon",
                    "tomorrow",
                    "fika",
                    "teatime",
                    "elevenses",
                    "someday",
                    "",
                    f"now-{rng.randint(1, 90)}hours",
                    f"now-{rng.randint(1, 9)}days",
                    "now-1week",
                    "now+1day",
                    f"now-{rng.randint(1, 9000)}",
                    f"now-{rng.randint(1, 300)}minutes",
                    "now-3",
                    "now-1month",
                ]
            )
        return at.strftime(form)

    def window(self) -> list[str]:
        words = [f"start={self.time()}"] * (self.rng.random() < 0.8) + [f"end={self.time()}"] * (
            self.rng.random() < 0.8
        )
        return [word if self.rng.random() > 0.03 else word.replace("=", " = ") for word in words]

    def sreport(self) -> list[str]:
        rng = self.rng
        report = rng.choice(list(_REPORTS))
        words = [rng.choice(["-P", "-P", "-P", "-p", "-n", "-Pn", ""])]
        if rng.random() < 0.7:
            words.append("-t" + rng.choice(_UNITS[:7] * 4 + _UNITS))
        if rng.random() < 0.5:
            words.append("-T" + rng.choice(_TRES))
        words += rng.choice(
            [[]] * 12
            + [
                ["-a"],
                ["--local"],
                ["--federation"],
                ["-M", "lab"],
                ["-M", "nosuch"],
                ["-Q"],
                ["-v"],
                ["--all_clusters"],
                ["-M", ""],
            ]
        )
        more = self.window()
        fields = _REPORTS[report]
        if rng.random() < 0.35:
            chosen = rng.sample(fields, rng.randint(1, len(fields)))
            more.append(
                "format="
                + ",".join(self._case(name) + rng.choice(["", "", "%20", "%-9", "%0", "%3", "%x"]) for name in chosen)
            )
        conditions = [
            f"Users={rng.choice(_USERS)}",
            f"Accounts={rng.choice(_ACCOUNTS)}",
            "Tree",
            f"WCKeys={rng.choice(['proja', '*', 'proj,projb', ''])}",
            f"Clusters={rng.choice(['lab', 'nosuch', ''])}",
            "nonsense=1",
            "all_clusters",
        ]
        if report[0] == "job":
            conditions = [
                "FlatView",
                "PrintJobCount",
                "AcctAsParent",
                f"Accounts={rng.choice(_ACCOUNTS)}",
                f"Grouping={rng.choice(['1,8,64', '8,4', 'individual', '2,10', '0', 'x', '', '4', '50,100,'])}",
                f"Partitions={rng.choice(['batch', 'gpu,all', 'nosuch', ''])}",
                f"Users={rng.choice(_USERS)}",
                f"GID={rng.choice(['100', 'users', '1000', 'nosuch'])}",
                f"Nodes={rng.choice(['n1', 'n[1-2]', 'g1', 'zz', ''])}",
                f"Jobs={rng.choice(['101', '1,2,3', 'x', '7000'])}",
                f"WCKeys={rng.choice(['proja', ''])}",
                "Clusters=lab",
            ]
        elif report[0] == "reservation":
            conditions = [
                f"Names={rng.choice(['maint', 'maint,course', 'res1', 'Maint', 'nosuch', ''])}",
                "Clusters=lab",
                f"Ids={rng.choice(['1', '1,3', 'x', ''])}",
                f"Nodes={rng.choice(['n1', 'n[1-3]', 'g1'])}",
                "nonsense",
            ]
        elif report[0] == "user":
            conditions = [
                "Group",
                f"TopCount={rng.choice(['1', '3', '100', '0', '-1', 'x', ''])}",
                *conditions[:2],
                "Clusters=lab",
            ]
        more += rng.sample(conditions, rng.choice([0, 0, 1, 1, 2]))
        rng.shuffle(more)
        name = [self._case(report[0], 0.06), self._case(report[1], 0.1)]
        return ["sreport", *[word for word in words if word], *name, *more]

    def _case(self, word: str, often: float = 0.15) -> str:
        rng = self.rng
        if rng.random() > often:
            return word
        return rng.choice([word.lower(), word.upper(), word[: max(2, len(word) - rng.randint(1, 5))]])

    def jobs(self) -> str:
        rng = self.rng
        chosen = []
        for row in rng.choices(self.books.tables["job"], k=rng.randint(1, 4)):
            text = str(row["id_job"])
            if row["id_array_task"] != NO_VAL and rng.random() < 0.7:
                text = f"{row['id_array_job']}_{row['id_array_task']}"
            elif row["het_job_id"] and rng.random() < 0.7:
                text = f"{row['het_job_id']}+{row['het_job_offset']}"
            chosen.append(
                text + rng.choice([""] * 6 + [".batch", ".0", ".1", ".extern", "_3", "_[2,5-30]", "+1", ".interactive"])
            )
        return ",".join(chosen) + rng.choice([""] * 20 + [",", ",x", ",999999"])

    def sacct(self) -> list[str]:
        rng = self.rng
        words: list[str] = []
        if rng.random() < 0.3:
            words += [rng.choice(["-j", "--jobs"]), self.jobs()]
        if rng.random() < 0.75:
            words += [rng.choice(["-S", "--starttime"]), self.time()]
        if rng.random() < 0.6:
            words += [rng.choice(["-E", "--endtime"]), self.time()]
        for chance, options in (
            (0.4, [["-X"], ["--allocations"]]),
            (0.3, [["-D"]]),
            (0.3, [["-T"]]),
            (0.15, [["--array"]]),
            (0.6, [["-a"]]),
            (0.08, [["--expand-patterns"]]),
            (0.15, [["--whole-hetjob"], ["--whole-hetjob=no"], ["--whole-hetjob=yes"]]),
            (
                0.3,
                [
                    ["-s", state]
                    for state in (
                        "pd",
                        "r",
                        "s",
                        "cd",
                        "f",
                        "ca",
                        "to",
                        "nf",
                        "oom,pr",
                        "CD,F,CA",
                        "rq",
                        "bf",
                        "dl",
                        "rs",
                        "PENDING,RUNNING",
                        "rv",
                        "all",
                        "x",
                    )
                ],
            ),
            (0.1, [["-r", name] for name in ("gpu", "batch,long", "nosuch", "")]),
            (0.1, [["-q", name] for name in ("high", "low,high", "scav", "nosuch", "1")]),
            (0.1, [["-A", name] for name in _ACCOUNTS]),
            (0.15, [["-u", name] for name in _USERS]),
            (0.08, [["-W", name] for name in ("proja", "proja,projb", "*proj", "", "*", "*proja")]),
            (0.1, [["-N", name] for name in ("n1", "g1", "n[1-3]", "g[1-2],n6", "n9", "zz9", "n[1")]),
            (0.08, [["-i", text] for text in ("1", "2", "1-2", "2-9", "0", "1K", "x", "3-")]),
            (0.08, [["-I", text] for text in ("8", "2-16", "32-200", "1k", "")]),
            (0.06, [["-k", text] for text in ("30", "1-0", "1:00:00")]),
            (0.06, [["-k", "1", "-K", "1-0"], ["-K", "60"]]),
            (0.05, [["-g", text] for text in ("100", "users", "1000,100", "nosuch")]),
            (0.06, [["-R", text] for text in ("Priority", "None", "JobHeldUser", "Resources,Dependency", "x")]),
            (0.05, [["-F", text] for text in ("SchedMain", "SchedBackfill", "None", "StartReceived", "SchedSubmit")]),
            (0.05, [["-C", text] for text in ("ib", "s", "ib,skylake")]),
            (0.06, [["--name", text] for text in ("train", "qcd,wrap", "x y", "ünï", "a|b")]),
            (0.1, [["--units=" + text] for text in "KMGTPQ"]),
            (0.06, [["--noconvert"]]),
            (0.1, [["-n"]]),
            (0.02, [["-M", "lab"], ["-M", "nosuch"], ["-L"], ["-v"], ["-c"], ["stray"], ["-i", "1"]]),
            (0.6, [["-P"], ["-P"], ["-p"], ["-P", "--delimiter", ";"], ["-P", "--delimiter=||"]]),
        ):
            if rng.random() < chance:
                words += rng.choice(options)
        chance = rng.random()
        if chance < 0.65:
            fields = rng.sample(sorted({*SA_FIELDS, *SA_MORE} - OWN_NUMBERS), rng.randint(1, 8))
            words += [
                "-o",
                ",".join(["JobID", *(name + rng.choice([""] * 5 + ["%5", "%30", "%-25", "%-3"]) for name in fields)]),
            ]
        elif chance < 0.75:
            words.append(rng.choice(["-b", "-l"]))
        return ["sacct", *words]

    def sacctmgr(self) -> list[str]:
        rng = self.rng
        what = rng.choice(["event", "event", "reservation", "resv", "events", ""])
        words = self.window()
        if what.startswith("event"):
            more = [
                "state=down",
                "state=drain",
                "state=fail,idle",
                "event=node",
                "event=cluster",
                "reason=psu",
                "node=n1",
                "node=n[1-3]",
                "user=alice",
                "maxcpu=40",
                "cluster=lab",
                "all_time",
                "cond=open",
                "cond_flags=open",
                "state=x",
                "mincpu=4",
                "nodes=zz",
                "format=NodeName,Start,End,State,Reason,User,Duration",
                "format=StateRaw,State,TRES,Event,Cluster,ClusterNodes",
                "format=Cpu,Node%5",
                "format=nonsense",
                "all_clusters",
            ]
        else:
            more = [
                "name=maint",
                "names=course,res1",
                "id=1",
                "ids=1,2",
                "nodes=n1",
                "cluster=lab",
                "nosuch=1",
                "format=Cluster,Name,ID,Flags,NodeNames,TRES,Start,End",
                "format=Name,Start,End,Flags",
                "format=UnusedWall,Name",
                "flags=maint",
            ]
        words += rng.sample(more, rng.choice([0, 1, 1, 2]))
        rng.shuffle(words)
        return [
            "sacctmgr",
            rng.choice(["-P", "-P", "-n", "-p", "-Pn"]),
            rng.choice(["show", "list"]),
            *[what][: bool(what)],
            *words,
        ]

    def line(self) -> tuple[list[str], str | None, dict[str, str]]:
        """(words, user or None for root, environment)."""
        rng = self.rng
        words = rng.choice([self.sacct, self.sacct, self.sreport, self.sreport, self.sreport, self.sacctmgr])()
        user = rng.choice([None] * 9 + ["alice", "carl"]) if words[0] == "sacct" else None
        env = rng.choice(
            [{}] * 24
            + [
                {"SLURM_TIME_FORMAT": "%d.%m. %H:%M"},
                {"SLURM_TIME_FORMAT": "standard"},
                {"SLURM_BITSTR_LEN": "5"},
                {"SREPORT_TRES": "cpu,mem"},
                {"SACCT_FORMAT": "jobid,state%-20,start"},
                {"SREPORT_CLUSTER": "nosuch"},
            ]
        )
        return words, user, env
