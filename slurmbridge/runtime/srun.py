"""One srun inside the allocation, from its command line to its exit code, at the step daemon of the first node."""
from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import time
from typing import TYPE_CHECKING, Any

from slurmbridge.runtime import execution, frames, stepenv
from slurmbridge.runtime.client import Client
from slurmbridge.runtime.environment import split_environment
from slurmbridge.runtime.parts import LentPart, OwnPart, Part, PartLost, close_all, parts_of
from slurmbridge.runtime.pmiworld import share_world
from slurmbridge.runtime.step import CannotStart, SrunCall, executable
from slurmbridge.runtime.stepgroup import Held, all_of, running_steps
from slurmbridge.runtime.stepoptions import StepOptions, read_components, step_options
from slurmbridge.runtime.steptypes import StepPlan, StepRefused
from slurmbridge.slurm import errors
from slurmbridge.slurm.mpi import mpi_type, needed_by
from slurmbridge.slurm.option_reading import error_exit_code
from slurmbridge.slurm.option_values import ClientExit, Log, OptionSet

if TYPE_CHECKING:
    from slurmbridge.runtime.sessions import Sessions
    from slurmbridge.runtime.step import RunningStep

RETRY_S = 60.0
"""How long srun waits silently for room in its allocation before it says so."""
LINGER_S = 3.0


