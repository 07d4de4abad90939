"""Resources of sacctmgr (remote licenses): kept in the ledger; this cluster's part of each is a license of its jobs."""
from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any

from slurmbridge.accounting.operations import SaveMeta
from slurmbridge.controller import access
from slurmbridge.controller.world import World
from slurmbridge.scheduling import licensing
from slurmbridge.slurm import errors
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.views.records import ResourceRecord
from slurmbridge.views.session import Identity

META_KEY = "resources"


class Resources:
    """``records`` by ``name@server`` in the order of their making."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.records: dict[str, ResourceRecord] = world.resources

    def load(self, text: str | None) -> None:
        """What an earlier controller kept."""
        known = {one.name for one in fields(ResourceRecord)}
        for row in json.loads(text) if text else ():
            record = ResourceRecord(**{key: value for key, value in row.items() if key in known})
            record.flags = tuple(record.flags)
            self.records[record.key] = record
        self.count()

    def count(self) -> None:
        """The scheduler's totals follow; again after each change of slurm.conf."""
        totals = licensing.counts(self._world.conf.values.get("Licenses", ""))
        totals.update({key: record.total for key, record in self.records.items() if record.allowed is not None})
        self._world.settings = replace(self._world.settings, licenses_total=totals)

    def change(self, caller: Identity, operations: Sequence[Mapping[str, Any]]) -> None:
        """``op``: "add" with fields of ResourceRecord, "modify" with ``key`` and fields, "delete" with ``key``.

        Raises SlurmError, nothing changed then.
        """
        if not access.is_super_user(caller, self._world):
            raise SlurmError(errors.ESLURM_ACCESS_DENIED)
        after = dict(self.records)
        for operation in operations:
            values = {key: value for key, value in operation.items() if key not in ("op", "key")}
            if operation["op"] == "delete":
                del after[operation["key"]]
                continue
            before = after[operation["key"]] if operation["op"] == "modify" else ResourceRecord(values["name"])
            record = replace(before, **values, updated_s=int(self._world.now()))
            if (record.allowed or 0) > (record.count if "Absolute" in record.flags else 100):
                raise SlurmError(errors.ESLURM_OVER_ALLOCATE)
            after[record.key] = record
        self.records.clear()
        self.records.update(after)
        self._world.journal.add(SaveMeta(META_KEY, json.dumps([asdict(record) for record in after.values()])))
        self.count()
        self._world.admitted.clear()
        self._world.wake_later()
