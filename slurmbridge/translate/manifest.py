"""The Kubernetes objects that a job becomes: one Indexed Job with a pod a node, a shared headless Service, a Secret.

Nothing that a user wrote becomes part of an object's name or of a label's value unless it is plain; free text goes to
annotations.
"""
from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slurmbridge.slurm import tres
from slurmbridge.slurm.jobspec import JobRequest
from slurmbridge.translate import containers

DOMAIN = "slurmbridge.io"
MANAGED = {"app.kubernetes.io/managed-by": "slurmbridge"}
RUNTIME = "/slurmbridge"
"""Where a job's pod has the runtime (images/bundle.py)."""
SPOOL = "/var/spool/slurmbridge"
ORDER_KEY, CA_KEY = "order", "ca.crt"
"""Keys of a run's Secret."""
SECRETS = "/run/slurmbridge"
"""Where a job's pod has them."""
MAX_ENDPOINTS = 1000
"""Of one EndpointSlice, as the API server allows."""
_MAX_ANNOTATION = 8192
_LABEL_EXTRA = frozenset("-_.")


@dataclass(frozen=True, slots=True)
class NodeShare:
    """What a job has on one node. ``gres``: "gpu" or "gpu:a100" -> count."""

    node: str
    cpus: int
    memory_mb: int
    gres: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Site:
    """What the cluster's administrator decides about job objects."""

    namespace: str = "slurm"
    image: str = "ubuntu:24.04"
    runtime_image: str = "slurmbridge-runtime:latest"
    runtime_delivery: str = "image"           # image: a volume of it; init: copied by an init container
    cluster: str = ""                         # ClusterName: tells sites of one namespace apart
    cluster_domain: str = "cluster.local"
    service: str = "slurm"
    scheduler: str = "slurmbridge"
    gres_resources: Mapping[str, str] = field(default_factory=lambda: {"gpu": "nvidia.com/gpu"})
    shm_mb: int | None = None                 # None: half of the pod's memory
    kill_wait_s: int = 30
    deadline_slack_s: int = 300               # Kubernetes steps in this long after the step daemon should have
    groups: tuple[int, ...] = ()
    pod_patch: Mapping[str, Any] = field(default_factory=dict)
    container_patch: Mapping[str, Any] = field(default_factory=dict)


def object_name(job_id: int) -> str:
    """Name of a job's Job; its pods have the host names ``slurm-<id>-<n>``."""
    return f"slurm-{job_id}"


def implied_shares(request: JobRequest, default_memory_per_cpu_mb: int | None = None) -> list[NodeShare]:
    """One equal share a node, from counts alone (no node has been chosen yet)."""
    nodes = max(request.min_nodes or 1, 1)
    per_task = request.cpus_per_task or 1
    tasks = request.num_tasks or nodes * (request.ntasks_per_node or 1)
    tasks_here = request.ntasks_per_node or math.ceil(tasks / nodes)
    gres = _gres(request, nodes, tasks_here)
    gpus = sum(gres.values())
    cpus = max(tasks_here * per_task, request.min_cpus_per_node or 1)
    for item in tres.items(request.cpus_per_tres, "gres"):
        cpus = max(cpus, gpus * item.amount)
    memory = request.mem_per_node_mb
    if memory is None:
        per_cpu = request.mem_per_cpu_mb or default_memory_per_cpu_mb or 0
        memory = per_cpu * cpus
        for item in tres.items(request.mem_per_tres, "gres"):
            memory = gpus * item.amount
    return [NodeShare("", cpus, memory, gres) for _ in range(nodes)]


def _gres(request: JobRequest, nodes: int, tasks_here: int) -> dict[str, int]:
    result: dict[str, int] = {}
    sockets = request.sockets_per_node or 1
    for text, factor, divisor in ((request.tres_per_node, 1, 1), (request.tres_per_socket, sockets, 1),
                                  (request.tres_per_task, tasks_here, 1), (request.tres_per_job, 1, nodes)):
        try:
            for item in tres.items(text, "gres"):
                name = f"{item.name}:{item.type}" if item.type else item.name
                result[name] = max(result.get(name, 0), math.ceil(item.amount * factor / divisor))
        except tres.TresError:
            continue                          # the submission is refused for it elsewhere
    return result


def service(site: Site) -> dict[str, Any]:
    """The headless Service under which every pod of every job has its host name; made once.

    Without a selector: each gang brings its own addresses (``endpoint_slices``) when it is whole, instead of a list of
    all pods that is written anew for each of them.
    """
    return {"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": site.service, "namespace": site.namespace, "labels": dict(MANAGED)},
            "spec": {"clusterIP": "None"}}


