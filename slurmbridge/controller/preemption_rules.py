"""What QOS, partition and slurm.conf say about a job that others may preempt."""
from __future__ import annotations

from slurmbridge.controller.world import World
from slurmbridge.scheduling.preempt import mode_words
from slurmbridge.views.records import JobRecord


def preempt_mode(world: World, job: JobRecord) -> str:
    """How this job may be preempted: its QOS's, its partition's, or the cluster's word."""
    if world.conf.preempt_type == "preempt/qos":
        qos = world.accounting.qos.get(job.qos)
        if qos is not None and mode_words(qos.preempt_mode):
            return qos.preempt_mode.upper()
    partition = world.partitions.get(job.partition)
    if partition is not None and partition.preempt_mode:
        return partition.preempt_mode.upper()
    return world.conf.preempt_mode.upper()


def grace_time_s(world: World, job: JobRecord) -> int:
    """How long the job goes on after its warning; 0: no warning. Who is suspended gets none."""
    if "SUSPEND" in preempt_mode(world, job):
        return 0
    qos = world.accounting.qos.get(job.qos)
    if world.conf.preempt_type == "preempt/qos" and qos is not None:
        return qos.grace_time_s
    partition = world.partitions.get(job.partition)
    return partition.grace_time_s if partition is not None else 0


def exempt_until_s(world: World, job: JobRecord) -> int:
    """Epoch seconds until which nobody may preempt the started job; 0: anybody may at once."""
    qos = world.accounting.qos.get(job.qos)
    exempt = world.conf.preempt_exempt_time_s
    if qos is not None and qos.preempt_exempt_time_s is not None:
        exempt = qos.preempt_exempt_time_s
    return int((job.start_s or 0) + exempt) if exempt > 0 else 0
