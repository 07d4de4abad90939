"""CoreSpecCount and CPUSpecList as Slurm 25.11 shows them, and what is left for jobs (recorded on the lab)."""
from __future__ import annotations

import pytest

from slurmbridge.scheduling.columns import ClusterColumns
from slurmbridge.scheduling.facts import NodeSpec, Partition
from slurmbridge.scheduling.passes import main_pass
from slurmbridge.scheduling.queue import QueueColumns, QueueRow
from slurmbridge.scheduling.shape import Shape
from slurmbridge.scheduling.snapshot import Snapshot
from slurmbridge.slurm.spec_cores import cpu_list, specialized

TABLE = [                                     # count, list, threads: CPUSpecList shown, cores of an exclusive job, CPUs
    (1, "", 1, "3", (0, 1, 2), 3), (2, "", 1, "1,3", (0, 2), 2), (3, "", 2, "2-7", (0,), 2),
    (0, "0-1", 2, "0-1", (1, 2, 3), 6), (0, "", 1, "", (0, 1, 2, 3), 4)]


@pytest.mark.parametrize(("count", "text", "threads", "shown", "cores", "cpus"), TABLE)
def test_an_exclusive_job_gets_what_the_system_leaves(count: int, text: str, threads: int, shown: str,
                                                      cores: tuple[int, ...], cpus: int) -> None:
    kept = specialized(count, text, 2, 2, threads)
    assert cpu_list(kept, threads) == shown
    columns = ClusterColumns([NodeSpec("n1", 2, 2, threads, 4 * threads, 16000, spec_cores=kept)],
                             [Partition("all", frozenset({"n1"}))])
    queue = QueueColumns()
    queue.add(QueueRow(1, "all", 1, 0, Shape(whole_node="exclusive", mem_per_node_mb=0), 60, uid=1))
    [start] = main_pass(Snapshot(100, columns, queue)).starts
    [share] = start.shares
    assert (share.cores, share.cpus) == (cores, cpus)
