"""squeue's options: which jobs are shown, in what order and how, and what is said about mistakes."""
from __future__ import annotations

import pytest
from queues import FakeSession, array_job, plain_job

from slurmbridge.commands.squeue import run
from slurmbridge.slurm.jobspec import JobRequest
from slurmbridge.views.records import PartitionRecord

NOW = "1970-01-01T01:00:00"                   # 3600 s


def queue():
    return [
        plain_job(1, state="RUNNING", start_s=1800.0, nodes=("n1", "n2"), priority=50, qos="high"),
        plain_job(2, name="Train", partition="gpu", account="chem", priority=200),
        plain_job(3, state="COMPLETED", start_s=1000.0, end_s=2000.0, reason="None"),
        array_job(4, "2-9%2", partition="batch,gpu", partition_priorities={"batch": 10, "gpu": 20}),
        plain_job(5, array_job_id=4, array_task_id=0, state="RUNNING", start_s=3000.0, nodes=("g1",), partition="gpu"),
        plain_job(6, user_name="bob", uid=20002, request=JobRequest(licenses="matlab:2,ansys", reservation="maint")),
        plain_job(7, state="COMPLETED", flags={"COMPLETING"}, start_s=1000.0, end_s=2000.0, nodes=("n1",),
                  reason="None"),
        plain_job(8, het_job_id=8, het_offset=0, het_job_ids=(8, 9)),
        plain_job(9, het_job_id=8, het_offset=1, het_job_ids=(8, 9)),
    ]


SHOWN = [
    ([], {}, "1 2 4_[2-9%2] 4_0 6 7 8+0 8+1"),
    (["-t", "all"], {}, "1 2 3 4_[2-9%2] 4_0 6 7 8+0 8+1"),
    (["-t", "R"], {}, "1 4_0"), (["--states=completed"], {}, "3"), (["-t", "cg,cd"], {}, "3 7"),
    (["-u", "20002"], {}, "6"), (["--me"], {}, ""), (["-u", "20002,20001", "-t", "PD", "-p", "gpu"], {}, "2 4_[2-9%2]"),
    (["-p", "gpu"], {}, "2 4_[2-9%2] 4_0"), (["-n", "train"], {}, "2"), (["-A", "CHEM"], {}, "2"),
    (["-q", "HIGH"], {}, "1"), (["-L", "ansys"], {}, "6"), (["-R", "other,maint"], {}, "6"), (["-w", "n1"], {}, "1 7"),
    (["-j", "1,2,99"], {}, "1 2"), (["-j1"], {}, "1"), (["--jobs", "1"], {}, "1"), (["-j", "3"], {}, ""),
    (["-j", "4"], {}, "4_[2-9%2] 4_0"), (["-j", "4_3"], {}, "4_3"), (["-j", "4_3,4_5,4_0"], {}, "4_[3,5] 4_0"),
    (["-j", "5"], {}, "4_0"), (["-j", "8"], {}, "8+0 8+1"), (["-j", "9"], {}, "8+1"),
    (["-r", "-j", "4"], {}, "4_2 4_3 4_4 4_5 4_6 4_7 4_8 4_9 4_0"),
    (["--running-over=20:00"], {}, "1"), (["--running-under=20:00"], {}, "4_0"), (["--notme"], {}, None),
    ([], {"SQUEUE_PARTITION": "gpu"}, "2 4_[2-9%2] 4_0"), ([], {"SQUEUE_USERS": "20002"}, "6"),
    ([], {"SQUEUE_STATES": "R"}, "1 4_0"), (["-t", "PD"], {"SQUEUE_STATES": "R"}, "2 4_[2-9%2] 6 8+0 8+1"),
    ([], {"SQUEUE_NAMES": "train"}, "2"), ([], {"SQUEUE_ACCOUNT": "chem"}, "2"), ([], {"SQUEUE_QOS": "high"}, "1"),
    ([], {"SQUEUE_LICENSES": "matlab"}, "6"), ([], {"SQUEUE_ARRAY": "1", "SQUEUE_STATES": "PD"},
                                               "2 4_2 4_3 4_4 4_5 4_6 4_7 4_8 4_9 6 8+0 8+1"),
]


@pytest.mark.parametrize("argv, env, ids", SHOWN, ids=[" ".join([*case[0], *case[1]]) or "nothing" for case in SHOWN])
def test_which_jobs(argv, env, ids):
    reply = FakeSession(queue(), now=NOW).call(run, "-h", "-S", "i", "-o", "%i", *argv, env=env)
    got = reply.stdout.split()
    if ids is None:
        assert len(got) == 8                  # root has no jobs
    else:
        assert sorted(got) == sorted(ids.split())
    assert (reply.stderr, reply.exit_code) == ("", 0)


