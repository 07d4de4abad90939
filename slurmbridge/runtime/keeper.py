"""A step's keeper: a process per step and node, forked by the node's step daemon, that runs the step's tasks there.
Virtual nodes of one machine share keepers (launch.groups).

Being the subreaper of these tasks alone, it knows which processes are the step's, however they were forked; they end
with it. It speaks with the head, or the keeper above it in the step's tree, over the connection that asked for the
step (frames ``L``, ``K``, ``n`` in; ``o``, ``e`` out); when that connection breaks, the step is ended.
"""
from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import signal
import struct
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from slurmbridge.runtime import execution, frames, helpers, processes
from slurmbridge.runtime.cgroups import OUT_OF_MEMORY_STATUS, StepGroup
from slurmbridge.runtime.children import Children, Exit, add_usage
from slurmbridge.runtime.cpubind import Binding
from slurmbridge.runtime.gauges import Meter
from slurmbridge.runtime.gpumeter import meter_of
from slurmbridge.runtime.pmi import PmiServer
from slurmbridge.runtime.pmix import PmixServer
from slurmbridge.runtime.tasks import Task, TaskFiles
from slurmbridge.runtime.tree import Node, Relay
from slurmbridge.slurm import errors

LINGER_S = 30.0
DRAIN_TIMEOUT_S = 5.0
"""How long output is waited for after the last process of the step is gone."""


@dataclass(slots=True)
class _Ready:
    """A task that only has to be started. ``can_bind``: the machine has the CPUs; a virtual node may be larger."""

    task: Task
    command: execution.Command
    environment: Mapping[str, str]            # for what is run after it
    gpus: Sequence[int]
    bound: Binding | None
    can_bind: bool


