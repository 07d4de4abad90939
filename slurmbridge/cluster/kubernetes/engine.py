"""The Kubernetes engine: nodes and gangs of one cluster, behind the same port as the others.

Nothing is kept in memory that is not in the cluster's objects or in the pods' journals: a controller that is killed and
started again finds its Jobs by their labels, follows what runs, and hears of what ended meanwhile.
"""
from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from slurmbridge.cluster.daemons import ask
from slurmbridge.cluster.kubernetes import health, inventory, orders
from slurmbridge.cluster.kubernetes.api import MERGE_PATCH, Api, ApiError
from slurmbridge.cluster.kubernetes.budget import PRESETS, Budget
from slurmbridge.cluster.kubernetes.credentials import Credentials
from slurmbridge.cluster.kubernetes.ends import is_over
from slurmbridge.cluster.kubernetes.fences import Fences
from slurmbridge.cluster.kubernetes.foreign import ForeignPods, use_of
from slurmbridge.cluster.kubernetes.gang import Gang
from slurmbridge.cluster.kubernetes.logs import Logs
from slurmbridge.cluster.kubernetes.objects import Event as ClusterEvent
from slurmbridge.cluster.kubernetes.objects import Job, ListOf, Node, Pod
from slurmbridge.cluster.kubernetes.plugin import Binder, load_binder
from slurmbridge.cluster.kubernetes.probe import can_mount_images
from slurmbridge.cluster.kubernetes.reflector import Reflector
from slurmbridge.cluster.kubernetes.settings import KubernetesSettings
from slurmbridge.cluster.port import Event, LaunchOrder, RunId
from slurmbridge.runtime import addresses, frames
from slurmbridge.slurm import states
from slurmbridge.slurm.settings import NodeLine
from slurmbridge.translate import manifest
from slurmbridge.views.records import JobRecord, NodeRecord

log = logging.getLogger(__name__)
CLUSTER_LABEL, JOB_LABEL, RESTART_LABEL = (f"{manifest.DOMAIN}/{name}" for name in ("cluster", "job-id", "restart"))
INDEX = "batch.kubernetes.io/job-completion-index"


