"""Operations to rows.

Keeps count of the big texts that live jobs share, so that each is written once and goes with its last job.
"""
from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from slurmbridge.accounting import codec, rows
from slurmbridge.accounting import operations as ops
from slurmbridge.accounting.rows import clean, whole
from slurmbridge.slurm.jobspec import JobRequest
from slurmbridge.views.records import JobRecord

Key = tuple[Any, ...]
Put = tuple[str, Key, rows.Row | None]
MOST_REQUESTS = 500
USAGE_FIELDS = frozenset({"usage_raw", "usage_tres_raw", "grp_used_wall_s"})


class Putter:
    """Turns operations into (table, key, row) at the moment of the call; records may change right after."""

    def __init__(self, next_change_id: int = 1) -> None:
        self._next_change_id = next_change_id
        self._uses: dict[str, int] = {}                                   # hash of a text -> live jobs with it
        self._texts: dict[int, tuple[Any, str | None, Any, str | None]] = {}  # job -> its texts and their hashes
        self._request_texts: dict[int, tuple[JobRequest, str]] = {}

    def adopt(self, job: JobRecord, script: str | None, environment: str | None) -> None:
        """A loaded job's texts are already written, under these hashes."""
        self._texts[job.job_id] = (job.request.script, script, job.request.environment, environment)
        for name in (script, environment):
            if name:
                self._uses[name] = self._uses.get(name, 0) + 1

    def puts(self, operation: ops.Operation) -> list[Put]:
        return _HANDLERS[type(operation)](self, operation)

    def _save_job(self, operation: ops.SaveJob) -> list[Put]:
        job = operation.job
        if not job.db_index:
            raise ValueError(f"job {job.job_id} has no db_index")
        puts: list[Put] = []
        if operation.recoverable:
            script, environment = self._keep_texts(job, puts)
            row = rows.live_row(job, script, environment, self._request_text(job.request))
            puts.append(("live", (job.job_id,), row))
        if operation.accounted:
            puts.append(("job", (job.db_index,), rows.job_row(job)))
        return puts

    def _request_text(self, request: JobRequest) -> str:
        """Requests are replaced, never changed, and jobs share equal ones."""
        known = self._request_texts.get(id(request))
        if known is not None:
            return known[1]
        if len(self._request_texts) >= MOST_REQUESTS:
            self._request_texts.clear()
        text = rows.request_text(request)
        self._request_texts[id(request)] = (request, text)   # with the request, whose id is then nobody else's
        return text

    def _keep_texts(self, job: JobRecord, puts: list[Put]) -> tuple[str | None, str | None]:
        request = job.request
        known = self._texts.get(job.job_id)
        if known and known[0] is request.script and known[2] is request.environment:
            return known[1], known[3]
        script = None if request.script is None else self._keep(rows.script_bytes(request.script), puts)
        environment = self._keep(rows.environment_bytes(request.environment), puts) if request.environment else None
        self._texts[job.job_id] = (request.script, script, request.environment, environment)
        if known:
            self._release(known, puts)
        return script, environment

    def _keep(self, content: bytes, puts: list[Put]) -> str:
        name = sys.intern(rows.text_hash(content))     # one text for all jobs that have it
        if name not in self._uses:
            puts.append(("body", (name,), (name, content)))
        self._uses[name] = self._uses.get(name, 0) + 1
        return name

    def _release(self, known: tuple[Any, str | None, Any, str | None], puts: list[Put]) -> None:
        for name in (known[1], known[3]):
            if name:
                self._uses[name] -= 1
                if not self._uses[name]:
                    del self._uses[name]
                    puts.append(("body", (name,), None))

    def _forget_job(self, operation: ops.ForgetJob) -> list[Put]:
        puts: list[Put] = [("live", (operation.job_id,), None)]
        known = self._texts.pop(operation.job_id, None)
        if known:
            self._release(known, puts)
        return puts

    def _save_step(self, operation: ops.SaveStep) -> list[Put]:
        row = rows.step_row(operation.job.db_index, operation.step)
        return [("step", row[:2], row)]

    def _save_run(self, operation: ops.SaveRun) -> list[Put]:
        steps: list[Put] = [("step", row[:2], row) for row in operation.steps]
        return [("job", operation.job[:1], operation.job), *steps]

    def _save_suspension(self, operation: ops.SaveSuspension) -> list[Put]:
        key = (operation.db_index, int(operation.start_s))
        return [("suspension", key, (*key, whole(operation.end_s)))]

    def _save_event(self, operation: ops.SaveEvent) -> list[Put]:
        key = (clean(operation.node), int(operation.start_s))
        data = {"state": operation.state, "reason": operation.reason, "reason_uid": operation.reason_uid,
                "tres": dict(operation.tres), "nodes": operation.nodes}
        if operation.state_raw:
            data["state_raw"] = operation.state_raw
        return [("event", key, (*key, whole(operation.end_s), codec.dumps(data)))]

    def _drop_event(self, operation: ops.DropEvent) -> list[Put]:
        return [("event", (clean(operation.node), int(operation.start_s)), None)]

    def _save_reservation(self, operation: ops.SaveReservation) -> list[Put]:
        key = (operation.id, int(operation.start_s))
        data = {"flags": list(operation.flags), "nodes": operation.nodes, "tres": dict(operation.tres),
                "associations": list(operation.associations), "comment": operation.comment}
        return [("reservation", key, (*key, int(operation.end_s), clean(operation.name), codec.dumps(data)))]

    def _drop_reservation(self, operation: ops.DropReservation) -> list[Put]:
        return [("reservation", (operation.id, int(operation.start_s)), None)]

    def _save_rows(self, operation: ops.SaveRows) -> list[Put]:
        return [(operation.table, key, row) for key, row in operation.rows.items()]

    def _save_node(self, operation: ops.SaveNode) -> list[Put]:
        return [("node", (clean(operation.name),), rows.settings_row(operation.name, operation.settings))]

    def _save_partition(self, operation: ops.SavePartition) -> list[Put]:
        return [("partition", (clean(operation.name),), rows.settings_row(operation.name, operation.settings))]

    def _save_meta(self, operation: ops.SaveMeta) -> list[Put]:
        return [("meta", (operation.key,), (operation.key, clean(operation.value)))]

    def _save_usage(self, operation: ops.SaveUsage) -> list[Put]:
        puts: list[Put] = []
        for record in operation.associations:
            data = codec.dumps([record.usage_raw, record.usage_tres_raw, record.grp_used_wall_s])
            puts.append(("usage", ("association", record.id), ("association", record.id, data)))
        for qos in operation.qos:
            data = codec.dumps([qos.usage_raw, qos.usage_tres_raw, qos.grp_used_wall_s])
            puts.append(("usage", ("qos", qos.id), ("qos", qos.id, data)))
        return puts

    def _save_association(self, operation: ops.SaveAssociation) -> list[Put]:
        record = operation.association
        return [("association", (record.id,), (record.id, codec.encode(record, USAGE_FIELDS)))]

    def _drop_association(self, operation: ops.DropAssociation) -> list[Put]:
        return [("association", (operation.id,), None), ("usage", ("association", operation.id), None)]

    def _save_qos(self, operation: ops.SaveQos) -> list[Put]:
        return [("qos", (operation.qos.id,), (operation.qos.id, codec.encode(operation.qos, USAGE_FIELDS)))]

    def _drop_qos(self, operation: ops.DropQos) -> list[Put]:
        return [("qos", (operation.id,), None), ("usage", ("qos", operation.id), None)]

    def _drop_account(self, operation: ops.DropAccount) -> list[Put]:
        return [("account", (clean(operation.name),), None)]

    def _drop_user(self, operation: ops.DropUser) -> list[Put]:
        return [("directory_user", (clean(operation.name),), None)]

    def _save_account(self, operation: ops.SaveAccount) -> list[Put]:
        name = clean(operation.account.name)
        return [("account", (name,), (name, codec.encode(operation.account)))]

    def _save_user(self, operation: ops.SaveUser) -> list[Put]:
        name = clean(operation.user.name)
        return [("directory_user", (name,), (name, codec.encode(operation.user)))]

    def _save_tres(self, operation: ops.SaveTres) -> list[Put]:
        return [("tres", (operation.name,), (operation.name, operation.id))]

    def _save_wckey(self, operation: ops.SaveWckey) -> list[Put]:
        row = None if operation.wckey is None else (operation.id, codec.dumps(operation.wckey))
        return [("wckey", (operation.id,), row)]

    def _add_change(self, operation: ops.AddChange) -> list[Put]:
        number = self._next_change_id
        self._next_change_id += 1
        return [("change", (number,), (number, int(operation.time_s), operation.action, clean(operation.actor),
                                       clean(operation.where), clean(operation.info)))]


