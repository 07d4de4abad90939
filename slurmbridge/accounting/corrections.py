"""Runs of the past as an administrator puts them right (``sacctmgr modify job``, ``show runaway``)."""
from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import select

from slurmbridge.accounting import codec, database, schema
from slurmbridge.accounting import operations as ops
from slurmbridge.accounting.rows import clean

Change = tuple[int, Mapping[str, Any]]
"""A run by its db_index, and values by column or by key of what the job's row has in ``data`` ("" or None: none)."""
_COLUMNS = [column.name for column in schema.job.columns]
_CHUNK = 500


def corrected(url: str, changes: Sequence[Change]) -> tuple[list[ops.Operation], float]:
    """The rows to write, and since when usage changes by them (infinity: not at all). Unknown runs are left out."""
    wanted = dict(changes)
    rows: dict[tuple[Any, ...], tuple[Any, ...] | None] = {}
    since = float("inf")
    engine = database.make_engine(database.normal_url(url), read_only=True)
    try:
        with engine.connect() as connection:
            numbers = list(wanted)
            for start in range(0, len(numbers), _CHUNK):
                part = numbers[start:start + _CHUNK]
                for row in connection.execute(select(schema.job).where(schema.job.c.db_index.in_(part))):
                    change = wanted[row.db_index]
                    rows[row.db_index,] = _changed(row, change)
                    if set(change) & {"end_s", "wckey", "tres_alloc"}:
                        since = min(since, row.eligible_s or row.submit_s)
    finally:
        engine.dispose()
    return [ops.SaveRows("job", rows)] if rows else [], since


def _changed(row: Any, change: Mapping[str, Any]) -> tuple[Any, ...]:
    values = dict(zip(_COLUMNS, row))
    data = json.loads(values["data"])
    for name, value in change.items():
        if name in values:
            values[name] = clean(value) if isinstance(value, str) else value
        elif name == "tres_alloc":
            data[name] = {**data.get(name, {}), **value}
        elif value in (None, ""):
            data.pop(name, None)
        else:
            data[name] = value
    values["data"] = codec.dumps(data)
    return tuple(values.values())
