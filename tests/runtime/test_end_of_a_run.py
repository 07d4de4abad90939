"""Time limit, cancellation, signals, and that nothing of a run is left behind."""
from __future__ import annotations

import os
import re
import signal
import time

import pytest
from local_runs import USER, processes_matching, until


def waiting(rig, job, name="ready"):
    until(lambda: (job.folder / name).exists(), f"{name} of {job.run}")
    return job


def test_time_limit_ends_the_job_with_slurms_line(rig):
    job = rig.do("sleep 50", limit_s=0.4)
    assert (job.status, job.reason) == (15, "TimeLimit")
    line = job.lines()[-1]
    second = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"
    assert re.fullmatch(rf"\[{second}\.\d{{3}}\] error: \*\*\* JOB {job.run.job_id} ON n1 CANCELLED AT {second} "
                        r"DUE TO TIME LIMIT \*\*\*", line)


def test_time_limit_of_a_job_that_ignores_sigterm(rig):
    begun = time.monotonic()
    job = rig.do("trap '' TERM; sleep 50; sleep 50; sleep 50", limit_s=0.3)
    assert (job.status, job.reason) == (9, "TimeLimit")
    assert time.monotonic() - begun > 0.3 + 0.4               # KillWait was granted


def test_a_changed_time_limit_holds(rig):
    job = waiting(rig, rig.launch("touch ready; sleep 50", limit_s=1))
    rig.call(rig.engine.update(job.run, end_by_s=None))
    time.sleep(1.2)
    assert job.kinds() == ["started"]
    rig.call(rig.engine.update(job.run, end_by_s=time.time() + 0.2))
    assert rig.wait(job).reason == "TimeLimit"


@pytest.mark.parametrize(("cause", "text", "reason"), [
    ("CANCELLED", "DUE to SIGNAL Terminated", "Cancelled"), ("PREEMPTION", "DUE TO PREEMPTION", "Preempted"),
    ("JOB REQUEUE", "DUE TO JOB REQUEUE", "Requeued"),
    ("NODE FAILURE", "DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS", "NodeFail")])
def test_terminated_for_a_cause(rig, cause, text, reason):
    job = waiting(rig, rig.launch("touch ready; sleep 50"))
    rig.call(rig.engine.terminate(job.run, cause=cause, grace_s=1))
    rig.wait(job)
    assert (job.status, job.reason) == (15, reason)
    assert f" {text} ***" in job.text()


def test_a_trap_may_tidy_up(rig):
    job = waiting(rig, rig.launch("trap 'echo tidy; exit 0' TERM; touch ready; sleep 50 & wait"))
    rig.call(rig.engine.terminate(job.run, cause="CANCELLED", grace_s=5))
    rig.wait(job)
    assert job.status == 0
    assert job.lines()[-1] == "tidy"


def test_no_grace_is_sigkill_at_once(rig):
    job = waiting(rig, rig.launch("trap '' TERM; touch ready; sleep 50; sleep 50"))
    rig.call(rig.engine.terminate(job.run, cause="CANCELLED", grace_s=0))
    assert rig.wait(job).status == 9


def test_warning_signal_before_the_limit(rig):
    job = rig.do("trap 'echo warned; exit 7' USR1; sleep 50 & wait", limit_s=1.5,
                 order={"warn_signal": signal.SIGUSR1, "warn_before_s": 1, "warn_batch": True})
    assert (job.status, job.lines()) == (7 << 8, ["warned"])


def test_signals_go_to_the_script_or_to_the_steps(rig):
    job = rig.launch("""trap 'echo script' USR1
srun bash -c 'trap "echo step; exit 0" USR1; touch ready; sleep 50 & wait' &
wait %1 || true; wait; echo end""", nodes=1)
    waiting(rig, job)
    rig.call(rig.engine.signal(job.run, signal.SIGUSR1, steps=False, batch=True))
    until(lambda: "script" in job.text())
    assert "step" not in job.text()
    rig.call(rig.engine.signal(job.run, signal.SIGUSR1, steps=True, batch=False))
    rig.wait(job)
    assert sorted(job.lines()) == ["end", "script", "step"]


def test_nothing_is_left_of_double_forks_and_new_sessions(rig):
    mark = f"98{os.getpid()}"
    job = rig.do(f"""setsid sleep {mark}1 & nohup sleep {mark}2 >/dev/null 2>&1 &
bash -c 'setsid bash -c "sleep {mark}3 & sleep {mark}4" & exit 0'
trap '' TERM; (trap '' TERM; sleep {mark}5) & sleep 0.1""")
    assert job.status == 0
    assert processes_matching(f"sleep {mark}") == []


def test_nothing_is_left_of_a_step_when_it_ends(rig):
    mark = f"97{os.getpid()}"
    job = rig.do(f"""srun -n1 bash -c 'setsid bash -c "setsid sleep {mark}1 & sleep {mark}2" & sleep 0.1; echo begun'
echo "left: $(pgrep -cf 'sleep {mark}')"; sleep 0.05""")
    assert job.lines() == ["begun", "left: 0"]


def test_suspended_time_does_not_count(rig):
    job = waiting(rig, rig.launch("for i in $(seq 100); do echo x >> ticks; sleep 0.02; done", limit_s=30), "ticks")
    rig.call(rig.engine.suspend(job.run))
    time.sleep(0.1)
    before = len(job.lines("ticks"))
    time.sleep(0.4)
    assert len(job.lines("ticks")) == before
    rig.call(rig.engine.resume(job.run))
    assert rig.wait(job).status == 0
    assert len(job.lines("ticks")) == 100


def test_a_suspended_job_begins_no_steps(rig):
    job = waiting(rig, rig.launch("touch ready; sleep 30"))
    rig.call(rig.engine.suspend(job.run))
    client = rig.srun(job, "-n1", "--overlap", "touch", "outside", env={"SLURM_JOB_ID": str(job.run.job_id)})
    time.sleep(0.3)
    assert not (job.folder / "outside").exists()
    rig.call(rig.engine.resume(job.run))
    client.communicate(timeout=20)
    assert (job.folder / "outside").exists()
    rig.call(rig.engine.terminate(job.run, cause="CANCELLED", grace_s=1))
    rig.wait(job)


@pytest.mark.skipif(os.getuid() != 0, reason="a step daemon is safe from its user where the controller is root")
def test_killing_everything_one_may_kill_leaves_the_step_daemon(rig):
    mark = f"96{os.getpid()}"
    uid = 3_000_000 + os.getpid()             # no process of another test's may be reached
    job = rig.do(f"(setsid sleep {mark} &); srun bash -c 'kill -STOP -1; kill -KILL -1'; sleep 50", record={"uid": uid})
    assert (job.kinds()[-1], job.status, job.reason) == ("finished", signal.SIGKILL, "")
    assert job.of("step_ended")
    assert processes_matching(f"sleep {mark}") == []


@pytest.mark.skipif(os.getuid() != 0, reason="only root starts others' jobs")
def test_nothing_of_a_job_keeps_a_right_of_its_step_daemon(rig):
    job = rig.do("""cat >look <<'END'
grep -E '^(Uid|Gid|CapPrm|CapEff)' /proc/self/status; echo $LD_LIBRARY_PATH
END
export LD_LIBRARY_PATH=/nowhere; . ./look; srun bash ./look""")
    uids, gids = ("\t".join([str(number)] * 4) for number in (USER.pw_uid, USER.pw_gid))
    wanted = [f"Uid:\t{uids}", f"Gid:\t{gids}", f"CapPrm:\t{0:016}", f"CapEff:\t{0:016}", "/nowhere"]
    assert job.lines() == wanted * 2
