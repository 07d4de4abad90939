"""PMIx for the tasks of one step on one node, by the PMIx library of the system (libpmix.so.2) in the step's keeper.

The library serves its clients on a thread of its own. Only what concerns all nodes comes here: fences, with what the
tasks of this node give for it, go to the step's head and come back through ``told`` with everybody's (see pmiworld); an
abort goes there too. Structures and keys are those of the PMIx standard, versions 4 and 5.
"""
from __future__ import annotations

import asyncio
import base64
import ctypes
import os
import threading
from collections.abc import Callable
from ctypes import POINTER, byref, c_char, c_char_p, c_int, c_size_t, c_uint16, c_uint32, c_uint64, c_void_p
from typing import Any

from slurmbridge.slurm.mpi import pmix_library

SUCCESS, ERR_NOT_SUPPORTED, OPERATION_SUCCEEDED = 0, -47, -157
STRING, UINT16, UINT32, PROC_RANK = 3, 13, 14, 40
RANK_WILDCARD = 0xFFFFFFFE


class Proc(ctypes.Structure):
    _fields_ = (("nspace", c_char * 256), ("rank", c_uint32))


class Data(ctypes.Union):
    _fields_ = (("string", c_char_p), ("uint16", c_uint16), ("uint32", c_uint32), ("uint64", c_uint64),
                ("room", c_uint64 * 3))


class Value(ctypes.Structure):
    _fields_ = (("type", c_uint16), ("data", Data))


class Info(ctypes.Structure):
    _fields_ = (("key", c_char * 512), ("flags", c_uint32), ("value", Value))


_OpDone = ctypes.CFUNCTYPE(None, c_int, c_void_p)
_ModexDone = ctypes.CFUNCTYPE(None, c_int, c_void_p, c_size_t, c_void_p, c_void_p, c_void_p)
_Connected = ctypes.CFUNCTYPE(c_int, POINTER(Proc), c_void_p, c_void_p, c_void_p)
_Abort = ctypes.CFUNCTYPE(c_int, POINTER(Proc), c_void_p, c_int, c_char_p, POINTER(Proc), c_size_t, c_void_p, c_void_p)
_Fence = ctypes.CFUNCTYPE(c_int, POINTER(Proc), c_size_t, c_void_p, c_size_t, c_void_p, c_size_t, c_void_p, c_void_p)
_MODULE_SIZE = 40
"""Function pointers of pmix_server_module_t, with room for later versions; those that are null are not offered."""
_CLIENT_CONNECTED, _CLIENT_FINALIZED, _ABORT, _FENCE = range(4)


class PmixError(OSError):
    """The library cannot be used."""


