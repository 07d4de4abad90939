"""The command lines of real clients, and what they make of the answers: shapes, exit codes, nothing on stderr.

One row a call: the client, its words ({job}, {array}, {ended} and {name} are filled in) and the pattern that every
line, or the whole, must match for that client to go on. (Sources of the clients, as read for their releases of 2026.)
"""
from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterator

import pytest
from sites import Site

US, RS = "\x1f", "\x1e"
STATES = "PD|R|CA|CF|CG|CD|F|TO|NF|S|ST|PR|BF"
OOD_QUEUE = ("Account", "JobID", "JobArrayID", "StateCompact", "Reason", "UserName", "TimeUsed", "TimeLimit", "Name",
             "tres-alloc", "tres-per-node")
XDMOD = ("jobid,jobidraw,cluster,partition,qos,account,group,gid,user,uid,submit,eligible,start,end,elapsed,exitcode,"
         "state,nnodes,ncpus,reqcpus,reqmem,reqtres,alloctres,timelimit,nodelist,jobname")
LINES = [
    ("snakemake", "sacct -X --parsable2 --clusters all --noheader --format=JobIdRaw,State --starttime {today}T00:00 "
     "--endtime now --name {name}", r"\d+\|[A-Z_]+"),
    ("snakemake", "squeue --format=%i|%T --states=all --noheader --name {name}", r"\d+\|[A-Z_]+"),
    ("snakemake", "sacct -j {job} -n -X -o nodelist%-256", r"n\d+ +"),
    ("snakemake", "sinfo -h -o %P", r"\S+\*?"),
    ("parsl", "sacct -X --noheader --format=jobid,state%20 --job {job},{ended}", r"\d+ +[A-Z]+ *"),
    ("parsl", "squeue --noheader --format=%i_%t --job {job},{ended}", rf"\d+_({STATES})"),
    ("nextflow", "squeue --noheader -o '%i %t' -t all -p batch -u {user}", rf"[\d_\[\]%-]+ ({STATES})"),
    ("psij", "squeue -O JobArrayID,StateCompact,Reason -t all --me -h", r"\S+ +\S+ +\S+ *"),
    ("psij", "squeue --me -o %i -h -r -t all", r"\d+(_\d+)?"),
    ("aiida", "squeue --noheader -o %i^^^%t^^^%r^^^%B^^^%u^^^%D^^^%C^^^%R^^^%P^^^%l^^^%M^^^%S^^^%j^^^%V "
     "--jobs={job},{job}", r"\d+\^\^\^[A-Z]+(\^\^\^[^^]+){12}"),
    ("myqueue", "sacct -j {ended} -n --units=K -o MaxRSS", r" *([\d.]+K?)? *"),
    ("myqueue", "sinfo --noheader -O CPUs,Memory,Partition", r"\d+\+? +\d+\+? +\S+ *"),
    ("torchx", "sinfo -h --format %P,%m --noconvert", r"\w+\*?,\d+\+?"),
    ("nemo-run", "squeue --start --noheader -j {array} -o %i|%S|%T", r"\S+\|\S+\|PENDING"),
    ("nemo-run", "squeue -n {name} -h -o %A", r"\d+"),
    ("batchspawner", "squeue -h -j {job} -o '%T %B'", r"RUNNING\s+((?:[\w_-]+\.?)+)"),
    ("fireworks", "squeue -o %u -u {user} -h -p batch", r"\w+"),
    ("pysqa", "squeue --format %A|%u|%t|%.15j|%Z --noheader", r"\d+(\|[^|]*){4}"),
    ("toil", "sinfo -h -a -o '%P %G %l %p %c %m'", r"\S+( \S+){5}"),
    ("toil", "sacct -n -j {job},{ended} --format JobIDRaw,State,ExitCode -P -S {today}T00:00:00 -E now",
     r"\d+(\.\w+)?\|[A-Z]+\|\d+:\d+"),
    ("simple-slurm", """squeue -h --me -o '"%i","%j","%t","%M","%L","%D","%C","%m","%b","%R"'""", r'("[^"]*",){9}"[^"]*"'),
    ("airflow", "squeue --states=all -h '--format=%i;%j;%t;%T;%r' -j {job}", rf"\d+;\w+;({STATES});[A-Z]+;\S+"),
    ("dagster", "sacct -X -n -j {ended} -o State%20", r" +COMPLETED *"),
    ("ood", "sinfo -aho %F/%C", r"\d+(/\d+){7}"),
    ("ood", "sinfo -ahNO nodehost:100,gres:512,gresused:512,statelong", r"\S+ +\S+ +\S+ +[a-z]+ *"),
    ("ood", "scontrol show part -o", r"\w+=\S+( +\w+=\S+)* *"),
    ("ood", f"sacct -P --delimiter {US} -n --units G --allocations -o User,Group,JobId,JobName,Elapsed,ReqMem,AllocCPUS,"
     "ReqCPUS,Timelimit,State,TotalCPU,MaxRSS,Partition,Submit,Start,End,ReqTRES -j {ended}", rf"([^{US}]*{US}){{16}}.+"),
    ("qtoolkit", "scontrol show job -o {job}", r"JobId=\d+ .*JobState=RUNNING .*"),
    ("reportseff", "sacct --parsable -n --delimiter=^|^ --format=JobID,JobIDRaw,State,AdminComment,TotalCPU,AllocCPUS,"
     "Elapsed,ReqMem,NNodes,MaxRSS,NTasks,Timelimit,TRESUsageOutAve,Partition --jobs={ended}", r"([^^]*\^\|\^){14}"),
    ("slurm-usage", "squeue -rho %u/%t/%D/%P/%C/%N/%h", r"\w+/\w+/\d+/\w+/\d+/[^/]*/\w+"),
    ("slurm-usage", "sinfo -h -N --format=%N,%c", r"\w+,\d+"),
    ("slurm2sql", "sacct --version", r"slurm\s(\d+)\.(\d+)\.(\d+)"),
    ("xdmod", f"sacct --allusers --parsable2 --noheader --allocations --duplicates --clusters lab --format {XDMOD} "
     "--starttime {today}T00:00:00 --endtime now", r"([^|]*\|){25}.*"),
    ("covalent", "scontrol show job {job}", r"(.*=.*|)"),
    ("prometheus", "squeue -h -a -r -o %P,%T,%C,%r,%u", r"[^,]+,[A-Z]+,\d+,[^,]+,\w+"),
    ("prometheus", "sinfo -h -o %C", r"\d+/\d+/\d+/\d+"),
    ("jobstats", "sacct -j {ended} -B", r".*"),
]
# ruff: noqa: E501
SUBMISSIONS = [
    ("dask-jobqueue", [], "#!/bin/sh\n#SBATCH -J dask\n#SBATCH -e /dev/null\n#SBATCH -n 1\n#SBATCH --cpus-per-task=2\n"
     "#SBATCH --mem=1G\n#SBATCH -t 00:30:00\ntrue\n", r"\D*(\d+)"),
    ("snakemake", "--parsable --job-name u --export=ALL --comment c -p batch -t 5 --mem-per-cpu 100 --no-requeue "
     "--ntasks=1 --cpus-per-task=1 -D /tmp --wrap=true", None, r"(\d+)\n"),
    ("nextflow", [], "#!/bin/bash\n#SBATCH -J nf\n#SBATCH -o /dev/null\n#SBATCH --no-requeue\n#SBATCH -c 1\n"
     "#SBATCH -t 00:10:00\n#SBATCH --mem 100M\n#SBATCH --signal B:USR2@30\ntrue\n", r"Submitted batch job (\d+)\n"),
    ("psij", [], '#!/bin/sh\n#SBATCH --job-name="x"\n#SBATCH --export=ALL\n#SBATCH -e /dev/null\n#SBATCH -o /dev/null\n'
     "true\n", r".* (\d+)\n"),
    ("myqueue", "--partition=batch --job-name=m --time=5 --ntasks=1 --nodes=1 --chdir=/tmp --mem=0", "#!/bin/sh\ntrue\n",
     r"(?:.* )?(\d+)\n"),
    ("torchx", "--parsable --comment=c --chdir=/tmp", "#!/bin/sh\n#SBATCH --nodes=1 --ntasks-per-node=1 --requeue\n"
     "true\n", r"(\d+)(;.*)?\n"),
    ("batchspawner", "--parsable", "#!/bin/sh\n#SBATCH --export=PATH\n#SBATCH --get-user-env\n#SBATCH --mem=10\ntrue\n",
     r"(\d+)\n"),
    ("toil", ["-J", "toil_job_1_x", "--signal=B:INT@30", "--export=ALL,K='v'", "--mem=100", "--cpus-per-task=1",
              "--wrap=exec true"], None, r".* (\d+)\n"),
    ("fireworks", [], "#!/bin/sh\n#SBATCH --time-min=1\n#SBATCH --time=2\n#SBATCH --gpu-bind=none\ntrue\n",
     r"Submitted batch job\s+(\d+)"),
    ("ood", "-H --requeue -D /tmp --mail-type NONE -J j -i /dev/null -o /dev/null -e /dev/null -p batch --priority 0 "
     "-t 00:05:00 -n 1 --export NONE --parsable", "#!/bin/sh\ntrue\n", r"(\d+)\n"),
]


