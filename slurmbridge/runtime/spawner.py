"""The spawner: one process a controller state that has the whole runtime imported and forks step daemons from it.

It is detached from the controller and outlives it; the engine finds it again through its socket. When it runs as root,
step daemons act as the submitting user right after the fork and import nothing more: the interpreter's files may be
out of that user's reach. It is a subreaper, so what a killed step daemon leaves behind comes to it, is ended, and the
run's journal gets its last line.

Run as ``python -m slurmbridge.runtime.spawner RUN_DIRECTORY REACH_DIRECTORY``. Requests and answers are JSON lines on
``REACH_DIRECTORY/spawner.sock`` (only this process's user may connect).
"""
from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import gc
import json
import os
import selectors
import shutil
import signal
import socket
import sys
import time
import traceback
from dataclasses import dataclass, field
from typing import Any

from slurmbridge.runtime import addresses, cgroups, execution, hosts, preload, processes
from slurmbridge.runtime.daemon import StepDaemon
from slurmbridge.runtime.journal import JournalReader, JournalWriter
from slurmbridge.runtime.order import RunOrder
from slurmbridge.runtime.wake import Waker

LOST_STATUS = 9
"""Wait status of a run whose step daemon was killed: as if by SIGKILL."""
TICK_S = 2.0
ALONE_S = 120.0
"""How long a spawner without runs stays when no engine is connected."""
SOCKET_NAME, LOCK_NAME, WAKE_NAME = "spawner.sock", "spawner.lock", "wake"
JOURNAL_NAME, SCRIPT_NAME = "journal", "slurm_script"


@dataclass(slots=True)
class Run:
    """A run with living step daemons: pid -> pidfd (-1 for own children)."""

    name: str
    journal: str
    daemons: dict[int, int] = field(default_factory=dict)
    wake_path: str = ""
    address: str = ""                         # of the head's daemon: in the environment of all the job's processes
    head: int = 0                             # pid of the first node's daemon
    is_lost: bool = False                     # a daemon was killed


