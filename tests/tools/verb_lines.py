"""Random command lines of scontrol, sacctmgr, sreport and of the three that submit."""

from __future__ import annotations

from random import Random

from lines import ACCOUNTS, JOBS, LICENSES, NODES, NUMBERS, PARTITIONS, PLAIN, QOSES, SIGNALS, SPANS, TIMES, USERS, Line

from slurmbridge.slurm.options import COMMANDS, OPTIONS


def _verb(rng: Random, word: str) -> str:
    chance = rng.random()
    if chance < 0.1:
        return word[: max(1, len(word) - rng.randint(1, len(word)))]
    if chance < 0.14:
        return word.upper()
    return word + "x" if chance < 0.16 else word


# ------------------------------------------------------------------------------------------------------- scontrol

_SHOW = {
    "job": JOBS,
    "jobs": JOBS,
    "node": NODES,
    "nodes": NODES,
    "partition": PARTITIONS,
    "step": JOBS,
    "steps": JOBS,
    "config": PLAIN,
    "reservation": PLAIN,
    "hostnames": NODES,
    "hostlist": ["n1,n2", "n2,n1,n2", "", "n[1-2],x", "a1b2,a1b3", "/etc/hostname", "/nosuch"],
    "hostlistsorted": ["n2,n1", "n1,n10,n9", "", "n[3,1]"],
    "licenses": LICENSES,
    "daemons": PLAIN,
    "topology": NODES,
    "assoc_mgr": [
        "users=alice",
        "accounts=phys",
        "flags=users",
        "flags=nosuch",
        "qos=normal",
        "x",
        "flags=assoc",
        "users=nosuch",
    ],
    "burstbuffer": PLAIN,
    "federation": PLAIN,
    "aliases": NODES,
    "slurmd": NODES,
    "bbstat": PLAIN,
    "dwstat": PLAIN,
    "frontend": PLAIN,
    "powercap": PLAIN,
    "topoconf": PLAIN,
    "nosuch": PLAIN,
    "jobid": JOBS,
    "hostlists": NODES,
    "resv": PLAIN,
}
_UPDATE = {
    "job": {
        "NumCPUs": NUMBERS,
        "TimeLimit": [*SPANS, "+10", "-5:00", "+1-0"],
        "Nice": NUMBERS,
        "Priority": NUMBERS,
        "Partition": PARTITIONS,
        "QOS": QOSES,
        "Account": ACCOUNTS,
        "Comment": PLAIN,
        "Name": PLAIN,
        "StartTime": TIMES,
        "Dependency": ["afterok:{run}", "after:1", "nosuch:1", "", "singleton", "afterany:999999"],
        "NumNodes": NUMBERS,
        "ReqNodeList": NODES,
        "ExcNodeList": NODES,
        "Features": ["intel", "nosuch", "", "intel&ib", "intel|amd", "[intel|amd]", "intel*2"],
        "Gres": ["gpu:1", "nosuch:1", "", "gpu:a100:2", "gpu:x:1", "gpu"],
        "Requeue": NUMBERS,
        "MinMemoryNode": NUMBERS,
        "MinMemoryCPU": NUMBERS,
        "Deadline": TIMES,
        "EndTime": TIMES,
        "OverSubscribe": ["yes", "no", "x", ""],
        "Contiguous": ["yes", "no", "x", "1"],
        "AdminComment": PLAIN,
        "WCKey": PLAIN,
        "Licenses": LICENSES,
        "NumTasks": NUMBERS,
        "MailUser": PLAIN,
        "MailType": ["ALL", "END,FAIL", "x", ""],
        "ArrayTaskThrottle": NUMBERS,
        "TimeMin": SPANS,
        "UserID": USERS,
        "StdOut": PLAIN,
        "WorkDir": PLAIN,
        "nosuch": PLAIN,
        "DelayBoot": SPANS,
        "Switches": ["1", "2@10", "x"],
        "BurstBuffer": PLAIN,
        "Reservation": PLAIN,
        "SiteFactor": NUMBERS,
        "CpusPerTask": NUMBERS,
        "CoreSpec": NUMBERS,
        "ThreadSpec": NUMBERS,
        "Prefer": ["intel", "nosuch", ""],
        "MCSLabel": PLAIN,
        "ReservationName": PLAIN,
        "ResetAccrueTime": [""],
        "Extra": PLAIN,
        "MinTmpDiskNode": NUMBERS,
        "EligibleTime": TIMES,
        "ReqCores": NUMBERS,
        "Command": PLAIN,
        "TRESPerNode": ["gres/gpu:1", "x", "gres:gpu:1"],
        "cluster": ["lab"],
        "Shared": ["yes"],
        "NumTasksPerNode": NUMBERS,
        "TasksPerNode": NUMBERS,
    },
    "node": {
        "State": [
            "DOWN",
            "RESUME",
            "DRAIN",
            "IDLE",
            "FAIL",
            "UNDRAIN",
            "POWER_UP",
            "POWER_DOWN",
            "NoResp",
            "nosuch",
            "",
            "FUTURE",
            "MAINT",
            "CANCEL_REBOOT",
            "drai",
        ],
        "Reason": PLAIN,
        "Weight": NUMBERS,
        "Comment": PLAIN,
        "Features": ["a,b", "", "intel,skylake,ib", "a b"],
        "AvailableFeatures": ["a,b", "intel,skylake,ib", ""],
        "ActiveFeatures": ["intel", "a", "", "intel,ib"],
        "Gres": ["gpu:2", "", "nosuch:1", "gpu:a100:4"],
        "NodeAddr": ["127.0.0.1", ""],
        "NodeHostName": ["vm"],
        "CpuBind": ["none", "core", "x", "socket"],
        "Extra": PLAIN,
        "ResumeAfter": NUMBERS,
        "nosuch": PLAIN,
        "CertToken": PLAIN,
        "Topology": PLAIN,
        "InstanceId": PLAIN,
        "InstanceType": PLAIN,
    },
    "partition": {
        "State": ["UP", "DOWN", "DRAIN", "INACTIVE", "x", ""],
        "MaxTime": SPANS,
        "DefaultTime": SPANS,
        "MaxNodes": NUMBERS,
        "MinNodes": NUMBERS,
        "Default": ["YES", "NO", "x"],
        "Hidden": ["YES", "NO", "x"],
        "AllowAccounts": ACCOUNTS,
        "DenyAccounts": ACCOUNTS,
        "AllowQOS": QOSES,
        "DenyQOS": QOSES,
        "AllowGroups": ["root", "nosuch", "ALL", ""],
        "PriorityJobFactor": NUMBERS,
        "PriorityTier": NUMBERS,
        "OverSubscribe": ["YES", "NO", "EXCLUSIVE", "FORCE", "FORCE:2", "x", "YES:3", ""],
        "Nodes": NODES,
        "PreemptMode": ["OFF", "REQUEUE", "x", "CANCEL", "SUSPEND", "GANG"],
        "RootOnly": ["YES", "x", "NO"],
        "ReqResv": ["YES", "x", "NO"],
        "GraceTime": NUMBERS,
        "DisableRootJobs": ["YES", "NO", "x"],
        "MaxCPUsPerNode": NUMBERS,
        "TRESBillingWeights": ["CPU=1", "x", "", "CPU=1,Mem=0.25G"],
        "LLN": ["YES", "NO", "x"],
        "DefMemPerCPU": NUMBERS,
        "MaxMemPerNode": NUMBERS,
        "AllocNodes": NODES,
        "Alternate": PARTITIONS,
        "OverTimeLimit": NUMBERS,
        "QOS": QOSES,
        "nosuch": PLAIN,
        "ExclusiveUser": ["YES", "x", "NO"],
        "JobDefaults": ["DefCpuPerGPU=2", "x", ""],
        "SuspendTime": NUMBERS,
        "CpuBind": ["core", "x"],
        "MaxCPUsPerSocket": NUMBERS,
        "PowerDownOnIdle": ["YES", "x"],
        "ExclusiveTopo": ["YES", "x"],
        "Topology": PLAIN,
        "SelectTypeParameters": PLAIN,
    },
}
_UPDATE_TARGET = {"job": ("JobId", JOBS), "node": ("NodeName", NODES), "partition": ("PartitionName", PARTITIONS)}
_RESERVATION = {
    "ReservationName": ["r1", "r2", "", "a b"],
    "StartTime": ["now", "now+1hour", "bogus", "2027-01-01", "", "now-1hour"],
    "Duration": SPANS,
    "EndTime": TIMES,
    "Users": USERS,
    "Accounts": ACCOUNTS,
    "Nodes": NODES,
    "NodeCnt": NUMBERS,
    "CoreCnt": NUMBERS,
    "Flags": [
        "MAINT",
        "IGNORE_JOBS",
        "nosuch",
        "DAILY",
        "MAINT,OVERLAP",
        "",
        "ANY_NODES",
        "PART_NODES",
        "SPEC_NODES",
        "FLEX",
        "PURGE_COMP=10",
        "MAGNETIC",
        "REPLACE",
        "STATIC_ALLOC",
        "WEEKDAY",
        "+DAILY",
        "-DAILY",
    ],
    "PartitionName": PARTITIONS,
    "Features": ["intel", "nosuch", ""],
    "TRES": ["cpu=4", "node=2", "x", "gres/gpu=1", "cpu=x"],
    "Groups": ["root", "nosuch"],
    "nosuch": PLAIN,
    "Licenses": LICENSES,
    "BurstBuffer": PLAIN,
    "MaxStartDelay": SPANS,
    "Comment": PLAIN,
    "Skip": PLAIN,
    "AllowedPartition": PARTITIONS,
    "QOS": QOSES,
}
_VERBS = [
    "hold",
    "uhold",
    "release",
    "requeue",
    "requeuehold",
    "suspend",
    "resume",
    "top",
    "notify",
    "wait_job",
    "listpids",
    "listjobs",
    "liststeps",
    "completing",
    "ping",
    "version",
    "errnumstr",
    "setdebug",
    "setdebugflags",
    "schedloglevel",
    "fsdampeningfactor",
    "cluster",
    "details",
    "oneliner",
    "all",
    "hide",
    "quiet",
    "verbose",
    "help",
    "pidinfo",
    "power",
    "reboot",
    "cancel_reboot",
    "token",
    "write",
    "getent",
    "gethost",
    "getaddrs",
    "callerid",
    "hash",
    "hash_file",
    "nosuch",
    "reconfigure",
    "exit",
    "quit",
    "!!",
]
_VERB_WORDS = {
    "errnumstr": NUMBERS,
    "setdebug": ["info", "x", "3", "99", "debug2", "quiet", "-1"],
    "setdebugflags": ["+backfill", "-backfill", "x", "+x", "+priority"],
    "schedloglevel": ["0", "1", "enable", "disable", "x", "2"],
    "fsdampeningfactor": NUMBERS,
    "cluster": ["lab", "nosuch"],
    "power": ["up", "down", "x", "n1"],
    "reboot": ["ASAP", "n1", "x"],
    "write": ["batch_script", "config", "x"],
    "getent": NODES,
    "gethost": ["localhost", "nosuch"],
    "getaddrs": NODES,
    "token": ["lifespan=10", "x", "username=alice"],
    "hash": ["x"],
    "hash_file": ["/etc/hostname", "/nosuch"],
    "pidinfo": NUMBERS,
    "callerid": NUMBERS,
    "listpids": JOBS,
    "cancel_reboot": NODES,
    "ping": PLAIN,
    "version": PLAIN,
    "completing": PLAIN,
}


