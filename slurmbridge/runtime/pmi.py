"""PMI-1 and PMI-2 for the tasks of one step on one node: the wire protocol that MPICH and its kin speak on PMI_FD.

Each task has one end of a socket pair; the other end is here, in the step's keeper. What concerns all nodes (fences,
names, an abort) goes to the step's head as messages ``{"op": …}`` and comes back through ``told``; see pmiworld.
Both protocols begin with one line of PMI-1 that says the version. A program asks and waits for the answer, so that
answers never fill a socket; a program that does not read them is dropped.
"""
from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

MAX_KEY, MAX_VALUE, MAX_NAME = 64, 1024, 256
MAX_REQUEST = 1 << 20
LENGTH_DIGITS = 6
FIRST_FD = 17
"""PMI_FD of the first task, and two more for each further one, as a slurmstepd has it (when these are free)."""
VERSIONS = {(1, 1), (2, 0)}
MAPPING_KEY = "PMI_process_mapping"


@dataclass(slots=True)
class _Task:
    rank: int
    sock: socket.socket
    version: int = 0                          # 0: has not said yet
    buffer: bytes = b""
    waits_for: str = ""                       # a node attribute
    thread: str = ""                          # PMI-2: which thread of the program asked last


@dataclass(slots=True)
class PmiServer:
    """``facts`` (of pmiworld.World.facts): jobid, size, mapping, local_tasks. ``send``: to the head.

    Ranks are those of the whole world. Make it in the running loop.
    """

    facts: dict[str, Any]
    send: Callable[[dict[str, Any]], None]
    _tasks: dict[int, _Task] = field(default_factory=dict)
    _pairs: dict[str, str] = field(default_factory=dict)       # what a fence has made visible
    _new: dict[str, str] = field(default_factory=dict)         # put since the last fence
    _fenced: set[int] = field(default_factory=set)
    _node: dict[str, str] = field(default_factory=dict)
    _asked: dict[int, tuple[int, str]] = field(default_factory=dict)
    _expected: int = 0

    def __post_init__(self) -> None:
        self._pairs[MAPPING_KEY] = str(self.facts["mapping"])
        self._expected = int(self.facts["local_tasks"])

    def add(self, rank: int) -> int:
        """The descriptor of the task's end, which only its process keeps: to be closed after the fork."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.setblocking(False)
        task = self._tasks[rank] = _Task(rank, ours)
        asyncio.get_running_loop().add_reader(ours, self._readable, task)
        return theirs.detach()

    @staticmethod
    def task_fd(local: int) -> int:
        """The number under which the task has its end."""
        return FIRST_FD + 2 * local

    def variables(self, rank: int, local: int) -> dict[str, str]:
        return {"PMI_FD": str(self.task_fd(local)), "PMI_JOBID": str(self.facts["jobid"]), "PMI_RANK": str(rank),
                "PMI_SIZE": str(self.facts["size"])}

    # ---- reading ----------------------------------------------------------------------------------------------------

    def _readable(self, task: _Task) -> None:
        try:
            data = task.sock.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data or len(task.buffer) > MAX_REQUEST:
            self._drop(task)
            return
        task.buffer += data
        try:
            while task.rank in self._tasks and (request := _take_request(task)) is not None:
                self._handle(task, request)
        except ValueError:
            self._drop(task)

    def _drop(self, task: _Task) -> None:
        if self._tasks.pop(task.rank, None) is not None:
            asyncio.get_running_loop().remove_reader(task.sock)
            task.sock.close()

    def _handle(self, task: _Task, request: dict[str, str]) -> None:
        command = request.pop("cmd", "")
        if not task.version:
            self._init(task, command, request)
            return
        task.thread = request.get("thrid", "")
        table = _PMI1 if task.version == 1 else _PMI2
        if command not in table:
            raise ValueError(command)
        table[command](self, task, request)

    def _init(self, task: _Task, command: str, request: dict[str, str]) -> None:
        version = (int(request.get("pmi_version", "0")), int(request.get("pmi_subversion", "0")))
        known = command == "init" and version in VERSIONS
        shown = version if known else (2, 0)
        self._write(task, f"cmd=response_to_init rc={0 if known else 1} pmi_version={shown[0]} "
                          f"pmi_subversion={shown[1]}\n".encode())
        task.version = shown[0]

    # ---- answering --------------------------------------------------------------------------------------------------

    def _write(self, task: _Task, data: bytes) -> None:
        try:
            if task.sock.send(data, socket.MSG_NOSIGNAL) != len(data):
                self._drop(task)
        except OSError:
            self._drop(task)

    def _say(self, task: _Task, command: str, **fields: object) -> None:
        """An answer in the task's own protocol; ``_`` in names of fields stands for PMI-2's ``-``."""
        if task.version == 1:
            words = " ".join(f"{name}={value}" for name, value in fields.items())
            self._write(task, f"cmd={command}{' ' if words else ''}{words}\n".encode(errors="surrogateescape"))
            return
        if task.thread:
            fields["thrid"] = task.thread
        words = "".join(f"{name.replace('_', '-')}={str(value).replace(';', ';;')};" for name, value in fields.items())
        body = f"cmd={command};{words}".encode(errors="surrogateescape")
        self._write(task, b"%*d" % (LENGTH_DIGITS, len(body)) + body)

    # ---- both protocols ---------------------------------------------------------------------------------------------

    def _fence(self, task: _Task, request: dict[str, str]) -> None:
        self._fenced.add(task.rank)
        if len(self._fenced) >= self._expected:
            pairs, self._new = self._new, {}
            self.send({"op": "fence", "pairs": pairs})

    def _abort(self, task: _Task, request: dict[str, str]) -> None:
        if task.version == 1 or request.get("isworld", "TRUE").upper() == "TRUE":
            self.send({"op": "abort", "rank": task.rank})

    def _finalize(self, task: _Task, request: dict[str, str]) -> None:
        self._say(task, "finalize_ack" if task.version == 1 else "finalize-response", rc=0)
        self._drop(task)

    def _name(self, task: _Task, request: dict[str, str], what: str) -> None:
        number = len(self._asked)
        while number in self._asked:
            number += 1
        self._asked[number] = (task.rank, what)
        self.send({"op": what, "id": number, "name": request.get("service") or request.get("name", ""),
                   "port": request.get("port", "")})

    def _publish(self, task: _Task, request: dict[str, str]) -> None:
        self._name(task, request, "publish")

    def _unpublish(self, task: _Task, request: dict[str, str]) -> None:
        self._name(task, request, "unpublish")

    def _lookup(self, task: _Task, request: dict[str, str]) -> None:
        self._name(task, request, "lookup")

    def told(self, message: dict[str, Any]) -> None:
        """What the head says: a fence is through, or a name's answer."""
        if message.get("op") == "fence":
            self._pairs.update(message["pairs"])
            waiting, self._fenced = self._fenced, set()
            for rank in waiting:
                if task := self._tasks.get(rank):
                    self._say(task, "barrier_out" if task.version == 1 else "kvs-fence-response", rc=0)
            return
        rank, what = self._asked.pop(int(message["id"]), (-1, ""))
        found = message.get("port")
        task = self._tasks.get(rank)
        if task is None:
            return
        if task.version == 1:
            known = {"port": found} if what == "lookup" and found is not None else {}
            self._say(task, f"{what}_result", info="ok" if found is not None else "fail", **known)
        else:
            known = {"value": found} if what == "lookup" and found is not None else {}
            self._say(task, f"name-{what}-response", rc=0 if found is not None else 1, **known)

    # ---- PMI-1 ------------------------------------------------------------------------------------------------------

    def _maxes(self, task: _Task, request: dict[str, str]) -> None:
        self._say(task, "maxes", rc=0, kvsname_max=MAX_NAME, keylen_max=MAX_KEY, vallen_max=MAX_VALUE)

    def _universe(self, task: _Task, request: dict[str, str]) -> None:
        self._say(task, "universe_size", rc=0, size=self.facts["size"])

    def _appnum(self, task: _Task, request: dict[str, str]) -> None:
        self._say(task, "appnum", rc=0, appnum=-1)

    def _kvs_name(self, task: _Task, request: dict[str, str]) -> None:
        self._say(task, "my_kvsname", rc=0, kvsname=self.facts["jobid"])

    def _put1(self, task: _Task, request: dict[str, str]) -> None:
        self._new[request["key"]] = request.get("value", "")
        self._say(task, "put_result", rc=0)

    def _get1(self, task: _Task, request: dict[str, str]) -> None:
        value = self._pairs.get(request.get("key", ""))
        if value is None:
            self._say(task, "get_result", rc=1)
        else:
            self._say(task, "get_result", rc=0, value=value)

    def _spawn1(self, task: _Task, request: dict[str, str]) -> None:
        self._say(task, "spawn_result", rc=1)

    # ---- PMI-2 ------------------------------------------------------------------------------------------------------

    def _full_init(self, task: _Task, request: dict[str, str]) -> None:
        self._say(task, "fullinit-response", rc=0, pmi_version=2, pmi_subversion=0, rank=task.rank,
                  size=self.facts["size"], appnum=-1, debugged="FALSE", pmiverbose="FALSE")

    def _job_id(self, task: _Task, request: dict[str, str]) -> None:
        self._say(task, "job-getid-response", rc=0, jobid=self.facts["jobid"])

    def _put2(self, task: _Task, request: dict[str, str]) -> None:
        self._new[request["key"]] = request.get("value", "")
        self._say(task, "kvs-put-response", rc=0)

    def _found(self, task: _Task, command: str, value: str | None) -> None:
        if value is None:
            self._say(task, command, rc=0, found="FALSE")
        else:
            self._say(task, command, rc=0, found="TRUE", value=value)

    def _get2(self, task: _Task, request: dict[str, str]) -> None:
        self._found(task, "kvs-get-response", self._pairs.get(request.get("key", "")))

    def _node_get(self, task: _Task, request: dict[str, str]) -> None:
        key = request.get("key", "")
        if key not in self._node and request.get("wait", "").upper() == "TRUE":
            task.waits_for = key
        else:
            self._found(task, "info-getnodeattr-response", self._node.get(key))

    def _node_put(self, task: _Task, request: dict[str, str]) -> None:
        key = request["key"]
        self._node[key] = request.get("value", "")
        for other in [other for other in self._tasks.values() if other.waits_for == key]:
            other.waits_for = ""
            self._found(other, "info-getnodeattr-response", self._node[key])
        self._say(task, "info-putnodeattr-response", rc=0)

    def _job_get(self, task: _Task, request: dict[str, str]) -> None:
        known = {MAPPING_KEY: str(self.facts["mapping"]), "universeSize": str(self.facts["size"])}
        self._found(task, "info-getjobattr-response", known.get(request.get("key", "")))

    def _spawn2(self, task: _Task, request: dict[str, str]) -> None:
        self._say(task, "spawn-response", rc=14, errmsg="spawn failed")


