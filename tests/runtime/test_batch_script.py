"""What a batch script finds and what becomes of its output and exit code."""
from __future__ import annotations

import os

import pytest
from local_runs import USER

from slurmbridge.cluster.port import RunId
from slurmbridge.runtime.execution import exit_code
from slurmbridge.slurm.jobspec import JobRequest
from slurmbridge.views.records import JobRecord, NodeAllocation


@pytest.mark.parametrize(("script", "status"), [
    ("true", 0), ("exit 3", 3 << 8), ("exit 255", 255 << 8), ("kill -TERM $$", 15), ("kill -KILL $$", 9),
    ("kill -USR1 $$", 10), ("nosuchcommand", 127 << 8)])
def test_exit_status_is_the_wait_status(rig, script, status):
    job = rig.do(script)
    assert job.kinds() == ["started", "script_ended", "finished"]
    assert (job.status, job.reason) == (status, "")
    assert exit_code(status) == (128 + status if status < 128 and status else status >> 8)


def test_environment_directory_and_arguments(rig):
    job = rig.do('env | sort > env; pwd > where; printf "%s\\n" "$@" > args; umask > mask; ulimit -n > nofile; '
                 'readlink /proc/self/fd/0 > in; echo "${0##*/}" > name; ps -o sid= -p $$ > sid',
                 nodes=2, cpus=3, umask=0o027, rlimits={"NOFILE": 321}, script_args=("one", "two words", ""),
                 num_tasks=5, num_tasks_given=True, record={"partition": "batch", "account": "phys", "qos": "normal"})
    env = dict(line.split("=", 1) for line in job.lines("env"))
    expected = {
        "FOO": "foo", "SLURM_JOB_ID": str(job.run.job_id), "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_NNODES": "2",
        "SLURM_JOB_CPUS_PER_NODE": "3(x2)", "SLURM_TASKS_PER_NODE": "3,2", "SLURM_NTASKS": "5", "SLURM_NPROCS": "5",
        "SLURM_JOB_PARTITION": "batch", "SLURM_JOB_ACCOUNT": "phys", "SLURM_JOB_QOS": "normal", "SLURM_PROCID": "0",
        "SLURMD_NODENAME": "n1", "HOSTNAME": "n1", "ENVIRONMENT": "BATCH", "SLURM_MEM_PER_CPU": "1000",
        "SLURM_CPUS_ON_NODE": "3", "SLURM_CLUSTER_NAME": "lab", "SLURM_JOB_NAME": "job.sh", "TMPDIR": "/tmp"}
    assert {name: env.get(name) for name in expected} == expected
    assert not {"SLURM_ARRAY_JOB_ID", "SLURM_RESTART_COUNT", "SLURM_CPUS_PER_TASK", "SLURM_STEP_ID"} & env.keys()
    assert int(env["SLURM_JOB_END_TIME"]) - int(env["SLURM_JOB_START_TIME"]) in (59, 60, 61)
    found = {name: job.text(name).strip() for name in ("where", "mask", "nofile", "in", "name")}
    assert found == {"where": str(job.folder), "mask": "0027", "nofile": "321", "in": "/dev/null",
                     "name": "slurm_script"}
    assert job.text("args") == "one\ntwo words\n\n"
    assert int(job.text("sid")) == int(env["SLURM_TASK_PID"])
    assert oct(os.stat(job.folder / "env").st_mode & 0o777) == "0o640"


@pytest.mark.parametrize(("pattern", "name"), [
    (None, "slurm-{id}.out"), ("o-%j-%x.%u", "o-{id}-job.sh.{user}"), ("%8j.o", "{id:08d}.o"), ("%%j", "%j"),
    ("%A_%a", "{id}_4294967294"), ("%N.%n.%t.%s", "n1.0.0.batch"), ("a\\%j", "a%j")])
def test_output_goes_to_the_pattern(rig, pattern, name):
    job = rig.do("echo out; echo err >&2", std_out=pattern)
    assert job.lines(name.format(id=job.run.job_id, user=USER.pw_name)) == ["out", "err"]


def test_array_task_has_its_own_names(rig):
    job = rig.do("env | grep ARRAY | sort", std_out="%A_%a.%b", array="4-12:4%1",
                 record={"array_job_id": 77, "array_task_id": 12, "array_task_count": 3, "array_task_min": 4,
                         "array_task_max": 12, "array_task_step": 4})
    assert job.lines("77_12.2") == [f"SLURM_ARRAY_{name}" for name in (
        "JOB_ID=77", "TASK_COUNT=3", "TASK_ID=12", "TASK_MAX=12", "TASK_MIN=4", "TASK_STEP=4")]


