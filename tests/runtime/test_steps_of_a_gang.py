"""srun inside an allocation: where tasks run, what they print and read, how they end."""
from __future__ import annotations

import os
import re
import signal
import time

import pytest
from local_runs import processes_matching, until

from slurmbridge.views.records import NodeAllocation


def steps(job):
    return {event.step_id: event for event in job.of("step_ended")}


def test_ranks_hosts_and_node_list(rig):
    job = rig.do("""srun -l bash -c 'echo "$SLURM_PROCID/$SLURM_NTASKS $SLURM_LOCALID $SLURM_NODEID $SLURMD_NODENAME \
$SLURM_STEP_NODELIST $SLURM_GTIDS $SLURM_STEP_TASKS_PER_NODE"'""", nodes=2, cpus=3)
    assert sorted(job.lines()) == ["0: 0/2 0 0 n1 n[1-2] 0 1(x2)", "1: 1/2 0 1 n2 n[1-2] 1 1(x2)"]
    started = job.of("step_started")[0]
    assert (started.step_id, started.data["nodes"], started.data["num_tasks"], started.data["cpus"]) == (
        "0", ["n1", "n2"], 2, 6)
    assert started.data["tres"] == {"cpu": 6, "mem": 6000, "node": 2}
    assert steps(job)["0"].exit_status == 0
    assert set(steps(job)["0"].data["usage"]) == {"user_cpu_s", "system_cpu_s", "num_tasks"}


@pytest.mark.parametrize(("options", "expected"), [
    ("-n4", "n1 n1 n2 n2"), ("-n3", "n1 n1 n2"), ("-n4 -m cyclic", "n1 n2 n1 n2"), ("-n4 -m plane=2", "n1 n1 n2 n2"),
    ("-n2", "n1 n2"), ("-n1 -N1 -r1", "n2"), ("-N1 -n1 -w n2", "n2"), ("-N1 -n2 -x n1", "n2 n2"),
    ("-N2", "n1 n2"), ("--ntasks-per-node=2 -N2", "n1 n1 n2 n2"), ("-n4 -N1 -O", "n1 n1 n1 n1"),
    ("-n3 -m arbitrary -w n2,n1,n2", "n2 n1 n2"), ("-n1 -N1 -c2 --exact", "n1")])
def test_where_tasks_run(rig, options, expected):
    job = rig.do(f"srun {options} -l printenv SLURMD_NODENAME | sort -n", nodes=2)
    assert [line.split()[1] for line in job.lines()] == expected.split()


@pytest.mark.parametrize(("command", "code", "messages"), [
    ("srun -n2 -N1 bash -c 'exit 3'", 3, r"srun: error: n1: tasks? [0-1-]+: Exited with exit code 3"),
    ("srun -n2 -N1 bash -c 'exit $SLURM_PROCID'", 1, r"srun: error: n1: task 1: Exited with exit code 1"),
    ("srun -n1 -N1 bash -c 'kill -TERM $$'", 143,
     r"srun: error: n1: task 0: Terminated|srun: Force Terminated StepId=\d+.0"),
    ("srun -n1 -N1 bash -c 'kill -SEGV $$'", 139, r"srun: error: n1: task 0: Segmentation fault( \(core dumped\))?"),
    ("srun -n1 -N1 nosuchcommand", 2,
     r"\[.*\] error: execve\(\): nosuchcommand: No such file or directory"
     r"|srun: error: n1: task 0: Exited with exit code 2"),
    ("srun -n9 true", 1, r"srun: error: Unable to create step for job \d+: More processors requested than permitted"),
    ("srun --bogus", 255, r"srun: unrecognized option '--bogus'|Try \"srun --help\" for more information"),
    ("srun --mpi=nosuch true", 1, r"srun: error: .*mpi.*"),
    ("srun -N3 true", 1, r"srun: error: Only allocated 2 nodes asked for 3")])
def test_exit_code_and_messages(rig, command, code, messages):
    job = rig.do(f"{command}\necho rc $?", nodes=2)
    *said, last = job.lines()
    assert last == f"rc {code}"
    for line in said:
        assert re.fullmatch(messages, line), line
    assert said


def test_signal_outranks_exit_code(rig):
    job = rig.do("srun -n2 -N1 bash -c '[ $SLURM_PROCID = 0 ] && exit 200; kill -HUP $$' 2>/dev/null; echo $?")
    assert job.lines() == ["129"]
    assert steps(job)["0"].exit_status == signal.SIGHUP


