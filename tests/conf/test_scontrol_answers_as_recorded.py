"""scontrol over fabricated records answers what Slurm 25.11's scontrol answered: texts, channel, exit code."""
from __future__ import annotations

import gzip
import re
from dataclasses import replace
from typing import Any

import pytest

from slurmbridge.commands import scontrol, scontrol_assoc
from slurmbridge.slurm import errors
from slurmbridge.slurm.errors import SlurmError, strerror
from slurmbridge.views.records import FAIRSHARE_PARENT, AssociationRecord, Limits, NodeAllocation, QosRecord, UserRecord
from tests.conf.job_samples import record_of
from tests.conf.talk import Recorded, recorded
from tests.conf.world import DATA, NOW_S, ROOT, USER, FakeSession, FakeViews, RecordingActs, lab_views, run

CODES = sorted((value for name, value in vars(errors).items() if name.startswith(("ESLURM_", "SLURM_"))
                and isinstance(value, int) and value > 0), key=lambda code: -len(strerror(code)))
NO_SUCH_JOB = ("99999", "abc", "3_77")


class ScriptedActs(RecordingActs):
    """Refuses jobs that are not there, and everything else with the error that the recorded text names."""

    def __init__(self, call: Recorded) -> None:
        super().__init__()
        self.code = next((code for code in CODES if strerror(code) in call.stderr), 0)
        self.only_unknown = any("99999" in word for word in call.argv)
        self.unknown = self.code if "99999" in call.argv and self.code else errors.ESLURM_INVALID_JOB_ID

    def __getattr__(self, name: str) -> Any:
        act = super().__getattr__(name)

        async def scripted(*args: Any, **kwargs: Any) -> None:
            await act(*args, **kwargs)
            if any(job in NO_SUCH_JOB for job in args if isinstance(job, str)):
                raise SlurmError(self.unknown)
            if self.code and not self.only_unknown:
                raise SlurmError(self.code)
        return scripted


def world() -> FakeViews:
    views = lab_views()
    for call in recorded("scontrol_jobs.txt"):
        if call.argv[-2:] in (("job", "1"), ("job", "4"), ("job", "3"), ("job", "6")):
            for text in call.stdout.strip().split("\n\n"):
                job = record_of(text)
                views.jobs[job.job_id] = job
    held = record_of(recorded("scontrol_jobs.txt")[2].stdout.strip())
    held.job_id, held.array_job_id, held.array_pending = 5, 0, None
    held.time_limit_min = 50
    views.jobs[8] = replace(views.jobs[3], job_id=8, array_task_id=3, array_pending=None)
    views.accounting.users["alice"] = UserRecord("alice", "phys_qcd")
    views.jobs[5] = held
    views.jobs[1].request.script = "#!/bin/sh\n# This script was created by sbatch --wrap.\n\nsrun sleep 100\n"
    return views


def account_books(views: FakeViews) -> None:
    """The lab's tree as far as it was recorded, one job of alice running and fifteen waiting."""
    row = AssociationRecord
    limited = Limits(grp_tres={"cpu": 96}, max_jobs=50, max_wall_min=1440)
    used = {"usage_tres_raw": {"mem": 399 * 60.0}, "grp_used_wall_s": 6.0}
    books = views.accounting
    tree = [row(1, "root", **used), row(4, "bio", parent_id=1, shares=40),
            row(9, "bio_img", parent_id=4, shares=2, limits=limited),
            row(8, "bio_seq", parent_id=4, shares=FAIRSHARE_PARENT), row(11, "bio_seq", "carol", parent_id=8, shares=5),
            row(2, "eng", parent_id=1, shares=61), row(5, "eng_ml", parent_id=2, shares=FAIRSHARE_PARENT),
            row(28, "eng_ml", "alice", parent_id=5, shares=2), row(29, "eng_ml", "dave", parent_id=5, shares=6),
            row(3, "phys", parent_id=1, shares=0), row(6, "phys_qcd", parent_id=3),
            row(13, "phys_qcd", "alice", parent_id=6, shares=5, is_default=True, **used),
            row(14, "phys_qcd", "bob", parent_id=6)]
    for place, assoc in enumerate(tree):
        assoc.lft = place
        books.associations[assoc.id] = assoc
    norms = {1: (0, 29.86, 1, 1, 0), 4: (.4, 0, 0, 0, 0), 9: (2 / 7, 0, 0, 0, 0), 8: (.4, 0, 0, 0, 0),
             28: (.25, 0, 0, 0, .76), 13: (5 / 6, 29.86, 1, 1, .06)}
    names = ("norm_shares", "raw_usage", "norm_usage", "effective_usage", "fair_share")
    views.share_rows = [{"assoc": books.associations[key], **dict(zip(names, values))} for key, values in norms.items()]
    books.users["alice"] = UserRecord("alice", "phys_qcd")
    for number, (name, prio, mode) in enumerate((("normal", 10, ""), ("low", 1, "REQUEUE"), ("scav", 0, "CANCEL"),
                                                 ("high", 100, ""), ("capped", 10, ""), ("gpuq", 50, "")), 1):
        books.qos[name] = QosRecord(number, name, priority=prio, preempt_mode=mode)
    books.qos["normal"].usage_raw, books.qos["normal"].usage_tres_raw = 29.85917, {"mem": 399 * 60.0}
    books.qos["normal"].grp_used_wall_s = 6.0
    books.qos["high"].limits.max_wall_min = 2880
    books.qos["capped"].limits = Limits(max_jobs=4, max_submit_jobs=8, max_tres_per_user={"cpu": 64})
    books.qos["gpuq"].limits = Limits(grp_tres={"gres/gpu": 4}, min_tres_per_job={"gres/gpu": 1})
    running, waiting = views.jobs[1], views.jobs[3]
    running.assoc_id = waiting.assoc_id = 13
    running.start_s = NOW_S - 6
    waiting.array_pending = (1 << 14) - 1
    views.jobs = {1: running, 3: waiting, 2: replace(waiting, job_id=2, array_pending=None, accrue_s=NOW_S)}


