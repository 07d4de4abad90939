"""One process is started the same way by the compiled starter and by a fork."""
from __future__ import annotations

import os
import re
import resource
import signal
from pathlib import Path

import pytest

from slurmbridge.client import install
from slurmbridge.runtime import execution, processes

SOFT_FILES = 77


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path | None:
    return install.build_starter(tmp_path_factory.mktemp("starter"))


@pytest.fixture(params=["compiled", "fork"])
def start(request, built, monkeypatch, tmp_path):
    """Starts a command, waits; (wait status, output, pid)."""
    if request.param == "compiled" and built is None:
        pytest.skip("no C compiler here")
    monkeypatch.setattr(execution, "_starter_fd", -1)
    monkeypatch.setenv(execution.STARTER_VARIABLE, str(built) if request.param == "compiled" else "")
    execution.find_starter()
    assert bool(execution.kept_descriptors()) == (request.param == "compiled")

    def act(*argv: str, path: str = "", env: dict[str, str] | None = None, **options):
        output = tmp_path / "output"
        with open("/dev/null", "rb") as null, open(output, "wb") as out:
            command = execution.Command(**{
                "path": path or argv[0], "argv": argv, "cwd": str(tmp_path),
                "env": execution.encoded({"PATH": "/usr/bin:/bin", **(env or {})}),
                "stdin_fd": null.fileno(), "stdout_fd": out.fileno(), "stderr_fd": out.fileno(),
                **options})
            pid = execution.start(command)
        _, status = os.waitpid(pid, 0)
        return status, output.read_text(), pid
    yield act
    for fd in execution.kept_descriptors():
        os.close(fd)


def test_what_it_finds(start, tmp_path):
    script = 'echo "$PWD $(umask) $SLURM_TASK_PID $$ $FOO $(ulimit -Sn) $(ps -o sid= -p $$)"'
    status, text, pid = start("sh", "-c", script, env={"FOO": "bär", "SLURM_TASK_PID": "1"}, umask=0o027,
                              rlimits={"NOFILE": SOFT_FILES})
    assert (status, text.split()) == (0, [str(tmp_path), "0027", str(pid), str(pid), "bär", str(SOFT_FILES), str(pid)])


@pytest.mark.parametrize(("program", "path", "code", "reason"), [
    ("nosuchcommand", "/usr/bin:/bin", 2, "No such file or directory"),
    ("/etc/passwd", "/usr/bin:/bin", 13, "Permission denied"),
    ("locked", "/usr/bin:HERE", 13, "Permission denied"), ("garbage", "HERE:/bin", 8, "Exec format error"),
    ("sh", "", 2, "No such file or directory")])
def test_what_cannot_be_executed_says_so(start, tmp_path, program, path, code, reason):
    (tmp_path / "locked").write_text("#!/bin/sh\n")
    (tmp_path / "garbage").write_bytes(b"\1\2\3")
    (tmp_path / "garbage").chmod(0o755)
    status, text, _ = start(program, env={"PATH": path.replace("HERE", str(tmp_path))})
    assert os.waitstatus_to_exitcode(status) == code
    assert re.fullmatch(rf"\[\d{{4}}-\d\d-\d\dT[\d:]{{8}}\.\d{{3}}\] error: execve\(\): {program}: {reason}\n", text)


def test_directory_that_is_not_there(start):
    _, text, _ = start("pwd", cwd="/no/such/place")
    assert re.fullmatch(r"\[.*\] error: couldn't chdir to `/no/such/place': No such file or directory: going to /tmp "
                        r"instead\n/tmp\n", text)


def test_bound_to_a_cpu(start):
    last = max(os.sched_getaffinity(0))
    assert start("sh", "-c", "grep Cpus_allowed_list /proc/self/status", bound_cpus={last})[1].split()[1] == str(last)


def test_signals_are_its_own_again(start):
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        status, _, _ = start("sh", "-c", "kill -TERM $$; exit 3")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert os.WTERMSIG(status) == signal.SIGTERM


def test_nothing_else_is_inherited(start):
    with open("/dev/null", "rb") as extra:
        assert extra.fileno() > 2
        found = start("sh", "-c", "ls /proc/$$/fd")[1].split()
    assert [fd for fd in found if int(fd) < 10] == ["0", "1", "2"]


def test_more_arguments_than_fit_are_refused_by_the_program(start):
    longest = resource.getrlimit(resource.RLIMIT_STACK)[0] // 4 if resource.getrlimit(
        resource.RLIMIT_STACK)[0] > 0 else 6 << 20
    words = ["x" * 100_000] * (longest // 100_000 + 40)
    status, text, _ = start("true", *words)
    assert os.waitstatus_to_exitcode(status) == 7
    assert "execve(): true: Argument list too long" in text


def test_many_at_once_are_children_of_the_caller(start, tmp_path):
    processes.become_subreaper()
    with open("/dev/null", "rb") as null, open(tmp_path / "output", "wb") as out:
        common = {"path": "sh", "cwd": str(tmp_path), "stdin_fd": null.fileno(), "stdout_fd": out.fileno(),
                  "stderr_fd": out.fileno(), "env": execution.encoded({"PATH": "/usr/bin:/bin"})}
        kept = [os.open("/dev/null", os.O_RDONLY) for _ in range(execution.AT_ONCE + 3)]
        pids = execution.start_all([execution.Command(
            **common, kept_fd=fd, kept_as=7 + code % 2,
            argv=["sh", "-c", f"[ -e /dev/fd/{7 + code % 2} ] && echo {code} $$ $(ls /dev/fd | wc -l); exit {code}"])
            for code, fd in enumerate(kept)])
    for fd in kept:
        os.close(fd)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    processes.become_subreaper(False)
    assert codes == list(range(len(kept)))
    lines = [line.split() for line in (tmp_path / "output").read_text().splitlines()]
    assert {int(code): int(pid) for code, pid, _ in lines} == dict(enumerate(pids))
    assert len({count for *_, count in lines}) == 1
