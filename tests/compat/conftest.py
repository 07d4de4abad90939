"""One local site for all clients of a process: they submit real work and read what became of it."""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sites import Site


@pytest.fixture(scope="module")
def client_site(commands: Path) -> Iterator[Site]:
    site = Site("local", "", None, (), {})
    try:
        site.up()
        yield site
    finally:
        site.remove()