def test_several_in_the_background(rig):
    job = rig.do("""for i in 1 2 3 4; do
srun --exact -n1 -N1 --mem=100 bash -c "sleep 0.3; echo $i \\$SLURMD_NODENAME" & done; wait""", nodes=2)
    found = sorted(line.split() for line in job.lines())
    assert [number for number, _ in found] == ["1", "2", "3", "4"]
    assert sorted(node for _, node in found) == ["n1", "n1", "n2", "n2"]
    begins = {event.step_id: event.at_s for event in job.of("step_started")}
    assert max(begins.values()) < min(event.at_s for event in job.of("step_ended"))   # all ran at once


def test_a_step_waits_for_room(rig):
    job = rig.do("""srun -N2 bash -c 'touch r$SLURM_PROCID; sleep 0.3; echo first' &
until [ -e r0 -a -e r1 ]; do sleep 0.02; done; srun -n1 -N1 echo second; wait""", nodes=2)
    assert [line for line in job.lines() if line in ("first", "second")] == ["first", "first", "second"]
    assert f"srun: Step created for StepId={job.run.job_id}.1" in job.lines()


def test_immediate_does_not_wait(rig):
    job = rig.do("""srun -N2 bash -c 'touch r$SLURM_PROCID; sleep 0.4' &
until [ -e r0 -a -e r1 ]; do sleep 0.02; done; srun -I -n1 -N1 true; echo $?; wait""", nodes=2)
    assert job.lines() == [
        f"srun: error: Unable to create step for job {job.run.job_id}: Requested nodes are busy", "1"]


def test_overlapping_steps_share(rig):
    job = rig.do("srun -n1 bash -c 'srun --overlap --mem=0 -n1 echo inner; echo outer'")
    assert job.lines() == ["inner", "outer"]


@pytest.mark.parametrize(("command", "expected"), [
    ("echo piped | srun -n2 -N1 cat", ["piped", "piped"]),
    ("echo piped | srun -l -n2 -N1 -i 1 cat", ["1: piped"]),
    ("echo piped | srun -n2 -N1 -i none cat", []),
    ("printf 'a\\nb\\n' > in; srun -n1 -N1 -i in cat </dev/null", ["a", "b"]),
    ("for t in 0 1; do echo mine $t > in.$t; done; srun -n2 -N1 -l -i in.%t cat | sort", ["0: mine 0", "1: mine 1"]),
    ("head -c 3000000 /dev/zero | srun -n2 -N1 wc -c", ["3000000", "3000000"]),
    ("srun -n1 -N1 -i nosuch cat; echo $?", ["srun: error: Could not open stdin file: No such file or directory", "1"]),
    ("yes | srun -n1 -N1 head -n1", ["y"])])
def test_standard_input(rig, command, expected):
    assert rig.do(command).lines() == expected


@pytest.mark.parametrize(("options", "files"), [
    ("-o one.out", {"one.out": ["0 out", "1 out", "0 err", "1 err"]}),
    ("-o o.%t -e e.%t", {"o.0": ["0 out"], "o.1": ["1 out"], "e.0": ["0 err"], "e.1": ["1 err"]}),
    ("-o %j.%s.%N.%n.%2t", {"{id}.0.n1.0.00": ["0 out", "0 err"], "{id}.0.n2.1.01": ["1 out", "1 err"]}),
    ("-o new/dir/x.%t", {"new/dir/x.0": ["0 out", "0 err"], "new/dir/x.1": ["1 out", "1 err"]}),
    ("-l -o labelled", {"labelled": ["0: 0 out", "1: 1 out", "0: 0 err", "1: 1 err"]})])
def test_output_files(rig, options, files):
    job = rig.do(f"srun {options} bash -c 'echo $SLURM_PROCID out; echo $SLURM_PROCID err >&2'; echo end", nodes=2)
    assert job.lines()[-1] == "end"
    for name, lines in files.items():
        assert sorted(job.lines(name.format(id=job.run.job_id))) == sorted(lines)


def test_output_to_none_and_of_one_task(rig):
    job = rig.do("srun -o none -e 1 bash -c 'echo $SLURM_PROCID out; echo $SLURM_PROCID err >&2'", nodes=2)
    assert job.lines() == ["1 err"]