def _pairs(rng: Random, keys: dict[str, list[str]], most: int) -> Line:
    words = []
    for _ in range(rng.randint(1, most)):
        key = rng.choice(list(keys))
        words.append(_verb(rng, key) + rng.choice(["="] * 30 + ["", "+=", "-=", " "]) + rng.choice(keys[key]))
    return words


def scontrol_line(rng: Random) -> Line:
    flags = rng.choice(
        [[]] * 10
        + [
            ["-o"],
            ["-d"],
            ["-a"],
            ["-dd"],
            ["-F"],
            ["-Q"],
            ["-v"],
            ["--oneliner"],
            ["--hide"],
            ["-M", "lab"],
            ["-M", "nosuch"],
            ["-u", "alice"],
            ["--local"],
            ["-u", "nosuch"],
            ["-x"],
            ["--one"],
            ["--federation"],
            ["-V"],
            ["--sib"],
        ]
    )
    chance = rng.random()
    if chance < 0.3:
        what = rng.choice(list(_SHOW))
        count = rng.choice([0, 1, 1, 1, 2])
        return [
            "scontrol",
            *flags,
            _verb(rng, "show"),
            _verb(rng, what),
            *(rng.choice(_SHOW[what]) for _ in range(count)),
        ]
    if chance < 0.65:
        what = rng.choice(list(_UPDATE))
        target, values = _UPDATE_TARGET[what]
        words = _pairs(rng, _UPDATE[what], 2)
        head = rng.choice(
            [[f"{target}={rng.choice(values)}"]] * 12
            + [[what, rng.choice(values)], [], [f"{target}={rng.choice(values)}"] * 2, [what]]
        )
        return ["scontrol", *flags, _verb(rng, "update"), *(head + words if rng.random() < 0.9 else words + head)]
    if chance < 0.78:
        verb = rng.choice(["create", "create", "update", "delete"])
        words = _pairs(rng, _RESERVATION, 6)
        head = rng.choice([["reservation"], ["reservation"], [], ["ReservationName=r1"], ["reservationname=r2"]])
        if verb == "delete":
            words = [
                rng.choice(
                    [
                        "ReservationName=r1",
                        "PartitionName=nosuch",
                        "r1",
                        "reservation=r2",
                        "JobId=1",
                        "NodeName=nosuch",
                        "reservation r1",
                    ]
                )
            ]
            head = []
        elif rng.random() < 0.6:
            words += ["StartTime=now+1hour", "Duration=10", "Users=root", "Nodes=n1"]
        if rng.random() < 0.1 and verb == "create":
            head, words = ["partition"], [rng.choice(["PartitionName=batch", "PartitionName=", "Nodes=n1", "x"])]
        return ["scontrol", *flags, _verb(rng, verb), *head, *words]
    verb = rng.choice(_VERBS)
    pool = _VERB_WORDS.get(verb, JOBS)
    words = [rng.choice(pool) for _ in range(rng.choice([0, 1, 1, 1, 1, 2, 3]))]
    if verb == "write" and words:
        words = [words[0], rng.choice(JOBS), *rng.choice([[], ["-"], ["/nosuch/x"]])]
    if verb == "notify" and words:
        words = [rng.choice(JOBS), "hello", "there"][: len(words) + 1]
    if verb in ("suspend", "hold", "release") and rng.random() < 0.2:
        words = [rng.choice(["jobname=sleeper", "name=nosuch", "JobName=held", "jobid={run}", "JobId={held}"])]
    if verb in ("requeue", "requeuehold") and rng.random() < 0.3:
        words.insert(0, rng.choice(["incomplete", "State=SpecialExit", "state=x"]))
    return ["scontrol", *flags, _verb(rng, verb), *words]


