"""One srun inside the allocation, from its command line to its exit code, at the step daemon of the first node."""
from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from typing import TYPE_CHECKING, Any

from slurmbridge.runtime import execution, frames, helpers, launch, stepenv, stepfiles
from slurmbridge.runtime.client import RAW, START, Client
from slurmbridge.runtime.environment import split_environment
from slurmbridge.runtime.keeper import open_output
from slurmbridge.runtime.links import KeeperLink
from slurmbridge.runtime.multiprog import MultiProgError, programs
from slurmbridge.runtime.outcome import TaskStates, exit_message, worse
from slurmbridge.runtime.stdin import StdinSource
from slurmbridge.runtime.stepoptions import StepOptions, read_step_options
from slurmbridge.runtime.stepplan import StepPlan, StepRefused
from slurmbridge.slurm import errors
from slurmbridge.slurm.option_values import ClientExit, Log

if TYPE_CHECKING:
    from slurmbridge.runtime.sessions import Sessions

STEP_ABORT_S = 2
"""Seconds besides KillWait that srun announces for the end of a step."""
RETRY_S = 60.0
"""How long srun waits silently for room in its allocation before it says so."""
LINGER_S = 3.0
KILL_DELAY_S = 0.05
"""Between a task's bad exit and the end of the others (-K): those that just begin get to say something."""
ABORTED_STATUS = signal.SIGKILL.value


class _Over(Exception):
    """srun ends before a step was there; the argument is its exit code."""