class Spawner:
    def __init__(self, run_directory: str, reach_directory: str) -> None:
        self.run_directory = run_directory
        self.reach_directory = reach_directory
        self.runs: dict[str, Run] = {}
        self.selector = selectors.DefaultSelector()
        self.stopping = False
        self.buffers: dict[socket.socket, bytes] = {}
        self.unclosed: dict[str, Run] = {}    # lost runs whose last line the disk did not take

    # ---- life -------------------------------------------------------------------------------------------------------

    def serve(self) -> None:
        processes.become_subreaper()
        preload.everything()
        execution.find_starter()
        self._adopt()
        self.listener = addresses.listen(addresses.unix_address(self._socket_path()), mode=0o600)
        self.selector.register(self.listener, selectors.EVENT_READ, self._accept)
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        self.wake_read = wake_read
        self.selector.register(wake_read, selectors.EVENT_READ, self._child_changed)
        gc.collect()
        gc.freeze()
        idle_s = 0.0
        while not (self.stopping and not self.runs) and idle_s < ALONE_S:
            ready = self.selector.select(TICK_S)
            for key, _ in ready:
                key.data(key.fileobj)
            idle_s = 0.0 if ready or self.runs or self.buffers else idle_s + TICK_S
            if not ready and is_removed(os.path.join(self.run_directory, LOCK_NAME)):
                self._end_all()               # with the state: nobody can ever ask for these runs
            if self.unclosed and not ready:
                unclosed, self.unclosed = self.unclosed, {}
                for run in unclosed.values():
                    self._close_lost(run)
        with contextlib.suppress(OSError):
            os.unlink(self._socket_path())

    def _socket_path(self) -> str:
        return os.path.join(self.reach_directory, SOCKET_NAME)

    def _adopt(self) -> None:
        """Finds the runs of an earlier spawner: their daemons still live, or their journals are closed."""
        with contextlib.suppress(OSError):
            os.unlink(self._socket_path())
        for name in os.listdir(self.run_directory):
            journal = os.path.join(self.run_directory, name, JOURNAL_NAME)
            try:
                entries = [entry for _, entry in JournalReader(journal).read_new()]
            except OSError:
                continue
            if any(entry["kind"] in ("finished", "launch_failed") for entry in entries):
                continue
            run = Run(name, journal, wake_path=os.path.join(self.reach_directory, WAKE_NAME))
            for entry in entries:
                run.address = entry.get("address", run.address) if entry["kind"] == "launched" else run.address
                if entry["kind"] == "daemon" and entry["node"] == 0:
                    run.head = entry["pid"]
                if entry["kind"] == "daemon" and processes.start_ticks(entry["pid"]) == entry["ticks"]:
                    with contextlib.suppress(OSError):
                        fd = os.pidfd_open(entry["pid"])
                        run.daemons[entry["pid"]] = fd
                        self.selector.register(fd, selectors.EVENT_READ, self._adopted_gone)
            if run.daemons:
                self.runs[name] = run
                if run.head not in run.daemons:
                    self._kill(name)
            else:
                self._close_lost(run)

    # ---- requests ---------------------------------------------------------------------------------------------------

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connection, _ = listener.accept()
            if addresses.peer_uid(connection) not in (0, os.getuid()):
                connection.close()
                return
            self.buffers[connection] = b""
            self.selector.register(connection, selectors.EVENT_READ, self._readable)

    def _readable(self, connection: socket.socket) -> None:
        if connection not in self.buffers:
            return                            # dropped for a new engine a moment ago
        try:
            data = connection.recv(1 << 20)
        except OSError:
            data = b""
        if not data:
            self.selector.unregister(connection)
            del self.buffers[connection]
            connection.close()
            return
        *lines, rest = (self.buffers[connection] + data).split(b"\n")
        self.buffers[connection] = rest
        for line in lines:
            answer = self._answer(line, connection)
            with contextlib.suppress(OSError):
                connection.sendall(json.dumps(answer).encode() + b"\n")

    def _drop_others(self, connection: socket.socket) -> None:
        """A new engine has come: what an earlier one ordered and nobody has read will never be done."""
        for other in [one for one in self.buffers if one is not connection]:
            self.selector.unregister(other)
            del self.buffers[other]
            other.close()

    def _answer(self, line: bytes, connection: socket.socket) -> dict[str, Any]:
        request: dict[str, Any] = {}
        try:
            request = json.loads(line)
            op = request["op"]
            if op == "launch":
                self._launch(RunOrder.from_json(request["order"]))
            elif op == "hello":
                self._drop_others(connection)
            elif op == "kill":
                self._kill(str(request["run"]))
            elif op == "stop":
                self._end_all()
            elif op != "ping":
                raise ValueError(f"unknown request {op!r}")
        except Exception as error:  # one bad order must not take down the spawner
            print(f"{time.time():.3f} {request.get('op')}: {traceback.format_exc()}", file=sys.stderr, flush=True)
            return {"id": request.get("id"), "ok": False, "error": str(error) or type(error).__name__}
        return {"id": request.get("id"), "ok": True, "pid": os.getpid()}

    def _end_all(self) -> None:
        self.stopping = True
        for name in list(self.runs):
            self._kill(name)

    def _kill(self, name: str) -> None:
        """Ends a run that is not wanted any more; its journal gets its last line when the daemons are gone."""
        run = self.runs.get(name)
        for pid in list(run.daemons) if run else []:
            processes.kill_tree(pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    # ---- launching --------------------------------------------------------------------------------------------------

    def _launch(self, order: RunOrder) -> None:
        """Spool directory, journal, script, sockets, one daemon a node. Does nothing when the run exists already.

        The daemons do nothing before they are written down in the journal: a spawner killed meanwhile leaves either
        daemons that its successor finds, or none. Raises OSError; nothing is left then.
        """
        spool = os.path.join(self.run_directory, order.run_name)
        reach = os.path.join(self.reach_directory, order.run_name)
        if order.run_name in self.runs or os.path.exists(os.path.join(spool, JOURNAL_NAME)):
            return
        os.makedirs(spool, mode=0o711, exist_ok=True)
        os.makedirs(reach, mode=0o711, exist_ok=True)
        script = os.path.join(reach, SCRIPT_NAME)
        listeners: list[socket.socket] = []
        is_root = os.getuid() == 0
        run = Run(order.run_name, os.path.join(spool, JOURNAL_NAME),
                  wake_path=os.path.join(self.reach_directory, WAKE_NAME))
        go_read, go_write = os.pipe2(os.O_CLOEXEC)
        journal_fd = -1
        try:
            if order.request.script is not None:
                write_script(script, order.request.script, order.uid if is_root else None)
            for index, node in enumerate(order.nodes):
                path = os.path.join(reach, f"n{index}")
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
                node.address = addresses.unix_address(path)
                listeners.append(addresses.listen(node.address, owner=(order.uid, order.gid) if is_root else None))
            run.address = order.nodes[0].address
            journal_fd = os.open(run.journal, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o600)
            journal = JournalWriter(journal_fd)
            written = journal.append("launched", time.time(), credential=order.credential, address=run.address)
            for index, listener in enumerate(listeners):
                pid = os.fork()
                if pid == 0:
                    self._become_daemon(order, index, listener, journal, run.wake_path, script, go_read)
                run.daemons[pid] = -1
                run.head = run.head or pid
            now = round(time.time(), 6)
            written = written and journal.append_lines([
                {"kind": "daemon", "at_s": now, "node": index, "name": order.nodes[index].name, "pid": pid,
                 "ticks": processes.start_ticks(pid)} for index, pid in enumerate(run.daemons)])
            if not written:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), run.journal)
            self.runs[run.name] = run
            os.write(go_write, bytes(len(run.daemons)))
        except OSError:
            for directory in {spool, reach}:               # daemons that were not told to go end by themselves
                shutil.rmtree(directory, ignore_errors=True)
            raise
        finally:
            for fd in (go_read, go_write, journal_fd):
                if fd >= 0:
                    os.close(fd)
            for listener in listeners:
                listener.close()

    def _become_daemon(self, order: RunOrder, index: int, listener: socket.socket, journal: JournalWriter,
                       wake_path: str, script: str, go: int) -> None:
        """In the forked child: never returns. The spawner's sockets stay referenced, so that none is closed twice."""
        code = 70
        try:
            gc.disable()
            signal.set_wakeup_fd(-1)
            processes.close_all_but({0, 1, 2, listener.fileno(), journal.fd, go} | execution.kept_descriptors())
            os.setsid()
            trusted = frozenset({0, os.getuid()})
            groups = None
            if "cgroup" in order.settings.get("TaskPlugin", ""):
                groups = cgroups.enter_run(self.run_directory, f"{order.run_name}.{index}",
                                           order.nodes[index].mem_mb << 20, order.uid, order.gid)
            hosts.enter(self.run_directory)
            become_user(order)
            processes.become_subreaper()
            if not os.read(go, 1):            # the spawner did not come so far
                os._exit(code)
            os.close(go)
            daemon = StepDaemon(order, index, listener, journal, Waker(wake_path, order.run_name), script, trusted,
                                groups)
            code = asyncio.run(daemon.run())
        except BaseException:
            os.write(2, f"{order.run_name} node {index}: {traceback.format_exc()}\n".encode())
        finally:
            os._exit(code)

    # ---- the end of daemons -----------------------------------------------------------------------------------------

    def _child_changed(self, fd: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(fd, 4096)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            self._daemon_gone(pid, is_lost=status != 0)
        self._end_orphans()

    def _adopted_gone(self, fd: int) -> None:
        self.selector.unregister(fd)
        os.close(fd)
        for run in list(self.runs.values()):
            for pid, own_fd in list(run.daemons.items()):
                if own_fd == fd:
                    self._daemon_gone(pid, is_lost=True)

    def _daemon_gone(self, pid: int, is_lost: bool) -> None:
        """A daemon that ends by itself exits with 0, after its part of the journal is written."""
        for run in list(self.runs.values()):
            if pid not in run.daemons:
                continue
            del run.daemons[pid]
            run.is_lost = run.is_lost or is_lost
            if is_lost:
                self._end_orphans()
            if is_lost and pid == run.head:    # the others may never have heard of it
                self._kill(run.name)
            if not run.daemons:
                self.runs.pop(run.name)
                cgroups.leave_run(self.run_directory, run.name)
                if run.is_lost:
                    self._close_lost(run)

    def _end_orphans(self) -> None:
        """Children that are no step daemons were left behind by a killed one."""
        known = {pid for run in self.runs.values() for pid in run.daemons}
        for child in processes.children(os.getpid()):
            if child not in known:
                processes.kill_tree(child)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)

    def _close_lost(self, run: Run) -> None:
        """The last daemon is gone: if it could not write the last line, it is written here.

        Processes that came to nobody, since there was no spawner when their daemon was killed, are known by their
        environment.
        """
        try:
            entries = [entry for _, entry in JournalReader(run.journal).read_new()]
            kinds = {entry["kind"] for entry in entries}
            if kinds & {"finished", "launch_failed"}:
                return
            if run.address:
                processes.kill_with_environment(f"SLURMBRIDGE_STEPD={run.address}")
            status = next((entry["exit_status"] for entry in entries if entry["kind"] == "script_ended"), LOST_STATUS)
            fd = os.open(run.journal, os.O_WRONLY | os.O_APPEND)
            try:
                writer = JournalWriter(fd)
                node = next((entry.get("name", "") for entry in entries if entry["kind"] == "daemon"), "")
                if "started" in kinds:
                    writer.append("finished", time.time(), exit_status=status, reason="StepDaemonLost", node=node)
                elif "daemon" in kinds:
                    writer.append("launch_failed", time.time(), node=node, reason="StepDaemonLost",
                                  message="the step daemon ended before the job started")
                else:
                    writer.append("launch_failed", time.time(), node="", reason="NotStarted",
                                  message="the run was never started")
                if not writer.catch_up():     # a torn line is skipped by readers
                    self.unclosed[run.name] = run
                    os.write(fd, b"\n")
                writer.sync()
            finally:
                os.close(fd)
        except FileNotFoundError:             # the engine has forgotten the run: it was over
            return
        except OSError as error:
            print(f"{run.name}: {error}", file=sys.stderr, flush=True)
            self.unclosed[run.name] = run
        Waker(run.wake_path, run.name).wake()


