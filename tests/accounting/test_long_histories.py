"""A history that is too long to be sent at once is cut between jobs, and nothing of it is lost."""
from __future__ import annotations

from pathlib import Path

import pytest
from accounting.histories import CASES

from slurmbridge.accounting.history import read_history
from slurmbridge.admin_files import FileError, history_pieces
from slurmbridge.slurm.zones import Zone


@pytest.mark.parametrize("limit", [1000, 5000, 1 << 20])
def test_pieces_have_all_jobs_with_their_steps(limit: int, tmp_path: Path) -> None:
    text = CASES[0]["history"]
    path = tmp_path / "history"
    path.write_text(text)
    zone = Zone("UTC")
    found = []
    with history_pieces(str(path), limit) as pieces:
        for piece in pieces:
            found += [(run.job[1:], run.steps) for run in read_history(Path(piece).read_text(), zone, lambda _: 0)]
    wanted = [(run.job[1:], run.steps) for run in read_history(text, zone, lambda _: 0)]
    assert sorted(found) == sorted(wanted)


def test_a_long_file_that_cannot_be_cut(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_text("State|JobID\n" + "RUNNING|1\n" * 100)
    with pytest.raises(FileError, match="must be JobID"), history_pieces(str(path), 100) as pieces:
        list(pieces)
    with pytest.raises(FileError, match="No such file"), history_pieces(str(tmp_path / "none")) as pieces:
        list(pieces)
