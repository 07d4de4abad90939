"""One srun inside the allocation, from its command line to its exit code, at the step daemon of the first node."""
from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from typing import TYPE_CHECKING, Any

from slurmbridge.runtime import execution, frames, stepenv
from slurmbridge.runtime.client import Client
from slurmbridge.runtime.environment import split_environment
from slurmbridge.runtime.multiprog import MultiProgError, programs
from slurmbridge.runtime.step import CannotStart, RunningStep, SrunCall
from slurmbridge.runtime.stepoptions import StepOptions, read_step_options
from slurmbridge.runtime.steptypes import StepPlan, StepRefused
from slurmbridge.slurm import errors
from slurmbridge.slurm.option_values import ClientExit, Log

if TYPE_CHECKING:
    from slurmbridge.runtime.sessions import Sessions

RETRY_S = 60.0
"""How long srun waits silently for room in its allocation before it says so."""
LINGER_S = 3.0


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
        self.step: RunningStep | None = None
        self._client_gone = False
        self._finished = False
        self._last_interrupt_s = 0.0
        self._pending: asyncio.Future[int] | None = None

    # ---- life -------------------------------------------------------------------------------------------------------

    async def run(self) -> int:
        """The wait status that stands for this srun."""
        self._reading = asyncio.create_task(self._read_client())
        plan: StepPlan | None = None
        step_id = ""
        try:
            if self._is_for_the_controller():
                return 0
            call = self._read_call()
            self.client.write_soon(b"T", b"")
            step_id, plan = await self._create_step(call.step)
            self.step = self.sessions.running[step_id] = RunningStep(self.daemon, self.client, call, step_id, plan)
            self.step.client_gone = self._client_gone
            await self.step.run()
            status = self.step.status if self.step.status is not None else 1 << 8
            await self.client.exit(execution.exit_code(status))
            return status
        except (_Over, CannotStart) as over:
            code = over.args[0] if over.args else 1
            await self.client.exit(code)
            return (code & 0xFF) << 8
        finally:
            self._finished = True
            if plan is not None:
                self.sessions.running.pop(step_id, None)
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

    def _read_call(self) -> SrunCall:
        env = split_environment(self.request.get("env", ()))
        cwd = str(self.request.get("cwd") or "/")
        own_umask = int(self.request.get("umask", 0o022))
        umask = stepenv.step_umask(env, own_umask)
        log = Log("srun")
        try:
            step = read_step_options(env, cwd, [str(word) for word in self.request.get("argv", ())], self.order,
                                     time.time(), log, owns_allocation=self.owns_allocation)
        except ClientExit as end:
            self.client.flush(log)
            if end.stdout:
                self.client.write_soon(b"O", end.stdout.encode(errors="surrogateescape"))
            raise _Over(end.code) from None
        if not self.owns_allocation:          # else the controller's reading has said it
            self.client.flush(log)
        return SrunCall(self.request, env, cwd, umask, own_umask, step, self.owns_allocation,
                        self._read_programs(step, cwd))

    def _read_programs(self, step: StepOptions, cwd: str) -> str | None:
        """The --multi-prog file, checked as far as srun knows the number of tasks."""
        if not step.opts["multi_prog"]:
            return None
        name = step.argv[0]
        try:
            with open(os.path.join(cwd, name), encoding="utf-8", errors="surrogateescape") as file:
                text = file.read(4 << 20)
        except OSError:
            self.client.say(f"error: Could not open multi_prog config file {name}")
            raise _Over(1) from None
        try:
            programs(name, text, int(step.opts["ntasks"]), step.argv[1:])
        except MultiProgError as error:
            for line in error.lines:
                self.client.say(f"error: {line}")
            raise _Over(1) from None
        return text

    async def _create_step(self, step: StepOptions) -> tuple[str, StepPlan]:
        """Waits for room in the allocation as srun does."""
        job_id = self.order.job_id
        immediate = step.opts["immediate"]
        waited = False
        begun = time.monotonic()
        retry_s = RETRY_S + self.request.get("pid", 0) % 10
        while True:
            try:
                step_id, plan = self.sessions.allocate(step.request)
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
            self.client.say(f"Step created for StepId={job_id}.{step_id}")
        return step_id, plan

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

    # ---- the client -------------------------------------------------------------------------------------------------

    async def _read_client(self) -> None:
        while (frame := await self.client.frame()) is not None:
            kind, payload = frame
            if kind == b"i" and self.step is not None:
                self.step.input_from_client(payload)
            elif kind == b"S":
                self._signalled(int.from_bytes(payload[:4], "big"))
            elif kind == b"Z" and self.step is not None:
                for link in self.step.links:
                    link.resize(payload)
        self._client_gone = True
        if self._finished:
            return
        if self._pending is not None and not self._pending.done():
            self._pending.set_result(0)
        if self.step is not None:
            self.step.client_gone = True
            self.step.abort()

    def job_ends(self, cause_text: str) -> None:
        """The job is being ended: a step that runs says so, one that waits is given up."""
        if self._pending is not None and not self._pending.done():
            self._pending.set_result(0)
        if self.step is not None:
            self.step.job_ends(cause_text)

    def order_keepers(self, order: dict[str, Any]) -> None:
        if self.step is not None:
            self.step.order_keepers(order)

    def _signalled(self, number: int) -> None:
        if self._pending is not None:
            if number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP) and not self._pending.done():
                self._pending.set_result(number)
        elif self.step is None:
            return
        elif number == signal.SIGINT:
            self._interrupted(self.step)
        elif number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            if number == signal.SIGQUIT:
                self.client.say("Quit")
            self.client.say("forcing job termination")
            self.step.abort()
        elif number == signal.SIGCONT:
            self.client.say("got SIGCONT")
        elif number != signal.SIGTSTP:
            self.order_keepers({"op": "signal", "signal": number})

    def _interrupted(self, step: RunningStep) -> None:
        now = time.monotonic()
        again = now - self._last_interrupt_s < 1
        self._last_interrupt_s = now
        if step.opts["quit_on_interrupt"] or again:
            self.client.say(f"sending Ctrl-C to StepId={step.step_name}")
            self.order_keepers({"op": "signal", "signal": signal.SIGINT})
            self.client.say("forcing job termination" if not step.cancelled else "job abort in progress")
            step.abort()
        elif step.opts["disable_status"]:
            self.client.say(f"sending Ctrl-C to StepId={step.step_name}")
            self.order_keepers({"op": "signal", "signal": signal.SIGINT})
        elif not step.cancelled:
            self.client.say("interrupt (one more within 1 sec to abort)")
            for line in step.states.report(step.step_name):
                self.client.say(line)
