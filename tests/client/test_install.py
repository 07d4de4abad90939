"""What ``make install`` puts into the folder of commands."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from slurmbridge.client import install
from slurmbridge.client.launcher import SLURM_VERSION


def state_of(folder: Path) -> dict[str, tuple[int, int]]:
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.iterdir()}


@pytest.mark.parametrize("compiler", ["default", "/bin/false"])
def test_commands_with_and_without_a_compiler(tmp_path, monkeypatch, compiler):
    if compiler != "default":
        monkeypatch.setenv("CC", compiler)
    folder = tmp_path / "bin"
    names = install.install(folder)
    assert {"sbatch", "squeue", "scancel"} <= set(names) == {path.name for path in folder.iterdir()}
    compiled = (tmp_path / "libexec" / "slurmbridge" / "client").exists()
    for name in ("squeue", "sbatch"):
        assert subprocess.check_output([folder / name, "-V"], text=True) == f"slurm {SLURM_VERSION}\n"
        assert (folder / name).stat().st_mode & 0o777 == 0o755
        assert ((folder / name).stat().st_nlink > 1) == compiled
    if compiler != "default":
        assert not compiled and (folder / "squeue").read_text().startswith("#!/")
    before = state_of(folder)
    assert install.install(folder) == names
    assert state_of(folder) == before


def test_command_without_its_server_side_goes(tmp_path, monkeypatch):
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "sreport").write_text("old")
    (folder / "other").write_text("not ours")
    monkeypatch.setattr(install, "provided", lambda: ["squeue"])
    install.install(folder)
    assert sorted(path.name for path in folder.iterdir()) == ["other", "squeue"]


def test_only_commands_with_a_server_side_are_provided(tmp_path):
    (tmp_path / "squeue.py").touch()
    (tmp_path / "common.py").touch()
    assert install.provided(tmp_path) == ["squeue"]


def test_interpreter_is_one_that_everybody_may_start(tmp_path):
    assert install.others_may_execute("/bin/sh")
    hidden = tmp_path / "home"
    hidden.mkdir(mode=0o700)
    (hidden / "python3").touch(mode=0o755)
    assert not install.others_may_execute(str(hidden / "python3"))
    python = install.everybodys_python()
    assert subprocess.check_output([python, "-ISc", "import sys; print(sys.version_info >= (3, 11))"]) == b"True\n"
    assert install.others_may_execute(python) or python == os.path.realpath(sys.executable)
