"""One run of a job on the cluster, from its objects to its end: one task that follows what is true, step by step.

All pods of the gang exist -> all are bound, by index, to the planned nodes -> all run -> the first pod's step daemon is
told their addresses and starts the batch script. Each step has its own time; one that fails takes the whole gang down.
An end is told only when no container of the gang is left.
"""
from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from slurmbridge.cluster.kubernetes import ends
from slurmbridge.cluster.kubernetes.api import MERGE_PATCH, ApiError
from slurmbridge.cluster.kubernetes.ends import End
from slurmbridge.cluster.kubernetes.objects import Job, Pod
from slurmbridge.cluster.kubernetes.orders import hosts
from slurmbridge.cluster.kubernetes.starting import END_ANNOTATION, RETRY_S, Ended, Failed, start
from slurmbridge.cluster.port import Event, RunId
from slurmbridge.runtime import addresses, essentials, frames
from slurmbridge.runtime.pod import PORT
from slurmbridge.translate import manifest

if TYPE_CHECKING:
    from slurmbridge.cluster.kubernetes.engine import KubernetesEngine

log = logging.getLogger(__name__)
LAST_WORDS_S = 10.0
"""How long the pods of a run whose records are complete may take to end by themselves."""
_NO_MORE_PODS = frozenset({"Suspended", "SuccessCriteriaMet", "FailureTarget", "Complete", "Failed"})
"""Conditions of a Job of which the cluster makes no further pod."""
NOT_TOLD = frozenset({"launched", "daemon", "note"})
REASONS = {"TIME LIMIT": "TimeLimit", "NODE FAILURE": "NodeFail", "PREEMPTION": "Preempted", "JOB REQUEUE": "Requeued",
           "CANCELLED": "Cancelled", "SHUTDOWN": "Shutdown", "DEADLINE": "DeadLine"}


