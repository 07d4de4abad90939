"""A controller with real processes on virtual nodes, for programs as researchers run them."""
from __future__ import annotations

from collections.abc import Iterator

import pytest
from running import Programs, site_with_own_ids


@pytest.fixture(scope="module")
def programs() -> Iterator[Programs]:
    made = site_with_own_ids("SchedulerParameters=requeue_delay=0,bf_interval=1,sched_interval=1\n")
    made.up()
    yield Programs(made)
    made.remove()
