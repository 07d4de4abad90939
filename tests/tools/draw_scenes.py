"""Draws random scenes for record_scenes.py: draw_scenes.py KIND FIRST COUNT [--wide] writes them to standard output.

KIND: deps, limits, preempt, resv, nodes. Each scene is drawn from its number alone, so that it can be drawn again.
Without --wide only what the recorded scenes of shared/oracle use is drawn, with it much of what else Slurm knows.
"""
from __future__ import annotations

import sys
from random import Random

OWNERS = (("alice", "phys_qcd"), ("alice", "phys_qcd"), ("alice", "eng_ml"), ("bob", "phys_qcd"),
          ("dana", "phys_astro"), ("liam", "eng_ml"))
GPUS = ("gpu:1", "gpu:2", "gpu:a100:1", "gpu:v100:1")


class Scene:
    """The lines of one scene as they are drawn."""

    def __init__(self, kind: str, number: int, wide: bool) -> None:
        self.draw = Random(f"{kind} {number} {wide}")
        self.wide = wide
        self.lines: list[str] = []
        self.jobs = 0
        self.priorities = self.draw.sample(range(1000, 9000), 40)

    def add(self, *words: str) -> None:
        self.lines.append(" ".join(word for word in words if word))

    def odds(self, chance: float, *words: str) -> str:
        return self.draw.choice(words) if self.draw.random() < chance else ""

    def job(self) -> str:
        """A job that is there, mostly."""
        return f"JOB{self.draw.randint(1, self.jobs + (self.draw.random() < 0.05))}"

    def submit(self, *words: str, owner: tuple[str, str] | None = None) -> None:
        """By root for somebody, with a priority of its own."""
        user, account = owner or self.draw.choice(OWNERS)
        self.add(user, "sbatch", f"--priority={self.priorities.pop()}", f"-A {account}", *words)
        self.jobs += 1

    def look(self, seconds: int) -> None:
        self.add(f"wait {seconds}")
        self.add("read")


def dependency(scene: Scene) -> str:
    draw = scene.draw
    if draw.random() < 0.2 or not scene.jobs:
        return "singleton"

    def one() -> str:
        kind = draw.choice(("after", "afterany", "afterok", "afternotok", "aftercorr"))
        jobs = [scene.job() + scene.odds(0.2, "_1", "_1", "_3") for _ in range(draw.choice((1, 1, 1, 2)))]
        late = scene.odds(0.3, "+1") if kind == "after" else ""
        return ":".join((kind, *jobs)) + late

    found = [one() for _ in range(draw.choice((1, 1, 1, 2, 2, 3) if scene.wide else (1, 1, 2)))]
    if scene.wide and draw.random() < 0.15:
        found.append("singleton")
    return draw.choice(",,?").join(found)