@pytest.fixture(scope="module")
def names(client_site: Site) -> Iterator[dict[str, str]]:
    """One job that runs, an array, and one that is over."""
    def submit(*words: str) -> str:
        return client_site.ok("sbatch", "--parsable", "-o", "/dev/null", *words).strip()
    found = {"name": "e1e0f0", "user": "root", "today": time.strftime("%Y-%m-%d", time.gmtime())}
    found["ended"] = submit("--wait", "-J", "done", "--wrap", "srun true")
    found["job"] = submit("-J", found["name"], "--wrap", "sleep 100")
    found["array"] = submit("--array=1-4%1", "-J", "arr", "--wrap", "sleep 100")
    client_site.wait_for(found["job"], "RUNNING")
    client_site.ok("scontrol", "wait_job", found["job"])
    time.sleep(0.5)
    yield found


@pytest.mark.parametrize(("client", "line", "pattern"), LINES, ids=lambda value: str(value)[:40])
def test_answers_have_the_shape_that_the_client_reads(client_site: Site, names: dict[str, str], client: str, line: str,
                                                      pattern: str) -> None:
    words = [word.replace("{", "\0").replace("\0", "{").format(**names) for word in shlex.split(line)]
    done = client_site.run(*words)
    assert (done.returncode, done.stderr) == (0, ""), client
    printed = done.stdout.rstrip("\n").split("\n")
    assert done.stdout and not [one for one in printed if not re.fullmatch(pattern, one)], (client, printed)