# ------------------------------------------------------------------------------------------------------- sacctmgr

_LIMITS = {
    "Fairshare": [*NUMBERS, "parent"],
    "GrpJobs": NUMBERS,
    "GrpTRES": ["cpu=4", "x", "cpu=-1", "gres/gpu=1", "", "cpu=x", "nosuch=1", "cpu=1,cpu=2"],
    "MaxJobs": NUMBERS,
    "MaxWall": SPANS,
    "MaxSubmitJobs": NUMBERS,
    "Priority": NUMBERS,
    "DefaultQOS": QOSES,
    "QOS": [*QOSES, "-1"],
    "MaxTRES": ["cpu=4", "x", ""],
    "GrpWall": SPANS,
    "MaxTRESMins": ["cpu=10", "x"],
    "GrpSubmit": NUMBERS,
    "Comment": PLAIN,
    "nosuch": PLAIN,
    "GrpTRESMins": ["cpu=10", ""],
    "MaxTRESPN": ["cpu=2"],
    "GrpCPUs": NUMBERS,
}
_QOS_SET = {
    "Priority": NUMBERS,
    "Flags": ["DenyOnLimit", "nosuch", "", "NoReserve,DenyOnLimit", "-1", "PartitionMaxNodes", "OverPartQOS"],
    "GraceTime": NUMBERS,
    "GrpJobs": NUMBERS,
    "MaxTRESPerUser": ["cpu=4", "x", "cpu=-1"],
    "MaxWall": SPANS,
    "Preempt": [*QOSES, "-1"],
    "PreemptMode": ["cancel", "requeue", "x", "cluster", "off", ""],
    "UsageFactor": ["1", "0.5", "x", "-1", ""],
    "MaxJobsPerUser": NUMBERS,
    "LimitFactor": NUMBERS,
    "MinTRESPerJob": ["cpu=1", "x"],
    "PreemptExemptTime": SPANS,
    "UsageThreshold": NUMBERS,
    "Description": PLAIN,
    "MaxSubmitJobsPerAccount": NUMBERS,
    "nosuch": PLAIN,
    "RawUsage": NUMBERS,
    "Name": PLAIN,
    "ID": NUMBERS,
}
_WHERE = {
    "account": {
        "name": ["fz1", "fz2", "phys", "nosuch", ""],
        "cluster": ["lab", "nosuch", ""],
        "parent": ACCOUNTS,
        "organization": PLAIN,
        "description": PLAIN,
        "nosuch": PLAIN,
    },
    "user": {
        "name": USERS,
        "account": ACCOUNTS,
        "cluster": ["lab", "nosuch"],
        "adminlevel": ["none", "operator", "admin", "x"],
        "defaultaccount": ACCOUNTS,
        "partition": PARTITIONS,
        "nosuch": PLAIN,
        "defaultwckey": PLAIN,
    },
    "qos": {"name": [*QOSES, "fzq"], "id": NUMBERS, "nosuch": PLAIN, "preemptmode": ["cancel", "x"]},
    "cluster": {
        "name": ["lab", "nosuch", "fzc"],
        "classification": ["capacity", "x", ""],
        "rpc": NUMBERS,
        "nosuch": PLAIN,
        "flags": ["x", ""],
    },
}
_LIST = {
    "account": "Account,Descr,Org",
    "association": "Account,User,Share,QOS",
    "user": "User,DefaultAccount,Admin",
    "qos": "Name,Priority,Flags,GrpTRES",
    "cluster": "Cluster,Share",
    "tres": "Type,Name,ID",
    "event": "Cluster,NodeName,State,Reason",
    "transaction": "Action,Actor,Where",
    "wckey": "WCKey",
    "coordinator": "Account",
    "runawayjobs": "ID",
    "configuration": "x",
    "problem": "Account",
    "reservation": "Name",
    "resource": "Name,Server",
    "federation": "Federation",
    "stats": "x",
    "nosuch": "x",
    "instance": "Cluster",
}
_CONDITIONS = [
    "withassoc",
    "withcoord",
    "tree",
    "withdeleted",
    "start=2026-01-01",
    "start=x",
    "end=now",
    "user=alice",
    "account=phys",
    "cluster=lab",
    "names=alice",
    "nosuch=1",
    "where",
    "name=normal",
    "withsub",
    "wopi",
    "wopl",
    "onlydefaults",
    "id=1",
    "id=x",
    "all_clusters",
    "withclusters",
    "partition=batch",
    "states=down",
    "nodes=n1",
    "reason=x",
    "action=add",
    "actor=root",
    "type=cpu",
    "format=",
    "format",
    "=",
    "users",
    "alice",
    "phys",
    "parent=root",
    "user=",
    "account=,",
    "withraw",
    "cond=duration>1",
    "maxcpu=1",
]


