"""Licenses of running jobs that ``scontrol update`` changes."""
from __future__ import annotations

from dataclasses import replace

from slurmbridge.controller import shapes
from slurmbridge.controller.pass_input import licenses_used
from slurmbridge.controller.world import World
from slurmbridge.scheduling import licensing
from slurmbridge.views.records import JobRecord


def licenses_changed(world: World, job: JobRecord) -> None:
    """The running job has what it now asks for, be it there or not; of a choice the first that is there."""
    running = world.columns.running.get(job.job_id)
    if running is None:
        return
    text = job.request.licenses or ""
    asked = tuple(licensing.counts(text).items())
    if licensing.is_choice(text):
        totals, used = world.settings.licenses_total, licenses_used(world)
        own = dict(running.licenses)
        asked = licensing.granted(asked, choice=True, free=lambda name: (
            totals.get(name, 0) - used.get(name, 0) + own.get(name, 0))) or ()
    world.columns.running[job.job_id] = replace(running, licenses=asked)
    job.licenses_alloc = licensing.text(asked)
    shapes.size_allocated(world, job)
