"""The read-only side of the controller (``views.session.Views``)."""
from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from slurmbridge.controller.journal import NotDurable
from slurmbridge.controller.world import World
from slurmbridge.slurm.settings import SlurmConf
from slurmbridge.views.records import (
    AssociationData,
    JobRecord,
    NodeRecord,
    PartitionRecord,
    ReservationRecord,
    ResourceRecord,
)


class ControllerViews:
    """Live objects; commands must not change them."""

    def __init__(self, world: World, queries: Any) -> None:
        self._world = world
        self._queries = queries

    @property
    def conf(self) -> SlurmConf:
        return self._world.conf

    @property
    def jobs(self) -> Mapping[int, JobRecord]:
        return self._world.jobs

    @property
    def nodes(self) -> Mapping[str, NodeRecord]:
        return self._world.nodes

    @property
    def partitions(self) -> Mapping[str, PartitionRecord]:
        return self._world.partitions

    @property
    def resources(self) -> Mapping[str, ResourceRecord]:
        return self._world.resources

    @property
    def reservations(self) -> Mapping[str, ReservationRecord]:
        return self._world.reservations

    @property
    def accounting(self) -> AssociationData:
        return self._world.accounting

    @property
    def boot_s(self) -> float:
        return self._world.boot_s

    def array_tasks(self, array_job_id: int) -> Sequence[JobRecord]:
        return self._world.jobs.array(array_job_id)

    def priority_columns(self, job_ids: Sequence[int] | None = None) -> Mapping[str, Sequence[Any]]:
        world = self._world
        world.refresh_priorities()
        return world.priorities.priority_columns(world.now(), job_ids)

    def shares(self) -> Sequence[Mapping[str, Any]]:
        self._world.refresh_priorities()
        return self._world.priorities.shares()

    async def ledger_query(self, kind: str, **filters: Any) -> Sequence[Mapping[str, Any]]:
        """Waits for what is being written, so that a user finds what was acknowledged."""
        with contextlib.suppress(NotDurable):
            await self._world.journal.acknowledged()
        if kind in ("usage", "cluster_usage"):
            await self._world.roll_up()
        return list(await self._queries.ask(kind, **filters))