def sacctmgr_show_line(rng: Random) -> Line:
    """What sacctmgr lists."""
    what = rng.choice(list(_LIST))
    words = [rng.choice(_CONDITIONS) for _ in range(rng.choice([0, 0, 1, 1, 2, 3]))]
    if rng.random() < 0.5:
        names = [*_LIST[what].split(","), "x", "ID", "Cluster", "Flags", "MaxJobs", "Account%30", "User%-5", "User%0",
                 "nosuch%3", "%"]
        words.append(
            rng.choice(["format=", "format=", "Format=", "o=", "fields="])
            + ",".join(rng.choice(names) for _ in range(rng.randint(1, 4)))
        )
    return ["sacctmgr", *_manager_flags(rng), _verb(rng, rng.choice(["show", "list"])), _verb(rng, what), *words]


def _manager_flags(rng: Random) -> Line:
    return rng.choice(
        [["-i"]] * 5
        + [
            ["-iQ"],
            ["-inP"],
            ["-ip"],
            ["-n"],
            ["-P"],
            ["-p"],
            ["-s", "-i"],
            ["-v"],
            ["--immediate"],
            ["-x"],
            ["-r", "-i"],
            ["-i", "-o"],
            ["--parsable2"],
            ["--nohea"],
        ]
    )


def sacctmgr_line(rng: Random) -> Line:
    flags = _manager_flags(rng)
    chance = rng.random()
    if chance < 0.45:
        return sacctmgr_show_line(rng)
    what = rng.choice(
        [
            "account",
            "account",
            "user",
            "user",
            "qos",
            "qos",
            "cluster",
            "coordinator",
            "wckey",
            "resource",
            "job",
            "federation",
            "event",
            "association",
            "nosuch",
            "dbd",
        ]
    )
    settable = _QOS_SET if what == "qos" else {**_LIMITS, **_WHERE.get(what, {})}
    where = _WHERE.get(what, {"name": PLAIN, "nosuch": PLAIN, "user": USERS, "account": ACCOUNTS, "jobid": JOBS})
    if chance < 0.65:
        name = (
            rng.choice(["fz1", "fz2", "fz1,fz2", "phys", "", "name=fz1", "fz 3"])
            if what != "user"
            else rng.choice(["alice", "bob", "fzu", "nosuch", "name=bob", ""])
        )
        words = [
            name,
            *(
                _pairs(
                    rng,
                    {**settable, "account": ["fz1", "phys", "nosuch", "fz1,fz2"], "parent": ["fz1", "root", "nosuch"]},
                    3,
                )
                if rng.random() < 0.8
                else []
            ),
        ]
        return ["sacctmgr", *flags, _verb(rng, rng.choice(["add", "create"])), _verb(rng, what), *words]
    if chance < 0.85:
        words = []
        if rng.random() < 0.85:
            words += [*rng.choice([["where"], ["where"], []]), *_pairs(rng, where, 2)]
        if rng.random() < 0.9:
            words += ["set", *_pairs(rng, settable, 2)]
        if rng.random() < 0.2:
            words = [rng.choice(["fz1", "bob", "nosuch", "normal"]), *words]
        return ["sacctmgr", *flags, _verb(rng, "modify"), _verb(rng, what), *words]
    if chance < 0.95:
        words = rng.choice(
            [
                ["fz1"],
                ["fz2"],
                ["nosuch"],
                ["where", "name=fz1"],
                ["where"],
                [],
                ["name="],
                ["fzu"],
                ["fzq"],
                ["where", "nosuch=1"],
                ["user=nosuch"],
                ["account=fz1"],
                ["all"],
                ["bob", "account=fz1"],
                ["bob", "where", "account=fz2"],
                ["names=nosuch", "cluster=lab"],
                ["alice", "account=nosuch"],
            ]
        )
        return ["sacctmgr", *flags, _verb(rng, rng.choice(["delete", "remove"])), _verb(rng, what), *words]
    return [
        "sacctmgr",
        *flags,
        *rng.choice(
            [
                ["load"],
                ["load", "/nosuch"],
                ["load", "file=/nosuch"],
                ["dump"],
                ["dump", "nosuch"],
                ["dump", "lab", "file=/nosuch/x"],
                ["archive"],
                ["archive", "dump", "x"],
                ["archive", "nosuch"],
                ["version"],
                ["ping"],
                ["reconfigure"],
                ["shutdownx"],
                ["clear"],
                ["clear", "stats"],
                ["help"],
                ["load", "/etc/hostname"],
                ["verbose"],
                ["quiet"],
                ["!!"],
                ["exit"],
                ["parsable"],
                ["nosuch"],
                ["associations"],
                ["problem"],
                ["readonly"],
                ["rollup"],
                ["rollup", "x"],
                ["oneliner"],
                ["quit"],
                ["parsable2"],
                ["noheader"],
                ["readonly", "x"],
                ["dump", "lab", "x"],
                ["archive", "load"],
            ]
        ),
    ]


