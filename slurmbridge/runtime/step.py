"""A step that runs: its keepers on the nodes, what its tasks say and read, how it ends. Srun's side is srun.py."""
from __future__ import annotations

import asyncio
import errno
import os
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slurmbridge.runtime import broadcast, helpers, launch, stepfiles
from slurmbridge.runtime.client import RAW, START, Client
from slurmbridge.runtime.cpubind import BIND_ERROR_EXIT, OutsideStep
from slurmbridge.runtime.links import BranchLink
from slurmbridge.runtime.outcome import TaskStates, exit_message, worse
from slurmbridge.runtime.stdin import StdinSource
from slurmbridge.runtime.stepoptions import StepOptions
from slurmbridge.runtime.steptypes import Place, StepPlan, alone
from slurmbridge.runtime.tasks import open_output
from slurmbridge.runtime.tree import branches
from slurmbridge.slurm.multiprog import programs

if TYPE_CHECKING:
    from slurmbridge.runtime.daemon import StepDaemon
    from slurmbridge.runtime.parts import Part
    from slurmbridge.runtime.pmiworld import World
    from slurmbridge.runtime.sattach import Attached

STEP_ABORT_S = 2
"""Seconds besides KillWait that srun announces for the end of a step."""
KILL_DELAY_S = 0.2
"""Between a task's bad exit and the end of the others (-K): those that just begin get to say something."""
HOOK_VARIABLES = (
    "SLURM_STEP_ID", "SLURM_STEPID", "SLURM_STEP_NODELIST", "SLURM_STEP_NUM_NODES", "SLURM_STEP_NUM_TASKS",
    "SLURM_STEP_TASKS_PER_NODE", "SLURM_STEP_LAUNCHER_PORT", "SLURM_SRUN_COMM_PORT", "SLURM_SRUN_COMM_HOST",
    "SLURM_NNODES", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_TASKS_PER_NODE")
"""What srun's own environment has once it has its step."""
ABORTED_STATUS = signal.SIGKILL.value


class CannotStart(Exception):
    """The step ends before its tasks begin; srun has said why."""


@dataclass(slots=True)
class SrunCall:
    """What srun was called with and in. ``own_umask`` is its own, ``umask`` the one its tasks get."""

    request: dict[str, Any]
    env: dict[str, str]
    cwd: str
    umask: int
    own_umask: int
    owns_allocation: bool
    programs_text: str | None                 # of --multi-prog


class RunningStep:
    """One step with its number and its plan. ``run`` starts it and returns when nothing of it is left."""

    def __init__(self, daemon: StepDaemon, client: Client, call: SrunCall, part: Part, step: StepOptions,
                 step_id: str, plan: StepPlan, place: Place | None = None) -> None:
        self.daemon, self.client, self.call, self.step_id, self.plan = daemon, client, call, step_id, plan
        self.part, self.order = part, part.order
        self.step, self.opts = step, step.opts
        self.place = place or alone(plan)
        self.status: int | None = None
        self.links: list[BranchLink] = []
        self.files: dict[int, stepfiles.Target] = {}
        self.states = TaskStates(plan.num_tasks)
        self.world: World | None = None       # of an MPI program
        self.client_gone = False
        self.cancelled = False                # srun itself ended the step
        self._is_silent = False               # its tasks' deaths are not told
        self._aborting = False
        self._timed_out = False
        self._told_abort = False
        self._launch_error = 0                # why some tasks were not started
        self._task_signal = False
        self._killing = False
        self._timers: list[asyncio.TimerHandle] = []
        self._files: dict[int, int] = {}      # stream -> descriptor of srun's own output file
        self._stdin: StdinSource | None = None
        self._variables: dict[str, str] = {}  # of its tasks
        self._usage: dict[int, dict[str, float]] = {}
        self._orphans: dict[str, float] = {}
        self.listeners: list[Attached] = []
        self.siblings: list[RunningStep] = [self]              # the steps of this srun
        self.label_width = len(str(self.place.total_tasks - 1)) if self.opts["label"] else 0

    @property
    def step_name(self) -> str:
        return f"{self.order.job_id}.{self.step_id}"

    # ---- life -------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Raises CannotStart."""
        try:
            await self._run()
        finally:
            for timer in self._timers:
                timer.cancel()
            for listener in self.listeners:
                listener.step_over()
            for fd in set(self._files.values()):
                os.close(fd)
            if self._stdin is not None:
                self._stdin.close()

    async def _run(self) -> None:
        step, plan = self.step, self.plan
        num_tasks = plan.num_tasks
        argvs = programs_of(self.call.programs_text, step.argv, num_tasks)
        self.files = {
            0: stepfiles.target(self.opts["input"], num_tasks), 1: stepfiles.target(self.opts["output"], num_tasks),
            2: stepfiles.target(
                self.opts["output"] if self.opts["error"] is None else self.opts["error"], num_tasks)}
        names = stepfiles.Names(self.order, self.step_id, self.call.env, self.opts["chdir"])
        self._open_files(stepfiles.Names(self.order, self.step_id, self.call.env, self.call.cwd))
        started_s = time.time()
        self._tell_start(step, plan, started_s)
        programs_there = await self._broadcast(step.argv)
        request = launch.step_request(self, step)
        self._variables = request["env"]
        try:
            nodes = launch.node_requests(self, plan, argvs, names, request["env"])
        except OutsideStep as error:
            raise self._refused(f"{error}", "Unable to satisfy cpu bind request", BIND_ERROR_EXIT) from None
        for node in nodes if programs_there else ():
            for task in node["tasks"]:
                task["argv"] = [programs_there[node["node"]], *task["argv"][1:]]
        self.links = [BranchLink(self, request, some) for some in branches(launch.groups(nodes), request["width"])]
        self._arm_timers()
        await self._run_hook("prolog")
        runs = [asyncio.create_task(link.run()) for link in self.links]
        if self.client_gone:
            self.abort()
        await asyncio.gather(*(link.ready() for link in self.links))
        if self.opts["gpu_freq"] and any(launch.share_gpus(share) for share in plan.shares):
            await self.client.write(b"E", b"GpuFreq=control_disabled\n")
        self._start_stdin()
        await asyncio.gather(*runs)
        if self._aborting and not self.states.left and not self._told_abort:
            self.client.say("Job step aborted")
        if self._task_signal and not self._aborting:
            self.client.say(f"Force Terminated StepId={self.step_name}")
        await self._run_hook("epilog")
        how: dict[str, Any] = {"killed_by_uid": self.order.uid} if self.cancelled else {}
        if self._timed_out:
            how["state"] = "TIMEOUT"
        status = self._launch_error or self.status or 0
        self.part.tell("step_ended", step_id=self.step_id, exit_status=status, **how,
                       usage=launch.total_usage(self._usage, {rank: share.name for share in plan.shares
                                                               for rank in share.tasks}, self._orphans))

    def _refused(self, text: str, reason: str, code: int) -> CannotStart:
        """A step whose nodes would not take it, as srun says so."""
        node = self.plan.shares[0].name
        for line in (text, f"Task launch for StepId={self.step_name} failed on node {node}: {reason}",
                     f"Application launch failed: {reason}"):
            self.client.say(f"error: {line}")
        self.client.say("Job step aborted")
        self.part.tell("step_ended", step_id=self.step_id, exit_status=code << 8, usage={})
        return CannotStart(code)

    async def _broadcast(self, argv: list[str]) -> dict[str, str]:
        """--bcast: the program's name on every node, {} without. Raises CannotStart."""
        wanted = self.opts["bcast"]
        if wanted is None:
            return {}
        source = executable(argv[0], self.call.cwd, self.call.env)
        base = wanted if wanted.startswith("/") else broadcast.dest_dir(self.order.settings) or self.opts["chdir"]
        paths = {share.name: broadcast.step_target(base, wanted, self.order.job_id, self.step_id, share.name)
                 for share in self.plan.shares}
        targets = [broadcast.Target(self.order.nodes[share.node_index], self.order.credential, paths[share.name])
                   for share in self.plan.shares]
        try:
            await broadcast.send(await broadcast.read_source(self.client, source), targets, force=True, preserve=True)
        except broadcast.BroadcastFailed as failed:
            self.client.say(f"error: {failed.strerror}")
            self.client.say(f"fatal: Failed to broadcast '{argv[0]}'. Step launch aborted.")
            raise CannotStart from None
        return paths

    def _open_files(self, names: stepfiles.Names) -> None:
        """srun's own output files, with its umask and its directory."""
        append = self.opts["open_mode"] == "append" or (
            self.opts["open_mode"] is None and self.order.settings.get("JobFileAppend", "0") == "1")
        flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND | (0 if append else os.O_TRUNC)
        opened: dict[str, int] = {}
        for stream, word in ((1, "stdout"), (2, "stderr")):
            where = self.files[stream]
            if where.kind != "file":
                continue
            path = names.file(where.pattern)
            try:
                if path not in opened:
                    opened[path] = open_output(path, flags, self.call.own_umask)
            except OSError as error:
                self.client.say(f"error: Could not open {word} file: {error.strerror}")
                raise CannotStart from None
            self._files[stream] = opened[path]
        where = self.files[0]
        if where.kind == "file":
            try:
                self._stdin = StdinSource(os.open(names.file(where.pattern), os.O_RDONLY | os.O_NONBLOCK), self._feed)
            except OSError as error:
                self.client.say(f"error: Could not open stdin file: {error.strerror}")
                raise CannotStart from None

    def _tell_start(self, step: StepOptions, plan: StepPlan, started_s: float) -> None:
        self.part.tell("step_started", **launch.step_record(self, step, plan, started_s))

    def _arm_timers(self) -> None:
        loop = asyncio.get_running_loop()
        minutes = self.opts["time_limit"]
        if minutes and minutes < 0xFFFFFFFE:
            self._timers.append(loop.call_later(minutes * 60, self._time_limit))

    def _time_limit(self) -> None:
        self._timed_out = True
        self.end_step("DUE TO TIME LIMIT")

    async def _run_hook(self, which: str) -> None:
        """--prolog and --epilog run where srun runs, before and after the step."""
        command = self.opts[which]
        if not command or command.lower() == "none" or self.client_gone:
            return
        program = os.path.join(self.call.cwd, command)
        if not helpers.may_run(program):
            reason = os.strerror(errno.EACCES if os.path.exists(program) else errno.ENOENT)
            self.client.say(f"Access denied for {command}: {reason}")
            return
        status, out, err = await helpers.capture(self.daemon.children, [command, *self.opts.argv], self.call.env | {
            name: self._variables[name] for name in HOOK_VARIABLES if name in self._variables},
            self.call.cwd, umask=self.call.own_umask)
        await self.client.write(b"O", out)
        await self.client.write(b"E", err)
        if status and which == "prolog":
            self.client.say(f"error: srun prolog failed rc = {os.waitstatus_to_exitcode(status)}. Aborting step.")
            self.abort()

    # ---- what the keepers say ---------------------------------------------------------------------------------------

    async def output(self, rank: int, stream: int, data: bytes) -> None:
        """A piece of a task's output (or, with ALL_TASKS, a line of a step daemon's)."""
        for listener in self.listeners:
            await listener.output(rank, stream, data)
        if rank >= 0 and self.label_width:
            data = stepfiles.label(data, self.place.first_task + rank, self.label_width)
        fd = self._files.get(stream) if rank >= 0 else self._files.get(2)
        if fd is not None:
            try:
                stepfiles.write_all(fd, data)
            except OSError as error:
                self.client.say(f"error: write to output file: {error.strerror}")
        else:
            await self.client.write(b"O" if stream == 1 else b"E", data)

    def tasks_started(self, ranks: list[int]) -> None:
        self.states.started(ranks)

    def tasks_ended(self, node: str, ranks: list[int], status: int, usage: dict[int, dict[str, float]]) -> None:
        first = len(self.states.left) == self.plan.num_tasks
        ranks = self.states.still_left(ranks)
        if not ranks:
            return
        self.states.ended(ranks, status)
        for listener in self.listeners:
            listener.tasks_ended(ranks, status)
        self._usage.update(usage)
        self.status = worse(self.status, status)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGTERM, signal.SIGKILL):
            self._task_signal = True
        message = exit_message(node, ranks, status)
        if message is not None and not (self._is_silent and os.WIFSIGNALED(status)):
            self.client.say(f"error: {message}")
        if status != 0 and self._kills_on_bad_exit() and not self._killing:
            for step in self.siblings:
                step.task_failed()
        if first and self.states.left:
            self._arm_wait()

    def task_failed(self) -> None:
        """-K: a task of this srun has failed."""
        self._killing = True
        self.client.say(f"Terminating StepId={self.step_name}")
        if self.states.left:
            self._timers.append(asyncio.get_running_loop().call_later(KILL_DELAY_S, self._end_after_failure))

    def _end_after_failure(self) -> None:
        if not self.states.left:
            return
        if self.states.not_started:
            self._timers.append(asyncio.get_running_loop().call_later(KILL_DELAY_S, self._end_after_failure))
            return
        self.end_step("DUE TO TASK FAILURE")
        self._tell_abort()

    def _kills_on_bad_exit(self) -> bool:
        chosen = self.opts["kill_on_bad_exit"]
        return bool(int(self.order.settings.get("KillOnBadExit", "0") or 0) if chosen is None else chosen)

    def _arm_wait(self) -> None:
        """-W: after the first task's end the others have so long."""
        chosen = self.opts["max_wait"]
        seconds = int(self.order.settings.get("WaitTime", "0").split()[0] or 0) if chosen is None else chosen
        if seconds:
            self._timers.append(asyncio.get_running_loop().call_later(seconds, self._waited, seconds))

    def _waited(self, seconds: int) -> None:
        self.client.say(f"First task exited {seconds}s ago")
        for line in self.states.report(self.step_name):
            self.client.say(line)
        self.client.say(f"Terminating StepId={self.step_name}")
        self.order_keepers({"op": "signal", "signal": signal.SIGKILL, "message": "DUE to SIGNAL Killed"})
        self._tell_abort()

    def node_lost(self, node: str) -> None:
        """The step daemon of a node is gone."""
        for share in self.plan.shares:
            if share.name == node and (left := self.states.still_left(share.tasks)):
                self.keeper_lost(node, left)

    def keeper_lost(self, node: str, ranks: list[int]) -> None:
        ranks = self.states.still_left(ranks)
        if not ranks:
            return
        self.client.say(f"error: Node failure on {node}")
        self.tasks_ended(node, ranks, ABORTED_STATUS, {})

    def orphans_used(self, usage: dict[str, float]) -> None:
        """CPU time of processes that outlived the tasks that started them, on one node."""
        for name, value in usage.items():
            self._orphans[name] = self._orphans.get(name, 0) + value

    def launch_failed(self, ranks: list[int], message: str, error: int) -> None:
        """``error``: Slurm's number, which is what is recorded as the step's exit status."""
        for rank in ranks:
            self.client.say(f"error: task {rank} launch failed: {message}")
        self.states.ended(ranks, 1 << 8)
        self.status = worse(self.status, 1 << 8)
        self._launch_error = max(self._launch_error, error)

    async def look(self) -> dict[str, Any]:
        """What the step has used up to now, for sstat: as its usage at the end, with the processes of each node."""
        looks = await asyncio.gather(*(link.look() for link in self.links))
        by_node = {node: seen for look in looks for node, seen in look.items()}
        used = {int(rank): counts for seen in by_node.values() for rank, counts in seen["tasks"].items()}
        node_of = {rank: share.name for share in self.plan.shares for rank in share.tasks}
        return {**launch.total_usage(used, node_of, {}), "num_tasks": self.plan.num_tasks,
                "pids": {share.name: by_node.get(share.name, {}).get("pids", []) for share in self.plan.shares}}

    # ---- ending it --------------------------------------------------------------------------------------------------

    def order_keepers(self, order: dict[str, Any]) -> None:
        for link in self.links:
            link.order(order)

    def end_step(self, cause_text: str) -> None:
        """SIGCONT, SIGTERM, KillWait, SIGKILL, with slurmstepd's line."""
        self.order_keepers({"op": "end", "message": cause_text, "grace_s": self.order.kill_wait_s})

    def job_ends(self, cause_text: str) -> None:
        if self.links:
            self.order_keepers({"op": "signal", "signal": 0, "message": cause_text})
            self._tell_abort()

    def signal_by_request(self, number: int, *, quiet: bool = False) -> None:
        """scancel of this step. ``quiet``: with a signal that is named, which is not announced when it kills."""
        if quiet:
            self.order_keepers({"op": "signal", "signal": number})
            return
        text = f"DUE to SIGNAL {signal.strsignal(number)}" if number in (signal.SIGTERM, signal.SIGKILL) else ""
        self.order_keepers({"op": "signal", "signal": number, "message": text})
        if number == signal.SIGKILL:
            self._tell_abort()

    def mpi_abort(self) -> None:
        """A task has called MPI_Abort: as if the step had been killed by scancel."""
        self.signal_by_request(signal.SIGKILL)

    def _tell_abort(self) -> None:
        """srun's announcement that the step is being ended."""
        self._aborting = True
        if not self._told_abort and self.states.left:
            self._told_abort = True
            seconds = int(self.order.kill_wait_s) + STEP_ABORT_S
            self.client.say(f"Job step aborted: Waiting up to {seconds} seconds for job step to finish.")

    def abort(self, *, is_interrupt: bool = False) -> None:
        """srun ends the step. After an interrupt it does not tell how its tasks died."""
        self.cancelled, self._is_silent = True, is_interrupt
        self.order_keepers({"op": "signal", "signal": signal.SIGKILL, "message": "DUE to SIGNAL Killed"})
        if self.links:
            self._tell_abort()

    # ---- standard input ---------------------------------------------------------------------------------------------

    def _start_stdin(self) -> None:
        where = self.files[0]
        if self._stdin is not None:
            self._stdin.start()
        elif where.kind in ("all", "one") and not self.client_gone:
            self._stdin = StdinSource(None, self._feed, self.client)
            self.client.write_soon(b"I", RAW if self.opts["pty"] is not None else START)

    def _feed(self, data: bytes) -> None:
        where = self.files[0]
        for link in self.links:
            link.feed(data, where.task if where.kind == "one" else None)

    def feed(self, data: bytes, only_task: int | None) -> None:
        """Standard input from somebody else than srun."""
        for link in self.links:
            link.feed(data, only_task)

    def input_from_client(self, data: bytes) -> None:
        if self._stdin is not None:
            self._stdin.received(data)

    def stdin_backlog(self) -> None:
        """Called when a keeper has passed input on."""
        if self._stdin is not None:
            self._stdin.backlog(max((link.unconsumed for link in self.links), default=0))


def executable(name: str, cwd: str, env: dict[str, str]) -> str:
    """Where srun finds the program that it copies."""
    if "/" in name:
        return os.path.join(cwd, name)
    places = [os.path.join(cwd, folder, name) for folder in env.get("PATH", "").split(":")]
    return next((place for place in places if os.access(place, os.X_OK, effective_ids=True)),
                os.path.join(cwd, name))


def programs_of(multi_prog: str | None, argv: list[str], num_tasks: int) -> list[list[str]]:
    """Every task's argument vector."""
    return [argv] * num_tasks if multi_prog is None else programs(argv[0], multi_prog, num_tasks, argv[1:])
