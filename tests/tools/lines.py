"""Random command lines of Slurm's commands: right ones, odd ones and wrong ones."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

Line = list[str]

NUMBERS = [
    "0",
    "1",
    "2",
    "3",
    "-1",
    "abc",
    "",
    "99999999999",
    "1x",
    "4294967294",
    "4294967295",
    "0x10",
    "1.5",
    " 2",
    "2-4",
    "1k",
    "1K",
    "2G",
    "1,2",
    "1:2",
    "2147483648",
]
TIMES = [
    "now",
    "now-1hour",
    "now+1hours",
    "2026-01-01",
    "2026-01-01T00:00",
    "13:00",
    "today",
    "tomorrow",
    "midnight",
    "noon",
    "teatime",
    "fika",
    "bogus",
    "",
    "now+1x",
    "010126",
    "01/01/26",
    "12/31",
    "00:00",
    "25:00",
    "2026-13-01",
    "now-7days",
    "now-1week",
    "2026-11-30T10:00:00",
    "1pm",
    "13:00:61",
    "1767225600",
    "yesterday",
    "elevenses",
    "now - 1 day",
    "2026-02-30",
    "1:00 pm",
    "12/31/25-10:00",
]
SPANS = [
    "1",
    "10:00",
    "1-0",
    "1-2:3",
    "1-02:03:04",
    "UNLIMITED",
    "infinite",
    "-1",
    "0",
    "abc",
    "",
    "1:2:3:4",
    "90",
    "0:30",
    "1-",
    "1d",
    ":30",
    "INVALID",
    "1:90",
]
USERS = [
    "alice",
    "bob",
    "root",
    "nobody",
    "nosuch",
    "",
    "alice,bob",
    "20001",
    "-1",
    "99999",
    "alice,,bob",
    ",",
    "ALICE",
    "alice,nosuch",
]
ACCOUNTS = ["phys_qcd", "phys", "root", "nosuch", "", "phys_qcd,bio_seq", "PHYS_QCD", ",", "eng_ml"]
PARTITIONS = ["batch", "gpu", "debug", "nosuch", "", "batch,gpu", "BATCH", "batch,nosuch", ",", "all", "long"]
QOSES = ["normal", "high", "low", "nosuch", "", "normal,high", "HIGH", "capped", "1", ","]
NODES = [
    "n1",
    "n[1-3]",
    "n1,g1",
    "nosuch",
    "",
    "n[1-3",
    "n[3-1]",
    "ALL",
    "g[1-2]",
    "n9",
    "n[1-99]",
    "n1 n2",
    "localhost",
    "n01",
    "n[1-2],n[2-3]",
]
JOBS = [
    "{run}",
    "{held}",
    "{arr}",
    "{arr}_2",
    "{arr}_[1-3]",
    "{het}",
    "{het}+1",
    "{done}",
    "{fail}",
    "999999",
    "abc",
    "",
    "{run},{held}",
    "{run}.0",
    "{run}.batch",
    "{run}.extern",
    "{arr}_99",
    "-1",
    "0",
    "{run},",
    ",{run}",
    "{run} {held}",
    "{run}.99",
    "{run}.abc",
    "{arr}_",
    "{arr}_[",
    "{arr}_[1-",
    "{held}+5",
    "{run}x",
    "4294967295",
    "{arr}_1.batch",
    "{run}.batch,{held}.0",
    "{held}_1",
    "{arr}_[2%1]",
    "{arr}_4-5",
    "*",
    "{dep}",
    "{susp}",
    "{throttled}",
    "{throttled}_3",
    "{throttled}_5,{throttled}_7",
    "{hetrun}+1",
    "{rich}",
    "{special},{again}",
    "{killed}.batch",
    "{killedwaiting}",
    "{hetrun}+1.batch",
    "{hetrun}+9",
    "{run}+0",
]
STATES = [
    "R",
    "PD",
    "running",
    "pending",
    "all",
    "CD,F",
    "completed",
    "nosuch",
    "",
    "r,pd",
    "ALL,R",
    "cg",
    "COMPLETING",
    "suspended",
    "S",
    "st",
    "PR",
    "TO",
    "OOM",
    "RUNN",
    "special_exit",
    "requeued",
    "RQ",
    "RESIZING",
    "stopped",
    "running,nosuch",
    ",",
]
NODE_STATES = [
    "idle",
    "IDLE",
    "alloc",
    "allocated",
    "down",
    "drain",
    "mix",
    "mixed",
    "nosuch",
    "",
    "idle,alloc",
    "all",
    "drained",
    "draining",
    "resv",
    "unk",
    "fail",
    "maint",
    "comp",
    "no_respond",
    "idle&drain",
    "~idle",
    "idle+drain",
    "power_down",
    "future",
    "drng",
    "completing",
    "reboot",
    "cloud",
    "idle,",
    "planned",
]
NAMES = ["run", "held,rich", "nosuch", "", "sleeper,held", "wrap", "SLEEPER", "a b", "x" * 40]
SIGNALS = [
    "TERM",
    "SIGTERM",
    "9",
    "KILL",
    "USR1",
    "nosuch",
    "",
    "0",
    "-1",
    "99",
    "sigusr2",
    "15abc",
    "CONT",
    "STOP",
    "RTMIN",
]
PLAIN = ["x", "a b", "", "None", "é", "a=b", "'q'", "%j", "\t", "a,b", "-"]
LICENSES = ["matlab", "a:2", "", "a,b", "a|b"]
CLUSTERS = ["lab", "all", "nosuch", "", "lab,nosuch", "LAB", "lab,lab"]
SQ_LETTERS = "aAbBcCdDeEfFgGhHiIjJkKlLmMnNoOpPqQrRsStTuUvVwWxXyYzZ"
DELIMITERS = [",", ":", "", "::", "\t", "ab"]
UNITS = ["K", "M", "G", "T", "P", "x", "", "KM", "k"]
SQ_FIELDS = (
    "Account AccrueTime admin_comment AllocNodes AllocSid ArrayJobID ArrayTaskID AssocID BatchFlag BatchHost "
    "BoardsPerNode BurstBuffer BurstBufferState Cluster ClusterFeature Command Comment Contiguous Container "
    "ContainerID Cores CoreSpec CPUFreq cpus-per-task cpus-per-tres Deadline DelayBoot Dependency DerivedEC "
    "EligibleTime EndTime ExcNodes exit_code Feature GroupID GroupName HetJobID HetJobIDSet HetJobOffset JobArrayID "
    "JobID LastSchedEval Licenses LicensesAlloc MaxCPUs MaxNodes MCSLabel mem-per-tres MinCPUs MinMemory MinTime "
    "MinTmpDisk Name Network Nice Nodes NodeList NTPerBoard NTPerCore NTPerNode NTPerSocket NumCPUs NumNodes NumTasks "
    "Origin OriginRaw OverSubscribe Partition PreemptTime PendingTime Prefer Priority PriorityLong Profile QOS Reason "
    "ReasonList Reboot ReqNodes ReqSwitch Requeue Reservation ResizeTime RestartCnt ResvPort SchedNodes SCT "
    "SiblingsActive SiblingsActiveRaw SiblingsViable Sockets StartTime State StateCompact StdErr StdIn StdOut StepID "
    "StepName StepState SubmitTime system_comment Threads TimeLeft TimeLimit TimeUsed tres-alloc tres-bind tres-freq "
    "tres-per-job tres-per-node tres-per-socket tres-per-step tres-per-task UserID UserName Wait4Switch WCKey WorkDir "
    "nosuch tres-per-nod user job"
).split()
SI_FIELDS = (
    "All AllocMem AllocNodes Available Cluster Comment Cores CPUs CPUsLoad CPUsState DefaultTime Disk Extra Features "
    "features_act FreeMem Gres GresUsed Groups MaxCPUsPerNode Memory NodeAddr NodeAI NodeAIOT NodeHost NodeList Nodes "
    "OverSubscribe Partition PartitionName Port PreemptMode PriorityJobFactor PriorityTier Reason Root Size "
    "SocketCoreThread Sockets StateCompact StateLong StateComplete Threads Time TimeStamp User UserLong Version "
    "Weight nosuch Network Oversubscribe ResumeAfter Feature inst_id"
).split()
SA_FIELDS = (
    "Account AdminComment AllocCPUS AllocNodes AllocTRES AssocID AveCPU AveCPUFreq AveDiskRead AveRSS AveVMSize "
    "BlockID Cluster Comment Constraints Container CPUTime CPUTimeRAW DBIndex DerivedExitCode Elapsed ElapsedRaw "
    "Eligible End ExitCode Extra FailedNode Flags GID Group JobID JobIDRaw JobName Layout Licenses MaxRSS MaxRSSNode "
    "MCSLabel NCPUS NNodes NodeList NTasks Partition Planned PlannedCPU PlannedCPURAW Priority QOS QOSRAW QOSREQ "
    "Reason ReqCPUFreq ReqCPUFreqGov ReqCPUFreqMax ReqCPUFreqMin ReqCPUS ReqMem ReqNodes ReqReservation Reservation "
    "ReservationId Restarts SLUID Start State StdErr StdIn StdOut Submit SubmitLine Suspended SystemComment SystemCPU "
    "Timelimit TimelimitRaw TotalCPU TRESUsageInAve TRESUsageInTot UID User UserCPU WCKey WCKeyID WorkDir nosuch ALL "
    "job jobi max"
).split()

SA_MORE = (
    "AveDiskWrite AvePages ConsumedEnergy ConsumedEnergyRaw MaxDiskRead MaxDiskReadNode MaxDiskReadTask MaxDiskWrite "
    "MaxDiskWriteNode MaxDiskWriteTask MaxPages MaxPagesNode MaxPagesTask MaxRSSTask MaxVMSize MaxVMSizeNode "
    "MaxVMSizeTask MinCPU MinCPUNode MinCPUTask ReqTRES TRESUsageInMax TRESUsageInMaxNode TRESUsageInMaxTask "
    "TRESUsageInMin TRESUsageInMinNode TRESUsageInMinTask TRESUsageOutAve TRESUsageOutMax TRESUsageOutMaxNode "
    "TRESUsageOutMaxTask TRESUsageOutMin TRESUsageOutMinNode TRESUsageOutMinTask TRESUsageOutTot AllocGRES ReqGRES"
).split()
STEP_FIELDS = (
    "StepID StepName StepState ArrayJobID ArrayTaskID ContainerID MemPerTres NodeList NumTasks Partition JobID "
    "ReqSwitch ResvPorts StartTime TimeLimit TimeUsed UserID UserName CPUFreq NumCPUs Cluster Network"
).split()
SHARE_FIELDS = (
    "Account Cluster EffectvUsage FairShare GrpTRESMins GrpTRESRaw ID LevelFS NormShares NormUsage Partition RawShares "
    "RawUsage TRESRunMins User nosuch raw eff lev norm grp"
).split()
STAT_FIELDS = (
    "AveCPU AveCPUFreq AveDiskRead AveDiskWrite AvePages AveRSS AveVMSize ConsumedEnergy ConsumedEnergyRaw JobID "
    "MaxDiskRead MaxDiskReadNode MaxDiskReadTask MaxDiskWrite MaxDiskWriteNode MaxDiskWriteTask MaxPages MaxPagesNode "
    "MaxPagesTask MaxRSS MaxRSSNode MaxRSSTask MaxVMSize MaxVMSizeNode MaxVMSizeTask MinCPU MinCPUNode MinCPUTask "
    "Nodelist NTasks Pids ReqCPUFreq ReqCPUFreqMin ReqCPUFreqMax ReqCPUFreqGov TRESUsageInAve TRESUsageInMax "
    "TRESUsageInMaxNode TRESUsageInMaxTask TRESUsageInMin TRESUsageInTot TRESUsageOutAve TRESUsageOutTot nosuch"
).split()


def _fields(names: list[str], sizes: Callable[[Random], str]) -> Callable[[Random], str]:
    def pick(rng: Random) -> str:
        words = []
        for _ in range(rng.choice([1, 1, 2, 3, 6])):
            word = rng.choice(names)
            if rng.random() < 0.2:
                word = rng.choice([word.lower(), word.upper(), word[: max(1, len(word) - rng.randint(1, 4))]])
            words.append(word + sizes(rng))
        return rng.choice([",", ",", ",", ", ", " "]).join(words) + rng.choice([""] * 9 + [","])

    return pick


def _colon_size(rng: Random) -> str:
    return rng.choice(["", "", "", ":10", ":.20", ":-8", ":x", ":", ":5|", ":.6:", ":0", ":|", ":.3,"])


def _percent_size(rng: Random) -> str:
    return rng.choice(["", "", "", "%10", "%-12", "%", "%x", "%0", "%3", "%-"])


def _letters(rng: Random) -> str:
    words = []
    for _ in range(rng.randint(1, 5)):
        size = rng.choice(["", "", "", ".", "10", ".12", "-7", "2", ".3", "0"])
        words.append(
            rng.choice(["%"] * 9 + ["", "%%"])
            + size
            + rng.choice(SQ_LETTERS + "#")
            + rng.choice(["", "", "|", "x", "\\n"])
        )
    return rng.choice([" ", "|", "", ","]).join(words)


def _sort(rng: Random) -> str:
    return rng.choice([",", ",", "", " "]).join(
        rng.choice(["", "", "-", "+", "*"]) + rng.choice(SQ_LETTERS + "#?") for _ in range(rng.randint(1, 3))
    )


def _one(values: list[str]) -> Callable[[Random], str]:
    return lambda rng: rng.choice(values)


Kind = Callable[[Random], str] | None
(
    number,
    moment,
    span,
    user,
    account,
    partition,
    qos,
    nodes,
    job,
    state,
    node_state,
    name,
    signal,
    plain,
    licenses,
    cluster,
) = map(
    _one,
    (
        NUMBERS,
        TIMES,
        SPANS,
        USERS,
        ACCOUNTS,
        PARTITIONS,
        QOSES,
        NODES,
        JOBS,
        STATES,
        NODE_STATES,
        NAMES,
        SIGNALS,
        PLAIN,
        LICENSES,
        CLUSTERS,
    ),
)

# name, letter ("": none), kind of argument (None: no argument); a trailing "?" on the name: the argument is optional
TABLES: dict[str, list[tuple[str, str, Kind]]] = {
    "squeue": [
        ("accounts", "A", account),
        ("all", "a", None),
        ("array", "r", None),
        ("expand-patterns", "", None),
        ("Format", "O", _fields(SQ_FIELDS, _colon_size)),
        ("format", "o", _letters),
        ("federation", "", None),
        ("hide", "", None),
        ("jobs?", "j", job),
        ("local", "", None),
        ("long", "l", None),
        ("licenses", "L", licenses),
        ("clusters", "M", cluster),
        ("me", "", None),
        ("name", "n", name),
        ("noconvert", "", None),
        ("nodelist", "w", nodes),
        ("noheader", "h", None),
        ("notme", "", None),
        ("only-job-state", "", None),
        ("partitions", "p", partition),
        ("priority", "P", None),
        ("qos", "q", qos),
        ("reservation", "R", plain),
        ("running-over", "", span),
        ("running-under", "", span),
        ("sib", "", None),
        ("sort", "S", _sort),
        ("start", "", None),
        ("steps?", "s", job),
        ("states", "t", state),
        ("usage", "", None),
        ("users", "u", user),
        ("verbose", "v", None),
        ("version", "V", None),
    ],
    "sinfo": [
        ("all", "a", None),
        ("dead", "d", None),
        ("exact", "e", None),
        ("federation", "", None),
        ("future", "F", None),
        ("hide", "", None),
        ("local", "", None),
        ("long", "l", None),
        ("clusters", "M", cluster),
        ("nodes", "n", nodes),
        ("noconvert", "", None),
        ("noheader", "h", None),
        ("Node", "N", None),
        ("format", "o", _letters),
        ("Format", "O", _fields(SI_FIELDS, _colon_size)),
        ("partition", "p", partition),
        ("responding", "r", None),
        ("list-reasons", "R", None),
        ("summarize", "s", None),
        ("sort", "S", _sort),
        ("states", "t", node_state),
        ("reservation", "T", None),
        ("verbose", "v", None),
        ("version", "V", None),
    ],
    "sacct": [
        ("allusers", "a", None),
        ("accounts", "A", account),
        ("allocations", "X", None),
        ("array", "", None),
        ("brief", "b", None),
        ("batch-script", "B", None),
        ("completion", "c", None),
        ("constraints", "C", plain),
        ("delimiter", "", _one(DELIMITERS)),
        ("duplicates", "D", None),
        ("federation", "", None),
        ("helpformat", "e", None),
        ("helpreason", "", None),
        ("helpstate", "", None),
        ("endtime", "E", moment),
        ("env-vars", "", None),
        ("expand-patterns", "", None),
        ("file", "f", plain),
        ("flags", "F", _one(["SchedSubmit", "SchedMain", "nosuch", "", "SchedBackfill", "StartReceived"])),
        ("group", "g", _one(["root", "users", "nosuch", "0", "100", ""])),
        ("local", "", None),
        ("name", "", name),
        ("nnodes", "i", number),
        ("ncpus", "I", number),
        ("jobs", "j", job),
        ("timelimit-min", "k", span),
        ("timelimit-max", "K", span),
        ("long", "l", None),
        ("allclusters", "L", None),
        ("clusters", "M", cluster),
        ("nodelist", "N", nodes),
        ("noconvert", "", None),
        ("units", "", _one(UNITS)),
        ("noheader", "n", None),
        ("format", "o", _fields(SA_FIELDS + SA_MORE, _percent_size)),
        ("parsable", "p", None),
        ("parsable2", "P", None),
        ("qos", "q", qos),
        ("partition", "r", partition),
        ("reason", "R", plain),
        ("state", "s", state),
        ("starttime", "S", moment),
        ("truncate", "T", None),
        ("uid", "u", user),
        ("use-local-uid", "", None),
        ("user", "u", user),
        ("verbose", "v", None),
        ("version", "V", None),
        ("wckeys", "W", plain),
        ("whole-hetjob?", "", _one(["yes", "no", "x", ""])),
        ("associations", "x", number),
    ],
    "sprio": [
        ("noheader", "h", None),
        ("jobs?", "j", job),
        ("long", "l", None),
        ("clusters", "M", cluster),
        ("norm", "n", None),
        ("format", "o", _letters),
        ("sort", "S", _sort),
        ("partition", "p", partition),
        ("user", "u", user),
        ("verbose", "v", None),
        ("version", "V", None),
        ("weights", "w", None),
        ("federation", "", None),
        ("local", "", None),
        ("sib", "", None),
        ("usage", "", None),
    ],
    "sshare": [
        ("accounts", "A", account),
        ("all", "a", None),
        ("long", "l", None),
        ("cluster", "M", cluster),
        ("noheader", "n", None),
        ("parsable", "p", None),
        ("parsable2", "P", None),
        ("partition", "m", None),
        ("users", "u", user),
        ("Users", "U", None),
        ("verbose", "v", None),
        ("version", "V", None),
        (
            "format",
            "o",
            _fields(
                SHARE_FIELDS,
                _percent_size,
            ),
        ),
        ("helpformat", "e", None),
    ],
    "sstat": [
        ("allsteps", "a", None),
        ("helpformat", "e", None),
        ("jobs", "j", job),
        ("noheader", "n", None),
        ("noconvert", "", None),
        ("pidformat", "i", None),
        ("parsable", "p", None),
        ("parsable2", "P", None),
        ("verbose", "v", None),
        ("version", "V", None),
        (
            "format",
            "o",
            _fields(STAT_FIELDS, _percent_size),
        ),
    ],
    "scancel": [
        ("account", "A", account),
        ("batch", "b", None),
        ("ctld", "", None),
        ("cron", "c", None),
        ("full", "f", None),
        ("hurry", "H", None),
        ("clusters", "M", cluster),
        ("me", "", None),
        ("name", "n", name),
        ("nodelist", "w", nodes),
        ("partition", "p", partition),
        ("qos", "q", qos),
        ("quiet", "Q", None),
        ("reservation", "R", plain),
        ("sibling", "", cluster),
        ("signal", "s", signal),
        ("state", "t", state),
        ("usage", "", None),
        ("user", "u", user),
        ("verbose", "v", None),
        ("version", "V", None),
        ("wckey", "", plain),
        ("admin-comment", "", plain),
    ],
    "sattach": [
        ("label", "l", None),
        ("quiet", "Q", None),
        ("usage", "u", None),
        ("verbose", "v", None),
        ("version", "V", None),
        ("layout", "", None),
        ("input-filter", "", number),
        ("output-filter", "", number),
        ("error-filter", "", number),
        ("pty", "", None),
    ],
    "sbcast": [
        ("compress?", "C", _one(["lz4", "none", "x", ""])),
        ("exclude", "", plain),
        ("fanout", "F", number),
        ("treewidth", "", number),
        ("force", "f", None),
        ("jobid", "j", job),
        ("no-allocation?", "Z", None),
        ("nodelist", "w", nodes),
        ("send-libs?", "", _one(["yes", "no", "x"])),
        ("preserve", "p", None),
        ("size", "s", number),
        ("timeout", "t", number),
        ("verbose", "v", None),
        ("version", "V", None),
        ("usage", "", None),
    ],
    "sdiag": [
        ("all", "a", None),
        ("reset", "r", None),
        ("sort-by-id", "i", None),
        ("clusters", "M", cluster),
        ("sort-by-time", "t", None),
        ("sort-by-time2", "T", None),
        ("usage", "", None),
        ("version", "V", None),
    ],
}
OPERANDS: dict[str, list[tuple[int, Kind]]] = {  # how many of them, and of what kind
    "squeue": [(0, job)] * 8 + [(1, job)],
    "sinfo": [(0, plain)] * 9 + [(1, plain)],
    "sacct": [(0, plain)] * 9 + [(1, job)],
    "sprio": [(0, job)] * 9 + [(1, job)],
    "sshare": [(0, plain)] * 9 + [(1, plain)],
    "sstat": [(0, job)] * 5 + [(1, job)],
    "scancel": [(0, job), (1, job), (1, job), (2, job), (3, job)],
    "sattach": [(0, job), (1, job), (1, job), (1, job), (2, job)],
    "sbcast": [
        (0, plain),
        (1, plain),
        (2, _one(["/etc/hostname", "/nosuch", "/tmp/sbcast-out", "", "relative"])),
        (2, _one(["/etc/hostname", "/tmp/x"])),
        (3, plain),
    ],
    "sdiag": [(0, plain)] * 9 + [(1, plain)],
}


def option_line(command: str, rng: Random) -> Line:
    """A line of a command whose arguments are options."""
    table = TABLES[command]
    words: Line = []
    for _ in range(rng.choice([0, 1, 1, 1, 2, 2, 3, 4])):
        long_name, letter, kind = rng.choice(table)
        optional = long_name.endswith("?")
        long_name = long_name.rstrip("?")
        value = kind(rng) if kind else None
        if letter and (long_name == "" or rng.random() < 0.5):
            if value is None:
                words.append(f"-{letter}")
            elif optional or rng.random() < 0.5:
                words.append(f"-{letter}{value}")
            else:
                words += [f"-{letter}", value]
            continue
        chance = rng.random()
        if chance < 0.12:
            long_name = long_name[: rng.randint(1, len(long_name))]
        elif chance < 0.15:
            long_name = long_name[:-1] + "zz"
        if value is None:
            words.append(f"--{long_name}" + rng.choice([""] * 15 + ["=x"]))
        elif optional or rng.random() < 0.7:
            words.append(f"--{long_name}={value}" if rng.random() < 0.95 else f"--{long_name}")
        else:
            words += [f"--{long_name}", value]
    count, kind = rng.choice(OPERANDS[command])
    operands = [kind(rng) for _ in range(count)] if kind else []
    if rng.random() < 0.03:
        words.append(rng.choice(["--", "-", "-?", "-9", "--=", "---"]))
    return [command, *words, *operands] if rng.random() < 0.8 else [command, *operands, *words]


# ---------------------------------------------------------------------------------------------------- every field

_LETTER_SIZES = ("", "3", ".3", "30", ".30", "0", ".0")
_NAME_SIZES = ("", ":|", ":3|", ":.3|", ":30|", ":.30|", ":0|", ":-4|")
_COLUMN_SIZES = ("", "%3", "%-3", "%30", "%-30", "%0", "%1")


def every_field(command: str) -> list[Line]:
    """One line for each field of a reader, in all sizes, with the options that change what fields say."""
    result: list[Line] = []

    def letters(option: str, known: str, *more: list[str]) -> None:
        for letter in dict.fromkeys(known):
            text = "".join(f"%{size}{letter}|" for size in _LETTER_SIZES)
            result.extend([command, *words, option, text] for words in more)

    def names(option: str, known: list[str], sizes: tuple[str, ...], *more: list[str]) -> None:
        for name in dict.fromkeys(known):
            text = ",".join(name + size for size in sizes)
            result.extend([command, *words, option, text] for words in more)

    if command == "squeue":
        letters("-o", SQ_LETTERS, ["-a", "-r", "-t", "all"], ["-s"])
        names("-O", SQ_FIELDS + STEP_FIELDS, _NAME_SIZES, ["-a", "-t", "all", "--expand-patterns"], ["-s"])
        letters("-S", SQ_LETTERS, *[["-a", "-t", "all", "-o", "%i %P %t %T %p %S", *more] for more in ([], ["-s"])])
    elif command == "sinfo":
        letters("-o", SQ_LETTERS, ["-N"], ["-a", "-e"], ["-R"])
        names("-O", SI_FIELDS, _NAME_SIZES, ["-N"], ["-a"], ["-e", "--noconvert"])
    elif command == "sprio":
        letters("-o", SQ_LETTERS, [], ["-w"], ["-n"])
        letters("-S", SQ_LETTERS, ["-l"])
    elif command == "sacct":
        names("-o", SA_FIELDS + SA_MORE, _COLUMN_SIZES, ["-a"], ["-aXP"], ["-aD", "--noconvert"])
    elif command in ("sshare", "sstat"):
        fields = {"sshare": SHARE_FIELDS, "sstat": STAT_FIELDS}[command]
        more = {"sshare": (["-a"], ["-lPa"], ["-m"]), "sstat": (["-aj", "{run}"], ["-aPj", "{run}"])}[command]
        names("-o", fields, _COLUMN_SIZES, *more)
    return result