# -------------------------------------------------------------------------------------------------------- sreport

_REPORTS = {
    "cluster": [
        "utilization",
        "AccountUtilizationByUser",
        "UserUtilizationByAccount",
        "UserUtilizationByWCKey",
        "WCKeyUtilizationByUser",
        "AccountUtilizationByQOS",
        "nosuch",
        "",
    ],
    "job": ["SizesByAccount", "SizesByAccountAndWcKey", "SizesByWckey", "nosuch"],
    "reservation": ["utilization", "x"],
    "user": ["TopUsage", "x"],
    "nosuch": ["x"],
}
_SREPORT_WORDS = [
    "start=2026-01-01",
    "start=x",
    "end=now",
    "end=2026-01-02",
    "format=Account,Login,Used",
    "format=x",
    "format=Cluster",
    "users=alice",
    "accounts=phys",
    "tree",
    "grouping=1,2",
    "grouping=x",
    "grouping=individual",
    "printjobcount",
    "flatview",
    "acctashetjob",
    "nosuch=1",
    "x",
    "cluster=lab",
    "cluster=nosuch",
    "topcount=3",
    "topcount=x",
    "group",
    "nodes=n1",
    "partitions=batch",
    "jobs=1",
    "jobs=x",
    "gid=0",
    "gid=nosuch",
    "names=r1",
    "qos=normal",
    "start=",
    "",
    "format=Used%-20",
    "all_clusters",
    "wckeys=x",
    "user=nosuch",
]


