"""Allocations without a script: srun's own, and one that waits (salloc); and who may speak to a step daemon."""
from __future__ import annotations

import os
import signal
import socket
import subprocess

import pytest
from local_runs import USER, until

from slurmbridge.runtime import frames


def allocation(rig, command="srun", **options):
    return rig.started(rig.launch(None, interactive_command=command, **options))


def test_srun_ends_its_allocation_with_its_exit_code(rig):
    job = allocation(rig, nodes=2)
    client = rig.srun(job, "-l", "bash", "-c", "echo $SLURM_JOB_ID $SLURM_JOB_NODELIST; exit $SLURM_PROCID")
    out, err = client.communicate(timeout=20)
    assert sorted(out.splitlines()) == [f"{rank}: {job.run.job_id} n[1-2]" for rank in (0, 1)]
    assert err == "srun: error: n2: task 1: Exited with exit code 1\n"
    assert client.returncode == 1
    rig.wait(job)
    assert (job.status, job.kinds()[-2:]) == (1 << 8, ["script_ended", "finished"])


def test_srun_killed_ends_its_allocation(rig):
    job = allocation(rig)
    client = rig.srun(job, "sleep", "30")
    rig.wait(job, lambda job: job.of("step_started"))
    client.kill()
    client.communicate()
    rig.wait(job)
    assert job.status == signal.SIGKILL


def test_standard_input_of_a_user_is_broadcast(rig):
    job = allocation(rig, nodes=2)
    client = rig.srun(job, "cat", stdin=subprocess.PIPE)
    out, _ = client.communicate("one\ntwo\n", timeout=20)
    assert sorted(out.splitlines()) == ["one", "one", "two", "two"]
    rig.wait(job)


def test_a_waiting_allocation_outlives_its_steps(rig):
    job = allocation(rig, "salloc")
    for code in (0, 3):
        client = rig.srun(job, "bash", "-c", f"exit {code}")
        client.communicate(timeout=20)
        assert client.returncode == code
    assert "script_ended" not in job.kinds()
    rig.call(rig.engine.terminate(job.run, cause="CANCELLED", grace_s=1))
    rig.wait(job)
    assert [event.step_id for event in job.of("step_ended")] == ["0", "1"]


def test_wrong_credential_is_refused(rig):
    job = allocation(rig, "salloc")
    client = rig.srun(job, "hostname", credential="guessed")
    out, _ = client.communicate(timeout=20)
    assert (out, client.returncode) == ("", 1)
    rig.call(rig.engine.terminate(job.run, cause="CANCELLED", grace_s=1))
    rig.wait(job)


@pytest.mark.skipif(os.getuid() != 0, reason="needs other users")
def test_other_users_reach_nothing_of_a_job(rig):
    job = rig.launch("touch ready; sleep 30")
    until(lambda: (job.folder / "ready").exists())
    spool = rig.state / "run" / f"{job.run.job_id}.0"
    address = rig.call(rig.engine.step_address(job.run)).removeprefix("unix://")
    other = USER.pw_uid - 1

    def as_user(uid: int, code: str) -> str:
        # the interpreter may be out of the user's reach: only what is loaded already is used after setuid
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            answer = "ok"
            try:
                os.setgroups([])
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
                exec(code, {"os": os, "socket": socket})
            except OSError as error:
                answer = error.strerror or "?"
            os.write(write, answer.encode())
            os._exit(0)
        os.waitpid(pid, 0)
        os.close(write)
        with open(read) as file:
            return file.read()
    for uid, expected in ((other, ("Permission denied",) * 4), (USER.pw_uid, ("Permission denied", "ok", "ok", "ok"))):
        found = tuple(as_user(uid, code) for code in (
            f"open({str(spool / 'journal')!r}).close()", f"open({str(spool / 'slurm_script')!r}).close()",
            f"socket.socket(socket.AF_UNIX).connect({address!r})",
            "pid = [int(p) for p in os.listdir('/proc') if p.isdigit() and os.path.exists(f'/proc/{p}/comm') and "
            "open(f'/proc/{p}/comm').read() == 'sleep\\n' and "
            f"b'={job.run.job_id}' in open(f'/proc/{{p}}/environ', 'rb').read()]"))
        assert found[:3] == expected[:3]
    rig.call(rig.engine.terminate(job.run, cause="CANCELLED", grace_s=0))
    rig.wait(job)


def test_garbage_does_not_disturb_a_daemon(rig):
    job = allocation(rig, "salloc")
    address = rig.call(rig.engine.step_address(job.run)).removeprefix("unix://")
    for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"R\xff\xff\xff\xff", frames.encode(b"R", b"nonsense"),
                    frames.encode(b"K", b"[1]"), frames.encode_json(b"K", {"op": "terminate"}), b""):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(address)
            connection.sendall(garbage)
    client = rig.srun(job, "echo", "fine")
    assert client.communicate(timeout=20)[0] == "fine\n"
    rig.call(rig.engine.terminate(job.run, cause="CANCELLED", grace_s=1))
    rig.wait(job)