ORDERS = [
    ("i", "1 2 4_0 4_[2-9%2] 6 7 8+0 8+1"), ("-i", "8+1 8+0 7 6 4_[2-9%2] 4_0 2 1"),
    ("-p,i", "2 4_0 4_[2-9%2] 6 7 8+0 8+1 1"),
    ("t,-i", "7 8+1 8+0 6 4_[2-9%2] 2 4_0 1"), ("M,i", "2 4_[2-9%2] 6 8+0 8+1 4_0 7 1"),
    ("N,i", "2 4_[2-9%2] 6 8+0 8+1 4_0 1 7"),
    ("S,i", "7 1 4_0 8+1 8+0 6 4_[2-9%2] 2"), ("-cluster,i", "1 2 4_0 4_[2-9%2] 6 7 8+0 8+1"),
    ("L,i", "1 7 4_0 2 4_[2-9%2] 6 8+0 8+1")]


@pytest.mark.parametrize("letters, ids", ORDERS, ids=[letters for letters, _ in ORDERS])
def test_order(letters, ids):
    assert FakeSession(queue(), now=NOW).call(run, "-h", "-o", "%i", "-S", letters).stdout.split() == ids.split()


def test_priority_shows_a_line_for_each_partition():
    reply = FakeSession(queue(), now=NOW, partitions=[PartitionRecord("gpu", priority_tier=9)]).call(
        run, "-h", "-P", "-j", "4", "-t", "PD", "-S", "-p", "-o", "%i %P %Q")
    assert reply.stdout == "4_[2-9%2] gpu 20\n4_[2-9%2] batch 10\n"


def test_tasks_that_are_pending_again_rejoin_their_array():
    jobs = [array_job(4, "2-3%2"), plain_job(5, array_job_id=4, array_task_id=7, name="job4", reason="Resources"),
            plain_job(6, array_job_id=4, array_task_id=8, name="other")]
    reply = FakeSession(jobs).call(run, "-h", "-S", "i", "-o", "%i %r")
    assert sorted(reply.stdout.splitlines()) == ["4_8 Priority", "4_[2-3,7] Priority,Resources"]


SPARSE = "0-1," + ",".join(str(i * i) for i in range(2, 40))
LENGTHS = [({}, f"4_[{SPARSE}"[:31]), ({"SLURM_BITSTR_LEN": "0"}, f"4_[{SPARSE}]"),
           ({"SLURM_BITSTR_LEN": "20"}, "4_[0-1,4,9,16,25,36...]")]


@pytest.mark.parametrize("env, shown", LENGTHS, ids=["default", "0", "20"])
def test_how_much_of_an_array_is_listed(env, shown):
    reply = FakeSession([array_job(4, SPARSE)]).call(run, "-h", "-o", "%i", env=env)
    assert reply.stdout == shown + "\n"


HIDING = [(20001, [], "2 4"), (20001, ["-a"], "1 2 4"), (20001, ["-j", "1"], "1"), (0, [], "1 2 4")]


@pytest.mark.parametrize("uid, argv, ids", HIDING, ids=[f"{uid} {' '.join(argv)}" for uid, argv, _ in HIDING])
def test_hidden_partitions(uid, argv, ids):
    jobs = [plain_job(1, partition="secret"), plain_job(2), plain_job(4, partition="batch,secret")]
    session = FakeSession(jobs, uid=uid, partitions=[PartitionRecord("secret", hidden=True)])
    assert session.call(run, "-h", "-S", "i", "-o", "%i", *argv).stdout.split() == ids.split()


def test_private_jobs_are_their_owners():
    session = FakeSession(queue(), uid=20002)
    session.views.conf.values["PrivateData"] = "jobs,usage"
    assert session.call(run, "-h", "-o", "%i").stdout.split() == ["6"]
    reply = session.call(run, "-h", "-j", "1")
    assert (reply.stderr, reply.exit_code) == ("slurm_load_jobs error: Invalid job id specified\n", 1)


