"""The PMI wire protocols between a task and its node, and the world that the nodes share."""
from __future__ import annotations

import pytest

from slurmbridge.runtime.pmi import pmi1_fields, pmi2_fields
from slurmbridge.runtime.pmiworld import process_mapping

CLIENT = r'''
import os, socket, sys
peer = socket.socket(fileno=int(os.environ["PMI_FD"])).makefile("rwb", buffering=0)
version = int(sys.argv[1])
rank, size = int(os.environ["PMI_RANK"]), int(os.environ["PMI_SIZE"])
def line(text):
    peer.write(text.encode() + b"\n")
    return peer.readline().decode().strip()
def framed(text):
    peer.write(b"%6d" % len(text) + text.encode())
    return peer.read(int(peer.read(6))).decode()
def show(text):
    print(rank, text, flush=True)
show(line(f"cmd=init pmi_version={version} pmi_subversion={2 - version}"))
if version == 1:
    show(line("cmd=get_maxes")); show(line("cmd=get_my_kvsname")); show(line("cmd=get_universe_size"))
    show(line(f"cmd=put kvsname=x key=k{rank} value=of {rank}"))
    show(line(f"cmd=get kvsname=x key=k{rank}"))                # not visible before the barrier
    line("cmd=barrier_in")
    show(line(f"cmd=get kvsname=x key=k{(rank + 1) % size}")); show(line("cmd=get kvsname=x key=PMI_process_mapping"))
    show(line("cmd=lookup_name service=s") if rank else line("cmd=publish_name service=s port=p"))
    line("cmd=barrier_in")
    show(line("cmd=lookup_name service=s")); show(line("cmd=spawn_no") or "dropped")
elif version == 2:
    show(framed(f"cmd=fullinit;pmijobid=1;pmirank={rank};threaded=FALSE;"))
    show(framed("cmd=job-getid;")); show(framed("cmd=info-getjobattr;key=universeSize;"))
    show(framed(f"cmd=kvs-put;key=k{rank};value=a;;b{rank};thrid=7;"))
    framed("cmd=kvs-fence;")
    show(framed(f"cmd=kvs-get;key=k{(rank + 1) % size};")); show(framed("cmd=kvs-get;key=none;"))
    if os.environ["SLURM_LOCALID"] == "0":
        import time; time.sleep(0.2)
        show(framed(f"cmd=info-putnodeattr;key=shm;value=node{os.environ['SLURM_NODEID']};"))
    else:
        show(framed("cmd=info-getnodeattr;key=shm;wait=TRUE;"))
    show(framed("cmd=finalize;"))
'''


def play(rig, version):
    job = rig.launch(f"cat >c.py <<'END'\n{CLIENT}\nEND\nsrun --mpi=pmi2 -n3 -N2 -m block python3 c.py {version}",
                     nodes=2)
    rig.wait(job)
    said = {rank: [] for rank in range(3)}
    for line in job.lines():
        rank, _, text = line.partition(" ")
        assert rank.isdigit(), job.lines()
        said[int(rank)].append(text)
    return job.run.job_id, said


def test_pmi_1(rig):
    job, said = play(rig, 1)
    for rank in range(3):
        assert said[rank] == [
            "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1",
            "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024", f"cmd=my_kvsname rc=0 kvsname={job}.0",
            "cmd=universe_size rc=0 size=3", "cmd=put_result rc=0", "cmd=get_result rc=1",
            f"cmd=get_result rc=0 value=of {(rank + 1) % 3}", "cmd=get_result rc=0 value=(vector,(0,1,2),(1,1,1))",
            said[rank][8], "cmd=lookup_result info=ok port=p", "dropped"]
    assert said[0][8] == "cmd=publish_result info=ok"


def test_pmi_2(rig):
    job, said = play(rig, 2)
    for rank in range(3):
        node = "cmd=info-putnodeattr-response;rc=0;" if rank in (0, 2) else \
            "cmd=info-getnodeattr-response;rc=0;found=TRUE;value=node0;"
        assert said[rank] == [
            "cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0",
            f"cmd=fullinit-response;rc=0;pmi-version=2;pmi-subversion=0;rank={rank};size=3;appnum=-1;debugged=FALSE;"
            "pmiverbose=FALSE;", f"cmd=job-getid-response;rc=0;jobid={job}.0;",
            "cmd=info-getjobattr-response;rc=0;found=TRUE;value=3;", "cmd=kvs-put-response;rc=0;thrid=7;",
            f"cmd=kvs-get-response;rc=0;found=TRUE;value=a;;b{(rank + 1) % 3};",
            "cmd=kvs-get-response;rc=0;found=FALSE;", node, "cmd=finalize-response;rc=0;"]


def test_an_unknown_version_is_told_what_there_is(rig):
    _, said = play(rig, 3)
    assert said[0] == ["cmd=response_to_init rc=1 pmi_version=2 pmi_subversion=0"]


def test_what_each_task_finds(rig):
    job = rig.do("srun --mpi=pmi2 -n2 -N1 bash -c 'echo $PMI_RANK $PMI_SIZE $PMI_JOBID $PMI_FD $SLURM_MPI_TYPE'; "
                 "srun -n1 -N1 bash -c 'echo ${PMI_FD-none} ${SLURM_MPI_TYPE-none}'")
    assert sorted(job.lines()) == [f"0 2 {job.run.job_id}.0 17 pmi2", f"1 2 {job.run.job_id}.0 19 pmi2", "none none"]


@pytest.mark.parametrize(("nodes", "mapping"), [
    ([0, 0, 1, 1], "(0,2,2)"), ([0, 1, 0, 1], "(0,2,1),(0,2,1)"), ([0, 0, 0, 1], "(0,1,3),(1,1,1)"),
    ([1, 0, 1, 1], "(1,1,1),(0,1,1),(1,1,2)"), ([0], "(0,1,1)")])
def test_process_mapping(nodes, mapping):
    assert process_mapping(nodes) == f"(vector,{mapping})"


@pytest.mark.parametrize(("line", "fields"), [
    ("cmd=put kvsname=a key=k value=x y=z ", {"cmd": "put", "kvsname": "a", "key": "k", "value": "x y=z "}),
    ("cmd=barrier_in", {"cmd": "barrier_in"}), ("", {}), ("  cmd=x  a=", {"cmd": "x", "a": ""})])
def test_a_line_of_pmi_1(line, fields):
    assert pmi1_fields(line) == fields


@pytest.mark.parametrize(("body", "fields"), [
    ("cmd=kvs-put;key=a;value=b;;c=d;", {"cmd": "kvs-put", "key": "a", "value": "b;c=d"}),
    ("cmd=x;cmd=y;", {"cmd": "x"}), (";;", {})])
def test_a_request_of_pmi_2(body, fields):
    assert pmi2_fields(body) == fields
