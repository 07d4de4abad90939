"""``slurmbridge translate``: what the Kubernetes engine would make of a script, by the engine's own code."""
from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import yaml

from slurmbridge.cluster.kubernetes import orders
from slurmbridge.cluster.kubernetes.plugin import GROUP
from slurmbridge.cluster.kubernetes.settings import KubernetesSettings
from slurmbridge.cluster.port import LaunchOrder, RunId
from slurmbridge.commands.common import group_name, user_name
from slurmbridge.controller.timers import UNLIMITED_OVER_MIN
from slurmbridge.slurm import conf_values
from slurmbridge.slurm.conf import ConfError, read_conf
from slurmbridge.slurm.durations import parse_minutes
from slurmbridge.slurm.jobspec import UNLIMITED_MIN, JobRequest
from slurmbridge.slurm.settings import SlurmConf
from slurmbridge.translate import manifest
from slurmbridge.translate.call import Call, ClientError
from slurmbridge.translate.request import build_requests
from slurmbridge.views.records import JobRecord, NodeAllocation

CREDENTIAL = "0" * 32
"""Stands for the secret that each run gets when it is started."""


def print_manifests(script: str, options: tuple[str, ...], job_id: int, slurm_conf: Path | None,
                    settings: KubernetesSettings) -> int:
    """Prints YAML; the exit code of sbatch where it would refuse the script."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("SBATCH_")}
    uid, gid = os.getuid(), os.getgid()
    try:
        conf = any_site() if slurm_conf is None else read_conf(str(slurm_conf))
        call = Call("sbatch", (*options, script), env, os.getcwd(), 0o022, uid, gid, user_name(uid), group_name(gid),
                    os.uname().nodename.split(".")[0], {}, time.time(), conf)
        submission = build_requests(call, lambda path: Path(path).read_bytes(), sys.stdin.buffer.read)
        sys.stderr.write(submission.stderr)
        made = objects(submission.requests, job_id, conf, settings)
    except ClientError as error:
        sys.stderr.write(error.stderr_text)
        return error.exit_code
    except (ConfError, orders.CannotLaunch) as error:
        sys.stderr.write(f"slurmbridge: error: {error}\n")
        return 1
    print(yaml.safe_dump_all(made, sort_keys=False, allow_unicode=True), end="")
    return 0


def any_site() -> SlurmConf:
    """What a script is read for when no slurm.conf is given: a site with GPUs."""
    return SlurmConf(gres_types=("gpu",))


def objects(requests: Sequence[JobRequest], job_id: int, conf: SlurmConf,
            settings: KubernetesSettings) -> list[dict[str, Any]]:
    """The shared Service, then Job and Secret of each component. Nodes are not chosen yet: equal shares by the counts
    that the request implies. Raises orders.CannotLaunch."""
    base = orders.base_site(settings, conf.cluster_name, _scheduler_name(settings.scheduler), conf.kill_wait_s)
    records = [_record(request, job_id, offset, len(requests), conf) for offset, request in enumerate(requests)]
    made = [manifest.service(base)]
    for record in records:
        order = LaunchOrder(
            RunId(record.job_id, 0), record, CREDENTIAL, conf.cluster_name, settings.controller_url,
            float(conf.kill_wait_s), _ends_after_s(record, conf),
            het_jobs=tuple(records) if len(records) > 1 and not record.het_offset else ())
        site = orders.site_of(settings, record, base, os.getgrouplist(record.user_name, record.gid))
        made += orders.objects(order, orders.pod_order(order, {}), site, settings.mount_roots)
    return made


def _record(request: JobRequest, first_id: int, offset: int, components: int, conf: SlurmConf) -> JobRecord:
    """The job as it would be when it starts, with the defaults of its partition."""
    partition = _partition(request, conf)
    per_cpu = partition.get("DefMemPerCPU") or conf.values.get("DefMemPerCPU")
    shares = manifest.implied_shares(request, conf_values.number("DefMemPerCPU", per_cpu) if per_cpu else None)
    limit = partition.get("DefaultTime") or partition.get("MaxTime") or ""
    if offset:                                # the script runs on the first component only
        request = replace(request, batch=False, script=None)
    return JobRecord(
        job_id=first_id + offset, request=request, het_job_id=first_id if components > 1 else 0, het_offset=offset,
        user_name=request.user_name, group_name=request.group_name, uid=request.uid, gid=request.gid,
        name=request.name or "", account=request.account or "", qos=request.qos or "",
        partition=partition.get("PartitionName", "") or ",".join(request.partitions[:1]),
        time_limit_min=request.time_limit_min if request.time_limit_min is not None else parse_minutes(limit),
        allocation=[NodeAllocation(f"node{index}", share.cpus, share.memory_mb,
                                   {name: tuple(range(count)) for name, count in share.gres.items()})
                    for index, share in enumerate(shares)])


def _ends_after_s(record: JobRecord, conf: SlurmConf) -> float | None:
    minutes, over = record.time_limit_min, conf.over_time_limit_min
    return None if minutes in (None, UNLIMITED_MIN) or over == UNLIMITED_OVER_MIN else (minutes + over) * 60


def _partition(request: JobRequest, conf: SlurmConf) -> dict[str, str]:
    """Its line of slurm.conf: the first that is asked for, else the default one."""
    for line in conf.partitions:
        if line["PartitionName"] == request.partitions[0] if request.partitions \
                else line.get("Default", "").upper() == "YES":
            return line
    return {}


def _scheduler_name(plugin: str) -> str:
    """What a plugin's pods say. Raises orders.CannotLaunch for one that is not installed."""
    for found in entry_points(group=GROUP, name=plugin):
        return str(found.load().scheduler_name)
    raise orders.CannotLaunch(f"no scheduler {plugin!r} is installed (entry points {GROUP})")
