"""The filters of scancel: which of them leaves a job out, in the words of the controller (scancel(1), --ctld)."""
from __future__ import annotations

import functools

from slurmbridge.commands.scancel_options import Options
from slurmbridge.slurm import hostlist
from slurmbridge.slurm.states import PENDING
from slurmbridge.views.records import JobRecord


def mismatch(job: JobRecord, options: Options) -> str | None:
    """What the first filter that does not take the job says of it; None where all do."""
    compared = (("account", job.account, options.account), ("name", job.name, options.job_name))
    for name, has, asked in compared:
        if asked is not None and has != asked:
            return f"Job {name} {has} != filter {name} {asked}"
    if options.partition is not None and not _in_partition(job, options):
        return f"Job partition {job.partition} does not include filter partition {options.partition}"
    if options.qos is not None and job.qos != options.qos:
        return f"Job qos {job.qos or 'NULL'} != filter qos {options.qos}"
    reservation = job.request.reservation
    if options.reservation is not None and reservation != options.reservation:
        return (f"Job reservation {reservation or '(null)'} does not include filter reservation "
                f"{options.reservation}")
    if options.state is not None and job.state != options.state:
        return f"Job state {job.state} != filter state {options.state}"
    if options.user_name is not None and job.uid != options.uid:
        return f"Job user id {job.uid} != filter user id {options.uid}"
    if options.nodelist is not None:
        if not job.nodes:
            return f"Job does not have nodes but filter has nodes {options.nodelist}"
        if _hosts(options.nodelist).isdisjoint(job.nodes):
            return (f"Job nodes {hostlist.compress(job.nodes, sort=True)} does not intersect with filter nodes "
                    f"{options.nodelist}")
    if options.wckey is not None:
        key = job.wckey if options.wckey.startswith("*") else job.wckey.removeprefix("*")
        if key != options.wckey:
            return f"Job wckey {job.wckey or '(null)'} != filter wckey {options.wckey}"
    return None


def _in_partition(job: JobRecord, options: Options) -> bool:
    """The controller knows all partitions that a waiting job names; scancel compares the text."""
    several = options.ctld and job.state == PENDING
    return options.partition in (job.partition.split(",") if several else (job.partition,))


@functools.lru_cache(1)                       # the same for all jobs
def _hosts(text: str) -> frozenset[str]:
    try:
        return frozenset(hostlist.expand(text))
    except hostlist.HostlistError:
        return frozenset()