_HANDLERS: dict[type, Callable[[Putter, Any], list[Put]]] = {
    ops.SaveJob: Putter._save_job, ops.ForgetJob: Putter._forget_job, ops.SaveStep: Putter._save_step,
    ops.SaveRun: Putter._save_run,
    ops.SaveSuspension: Putter._save_suspension, ops.SaveEvent: Putter._save_event, ops.SaveNode: Putter._save_node,
    ops.SavePartition: Putter._save_partition, ops.SaveMeta: Putter._save_meta, ops.SaveUsage: Putter._save_usage,
    ops.SaveAssociation: Putter._save_association, ops.DropAssociation: Putter._drop_association,
    ops.SaveQos: Putter._save_qos, ops.SaveAccount: Putter._save_account, ops.SaveUser: Putter._save_user,
    ops.SaveTres: Putter._save_tres, ops.SaveWckey: Putter._save_wckey, ops.AddChange: Putter._add_change,
    ops.DropEvent: Putter._drop_event, ops.SaveReservation: Putter._save_reservation,
    ops.DropReservation: Putter._drop_reservation, ops.SaveRows: Putter._save_rows,
    ops.DropQos: Putter._drop_qos, ops.DropAccount: Putter._drop_account, ops.DropUser: Putter._drop_user,
}
