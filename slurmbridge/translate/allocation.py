"""salloc and srun outside an allocation: what their clients make of a call (salloc(1), srun(1))."""
from __future__ import annotations

from collections.abc import Mapping

from slurmbridge.slurm import option_checks as checks
from slurmbridge.slurm.asking import Asking
from slurmbridge.slurm.jobspec import JobRequest
from slurmbridge.slurm.option_reading import error_exit_code, print_options, read_environment, read_options
from slurmbridge.slurm.option_sizes import settle_sizes
from slurmbridge.slurm.option_values import EXIT_MINUS_ONE, Caller, ClientExit, Log, OptionSet
from slurmbridge.slurm.srun_options import read_srun
from slurmbridge.translate import environment
from slurmbridge.translate.call import Call, ClientError, Submission
from slurmbridge.translate.describe import describe


def submission(call: Call) -> Asking[Submission]:
    """Returns what would be sent. Raises ClientError."""
    log = Log(call.command)
    env = dict(call.env)
    caller = Caller(env, call.cwd, call.now_s, call.uid, call.conf.values, call.uid_of, call.gid_of)
    result = Submission(env=env)
    try:
        result.error_exit = error_exit_code(env, "SLURM_EXIT_ERROR", log)
        if call.command == "srun":
            yield from _srun(call, caller, log, result)
        else:
            yield from _salloc(call, caller, log, result)
    except ClientExit as end:
        raise ClientError(log.text, end.code, end.stdout) from None
    if len(result.requests) > 1:
        for offset, request in enumerate(result.requests):
            request.het_offset = offset
    result.stderr = log.text
    return result


def _srun(call: Call, caller: Caller, log: Log, result: Submission) -> Asking[None]:
    result.options = yield from read_srun(caller, list(call.argv), log, result.error_exit)
    result.argv = tuple(result.options[0].argv)
    if "SLURM_JOB_ID" not in caller.env and ":" not in call.argv and any(
            opts["het_group"] is not None and opts["jobid"] is None for opts in result.options):
        log.error("--het-group expected to be used within an HetJob allocation")
        raise ClientExit(result.error_exit)
    for opts in result.options:
        result.parsed.append(opts.parsed)
        if opts["x11"] and opts["jobid"] is None and "SLURM_JOB_ID" not in caller.env:
            yield from _find_display(caller.env, log)
        if opts["relative"] is not None and not opts["test_only"] and "SLURM_JOB_ID" not in caller.env:
            raise log.fatal("--relative option invalid for job allocation request")
        request = describe(opts, call, result.error_exit)
        if opts["resv_ports"] is not None and not opts["stepmgr"]:
            request.resv_ports = None         # only steps reserve ports
        request.wait_all_nodes = 1
        request.cpu_bind = opts["cpu_bind"]
        request.test_only = opts["test_only"]
        request.kill_on_bad_exit = opts["kill_on_bad_exit"]
        _common(opts, call, request)
        result.requests.append(request)
    _levels(log, result.options[-1])


def _salloc(call: Call, caller: Caller, log: Log, result: Submission) -> Asking[None]:
    opts = OptionSet("salloc", caller, log)
    args, program = list(call.argv), "salloc"
    more = True
    while more:
        opts.reset_all(first=not result.requests)
        read_environment(opts)
        opts.submit_line = " ".join([program, *args])
        end = read_options(opts, program, args)
        more = args[end:end + 1] == [":"]
        if not more:
            opts.argv = args[end:]
        interactive_step = "use_interactive_step" in call.conf.values.get("LaunchParameters", "")
        if opts["container"] and not interactive_step:
            log.error("--container requires LaunchParameters=use_interactive_step")
            raise ClientExit(result.error_exit)
        result.parsed.append(opts.shown())
        yield from _verify_salloc(opts, call, result.error_exit)
        if opts["verbose"]:
            print_options(opts)
        if opts["x11"]:
            yield from _find_display(caller.env, log)
        _levels(log, opts)
        if opts["chdir"]:
            yield from _enter(opts["chdir"], log, result.error_exit)
        if not result.requests:
            caller.env["SLURM_SUBMIT_DIR"], caller.env["SLURM_SUBMIT_HOST"] = call.cwd, call.host
        request = describe(opts, call, result.error_exit)
        request.work_dir = call.cwd           # -D is where the command runs
        request.wait_all_nodes = opts["wait_all_nodes"]
        request.no_shell, request.bell = opts["no_shell"], opts["bell"]
        request.kill_command_signal = opts["kill_command"]
        _common(opts, call, request)
        group = len(result.requests) if result.requests or more else None
        caller.env.update(environment.option_variables(opts, group))
        result.requests.append(request)
        result.options.append(opts.copy())
        args, program = args[end + 1:], ":"
    caller.env.update(environment.launcher_variables(caller.env, call.conf.values.get("MpiParams", "")))
    result.argv = tuple(opts.argv)
    names = [request.name for request in result.requests]
    if any(name != names[0] for name in names):
        for request in result.requests:
            request.name = names[0]


