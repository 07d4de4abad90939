"""From the controller's launch order to what the step daemons of one run are told."""
from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from slurmbridge.cluster.port import LaunchOrder, RunId
from slurmbridge.runtime import environment
from slurmbridge.runtime.order import NodeShare, RunOrder
from slurmbridge.views.records import JobRecord, NodeRecord


def run_order(order: LaunchOrder, nodes: dict[str, NodeRecord], controller_url: str = "") -> RunOrder:
    """Addresses are filled in where the daemons are started. Raises ValueError for an allocation without nodes."""
    job = order.job
    if not job.allocation:
        raise ValueError(f"job {job.job_id} has no allocation")
    task_ids = order.array_tasks
    return RunOrder(
        job_id=order.run.job_id, restart=order.run.restart, credential=order.credential, request=job.request,
        nodes=[NodeShare(name=share.node, cpus=share.cpus, mem_mb=share.mem_mb, gres=dict(share.gres),
                         cores=tuple(share.cores), tasks=share.tasks, topology=order.topology.get(share.node, ""),
                         **_shape(nodes.get(share.node)))
               for share in job.allocation],
        uid=job.uid, gid=job.gid, user_name=job.user_name, group_name=job.group_name, name=job.name,
        account=job.account, partition=job.partition, qos=job.qos, reservation=job.request.reservation or "",
        cluster_name=order.cluster_name, controller_url=order.controller_url or controller_url,
        conf_path=order.conf_path, submit_host=job.alloc_node, start_s=job.start_s or 0.0,
        end_by_s=order.end_by_s, kill_wait_s=order.kill_wait_s, warn_signal=order.warn_signal,
        warn_before_s=order.warn_before_s, warn_batch=order.warn_batch,
        mem_per_cpu_mb=job.mem_per_cpu_mb, mem_per_node_mb=job.mem_per_node_mb,
        array_job_id=job.array_job_id, array_task_id=job.array_task_id,
        **_array_facts(job, task_ids), het_job_id=job.het_job_id, het_offset=job.het_offset,
        licenses=job.request.licenses or "", settings=dict(order.settings),
        het_environment=environment.het_variables([
            run_order(replace(order, job=part, het_jobs=(), run=RunId(part.job_id, part.restarts)), nodes)
            for part in order.het_jobs if part.allocation]))


def _shape(node: NodeRecord | None) -> dict[str, Any]:
    return {} if node is None else {"features": node.usable_features, "threads_per_core": node.threads_per_core,
                                    "node_cpus": node.cpus,
                                    "cores_per_socket": node.cores_per_socket if node.sockets > 1 else 0}


def _array_facts(job: JobRecord, task_ids: tuple[int, ...]) -> dict[str, Any]:
    if job.array_task_id is None:
        return {}
    return {"array_task_count": len(task_ids) or job.array_task_count,
            "array_task_min": min(task_ids, default=job.array_task_min),
            "array_task_max": max(task_ids, default=job.array_task_max), "array_task_step": _step(job.request.array)}


def _step(array: str | None) -> int:
    """SLURM_ARRAY_TASK_STEP: what ``0-8:4`` says, 1 for every other form."""
    found = re.search(r":(\d+)", array or "")
    return int(found[1]) if found else 1