def sreport_line(rng: Random) -> Line:
    flags = []
    for _ in range(rng.choice([0, 0, 1, 2])):
        flags += rng.choice(
            [
                ["-n"],
                ["-p"],
                ["-P"],
                ["-Q"],
                ["-v"],
                ["-a"],
                [
                    "-t",
                    rng.choice(["hours", "minutes", "secper", "x", "hourper", "Percent", "", "s", "minper", "secs"]),
                ],
                ["-T", rng.choice(["cpu", "all", "nosuch", "cpu,mem", "gres/gpu", ""])],
                ["-M", "lab"],
                ["-M", "nosuch"],
                ["-V"],
                ["--local"],
                ["--federation"],
                ["-x"],
                ["-s", "x"],
                ["--tres=cpu"],
                ["--parsable2"],
                ["--noh"],
                ["-t"],
                ["--quiet"],
            ]
        )
    what = rng.choice(list(_REPORTS))
    words = [rng.choice(_SREPORT_WORDS) for _ in range(rng.choice([0, 1, 1, 2, 3]))]
    if rng.random() < 0.1:
        return [
            "sreport",
            *flags,
            *rng.choice(
                [
                    ["nosuch"],
                    ["time", "hours"],
                    ["time"],
                    ["time", "x"],
                    ["parsable"],
                    ["version"],
                    ["quiet"],
                    ["!!"],
                    ["help"],
                    ["verbose"],
                    ["exit"],
                    ["cluster"],
                    ["quit", "x"],
                    ["nonparsable"],
                    ["parsable2", "x"],
                    ["help", "x"],
                ]
            ),
        ]
    return ["sreport", *flags, _verb(rng, what), _verb(rng, rng.choice(_REPORTS[what])), *words]