@pytest.mark.parametrize(("client", "options", "script", "pattern"), SUBMISSIONS, ids=[row[0] for row in SUBMISSIONS])
def test_job_ids_are_found_in_what_sbatch_prints(client_site: Site, client: str, options: str | list[str],
                                                 script: str | None, pattern: str) -> None:
    words = shlex.split(options) if isinstance(options, str) else options
    done = client_site.run("sbatch", *words, stdin=script)
    assert (done.returncode, done.stderr) == (0, ""), client
    found = re.match(pattern, done.stdout)
    assert found and client_site.ok("scancel", found[1]) == ""


def test_open_ondemand_reads_its_long_records(client_site: Site, names: dict[str, str]) -> None:
    shown = client_site.ok("squeue", "--all", "--states=all", "--noconvert", "-O",
                           ",".join(f"{field}:{US}" for field in OOD_QUEUE))
    header, *rows = shown.split(f"{US}\n")
    assert header.split(US)[:2] == ["ACCOUNT", "JOBID"] and len(header.split(US)) == len(OOD_QUEUE)
    assert {len(row.split(US)) for row in rows if row} == {len(OOD_QUEUE)}
    assert names["job"] in {row.split(US)[1] for row in rows if row}


def test_cancelling_says_what_qtoolkit_looks_for(client_site: Site, names: dict[str, str]) -> None:
    job = client_site.ok("sbatch", "--parsable", "-H", "--wrap", "true").strip()
    done = client_site.run("scancel", "-v", job)
    assert (done.returncode, done.stdout) == (0, "") and f"scancel: Terminating job {job}\n" in done.stderr
    assert client_site.run("scancel", job).returncode == 0
    assert client_site.run("scancel", "--signal=USR2", job).returncode != 0


def test_unknown_jobs_as_ood_and_aiida_tell_them(client_site: Site) -> None:
    done = client_site.run("squeue", "-h", "-j", "999999")
    assert done.returncode == 1 and "Invalid job id specified" in done.stderr
    assert client_site.run("squeue", "-h", "-j", "999999,999999").returncode == 0