def test_labels_are_as_wide_as_the_last_task(rig):
    job = rig.do("srun -l -O -n11 printf 'x'", cpus=8)
    assert sorted(job.lines()) == sorted(f"{rank:2d}: x" for rank in range(11))


def test_lines_of_tasks_do_not_mix(rig):
    job = rig.do("srun -n4 -O bash -c 'for i in $(seq 50); do printf %s $SLURM_PROCID$SLURM_PROCID; echo -x$i; done'",
                 nodes=2)
    assert len(job.lines()) == 200
    assert all(re.fullmatch(r"(\d)\1-x\d+", line) for line in job.lines())


def test_kill_on_bad_exit(rig):
    begun = time.monotonic()
    job = rig.do("srun -K -n2 bash -c '[ $SLURM_PROCID = 1 ] && exit 7; sleep 30'; echo rc $?", nodes=2)
    assert time.monotonic() - begun < 10
    text = job.text()
    step = f"{job.run.job_id}.0"
    for part in ("srun: error: n2: task 1: Exited with exit code 7\n", f"srun: Terminating StepId={step}\n",
                 f"*** STEP {step} ON n1 CANCELLED AT ", "DUE TO TASK FAILURE ***\n",
                 "srun: error: n1: task 0: Terminated\n", "rc 143\n"):
        assert part in text


def test_wait_after_the_first_task(rig):
    job = rig.do("srun -W1 -n2 bash -c '[ $SLURM_PROCID = 1 ] || sleep 30'; echo rc $?", nodes=2)
    assert "srun: First task exited 1s ago\n" in job.text()
    assert job.lines()[-1] == "rc 137"


def test_multi_prog(rig):
    job = rig.do("""printf '# tasks\\n0 echo zero %%t %%o\\n1-2 echo '"'two words'"' %%t %%o\\n* echo rest %%o\\n' > mp
srun -l -n4 -O --multi-prog mp more | sort; srun -n4 -O --multi-prog nosuch; echo $?""")
    assert job.lines() == ["0: zero 0 0 more", "1: two words 1 0 more", "2: two words 2 1 more", "3: rest 0 more",
                           "srun: error: Could not open multi_prog config file nosuch", "1"]


@pytest.mark.parametrize(("export", "expected"), [
    ("ALL", {"FOO": "foo", "BAR": "bar"}), ("NONE", {}), ("FOO", {"FOO": "foo"}), ("ALL,NEW=a b", {
        "FOO": "foo", "BAR": "bar", "NEW": "a b"}), ("BAR=other,FOO", {"FOO": "foo", "BAR": "other"})])
def test_export(rig, export, expected):
    job = rig.do(f"export BAR=bar; srun -n1 --export='{export}' /usr/bin/env")
    env = dict(line.split("=", 1) for line in job.lines())
    assert {name: env[name] for name in ("FOO", "BAR", "NEW") if name in env} == expected
    assert env["SLURM_JOB_ID"] == str(job.run.job_id)


def test_interrupts_and_signals_of_srun(rig):
    job = rig.do("""srun -n1 -N1 bash -c 'trap "exit 5" USR1; touch r1; sleep 30 & wait' &
until [ -e r1 ]; do sleep 0.02; done; kill -USR1 $!; wait $!; echo usr1 $?
srun -n1 -N1 bash -c 'touch r2; exec sleep 30' & until [ -e r2 ]; do sleep 0.02; done
kill -INT $!; sleep 0.2; kill -INT $!; wait $!; echo int $?
srun -n1 -N1 bash -c 'touch r3; exec sleep 30' & until [ -e r3 ]; do sleep 0.02; done
kill -TERM $!; wait $!; echo term $?""")
    lines = job.lines()
    assert {"usr1 5", "srun: interrupt (one more within 1 sec to abort)",
            f"srun: StepId={job.run.job_id}.1 task 0: running", f"srun: sending Ctrl-C to StepId={job.run.job_id}.1",
            "srun: forcing job termination", "term 137"} <= set(lines)
    assert lines[-1] == "term 137"
    assert {"int 130", "int 137"} & set(lines)


def test_srun_killed_ends_its_step(rig):
    mark = f"92{os.getpid()}"
    job = rig.do(f"srun sleep {mark} & sleep 0.3; kill -KILL $!; wait $!; sleep 0.3; pgrep -cf 'sleep {mark}'; true",
                 nodes=2)
    assert job.lines()[-1] == "0"
    assert steps(job)["0"].exit_status == signal.SIGKILL
    assert processes_matching(f"sleep {mark}") == []


