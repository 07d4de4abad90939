"""Wckeys that jobs bring: where they are tracked, a job that starts under an unknown one makes it known for its user.

As slurmdbd does it: a default one (``*name``) brings the plain name too.
"""
from __future__ import annotations

from slurmbridge.accounting.directory import apply_operations
from slurmbridge.controller.world import World
from slurmbridge.views.records import JobRecord


def make_known(world: World, job: JobRecord) -> None:
    """The job starts."""
    if not world.conf.tracks_wckeys or not job.assoc_id:
        return
    known = world.accounting.wckeys.values()
    names = [job.wckey.removeprefix("*"), job.wckey] if job.wckey.startswith("*") else [job.wckey]
    if (job.wckey, job.user_name) in known:
        return
    new = [name for name in names if (name, job.user_name) not in known]
    for change in apply_operations(world.accounting, [
            {"op": "add_wckey", "name": name, "user": job.user_name} for name in new], world.now(),
            actor=world.conf.slurm_user):
        world.journal.add(change)