def endpoint_slices(job_id: int, restart: int, addresses: Sequence[str], site: Site, job_uid: str,
                    labels: Mapping[str, str]) -> list[dict[str, Any]]:
    """The host names of a gang's pods, ``addresses`` by index; owned by the Job, with its ``labels``."""
    made = []
    for part, first in enumerate(range(0, len(addresses), MAX_ENDPOINTS)):
        endpoints = [{"addresses": [address], "hostname": f"{object_name(job_id)}-{first + index}",
                      "conditions": {"ready": True}}
                     for index, address in enumerate(addresses[first:first + MAX_ENDPOINTS])]
        made.append({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "endpoints": endpoints, "ports": [],
            "addressType": "IPv6" if ":" in addresses[0] else "IPv4",
            "metadata": {"name": f"{object_name(job_id)}-{restart}-{part}", "namespace": site.namespace,
                         "labels": dict(labels) | {
                             "kubernetes.io/service-name": site.service,
                             "endpointslice.kubernetes.io/managed-by": DOMAIN},
                         "ownerReferences": [owner(job_id, job_uid)]}})
    return made


def owner(job_id: int, job_uid: str) -> dict[str, Any]:
    """The reference that makes an object go with its Job."""
    return {"apiVersion": "batch/v1", "kind": "Job", "name": object_name(job_id), "uid": job_uid, "controller": True,
            "blockOwnerDeletion": True}


def job(request: JobRequest, job_id: int, shares: Sequence[NodeShare], restart: int, site: Site,
        ends_after_s: float | None) -> dict[str, Any]:
    """``ends_after_s``: when its step daemons end it; Kubernetes does should they not have. None: no limit.
    Raises containers.ContainerError."""
    nodes = len(shares)
    labels = labels_of(request, job_id, restart, site)
    spec: dict[str, Any] = {
        "completionMode": "Indexed", "parallelism": nodes, "completions": nodes, "backoffLimit": 0,
        "podReplacementPolicy": "Failed",
        "successPolicy": {"rules": [{"succeededIndexes": "0", "succeededCount": 1}]},
        "template": {"metadata": {"labels": dict(labels)},
                     "spec": pod(request, job_id, shares, restart, site)}}
    if ends_after_s is not None:
        spec["activeDeadlineSeconds"] = max(1, int(ends_after_s) + site.kill_wait_s + site.deadline_slack_s)
    return {"apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": object_name(job_id), "namespace": site.namespace, "labels": labels,
                         "annotations": annotations_of(request)},
            "spec": spec}


def pod(request: JobRequest, job_id: int, shares: Sequence[NodeShare], restart: int, site: Site) -> dict[str, Any]:
    """All pods of a gang are alike: the largest share counts. The gang scheduler binds each to its planned node.

    Raises containers.ContainerError for an image or mount that no pod can have.
    """
    share = NodeShare("", max(s.cpus for s in shares), max(s.memory_mb for s in shares), _largest(shares))
    resources = _resources(share, site)
    shm_mb = site.shm_mb if site.shm_mb is not None else share.memory_mb // 2
    shm: dict[str, Any] = {"medium": "Memory"}
    if shm_mb:
        shm["sizeLimit"] = f"{shm_mb}Mi"
    context: dict[str, Any] = {"runAsUser": request.uid, "runAsGroup": request.gid, "fsGroup": request.gid,
                               "runAsNonRoot": request.uid != 0, "fsGroupChangePolicy": "OnRootMismatch"}
    if site.groups:
        context["supplementalGroups"] = list(site.groups)
    container: dict[str, Any] = {
        "name": "job",
        "command": runtime_command(RUNTIME, "pod"),
        "env": [{"name": "SLURM_JOB_ID", "value": str(job_id)},
                {"name": "SLURM_JOB_NUM_NODES", "value": str(len(shares))},
                {"name": "SLURM_JOB_NODELIST", "value": pod_hosts(job_id, len(shares))}],
        "resources": {"requests": resources, "limits": dict(resources)},
        "securityContext": _container_rights(),
        "volumeMounts": [{"name": "runtime", "mountPath": RUNTIME, "readOnly": True},
                         {"name": "order", "mountPath": SECRETS, "readOnly": True},
                         {"name": "spool", "mountPath": SPOOL},
                         {"name": "shm", "mountPath": "/dev/shm"}]}
    spec: dict[str, Any] = {
        "restartPolicy": "Never", "schedulerName": site.scheduler, "subdomain": site.service,
        "setHostnameAsFQDN": False, "enableServiceLinks": False, "automountServiceAccountToken": False,
        "dnsConfig": {"searches": [f"{site.service}.{site.namespace}.svc.{site.cluster_domain}"]},
        "terminationGracePeriodSeconds": site.kill_wait_s + 5, "securityContext": context,
        "containers": [container],
        "volumes": [{"name": "order", "secret": {"secretName": f"{object_name(job_id)}-{restart}",
                                                 "defaultMode": 0o400}},
                    {"name": "spool", "emptyDir": {}},
                    {"name": "shm", "emptyDir": shm}]}
    _deliver_runtime(spec, container, site)
    containers.apply(request, container, spec, site.image)
    merge(spec, site.pod_patch)
    merge(container, site.container_patch)
    return spec