class StepKeeper:
    """``request`` is the ``L`` frame's object: launch.step_request with ``groups``, of which the first is kept here.

    ``limits`` are the groups that limit the tasks' memory, by node.
    """

    def __init__(self, request: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter,
                 limits: Mapping[str, StepGroup]) -> None:
        self.request = request
        self.nodes: list[Node] = request["groups"][0]
        self.limits = limits
        self.reader = reader
        self.writer = writer
        self.tasks: dict[int, Task] = {}
        self.ended: list[tuple[Task, Exit]] = []
        self.message_sent = False
        self.files = TaskFiles(request, writer, self._consumed)
        self.mpi: dict[str, PmiServer | PmixServer] = {}       # by node
        self._pmix_directories: list[str] = []
        self._kill_at: asyncio.TimerHandle | None = None
        self._tell_exits: asyncio.Handle | None = None

    # ---- life -------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        self.children = Children()
        has_gpus = any(entry.get("gpus") for node in self.nodes for entry in node["tasks"])
        self.meter = Meter(float(self.request.get("gather_s", 0)), meter_of(self.children) if has_gpus else None)
        self.children.before_reaped = self.meter.last_look
        self.relay = Relay(self.request, self.request["groups"][1:], self.writer)
        orders = asyncio.create_task(self._obey())
        usage: dict[str, float] = {}
        started: asyncio.Task[None] | None = None
        try:
            await self.relay.asked()
            for node in self.nodes:
                self._serve_mpi(node)
            exits = await self._start_tasks()
            started = asyncio.create_task(self._tell_started())
            await asyncio.gather(*exits)
        except OSError as error:
            ranks = {int(entry["rank"]) for node in self.nodes for entry in node["tasks"]}
            ranks -= {task.rank for task in self.tasks.values() if task.pid}
            self._event("failed", message=f"{error.strerror or error}", ranks=sorted(ranks))
        self._flush_exits()
        await self.children.end_others(set())
        add_usage(usage, self.children.orphan_usage)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_TIMEOUT_S):
                await asyncio.gather(*(output.finished for task in self.tasks.values() for output in task.outputs))
        for group in self.limits.values():
            if complaint := group.complaint(str(self.request["step"])):
                self.say(complaint)
            group.remove()
        for directory in self._pmix_directories:
            shutil.rmtree(directory, ignore_errors=True)
        for more in await self.relay.gone():
            add_usage(usage, more)
        if started is not None:
            await started
        self._event("gone", usage=usage)
        with contextlib.suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(LINGER_S):
                await self.writer.drain()
                await orders                  # the head closes: closing first could lose what it has not read yet

    async def _tell_started(self) -> None:
        """Once everything in this branch of the tree has started."""
        own = [task.rank for task in self.tasks.values() if task.pid]
        self._event("started", ranks=[*own, *await self.relay.started()])

    def _serve_mpi(self, node: Node) -> None:
        """Raises OSError."""
        facts, name = node.get("pmi"), str(node["node"])
        if not facts:
            return

        def send(message: dict[str, Any]) -> None:
            self._event("pmi", node=name, message=message)
        if facts["kind"] == "pmix":
            self._pmix_directories.append(tempfile.mkdtemp(prefix=f"slurmbridge-pmix-{facts['nspace']}-"))
            self.mpi[name] = PmixServer(facts, self._pmix_directories[-1], send)
        else:
            self.mpi[name] = PmiServer(facts, send)

    def _event(self, name: str, **fields: Any) -> None:
        self.writer.write(frames.encode_json(b"e", {"event": name, **fields}))

    def say(self, text: str) -> None:
        """A slurmstepd error line on srun's standard error."""
        self.writer.write(frames.encode(b"o", frames.RANK_STREAM.pack(frames.ALL_TASKS, 2) + execution.log_line(text)))

    # ---- tasks ------------------------------------------------------------------------------------------------------

    async def _start_tasks(self) -> list[asyncio.Future[Any]]:
        """What to wait for. Raises OSError when a task cannot be started; those before it were."""
        request = self.request
        has_told = os.path.isdir(request["cwd"]) and os.access(request["cwd"], os.X_OK, effective_ids=True)
        exits: list[asyncio.Future[Any]] = []
        ready: list[_Ready] = []
        for node in self.nodes:
            if not self.files.can_open(node["tasks"]):         # none of its tasks is started then
                self._event("failed", message=errors.strerror(errors.ESLURMD_IO_ERROR), error=errors.ESLURMD_IO_ERROR,
                            ranks=[int(entry["rank"]) for entry in node["tasks"]])
                continue
            if not has_told:
                self._say_directory(request["cwd"])
                has_told = True
            shared = {**request["env"], **node["env"]}
            encoded = execution.encoded(shared)
            for entry in node["tasks"]:
                task = Task(int(entry["rank"]), int(entry["local"]), str(node["node"]))
                self.tasks[task.rank] = task
                environment, env = shared, {**encoded, **execution.encoded(entry["env"])}
                if request["prologs"] or request["epilogs"]:
                    environment = {**shared, **entry["env"]}
                    for program in request["prologs"]:
                        environment = await self._prolog(task, program, environment)
                    env = execution.encoded(environment)
                one = self._prepare(task, entry, env, environment, node.get("binding"))
                if one is not None:
                    ready.append(one)
                if len(ready) == execution.AT_ONCE:
                    exits += self._start(ready)
                    ready = []
        return exits + self._start(ready)

    def _say_directory(self, path: str) -> None:
        try:
            os.chdir(path)
        except OSError as error:
            self.say(f"couldn't chdir to `{path}': {os.strerror(error.errno or 0)}: going to /tmp instead")
        finally:
            os.chdir("/")

    async def _prolog(self, task: Task, program: str, environment: dict[str, str]) -> dict[str, str]:
        """Runs a task prolog; the environment as its ``export NAME=value`` and ``unset NAME`` lines make it."""
        _, out, err = await helpers.capture(self.children, [program], environment, self.request["cwd"])
        self._pass_on(task, 2, err)
        changed = dict(environment)
        for line in out.decode(errors="surrogateescape").splitlines():
            word, _, rest = line.partition(" ")
            name, equals, value = rest.partition("=")
            if word == "export" and equals:
                changed[name] = value
            elif word == "unset":
                changed.pop(rest.strip(), None)
            elif word == "print":
                self._pass_on(task, 1, rest.encode(errors="surrogateescape") + b"\n")
        return changed

    def _pass_on(self, task: Task, stream: int, data: bytes) -> None:
        if data:
            self.writer.write(frames.encode(b"o", frames.RANK_STREAM.pack(task.rank, stream) + data))

    def _prepare(self, task: Task, entry: dict[str, Any], env: dict[bytes, bytes], environment: Mapping[str, str],
                 binding: dict[str, Any] | None) -> _Ready | None:
        """None when its files cannot be opened: it has then failed already."""
        request = self.request
        try:
            stdin_fd, stdout_fd, stderr_fd = self.files.open(task, entry)
        except OSError as error:
            task.abandon()
            self.say(f"Could not open {error.filename}: {error.strerror}")
            self.ended.append((task, Exit(execution.errno_status(error), {})))
            return None
        server, rank = self.mpi.get(task.node), int(request["first_task"]) + task.rank
        kept_fd = None
        if isinstance(server, PmiServer):
            kept_fd = server.add(rank)
            task.passed.append(kept_fd)
            env |= execution.encoded(server.variables(rank, task.local))
        elif server is not None:
            env |= execution.encoded(server.variables(rank))
        self._pass_on(task, 2, str(entry["said"]).encode())
        limit = self.limits.get(task.node)
        bound = Binding(**{**binding, "masks": tuple(map(frozenset, binding["masks"]))}) if binding else None
        cpus = bound.masks[task.local] if bound and bound.binds else frozenset()
        can_bind = cpus <= os.sched_getaffinity(0)
        return _Ready(task, execution.Command(
            path=entry["argv"][0], argv=entry["argv"], env=env, cwd=request["cwd"], umask=request["umask"],
            rlimits=request["rlimits"], stdin_fd=stdin_fd, stdout_fd=stdout_fd, stderr_fd=stderr_fd,
            terminal=bool(entry.get("pty")), cgroup=limit.path if limit else "", bound_cpus=cpus if can_bind else (),
            kept_fd=kept_fd, kept_as=PmiServer.task_fd(task.local)),
            environment, entry.get("gpus", ()), bound, can_bind)

    def _start(self, ready: Sequence[_Ready]) -> list[asyncio.Future[Any]]:
        """Starts them; what to wait for. Raises OSError when one cannot be started; those before it were."""
        try:
            pids = execution.start_all([one.command for one in ready])
        finally:
            for one in ready:
                one.task.close_passed()
        exits: list[asyncio.Future[Any]] = []
        for one, pid in zip(ready, pids):
            one.task.pid = pid
            if one.bound and one.bound.verbose:
                rank = int(self.request["first_task"]) + one.task.rank
                self._pass_on(one.task, 2, one.bound.line(one.task.node, rank, one.task.local, pid,
                                                          one.can_bind).encode())
            self.meter.add(pid, one.gpus)
            ending = self.children.watch(pid)
            if self.request["epilogs"]:
                exits.append(asyncio.ensure_future(self._run_epilogs(one, ending)))
            else:
                ending.add_done_callback(partial(self._task_ended, one.task))
                exits.append(ending)
        if len(pids) < len(ready):
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return exits

    async def _run_epilogs(self, one: _Ready, ending: asyncio.Future[Exit]) -> None:
        await ending
        for program in self.request["epilogs"]:
            _, _, err = await helpers.capture(self.children, [program], one.environment, self.request["cwd"])
            self._pass_on(one.task, 2, err)
        self._task_ended(one.task, ending)

    def _task_ended(self, task: Task, ending: asyncio.Future[Exit]) -> None:
        result = ending.result()
        times, counts = self.meter.ended(task.pid, result)
        limit = self.limits.get(task.node)
        status = OUT_OF_MEMORY_STATUS if limit is not None and limit.oom_kills else result.status
        self.ended.append((task, Exit(status, {**times, **counts})))
        if task.stdin is not None:
            task.stdin.close()
        if self._tell_exits is None:
            self._tell_exits = asyncio.get_running_loop().call_soon(self._flush_exits)

    def _flush_exits(self) -> None:
        """Tasks that ended together in the same way are told together."""
        self._tell_exits = None
        groups: dict[tuple[str, int], list[tuple[Task, Exit]]] = {}
        for task, result in self.ended:
            groups.setdefault((task.node, result.status), []).append((task, result))
        self.ended.clear()
        for (node, status), group in groups.items():
            self._event("exited", node=node, status=status, ranks=sorted(task.rank for task, _ in group),
                        usage={str(task.rank): result.usage for task, result in group})

    # ---- orders from the head ---------------------------------------------------------------------------------------

    async def _obey(self) -> None:
        while (frame := await frames.read_frame(self.reader)) is not None:
            kind, payload = frame
            self.relay.pass_down(kind, payload)
            if kind == b"n":
                self._feed(frames.RANK.unpack_from(payload)[0], payload[frames.RANK.size:])
            elif kind == b"Z":
                self.files.resize(*struct.unpack(">HH", payload))
            elif kind == b"K":
                self._order(frames.decode_json(payload))
        self.relay.cut()
        self.deliver(signal.SIGKILL)

    def _feed(self, rank: int, data: bytes) -> None:
        for task in self.tasks.values():
            if task.stdin is not None and rank in (frames.ALL_TASKS, task.rank):
                if data:
                    task.stdin.feed(data)
                else:
                    task.stdin.finish()

    def _consumed(self, count: int) -> None:
        self._event("consumed", bytes=count)

    def _order(self, order: dict[str, Any]) -> None:
        if order.get("op") == "signal":
            if order.get("message"):
                self._tell_cause(str(order["message"]))
            if order.get("signal"):
                self.deliver(int(order["signal"]))
        elif order.get("op") == "look":
            counts = self.meter.look_now()
            for node in self.nodes:
                tasks = [task for task in self.tasks.values() if task.node == node["node"] and task.pid in counts]
                self._event("looked", node=node["node"], pids=self.meter.pids({task.pid for task in tasks}),
                            tasks={str(task.rank): counts[task.pid] for task in tasks})
        elif order.get("op") == "pmi":
            for name, server in self.mpi.items():
                if order.get("node", name) == name:
                    server.told(order["message"])
        elif order.get("op") == "end":
            self._tell_cause(str(order["message"]))
            self.deliver(signal.SIGCONT)
            self.deliver(signal.SIGTERM)
            if self._kill_at is None:
                self._kill_at = asyncio.get_running_loop().call_later(
                    float(order["grace_s"]), self.deliver, signal.SIGKILL)

    def _tell_cause(self, text: str) -> None:
        """slurmstepd's ``*** STEP … ***``: once, on the step's first node, while there is something to end."""
        if self.message_sent or not self.nodes[0].get("first_node"):
            return
        self.message_sent = True
        text, *details = text.splitlines()
        how = text if text.startswith("FAILED") else f"CANCELLED AT {execution.local_time(time.time())} {text}"
        for line in (f"STEP {self.request['step']} ON {self.nodes[0]['node']} {how}", *details):
            self.say(f"*** {line} ***")

    def deliver(self, number: int) -> None:
        """To every process of the step on this node."""
        self.children.reap()
        processes.signal_tree(lambda: self.children.others(set()), number)

