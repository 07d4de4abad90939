"""scontrol: nodes, partitions, configuration and steps as recorded; what its commands ask of the controller."""
from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from slurmbridge.commands import scontrol
from slurmbridge.slurm import errors
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.slurm.jobspec import JobRequest
from slurmbridge.views.records import JobRecord, StepRecord
from slurmbridge.views.session import Reply
from tests.conf.world import NOW_S, USER, FakeSession, FakeViews, lab_views, run, sample


@pytest.mark.parametrize("entity", ["node", "partition"])
def test_records_as_recorded(entity: str) -> None:
    views = lab_views()
    text = sample(f"scontrol_show_{entity}.txt")
    assert run(scontrol.run, FakeSession(views), "show", entity).stdout == text
    flat = "".join(" ".join(line if line.startswith("NodeName") else line.strip() for line in part.split("\n")) + "\n"
                   for part in text.strip().split("\n\n"))
    shown = run(scontrol.run, FakeSession(views), "-o", "show", entity + "s").stdout
    assert re.sub(r" +", " ", shown) == re.sub(r" +", " ", flat)
    name = text.split("\n")[0].split()[0].split("=")[1]
    one = run(scontrol.run, FakeSession(views), "show", f"{entity}={name}").stdout
    assert one == text.split("\n\n")[0] + "\n\n"


def test_configuration_as_recorded() -> None:
    views = lab_views()
    views.conf = replace(views.conf, path="/lab/etc/slurm.conf")
    views.jobs[495] = job(495)
    session = FakeSession(views)
    session.clock = NOW_S + 1
    places = re.compile(r"/work/shared/slurm-lab/[^ \n]*|/[^ \n]*/lab/|/tmp/lab[^ \n]*|/opt/slurm[^ \n]*|/lab/[^ \n]*")
    shown, wanted = run(scontrol.run, session, "show", "config").stdout, sample("scontrol_show_config.txt")
    assert places.sub("PLACE", shown) == places.sub("PLACE", wanted)


def job(job_id: int, **known: Any) -> JobRecord:
    return JobRecord(job_id, JobRequest(), state="RUNNING", user_name="alice", uid=20001, partition="gpu",
                     start_s=NOW_S - 10, **known)


def test_steps_as_recorded() -> None:
    views = lab_views()
    views.jobs[434] = job(434, nodes=("g2",), batch_host="vm")
    views.jobs[434].request.tres_per_node = "gres/gpu:v100:1"
    for step_id, name, tasks in (("extern", "extern", 1), ("batch", "batch", 1), ("0", "sleep", 2)):
        views.jobs[434].steps[step_id] = StepRecord(
            434, step_id, name, start_s=NOW_S - 10, nodes=("g2",), num_tasks=tasks)
    step = views.jobs[434].steps["0"]
    step.cpus, step.layout = 2, "Block"
    step.tres = {"cpu": 2, "mem": 2000, "node": 1, "gres/gpu": 1, "gres/gpu:v100": 1}
    wanted = [part.replace(":17603", ":0") for part in sample("scontrol_show_step.txt").strip().split("\n\n")[:3]]
    for argv, parts in (((), wanted), (("434",), wanted), (("434.0",), wanted[2:]), (("434.batch",), wanted[1:2])):
        assert run(scontrol.run, FakeSession(views), "show", "step", *argv).stdout == "\n\n".join(parts) + "\n\n"
    step.end_s = NOW_S
    assert run(scontrol.run, FakeSession(views), "show", "step", "434.0").stdout == "Job step 434.0 not found\n"


def asked(*argv: str, views: FakeViews | None = None, refuse: dict[str, Exception] | None = None,
          identity: Any = None) -> tuple[list[tuple[Any, ...]], Reply]:
    session = FakeSession(views or lab_views(), argv, **({"identity": identity} if identity else {}))
    session.acts.refuse = refuse or {}
    reply = run(scontrol.run, session, *argv)
    return session.acts.calls, reply


