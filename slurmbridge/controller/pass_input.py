"""What a scheduling pass is told about the controller's state: one snapshot, from live columns and accounting data."""
from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from slurmbridge.controller.world import World
from slurmbridge.scheduling.facts import BoolArray
from slurmbridge.scheduling.queue import QueueColumns
from slurmbridge.scheduling.snapshot import Preemption, Snapshot


def snapshot(world: World, queue: QueueColumns | None = None, *, planned: BoolArray | None = None,
             preempting: Collection[int] = (), limits: bool = True) -> Snapshot:
    """``queue``: other jobs than those that wait; ``preempting``: waiting jobs whose victims have not ended yet."""
    return Snapshot(
        now_s=int(world.now()), cluster=world.columns, queue=world.queue if queue is None else queue,
        settings=world.settings, planned=planned, licenses_used=licenses_used(world),
        reservations=world.reservation_book.for_scheduler() if world.reservations else (),
        limits=world.limits.book() if limits and world.limits.enforced else None,
        preemption=preemption(world, preempting),
        qos_flags={one.name: frozenset(one.flags) for one in world.accounting.qos.values() if one.flags})


def licenses_used(world: World) -> dict[str, int]:
    """License name -> how many the running jobs hold."""
    used: Counter[str] = Counter()
    if world.settings.licenses_total:
        for job in world.columns.running.values():
            used.update(dict(job.licenses))
    return dict(used)


def preemption(world: World, preempting: Collection[int] = ()) -> Preemption | None:
    """None where nobody is preempted."""
    if world.settings.preempt_type == "preempt/none" or world.settings.preempt_mode == "OFF":
        return None
    qos = world.accounting.qos.values()
    given = world.conf.preempt_parameters
    exempt = given.get("min_exempt_priority", "")
    return Preemption(
        victims={one.name: frozenset(one.preempt) for one in qos if one.preempt},
        qos_priority={one.name: one.priority for one in qos},
        qos_mode={one.name: one.preempt_mode.upper() for one in qos if one.preempt_mode},
        youngest_first="youngest_first" in given or "preempt_youngest_first" in world.conf.scheduler_parameters,
        min_exempt_priority=int(exempt) if exempt.isdigit() else 0xFFFFFFFF,
        in_progress=frozenset(preempting),
        leaving=frozenset(job.job_id for job in world.jobs.active.values() if job.preempt_s is not None))
