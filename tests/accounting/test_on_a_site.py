"""sacctmgr and sacct as users run them: the lab's tree built by commands, jobs in the books, also after a restart."""
from __future__ import annotations

from collections.abc import Callable

import pytest
from sites import Site

SEED = """\
modify qos normal set Priority=10
add qos low
modify qos low set Priority=1 UsageFactor=0.5 PreemptMode=requeue
add qos capped
modify qos capped set Priority=10 MaxJobsPerUser=2 MaxSubmitJobsPerUser=4 MaxTRESPerUser=cpu=64 Flags=DenyOnLimit
add account phys parent=root fairshare=40 description=phys organization=root
modify account phys set fairshare=40
add account phys_qcd parent=phys fairshare=3 description=phys_qcd organization=phys
add account bio parent=root fairshare=parent
add user root account=phys_qcd fairshare=5 qos=normal,low,capped defaultqos=normal
modify user root where account=phys_qcd set fairshare=5 qos=normal,low,capped
modify user root where account=phys_qcd set priority=50
modify account bio set GrpTRES=cpu=96 MaxJobs=50 MaxWall=1-0
modify user root set defaultaccount=phys_qcd
"""


@pytest.fixture
def seeded(make_site: Callable[..., Site]) -> Site:
    site = make_site(enforce=True)
    for line in SEED.splitlines():
        site.ok("sacctmgr", "-iQ", *line.split())
    return site


def test_a_tree_built_by_commands(seeded: Site) -> None:
    fields = "format=account,user,share,priority,grptres,maxjobs,defaultqos"
    shown = seeded.ok("sacctmgr", "-nP", "show", "assoc", "tree", fields)
    assert shown.splitlines() == [
        "root||1||||", " root|root|1||||", " bio||parent||cpu=96|50|", " phys||40||||", "  phys_qcd||3||||",
        "   phys_qcd|root|5|50|||normal"]
    denied = seeded.run("sacctmgr", "-i", "add", "account", "mine", user="nobody")
    assert denied.returncode == 1 and denied.stdout + denied.stderr
    seeded.down()
    seeded.up()
    assert seeded.ok("sacctmgr", "-nP", "show", "assoc", "tree", fields) == shown


def test_jobs_in_the_books(seeded: Site) -> None:
    fields = "jobid,jobname,account,qos,state,nodelist,flags"
    held = seeded.submit("--hold", "-J", "held", "--wrap", "true")
    job = seeded.submit("-J", "run", "-q", "low", "--wrap", "sleep 100")
    seeded.wait_for(job, "RUNNING")
    seeded.ok("scancel", str(job))
    seeded.wait_for(job, "CANCELLED")
    wanted = [f"{job}|run|phys_qcd|low|CANCELLED by 0|n1|SchedBackfill,StartReceived"]
    assert seeded.ok("sacct", "-nPX", "-o", fields).splitlines() == wanted
    assert seeded.ok("sacct", "-nPX", "-j", str(held), "-o", "state,eligible") == "PENDING|Unknown\n"
    seeded.down()
    seeded.up()
    assert seeded.ok("sacct", "-nPX", "-o", fields).splitlines() == wanted