def deps(scene: Scene) -> None:
    draw = scene.draw
    if draw.random() < 0.2:
        scene.add("scontrol update PartitionName=batch State=DOWN")
    ends = ["sleep 4", "sleep 4; exit 1", "exit 1", "true", "sleep 3000", "sleep 3000",
            'sleep 4; [ "${SLURM_ARRAY_TASK_ID:-1}" = 1 ]']
    if scene.wide:
        ends += ["sleep 3; exit 101", "sleep 3; exit 102", 'sleep 3; exit $((SLURM_ARRAY_TASK_ID + 100))']
    arrays = ["1-3", "0-3%2", "0-3%1", "1,3", "1-4%2", "0-9:3"] + (["1", "0-1", "2-5%3", "1-3,7"] if scene.wide else [])
    for number in range(draw.randint(4, 11)):
        first = number < 2
        scene.add(
            "as", draw.choice(("alice", "alice", "alice", "bob")),
            "sbatch --parsable -A phys_qcd -o /dev/null -D /tmp -n 1 -J", draw.choice("abc"), "-t 5",
            f"-a {draw.choice(arrays)}" if draw.random() < (0.5 if first else 0.25) else "",
            "" if first or draw.random() < 0.35 else f"-d '{dependency(scene)}'",
            scene.odds(0.07, "-H"),
            scene.odds(0.06, "-b now+5", "-b now+1hour", "-b 2030-01-01"),
            scene.odds(0.2, "--kill-on-invalid-dep=yes", "--kill-on-invalid-dep=no"),
            scene.odds(0.1, "--no-requeue", "--nice=50", "-p all", "--hold -b now+4") if scene.wide else "",
            f"--wrap '{draw.choice(ends)}'")
        scene.jobs += 1
    scene.look(2)
    acts = (
        lambda job: f"scancel {job}", lambda job: f"scancel {job}_1", lambda job: f"scontrol requeue {job}",
        lambda job: f"scontrol hold {job}", lambda job: f"scontrol release {job}",
        lambda job: f"scontrol update JobId={job} Dependency=",
        lambda job: f"scontrol update JobId={job} StartTime=now",
        lambda job: f"scontrol update JobId={job} ArrayTaskThrottle=3",
    )
    more = (
        lambda job: f"scontrol hold {job}_3", lambda job: f"scontrol release {job}_3",
        lambda job: f"scontrol requeue {job}_1", lambda job: f"scontrol requeuehold {job}",
        lambda job: f"scontrol requeuehold State=SpecialExit {job}", lambda job: f"scontrol uhold {job}",
        lambda job: f"scontrol suspend {job}", lambda job: f"scontrol resume {job}",
        lambda job: f"scancel '{job}_[1-2]'", lambda job: f"scancel --state=PENDING {job}",
        lambda job: f"scancel -n {draw.choice('abc')} -u alice", lambda job: f"as alice scancel {job}",
        lambda job: f"as alice scontrol hold {job}", lambda job: f"as alice scontrol requeue {job}",
        lambda job: f"scontrol update JobId={job} ArrayTaskThrottle={draw.choice('012')}",
        lambda job: f"scontrol update JobId={job} JobName={draw.choice('abc')}",
        lambda job: f"scontrol update JobId={job} Dependency={dependency(scene)}",
        lambda job: f"scontrol update JobId={job}_1 Dependency={dependency(scene)}",
        lambda job: f"scontrol update JobId={job}_3 StartTime=now+1hour",
        lambda job: f"scontrol update JobId={job} Priority={draw.choice(('0', '10', '5000'))}",
        lambda job: f"scontrol update JobId={job} Requeue=0",
        lambda job: "scontrol update PartitionName=batch State=UP",
    )
    if scene.wide:
        for _ in range(draw.randint(1, 3)):
            scene.add(draw.choice(acts + more + more)(scene.job()))
        scene.look(7)
        for _ in range(draw.randint(0, 2)):
            scene.add(draw.choice(acts + more)(scene.job()))
    elif draw.random() < 0.6:
        scene.add(draw.choice(acts)(scene.job()))
    scene.look(14)


