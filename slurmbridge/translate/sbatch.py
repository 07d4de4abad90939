"""What the sbatch client does between its command line and the message to the controller.

The order is sbatch's own and shows in what users see: the command line is read twice (so that its mistakes are told
before the script is opened), then for each het component the script's directives, the environment and the command
line again; then everything is checked together (sbatch(1)).
"""
from __future__ import annotations

from slurmbridge.slurm import directives, foreign
from slurmbridge.slurm import option_checks as checks
from slurmbridge.slurm.asking import Asking
from slurmbridge.slurm.jobspec import JobRequest
from slurmbridge.slurm.option_env import EARLY
from slurmbridge.slurm.option_reading import error_exit_code, print_options, read_environment, read_options
from slurmbridge.slurm.option_sizes import settle_sizes
from slurmbridge.slurm.option_values import EXIT_MINUS_ONE, Caller, ClientExit, Log, OptionSet
from slurmbridge.translate import environment
from slurmbridge.translate.call import Call, ClientError, Submission
from slurmbridge.translate.describe import describe


def submission(call: Call) -> Asking[Submission]:
    """Asks for the script (and other files named); returns what would be sent. Raises ClientError."""
    log = Log("sbatch")
    try:
        client = _Sbatch(call, log)
        yield from client.run()
    except ClientExit as end:
        raise ClientError(log.text, end.code, end.stdout) from None
    client.result.stderr = log.text
    return client.result


def caller_of(call: Call, env: dict[str, str]) -> Caller:
    return Caller(env, call.cwd, call.now_s, call.uid, call.conf.values, call.uid_of, call.gid_of)


