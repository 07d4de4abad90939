"""The steps of one run at its step daemon: who asks, what runs, what is free; and the keepers of this node."""
from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import traceback
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from slurmbridge.runtime import execution, frames, hostlists, processes, stepplan, steptypes
from slurmbridge.runtime.cgroups import StepGroup
from slurmbridge.runtime.client import Client
from slurmbridge.runtime.environment import split_environment
from slurmbridge.runtime.keeper import StepKeeper
from slurmbridge.runtime.ports import PortBook
from slurmbridge.runtime.steptypes import NodeUse, StepPlan, StepRefused, StepRequest
from slurmbridge.slurm import errors

MAX_STEP_COUNT = 40000
"""slurm.conf(5), MaxStepCount."""

if TYPE_CHECKING:
    from slurmbridge.runtime.daemon import StepDaemon
    from slurmbridge.runtime.parts import LentStep
    from slurmbridge.runtime.srun import SrunSession
    from slurmbridge.runtime.step import RunningStep


@dataclass(frozen=True, slots=True)
class WaitingStep:
    """A step that there is no room for yet."""

    request: StepRequest
    number: str | None
    outcome: asyncio.Future[tuple[str, StepPlan]]


class Sessions:
    """Owned by the daemon. Only the head has sessions; every node has keepers."""

    def __init__(self, daemon: StepDaemon) -> None:
        self.daemon = daemon
        self.nodes = [NodeUse(node.name, node.cpus, node.mem_mb, dict(node.gres), cpu_ids=node.cpu_ids,
                              features=frozenset(node.features))
                      for node in daemon.order.nodes]
        self.running: dict[str, RunningStep | LentStep] = {}     # by step number
        self.sessions: set[SrunSession | LentStep] = set()
        self.ever_attached = False
        self._keepers: set[int] = set()
        self._keepers_gone: set[asyncio.Future[Any]] = set()
        self._next_step = 0
        self._next_node = 0
        self._queue: list[WaitingStep] = []   # in the order they came
        self._leaving: set[asyncio.Future[None]] = set()
        self._ports = PortBook(daemon.order.settings.get("MpiParams", ""), daemon.order.job_id)

    @property
    def idle(self) -> bool:
        return not self.sessions and not self._keepers

    def keeper_pids(self) -> set[int]:
        return set(self._keepers)

    def kept_pids(self) -> set[int]:
        """What outlives the batch script until the steps are over: their keepers, and the sruns that tell of them."""
        return self.keeper_pids() | {session.client_pid for session in self.sessions}

    # ---- resources --------------------------------------------------------------------------------------------------

    def allocate(self, request: StepRequest, number: str | None = None) -> tuple[str, StepPlan]:
        """A new step's number and plan. ``number``: that of a component that has it already. Raises StepRefused."""
        if self.daemon.suspended_s is not None:
            raise StepRefused(errors.ESLURM_DISABLED)
        if self._next_step >= int(self.daemon.order.settings.get("MaxStepCount") or MAX_STEP_COUNT):
            raise StepRefused(errors.ESLURM_STEP_LIMIT)
        try:
            plan = stepplan.plan(request, self.nodes, self._next_node)
            most_tasks = max(len(share.tasks) for share in plan.shares)
            plan = replace(plan, ports=self._ports.take(request.resv_ports, most_tasks))
        except StepRefused as refused:
            self._next_step += refused.takes_number
            raise
        steptypes.occupy(self.nodes, plan)
        self._next_node = plan.next_node
        step_id = str(self._next_step) if number is None else number
        self._next_step = max(self._next_step, int(step_id) + 1)
        return step_id, plan

    def take_number(self) -> str:
        """The number of a step without a component here: a heterogeneous job counts all its steps in one place."""
        self._next_step += 1
        return str(self._next_step - 1)

    def give_back_number(self, number: str) -> None:
        """No step came of it: the next one gets it."""
        if self._next_step == int(number) + 1:
            self._next_step -= 1

    def release(self, plan: StepPlan) -> None:
        steptypes.occupy(self.nodes, plan, -1)
        self._ports.give_back(plan.ports)
        self.room_changed()

    def room_changed(self) -> None:
        """Steps that wait get what is free now, in the order they came. Equal requests are tried once: what one of
        them cannot have, the others cannot have either."""
        refused: set[StepRequest] = set()
        for one in self._queue:
            if one.outcome.done() or one.request in refused:
                continue
            try:
                one.outcome.set_result(self.allocate(one.request, one.number))
            except StepRefused as error:
                if error.retry:
                    refused.add(one.request)
                else:
                    one.outcome.set_exception(error)
        self._queue = [one for one in self._queue if not one.outcome.done()]

    def wait_for_room(self, request: StepRequest, number: str | None) -> asyncio.Future[tuple[str, StepPlan]]:
        """Resolved as ``allocate`` once there is room; cancel it to leave the queue."""
        one = WaitingStep(request, number, asyncio.get_running_loop().create_future())
        self._queue.append(one)
        return one.outcome

    async def look(self) -> dict[str, dict[str, Any]]:
        """What each step that runs here has used up to now."""
        from slurmbridge.runtime.step import RunningStep
        steps = {name: step for name, step in self.running.items() if isinstance(step, RunningStep)}
        return dict(zip(steps, await asyncio.gather(*(step.look() for step in steps.values()))))

    # ---- everything that runs ---------------------------------------------------------------------------------------

    def signal_all(self, number: int) -> None:
        for step in list(self.running.values()):
            step.order_keepers({"op": "signal", "signal": number})

    def signal_step(self, step_id: str, number: int, *, quiet: bool = False) -> bool:
        """``step_id`` may be a component's (``3+1``) or stand for all of them."""
        found = [step for name, step in self.running.items() if step_id in (name, name.partition("+")[0])]
        for step in found:
            step.signal_by_request(number, quiet=quiet)
        return bool(found)

    def node_lost(self, node: str) -> None:
        """The step daemon of this node is gone."""
        for name in list(self.running):
            if (step := self.own_step(name)) is not None:
                step.node_lost(node)

    def say(self, text: str) -> None:
        """A line for the srun that the allocation was made for."""
        from slurmbridge.runtime.srun import SrunSession
        for session in self.sessions:
            if isinstance(session, SrunSession) and session.owns_allocation:
                session.client.say(text)

    def announce_end(self, cause_text: str) -> None:
        """The job is ended: each step says so on its srun's standard error; pending ones are given up."""
        for session in list(self.sessions):
            session.job_ends(cause_text)

    async def end_all(self, grace_s: float, cause_text: str) -> None:
        """The batch script is over: what still runs as a step gets SIGTERM, then SIGKILL."""
        for session in list(self.sessions):
            session.job_ends(cause_text)
            session.order_keepers({"op": "signal", "signal": signal.SIGCONT})
            session.order_keepers({"op": "signal", "signal": signal.SIGTERM})
        if self.sessions:
            await asyncio.wait([session.over for session in self.sessions], timeout=grace_s)
        while self.sessions:
            self.signal_all(signal.SIGKILL)
            await asyncio.wait([session.over for session in self.sessions], timeout=1)

    async def gone(self) -> None:
        """Until no keeper of this node is left."""
        while self._keepers_gone:
            _, late = await asyncio.wait(self._keepers_gone, timeout=5)
            if late:
                for pid in self._keepers:
                    processes.kill_tree(pid)

    async def clients_gone(self) -> None:
        """Until every client has read its exit code, for a short while."""
        if self._leaving:
            await asyncio.wait(self._leaving)

    # ---- connections ------------------------------------------------------------------------------------------------

    async def serve_client(self, request: dict[str, Any], reader: asyncio.StreamReader,
                           writer: asyncio.StreamWriter) -> None:
        from slurmbridge.runtime.srun import SrunSession
        url = self.daemon.order.controller_url
        if request.get("command") == "sstat" and url:          # the controller asks all jobs' daemons, this one too
            await frames.send(writer, frames.encode_json(b"G", {
                "address": url, "credential": "", "argv": request.get("argv", ()), "env": request.get("env", ())}))
            return
        if request.get("command") in ("sattach", "sbcast"):
            await self._serve_other(request, Client(reader, writer))
            return
        if request.get("command") != "srun":
            out, error, code = "", f"{request.get('command')}: error: not available inside a job\n", 1
            if request.get("command") == "scontrol":
                env = dict(entry.split("=", 1) for entry in request.get("env", ()) if "=" in entry)
                out, error, code = hostlists.answer(request.get("argv", ()), env)
            await frames.send(writer, frames.encode(b"O", out.encode("utf-8", "surrogateescape"))
                              + frames.encode(b"E", error.encode("utf-8", "surrogateescape"))
                              + frames.encode(b"X", code.to_bytes(4, "big")))
            return
        session = SrunSession(self, request, reader, writer)
        self.ever_attached = True
        self.sessions.add(session)
        try:
            status = await session.run()
        except Exception as error:  # a mistake of ours must not look like a dead node
            traceback.print_exc(file=sys.stderr)
            sys.stderr.flush()
            status = 1 << 8
            session.client.say(f"error: internal error of the step daemon: {error!r}")
            await session.client.exit(1)
        finally:
            self.sessions.discard(session)
            if not session.over.done():
                session.over.set_result(None)
        if session.owns_allocation:
            self.daemon.end_allocation(status)
        leaving = asyncio.ensure_future(session.linger())
        self._leaving.add(leaving)
        await leaving
        self._leaving.discard(leaving)

    async def _serve_other(self, request: dict[str, Any], client: Client) -> None:
        from slurmbridge.runtime import sattach, sbcast
        argv = [str(word) for word in request.get("argv", ())]
        if request["command"] == "sattach":
            await sattach.run(self, client, argv)
            return
        env = split_environment(request.get("env", ()))
        reading = asyncio.create_task(client.read_answers())
        try:
            await sbcast.run(self, client, argv, env, str(request.get("cwd") or "/"))
        finally:
            with contextlib.suppress(TimeoutError):        # the client closes: closing first could lose its exit code
                await asyncio.wait_for(reading, 3)

    def own_step(self, number: str) -> RunningStep | None:
        """A step of this job that runs here."""
        from slurmbridge.runtime.step import RunningStep
        step = self.running.get(number)
        return step if isinstance(step, RunningStep) else None

    async def keep_step(self, request: dict[str, Any], reader: asyncio.StreamReader,
                        writer: asyncio.StreamWriter) -> None:
        """Forks the keeper of a step on this node; the connection becomes the keeper's."""
        fd = os.dup(writer.get_extra_info("socket").fileno())
        name = str(request["step"]).partition(".")[2]
        limits: dict[str, StepGroup] = {}
        for node in request["groups"][0] if self.daemon.groups is not None else ():
            group = self.daemon.groups.of_node(int(node["index"])).make(f"step_{name}", int(node["mem_mb"]) << 20)
            if group is not None:
                limits[node["node"]] = group
        try:
            pid = os.fork()
        except OSError as error:
            os.close(fd)
            await frames.send(writer, frames.encode_json(b"e", {
                "event": "failed", "message": str(error),
                "ranks": [task["rank"] for group in request["groups"] for node in group for task in node["tasks"]]}))
            return
        if pid == 0:
            _become_keeper(request, fd, limits)
        os.close(fd)
        self._keepers.add(pid)
        gone = self.daemon.children.watch(pid)
        self._keepers_gone.add(gone)

        def forget(future: asyncio.Future[Any]) -> None:
            self._keepers.discard(pid)
            self._keepers_gone.discard(future)
        gone.add_done_callback(forget)


def _become_keeper(request: dict[str, Any], fd: int, limits: dict[str, StepGroup]) -> None:
    """In the forked child: a new event loop of its own. Never returns."""
    code = 70
    try:
        signal.set_wakeup_fd(-1)
        asyncio._set_running_loop(None)
        processes.close_all_but({0, 1, 2, fd} | execution.kept_descriptors())
        processes.become_subreaper()
        asyncio.new_event_loop().run_until_complete(_keep(request, fd, limits))      # nothing needs the loop closed
        code = 0
    except BaseException:
        traceback.print_exc(file=sys.stderr)
        sys.stderr.flush()
    finally:
        os._exit(code)


async def _keep(request: dict[str, Any], fd: int, limits: dict[str, StepGroup]) -> None:
    import socket
    sock = socket.socket(fileno=fd)
    if sock.family == socket.AF_UNIX:
        reader, writer = await asyncio.open_unix_connection(sock=sock)
    else:
        reader, writer = await asyncio.open_connection(sock=sock)
    writer.write(frames.encode_json(b"e", {"event": "ready"}))
    await StepKeeper(request, reader, writer, limits).run()