@pytest.fixture(scope="module")
def views() -> FakeViews:
    return world()


@pytest.mark.parametrize("call", recorded("scontrol_assoc.txt"), ids=str)
def test_books(monkeypatch: pytest.MonkeyPatch, call: Recorded) -> None:
    monkeypatch.setattr(scontrol_assoc, "uid_of", {"alice": 20001}.get)
    monkeypatch.setattr(scontrol_assoc, "user_name", {20001: "alice"}.get)
    views = world()
    account_books(views)
    out = run(scontrol.run, FakeSession(views), *call.argv).stdout
    asked = re.split(r"(?m)^(?=ClusterName=|QOS=)", call.stdout)
    assert re.split(r"(?m)^(?=ClusterName=|QOS=)", out)[0] == asked[0]
    for text in asked[1:]:
        assert text in out


@pytest.mark.parametrize("call", recorded("scontrol_talk.txt"), ids=str)
def test_answers(monkeypatch: pytest.MonkeyPatch, views: FakeViews, call: Recorded) -> None:
    monkeypatch.setattr(scontrol_assoc, "uid_of", {"alice": 20001}.get)
    session = FakeSession(views, call.argv, identity=USER if call.user else ROOT)
    session.acts = ScriptedActs(call)
    reply = run(scontrol.run, session, *call.argv)
    assert (reply.stdout, reply.stderr, reply.exit_code) == (call.stdout, call.stderr, call.exit_code)


def shapes() -> list[str]:
    return gzip.decompress((DATA / "jobs.txt.gz").read_bytes()).decode().strip().split("\n\n")


@pytest.mark.parametrize("text", shapes(), ids=lambda text: text.split()[0])
def test_jobs_are_shown_as_recorded(views: FakeViews, text: str) -> None:
    record = record_of(text)
    session = FakeSession(FakeViews(views.conf, views.nodes, views.partitions, {record.job_id: record}))
    assert run(scontrol.run, session, "show", "job").stdout == text + "\n\n"
    line = " ".join(part.strip() for part in text.splitlines()) + "\n"
    assert run(scontrol.run, session, "-o", "show", "jobs").stdout == line


def _number(sluid: str) -> int:
    digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
    return sum(digits.index(digit) << 5 * place for place, digit in enumerate(reversed(sluid[1:])))


def blocks(call: Recorded) -> list[str]:
    return call.stdout.strip().split("\n\n")


@pytest.mark.parametrize("call", [call for call in recorded("scontrol_jobs.txt") if "job" in call.argv], ids=str)
def test_jobs_by_their_names(call: Recorded) -> None:
    """12, an array whole and one task of it, a job of parts whole and one part, with and without -d."""
    records = {one.job_id: one for one in map(record_of, blocks(call))}
    for job in records.values():
        job.db_index = _number("s9A9M8N684Q600" if job.job_id == 1 else "s9A9M8N684QT00")
        job.allocation = {1: [NodeAllocation("n1", 3, 3000, cores=(0, 1, 16)),
                              NodeAllocation("n2", 1, 1000, cores=(0,))],
                          4: [NodeAllocation("n1", 1, 1000, cores=(2,))]}.get(job.job_id, [])
    if call.argv[-1] == "3_4":                    # the array is one record: the task is shown out of it
        records[3].array_task_id, records[3].array_pending = None, 0b1111111111
    if call.argv[-1] == "6+1":
        records[6] = replace(records[7], job_id=6, het_offset=0)
    views = world()
    views.jobs = dict(sorted(records.items()))
    session = FakeSession(views)
    session.clock = max(job.start_s or 0 for job in records.values()) + 4
    assert run(scontrol.run, session, *call.argv).stdout == call.stdout
