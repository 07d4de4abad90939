"""scontrol reconfigure: slurm.conf is read again, or refused as a whole."""
from __future__ import annotations

import pytest
from sites import MakeSite, Site


def _rewrite(site: Site, *pairs: tuple[str, str]) -> None:
    text = site.slurm_conf.read_text()
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    site.slurm_conf.write_text(text)


def test_what_follows_the_file(site: Site) -> None:
    site.run("scontrol", "update", "partitionname=debug", "maxtime=45")
    site.run("scontrol", "create", "partitionname=extra", "nodes=n1")
    _rewrite(site, ("Feature=amd,rome,ib Weight=20", "Feature=zen Weight=5"), ("MaxTime=30:00", "MaxTime=20:00"),
             ("PriorityWeightAge=1000", "PriorityWeightAge=77"), ("KillWait=2", "KillWait=9"),
             ("PartitionName=long", "PartitionName=lang"))
    done = site.run("scontrol", "reconfigure")
    assert (done.returncode, done.stderr) == (0, "")
    shown = site.run("sinfo", "-h", "-p", "batch", "-n", "n5", "-o", "%f %w").stdout
    assert shown.split() == ["zen", "5"]
    assert site.run("sinfo", "-h", "-o", "%R %l").stdout.split("\n")[:4] == [
        "batch 7-00:00:00", "debug 20:00", "gpu 2-00:00:00", "lang 30-00:00:00"]
    assert "extra" not in site.run("sinfo", "-h", "-o", "%R").stdout
    assert "KillWait                = 9 sec" in site.run("scontrol", "show", "config").stdout
    assert site.run("sprio", "-w", "-h", "-o", "%a").returncode == 0
    job = site.run("sbatch", "--parsable", "-C", "zen", "--wrap", "true").stdout.strip()
    assert site.run("sbatch", "-p", "long", "--wrap", "true").returncode == 1
    site.wait_for(job, "RUNNING", "COMPLETED")
    assert site.job_field(job, "%N") == "n5"
    site.down()
    site.up()
    assert site.run("sinfo", "-h", "-p", "debug", "-o", "%l").stdout.strip() == "20:00"


@pytest.mark.parametrize(("old", "new", "said"), [
    ("ClusterName=lab", "ClusterName=other", "ClusterName is changed"),
    ("RealMemory=256000", "RealMemory=255000", "NodeName is changed"),
    ("KillWait=2", "KilWait=2", "unrecognized key: KilWait"),
])
def test_what_is_refused_changes_nothing(site: Site, old: str, new: str, said: str) -> None:
    _rewrite(site, (old, new), ("MaxTime=30:00", "MaxTime=20:00"))
    done = site.run("scontrol", "reconfigure")
    assert done.returncode == 1 and said in done.stderr and len(done.stderr.splitlines()) == 1
    assert site.run("sinfo", "-h", "-p", "debug", "-o", "%l").stdout.strip() == "30:00"


def test_defaults_per_gpu(make_site: MakeSite) -> None:
    """CPUs and memory by GPU, unless the job says them; changed by scontrol as Slurm's JobDefaults."""
    site = make_site(conf="PartitionName=gp Nodes=g1 DefCpuPerGPU=3 DefMemPerGPU=5000\n")

    def given(*options: str) -> str:
        job = site.run("sbatch", "--parsable", "-p", "gp", *options, "--wrap", "true").stdout.strip()
        site.wait_for(job, "RUNNING", "COMPLETED")
        words = site.run("scontrol", "show", "job", "-o", job).stdout.split()
        site.run("scancel", job)
        return next(word for word in words if word.startswith("AllocTRES=")).partition(",node=")[0]

    assert given("--gpus=2") == "AllocTRES=cpu=6,mem=10000M"
    assert given("--gres=gpu:1", "--mem=100", "-c2") == "AllocTRES=cpu=2,mem=100M"
    assert given("--gpus=1", "--cpus-per-gpu=5") == "AllocTRES=cpu=5,mem=5000M"
    assert given() == "AllocTRES=cpu=1,mem=1000M"
    site.run("scontrol", "update", "partitionname=gp", "jobdefaults=DefCpuPerGPU=1,DefMemPerGPU=7")
    assert "JobDefaults=DefCpuPerGPU=1,DefMemPerGPU=7" in site.run("scontrol", "show", "part", "gp").stdout
    assert given("--gpus=1") == "AllocTRES=cpu=1,mem=7M"