class _Over(Exception):
    """srun ends before a step was there; the argument is its exit code, else it is that of SLURM_EXIT_ERROR."""


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
        self.error_exit = 1
        self.client_pid = int(request.get("pid") or 0)
        self.steps: list[RunningStep] = []    # one a component, once all have their nodes
        self._client_gone = False
        self._finished = False
        self._last_interrupt_s = 0.0
        self._pending: asyncio.Future[int] | None = None

    # ---- life -------------------------------------------------------------------------------------------------------

    async def run(self) -> int:
        """The wait status that stands for this srun."""
        self._reading = asyncio.create_task(self._read_client())
        held: list[Held] = []
        try:
            if self._is_for_the_controller():
                return 0
            call, components = self._read_call()
            self._find_programs(components, call)
            self._choose_mpi(components, call)
            self.client.write_soon(b"T", b"")
            await self._create_steps(components, call, held)
            self.steps = running_steps(self.daemon, self.client, call, held)
            mpi = mpi_type(components[0]["mpi"], self.order.settings.get("MpiDefault"))
            share_world(self.order.het_job_id or self.order.job_id, held[0].step_id, self.steps, mpi)
            for step in self.steps:
                step.client_gone = self._client_gone
            await all_of(step.run() for step in self.steps)
            ends = [step.status if step.status is not None else 1 << 8 for step in self.steps]
            status = max(ends, key=execution.exit_code)
            await self.client.exit(execution.exit_code(status))
            return status
        except (_Over, CannotStart) as over:
            code = over.args[0] if over.args else self.error_exit if isinstance(over, _Over) else 1
            await self.client.exit(code)
            return (code & 0xFF) << 8
        finally:
            self._finished = True
            for one in held:
                one.part.release(one.step_id, one.plan)
            close_all([one.part for one in held])

    async def linger(self) -> None:
        """Until the client has closed: closing first could lose what it has not read yet."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._reading, LINGER_S)

    def _is_for_the_controller(self) -> bool:
        """srun makes a job of its own where the user has unset SLURM_JOB_ID, and --test-only is about one: the client
        goes on to the controller."""
        env = split_environment(self.request.get("env", ()))
        argv = [str(word) for word in self.request.get("argv", ())]
        url = env.get("SLURMBRIDGE_URL") or self.order.controller_url
        if self.owns_allocation or not url:
            return False
        if "--test-only" not in argv and ("SLURM_JOB_ID" in env or any(w.startswith("--job") for w in argv)):
            return False
        self.client.write_soon(b"G", frames.json_bytes({"address": url, "credential": "", "argv": argv,
                                                        "env": [f"{name}={value}" for name, value in env.items()
                                                                if name != "SLURM_JOBID"]}))
        return True

    def _read_call(self) -> tuple[SrunCall, list[OptionSet]]:
        env = split_environment(self.request.get("env", ()))
        cwd = str(self.request.get("cwd") or "/")
        own_umask = int(self.request.get("umask", 0o022))
        umask = stepenv.step_umask(env, own_umask)
        log = Log("srun")
        self.error_exit = error_exit_code(env, "SLURM_EXIT_ERROR", log)
        try:
            components = read_components(env, cwd, [str(word) for word in self.request.get("argv", ())], self.order,
                                         time.time(), log, owns_allocation=self.owns_allocation,
                                         error_exit=self.error_exit)
        except ClientExit as end:
            self.client.flush(log)
            if end.stdout:
                self.client.write_soon(b"O", end.stdout.encode(errors="surrogateescape"))
            raise _Over(end.code) from None
        if not self.owns_allocation:          # else the controller's reading has said it
            self.client.flush(log)
        return SrunCall(self.request, env, cwd, umask, own_umask, self.owns_allocation,
                        self._read_programs(components, cwd)), components

    def _find_programs(self, components: list[OptionSet], call: SrunCall) -> None:
        """What --bcast copies must be there before the step is."""
        for opts in components:
            program = executable(opts.argv[0], call.cwd, call.env) if opts["bcast"] is not None and not opts[
                "multi_prog"] else ""
            if program and not (os.path.isfile(program) and os.access(program, os.X_OK, effective_ids=True)):
                self.client.say(f"fatal: Can not execute {opts.argv[0]}")
                raise _Over(1)

    def _choose_mpi(self, components: list[OptionSet], call: SrunCall) -> None:
        """Where nobody said which MPI, the program's own: several tasks of one must not be as many worlds."""
        opts = components[0]
        if opts["mpi"] is not None or not opts.argv or opts["multi_prog"]:
            return
        name = opts.argv[0]
        program = os.path.join(call.cwd, name) if "/" in name else shutil.which(name, path=call.env.get("PATH", ""))
        needed = needed_by(program) if program else None
        is_alone = len(components) == 1 and opts["ntasks_set"] and opts["ntasks"] == 1
        if needed and not is_alone:
            for one in components:
                one["mpi"] = needed

    def _read_programs(self, components: list[OptionSet], cwd: str) -> str | None:
        """The --multi-prog file, which srun's reading has checked."""
        opts = components[0]
        if not any(one["multi_prog"] for one in components):
            return None
        if len(components) > 1:
            self.client.say("fatal: --multi-prog option not supported with multiple het groups")
            raise _Over
        name = opts.argv[0]
        try:
            with open(os.path.join(cwd, name), encoding="utf-8", errors="surrogateescape") as file:
                return file.read(4 << 20)
        except OSError:
            self.client.say(f"error: Could not open multi_prog config file {name}")
            raise _Over from None

    async def _parts(self, components: list[OptionSet]) -> list[Part]:
        """Whose steps the components are."""
        own = OwnPart(self.sessions)
        groups = [int(opts["het_group"] or 0) for opts in components]
        most = max(len(self.order.het_heads) - 1, 0)
        if len(components) > 1:
            if not self.order.het_heads:
                return [own] * len(components)
            if max(groups) > most:
                self.client.say(f"error: Attempt to run a job step with het group value of {max(groups)}, "
                                f"but the job allocation has maximum value of {most}")
                raise _Over
        elif groups[0] > most:
            self.client.say(f"error: Requested het-group offset exceeds highest hetjob index ({groups[0]} > {most})")
            raise _Over
        elif not self.order.het_heads:
            if components[0]["het_group"]:
                self.client.say("error: No directives to start application on any available hetjob components")
                raise _Over
            return [own]
        try:
            return await parts_of(groups, own)
        except PartLost as error:
            self.client.say(f"error: Unable to confirm allocation for job {self.order.job_id}: {error}")
            raise _Over from None

    async def _create_steps(self, components: list[OptionSet], call: SrunCall, held: list[Held]) -> None:
        """Appends each component's step to ``held`` as it gets its nodes."""
        parts = await self._parts(components)
        shared = len(components) > 1 and not self.order.het_heads      # all are steps of this one job
        number: str | None = None
        for place, (opts, part) in enumerate(zip(components, parts)):
            log = Log("srun")
            before = [share.name for one in held for share in one.plan.shares] if shared else None
            try:
                step = step_options(opts, part.order, log, owns_allocation=call.owns_allocation, before=before)
            except ClientExit as end:
                self.client.flush(log)
                close_all(parts)
                raise _Over(*[end.code] if end.code != 1 else []) from None
            if not call.owns_allocation:
                self.client.flush(log)
            taken = None
            if number is None and isinstance(part, LentPart):
                number = taken = self.sessions.take_number()
            try:
                number, plan = await self._create_step(part, step, number)
            except PartLost as error:
                self.client.say(f"error: Unable to create step for job {part.order.job_id}: {error}")
                close_all(parts)
                raise _Over from None
            except _Over:
                if taken is not None:
                    self.sessions.give_back_number(taken)
                close_all(parts)
                raise
            held.append(Held(part, step, f"{number}+{place}" if shared else number, plan))

    async def _create_step(self, part: Part, step: StepOptions, number: str | None) -> tuple[str, StepPlan]:
        """Waits for room in the allocation as srun does."""
        job_id = part.order.job_id
        immediate = step.opts["immediate"]
        try:
            return await part.allocate(step.request, number)
        except StepRefused as refused:
            if not refused.retry or immediate == 1 or self.daemon.ending:
                raise self._no_step(job_id, refused) from None
            busy = refused
        room = part.wait_for_room(step.request, number)
        try:
            step_id, plan = await self._wait_for_room(part, room, busy, immediate)
        except StepRefused as refused:
            raise self._no_step(job_id, refused) from None
        finally:
            room.cancel()
        self.client.say(f"Step created for StepId={job_id}.{step_id}")
        return step_id, plan

    def _no_step(self, job_id: int, why: object) -> _Over:
        if isinstance(why, StepRefused) and why.note:
            self.client.say(f"error: {why.note}")
        self.client.say(f"error: Unable to create step for job {job_id}: {why}")
        return _Over()

    async def _wait_for_room(self, part: Part, room: asyncio.Future[tuple[str, StepPlan]], busy: StepRefused,
                             immediate: int | None) -> tuple[str, StepPlan]:
        """The step's number and plan. Raises _Over where srun or the job is ended meanwhile, StepRefused."""
        retry_s = RETRY_S + self.request.get("pid", 0) % 10
        how = "temporarily"
        while True:
            self._pending = pending = asyncio.get_running_loop().create_future()
            try:
                waits: list[asyncio.Future[Any]] = [room, pending]
                await asyncio.wait(waits, timeout=min(retry_s, immediate) if immediate else retry_s,
                                   return_when=asyncio.FIRST_COMPLETED)
            finally:
                self._pending = None
            if pending.done():
                if room.done() and not room.exception():
                    part.release(*room.result())
                if number := pending.result():
                    self.client.say(f"Cancelled pending job step with signal {number}")
                raise self._no_step(self.order.job_id, errors.strerror(errors.ESLURM_ALREADY_DONE))
            if room.done():
                return room.result()
            self.client.say(f"Job {part.order.job_id} step creation {how} disabled, retrying ({busy})")
            how = "still"
            if immediate:
                raise busy

    # ---- the client -------------------------------------------------------------------------------------------------

    async def _read_client(self) -> None:
        while (frame := await self.client.frame()) is not None:
            kind, payload = frame
            if kind == b"i":
                for step in self.steps:
                    step.input_from_client(payload)
            elif kind == b"D":
                self.client.answered(payload)
            elif kind == b"S":
                self._signalled(int.from_bytes(payload[:4], "big"))
            elif kind == b"Z":
                for link in [link for step in self.steps for link in step.links]:
                    link.resize(payload)
        self._client_gone = True
        if self._finished:
            return
        if self._pending is not None and not self._pending.done():
            self._pending.set_result(0)
        for step in self.steps:
            step.client_gone = True
            if not self.daemon.is_over:       # else the step is being ended already
                step.abort()

    def job_ends(self, cause_text: str) -> None:
        """The job is being ended: a step that runs says so, one that waits is given up."""
        if self._pending is not None and not self._pending.done():
            self._pending.set_result(0)
        for step in self.steps:
            step.job_ends(cause_text)

    def order_keepers(self, order: dict[str, Any]) -> None:
        for step in self.steps:
            step.order_keepers(order)

    def _signalled(self, number: int) -> None:
        if self._pending is not None:
            if number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP) and not self._pending.done():
                self._pending.set_result(number)
        elif not self.steps:
            return
        elif number == signal.SIGINT:
            for step in self.steps:
                self._interrupted(step)
            self._last_interrupt_s = time.monotonic()
        elif number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            if number == signal.SIGQUIT:
                self.client.say("Quit")
            self.client.say("forcing job termination")
            for step in self.steps if not self.daemon.is_over else ():
                step.abort()
        elif number == signal.SIGCONT:
            self.client.say("got SIGCONT")
        elif number != signal.SIGTSTP:
            self.order_keepers({"op": "signal", "signal": number})

    def _interrupted(self, step: RunningStep) -> None:
        again = time.monotonic() - self._last_interrupt_s < 1
        if step.opts["quit_on_interrupt"] or again:
            self.client.say(f"sending Ctrl-C to StepId={step.step_name}")
            step.order_keepers({"op": "signal", "signal": signal.SIGINT})
            self.client.say("forcing job termination" if not step.cancelled else "job abort in progress")
            step.abort(is_interrupt=True)
        elif step.opts["disable_status"]:
            self.client.say(f"sending Ctrl-C to StepId={step.step_name}")
            step.order_keepers({"op": "signal", "signal": signal.SIGINT})
        elif not step.cancelled:
            self.client.say("interrupt (one more within 1 sec to abort)")
            for line in step.states.report(step.step_name):
                self.client.say(line)