class KubernetesEngine:
    """``open`` first, then ``recover``. ``cluster_name``: slurm.conf's; it tells our objects from another site's."""

    name = "kubernetes"
    suspended_frees_cores = False     # its pods keep their requests

    def __init__(self, settings: KubernetesSettings, cluster_name: str, *, kill_wait_s: int = 30,
                 clock: Callable[[], float] = time.time, controller_url: str = "", controller_ca: str = "",
                 state: Path | None = None) -> None:
        """``controller_url``, ``controller_ca`` (PEM): how commands inside jobs reach the controller by HTTPS.
        ``state``: the controller's folder, where output without a file of its own is kept."""
        self.settings = settings
        self.controller_url, self.controller_ca = controller_url, controller_ca
        self._state = state
        self._cluster = cluster_name if manifest.is_label_value(cluster_name) else "slurmbridge"
        self._kill_wait_s = kill_wait_s
        self._now = clock
        self.budget = Budget(settings.writes_per_s or PRESETS[settings.budget])
        self._gangs: dict[RunId, Gang] = {}
        self._found: dict[str, inventory.Found] = {}
        self._told: dict[str, tuple[Any, ...]] = {}
        self._records: dict[str, NodeRecord] = {}
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.site = manifest.Site()
        self._foreign = ForeignPods(self._foreign_changed)
        self._ours: dict[str, Pod] = {}       # pods of this site's, by name
        self._words: dict[str, str] = {}                      # what each is doing (health.pod_word)
        self._on_node: dict[str, dict[str, Pod]] = {}         # the same by the node that they are bound to
        self._is_listening = False

    # ---- start and recovery -----------------------------------------------------------------------------------------

    async def open(self) -> None:
        """The cluster is read: nodes, Jobs, pods. Raises CredentialError, ApiError, LookupError."""
        settings = self.settings
        self.api = Api(Credentials(settings), on_pause=self.budget.slow_down)
        self.binder: Binder = load_binder(settings.scheduler, self.api, settings.namespace)
        self.logs = Logs(self.api, settings.namespace, self._state / "logs" if self._state else None)
        self.fences = Fences(self.api, settings.namespace) if settings.user_network_policies else None
        await self._make_room()
        can_mount = settings.runtime_delivery == "auto" and await can_mount_images(self.api, settings)
        self.site = orders.base_site(settings, self._cluster, self.binder.scheduler_name, self._kill_wait_s,
                                     mounts_images=can_mount)
        selector = ",".join(f"{key}={value}" for key, value in settings.node_selector.items())
        ours = {"labelSelector": f"{CLUSTER_LABEL}={self._cluster}"}
        space = f"namespaces/{settings.namespace}"
        self.nodes = Reflector(self.api, "/api/v1/nodes", Node, self._node_changed,
                               query={"labelSelector": selector} if selector else None)
        self.jobs = Reflector(self.api, f"/apis/batch/v1/{space}/jobs", Job, self._job_changed, query=ours)
        self.pods = Reflector(self.api, "/api/v1/pods", Pod, self._pod_changed)     # one watch for ours and all others
        for reflector in (self.nodes, self.jobs, self.pods):
            await reflector.list_all()
            self._spawn(reflector.run())

    async def _make_room(self) -> None:
        """Namespace and headless Service, where they are not there yet."""
        settings = self.settings
        space = f"/api/v1/namespaces/{settings.namespace}"
        wanted = manifest.service(manifest.Site(namespace=settings.namespace, service=settings.service))
        for path, parent, body in (
                (space, "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {
                    "name": settings.namespace, "labels": dict(manifest.MANAGED)}}),
                (f"{space}/services/{settings.service}", f"{space}/services", wanted)):
            try:
                await self.api.request("GET", path)
            except ApiError as error:
                if error.code != 404:
                    raise
                await self.api.create(parent, body, lambda text: True)

    def configure(self, settings: KubernetesSettings) -> None:
        """Holds for what is launched from now on."""
        self.settings = settings

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)
        return task

    def _task_ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a task of the engine failed", exc_info=task.exception())

    async def recover(self, runs: Sequence[JobRecord]) -> None:
        """Adopts the Jobs of these runs, deletes all others of this cluster's."""
        self._is_listening = True
        wanted = {RunId(job.job_id, job.restarts): job for job in runs}
        there = {run: job for job in self.jobs.items.values() if (run := run_of(job)) is not None}
        for run, found in there.items():
            if run in wanted:
                await self._adopt(wanted[run], found)
            else:
                self._spawn(self._delete(run, found))
        for run, record in wanted.items():
            if run in there:
                continue
            if states.CONFIGURING in record.flags:
                self.put(_not_started(run))
            else:
                self.put(Event("finished", run, self._now(), exit_status=9, data={
                    "reason": "Cancelled", "message": "its Job was deleted"}))
        for name in list(self._found):
            self._tell_node(name)

    async def _adopt(self, record: JobRecord, found: Job) -> None:
        run = RunId(record.job_id, record.restarts)
        if not await self._has_order(run):    # killed between Job and Secret: nothing can have been bound
            await self._delete(run, found)
            self.put(_not_started(run))
            return
        gang = Gang(self, run, tuple(share.node for share in record.allocation), record.credential, job=found,
                    job_known=True, started=states.CONFIGURING not in record.flags)
        for pod in self._ours.values():
            if run_of(pod) == run and (index := index_of(pod)) is not None:
                gang.see_pod(index, pod)
        self._begin(gang)

    async def _has_order(self, run: RunId) -> bool:
        name = f"{manifest.object_name(run.job_id)}-{run.restart}"
        try:
            await self.api.request("GET", f"/api/v1/namespaces/{self.settings.namespace}/secrets/{name}")
        except ApiError as error:
            if error.code == 404:
                return False
            raise
        return True

    # ---- nodes ------------------------------------------------------------------------------------------------------

    def node_lines(self) -> dict[str, NodeLine]:
        """The nodes as slurm.conf would have them."""
        return {name: found.line for name, found in self._found.items()}

    def topology(self) -> dict[str, tuple[str, ...]]:
        """Zone, block, rack … of each node, as the settings name them."""
        return {node.metadata.name: inventory.topology_key(node, self.settings.topology)
                for node in self.nodes.items.values()}

    async def inventory(self) -> Sequence[NodeRecord]:
        records = []
        for name, found in self._found.items():
            line = found.line
            record = NodeRecord(name, line.cpus, real_memory_mb=line.real_memory_mb, features=line.features,
                                gres=dict(line.gres), base_state="IDLE" if found.is_ready else "DOWN")
            for field, value in found.facts.items():
                setattr(record, field, value)
            records.append(record)
        self._records = {record.name: record for record in records}
        return records

    def node_answers(self, name: str) -> bool:
        """Whether the node's kubelet is there to say what runs. A pod without a node runs nowhere."""
        return not name or (name in self._found and self._found[name].is_ready)

    def _node_changed(self, before: Node | None, node: Node | None) -> None:
        if node is None:
            assert before is not None
            self._found.pop(before.metadata.name, None)
            name = before.metadata.name
        else:
            found = inventory.read_node(node, self.settings.gres)
            name = found.line.name
            self._found[name] = found
        if self._is_listening:
            self._tell_node(name)
            for gang in self._gangs.values():
                if name in gang.nodes:
                    gang.changed.set()

    def _tell_node(self, name: str) -> None:
        """What changed of a node that the controller has to know, once."""
        found = self._found.get(name)
        if found is None:
            data: dict[str, Any] = {"health": None}
        else:
            data = {**found.facts, "line": found.line, "foreign": self._foreign_use(name, found),
                    "health": self._health(name, found)}
        told = tuple(sorted((key, str(value)) for key, value in data.items()))
        if self._told.get(name) != told:
            self._told[name] = told
            self.put(Event("node", None, self._now(), data={"name": name, **data}))

    def _is_ours(self, pod: Pod) -> bool:
        return pod.metadata.namespace == self.settings.namespace and (
            pod.metadata.labels.get(CLUSTER_LABEL) == self._cluster)

    def _foreign_changed(self, name: str) -> None:
        if self._is_listening and name in self._found:
            self._tell_node(name)

    def _foreign_use(self, name: str, found: inventory.Found) -> dict[str, Any]:
        node = self.nodes.items[("", name)]
        return use_of(self._foreign.on(name), node.status.allocatable, found.resources)

    def _health(self, name: str, found: inventory.Found) -> dict[str, Any]:
        """Of our pods only those are told that do not get on."""
        pods, leftovers = {}, False
        for pod in self._on_node.get(name, {}).values():
            run = run_of(pod)
            gang = self._gangs.get(run) if run is not None else None
            if run is not None and (gang is None or gang.is_over):
                leftovers = leftovers or not is_over(pod)
            elif run is not None and health.is_worth_telling(word := self._words[pod.metadata.name]):
                pods[run.job_id] = word
        return health.seen(self.nodes.items["", name], pods, leftovers, found.capacity, found.allocatable,
                           self.settings.defaults.pod.get("tolerations", ()))

    # ---- pods and Jobs ----------------------------------------------------------------------------------------------

    def _job_changed(self, before: Job | None, job: Job | None) -> None:
        gang = self._gangs.get(run_of(job or before))  # type: ignore[arg-type]
        if gang is None:
            return
        if job is not None or (before is not None and gang.job is not None
                               and gang.job.metadata.uid == before.metadata.uid):
            gang.see_job(job)

    def _pod_changed(self, before: Pod | None, pod: Pod | None) -> None:
        one = pod or before
        assert one is not None
        if not self._is_ours(one):
            self._foreign.see(before, pod)
            return
        name = one.metadata.name
        before_word = self._words.get(name, "")
        self._words[name] = word = health.pod_word(one, before_word)
        self._ours[name] = one
        on_node = self._on_node.setdefault(one.spec.node_name, {}) if one.spec.node_name else {}
        on_node[name] = one
        if pod is None:
            del self._ours[name], on_node[name], self._words[name]
        index, run = index_of(one), run_of(one)
        if run is None or index is None:
            return
        gang = self._gangs.get(run)
        if gang is not None:
            gang.see_pod(index, pod, before)
        is_over = gang is None or gang.is_over
        if one.spec.node_name in self._found and self._is_listening and (
                is_over or (word != before_word and health.is_worth_telling(word, before_word))):
            self._tell_node(one.spec.node_name)

    def stale_s(self) -> float:
        """How old what is known of the cluster may be."""
        return max(one.stale_s() for one in (self.nodes, self.jobs, self.pods))

    def put(self, event: Event) -> None:
        self._events.put_nowait(event)

    async def events(self) -> AsyncIterator[Event]:
        while True:
            yield await self._events.get()

    async def acknowledge(self, run: RunId, sequence: int) -> None:
        gang = self._gangs.get(run)
        if gang is None:
            return
        gang.acknowledge(sequence)
        if gang.is_over and sequence >= gang.sequence:
            del self._gangs[run]
            if gang.job is not None:
                self._spawn(self._clear_away(gang, gang.job))

    async def _clear_away(self, gang: Gang, job: Job) -> None:
        pod = gang.last.get(0)
        if gang.is_in_log and pod is not None:
            await self.logs.keep(gang.run, pod.metadata.name)
        await self._delete(gang.run, job)

    def output(self, run: RunId, follow: bool) -> AsyncIterator[bytes]:
        """Of the batch script, from its pod or as it was kept. Raises LookupError (it went to a file) or OSError."""
        gang = self._gangs.get(run)
        pod = gang.last.get(0) if gang is not None else None
        return self.logs.read(run, pod.metadata.name if pod is not None else "", follow)

    async def _delete(self, run: RunId, job: Job) -> None:
        """The Job with all it owns, once its end is written down; tried until it works."""
        path = f"/apis/batch/v1/namespaces/{self.settings.namespace}/jobs/{manifest.object_name(run.job_id)}"
        body = {"propagationPolicy": "Background", "preconditions": {"uid": job.metadata.uid}}
        while True:
            try:
                await self.api.request("DELETE", path, body)
                return
            except ApiError as error:
                if error.code == 404 or (error.is_conflict and await self._is_another(path, job)):
                    return
                if not (error.is_transient or error.is_conflict):
                    log.error("Job of %s: %s", run, error)
                    return

    async def _is_another(self, path: str, job: Job) -> bool:
        """Whether the object of this name is not the one that was meant."""
        try:
            found = msgspec.json.decode(await self.api.request("GET", path), type=Job)
        except ApiError as error:
            return error.code == 404
        return found.metadata.uid != job.metadata.uid

    async def why_not_created(self, job: str) -> str:
        """What the cluster says of a Job whose pods do not come: a quota, a policy, a webhook."""
        query = {"fieldSelector": f"involvedObject.kind=Job,involvedObject.name={job},reason=FailedCreate"}
        try:
            found = await self.api.request("GET", f"/api/v1/namespaces/{self.settings.namespace}/events", query=query)
        except ApiError:
            return ""
        events = msgspec.json.decode(found, type=ListOf[ClusterEvent]).items
        return " ".join(events[-1].message.split())[:300] if events else ""

    # ---- orders -----------------------------------------------------------------------------------------------------

    async def launch(self, order: LaunchOrder) -> None:
        if order.run in self._gangs:
            return
        groups = await asyncio.to_thread(_groups, order.job.user_name, order.job.gid)
        if order.run in self._gangs:
            return
        resources = dict(self.site.gres_resources)
        for found in self._found.values():
            resources |= found.resources
        site = replace(orders.site_of(self.settings, order.job, self.site, groups),
                                 gres_resources=resources, kill_wait_s=int(order.kill_wait_s))
        url = self.settings.controller_url or self.controller_url
        try:
            made = orders.pod_order(replace(order, controller_url=url), self._records, bool(self.controller_ca))
            objects = orders.objects(order, made, site, self.settings.mount_roots, self.controller_ca)
        except ValueError as error:
            self.put(Event("launch_failed", order.run, self._now(), data={
                "node": "", "reason": "LaunchFailed", "message": str(error)}))
            return
        self._begin(Gang(self, order.run, tuple(share.node for share in order.job.allocation), order.credential,
                         objects))

    def _begin(self, gang: Gang) -> None:
        self._gangs[gang.run] = gang
        gang.task = self._spawn(gang.live())

    async def step_address(self, run: RunId) -> str:
        """Raises ConnectionError where no pod of the run has an address yet."""
        gang = self._gangs.get(run)
        address = gang.head_address if gang is not None else None
        if address is None:
            raise ConnectionError("the job's first pod has no address")
        return address

    async def ask_at(self, address: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """One order on a connection of its own. Raises OSError."""
        reader, writer = await addresses.connect(address)
        try:
            await frames.send(writer, frames.encode_json(b"K", dict(request)))
            answer = await frames.read_frame(reader)
        finally:
            writer.close()
        if answer is None:
            raise ConnectionResetError("no answer")
        return frames.decode_json(answer[1])

    async def _order(self, run: RunId, op: str, **fields: Any) -> dict[str, Any] | None:
        gang = self._gangs.get(run)
        address = gang.head_address if gang is not None else None
        if gang is None or address is None:
            return None
        return await ask(address, gang.credential, op, **fields)

    async def signal(self, run: RunId, signal: int, *, steps: bool = True, batch: bool = False,
                     step_id: str | None = None, quiet: bool = False) -> None:
        await self._order(run, "signal", signal=signal, steps=steps, batch=batch, step=step_id, quiet=quiet)

    async def terminate(self, run: RunId, *, cause: str, grace_s: float, signal_first: int | None = None,
                        uid: int = 0) -> None:
        gang = self._gangs.get(run)
        if gang is None:
            self.put(Event("finished", run, self._now(), data={"reason": "NotStarted"}))
            return
        if gang.started:
            answer = await self._order(run, "terminate", cause=cause, grace_s=grace_s, signal_first=signal_first,
                                       uid=uid)
            if answer is not None or gang.is_over:
                return
        await gang.end_now(cause)

    async def suspend(self, run: RunId) -> None:
        await self._order(run, "suspend")

    async def resume(self, run: RunId) -> None:
        await self._order(run, "resume")

    async def look(self, run: RunId) -> Mapping[str, Mapping[str, Any]]:
        gang = self._gangs.get(run)
        answer = await self._order(run, "look")
        steps: Mapping[str, Mapping[str, Any]] = (answer or {}).get("steps") or {}
        return gang.in_real_names(steps) if gang is not None else steps

    async def notify(self, run: RunId, text: str) -> None:
        await self._order(run, "notify", text=text)

    async def update(self, run: RunId, *, end_by_s: float | None) -> None:
        """The step daemon's time limit, and the Job's deadline behind it. Raises ApiError: the old deadline stands."""
        gang = self._gangs.get(run)
        await self._order(run, "update", end_by_s=end_by_s)
        if gang is None or gang.job is None:
            return
        seconds = None if end_by_s is None else max(
            1, int(end_by_s - self._now()) + self._kill_wait_s + self.site.deadline_slack_s + gang.age_s(self._now()))
        path = f"/apis/batch/v1/namespaces/{self.settings.namespace}/jobs/{gang.name}"
        await self.api.request("PATCH", path, {"spec": {"activeDeadlineSeconds": seconds}}, content=MERGE_PATCH)

    # ---- the end ----------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.api.close()

    async def shutdown(self) -> None:
        """Every Job of this cluster's goes with its pods."""
        gangs = list(self._gangs.values())
        await asyncio.gather(*(self.terminate(gang.run, cause="SHUTDOWN", grace_s=0) for gang in gangs))
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and not all(gang.is_over for gang in gangs):
            for gang in gangs:
                gang.acknowledge(gang.sequence)
            await asyncio.sleep(0.05)
        await asyncio.gather(*(self._delete(run, job) for job in self.jobs.items.values()
                               if (run := run_of(job)) is not None))
        await self.close()


def run_of(item: Job | Pod) -> RunId | None:
    """From the labels of a Job or pod of ours."""
    labels = item.metadata.labels
    try:
        return RunId(int(labels[JOB_LABEL]), int(labels[RESTART_LABEL]))
    except (KeyError, ValueError):
        return None


def index_of(pod: Pod) -> int | None:
    text = pod.metadata.annotations.get(INDEX) or pod.metadata.labels.get(INDEX) or ""
    return int(text) if text.isdigit() else None


def _groups(user_name: str, gid: int) -> list[int]:
    """All groups of the submitter but the first."""
    with contextlib.suppress(KeyError, OSError):
        return [group for group in os.getgrouplist(user_name, gid) if group != gid]
    return []


def _not_started(run: RunId) -> Event:
    return Event("launch_failed", run, time.time(), data={
        "node": "", "reason": "NotStarted", "message": "the run was never started"})