FORMATS = [
    (["-o", "%.5l|%5P|%Q"], "TIME_|PARTI|PRIORITY\n1:00:00|gpu  |200\n"),
    (["-o", "%5l|%.3M|%4N|%6R|%.3R"], "TIME_|TIM|NODE|NODELI|NODELIST(REASON)\n1:00:|0:00|    |(Prior|(Pr\n"),
    (["-o", "{%i:%j}"], "{JOBID:NAME}\n{2:Train}\n"),
    (["-o", "%k|%5k|%.9k|%8k"], "COMMENT|COMME|  COMMENT|COMMENT \n(null)|     |   (null)|(null)  \n"),
    (["-O", "JobID:6,name:.7,tres-per-node:-,STATE:###x###"],
     "JOBID    NAMETRES_PER_NODE-STATE###x###\n2       TrainN/A-PENDING###x###\n"),
    (["-O", "jobid"], "JOBID               \n2                   \n"), (["-h", "-o", "text"], "text\n"),
    (["-o", ""], "\n\n"), (["-O", "Gres:1,TRES:1,Shared:1,PackJobID:1"], "TTOH\nNNON\n"),
    (["--noconvert", "-h", "-o", "%m"], "4096M\n"), (["-h", "-o", "%m"], "4G\n"),
    (["-h", "-o", "%p"], "0.00000004656613\n"),
    (["-h", "-o", "%e %S %V"], "N/A N/A 1970-01-01T00:16:40\n"),
]


@pytest.mark.parametrize("argv, out", FORMATS, ids=[" ".join(argv) for argv, _ in FORMATS])
def test_formats(argv, out):
    job = plain_job(2, name="Train", partition="gpu", priority=200, mem_per_node_mb=4096)
    assert FakeSession([job], now=NOW).call(run, *argv).stdout == out


def test_variables_for_formats():
    session = FakeSession([plain_job(2)], now=NOW)
    assert session.call(run, env={"SQUEUE_FORMAT": "%A"}).stdout == "JOBID\n2\n"
    assert session.call(run, env={"SQUEUE_FORMAT2": "JobID:3"}).stdout == "JOB\n2  \n"
    assert session.call(run, "-o", "%u", env={"SQUEUE_FORMAT": "%A"}).stdout == "USER\nalice\n"
    assert session.call(run, "-h", "-o", "%V", env={"SLURM_TIME_FORMAT": "%s"}).stdout == "1000\n"
    assert session.call(run, "-h", "-o", "%V", env={"TZ": "Etc/GMT-2"}).stdout == "1970-01-01T02:16:40\n"


def test_job_states_alone():
    reply = FakeSession(queue(), now=NOW).call(run, "--only-job-state", "-j", "1,4", "-S", "i")
    assert reply.stdout == ("             JOBID ST\n                 1  R\n               4_0  R\n"
                            "           4_[2-9] PD\n")
    reply = FakeSession(queue(), now=NOW).call(run, "--only-job-state", "-h", "-o", "%i")
    assert reply.stdout.split() == ["7", "8+1", "8+0", "6", "4_[2-9]", "2", "4_0", "1"]


def test_file_names_with_their_patterns_replaced():
    job = plain_job(2, request=JobRequest(std_out="out-%j.txt"), std_out="/home/alice/out-2.txt")
    session = FakeSession([job])
    assert session.call(run, "-h", "-O", "STDOUT:0").stdout == "out-%j.txt\n"
    assert session.call(run, "-h", "--expand-patterns", "-O", "STDOUT:0").stdout == "/home/alice/out-2.txt\n"


def test_again_and_again_until_the_caller_goes():
    session = FakeSession([plain_job(2)], now=NOW)
    with pytest.raises(ConnectionError):
        session.call(run, "-i", "2", "-o", "%A")
    assert session.sleeps == [2, 2, 2]
    assert session.written == "".join(f"Thu Jan 01 01:00:0{second} 1970\nJOBID\n2\n\n" for second in (0, 2, 4))


def test_own_cluster_and_others():
    session = FakeSession([plain_job(2)])
    assert session.call(run, "-M", "lab", "-o", "%A").stdout == "CLUSTER: lab\nJOBID\n2\n"
    reply = session.call(run, "-M", "far")
    assert reply.exit_code == 1 and "squeue: fatal: Could not get cluster information\n" in reply.stderr