def _enter(path: str, log: Log, error_exit: int) -> Asking[None]:
    """-D must name a directory. Reading one fails with EISDIR, which is what tells it."""
    data = yield path
    if isinstance(data, IsADirectoryError):
        return
    reason = (data.strerror or str(data)) if isinstance(data, OSError) else "Not a directory"
    log.error(f"chdir({path}): {reason}")
    raise ClientExit(error_exit)


def _find_display(env: Mapping[str, str], log: Log) -> Asking[None]:
    """--x11 needs a display to forward to. Raises ClientExit."""
    display = env.get("DISPLAY")
    if display is None:
        log.error("No DISPLAY variable set, cannot setup x11 forwarding.")
        raise ClientExit(EXIT_MINUS_ONE)
    if display.startswith(":"):
        path = f"/tmp/.X11-unix/X{display[1:].partition('.')[0]}"
        if isinstance((yield path), FileNotFoundError):        # a socket that is there cannot be read either
            log.error(f"Cannot stat() local X11 socket `{path}`")
            raise ClientExit(EXIT_MINUS_ONE)
    elif ":" not in display:
        log.error("Error parsing DISPLAY environment variable. Cannot use X11 forwarding.")
        raise ClientExit(EXIT_MINUS_ONE)


def _common(opts: OptionSet, call: Call, request: JobRequest) -> None:
    request.name = opts["job_name"]
    request.command = opts.argv[0] if opts.argv else None
    request.script_args = tuple(opts.argv[1:])
    request.immediate_s = opts["immediate"] or None
    request.x11 = opts["x11"]
    request.environment = ()
    request.rlimits = {}
    request.umask = call.umask


def _levels(log: Log, opts: OptionSet) -> None:
    if opts["verbose"] or opts["quiet"]:
        log.level += opts["verbose"] - opts["quiet"]


def _verify_salloc(opts: OptionSet, call: Call, error_exit: int) -> Asking[None]:
    """Checks, derived numbers, and the variables salloc sets for the sruns inside. Raises ClientExit."""
    log = opts.log
    verified = True
    yield from checks.check_shared(opts, call.conf.values.get("AllowSpecResourcesUsage", "NO").upper() in (
        "YES", "1", "TRUE", "UP"))
    if opts["quiet"] and opts["verbose"]:
        log.error("don't specify both --verbose (-v) and --quiet (-Q)")
        verified = False
    if opts["resv_ports"] is not None and not opts["stepmgr"] and "enable_stepmgr" not in (
            call.conf.values.get("SlurmctldParameters", "")):
        log.error("Slurmstepd step management must be enabled to use --resv-ports for job allocations")
        verified = False
    path = opts["burst_buffer_file"]
    if path and opts["burst_buffer"]:
        log.error("Cannot specify both --bb and --bbf")
        raise ClientExit(error_exit)
    if path:
        data = yield path if path.startswith("/") else f"{call.cwd}/{path}"
        if isinstance(data, OSError):
            log.error("Invalid --bbf specification")
            raise ClientExit(error_exit)
        opts["burst_buffer"], opts["burst_buffer_file"] = data.decode("utf-8", "surrogateescape"), None
    checks.apply_hint(opts, error_exit)
    if opts["exclude"]:
        opts["exclude"] = yield from checks.resolve_file(opts, opts["exclude"])
    verified &= settle_sizes(opts, error_exit)
    if opts["deadline"] and opts["begin"] and opts["deadline"] < opts["begin"]:
        log.error("Incompatible begin and deadline time specification")
        raise ClientExit(error_exit)
    _salloc_variables(opts)
    if opts["wait_all_nodes"] is None and "salloc_wait_nodes" in call.conf.scheduler_parameters:
        opts["wait_all_nodes"] = 1
    opts["job_name"] = opts["job_name"] or ("no-shell" if opts["no_shell"] else "interactive")
    if not verified:
        raise ClientExit(error_exit)


def _salloc_variables(opts: OptionSet) -> None:
    target = opts.caller.env
    memory = opts["mem_bind"]
    pairs: dict[str, object] = {
        "SLURM_CONTAINER": opts["container"], "SLURM_CONTAINER_ID": opts["container_id"],
        "SLURM_OOM_KILL_STEP": opts["oom_kill_step"],
        "SLURM_MEM_BIND": str(memory) if memory else None,
        "SLURM_MEM_BIND_VERBOSE": ("verbose" if memory.verbose else "quiet") if memory else None,
        "SLURM_NTASKS_PER_CORE": opts["ntasks_per_core"], "SLURM_NTASKS_PER_GPU": opts["ntasks_per_gpu"],
        "SLURM_NTASKS_PER_NODE": opts["ntasks_per_node"], "SLURM_NTASKS_PER_SOCKET": opts["ntasks_per_socket"],
        "SLURM_NTASKS_PER_TRES": opts["ntasks_per_tres"]}
    for name, value in pairs.items():
        if value is not None:
            target.setdefault(name, str(value))
    if opts["profile"]:
        target["SLURM_PROFILE"] = opts["profile"]
    if opts["cpu_freq"] is not None:
        target["SLURM_CPU_FREQ_REQ"] = str(opts["cpu_freq"])
