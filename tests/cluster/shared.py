"""A cluster for all test processes of a checkout: the first brings it up, the last takes it down. Another ``part`` of
the tests may have one of its own.

Whoever uses it holds a shared lock; a cluster that nobody holds was left by a run that was killed, and is cleaned up
before the next one starts.
"""
from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from cluster import build, images
from cluster.kubernetes import Cluster

ROOT = Path(__file__).resolve().parents[2]


def folder(part: str = "") -> Path:
    """Short, for sockets' sake, and of this checkout alone."""
    return Path("/tmp") / f"sbk-{hashlib.sha256(os.fsencode(ROOT)).hexdigest()[:6]}{part}"


@contextlib.contextmanager
def cluster(nodes: int = 3, part: str = "") -> Iterator[Cluster]:
    """A running cluster. Raises TimeoutError when it does not come up."""
    build.cache().mkdir(parents=True, exist_ok=True)
    place = folder(part)
    with open(f"{place}.start", "w") as starting, open(f"{place}.users", "w") as users:
        fcntl.flock(starting, fcntl.LOCK_EX)
        try:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            Cluster(place).down()             # nobody uses it: what is there was left behind
        except BlockingIOError:
            pass
        fcntl.flock(users, fcntl.LOCK_SH)
        found = Cluster(place)
        if not found.is_up():
            found.down()
            found = Cluster(place)
            try:
                found.up(nodes, controllers=["--node-monitor-grace-period=12s", "--node-monitor-period=1s"])
                found.load(images.runtime_image(place))
            except BaseException:
                found.down()
                raise
        fcntl.flock(starting, fcntl.LOCK_UN)
        try:
            yield found
        finally:
            fcntl.flock(starting, fcntl.LOCK_EX)
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                found.down()
