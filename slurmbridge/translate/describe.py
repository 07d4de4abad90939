"""Options to a JobRequest: the job description that the client sends, with the counts it derives."""
from __future__ import annotations

from slurmbridge.slurm import errors, tres
from slurmbridge.slurm.hostlist import HostlistError, parse
from slurmbridge.slurm.jobspec import JobRequest
from slurmbridge.slurm.option_checks import is_arbitrary
from slurmbridge.slurm.option_values import ClientExit, OptionSet
from slurmbridge.slurm.options import PYXIS
from slurmbridge.slurm.words import Distribution
from slurmbridge.translate import gres_check
from slurmbridge.translate.call import Call


def describe(opts: OptionSet, call: Call, error_exit: int) -> JobRequest:
    """Everything but script, environment and files. Raises ClientExit after the client's own gres check."""
    request = JobRequest(
        name=opts["job_name"], command=opts.argv[0] if opts.argv else None, script_args=tuple(opts.argv[1:]),
        submit_line=opts.submit_line, work_dir=opts["chdir"] or call.cwd, umask=call.umask,
        batch=opts.command == "sbatch", interactive_command=opts.command,
        uid=call.uid, gid=call.gid, user_name=call.user_name, group_name=call.group_name,
        account=opts["account"], qos=opts["qos"], wckey=opts["wckey"], reservation=opts["reservation"],
        partitions=tuple(p for p in (opts["partition"] or "").split(",") if p),
        licenses=",".join(t for t in (opts["licenses"], opts["resources"]) if t) or None,
        comment=opts["comment"], extra=opts["extra"], mcs_label=opts["mcs_label"], clusters=opts["clusters"],
        constraint=opts["constraint"], prefer=opts["prefer"], cluster_constraint=opts["cluster_constraint"],
        exclude=opts["exclude"], contiguous=opts["contiguous"], overcommit=opts["overcommit"],
        spread_job=opts["spread_job"], use_min_nodes=opts["use_min_nodes"],
        consolidate_segments=opts["consolidate_segments"], spread_segments=opts["spread_segments"],
        network=opts["network"], profile=opts["profile"], acctg_freq=opts["acctg_freq"], context=opts["context"],
        burst_buffer=opts["burst_buffer"], container=opts["container"], container_id=opts["container_id"],
        pyxis={o.name: opts[o.field] for o in PYXIS if opts.is_set(o.name)},
        time_limit_min=opts["time_limit"], time_min_min=opts["time_min"], begin_s=opts["begin"] or None,
        deadline_s=opts["deadline"] or None, hold=opts["hold"], priority=opts["priority"] or None,
        nice=opts["nice"], dependency=opts["dependency"], delay_boot_s=opts["delay_boot"], reboot=opts["reboot"],
        no_kill=opts["no_kill"], oom_kill_step=None if opts["oom_kill_step"] is None else bool(opts["oom_kill_step"]),
        mail_type=None if opts["mail_type"] == "NONE" else opts["mail_type"], mail_user=opts["mail_user"],
        quiet=bool(opts["quiet"]), verbose=opts["verbose"], stepmgr=opts["stepmgr"], resv_ports=opts["resv_ports"],
        segment_size=opts["segment"] or None, tres_bind=opts["tres_bind"], tres_freq=opts["tres_freq"],
        gres_flags=",".join(sorted(opts["gres_flags"])) or None, hint=opts["hint"],
        oversubscribe=opts["shared"] == "oversubscribe",
        exclusive=None if opts["shared"] == "oversubscribe" else opts["shared"])
    _bindings(opts, request)
    _times(opts, request)
    _sizes(opts, request)
    _memory(opts, request)
    _node_list(opts, request, error_exit)
    _gres(opts, call, request, error_exit)
    return request


def _bindings(opts: OptionSet, request: JobRequest) -> None:
    layout: Distribution | None = opts["distribution"]
    if layout is not None:
        request.distribution = str(layout) or None
        request.plane_size = layout.plane_size
    if opts["mem_bind"] is not None:
        request.mem_bind = str(opts["mem_bind"]) or None
    if opts["cpu_freq"] is not None:
        request.cpu_freq = tuple(opts["cpu_freq"])
    if opts["core_spec"] is not None:
        if opts["spec_is_threads"]:
            request.thread_spec = opts["core_spec"] & 0x7FFF
        else:
            request.core_spec = opts["core_spec"]


def _times(opts: OptionSet, request: JobRequest) -> None:
    warn = opts["signal"]
    if warn is not None:
        request.signal = str(warn)
        request.signal_number, request.signal_before_s = warn.number, warn.before_s
        request.signal_batch, request.signal_reservation = warn.batch, warn.reservation
    if opts["req_switch"] >= 0:
        request.switches = opts["req_switch"]
    if opts["wait4switch"] >= 0:
        request.switches_wait_s = opts["wait4switch"]