# ---------------------------------------------------------------------------------------------------- submissions

_KINDS = {"text": PLAIN, "positive": NUMBERS, "time": TIMES, "span": SPANS}
_OPTION_VALUES: dict[str, list[str]] = {
    "account": ACCOUNTS,
    "array": [
        "1-3",
        "0",
        "1-5%2",
        "x",
        "",
        "1-",
        "3-1",
        "1,3,5",
        "1-10:3",
        "1-99999999",
        "%2",
        "1-3%0",
        "1-3%x",
        "1-3,",
        "0-0",
    ],
    "begin": TIMES,
    "deadline": TIMES,
    "dependency": [
        "afterok:{held}",
        "afterok:999999",
        "x",
        "",
        "singleton",
        "after:{run}+5",
        "afterok:{held}?afterany:{held}",
        "afterok",
        "afterok:",
        "afterany:{held}:{run}",
        "aftercorr:{arr}",
        "afterok:x",
        "expand:{run}",
        "AFTEROK:{held}",
        "afterok:{held},",
        "afterburstbuffer:{held}",
        "afternotok:{fail}",
    ],
    "time": SPANS,
    "time-min": SPANS,
    "partition": PARTITIONS,
    "qos": QOSES,
    "nodelist": NODES,
    "exclude": NODES,
    "clusters": ["lab", "nosuch", "all"],
    "uid": USERS,
    "gid": ["root", "users", "x", "0"],
    "constraint": [
        "intel",
        "amd&rome",
        "nosuch",
        "",
        "[intel|amd]",
        "intel*2",
        "intel&",
        "(intel|amd)&ib",
        "[intel*1&amd*1]",
        "intel,ib",
        "!intel",
        "((intel)",
        "[intel|amd",
    ],
    "gres": [
        "gpu:1",
        "gpu:a100:2",
        "gpu",
        "nosuch",
        "gpu:x",
        "",
        "gpu:0",
        "none",
        "gpu:1,gpu:2",
        "gpu:a100",
        "gpu:-1",
        "help",
        "gpu:99",
        "gpu::1",
        "gpu:1K",
    ],
    "mem": NUMBERS,
    "mem-per-cpu": NUMBERS,
    "mem-per-gpu": NUMBERS,
    "gpus": ["1", "a100:2", "x", "", "0", "a100:1,v100:1", "-1"],
    "gpus-per-node": ["1", "x", "a100:1", "2"],
    "gpus-per-task": ["1", "x"],
    "signal": [*SIGNALS, "B:USR1@60", "USR1@", "@30", "R:9", "USR1@x", "B:", "BR:TERM@5"],
    "export": ["ALL", "NONE", "A=1", "", "ALL,X=1", "NIL", "HOME"],
    "mail-type": ["ALL", "x", "BEGIN,END", "", "NONE,END"],
    "licenses": LICENSES,
    "nodes": [*NUMBERS, "1-2", "3-1", "1-", "-2", "1,2", "1-5:2", "2-2"],
    "ntasks": NUMBERS,
    "cpus-per-task": NUMBERS,
    "distribution": [
        "block",
        "cyclic:block",
        "x",
        "plane=2",
        "arbitrary",
        "*:*",
        "",
        "plane=x",
        "block:x",
        "Pack",
        "NoPack,block",
    ],
    "hint": ["compute_bound", "nomultithread", "x", "memory_bound", "multithread"],
    "open-mode": ["append", "truncate", "x", "a", "t"],
    "propagate": ["ALL", "NONE", "x", "STACK,CORE"],
    "exclusive": ["", "user", "x", "mcs", "topo"],
    "oversubscribe": [""],
    "profile": ["all", "none", "x", "task"],
    "requeue": [""],
    "switches": ["1", "2@10", "x", "1@"],
    "threads-per-core": NUMBERS,
    "sockets-per-node": NUMBERS,
    "extra-node-info": ["1", "1:2:1", "x", "2:*:1", ""],
    "cpu-freq": ["high", "1000", "x", "low-high:performance", "low-"],
    "nice": [*NUMBERS, "100", "-100"],
    "priority": [*NUMBERS, "TOP"],
    "core-spec": NUMBERS,
    "thread-spec": NUMBERS,
    "tmp": NUMBERS,
    "mincpus": NUMBERS,
    "kill-on-invalid-dep": ["yes", "no", "x"],
    "power": ["x", "level"],
    "reservation": PLAIN,
    "acctg-freq": ["30", "task=10", "x", "energy=5,task=1", "", "-1"],
    "wait-all-nodes": ["0", "1", "2", "x"],
    "mem-bind": ["none", "local", "x", "help"],
    "cpu-bind": ["none", "cores", "x", "verbose,rank", "map_cpu:0,1", "mask_cpu:x"],
    "mpi": ["none", "pmi2", "x", "list"],
    "wait": NUMBERS,
    "container": PLAIN,
    "resv-ports": NUMBERS,
    "tres-per-task": ["cpu=2", "gres/gpu=1", "cpu:2", "x", "cpu=2,gres/gpu:1", "mem=1G", "license=a"],
    "tres-bind": ["gres/gpu:closest", "x"],
    "gpu-bind": ["closest", "x", "single:2", "map:0,1", "none", "per_task:1"],
    "gpu-freq": ["high", "x", "medium,memory=low"],
    "bcast": ["", "/tmp/x", "relative"],
    "task-epilog": PLAIN,
    "delay-boot": SPANS,
    "prefer": ["intel", "x"],
    "ntasks-per-node": NUMBERS,
    "ntasks-per-gpu": NUMBERS,
    "kill-on-bad-exit": ["0", "1", "x", ""],
    "label": [""],
    "stepmgr": [""],
    "x11": ["", "all", "x", "batch"],
    "network": PLAIN,
    "spread-job": [""],
    "get-user-env": ["", "10", "5L", "x"],
    "sluid": PLAIN,
    "segment": NUMBERS,
    "resources": PLAIN,
    "test-only": [""],
    "hold": [""],
}
_UNWANTED = {
    "help",
    "usage",
    "wait",
    "immediate",
    "json",
    "autocomplete",
    "export-file",
    "prolog",
    "epilog",
    "input",
    "get-user-env",
    "pty",
    "multi-prog",
    "bell",
    "no-bell",
    "test-only",
}
"""What would wait, or prints a help text."""


