"""A step's keeper: a process per step and node, forked by the node's step daemon, that runs the step's tasks there.
Virtual nodes of one machine share keepers (launch.groups).

Being the subreaper of these tasks alone, it knows which processes are the step's, however they were forked; they end
with it. It speaks with the head, or the keeper above it in the step's tree, over the connection that asked for the
step (frames ``L``, ``K``, ``n`` in; ``o``, ``e`` out); when that connection breaks, the step is ended.
"""
from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import shutil
import signal
import struct
import tempfile
import termios
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from slurmbridge.runtime import execution, frames, helpers, processes
from slurmbridge.runtime.cgroups import OUT_OF_MEMORY_STATUS, StepGroup
from slurmbridge.runtime.children import Children, Exit, add_usage
from slurmbridge.runtime.cpubind import Binding
from slurmbridge.runtime.gauges import Meter
from slurmbridge.runtime.gpumeter import meter_of
from slurmbridge.runtime.pmi import PmiServer
from slurmbridge.runtime.pmix import PmixServer
from slurmbridge.runtime.taskio import Output, StdinPipe
from slurmbridge.runtime.tree import Node, Relay

LINGER_S = 30.0
DRAIN_TIMEOUT_S = 5.0
"""How long output is waited for after the last process of the step is gone."""


