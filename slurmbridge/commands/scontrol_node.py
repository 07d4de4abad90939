"""``scontrol show node`` and ``show partition``: one record as its lines. (scontrol(1).)"""
from __future__ import annotations

from collections.abc import Iterator

from slurmbridge.commands import node_view
from slurmbridge.commands.common import user_name
from slurmbridge.commands.scontrol_job import Style, null
from slurmbridge.slurm import node_states, tres
from slurmbridge.slurm.durations import format_seconds
from slurmbridge.slurm.jobspec import UNLIMITED_MIN
from slurmbridge.slurm.version import SLURM_VERSION
from slurmbridge.views.records import NodeRecord, PartitionRecord
from slurmbridge.views.session import Views


def _record(lines: list[str], style: Style) -> str:
    return (" " if style.one_line else "\n   ").join(lines) + ("\n" if style.one_line else "\n\n")


def node_text(node: NodeRecord, views: Views, style: Style) -> str:
    """The node as ``scontrol show node`` prints it."""
    return _record([*_node_hardware(node, views, style), *_node_state(node, views, style)], style)


def _node_hardware(node: NodeRecord, views: Views, style: Style) -> Iterator[str]:
    arch = f"Arch={node.arch} " if node.arch else ""
    yield f"NodeName={node.name} {arch}CoresPerSocket={node.cores_per_socket} "
    yield (f"CPUAlloc={node.cpus_alloc} CPUEfctv={node_view.effective_cpus(node)} CPUTot={node.cpus} "
           f"CPULoad={node.cpu_load or 0:.2f}")
    features = null(",".join(node.features))
    yield f"AvailableFeatures={features}"
    yield f"ActiveFeatures={features if node.active_features is None else ','.join(node.active_features)}"
    yield f"Gres={null(node_view.gres_text(node))}"
    if style.details:
        used = node_view.gres_used(node, views.conf)
        if used:
            yield "GresDrain=N/A"
            yield f"GresUsed={used}"
    default_port = int(views.conf.values.get("SlurmdPort", "6818"))
    port = f"Port={node.port} " if node.port not in (0, default_port) else ""
    yield (f"NodeAddr={node.address or node.name} NodeHostName={node.host_name or node.name} {port}"
           f"Version={SLURM_VERSION}")
    if node.os:
        yield f"OS={node.os} "
    free = "N/A" if node.free_mem_mb is None else str(node.free_mem_mb)
    yield (f"RealMemory={node.real_memory_mb} AllocMem={node.mem_alloc_mb} FreeMem={free} Sockets={node.sockets} "
           f"Boards={node.boards}")
    if node.core_spec_count or node.cpu_spec_list or node.mem_spec_limit_mb:
        yield ((f"CoreSpecCount={node.core_spec_count} " if node.core_spec_count else "")
               + (f"CPUSpecList={node.cpu_spec_list} " if node.cpu_spec_list else "")
               + (f"MemSpecLimit={node.mem_spec_limit_mb}" if node.mem_spec_limit_mb else ""))


def _node_state(node: NodeRecord, views: Views, style: Style) -> Iterator[str]:
    owner = "N/A" if node.owner_uid is None else f"{user_name(node.owner_uid)}({node.owner_uid})"
    yield (f"State={node_states.complete(node_view.state_number(node))} ThreadsPerCore={node.threads_per_core} "
           f"TmpDisk={node.tmp_disk_mb} Weight={node.weight} Owner={owner} MCS_label=N/A")
    if node.partitions:
        yield f"Partitions={','.join(node.partitions)} "
    yield f"BootTime={_time(node.boot_s, style)} SlurmdStartTime={_time(node.daemon_start_s, style)}"
    yield f"LastBusyTime={style.time(node.last_busy_s)} ResumeAfterTime={_time(node.resume_after_s, style)}"
    order = tres.order_key(views.conf.accounting_storage_tres)
    configured = node_view.configured_tres(node, views.partitions, views.conf)
    yield f"CfgTRES={null(tres.format_counts(configured, order))}"
    yield f"AllocTRES={tres.format_counts(node_view.allocated_tres(node, views.conf), order)}"
    yield "CurrentWatts=0 AveWatts=0"
    if node.reason:
        first, *rest = [line for line in node.reason.split("\n") if line] or [""]
        name = node.reason_user or user_name(node.reason_uid or 0)
        yield f"Reason={first}" + (f" [{name}@{style.time(node.reason_s)}]" if node.reason_s else "")
        for line in rest:
            yield f"       {line}"
    if node.comment:
        yield f"Comment={node.comment}"
    if node.extra:
        yield f"Extra={node.extra}"