@dataclass(slots=True)
class Gang:
    """``nodes``: the real names, by index. ``objects``: (Job, Secret) of a run that is to be started."""

    engine: KubernetesEngine
    run: RunId
    nodes: tuple[str, ...]
    credential: str
    objects: tuple[dict[str, Any], dict[str, Any]] | None = None
    pods: dict[int, Pod] = field(default_factory=dict)         # as they are
    last: dict[int, Pod] = field(default_factory=dict)         # as they were seen last
    job: Job | None = None
    job_known: bool = False                   # it was there once
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    sequence: int = 0                         # of what was told last
    acknowledged: int = 0
    finished: dict[str, Any] | None = None    # the journal's last entry, with its sequence
    finished_sequence: int = 0
    started: bool = False
    ended_by: str | None = None               # cause of a termination that came before the start
    end: End | None = None                    # why it was taken down
    is_over: bool = False                     # its end was told
    is_in_log: bool = False                   # its script's output is in the first pod's log
    is_down: bool = False                     # its pods are being deleted
    task: asyncio.Task[None] | None = None
    _writer: asyncio.StreamWriter | None = None

    @property
    def name(self) -> str:
        return manifest.object_name(self.run.job_id)

    @property
    def head_address(self) -> str | None:
        pod = self.pods.get(0)
        return f"tcp://{pod.status.pod_ip}:{PORT}" if pod is not None and pod.status.pod_ip else None

    # ---- what the reflectors see ------------------------------------------------------------------------------------

    def see_pod(self, index: int, pod: Pod | None, was: Pod | None = None) -> None:
        known = self.pods.get(index)
        if pod is None:
            if known is not None and was is not None and known.metadata.uid == was.metadata.uid:
                del self.pods[index]
                self.last[index] = was
        elif known is None or known.metadata.uid == pod.metadata.uid or known.status.phase in ends.TERMINAL:
            self.pods[index] = self.last[index] = pod
        self.changed.set()

    def see_job(self, job: Job | None) -> None:
        self.job = job
        self.job_known = self.job_known or job is not None
        self.changed.set()

    # ---- life -------------------------------------------------------------------------------------------------------

    async def live(self) -> None:
        """Until the end is told."""
        try:
            with contextlib.suppress(Ended):
                await start(self)
                await self._accompany()
            await self._until_gone()
            self._tell_finished()
        except Failed as failure:
            await self._fail(failure.end)
        except Exception as error:            # a mistake of ours must not leave half a gang behind
            log.exception("job %d", self.run.job_id)
            await self._fail(End("EngineError", "", f"{type(error).__name__}: {error}"))

    async def _fail(self, end: End) -> None:
        log.warning("job %d: %s: %s", self.run.job_id, end.reason, end.message)
        self.end = end
        await self._until_gone()
        self._tell("launch_failed", {"node": end.node, "reason": end.reason, "message": end.message})
        self.is_over = True

    async def until(self, ready: Callable[[], bool], limit_s: float, late: Callable[[], End],
                     hopeless_s: float | None = None) -> None:
        """Waits until something is true of the pods; after ``hopeless_s`` not for what no time will mend.

        Raises Failed (too late, or impossible by now) or Ended.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        while True:
            self.changed.clear()
            self._check()
            if ready():
                return
            waited = loop.time() - began
            if hopeless_s is not None and waited >= hopeless_s and late().is_permanent:
                raise Failed(late())
            if waited >= limit_s:
                raise Failed(late())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.changed.wait(), min(1.0, limit_s - waited))

    def _check(self) -> None:
        if self.ended_by is not None:
            raise Ended
        gone = self.last.keys() - self.pods.keys()
        if gone or (self.job_known and self.job is None) or any(
                ends.is_over(pod) or pod.metadata.deletion_timestamp for pod in self.pods.values()):
            end = ends.end_of(self.job if self.job_known else Job(), self.last, set(gone), self.nodes)
            raise Failed(End("LaunchFailed" if end.reason == "Cancelled" else end.reason, end.node, end.message))

    # ---- while it runs ----------------------------------------------------------------------------------------------

    async def _accompany(self) -> None:
        """Follows the first pod's journal to its last entry, or until there is nobody left to follow."""
        while self.finished is None:
            if self._head_is_gone():
                self._read_last_words()
                return
            if not self.started:
                self._check()
            address = self.head_address
            if address is not None:
                with contextlib.suppress(OSError, TimeoutError):
                    await self._follow(address)
            if self.finished is None:
                with contextlib.suppress(TimeoutError):
                    self.changed.clear()
                    await asyncio.wait_for(self.changed.wait(), RETRY_S)

    def _head_is_gone(self) -> bool:
        head = self.pods.get(0)
        return head is None or ends.is_over(head)

    async def _follow(self, address: str) -> None:
        """Raises OSError when the connection cannot be had or breaks."""
        async with asyncio.timeout(10):
            reader, writer = await addresses.connect(address)
        try:
            async with asyncio.timeout(30):
                gang = {"credential": self.credential, "op": "gang", "addresses": [
                    f"tcp://{self.pods[index].status.pod_ip}:{PORT}" for index in range(len(self.nodes))
                    if index in self.pods]}
                if len(gang["addresses"]) == len(self.nodes):
                    await self.engine.ask_at(address, gang)
                follow = {"credential": self.credential, "op": "follow", "after": self.sequence}
                await frames.send(writer, frames.encode_json(b"K", follow))
            self._writer = writer
            watching = asyncio.create_task(self._watch_head(writer))
            try:
                while self.finished is None and (frame := await frames.read_frame(reader)) is not None:
                    said = frames.decode_json(frame[1])
                    if "entry" in said:
                        self._take(int(said["sequence"]), said["entry"])
                self._release()
                while self.finished is not None and await frames.read_frame(reader) is not None:
                    continue
            finally:
                watching.cancel()
        finally:
            self._writer = None
            writer.close()

    async def _watch_head(self, writer: asyncio.StreamWriter) -> None:
        """A head that is gone without a word (its node with it) leaves a connection that says nothing."""
        while True:
            self.changed.clear()
            if self._head_is_gone() or (self.ended_by is not None and not self.started) or self.is_down:
                writer.close()
                return
            await self.changed.wait()

    def _take(self, sequence: int, entry: dict[str, Any]) -> None:
        if sequence <= self.sequence:
            return
        kind = entry["kind"]
        if kind in ("finished", "launch_failed"):
            self.finished, self.finished_sequence = entry, sequence
            return
        if kind in NOT_TOLD:
            self.is_in_log = self.is_in_log or bool(entry.get("in_log"))
            return
        data = self.in_real_names({name: value for name, value in entry.items() if name != "kind"})
        if kind == "started":
            self.started = True
        if kind == "script_ended" and data.get("reason") == "StepDaemonLost":
            data |= self._better_reason(str(data.get("node") or ""))
        self._tell(kind, data, sequence)

    def _better_reason(self, node: str) -> dict[str, Any]:
        """Why a step daemon had to go, where the cluster knows."""
        end = self._why()
        return {"reason": end.reason, "node": end.node or node}

    def _why(self) -> End:
        gone = set(range(len(self.nodes))) - self.pods.keys()
        return self.end or ends.end_of(self.job if self.job_known else Job(), self.last, gone, self.nodes)

    def in_real_names(self, value: Any) -> Any:
        """What step daemons say, with nodes for pods."""
        names = dict(zip(hosts(self.run.job_id, len(self.nodes)), self.nodes))
        return renamed(value, names)

    def _tell(self, kind: str, data: Mapping[str, Any], sequence: int | None = None) -> None:
        plain = dict(data)
        self.sequence = self.sequence + 1 if sequence is None else sequence
        self.engine.put(Event(kind, self.run, float(plain.pop("at_s", 0.0) or time.time()),
                              step_id=str(plain.pop("step_id", "")), exit_status=int(plain.pop("exit_status", 0)),
                              data=plain, sequence=self.sequence))

    async def end_now(self, cause: str) -> None:
        """Ends what has not started, or does not answer."""
        self.ended_by = self.ended_by or cause
        self.changed.set()
        if self.started and not self.is_over:
            await self._take_down(End(REASONS.get(cause, "Cancelled"), message="its step daemon does not answer"))

    def age_s(self, now_s: float) -> int:
        """Since its Job was made."""
        text = self.job.metadata.creation_timestamp if self.job is not None else None
        return int(now_s - datetime.fromisoformat(text).timestamp()) if text else 0

    def acknowledge(self, sequence: int) -> None:
        self.acknowledged = max(self.acknowledged, sequence)
        self._release()

    def _release(self) -> None:
        """The first pod may go: all that it had to say is written down."""
        if self.finished is not None and self._writer is not None and self.acknowledged >= self.sequence:
            with contextlib.suppress(OSError):
                self._writer.write(frames.encode_json(b"K", {"acknowledge": self.finished_sequence}))

    # ---- the end ----------------------------------------------------------------------------------------------------

    def _read_last_words(self) -> None:
        head = self.last.get(0)
        ended = ends.termination(head) if head is not None else None
        for sequence, entry in essentials.unpack(ended.message) if ended is not None else ():
            self._take(sequence, entry)

    async def _until_gone(self) -> None:
        """No container of the gang is left. What does not end by itself is taken down."""
        loop = asyncio.get_running_loop()
        patience = loop.time() + (LAST_WORDS_S if self.finished is not None and self.end is None else 0.0)
        while True:
            self.changed.clear()
            if self._is_quiet():
                return
            if not self.is_down and loop.time() >= patience:
                await self._take_down(self._why())
                continue
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.changed.wait(), 1.0 if self.is_down else max(
                    0.01, patience - loop.time()))

    def _is_quiet(self) -> bool:
        """No pod runs, and none can come: the first pod's records are complete, or the Job makes no more."""
        if self._left():
            return False
        if self.finished is not None or not self.job_known or self.job is None:
            return True
        return any(one.status == "True" and one.type in _NO_MORE_PODS
                   for one in self.job.status.conditions)

    def _left(self) -> list[Pod]:
        """Pods that may still run something. On a node that is away nobody can say; it takes no other job meanwhile."""
        return [pod for pod in self.pods.values()
                if not ends.is_over(pod) and self.engine.node_answers(pod.spec.node_name)
                and not (not pod.spec.node_name and self.job is None)]

    async def _take_down(self, end: End) -> None:
        """All pods are deleted, the Job stays and says why. One write; safe to repeat."""
        self.end, self.is_down = self.end or end, True
        self.changed.set()
        if self.job is None:
            return                            # never made, or gone with everything it owned
        text = json.dumps({"reason": end.reason, "node": end.node, "message": end.message,
                           "exit_status": end.exit_status})
        body = {"metadata": {"annotations": {END_ANNOTATION: text}}, "spec": {"suspend": True}}
        path = f"/apis/batch/v1/namespaces/{self.engine.settings.namespace}/jobs/{self.name}"
        while True:
            try:
                await self.engine.api.request("PATCH", path, body, content=MERGE_PATCH, conflicts=True)
                return
            except ApiError as error:
                if error.code == 404:
                    return
                if not (error.is_transient or error.is_conflict):
                    log.error("job %d cannot be taken down: %s", self.run.job_id, error)
                    return
                log.warning("job %d is taken down later: %s", self.run.job_id, error)

    def _tell_finished(self) -> None:
        told = self.finished
        if told is not None and told["kind"] == "launch_failed":
            node = self.in_real_names(str(told.get("node") or ""))
            self._tell("launch_failed", {"node": node, "reason": told.get("reason"), "message": told.get("message")})
        elif told is not None:
            data = self.in_real_names({name: value for name, value in told.items() if name != "kind"})
            if data.get("reason") == "StepDaemonLost":
                data |= self._better_reason(str(data.get("node") or ""))
            self._tell("finished", data, max(self.finished_sequence, self.sequence + 1))
        elif self.ended_by is not None:
            self._tell("finished", {"reason": REASONS.get(self.ended_by, ""), "exit_status": 15})
        else:
            end = self._why()
            if self.started or end.reason in ("OutOfMemory", "TimeLimit"):
                self._tell("finished", {"reason": end.reason, "node": end.node, "message": end.message,
                                        "exit_status": end.exit_status})
            else:
                self._tell("launch_failed", {"node": end.node, "reason": end.reason, "message": end.message})
        self.is_over = True


def renamed(value: Any, names: Mapping[str, str]) -> Any:
    """Every word in it that is a pod's name replaced by its node's."""
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, Mapping):
        return {names.get(key, key): renamed(item, names) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [renamed(item, names) for item in value]
    return value
