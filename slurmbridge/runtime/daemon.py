"""The step daemon: one per run and node. The first node's runs the batch script and serves srun.

It starts as a child of the spawner (or as a pod's first process), is the subreaper of everything of the job on its
node, and goes only when nothing of it is left. What happens is written to the run's journal by the first node's.
Orders (frame ``K``) are accepted with the run's credential only: signal, terminate, suspend, resume, update, look,
join, end.
"""
from __future__ import annotations

import asyncio
import hmac
import os
import signal
import socket
import time
from typing import Any

from slurmbridge.runtime import addresses, batch, broadcast, execution, frames, helpers, launch, processes
from slurmbridge.runtime.cgroups import OUT_OF_MEMORY_STATUS, RunGroups
from slurmbridge.runtime.children import Children
from slurmbridge.runtime.gauges import Meter, gather_interval_s
from slurmbridge.runtime.gpumeter import meter_of
from slurmbridge.runtime.journal import JournalWriter
from slurmbridge.runtime.order import RunOrder
from slurmbridge.runtime.parts import LentStep
from slurmbridge.runtime.peers import JOIN_TIMEOUT_S, PeerLost, Peers, components_whole
from slurmbridge.runtime.sessions import Sessions
from slurmbridge.runtime.wake import Waker

CATCH_UP_S = 0.5
ATTACH_TIMEOUT_S = 60.0
"""How long an srun allocation waits for its srun."""
REASONS = {"TIME LIMIT": "TimeLimit", "NODE FAILURE": "NodeFail", "PREEMPTION": "Preempted", "JOB REQUEUE": "Requeued",
           "CANCELLED": "Cancelled", "SHUTDOWN": "Shutdown"}


