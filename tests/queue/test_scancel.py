"""What scancel does to which jobs, what it says, and what it ends with."""
from __future__ import annotations

import pytest
from queues import FakeSession, array_job, plain_job

from slurmbridge.commands.scancel import run
from slurmbridge.slurm import errors
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.slurm.jobspec import JobRequest


def queue():
    return [
        plain_job(1, state="RUNNING", start_s=1100.0, nodes=("n1",), partition="batch", qos="high"),
        plain_job(2, name="train", partition="gpu"),
        plain_job(3, state="COMPLETED", end_s=2000.0),
        array_job(4, "2-9%2"),
        plain_job(5, array_job_id=4, array_task_id=0, state="RUNNING", start_s=1100.0, nodes=("n2",)),
        plain_job(6, user_name="bob", uid=20002, account="chem", wckey="*k"),
        plain_job(7, het_job_id=7, het_offset=0, het_job_ids=(7, 8)),
        plain_job(8, het_job_id=7, het_offset=1, het_job_ids=(7, 8)),
        plain_job(9, request=JobRequest(reservation="maint"), state="SUSPENDED", start_s=1100.0, nodes=("n1",)),
    ]


INVALID = "Invalid job id specified"
CASES = [
    # (arguments, what is asked of the controller, standard error, exit code)
    (["1"], [{"job_id": 1}], "", 0),
    (["1", "2"], [{"job_id": 1}, {"job_id": 2}], "", 0),
    (["1,2"], [{"job_id": 1}, {"job_id": 2}], "", 0),
    (["-v", "1"], [{"job_id": 1}], "scancel: Terminating job 1\n", 0),
    (["-f", "-v", "1"], [{"job_id": 1, "full": True}], "scancel: Terminating full job 1\n", 0),
    (["4_3"], [{"job_id": 4, "task_ids": (3,)}], "", 0),
    (["4_[2-3,7]"], [{"job_id": 4, "task_ids": (2, 3, 7)}], "", 0),
    (["4_3,4_5"], [{"job_id": 4, "task_ids": (3,)}, {"job_id": 4, "task_ids": (5,)}], "", 0),
    (["4"], [{"job_id": 4}], "", 0),
    (["7+1"], [{"job_id": 8}], "", 0),
    (["1+0"], [], "scancel: error: Kill job error on job id 1+0: Job not heterogeneous job\n", 58),
    (["1+1"], [], "", 0),
    (["--ctld", "-n", "train", "1", "2"], [{"job_id": 2}],
     "scancel: error: Kill job error on job id 1: Job name job1 != filter name train: Cannot signal job\n", 0),
    (["--ctld", "-p", "gpu", "1"], [], "scancel: error: Kill job error on job id 1: Job partition batch does not "
     "include filter partition gpu: Cannot signal job\n", 0),
    (["--ctld", "-t", "PENDING", "1"], [], "scancel: error: Kill job error on job id 1: Job state RUNNING != filter "
     "state PENDING: Cannot signal job\n", 0),
    (["--ctld", "-q", "low", "1"], [],
     "scancel: error: Kill job error on job id 1: Job qos high != filter qos low: Cannot signal job\n", 0),
    (["--ctld", "-w", "n5", "1"], [], "scancel: error: Kill job error on job id 1: Job nodes n1 does not intersect "
     "with filter nodes n5: Cannot signal job\n", 0),
    (["99"], [{"job_id": 99}], "", 0),
    (["-v", "99"], [{"job_id": 99}],
     f"scancel: Terminating job 99\nscancel: error: Kill job error on job id 99: {INVALID}\n", 0),
    (["99", "-s", "USR1"], [], f"scancel: error: Kill job error on job id 99: {INVALID}\n", 1),
    (["3", "--signal=TERM"], [], f"scancel: error: Kill job error on job id 3: {INVALID}\n", 1),
    (["-Q", "3", "-s", "15"], [], "", 1),
    (["-s", "USR1", "1"], [{"job_id": 1, "signal": 10}], "", 0),
    (["-s", "SIGINT", "-v", "1"], [{"job_id": 1, "signal": 2}], "scancel: Signal 2 to job 1\n", 0),
    (["-b", "-s", "USR2", "-v", "1"], [{"job_id": 1, "signal": 12, "batch_only": True}],
     "scancel: Signal 12 to batch job 1\n", 0),
    (["-b", "1"], [{"job_id": 1, "signal": 9, "batch_only": True}], "", 0),
    (["-s", "9", "4"], [{"job_id": 4, "task_ids": (2, 3, 4, 5, 6, 7, 8, 9), "signal": 9},
                        {"job_id": 4, "task_ids": (0,), "signal": 9}], "", 0),
    (["1.0"], [{"job_id": 1, "step_id": "0"}], "", 0),
    (["-v", "-s", "INT", "1.3"], [{"job_id": 1, "step_id": "3", "signal": 2}], "scancel: Signal 2 to step 1.3\n", 0),
    (["-v", "4_0.0"], [{"job_id": 5, "step_id": "0"}], "scancel: Terminating step 5.0\n", 0),
    (["2.0"], [], "", 0),
    (["99.0"], [], f"scancel: error: Kill job error on job step id 99.0: {INVALID}\n", 1),
    (["-u", "20002"], [{"job_id": 6}], "", 0),
    (["-n", "train"], [{"job_id": 2}], "", 0),
    (["--jobname=train", "-v"], [{"job_id": 2}], "scancel: Terminating job 2\n", 0),
    (["-p", "gpu"], [{"job_id": 2}], "", 0),
    (["-A", "CHEM"], [{"job_id": 6}], "", 0),
    (["-q", "High"], [{"job_id": 1}], "", 0),
    (["-R", "maint"], [{"job_id": 9}], "", 0),
    (["--wckey=k"], [{"job_id": 6}], "", 0),
    (["-w", "n[1,3]"], [{"job_id": 1}, {"job_id": 9}], "", 0),
    (["-t", "suspended"], [{"job_id": 9}], "", 0),
    (["-t", "R"], [{"job_id": 1}, {"job_id": 4, "task_ids": (0,)}], "", 0),
    (["-t", "PD", "-u", "20001", "-v"],
     [{"job_id": 2}, {"job_id": 4, "task_ids": (2, 3, 4, 5, 6, 7, 8, 9)}, {"job_id": 7}],
     "scancel: Terminating job 2\nscancel: Terminating job 4_[2-9%2]\nscancel: Terminating job 7\n", 0),
    (["-p", "none", "-v"], [], "scancel: error: No active jobs match ALL job filters, including: partition=none \n", 0),
    (["-p", "none"], [], "", 0),
    (["-p", "gpu", "1"], [], "", 0),
    (["--ctld", "-s", "TERM", "1"], [{"job_id": 1, "signal": 15}], "", 0),
    (["--ctld", "-s", "TERM", "99"], [], "", 0),
    (["--ctld", "-v", "99"], [], f"scancel: error: Kill job error on job id 99: {INVALID}\n", 0),
    ([], [], "scancel: error: No job identification provided\n", 1),
    (["x"], [], "scancel: error: Invalid job id x\n", 1),
    (["1x"], [], "scancel: error: Invalid job id 1x\n", 1),
    (["4_[1-"], [], "scancel: error: Invalid job id 4_[1-\n", 1),
    (["1.batch"], [], "scancel: error: Invalid job id 1.batch\n", 1),
    (["-s", "nonsense", "1"], [], "Unknown job signal: nonsense\n", 1),
    (["-t", "odd"], [], "Invalid job state specified: odd\nValid job states are PENDING, RUNNING, and SUSPENDED\n", 1),
    (["-u", "nobody-of-that-name"], [], "scancel: error: Invalid user name: nobody-of-that-name\n", 1),
    (["--colour", "1"], [],
     "scancel: unrecognized option '--colour'\nTry \"scancel --help\" for more information\n", 1),
]