def limit(scene: Scene) -> str:
    draw, wide = scene.draw, scene.wide
    if draw.random() < 0.6:
        who = draw.choice(("user alice where account=phys_qcd", "user alice where account=phys_qcd",
                           "user bob where account=phys_qcd", "account phys_qcd", "account phys", "account eng_ml",
                           "account eng"))
        limits = ["MaxJobs=1", "MaxJobs=2", "GrpJobs=1", "GrpJobs=2", "GrpJobs=3", "MaxSubmitJobs=2", "MaxSubmitJobs=3",
                  "GrpSubmitJobs=3", "GrpSubmitJobs=4", "MaxWall=60", "GrpWall=90", "MaxTRES=cpu=16", "MaxTRES=cpu=8",
                  "MaxTRES=cpu=8,mem=10G", "MaxTRES=node=1", "MaxTRES=gres/gpu=1", "MaxTRESPerNode=cpu=8",
                  "MaxTRESPerNode=mem=5G", "GrpTRES=cpu=32", "GrpTRES=mem=40G", "GrpTRES=node=2",
                  "GrpTRES=gres/gpu:a100=1", "GrpTRES=gres/gpu=2", "GrpTRESMins=cpu=1000", "GrpTRESMins=gres/gpu=30",
                  "GrpTRESMins=cpu=0", "GrpTRESRunMins=cpu=1200", "GrpTRESRunMins=cpu=300", "GrpTRESRunMins=mem=500000",
                  "MaxTRESMins=cpu=1000"]
        if wide:
            limits += ["GrpJobsAccrue=1", "MaxJobsAccrue=1", "GrpTRES=billing=40", "MaxTRES=billing=20",
                       "GrpTRESMins=mem=100000", "MaxTRESMins=gres/gpu=30", "MaxTRESMins=mem=100000", "GrpWall=25",
                       "MaxTRES=mem=20G,node=3", "GrpTRESRunMins=gres/gpu=60", "GrpTRES=energy=0", "Priority=90",
                       "MaxTRESPerNode=gres/gpu=1", "GrpSubmitJobs=1", "MaxJobs=0", "GrpJobs=0", "MaxSubmitJobs=0",
                       "QOS=normal,low", "DefaultQOS=low", "MinPrioThresh=4000", "GrpTRES=cpu=0"]
        return f"sacctmgr modify {who} set {draw.choice(limits)}"
    limits = ["Priority=500", "MaxTRESMinsPerJob=cpu=300", "MaxTRESPerUser=node=1", "MaxTRESPerUser=cpu=16",
              "MaxTRESPerUser=gres/gpu=1", "MaxTRESRunMinsPerAccount=cpu=900", "MaxTRESRunMinsPerUser=cpu=600",
              "MaxTRESPerNode=mem=5G", "MaxSubmitJobsPerAccount=2", "MaxSubmitJobsPerAccount=4",
              "MaxSubmitJobsPerUser=2", "MaxJobsPerUser=2", "MaxJobsPerAccount=2", "MaxJobsPerAccount=3", "GrpJobs=1",
              "GrpSubmitJobs=3", "MaxTRESPerJob=cpu=8,mem=10G", "MaxTRESPerJob=node=1", "MaxTRESPerJob=cpu=16",
              "MinTRESPerJob=cpu=4", "MinTRESPerJob=node=2", "GrpTRES=node=2", "GrpTRES=cpu=48", "GrpTRES=gres/gpu=1",
              "GrpTRESRunMins=mem=500000", "GrpWall=90", "Flags=DenyOnLimit"]
    if wide:
        limits += ["MaxTRESPerAccount=cpu=16", "MaxTRESPerAccount=node=2,mem=50G", "MaxTRESPerAccount=gres/gpu:a100=1",
                   "MaxWall=15", "MaxWall=45", "GrpTRESMins=cpu=600", "MaxJobsAccruePerUser=1",
                   "MaxJobsAccruePerAccount=1", "GrpJobsAccrue=2", "MinPrioThresh=4000", "MinTRESPerJob=gres/gpu=1",
                   "MinTRESPerJob=mem=5000", "LimitFactor=2", "LimitFactor=0.5", "UsageFactor=2", "UsageFactor=0",
                   "Flags=OverPartQOS", "Flags=NoReserve", "Flags=PartitionTimeLimit", "Flags=PartitionMaxNodes",
                   "Flags=UsageFactorSafe", "Flags=RequiresReservation", "Flags=EnforceUsageThreshold",
                   "MaxTRESPerJob=billing=20", "MaxTRESPerUser=billing=40", "MaxTRESRunMinsPerUser=gres/gpu=60",
                   "MaxJobsPerUser=0", "GrpTRES=mem=60G", "MaxTRESPerJob=gres/gpu=1", "Flags=DenyOnLimit"]
    qos = ["normal", "normal", "low", "high", *(["part", "part"] if "sacctmgr add qos part" in scene.lines else ())]
    return f"sacctmgr modify qos {draw.choice(qos)} set {draw.choice(limits)}"