@pytest.mark.parametrize(("argv", "calls"), [
    ("hold 12", [("hold", "12")]), ("hold 12,13_[1-2] 14+1", [("hold", "12"), ("hold", "13_[1-2]"), ("hold", "14+1")]),
    ("hold 13_3-5", [("hold", "13_[3-5]")]), ("holdu 12", [("hold", "12", {"user_hold": True})]),
    ("uhold jobid=12", [("hold", "12", {"user_hold": True})]), ("HOLD 12", [("hold", "12")]),
    ("release 12 13", [("release", "12"), ("release", "13")]), ("rel 12", [("release", "12")]),
    ("requeue 12", [("requeue", "12", {"hold": False, "special_exit": False})]),
    ("requeue jobid=12,13", [("requeue", "12", {"hold": False, "special_exit": False}),
                             ("requeue", "13", {"hold": False, "special_exit": False})]),
    ("requeuehold 12", [("requeue", "12", {"hold": True, "special_exit": False})]),
    ("requeuehold State=SpecialExit 12", [("requeue", "12", {"hold": True, "special_exit": True})]),
    ("suspend 12 13", [("suspend", "12"), ("suspend", "13")]), ("resume 12", [("resume", "12")]),
    ("reconfigure", [("reconfigure",)]), ("reconf", [("reconfigure",)]), ("shutdown", [("shutdown",)]),
    ("update JobId=12 TimeLimit=1-00:00:00", [("update_job", "12", {"timelimit": "1440"})]),
    ("update job=12 timelimit=UNLIMITED", [("update_job", "12", {"timelimit": "UNLIMITED"})]),
    ("up jobid=12,13_2 nice=7 part=gpu", [("update_job", "12", {"nice": "7", "partition": "gpu"}),
                                          ("update_job", "13_2", {"nice": "7", "partition": "gpu"})]),
    ("update job=12 Nice", [("update_job", "12", {"nice": "100"})]),
    ("update jobid=12 starttime=now+1hour", [("update_job", "12", {"starttime": str(int(NOW_S) + 3600)})]),
    ("update jobid=12 starttime=2020-01-01", [("update_job", "12", {"starttime": str(int(NOW_S))})]),
    ("update jobid=12 gres=gpu:1 gres=x:2", [("update_job", "12", {"gres": "gpu:1,x:2"})]),
    ("update jobid=12 jobname=new comment=words oversubscribe=y",
     [("update_job", "12", {"name": "new", "comment": "words", "oversubscribe": "yes"})]),
    ("update jobid=12 dependency= exc=n[1-2] numcpus=2-4",
     [("update_job", "12", {"dependency": "", "excnodelist": "n[1-2]", "numcpus": "2-4"})]),
    ("update jobid=12 timelimit+=30 account=bio", [("update_job", "12", {"timelimit": "90", "account": "bio"})]),
    ("update jobid=12 timelimit=-30", [("update_job", "12", {"timelimit": "30"})]),
    ("update jobname=wrap nice=1", [("update_job", "12", {"name": "wrap", "nice": "1"})]),
    ("update nodename=n[1-2] state=drain reason=disk",
     [("update_node", ["n1", "n2"], {"state": "DRAIN", "reason": "disk"})]),
    ("update node=ALL state=resume", [("update_node", ["g1", "g2", "n1", "n2", "n3", "n4", "n5", "n6"],
                                       {"state": "RESUME"})]),
    ("update node=n1 weight=7 comment=x features=a,b",
     [("update_node", ["n1"], {"weight": "7", "comment": "x", "features": "a,b"})]),
    ("update partition=debug state=down maxtime=2:00:00",
     [("update_partition", "debug", {"state": "DOWN", "maxtime": "2:00:00"})]),
    ("update partition=debug oversub=force hidden=y maxnodes=unlimited",
     [("update_partition", "debug", {"oversubscribe": "FORCE:4", "hidden": "YES", "maxnodes": "UNLIMITED"})]),
    ("update part=debug nodes+=n3,n1", [("update_partition", "debug", {"nodes": "n[1-3]"})]),
    ("update part=debug nodes-=n2", [("update_partition", "debug", {"nodes": "n1"})]),
    ("update part=debug priority=7", [("update_partition", "debug", {"priorityjobfactor": "7", "prioritytier": "7"})]),
    ("create partition=p nodes=n1", [("update_partition", "p", {"nodes": "n1", "minnodes": "1"}, {"create": True})]),
    ("delete partition=p", [("delete_partition", "p")]), ("delete partitionname p", [("delete_partition", "p")]),
    ("update partitionname=default state=up", [("update_partition", "default", {"state": "UP"})])])
def test_what_is_asked_of_the_controller(argv: str, calls: list[tuple[Any, ...]]) -> None:
    views = lab_views()
    views.jobs[12] = job(12, name="wrap", time_limit_min=60)
    found, reply = asked(*argv.split(" "), views=views)
    assert found == calls
    assert reply == Reply()


@pytest.mark.parametrize(("code", "text"), [
    (errors.ESLURM_ACCESS_DENIED, "Invalid user id"),
    (errors.ESLURM_INVALID_NODE_STATE, "Invalid node state specified")])
@pytest.mark.parametrize(("argv", "act", "prefix"), [
    ("update node=n1 weight=7", "update_node", "slurm_update error"),
    ("update part=debug state=up", "update_partition", "slurm_update error"),
    ("update reservation=x duration=5", "update_reservation", "slurm_update error"),
    ("delete reservation=x", "delete_reservation", "delete_reservation reservation=x"),
    ("create reservation=x start=now duration=5 users=root nodes=n1", "create_reservation",
     "Error creating the reservation"),
    ("create part=debug", "update_partition", "Error creating the partition"),
    ("delete part=debug", "delete_partition", "delete_partition part=debug")])