@pytest.mark.parametrize("argv, calls, stderr, code", CASES, ids=[" ".join(case[0]) or "nothing" for case in CASES])
def test_arguments(argv, calls, stderr, code):
    session = FakeSession(queue())
    session.acts.errors[99] = SlurmError(errors.ESLURM_INVALID_JOB_ID)
    reply = session.call(run, *argv)
    assert session.acts.calls == calls
    assert (reply.stdout, reply.stderr, reply.exit_code) == ("", stderr, code)


ENVIRONMENT = [
    ({"SCANCEL_PARTITION": "gpu"}, [], [{"job_id": 2}], ""), ({"SCANCEL_NAME": "train"}, [], [{"job_id": 2}], ""),
    ({"SCANCEL_USER": "20002"}, [], [{"job_id": 6}], ""), ({"SCANCEL_STATE": "S"}, [], [{"job_id": 9}], ""),
    ({"SCANCEL_VERBOSE": "T"}, ["1"], [{"job_id": 1}], "scancel: Terminating job 1\n"),
    ({"SCANCEL_FULL": "true"}, ["1"], [{"job_id": 1, "full": True}], ""),
    ({"SCANCEL_BATCH": "maybe"}, ["1"], [{"job_id": 1}], "scancel: error: Unrecognized SCANCEL_BATCH value: maybe\n"),
    ({"SCANCEL_QOS": "HIGH"}, [], [{"job_id": 1}], ""), ({"SLURM_CLUSTERS": "lab"}, ["1"], [{"job_id": 1}], "")]