class PmixServer:
    """``facts`` (of pmiworld.World.facts): nspace, size, nodes (names), ranks_of (each node's ranks), node (this one's
    index). ``directory``: the library's own, to be removed when the tasks are gone. ``send``: to the head, called in
    the loop. Make it in the running loop. Raises PmixError.
    """

    def __init__(self, facts: dict[str, Any], directory: str, send: Callable[[dict[str, Any]], None]) -> None:
        self._facts, self._directory, self._send = facts, directory, send
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, tuple[Any, int | None]] = {}
        self._fences = 0
        self._kept: list[Any] = []            # what the library goes on using
        self._given: list[Any] = []
        try:
            self._lib = ctypes.CDLL(pmix_library() or "libpmix.so.2", mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise PmixError(str(error)) from None
        self._start()

    def _start(self) -> None:
        module = (c_void_p * _MODULE_SIZE)()
        for place, function in ((_CLIENT_CONNECTED, _Connected(self._no_matter)),
                                (_CLIENT_FINALIZED, _Connected(self._no_matter)),
                                (_ABORT, _Abort(self._aborted)), (_FENCE, _Fence(self._fence))):
            self._kept.append(function)
            module[place] = ctypes.cast(function, c_void_p)
        facts = self._facts
        mine = facts["ranks_of"][facts["node"]]
        self._check("PMIx_server_init", self._lib.PMIx_server_init(byref(module), *self._infos([
            ("pmix.srv.nspace", STRING, f"{facts['nspace']}.server"), ("pmix.srv.rank", PROC_RANK, facts["node"]),
            ("pmix.srvr.tmpdir", STRING, self._directory), ("pmix.sys.tmpdir", STRING, self._directory),
            ("pmix.hname", STRING, facts["nodes"][facts["node"]])])))
        self._kept.append(module)
        nspace = facts["nspace"].encode()
        infos = [
            ("pmix.univ.size", UINT32, facts["size"]), ("pmix.job.size", UINT32, facts["size"]),
            ("pmix.max.size", UINT32, facts["size"]), ("pmix.job.napps", UINT32, 1),
            ("pmix.appnum", UINT32, 0), ("pmix.num.nodes", UINT32, len(facts["nodes"])),
            ("pmix.nodeid", UINT32, facts["node"]), ("pmix.local.size", UINT32, len(mine)),
            ("pmix.node.size", UINT32, len(mine)), ("pmix.jobid", STRING, facts["nspace"]),
            ("pmix.lpeers", STRING, ",".join(map(str, mine))), ("pmix.lldr", PROC_RANK, mine[0]),
            ("pmix.nsdir", STRING, self._directory), ("pmix.tmpdir", STRING, self._directory),
            ("pmix.nmap", STRING, self._made("PMIx_generate_regex", ",".join(facts["nodes"]))),
            ("pmix.pmap", STRING, self._made("PMIx_generate_ppn", ";".join(
                ",".join(map(str, ranks)) for ranks in facts["ranks_of"])))]
        self._call_and_wait("PMIx_server_register_nspace", nspace, len(mine), *self._infos(infos))
        for rank in mine:
            self._call_and_wait("PMIx_server_register_client", byref(Proc(nspace, rank)), os.geteuid(),
                                os.getegid(), None)

    def variables(self, rank: int) -> dict[str, str]:
        """What a task needs to find the server."""
        libc = ctypes.CDLL(None)
        libc.calloc.restype = c_void_p        # the library makes room for more by realloc
        pointer = ctypes.cast(libc.calloc(1, ctypes.sizeof(c_void_p)), POINTER(c_char_p))
        self._check("PMIx_server_setup_fork", self._lib.PMIx_server_setup_fork(
            byref(Proc(self._facts["nspace"].encode(), rank)), byref(pointer)))
        found = []
        while pointer[len(found)] is not None:
            found.append(os.fsdecode(pointer[len(found)]))
        return dict(entry.split("=", 1) for entry in found if "=" in entry)

    # ---- the library's calls, on its thread -------------------------------------------------------------------------

    def _no_matter(self, *_arguments: Any) -> int:
        return OPERATION_SUCCEEDED

    def _aborted(self, proc: Any, _server: Any, status: int, text: bytes | None, *_more: Any) -> int:
        self._loop.call_soon_threadsafe(self._send, {"op": "abort", "rank": int(proc.contents.rank)})
        return OPERATION_SUCCEEDED

    def _fence(self, procs: Any, count: int, infos: Any, info_count: int, data: int | None, length: int,
               done: int | None, done_data: int | None) -> int:
        """Of the whole world, or refused; the data is ours to copy."""
        whole = (count == 1 and procs[0].rank == RANK_WILDCARD) or count == self._facts["size"]
        if not whole or not done:
            return ERR_NOT_SUPPORTED
        given = ctypes.string_at(data, length) if data and length else b""
        self._loop.call_soon_threadsafe(self._enter_fence, given, _ModexDone(done), done_data)
        return SUCCESS

    # ---- in the loop ------------------------------------------------------------------------------------------------

    def _enter_fence(self, given: bytes, done: Any, done_data: int | None) -> None:
        self._fences += 1
        self._waiting[self._fences] = (done, done_data)
        self._send({"op": "fence", "pairs": {str(self._facts["node"]): base64.b64encode(given).decode()}})

    def told(self, message: dict[str, Any]) -> None:
        """Everybody has entered the oldest fence."""
        if message.get("op") != "fence" or not self._waiting:
            return
        done, done_data = self._waiting.pop(min(self._waiting))
        pairs = message["pairs"]
        data = b"".join(base64.b64decode(pairs[node]) for node in sorted(pairs, key=int))
        buffer = ctypes.create_string_buffer(data, len(data))
        self._given = [*self._given[-1:], buffer]              # the library may still read the last one
        done(SUCCESS, ctypes.cast(buffer, c_void_p), len(data), done_data, None, None)

    # ---- calling the library ----------------------------------------------------------------------------------------

    def _check(self, what: str, status: int) -> None:
        if status not in (SUCCESS, OPERATION_SUCCEEDED):
            raise PmixError(f"{what}: {status}")

    def _call_and_wait(self, name: str, *arguments: Any) -> None:
        """A call that says later how it went; it never takes long."""
        over, outcome = threading.Event(), [SUCCESS]

        def done(status: int, _data: Any) -> None:
            outcome[0] = status
            over.set()
        callback = _OpDone(done)
        self._kept.append(callback)
        status = getattr(self._lib, name)(*arguments, callback, None)
        if status == SUCCESS:
            over.wait(10)
            status = outcome[0]
        self._check(name, status)

    def _infos(self, values: list[tuple[str, int, Any]]) -> tuple[Any, c_size_t]:
        made = (Info * len(values))()
        for info, (key, kind, value) in zip(made, values):
            info.key, info.value.type = key.encode(), kind
            if kind == STRING:
                text = value if isinstance(value, bytes) else os.fsencode(value)
                self._kept.append(text)
                info.value.data.string = text
            elif kind == UINT16:
                info.value.data.uint16 = value
            else:
                info.value.data.uint32 = value
        self._kept.append(made)
        return made, c_size_t(len(values))

    def _made(self, function: str, text: str) -> bytes:
        result = c_char_p()
        self._check(function, getattr(self._lib, function)(text.encode(), byref(result)))
        return result.value or b""