def is_removed(path: str) -> bool:
    try:
        os.stat(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def write_script(path: str, text: str, owner_uid: int | None) -> None:
    """The batch script as its owner may read and execute it, and nobody else."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o700)
    with open(fd, "wb") as file:
        file.write(text.encode("utf-8", "surrogateescape"))
        if owner_uid is not None:
            os.fchown(fd, owner_uid, -1)


def become_user(order: RunOrder) -> None:
    """From root to the submitting user in all it opens and sends. Raises OSError.

    The real user stays root, so that no process of the user's may end the step daemon (``kill -9 -1``); what it starts
    gives that up first (execution.py, starter.c).
    """
    if os.getuid() != 0 or order.uid == 0:
        return
    try:
        os.initgroups(order.user_name, order.gid)
    except OSError:
        os.setgroups([order.gid])
    os.setresgid(order.gid, order.gid, order.gid)
    os.setresuid(0, order.uid, 0)


def main(argv: list[str]) -> int:
    """Detached already by whoever started it. Exits 3 when another spawner serves this directory."""
    run_directory, reach_directory = argv
    os.umask(0o022)
    os.chdir("/")
    lock = os.open(os.path.join(run_directory, LOCK_NAME), os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 3
    os.ftruncate(lock, 0)
    os.write(lock, b"%d\n" % os.getpid())
    Spawner(run_directory, reach_directory).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