def limits_job(scene: Scene) -> None:
    draw = scene.draw
    partition = draw.choice(("batch", "batch", "gpu", "all"))
    sizes = ["-n 1", "-n 4", "-n 8", "-n 16", "-n 32", "-N 1", "-N 2 --exclusive", "-N 2 --ntasks-per-node 4",
             "-n 24 -c 2"]
    if scene.wide:
        sizes += ["-N 1-3", "-N 1 --exclusive", "-n 6 -N 2", "-n 3 -c 5", "-N 3", "-n 2 --cpus-per-task=8"]
        partition = draw.choice((partition, partition, "debug", "long", "batch,all"))
    scene.submit(
        f"-p {partition}", draw.choice(sizes),
        scene.odds(0.35, "--mem-per-cpu=500", "--mem=2G", "--mem=10G", "--mem=30G"),
        f"--gres={draw.choice(GPUS)}" if partition == "gpu" and draw.random() < 0.9 else "",
        f"-t {draw.choice((5, 10, 20, 30, 60, 120))}",
        scene.odds(0.45, "-q high", "-q high", "-q low", "-q low", "-q normal"),
        scene.odds(0.12, "-a 0-5%2", "-a 0-3"),
        scene.odds(0.1 * scene.wide, "-q scav", "-H", "--time-min=5", "-a 1-3%1", "-d singleton", "-q high,low"))


def limits(scene: Scene) -> None:
    draw = scene.draw
    if scene.wide and draw.random() < 0.4:
        scene.add("sacctmgr add qos part")
    for _ in range(draw.randint(1, 4) + 2 * scene.wide):
        scene.add(limit(scene))
    if "sacctmgr add qos part" in scene.lines:
        scene.add("scontrol update PartitionName=batch QOS=part")
    scene.add("wait 1")
    for _ in range(draw.randint(4, 12)):
        limits_job(scene)
    scene.look(7)
    if scene.wide:
        for _ in range(draw.randint(1, 3)):
            job = scene.job()
            scene.add(draw.choice((
                f"scancel {job}", f"scancel {job}", f"scontrol update JobId={job} TimeLimit={draw.choice((5, 15, 45))}",
                f"scontrol update JobId={job} QOS={draw.choice(('high', 'low', 'normal'))}", f"scontrol hold {job}",
                f"scontrol update JobId={job} NumNodes=1", f"scontrol update JobId={job} NumTasks=2",
                f"scontrol update JobId={job} Partition={draw.choice(('batch', 'all', 'debug'))}",
                f"scontrol requeue {job}", f"scontrol update JobId={job} ArrayTaskThrottle=3",
                f"scontrol update JobId={job} Account={draw.choice(('phys_qcd', 'eng_ml'))}",
                limit(scene), limit(scene))))
        scene.look(8)
        if draw.random() < 0.5:
            limits_job(scene)
            scene.look(6)
    elif draw.random() < 0.3:
        scene.add("scancel JOB1")
        scene.add("scancel JOB2")
        scene.look(8)
    elif draw.random() < 0.2:
        scene.add("scontrol update JobId=JOB1 TimeLimit=15")
        scene.add("scontrol update JobId=JOB3 QOS=high")
        scene.look(8)


