"""Reads the whole state of a ledger back into records, once, when a controller starts."""
from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, func, select

from slurmbridge.accounting import codec, rows, schema
from slurmbridge.accounting.putting import Putter
from slurmbridge.accounting.sluid import SluidSource
from slurmbridge.views.records import (
    AccountRecord,
    AssociationData,
    AssociationRecord,
    JobRecord,
    QosRecord,
    StepRecord,
    UserRecord,
)


@dataclass(slots=True)
class LoadedState:
    """What a starting controller finds."""

    jobs: dict[int, JobRecord]                # live jobs by id, each with the steps of its current run
    next_job_id: int                          # 1 + the largest job id recorded, meta's "next_job_id" if larger; 0: none
    sluids: SluidSource                       # ``sluids.next(now_s)`` is the next db_index; ``sluid_text`` shows it
    accounting: AssociationData               # cluster "" and no associations in a new ledger
    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)        # SaveNode's settings
    partitions: dict[str, dict[str, Any]] = field(default_factory=dict)   # SavePartition's settings
    open_events: dict[str, float] = field(default_factory=dict)           # node ("" = cluster) -> start_s
    last_events: dict[str, tuple[str, str, int | None]] = field(default_factory=dict)     # their state, reason, uid
    open_suspensions: dict[int, float] = field(default_factory=dict)      # db_index -> start_s of its open suspension
    meta: dict[str, str] = field(default_factory=dict)                    # SaveMeta's values


def load_state(connection: Connection, putter: Putter) -> LoadedState:
    """Reads everything; ``putter`` learns which texts are already written."""
    meta = dict(connection.execute(select(schema.meta.c.key, schema.meta.c.value)).tuples().all())
    if "cluster_id" not in meta:
        meta["cluster_id"] = str(2 + secrets.randbelow(2045))              # with 63 bits to stay positive in SQL
    largest = connection.execute(select(func.max(schema.job.c.job_id))).scalar()
    last_index = connection.execute(select(func.max(schema.job.c.db_index))).scalar() or 0
    table = schema.event.c
    events = connection.execute(
        select(table.node, table.start_s, table.data).where(table.end_s.is_(None)).order_by(table.start_s)).all()
    said = {node: json.loads(data) for node, _, data in events}
    known_id = max(int(meta.get("next_job_id", "0")), 0 if largest is None else largest + 1)
    return LoadedState(
        jobs=_jobs(connection, putter), next_job_id=known_id, sluids=SluidSource(int(meta["cluster_id"]), last_index),
        accounting=_accounting(connection, meta.get("cluster", "")),
        nodes=_settings(connection, schema.node), partitions=_settings(connection, schema.partition),
        open_events={node: start_s for node, start_s, _ in events},
        last_events={node: (data["state"], data["reason"], data["reason_uid"]) for node, data in said.items()},
        open_suspensions=dict(connection.execute(
            select(schema.suspension.c.db_index, schema.suspension.c.start_s)
            .where(schema.suspension.c.end_s.is_(None))).tuples().all()),
        meta=meta)


def _jobs(connection: Connection, putter: Putter) -> dict[int, JobRecord]:
    bodies: dict[str, bytes] = {
        name: bytes(content) for name, content in connection.execute(select(schema.body.c.hash, schema.body.c.content))}
    scripts: dict[str, str] = {}
    environments: dict[str, tuple[str, ...]] = {}
    jobs: dict[int, JobRecord] = {}
    by_index: dict[int, JobRecord] = {}
    columns = schema.live.c
    for row in connection.execute(
            select(columns.script, columns.environment, columns.data).order_by(columns.job_id)):
        script: str | None = None
        environment: tuple[str, ...] = ()
        if row.script:
            if row.script not in scripts:
                scripts[row.script] = bodies[row.script].decode("utf-8", "surrogateescape")
            script = scripts[row.script]
        if row.environment:
            if row.environment not in environments:
                environments[row.environment] = rows.environment_from(bodies[row.environment])
            environment = environments[row.environment]
        job = rows.job_from_live(row.data, script, environment)
        putter.adopt(job, row.script, row.environment)
        jobs[job.job_id] = by_index[job.db_index] = job
    steps = select(schema.step.c.db_index, schema.step.c.data).join(
        schema.live, schema.live.c.db_index == schema.step.c.db_index)
    for db_index, data in connection.execute(steps):
        step = codec.decode(StepRecord, data)
        by_index[db_index].steps[step.step_id] = step
    return jobs


def _settings(connection: Connection, table: Any) -> dict[str, dict[str, Any]]:
    return {name: json.loads(data) for name, data in connection.execute(select(table.c.name, table.c.data))}


def _accounting(connection: Connection, cluster: str) -> AssociationData:
    found = AssociationData(cluster)
    for (data,) in connection.execute(select(schema.association.c.data).order_by(schema.association.c.id)):
        association = codec.decode(AssociationRecord, data)
        found.associations[association.id] = association
    for (data,) in connection.execute(select(schema.qos.c.data).order_by(schema.qos.c.id)):
        qos = codec.decode(QosRecord, data)
        found.qos[qos.name] = qos
    for (data,) in connection.execute(select(schema.account.c.data)):
        account = codec.decode(AccountRecord, data)
        found.accounts[account.name] = account
    for (data,) in connection.execute(select(schema.user.c.data)):
        user = codec.decode(UserRecord, data)
        found.users[user.name] = user
    found.tres.update(connection.execute(
        select(schema.tres.c.name, schema.tres.c.id).order_by(schema.tres.c.id)).tuples().all())
    for number, data in connection.execute(select(schema.wckey.c.id, schema.wckey.c.data).order_by(schema.wckey.c.id)):
        name, user_name = json.loads(data)
        found.wckeys[number] = (name, user_name)
    qos_by_id = {record.id: record for record in found.qos.values()}
    for kind, number, data in connection.execute(select(schema.usage.c.kind, schema.usage.c.id, schema.usage.c.data)):
        values = json.loads(data)
        holder: Any = found.associations.get(number) if kind == "association" else qos_by_id.get(number)
        if holder is not None:
            holder.usage_raw, holder.usage_tres_raw, holder.grp_used_wall_s = [*values, 0.0][:3]
    return found