def _sizes(opts: OptionSet, request: JobRequest) -> None:
    tasks, per_node = opts["ntasks"], opts["ntasks_per_node"]
    if opts["ntasks_set"]:
        request.num_tasks, request.num_tasks_given = tasks, True
    estimated = tasks
    if per_node and not opts["ntasks_set"] and opts["max_nodes"] in (0, opts["min_nodes"]):
        estimated = opts["min_nodes"] * per_node
    if opts["overcommit"]:
        request.min_cpus = max(opts["min_nodes"], 1)
    elif opts["cpus_set"]:
        request.min_cpus = estimated * opts["cpus_per_task"]
    elif opts["nodes_set"] and opts["min_nodes"] == 0:
        request.min_cpus = 0
    else:
        request.min_cpus = estimated
    if opts["cpus_set"]:
        request.cpus_per_task = opts["cpus_per_task"]
    if opts["nodes_set"]:
        request.nodes_given = True
        request.min_nodes = opts["min_nodes"]
        request.max_nodes = opts["max_nodes"] or None
        if opts["max_nodes"]:
            request.node_counts = opts.node_sizes
    elif opts["ntasks_set"] and tasks == 0:
        request.min_nodes = 0
    elif opts["ntasks_set"] and per_node:
        request.min_nodes = -(-tasks // per_node)
    request.sockets_per_node = opts["sockets_per_node"]
    request.cores_per_socket = opts["cores_per_socket"]
    request.threads_per_core = opts["threads_per_core"]
    request.ntasks_per_node = per_node
    request.ntasks_per_socket = opts["ntasks_per_socket"]
    request.ntasks_per_core = opts["ntasks_per_core"]
    request.ntasks_per_tres = opts["ntasks_per_tres"] or opts["ntasks_per_gpu"]
    if opts["min_cpus"] > -1:
        request.min_cpus_per_node = opts["min_cpus"]


def _memory(opts: OptionSet, request: JobRequest) -> None:
    if opts["mem"] is not None:
        request.mem_per_node_mb = opts["mem"]
    elif opts["mem_per_cpu"] is not None:
        request.mem_per_cpu_mb = opts["mem_per_cpu"]
    if opts["mem_per_gpu"] is not None:
        request.mem_per_tres = f"gres/gpu:{opts['mem_per_gpu']}"
    if opts["cpus_per_gpu"]:
        request.cpus_per_tres = f"gres/gpu:{opts['cpus_per_gpu']}"
    request.tmp_disk_mb = opts["tmp"]


def _node_list(opts: OptionSet, request: JobRequest, error_exit: int) -> None:
    if opts["nodelist"]:
        try:
            names = parse(opts["nodelist"])
        except HostlistError as wrong:
            if str(wrong):
                opts.log.error(str(wrong))
            opts.log.error("Invalid node list specified")
            raise ClientExit(error_exit) from None
        opts["nodelist"] = names.ranged()
        if not is_arbitrary(opts):
            names.unique()
        request.node_list = names.ranged()
    elif is_arbitrary(opts):
        opts.log.error("With Arbitrary distribution you need to specify a nodelist or hostfile with the -w option")
        raise ClientExit(error_exit)


def _gres(opts: OptionSet, call: Call, request: JobRequest, error_exit: int) -> None:
    request.tres_per_job = tres.prefixed("gres/gpu", opts["gpus"])
    request.tres_per_node = tres.prefixed("gres/gpu", opts["gpus_per_node"])
    if opts["gres"] and opts["gres"].lower() != "none":
        request.tres_per_node = ",".join(t for t in (request.tres_per_node, opts["gres"]) if t)
    request.tres_per_socket = tres.prefixed("gres/gpu", opts["gpus_per_socket"])
    request.tres_per_task = opts["tres_per_task"]
    if opts["clusters"]:
        return
    counts = gres_check.Counts(request.num_tasks, request.min_nodes, request.max_nodes, request.min_cpus or 0,
                               request.cpus_per_task, request.ntasks_per_node, request.ntasks_per_socket,
                               request.ntasks_per_tres, request.sockets_per_node)
    texts = gres_check.Requests(request.cpus_per_tres, request.mem_per_tres, request.tres_freq, request.tres_per_job,
                                request.tres_per_node, request.tres_per_socket, request.tres_per_task)
    try:
        gres_check.check(texts, counts, call.conf.gres_types, opts.log.error)
    except gres_check.GresRefused as refused:
        opts.log.error(errors.strerror(refused.code))
        raise ClientExit(error_exit) from None
    request.num_tasks, request.min_nodes, request.max_nodes = counts.num_tasks, counts.min_nodes, counts.max_nodes
    request.min_cpus, request.cpus_per_task = counts.min_cpus, counts.cpus_per_task
    request.ntasks_per_node, request.ntasks_per_socket = counts.ntasks_per_node, counts.ntasks_per_socket
    request.sockets_per_node = counts.sockets_per_node