class _Sbatch:
    def __init__(self, call: Call, log: Log) -> None:
        self.call, self.log = call, log
        self.env = dict(call.env)
        self.error_exit = error_exit_code(self.env, "SLURM_EXIT_ERROR", log)
        self.opts = OptionSet("sbatch", caller_of(call, self.env), log)
        self.result = Submission(error_exit=self.error_exit, env=self.env)
        self.script: str | None = None
        self.wrapped = False
        self.file_name = "stdin"

    def run(self) -> Asking[None]:
        opts, argv = self.opts, list(self.call.argv)
        operands = self.first_pass(argv)
        quiet = opts["quiet"]
        if opts["verbose"] or quiet:
            self.log.level += opts["verbose"] - quiet
        yield from self.find_script(operands)
        self.env.pop("SLURM_STEPMGR", None)
        args = argv[:len(argv) - len(operands)]
        component, more = 0, True
        while more:
            end, more = yield from self.component(args, component)
            if args[end:end + 1] == [":"]:
                args, more = args[end + 1:], True
            component += 1
        if component > 1:
            for offset, request in enumerate(self.result.requests):
                request.het_offset = offset
        self.finish(quiet)

    def first_pass(self, argv: list[str]) -> list[str]:
        opts = self.opts
        opts.submit_line = " ".join(["sbatch", *argv])
        for variable, key in EARLY["sbatch"]:
            if variable in self.env:
                opts.process(key, self.env[variable], by_env=True)
        flat = [word for word in argv if word != ":"]
        operands = flat[read_options(opts, "sbatch", flat, by_env=True, early=True):]
        for name, on in (("--wrap", opts["wrap"] is not None), ("--external", opts["external"])):
            if operands and on:
                self.log.error(f"Script arguments not permitted with {name} option")
                raise ClientExit(self.error_exit)
        return operands

    # -- the script

    def find_script(self, operands: list[str]) -> Asking[None]:
        opts = self.opts
        opts.argv = list(operands)
        if opts["wrap"] is not None:
            self.wrapped = True
            self.script = f"#!/bin/sh\n# This script was created by sbatch --wrap.\n\n{opts['wrap']}\n"
            return
        if opts["external"]:
            return
        if operands:
            data = yield from self.search(operands[0])
            self.file_name = opts.argv[0].rpartition("/")[2]
            if isinstance(data, OSError):
                self.log.error(f"Unable to open file {opts.argv[0]}")
                raise ClientExit(self.error_exit)
        else:
            data = yield None
            if isinstance(data, OSError):
                data = b""
        if len(data) > directives.MAX_SCRIPT_BYTES:
            raise self.log.fatal(f"Script file {opts.argv[0]} is too large" if operands else
                                 f"Script from STDIN is too big, read {len(data)} > {directives.MAX_SCRIPT_BYTES} "
                                 "bytes.")
        lines = directives.script_error(data)
        for line in lines:
            self.log.error(line)
        if lines:
            raise ClientExit(self.error_exit)
        self.script = data.decode("utf-8", "surrogateescape")

    def search(self, name: str) -> Asking[bytes | OSError]:
        """The script: as named, or looked for in the working directory and along PATH."""
        opts = self.opts
        if name[:1] not in ("/", "."):
            folders = [opts["chdir"], *(f for f in self.env.get("PATH", "").split(":") if f)]
            for folder in folders:
                path = f"{opts['chdir']}/{folder}/{name}" if folder[0] == "." else f"{folder}/{name}"
                data = yield path
                if not isinstance(data, (FileNotFoundError, NotADirectoryError, IsADirectoryError)):
                    opts.argv[0] = path
                    return data
        return (yield name if name.startswith("/") else f"{self.call.cwd}/{name}")

    # -- one component

    def component(self, args: list[str], index: int) -> Asking[tuple[int, bool]]:
        opts = self.opts
        opts.reset_all(first=False)
        more = self.read_script(index)
        read_environment(opts)
        end = read_options(opts, "sbatch" if args == list(self.call.argv)[:len(args)] else ":", args)
        self.result.parsed.append(opts.shown())
        variables = yield from self.verify()
        if opts["verbose"]:
            print_options(opts)
        yield from self.burst_buffer()
        limits = {} if opts["get_user_env"] else environment.propagated_limits(opts, self.call, self.error_exit)
        if opts["export_file"] is not None:
            self.env.clear()
            limits = {}                       # they travel in the environment
        umask = opts["umask"] if opts["umask"] >= 0 else self.call.umask
        environment.submit_variables(self.call, self.env, umask)
        request = describe(opts, self.call, self.error_exit)
        yield from self.complete(request)
        request.rlimits, request.umask = limits, environment.umask_of(self.env, umask)
        self.result.requests.append(request)
        self.component_variables(variables, index, more or args[end:end + 1] == [":"])
        return end, more

    def read_script(self, index: int) -> bool:
        """Directives of one component; whether there are more components."""
        if self.script is None or self.wrapped:
            return False                      # what --wrap brings is not searched for directives
        opts = self.opts
        try:
            words, more = directives.component_arguments(self.script, index, self.file_name, self.log)
            end = read_options(opts, "sbatch", words)
            if end < len(words):
                self.log.error(f"Invalid directive found in batch script: {words[end]}")
                raise ClientExit(EXIT_MINUS_ONE)
            if not opts["ignore_pbs"]:
                self.read_foreign()
        except directives.DirectiveError as wrong:
            raise self.log.fatal(str(wrong)) from None
        return more

    def read_foreign(self) -> None:
        for prefix, apply in (("#BSUB", foreign.apply_bsub), ("#PBS", foreign.apply_pbs)):
            if prefix not in (self.script or ""):
                continue
            words = directives.foreign_arguments(self.script or "", prefix, self.file_name, self.log)
            if words is not None:
                apply(words, self.opts, self.error_exit)
                return

    def burst_buffer(self) -> Asking[None]:
        """--bbf: its lines become part of the script."""
        path = self.opts["burst_buffer_file"]
        if not path:
            return
        data = yield path if path.startswith("/") else f"{self.call.cwd}/{path}"
        if isinstance(data, OSError):
            self.log.error("Invalid --bbf specification")
            raise ClientExit(self.error_exit)
        lines = data.decode("utf-8", "surrogateescape")
        first, newline, rest = (self.script or "").partition("\n")
        self.script = f"{first}{newline or chr(10)}{lines}{'' if lines.endswith(chr(10)) else chr(10)}{rest}"

    def verify(self) -> Asking[dict[str, str]]:
        """Checks; returns variables that the job's environment gets for this component. Raises ClientExit."""
        opts, env, log = self.opts, self.env, self.log
        verified = True
        yield from checks.check_shared(opts, self.call.conf.values.get("AllowSpecResourcesUsage", "NO").upper() in (
            "YES", "1", "TRUE", "UP"))
        if opts["quiet"] and opts["verbose"]:
            log.error("don't specify both --verbose (-v) and --quiet (-Q)")
            verified = False
        if opts["resv_ports"] is not None and not opts["stepmgr"] and "enable_stepmgr" not in (
                self.call.conf.values.get("SlurmctldParameters", "")):
            log.error("Slurmstepd step management must be enabled to use --resv-ports for job allocations")
            verified = False
        if opts["burst_buffer"] and opts["burst_buffer_file"]:
            log.error("Cannot specify both --burst-buffer and --bbf")
            raise ClientExit(self.error_exit)
        for option, variable in (("container", "SLURM_CONTAINER"), ("container_id", "SLURM_CONTAINER_ID")):
            if opts[option]:
                env.setdefault(variable, opts[option])
        checks.apply_hint(opts, self.error_exit)
        for field in ("error", "input", "output"):
            name = opts[field] if field != "input" else opts[field] or "/dev/null"
            opts[field] = name if name is None or name.startswith("/") else f"{opts['chdir']}/{name}"
        if opts["exclude"]:
            opts["exclude"] = yield from checks.resolve_file(opts, opts["exclude"])
        if opts["job_name"] is None:
            if opts["wrap"] is not None:
                opts["job_name"] = "wrap"
            elif opts["external"]:
                opts["job_name"] = "external"
            elif opts.argv:
                opts["job_name"] = opts.argv[0].rpartition("/")[2]
        verified &= settle_sizes(opts, self.error_exit)
        if opts["deadline"] and opts["begin"] and opts["deadline"] < opts["begin"]:
            log.error("Incompatible begin and deadline time specification")
            raise ClientExit(self.error_exit)
        if opts["dependency"]:
            env["SLURM_JOB_DEPENDENCY"] = opts["dependency"]
        if opts["export"] is not None and opts["export"].upper() != "ALL":
            env.setdefault("SLURM_EXPORT_ENV", opts["export"])
        if not verified:
            raise ClientExit(self.error_exit)
        return component_variables(opts, env)

    def complete(self, request: JobRequest) -> Asking[None]:
        """What sbatch adds to the description."""
        opts = self.opts
        request.name = "sbatch" if opts["job_name"] is None else opts["job_name"]
        request.array, request.batch_features = opts["array"], opts["batch_features"]
        request.wait_all_nodes = opts["wait_all_nodes"]
        request.requeue = None if opts["requeue"] is None else opts["requeue"] != "no-requeue"
        request.expedited_requeue = opts["requeue"] == "expedite"
        request.kill_on_invalid_dep = opts["kill_on_invalid_dep"]
        request.parsable, request.test_only, request.wait = opts["parsable"], opts["test_only"], opts["wait"]
        request.external = opts["external"]
        request.export, request.propagate = opts["export"], opts["propagate"]
        if opts["uid"] is not None:
            request.uid = opts["uid"]
        if opts["gid"] is not None:
            request.gid = opts["gid"]
        if not self.result.requests:
            request.script = self.script
        if request.external:
            return
        variables = yield from environment.job_environment(opts)
        if checks.is_arbitrary(opts) and request.node_list:
            variables["SLURM_ARBITRARY_NODELIST"] = request.node_list
        request.environment = tuple(f"{name}={value}" for name, value in variables.items())
        request.get_user_env = "" if opts["get_user_env"] else None
        request.std_err, request.std_in, request.std_out = opts["error"], opts["input"], opts["output"]
        request.open_mode = opts["open_mode"]

    def component_variables(self, variables: dict[str, str], index: int, het: bool) -> None:
        """Variables of every component go into the first one's environment: it runs the script."""
        first = self.result.requests[0]
        group = index if het or index else None
        more = environment.option_variables(self.opts, group)
        if not index:
            more |= environment.launcher_variables(self.env, self.call.conf.values.get("MpiParams", ""))
        ending = "" if group is None else f"_HET_GROUP_{group}"
        more |= {name + ending: value for name, value in variables.items()}
        if group is not None:
            more |= {f"{name}_PACK_GROUP_{group}": value for name, value in variables.items()}
        if not first.external:
            merged = dict(entry.partition("=")[::2] for entry in first.environment) | more
            first.environment = tuple(f"{name}={value}" for name, value in merged.items())

    def finish(self, quiet: int) -> None:
        last = self.result.requests[-1]
        for request in self.result.requests:
            request.quiet, request.parsable, request.wait = bool(quiet), last.parsable, last.wait
            request.test_only, request.clusters = last.test_only, last.clusters
        self.result.options.append(self.opts)


