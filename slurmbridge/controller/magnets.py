"""MAGNETIC reservations: they attract jobs that named none (scontrol(1)).

A job gets another queue row for each reservation that would let it in, tried before its own. It runs there without
having asked, and asks for nothing when it waits again.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from slurmbridge.controller.world import World
from slurmbridge.scheduling.queue import QueueRow
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.views.records import JobRecord


def rows(world: World, job: JobRecord, own: list[QueueRow]) -> Iterator[QueueRow]:
    """One row more for each of the job's own and each magnet that may take it. Heterogeneous jobs are not attracted."""
    if job.request.reservation or job.het_job_id:
        return
    for record in world.reservations.values():
        if "MAGNETIC" not in record.flags:
            continue
        try:
            world.reservation_book.check_access(record, job)
        except SlurmError:
            continue
        for row in own:
            if world.reservation_book.admits(record, row.qos, (row.partition,)):
                shape = world.shared.same(replace(row.shape, reservation=record.name, magnet=True))
                yield replace(row, shape=shape)


def attract(world: World, job: JobRecord, name: str) -> None:
    """The job is about to start in the reservation; "" for none."""
    if name:
        job.request, job.magnetic = replace(job.request, reservation=name), True


def release(job: JobRecord) -> None:
    """The job waits again, for nothing but what it asked."""
    if job.magnetic:
        job.request, job.magnetic = replace(job.request, reservation=None), False