def submission_line(command: str, rng: Random) -> Line:
    """sbatch with random options, of a held job; srun and salloc only ask (--test-only), so that nothing waits."""
    letter = COMMANDS[command]
    table = [o for o in OPTIONS if o.name and letter in o.commands and o.name not in _UNWANTED]
    words: Line = []
    for _ in range(rng.choice([1, 1, 2, 2, 3, 4])):
        option = rng.choice(table)
        pool = _OPTION_VALUES.get(option.name) or _KINDS.get(option.kind) or [*NUMBERS, *PLAIN]
        value = rng.choice(pool)
        spelled = option.name if rng.random() < 0.93 else option.name[: rng.randint(2, max(2, len(option.name)))]
        if option.argument == 0:
            words.append(f"--{spelled}" if len(option.key) > 1 or rng.random() < 0.6 else f"-{option.key}")
        elif len(option.key) == 1 and rng.random() < 0.5:
            words.append(f"-{option.key}{value}" if rng.random() < 0.5 or option.argument == 2 else f"-{option.key}")
            if words[-1] == f"-{option.key}" and option.argument == 1:
                words.append(value)
        else:
            words.append(f"--{spelled}={value}" if value or option.argument == 1 else f"--{spelled}")
    if rng.random() < 0.03:
        words.append(rng.choice(["--nosuch", "-7", "--", "--nodes", "-N"]))
    if command == "sbatch":
        return [
            "sbatch",
            "-H",
            *words,
            *rng.choice(
                [["--wrap=true"]] * 6 + [["/work/script"], [], ["/nosuch.sh"], ["--wrap=true", "x"], ["--wrap="]]
            ),
        ]
    if command == "srun":
        return ["srun", "--test-only", *words, *rng.choice([["true"]] * 8 + [[], ["nosuchprogram"], ["-x"]])]
    return ["salloc", "--immediate=1", *words, *rng.choice([["true"]] * 8 + [["nosuchprogram"]])]
