"""``slurmbridge up``, ``status`` and ``down`` as a newcomer types them, right and wrong."""
from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sites import BIN, Site


@pytest.fixture
def home(commands: Path) -> Iterator[Site]:
    """A user without any settings: everything is below this home."""
    site = Site("simulated", "", None, (), {})
    del site.env["SLURMBRIDGE_URL"]
    try:
        yield site
        site.run("slurmbridge", "down")
    finally:
        site.remove()


def test_the_default_state_and_its_whole_life(home: Site) -> None:
    program = BIN / "slurmbridge"             # by its path: a process of its own, with all its imports
    socket = home.folder / ".local" / "state" / "slurmbridge" / "slurmbridge.sock"
    down = home.run(program, "down")
    assert (down.returncode, down.stdout, down.stderr) == (0, "", "")
    before = home.run(program, "status")
    assert (before.returncode, before.stderr) == (1, f"slurmbridge: no controller answers at unix://{socket}\n")
    assert home.ok(program, "up", "--engine", "simulated") == f"unix://{socket}\n"
    second = home.run(program, "up", "--engine", "simulated")
    assert second.returncode == 1 and second.stderr.startswith("slurmbridge: ") and second.stderr.count("\n") == 1
    assert home.ok("squeue", "-h") == ""
    assert home.ok("sinfo", "-h", "-o", "%D %P").split() == ["4", "main*"]
    lines = home.ok(program, "status").splitlines()
    assert lines[1:] == ["nodes: 4 of 4 usable", "jobs: 0 running, 0 pending, 0 ended lately"]
    # an explicit state is meant, whatever the environment says
    other = home.run(program, "status", "--state", home.folder / "other",
                     env={"SLURMBRIDGE_URL": f"unix://{socket}"})
    assert (other.returncode, other.stderr.count("\n")) == (1, 1)
    for _ in range(2):
        assert home.run(program, "down").returncode == 0
    assert not socket.exists()


def test_in_the_foreground_until_ctrl_c(home: Site) -> None:
    with subprocess.Popen([BIN / "slurmbridge", "up", "--foreground", "--engine", "simulated"], env=home.env,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as controller:
        assert controller.stdout is not None
        address = controller.stdout.readline().strip()
        assert home.run("squeue", "-h", env={"SLURMBRIDGE_URL": address}).returncode == 0
        controller.send_signal(signal.SIGINT)
        assert controller.wait(20) == 0
    assert not Path(address.removeprefix("unix://")).exists()


@pytest.mark.parametrize(("text", "line"), [
    ("enginee: local", "c.yaml: enginee: unknown key"),
    ("engine: cloud", "c.yaml: engine: Input should be 'local', 'simulated' or 'kubernetes'"),
    ("a: [", "c.yaml: while parsing a flow node"), ("- 1", "c.yaml: a mapping of keys is expected"),
    ("\x00", "c.yaml: "), ("state: {}", "c.yaml: state: "), ("slurm_conf: nosuch.conf", "nosuch.conf"),
    ("database: mysql://x/y", "ledger"), (None, "c.yaml: No such file or directory")])
def test_a_configuration_that_is_none(home: Site, text: str | None, line: str) -> None:
    if text is not None:
        (home.work / "c.yaml").write_text(text)
    done = home.run("slurmbridge", "up", "--config", "c.yaml", "--state", home.state)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("slurmbridge: ") and line in done.stderr and done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize("words", [
    ("--engine", "k8s"), ("--slurm-conf", "nosuch"), ("--slurm-conf", "."), ("--slurm-conf", "bad.conf"),
    ("--slurm-conf", "empty.conf"), ("--state", "/proc/x"), ("--state", "bad.conf"), ("--state", "/" + "x" * 200)])
def test_options_that_cannot_be_meant(home: Site, words: tuple[str, str]) -> None:
    (home.work / "bad.conf").write_text("NoSuchKey=1\n")
    (home.work / "empty.conf").write_text("")
    done = home.run("slurmbridge", "up", *words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
    assert done.stderr.startswith("slurmbridge: ")


def test_paths_of_the_configuration_are_below_its_folder(home: Site) -> None:
    folder = home.work / "site"
    folder.mkdir()
    (folder / "slurmbridge.yaml").write_text(
        "engine: simulated\nstate: s\nsocket: c.sock\nlog: c.log\ndatabase: l.db\n")
    address = home.ok("slurmbridge", "up", "--config", "site/slurmbridge.yaml").strip()
    assert address == f"unix://{folder}/c.sock"
    assert sorted(path.name for path in folder.glob("c.*")) == ["c.log", "c.sock"] and (folder / "l.db").exists()
    assert home.ok("slurmbridge", "status", "--state", folder / "s").startswith("slurmbridge ")
    home.ok("slurmbridge", "down", "--state", folder / "s")
    assert not (folder / "c.sock").exists()


def test_an_ordinary_user_at_somebody_elses_controller(home: Site, unix_users: tuple[str, ...]) -> None:
    if os.geteuid() != 0 or subprocess.run(["bash", "-c", f"{BIN}/python -c ''"], user="alice").returncode:
        pytest.skip("needs root, and an interpreter that others may run")
    state = home.folder / "state"
    home.ok("slurmbridge", "up", "--state", state, "--engine", "simulated")
    assert home.run("slurmbridge", "status", "--state", state, user="alice").returncode == 0
    done = home.run("slurmbridge", "down", "--state", state, user="alice")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    home.ok("slurmbridge", "down", "--state", state)


@pytest.mark.parametrize("words", [("up", "extra"), ("frob",), ("lint",), ("lint", "nosuch"), ("translate", "nosuch"),
                                   ("import", "usage", "nosuch")])
def test_calls_that_are_none_end_soon_with_a_message(home: Site, words: tuple[str, ...]) -> None:
    begun = time.monotonic()
    done = home.run("slurmbridge", *words)
    assert done.returncode in (1, 2) and done.stderr and "Traceback" not in done.stderr
    assert time.monotonic() - begun < 20