def runtime_command(root: str, module: str, *words: str) -> list[str]:
    """Starts a module of the runtime by its own loader: nothing of the image is used."""
    return [f"{root}/lib/ld.so", "--library-path", f"{root}/lib", f"{root}/libexec/python3", "-IBS", "-X", "utf8",
            f"{root}/app/start_{module}.py", *words]


def _container_rights() -> dict[str, Any]:
    """What Pod Security "restricted" asks for."""
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"}}


def _deliver_runtime(spec: dict[str, Any], container: Mapping[str, Any], site: Site) -> None:
    if site.runtime_delivery == "image":
        spec["volumes"].append({"name": "runtime", "image": {"reference": site.runtime_image}})
        return
    spec["volumes"].append({"name": "runtime", "emptyDir": {}})
    spec["initContainers"] = [{
        "name": "runtime", "image": site.runtime_image, "command": runtime_command("/self", "deliver", "/", "/to"),
        "resources": container["resources"], "securityContext": _container_rights(),
        "volumeMounts": [{"name": "runtime", "mountPath": "/to"}]}]


def merge(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Lists are added, maps merged, the rest replaced."""
    for key, value in more.items():
        if isinstance(value, list):
            into[key] = [*into.get(key, ()), *value]
        elif isinstance(value, Mapping):
            merge(into.setdefault(key, {}), value)
        else:
            into[key] = value


def pod_hosts(job_id: int, nodes: int) -> str:
    """The host list of a job's pods, as they know themselves."""
    name = object_name(job_id)
    return f"{name}-0" if nodes == 1 else f"{name}-[0-{nodes - 1}]"


def _largest(shares: Sequence[NodeShare]) -> dict[str, int]:
    result: dict[str, int] = {}
    for share in shares:
        for name, count in share.gres.items():
            result[name] = max(result.get(name, 0), count)
    return result


def _resources(share: NodeShare, site: Site) -> dict[str, str]:
    """Requests are limits, so that the pod is Guaranteed and its CPUs can be its own."""
    result = {"cpu": str(share.cpus)}
    if share.memory_mb:
        result["memory"] = f"{share.memory_mb}Mi"
    counts: dict[str, int] = {}
    for name, count in share.gres.items():
        resource = site.gres_resources.get(name) or site.gres_resources.get(name.partition(":")[0])
        if resource and count:
            counts[resource] = counts.get(resource, 0) + count
    return result | {name: str(count) for name, count in counts.items()}


def secret(request: JobRequest, job_id: int, restart: int, site: Site, data: Mapping[str, bytes]) -> dict[str, Any]:
    """What only the job may read of one run. Immutable: nobody changes a job's script behind its back."""
    name = object_name(job_id)
    metadata = {"name": f"{name}-{restart}", "namespace": site.namespace,
                "labels": labels_of(request, job_id, restart, site)}
    return {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "immutable": True, "metadata": metadata,
            "data": {key: base64.b64encode(value).decode() for key, value in data.items()}}


def labels_of(request: JobRequest, job_id: int, restart: int, site: Site) -> dict[str, str]:
    """Numbers, and words that are plain enough to be label values."""
    labels = dict(MANAGED) | {f"{DOMAIN}/job-id": str(job_id), f"{DOMAIN}/restart": str(restart),
                              f"{DOMAIN}/uid": str(request.uid)}
    for key, value in (("user", request.user_name), ("account", request.account), ("qos", request.qos),
                       ("partition", request.partitions[0] if len(request.partitions) == 1 else None),
                       ("cluster", site.cluster)):
        if value and is_label_value(value):
            labels[f"{DOMAIN}/{key}"] = value
    return labels


def is_label_value(text: str) -> bool:
    """Kubernetes' rule: at most 63 of letters, digits, "-", "_", "."; the ends are letters or digits."""
    if not 0 < len(text) <= 63 or not text.isascii():
        return False
    return text[0].isalnum() and text[-1].isalnum() and all(c.isalnum() or c in _LABEL_EXTRA for c in text)


def annotations_of(request: JobRequest) -> dict[str, str]:
    """Free text, made printable and cut to a sane length."""
    pairs = (("name", request.name), ("user", request.user_name), ("account", request.account),
             ("partition", ",".join(request.partitions)), ("qos", request.qos), ("comment", request.comment),
             ("command", request.command), ("work-dir", request.work_dir), ("submit-line", request.submit_line),
             ("array", request.array), ("constraint", request.constraint), ("node-list", request.node_list),
             *containers.options_as_given(request.pyxis))
    return {f"{DOMAIN}/{key}": printable(value)[:_MAX_ANNOTATION] for key, value in pairs if value}


def printable(text: str) -> str:
    """Without what JSON or a terminal would choke on: lone surrogates and control characters become "?"."""
    return "".join("?" if 0xD800 <= ord(c) <= 0xDFFF or ord(c) < 32 or ord(c) == 127 else c for c in text)