@dataclass(slots=True)
class Task:
    rank: int
    local: int
    node: str
    pid: int = 0
    stdin: StdinPipe | None = None
    outputs: list[Output] = field(default_factory=list)


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
        self.terminal: int | None = None
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
            self._pmix_directories.append(tempfile.mkdtemp(prefix="slurmbridge-pmix-"))
            self.mpi[name] = PmixServer(facts, self._pmix_directories[-1], send)
        else:
            self.mpi[name] = PmiServer(facts, send)

    def _event(self, name: str, **fields: Any) -> None:
        self.writer.write(frames.encode_json(b"e", {"event": name, **fields}))

    def say(self, text: str) -> None:
        """A slurmstepd error line on srun's standard error."""
        self.writer.write(frames.encode(b"o", frames.RANK_STREAM.pack(frames.ALL_TASKS, 2) + execution.log_line(text)))

    # ---- tasks ------------------------------------------------------------------------------------------------------

    async def _start_tasks(self) -> list[asyncio.Future[None]]:
        request = self.request
        if not os.path.isdir(request["cwd"]) or not os.access(request["cwd"], os.X_OK, effective_ids=True):
            self._say_directory(request["cwd"])
        exits: list[asyncio.Future[None]] = []
        for node in self.nodes:
            shared = {**request["env"], **node["env"]}
            for entry in node["tasks"]:
                task = Task(int(entry["rank"]), int(entry["local"]), str(node["node"]))
                self.tasks[task.rank] = task
                environment = {**shared, **entry["env"]}
                for program in request["prologs"]:
                    environment = await self._prolog(task, program, environment)
                ending = self._start_task(task, entry, environment, node.get("binding"))
                if ending is not None:
                    exits.append(asyncio.ensure_future(self._await_exit(task, ending, environment)))
        return exits

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

    def _start_task(self, task: Task, entry: dict[str, Any], environment: dict[str, str],
                    binding: dict[str, Any] | None) -> asyncio.Future[Exit] | None:
        """None when its files cannot be opened: it has then failed already."""
        request = self.request
        ours: list[int] = []
        try:
            if entry.get("pty"):
                fds = self._open_terminal(task, request.get("window"))
                ours.append(fds[0])
            else:
                fds = (self._open_input(task, entry["stdin"], ours), *self._open_outputs(task, entry, ours))
        except OSError as error:
            for fd in ours:
                os.close(fd)
            if task.stdin is not None:
                task.stdin.close()
            for output in task.outputs:
                output.abandon()
            self.say(f"Could not open {error.filename}: {error.strerror}")
            self.ended.append((task, Exit(execution.errno_status(error), {})))
            return None
        server, rank = self.mpi.get(task.node), int(request["first_task"]) + task.rank
        if isinstance(server, PmiServer):
            ours.append(server.add(rank, task.local))
            environment = {**environment, **server.variables(rank, ours[-1])}
        elif server is not None:
            environment = {**environment, **server.variables(rank)}
        limit = self.limits.get(task.node)
        bound = Binding(**{**binding, "masks": tuple(map(frozenset, binding["masks"]))}) if binding else None
        cpus = bound.masks[task.local] if bound and bound.binds else frozenset()
        is_possible = cpus <= os.sched_getaffinity(0)          # a virtual node may be larger than the machine
        try:
            task.pid = execution.start(execution.Command(
                path=entry["argv"][0], argv=entry["argv"], env=environment, cwd=request["cwd"],
                umask=request["umask"], rlimits=request["rlimits"], stdin_fd=fds[0], stdout_fd=fds[1],
                stderr_fd=fds[2], terminal=bool(entry.get("pty")), cgroup=limit.path if limit else "",
                bound_cpus=cpus if is_possible else ()))
        finally:
            for fd in ours:
                os.close(fd)
        if bound and bound.verbose:
            text = bound.line(task.node, rank, task.local, task.pid, is_possible)
            self._pass_on(task, 2, text.encode())
        self.meter.add(task.pid, entry.get("gpus", ()))
        return self.children.watch(task.pid)

    def _open_terminal(self, task: Task, window: list[int] | None) -> tuple[int, int, int]:
        master, slave = pty.openpty()
        os.set_inheritable(master, False)
        self.terminal = master
        if window:
            self._resize(window[0], window[1])
        task.outputs.append(Output(self.writer, task.rank, 1, master, lines=False))
        task.stdin = StdinPipe(os.dup(master), self._consumed, is_terminal=True)
        return slave, slave, slave

    def _open_input(self, task: Task, wanted: str, ours: list[int]) -> int:
        if wanted != "stream":
            ours.append(os.open(wanted, os.O_RDONLY))
            return ours[-1]
        read_end, write_end = os.pipe2(os.O_CLOEXEC)
        ours.append(read_end)
        task.stdin = StdinPipe(write_end, self._consumed)
        return read_end

    def _open_outputs(self, task: Task, entry: dict[str, Any], ours: list[int]) -> tuple[int, int]:
        fds = []
        lines = not self.request.get("unbuffered")
        opened: dict[str, int] = {}
        for stream, wanted in ((1, entry["stdout"]), (2, entry["stderr"])):
            if wanted == "stream":
                read_end, write_end = os.pipe2(os.O_CLOEXEC)
                ours.append(write_end)
                task.outputs.append(Output(self.writer, task.rank, stream, read_end, lines=lines))
                fds.append(write_end)
            elif wanted in opened:
                fds.append(opened[wanted])
            else:
                flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND | (0 if self.request["append"] else os.O_TRUNC)
                opened[wanted] = open_output(wanted, flags, self.request["umask"])
                ours.append(opened[wanted])
                fds.append(opened[wanted])
        return fds[0], fds[1]

    async def _await_exit(self, task: Task, ending: asyncio.Future[Exit], environment: dict[str, str]) -> None:
        result = await ending
        for program in self.request["epilogs"]:
            _, _, err = await helpers.capture(self.children, [program], environment, self.request["cwd"])
            self._pass_on(task, 2, err)
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
            elif kind == b"Z" and self.terminal is not None:
                self._resize(*struct.unpack(">HH", payload))
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

    def _resize(self, rows: int, columns: int) -> None:
        if self.terminal is not None:
            with contextlib.suppress(OSError):
                fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

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
        self.say(f"*** STEP {self.request['step']} ON {self.nodes[0]['node']} CANCELLED AT "
                 f"{execution.local_time(time.time())} {text} ***")

    def deliver(self, number: int) -> None:
        """To every process of the step on this node."""
        self.children.reap()
        processes.signal_tree(lambda: self.children.others(set()), number)


def open_output(name: str, flags: int, umask: int) -> int:
    """Opens an output file, making missing directories as srun does. Raises OSError."""
    old = os.umask(umask)
    try:
        try:
            return os.open(name, flags, 0o666)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
            return os.open(name, flags, 0o666)
    finally:
        os.umask(old)