@pytest.mark.parametrize("env, argv, calls, stderr", ENVIRONMENT, ids=[" ".join(case[0]) for case in ENVIRONMENT])
def test_variables(env, argv, calls, stderr):
    session = FakeSession(queue())
    reply = session.call(run, *argv, env=env)
    assert (session.acts.calls, reply.stderr, reply.exit_code) == (calls, stderr, 0)


DENIED = errors.ESLURM_ACCESS_DENIED
ERRORS = [
    # (arguments, error of job 1, standard error, exit code)
    (["1"], errors.ESLURM_ALREADY_DONE, "", 0),
    (["-s", "KILL", "1"], errors.ESLURM_ALREADY_DONE, "", 0),
    (["-s", "USR1", "1"], errors.ESLURM_ALREADY_DONE, "", errors.ESLURM_ALREADY_DONE & 255),
    (["1"], DENIED, "scancel: error: Kill job error on job id 1: Access/permission denied\n", DENIED & 255),
    (["1.0"], DENIED, "scancel: error: Kill job error on job step id 1: Access/permission denied\n", DENIED & 255),
    (["1.0"], errors.ESLURM_ALREADY_DONE, "", 0),
    (["-v", "1.0"], errors.ESLURM_ALREADY_DONE, "scancel: Terminating step 1.0\n"
     "scancel: error: Kill job error on job step id 1: Job/step already completing or completed\n", 0)]


@pytest.mark.parametrize("argv, code, stderr, exit_code", ERRORS, ids=[f"{' '.join(c[0])} {c[1]}" for c in ERRORS])
def test_refusals(argv, code, stderr, exit_code):
    session = FakeSession(queue())
    session.acts.errors[1] = SlurmError(code)
    reply = session.call(run, *argv)
    assert (reply.stderr, reply.exit_code) == (stderr, exit_code)


def test_job_between_two_states_is_tried_again():
    session = FakeSession(queue())
    session.patience = 20
    session.acts.errors[1] = SlurmError(errors.ESLURM_TRANSITION_STATE_NO_UPDATE)
    reply = session.call(run, "1")
    assert session.sleeps == list(range(5, 15))
    assert reply.stderr == "scancel: error: Kill job error on job id 1: Job can not be altered now, try again later\n"


def test_interactive_asks_about_each_job():
    session = FakeSession(queue(), answers=b"maybe\ny\nno\n", tty=True)
    reply = session.call(run, "-i", "1", "2")
    question = "Cancel job_id={} name={} partition={} [y/n]? "
    assert session.written == question.format(2, "train", "gpu") * 2 + question.format(1, "job1", "batch")
    assert session.acts.calls == [{"job_id": 2}]
    assert reply.exit_code == 0


def test_interactive_without_anybody_to_answer():
    session = FakeSession(queue())
    reply = session.call(run, "-i", "1")
    assert (session.acts.calls, reply.exit_code) == ([], 1)
    assert reply.stderr == "scancel: error: --interactive: no answer on standard input\n"


def test_nodes_from_a_file(tmp_path):
    (tmp_path / "hosts").write_text("n2 # the second\nn7*4\n")
    session = FakeSession(queue())
    session.call(run, "-w", str(tmp_path / "hosts"))
    assert session.acts.calls == [{"job_id": 4, "task_ids": (0,)}]


def test_comment_of_an_administrator():
    session = FakeSession(queue())
    session.call(run, "--admin-comment=node is sick", "1")
    assert session.acts.calls == [{"update": "1", "admincomment": "node is sick"}, {"job_id": 1}]


def test_help_and_version():
    session = FakeSession([])
    assert session.call(run, "-V").stdout == "slurm 25.11.7\n"
    assert session.call(run, "--usage").stdout.startswith("Usage: scancel [-A account] [--batch]")
    assert session.call(run, "--help").stdout.startswith("Usage: scancel [OPTIONS] [job_id[_array_id][.step_id]]\n")