def test_refusals_of_administration(code: int, text: str, argv: str, act: str, prefix: str) -> None:
    _, reply = asked(*argv.split(), refuse={act: SlurmError(code)})
    assert reply == Reply("", f"{prefix}: {text}\n", 1)


def test_what_the_controller_sends_along_is_said_first() -> None:
    told = SlurmError(errors.ESLURM_INVALID_TIME_LIMIT, details=("limit is 5",))
    _, reply = asked("update", "jobid=12", "timelimit=90", refuse={"update_job": told})
    assert reply.stderr == ("scontrol: error: limit is 5\nRequested time limit is invalid (missing or exceeds some "
                            "limit) for job 12\n") and reply.exit_code == 1


@pytest.mark.parametrize("argv", ["--json show job", "show nodes --yaml", "--json=v0.0.41 ping"])
def test_json_is_refused_clearly(argv: str) -> None:
    _, reply = asked(*argv.split())
    assert reply.stdout == "" and reply.exit_code == 1 and len(reply.stderr.splitlines()) == 1


@pytest.mark.parametrize("argv", ["power down n1", "token", "takeover", "create reservation=x", "listpids", "pidinfo 1",
                                  "schedloglevel 1", "cancel_reboot n1"])
def test_what_is_not_offered_says_so(argv: str) -> None:
    calls, reply = asked(*argv.split())
    assert not calls and reply.stdout == "" and reply.exit_code == 1 and len(reply.stderr.splitlines()) == 1


def test_jobs_that_end_with_their_nodes() -> None:
    views = lab_views()
    views.jobs[2] = replace(job(2, nodes=("g1", "g2", "n1")), end_s=NOW_S - 75)
    views.jobs[3] = job(3)
    views.jobs[2].flags.add("COMPLETING")
    views.nodes["g1"].flags.add("COMPLETING")
    views.nodes["n1"].base_state = "DOWN"
    assert asked("completing", views=views)[1].stdout == (
        "JobId=2 EndTime=2026-11-29T17:39:51 CompletingTime=00:01:15 Nodes(COMPLETING)=g1 Nodes(DOWN)=n1 \n")


def test_batch_scripts_are_for_their_owner() -> None:
    views = lab_views()
    views.jobs[2] = job(2)
    views.jobs[2].request.script = "#!/bin/sh\necho \udcff\n"
    session = FakeSession(views)
    assert run(scontrol.run, session, "write", "batch_script", "2", "out").stdout == (
        "batch script for job 2 written to out\n")
    assert session.files == {"/tmp/out": b"#!/bin/sh\necho \xff\n"}
    reply = run(scontrol.run, FakeSession(views, identity=USER), "write", "batch_script", "2", "-")
    assert reply == Reply("", "job script retrieval failed: Access/permission denied\n", 0)
    views.jobs[2].request.script = None
    reply = run(scontrol.run, FakeSession(views), "write", "batch", "2", "-")
    assert reply.stderr == "job script retrieval failed: Job script not specified\n"


def test_users_see_no_hidden_partition_unless_they_ask() -> None:
    views = lab_views()
    views.partitions["debug"].hidden = True
    names = re.compile("PartitionName=(\\w+)")
    for argv, shown in (((), False), (("-a",), True)):
        text = run(scontrol.run, FakeSession(views, identity=USER), *argv, "show", "partition").stdout
        assert ("debug" in names.findall(text)) is shown


@pytest.mark.parametrize(("private", "hidden", "argv", "shown"), [
    ("", False, ("show", "job"), ["1", "2", "3"]), ("Jobs,usage", False, ("show", "job"), ["2"]),
    ("jobs", False, ("-a", "show", "job", "1"), []), ("jobs", False, ("show", "job", "2"), ["2"]),
    ("", True, ("show", "job"), ["3"]), ("", True, ("-a", "show", "job"), ["1", "2", "3"]),
    ("", True, ("show", "job", "1"), ["1"])])
def test_users_see_the_jobs_that_are_for_them(private: str, hidden: bool, argv: tuple[str, ...],
                                                      shown: list[str]) -> None:
    views = lab_views()
    views.conf.values["PrivateData"] = private
    views.partitions["gpu"].hidden = hidden
    views.jobs = {1: job(1), 2: replace(job(2), uid=USER.uid), 3: replace(job(3), partition="gpu,debug")}
    ids = re.compile(r"(?m)^JobId=(\d+)")
    assert ids.findall(run(scontrol.run, FakeSession(views, identity=USER), *argv).stdout) == shown
    if not hidden:
        assert ids.findall(run(scontrol.run, FakeSession(views), "show", "job").stdout) == ["1", "2", "3"]
