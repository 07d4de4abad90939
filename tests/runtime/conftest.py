"""Engines to run jobs with; see local_runs."""
from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_runs import Rig

from slurmbridge.client import install


@pytest.fixture(scope="session")
def commands() -> Iterator[Path]:
    """A folder with srun that every user may execute."""
    folder = Path(tempfile.mkdtemp(prefix="runtime-bin-", dir="/tmp"))
    folder.chmod(0o755)
    client = install.build_client(folder, install.everybodys_python())
    if client is None:
        python = install.everybodys_python()
        (folder / "srun").write_text(install.LAUNCHER.format(python=python, root=str(install.ROOT)))
        (folder / "srun").chmod(0o755)
    else:
        os.link(client, folder / "srun")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def rig(commands: Path) -> Iterator[Rig]:
    """One engine for all tests that do not stop it."""
    made = Rig(commands)
    yield made
    made.close()


@pytest.fixture
def own_rig(commands: Path) -> Iterator[Rig]:
    """An engine that a test may kill and start again."""
    made = Rig(commands)
    yield made
    made.close()
