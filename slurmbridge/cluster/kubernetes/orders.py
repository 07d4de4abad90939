"""From a launch order to the objects of one run: Job and Secret, with names as the pods know themselves."""
from __future__ import annotations

import gzip
import json
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from slurmbridge.cluster.kubernetes.settings import KubernetesSettings, Patch
from slurmbridge.cluster.orders import run_order
from slurmbridge.cluster.port import LaunchOrder
from slurmbridge.runtime.order import RunOrder
from slurmbridge.translate import manifest
from slurmbridge.views.records import JobRecord, NodeRecord

SECRET_LIMIT = 1_000_000
"""Bytes of a Secret that the API server takes, less its own words."""


class CannotLaunch(ValueError):
    """The order cannot become objects. ``str()`` is one line."""


def hosts(job_id: int, count: int) -> list[str]:
    """What the pods of a job are called, by index."""
    return [f"{manifest.object_name(job_id)}-{index}" for index in range(count)]


def base_site(settings: KubernetesSettings, cluster: str, scheduler: str, kill_wait_s: int, *,
              mounts_images: bool = True) -> manifest.Site:
    """What holds for all jobs. ``scheduler``: its name in pods; ``mounts_images``: an image can be a volume there."""
    delivery = settings.runtime_delivery
    if delivery == "auto":
        delivery = "image" if mounts_images else "init"
    return manifest.Site(
        namespace=settings.namespace, image=settings.image, runtime_image=settings.runtime_image,
        runtime_delivery=delivery, cluster=cluster, cluster_domain=settings.cluster_domain,
        service=settings.service, scheduler=scheduler, shm_mb=settings.shm_mb, kill_wait_s=kill_wait_s)


def site_of(settings: KubernetesSettings, job: JobRecord, base: manifest.Site, groups: Sequence[int]) -> manifest.Site:
    """``base`` with what the job's partition sets."""
    own = settings.partitions.get(job.partition, Patch())
    pod: dict[str, Any] = {}
    container: dict[str, Any] = {}
    for patch in (settings.defaults, own):
        manifest.merge(pod, patch.pod)
        manifest.merge(container, patch.container)
    image = own.image or settings.defaults.image or settings.image
    return replace(base, image=image, pod_patch=pod, container_patch=container, groups=tuple(groups))


def pod_order(order: LaunchOrder, nodes: dict[str, NodeRecord], has_ca: bool = False) -> RunOrder:
    """As the step daemons get it: nodes are called as their pods, devices are numbered as a container sees them.
    ``has_ca``: the run's Secret brings what the controller's certificate is checked by."""
    made = run_order(replace(order, conf_path=""), nodes, order.controller_url)
    made.controller_ca = f"{manifest.SECRETS}/{manifest.CA_KEY}" if has_ca else ""
    for share, host in zip(made.nodes, hosts(made.job_id, len(made.nodes))):
        share.name = host
        share.gres = renumbered(share.gres)
    return made


def renumbered(gres: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
    """Devices of each kind of name from 0 on, in their order."""
    next_index: dict[str, int] = {}
    found = {}
    for name, indices in gres.items():
        first = next_index.get(name.partition(":")[0], 0)
        found[name] = tuple(range(first, first + len(indices)))
        next_index[name.partition(":")[0]] = first + len(indices)
    return found


def objects(order: LaunchOrder, made: RunOrder, site: manifest.Site, mount_roots: Sequence[str], ca: str = "",
            ) -> tuple[dict[str, Any], dict[str, Any]]:
    """(Job, Secret without owner). ``ca``: the controller's authority, PEM. Raises CannotLaunch."""
    job = order.job
    request = replace(job.request, time_limit_min=job.time_limit_min, user_name=job.user_name,
                      account=job.account, qos=job.qos, partitions=(job.partition,), uid=job.uid, gid=job.gid)
    shares = [manifest.NodeShare(one.node, one.cpus, one.mem_mb, {name: len(devices) for name, devices in
                                                                   one.gres.items()}) for one in job.allocation]
    for name in {name for share in shares for name in share.gres}:
        if not (site.gres_resources.get(name) or site.gres_resources.get(name.partition(":")[0])):
            raise CannotLaunch(f"no node's resource is called gres/{name}")
    try:
        spec = manifest.job(request, order.run.job_id, shares, order.run.restart, site,
                            None if order.end_by_s is None else order.end_by_s - (job.start_s or 0.0))
    except ValueError as error:
        raise CannotLaunch(str(error)) from None
    for volume in spec["spec"]["template"]["spec"]["volumes"]:
        path = volume.get("hostPath", {}).get("path", "") if volume["name"].startswith("mount-") else ""
        if path and not is_below(path, mount_roots):
            raise CannotLaunch(f"--container-mounts: {path} is not among the folders that may be mounted")
    text = gzip.compress(json.dumps(made.to_json(), separators=(",", ":")).encode("ascii"), mtime=0)
    if len(text) * 4 // 3 > SECRET_LIMIT:
        raise CannotLaunch("script and environment are too large for a Secret")
    secret = manifest.secret(request, order.run.job_id, order.run.restart, site, {
        manifest.ORDER_KEY: text, **({manifest.CA_KEY: ca.encode("ascii")} if ca else {})})
    return spec, secret


def is_below(path: str, roots: Sequence[str]) -> bool:
    plain = posixpath.normpath(path)
    return any(plain == root.rstrip("/") or plain.startswith(root.rstrip("/") + "/") for root in roots)