class SrunSession:
    """``request`` is the client's ``R`` frame."""

    def __init__(self, sessions: Sessions, request: dict[str, Any], reader: asyncio.StreamReader,
                 writer: asyncio.StreamWriter) -> None:
        self.sessions = sessions
        self.daemon = sessions.daemon
        self.order = self.daemon.order
        self.request = request
        self.client = Client(reader, writer)
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.owns_allocation: bool = (not self.order.request.batch and self.order.request.interactive_command == "srun"
                                and not sessions.ever_attached)
        self.step_id: str = ""
        self.status: int | None = None
        self.links: list[KeeperLink] = []
        self.files: dict[int, stepfiles.Target] = {}
        self.states = TaskStates(0)
        self._client_gone = False
        self._finished = False
        self._cancelled = False               # srun itself ended the step: its tasks' deaths are not told
        self._aborting = False
        self._told_abort = False
        self._last_interrupt_s = 0.0
        self._pending: asyncio.Future[int] | None = None
        self._task_signal = False
        self._killing = False
        self._timers: list[asyncio.TimerHandle] = []
        self._files: dict[int, int] = {}      # stream -> descriptor of srun's own output file
        self._stdin: StdinSource | None = None
        self._usage: dict[int, dict[str, float]] = {}

    @property
    def step_name(self) -> str:
        return f"{self.order.job_id}.{self.step_id}"

    # ---- life -------------------------------------------------------------------------------------------------------

    async def run(self) -> int:
        """The wait status that stands for this srun."""
        self._reading = asyncio.create_task(self._read_client())
        plan: StepPlan | None = None
        try:
            if self._is_for_the_controller():
                return 0
            step = self._read_options()
            self.client.write_soon(b"T", b"")
            plan = await self._create_step(step)
            await self._run_step(step, plan)
            status = self.status if self.status is not None else 1 << 8
            await self.client.exit(execution.exit_code(status))
            return status
        except _Over as over:
            code = int(over.args[0])
            await self.client.exit(code)
            return (code & 0xFF) << 8
        finally:
            self._finished = True
            for timer in self._timers:
                timer.cancel()
            for fd in set(self._files.values()):
                os.close(fd)
            if self._stdin is not None:
                self._stdin.close()
            if plan is not None:
                self.sessions.running.pop(self.step_id, None)
                self.sessions.release(plan)

    async def linger(self) -> None:
        """Until the client has closed: closing first could lose what it has not read yet."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._reading, LINGER_S)

    def _is_for_the_controller(self) -> bool:
        """srun makes a job of its own where the user has unset SLURM_JOB_ID: the client goes on to the controller."""
        env = split_environment(self.request.get("env", ()))
        argv = [str(word) for word in self.request.get("argv", ())]
        url = env.get("SLURMBRIDGE_URL") or self.order.controller_url
        if self.owns_allocation or "SLURM_JOB_ID" in env or not url or any(w.startswith("--job") for w in argv):
            return False
        self.client.write_soon(b"G", frames.json_bytes({"address": url, "credential": "", "argv": argv,
                                                        "env": [f"{name}={value}" for name, value in env.items()
                                                                if name != "SLURM_JOBID"]}))
        return True

    def _read_options(self) -> StepOptions:
        env = split_environment(self.request.get("env", ()))
        self.cwd = str(self.request.get("cwd") or "/")
        self.umask = stepenv.step_umask(env, int(self.request.get("umask", 0o022)))
        self.own_umask = int(self.request.get("umask", 0o022))
        log = Log("srun")
        try:
            step = read_step_options(env, self.cwd, [str(word) for word in self.request.get("argv", ())], self.order,
                                     time.time(), log, owns_allocation=self.owns_allocation)
        except ClientExit as end:
            self.client.flush(log)
            if end.stdout:
                self.client.write_soon(b"O", end.stdout.encode(errors="surrogateescape"))
            raise _Over(end.code) from None
        if not self.owns_allocation:          # else the controller's reading has said it
            self.client.flush(log)
        self.env = env
        self.opts = step.opts
        self.programs_text = self._read_programs(step)
        return step

    async def _create_step(self, step: StepOptions) -> StepPlan:
        """Waits for room in the allocation as srun does."""
        job_id = self.order.job_id
        immediate = self.opts["immediate"]
        waited = False
        begun = time.monotonic()
        retry_s = RETRY_S + self.request.get("pid", 0) % 10
        while True:
            try:
                self.step_id, plan = self.sessions.allocate(step.request)
                break
            except StepRefused as refused:
                late = immediate and (immediate == 1 or time.monotonic() - begun >= immediate)
                if not refused.retry or late or self.daemon.ending:
                    self.client.say(f"error: Unable to create step for job {job_id}: {refused}")
                    raise _Over(1) from None
                text = str(refused)
            timed_out = await self._wait_for_room(min(retry_s, immediate) if immediate else retry_s)
            if timed_out:
                how = "still" if waited else "temporarily"
                self.client.say(f"Job {job_id} step creation {how} disabled, retrying ({text})")
            waited = True
        if waited:
            self.client.say(f"Step created for StepId={self.step_name}")
        self.sessions.running[self.step_id] = self
        return plan

    async def _wait_for_room(self, timeout_s: float) -> bool:
        """Whether the time was over before a step ended."""
        self._pending = pending = asyncio.get_running_loop().create_future()
        room: asyncio.Future[Any] = asyncio.ensure_future(self.sessions.wait_for_room())
        try:
            waits: list[asyncio.Future[Any]] = [room, pending]
            done, _ = await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if pending in done:
                number = pending.result()
                if number:
                    self.client.say(f"Cancelled pending job step with signal {number}")
                over = errors.strerror(errors.ESLURM_ALREADY_DONE)
                self.client.say(f"error: Unable to create step for job {self.order.job_id}: {over}")
                raise _Over(1)
            return not done
        finally:
            room.cancel()
            self._pending = None

    # ---- the step ---------------------------------------------------------------------------------------------------

    async def _run_step(self, step: StepOptions, plan: StepPlan) -> None:
        num_tasks = plan.num_tasks
        self.states = TaskStates(num_tasks)
        self.label_width = len(str(num_tasks - 1)) if self.opts["label"] else 0
        argvs = programs_of(self.programs_text, step.argv, num_tasks)
        self.files = {
            0: stepfiles.target(self.opts["input"], num_tasks), 1: stepfiles.target(self.opts["output"], num_tasks),
            2: stepfiles.target(self.opts["error"] or self.opts["output"], num_tasks)}
        names = stepfiles.Names(self.order, self.step_id, self.env, self.opts["chdir"])
        self._open_files(stepfiles.Names(self.order, self.step_id, self.env, self.cwd))
        started_s = time.time()
        self._tell_start(step, plan, started_s)
        requests = launch.node_requests(self, step, plan, argvs, names)
        self.links = [KeeperLink(self, share, request) for share, request in zip(plan.shares, requests)]
        self._arm_timers()
        await self._run_hook("prolog")
        runs = [asyncio.create_task(link.run()) for link in self.links]
        if self._client_gone:
            self._abort()
        await asyncio.gather(*(link.ready for link in self.links))
        self._start_stdin()
        await asyncio.gather(*runs)
        if self._aborting and not self.states.left and not self._told_abort:
            self.client.say("Job step aborted")
        if self._task_signal and not self._aborting:
            self.client.say(f"Force Terminated StepId={self.step_name}")
        await self._run_hook("epilog")
        self.daemon.tell("step_ended", step_id=self.step_id, exit_status=self.status or 0,
                         usage=launch.total_usage(self._usage, plan))

    def _read_programs(self, step: StepOptions) -> str | None:
        """The --multi-prog file, checked as far as srun knows the number of tasks."""
        if not self.opts["multi_prog"]:
            return None
        name = step.argv[0]
        try:
            with open(os.path.join(self.cwd, name), encoding="utf-8", errors="surrogateescape") as file:
                text = file.read(4 << 20)
        except OSError:
            self.client.say(f"error: Could not open multi_prog config file {name}")
            raise _Over(1) from None
        try:
            programs(name, text, int(self.opts["ntasks"]), step.argv[1:])
        except MultiProgError as error:
            for line in error.lines:
                self.client.say(f"error: {line}")
            raise _Over(1) from None
        return text

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
                    opened[path] = open_output(path, flags, self.own_umask)
            except OSError as error:
                self.client.say(f"error: Could not open {word} file: {error.strerror}")
                raise _Over(1) from None
            self._files[stream] = opened[path]
        where = self.files[0]
        if where.kind == "file":
            try:
                self._stdin = StdinSource(os.open(names.file(where.pattern), os.O_RDONLY | os.O_NONBLOCK), self._feed)
            except OSError as error:
                self.client.say(f"error: Could not open stdin file: {error.strerror}")
                raise _Over(1) from None

    def _tell_start(self, step: StepOptions, plan: StepPlan, started_s: float) -> None:
        self.daemon.tell("step_started", **launch.step_record(self, step, plan, started_s))

    def _arm_timers(self) -> None:
        loop = asyncio.get_running_loop()
        minutes = self.opts["time_limit"]
        if minutes and minutes < 0xFFFFFFFE:
            self._timers.append(loop.call_later(minutes * 60, self._time_limit))

    def _time_limit(self) -> None:
        self.end_step("DUE TO TIME LIMIT")
        self._tell_abort()

    async def _run_hook(self, which: str) -> None:
        """--prolog and --epilog run where srun runs, before and after the step."""
        command = self.opts[which]
        if not command or command.lower() == "none" or self._client_gone:
            return
        _, out, err = await helpers.capture(self.daemon.children, [command, *self.opts.argv], self.env, self.cwd,
                                            umask=self.own_umask)
        await self.client.write(b"O", out)
        await self.client.write(b"E", err)

    # ---- what the keepers say ---------------------------------------------------------------------------------------

    async def output(self, rank: int, stream: int, data: bytes) -> None:
        """A piece of a task's output (or, with ALL_TASKS, a line of a step daemon's)."""
        if rank >= 0 and self.label_width:
            data = stepfiles.label(data, rank, self.label_width)
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
        first = len(self.states.left) == self._total
        self.states.ended(ranks, status)
        self._usage.update(usage)
        self.status = worse(self.status, status)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGTERM, signal.SIGKILL):
            self._task_signal = True
        message = exit_message(node, ranks, status)
        if message is not None and not (self._cancelled and os.WIFSIGNALED(status)):
            self.client.say(f"error: {message}")
        if not self.states.left:
            return
        if status != 0 and self._kills_on_bad_exit() and not self._killing:
            self._killing = True
            self.client.say(f"Terminating StepId={self.step_name}")
            self._timers.append(asyncio.get_running_loop().call_later(KILL_DELAY_S, self._end_after_failure))
        if first:
            self._arm_wait()

    def _end_after_failure(self) -> None:
        self.end_step("DUE TO TASK FAILURE")
        self._tell_abort()

    @property
    def _total(self) -> int:
        return sum(len(link.share.tasks) for link in self.links)

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

    def keeper_lost(self, node: str, ranks: list[int]) -> None:
        self.client.say(f"error: Node failure on {node}")
        self.tasks_ended(node, ranks, ABORTED_STATUS, {})

    def launch_failed(self, ranks: list[int], message: str) -> None:
        for rank in ranks:
            self.client.say(f"error: task {rank} launch failed: {message}")
        self.states.ended(ranks, 1 << 8)
        self.status = worse(self.status, 1 << 8)

    # ---- ending it --------------------------------------------------------------------------------------------------

    def order_keepers(self, order: dict[str, Any]) -> None:
        for link in self.links:
            link.order(order)

    def end_step(self, cause_text: str) -> None:
        """SIGCONT, SIGTERM, KillWait, SIGKILL, with slurmstepd's line."""
        self.order_keepers({"op": "end", "message": cause_text, "grace_s": self.order.kill_wait_s})

    def job_ends(self, cause_text: str) -> None:
        if self._pending is not None and not self._pending.done():
            self._pending.set_result(0)
        if self.links:
            self.order_keepers({"op": "signal", "signal": 0, "message": cause_text})
            self._tell_abort()

    def signal_by_request(self, number: int) -> None:
        """scancel of this step."""
        text = f"DUE to SIGNAL {signal.strsignal(number)}" if number in (signal.SIGTERM, signal.SIGKILL) else ""
        self.order_keepers({"op": "signal", "signal": number, "message": text})
        if number == signal.SIGKILL:
            self._tell_abort()

    def _tell_abort(self) -> None:
        """srun's announcement that the step is being ended."""
        self._aborting = True
        if not self._told_abort and self.states.left:
            self._told_abort = True
            seconds = int(self.order.kill_wait_s) + STEP_ABORT_S
            self.client.say(f"Job step aborted: Waiting up to {seconds} seconds for job step to finish.")

    def _abort(self) -> None:
        self._cancelled = True
        self.order_keepers({"op": "signal", "signal": signal.SIGKILL, "message": "DUE to SIGNAL Killed"})
        if self.links:
            self._tell_abort()

    # ---- the client -------------------------------------------------------------------------------------------------

    async def _read_client(self) -> None:
        while (frame := await self.client.frame()) is not None:
            kind, payload = frame
            if kind == b"i" and self._stdin is not None:
                self._stdin.received(payload)
            elif kind == b"S":
                self._signalled(int.from_bytes(payload[:4], "big"))
            elif kind == b"Z":
                for link in self.links:
                    link.resize(payload)
        self._client_gone = True
        if self._finished:
            return
        if self._pending is not None and not self._pending.done():
            self._pending.set_result(0)
        self._abort()

    def _signalled(self, number: int) -> None:
        if self._pending is not None:
            if number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP) and not self._pending.done():
                self._pending.set_result(number)
        elif number == signal.SIGINT:
            self._interrupted()
        elif number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            if number == signal.SIGQUIT:
                self.client.say("Quit")
            self.client.say("forcing job termination")
            self._abort()
        elif number == signal.SIGCONT:
            self.client.say("got SIGCONT")
        elif number != signal.SIGTSTP:
            self.order_keepers({"op": "signal", "signal": number})

    def _interrupted(self) -> None:
        now = time.monotonic()
        again = now - self._last_interrupt_s < 1
        self._last_interrupt_s = now
        if self.opts["quit_on_interrupt"] or again:
            self.client.say(f"sending Ctrl-C to StepId={self.step_name}")
            self.order_keepers({"op": "signal", "signal": signal.SIGINT})
            self.client.say("forcing job termination" if not self._cancelled else "job abort in progress")
            self._abort()
        elif self.opts["disable_status"]:
            self.client.say(f"sending Ctrl-C to StepId={self.step_name}")
            self.order_keepers({"op": "signal", "signal": signal.SIGINT})
        elif not self._cancelled:
            self.client.say("interrupt (one more within 1 sec to abort)")
            for line in self.states.report(self.step_name):
                self.client.say(line)

    # ---- standard input ---------------------------------------------------------------------------------------------

    def _start_stdin(self) -> None:
        where = self.files[0]
        if self._stdin is not None:
            self._stdin.start()
        elif where.kind in ("all", "one") and not self._client_gone:
            self._stdin = StdinSource(None, self._feed, self.client)
            self.client.write_soon(b"I", RAW if self.opts["pty"] is not None else START)

    def _feed(self, data: bytes) -> None:
        where = self.files[0]
        for link in self.links:
            link.feed(data, where.task if where.kind == "one" else None)

    def stdin_backlog(self) -> None:
        """Called when a keeper has passed input on."""
        if self._stdin is not None:
            self._stdin.backlog(max((link.unconsumed for link in self.links), default=0))


def programs_of(multi_prog: str | None, argv: list[str], num_tasks: int) -> list[list[str]]:
    """Every task's argument vector."""
    return [argv] * num_tasks if multi_prog is None else programs(argv[0], multi_prog, num_tasks, argv[1:])