def component_variables(opts: OptionSet, env: dict[str, str]) -> dict[str, str]:
    """SLURM_NTASKS and its like, as far as the client knows them."""
    layout = opts["distribution"]
    plane = layout is not None and layout.layout == "plane"
    memory = opts["mem_bind"]
    pairs: dict[str, object] = {
        "SLURM_CPUS_PER_TASK": opts["cpus_per_task"] if opts["cpus_set"] else None,
        "SLURM_DISTRIBUTION": (str(layout) or None) if layout is not None else None,
        "SLURM_MEM_BIND": str(memory) if memory and "SBATCH_MEM_BIND" not in env else None,
        "SLURM_MEM_BIND_VERBOSE": ("verbose" if memory.verbose else "quiet")
        if memory and "SLURM_MEM_BIND_VERBOSE" not in env else None,
        "SLURM_NPROCS": opts["ntasks"] if opts["ntasks_set"] and opts["ntasks"] > 0 else None,
        "SLURM_NTASKS": opts["ntasks"] if opts["ntasks_set"] and opts["ntasks"] > 0 else None,
        "SLURM_NTASKS_PER_CORE": opts["ntasks_per_core"],
        "SLURM_NTASKS_PER_GPU": opts["ntasks_per_gpu"] if opts["ntasks_per_tres"] is None else None,
        "SLURM_NTASKS_PER_NODE": opts["ntasks_per_node"],
        "SLURM_NTASKS_PER_SOCKET": opts["ntasks_per_socket"],
        "SLURM_NTASKS_PER_TRES": opts["ntasks_per_tres"],
        "SLURM_DIST_PLANESIZE": layout.plane_size if plane else None,
        "SLURM_THREADS_PER_CORE": opts["threads_per_core"]}
    return {name: str(value) for name, value in pairs.items() if value is not None}
