"""Sites for tests: a controller on a state directory of its own, and the users' commands to call it with.

``make_site(engine="local", conf="MinJobAge=5\\n")`` starts one; ``site`` is one with the simulated engine,
``local_site`` one that runs real processes, ``shared_site`` one for tests that change nothing. All have the 8 nodes of
``tests/data/slurm.conf`` unless told otherwise.
"""
from __future__ import annotations

import gc
import os
import pwd
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from sites import BIN, MakeSite, Site

from slurmbridge.client import install

if threading.current_thread() is threading.main_thread():
    # both are ignored where a shell started us in its background
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)


def pytest_collection_finish() -> None:
    """Thousands of collected tests are no garbage: looking through them took a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


@pytest.fixture(scope="session")
def commands() -> Path:
    """The folder of the users' commands, installed when they are not there yet."""
    install.install(BIN)
    return BIN


@pytest.fixture
def make_site(commands: Path) -> Iterator[MakeSite]:
    """``make_site(engine="simulated", conf="", conf_file=None, options=(), env={}, enforce=False)``: a started Site.

    ``conf`` is added to slurm.conf; ``conf_file`` replaces it. Without ``enforce`` users need no associations. All
    sites are stopped with the test, and nothing is left of them. ``started=False`` leaves the start to the test.
    """
    sites: list[Site] = []

    def make(engine: str = "simulated", conf: str = "", conf_file: Path | None = None, options: Sequence[str] = (),
             env: Mapping[str, str] | None = None, enforce: bool = False, started: bool = True) -> Site:
        site = Site(engine, conf, conf_file, options, env or {}, enforce)
        sites.append(site)
        if started:
            site.up()
        return site

    yield make
    for site in sites:
        site.remove()


@pytest.fixture
def site(make_site: MakeSite) -> Site:
    """Eight nodes that run nothing: jobs end when they are cancelled or their time is over."""
    return make_site()


@pytest.fixture(scope="session")
def shared_site(commands: Path) -> Iterator[Site]:
    """One simulated site for all tests of a process that only read."""
    site = Site("simulated", "", None, (), {})
    try:
        site.up()
        yield site
    finally:
        site.remove()


@pytest.fixture
def local_site(make_site: MakeSite) -> Site:
    """Eight virtual nodes with real processes."""
    return make_site(engine="local")


@pytest.fixture(scope="session")
def unix_users() -> tuple[str, ...]:
    """Names of unix users that tests may act as; the test is skipped where we may not make them."""
    names = ("alice", "bob", "carl")
    for name in names:
        try:
            pwd.getpwnam(name)
        except KeyError:
            if os.geteuid() != 0:
                pytest.skip("needs unix users alice, bob and carl")
            subprocess.run(["useradd", "-M", "-N", "-d", "/tmp", "-s", "/bin/bash", name], check=False)
            pwd.getpwnam(name)
    return names