def preempt(scene: Scene) -> None:
    draw = scene.draw
    partition, preemptors = "batch", ("high", "high", "normal")
    if scene.wide:
        style = draw.choice(("qos", "qos", "qos", "partition", "parameters"))
        if style == "partition":
            for line in ("PreemptType=preempt/partition_prio", f"PreemptMode={draw.choice(('REQUEUE', 'CANCEL'))}",
                         "PartitionName=urgent Nodes=n[1-4] PriorityTier=50 PriorityJobFactor=1",
                         "PartitionName=spare Nodes=n[1-6] PriorityTier=0 PreemptMode=" + draw.choice(
                             ("CANCEL", "REQUEUE", "OFF", "REQUEUE GraceTime=5"))):
                scene.add("conf", line)
        elif style == "parameters":
            scene.add("conf PreemptParameters=" + draw.choice((
                "youngest_first", "strict_order", "min_exempt_priority=5000", "reorder_count=3",
                "youngest_first,reorder_count=2", "strict_order,reorder_count=2", "send_user_signal")))
        if draw.random() < 0.3:
            scene.add("conf PreemptExemptTime=0:06")
        for _ in range(draw.randint(0, 2)):
            scene.add(draw.choice((
                "sacctmgr modify qos scav set PreemptMode=cancel", "sacctmgr modify qos low set PreemptMode=cancel",
                "sacctmgr modify qos low set PreemptMode=requeue", "sacctmgr modify qos normal set Preempt=scav",
                "sacctmgr modify qos high set Preempt=low", "sacctmgr modify qos scav set GraceTime=6",
                "sacctmgr modify qos high set MaxTRESPerUser=cpu=64", "sacctmgr modify qos high set GrpTRES=node=2",
                "sacctmgr modify qos low set PreemptExemptTime=0:08")))
    else:
        style = "qos"
    if draw.random() < 0.4:
        scene.add("sacctmgr modify qos low set GraceTime=6")
    if draw.random() < 0.3:
        scene.add("sacctmgr modify qos low set PreemptExemptTime=10:00")
    if any(line.startswith("sacctmgr") for line in scene.lines):
        scene.add("wait 1")

    def one(urgent: bool) -> None:
        sizes = ["-n 16", "-n 32", "-n 64", "-N 1 --exclusive", "-N 2 --exclusive"]
        if urgent:
            sizes = ["-n 8", "-n 32", "-N 1 --exclusive", "-N 2 --exclusive", "-N 4 --exclusive"]
        if scene.wide:
            sizes += ["-n 4 --mem=60G", "-N 2 -n 40", "-n 10 -c 3", "-N 3", "-a 0-2 -n 20"]
        where = partition
        if style == "partition":
            where = draw.choice(("urgent", "urgent", "batch")) if urgent else draw.choice(("spare", "spare", "batch"))
        elif scene.wide and draw.random() < 0.15:
            where = draw.choice(("all", "debug"))
        qos = draw.choice(preemptors) if urgent else draw.choice(("low", "low", "low", "scav", "scav", "normal"))
        scene.submit(f"-p {where}", draw.choice(sizes),
                     "" if style == "partition" else f"-q {qos}",
                     f"-t {20 if urgent or where == 'debug' else draw.choice((20, 30, 60, 120))}",
                     "" if urgent else scene.odds(0.12, "--no-requeue"),
                     "" if urgent or not scene.wide else scene.odds(0.1, "--signal=USR1@60"))

    for _ in range(draw.randint(6, 12)):
        one(False)
    scene.look(7)
    for _ in range(draw.randint(1, 4)):
        one(True)
    scene.look(14)
    if scene.wide:
        scene.add(draw.choice((f"scancel {scene.job()}", f"scontrol requeue {scene.job()}",
                               f"scontrol update JobId={scene.job()} QOS=high", f"scontrol hold {scene.job()}")))
        one(True)
        scene.look(10)


def reservation(scene: Scene, name: str) -> str:
    draw = scene.draw
    start = draw.choice(("now", "now", "now+10minutes", "now+30minutes"))
    people = draw.choice(("Users=root", "Users=alice", "Users=alice,bob", "Accounts=phys", "Accounts=phys_qcd",
                          "Users=-bob Accounts=phys"))
    what = draw.choice(("Nodes=n1", "Nodes=n[1-2]", "Nodes=n[3-6]", "Nodes=ALL", "NodeCnt=2 PartitionName=batch",
                        "TRES=cpu=40 PartitionName=batch"))
    flags = ["Flags=MAINT", "Flags=FLEX", "Flags=DAILY", "Flags=IGNORE_JOBS", "Flags=OVERLAP", "MaxStartDelay=300"]
    if scene.wide:
        people = draw.choice((people, "Accounts=-eng", "Accounts=phys Users=-alice", "QOS=high",
                              "Groups=users", "Users=alice Accounts=eng", "Accounts=phys AllowedPartitions=batch"))
        what = draw.choice((what, what, "NodeCnt=1 PartitionName=gpu", "NodeCnt=3 PartitionName=batch Features=amd",
                            "Nodes=n2 CoreCnt=8", "CoreCnt=50 PartitionName=batch", "NodeCnt=2 Features=ib",
                            "TRES=gres/gpu=2 PartitionName=gpu", "TRES=cpu=20,gres/gpu:a100=1 PartitionName=all",
                            "PartitionName=batch Nodes=n[1-4]", "PartitionName=debug Nodes=ALL", "TRES=node=2",
                            "PartitionName=debug NodeCnt=1"))
        flags += ["Flags=WEEKDAY", "Flags=SPEC_NODES", "Flags=PART_NODES", "Flags=REPLACE", "Flags=REPLACE_DOWN",
                  "Flags=MAGNETIC", "Flags=STATIC_ALLOC", "Flags=PURGE_COMP=00:01:00", "Flags=MAINT,IGNORE_JOBS",
                  "Flags=NO_HOLD_JOBS_AFTER", "Flags=TIME_FLOAT", "Flags=FIRST_CORES", "Flags=ANY_NODES",
                  "Flags=FORCE_START", "Flags=MAGNETIC,FLEX", "Flags=USER_DELETE", "Flags=HOURLY", "Flags=WEEKLY"]
    return (f"scontrol create reservation ReservationName={name} StartTime={start} "
            f"Duration={draw.choice((15, 60, 120))} {people} {what} {scene.odds(0.65, *flags)}").strip()