_Handler = Callable[[PmiServer, _Task, dict[str, str]], None]
_PMI1: dict[str, _Handler] = {
    "get_maxes": PmiServer._maxes, "get_universe_size": PmiServer._universe, "get_appnum": PmiServer._appnum,
    "barrier_in": PmiServer._fence, "finalize": PmiServer._finalize, "abort": PmiServer._abort,
    "get_my_kvsname": PmiServer._kvs_name, "put": PmiServer._put1, "get": PmiServer._get1,
    "publish_name": PmiServer._publish, "unpublish_name": PmiServer._unpublish, "lookup_name": PmiServer._lookup,
    "spawn": PmiServer._spawn1}
_PMI2: dict[str, _Handler] = {
    "fullinit": PmiServer._full_init, "finalize": PmiServer._finalize, "abort": PmiServer._abort,
    "job-getid": PmiServer._job_id, "kvs-put": PmiServer._put2, "kvs-get": PmiServer._get2,
    "kvs-fence": PmiServer._fence, "info-getnodeattr": PmiServer._node_get, "info-putnodeattr": PmiServer._node_put,
    "info-getjobattr": PmiServer._job_get, "name-publish": PmiServer._publish,
    "name-unpublish": PmiServer._unpublish, "name-lookup": PmiServer._lookup, "spawn": PmiServer._spawn2}