TRY = 'Try "squeue --help" for more information\n'
MISTAKES = [
    (["-j", "x"], "squeue: error: Invalid job id: x\n"),
    (["-j", "99"], "slurm_load_jobs error: Invalid job id specified\n"),
    (["-s", "5"], "squeue: error: Invalid job_step id: 5.??\n"),
    (["-w", "nowhere"], "squeue: error: Invalid node name nowhere\n"),
    (["-o", "%i", "-O", "JobID"], "squeue: error: -O (--Format) is incompatible with -o (--format)\n"),
    (["-O", "JobID", "-o", "%i"], "squeue: error: -o (--format) is incompatible with -O (--Format)\n"),
    (["-o", "%i", "-l"], "squeue: fatal: Options -o(--format) and -l(--long) are mutually exclusive. "
                         "Please remove one and retry.\n"),
    (["-i", "0"], "squeue: error: --iterate=0\n\n"),
    (["-j", "-s"], "squeue: error: Incompatible options --jobs and --steps\n"),
    (["--running-over=x"], "squeue: fatal: Invalid time limit specification\n"),
    (["--running-over=10", "--running-under=5"],
     "squeue: fatal: --running-over=00:10:00 and --running-under=00:05:00 will return 0 jobs.\n"),
    (["--json"], "squeue: error: --json is not offered by slurmbridge yet; use the text formats\n"),
    (["-z"], "squeue: invalid option -- 'z'\n" + TRY), (["--s"], None),
    (["-p"], "squeue: option requires an argument -- 'p'\n" + TRY),
]


@pytest.mark.parametrize("argv, stderr", MISTAKES, ids=[" ".join(argv) for argv, _ in MISTAKES])
def test_mistakes(argv, stderr):
    reply = FakeSession(queue()).call(run, *argv)
    assert (reply.stdout, reply.exit_code) == ("", 1)
    if stderr is None:
        assert reply.stderr.startswith("squeue: option '--s' is ambiguous; possibilities: '--sib'")
    else:
        assert reply.stderr == stderr


def test_words_that_stop_nothing():
    session = FakeSession([plain_job(2)])
    reply = session.call(run, "-h", "-o", "%A%1~", "-S", "b")
    assert reply.stdout == "2%1~\n"
    assert reply.stderr == "squeue: error: Invalid job format specification: ~\nsqueue: Invalid sort specification: b\n"
    reply = session.call(run, "-u", "no-such-user,20001", "-h", "-o", "%A")
    assert (reply.stdout, reply.stderr, reply.exit_code) == ("2\n", "squeue: error: Invalid user: no-such-user\n\n", 0)


def test_sort_letter_that_there_is_not():
    reply = FakeSession([plain_job(2)]).call(run, "-o", "%A", "-S", "?")
    assert (reply.stdout, reply.exit_code) == ("JOBID\n", 1)
    assert reply.stderr == "squeue: error: Invalid sort specification: ?\n"


def test_state_that_there_is_not():
    reply = FakeSession([]).call(run, "-t", "odd")
    lines = reply.stderr.splitlines()
    assert lines[0] == "squeue: error: Invalid job state specified: odd"
    assert lines[1].startswith("squeue: error: Valid job states include: pending,running,suspended,completed,")
    assert reply.exit_code == 1


def test_operand_that_means_nothing():
    reply = FakeSession([]).call(run, "12")
    assert reply.stdout.startswith("Usage: squeue [-A account]")
    assert (reply.stderr, reply.exit_code) == ("squeue: error: Unrecognized option: 12\n", 1)


def test_steps_by_job_and_number():
    from queues import sample_jobs
    session = FakeSession(sample_jobs())
    assert session.call(run, "-h", "-s", "434.0", "-o", "%i %j %A %b").stdout == "434.0 sleep 1 (null)\n"
    assert session.call(run, "-h", "-s", "-j", "435_1", "-o", "%i").stdout == "435_1.batch\n435_1.extern\n"
    assert session.call(run, "-h", "-s", "-p", "batch", "-S", "-i", "-o", "%i").stdout == "488.extern\n488.batch\n"


def test_everything_that_was_asked():
    reply = FakeSession(queue(), now=NOW).call(run, "-vv", "-j", "4_3", "-o", "%i", "-t", "PD", "-h")
    head, _, rest = reply.stdout.partition("last_update_time=")
    assert "jobs        = 4_3\n" in head and "state_list[0] = PENDING\n" in head and "job_list[0] = 4_3\n" in head
    assert rest == "0 records=2\n4_3\n"


def test_help():
    session = FakeSession([])
    assert session.call(run, "--version").stdout == "slurm 25.11.7\n"
    assert session.call(run, "--usage").stdout.startswith("Usage: squeue [-A account]")
    assert session.call(run, "--help").stdout.startswith("Usage: squeue [OPTIONS]\n")
    letters = session.call(run, "--helpformat").stdout
    assert letters.splitlines()[0] == "%a    %F    %K    %B    %o    %k    %O    %I    "
    names = session.call(run, "--helpFormat").stdout.split()
    assert len(names) == 117 and names[:2] == ["Account", "AccrueTime"] and "Gres" not in names
    assert session.call(run, "-s", "--helpFormat").stdout.split()[0] == "ArrayJobId"
    assert session.call(run, "--helpstate").stdout.splitlines()[:2] == ["pending", "running"]