def resv_job(scene: Scene) -> None:
    draw = scene.draw
    sizes = ["-n 1", "-n 32", "-n 40", "-N 1 --exclusive", "-N 2 --exclusive", "-N 6"]
    if scene.wide:
        sizes += ["-n 8 --mem=20G", "-N 2 -n 10", "-a 0-2 -n 4", "-N 4"]
    where = draw.choice(("batch", "batch", "debug", "all") + (("gpu",) if scene.wide else ()))
    scene.submit(f"-p {where}", f"--gres={draw.choice(GPUS)} -n 2" if where == "gpu" else draw.choice(sizes),
                 f"-t {draw.choice((5, 9, 20, 25))}",
                 scene.odds(0.4, "--reservation=r0", "--reservation=r0", "--reservation=r1", "--reservation=r0,r1"),
                 scene.odds(0.2, "-q high", "-q low") if scene.wide else "",
                 owner=draw.choice((("alice", "phys_qcd"), ("alice", "phys_qcd"), ("bob", "phys_qcd"),
                                    ("dana", "phys_astro")) + ((("liam", "eng_ml"), ("alice", "eng_ml"))
                                                               if scene.wide else ())))


def resv(scene: Scene) -> None:
    draw = scene.draw
    early = draw.random() < (0.3 if scene.wide else 0.1)
    if early:
        for _ in range(draw.randint(1, 3)):
            resv_job(scene)
        scene.add("wait 4")
    scene.add(reservation(scene, "r0"))
    if draw.random() < 0.4:
        scene.add(reservation(scene, "r1"))
    for _ in range(draw.randint(4, 9)):
        resv_job(scene)
    scene.look(7)
    scene.add("scontrol show reservation -o")
    if scene.wide:
        for _ in range(draw.randint(1, 3)):
            job = scene.job()
            scene.add(draw.choice((
                "scontrol delete ReservationName=r0", "scontrol update ReservationName=r0 Duration=30",
                "scontrol update ReservationName=r0 Users+=bob", "scontrol update ReservationName=r0 Users=alice",
                "scontrol update ReservationName=r0 Accounts=eng_ml", "scontrol update ReservationName=r0 NodeCnt=3",
                "scontrol update ReservationName=r0 Nodes=n[2-3]", "scontrol update ReservationName=r0 Flags+=FLEX",
                "scontrol update ReservationName=r0 Flags-=MAINT", "scontrol update ReservationName=r0 EndTime=now",
                "scontrol update ReservationName=r0 StartTime=now+20minutes", f"scancel {job}", f"scancel {job}",
                f"scontrol update JobId={job} ReservationName=r0", f"scontrol update JobId={job} ReservationName=",
                "scontrol update NodeName=n1 State=DRAIN Reason=x", "scontrol update NodeName=n2 State=DOWN Reason=x",
                "scontrol delete ReservationName=r1", reservation(scene, "r2"))))
        scene.look(6)
        scene.add("scontrol show reservation -o")
    elif draw.random() < 0.5:
        scene.add("scontrol delete ReservationName=r0")
        scene.look(6)