def _take_request(task: _Task) -> dict[str, str] | None:
    """The next whole request of the buffer as its fields; None: more is to come. Raises ValueError."""
    if task.version == 2:
        head = task.buffer[:LENGTH_DIGITS]
        if len(head) < LENGTH_DIGITS:
            return None
        end = LENGTH_DIGITS + int(head)
        if len(task.buffer) < end:
            return None
        body, task.buffer = task.buffer[LENGTH_DIGITS:end], task.buffer[end:]
        return pmi2_fields(body.decode(errors="surrogateescape"))
    if task.buffer.startswith(b"mcmd="):
        body, ending, rest = task.buffer.partition(b"endcmd\n")
        if not ending:
            return None
        task.buffer = rest
        return {"cmd": body.split(b"\n", 1)[0].removeprefix(b"mcmd=").decode(errors="surrogateescape")}
    line, ending, rest = task.buffer.partition(b"\n")
    if not ending:
        return None
    task.buffer = rest
    return pmi1_fields(line.decode(errors="surrogateescape"))


def pmi1_fields(line: str) -> dict[str, str]:
    """``cmd=put key=k value=v``; blanks in the value, which is last, stay."""
    fields: dict[str, str] = {}
    while line:
        word, _, rest = line.lstrip(" ").partition(" ")
        name, _, value = word.partition("=")
        if name in ("value", "msg", "error_msg"):
            value, rest = line.lstrip(" ")[len(name) + 1:], ""
        if name:
            fields[name] = value
        line = rest
    return fields


def pmi2_fields(body: str) -> dict[str, str]:
    """``cmd=kvs-put;key=k;value=v;``; ``;;`` in a value is a semicolon."""
    fields: dict[str, str] = {}
    for part in body.replace(";;", "\0").split(";"):
        name, equals, value = part.partition("=")
        if equals and name not in fields:
            fields[name] = value.replace("\0", ";")
    return fields
