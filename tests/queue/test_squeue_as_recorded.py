"""squeue's tables against those that real Slurm printed of the same jobs."""
from __future__ import annotations

import pytest
from queues import DATA, FakeSession, plain_job, sample_jobs

from slurmbridge.commands.squeue import run


def recorded(name: str) -> list[str]:
    return (DATA / f"{name}.txt").read_text().splitlines()


def command_of(name: str) -> list[str]:
    return [word for word in (DATA / f"{name}.command").read_text().split()[1:] if word != "-a"]


SAMPLES = [("default", []), ("long", ["-l"]), ("array_start", ["--start"]), ("steps", ["-s"]),
           ("format", command_of("format"))]


@pytest.mark.parametrize("name, argv", SAMPLES, ids=[name for name, _ in SAMPLES])
def test_same_lines_in_the_same_order(name, argv):
    reply = FakeSession(sample_jobs()).call(run, *argv)
    assert reply.stdout.splitlines() == recorded(name)
    assert (reply.stderr, reply.exit_code) == ("", 0)


def test_every_field_by_name_and_what_is_said_about_unknown_ones():
    reply = FakeSession(sample_jobs()).call(run, *command_of("O_all"))
    lines = recorded("O_all")
    assert reply.stderr.splitlines() == lines[:2]
    assert reply.stdout.splitlines() == lines[2:]


def test_five_thousand_jobs_are_all_listed_by_priority():
    session = FakeSession([plain_job(i, priority=i * 7 % 1000, name=f"name{i}") for i in range(1, 5001)])
    priorities = [int(line) for line in session.call(run, "-h", "-o", "%Q").stdout.split()]
    assert len(priorities) == 5000
    assert priorities == sorted(priorities, reverse=True)