@pytest.fixture
def parts():
    """The records of two components, jobs 900 and 901."""
    return tuple(JobRecord(
        job_id=900 + number, name="job.sh", partition="batch", mem_per_cpu_mb=1000, credential="secret",
        request=JobRequest(num_tasks=tasks, num_tasks_given=True),
        allocation=[NodeAllocation(name, 2, 2000) for name in names]) for number, (tasks, names) in
        enumerate(((1, ("n1",)), (3, ("n2", "n3")))))


def test_a_het_script_waits_for_all_components_and_knows_them(rig, parts):
    job = rig.launch("env", order={"het_jobs": parts})
    other = rig.started(rig.launch(None, nodes=2, order={"run": RunId(901, 0), "credential": "secret"}))
    rig.wait(job)
    assert job.of("started")[0].at_s >= other.of("started")[0].at_s
    rig.call(rig.engine.terminate(other.run, cause="", grace_s=0))
    rig.wait(other)
    env = dict(line.split("=", 1) for line in job.lines())
    expected = {"SLURM_HET_SIZE": "2", "SLURM_PACK_SIZE": "2", "SLURM_JOB_ID_HET_GROUP_0": "900",
                "SLURM_JOB_ID_PACK_GROUP_1": "901", "SLURM_JOB_NODELIST_HET_GROUP_1": "n[2-3]",
                "SLURM_TASKS_PER_NODE_HET_GROUP_1": "2,1", "SLURM_NTASKS_HET_GROUP_1": "3",
                "SLURM_JOB_CPUS_PER_NODE_PACK_GROUP_1": "2(x2)", "SLURM_MEM_PER_CPU_HET_GROUP_0": "1000"}
    assert {name: env.get(name) for name in expected} == expected


def test_a_het_script_is_ended_while_it_waits_for_components(rig, parts):
    job = rig.launch("echo began", order={"het_jobs": parts})
    rig.call(rig.engine.terminate(job.run, cause="CANCELLED", grace_s=1))
    rig.wait(job)
    assert job.last.kind == "finished" and "began" not in job.text()


def test_error_file_apart(rig):
    job = rig.do("echo out; echo err >&2", std_out="o", std_err="e")
    assert (job.text("o"), job.text("e")) == ("out\n", "err\n")


def test_one_file_for_both(rig):
    assert rig.do("echo out; echo err >&2; echo out", std_out="o", std_err="o").lines("o") == ["out", "err", "out"]


def test_truncates_unless_told_to_append(rig):
    for mode, expected in ((None, ["new"]), ("truncate", ["new"]), ("append", ["old", "new"])):
        job = rig.do("true", std_out="x")
        path = job.folder / "mine"
        path.write_text("old\n")
        path.chmod(0o666)
        again = rig.do("echo new", std_out=str(path), open_mode=mode)
        assert again.status == 0
        assert path.read_text().splitlines() == expected


@pytest.mark.parametrize("files", [{"std_out": "/nosuch/dir/o"}, {"std_err": "/nosuch/e"}, {"std_in": "nosuch"}])
def test_file_that_cannot_be_opened_ends_the_job_as_slurm_does(rig, files):
    job = rig.do("echo never", **files)
    assert (job.status, job.kinds()) == (53, ["started", "script_ended", "finished"])


def test_standard_input_from_a_file(rig):
    rig_file = rig.state / "input"
    rig_file.write_text("alpha\nbeta\n")
    rig_file.chmod(0o644)
    assert rig.do("cat", std_in=str(rig_file)).text() == "alpha\nbeta\n"


def test_missing_directory_is_replaced_by_tmp(rig):
    job = rig.do("pwd", work_dir="/nosuch", std_out=str(rig.state / "chdir.%j"))
    assert job.status == 53                   # the output file belongs to root's directory
    rig.state.joinpath("open").mkdir(exist_ok=True)
    rig.state.joinpath("open").chmod(0o777)
    job = rig.do("pwd", work_dir="/nosuch", std_out=str(rig.state / "open" / "%j"))
    lines = (rig.state / "open" / str(job.run.job_id)).read_text().splitlines()
    assert lines[-1] == "/tmp"
    assert len(lines) == 3
    for line in lines[:2]:
        assert line.endswith("error: couldn't chdir to `/nosuch': No such file or directory: going to /tmp instead")


def test_script_that_cannot_be_executed(rig):
    job = rig.do("#!/no/such/interpreter\n")
    assert job.status == 2 << 8
    assert "error: execve(): " in job.text() and "No such file or directory" in job.text()


def test_a_script_of_bytes_that_are_no_text(rig):
    job = rig.do("printf '%s' '\udcff\udc80' | od -An -tx1")
    assert job.text().split() == ["ff", "80"]
