"""How a run's gang comes up: its objects, all pods, all bindings, all containers, their host names; or why it cannot.

Each step has its own time, and is left out where it has been taken already: by a controller that was killed.
"""
from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from slurmbridge.cluster.kubernetes import ends
from slurmbridge.cluster.kubernetes.api import ApiError
from slurmbridge.cluster.kubernetes.ends import End
from slurmbridge.cluster.kubernetes.fences import UID_LABEL
from slurmbridge.cluster.kubernetes.objects import Job
from slurmbridge.cluster.kubernetes.plugin import BindError, PodPlace
from slurmbridge.cluster.port import Event
from slurmbridge.translate import manifest

if TYPE_CHECKING:
    from slurmbridge.cluster.kubernetes.gang import Gang

RETRY_S = 0.25
HELD_BACK = "waits for the budget of writes to the API server"
END_ANNOTATION = f"{manifest.DOMAIN}/end"


class Failed(Exception):
    """The gang cannot start. Raised inside its task only."""

    def __init__(self, end: End) -> None:
        super().__init__(end.message)
        self.end = end


class Ended(Exception):
    """The run was ended before it had started."""


async def start(gang: Gang) -> None:
    """Objects, pods, bindings, addresses: each step is left out where it has been taken already."""
    engine, times, count = gang.engine, gang.engine.settings.timeouts, len(gang.nodes)
    if gang.objects is not None:
        if engine.fences is not None:
            try:
                await engine.fences.around(int(gang.objects[0]["metadata"]["labels"][UID_LABEL]))
            except ApiError as error:
                raise Failed(End("Refused", "", f"its user's NetworkPolicy: {error}")) from None
        if engine.budget.holds_back(2 + count):
            engine.put(Event("held_back", gang.run, time.time(), data={"message": HELD_BACK}))
        await engine.budget.take(2 + count)
        if gang.ended_by is not None:
            raise Ended
        await _create(gang, *gang.objects)
        gang.objects = None
    if gang.job is not None and END_ANNOTATION in gang.job.metadata.annotations:
        said = json.loads(gang.job.metadata.annotations[END_ANNOTATION])
        gang.end, gang.is_down = End(**said), True
        if not gang.started:
            raise Failed(gang.end)
        raise Ended
    if gang.started or any(ends.is_over(pod) for pod in gang.pods.values()):
        return                            # it runs, or it is over and its last words are read
    try:
        await gang.until(lambda: len(gang.pods) == count, times.created_s, lambda: End(
            "NotCreated", "", "the pods were not created"))
    except Failed as failure:
        if failure.end.reason != "NotCreated":
            raise
        message = await engine.why_not_created(gang.name)
        raise Failed(replace(failure.end, message=f"{failure.end.message}{message and ': '}{message}")) from None
    await _bind(gang)
    await gang.until(lambda: _all_run(gang), times.ready_s, lambda: ends.why_not_ready(gang.pods, gang.nodes),
                      times.image_s)
    await _publish(gang)


async def _bind(gang: Gang) -> None:
    """Every pod to its planned node. Raises Failed."""
    engine = gang.engine
    places = [PodPlace(pod.metadata.name, pod.metadata.uid, gang.nodes[index])
              for index, pod in sorted(gang.pods.items()) if not pod.spec.node_name]
    if places:
        try:
            async with asyncio.timeout(engine.settings.timeouts.bound_s):
                await engine.binder.bind(places)
        except BindError as error:
            raise Failed(End("NotBound", error.node, str(error))) from None
        except TimeoutError:
            raise Failed(End("NotBound", "", "the pods could not be bound in time")) from None
    for index, pod in gang.pods.items():
        if pod.spec.node_name and pod.spec.node_name != gang.nodes[index]:
            raise Failed(End("NotBound", "", f"{pod.metadata.name} was bound to {pod.spec.node_name} by another"))


async def _create(gang: Gang, job: dict[str, Any], secret: dict[str, Any]) -> None:
    """The Job, then the Secret that it owns: no pod is bound before both are there."""
    api, namespace = gang.engine.api, gang.engine.settings.namespace
    labels = job["metadata"]["labels"]

    def is_ours(text: bytes) -> bool:
        found = json.loads(text)["metadata"].get("labels", {})
        return all(found.get(key) == labels[key] for key in (engine_key, restart_key) if key in labels)

    engine_key, restart_key = f"{manifest.DOMAIN}/cluster", f"{manifest.DOMAIN}/restart"
    try:
        while True:
            try:
                made = await api.create(f"/apis/batch/v1/namespaces/{namespace}/jobs", job, is_ours)
                break
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise
                await _await_predecessor(gang, labels.get(engine_key, ""))
        gang.job, gang.job_known = gang.job or msgspec.json.decode(made, type=Job), True
        uid = gang.job.metadata.uid
        secret["metadata"]["ownerReferences"] = [manifest.owner(gang.run.job_id, uid)]
        await api.create(f"/api/v1/namespaces/{namespace}/secrets", secret, lambda text: uid.encode() in text)
    except ApiError as error:
        raise Failed(End("Refused", "", str(error))) from None


async def _await_predecessor(gang: Gang, cluster: str) -> None:
    """The Job of the run before this one goes away; somebody else's does not. Raises Failed."""
    found = gang.engine.jobs.items.get((gang.engine.settings.namespace, gang.name))
    if found is None or found.metadata.labels.get(f"{manifest.DOMAIN}/cluster", "") != cluster:
        raise Failed(End("Refused", "", f"a Job {gang.name} that is not ours is in the namespace"))
    if gang.ended_by is not None:
        raise Ended
    await asyncio.sleep(RETRY_S)


async def _publish(gang: Gang) -> None:
    """The pods' host names. Raises Failed."""
    job = gang.job
    if len(gang.nodes) == 1 or job is None:
        return                            # a pod knows itself
    engine, labels = gang.engine, job.metadata.labels
    slices = manifest.endpoint_slices(gang.run.job_id, gang.run.restart, [
        gang.pods[index].status.pod_ip for index in range(len(gang.nodes))], engine.site, job.metadata.uid, labels)
    path = f"/apis/discovery.k8s.io/v1/namespaces/{engine.settings.namespace}/endpointslices"
    try:
        for one in slices:
            await engine.api.create(path, one, lambda text: job.metadata.uid.encode() in text)
    except ApiError as error:
        raise Failed(End("Refused", "", str(error))) from None


def _all_run(gang: Gang) -> bool:
    return all(pod.status.phase == "Running" and pod.status.pod_ip for pod in gang.pods.values())
