"""Another Slurm's books taken over, reported, given away and taken back, as an administrator does it."""
from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from accounting.histories import case_with
from sites import Site

CASE = case_with(1042)
WINDOW = ("--start", "2026-02-01", "--end", "2026-04-01")


@pytest.fixture
def site(make_site: Callable[..., Site]) -> Site:
    """A site with the history's accounts, at the history's time."""
    opened = make_site(engine="simulated", options=("--clock", str(CASE["now"])), conf="TrackWCKey=yes\n",
                       env={"TZ": CASE["tz"]})
    for name in ("dump", "events", "reservations", "assoc_ids", "history", "suspend"):
        (opened.work / name).write_text(CASE[name].rstrip("\n") + "\n")
    opened.ok("sacctmgr", "-i", "load", f"file={opened.work}/dump", "clean")
    opened.ok("slurmbridge", "import", "events", f"{opened.work}/events")
    opened.ok("slurmbridge", "import", "reservations", f"{opened.work}/reservations",
              "--assoc-ids", f"{opened.work}/assoc_ids")
    said = opened.ok("slurmbridge", "import", "history", f"{opened.work}/history",
                     "--suspended", f"{opened.work}/suspend")
    assert said.endswith(" runs of jobs imported\n")
    return opened


def _answers(site: Site) -> list[Any]:
    """What differs from Slurm, of the cluster's and the accounts' reports."""
    asked = [answer for answer in CASE["answers"] if answer["argv"][0] == "sreport" and "cluster" in answer["argv"]
             and "AccountUtilizationByQOS" not in answer["argv"]][:12]
    assert len(asked) == 12
    return [answer["argv"] for answer in asked if site.run(*answer["argv"]).stdout != answer["stdout"]]


def test_books_taken_over(site: Site, tmp_path: Path) -> None:
    assert _answers(site) == []
    total = int(site.ok("sreport", "-nP", "-tseconds", "cluster", "AccountUtilizationByUser", "Users=",
                        "start=2026-02-01", "end=2026-04-01", "format=used").split("\n")[0])
    path = f"{site.work}/usage"
    for by in ("account", "user", "qos", "partition", "month"):
        words = ("slurmbridge", "report", "usage", "--by", by, *WINDOW)
        rows = list(csv.DictReader(io.StringIO(site.ok(*words, "--format", "csv"))))
        assert sum(int(row["tres_seconds"]) for row in rows) == total
        site.ok(*words, "--format", "json", "-o", path)
        assert [{**row, "tres_seconds": str(row["tres_seconds"])} for row in json.loads(Path(path).read_text())] == rows
        parquet = pytest.importorskip("pyarrow.parquet")
        site.ok(*words, "--format", "parquet", "-o", path)
        assert sum(parquet.read_table(path).column("tres_seconds").to_pylist()) == total
    shown = site.ok("slurmbridge", "report", "usage", "--by", "account", *WINDOW).splitlines()
    assert shown[0].startswith("usage 2026-02-01T00:00:00 - ") and shown[1].split() == [
        "cluster", "account", "tres", "tres_seconds"]


def test_a_report_that_cannot_be_made_leaves_nothing(site: Site) -> None:
    path = Path(f"{site.work}/usage")
    for words in (("--by", "moon"), ("--tres", "gres/tpu"), ("--start", "someday"), ("--format", "xls")):
        done = site.run("slurmbridge", "report", "usage", *words, "-o", str(path))
        assert done.returncode == 1 and done.stderr.startswith("slurmbridge: ") and done.stderr.count("\n") == 1
        assert not path.exists()
    done = site.run("slurmbridge", "report", "usage", "-o", f"{site.work}/no/usage")
    assert done.returncode == 1 and "No such file" in done.stderr
    done = site.run("slurmbridge", "import", "history", f"{site.work}/events")
    assert done.returncode == 1 and done.stderr.count("\n") == 1


def test_old_jobs_given_away_and_taken_back(site: Site) -> None:
    jobs = ("sacct", "-aDnPX", "-S", "2026-02-01", "-o", "jobid,state,elapsed,alloctres")
    before = site.ok(*jobs)
    site.ok("sacctmgr", "-i", "archive", "dump", "jobs", "PurgeJobAfter=1days", f"directory={site.work}")
    assert len(site.ok(*jobs)) < len(before)
    site.down()
    site.up()
    assert _answers(site) == []
    archives = list(site.work.glob("lab_job_archive_*"))
    assert len(archives) == 1
    site.ok("sacctmgr", "-i", "archive", "load", f"file={archives[0]}")
    assert site.ok(*jobs) == before
    for words, missing in ((("dump", "jobs", "PurgeJobAfter=1days", "directory=/nosuch"), "Failed to stat /nosuch: "),
                           (("load", "file=/nosuch"), "No archive file given to recover.\n")):
        refused = site.run("sacctmgr", "-i", "archive", *words)
        assert refused.returncode == 1 and missing in refused.stderr, refused
        assert "No such file or directory" in refused.stderr
    assert site.ok(*jobs) == before
    refused = site.run("sacctmgr", "-i", "archive", "dump", "usage", "PurgeUsageAfter=1months")
    assert refused.returncode == 1


def test_a_history_imported_twice_counts_once(site: Site) -> None:
    jobs = ("sacct", "-aDnP", "-S", "2026-02-01", "-o", "jobid,state,elapsed,suspended,alloctres")
    before = site.ok(*jobs)
    site.ok("slurmbridge", "import", "history", f"{site.work}/history", "--suspended", f"{site.work}/suspend")
    assert site.ok(*jobs) == before
    assert _answers(site) == []


def test_runs_put_right(site: Site) -> None:
    shown = site.run("sacctmgr", "-P", "show", "runaway", "format=id,state,timeend", stdin="n\n").stdout
    lost = [line.split("|")[0] for line in shown.splitlines() if line.endswith("|Unknown")]
    assert lost and "Changes Discarded" in shown
    assert site.run("sacctmgr", "-i", "show", "runaway", "set", "endstate=RUNNING").returncode == 1
    site.ok("sacctmgr", "-i", "show", "runaway")
    assert site.ok("sacctmgr", "show", "runaway").startswith("Runaway Jobs: No runaway jobs found")
    for job in lost:
        printed = site.ok("sacct", "-nPX", "-j", job, "-o", "jobidraw,state,end,start,eligible,submit").splitlines()
        _, state, end, *before = next(line for line in printed if line.startswith(f"{job}|")).split("|")
        assert state == "COMPLETED" and end == max(time for time in before if time != "None")
    job = lost[0]
    said = site.ok("sacctmgr", "-i", "modify", "job", "where", f"jobid={job}", "set", "comment=twice",
                   "admincomment=looked at", "derivedexitcode=256", "newwckey=projz")
    assert said.startswith(f" Modified jobs...\n  {job} submitted at ")
    fields = "jobidraw,comment,admincomment,derivedexitcode,wckey"
    assert f"{job}|twice|looked at|1:0|projz" in site.ok("sacct", "-nPX", "-j", job, "-o", fields).splitlines()
    nobody = site.run("sacctmgr", "-i", "modify", "job", job, "set", "comment=mine", user="nobody")
    assert nobody.returncode == 1 and "Access/permission denied" in nobody.stderr
    none = site.run("sacctmgr", "-i", "modify", "job", "999999", "set", "comment=mine")
    assert none.returncode == 1 and "Data has not changed" in none.stderr
