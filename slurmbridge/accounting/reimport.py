"""A history that is imported again replaces what it was, instead of counting everything twice."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sqlalchemy import select

from slurmbridge.accounting import database, schema
from slurmbridge.accounting import operations as ops

_CHUNK = 500
_DB_INDEX, _JOB_ID, _SUBMIT = 0, 1, 16        # places in a row of table job


def known_again(url: str, operations: Sequence[ops.Operation]) -> Iterator[ops.Operation]:
    """The same operations; runs whose job and time of submission the ledger has already keep their db_index. Blocks."""
    runs = [operation for operation in operations if isinstance(operation, ops.SaveRun)]
    known = _known(url, sorted({run.job[_JOB_ID] for run in runs}))
    numbers = {run.job[_DB_INDEX]: known[run.job[_JOB_ID], run.job[_SUBMIT]] for run in runs
               if (run.job[_JOB_ID], run.job[_SUBMIT]) in known}
    for operation in operations:
        if isinstance(operation, ops.SaveRun) and operation.job[_DB_INDEX] in numbers:
            number = numbers[operation.job[_DB_INDEX]]
            yield ops.SaveRun((number, *operation.job[1:]), tuple((number, *step[1:]) for step in operation.steps))
        elif isinstance(operation, ops.SaveSuspension) and operation.db_index in numbers:
            yield replace(operation, db_index=numbers[operation.db_index])
        else:
            yield operation


def _known(url: str, job_ids: Sequence[int]) -> dict[tuple[int, int], int]:
    table = schema.job.c
    found: dict[tuple[int, int], int] = {}
    engine = database.make_engine(database.normal_url(url), read_only=True)
    try:
        with engine.connect() as connection:
            for start in range(0, len(job_ids), _CHUNK):
                query = select(table.job_id, table.submit_s, table.db_index).where(
                    table.job_id.in_(job_ids[start:start + _CHUNK])).order_by(table.db_index)
                found.update({(job_id, submit): number for job_id, submit, number in connection.execute(query)})
    finally:
        engine.dispose()
    return found