def nodes(scene: Scene) -> None:
    """Nodes and partitions that change under jobs."""
    draw = scene.draw

    def act() -> str:
        node = draw.choice(("n1", "n2", "n[1-2]", "n[3-4]", "n5", "g1", "n[1-6]"))
        partition = draw.choice(("batch", "batch", "debug", "all"))
        return draw.choice((
            f"scontrol update NodeName={node} State=DRAIN Reason=x",
            f"scontrol update NodeName={node} State=DOWN Reason=x",
            f"scontrol update NodeName={node} State=RESUME", f"scontrol update NodeName={node} State=RESUME",
            f"scontrol update NodeName={node} State=UNDRAIN", f"scontrol update NodeName={node} State=FAIL Reason=x",
            f"scontrol update NodeName={node} Weight={draw.choice((1, 50))}",
            f"scontrol update NodeName={node} Features=intel,new",
            f"scontrol update NodeName={node} ActiveFeatures=amd",
            f"scontrol update PartitionName={partition} State={draw.choice(('UP', 'DOWN', 'DRAIN', 'INACTIVE'))}",
            f"scontrol update PartitionName={partition} MaxTime={draw.choice((10, 15, '1-0'))}",
            f"scontrol update PartitionName={partition} MaxNodes={draw.choice((1, 2, 'UNLIMITED'))}",
            f"scontrol update PartitionName={partition} MinNodes={draw.choice((0, 2))}",
            f"scontrol update PartitionName={partition} Nodes={draw.choice(('n[1-3]', 'n[4-6]', 'n[1-6]'))}",
            f"scontrol update PartitionName={partition} AllowAccounts={draw.choice(('phys', 'eng_ml', 'ALL'))}",
            f"scontrol update PartitionName={partition} DenyAccounts={draw.choice(('phys_qcd', 'eng'))}",
            f"scontrol update PartitionName={partition} AllowQos={draw.choice(('high', 'normal,low', 'ALL'))}",
            f"scontrol update PartitionName={partition} DenyQos=low",
            f"scontrol update PartitionName={partition} MaxCPUsPerNode={draw.choice((8, 16, 'UNLIMITED'))}",
            f"scontrol update PartitionName={partition} PriorityTier={draw.choice((1, 5))}",
            f"scontrol update PartitionName={partition} OverSubscribe={draw.choice(('EXCLUSIVE', 'NO'))}",
            f"scontrol update PartitionName={partition} DisableRootJobs={draw.choice(('YES', 'NO'))}",
            f"scontrol update PartitionName={partition} RootOnly={draw.choice(('YES', 'NO'))}",
            f"scontrol update PartitionName={partition} QOS={draw.choice(('low', 'high'))}",
            f"scontrol update JobId={scene.job()} Partition={partition}" if scene.jobs else "scontrol ping",
            f"scontrol update JobId={scene.job()} TimeLimit=12" if scene.jobs else "scontrol ping",
            f"scancel {scene.job()}" if scene.jobs else "scontrol ping"))

    def one() -> None:
        where = draw.choice(("batch", "batch", "debug", "all", "batch,all"))
        scene.submit(f"-p {where}", draw.choice(("-n 1", "-n 20", "-n 40", "-N 2", "-N 2 --exclusive", "-N 3 -n 9",
                                                 "-N 6", "-w n2", "-x n1 -n 30", "-C amd", "-n 16 --mem=40G",
                                                 "-a 0-2 -n 12")),
                     f"-t {draw.choice((5, 12, 20, 28))}", scene.odds(0.2, "-q high", "-q low"),
                     scene.odds(0.15, "--no-requeue", "--no-kill", "-H"))

    if draw.random() < 0.3:
        scene.add(act())
    for _ in range(draw.randint(4, 9)):
        one()
    scene.look(7)
    for _ in range(draw.randint(1, 3)):
        scene.add(act())
    for _ in range(draw.randint(0, 3)):
        one()
    scene.look(8)
    for _ in range(draw.randint(1, 2)):
        scene.add(act())
    scene.look(8)


KINDS = {"deps": deps, "limits": limits, "preempt": preempt, "resv": resv, "nodes": nodes}


def main(kind: str, first: str, count: str, *flags: str) -> None:
    for number in range(int(first), int(first) + int(count)):
        scene = Scene(kind, number, "--wide" in flags)
        KINDS[kind](scene)
        print(f"== {kind}-{number}", *scene.lines, sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