def _time(epoch_s: float | None, style: Style) -> str:
    return style.time(epoch_s) if epoch_s else "None"


def partition_text(partition: PartitionRecord, views: Views, style: Style) -> str:
    """The partition as ``scontrol show partition`` prints it."""
    return _record([*_partition_access(partition, views), *_partition_size(partition, views)], style)


def _yes(value: bool) -> str:
    return "YES" if value else "NO"


def _allowed(kind: str, allowed: tuple[str, ...] | None, denied: tuple[str, ...]) -> str:
    if allowed is None and denied:
        return f"Deny{kind}={','.join(denied)}"
    return f"Allow{kind}={'ALL' if not allowed else ','.join(allowed)}"


def _minutes(minutes: int | None, none: str) -> str:
    if minutes is None:
        return none
    return "UNLIMITED" if minutes == UNLIMITED_MIN else format_seconds(minutes * 60)


def _limit(value: int | None) -> str:
    return "UNLIMITED" if value is None else str(value)


def _partition_access(p: PartitionRecord, views: Views) -> Iterator[str]:
    yield f"PartitionName={p.name}"
    yield (f"{_allowed('Groups', p.allow_groups, ())} {_allowed('Accounts', p.allow_accounts, p.deny_accounts)} "
           f"{_allowed('Qos', p.allow_qos, p.deny_qos)}")
    alternate = f" Alternate={p.alternate}" if p.alternate else ""
    bind = f" CpuBind={p.cpu_bind} " if p.cpu_bind else ""
    yield f"AllocNodes={p.alloc_nodes}{alternate} Default={_yes(p.default)}{bind} QoS={p.qos or 'N/A'}"
    yield (f"DefaultTime={_minutes(p.default_time_min, 'NONE')} DisableRootJobs={_yes(p.disable_root_jobs)} "
           f"ExclusiveUser={_yes(p.exclusive_user)} ExclusiveTopo={_yes(p.exclusive_topo)} "
           f"GraceTime={p.grace_time_s} Hidden={_yes(p.hidden)}")
    yield (f"MaxNodes={_limit(p.max_nodes)} MaxTime={_minutes(p.max_time_min, 'UNLIMITED')} MinNodes={p.min_nodes} "
           f"LLN={_yes(p.lln)} MaxCPUsPerNode={_limit(p.max_cpus_per_node)} "
           f"MaxCPUsPerSocket={_limit(p.max_cpus_per_socket)}")
    if p.node_sets:
        yield f"NodeSets={p.node_sets}"
    yield f"Nodes={null(p.nodes_text)}"
    yield (f"PriorityJobFactor={p.priority_job_factor} PriorityTier={p.priority_tier} RootOnly={_yes(p.root_only)} "
           f"ReqResv={_yes(p.req_resv)} OverSubscribe={p.over_subscribe}")
    over = "NONE" if p.over_time_limit_min is None else \
        "UNLIMITED" if p.over_time_limit_min == 0xFFFF else str(p.over_time_limit_min)
    yield f"OverTimeLimit={over} PreemptMode={p.preempt_mode or views.conf.preempt_mode}"


def _partition_size(p: PartitionRecord, views: Views) -> Iterator[str]:
    members = [views.nodes[name] for name in p.nodes if name in views.nodes]
    yield (f"State={p.state} TotalCPUs={sum(node.cpus for node in members)} TotalNodes={len(members)} "
           f"SelectTypeParameters={p.select_type_parameters}")
    yield f"JobDefaults={null(p.job_defaults)}"
    default, most = "DefMemPerNode=UNLIMITED", "MaxMemPerNode=UNLIMITED"
    if p.def_mem_per_cpu_mb is not None:
        default = f"DefMemPerCPU={p.def_mem_per_cpu_mb}"
    elif p.def_mem_per_node_mb is not None:
        default = f"DefMemPerNode={p.def_mem_per_node_mb}"
    if p.max_mem_per_cpu_mb is not None:
        most = f"MaxMemPerCPU={p.max_mem_per_cpu_mb}"
    elif p.max_mem_per_node_mb is not None:
        most = f"MaxMemPerNode={p.max_mem_per_node_mb}"
    yield f"{default} {most}"
    order = tres.order_key(views.conf.accounting_storage_tres)
    counts = node_view.partition_tres(p, views.nodes, views.conf)
    yield f"TRES={null(tres.format_counts(counts, order))}"
    if p.tres_billing_weights:
        yield f"TRESBillingWeights={p.tres_billing_weights}"