def test_one_step_is_signalled(rig):
    job = rig.launch("""srun --exact -n1 -N1 --mem=0 sleep 30 & srun --exact -n1 -N1 --mem=0 sleep 30 &
wait %1; echo one $?; wait %2; echo two $?""")
    rig.wait(job, lambda job: len(job.of("step_started")) == 2)
    time.sleep(0.1)
    rig.call(rig.engine.signal(job.run, signal.SIGKILL, step_id="1"))
    rig.wait(job, lambda job: job.of("step_ended"))
    assert steps(job).keys() == {"1"}
    rig.call(rig.engine.signal(job.run, signal.SIGTERM, step_id="0"))
    rig.wait(job)
    codes = sorted(line.split()[1] for line in job.lines() if line[:4] in ("one ", "two "))
    assert codes == ["137", "143"]            # which of the two became step 1 is chance


def test_cancelled_job_says_so_in_its_steps(rig):
    job = rig.launch("exec srun bash -c 'touch ready.$SLURM_PROCID; exec sleep 30'", nodes=2)
    until(lambda: (job.folder / "ready.0").exists() and (job.folder / "ready.1").exists())
    rig.call(rig.engine.terminate(job.run, cause="CANCELLED", grace_s=2))
    rig.wait(job)
    text = job.text()
    assert f"*** STEP {job.run.job_id}.0 ON n1 CANCELLED AT " in text
    assert f"*** JOB {job.run.job_id} ON n1 CANCELLED AT " in text
    assert "srun: Job step aborted: Waiting up to 2 seconds for job step to finish.\n" in text


def test_prolog_epilog_and_terminal(rig):
    job = rig.do("""printf '#!/bin/sh\\necho pro "$@"\\n' > pro; chmod +x pro
srun -n1 --prolog=./pro --epilog=./pro echo task; srun -n1 --pty bash -c 'test -t 0 && test -t 1 && echo terminal'""")
    assert [line.strip() for line in job.lines()] == ["pro echo task", "task", "pro echo task", "terminal"]


def test_task_prolog_and_epilog(rig):
    job = rig.do("""printf '#!/bin/sh\\necho export ADDED=$SLURM_PROCID\\necho unset FOO\\necho print hello\\n' > pro
printf '#!/bin/sh\\necho unseen\\necho bye $ADDED >&2\\n' > epi; chmod +x pro epi
srun -n2 -N1 -l --task-prolog=$PWD/pro --task-epilog=$PWD/epi bash -c 'echo $ADDED ${FOO-unset}' 2>&1 | sort""")
    assert job.lines() == ["0: 0 unset", "0: bye 0", "0: hello", "1: 1 unset", "1: bye 1", "1: hello"]


def test_limits_and_umask_of_srun(rig):
    job = rig.do("""ulimit -n 333; umask 027; srun -n1 bash -c 'ulimit -n; umask'
srun -n1 --propagate=NONE bash -c 'ulimit -n'""")
    assert job.lines()[:2] == ["333", "0027"]
    assert job.lines()[2] != "333"


def test_gpus_of_steps(rig):
    share = NodeAllocation("n1", 4, 4000, gres={"gpu:a100": (1, 3)})
    job = rig.do("""srun -n1 bash -c 'echo $CUDA_VISIBLE_DEVICES $SLURM_JOB_GPUS $SLURM_STEP_GPUS'
srun -n1 --gres=gpu:1 bash -c 'echo $CUDA_VISIBLE_DEVICES'
srun -n1 --gres=none bash -c 'echo none${CUDA_VISIBLE_DEVICES-}'
srun -n1 --gres=gpu:3 true; echo $?""", record={"allocation": [share], "tres_alloc": {}})
    assert job.lines() == ["1,3 1,3 1,3", "1", "none", "srun: error: Unable to create step for job "
                           f"{job.run.job_id}: Invalid generic resource (gres) specification", "1"]


def test_no_more_steps_than_max_step_count(rig):
    job = rig.do("srun -n1 true; srun -n1 true; srun -n1 true 2>&1; echo $?",
                 order={"settings": {"MaxStepCount": "2"}})
    said, code = job.lines()
    assert said.startswith("srun: error: Unable to create step for job")
    assert said.endswith("Step limit reached for this job")
    assert code == "1"