class StepDaemon:
    """One run on one node (``index`` in the allocation)."""

    def __init__(self, order: RunOrder, index: int, listener: socket.socket, journal: JournalWriter, waker: Waker,
                 script: str, trusted_uids: frozenset[int], groups: RunGroups | None = None) -> None:
        self.order = order
        self.index = index
        self.node = order.nodes[index]
        self.listener = listener
        self.journal = journal
        self.waker = waker
        self.script = script
        self.trusted_uids = trusted_uids
        self.groups = groups                  # limit the memory of what runs here
        self.log_fd: int | None = None        # takes output for folders that are not here (a pod's log)
        self.join_retry_s = 0.0               # how long the other nodes' daemons may take to listen
        self.end_by_s = order.end_by_s
        self.has_script = order.request.script is not None      # het components but the first have none
        self.ending: str | None = None        # cause of the termination under way
        self.is_over = False                  # the run is being ended, or its script has ended
        self.lost_node = ""                   # whose step daemon was killed
        self.suspended_s: float | None = None
        self.batch_pid: int | None = None
        self.batch_stderr: int | None = None
        self._meter: Meter | None = None      # of the batch script
        self._kill_at: asyncio.TimerHandle | None = None
        self._limit: asyncio.TimerHandle | None = None
        self._warned = False
        self._told_cause = False
        self._end_peer: asyncio.Future[None] | None = None
        self._joined = False

    # ---- life -------------------------------------------------------------------------------------------------------

    async def run(self) -> int:
        """Returns the exit code for the process: 0 once everything is gone and said."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2,
                       signal.SIGALRM, signal.SIGPIPE, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGXCPU):
            signal.signal(number, signal.SIG_IGN)
        self.children = Children()
        self.sessions = Sessions(self)
        self.allocation_over: asyncio.Future[int] = loop.create_future()
        self._whole: asyncio.Future[None] = loop.create_future()           # the gang is
        self._ended_early: asyncio.Future[None] = loop.create_future()     # the run is being ended
        server = await asyncio.start_unix_server(self._serve, sock=self.listener) \
            if self.listener.family == socket.AF_UNIX else await asyncio.start_server(self._serve, sock=self.listener)
        try:
            return await (self._run_head() if self.index == 0 else self._run_member())
        finally:
            server.close()

    async def _run_head(self) -> int:
        self.peers = Peers(self.order)
        try:
            await self.peers.join(self.join_retry_s)
            self._whole.set_result(None)
            await self._await_components()
        except PeerLost as error:
            await self.peers.end()
            self._tell("launch_failed", node=error.node, reason="StepDaemonLost", message=str(error))
            await self.waker.wake_surely()
            return 0
        self._tell("started")
        self.waker.wake()
        self.peers.watch(self._peer_lost)
        self._arm_limit()
        if self.has_script:
            status, usage = await self._run_script()
        else:
            status, usage = await self._run_allocation(), {}
        ended = {"kind": "script_ended", "at_s": round(time.time(), 6), "exit_status": status, "usage": usage,
                 **self._why()}
        self.is_over = True
        quick = self.sessions.idle and self.peers.none and self.children.none_left
        if not quick:
            self.journal.append_lines([ended])
            self.waker.wake()
            await self.sessions.end_all(self.order.kill_wait_s, script_end_text(status))
            await self.sessions.clients_gone()
            await self.children.end_others(self.sessions.keeper_pids())
            await self.peers.end()
            await self.sessions.gone()
            await self.children.end_others(set())
        finished = {"kind": "finished", "at_s": round(time.time(), 6), "exit_status": status, **self._why()}
        written = self.journal.append_lines([ended, finished] if quick else [finished])
        while not written:
            await asyncio.sleep(CATCH_UP_S)   # nobody else knows how the run ended
            written = self.journal.catch_up()
        self.journal.sync()
        await self.waker.wake_surely()
        await self.sessions.clients_gone()
        return 0

    async def _await_components(self) -> None:
        """The script of a heterogeneous job begins when all its components are there, or when the job is being ended.
        Raises PeerLost."""
        if not self.has_script or not self.order.het_heads:
            return
        others = asyncio.ensure_future(components_whole(self.order, max(JOIN_TIMEOUT_S, self.join_retry_s)))
        await asyncio.wait([others, self._ended_early], return_when=asyncio.FIRST_COMPLETED)
        if others.done():
            others.result()
        else:
            others.cancel()

    def _why(self) -> dict[str, str]:
        """What ended the run, "" when it was the script itself."""
        if self.lost_node:
            return {"reason": "StepDaemonLost", "node": self.lost_node}
        return {"reason": REASONS.get(self.ending or "", "")}

    def _peer_lost(self, node: str) -> None:
        self.lost_node = node
        self.sessions.node_lost(node)
        self.terminate("NODE FAILURE", 0)

    async def _run_member(self) -> int:
        """Serves step keepers until the head says ``end`` or is gone."""
        self._end_peer = asyncio.get_running_loop().create_future()
        not_joined = asyncio.get_running_loop().call_later(2 * JOIN_TIMEOUT_S, self._not_joined)
        try:
            await self._end_peer
        finally:
            not_joined.cancel()
            await self.children.end_others(set())
        return 0

    def _not_joined(self) -> None:
        """The head was lost before it could say anything."""
        if not self._joined and self._end_peer is not None and not self._end_peer.done():
            self._end_peer.set_result(None)

    async def _run_script(self) -> tuple[int, dict[str, float]]:
        """(wait status, usage) of the batch script and of what it left behind, which is gone on return."""
        try:
            files = batch.open_files(self.order, self.log_fd)
        except batch.CannotOpen as error:
            self._tell("note", text=f"Could not open {error.filename}: {error.strerror}")
            return batch.IO_FAILURE_STATUS, {}
        if batch.goes_to_log(self.order, self.log_fd):
            self._tell("note", in_log=True)
        self.batch_stderr = files.stderr_fd
        try:
            login = None
            if self.order.request.get_user_env is not None:
                login = await helpers.login_environment(self.children, self.order.user_name, self.order.uid)
            if self.ending:
                return signal.SIGTERM, {}
            meter = Meter(gather_interval_s(self.order.request.acctg_freq
                                            or self.order.settings.get("JobAcctGatherFrequency")),
                          meter_of(self.children) if self.node.gres else None)
            self.children.before_reaped = meter.last_look
            self._meter = meter
            group = self.groups.make("batch", 0) if self.groups is not None else None
            pid = self.batch_pid = batch.start_script(self.order, self.script, files, login,
                                                      group.path if group else "")
            meter.add(pid)
            ended = await self.children.watch(pid)
            self.batch_pid = None
            if not self.children.none_left:
                await self.children.end_others(self.sessions.kept_pids())
            times, counts = meter.ended(pid, ended)
            status = ended.status
            if group is not None and (complaint := group.complaint(f"{self.order.job_id}.batch")):
                status = OUT_OF_MEMORY_STATUS
                self.say(complaint)
            return status, launch.total_usage({0: {**times, **counts}}, {0: self.node.name},
                                                    self.children.orphan_usage)
        finally:
            self.batch_stderr = None
            files.close()

    def _look_at_script(self) -> dict[str, dict[str, Any]]:
        """What the batch script has used up to now (see RunningStep.look)."""
        if self._meter is None or self.batch_pid is None:
            return {}
        used = dict(enumerate(self._meter.look_now().values()))
        return {"batch": {**launch.total_usage(used, {0: self.node.name}, {}), "num_tasks": 1,
                          "pids": {self.node.name: self._meter.pids([self.batch_pid])}}}

    async def _run_allocation(self) -> int:
        """Waits for the end of an allocation without a script; its wait status."""
        if self.order.request.interactive_command == "srun":
            asyncio.get_running_loop().call_later(ATTACH_TIMEOUT_S, self._not_attached)
        return await self.allocation_over

    def _not_attached(self) -> None:
        if not self.sessions.ever_attached:
            self.end_allocation(signal.SIGKILL)

    def end_allocation(self, status: int) -> None:
        """The srun that owns this allocation is over."""
        if not self.has_script and not self.allocation_over.done():
            self.allocation_over.set_result(status)

    # ---- what is told -----------------------------------------------------------------------------------------------

    def _tell(self, kind: str, **fields: Any) -> None:
        if not self.journal.append(kind, time.time(), **fields):
            self._catch_up()

    def _catch_up(self) -> None:
        """The disk is full: what could not be written is tried again."""
        if self.journal.catch_up():
            self.waker.wake()
        else:
            asyncio.get_running_loop().call_later(CATCH_UP_S, self._catch_up)

    def tell(self, kind: str, **fields: Any) -> None:
        """Writes an event and wakes the engine."""
        self._tell(kind, **fields)
        self.waker.wake()

    def say(self, text: str) -> None:
        """A slurmstepd error line on the batch script's standard error."""
        if self.batch_stderr is not None:
            try:
                os.write(self.batch_stderr, execution.log_line(text))
            except OSError:
                return

    # ---- time limit and the end -------------------------------------------------------------------------------------

    def _arm_limit(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None
        if self.end_by_s is None or self.suspended_s is not None or self.ending:
            return
        next_s = self.end_by_s
        if self.order.warn_signal and not self._warned:
            next_s = min(next_s, self.end_by_s - self.order.warn_before_s)
        self._limit = asyncio.get_running_loop().call_later(max(0.0, next_s - time.time()), self._limit_reached)

    def _limit_reached(self) -> None:
        self._limit = None
        now = time.time()
        assert self.end_by_s is not None
        if self.order.warn_signal and not self._warned and now >= self.end_by_s - self.order.warn_before_s - 0.001:
            self._warned = True
            if not self.order.warn_batch:
                self.deliver(self.order.warn_signal, steps=True, batch_script=False)
            elif self.batch_pid is not None:        # B: means the shell alone, not what it started
                processes.signal_all([self.batch_pid], self.order.warn_signal)
        if now >= self.end_by_s - 0.001:
            self.terminate("TIME LIMIT", self.order.kill_wait_s)
        else:
            self._arm_limit()

    def terminate(self, cause: str, grace_s: float, signal_first: int | None = None) -> None:
        """Ends the run: message, SIGCONT, SIGTERM (or ``signal_first``), SIGKILL after ``grace_s``. May be repeated."""
        loop = asyncio.get_running_loop()
        if self.ending is None:
            self.ending, self.is_over = cause, True
            self._ended_early.set_result(None)
            if self.suspended_s is None:      # else nothing is heard of it before SIGKILL
                self._tell_cause(cause_text(cause))
                self.sessions.announce_end(cause_text(cause))
        if grace_s > 0 and self.suspended_s is None:
            self.deliver(signal.SIGCONT, steps=True, batch_script=True)
            self.deliver(signal_first or signal.SIGTERM, steps=True, batch_script=True)
        if self._kill_at is None or self._kill_at.when() > loop.time() + grace_s:
            if self._kill_at is not None:
                self._kill_at.cancel()
            self._kill_at = loop.call_later(max(0.0, grace_s), self._kill)
        self.end_allocation(signal.SIGTERM)

    def _tell_cause(self, text: str) -> None:
        if not self._told_cause:
            self._told_cause = True
            self.say(f"*** JOB {self.order.job_id} ON {self.node.name} CANCELLED AT "
                     f"{execution.local_time(time.time())} {text} ***")

    def _kill(self) -> None:
        self.deliver(signal.SIGKILL, steps=True, batch_script=True)
        self._kill_at = asyncio.get_running_loop().call_later(0.5, self._kill)

    def deliver(self, number: int, *, steps: bool, batch_script: bool) -> None:
        """A signal to every process of all steps and/or of the batch step."""
        if steps:
            self.sessions.signal_all(number)
        if batch_script and self.batch_pid is not None:
            processes.signal_tree(lambda: self.children.others(self.sessions.keeper_pids()), number)

    def suspend(self) -> None:
        if self.suspended_s is None and not self.ending:
            self.suspended_s = time.time()
            self.deliver(signal.SIGSTOP, steps=True, batch_script=True)
            self._arm_limit()

    def resume(self) -> None:
        if self.suspended_s is not None:
            if self.end_by_s is not None:
                self.end_by_s += time.time() - self.suspended_s
            self.suspended_s = None
            self.deliver(signal.SIGCONT, steps=True, batch_script=True)
            self.sessions.room_changed()
            self._arm_limit()

    # ---- connections ------------------------------------------------------------------------------------------------

    def _admit(self, writer: asyncio.StreamWriter, credential: object) -> bool:
        uid = addresses.peer_uid(writer.get_extra_info("socket"))
        known = uid is None or uid == self.order.uid or uid in self.trusted_uids
        return known and isinstance(credential, str) and hmac.compare_digest(credential, self.order.credential)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            first = await asyncio.wait_for(frames.read_frame(reader), 30)
            if first is None:
                return
            kind, payload = first
            request = frames.decode_json(payload)
            if not self._admit(writer, request.get("credential")):
                await frames.send(writer, frames.encode_json(b"k", {"ok": False, "error": "access denied"}))
            elif kind == b"K":
                await self._obey(request, reader, writer)
            elif kind == b"L":
                await self.sessions.keep_step(request, reader, writer)
            elif kind == b"R" and self.index == 0:
                await self.sessions.serve_client(request, reader, writer)
            else:
                await frames.send(writer, frames.encode_json(b"k", {"ok": False, "error": "unexpected frame"}))
        except (ConnectionError, TimeoutError):
            return
        finally:
            writer.close()

    async def _obey(self, request: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        op = request.get("op")
        answer: dict[str, Any] = {"ok": True}
        if op == "join" and self._end_peer is not None:
            self._joined = True
            await frames.send(writer, frames.encode_json(b"k", answer))
            asked = await frames.read_frame(reader)            # "end", or the head is gone
            if not self._end_peer.done():
                await self.children.end_others(set())
                if asked is not None:
                    await frames.send(writer, frames.encode_json(b"k", {"ok": True, "gone": True}))
                if not self._end_peer.done():
                    self._end_peer.set_result(None)
            return
        if op == "file":
            await broadcast.receive(request, reader, writer)
            return
        if op == "part" and self.index == 0:
            await LentStep(self.sessions, reader, writer).serve()
            return
        if op == "whole" and self.index == 0:
            await asyncio.shield(self._whole)
            await frames.send(writer, frames.encode_json(b"k", answer))
            return
        if op == "signal":
            step, number = request.get("step"), int(request["signal"])
            if request.get("batch") and number in (signal.SIGTERM, signal.SIGKILL):
                self._tell_cause(f"DUE to SIGNAL {signal.strsignal(number)}")
            if step not in (None, ""):
                answer["ok"] = self.sessions.signal_step(str(step), number, quiet=bool(request.get("quiet")))
            elif request.get("batch") and not request.get("steps") and self.batch_pid is not None:
                processes.signal_all([self.batch_pid], number)
            else:
                self.deliver(number, steps=bool(request.get("steps")),
                             batch_script=bool(request.get("batch")))
        elif op == "terminate":
            self.terminate(str(request["cause"]), float(request["grace_s"]), request.get("signal_first"))
        elif op == "suspend":
            self.suspend()
        elif op == "resume":
            self.resume()
        elif op == "look":
            answer["steps"] = {**self._look_at_script(), **await self.sessions.look()}
        elif op == "notify":
            if self.batch_stderr is not None:
                self.say(str(request["text"]))
            else:
                self.sessions.say(str(request["text"]))
        elif op == "update":
            self.end_by_s = request["end_by_s"]
            self._arm_limit()
        elif op != "ping":
            answer = {"ok": False, "error": f"unknown order {op!r}"}
        await frames.send(writer, frames.encode_json(b"k", answer))


def script_end_text(status: int) -> str:
    """How the end of the batch script is told in its steps."""
    if status == 0:
        return "DUE to SIGNAL Terminated"
    text = "FAILED (non-zero exit code or other failure mode)"
    number = status & 0x7F
    return f"{text}\nREASON: RaisedSignal:{number}({signal.strsignal(number)})" if number else text


def cause_text(cause: str) -> str:
    """``DUE TO …`` of slurmstepd's message."""
    if cause in ("CANCELLED", "SHUTDOWN", ""):
        return "DUE to SIGNAL Terminated"
    if cause == "NODE FAILURE":
        return "DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS"
    return f"DUE TO {cause}"
